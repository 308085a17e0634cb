import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import NearestCentroid

from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import ClassMeans, HeadTeachers, Ridge, closed_form
from tutelage.teachers.closed_form import LabeledShards

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


@pytest.mark.rest
@EACH_HEAD
def test_teachers_together_vote_as_one_by_one(head):
    X, y, shards, queries = made(600, 70)
    together = HeadTeachers(head, n_classes=N_CLASSES).fit(X, y, shards).ballots(queries)
    for number, rows in enumerate(shards.rows):
        alone = Shards(np.zeros(len(rows), dtype=int), 1, ONE_TEACHER)
        one = HeadTeachers(head, n_classes=N_CLASSES).fit_ballots(X[rows], y[rows], alone, queries)
        assert np.array_equal(one[0], together[number])


@EACH_HEAD
def test_a_memory_limit_changes_no_vote(head, monkeypatch):
    X, y, shards, queries = made(2000, 200)
    whole = HeadTeachers(head, n_classes=N_CLASSES).fit(X, y, shards).ballots(queries)
    monkeypatch.setattr(closed_form, "MEMORY", 1)
    assert np.array_equal(HeadTeachers(head, n_classes=N_CLASSES).fit_ballots(X, y, shards, queries), whole)


def learned(head, X, y, shards):
    """Return everything that was learned, by teacher, as bytes."""
    fitted = head.fit(LabeledShards(X, y, shards, N_CLASSES))
    arrays = np.moveaxis(fitted.weights, -1, 0), fitted.biases.T
    return [weights.tobytes() + biases.tobytes() for weights, biases in zip(*arrays, strict=True)]


@EACH_HEAD
@pytest.mark.parametrize("change", ["another row", "another label", "a row less", "a row more"])
def test_a_change_in_one_shard_moves_no_bit_of_another_teacher(head, change):
    X, y, shards, _ = made(1500, 100)
    before = learned(head, X, y, shards)
    row = 700
    X_other, y_other, assignment = X.copy(), y.copy(), shards.assignment
    if change == "another row":
        X_other[row] = 1e6
    elif change == "another label":
        y_other[row] = (y[row] + 1) % N_CLASSES
    elif change == "a row less":
        X_other, y_other, assignment = (np.delete(values, row, axis=0) for values in (X, y, assignment))
    else:
        X_other, y_other, assignment = (np.insert(values, row, values[row], axis=0) for values in (X, y, assignment))
    after = learned(head, X_other, y_other, Shards(assignment, 100, ONE_TEACHER))
    changed = {number for number in range(100) if before[number] != after[number]}
    assert changed == {shards.assignment[row]}


@pytest.mark.rest
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, N_CLASSES - 1)), min_size=1, max_size=40), st.integers(0, 99)
)
def test_any_partition_gives_one_known_class_or_an_abstention(rows, seed):
    assignment, y = np.array(rows).T
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(len(rows), 2)).astype(float)  # many ties
    shards = Shards(assignment, 5, ONE_TEACHER)
    for head, _ in HEADS.values():
        ballots = HeadTeachers(head, n_classes=N_CLASSES).fit_ballots(X, y, shards, X[:5])
        for number, ballot in enumerate(ballots):
            known = {ABSTAIN} if number not in assignment else set(y[assignment == number])
            assert set(ballot) <= known


X, Y, SHARDS, QUERIES = made(50, 3)
HOLED = np.where(np.arange(6) == 2, np.nan, X)


@EACH_HEAD
@pytest.mark.parametrize(("rows", "queries"), [(HOLED, QUERIES), (X, QUERIES * np.inf)], ids=["rows", "queries"])
def test_what_is_not_finite_is_refused(head, rows, queries):
    with pytest.raises(InvalidDataError, match="holds NaN or infinity"):
        HeadTeachers(head, n_classes=N_CLASSES).fit_ballots(rows, Y, SHARDS, queries)


@pytest.mark.parametrize(("rows", "labels", "message"), [
    (X[:, 0], Y, r"shape \(rows, features\)"),
    (np.full((50, 6), "Mrs Miller"), Y, "must hold numbers"),
    (X, Y.astype(float), "class indices"),
    (X, Y + 1, "class indices from 0 to 3"),
])  # fmt: skip
def test_wrong_shapes_are_refused(rows, labels, message):
    with pytest.raises(InvalidDataError, match=message) as refused:
        HeadTeachers(ClassMeans(), n_classes=N_CLASSES).fit(rows, labels, SHARDS)
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
