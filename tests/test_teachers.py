import copy
import errno
import importlib
import linecache
import os
import pickle
import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from processes import until
from tutelage._internal.typing import ABSTAIN
from tutelage.ballots import tally
from tutelage.exceptions import (
    InvalidBallotError,
    InvalidDataError,
    InvalidParameterError,
    NotPublishableError,
    TeacherLostWarning,
    TeacherTrainingError,
)
from tutelage.methods.sums import PeopleReady
from tutelage.networks import TwoConvolutions
from tutelage.partition import Shards
from tutelage.people.blocks import PeopleBlock
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import (
    CallableTeachers,
    ClassMeans,
    EstimatorTeachers,
    HeadTeachers,
    Network,
    NetworkTeachers,
    RecordedTeachers,
    Ridge,
    VectorBallots,
)
from tutelage.teachers.checkpoints import BallotFile, source_of
from tutelage.teachers.closed_form import Head, LabeledShards

KEY = b"a key of 32 bytes for the tests."
X = np.random.default_rng(0).uniform(size=(400, 4))
y = (X[:, 0] > 0.5).astype(np.int64)
PEOPLE, LABELS = np.full((8, 1), 123.456), np.array([0, 1] * 4)  # two shards of the same people


def assigned(assignment, n_shards) -> Shards:
    return Shards(np.array(assignment), n_shards, ONE_TEACHER)


HALVES = assigned([0, 0, 0, 0, 1, 1, 1, 1], 2)


# What one shard can reach, for all kinds of teachers


def made(n_shards: int) -> tuple[Any, Any, Any]:
    """Return rows of three overlapping classes, their labels, and the shard of each: uneven ones, and an empty one."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 15 * n_shards)
    rows = rng.normal(size=(len(labels), 6)) + labels[:, None] * 0.7
    return rows, labels, rng.integers(0, n_shards - 1, len(labels)) ** 2 // (n_shards - 1)


def of_heads(head):
    def learned(rows, labels, shards):
        fitted = head.fit(LabeledShards(rows, labels, shards, 3))
        arrays = np.moveaxis(fitted.weights, -1, 0), fitted.biases.T
        return [
            weights.tobytes() + biases.tobytes() for weights, biases in zip(*arrays, strict=True)
        ]

    return learned


def of_networks(engine):
    def with_dropout(n_classes):
        from torch import nn

        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, n_classes))

    def learned(*private):
        network = Network(with_dropout, epochs=3, batch_size=8, device="cpu", engine=engine)
        kept: Any = NetworkTeachers(network, n_classes=3, seed=3).fit(*private)._kept
        weights, _ = kept
        return [[value.numpy().tobytes() for value in one.values()] for one in weights]

    return learned


def of_trees(rows, labels, shards):
    teachers = EstimatorTeachers(RandomForestClassifier(2), n_classes=3, seed=0)
    return [
        ballot.tobytes()
        for ballot in teachers.fit_ballots(
            rows, labels, shards, np.random.default_rng(1).normal(size=(99, 6))
        )
    ]


# The number of shards, and what each teacher learned of its own, as bytes.
LEARNED: dict[str, Any] = {
    "trees": (6, of_trees),
    "class means": (100, of_heads(ClassMeans())),
    "weighted ridge": (100, of_heads(Ridge(2.0, class_weights=[1, 2.5, 3]))),
    "networks one by one": (6, of_networks("sequential")),
    "networks in a stack": (6, of_networks("vectorized")),
}


@pytest.mark.parametrize(
    "change", ["another row", "another label", "rows more", "a row less", "no row", "other order"]
)
@pytest.mark.parametrize("kind", LEARNED)
def test_a_change_in_one_shard_moves_no_bit_of_another_teacher(kind, change):
    n_shards, learned = LEARNED[kind]
    rows, labels, assignment = made(n_shards)
    before = learned(rows, labels, assigned(assignment, n_shards))
    own = np.flatnonzero(assignment == 0)
    order = {
        # The longest shard gets longer, and a stack runs on.
        "rows more": np.insert(np.arange(len(rows)), 3, own),
        "a row less": np.delete(np.arange(len(rows)), own[0]),
        "no row": np.delete(np.arange(len(rows)), own),
        "other order": np.argsort(assignment == 0, kind="stable"),
    }.get(change, np.arange(len(rows)))
    if change == "another row":
        rows[own[0]] = 100
    elif change == "another label":
        labels[own[0]] = (labels[own[0]] + 1) % 3
    after = learned(rows[order], labels[order], assigned(assignment[order], n_shards))
    changed = {number for number in range(n_shards) if before[number] != after[number]}
    assert changed <= (set() if change == "other order" else {0})
    assert changed or change == "other order" or kind == "trees"  # few of whose votes a row changes


@pytest.mark.parametrize("estimator", [LogisticRegression(), RandomForestClassifier(3)], ids=str)
def test_an_empty_shard_abstains_and_a_single_class_is_a_constant_vote(estimator):
    X, y = np.array([[0.0], [1.0], [5.0]]), np.array([0, 1, 1])
    ballots = of_estimator(estimator).fit_ballots(
        X, y, assigned([0, 0, 2], 3), np.array([[0.0], [1.0]])
    )
    assert ballots[1].tolist() == [ABSTAIN, ABSTAIN]
    assert ballots[2].tolist() == [1, 1]
    assert tally(ballots, 2).counts.sum(axis=1).tolist() == [2, 2]


def test_rows_labels_and_shards_must_match():
    X = np.zeros((3, 1))
    with pytest.raises(InvalidDataError, match="one entry per private row"):
        of_estimator(FOREST).fit_ballots(X, np.array([0, 1]), assigned([0, 0, 0], 1), X)
    with pytest.raises(InvalidDataError, match="class indices from 0 to 1"):
        of_estimator(FOREST).fit(X, np.array([0, 1, 2]), assigned([0, 0, 0], 1))


def test_rows_that_are_not_finite_are_refused_without_saying_where():
    said = set()
    for place, cell in ((3, np.nan), (5, np.inf), (7, -np.inf)):
        rows = X.copy()
        rows[place, 1] = cell
        with pytest.raises(InvalidDataError, match="not finite") as refused:
            PeopleReady(PeopleInMemory(rows, y, Shards.of_single_people(400)))
        said.add(str(refused.value))
    assert len(said) == 1
    assert not any(letter.isdigit() for letter in said.pop())


def test_vectors_longer_than_one_are_shortened_to_it():
    """Without it ballots would still be no longer than is charged, but some people would say less than others."""
    rng = np.random.default_rng(0)
    vectors, residuals = rng.normal(size=(40, 5)), rng.normal(size=(40, 2))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    block = PeopleBlock(vectors, LABELS, np.arange(40))
    short, long = (
        VectorBallots().cast(
            [block], lambda _, times=times: (times * vectors, residuals), 1.0, ONE_TEACHER
        )
        for times in (1, 8)
    )
    np.testing.assert_array_equal(long.totals, short.totals)


class Picky(DecisionTreeClassifier):
    """A classifier that fails on rows with a large number, when it learns or when it votes."""

    def __init__(self, when="fit"):
        super().__init__()
        self.when = when

    def fit(self, X, y):  # type: ignore[override]
        self.spoiled = bool(np.abs(X).max() > 100)
        if self.spoiled and self.when == "fit":
            raise ValueError("the row of Mrs Miller")
        return super().fit(X, y)

    def predict(self, X):  # type: ignore[override]
        if self.spoiled and self.when == "predict":
            raise ValueError("the row of Mrs Miller")
        return super().predict(X) + (self.spoiled and self.when == "class") * 5


@pytest.mark.rest
@pytest.mark.parametrize(("when", "n_jobs"), [("fit", 2), ("predict", 1), ("class", 1)])
def test_a_teacher_that_fails_abstains_and_no_other_does(when, n_jobs, tmp_path):
    X, y = np.random.default_rng(0).random((40, 2)), np.arange(40) % 2
    shards, spoiled = assigned(np.arange(40) // 10, 4), X.copy()
    spoiled[13] = 1e39
    teachers = of_estimator(Picky(when), n_jobs)
    expected = teachers.fit_ballots(X, y, shards, X)
    expected[1] = ABSTAIN
    for ask in (
        partial(teachers.fit_ballots, spoiled, y, shards, X, tmp_path),
        # Resumed: the one that is left fails again.
        partial(teachers.fit_ballots, spoiled, y, shards, X, tmp_path),
        lambda: teachers.fit(spoiled, y, shards).ballots(X),
    ):
        with pytest.warns(TeacherLostWarning, match="At least one teacher abstains") as caught:
            assert np.array_equal(ask(), expected)
        assert "Miller" not in str(caught[0].message)


FOREST = RandomForestClassifier(2)


def fit_with_checkpoints(folder, X=X, y=y, seed=0, queries=X[:9], estimator: Any = FOREST):
    shards = Shards.of_rows(len(y), 6, key=KEY)
    return of_estimator(estimator, seed=seed).fit_ballots(X, y, shards, queries, folder)


def test_checkpoints_are_private_plain_arrays_and_are_reused(tmp_path):
    home = tmp_path / "private"
    first = fit_with_checkpoints(home)
    assert home.stat().st_mode & 0o777 == 0o700
    files = sorted(home.iterdir())
    assert len(files) == 6
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        with np.load(file, allow_pickle=False) as arrays:
            assert arrays["ballots"].dtype == np.int16
    planted = first[0] ^ 1
    with np.load(files[0]) as arrays:
        identity = arrays["identity"]
    np.savez(files[0], ballots=planted, identity=identity)
    assert np.array_equal(fit_with_checkpoints(home)[0], planted)


def test_a_checkpoint_made_under_other_circumstances_is_not_reused(tmp_path):
    fit_with_checkpoints(tmp_path)
    stump = DecisionTreeClassifier(max_depth=1)
    changes: list[dict[str, Any]] = [
        {"X": 1 - X}, {"y": 1 - y}, {"seed": 1}, {"queries": X[9:18]}, {"estimator": stump},
    ]  # fmt: skip
    for change in changes:
        assert np.array_equal(
            fit_with_checkpoints(tmp_path, **change), fit_with_checkpoints(None, **change)
        )


# Files that are finished end in .npz, others in .part.
TRAIN = """
import sys
from pathlib import Path
from threading import Event
import numpy as np
from sklearn.tree import DecisionTreeClassifier
from tutelage.partition import Shards
from tutelage.teachers import EstimatorTeachers

pause, *folders = sys.argv[1:]
X = np.random.default_rng(0).uniform(size=(120, 2))
y = (X[:, 0] > 0.5).astype(int)
shards = Shards.of_rows(120, 12, key=bytes(16))

class Slow(DecisionTreeClassifier):
    def fit(self, X, y):
        if len(list(Path(folders[0]).glob("*.npz"))) == int(pause):
            Event().wait()  # to be killed
        return super().fit(X, y)

for folder in folders:
    ballots = EstimatorTeachers(Slow(), n_classes=2, seed=0).fit_ballots(X, y, shards, X[:20], Path(folder))
    np.save(f"{folder}.npy", ballots)
"""


@pytest.mark.rest
def test_a_killed_run_resumes(tmp_path):
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "elsewhere"
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    command = [sys.executable, script]
    process = subprocess.Popen([*command, "5", folder], stdout=subprocess.DEVNULL)
    until(lambda: len(list(folder.glob("*.npz"))) == 5, process)
    process.kill()
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("*.npz")}
    assert len(finished) == 5
    subprocess.run([*command, "-1", folder, elsewhere], check=True)
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())
    assert np.array_equal(np.load(f"{folder}.npy"), np.load(f"{elsewhere}.npy"))


class Panic(BaseException):
    """What compiled extensions raise."""


class Raising(ClassifierMixin, BaseEstimator):
    """A classifier that fails in its own way."""

    def __init__(self, kind: Any = Panic):
        self.kind = kind

    def fit(self, X, y):
        warnings.warn(f"the row of Mrs Miller is {X[0]}", stacklevel=1)
        raise self.kind(f"the row of Mrs Miller is {X[0]}")


class CannotBeSent(DecisionTreeClassifier):
    def __getstate__(self):
        raise ValueError("the row of Mrs Miller")


class RaisingHead(Head):
    def fit(self, private):
        warnings.warn("the row of Mrs Miller", stacklevel=1)
        raise ValueError("the row of Mrs Miller")


def raising_network(n_classes):
    from torch import nn

    class RaisingLayer(nn.Linear):
        def forward(self, input):  # noqa: A002  torch's name
            if self.training:
                raise ValueError(f"the row of Mrs Miller is {input}")
            return super().forward(input)

    return RaisingLayer(1, n_classes)


def of_estimator(estimator, n_jobs=1, seed=0):
    return EstimatorTeachers(estimator, n_classes=2, seed=seed, n_jobs=n_jobs)


@pytest.mark.parametrize("make", [
    lambda: of_estimator(Raising(ValueError)),
    lambda: of_estimator(Raising()),
    lambda: of_estimator(Raising(InvalidBallotError)),  # in our own words
    lambda: HeadTeachers(RaisingHead(), n_classes=2),
    lambda: NetworkTeachers(
        Network(raising_network, device="cpu", engine="sequential"), n_classes=2, seed=0
    ),
    pytest.param(lambda: of_estimator(CannotBeSent(), 2), marks=pytest.mark.rest),
])  # fmt: skip
def test_no_error_of_any_kind_carries_a_row_along(make, capfd):
    for ask in (make().fit, partial(make().fit_ballots, X_public=PEOPLE)):
        with pytest.raises(TeacherTrainingError) as caught:
            ask(PEOPLE, LABELS, HALVES)
        error: BaseException | None = caught.value
        while error is not None:
            assert "Miller" not in str(error)
            error = error.__cause__ or error.__context__
    assert "Miller" not in capfd.readouterr().err


def test_an_interrupt_is_not_withheld():
    with pytest.raises(KeyboardInterrupt):
        of_estimator(Raising(KeyboardInterrupt)).fit(PEOPLE, LABELS, HALVES)


def test_a_resumed_fit_that_loses_all_teachers_with_rows_raises_again(tmp_path):
    thirds = assigned(HALVES.assignment, 3)  # the last one is empty, so its abstentions are filed
    for _ in range(2):
        with pytest.raises(TeacherTrainingError):
            of_estimator(Raising()).fit_ballots(PEOPLE, LABELS, thirds, PEOPLE, tmp_path)


@pytest.mark.parametrize("make", [
    lambda: of_estimator(DecisionTreeClassifier()).fit(X, y, Shards.of_rows(400, 4, key=KEY)),
    lambda: HeadTeachers(ClassMeans(), n_classes=2).fit(PEOPLE, LABELS, HALVES),
    lambda: NetworkTeachers(Network(TwoConvolutions(), device="cpu"), n_classes=2, seed=0),
    lambda: CallableTeachers([len], n_classes=2, unit=ONE_TEACHER),
    lambda: RecordedTeachers([[0, 1]], X[:2], n_classes=2, unit=ONE_TEACHER),
])  # fmt: skip
def test_teachers_are_not_pickled(make):
    for leave in (pickle.dumps, copy.deepcopy):
        with pytest.raises(NotPublishableError, match="not pickled"):
            leave(make())
    assert "array" not in repr(make())


class Bomb:
    """An object whose pickle makes a folder when it is read."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize(
    "planted", [np.full(9, 7), np.zeros(8, dtype=np.int16), np.full(9, 0.5), np.array([Bomb()] * 9)]
)
def test_a_checkpoint_that_holds_no_ballots_is_trained_again(planted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fresh = fit_with_checkpoints(tmp_path)
    file = tmp_path / "teacher-000002.npz"
    with np.load(file) as arrays:
        identity = arrays["identity"]
    np.savez(file, ballots=planted, identity=identity)
    assert np.array_equal(fit_with_checkpoints(tmp_path), fresh)
    assert not (tmp_path / "exploded").exists()


def test_a_disk_without_room_names_the_file_and_keeps_what_was_filed(tmp_path, monkeypatch):
    written = []

    def write(self, path, product, identity):
        path.write_bytes(b"begun")
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)

    monkeypatch.setattr(BallotFile, "write", write)
    with pytest.raises(
        OSError, match="No space left on device; the teachers filed before are kept"
    ) as caught:
        fit_with_checkpoints(tmp_path)
    assert caught.value.filename.startswith(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 3


def test_code_is_compared_through_pipelines_and_bases(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for number in (1, 2):
        base = f"from sklearn.base import BaseEstimator\nclass Base(BaseEstimator):\n    x = {number}\n"
        (tmp_path / "own_part.py").write_text(base + "class Own(Base):\n    pass\n")
        linecache.clearcache()
        found.append(
            source_of(make_pipeline(StandardScaler(), importlib.import_module("own_part").Own()))
        )
        del sys.modules["own_part"]
    assert found[0] != found[1]
    assert source_of(make_pipeline(StandardScaler(), DecisionTreeClassifier())) == ()
    typed: dict[str, Any] = {"__name__": "__main__"}
    exec("class ByHand: pass", typed)  # noqa: S102
    with pytest.raises(InvalidParameterError, match="Move it into a module"):
        source_of(typed["ByHand"]())
