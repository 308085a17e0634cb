"""Membership inference on Adult and MNIST, against models, teachers, votes and students.

LiRA (Carlini et al. 2022) attacks a forest on all rows, single teachers on their shards, the votes before noise, and
the student, all with the same code. Both data sets are public, so the results may be shown.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import NearestCentroid
from sklearn.tree import DecisionTreeClassifier

from tutelage._internal.fitting import fit_clone
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Matrix
from tutelage.accounting.data_independent import epsilon
from tutelage.ballots import VoteHistogram, tally
from tutelage.datasets import load_adult
from tutelage.datasets.adult import EVALUATION_ROWS
from tutelage.events import Repeated
from tutelage.features import PublicRows
from tutelage.mechanisms import GNMax
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.privacy import ONE_TEACHER, round_up
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage.students.selection import Medoids, PublicKnowledge
from tutelage.teachers import ClassMeans, ensemble_of
from tutelage_reproductions.datasets import load_mnist
from tutelage_reproductions.glyphs import glyph_features
from tutelage_reproductions.likelihood_ratio import (
    Members,
    MembershipResult,
    RocFigure,
    RocPanel,
    Train,
    membership_attack,
)
from tutelage_reproductions.record import Record, Row, mean_share, percent_right

_DELTA = 1e-5
_KEY = b"partition of the reproduction of membership inference"
_TEACHERS = 250
_MANY, _FEW = 2_000, 125  # rows that may be in or out; the others are always in
_RUNS, _QUICK_RUNS = (64, 16), (16, 4)  # shadows, targets
_FOREST_SHARDS, _SMALL_SHARDS = 5, 20
_ADULT_QUERIES, _ADULT_SIGMA = 500, 100.0
_MNIST_ROWS, _MNIST_POOL, _MNIST_QUERIES, _MNIST_SIGMA = 10_000, 2_000, 200, 60.0
_FOREST = RandomForestClassifier(20)
_SCORED = 3  # trainings on all rows


@dataclass(frozen=True)
class _Data:
    """One data set and the PATE that is run on it."""

    name: str
    X: Matrix  # private rows as teachers see them
    y: IntArray
    seen: Matrix  # private rows as the student would see them
    pool: Matrix  # public rows as the student sees them
    queries: IntArray  # indices of the queries in the pool
    asked: Matrix
    held_out: Matrix  # public rows that score models
    labels: IntArray
    teacher: Any
    alone: Any
    student: Any
    mechanism: GNMax

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    @property
    def epsilon(self) -> float:
        """Worst-case ε of the student."""
        one = self.mechanism.event_of_one(self.n_classes, ONE_TEACHER, simulated=False)
        return epsilon(Repeated(one, len(self.queries)), _DELTA).epsilon

    def shards(self, number: int) -> IntArray:
        """Return the shard of each private row."""
        return Shards.of_rows(len(self.y), number, key=_KEY).assignment

    def with_members(self, rows: IntArray, members: Members) -> Members:
        """Return the mask of all private rows but those of `rows` that are no members."""
        present = np.ones(len(self.y), dtype=bool)
        present[rows] = members
        return present

    def votes(self, present: Members, queries: Matrix, seed: int) -> VoteHistogram:
        """Return the votes of teachers on those of their rows that are present."""
        shards = Shards(self.shards(_TEACHERS)[present], _TEACHERS, ONE_TEACHER)
        teachers = ensemble_of(self.teacher, n_classes=self.n_classes, seed=seed)
        return tally(
            teachers.fit_ballots(self.X[present], self.y[present], shards, queries), self.n_classes
        )


@dataclass(frozen=True)
class _Target:
    """Attacked model: how it is trained, and on which rows."""

    name: str
    train: Train
    X: Matrix
    y: IntArray
    is_scored: bool = False  # on held-out rows
    claim: float | None = None


@dataclass(frozen=True)
class _Teachers:
    """Answers each row by the teacher of its shard, whose number is the row's last cell."""

    fitted: list[Any]
    n_classes: int

    def predict_proba(self, X: Matrix) -> FloatArray:
        found = np.zeros((len(X), self.n_classes))
        for number, teacher in enumerate(self.fitted):
            mine = X[:, -1] == number
            found[np.ix_(mine, teacher.classes_)] = teacher.predict_proba(X[mine, :-1])
        return found


@dataclass(frozen=True)
class _Votes:
    """Answers each row by the share of teachers that vote for a class: what is never released."""

    of: Callable[[Matrix], VoteHistogram]

    def predict_proba(self, X: Matrix) -> FloatArray:
        return self.of(X).counts / _TEACHERS


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return how well members are found; `quick` attacks fewer runs, and what was trained on Adult alone."""
    shadows, targets = _QUICK_RUNS if quick else _RUNS
    rows = list[Row]()
    panels = list[RocPanel]()
    for data in (_adult(),) if quick else (_adult(), _mnist(download=download)):
        results: dict[str, MembershipResult] = {}
        for target in _targets(data):
            started = time.perf_counter()
            found = membership_attack(
                target.train,
                target.X,
                target.y,
                shadows=shadows,
                targets=targets,
                progress=progress,
            )
            seconds = time.perf_counter() - started
            rows += _rows(data, target, found, seconds)
            results[target.name] = found
        panels.append(RocPanel.of(data.name, results, epsilon=data.epsilon, delta=_DELTA))
    return Record(
        name="membership",
        source="LiRA: Carlini et al. 2022 (arXiv:2112.03570v2)",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                f"The attack is online LiRA with {shadows} shadow runs and {targets} attacked runs. {_MANY:,} "
                "random private rows are each included or excluded by a coin toss; all other rows are always "
                f"included. For single teachers, all rows of {_FOREST_SHARDS} shards (forests) or {_SMALL_SHARDS} "
                f"are included or excluded. 'Others known': only {_FEW} rows, one per teacher, are included or "
                "excluded, and teachers have the same seed in all runs, so nothing else changes."
            ),
            (
                f"PATE has {_TEACHERS} teachers. Its noise is simulated from the seed of each run. Its ε is "
                f"worst-case at δ = {_DELTA:g}. The lower bound on ε, at the same δ and 95 % confidence, must not "
                "be larger."
            ),
            "Intervals of the AUC are over rows and runs, all others over runs.",
        ),
        figure=RocFigure(tuple(panels)),
    )


def _rows(data: _Data, target: _Target, found: MembershipResult, seconds: float) -> Iterator[Row]:
    name = f"{data.name}, {target.name}"
    yield Row(name=f"{name}: AUC", ours=found.auc, interval=found.interval, seconds=seconds)
    for rate in (0.001, 0.01):
        low, high = found.tpr_interval(rate)
        share, interval = 100 * found.tpr_at(rate), (100 * low, 100 * high)
        yield Row(
            name=f"{name}: true positive rate at {rate:.1%} false positives, %",
            ours=share,
            interval=interval,
        )
    yield Row(
        name=f"{name}: lower bound on ε",
        ours=found.epsilon_lower_bound(_DELTA),
        at_most=target.claim,
    )
    if target.is_scored:
        everyone = np.ones(len(target.y), dtype=bool)
        models = [target.train(everyone, seed) for seed in range(_SCORED)]
        right, interval = mean_share(
            [percent_right(model.predict(data.held_out), data.labels) for model in models]
        )
        yield Row(
            name=f"{name}: accuracy on held-out rows, %",
            ours=right,
            interval=interval,
            better="higher",
        )


def _targets(data: _Data) -> list[_Target]:
    many = np.sort(np.random.default_rng(0).permutation(len(data.y))[:_MANY])
    few = np.unique(data.shards(_TEACHERS), return_index=True)[1][: 2 * _FEW : 2]  # one row each
    student = f"student, ε = {round_up(data.epsilon, 2)}"

    def forest(members: Members, seed: int) -> Any:
        present = data.with_members(many, members)
        return fit_clone(_FOREST, data.seen[present], data.y[present], seed)

    def votes(members: Members, seed: int) -> _Votes:  # noqa: ARG001  nothing is drawn
        present = data.with_members(few, members)
        return _Votes(lambda X: data.votes(present, X, 0))

    return [
        _Target("forest on all rows", forest, data.seen[many], data.y[many], is_scored=True),
        _on_shards("forest on a shard", data, RandomForestClassifier(), _FOREST_SHARDS),
        _on_shards(f"{_NAMES[type(data.alone)]} on a shard", data, data.alone, _SMALL_SHARDS),
        _Target("votes without noise, others known", votes, data.X[few], data.y[few]),
        _pate(f"{student}, others known", data, few, teachers_seed=0),
        _pate(student, data, many, teachers_seed=None),
    ]


def _pate(name: str, data: _Data, rows: IntArray, *, teachers_seed: int | None) -> _Target:
    """Return the student of PATE as a target; its noise is fresh in every run."""

    def train(members: Members, seed: int) -> Any:
        present = data.with_members(rows, members)
        votes = data.votes(present, data.asked, seed if teachers_seed is None else teachers_seed)
        labels = np.full(len(data.pool), ABSTAIN)
        labels[data.queries] = data.mechanism.release(votes, SimulationNoise(seed)).labels
        return fit_student(data.student, data.pool, labels, np.arange(data.n_classes), seed=seed)

    return _Target(
        name,
        train,
        data.seen[rows],
        data.y[rows],
        is_scored=teachers_seed is None,
        claim=round_up(data.epsilon, 2),
    )


def _on_shards(name: str, data: _Data, estimator: Any, n_shards: int) -> _Target:
    """Return teachers as a target; half of a shard is as many rows as a teacher of PATE has."""
    shards = data.shards(_TEACHERS // 2)
    rows = np.flatnonzero(shards < n_shards)
    X, y, shard = data.X[rows], data.y[rows], shards[rows]

    def train(members: Members, seed: int) -> _Teachers:
        own = [members & (shard == number) for number in range(n_shards)]
        return _Teachers(
            [fit_clone(estimator, X[mine], y[mine], seed) for mine in own], data.n_classes
        )

    return _Target(name, train, np.column_stack([X, shard]), y)


def _adult() -> _Data:
    adult = load_adult()
    pool = len(adult.y_public) - EVALUATION_ROWS
    queries = np.arange(_ADULT_QUERIES)
    return _Data(
        name="Adult",
        X=adult.X_private,
        y=adult.y_private,
        seen=adult.X_private,
        pool=adult.X_public[:pool],
        queries=queries,
        asked=adult.X_public[queries],
        held_out=adult.X_public[pool:],
        labels=adult.y_public[pool:],
        teacher=DecisionTreeClassifier(),
        alone=DecisionTreeClassifier(),
        student=RandomForestClassifier(),
        mechanism=GNMax(_ADULT_SIGMA),
    )


def _mnist(*, download: bool) -> _Data:
    mnist = load_mnist(download=download)
    public = mnist.X_test[:_MNIST_POOL]
    features = glyph_features(PublicRows(public, "public MNIST test images"))
    without_diffusion, diffusion = features[:-1], features[-1]
    pool = without_diffusion.transform(public)
    seen = without_diffusion.transform(mnist.X_train[:_MNIST_ROWS])
    queries = Medoids().select(PublicKnowledge.before(pool), _MNIST_QUERIES, seed=0)
    return _Data(
        name="MNIST",
        X=diffusion.transform(seen),
        y=mnist.y_train[:_MNIST_ROWS],
        seen=seen,
        pool=pool,
        queries=queries,
        asked=diffusion.transform(pool[queries]),
        held_out=without_diffusion.transform(mnist.X_test[_MNIST_POOL:]),
        labels=mnist.y_test[_MNIST_POOL:],
        teacher=ClassMeans(),
        alone=NearestCentroid(),
        student=LabelPropagationStudent(),
        mechanism=GNMax(_MNIST_SIGMA),
    )


_NAMES = {DecisionTreeClassifier: "tree", NearestCentroid: "class means"}
