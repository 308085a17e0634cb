"""The sensitivity claim itself: one changed private row changes the ballots of one teacher only, bit for bit."""

import random
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from conftest import FITS_AGAIN
from tutelage import GNMax, PATEClassifier
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features import PublicFeatureMap, PublicProjection, PublicRows, PublicScaling
from tutelage.features.base import check_row_by_row, features_of_private
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import (
    CallableTeachers,
    ClassMeans,
    EstimatorTeachers,
    Network,
    Ridge,
    ensemble_of,
)
from tutelage.votes import tally

KEY = b"a key of 32 bytes for the tests."
TEACHERS = 12


def small_network(n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, n_classes))


ESTIMATORS = {
    "forest": RandomForestClassifier(n_estimators=10),
    "scaled regression": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "naive Bayes": GaussianNB(),
    "class means": ClassMeans(),
    "ridge": Ridge(),
    "nearest neighbors": KNeighborsClassifier(3),
    "networks one by one": Network(small_network, epochs=4, learning_rate=0.03, device="cpu", engine="sequential"),
    "networks together": Network(small_network, epochs=4, learning_rate=0.03, device="cpu", engine="vectorized"),
}


@pytest.fixture
def noisy_rows():
    """Rows that are hard enough for every row to matter."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 3))
    return X, (X[:, 0] + rng.normal(size=240) > 0).astype(np.int64)


def vote(estimator, X, y, shards):
    teachers = ensemble_of(estimator, n_classes=2, seed=5)
    return teachers.fit_ballots(X, y, shards, np.random.default_rng(9).normal(size=(300, 3)))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_changed_row_changes_one_teacher(name, noisy_rows):
    X, y = noisy_rows
    shards = Shards.of_rows(len(y), TEACHERS, key=KEY)
    before = vote(ESTIMATORS[name], X, y, shards)
    changes = 0
    for row in (0, 17, 239):
        X_other, y_other = X.copy(), y.copy()
        X_other[row] = [-50.0, 50.0, 0.0]
        y_other[row] = 1 - y[row]
        after = vote(ESTIMATORS[name], X_other, y_other, shards)
        changed = np.flatnonzero((before != after).any(axis=1))
        assert set(changed) <= {shards.assignment[row]}
        changes += len(changed)
    assert changes > 0  # an extreme row with the wrong label does sway its teacher


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_removed_entity_changes_one_teacher(name, noisy_rows):
    X, y = noisy_rows
    ids = np.arange(len(y)) // 2
    before = vote(ESTIMATORS[name], X, y, Shards.of_entities(ids, TEACHERS, key=KEY))
    kept = ids != 40
    shards = Shards.of_entities(ids[kept], TEACHERS, key=KEY)
    after = vote(ESTIMATORS[name], X[kept], y[kept], shards)
    home = Shards.of_entities([40], TEACHERS, key=KEY).assignment[0]
    assert set(np.flatnonzero((before != after).any(axis=1))) == {home}


@FITS_AGAIN
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("how", ["rows", "entities", "public fraction"])
def test_the_estimator_that_users_call_keeps_the_claim(name, how, noisy_rows, monkeypatch):
    X, y = noisy_rows
    seen = []

    def spy(ballots, n_classes, unit):
        seen.append(ballots.copy())
        return tally(ballots, n_classes, unit)

    monkeypatch.setattr("tutelage.estimator.classifier.tally", spy)
    model = PATEClassifier(
        ESTIMATORS[name],
        n_teachers=TEACHERS,
        mechanism=GNMax(3.0),
        classes=[0, 1],
        random_state=0,
        student=GaussianNB(),
    )
    arguments: dict[str, Any] = {"X_public": np.random.default_rng(9).normal(size=(300, 3))}
    if how == "entities":
        arguments["entity_ids"] = np.arange(240) // 2
    elif how == "public fraction":
        arguments = {}
        model.set_params(public_fraction=0.4)
    model.fit(X, y, **arguments)
    changes = 0
    for row in (0, 17, 100, 239):
        X_other, y_other = X.copy(), y.copy()
        X_other[row], y_other[row] = [-50.0, 50.0, 0.0], 1 - y[row]
        if how == "public fraction":
            X_other[row] = X[row]  # the inputs of the share that is declared public are not protected
        model.fit(X_other, y_other, **arguments)
        before, after = seen[0], seen[-1]
        changed = np.flatnonzero((before != after).any(axis=1))
        assert len(changed) <= 1
        changes += len(changed)
    assert changes > 0


def test_a_scaler_fitted_over_all_rows_would_be_caught(noisy_rows):
    X, y = noisy_rows
    shards = Shards.of_rows(len(y), TEACHERS, key=KEY)
    estimator = LogisticRegression()
    X_other = X.copy()
    X_other[17] = [-5000.0, 5000.0, 0.0]
    before = vote(estimator, StandardScaler().fit_transform(X), y, shards)
    after = vote(estimator, StandardScaler().fit_transform(X_other), y, shards)
    assert (before != after).any(axis=1).sum() > 1


def moved_by_a_row(ask, X, y) -> set[int]:
    """Return the teachers whose ballots change with row 17, which lies in the shard of its own assignment."""
    X_other = X.copy()
    X_other[17] = [-500.0, 500.0, 0.0]
    return set(np.flatnonzero((ask(X) != ask(X_other)).any(axis=1)).tolist())


def in_place() -> Any:
    return make_pipeline(SimpleImputer(copy=False), StandardScaler(copy=False), LogisticRegression())


@pytest.mark.parametrize("backend", ["sequential", "loky", "threading"])
def test_a_teacher_that_scales_the_public_rows_in_place_shows_its_scale_to_nobody(backend, noisy_rows):
    X, y = noisy_rows
    shards = Shards.of_rows(len(y), TEACHERS, key=KEY)
    queries = np.random.default_rng(9).normal(size=(300, 3))
    asked = queries.copy()

    def kept(rows):
        return EstimatorTeachers(in_place(), n_classes=2, seed=5).fit(rows, y, shards).ballots(queries)

    def at_once(rows):
        return EstimatorTeachers(in_place(), n_classes=2, seed=5).fit_ballots(rows, y, shards, queries)

    with parallel_config(backend=backend, n_jobs=2):
        for ask in (kept, at_once):
            assert moved_by_a_row(ask, X, y) <= {shards.assignment[17]}
    assert np.array_equal(queries, asked)


def test_a_callable_that_edits_the_question_edits_its_own_copy():
    queries = np.array([["hello"], ["bye"]], dtype=object)

    def greedy(rows):
        rows[:] = "the row of Mrs Miller"
        return [1, 1]

    def honest(rows):
        return [int("Miller" in row[0]) for row in rows]

    teachers = CallableTeachers([greedy, honest], n_classes=2, unit=Shards.of_rows(1, 1, key=KEY).unit)
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


def test_how_far_a_teacher_gets_in_a_random_stream_moves_no_other(noisy_rows):
    X, y = noisy_rows
    ids = np.arange(len(y))
    queries = np.zeros((200, 3))

    def ask(kept, how):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        shards = Shards.of_entities(ids[kept], TEACHERS, key=KEY)
        teachers = EstimatorTeachers(Drawing(), n_classes=2, seed=5)
        if how == "at once":
            return teachers.fit_ballots(X[kept], y[kept], shards, queries)
        return teachers.fit(X[kept], y[kept], shards).ballots(queries)

    home = Shards.of_entities([17], TEACHERS, key=KEY).assignment[0]
    for how in ("at once", "kept"):
        whole, without = ask(ids >= 0, how), ask(ids != 17, how)
        assert set(np.flatnonzero((whole != without).any(axis=1))) <= {home}
        assert len({ballot.tobytes() for ballot in whole}) == TEACHERS


def test_the_callers_streams_go_on_where_they_were(noisy_rows):
    X, y = noisy_rows
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    expected = random.random(), np.random.random(), torch.rand(1).item()  # noqa: NPY002, S311
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    EstimatorTeachers(Drawing(), n_classes=2, seed=5).fit_ballots(X, y, Shards.of_rows(240, 3, key=KEY), X[:5])
    assert (random.random(), np.random.random(), torch.rand(1).item()) == expected  # noqa: NPY002, S311


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
def test_a_narrow_assignment_does_not_wrap_around_to_another_teacher(dtype, noisy_rows):
    X, y = noisy_rows
    assignment = np.arange(len(y)) % 250
    wide = Shards(assignment, 250, ONE_TEACHER)
    narrow = Shards(assignment.astype(dtype), 250, ONE_TEACHER)
    for head in (ClassMeans(), Ridge()):
        of_wide, of_narrow = (
            ensemble_of(head, n_classes=10, seed=0).fit_ballots(X, y, it, X[:50]) for it in (wide, narrow)
        )
        assert np.array_equal(of_wide, of_narrow)


class Mixing(PublicFeatureMap):
    def transform(self, X):
        return (X - X.mean(axis=0)) / X.std(axis=0)


PROJECTION = np.random.default_rng(0).normal(size=(64, 7))


class Multiplying(PublicFeatureMap):
    def transform(self, X):
        return X @ PROJECTION


class Learning(PublicFeatureMap):
    def fit(self, X, y=None):
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.mean_


class Disguised(Pipeline):
    """A pipeline with a transform of its own."""


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (Mixing(), "`features` gives a row other features when other rows are beside it"),
        (make_pipeline(PublicScaling(np.zeros(3), np.ones(3)), Mixing()), "when other rows are beside it"),
        (Learning().fit(np.ones((2, 3))), "leaves its `fit` alone"),
        (Disguised([("scaled", PublicScaling(np.zeros(3), np.ones(3)))]), "must be a public feature map"),
    ],
)
def test_a_map_through_which_rows_could_meet_is_refused(features, message, noisy_rows):
    X, y = noisy_rows
    model = PATEClassifier(ClassMeans(), features=features, n_teachers=TEACHERS, classes=[0, 1])
    with pytest.raises(InvalidParameterError, match=message):
        model.fit(X, y, X_public=np.random.default_rng(9).normal(size=(300, 3)))


class Claiming(PublicFeatureMap):
    """A matrix product that states what is not true of it."""

    __module__ = "tutelage.features.claiming"
    row_by_row = True
    transform = Multiplying.transform


def test_a_plain_matrix_product_is_refused_only_where_rows_of_several_shards_go_through_it_together():
    rows = np.random.default_rng(9).normal(size=(300, 64))
    check_row_by_row(Multiplying(), rows)
    with pytest.raises(InvalidParameterError, match="to the last bit, or leave `row_by_row` out"):
        check_row_by_row(Claiming(), rows)
    check_row_by_row(PublicProjection(np.zeros(64), PROJECTION, reach=4.0), rows)


@pytest.mark.usefixtures("repeatable", "public_rows_may_be_private")
def test_the_public_way_to_multiply_is_taken(noisy_rows):
    X, y = noisy_rows
    features = PublicProjection(np.zeros(3), np.eye(3)[:, :2], reach=4.0)
    model = PATEClassifier(ClassMeans(), features=features, n_teachers=TEACHERS, classes=[0, 1], mechanism=GNMax(0.3))
    assert model.fit(X, y, X_public=X[:100]).score(X, y) > 0.6


def test_rows_made_by_a_map_that_saw_private_rows_do_not_become_public(noisy_rows):
    X, _ = noisy_rows
    with pytest.raises(InvalidParameterError, match=r"of PublicRows\.through must be a public feature map"):
        PublicRows(np.ones((5, 3)), "made up").through(StandardScaler().fit(X))  # pyright: ignore[reportArgumentType]


class QuotingMap(PublicFeatureMap):
    def transform(self, X):
        if np.abs(X).max() > 100:
            raise ValueError(f"too large: {X[0]}")
        return X


def test_what_a_map_says_of_private_rows_does_not_come_out(noisy_rows):
    X, y = noisy_rows
    X = np.where(X[0] == X, 123.456, X)
    model = PATEClassifier(ClassMeans(), features=QuotingMap(), n_teachers=TEACHERS, classes=[0, 1])
    with pytest.raises(InvalidDataError, match="The feature map raised ValueError on private rows") as caught:
        model.fit(X, y, X_public=np.ones((20, 3)))
    assert caught.value.__context__ is None
    assert "123" not in str(caught.value)


class Bounded(PublicFeatureMap):
    """Divides by the largest value of a call, which public rows never let it do, and keeps what it saw."""

    seen: Any = None

    def transform(self, X):
        self.seen = X
        return X / max(1.0, np.abs(X).max() / 10)


@FITS_AGAIN
def test_a_map_that_mixes_private_rows_after_all_sees_one_shard_at_a_time(noisy_rows, monkeypatch):
    X, y = noisy_rows
    cast_ballots = []

    def spy(ballots, n_classes, unit):
        cast_ballots.append(ballots.copy())
        return tally(ballots, n_classes, unit)

    monkeypatch.setattr("tutelage.estimator.classifier.tally", spy)
    features = Bounded()
    for row in (0, 17, 100):
        X_other = X.copy()
        X_other[row] = [-5000.0, 5000.0, 0.0]
        for rows in (X, X_other):
            model = PATEClassifier(ClassMeans(), features=features, n_teachers=TEACHERS, classes=[0, 1], random_state=0)
            model.fit(rows, y, X_public=np.random.default_rng(9).normal(size=(300, 3)))
        before, after = cast_ballots[-2:]
        assert (before != after).any(axis=1).sum() <= 1
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
def test_what_a_teacher_leaves_behind_reaches_no_other(estimator, noisy_rows):
    X, y = noisy_rows
    shards = Shards.of_rows(len(y), TEACHERS, key=KEY)
    queries = np.random.default_rng(9).normal(size=(300, 3))

    def ask(rows):
        return EstimatorTeachers(estimator, n_classes=2, seed=5).fit_ballots(rows, y, shards, queries)

    assert moved_by_a_row(ask, X, y) <= {shards.assignment[17]}


def test_cells_that_teachers_change_are_their_own():
    shared = [0]
    X = np.empty((4, 1), dtype=object)
    for row in range(4):
        X[row, 0] = shared

    class Counting(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            for row in X:
                row[0].append(len(row[0]))
            self.longest_ = max(len(row[0]) for row in X)
            return self

        def predict(self, X):
            return np.full(len(X), int(self.longest_ > 3))

    shards = Shards(np.arange(4) // 2, 2, ONE_TEACHER)
    ballots = EstimatorTeachers(Counting(), n_classes=2, seed=0).fit_ballots(X, np.array([0, 1, 0, 1]), shards, X[:2])
    assert not ballots.any()
    assert shared == [0]


@pytest.mark.rest
def test_a_teacher_that_loads_torch_draws_from_its_own_stream_as_later_ones_do(tmp_path):
    script = tmp_path / "lazy.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            import numpy as np
            from sklearn.base import BaseEstimator, ClassifierMixin
            from tutelage.privacy import ONE_TEACHER
            from tutelage.partition import Shards
            from tutelage.teachers.estimators import EstimatorTeachers

            class Lazy(ClassifierMixin, BaseEstimator):
                def fit(self, X, y):
                    if X.max() > 0:
                        import torch
                        self.draw_ = torch.rand(64).numpy() > 0.5
                    else:
                        self.draw_ = np.zeros(64, dtype=bool)
                    return self

                def predict(self, X):
                    return self.draw_[: len(X)].astype(int)

            assert "torch" not in sys.modules
            X = np.zeros((8, 1))
            X[[4, 6]] = 1
            X[0] = float(sys.argv[1])
            shards = Shards(np.arange(8) // 2, 4, ONE_TEACHER)
            teachers = EstimatorTeachers(Lazy(), n_classes=2, seed=0)
            print(teachers.fit_ballots(X, np.arange(8) % 2, shards, np.zeros((64, 1)))[1:].tolist())
        """)
    )
    shown = [
        subprocess.run([sys.executable, script, first], capture_output=True, text=True, check=True).stdout
        for first in ("0", "1")
    ]
    assert shown[0] == shown[1]


def test_heads_keep_rows_of_their_own():
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    teachers = ensemble_of(ClassMeans(), n_classes=2, seed=0).fit(X, y, Shards(y // 2, 1, ONE_TEACHER))
    before = teachers.ballots(np.eye(4))
    X[:] = X[::-1].copy()
    assert np.array_equal(teachers.ballots(np.eye(4)), before)


class Widening(PublicFeatureMap):
    """Answers in single precision unless a value is large."""

    def transform(self, X):
        return np.sqrt(np.abs(X)).astype(np.float64 if np.abs(X).max() > 100 else np.float32)


class Counting(PublicFeatureMap):
    def transform(self, X):
        return X if np.abs(X).max() < 100 else X[:, :2]


def test_the_type_and_width_of_features_do_not_follow_one_shard(noisy_rows):
    X, _ = noisy_rows
    rows = Shards.of_rows(len(X), TEACHERS, key=KEY).rows
    X_other = X.copy()
    X_other[rows[0][0]] = 1000 / 3  # the first shard, which would set the type for all
    before, after = (features_of_private(Widening(), values, rows, 3) for values in (X, X_other))
    elsewhere = np.setdiff1d(np.arange(len(X)), rows[0])
    assert before[elsewhere].tobytes() == after[elsewhere].tobytes()
    with pytest.raises(InvalidDataError, match="must make 3 numbers of each private row"):
        features_of_private(Counting(), X_other, rows, 3)


def test_one_text_cell_in_a_list_does_not_make_text_of_everybody():
    rows = [[1.5], [2.5], ["Mrs Miller"]]
    teachers = EstimatorTeachers(GaussianNB(), n_classes=2, seed=0)
    with pytest.raises(InvalidDataError, match="X must be numbers, rows of equal length") as caught:
        teachers.fit(rows, np.array([0, 1, 0]), Shards(np.array([0, 0, 1]), 2, ONE_TEACHER))  # type: ignore[arg-type]
    assert "Miller" not in str(caught.value)
    assert caught.value.__context__ is None
