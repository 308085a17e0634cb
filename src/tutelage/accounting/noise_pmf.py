"""Noise distributions on the integers: what the exact costs of a noisy argmax are summed over.

A class with one vote less reads the same table one entry further on. Error bounds: docs/proofs/exact.md, section 4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil, exp, log1p, sqrt
from typing import cast, final

import numpy as np
from scipy import special

from tutelage._internal.typing import FloatArray

_TAIL_NATS = 30.0  # what lies beyond the grid has a share below e^−29 of any outcome
_MOST_CLASSES_NATS = 7.0  # for up to e^7 classes


@final
@dataclass(frozen=True, slots=True, eq=False)
class NoiseGrid:
    """A noise density and its cumulative distribution at the integers from `lo` on.

    `gain` and `loss` are the relative changes of the cumulative distribution F where a rival class has one vote less,
    F(x+1)/F(x) − 1 ≥ 0, or one more, F(x−1)/F(x) − 1 ≤ 0; `fewer` and `more` are those of the density f of the winning
    class itself, f(x+1)/f(x) − 1 and f(x−1)/f(x) − 1. They come from ratios, so small changes keep their digits.
    """

    lo: int
    log_density: FloatArray
    log_below: FloatArray  # log F(x)
    log_above: FloatArray  # log P(Z > x)
    gain: FloatArray
    loss: FloatArray
    fewer: FloatArray
    more: FloatArray


@final
@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """A noise distribution: how to tabulate it, and how far the noisy maximum has to be followed.

    `build` takes the lowest and highest difference x, in votes. The noisy maximum is followed up to `above` votes
    beyond the most votes, and down to `below` votes under a point that lies the share `midway` of the way from the
    fewest votes to the most.
    """

    build: Callable[[int, int], NoiseGrid]
    midway: float
    below: float
    above: float


def discrete_laplace(scale: float) -> NoiseLaw:
    """Return P(k) ∝ exp(−|k|/scale) on the integers."""
    return NoiseLaw(partial(_discrete_laplace_grid, scale), *_laplace_reach(scale))


def discrete_gaussian(sigma: float) -> NoiseLaw:
    """Return P(k) ∝ exp(−k²/2σ²) on the integers."""
    return NoiseLaw(partial(_discrete_gaussian_grid, sigma), *_gaussian_reach(sigma))


def _laplace_reach(scale: float) -> tuple[float, float, float]:
    return 0.0, scale * _TAIL_NATS / 2 + 2, scale * (_TAIL_NATS + _MOST_CLASSES_NATS) + 2


def _gaussian_reach(sigma: float) -> tuple[float, float, float]:
    return 0.5, sigma * sqrt(_TAIL_NATS) + 2, sigma * sqrt(2 * (_TAIL_NATS + _MOST_CLASSES_NATS)) + 2


def _discrete_laplace_grid(scale: float, lowest: int, highest: int) -> NoiseGrid:
    x = np.arange(lowest, highest + 1, dtype=np.float64)
    a = exp(-1 / scale)
    rest: float = -np.expm1(-1 / scale)  # 1 − a
    share: FloatArray = np.exp(-np.maximum(x, 0) / scale)  # a^x where x ≥ 0
    below_zero = np.minimum(x, 0) / scale - log1p(a)  # F(x) = a^−x/(1+a) for x < 0
    return NoiseGrid(
        lo=lowest,
        log_density=np.log(rest / (1 + a)) - np.abs(x) / scale,
        log_below=np.where(x < 0, below_zero, np.log1p(-a * share / (1 + a))),
        log_above=np.where(x < 0, np.log1p(-np.exp(below_zero)), -(x + 1) / scale - log1p(a)),
        gain=np.where(x < 0, np.expm1(1 / scale), rest * a * share / (1 + a - a * share)),
        loss=-np.where(x <= 0, rest, rest * share / (1 + a - a * share)),
        fewer=np.expm1(np.where(x < 0, 1, -1) / scale),
        more=np.expm1(np.where(x > 0, 1, -1) / scale),
    )


def _discrete_gaussian_grid(sigma: float, lowest: int, highest: int) -> NoiseGrid:
    reach = max(-lowest, highest + 1) + ceil(13 * sigma) + 2  # the mass beyond is below e^−84 of what is used
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    log_density = -(x**2) / (2 * sigma**2)
    log_density -= cast("float", special.logsumexp(log_density))
    with np.errstate(over="ignore", divide="ignore"):
        fewer, more = np.expm1(-(2 * x + 1) / (2 * sigma**2)), np.expm1((2 * x - 1) / (2 * sigma**2))
        hazard = _reverse_hazard(more[:reach])  # f(x)/F(x) for x < 0
        left = log_density[:reach] - np.log(hazard)  # log F(x) for x < 0
        right = np.log1p(-np.exp(left))[::-1]  # log F(x) = log(1 − F(−x−1)) for x ≥ 0
        log_below = np.concatenate([left, right, [0.0]])
        loss = np.concatenate([-hazard, -np.exp(log_density[reach:] - log_below[reach:])])
        gain = np.concatenate([hazard * (1 + fewer[:reach]), np.exp(log_density[reach + 1 :] - right), [0.0]])
    used = slice(lowest + reach, highest + reach + 1)
    return NoiseGrid(
        lo=lowest,
        log_density=log_density[used],
        log_below=log_below[used],
        log_above=log_below[::-1][used.start + 1 : used.stop + 1],  # P(Z > x) = F(−x−1)
        gain=gain[used],
        loss=loss[used],
        fewer=fewer[used],
        more=more[used],
    )


def _reverse_hazard(more: FloatArray) -> FloatArray:
    """Return f(x)/F(x) from the left, by 1/h(x) = 1 + (f(x−1)/f(x))/h(x−1): positive terms, so nothing cancels."""
    hazards: list[float] = []
    inverse = 1.0
    for ratio in (more + 1).tolist():
        inverse = 1.0 + inverse * ratio
        hazards.append(1.0 / inverse)
    return np.array(hazards)
