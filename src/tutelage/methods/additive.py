"""Without public rows: three noisy sums over a public schema, from which an additive model follows."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf, sqrt
from typing import Any, NamedTuple, Self, TypeVar, final

import numpy as np

from tutelage._internal.records import frozen
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.ballots import BallotSum, Vector
from tutelage.digests import data_digest, plain_settings
from tutelage.events import Composed, Event
from tutelage.exceptions import InvalidParameterError
from tutelage.features.schema import Schema
from tutelage.features.scored import chances_of
from tutelage.mechanisms import NoisySum
from tutelage.methods.over_releases import Average, Past, Summed, Turn, newest
from tutelage.methods.requests import Asking, Facts, Outcome, Public, Sizes, Steps
from tutelage.methods.sums import (
    BallotOfRows,
    NoisySums,
    SumOf,
    form_of_joint,
    sum_of_entries,
    sum_of_joint,
)
from tutelage.people.blocks import PeopleBlock
from tutelage.students.additive import Effects, Scores, Weighing, by_bins
from tutelage.students.stacking import joint_ballots, weighted

# Shares of all 1/σ². The first is doubled: counts are never negative, so a replaced ballot moves their sum by √2
# lengths, and not by 2.
_COUNTS, _RESIDUALS, _WEIGHTS = 2 * 0.45, 0.25, 0.3
_STEPS = 2**10  # of a count, where a person has several rows
_RESIDUAL_STEPS = 2**16
_LONGEST = round(0.8 * sqrt(2) * _RESIDUAL_STEPS)  # residual: of one of two classes .8
_PEOPLE_OF_BIN = 8.0  # deviations of the noise
_MOST_MERGED = 3  # doublings of the width of bins


_AnyEffects = TypeVar("_AnyEffects", bound=Effects)
Taught = Asking[tuple[Any, dict[Any, float] | None]]
"""Asks for the sums of a release; returns the student and its class weights."""
Entries = tuple[IntArray, IntArray]
"""The cells of ballots of rows, each of shape (rows, ...), and the numbers in them."""
_WrongOf = Callable[[IntArray, PeopleBlock], IntArray]
"""Return the residuals of the effects, in whole steps, shape (rows, outputs), by the groups of rows and these."""


def _counts_of(parts: tuple[IntArray, ...], form: Vector, rows: PeopleBlock) -> Entries:
    """Return the ballots that say, for each column, in which bin a person is, and of which class.

    `parts` says toward which number of its column each bin counts.
    """
    cells = rows.labels[:, None] * form.shape[1] + cells_of(parts, rows.rows)
    return cells, np.full(cells.shape, _STEPS)


def cells_of(parts: tuple[IntArray, ...], bins: Matrix) -> IntArray:
    """Return the place of each cell among the cells of all columns, in which its bin is counted."""
    return firsts([one[-1] + 1 for one in parts]) + by_bins(parts, bins)


def residuals_of(effects: Effects, wrong_of: _WrongOf, form: Vector, rows: PeopleBlock) -> Entries:
    """Return the ballots that say, for each column, in which group a person is, and what the effects get wrong."""
    groups = effects.rows(rows.rows)
    places = firsts(map(len, effects.tables)) + groups
    cells = np.arange(form.shape[0]) * form.shape[1] + places[:, :, None]  # rows, columns, classes
    return cells, np.broadcast_to(wrong_of(groups, rows)[:, None], cells.shape)


def wrong_by(scores: Scores, groups: IntArray, rows: PeopleBlock) -> IntArray:
    """Return what scores get wrong, shape (rows, classes), in whole steps."""
    return residuals_in_steps(scores.start(groups), rows.labels)


def joint_sum(
    ballots_of: Callable[[Matrix, IntArray], IntArray],
    n_weights: int,
    block: PeopleBlock,
    form: Vector,
) -> BallotSum:
    """Return the sum of the ballots of gradient and Gram matrix, by bins and labels."""
    return sum_of_joint(ballots_of, n_weights, block.rows, block, form.unit)


def joint_of(weighing: Weighing, bins: Matrix, labels: IntArray) -> IntArray:
    """Return the ballots that say how much of the scores and of the correction to believe."""
    rows = weighing.scores.rows(bins)
    chances = chances_of(weighing.scores.start(rows))
    return joint_ballots(weighing.explained(rows), weighing.radius, chances, chances, labels)


def residuals_in_steps(scores: FloatArray, labels: IntArray) -> IntArray:
    """Return 1 for the class of each row and 0 for the others, less their chances, in whole steps of limited length."""
    wrong = np.eye(scores.shape[1])[labels] - chances_of(scores)
    steps = np.trunc(wrong * _RESIDUAL_STEPS)
    # Of whole numbers: exact in any order.
    lengths = np.sqrt((steps * steps).sum(axis=1, keepdims=True))
    return np.trunc(steps * np.minimum(1, _LONGEST / np.maximum(lengths, 1))).astype(np.int64)


def merged(n_bins: int, people: float, *, ordered: bool) -> IntArray:
    """Return the cell in which each bin of a column is counted: where noise would hide them, with its neighbors.

    `people` is about how many there are, in deviations of the noise on the count of a bin.
    """
    level = 0
    while ordered and level < _MOST_MERGED and _PEOPLE_OF_BIN * n_bins > people * 2**level:
        level += 1
    # The lowest bin, mostly of many people, stays alone.
    places = (np.arange(n_bins) + 2**level - 1) >> level
    places[-1] = places[-2] + 1
    return places


class Begun(NamedTuple):
    """All that the sums of a question are about; public."""

    schema: Schema
    cells: tuple[IntArray, ...]  # in which each bin of each column is counted
    n_cells: int  # of all columns
    turns: list[Turn]  # earlier releases, and this one
    start: Any  # what rows with public targets say, if there are any


class SumsOverSchema(NoisySums):
    """Methods that release noisy sums over the bins of a public schema, each by what the ones before it told."""

    __slots__ = ()
    needs = NoisySums.needs._replace(public="schema", start=False, fewest=0)

    def __post_init__(self) -> None:
        if self.student is not None:
            name = f"{type(self).__name__}.student"
            raise InvalidParameterError(name, "be left out, because the noisy sums determine it")
        NoisySums.__post_init__(self)

    @classmethod
    def proposals(cls, _people: int, _sizes: Sizes, /) -> list[Self]:
        """Return nothing to try: a plan compares what public rows are for."""
        return []

    @abstractmethod
    def most(self, sizes: Sizes) -> list[tuple[float, Vector]]:
        """Return the share of all 1/σ² that each sum takes, and the form of its ballots at most."""

    def event_of_one(self, sizes: Sizes) -> Event:
        """Return what all sums are at most, with the noisy number of people where that number is private."""
        return Composed((self.event_of_sums(sizes), *self.event_of_count(sizes)))

    def event_of_sums(self, sizes: Sizes) -> Event:
        """Return the most that all sums are, where the number of people is public."""
        events = list[Event]()
        for share, form in self.most(sizes):
            events.append(self._sum(share).most(form, simulated=sizes.simulated))
        return Composed(tuple(events))

    def _sum(self, share: float) -> NoisySum:
        return NoisySum(self.calibrated.noise_multiplier / sqrt(share))

    def steps(self, public: Public) -> Steps:
        """Ask for one sum after the other, each by what the ones before it told; recall those of earlier releases."""
        begun = yield from self._begun(public)
        student, class_weight = yield from newest(
            begun.turns, partial(self.student_of, public, begun)
        )
        nobody = np.empty(0, np.int64)
        return Outcome(
            queries=nobody,
            labels=nobody,
            rounds=(0,),
            n_teachers=begun.turns[-1].n,
            student=student,
            class_weight=class_weight,
        )

    @abstractmethod
    def student_of(self, public: Public, begun: Begun, turn: Turn, past: Past) -> Taught:
        """Return the student by the sums of a release and of those before, and how much classes count in it."""

    def _begun(self, public: Public) -> Asking[Begun]:
        """Return what the sums are about: cells in which the noise of the first sum hides few people."""
        schema = public.schema
        sizes = public.sizes
        if schema is None:
            raise InvalidParameterError(
                "PATEClassifier.columns",
                f"be set to a Schema if the method is {type(self).__name__}",
            )
        columns = []
        for (name, column), bins in zip(schema.columns.items(), schema.bins, strict=True):
            columns.append([name, plain_settings(column), bins])
        about: list[Any] = [self.name, columns]
        if public.labels is not None:
            about += [data_digest(public.rows, public.labels).hex(), "targets"]
        turns = yield from self.turns(public, about)
        # The cells of a first release serve all that follow, whose sums are averaged: then the noise hides fewer.
        people = inf
        if public.release is None:
            share, _ = self.most(sizes)[0]
            people = turns[0].n / (self.calibrated.noise_multiplier * sqrt(len(sizes.bins) / share))
        start = yield from self.start(public, turns[0])
        cells = tuple(
            merged(n_bins, people, ordered=ordered)
            for n_bins, ordered in zip(schema.bins, schema.ordered, strict=True)
        )
        return Begun(schema, cells, sum(int(one[-1]) + 1 for one in cells), turns, start)

    def start(self, _public: Public, _first: Turn, /) -> Asking[Any]:
        """Return what public rows say before anything is asked, if they have targets."""
        yield from ()

    def asked(
        self,
        sizes: Sizes,
        past: Past,
        place: int,
        turn: Turn,
        form: Vector,
        sum_of: SumOf,
    ) -> Asking[Summed]:
        """Ask for the sum at this place, by ballots of this form, or recall it; see `Turn.asked`."""
        share, _ = self.most(sizes)[place]
        total = None if place else self.event_of_sums(sizes)
        return turn.asked(
            self._sum(share),
            form,
            BallotOfRows(sum_of),
            past[f"sum {place}"],
            total=total,
        )

    def facts(self, n_teachers: int | None, n_rounds: int = 1, /) -> Facts:
        """Return what is stated of a release: who casts ballots, and what the student is."""
        student = "none; the student is a table of effects for the cells of a public schema"
        return super().facts(n_teachers, n_rounds)._replace(selection=student)


@final
@frozen
class Additive(SumsOverSchema):
    """An additive model over a public schema, from three noisy sums; no public row is needed.

    The first sum counts people by class in each bin of each column, the second says what scores by these counts get
    wrong, and the third how much of both to believe. No row of anybody is in the student, which is a table of effects.

    Parameters
    ----------
    mechanism : NoisySum, optional
        The noise of one sum that costs as much as all three together. Default: the least that ε allows.
    student : None
        The student follows from the sums.
    """

    name = "additive"
    title = "additive model without public rows"
    mechanism: NoisySum | None = None
    student: Any = None

    def most(self, sizes: Sizes) -> list[tuple[float, Vector]]:
        """Return the share of all 1/σ² that each sum takes, and the form of its ballots at most."""
        n_bins = sum(sizes.bins)
        n_columns = len(sizes.bins)
        return [
            (_COUNTS, _form_of_counts(sizes, n_bins)),
            (_RESIDUALS, form_of_residuals(sizes, n_bins + n_columns)),
            (_WEIGHTS, form_of_joint(n_columns + 1 + sizes.n_classes, sizes.unit)),
        ]

    def student_of(self, public: Public, begun: Begun, turn: Turn, past: Past) -> Taught:
        """Ask for counts, for what scores by these get wrong, and for the weights of both."""
        sizes = public.sizes
        asked = partial(self.asked, sizes, past)
        form = _form_of_counts(sizes, begun.n_cells)
        ballots = partial(sum_of_entries, partial(_counts_of, begun.cells, form))
        counts, sigma, of_next = yield from asked(0, turn, form, ballots)
        of_counts = counts, sigma, _STEPS, begun.cells, begun.schema.ordered
        scores = Scores.of(*of_counts)
        if public.release is not None:
            scores = scores.by_cell(*of_counts)
        form = form_of_residuals(sizes, sum(map(len, scores.tables)))
        wrong_of = partial(wrong_by, scores)
        ballots = partial(sum_of_entries, partial(residuals_of, scores, wrong_of, form))
        residuals, sigma, of_next = yield from asked(1, of_next, form, ballots)
        scores = averaged(scores, past["tables"], turn.n)
        corrected = scores.corrected(residuals, sigma, _RESIDUAL_STEPS)
        weighing = Weighing.of(scores.less_sure(residuals, _RESIDUAL_STEPS), *corrected)
        form = form_of_joint(weighing.n_weights, public.unit)
        ballots = partial(joint_sum, partial(joint_of, weighing), weighing.n_weights)
        weights, sigma, _ = yield from asked(2, of_next, form, ballots)
        part = past["part"].with_mean(weighing.scores.part, turn.n)
        weighing = replace(weighing, scores=replace(weighing.scores, part=part))
        student: Any = weighing.classifier(weights[0], sigma, turn.n, public.classes, begun.schema)
        if public.weights is None:
            return student, None
        weights = public.weights.of(scores.shares)
        return weighted(student, weights), dict(
            zip(public.classes.tolist(), weights.tolist(), strict=True)
        )


def averaged(found: _AnyEffects, average: Average, n_people: int) -> _AnyEffects:
    """Return scores or means with tables that are averaged as the sums of what these get wrong are."""
    ends = np.cumsum([len(table) for table in found.tables])[:-1]
    mean = average.with_mean(np.concatenate(found.tables), n_people)
    return replace(found, tables=tuple(np.split(mean, ends)))


def _form_of_counts(sizes: Sizes, n_bins: int) -> Vector:
    """Return the form of ballots that count: of each column one number, of at most a whole count."""
    return Vector(
        (sizes.n_classes, n_bins), len(sizes.bins) * _STEPS**2, sizes.unit, nonnegative=True
    )


def form_of_residuals(sizes: Sizes, n_groups: int) -> Vector:
    """Return the form of ballots of residuals: of each column one residual, for each class."""
    return Vector((sizes.n_classes, n_groups), len(sizes.bins) * _LONGEST**2, sizes.unit)


def firsts(sizes: Any) -> IntArray:
    """Return where each of several parts of such sizes begins."""
    return np.cumsum([0, *sizes])[:-1]
