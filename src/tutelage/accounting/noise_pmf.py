"""Noise distributions on a grid of noisy counts: what the exact costs of a noisy argmax are summed over.

A grid lists points x in steps of 1/per_vote votes, so a class with one vote less reads the same table `per_vote`
entries further on. For discrete noise the points are the integers and the sums are the mechanism's own; for continuous
noise they are quadrature nodes whose relative error is bounded by `quadrature_error`. Proof of both bounds:
docs/proofs/exact.md, section 4.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import ceil, exp, log, log1p, pi, sqrt
from typing import cast, final

import numpy as np
from scipy import special

from tutelage._internal.typing import FloatArray

_TAIL_NATS = 30.0  # what lies beyond the grid has a share below e^−29 of any outcome
_MOST_CLASSES_NATS = 7.0  # for up to e^7 classes
_QUADRATURE = 1e-15  # relative error that the nodes are chosen for
_MOST_NODES = 64  # Gauss-Legendre nodes in one panel


@final
@dataclass(frozen=True, slots=True, eq=False)
class NoiseGrid:
    """A noise density and its cumulative distribution at points lo, lo + 1, … in steps of 1/per_vote votes.

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
    # The defaults are those of noise on the integers.
    per_vote: int = 1
    stride: int = 1
    tie_shift: int = 1  # grid steps between "at most x" and "below x": one for integers, none for continuous noise
    log_weight: FloatArray = field(default_factory=lambda: np.zeros(1))  # per phase of the grid within a vote
    quadrature_error: float = 0.0


@final
@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """A noise distribution: how to tabulate it, and how far the noisy maximum has to be followed.

    `build` takes the lowest and highest difference x, in votes, and the number of classes, which for continuous noise
    decides how many points a vote needs. The noisy maximum is
    followed up to `above` votes beyond the most votes, and down to `below` votes under a point that lies the share
    `midway` of the way from the fewest votes to the most.
    """

    build: Callable[[int, int, int], NoiseGrid]
    points_per_vote: Callable[[int], float]  # for a number of classes
    midway: float
    below: float
    above: float


def discrete_laplace(scale: float) -> NoiseLaw:
    """Return P(k) ∝ exp(−|k|/scale) on the integers."""
    return NoiseLaw(partial(_discrete_laplace_grid, scale), _one_point, *_laplace_reach(scale))


def discrete_gaussian(sigma: float) -> NoiseLaw:
    """Return P(k) ∝ exp(−k²/2σ²) on the integers."""
    return NoiseLaw(partial(_discrete_gaussian_grid, sigma), _one_point, *_gaussian_reach(sigma))


def continuous_laplace(scale: float) -> NoiseLaw:
    """Return the Laplace density exp(−|x|/scale)/2·scale, by Gauss-Legendre quadrature between whole votes."""

    def points(classes: int) -> float:
        panels, nodes, _ = _laplace_quadrature(scale, classes)
        return panels * nodes

    return NoiseLaw(partial(_continuous_laplace_grid, scale), points, *_laplace_reach(scale))


def continuous_gaussian(sigma: float) -> NoiseLaw:
    """Return the normal density of standard deviation `sigma`, by the trapezoidal rule."""

    def points(classes: int) -> float:
        per_vote, stride = _gaussian_steps(sigma, classes)
        return per_vote / stride

    return NoiseLaw(partial(_continuous_gaussian_grid, sigma), points, *_gaussian_reach(sigma))


def _one_point(_classes: int) -> float:
    return 1.0


def _laplace_reach(scale: float) -> tuple[float, float, float]:
    return 0.0, scale * _TAIL_NATS / 2 + 2, scale * (_TAIL_NATS + _MOST_CLASSES_NATS) + 2


def _gaussian_reach(sigma: float) -> tuple[float, float, float]:
    return 0.5, sigma * sqrt(_TAIL_NATS) + 2, sigma * sqrt(2 * (_TAIL_NATS + _MOST_CLASSES_NATS)) + 2


def _discrete_laplace_grid(scale: float, lowest: int, highest: int, _classes: int) -> NoiseGrid:
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


def _discrete_gaussian_grid(sigma: float, lowest: int, highest: int, _classes: int) -> NoiseGrid:
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


def _laplace_quadrature(scale: float, classes: int) -> tuple[int, int, float]:
    """Return panels per vote, nodes per panel, and the relative error that they leave."""
    panels = max(1, ceil(2 / scale))  # per vote: the density has kinks at whole votes
    # A Bernstein ellipse of parameter ρ around a panel reaches `grown` beyond it, in units of the scale; there the
    # integrand is at most e^grown (2 + e^grown)^(classes−1) times its smallest value on the panel.
    rho = 4 * panels * scale
    grown = (rho + 1 / rho - 2) / (4 * panels * scale) + 1 / (panels * scale)
    growth = grown + (classes - 1) * log(2 + exp(grown))
    nodes = min(_MOST_NODES, ceil((growth + log(64 / 15) - log(_QUADRATURE)) / (2 * log(rho))))
    error = exp(min(700.0, growth + log(64 / 15) - 2 * nodes * log(rho))) / (1 - rho**-2)
    return panels, nodes, error


def _continuous_laplace_grid(scale: float, lowest: int, highest: int, classes: int) -> NoiseGrid:
    panels, nodes, error = _laplace_quadrature(scale, classes)
    points, weights = special.roots_legendre(nodes)
    within = (np.arange(panels)[:, None] + (points + 1) / 2) / panels
    x = (np.arange(lowest, highest + 1)[:, None] + within.ravel()).ravel()
    inside, outside = -np.abs(x) / scale, np.log1p(-np.exp(-np.abs(x) / scale) / 2)
    log_below = np.where(x < 0, inside - log(2), outside)

    def moved(step: int) -> FloatArray:  # F(x + step)/F(x) − 1: both on one side of zero, or on different ones
        near, far = np.exp(-np.abs(x) / scale), np.exp(-np.abs(x + step) / scale)
        crossing = np.where(x < 0, 1 - (near + far) / 2, (near + far) / 2 - 1)  # F(x + step) − F(x) across zero
        beyond: FloatArray = -near * np.expm1(-step / scale) / (2 - near)
        same_side = np.where(x < 0, np.expm1(step / scale), beyond)
        return np.where((x < 0) == (x + step < 0), same_side, crossing / np.exp(np.maximum(log_below, -1 / scale - 1)))

    return NoiseGrid(
        lo=lowest * panels * nodes,
        per_vote=panels * nodes,
        tie_shift=0,
        log_weight=np.log(np.tile(weights / (2 * panels), panels)),
        log_density=inside - log(2 * scale),
        log_below=log_below,
        log_above=np.where(x < 0, outside, inside - log(2)),
        gain=moved(1),
        loss=moved(-1),
        fewer=np.expm1((np.abs(x) - np.abs(x + 1)) / scale),
        more=np.expm1((np.abs(x) - np.abs(x - 1)) / scale),
        quadrature_error=error,
    )


def _gaussian_steps(sigma: float, classes: int) -> tuple[int, int]:
    """Return points per vote, and votes per point, of which one is 1."""
    # On the line Im z = y the integrand grows by at most e^{classes·y²/2σ²}, so the trapezoidal rule of step h errs by
    # a share of 2/(e^{2π²σ²/(classes·h²)}·(1 − …)) at the best y; the step is the widest that meets the target.
    step = pi * sigma * sqrt(2 / (classes * (2 - log(_QUADRATURE))))
    return (ceil(1 / step), 1) if step < 1 else (1, int(step))


def _continuous_gaussian_grid(sigma: float, lowest: int, highest: int, classes: int) -> NoiseGrid:
    per_vote, stride = _gaussian_steps(sigma, classes)
    step = stride / per_vote
    x = np.arange(lowest * per_vote, (highest + 1) * per_vote) / per_vote
    y_gain = 2 * (pi * sigma / step) ** 2 / classes  # exponent at the best y
    log_below = special.log_ndtr(x / sigma)
    with np.errstate(over="ignore"):
        gain, loss = _normal_step(x, 1.0, sigma), _normal_step(x, -1.0, sigma)
        fewer, more = np.expm1(-(2 * x + 1) / (2 * sigma**2)), np.expm1((2 * x - 1) / (2 * sigma**2))
    return NoiseGrid(
        lo=lowest * per_vote,
        per_vote=per_vote,
        stride=stride,
        tie_shift=0,
        log_weight=np.full(per_vote, log(step)),
        log_density=-((x / sigma) ** 2) / 2 - log(sigma * sqrt(2 * pi)),
        log_below=log_below,
        log_above=special.log_ndtr(-x / sigma),
        gain=gain,
        loss=loss,
        fewer=fewer,
        more=more,
        quadrature_error=2 * exp(-y_gain) / -np.expm1(-2 * y_gain),
    )


def _normal_step(x: FloatArray, step: float, sigma: float) -> FloatArray:
    """Return Φ((x + step)/σ)/Φ(x/σ) − 1; on the left by scaled tails, whose logarithms are small."""
    here, there = np.minimum(x, 0) / (sigma * sqrt(2)), np.minimum(x + step, 0) / (sigma * sqrt(2))
    tails: FloatArray = np.log(special.erfcx(-there) / special.erfcx(-here)) + (here - there) * (here + there)
    both_left = np.maximum(x, x + step) <= 0
    return np.expm1(np.where(both_left, tails, special.log_ndtr((x + step) / sigma) - special.log_ndtr(x / sigma)))
