"""The sensitivity claim itself: one changed private row changes the ballots of one teacher only, bit for bit."""

import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from conftest import FITS_AGAIN
from tutelage import GNMax, PATEClassifier, SimulationNoise
from tutelage.ballots import tally
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import PublicFeatureMap, PublicRows, PublicScaling, Schema
from tutelage.features.base import features_of_private
from tutelage.methods import TeacherVotes
from tutelage.methods.additive import _STEPS
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER
from tutelage.tables import Table
from tutelage.teachers import (
    CallableTeachers,
    ClassMeans,
    EstimatorTeachers,
    Network,
    Ridge,
    ensemble_of,
)

KEY = b"a key of 32 bytes for the tests."
TEACHERS = 12


def small_network(n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, n_classes))


ESTIMATORS = {  # one for each class of ensembles
    "scaled regression": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "class means": ClassMeans(),
    "networks": Network(
        small_network, epochs=4, learning_rate=0.03, device="cpu", engine="vectorized"
    ),
}


# Rows that are hard enough for every row to matter, and queries.
_RNG = np.random.default_rng(3)
X = _RNG.normal(size=(240, 3))
Y = (X[:, 0] + _RNG.normal(size=240) > 0).astype(np.int64)
QUERIES = np.random.default_rng(9).normal(size=(300, 3))
SHARDS = Shards.of_rows(240, TEACHERS, key=KEY)


def vote(estimator, X, y, shards=SHARDS):
    return ensemble_of(estimator, n_classes=2, seed=5).fit_ballots(X, y, shards, QUERIES)


def with_row(row, values=(-50.0, 50.0, 0.0)):
    return np.where((np.arange(240) == row)[:, None], values, X)


def moved(before, after) -> set[int]:
    return set(np.flatnonzero((before != after).any(axis=1)).tolist())


def model_of(method=TeacherVotes(ClassMeans(), TEACHERS), **parameters):  # noqa: B008
    return PATEClassifier(method=method, classes=[0, 1], **parameters)


@pytest.fixture
def cast(monkeypatch) -> list[np.ndarray]:
    """The ballots that fits tallied."""
    seen = []

    def spy(ballots, n_classes, unit):
        seen.append(ballots.copy())
        return tally(ballots, n_classes, unit)

    monkeypatch.setattr("tutelage.methods.teacher_votes.tally", spy)
    return seen


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_changed_row_changes_one_teacher(name):
    before = vote(ESTIMATORS[name], X, Y)
    changes = 0
    for row in (0, 239):
        changed = moved(
            before, vote(ESTIMATORS[name], with_row(row), np.where(np.arange(240) == row, 1 - Y, Y))
        )
        assert changed <= {SHARDS.assignment[row]}
        changes += len(changed)
    assert changes > 0  # an extreme row with the wrong label does sway its teacher


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_removed_entity_changes_one_teacher(name):
    ids = np.arange(240) // 2
    kept = ids != 40
    before = vote(ESTIMATORS[name], X, Y, Shards.of_entities(ids, TEACHERS, key=KEY))
    after = vote(
        ESTIMATORS[name], X[kept], Y[kept], Shards.of_entities(ids[kept], TEACHERS, key=KEY)
    )
    assert moved(before, after) == {Shards.of_entities([40], TEACHERS, key=KEY).assignment[0]}


@FITS_AGAIN
@pytest.mark.parametrize(
    ("name", "ids"),
    [("scaled regression", None), ("class means", np.arange(240) // 2), ("networks", None)],
)
def test_the_estimator_that_users_call_keeps_the_claim(name, ids, cast):
    method = TeacherVotes(ESTIMATORS[name], TEACHERS, mechanism=GNMax(3.0), student=GaussianNB())
    model = model_of(method, random_state=0)
    model.fit(X, Y, X_public=QUERIES, entity_ids=ids)
    changes = 0
    for row in (0, 239):
        model.fit(
            with_row(row),
            np.where(np.arange(240) == row, 1 - Y, Y),
            X_public=QUERIES,
            entity_ids=ids,
        )
        changed = moved(cast[0], cast[-1])
        assert len(changed) <= 1
        changes += len(changed)
    assert changes > 0


@FITS_AGAIN
@pytest.mark.parametrize(
    ("cell", "people"), [("1e300", False), ("beyond", True), ("", False), ("{}", True)]
)
def test_a_cell_outside_the_schema_moves_the_ballot_of_its_person_alone(cell, people):
    written = {
        name: [str(number) for number in cells.tolist()]
        for name, cells in zip("abc", X.T, strict=True)
    }
    ids = np.arange(240) // 2 if people else None

    def counted() -> Any:
        model: Any = PATEClassifier(
            columns=Schema(dict.fromkeys("abc", (-3.0, 3.0))), classes=[0, 1]
        )
        rows = Table("", written)  # as a csv file has them
        return (
            model.set_params(noise=SimulationNoise(0))
            .fit(rows, Y, entity_ids=ids)
            .ballots_[0]
            .totals
        )

    before = counted()
    written["b"][X[:, 1].argmin()] = cell
    moved = counted() - before
    assert sorted(moved[moved != 0]) == [-_STEPS // (1 + people), _STEPS // (1 + people)]


def test_a_scaler_fitted_over_all_rows_would_be_caught():
    both = (X, with_row(17, [-5000.0, 5000.0, 0.0]))
    assert (
        len(
            moved(
                *(
                    vote(LogisticRegression(), StandardScaler().fit_transform(rows), Y)
                    for rows in both
                )
            )
        )
        > 1
    )


def moved_by_a_row(ask) -> set[int]:
    """Return the teachers whose ballots change with row 17, which lies in the shard of its own assignment."""
    return moved(ask(X), ask(with_row(17, [-500.0, 500.0, 0.0])))


@pytest.mark.rest
@pytest.mark.parametrize("backend", ["sequential", "loky", "threading"])
def test_a_teacher_that_scales_the_public_rows_in_place_shows_its_scale_to_nobody(backend):
    asked = QUERIES.copy()
    in_place: Any = make_pipeline(
        SimpleImputer(copy=False), StandardScaler(copy=False), LogisticRegression()
    )
    teachers = EstimatorTeachers(in_place, n_classes=2, seed=5)
    with parallel_config(backend=backend, n_jobs=2):
        for ask in (
            lambda rows: teachers.fit(rows, Y, SHARDS).ballots(QUERIES),
            lambda rows: teachers.fit_ballots(rows, Y, SHARDS, QUERIES),
        ):
            assert moved_by_a_row(ask) <= {SHARDS.assignment[17]}
    assert np.array_equal(QUERIES, asked)


def test_a_callable_that_edits_the_question_edits_its_own_copy():
    queries = np.array([["hello"], ["bye"]], dtype=object)

    def greedy(rows):
        rows[:] = "the row of Mrs Miller"
        return [1, 1]

    def honest(rows):
        return [int("Miller" in row[0]) for row in rows]

    teachers = CallableTeachers(
        [greedy, honest], n_classes=2, unit=Shards.of_rows(1, 1, key=KEY).unit
    )
    assert teachers.ballots(queries).tolist() == [[1, 1], [0, 0]]
    assert queries.tolist() == [["hello"], ["bye"]]


class Drawing(LogisticRegression):
    """A classifier that draws from the process's own streams, as often as it has rows, and votes by the draws."""

    def fit(self, X, y, sample_weight=None):
        for _ in range(len(X)):
            random.random()  # noqa: S311
            np.random.random()  # noqa: NPY002
        torch.rand(len(X))
        return super().fit(X, y)

    def predict(self, X):
        drawn = [random.random() + np.random.random() + torch.rand(1).item() for _ in X]  # noqa: NPY002, S311
        return (np.array(drawn) > 1.5).astype(int)


def seed_the_process(seed):
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


@pytest.mark.parametrize("how", ["at once", "kept"])
def test_how_far_a_teacher_gets_in_a_random_stream_moves_no_other(how):
    ids = np.arange(240)
    queries = np.zeros((200, 3))

    def ask(kept):
        seed_the_process(0)
        shards = Shards.of_entities(ids[kept], TEACHERS, key=KEY)
        teachers = EstimatorTeachers(Drawing(), n_classes=2, seed=5)
        if how == "at once":
            return teachers.fit_ballots(X[kept], Y[kept], shards, queries)
        return teachers.fit(X[kept], Y[kept], shards).ballots(queries)

    whole = ask(ids >= 0)
    assert moved(whole, ask(ids != 17)) <= {
        Shards.of_entities([17], TEACHERS, key=KEY).assignment[0]
    }
    assert len({ballot.tobytes() for ballot in whole}) == TEACHERS


@pytest.mark.parametrize("head", [ClassMeans(), Ridge()])
def test_a_narrow_assignment_does_not_wrap_around_to_another_teacher(head):
    wide, narrow = (
        ensemble_of(head, n_classes=10, seed=0).fit_ballots(
            X, Y, Shards(assignment, 250, ONE_TEACHER), X[:50]
        )
        for assignment in (np.arange(240), np.arange(240, dtype=np.uint8))
    )
    assert np.array_equal(wide, narrow)


class Mixing(PublicFeatureMap):
    def transform(self, X):
        return (X - X.mean(axis=0)) / X.std(axis=0)


class Learning(PublicFeatureMap):
    def fit(self, X, y=None):
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.mean_


class Disguised(Pipeline):
    """A pipeline with a transform of its own."""


@pytest.mark.parametrize(("features", "message"), [
    (make_pipeline(PublicScaling(np.zeros(3), np.ones(3)), Mixing()), "whatever other rows are transformed"),
    (Learning().fit(np.ones((2, 3))), "keep its `fit`"),
    (Disguised([("scaled", PublicScaling(np.zeros(3), np.ones(3)))]), "must be a public feature map"),
    (make_pipeline(PublicScaling(np.zeros(3), np.ones(3)), StandardScaler()), "must be a public feature map"),
])  # fmt: skip
def test_a_map_through_which_rows_could_meet_is_refused(features, message):
    with pytest.raises(InvalidParameterError, match=message):
        model_of(features=features).fit(X, Y, X_public=QUERIES)


def test_rows_made_by_a_map_that_saw_private_rows_do_not_become_public():
    with pytest.raises(
        InvalidParameterError, match=r"of PublicRows\.through must be a public feature map"
    ):
        PublicRows(np.ones((5, 3)), "made up").through(StandardScaler().fit(X))  # pyright: ignore[reportArgumentType]


class Bounded(PublicFeatureMap):
    """Divides by the largest value of a call, which public rows never let it do, and keeps what it saw."""

    seen: Any = None

    def transform(self, X):
        self.seen = X
        return X / max(1.0, np.abs(X).max() / 10)


@FITS_AGAIN
def test_a_map_that_mixes_private_rows_after_all_sees_one_shard_at_a_time(cast):
    features, method = Bounded(), TeacherVotes(ClassMeans(), TEACHERS, mechanism=GNMax(2.0))
    for row in (0, 100):
        for rows in (X, with_row(row, [-5000.0, 5000.0, 0.0])):
            model_of(method, features=features, random_state=0).fit(rows, Y, X_public=QUERIES)
        assert len(moved(*cast[-2:])) <= 1
    assert len(features.seen) <= 300  # of the private rows it kept nothing
    assert np.abs(features.seen).max() < 10


class OwnClone(LogisticRegression):
    """An estimator that says that its clone is itself, and goes on where it stopped."""

    def __sklearn_clone__(self):
        return self

    def fit(self, X, y, sample_weight=None):
        self.rows_ = [*getattr(self, "rows_", []), *X[:, 0]]
        return super().fit(X + np.sum(self.rows_), y)


class Stubborn(LogisticRegression):
    """An estimator that, on an outlier, makes every later division by zero in the process raise."""

    def fit(self, X, y, sample_weight=None):
        if np.abs(X).max() > 100:
            np.seterr(divide="raise")
        return super().fit(X, y)

    def predict(self, X):
        try:
            _ = np.ones(1) / np.zeros(1)
        except FloatingPointError:
            return np.zeros(len(X), dtype=int)
        return super().predict(X)


@pytest.mark.parametrize("estimator", [OwnClone(), Stubborn()], ids=lambda it: type(it).__name__)
def test_what_a_teacher_leaves_behind_reaches_no_other(estimator):
    assert moved_by_a_row(lambda rows: vote(estimator, rows, Y)) <= {SHARDS.assignment[17]}


def test_cells_that_teachers_change_are_their_own():
    shared = [0]
    X = np.fromiter([shared] * 4, dtype=object)[:, np.newaxis]

    class Counting(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            for row in X:
                row[0].append(len(row[0]))
            self.longest_ = max(len(row[0]) for row in X)
            return self

        def predict(self, X):
            return np.full(len(X), int(self.longest_ > 3))

    shards = Shards(np.arange(4) // 2, 2, ONE_TEACHER)
    ballots = EstimatorTeachers(Counting(), n_classes=2, seed=0).fit_ballots(
        X, np.array([0, 1, 0, 1]), shards, X[:2]
    )
    assert not ballots.any()
    assert shared == [0]


class Lazy(ClassifierMixin, BaseEstimator):
    """A classifier that loads torch on rows that are not 0, and votes by a draw from it."""

    def fit(self, X, y):
        self.drawn_ = np.zeros(64, dtype=int)
        if X.max() > 0:
            sys.modules["torch"] = torch
            self.drawn_ = (torch.rand(64).numpy() > 0.5).astype(int)
        return self

    def predict(self, X):
        return self.drawn_[: len(X)]


def test_a_teacher_that_loads_torch_draws_from_its_own_stream_as_later_ones_do(monkeypatch):
    def ask(first):
        monkeypatch.delitem(sys.modules, "torch")
        rows = np.array([[first, 0, 0, 0, 1, 0, 1, 0]]).T
        shards = Shards(np.arange(8) // 2, 4, ONE_TEACHER)
        teachers = EstimatorTeachers(Lazy(), n_classes=2, seed=0)
        return teachers.fit_ballots(rows, np.arange(8) % 2, shards, np.zeros((64, 1)))

    assert moved(ask(0), ask(1)) == {0}


class Widening(PublicFeatureMap):
    """Answers in single precision unless a value is large."""

    def transform(self, X):
        return np.sqrt(np.abs(X)).astype(np.float64 if np.abs(X).max() > 100 else np.float32)


def test_the_type_of_features_does_not_follow_one_shard():
    rows = SHARDS.rows
    # The first shard, which would set the type for all.
    X_other = with_row(rows[0][0], [1000 / 3] * 3)
    before, after = (features_of_private(Widening(), values, rows, 3) for values in (X, X_other))
    elsewhere = np.setdiff1d(np.arange(len(X)), rows[0])
    assert before[elsewhere].tobytes() == after[elsewhere].tobytes()


def test_one_text_cell_in_a_list_does_not_make_text_of_everybody():
    rows = [[1.5], [2.5], ["Mrs Miller"]]
    teachers = EstimatorTeachers(GaussianNB(), n_classes=2, seed=0)
    with pytest.raises(InvalidDataError, match="X must be numbers, rows of equal length") as caught:
        teachers.fit(rows, np.array([0, 1, 0]), Shards(np.array([0, 0, 1]), 2, ONE_TEACHER))  # type: ignore[arg-type]
    assert "Miller" not in str(caught.value)
    assert caught.value.__context__ is None
