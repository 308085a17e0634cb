"""Without public rows: noisy sums over a public schema, from which an additive model follows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import comb, sqrt
from typing import Any, Self, TypeVar, final

import numpy as np

from tutelage._internal.records import by_identity, frozen, settable
from tutelage._internal.typing import Array, FloatArray, IntArray, Matrix
from tutelage.ballots import BallotSum, Vector
from tutelage.digests import data_digest, plain_settings
from tutelage.events import Composed, Event
from tutelage.exceptions import InvalidParameterError
from tutelage.features.public_numbers import PublicStart
from tutelage.features.schema import Schema
from tutelage.features.scored import chances_of
from tutelage.mechanisms import NoisySum
from tutelage.methods.over_releases import Average, AveragedSum, Past, Turn, newest
from tutelage.methods.report import ask_report, event_of_report, sum_of_report
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
from tutelage.reporting.measured import ClassLayout
from tutelage.students.additive import (
    AdditiveClassifier,
    Effects,
    Scores,
    TableOfEffects,
    by_bins,
)
from tutelage.students.pairs import Pair, most_wrong
from tutelage.students.stacking import (
    deviations_of,
    joint_ballots,
    radius_of,
    weights_of,
    with_biases,
    with_class_weights,
)
from tutelage.targets import STEPS

# Shares of all 1/σ². The first is doubled: counts are never negative, so a replaced ballot moves their sum by √2
# lengths, and not by 2.
# The others are those of all sums of residuals, and of all sums for weights.
_SHARES = (2 * 0.45, 0.25, 0.3)
# If there are several rounds. Together a little less, as the cost of each of more sums is rounded upward.
_SHARES_OF_MANY = (2 * 0.3, 0.4, 0.29999)
# With pairs of columns; the last two are of the sum that chooses pairs and of the one of their effects.
_SHARES_WITH_PAIRS = (2 * 0.23, 0.3, 0.2, 0.05, 0.21999)
_STEPS = 2**10  # of a count, where a person has several rows
_RESIDUAL_STEPS = STEPS  # as of a number, where that is the target
_LONGEST = round(0.8 * sqrt(2) * _RESIDUAL_STEPS)  # residual: of one of two classes .8
_PEOPLE_OF_BIN = 8.0  # deviations of the noise
_PEOPLE_OF_FINE_BIN = 20.0
_MOST_DOUBLINGS = 3  # of the width of bins
MOST_ROUNDS = 5
_PEOPLE_OF_ROUND = 400.0  # deviations of the noise on the count of a bin, for each round
# Of all rounds at most: a ballot has as many numbers as there are pairs of weights.
_WEIGHTS_OF_ROUNDS = 128

_PAIRS = 6  # of columns, whose effects are asked for at most
# Deviations of the noise on the count of a bin, from which on pairs are asked for.
_PEOPLE_OF_PAIRS = 3500.0
_PAIRED = 12  # columns at most, from whose pairs these are chosen
_CELLS_TO_CHOOSE = 4  # of each column of a pair at most
_CELLS_OF_PAIR = 12
# Spreads p(1 − p) of all classes: Σ p²(1 − p)² ≤ max p(1 − p)² = 4/27.
_LONGEST_SPREADS_SQUARED = 4 * _RESIDUAL_STEPS**2 // 27

_AnyEffects = TypeVar("_AnyEffects", bound=Effects)
Taught = Asking[tuple[TableOfEffects, dict[object, float] | None, Turn]]
"""Asks for the sums of a release; returns the student, its class weights, and the turn after them."""
Entries = tuple[IntArray, IntArray]
"""The cells of ballots of rows, each of shape (rows, ...), and the numbers in them."""


def _first_places(sizes: Sequence[int]) -> IntArray:
    """Return where each of several parts of such sizes begins."""
    return np.cumsum([0, *sizes])[:-1]


@final
@settable
class SumsOfRelease:
    """A release of a question, whose sums are asked for, or recalled, one after the other; public."""

    public: Public
    schema: Schema
    cells: tuple[IntArray, ...]  # in which each bin of each column is counted
    start: PublicStart | None  # what rows with public targets say, if there are any
    rounds: int  # each of a sum of residuals, and one of weights
    n_pairs: int  # of columns, which are asked for after the rounds
    past: Past
    turn: Turn  # by which the next sum is known
    place: int = 0  # of the next sum

    @property
    def sizes(self) -> Sizes:
        """The public numbers that the forms of ballots follow from."""
        return self.public.sizes

    @property
    def n_cells(self) -> list[int]:
        """How many cells each column has."""
        return [int(cell[-1]) + 1 for cell in self.cells]


class Weighing(ABC):
    """A ballot that says how much of each effect and of each correction to believe; public."""

    __slots__ = ()

    @property
    @abstractmethod
    def n_weights(self) -> int:
        """How many weights there are."""

    @abstractmethod
    def ballots(self, bins: Matrix, labels: IntArray) -> IntArray:
        """Return gradient and Gram matrix of each row."""

    @abstractmethod
    def after(
        self, joint: AveragedSum, n_people: int, average: Average, /
    ) -> tuple[Any, FloatArray]:
        """Return the effects by the noisy sum of all ballots, and how far the noise moves the weights.

        `average` has the weights that the ballots of earlier releases began from.
        """


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
    def most(self, sizes: Sizes, rounds: int, n_pairs: int = 0, /) -> list[tuple[float, Vector]]:
        """Return the share of all 1/σ² that each sum takes, and the form of its ballots at most."""

    def event_of_one(self, sizes: Sizes) -> Event:
        """Return what all sums are at most, with the noisy number of people where that number is private."""
        return Composed((self.event_of_sums(sizes), *self.event_of_count(sizes)))

    def event_of_sums(self, sizes: Sizes) -> Event:
        """Return the most that all sums are, where the number of people is public.

        The sums of several rounds have nearly the same shares together. They cost a little less, because their noise is
        larger: noise in whole numbers costs more than continuous noise, above all where it is small.
        """
        return self._event_of_rounds(sizes, 1)

    def _event_of_rounds(self, sizes: Sizes, rounds: int, n_pairs: int = 0) -> Event:
        events = list[Event]()
        for share, form in self.most(sizes, rounds, n_pairs):
            events.append(self._sum(share).most(form, simulated=sizes.simulated))
        events += event_of_report(self.calibrated.noise_multiplier, sizes)
        return Composed(tuple(events))

    def _sum(self, share: float) -> NoisySum:
        return NoisySum(self.calibrated.noise_multiplier / sqrt(share))

    def steps(self, public: Public) -> Steps:
        """Ask for one sum after the other, each by what the ones before it told; recall those of earlier releases."""
        schema = public.schema
        if schema is None:
            raise InvalidParameterError(
                "PATEClassifier.columns",
                f"be set to a Schema if the method is {type(self).__name__}",
            )
        turns = yield from self.turns(public, self._about(public, schema))
        people = self._in_deviations(public, turns[0].n)
        cells = _cells_of_releases(schema)
        if public.release is None:
            cells = _cells_of(schema, people)
        start = yield from self.start(public, turns[0])
        rounds = 1
        n_pairs = 0
        # All that is averaged over releases begins from the same scores.
        if public.release is None and not public.agreed:
            rounds = _number_of_rounds(public.sizes, people)
            n_pairs = self._number_of_pairs(public.sizes, people)

        def student_by(turn: Turn, past: Past) -> Taught:
            return self.student_of(
                SumsOfRelease(
                    public,
                    schema,
                    cells,
                    start,
                    rounds,
                    n_pairs,
                    past,
                    turn,
                )
            )

        student, class_weight, turn = yield from newest(turns, student_by)
        layout = self._layout_of_report(public.report, student)
        report = yield from ask_report(
            self.calibrated.noise_multiplier,
            public,
            turn,
            BallotOfRows(self._ballot_of_report(layout, student)),
            layout,
        )
        nobody = np.empty(0, np.int64)
        return Outcome(
            queries=nobody,
            labels=nobody,
            rounds=(0,),
            n_teachers=turns[-1].n,
            student=student,
            class_weight=class_weight,
            report=report,
        )

    def _layout_of_report(self, layout: Any, _student: Any) -> Any:
        """Return the layout of ballots on a student, by one that does not know the student."""
        return layout

    @abstractmethod
    def _ballot_of_report(self, layout: Any, student: Any) -> SumOf:
        """Return the ballots that say what the student makes of a person's rows."""

    @abstractmethod
    def student_of(self, release: SumsOfRelease) -> Taught:
        """Return the student by the sums of a release and of those before, how much classes count, and the turn."""

    def _about(self, public: Public, schema: Schema) -> list[object]:
        """Return the public facts that the sums of a question are known by."""
        columns = list[list[object]]()
        for (name, column), bins in zip(
            schema.columns.items(),
            schema.bins,
            strict=True,
        ):
            columns.append([name, plain_settings(column), bins])
        about: list[object] = [self.name, columns]
        if public.labels is not None:
            about += [data_digest(public.rows, public.labels).hex(), "targets"]
        return about

    def _in_deviations(self, public: Public, n_people: int) -> float:
        """Return about how many people there are, in deviations of the noise of the first sum on the count of a bin."""
        sizes = public.sizes
        share, _ = self.most(sizes, 1)[0]
        noise = self.calibrated.noise_multiplier * sqrt(len(sizes.bins) / share)
        return n_people / noise

    def start(self, _public: Public, _first: Turn, /) -> Asking[PublicStart | None]:
        """Return what public rows say before anything is asked, if they have targets."""
        yield from ()

    def _ask(self, release: SumsOfRelease, form: Vector, sum_of: SumOf) -> Asking[AveragedSum]:
        """Ask for the next sum, by ballots of this form, or recall it; see `Turn.ask`."""
        place = release.place
        asked = (release.sizes, release.rounds, release.n_pairs)
        share, _ = self.most(*asked)[place]
        total = None if place else self._event_of_rounds(*asked)
        found = yield from release.turn.ask(
            self._sum(share),
            form,
            BallotOfRows(sum_of),
            release.past[f"sum {place}"],
            total=total,
        )
        release.turn = found.turn
        release.place += 1
        return found

    def _ask_effects(
        self,
        release: SumsOfRelease,
        form: Vector,
        entries_of: Callable[[Sequence[int], IntArray, IntArray], Entries],
        effects: type[_AnyEffects],
        scale: int,
    ) -> Asking[_AnyEffects]:
        """Ask for the first sum, over the cells of all columns, and return the effects by it.

        `entries_of` returns the entries of rows, by how many cells each column has, in which cell of it each row is,
        shape (rows, columns), and the labels; one whole person is `scale` in them.
        """

        def entries(block: PeopleBlock) -> Entries:
            return entries_of(release.n_cells, by_bins(release.cells, block.rows), block.labels)

        averaged = yield from self._ask(release, form, partial(sum_of_entries, entries))
        return effects.of(
            averaged.values,
            averaged.sigma,
            scale,
            release.cells,
            release.schema.ordered,
            by_cell=release.public.release is not None,
        )

    def _ask_rounds(
        self, release: SumsOfRelease, effects: _AnyEffects
    ) -> Asking[tuple[_AnyEffects, FloatArray]]:
        """Ask in rounds what is still wrong, and how much of effects and corrections to believe.

        Return the effects, and how far the noise moves their weights.
        """
        moved = np.empty(0)
        for number in range(release.rounds):
            effects = yield from self._ask_correction(release, effects)
            average = release.past[f"weights {number}"]
            weighing = self._weighing_of(effects, release.turn.n, average)
            effects, moved = yield from self._ask_weights(release, weighing, average)
        return effects, moved

    def _ask_correction(self, release: SumsOfRelease, effects: _AnyEffects) -> Asking[_AnyEffects]:
        """Ask what the effects get wrong in each group. Return them averaged over releases, and with a correction."""
        n_groups = [len(table) for table in effects.tables]
        form = self._form_of_residuals(release.sizes, sum(n_groups))

        def entries(block: PeopleBlock) -> Entries:
            groups = effects.groups_of(block.rows)
            residuals = self._residuals_of(effects, groups, block)
            return in_cell_of_each(n_groups, groups, residuals)

        average = release.past[f"tables {release.place}"]
        residuals = yield from self._ask(release, form, partial(sum_of_entries, entries))
        tables = average.with_mean(np.concatenate(effects.tables), release.turn.n)
        per_column = np.split(tables, np.cumsum(n_groups)[:-1])
        averaged = replace(effects, tables=tuple(per_column))
        return averaged.with_residuals(residuals.values, residuals.sigma, _RESIDUAL_STEPS)

    @abstractmethod
    def _form_of_residuals(self, sizes: Sizes, n_groups: int) -> Vector:
        """Return the form of ballots of residuals: of each column one residual, for each output."""

    @abstractmethod
    def _residuals_of(self, effects: Any, groups: IntArray, block: PeopleBlock) -> IntArray:
        """Return what the effects get wrong about rows in these groups, shape (rows, outputs), in whole steps."""

    @abstractmethod
    def _weighing_of(self, effects: Any, n_people: int, average: Average, /) -> Weighing:
        """Return the ballot that says how much of the effects and corrections to believe."""

    def _ask_weights(
        self, release: SumsOfRelease, weighing: Weighing, average: Average
    ) -> Asking[tuple[Any, FloatArray]]:
        """Ask how much of effects and corrections to believe; return what `Weighing.after` does."""
        n_weights = weighing.n_weights

        def sum_of(block: PeopleBlock, form: Vector) -> BallotSum:
            return sum_of_joint(weighing.ballots, n_weights, block.rows, block, form.unit)

        form = form_of_joint(n_weights, release.sizes.unit)
        joint = yield from self._ask(release, form, sum_of)
        return weighing.after(joint, release.turn.n, average)

    def _number_of_pairs(self, _sizes: Sizes, _people: float, /) -> int:
        """Return for how many pairs of columns to ask so many people, counted as for rounds."""
        return 0

    def facts(self, n_teachers: int | None, n_rounds: int = 1, /) -> Facts:
        """Return what is stated of a release: who casts ballots, and what the student is."""
        student = "none; the student is a table of effects for the cells of a public schema"
        return super().facts(n_teachers, n_rounds)._replace(selection=student)


def _number_of_rounds(sizes: Sizes, people: float) -> int:
    """Return in how many rounds to ask so many people, in deviations of the noise on the count of a bin."""
    most = _WEIGHTS_OF_ROUNDS / (len(sizes.bins) + sizes.n_classes)
    return int(np.clip(min(round(people / _PEOPLE_OF_ROUND), most), 1, MOST_ROUNDS))


def _cells_of_releases(schema: Schema) -> tuple[IntArray, ...]:
    """Return the cells of sums that are averaged over releases: the same for any number of people and any noise."""
    return tuple(levels[-1] for levels in schema.levels)


def _cells_of(schema: Schema, people: float) -> tuple[IntArray, ...]:
    """Return cells in which the noise of the first sum hides few people: the cell of each bin of each column.

    `people` is about how many there are, in deviations of the noise on the count of a bin.
    """
    cells = list[IntArray]()
    for levels, ordered in zip(schema.levels, schema.ordered, strict=True):
        fine = (cell for cell in levels if people >= _PEOPLE_OF_FINE_BIN * (int(cell[-1]) + 1))
        cell = next(fine, levels[-1])
        joined = _joined_cells(int(cell[-1]) + 1, people, ordered=ordered)
        cells.append(joined[cell])
    return tuple(cells)


def _joined_cells(n_cells: int, people: float, *, ordered: bool) -> IntArray:
    """Return the number of each cell, which it shares with its neighbors where noise would hide them."""
    level = 0
    while ordered and level < _MOST_DOUBLINGS and _PEOPLE_OF_BIN * n_cells > people * 2**level:
        level += 1
    # The lowest bin, mostly of many people, stays alone.
    numbers = (np.arange(n_cells) + 2**level - 1) >> level
    numbers[-1] = numbers[-2] + 1
    return numbers


@final
@by_identity
class _WeighingOfScores(Weighing):
    """The ballot that says how much of each score and of each correction, or of each pair, to believe; public."""

    scores: Scores
    pairs: Sequence[Pair]  # if there are any, they are weighed in place of columns and corrections
    deviations: FloatArray  # of what the weights explain
    radius: float

    @classmethod
    def of(cls, scores: Scores, pairs: Sequence[Pair] = ()) -> Self:
        """Return the ballot, whose scales follow from made-up rows."""
        made_up = scores.made_up_rows()
        ballot = cls(scores, pairs, np.ones(1), 1.0)
        deviations = deviations_of((ballot._design(made_up) ** 2).sum(axis=1))
        ballot = replace(ballot, deviations=deviations)
        return replace(ballot, radius=radius_of(ballot._design(made_up)))

    @property
    def n_weights(self) -> int:
        """How many weights there are: one for each column and correction, or each pair, and for each class."""
        return len(self.pairs or self.scores.weights) + len(self.scores.base)

    def _design(self, groups: IntArray) -> FloatArray:
        """Return what the weights explain of each class, shape (rows, classes, weights); exact by row."""
        explanations = [pair.of(groups) for pair in self.pairs] or self.scores.explanations(groups)
        return with_biases(np.stack(explanations, axis=2)) / self.deviations

    def ballots(self, bins: Matrix, labels: IntArray) -> IntArray:
        """Return gradient and Gram matrix of each row, by the classes that the scores expect of it."""
        groups = self.scores.groups_of(bins)
        chances = chances_of(self.scores.start(groups))
        return joint_ballots(self._design(groups), self.radius, chances, chances, labels)

    def after(
        self, joint: AveragedSum, n_people: int, average: Average, /
    ) -> tuple[Scores, FloatArray]:
        """Return the scores by the noisy sum of all ballots, and how far the noise moves the weights."""
        scores = self.scores
        times_radius = weights_of(joint.values[0], joint.sigma, n_people, (self.n_weights,))
        weights, moved = np.array(times_radius) / self.radius / self.deviations
        n_explained = self.n_weights - len(scores.base)
        biases = weights[n_explained:]
        offset = np.asarray_chkfinite(scores.offset + biases - biases.mean())
        scores = replace(scores, offset=offset)
        if self.pairs:
            by_bins = [
                pair.by_bins(scores.groups, weights[place], moved[place])
                for place, pair in enumerate(self.pairs)
            ]
            return replace(scores, pairs=tuple(by_bins)), moved
        start = average.with_mean(scores.weights, n_people)
        return scores.with_weights(start + weights[:n_explained]), moved


@final
@frozen
class Additive(SumsOverSchema):
    """An additive model over a public schema, from noisy sums; no public row is needed.

    The first sum counts people by class in each bin of each column, the second says what scores by these counts get
    wrong, and the third how much of both to believe. Where people are many, the last two are asked up to five times,
    each time of what is still wrong. Where they are very many, one more sum chooses six pairs of columns, another says
    what each cell of a pair adds, and a last one how much of that to believe. No row of anybody is in the student,
    which is a table of effects.

    Parameters
    ----------
    mechanism : NoisySum, optional
        The noise of one sum that costs as much as all of them together. Default: the least that ε allows.
    student : None
        The student follows from the sums.
    """

    name = "additive"
    title = "additive model without public rows"
    mechanism: NoisySum | None = None
    student: Any = None

    def most(self, sizes: Sizes, rounds: int, n_pairs: int = 0, /) -> list[tuple[float, Vector]]:
        """Return the share of all 1/σ² that each sum takes, and the form of its ballots at most."""
        n_bins = sum(sizes.bins)
        n_columns = len(sizes.bins)
        n_weights = n_columns + rounds + sizes.n_classes
        residuals = self._form_of_residuals(sizes, n_bins + n_columns)
        joint = form_of_joint(n_weights, sizes.unit)
        shares = _SHARES if rounds == 1 else _SHARES_OF_MANY
        if n_pairs:
            shares = _SHARES_WITH_PAIRS
        counts, of_residuals, of_weights, *of_pairs = shares
        of_weights /= rounds + bool(n_pairs)
        most = [
            (counts, _form_of_counts(sizes, n_bins)),
            *[(of_residuals / rounds, residuals), (of_weights, joint)] * rounds,
        ]
        if n_pairs:
            of_choice, of_cells = of_pairs
            n_candidates = comb(min(n_columns, _PAIRED), 2)
            candidates = _form_in_cells(
                sizes,
                n_candidates,
                n_candidates * _CELLS_TO_CHOOSE**2,
            )
            chosen = _form_in_cells(
                sizes,
                n_pairs,
                n_pairs * _CELLS_OF_PAIR**2,
                spreads=True,
            )
            joint = form_of_joint(n_pairs + sizes.n_classes, sizes.unit)
            most += [(of_choice, candidates), (of_cells, chosen), (of_weights, joint)]
        return most

    def _form_of_residuals(self, sizes: Sizes, n_groups: int) -> Vector:
        return _form_in_cells(sizes, len(sizes.bins), n_groups)

    def _ballot_of_report(self, layout: ClassLayout, student: AdditiveClassifier) -> SumOf:
        def sum_of(block: PeopleBlock, form: Vector) -> BallotSum:
            return sum_of_report(layout, student.predict_proba(block.rows), block, form.unit)

        return sum_of

    def _residuals_of(self, effects: Scores, groups: IntArray, block: PeopleBlock) -> IntArray:
        return _residuals_in_steps(effects.start(groups), block.labels)

    def _weighing_of(self, effects: Scores, _n_people: int, _average: Average) -> _WeighingOfScores:
        return _WeighingOfScores.of(effects)

    def student_of(self, release: SumsOfRelease) -> Taught:
        """Ask for counts, for what scores by these get wrong, and for the weights of both."""
        public = release.public
        form = _form_of_counts(public.sizes, sum(release.n_cells))
        scores = yield from self._ask_effects(release, form, _counts, Scores, _STEPS)
        scores, moved = yield from self._ask_rounds(release, scores)
        if release.n_pairs:
            scores = yield from self._ask_pairs(release, scores)
        student = _classifier_of(scores, moved, public.classes, release.schema)
        if public.weights is None:
            return student, None, release.turn
        class_weights = public.weights.of(scores.shares)
        by_class = zip(public.classes.tolist(), class_weights.tolist(), strict=True)
        return with_class_weights(student, class_weights), dict(by_class), release.turn

    def _number_of_pairs(self, sizes: Sizes, people: float, /) -> int:
        return min(_PAIRS, comb(len(sizes.bins), 2)) if people >= _PEOPLE_OF_PAIRS else 0

    def _ask_pairs(self, release: SumsOfRelease, scores: Scores) -> Asking[Scores]:
        """Ask which pairs of columns the scores get most wrong, what these add, and how much of that to believe."""
        pairs = scores.candidates(_PAIRED, _CELLS_TO_CHOOSE)
        found = yield from self._ask_in_cells(release, scores, pairs)

        chosen = most_wrong(pairs, found.values, found.sigma)[: release.n_pairs]
        pairs = [scores.pair(pair.columns, _CELLS_OF_PAIR) for pair in chosen]
        found = yield from self._ask_in_cells(release, scores, pairs, spreads=True)

        pairs = scores.missing_in_pairs(pairs, found.values, found.sigma, _RESIDUAL_STEPS)
        # Named releases ask for no pairs, so that there is nothing to average.
        weighing = _WeighingOfScores.of(scores, pairs)
        weighed, _ = yield from self._ask_weights(release, weighing, Average())
        return weighed

    def _ask_in_cells(
        self,
        release: SumsOfRelease,
        scores: Scores,
        pairs: Sequence[Pair],
        *,
        spreads: bool = False,
    ) -> Asking[AveragedSum]:
        """Ask what the scores get wrong in the cells of each pair, and with `spreads` how far that spreads."""
        n_cells = [pair.n_cells for pair in pairs]

        def entries(block: PeopleBlock) -> Entries:
            groups = scores.groups_of(block.rows)
            totals = scores.start(groups)
            numbers = _residuals_in_steps(totals, block.labels)
            if spreads:
                numbers = np.hstack([numbers, _spreads_in_steps(totals)])
            cells = np.column_stack([pair.places(groups) for pair in pairs])
            return in_cell_of_each(n_cells, cells, numbers)

        sizes = release.sizes
        form = _form_in_cells(sizes, len(pairs), sum(n_cells), spreads=spreads)
        return self._ask(release, form, partial(sum_of_entries, entries))


def _classifier_of(
    scores: Scores, moved: FloatArray, classes: Array, schema: Schema
) -> AdditiveClassifier:
    """Return the student with these scores, whose weights the noise has moved so far."""
    student = AdditiveClassifier()
    student.classes_ = np.asarray(classes)
    student.intercept_ = scores.base + scores.offset
    student.n_features_in_ = len(scores.tables)
    doubts = scores.doubts_of_start(moved)
    student = student.with_table(scores.start_effects, doubts, scores.groups, schema)
    student.pairs_ = scores.pairs
    return student


def _form_of_counts(sizes: Sizes, n_bins: int) -> Vector:
    """Return the form of ballots that count: of each column one number, of at most a whole count."""
    norm_squared = len(sizes.bins) * _STEPS**2
    return Vector((sizes.n_classes, n_bins), norm_squared, sizes.unit, nonnegative=True)


def _counts(sizes: Sequence[int], cells: IntArray, labels: IntArray) -> Entries:
    """Return the ballots that say, for each column, in which cell a person is, and of which class."""
    places = labels[:, None] * sum(sizes) + _first_places(sizes) + cells
    return places, np.full(places.shape, _STEPS)


def _form_in_cells(
    sizes: Sizes,
    n_parts: int,
    n_cells: int,
    *,
    spreads: bool = False,
) -> Vector:
    """Return the form of ballots with a residual for each class, and maybe a spread, in one cell of each part."""
    norm_squared = _LONGEST**2
    if spreads:
        norm_squared += _LONGEST_SPREADS_SQUARED
    n_outputs = sizes.n_classes * (1 + spreads)
    return Vector((n_outputs, n_cells), n_parts * norm_squared, sizes.unit)


def in_cell_of_each(sizes: Sequence[int], cells: IntArray, numbers: IntArray) -> Entries:
    """Return the entries that have numbers, shape (rows, outputs), in one cell of each of several parts.

    `sizes` are how many cells each part has, and `cells`, shape (rows, parts), which of them it is.
    """
    # places: (rows, outputs, parts), in ascending order
    n_outputs: int = numbers.shape[1]
    outputs = np.arange(n_outputs)[:, None] * sum(sizes)
    places = outputs + (_first_places(sizes) + cells)[:, None]
    return places, np.broadcast_to(numbers[:, :, None], places.shape)


def _spreads_in_steps(scores: FloatArray) -> IntArray:
    """Return how far residuals spread by chance, as variances p(1 − p), in whole steps."""
    chances = chances_of(scores)
    return np.trunc(chances * (1 - chances) * _RESIDUAL_STEPS).astype(np.int64)


def _residuals_in_steps(scores: FloatArray, labels: IntArray) -> IntArray:
    """Return 1 for the class of each row and 0 for the others, less their chances, in whole steps of limited length."""
    # scores: (rows, classes); labels: (rows,)
    wrong = np.eye(scores.shape[1])[labels] - chances_of(scores)
    steps = np.trunc(wrong * _RESIDUAL_STEPS)
    # Squares of whole numbers add up exactly, in any order.
    lengths = np.sqrt((steps * steps).sum(axis=1, keepdims=True))
    shorter = np.minimum(1, _LONGEST / np.maximum(lengths, 1))
    return np.trunc(steps * shorter).astype(np.int64)
