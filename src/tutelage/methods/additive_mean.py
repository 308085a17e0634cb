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
from tutelage.methods.additive import (
    Begun,
    Entries,
    SumsOverSchema,
    Taught,
    averaged,
    cells_of,
    joint_sum,
    residuals_of,
)
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
_SUMS, _RESIDUALS, _WEIGHTS, _ERRORS = 2 * 0.42, 0.23, 0.28, 2 * 0.07
_LONGEST = round(LARGEST_RESIDUAL * STEPS)


def _sums_of(parts: tuple[IntArray, ...], form: Vector, rows: PeopleBlock) -> Entries:
    """Return the ballots that say, for each column, in which bin a person is, and how large the number is."""
    within = cells_of(parts, rows.rows)
    high = np.broadcast_to(rows.labels[:, None], within.shape)
    return np.hstack([within, form.shape[1] + within]), np.hstack([STEPS - high, high])


def wrong_by(means: Means, groups: IntArray, rows: PeopleBlock) -> IntArray:
    """Return what effects get wrong, shape (rows, 1), in whole steps."""
    expected = means.start(groups, means.known(rows.rows))
    return residuals_in_steps(expected, rows.labels)[:, None]


def joint_of(fitting: Fitting, bins: Matrix, labels: IntArray) -> IntArray:
    """Return the ballots that say how much of the effects and of the correction to believe."""
    rows = fitting.means.rows(bins)
    known = fitting.means.known(bins)
    wrong = residuals_in_steps(fitting.means.start(rows, known), labels) / _LONGEST
    return joint_steps(fitting.shown(rows, known), wrong)


def _errors_of(regressor: AdditiveRegressor, form: Vector, rows: PeopleBlock) -> Entries:
    """Return the ballots that say how far the number of a person lies from what is predicted."""
    expected = regressor.predict(rows.rows)
    part = np.searchsorted(regressor.parts_, expected, side="right")
    place = np.searchsorted(EDGES, rows.labels / STEPS - expected, side="right") - 1
    cells = part * form.shape[1] + np.clip(place, 0, form.shape[1] - 1)
    return cells[:, None], np.full((len(cells), 1), STEPS)


def residuals_in_steps(expected: FloatArray, labels: IntArray) -> IntArray:
    """Return numbers less what is expected, in whole steps, cut at the largest residual."""
    return np.clip(np.trunc(labels - expected * STEPS), -_LONGEST, _LONGEST).astype(np.int64)


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
        return [
            (_SUMS, _form_of_sums(sizes, n_bins)),
            (_RESIDUALS, form_of_residuals(sizes, n_bins + n_columns)),
            (_WEIGHTS, form_of_joint(n_columns + 2 + sizes.labeled, sizes.unit)),
            (_ERRORS, _form_of_errors(sizes)),
        ]

    def start(self, public: Public, first: Turn, /) -> Asking[PublicStart | None]:
        """Return what public targets say, if there are any; of these rows, the bins are `rows`."""
        if public.labels is None:
            return None
        of_public = public.rows, public.labels / STEPS
        stored = yield Learned(
            canonical(first.subject), lambda: PublicStart.learn(*of_public).to_bytes()
        )
        return PublicStart.from_bytes(stored, *of_public)

    def student_of(self, public: Public, begun: Begun, turn: Turn, past: Past) -> Taught:
        """Ask for sums of numbers, for what effects by these get wrong, for weights, and for errors."""
        sizes = public.sizes
        form = _form_of_sums(sizes, begun.n_cells)
        ballots = partial(sum_of_entries, partial(_sums_of, begun.cells, form))
        sums, sigma, of_next = yield from self.asked(sizes, past, 0, turn, form, ballots)
        of_sums = sums, sigma, STEPS, begun.cells, begun.schema.ordered
        means = Means.of(*of_sums)
        if public.release is not None:
            means = means.by_cell(*of_sums)
        means = means.beside(begun.start)
        form = form_of_residuals(sizes, sum(map(len, means.tables)))
        ballots = partial(
            sum_of_entries, partial(residuals_of, means, partial(wrong_by, means), form)
        )
        residuals, sigma, of_next = yield from self.asked(sizes, past, 1, of_next, form, ballots)
        means = averaged(means, past["tables"], turn.n)
        of_effects, of_public = past["parts"].with_mean(np.array(means.begun), turn.n).tolist()
        means = replace(means, parts=(of_effects, of_public))
        fitting = Fitting.of(means, *means.corrected(residuals, sigma, STEPS))
        form = form_of_joint(fitting.n_weights, public.unit)
        ballots = partial(joint_sum, partial(joint_of, fitting), fitting.n_weights)
        weights, sigma, of_next = yield from self.asked(sizes, past, 2, of_next, form, ballots)
        of_people = noisy_means(weights[0], sigma, turn.n)
        regressor = fitting.regressor(*of_people, turn.n, begun.schema)
        form = _form_of_errors(sizes)
        ballots = partial(sum_of_entries, partial(_errors_of, regressor, form))
        errors, sigma, _ = yield from self.asked(sizes, Past(Average), 3, of_next, form, ballots)
        low, high = map(float, public.classes[:2])
        return with_histograms(regressor, errors / STEPS, sigma / STEPS, (low, high)), None


def _form_of_sums(sizes: Sizes, n_bins: int) -> Vector:
    """Return the form of ballots that add up numbers: of each column two, how far from the upper and the lower end."""
    return Vector((2, n_bins), len(sizes.bins) * STEPS**2, sizes.unit, nonnegative=True)


def form_of_residuals(sizes: Sizes, n_groups: int) -> Vector:
    """Return the form of ballots of residuals: one for each column."""
    return Vector((1, n_groups), len(sizes.bins) * _LONGEST**2, sizes.unit)


def _form_of_errors(sizes: Sizes) -> Vector:
    """Return the form of ballots that say how far a number lies from its prediction: a whole count in one bin."""
    return Vector((N_PARTS, len(EDGES) - 1), STEPS**2, sizes.unit, nonnegative=True)
