"""The log tells public facts and nothing that came from a private row."""

import logging
import re
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from conftest import FITS_AGAIN
from tutelage import GNMax, PATEClassifier, SimulationNoise
from tutelage.methods import CappedVotes, NoisyMoments, TeacherVotes
from tutelage.students.store import write_student

polars = pytest.importorskip("polars")

PEOPLE, ROWS, PUBLIC = 373, 941, 60
PLANTED = 728_431  # a cell of every private row
TREE = DecisionTreeClassifier()
KINDS: dict[str, dict[str, Any]] = {
    "votes": {"method": TeacherVotes(TREE, n_teachers=97, mechanism=GNMax(9.0), student=TREE)},
    "vectors": {"method": NoisyMoments(student=TREE), "epsilon": 5.0},
    "nearest": {"method": CappedVotes(student=TREE), "epsilon": 5.0},
}


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def rows(n: int, seed: int, *, private: bool) -> Any:
    random = np.random.default_rng(seed)
    wards = random.choice(["north", "Lummerland" if private else "south"], n)
    return polars.DataFrame(
        {"dose": random.normal(size=n), "code": [PLANTED if private else 1] * n, "ward": wards}
    )


def fit(folder: Any, **settings: Any) -> PATEClassifier:
    """Fit people whose number, rows, ids and labels are known."""
    private, random = rows(ROWS, 0, private=True), np.random.default_rng(2)
    people = [
        f"Miller-{number}"
        for number in [*range(PEOPLE), *random.integers(0, PEOPLE, ROWS - PEOPLE)]
    ]
    labels = np.where(private["dose"].to_numpy() > 0, "yes", "no")
    settings |= {"classes": ["yes", "no"], "ledger": folder / "budget"}
    model = PATEClassifier(noise=SimulationNoise(0), random_state=0, **settings)
    return model.fit(private, labels, X_public=rows(PUBLIC, 1, private=False), entity_ids=people)


@FITS_AGAIN
@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_logs_public_facts_and_no_private_number(kind, tmp_path, said):
    model = fit(tmp_path, **KINDS[kind])
    write_student(model.whole_student(), tmp_path / "student.skops")
    ours = [record.getMessage() for record in said.records if record.name.startswith("tutelage")]
    starts = [
        "Fit started:",
        "Noise chosen:",
        "Ledger made",
        "Budget reserved",
        "Labels released:",
        "Student saved:",
    ]
    assert [start for start in starts if any(line.startswith(start) for line in ours)] == starts
    check_public("\n".join(said.messages), model)
    with pytest.raises(AssertionError):
        check_public(f"Teachers see {PEOPLE} people.", model)


def check_public(text: str, model: PATEClassifier) -> None:
    assert not re.search(f"Lummerland|Miller|Private|{PLANTED // 1000}", text)
    counts = set(model.votes_.counts.ravel().tolist()) if hasattr(model, "votes_") else set()
    private = {PEOPLE, ROWS, *counts} - {0, 1, 2, 5, PUBLIC}
    assert not private & {int(number) for number in re.findall(r"(?<![\d.])\d+(?![\d.])", text)}
