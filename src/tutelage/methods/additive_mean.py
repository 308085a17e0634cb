"""Numbers as targets, without public rows: noisy sums over a public schema, and an additive model of the mean."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any, Self, final

import numpy as np

from tutelage._internal.records import by_identity, frozen
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.ballots import Vector
from tutelage.digests import canonical
from tutelage.features.public_numbers import PublicStart
from tutelage.features.schema import Schema
from tutelage.mechanisms import NoisySum
from tutelage.methods.additive import (
    Entries,
    SumsOfRelease,
    SumsOverSchema,
    Taught,
    Weighing,
    in_cell_of_each,
)
from tutelage.methods.over_releases import Average, AveragedSum, Past, Turn
from tutelage.methods.requests import Asking, Learned, Public, Sizes
from tutelage.methods.sums import SumOf, form_of_joint, sum_of_entries
from tutelage.people.blocks import PeopleBlock
from tutelage.reporting.measured import NumberLayout
from tutelage.students.additive_mean import (
    EDGES,
    INTERVAL,
    LARGEST_RESIDUAL,
    N_PARTS,
    AdditiveRegressor,
    Means,
)
from tutelage.students.stacking import deviations_of, joint_steps, normal_equations, step_of
from tutelage.targets import STEPS, Numbers

# Shares of all 1/σ². The first and the last are doubled: their ballots are never negative, so a replaced one moves
# the sum by √2 lengths, and not by 2.
_SHARES = (2 * 0.42, 0.23, 0.28)
# If there are several rounds; see `tutelage.methods.additive`.
_SHARES_OF_MANY = (2 * 0.28, 0.37, 0.27999)
_ERRORS = 2 * 0.07
_LONGEST = round(LARGEST_RESIDUAL * STEPS)
_N_ERRORS = len(EDGES) - 1  # bins of a histogram
_QUANTILE = 0.9  # of the lengths of effects: longer ones are shortened
_HIDDEN = 2.0  # deviations of the noise: smaller counts are mostly noise


@final
@by_identity
class _WeighingOfMeans(Weighing):
    """The ballot that says how much of each effect and of each correction to believe; public."""

    means: Means
    deviations: FloatArray  # of what the weights explain
    radius: float

    @classmethod
    def of(cls, means: Means) -> Self:
        """Return the ballot, whose scales follow from public rows or, without them, from made-up ones."""
        examples = means.examples()
        ballot = cls(means, np.ones(1), 1.0)
        deviations = deviations_of(ballot._design(*examples) ** 2)
        ballot = replace(ballot, deviations=deviations)
        lengths = _lengths(ballot._design(*examples))
        return replace(ballot, radius=float(np.quantile(lengths, _QUANTILE)))

    @property
    def n_weights(self) -> int:
        """How many weights: for each column, each correction, public targets if there are any, and the intercept."""
        return len(self.means.weights) + 1 + (self.means.public is not None)

    def _design(self, groups: IntArray, public_shares: FloatArray | None) -> FloatArray:
        """Return what the weights explain, shape (rows, weights); exact by row."""
        explanations = [explained[:, 0] for explained in self.means.explanations(groups)]
        if public_shares is not None:
            explanations.append(public_shares - self.means.mean)
        explanations.append(np.full(len(groups), sqrt(self.means.variance)))
        return np.column_stack(explanations) / self.deviations

    def _short_design(self, groups: IntArray, public_shares: FloatArray | None) -> FloatArray:
        """Return what the weights explain, at a length of at most 1."""
        design = self._design(groups, public_shares)
        return design / np.maximum(_lengths(design), self.radius)[:, None]

    def ballots(self, bins: Matrix, labels: IntArray) -> IntArray:
        """Return gradient and Gram matrix of each row, by the number that the means expect of it."""
        means = self.means
        groups = means.groups_of(bins)
        shares = means.public_shares(bins)
        expected = means.start(groups, shares)
        wrong = _residuals_in_steps(expected, labels, means.largest_residual) / _LONGEST
        return joint_steps(self._short_design(groups, shares), wrong)

    def after(
        self, joint: AveragedSum, n_people: int, _average: Average, /
    ) -> tuple[Means, FloatArray]:
        """Return the means by the noisy sum of all ballots, and how far the noise moves the weights."""
        means = self.means
        gradient, gram, noise = normal_equations(
            joint.values[0], joint.sigma, n_people, self.n_weights
        )
        step = step_of(
            means.largest_residual * gradient,
            gram,
            means.largest_residual * noise,
            noise,
            means.variance / n_people,
        )
        weights, moved = np.array(step) / self.radius / self.deviations
        n_explained = len(means.weights)
        weights = np.asarray_chkfinite(weights)
        weighted = replace(
            means.with_weights(means.weights + weights[:n_explained]),
            offset=means.offset + float(weights[-1]) * sqrt(means.variance),
        )
        if means.public is not None:
            part = means.part_of_public + float(weights[n_explained])
            weighted = replace(weighted, part_of_public=part)
        return weighted, moved


def _regressor_of(means: Means, moved: FloatArray, schema: Schema) -> AdditiveRegressor:
    """Return the student with these effects, for numbers from 0 to 1; the noise has moved its weights so far."""
    effects = means.start_effects
    student = AdditiveRegressor()
    if means.public is not None:
        student.public_ = means.public.model
        student.part_ = means.part_of_public
    student.intercept_ = np.array([means.mean * (1 - means.part_of_public) + means.offset])
    student.with_table(effects, means.doubts_of_start(moved), means.groups, schema)
    student.n_features_in_ = len(means.tables)
    student.range_ = (0.0, 1.0)

    expected = means.start(*means.examples())
    student.parts_ = np.quantile(expected, np.arange(1, N_PARTS) / N_PARTS)
    return student


@final
@frozen
class AdditiveMean(SumsOverSchema):
    """An additive model of a number over a public schema, from noisy sums; no public row is needed.

    The first sum adds up numbers in each bin of each column, the second says what effects by these get wrong, the third
    how much of both to believe, and the last how far numbers lie from predictions. Where people are many, the second
    and the third are asked up to five times, each time of what is still wrong. No private row is in the student, which
    is a table of effects. Labels are whole steps of the range of the number, which is public.

    Parameters
    ----------
    mechanism : NoisySum, optional
        The noise of one sum that costs as much as all of them together. Default: the least that ε allows.
    student : None
        The student follows from the sums.
    """

    name = "additive-mean"
    title = "additive model of a number"
    needs = SumsOverSchema.needs._replace(target=Numbers, start=True, weights=False)
    mechanism: NoisySum | None = None
    student: Any = None

    def most(self, sizes: Sizes, rounds: int, _n_pairs: int = 0, /) -> list[tuple[float, Vector]]:
        """Return the share of all 1/σ² that each sum takes, and the form of its ballots at most."""
        n_bins = sum(sizes.bins)
        n_columns = len(sizes.bins)
        n_weights = n_columns + rounds + 1 + sizes.labeled
        residuals = self._form_of_residuals(sizes, n_bins + n_columns)
        joint = form_of_joint(n_weights, sizes.unit)
        sums, of_residuals, of_weights = _SHARES if rounds == 1 else _SHARES_OF_MANY
        return [
            (sums, _form_of_sums(sizes, n_bins)),
            *[(of_residuals / rounds, residuals), (of_weights / rounds, joint)] * rounds,
            (_ERRORS, _form_of_errors(sizes)),
        ]

    def _form_of_residuals(self, sizes: Sizes, n_groups: int) -> Vector:
        """Return the form of ballots of residuals: one for each column."""
        return Vector((1, n_groups), len(sizes.bins) * _LONGEST**2, sizes.unit)

    def start(self, public: Public, first: Turn, /) -> Asking[PublicStart | None]:
        """Return what public targets say, if there are any; of these rows, the bins are `rows`."""
        if public.labels is None:
            return None
        rows = public.rows
        shares = public.labels / STEPS
        stored = yield Learned(
            canonical(first.subject),
            lambda: PublicStart.learn(rows, shares).to_bytes(),
        )
        return PublicStart.from_bytes(stored, rows, shares)

    def _residuals_of(self, effects: Means, groups: IntArray, block: PeopleBlock) -> IntArray:
        expected = effects.start(groups, effects.public_shares(block.rows))
        return _residuals_in_steps(expected, block.labels, effects.largest_residual)[:, None]

    def _weighing_of(self, effects: Means, n_people: int, average: Average, /) -> _WeighingOfMeans:
        starts = np.append(effects.weights, effects.part_of_public)
        *of_effects, of_public = average.with_mean(starts, n_people).tolist()
        means = replace(effects, weights=np.array(of_effects), part_of_public=of_public)
        return _WeighingOfMeans.of(means)

    def student_of(self, release: SumsOfRelease) -> Taught:
        """Ask for sums of numbers, for what effects by these get wrong, for weights, and for errors."""
        sizes = release.sizes
        form = _form_of_sums(sizes, sum(release.n_cells))
        means = yield from self._ask_effects(release, form, _sums, Means, STEPS)
        means = means.beside(release.start)
        means, moved = yield from self._ask_rounds(release, means)
        regressor = _regressor_of(means, moved, release.schema)

        # Errors are of one student, and no average over releases.
        errors = yield from self._ask(
            replace(release, past=Past(Average)),
            _form_of_errors(sizes),
            partial(sum_of_entries, partial(_errors, regressor)),
        )
        low, high = map(float, release.public.classes[:2])
        histograms = errors.values / STEPS
        student = _with_histograms(
            regressor,
            histograms,
            errors.sigma / STEPS,
            (low, high),
        )
        return student, None, errors.turn

    def _layout_of_report(
        self, layout: NumberLayout | None, student: AdditiveRegressor
    ) -> NumberLayout | None:
        return layout and replace(layout, largest_error=student.usual_error())

    def _ballot_of_report(self, layout: NumberLayout, student: AdditiveRegressor) -> SumOf:
        return partial(sum_of_entries, partial(_entries_of_report, layout, student))


def _form_of_sums(sizes: Sizes, n_bins: int) -> Vector:
    """Return the form of ballots that add up numbers: of each column two, how far from the upper and the lower end."""
    return Vector((2, n_bins), len(sizes.bins) * STEPS**2, sizes.unit, nonnegative=True)


def _form_of_errors(sizes: Sizes) -> Vector:
    """Return the form of ballots that say how far a number lies from its prediction: a whole count in one bin."""
    return Vector((N_PARTS, _N_ERRORS), STEPS**2, sizes.unit, nonnegative=True)


def _sums(sizes: Sequence[int], cells: IntArray, labels: IntArray) -> Entries:
    """Return the ballots that say, for each column, in which cell a person is, and how large the number is."""
    return in_cell_of_each(sizes, cells, np.column_stack([STEPS - labels, labels]))


def _residuals_in_steps(expected: FloatArray, labels: IntArray, largest: float) -> IntArray:
    """Return numbers less what is expected, in whole steps, of which the largest residual always has as many."""
    # expected, labels: (rows,)
    steps = np.trunc(LARGEST_RESIDUAL / largest * (labels - expected * STEPS))
    return np.clip(steps, -_LONGEST, _LONGEST).astype(np.int64)


def _errors(regressor: AdditiveRegressor, block: PeopleBlock) -> Entries:
    """Return the ballots that say how far the number of a person lies from its prediction."""
    # expected, part, place, cells: (rows,)
    expected = regressor.predict(block.rows)
    part = np.searchsorted(regressor.parts_, expected, side="right")
    place = np.searchsorted(EDGES, block.labels / STEPS - expected, side="right") - 1
    cells = part * _N_ERRORS + np.clip(place, 0, _N_ERRORS - 1)
    return cells[:, None], np.full((len(cells), 1), STEPS)


def _entries_of_report(
    layout: NumberLayout, student: AdditiveRegressor, block: PeopleBlock
) -> Entries:
    """Return the ballots that say how far a number lies from its prediction, and whether within its interval."""
    # targets, groups: (rows,); numbers: (rows, entries)
    targets = layout.low + (layout.high - layout.low) * block.labels / STEPS
    low, high = student.predict_quantiles(block.rows, INTERVAL).T
    is_within = (low <= targets) & (targets <= high)
    numbers = layout.entries(student.predict(block.rows) - targets, is_within, targets)
    cells = block.group_of_rows[:, None] * layout.ENTRIES + np.arange(layout.ENTRIES)
    return cells, np.floor(numbers * layout.UNIT).astype(np.int64)


def _with_histograms(
    regressor: AdditiveRegressor,
    counts: FloatArray,
    sigma: float,
    target_range: tuple[float, float],
) -> AdditiveRegressor:
    """Return the regressor with noisy histograms of what it gets wrong, shape (parts, bins), in the target's unit."""
    # counts, kept, mixed, shares: (parts, bins)
    kept = np.maximum(counts, 0) * (counts > _HIDDEN * sigma)
    together = kept.sum(axis=0) + 1e-9
    # A part of few people tells little by itself.
    few = sigma * sqrt(counts.shape[1]) + 1
    mixed = kept / few + together / together.sum()
    shares = mixed / mixed.sum(axis=1, keepdims=True)

    low, high = target_range
    width = high - low
    student = copy(regressor)
    student.below_ = np.insert(np.cumsum(shares, axis=1), 0, 0.0, axis=1)
    student.intercept_ = low + width * regressor.intercept_
    student.effects_ = [width * effect for effect in regressor.effects_]
    student.noise_ = [width * doubt for doubt in regressor.noise_]
    student.parts_ = low + width * regressor.parts_
    student.range_ = target_range
    return student


def _lengths(design: FloatArray) -> FloatArray:
    # design: (rows, weights)
    return np.sqrt((design * design).sum(axis=1))
