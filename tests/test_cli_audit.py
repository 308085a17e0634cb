"""``tutelage audit``: verdicts for people and machines, exit code 3 where something fails, nothing spent or written."""

import csv
import json

import numpy as np
import pytest

from test_cli import INTERACTIVE, configure, refusal, succeeded, write_rows
from test_docs import blocks, executed
from tutelage import GNMax, SimulationNoise
from tutelage.audit.checklist import PrivateRows, check_mechanism, check_rows

pytestmark = pytest.mark.rest

QUICK = "--draws", 2_000, "--entities", 1


@pytest.fixture
def folder(tmp_path):
    extra = {
        "patient": [f"p{i // 2}" for i in range(300)],
        "site": [f"s{i // 2 % 6}" for i in range(300)],
    }
    write_rows(tmp_path / "private.csv", 300, 1, extra=extra)
    write_rows(tmp_path / "public.csv", 60, 2)
    configure(tmp_path, ('entity = "patient"', 'entity = "patient"\nignore = ["site"]'))
    return tmp_path


def verdicts(printed) -> dict[str, str]:
    return {one["check"]: one["verdict"] for one in json.loads(printed.stdout)["checks"]}


def test_a_right_pipeline_passes_and_leaves_nothing_behind(folder, called):
    before = sorted(folder.iterdir())
    printed = succeeded(called("audit", folder / "config.toml", "--json", *QUICK))
    found = json.loads(printed.stdout)
    assert found["passed"]
    assert {one["check"]: one["private"] for one in found["checks"]} == {
        "noise as configured": False, "noise of its own for every query": False, "ε as configured": False,
        "no private row is among the public rows": True, "one person, one ballot": True, "one cell in the file": True,
    }  # fmt: skip
    assert sorted(folder.iterdir()) == before  # no ledger, no results


def test_private_rows_among_the_public_ones_fail(folder, called):
    with (
        (folder / "private.csv").open() as private,
        (folder / "public.csv").open("a", newline="") as public,
    ):
        csv.writer(public).writerows([row[:4] for row in list(csv.reader(private))[1:41]])
    printed = called("audit", folder / "config.toml", "--json", *QUICK)
    assert printed.returncode == 3
    assert verdicts(printed)["no private row is among the public rows"] == "fail"
    assert not json.loads(printed.stdout)["passed"]


def test_silos_and_an_interactive_mechanism_are_audited(folder, called):
    configure(
        folder,
        ('name = "gnmax", sigma = 2.0', INTERACTIVE),
        ("queries = 40", "queries = 40\nrounds = 2"),
        private='entity = "patient"\nsilo = "site"',
    )
    found = verdicts(called("audit", folder / "config.toml", "--json", *QUICK))
    assert (
        found["one entity, one silo"]
        == found["one person, one ballot"]
        == found["ε as configured"]
        == "pass"
    )


def test_wrong_calls_are_one_sentence(folder, called):
    wrong = called("audit", folder / "config.toml", "--draws", 100_000_000_000)
    assert "--draws of audit must be at most 10,000,000" in refusal(wrong, 2)


@pytest.mark.parametrize(("times", "verdict"), [(1, "pass"), (0.25, "fail")])
def test_a_quarter_of_the_noise_fails_in_each_verdict(times, verdict):
    noise = SimulationNoise(0)
    drawn = noise.discrete_gaussian
    setattr(noise, "discrete_gaussian", lambda sigma, shape: drawn(times * sigma, shape))  # noqa: B010  it is final
    found = check_mechanism(GNMax(2.0), 10, 2, draws=2000, noise=noise)
    assert [one.verdict for one in found[:3]] == [verdict] * 3


def test_people_in_two_silos_fail(binary_rows):
    X, y = binary_rows
    found = check_rows(PrivateRows(X, y, np.arange(400) // 2, np.arange(400) % 2), X[:1] + 1)
    assert found[1].verdict == "fail"
    assert "200 have rows in several silos" in found[1].reason


def test_the_documented_audits_work():
    assert executed(blocks("docs/audit.md", "python"))["printed"].split() == [
        "True",
        "True",
        "0",
        "True",
        "0.673",
    ]
