"""How well teachers vote, and how alike, by the number of rows that each learns from: two numbers say both.

Teachers of one kind approach the same classifier as their rows grow. A query has a margin to that classifier's
boundary, normal over queries; a teacher of s rows sees it blurred by an error that falls as 1/√s. So hard queries are
hard for all teachers, and what makes accuracy rise with s makes votes agree. Where it was measured: docs/planning.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import optimize, special

from tutelage._typing import FloatArray
from tutelage._validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.planning.proxies import ProxyVotes

_MARGINS: FloatArray = special.ndtri((np.arange(200) + 0.5) / 200)  # 200 equally likely queries
_LIMIT = 0.9  # assumed where nothing is known
_HALF_PER_CLASS = 5.0  # assumed where the fall of accuracy is not known; 0.5 to 15 were measured
_CONFUSION = 0.5  # measured: 0.35 to 0.8
_MOST_MARGIN = 4.0
_HALVES = (1e-2, 1e6)
_MISFIT = 0.02


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherModel:
    """How teachers of so many rows each vote on public queries.

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
            object.__setattr__(self, "assumptions", (_GIVEN.format(limit=self.limit, half=self.half),))

    @classmethod
    def assumed(cls, classes: int) -> "TeacherModel":
        """Return the model of teachers of whom nothing is known; its assumptions say so.

        Parameters
        ----------
        classes : int
            Number of classes.
        """
        half = _HALF_PER_CLASS * integer_at_least(classes, 2, "classes", "TeacherModel.assumed")
        sentences = (_UNKNOWN.format(limit=_LIMIT, half=half), _SPREAD.format(share=_CONFUSION))
        return cls(classes=classes, limit=_LIMIT, half=half, assumptions=sentences)

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
            If there is no point, or an accuracy is not above chance and below 1.
        """
        classes = integer_at_least(classes, 2, "classes", "TeacherModel.from_accuracies")
        if not points:
            raise InvalidParameterError("`points` of TeacherModel.from_accuracies must hold at least one accuracy.")
        rows = np.array([positive(size, "points", "TeacherModel.from_accuracies") for size in points])
        given = np.array([_accuracy(accuracy, classes) for accuracy in points.values()])

        def misfit(margin: float, half: float) -> FloatArray:
            return special.logit(_mean_shares(margin, half, rows, classes)) - special.logit(given)

        if len(points) == 1:
            half = _HALF_PER_CLASS * classes
            margin, _ = _least_squares(lambda margin, _: misfit(margin, half), half_known=half)
        else:
            margin, half = _least_squares(misfit)
        fitted = _mean_shares(margin, half, rows, classes)
        text = ", ".join(
            f"{size:g} rows: {ours:.1%}" + (f" (given: {theirs:.1%})" if abs(ours - theirs) > _MISFIT else "")
            for size, ours, theirs in zip(rows, fitted, given, strict=True)
        )
        how = _FROM_ONE.format(half=half) if len(points) == 1 else _FROM_SEVERAL.format(half=half)
        limit = _clipped(float(special.ndtr(margin)), classes)
        sentences = (f"One teacher's accuracy by rows, as given: {text}. {how}", _SPREAD.format(share=_CONFUSION))
        return cls(classes=classes, limit=limit, half=half, assumptions=sentences)

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
            shares = np.array([right_shares(margin, half, size, classes) for size in rows])
            means = np.clip(shares.mean(axis=1), 1e-9, 1 - 1e-9)
            spread = shares.var(axis=1) / (means * (1 - means))
            return np.concatenate([special.logit(means) - special.logit(accuracies), spread - alike])

        margin, half = _least_squares(misfit)
        sizes = ", ".join(
            f"{proxy.votes.n_teachers:,} teachers of {proxy.rows_per_teacher:g} rows, {accuracy:.1%} right"
            for proxy, accuracy in zip(proxies, accuracies, strict=True)
        )
        truth = "" if all(proxy.labels is not None for proxy in proxies) else " Without labels, most votes is right."
        confusion = float(np.mean([proxy.confusion() for proxy in proxies]))
        sentences = (f"Teachers as in the public votes: {sizes}.{truth}", _SPREAD.format(share=confusion))
        limit = _clipped(float(special.ndtr(margin)), classes)
        return cls(classes=classes, limit=limit, half=half, confusion=confusion, assumptions=sentences)

    def right_shares(self, rows_per_teacher: float) -> FloatArray:
        """Return the share of teachers that are right, on 200 queries from the hardest to the easiest.

        Parameters
        ----------
        rows_per_teacher : float
            Mean number of rows per teacher.
        """
        size = positive(rows_per_teacher, "rows_per_teacher", "TeacherModel")
        return right_shares(float(special.ndtri(self.limit)), self.half, size, self.classes)

    def accuracy(self, rows_per_teacher: float) -> float:
        """Return how many queries one teacher of so many rows gets right."""
        return float(self.right_shares(rows_per_teacher).mean())


def right_shares(margin: float, half: float, rows: float, classes: int) -> FloatArray:
    """Return `TeacherModel.right_shares` where Φ(`margin`) is the limit, of rows that are not checked."""
    chance = 1 / classes
    seen = special.ndtr(np.sqrt(rows / half) * (margin + _MARGINS))
    # A keyed hash gives a shard a Poisson number of rows of a class: how likely it has one, and has any at all.
    known, voting = -np.expm1([-rows * chance, -rows])
    guessed = chance * voting  # the mean of 1/k over the shards that have the right class, times their share
    return np.where(seen > 0.5, guessed + (known - guessed) * (2 * seen - 1), 2 * seen * guessed)


def _mean_shares(margin: float, half: float, rows: FloatArray, classes: int) -> FloatArray:
    means = np.array([right_shares(margin, half, size, classes).mean() for size in rows])
    return np.clip(means, 1e-9, 1 - 1e-9)


def _least_squares(misfit, half_known: float | None = None) -> tuple[float, float]:
    """Return margin and half that come closest, of several starts."""
    starts = [(margin, half) for margin in (0.5, 1.5, 2.5) for half in (0.0, 3.0, 6.0)]
    low, high = (-1.0, float(np.log(_HALVES[0]))), (_MOST_MARGIN, float(np.log(_HALVES[1])))
    found = [
        optimize.least_squares(lambda x: misfit(float(x[0]), float(np.exp(x[1]))), start, bounds=(low, high))
        for start in starts[: 3 if half_known else None]
    ]
    best = min(found, key=lambda result: result.cost).x
    return float(best[0]), half_known or float(np.exp(best[1]))


def _accuracy(value: float, classes: int) -> float:
    if not 1 / classes < value < 1:
        raise InvalidParameterError(
            f"An accuracy of `points` must be above chance, 1/{classes}, and below 1. Got {value!r}."
        )
    return float(value)


def _clipped(limit: float, classes: int) -> float:
    return float(np.clip(limit, 1 / classes + 1e-6, 1 - 1e-6))


_GIVEN = (
    "As given, teachers reach {limit:.1%} with unlimited rows, and half of their precision with {half:g} rows each."
)
_UNKNOWN = (
    "Nothing was said about the teachers. They are assumed to reach {limit:.0%} with unlimited rows, and half of their "
    "precision with {half:g} rows each; give an accuracy, or public votes."
)
_FROM_ONE = "That they reach half of their precision with {half:g} rows is assumed; a second accuracy would settle it."
_FROM_SEVERAL = "They reach half of their precision with {half:.3g} rows."
_SPREAD = (
    "Queries that are hard for one teacher are hard for all. Of the wrong votes on a query, {share:.0%} go to one "
    "class. Classes are equally frequent."
)
