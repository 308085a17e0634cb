from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from tutelage.mechanisms import LNMax
from tutelage_reproductions import diabetes
from tutelage_reproductions.datasets.diabetes import CLASSES, FEATURES, HospitalStays

HOME = 1  # where a patient went who can return


def made_up(n_stays: int, n_patients: int) -> HospitalStays:
    """Return stays like the real ones: a drug shows in its dose mostly, and nothing tells of readmission."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 20, (n_stays, len(FEATURES)))
    X[:, FEATURES.index("discharge_disposition_id")] = HOME
    takes = rng.random(n_stays) > 0.2277
    for name in ("metformin", "insulin", "change", "diabetesMed"):
        X[:, FEATURES.index(name)] = takes & (
            rng.random(n_stays) < (1 if name == "diabetesMed" else 0.5)
        )
    y = (rng.random(n_stays) > 0.1139).astype(np.int64)
    return HospitalStays(X, y, rng.integers(0, n_patients, n_stays), rng.permutation(n_stays))


def asked_for_the_drug(stays: HospitalStays) -> HospitalStays:
    X, y = stays.X[:, :-1], stays.X[:, -1]
    return replace(
        stays,
        X=X,
        y=y,
        feature_names=FEATURES[:-1],
        classes=("no diabetes drug", "a diabetes drug"),
    )


@pytest.fixture
def stays():
    return made_up(4000, 1500)


@pytest.fixture
def less_work(monkeypatch, stays):
    """Made-up stays in the place of the real ones, few teachers of few trees, and as little noise as they need."""

    def load(*, download, label, features=None):
        assert not download
        if label == "readmitted":
            return stays
        drug = asked_for_the_drug(stays)
        sign = np.where(drug.y == 1, 1, 0)[:, np.newaxis]
        return (
            drug
            if features is None
            else replace(drug, X=np.hstack([drug.X, sign]), feature_names=features)
        )

    monkeypatch.setattr(diabetes, "load_diabetes", load)
    monkeypatch.setattr(
        diabetes, "RandomForestClassifier", lambda **seed: RandomForestClassifier(10, **seed)
    )
    monkeypatch.setattr(diabetes, "_TEACHERS", 8)
    monkeypatch.setattr(diabetes, "_ANSWERS", 60)
    monkeypatch.setattr(diabetes, "_MECHANISM", LNMax(0.5))
    monkeypatch.setattr(diabetes, "_RUNS", 2)


def test_both_labels_stand_beside_what_the_paper_says_of_one(less_work, stays):
    record = diabetes.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    assert record.name == "diabetes"
    early = rows["stays with readmitted within 30 days"]
    assert (early.ours, early.published) == (np.sum(stays.y == 0), 23_403)
    seven_of_eight = rows[
        "diabetesMed by the rule 'metformin or insulin or change is not No', %"
    ].ours
    assert seven_of_eight == pytest.approx(100 * (1 - 1 / 16), abs=1)
    drug = rows["diabetesMed, 17 columns, by row: student, %"]
    readmission = rows["readmission, by row: student, %"]
    assert drug.published == readmission.published == 93.94
    assert drug.ours > 85 > 65 > readmission.ours > 35
    assert readmission.falls_short
    assert all(row.why for row in record.rows if row.falls_short)
    for label in ("readmission", "diabetesMed"):
        apart, by_row = (
            rows[f"{label}, {deal}: forest without privacy, %"].ours
            for deal in ("patients apart", "the same by row")
        )
        leak = rows[f"{label}: by row minus patients apart, forest, points"]
        assert leak.ours == pytest.approx(by_row - apart)
    with_all = rows["diabetesMed, and pioglitazone, by row: forest without privacy, %"]
    assert with_all.ours > rows["diabetesMed, 17 columns, by row: forest without privacy, %"].ours
    exact, bound, any_votes = (
        rows[name].ours
        for name in (
            "readmission, patients apart: vote-dependent ε, exact",
            "readmission, patients apart: vote-dependent ε, bound of 2017",
            "60 queries, LNMax 20: worst-case ε for one patient",
        )
    )
    assert 0 < exact < min(bound, any_votes)


def test_the_quick_form_leaves_out_what_it_says(less_work):
    record = diabetes.reproduce(quick=True, download=False, progress=False)
    assert record.quick
    names = " ".join(row.name for row in record.rows)
    assert "readmission: by row minus patients apart, forest" in names
    assert "diabetesMed, patients apart" not in names


def test_as_many_stays_train_and_score_as_in_the_paper():
    y = np.zeros(101_766, dtype=np.int64)
    y[23_403:] = 1
    rows = np.arange(len(y))
    dealt = diabetes._as_the_paper(
        HospitalStays(np.zeros((len(y), 18), dtype=np.int64), y, rows, rows), 0
    )
    assert len(dealt.private) == len(dealt.shards.assignment) == 34_104
    assert (len(dealt.asked), len(dealt.scored)) == (500, 6_352)
    assert dealt.private.y.mean() == pytest.approx(0.5, abs=0.01)
    everyone = np.concatenate(
        [part.encounters for part in (dealt.private, dealt.asked, dealt.scored)]
    )
    assert len(np.unique(everyone)) == len(everyone)


def test_a_patient_is_kept_apart_by_patient_and_not_by_row(stays):
    apart, by_row = diabetes._by_patient(stays, 0), diabetes._by_row(stays, 0)
    parts = [set(part.patients.tolist()) for part in (apart.private, apart.asked, apart.scored)]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    teachers_of = {
        patient: set(apart.shards.assignment[apart.private.patients == patient].tolist())
        for patient in parts[0]
    }
    assert {len(teachers) for teachers in teachers_of.values()} == {1}
    assert apart.shards.unit.name == "patient"
    assert [len(part) for part in (by_row.private, by_row.scored)] == [
        len(apart.private),
        len(apart.scored),
    ]
    assert set(by_row.private.patients.tolist()) & set(by_row.scored.patients.tolist())
    assert by_row.shards.unit.name == "row"


def test_a_forest_that_knows_its_patients_is_caught_leaking(less_work, stays):
    # Every patient has a number of their own as a feature, and a label that only this number tells.
    known = np.random.default_rng(1).random(1500) > 0.1139
    X = np.full_like(stays.X, HOME)
    X[:, FEATURES.index("num_lab_procedures")] = stays.patients
    told = replace(stays, X=X, y=known[stays.patients].astype(np.int64), classes=CLASSES)
    by_row, apart = (
        np.mean([diabetes._run(deal(told, run), run).forest for run in range(2)])
        for deal in (diabetes._by_row, diabetes._by_patient)
    )
    assert by_row > apart + 5
