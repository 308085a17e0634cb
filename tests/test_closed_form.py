import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import NearestCentroid

from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import ClassMeans, HeadTeachers, Ridge, closed_form

N_CLASSES = 4
HEADS = {
    "class means": (ClassMeans(), NearestCentroid()),
    "ridge": (Ridge(2.0), RidgeClassifier(2.0)),
    "weighted ridge": (
        Ridge(2.0, class_weights=[1, 2.5, 1, 3]),
        RidgeClassifier(2.0, class_weight={0: 1, 1: 2.5, 2: 1, 3: 3}),
    ),
}
EACH_HEAD = pytest.mark.parametrize("head", [head for head, _ in HEADS.values()], ids=HEADS)


def made(n_rows, n_shards, seed=0):
    """Return rows of overlapping classes, their labels, an uneven partition with an empty shard, and queries."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, N_CLASSES, n_rows)
    X = rng.normal(size=(n_rows, 6)) + y[:, None] * 0.7
    assignment = rng.integers(0, n_shards - 1, n_rows) ** 2 // (n_shards - 1)
    return X, y, Shards(assignment, n_shards, ONE_TEACHER), rng.normal(size=(300, 6)) + 1


@pytest.mark.parametrize("name", HEADS)
def test_each_teacher_votes_as_scikit_learn_does_on_its_shard(name):
    head, estimator = HEADS[name]
    X, y, shards, queries = made(900, 12)
    ballots = HeadTeachers(head, n_classes=N_CLASSES).fit_ballots(X, y, shards, queries)
    compared = 0
    for ballot, rows in zip(ballots, shards.rows, strict=True):
        if len(rows) == 0:
            assert (ballot == ABSTAIN).all()
        elif len(rows) >= 5 and len(np.unique(y[rows])) > 1:
            assert np.array_equal(ballot, estimator.fit(X[rows], y[rows]).predict(queries))
            compared += 1
    assert compared > 6
    assert (ballots[-1] == ABSTAIN).all()


@EACH_HEAD
def test_a_memory_limit_changes_no_vote(head, monkeypatch):
    X, y, shards, queries = made(1000, 100)
    whole = HeadTeachers(head, n_classes=N_CLASSES).fit(X, y, shards).ballots(queries)
    monkeypatch.setattr(closed_form, "MEMORY", 1)
    assert np.array_equal(
        HeadTeachers(head, n_classes=N_CLASSES).fit_ballots(X, y, shards, queries), whole
    )


X, Y, SHARDS, QUERIES = made(50, 3)
HOLED = np.where(np.arange(6) == 2, np.nan, X)


@pytest.mark.parametrize(("rows", "labels", "queries", "message"), [
    (HOLED, Y, QUERIES, "holds NaN or infinity"),
    (X, Y, QUERIES * np.inf, "holds NaN or infinity"),
    (X[:, 0], Y, QUERIES[:, 0], r"shape \(rows, features\)"),
    (np.full((50, 6), "Mrs Miller"), Y, QUERIES, "must hold numbers"),
    (X, Y + 1, QUERIES, "class indices from 0 to 3"),
])  # fmt: skip
def test_rows_labels_and_queries_that_are_none_are_refused(rows, labels, queries, message):
    with pytest.raises(InvalidDataError, match=message) as refused:
        HeadTeachers(ClassMeans(), n_classes=N_CLASSES).fit_ballots(rows, labels, SHARDS, queries)
    assert "Miller" not in str(refused.value)


def test_ballots_need_a_fit_and_as_many_columns():
    teachers = HeadTeachers(ClassMeans(), n_classes=N_CLASSES)
    for ask in (lambda: teachers.ballots(QUERIES), lambda: teachers.unit):
        with pytest.raises(InvalidDataError, match="Call `fit` first"):
            ask()
    with pytest.raises(InvalidDataError, match=r"rows of shape \(6,\) like those of X"):
        teachers.fit(X, Y, SHARDS).ballots(QUERIES[:, :5])


@pytest.mark.parametrize(("make", "parameter"), [
    (lambda: HeadTeachers(Ridge, n_classes=2), "head"),  # type: ignore[arg-type]
    (lambda: Ridge(0.0), "alpha"),
    (lambda: Ridge(class_weights=(1, 0)), "class_weights"),
    (lambda: HeadTeachers(Ridge(class_weights=(1, 2)), n_classes=N_CLASSES).fit(X, Y, SHARDS), "class_weights"),
])  # fmt: skip
def test_parameters_out_of_range_are_named(make, parameter):
    with pytest.raises(InvalidParameterError) as refused:
        make()
    assert refused.value.parameter == parameter
