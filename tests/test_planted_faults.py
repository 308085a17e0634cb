"""Planted faults of the published list, each of which must be noticed."""

import json

import pytest

from conftest import REPOSITORY
from tutelage_reproductions import planted_faults
from tutelage_reproductions.planted_faults import FAULTS, Fault


@pytest.mark.rest
def test_every_published_fault_is_caught_and_nothing_that_is_right():
    published = json.loads((REPOSITORY / "docs" / "results" / "planted-faults.json").read_text())[
        "rows"
    ]
    found = planted_faults.reproduce(quick=False, download=False, progress=False).rows
    assert [(row.name, row.ours) for row in found] == [
        (row["name"], row["ours"]) for row in published
    ]
    assert [row.ours for row in found[-2:]] == [len(FAULTS), 0]


def test_the_table_counts_what_was_caught(monkeypatch):
    blind = Fault(name="blind", planted="", caught_by="", check=lambda _: True, right=1, wrong=2)
    monkeypatch.setattr(planted_faults, "FAULTS", (FAULTS[20], blind))
    record = planted_faults.reproduce(quick=False, download=False, progress=False)
    assert [row.ours for row in record.rows] == [1.0, 0.0, 1.0, 0.0]
    assert record.rows[-2].at_least == 2.0  # so one that is missed shows
