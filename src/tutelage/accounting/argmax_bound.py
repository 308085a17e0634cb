"""The data-independent Rényi cost of a noisy argmax, from the three outcomes that a moved ballot can tell apart.

Given the noise of every class but the two that the ballot leaves and enters, only three outcomes remain: those two,
the *loser* and the *gainer*, and the best of the others. Rényi divergence is quasi-convex, so the worst position of the
three bounds every histogram of any number of classes; it is searched by branch and bound.

Let P be the law of the outcome before the move and Q the law after it, or the reverse, and t = log P/Q. All functions
compute the *excess* E_Q[φ], from which the divergence follows:

    φ_λ(t) = e^{λt} − 1 − λ(e^t − 1),    E_Q[φ] = e^{(λ−1)·D_λ(P‖Q)} − 1,    because E_Q[e^t − 1] = 0.

As φ ≥ 0, noise that is cut off adds at most its own E[φ]. Proofs: docs/proofs/argmax_bound.md; its E − 1 is the excess.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, exp, inf, pi, sqrt
from typing import cast, final

import numpy as np
import scipy
from numpy.lib.stride_tricks import sliding_window_view

from tutelage._internal.records import by_identity
from tutelage._internal.typing import FloatArray, IntArray

# Most positions along one axis. If noise has more values, each position is several votes wide.
_LATTICE = 1400
# Noise wider or narrower than this is not searched. Its cost is ∞ here, and `data_independent` takes the closed form.
_WIDEST = 20_000  # votes from 0 to the end of the tables
_NARROWEST = 0.3  # σ or scale; below it powers overflow, and nothing is private anyway
# In E[φ] at order λ, Gaussian noise is "tilted": centered at λ − 1, equation (4) of the proof. So tables end this many
# σ beyond the largest λ that they serve. Small orders share a small table, larger orders a large one, and beyond these
# the search gains nothing over the closed form.
_GAUSSIAN_HALF_WIDTH = 7.5
_GAUSSIAN_ORDERS = (0.5, 4.0)  # largest λ of each table, in σ
_LAPLACE_HALF_WIDTH = 16.0  # scales
_LAPLACE_ORDER = 50.0  # largest λ, in scales
_LEAST_ORDER = 1 + 1e-6  # φ loses its digits below
_ROWS_AT_ONCE = 32  # of a table: no sum depends on it
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
    """Return the largest Rényi divergence of a check of one count against a threshold, with discrete Gaussian noise.

    It also bounds an argmax where one count changes by one: given the noise of all other classes, the best of them is a
    threshold.
    """
    noise = gaussian_noise(sigma, order)
    if noise is None or order < _LEAST_ORDER:
        return inf

    excess = float(noise.excess_of_one_count(order).max()) + noise.outside(order)
    return float(divergence(excess, order))


def _phi(ratio: FloatArray, order: float) -> FloatArray:
    """Return φ_λ(t) = e^{λt} − 1 − λ(e^t − 1) of log ratios t; it is never negative."""
    # ratio: (…); returned: (…)
    power = np.expm1(order * ratio)
    linear = order * np.expm1(ratio)
    return np.maximum(power - linear, 0)


def divergence(excess: FloatArray | float, order: float) -> FloatArray:
    """Return D_λ(P‖Q) = log(1 + E_Q[φ])/(λ − 1), in nats, rounded upward."""
    # excess: (…); returned: (…)
    return np.log1p(excess * _UPWARD) / (order - 1)


@final
@by_identity
class Noise:
    """A log-concave law f of noise Z, by w, the noisy count of a class minus its votes before the move.

    w = −half_width..half_width. After the move, a class with one vote less has w = Z − 1, of density f(w + 1).
    """

    half_width: int
    # here, fewer, more: (2·half_width + 1,)
    here: FloatArray  # f(w), before the move
    fewer: FloatArray  # f(w + 1), of the loser after it
    more: FloatArray  # f(w − 1), of the gainer after it
    # Bound on E[φ] of all w beyond the half width, by order, in either direction.
    outside: Callable[[float], float]

    def excess_of_one_count(self, order: float) -> FloatArray:
        """Return E[φ], the larger direction, of whether noise ≥ x and whether noise ≥ x + 1, by x."""
        # before, after, ratio: (2, 2·half_width), of w ≥ x and of w < x
        # returned: (2·half_width,), from x = 1 − half_width
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

    At position (x, y), the loser beats the best other class where its w is at least the threshold of x, and the gainer
    where its w is at least that of y. Positions are 0..last along each axis; the threshold of x is x·step − half_width,
    in votes.
    """

    step: int  # votes between positions
    last: int
    largest_ratio: float  # no log ratio of an outcome, before and after, is larger
    # Log probabilities that each outcome wins, before and after the move (axis 0).
    loser: FloatArray  # (2, 2·last + 1, last + 1), at [:, last + y − x, x]
    gainer: FloatArray  # (2, 2·last + 1, last + 1), at [:, last + x − y, y]
    other_x: FloatArray  # (2, last + 1); of the best other it is other_x[:, x] + other_y[:, y]
    other_y: FloatArray  # (2, last + 1)

    @property
    def cell_span(self) -> int:
        """0 if positions are single votes, otherwise 1: position i then includes all thresholds from i to i + 1."""
        return int(self.step > 1)

    def log_law_of_three(self, x: IntArray, y: IntArray) -> FloatArray:
        """Return log probabilities before and after, shape (2, 3, …): loser, gainer, other."""
        # x, y: (…), positions
        difference = x - y
        loser = self.loser[:, self.last - difference, x]
        gainer = self.gainer[:, self.last + difference, y]
        other = self.other_x[:, x] + self.other_y[:, y]
        return np.stack([loser, gainer, other], axis=1)

    def log_law_of_two(self, difference: IntArray) -> FloatArray:
        """Return log probabilities of loser and gainer, shape (2, 2, …), where the third is too far behind to win.

        They depend on the difference x − y alone.
        """
        # difference: (…), in positions; at position 0 a class always beats the best other
        loser = self.loser[:, self.last - difference, 0]
        gainer = self.gainer[:, self.last + difference, 0]
        return np.stack([loser, gainer], axis=1)

    def excess_of_two(self, order: float) -> FloatArray:
        """Return E[φ] where the third outcome cannot win, for x − y = −last, 1 − last, …; for cells, bounds."""
        # returned: (2·last + 1 − cell_span,)
        low = np.arange(-self.last, self.last + 1 - self.cell_span)
        high = low + self.cell_span
        favors_loser = self.log_law_of_two(low)
        favors_gainer = self.log_law_of_two(high)
        return _cell_excess([favors_loser, favors_gainer], self.largest_ratio, order)

    def excess_at(self, x: IntArray, y: IntArray, order: float) -> FloatArray:
        """Return E[φ] at positions (x, y), the larger direction; if positions are cells, a bound over each."""
        # x, y, returned: (…)
        return _excess_bound(self, x, y, self.cell_span, order)


def _argmax_divergence(noise: Noise | None, order: float) -> float:
    """Return the largest Rényi divergence of the label over all histograms, or ∞ for noise that is not followed."""
    if noise is None or order < _LEAST_ORDER:
        return inf

    positions = positions_of(noise)
    one = float(noise.excess_of_one_count(order).max())
    two = float(positions.excess_of_two(order).max())
    worst_found = max(one, two)
    worst = max(worst_found, _worst_of_three_outcomes(positions, order, worst_found))
    return float(divergence(worst + noise.outside(order), order))


def _log_law_of_check(density: FloatArray) -> FloatArray:
    """Return the log probabilities of w ≥ x and w < x for every x but the lowest."""
    # density: (values,), of w; returned: (2, values − 1)
    at_least = np.cumsum(density[::-1])[-2::-1]
    below = np.cumsum(density)[:-1]
    return np.log([at_least, below])


def _worst_of_three_outcomes(
    positions: Positions,
    order: float,
    worst_found: float,
) -> float:
    """Return a bound on the worst E[φ] of all positions and `worst_found`, by branch and bound."""
    # x, y: (cells,), lowest corners of the cells that are left; at_corners: (cells,), E[φ] there
    # upper: (cells,), bounds over the cells
    x, y = _square(positions.last + 1, _SPANS[0])
    upper = np.zeros(0)
    for span, next_span in zip(_SPANS, (*_SPANS[1:], 0), strict=True):
        at_corners = _excess_bound(
            positions,
            x,
            y,
            0,
            order,
        )
        worst_found = max(worst_found, float(at_corners.max(initial=0)))
        upper = _excess_bound(positions, x, y, span - 1 + positions.cell_span, order)

        hopeful = upper > worst_found * (1 + _TOLERANCE)
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
    return max(worst_found * (1 + _TOLERANCE), float(upper.max(initial=0)))


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
    # f is log-concave, so P(Z ≥ x)/P(Z ≥ x + 1) and P(Z < x)/P(Z < x + 1) rise in x, and so do the log ratios
    # (before to after) of all three outcomes. In y they fall: (ii) of the proof. So all are least at (x, far_y) and
    # greatest at (far_x, y). There the loser and the gainer are likeliest, and at (far_x, far_y) the best other: (i).
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

    `favoring` are the log probabilities at the corners of cells where the loser is likeliest, the gainer and, if it can
    win, the other. All log ratios are smallest at the first corner and largest at the second.
    """
    # favoring: (2, outcomes, …) each; smallest, largest, before, after: (outcomes, …); returned: (…)
    favors_loser = favoring[0]
    favors_gainer = favoring[1]
    with np.errstate(invalid="ignore"):
        smallest = favors_loser[0] - favors_loser[1]
        largest = favors_gainer[0] - favors_gainer[1]
    # The log ratio of an outcome that cannot happen is not a number.
    smallest = np.where(np.isfinite(smallest), smallest, -largest_ratio)
    largest = np.where(np.isfinite(largest), largest, largest_ratio)

    most_likely = [log_law[:, outcome] for outcome, log_law in enumerate(favoring)]
    before, after = np.stack(most_likely, axis=1)
    forward = _excess(
        after,
        smallest,
        largest,
        order,
    )
    backward = _excess(
        before,
        -largest,
        -smallest,
        order,
    )
    return np.maximum(forward, backward)


def _excess(
    log_mass: FloatArray,
    smallest: FloatArray,
    largest: FloatArray,
    order: float,
) -> FloatArray:
    """Return Σ_o Q_o·max φ_λ(t) over t from smallest to largest, where o is the first axis."""
    # log_mass, which is log Q, smallest, largest: (outcomes, …); returned: (…)
    # φ falls up to t = 0 and rises from there, so it is largest at an end.
    worst = np.maximum(_phi(smallest, order), _phi(largest, order))
    weighted = np.exp(log_mass) * worst
    return weighted.sum(axis=0)


@lru_cache(maxsize=2)
def positions_of(noise: Noise) -> Positions:
    """Return the probabilities of the three outcomes at every position that `noise` can reach."""
    # pairs: (2, 2, width), loser and gainer, before and after the move; losing, gaining: (2, width), before and after
    # below: (2, 2, width + 1), P(w < …); at: (last + 1,), which of its entries are positions
    width = 2 * noise.half_width + 1
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
        # If both beat the other by the same number of votes, the loser wins. The opposite tie-break need not be
        # searched: with the roles swapped it is this one in the other direction (section 1).
        loser=_log_wins(losing, gaining, step, last, strictly=False),
        gainer=_log_wins(gaining, losing, step, last, strictly=True),
        other_x=other_x,
        other_y=other_y,
    )


def _log_wins(
    winner: FloatArray,
    rival: FloatArray,
    step: int,
    last: int,
    *,
    strictly: bool,
) -> FloatArray:
    """Return the log probabilities that one of loser and gainer beats both the best other and its rival.

    If x is its position and x + e the rival's, it wins where its w is at least the threshold of x and, in votes, the
    rival's is at most w + e·step, or less if it must win `strictly`. Rows are e = −last..last, and columns x = 0..last.
    """
    # winner, rival: (2, width), law of w before and after the move; returned: (2, 2·last + 1, last + 1)
    length = last * step
    side = length + strictly
    wins = np.zeros((len(winner), 2 * last + 1, last + 1))
    for law, rival_law, table in zip(winner, rival, wins, strict=True):
        padded = np.pad(law, (0, length - len(law)))
        # windows: (2·last + 1, length), P(rival ≤ w + e·step), or <, for each e and w
        below = np.pad(np.cumsum(rival_law), (side, 0))
        beyond = side + 2 * length + 1 - len(rival_law)
        below = np.pad(below, (0, beyond), mode="edge")
        windows = sliding_window_view(below, length)[: 2 * length + 1 : step]
        for first in range(0, len(table), _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            by_position = (padded * windows[rows]).reshape(-1, last, step).sum(axis=2)
            table[rows, :last] = np.cumsum(by_position[:, ::-1], axis=1)[:, ::-1]
    with np.errstate(divide="ignore"):
        return np.log(wins, out=wins)


def laplace_noise(scale: float, order: float) -> Noise | None:
    """Return the law of discrete Laplace noise of this scale, in votes, for orders up to `order`, or None."""
    if order > _LAPLACE_ORDER * scale:
        return None
    return _laplace_law(scale)


@lru_cache(maxsize=8)
def _laplace_law(scale: float) -> Noise | None:
    # w: (2·half_width + 3,), so that the laws of one vote less and more are its slices
    half_width = ceil(_LAPLACE_HALF_WIDTH * scale) + 2
    if half_width > _WIDEST or scale < _NARROWEST:
        return None
    w = np.arange(-half_width - 1, half_width + 2)
    density = np.tanh(0.5 / scale) * np.exp(-np.abs(w) / scale)
    # P(|w| > half_width) of two classes, under either law: at most four tails, one vote nearer after the move.
    beyond = 4 * exp(-(half_width - 1) / scale)

    def outside(order: float) -> float:
        # |t| ≤ 2/scale, one vote of each class
        return beyond * float(_phi(np.array([-2.0, 2.0]) / scale, order).max())

    return Noise(half_width, density[1:-1], density[2:], density[:-2], outside)


def gaussian_noise(sigma: float, order: float) -> Noise | None:
    """Return the law of discrete Gaussian noise of this σ, in votes, for orders up to `order`, or None."""
    tilts = [tilt for tilt in _GAUSSIAN_ORDERS if order <= tilt * sigma]
    if not tilts or sigma < _NARROWEST:
        return None
    half_width = (_GAUSSIAN_HALF_WIDTH + tilts[0]) * sigma
    if half_width > _WIDEST:
        return None
    return _gaussian_law(sigma, ceil(half_width) + 2)


@lru_cache(maxsize=8)
def _gaussian_law(sigma: float, half_width: int) -> Noise:
    # w: (2·half_width + 3,), so that the laws of one vote less and more are its slices
    w = np.arange(-half_width - 1, half_width + 2)
    log_density = -(w**2) / (2 * sigma**2)
    density = np.exp(log_density - cast("float", scipy.special.logsumexp(log_density)))
    width = sigma * sqrt(2 * pi)

    def beyond(distance: float) -> float:
        """Return a bound on Σ_{k ≥ distance} e^{−k²/2σ²} / Σ_{k ∈ ℤ} e^{−k²/2σ²}.

        In the numerator, k is on any shifted lattice.
        """
        # The numerator is at most its first term and its integral. The denominator is at least σ√2π, by Poisson
        # summation, and at least 1, its term for k = 0.
        first = exp(-(distance**2) / (2 * sigma**2))
        rest = width * scipy.special.ndtr(-distance / sigma)
        return (first + rest) / max(1.0, width)

    def outside(order: float) -> float:
        # φ(t) ≤ e^{λt} + λ − 1. Equation (4) turns e^{λt} into a Gaussian around λ − 1; two classes have four tails.
        tilted = exp(order * (order - 1) / sigma**2) * beyond(half_width - order)
        plain = (order - 1) * beyond(half_width - 1)
        return 4 * float(tilted + plain)

    return Noise(half_width, density[1:-1], density[2:], density[:-2], outside)
