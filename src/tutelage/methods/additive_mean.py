"""Numbers as targets, without public rows: four noisy sums over a public schema, and an additive model of the mean."""

from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np

from tutelage._internal.records import frozen
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.ballots import Vector
from tutelage.digests import canonical
from tutelage.features.public_numbers import PublicStart
from tutelage.mechanisms import NoisySum
from tutelage.methods.additive import ColumnCells, Entries, SumsOverSchema, Taught, place_in_sum
from tutelage.methods.over_releases import Average, Past, Turn
from tutelage.methods.requests import Asking, Learned, Public, Sizes
from tutelage.methods.sums import form_of_joint, sum_of_entries
from tutelage.people.blocks import PeopleBlock
from tutelage.students.additive_mean import (
    EDGES,
    LARGEST_RESIDUAL,
    N_PARTS,
    AdditiveRegressor,
    Fitting,
    Means,
    with_histograms,
)
from tutelage.students.stacking import joint_steps, noisy_means
from tutelage.targets import STEPS, Numbers

# Shares of all 1/σ². The first and the last are doubled: their ballots are never negative, so a replaced one moves
# the sum by √2 lengths, and not by 2.
_SUMS = 2 * 0.42
_RESIDUALS = 0.23
_WEIGHTS = 0.28
_ERRORS = 2 * 0.07
_LONGEST = round(LARGEST_RESIDUAL * STEPS)
_N_ERRORS = len(EDGES) - 1  # bins of a histogram


@final
@frozen
class AdditiveMean(SumsOverSchema):
    """An additive model of a number over a public schema, from four noisy sums; no public row is needed.

    The first sum adds up numbers in each bin of each column, the second says what effects by these get wrong, the third
    how much of both to believe, and the fourth how far numbers lie from predictions. No private row is in the
    student, which is a table of effects. Labels are whole steps of the range of the number, which is public.

    Parameters
    ----------
    mechanism : NoisySum, optional
        The noise of one sum that costs as much as all four together. Default: the least that ε allows.
    student : None
        The student follows from the sums.
    """

    name = "additive-mean"
    title = "additive model of a number"
    needs = SumsOverSchema.needs._replace(target=Numbers, start=True, weights=False)
    mechanism: NoisySum | None = None
    student: Any = None

    def most(self, sizes: Sizes) -> list[tuple[float, Vector]]:
        """Return the share of all 1/σ² that each sum takes, and the form of its ballots at most."""
        n_bins = sum(sizes.bins)
        n_columns = len(sizes.bins)
        n_weights = n_columns + 2 + sizes.labeled
        return [
            (_SUMS, _form_of_sums(sizes, n_bins)),
            (_RESIDUALS, self._form_of_residuals(sizes, n_bins + n_columns)),
            (_WEIGHTS, form_of_joint(n_weights, sizes.unit)),
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

    def student_of(
        self,
        public: Public,
        columns: ColumnCells,
        turn: Turn,
        past: Past,
    ) -> Taught:
        """Ask for sums of numbers, for what effects by these get wrong, for weights, and for errors."""
        sizes = public.sizes
        form = _form_of_sums(sizes, columns.n_cells)
        means, after_sums = yield from self._ask_effects(
            public, columns, turn, past, form, _sums, Means, STEPS
        )
        means = means.beside(columns.start)

        means, residuals = yield from self._ask_residuals(
            sizes, past, after_sums, means, _residuals
        )
        parts = past["parts"].with_mean(np.array(means.start_parts), turn.n)
        of_effects, of_public = parts.tolist()
        means = replace(means, parts=(of_effects, of_public))
        corrections = means.corrections(residuals.values, residuals.sigma, STEPS)
        fitting = Fitting.of(means, *corrections)

        weights = yield from self._ask_joint(
            sizes, past, residuals.turn, fitting.n_weights, partial(_joint_ballots, fitting)
        )
        equations, noise = noisy_means(weights.values[0], weights.sigma, turn.n)
        regressor = fitting.regressor(equations, noise, turn.n, columns.schema)

        errors = yield from self._ask(
            sizes,
            Past(Average),
            3,
            weights.turn,
            _form_of_errors(sizes),
            partial(sum_of_entries, partial(_errors, regressor)),
        )
        low, high = map(float, public.classes[:2])
        histograms = errors.values / STEPS
        return with_histograms(
            regressor,
            histograms,
            errors.sigma / STEPS,
            (low, high),
        ), None


def _form_of_sums(sizes: Sizes, n_bins: int) -> Vector:
    """Return the form of ballots that add up numbers: of each column two, how far from the upper and the lower end."""
    return Vector((2, n_bins), len(sizes.bins) * STEPS**2, sizes.unit, nonnegative=True)


def _form_of_errors(sizes: Sizes) -> Vector:
    """Return the form of ballots that say how far a number lies from its prediction: a whole count in one bin."""
    return Vector((N_PARTS, _N_ERRORS), STEPS**2, sizes.unit, nonnegative=True)


def _sums(
    cells: tuple[IntArray, ...],
    n_cells: int,
    block: PeopleBlock,
) -> Entries:
    """Return the ballots that say, for each column, in which cell a person is, and how large the number is."""
    # within, high: (rows, columns)
    within = place_in_sum(cells, block.rows)
    high = np.broadcast_to(block.labels[:, None], within.shape)
    return np.hstack([within, n_cells + within]), np.hstack([STEPS - high, high])


def _residuals(
    means: Means,
    groups: IntArray,
    block: PeopleBlock,
) -> IntArray:
    """Return what effects get wrong, shape (rows, 1), in whole steps."""
    expected = means.start(groups, means.public_shares(block.rows))
    return _residuals_in_steps(expected, block.labels)[:, None]


def _residuals_in_steps(expected: FloatArray, labels: IntArray) -> IntArray:
    """Return numbers less what is expected, in whole steps, cut at the largest residual."""
    # expected, labels: (rows,)
    steps = np.trunc(labels - expected * STEPS)
    return np.clip(steps, -_LONGEST, _LONGEST).astype(np.int64)


def _joint_ballots(
    fitting: Fitting,
    bins: Matrix,
    labels: IntArray,
) -> IntArray:
    """Return the ballots that say how much of the effects and of the correction to believe."""
    groups = fitting.means.groups_of(bins)
    shares = fitting.means.public_shares(bins)
    expected = fitting.means.start(groups, shares)
    wrong = _residuals_in_steps(expected, labels) / _LONGEST
    return joint_steps(fitting.short_design(groups, shares), wrong)


def _errors(regressor: AdditiveRegressor, block: PeopleBlock) -> Entries:
    """Return the ballots that say how far the number of a person lies from its prediction."""
    # expected, part, place, cells: (rows,)
    expected = regressor.predict(block.rows)
    part = np.searchsorted(regressor.parts_, expected, side="right")
    place = np.searchsorted(EDGES, block.labels / STEPS - expected, side="right") - 1
    cells = part * _N_ERRORS + np.clip(place, 0, _N_ERRORS - 1)
    return cells[:, None], np.full((len(cells), 1), STEPS)
