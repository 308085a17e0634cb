"""A student that predicts a number: a table of effects that add up, and how far numbers lie from it.

No row has a part in it. Sums over the bins of each column give each bin an effect, what these get wrong gives a
correction, a least squares fit says how much of each column's effect and of the correction to believe, and a histogram
of what is left says how far numbers lie from predictions. Numbers are shares of a public range.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from tutelage._internal.records import by_identity
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.public_numbers import PublicStart, PublicSum
from tutelage.students.additive import (
    Columns,
    Effects,
    TableOfEffects,
    expected_effects,
    sum_of_effects,
)

# Chosen on diamonds, CPS 1988 and wages of the General Social Survey, none of which docs/howto/numbers.md scores.
LARGEST_RESIDUAL = 0.35  # of the range: a larger one is cut
# Where public rows have numbers, a residual is cut beyond this quantile of what a model gets wrong about them.
_QUANTILE_OF_PUBLIC = 0.99
_LEAST_CUT, _MOST_CUT = 0.05, 1.0
# Of numbers within a bin, times that of the two ends of the range with the same mean.
_VARIANCE = 0.25
_HALF_EDGES = np.array([0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.14, 0.2, 0.3, 0.5, 1.0])
EDGES = np.concatenate([-_HALF_EDGES[::-1], [0.0], _HALF_EDGES])  # of the histogram of what is left
INTERVAL = (0.1, 0.9)  # quantiles between which a number is expected
_UNUSUAL = 0.01
# Shares of the range; at the last, nothing is beyond.
_SIZES_OF_ERRORS = [*np.linspace(0.05, 0.5, 46).tolist(), 2.0]
N_PARTS = 4  # of the people, by their prediction, each with its own histogram
_PARTS = np.linspace(0, 1, 21)  # candidates


@final
class AdditiveRegressor(RegressorMixin, TableOfEffects):
    """A number that is a sum of one effect for each column: a table that can be read.

    `PATERegressor` makes it. Rows are bins, as `Schema.transform` returns them. `intercept_` is what all predictions
    begin from, and `effects_` what each bin of each column adds, in the unit of the target. Where public rows had
    numbers, `part_` times what these say alone is added, too. No prediction leaves `range_`.
    """

    range_: tuple[float, float]
    public_: PublicSum | None = None  # of public targets, if there are any
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
        expected = self.totals(X)[:, 0]
        low, high = self.range_
        if self.public_ is not None:
            shares = self.public_.shares(np.asarray(X))
            expected = expected + self.part_ * (high - low) * shares
        return np.clip(expected, low, high)

    def usual_error(self) -> float:
        """Return the size of errors that about one in a hundred is beyond, by what was released."""
        low, high = self.range_
        below: FloatArray = np.mean(self.below_, axis=0)  # the parts have equally many people

        def beyond(size: float) -> float:
            within = np.interp([-size, size], EDGES, below).tolist()
            return within[0] + 1 - within[1]

        unusual = next(size for size in _SIZES_OF_ERRORS if beyond(size) <= _UNUSUAL)
        return (high - low) * unusual

    def typical_of_public(self, X: npt.ArrayLike, truth: FloatArray) -> float | None:
        """Return the root of the mean squared error of public targets alone, if there were any."""
        if self.public_ is None:
            return None
        low, high = self.range_
        expected = low + (high - low) * self.public_.shares(np.asarray(X))
        return float(np.sqrt(np.mean((expected - truth) ** 2)))

    def predict_quantiles(self, X: npt.ArrayLike, quantiles: Sequence[float]) -> FloatArray:
        """Return numbers below which such shares of rows like each row lie, shape (rows, quantiles)."""
        # expected, part: (rows,); errors: (parts, quantiles)
        if not len(quantiles) or not all(0 < share < 1 for share in quantiles):
            raise InvalidParameterError(
                "AdditiveRegressor.quantiles", "be shares between 0 and 1, such as (0.1, 0.5, 0.9)"
            )
        expected = self.predict(X)
        low, high = self.range_
        errors = [np.interp(quantiles, below, EDGES) for below in self.below_]
        offsets = np.array(errors) * (high - low)
        part = np.searchsorted(self.parts_, expected, side="right")
        return np.clip(expected[:, None] + offsets[part], low, high)


@final
@by_identity
class Means(Effects):
    """Effects of the bins of each column by noisy sums of numbers, and what these say of the people; public."""

    public: PublicStart | None = None  # what public targets say
    part_of_public: float = 0.0  # in what the next sum begins from
    offset: float = 0.0  # of the mean, by the sums so far

    @staticmethod
    def _first_part(n_columns: int, /) -> float:
        # Columns say the same in part, so less than all of it.
        return 1 / sqrt(n_columns)

    @staticmethod
    def _shares(totals: FloatArray) -> FloatArray:
        mean = float(np.clip(totals[1] / max(totals.sum(), 1.0), 0.01, 0.99))
        return np.array([1 - mean, mean])

    @staticmethod
    def _estimate(
        shares: FloatArray,
        sums: FloatArray,
        noise: FloatArray,
        walk: int,
    ) -> Columns:
        """Return the effect of each group, its doubt, and about how many people it has."""
        # sums: (groups, 2); noise, people, beyond, effects: (groups, 1)
        mean = float(shares[1])
        total = sums.sum(axis=1, keepdims=True)
        people = np.maximum(total, noise * sqrt(2))
        of_noise = (noise / people) ** 2 * ((1 - mean) ** 2 + mean**2)
        beyond = (sums[:, 1:] - mean * total) / people
        variance = _variance_at(mean)
        effects, doubts = expected_effects(
            beyond,
            1 / people,
            of_noise,
            people[:, 0],
            walk,
            variance,
        )
        effects -= (people[:, 0] @ effects[:, 0]) / people.sum()
        return effects, doubts, people

    @property
    def mean(self) -> float:
        """Mean of the numbers."""
        return float(self.shares[1])

    @property
    def variance(self) -> float:
        """About that of the numbers of people within a bin."""
        return _variance_at(self.mean)

    @property
    def largest_residual(self) -> float:
        """Of the range: a larger residual is cut, and others are in proportion to it."""
        if self.public is None:
            return LARGEST_RESIDUAL
        wrong = np.abs(self.public.shares - self.public.apart)
        return float(np.clip(np.quantile(wrong, _QUANTILE_OF_PUBLIC), _LEAST_CUT, _MOST_CUT))

    def beside(self, public: PublicStart | None) -> Self:
        """Return these with what public targets say, in the parts by which public rows are predicted best."""
        # effects, expected: (public rows,); wrong: (candidates, public rows); errors: (candidates, candidates)
        if public is None:
            return self
        effects = sum_of_effects(self.tables, self.groups_of(public.bins))[:, 0]
        expected = public.apart - self.mean
        wrong = public.shares - self.mean - _PARTS[:, None] * expected
        errors = np.zeros((len(_PARTS), len(_PARTS)))
        for place, part in enumerate(_PARTS):
            errors[place] = [np.mean((row - part * effects) ** 2) for row in wrong]
        of_effects, of_public = np.unravel_index(np.argmin(errors), errors.shape)
        weights = np.full(len(self.tables), _PARTS[of_effects])
        return replace(
            self, public=public, weights=weights, part_of_public=float(_PARTS[of_public])
        )

    def public_shares(self, bins: Matrix) -> FloatArray | None:
        """Return the number of each row by public targets alone, where there are any."""
        return None if self.public is None else self.public.model.shares(bins)

    def start(self, groups: IntArray, public_shares: FloatArray | None = None) -> FloatArray:
        """Return the numbers that the later sums begin from."""
        expected = self.mean + self.offset + sum_of_effects(self.start_effects, groups)[:, 0]
        if public_shares is not None:
            expected = expected + self.part_of_public * (public_shares - self.mean)
        return np.clip(expected, 0.0, 1.0)

    def examples(self) -> tuple[IntArray, FloatArray | None]:
        """Return public rows as groups, and what public targets say of them; without them made-up rows."""
        if self.public is None:
            return self.made_up_rows(), None
        return self.groups_of(self.public.bins), self.public.apart

    def with_residuals(self, residuals: FloatArray, sigma: float, scale: float) -> Self:
        """Return these with a correction by noisy sums of what they get wrong, shape (1, groups)."""
        scale *= LARGEST_RESIDUAL / self.largest_residual
        correction = self._corrections(
            residuals.T / scale,
            [size[:, None] for size in self.sizes],
            sigma / scale,
            variance=self.variance,
        )
        return self.with_correction(correction)


def _variance_at(mean: float) -> float:
    return _VARIANCE * mean * (1 - mean)
