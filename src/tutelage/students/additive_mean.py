"""A student that predicts a number: a table of effects that add up, and how far numbers lie from it.

No row has a part in it. Sums over the bins of each column give each bin an effect, what these get wrong gives a
correction, a least squares fit says how much of each column's effect and of the correction to believe, and a histogram
of what is left says how far numbers lie from predictions. Numbers are shares of a public range.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from tutelage._internal.records import by_identity
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.public_numbers import PublicStart, PublicTrees
from tutelage.features.schema import Schema
from tutelage.students.additive import (
    Columns,
    Effects,
    Noisy,
    TableOfEffects,
    expected_effects,
    made_up_rows,
    prior_of,
    summed,
)
from tutelage.students.stacking import equations_of, step_of

# Chosen on diamonds, CPS 1988 and wages of the General Social Survey, none of which docs/howto/numbers.md scores.
LARGEST_RESIDUAL = 0.35  # of the range: a larger one is cut
# Of numbers within a bin, times that of the two ends of the range with the same mean.
_VARIANCE = 0.25
_QUANTILE = 0.9  # of the lengths of effects: longer ones are shortened
_HALF_EDGES = np.array([0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.14, 0.2, 0.3, 0.5, 1.0])
EDGES = np.concatenate([-_HALF_EDGES[::-1], [0.0], _HALF_EDGES])  # of the histogram of what is left
N_PARTS = 4  # of the people, by their prediction, each with its own histogram
_PARTS = np.linspace(0, 1, 21)  # candidates
_HIDDEN = 2.0  # deviations of the noise: smaller counts are mostly noise


@final
class AdditiveRegressor(RegressorMixin, TableOfEffects):
    """A number that is a sum of one effect for each column: a table that can be read.

    `PATERegressor` makes it. Rows are bins, as `Schema.transform` returns them. `intercept_` is what all predictions
    begin from, and `effects_` what each bin of each column adds, in the unit of the target. Where public rows had
    numbers, `part_` times what these say alone is added, too. No prediction leaves `range_`.
    """

    range_: tuple[float, float]
    public_: PublicTrees | None = None  # of public targets, if there are any
    part_: float = 0.0  # of their prediction, which the effects are added to
    parts_: FloatArray  # predictions at which the next histogram begins
    below_: FloatArray  # share of the people below each edge, for each part

    @property
    def outputs(self) -> list[str]:
        """Name of the number that the effects add to."""
        return ["target"]

    def fit(self, _X: Matrix, _y: npt.ArrayLike) -> Self:
        """Refuse: the regressor follows from noisy sums."""
        raise InvalidDataError(
            "AdditiveRegressor learns from noisy sums. Fit PATERegressor in place of it."
        )

    def predict(self, X: npt.ArrayLike) -> FloatArray:
        """Return the expected number of each row, shape (rows,)."""
        found = self.totals(X)[:, 0]
        (low, high) = self.range_
        if self.public_ is not None:
            found = found + self.part_ * (high - low) * self.public_.shares(np.asarray(X))
        return np.clip(found, low, high)

    def typical_of_public(self, X: npt.ArrayLike, truth: FloatArray) -> float | None:
        """Return the root of the mean squared error of public targets alone, if there were any."""
        if self.public_ is None:
            return None
        (low, high) = self.range_
        expected = self.public_.shares(np.asarray(X))
        return float(np.sqrt(np.mean((low + (high - low) * expected - truth) ** 2)))

    def predict_quantiles(self, X: npt.ArrayLike, quantiles: Sequence[float]) -> FloatArray:
        """Return numbers below which such shares of rows like each row lie, shape (rows, quantiles)."""
        if not len(quantiles) or not all(0 < one < 1 for one in quantiles):
            raise InvalidParameterError(
                "AdditiveRegressor.quantiles", "be shares between 0 and 1, such as (0.1, 0.5, 0.9)"
            )
        expected = self.predict(X)
        (low, high) = self.range_
        offsets = np.array([np.interp(quantiles, below, EDGES) for below in self.below_]) * (
            high - low
        )
        part = np.searchsorted(self.parts_, expected, side="right")
        return np.clip(expected[:, None] + offsets[part], low, high)


@final
@by_identity
class Means(Effects):
    """Effects of the bins of each column by noisy sums of numbers, and what these say of the people; public."""

    mean: float  # of the numbers
    public: PublicStart | None = None  # what public targets say
    # Of the effects and of that, in what the later sums begin from.
    parts: tuple[float, float] | None = None

    @classmethod
    def _estimate(cls, totals: FloatArray) -> tuple[Callable[[Noisy], Columns], float]:
        mean = float(np.clip(totals[1] / max(totals.sum(), 1.0), 0.01, 0.99))
        return partial(_effects_of, mean), mean

    @property
    def variance(self) -> float:
        """About that of the numbers of people within a bin."""
        return _variance_at(self.mean)

    def beside(self, public: PublicStart | None) -> Self:
        """Return these with what public targets say, in the parts by which public rows are predicted best."""
        if public is None:
            return self
        effects = self._beyond(self.rows(public.bins))
        expected = public.apart - self.mean
        wrong = public.shares - self.mean - _PARTS[:, None] * expected
        errors = [[np.mean((one - part * effects) ** 2) for one in wrong] for part in _PARTS]
        best = np.unravel_index(np.argmin(errors), (len(_PARTS), len(_PARTS)))
        of_effects, of_public = _PARTS[list(best)].tolist()
        return replace(self, public=public, parts=(of_effects, of_public))

    def known(self, bins: Matrix) -> FloatArray | None:
        """Return the number of each row by public targets alone, where there are any."""
        return None if self.public is None else self.public.trees.shares(bins)

    def start(self, rows: IntArray, known: FloatArray | None = None) -> FloatArray:
        """Return the numbers that the later sums begin from."""
        of_effects, of_public = self.begun
        found = self.mean + of_effects * self._beyond(rows)
        return np.clip(
            found if known is None else found + of_public * (known - self.mean),
            0.0,
            1.0,
        )

    @property
    def begun(self) -> tuple[float, float]:
        """Parts of effects and public targets to begin from: columns say the same in part, so less than all of it."""
        return self.parts or (1 / sqrt(len(self.tables)), 0.0)

    def _beyond(self, rows: IntArray) -> FloatArray:
        return summed(self.tables, rows)[:, 0]

    def examples(self) -> tuple[IntArray, FloatArray | None]:
        """Return public rows as groups, and what public targets say of them; without them made-up rows."""
        if self.public is None:
            return made_up_rows(self.sizes), None
        return self.rows(self.public.bins), self.public.apart

    def corrected(
        self,
        residuals: IntArray,
        sigma: float,
        scale: float,
    ) -> tuple[Columns, Columns]:
        """Return corrections of the effects by noisy sums of what they get wrong, shape (1, groups), and doubts."""
        weights = [size[:, None] for size in self.sizes]
        return self.repaired(residuals.T / scale, weights, sigma / scale, variance=self.variance)


def _effects_of(mean: float, noisy: Noisy) -> Columns:
    """Return the effect of each group, its doubt, and about how many people it has."""
    sums, noise = noisy.by_group()
    total = sums.sum(axis=1, keepdims=True)
    people = np.maximum(total, noise * sqrt(2))
    of_noise = (noise / people) ** 2 * ((1 - mean) ** 2 + mean**2)
    beyond = (sums[:, 1:] - mean * total) / people
    prior = prior_of(people[:, 0], noisy.walk)
    effects, doubts = expected_effects(beyond, 1 / people, of_noise, prior, _variance_at(mean))
    effects -= (people[:, 0] @ effects[:, 0]) / people.sum()
    return effects, doubts, people


def _variance_at(mean: float) -> float:
    return _VARIANCE * mean * (1 - mean)


@final
@by_identity
class Fitting:
    """The ballot that says how much of each effect and of the correction to believe; public."""

    means: Means
    corrections: Columns
    doubts: Columns  # of the corrections
    radius: float

    @classmethod
    def of(
        cls,
        means: Means,
        corrections: Columns,
        doubts: Columns,
    ) -> Self:
        """Return the ballot, whose length follows from public rows or, without them, from made-up ones."""
        made = cls(means, corrections, doubts, 1.0)
        explained = made.explained(*means.examples())
        return replace(made, radius=float(np.quantile(_lengths(explained), _QUANTILE)))

    @property
    def n_weights(self) -> int:
        """How many weights there are: for each column, the correction, public targets if any, and the intercept."""
        return len(self.corrections) + 2 + (self.means.public is not None)

    def explained(self, rows: IntArray, known: FloatArray | None) -> FloatArray:
        """Return what the weights explain, shape (rows, weights); exact by row."""
        each = self.means.explained_by(self.corrections, rows)
        public = [] if known is None else [known - self.means.mean]
        return np.column_stack([*each, *public, np.full(len(rows), sqrt(self.means.variance))])

    def shown(self, rows: IntArray, known: FloatArray | None) -> FloatArray:
        """Return what the weights explain, at a length of at most 1."""
        explained = self.explained(rows, known)
        return explained / np.maximum(_lengths(explained), self.radius)[:, None]

    def regressor(
        self,
        means: FloatArray,
        noise: float,
        n_people: int,
        schema: Schema,
    ) -> AdditiveRegressor:
        """Return the student that follows from a noisy mean of gradient and Gram matrix, for numbers from 0 to 1."""
        d = len(self.corrections)
        gradient, gram = equations_of(means, self.n_weights)
        variance = self.means.variance / n_people
        step = step_of(LARGEST_RESIDUAL * gradient, gram, LARGEST_RESIDUAL * noise, noise, variance)
        weights, moved = np.array(step) / self.radius
        of_effects, of_public = self.means.begun
        weights[:d] += of_effects
        by_group, doubts = self.means.believed(self.corrections, self.doubts, weights, moved)
        made = AdditiveRegressor()
        rest = self.means.mean
        if self.means.public is not None:
            made.public_ = self.means.public.trees
            made.part_ = of_public + float(weights[d + 1])
            rest *= 1 - made.part_
        made.intercept_ = np.array([rest + weights[-1] * sqrt(self.means.variance)])
        made.with_table(by_group, doubts, self.means.groups, schema)
        made.n_features_in_ = d
        made.range_ = (0.0, 1.0)
        rows, known = self.means.examples()
        expected = made.intercept_ + summed(by_group, rows)[:, 0]
        if known is not None:
            expected += made.part_ * known
        made.parts_ = np.quantile(np.clip(expected, 0, 1), np.arange(1, N_PARTS) / N_PARTS)
        return made


def with_histograms(
    regressor: AdditiveRegressor,
    counts: FloatArray,
    sigma: float,
    ends: tuple[float, float],
) -> AdditiveRegressor:
    """Return the regressor with noisy histograms of what it gets wrong, shape (parts, bins), in the target's unit."""
    held = np.maximum(counts, 0) * (counts > _HIDDEN * sigma)
    together = held.sum(axis=0) + 1e-9
    # A part of few people tells little by itself.
    few = sigma * sqrt(counts.shape[1]) + 1
    mixed = held / few + together / together.sum()
    made = copy(regressor)
    (low, high) = ends
    shares = mixed / mixed.sum(axis=1, keepdims=True)
    made.below_ = np.insert(np.cumsum(shares, axis=1), 0, 0.0, axis=1)
    made.intercept_ = low + (high - low) * regressor.intercept_
    made.effects_ = [(high - low) * effect for effect in regressor.effects_]
    made.noise_ = [(high - low) * doubt for doubt in regressor.noise_]
    made.parts_ = low + (high - low) * regressor.parts_
    made.range_ = ends
    return made


def _lengths(explained: FloatArray) -> FloatArray:
    return np.sqrt((explained * explained).sum(axis=1))
