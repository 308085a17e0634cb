"""The data-independent Rényi cost of a noisy argmax, from the three outcomes that a moved ballot can tell apart.

Given the noise of every class but the two that the ballot leaves and enters, only three outcomes remain: those two and
the best of the others. Rényi divergence is quasi-convex, so the worst position of the three bounds every histogram of
any number of classes; it is searched by branch and bound. Proofs: docs/proofs/argmax_bound.md.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, exp, inf, pi, sqrt
from typing import cast, final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from tutelage._internal.records import by_identity
from tutelage._internal.typing import FloatArray, IntArray

# Positions along one axis: beyond it the positions of a wider noise are taken in cells.
_LATTICE = 1400
_WIDEST = 20_000  # votes that noise is followed to; wider noise is left to the older bounds
_NARROWEST = 0.3  # σ or scale; below it powers overflow, and nothing is private anyway
_GAUSSIAN_REACH = 7.5  # the noise is followed to so many σ beyond where the order tilts it
# Orders up to so many σ share a table; beyond the last nothing is gained.
_GAUSSIAN_ORDERS = (0.5, 4.0)
_LAPLACE_REACH = 16.0  # scales
_LAPLACE_ORDER = 50.0  # orders up to so many scales
_LEAST_ORDER = 1 + 1e-6  # φ loses its digits below
_SPANS = (64, 16, 4, 1)  # sizes of the cells, in lattice positions
_TOLERANCE = 2e-4  # relative: cells that could raise the cost by less are not searched further
_UPWARD = 1 + 1e-6  # covers the rounding of the tables


def laplace_argmax(scale: float, order: float) -> float:
    """Return the largest Rényi divergence of a noisy argmax with discrete Laplace noise, rounded upward, or ∞."""
    return _argmax_divergence(laplace_noise(scale, order), order)


def gaussian_argmax(sigma: float, order: float) -> float:
    """Return the largest Rényi divergence of a noisy argmax with discrete Gaussian noise, rounded upward, or ∞."""
    return _argmax_divergence(gaussian_noise(sigma, order), order)


def gaussian_check(sigma: float, order: float) -> float:
    """Return the largest Rényi divergence of a check of one count against a threshold, with discrete Gaussian noise."""
    noise = gaussian_noise(sigma, order)
    if noise is None or order < _LEAST_ORDER:
        return inf

    excess = float(noise.excess_of_one_count(order).max()) + noise.outside(order)
    return float(divergence(excess, order))


def gaussian_single_change(sigma: float, order: float) -> float:
    """Return the largest Rényi divergence of an argmax where one count changes by one, with discrete Gaussian noise.

    Given the noise of all other classes, the best of them is a threshold, so this is a check.
    """
    return gaussian_check(sigma, order)


@final
@by_identity
class Noise:
    """A log-concave noise on −reach..reach, and that of a class with one vote less and one vote more."""

    reach: int
    here: FloatArray  # f(w)
    fewer: FloatArray  # f(w + 1): the class that lost a vote
    more: FloatArray  # f(w − 1): the class that gained one
    outside: Callable[[float], float]  # E[φ] beyond the reach, by order, either direction

    def excess_of_one_count(self, order: float) -> FloatArray:
        """Return E[φ] of "noise ≥ x" against "noise ≥ x + 1", the larger direction, for x = 1 − reach .. reach."""
        # here, fewer: (2·reach + 1,); before, after: (2, 2·reach), at least x and below it; returned: (2·reach,)
        before = _log_law_of_check(self.here)
        after = _log_law_of_check(self.fewer)
        ratio = before - after
        forward = _excess(after, ratio, ratio, order)
        backward = _excess(before, -ratio, -ratio, order)
        return np.maximum(forward, backward)


@final
@by_identity
class Positions:
    """Log probabilities of the three outcomes on a lattice of positions, before the move and after it.

    Position (x, y): the class that loses a vote beats the best other where its noise is at least x, the class that
    gains one where its noise is at least y. `loser[t, y − x, x]` and `gainer[t, x − y, y]` are the log probabilities
    that these two win, and `other_x[t, x] + other_y[t, y]` that the third does, at time t = 0, 1.
    """

    step: int  # votes between positions
    last: int  # positions are numbered 0..last
    largest_ratio: float  # no log ratio of two outcomes is larger
    loser: FloatArray
    gainer: FloatArray
    other_x: FloatArray
    other_y: FloatArray

    @property
    def finest(self) -> int:
        """How many positions the smallest cell has beyond its first one: none where each position is one vote."""
        return int(self.step > 1)

    def log_law_of_three(self, x: IntArray, y: IntArray) -> FloatArray:
        """Return log probabilities before and after, shape (2, 3, …): loser, gainer, other."""
        # x, y: any one shape (…), positions
        difference = x - y
        loser = self.loser[:, self.last - difference, x]
        gainer = self.gainer[:, self.last + difference, y]
        other = self.other_x[:, x] + self.other_y[:, y]
        return np.stack([loser, gainer, other], axis=1)

    def log_law_of_two(self, difference: IntArray) -> FloatArray:
        """Return log probabilities of loser and gainer, shape (2, 2, …), where the third is far behind, by x − y."""
        # difference: (…), x − y in positions
        loser = self.loser[:, self.last - difference, 0]
        gainer = self.gainer[:, self.last + difference, 0]
        return np.stack([loser, gainer], axis=1)

    def excess_of_two(self, order: float) -> FloatArray:
        """Return E[φ] where the third outcome is far behind, by x − y from −last on; of each cell, a bound."""
        # returned: (2·last + 1 − finest,)
        low = np.arange(-self.last, self.last + 1 - self.finest)
        high = low + self.finest
        favors_loser = self.log_law_of_two(low)
        favors_gainer = self.log_law_of_two(high)
        return _cell_excess([favors_loser, favors_gainer], self.largest_ratio, order)

    def excess_at(self, x: IntArray, y: IntArray, order: float) -> FloatArray:
        """Return E[φ] at positions (x, y), the larger direction; where positions are cells, a bound over each."""
        return _excess_bound(self, x, y, self.finest, order)


def _argmax_divergence(noise: Noise | None, order: float) -> float:
    """Return the largest Rényi divergence of the label over all histograms, or ∞ for noise that is not followed."""
    if noise is None or order < _LEAST_ORDER:
        return inf

    positions = positions_of(noise)
    one = float(noise.excess_of_one_count(order).max())
    two = float(positions.excess_of_two(order).max())
    best = max(one, two)
    worst = max(best, _worst_of_three_outcomes(positions, order, best))
    return float(divergence(worst + noise.outside(order), order))


def divergence(excess: FloatArray | float, order: float) -> FloatArray:
    """Return the Rényi divergence that E[φ] amounts to, in nats, rounded upward."""
    return np.log1p(excess * _UPWARD) / (order - 1)


def _log_law_of_check(density: FloatArray) -> FloatArray:
    """Return the log probabilities of "noise ≥ x" and "noise < x" for every x but the lowest."""
    # density: (values,); returned: (2, values − 1)
    at_least = np.cumsum(density[::-1])[-2::-1]
    below = np.cumsum(density)[:-1]
    return np.log([at_least, below])


def _worst_of_three_outcomes(
    positions: Positions,
    order: float,
    best: float,
) -> float:
    """Return the worst E[φ] over all positions, or the best known where it is larger, by branch and bound."""
    # x, y, upper: (cells,), the lowest corner of each cell that is left, and the bound over it
    x, y = _square(positions.last + 1, _SPANS[0])
    upper = np.zeros(0)
    for span, next_span in zip(_SPANS, (*_SPANS[1:], 0), strict=True):
        at_corners = _excess_bound(positions, x, y, 0, order)
        best = max(best, float(at_corners.max(initial=0)))
        upper = _excess_bound(positions, x, y, span - 1 + positions.finest, order)

        hopeful = upper > best * (1 + _TOLERANCE)
        x = x[hopeful]
        y = y[hopeful]
        upper = upper[hopeful]
        if not next_span:
            break

        right, up = _square(span, next_span)
        x = np.add.outer(x, right).ravel()
        y = np.add.outer(y, up).ravel()
        inside = np.maximum(x, y) <= positions.last
        x = x[inside]
        y = y[inside]
    return max(best * (1 + _TOLERANCE), float(upper.max(initial=0)))


def _square(side: int, step: int) -> tuple[IntArray, IntArray]:
    """Return x and y of the points of a grid below `side` in both."""
    # returned: (points,) each
    x, y = np.mgrid[:side:step, :side:step]
    return x.ravel(), y.ravel()


def _excess_bound(
    positions: Positions,
    x: IntArray,
    y: IntArray,
    span: int,
    order: float,
) -> FloatArray:
    """Return an upper bound on E[φ] over each cell [x, x + span] × [y, y + span], in lattice positions."""
    # x, y: (…); favors_*: (2, 3, …); returned: (…)
    far_x = np.minimum(x + span, positions.last)
    far_y = np.minimum(y + span, positions.last)
    # Where the loser wins most, all log ratios are smallest.
    favors_loser = positions.log_law_of_three(x, far_y)
    favors_gainer = positions.log_law_of_three(far_x, y)
    favors_other = positions.log_law_of_three(far_x, far_y)
    return _cell_excess([favors_loser, favors_gainer, favors_other], positions.largest_ratio, order)


def _cell_excess(
    favoring: Sequence[FloatArray],
    largest_ratio: float,
    order: float,
) -> FloatArray:
    """Return the larger of both directions' E[φ], each outcome at its largest probability and worst log ratio.

    `favoring` are the log probabilities where each outcome wins most.
    """
    # favoring: (2, outcomes, …) each; smallest, largest, before, after: (outcomes, …); returned: (…)
    favors_loser = favoring[0]
    favors_gainer = favoring[1]
    with np.errstate(invalid="ignore"):
        smallest = favors_loser[0] - favors_loser[1]
        largest = favors_gainer[0] - favors_gainer[1]
    # The ratio of an outcome that cannot happen is not a number.
    smallest = np.where(np.isfinite(smallest), smallest, -largest_ratio)
    largest = np.where(np.isfinite(largest), largest, largest_ratio)

    most_likely = [log_law[:, outcome] for outcome, log_law in enumerate(favoring)]
    before, after = np.stack(most_likely, axis=1)
    forward = _excess(after, smallest, largest, order)
    backward = _excess(before, -largest, -smallest, order)
    return np.maximum(forward, backward)


def _excess(
    log_mass: FloatArray,
    smallest: FloatArray,
    largest: FloatArray,
    order: float,
) -> FloatArray:
    """Return Σ_o Q_o max φ_λ(t) over t from smallest to largest; o is the first axis."""
    # log_mass, smallest, largest: (outcomes, …); returned: (…)
    worst = np.maximum(_phi(smallest, order), _phi(largest, order))
    weighted = np.exp(log_mass) * worst
    return weighted.sum(axis=0)


def _phi(ratio: FloatArray, order: float) -> FloatArray:
    """Return φ_λ(t) = e^{λt} − 1 − λ(e^t − 1) of log ratios t, which is never negative."""
    # ratio: (…); returned: (…)
    power = np.expm1(order * ratio)
    linear = order * np.expm1(ratio)
    return np.maximum(power - linear, 0)


@lru_cache(maxsize=2)
def positions_of(noise: Noise) -> Positions:
    """Return the probabilities of the three outcomes at every position that `noise` can reach."""
    # pairs: (2, 2, width), loser and gainer, before and after the move; losing, gaining: (2, width)
    width = 2 * noise.reach + 1
    step = ceil(width / _LATTICE)
    last = ceil(width / step)
    pairs = np.array([[noise.here, noise.fewer], [noise.here, noise.more]])
    losing, gaining = pairs
    at = np.minimum(np.arange(last + 1) * step, width)
    with np.errstate(divide="ignore"):
        logs = np.log(pairs)
        after_none = np.pad(pairs, ((0, 0), (0, 0), (1, 0)))
        below = np.cumsum(after_none, axis=2)
        other_x, other_y = np.log(below[..., at])
    ratios = np.abs(logs[:, 0] - logs[:, 1])
    largest_ratios = ratios.max(axis=1)
    return Positions(
        step=step,
        last=last,
        largest_ratio=float(largest_ratios.sum()),
        # The loser wins a tie of how far the two beat the other; the opposite tie-break is this one, roles swapped.
        loser=_log_wins(losing, gaining, 0, step, last),
        gainer=_log_wins(gaining, losing, 1, step, last),
        other_x=other_x,
        other_y=other_y,
    )


def _log_wins(
    owns: FloatArray,
    rivals: FloatArray,
    strictly: int,
    step: int,
    last: int,
) -> FloatArray:
    """Return log Σ_{w ≥ x} own(w)·P(rival noise ≤ w + e − strictly), for rows e from −last to last and columns x."""
    # owns, rivals: (2, width), before and after the move; returned: (2, 2·last + 1, last + 1)
    length = last * step
    side = length + strictly
    wins = np.zeros((len(owns), 2 * last + 1, last + 1))
    for own, rival, table in zip(owns, rivals, wins, strict=True):
        padded = np.pad(own, (0, length - len(own)))
        below = np.pad(np.cumsum(rival), (side, 0))
        beyond = side + 2 * length + 1 - len(rival)
        below = np.pad(below, (0, beyond), mode="edge")
        windows = sliding_window_view(below, length)[: 2 * length + 1 : step]
        for row, window in zip(table, windows, strict=True):
            by_cell = (padded * window).reshape(last, step).sum(axis=1)
            row[:last] = np.cumsum(by_cell[::-1])[::-1]
    with np.errstate(divide="ignore"):
        return np.log(wins, out=wins)


def laplace_noise(scale: float, order: float) -> Noise | None:
    """Return the law of discrete Laplace noise of this scale, in votes, for orders up to `order`, or None."""
    if order > _LAPLACE_ORDER * scale:
        return None
    return _laplace_law(scale)


@lru_cache(maxsize=8)
def _laplace_law(scale: float) -> Noise | None:
    # w: (2·reach + 3,), so that the laws of one vote less and more are its slices
    reach = ceil(_LAPLACE_REACH * scale) + 2
    if reach > _WIDEST or scale < _NARROWEST:
        return None
    w = np.arange(-reach - 1, reach + 2)
    density = np.tanh(0.5 / scale) * np.exp(-np.abs(w) / scale)
    # Either of two counts beyond the reach, or one vote before it.
    beyond = 4 * exp(-(reach - 1) / scale)

    def outside(order: float) -> float:
        return beyond * float(_phi(np.array([-2.0, 2.0]) / scale, order).max())

    return Noise(
        reach=reach,
        here=density[1:-1],
        fewer=density[2:],
        more=density[:-2],
        outside=outside,
    )


def gaussian_noise(sigma: float, order: float) -> Noise | None:
    """Return the law of discrete Gaussian noise of this σ, in votes, for orders up to `order`, or None."""
    tilts = [tilt for tilt in _GAUSSIAN_ORDERS if order <= tilt * sigma]
    if not tilts or sigma < _NARROWEST:
        return None
    reach = (_GAUSSIAN_REACH + tilts[0]) * sigma
    if reach > _WIDEST:
        return None
    return _gaussian_law(sigma, ceil(reach) + 2)


@lru_cache(maxsize=8)
def _gaussian_law(sigma: float, reach: int) -> Noise:
    # w: (2·reach + 3,), so that the laws of one vote less and more are its slices
    w = np.arange(-reach - 1, reach + 2)
    log_density = -(w**2) / (2 * sigma**2)
    density = np.exp(log_density - cast("float", special.logsumexp(log_density)))
    width = sigma * sqrt(2 * pi)

    def beyond(distance: float) -> float:
        """Return an upper bound on P(Z ≥ distance), for noise around any real number."""
        first = exp(-(distance**2) / (2 * sigma**2))
        rest = width * special.ndtr(-distance / sigma)
        return (first + rest) / max(1.0, width)

    def outside(order: float) -> float:
        # φ(t) ≤ e^{λt} + λ − 1
        tilted = exp(order * (order - 1) / sigma**2) * beyond(reach - order)
        plain = (order - 1) * beyond(reach - 1)
        return 4 * float(tilted + plain)

    return Noise(
        reach=reach,
        here=density[1:-1],
        fewer=density[2:],
        more=density[:-2],
        outside=outside,
    )
