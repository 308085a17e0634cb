"""How well teachers vote, and how alike, by the number of rows that each learns from: two numbers say both.

Teachers of one kind approach the same classifier as their rows grow. A query has a margin to that classifier's
boundary, normal over queries; a teacher of s rows sees it blurred by an error that falls as 1/√s. So hard queries are
hard for all teachers, and what makes accuracy rise with s makes votes agree. Where it was measured: docs/planning.md.
The two numbers come from accuracies, or from votes that are public: of teachers of public rows, on public queries.
How many labels are right after the noise is computed from them.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from tutelage._internal.files import Form, read_arrays
from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidDataError, InvalidParameterError, UnsupportedEventError
from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax
from tutelage.partition import Shards
from tutelage.planning.calibration import Sketch
from tutelage.teachers import ensemble_of
from tutelage.votes import VoteHistogram, tally

_MARGINS: FloatArray = special.ndtri((np.arange(200) + 0.5) / 200)  # 200 equally likely queries
_LIMIT = 0.9  # assumed where nothing is known
_HALF_PER_CLASS = 5.0  # assumed where the fall of accuracy is not known; 0.5 to 15 were measured
_CONFUSION = 0.5  # measured: 0.35 to 0.8
_MOST_MARGIN = 4.0
_HALVES = (1e-2, 1e6)
_MISFIT = 0.02
_SPREAD = (
    "Queries that are hard for one teacher are hard for all. Of the wrong votes on a query, {share:.0%} go to one "
    "class. Classes are equally frequent."
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ProxyVotes:
    """Votes declared public by whoever makes this; they are read freely, so never put private ones here.

    Parameters
    ----------
    votes : VoteHistogram
        Votes on public queries, of teachers that learned from public rows.
    rows_per_teacher : float
        Mean number of rows that one of them learned from.
    labels : integer array of shape (queries,), optional
        True class index of each query. Without it, the class with most votes counts as right.

    Raises
    ------
    InvalidDataError
        If there are no queries, or the labels are not one class index per query.
    """

    votes: VoteHistogram
    rows_per_teacher: float
    labels: IntArray | None = None

    def __post_init__(self) -> None:
        positive(self.rows_per_teacher, "rows_per_teacher", "ProxyVotes")
        if self.votes.n_queries == 0:
            raise InvalidDataError("`votes` of ProxyVotes must be on at least one query. Got none.")
        if self.labels is not None:
            _check_labels(np.asarray(self.labels), self.votes)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, rows_per_teacher: float | None = None) -> "ProxyVotes":
        """Read public votes from an npz file: ``counts``, and if there are any ``labels`` and ``rows_per_teacher``.

        Parameters
        ----------
        path : path-like
            The npz file; never unpickled.
        rows_per_teacher : float, optional
            Where the file does not say.

        Raises
        ------
        InvalidDataError
            If the file has no counts, nothing says how many rows a teacher had, or it is one of private votes.
        """
        arrays = read_arrays(Path(path))
        if "format" in arrays:
            raise InvalidDataError(
                f"{path} is a file of private votes, as `VoteHistogram.save` writes it. A plan by private votes is a "
                "release that nobody counts; store public votes as a bare array `counts`."
            )
        rows = np.asarray(np.nan if rows_per_teacher is None else rows_per_teacher)
        if "rows_per_teacher" in arrays and math.prod(arrays.form("rows_per_teacher").shape) == 1:
            rows = arrays["rows_per_teacher"]
        if rows.size != 1 or rows.dtype.kind not in "iuf" or not 0 < rows.item() < np.inf:
            raise InvalidDataError(
                f"{path} does not say how many rows each proxy teacher learned from. Say it: --proxy-rows, or an array "
                "`rows_per_teacher` of one number above 0."
            )
        votes = VoteHistogram.load(path, array="counts" if "counts" in arrays else None)
        if "labels" in arrays:
            _check_labels(arrays.form("labels"), votes)
        return cls(votes, float(rows.item()), arrays.get("labels"))

    def accuracy(self) -> float:
        """Return the share of votes that are right; of all alike, a little less than all."""
        right, total = self._right(), self.votes.counts.sum()
        return float((right.sum() + 0.5) / (total + 1))

    def agreement(self) -> float:
        """Return how alike teachers err: the correlation of being right, between two teachers on one query, 0 to 1."""
        voters = np.maximum(self.votes.counts.sum(axis=1), 1)
        shares, mean = self._right() / voters, self.accuracy()
        spread, size = float(shares.var() / (mean * (1 - mean))), float(voters.mean())
        if size <= 1:
            return 0.0
        return float(np.clip((spread - 1 / size) / (1 - 1 / size), 0, 1))  # without what chance alone would spread

    def confusion(self) -> float:
        """Return the share of the wrong votes that go to the most frequent wrong class of their query."""
        wrong = self.votes.counts.copy()
        wrong[np.arange(len(wrong)), self._truth()] = 0
        return float((wrong.max(axis=1).sum() + 0.5) / (wrong.sum() + 1))

    def _truth(self) -> IntArray:
        return self.votes.counts.argmax(axis=1) if self.labels is None else np.asarray(self.labels)

    def _right(self) -> IntArray:
        return self.votes.counts[np.arange(self.votes.n_queries), self._truth()]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherModel:
    """How teachers vote on public queries, by their number of rows.

    A query of margin z, normal with mean Φ⁻¹(`limit`) and variance 1, has the right votes of a share
    ``1/k + (1 − 1/k)·(2f − 1)`` of the teachers that know k classes, the right one among them, where
    f = Φ(√(s/`half`)·z) ≥ 1/2, and of ``2f/k`` where f < 1/2. A teacher knows a class if one of its rows, 1 in
    `classes`, is of it.

    Parameters
    ----------
    classes : int
        Number of classes m, thought equally frequent.
    limit : float
        Share of queries that a teacher with all the rows in the world gets right, between 1/m and 1.
    half : float
        Rows s at which a teacher's own error is as large as the spread of difficulty among queries.
    confusion : float
        Share of a query's wrong votes that go to one class; the others spread evenly.
    assumptions : tuple of str
        Where the numbers come from, in words.

    Raises
    ------
    InvalidParameterError
        If a number is out of range.
    """

    classes: int
    limit: float
    half: float
    confusion: float = _CONFUSION
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        integer_at_least(self.classes, 2, "classes", "TeacherModel")
        number_between(self.limit, 1 / self.classes, 1, "limit", "TeacherModel")
        if self.confusion != 1:
            number_between(self.confusion, 0, 1, "confusion", "TeacherModel")
        positive(self.half, "half", "TeacherModel")
        if not self.assumptions:
            given = (
                f"As given, teachers reach {self.limit:.1%} with unlimited rows, and half of their precision with "
                f"{self.half:g} rows each."
            )
            object.__setattr__(self, "assumptions", (given,))

    @classmethod
    def assumed(cls, classes: int) -> "TeacherModel":
        """Return the model of teachers of whom nothing is known; its assumptions say so."""
        half = _HALF_PER_CLASS * integer_at_least(classes, 2, "classes", "TeacherModel.assumed")
        unknown = (
            f"Nothing was said about the teachers. They are assumed to reach {_LIMIT:.0%} with unlimited rows, and "
            f"half of their precision with {half:g} rows each; give an accuracy, or public votes."
        )
        return cls(classes=classes, limit=_LIMIT, half=half, assumptions=(unknown, _SPREAD.format(share=_CONFUSION)))

    @classmethod
    def from_accuracies(cls, points: Mapping[float, float], classes: int) -> "TeacherModel":
        """Return the model that has these accuracies, as far as one can.

        Parameters
        ----------
        points : dict of float to float
            By rows per teacher: the share of public rows, such as will be asked about, that one teacher gets right. One
            point leaves how accuracy falls with fewer rows to an assumption; two or more settle it.
        classes : int
            Number of classes.

        Raises
        ------
        InvalidParameterError
            If there is no point, or one is not a share above chance and below 1 by a finite number of rows above 0.
        """
        classes = integer_at_least(classes, 2, "classes", "TeacherModel.from_accuracies")
        rows, given = np.array(list(points), dtype=np.float64), np.array(list(points.values()), dtype=np.float64)
        if not points or not np.all((rows > 0) & (rows < np.inf) & (given > 1 / classes) & (given < 1)):
            raise InvalidParameterError(
                "`points` of TeacherModel.from_accuracies must hold, by finite numbers of rows above 0, shares above "
                f"chance, 1/{classes}, and below 1. Got {dict(points)}."
            )

        def misfit(margin: float, half: float) -> FloatArray:
            return special.logit(_means_and_spreads(margin, half, rows, classes)[0]) - special.logit(given)

        alone = len(points) == 1
        margin, half = _least_squares(misfit, half=_HALF_PER_CLASS * classes if alone else None)
        text = ", ".join(
            f"{size:g} rows: {ours:.1%}" + (f" (given: {theirs:.1%})" if abs(ours - theirs) > _MISFIT else "")
            for size, ours, theirs in zip(rows, _means_and_spreads(margin, half, rows, classes)[0], given, strict=True)
        )
        how = (
            f"That they reach half of their precision with {half:g} rows is assumed; a second accuracy would settle it."
            if alone
            else f"They reach half of their precision with {half:.3g} rows."
        )
        sentences = (f"One teacher's accuracy by rows, as given: {text}. {how}", _SPREAD.format(share=_CONFUSION))
        return cls(classes=classes, limit=_limit(margin, classes), half=half, assumptions=sentences)

    @classmethod
    def from_votes(cls, proxies: Sequence[ProxyVotes]) -> "TeacherModel":
        """Return the model whose accuracy and agreement are those of public votes.

        Parameters
        ----------
        proxies : sequence of ProxyVotes
            Votes of one or several ensembles, with different numbers of rows per teacher, on public queries such as
            will be asked about. Two sizes of shard settle how accuracy falls better than one.

        Raises
        ------
        InvalidDataError
            If there are none, or they are of different numbers of classes.
        """
        if not proxies or len({proxy.votes.n_classes for proxy in proxies}) > 1:
            raise InvalidDataError("`proxies` of TeacherModel.from_votes must be votes on one number of classes.")
        classes = proxies[0].votes.n_classes
        rows = np.array([proxy.rows_per_teacher for proxy in proxies])
        accuracies = np.array([proxy.accuracy() for proxy in proxies])
        alike = np.array([proxy.agreement() for proxy in proxies])

        def misfit(margin: float, half: float) -> FloatArray:
            means, spreads = _means_and_spreads(margin, half, rows, classes)
            return np.concatenate([special.logit(means) - special.logit(accuracies), spreads - alike])

        margin, half = _least_squares(misfit)
        sizes = ", ".join(
            f"{proxy.votes.n_teachers:,} teachers of {proxy.rows_per_teacher:g} rows, {accuracy:.1%} right"
            for proxy, accuracy in zip(proxies, accuracies, strict=True)
        )
        truth = "" if all(proxy.labels is not None for proxy in proxies) else " Without labels, most votes is right."
        confusion = float(np.mean([proxy.confusion() for proxy in proxies]))
        sentences = (f"Teachers as in the public votes: {sizes}.{truth}", _SPREAD.format(share=confusion))
        limit = _limit(margin, classes)
        return cls(classes=classes, limit=limit, half=half, confusion=confusion, assumptions=sentences)

    def right_shares(self, rows_per_teacher: float) -> FloatArray:
        """Return the share of teachers that are right, on 200 queries from the hardest to the easiest."""
        size = positive(rows_per_teacher, "rows_per_teacher", "TeacherModel")
        return right_shares(float(special.ndtri(self.limit)), self.half, size, self.classes)

    def accuracy(self, rows_per_teacher: float) -> float:
        """Return the share of queries that one teacher gets right."""
        return float(self.right_shares(rows_per_teacher).mean())


def votes_of_public_teachers(
    teacher: Any,
    X: npt.ArrayLike,
    y: IntArray,
    sizes: tuple[int, ...],
    *,
    n_classes: int,
    n_teachers: int = 50,
    seed: int = 0,
    n_jobs: int | None = None,
) -> tuple[ProxyVotes, ...]:
    """Return votes of teachers trained on public labelled rows, for each size of shard: a learning curve to plan by.

    A third of the rows, drawn at random, is voted on; shards are disjoint pieces of the others.

    Parameters
    ----------
    teacher : scikit-learn classifier or teacher recipe
        As for `PATEClassifier`.
    X : array of shape (rows, features)
        Public rows, like the private ones.
    y : integer array of shape (rows,)
        Class index of each.
    sizes : tuple of int
        Mean numbers of rows per teacher to try, each at most half of two thirds of the rows.
    n_classes : int
        Number of classes.
    n_teachers : int
        Most teachers to train per size.
    seed : int
        Of the split and the teachers.
    n_jobs : int, optional
        Teachers trained at once.

    Raises
    ------
    InvalidDataError
        If there are too few rows for two teachers of a size.
    """
    rows, labels = np.asarray(X), np.asarray(y)
    order = np.random.default_rng(seed).permutation(len(rows))
    asked, taught = np.split(order, [len(rows) // 3])
    found = []
    for size in sizes:
        integer_at_least(size, 1, "sizes", "votes_of_public_teachers")
        number = min(n_teachers, len(taught) // size)
        if number < 2:
            raise InvalidDataError(
                f"`sizes` of votes_of_public_teachers must be at most {len(taught) // 2}, as {len(taught)} rows "
                f"must be enough for two teachers. Got {size}."
            )
        part = taught[: number * size]
        shards = Shards.of_rows(len(part), number, key=seed.to_bytes(16, "little"))
        teachers = ensemble_of(teacher, n_classes=n_classes, seed=seed, n_jobs=n_jobs)
        ballots = teachers.fit_ballots(rows[part], labels[part], shards, rows[asked])
        found.append(ProxyVotes(tally(ballots, n_classes, shards.unit), float(size), labels[asked]))
    return tuple(found)


def right_shares(margin: float, half: float, rows: float, classes: int) -> FloatArray:
    """Return `TeacherModel.right_shares` where Φ(`margin`) is the limit, of rows that are not checked."""
    chance = 1 / classes
    seen = special.ndtr(np.sqrt(rows / half) * (margin + _MARGINS))
    # A keyed hash gives a shard a Poisson number of rows of a class: how likely it has one, and has any at all.
    known, voting = -np.expm1([-rows * chance, -rows])
    guessed = chance * voting  # the mean of 1/k over the shards that have the right class, times their share
    return np.where(seen > 0.5, guessed + (known - guessed) * (2 * seen - 1), 2 * seen * guessed)


def _means_and_spreads(margin: float, half: float, rows: FloatArray, classes: int) -> tuple[FloatArray, FloatArray]:
    """Return accuracy and agreement of teachers of each number of rows."""
    shares = np.array([right_shares(margin, half, size, classes) for size in rows])
    means = np.clip(shares.mean(axis=1), 1e-9, 1 - 1e-9)
    return means, shares.var(axis=1) / (means * (1 - means))


def _least_squares(misfit: Callable[[float, float], FloatArray], half: float | None = None) -> tuple[float, float]:
    """Return margin and half that come closest, of several starts; a half that is known stays."""
    starts = [(margin, start) for margin in (0.5, 1.5, 2.5) for start in (0.0, 3.0, 6.0)]
    low, high = (-1.0, float(np.log(_HALVES[0]))), (_MOST_MARGIN, float(np.log(_HALVES[1])))
    found = [
        optimize.least_squares(lambda x: misfit(float(x[0]), half or float(np.exp(x[1]))), start, bounds=(low, high))
        for start in starts[: 3 if half else None]
    ]
    best = min(found, key=lambda result: result.cost).x
    return float(best[0]), half or float(np.exp(best[1]))


def _limit(margin: float, classes: int) -> float:
    return float(np.clip(special.ndtr(margin), 1 / classes + 1e-6, 1 - 1e-6))


def _check_labels(labels: npt.NDArray[Any] | Form, votes: VoteHistogram) -> None:
    """Refuse labels, or the form of those in a file, that are not one class index per query."""
    fits = np.issubdtype(labels.dtype, np.integer) and labels.shape == (votes.n_queries,)
    if not fits or (isinstance(labels, np.ndarray) and not np.all((labels >= 0) & (labels < votes.n_classes))):
        raise InvalidDataError(
            f"`labels` of ProxyVotes must be {votes.n_queries} class indices below {votes.n_classes}. "
            f"Got {labels.dtype} of shape {labels.shape}."
        )


_QUANTILES: FloatArray = (np.arange(64) + 0.5) / 64  # the noise of the right class, in equally likely parts
_MOST_COUNTS, _TYPICAL = 250, (5, 25)


class TypicalVotes(NamedTuple):
    """Expected votes on equally likely queries, from the hardest to the easiest; arrays of shape (queries,)."""

    right: FloatArray  # for the right class
    rival: FloatArray  # for the class it is mistaken for
    other: FloatArray  # for each of the other classes
    scatter: FloatArray  # variance that the teachers' own chance gives a count
    others: int  # how many other classes there are


class Expected(NamedTuple):
    """What a query may expect."""

    answered: float  # share of the queries that get an answer
    right: float  # share of the answers that are right


def typical_votes(model: TeacherModel, n_teachers: int, rows_per_teacher: float) -> TypicalVotes:
    """Return the votes that are expected of this many teachers of this size."""
    share = right_shares(float(special.ndtri(model.limit)), model.half, rows_per_teacher, model.classes)
    others = model.classes - 2
    wrong = np.maximum(-np.expm1(-rows_per_teacher) - share, 0)  # a shard that the hash left empty abstains
    rival = wrong * (max(model.confusion, 1 / (others + 1)) if others else 1.0)
    other = (wrong - rival) / others if others else np.zeros_like(share)
    scatter = n_teachers * (share * (1 - share) + rival * (1 - rival)) / 2
    return TypicalVotes(n_teachers * share, n_teachers * rival, n_teachers * other, scatter, others)


def typical_counts(votes: TypicalVotes) -> IntArray:
    """Return some typical queries as whole vote counts, shape (at most 25, classes), the right class first."""
    number = int(np.clip(_MOST_COUNTS / (votes.others + 2), *_TYPICAL))  # exact costs of many classes take long
    chosen = np.linspace(0, len(votes.right) - 1, number).round().astype(int)
    wrong = [np.floor(column[chosen] + 1e-9) for column in (votes.rival, *[votes.other] * votes.others)]
    n_teachers = (votes.right + votes.rival + votes.others * votes.other)[chosen].round()
    return np.column_stack([n_teachers - np.sum(wrong, axis=0), *wrong]).astype(np.int64)


def expected_without_noise(votes: TypicalVotes) -> float:
    """Return how many queries the plurality of the teachers gets right."""
    return float(_wins(votes, np.sqrt(votes.scatter + 1e-9), special.ndtri, special.ndtr).mean())


def expected_labels(sketch: Sketch, votes: TypicalVotes) -> Expected:
    """Return how many queries a mechanism answers, and how many of its answers are right.

    The noise is thought continuous and the teachers' own scatter part of it; from a few dozen votes on, that is right
    to a few tenths of a point.
    """
    if sketch.kind not in _RIGHT:
        raise UnsupportedEventError(f"There is no plan for the mechanism {sketch.kind.__name__}.")
    right = _RIGHT[sketch.kind](votes, sketch.noise[-1])
    if sketch.threshold is None:
        return Expected(1.0, float(right.mean()))
    most = np.maximum(votes.right, votes.rival)
    passed = special.ndtr((most - sketch.threshold) / np.sqrt(sketch.noise[0] ** 2 + votes.scatter))
    return Expected(float(passed.mean()), float((passed * right).sum() / max(passed.sum(), 1e-300)))


def _gaussian(votes: TypicalVotes, sigma: float) -> FloatArray:
    return _wins(votes, np.sqrt(sigma**2 + votes.scatter), special.ndtri, special.ndtr)


def _laplace(votes: TypicalVotes, scale: float) -> FloatArray:  # a Laplace variable of scale b has the variance 2b²
    return _wins(votes, np.sqrt(scale**2 + votes.scatter / 2), stats.laplace.ppf, stats.laplace.cdf)


def _exponential(votes: TypicalVotes, scale: float) -> FloatArray:  # Gumbel noise of scale b has the variance π²b²/6
    spread = np.sqrt(scale**2 + votes.scatter * 6 / np.pi**2)
    return 1 / (1 + _odds(votes.rival, votes, spread) + votes.others * _odds(votes.other, votes, spread))


_RIGHT = {GNMax: _gaussian, ConfidentGNMax: _gaussian, LNMax: _laplace, ExponentialMax: _exponential}


def _wins(votes: TypicalVotes, spread: FloatArray, quantile, below) -> FloatArray:
    """Return how likely the right class has the largest of independent noisy counts, shape (queries,)."""
    noise = quantile(_QUANTILES)
    against_rival = below(((votes.right - votes.rival) / spread)[:, None] + noise)
    against_other = below(((votes.right - votes.other) / spread)[:, None] + noise)
    return (against_rival * against_other**votes.others).mean(axis=1)


def _odds(count: FloatArray, votes: TypicalVotes, spread: FloatArray) -> FloatArray:
    return np.exp(np.clip((count - votes.right) / spread, -700, 700))
