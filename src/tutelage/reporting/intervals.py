"""Intervals of ratios of noisy counts: they contain both the privacy noise and the sampling of people.

The formulas, and why each is conservative: docs/proofs/report.md.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Annotated, NamedTuple, final

import numpy as np
from msgspec import Meta

from tutelage._internal.typing import FloatArray
from tutelage.reporting.meaning import Z_95
from tutelage.reporting.part import MOST, Part

_CLEAR = 3.0  # standard deviations that a bottom has to be above zero
_ADDED = 4.0  # people of each class, spread over all bins, that only widen an AUC: as Agresti and Coull 1998 for shares
_Number = Annotated[float, Meta(ge=-MOST, le=MOST)]


@final
class Interval(Part, frozen=True):
    """An estimate with its 95 % interval: of the privacy noise, and of which people were drawn.

    Parameters
    ----------
    value : float
        The estimate.
    low, high : float
        Bounds of the interval, with ``low <= value <= high``.
    """

    value: _Number
    low: _Number
    high: _Number

    @property
    def below(self) -> float:
        """How far the interval reaches below the estimate."""
        return self.value - self.low

    @property
    def above(self) -> float:
        """How far the interval reaches above the estimate."""
        return self.high - self.value


class Variance(NamedTuple):
    """The variance of top − R·bottom, if R is the true ratio: constant + linear·R + square·R²."""

    constant: float
    linear: float
    square: float


def of_ratio(top: float, bottom: float, variance: Variance, z: float = Z_95) -> Interval | None:
    """Return the interval of a ratio in [0, 1]: all R with (top − R·bottom)² ≤ z²·variance(R).

    It is None if the numbers exclude no ratio, or if the bottom is not clearly above zero (Fieller 1954).
    """
    if bottom <= 0 or max(z, _CLEAR) ** 2 * variance.square >= bottom**2:
        return None
    # For each R in [0, 1], this brings the top nearer to R·bottom, so no interval becomes less likely to contain it.
    value = min(max(top / bottom, 0.0), 1.0)
    # The interval lies between the roots of a·R² − 2·b·R + c.
    scale = (z / bottom) ** 2
    a = 1 - scale * variance.square
    b = value + scale * variance.linear / 2
    c = value**2 - scale * variance.constant
    root = math.sqrt(max(0.0, b * b - a * c))
    low = (b - root) / a
    high = (b + root) / a
    return _within_one(value, min(value, low), max(value, high))


def of_share(
    hits: FloatArray,
    misses: FloatArray,
    noise: float,
    people: int | None = None,
    z: float = Z_95,
) -> Interval | None:
    """Return the interval of the share of hits in hits and misses: cells with independent noise of one scale.

    Parameters
    ----------
    hits, misses : array of float
        Cells, in people.
    noise : float
        Standard deviation of the noise of each cell, in people.
    people : int, optional
        The exact sum of all true cells, if it is public.
    z : float
        Standard deviations on each side.
    """
    cells = hits.size + misses.size
    top = float(hits.sum())
    bottom = top + float(misses.sum())
    if people is None:
        of_noise = Variance(hits.size, -2 * hits.size, cells)
    else:
        # The error of the known sum is spread over all cells evenly: the unbiased estimate of least noise.
        top += (people - bottom) * hits.size / cells
        bottom = float(people)
        of_noise = Variance(hits.size * misses.size / cells, 0, 0)
    # As R·(1 − R) times the bottom, the variance of the sampling is that of people with one row each.
    sampled = max(bottom, 0.0)
    variance = Variance(
        noise**2 * of_noise.constant,
        noise**2 * of_noise.linear + sampled,
        noise**2 * of_noise.square - sampled,
    )
    return of_ratio(top, bottom, variance, z)


def of_ranking(negatives: FloatArray, positives: FloatArray, noise: float) -> Interval | None:
    """Return the interval of the AUC of binned scores, in which a tie counts half.

    Parameters
    ----------
    negatives, positives : array of float, shape (n_bins,)
        People of each class by bin, the lowest scores first.
    noise : float
        Standard deviation of the noise of each bin, in people.
    """
    n_negatives = float(negatives.sum())
    n_positives = float(positives.sum())
    if n_negatives <= 0 or n_positives <= 0:
        return None
    below = np.tri(len(negatives), k=-1) + np.eye(len(negatives)) / 2
    won = below @ negatives
    lost = below.T @ positives
    # The variance of each count: its noise, and its sampling as if it were a Poisson count.
    least = noise**2 + _ADDED / len(negatives)
    of_positives = np.maximum(positives, 0) + least
    of_negatives = np.maximum(negatives, 0) + least
    constant = of_positives @ won**2
    constant += of_negatives @ lost**2
    linear = n_negatives * (of_positives @ won)
    linear += n_positives * (of_negatives @ lost)
    square = n_negatives**2 * of_positives.sum()
    square += n_positives**2 * of_negatives.sum()
    variance = Variance(float(constant), -2 * float(linear), float(square))
    top = float(positives @ won)
    bottom = n_negatives * n_positives
    return of_ratio(top, bottom, variance)


def of_mean(parts: Sequence[Interval | None]) -> Interval | None:
    """Return the interval of the mean of independent estimates (MOVER: Donner and Zou 2012)."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    value = sum(part.value for part in known) / len(known)
    below = math.hypot(*(part.below for part in known)) / len(known)
    above = math.hypot(*(part.above for part in known)) / len(known)
    return _within_one(value, value - below, value + above)


def of_largest_distance(shares: Sequence[Interval]) -> Interval | None:
    """Return the interval of the largest distance of independent shares (MOVER: Donner and Zou 2012).

    It covers if the intervals of all pairs do.
    """
    value = low = high = 0.0
    for second, first in combinations(sorted(shares, key=lambda share: share.value), 2):
        distance = first.value - second.value
        least = distance - math.hypot(first.below, second.above)
        most = distance + math.hypot(first.above, second.below)
        value = max(value, distance)
        low = max(low, least)
        high = max(high, most, -least)
    return _within_one(value, low, high)


def _within_one(value: float, low: float, high: float) -> Interval | None:
    """Return an interval in [0, 1], or None if it excludes nothing."""
    low = max(low, 0.0)
    high = min(high, 1.0)
    if low == 0 and high == 1:
        return None
    return Interval(value, low, high)
