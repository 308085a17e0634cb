"""Releases without public rows, attacked with all that is known: no bound is above the claim, and faults are found.

Noise is real. `LEVEL` is the chance with which a bound may be wrong, so a right method is accused in one of 250 runs at
most. The faults are missed in about as many.
"""

import numpy as np
import pytest

from benchmarks import audit_additive
from benchmarks.audit_additive import FAULTS, ROW, Bounds, audited
from tutelage import PATEClassifier, PATERegressor
from tutelage.audit import PrivateRows, check_fit

pytestmark = pytest.mark.rest
KINDS = pytest.mark.parametrize("numbers", [False, True], ids=["class", "number"])


def found(numbers: bool, fault: str, monkeypatch: pytest.MonkeyPatch, releases: int) -> Bounds:
    relation, planted = FAULTS.get(fault, (ROW, []))
    for owner, name, value in planted:
        monkeypatch.setattr(owner, name, value)
    return audited(numbers, relation, 4.0, releases)


@pytest.mark.slow
@KINDS
def test_nobody_shows_more_than_is_claimed(numbers, monkeypatch):
    monkeypatch.setattr(audit_additive, "LEVEL", 1e-3)
    bounds = found(numbers, "", monkeypatch, 400)
    assert max(bounds.sums, bounds.student, bounds.distance) <= bounds.claimed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("numbers", "fault"),
    [(False, "each row a person"), (True, "each row a person"), (True, "half the noise")],
)
def test_noisy_sums_give_planted_faults_away(numbers, fault, monkeypatch):
    monkeypatch.setattr(audit_additive, "LEVEL", 1e-3)
    bounds = found(numbers, fault, monkeypatch, 400)
    assert bounds.sums > bounds.claimed


@KINDS
def test_a_person_is_as_far_from_its_neighbor_as_is_claimed_at_most(numbers, monkeypatch):
    bounds = found(numbers, "", monkeypatch, 4)
    assert 0.75 * bounds.claimed < bounds.distance <= bounds.claimed


@pytest.mark.parametrize(
    ("numbers", "fault"), [(False, "counts twice as long"), (True, "all sums charged as counts")]
)
def test_ballots_that_are_longer_than_is_charged_are_too_far_from_each_other(
    numbers, fault, monkeypatch
):
    bounds = found(numbers, fault, monkeypatch, 4)
    assert bounds.distance > bounds.claimed


LABELS = np.arange(60) % 2
ROWS = np.array([["a", "b"], ["b", "b"], ["c", "a"]])[np.arange(60) // 5 % 3]


@pytest.mark.parametrize("ids", [None, np.arange(60) // 3], ids=["rows", "people"])
@pytest.mark.parametrize("fault", ["", "counts twice as long"])
@KINDS
def test_ballots_by_a_schema_are_checked_as_those_by_public_rows(numbers, fault, ids, monkeypatch):
    for planted in FAULTS[fault][1] if fault else []:
        monkeypatch.setattr(*planted)
    schema = audit_additive.SCHEMA
    number = PATERegressor(target_range=(0, 1), columns=schema)
    model = number if numbers else PATEClassifier(classes=[0, 1], columns=schema)
    *_, moves = check_fit(model, PrivateRows(ROWS, LABELS, ids), draws=1_000)
    assert moves.verdict == ("fail" if fault else "pass")
