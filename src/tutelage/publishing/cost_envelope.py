"""The *reach* of a private cost: bounds U_0 ≤ U_1 ≤ … on the cost of a release if up to j teachers had other ballots.

U_j is the largest cost at Hamming distance j, as for smooth sensitivity (Nissim, Raskhodnikova and Smith 2007;
Papernot et al. 2018), and is summed over queries. A published ε rests on two properties, which docs/proofs/release.md
proves: U_0 is at least the exact cost (R1), and U_j of one data set is at most U_{j+1} of its neighbor (R2), because a
neighbor changes at most one ballot of every query.
"""

from functools import lru_cache
from typing import NamedTuple, cast, final

import numpy as np
import scipy

from tutelage._internal.typing import FloatArray, IntArray, NeverPickled
from tutelage.accounting import Accountant, argmax_bound, data_independent
from tutelage.accounting.argmax_bound import (
    Noise,
    Positions,
    divergence,
)
from tutelage.accounting.exact import ExactCosts
from tutelage.ballots import VoteHistogram
from tutelage.events import Check, Event, NoisyArgmaxGaussian, NoisyArgmaxLaplace
from tutelage.exceptions import UnsupportedEventError
from tutelage.privacy import HIDDEN, PrivacyUnit

# U_j is multiplied by 1 + (j + 1)·_STRETCH, and (j + 1)·_ABSOLUTE is added per query, so that rounding, which is far
# less, cannot reverse U_j(D) ≤ U_{j+1}(D′).
_STRETCH = 1e-9
_ABSOLUTE = 1e-12

_GAP_PER_BALLOT = 2  # votes by which one changed ballot changes how far one class is behind another
# The order of the classes, and the tie-break that the tables omit, lower x and y by at most this many votes …
_TIES_LOWER = 1
# … and by at most this many votes they raise x and lower y − x: below (3) of docs/proofs/release.md.
_TIES_RAISE = 2
_ROWS_AT_ONCE = 64  # histograms in one block of laws
_MOST_TEACHERS = 5_000  # 10,001 gaps of two classes: about a second


@final
class _PrivateReach(NeverPickled):
    """The bounds U_0 … on an exact cost, in nats, guarded: `reveal()` alone opens them."""

    __slots__ = ("_bounds",)

    def __init__(self, bounds: FloatArray) -> None:
        self._bounds = bounds

    def reveal(self) -> FloatArray:
        """Return the private bounds, for the data set owner only."""
        return self._bounds

    def __repr__(self) -> str:
        return f"PrivateReach(<{HIDDEN}>)"


def reach_of(released: Accountant, order: float, steps: int) -> _PrivateReach:
    """Return bounds U_0 … U_steps on the exact cost of all releases if 0 … `steps` teachers had other ballots.

    Parameters
    ----------
    released : Accountant
        What was released, with the private votes behind it.
    order : float
        Rényi order λ > 1.
    steps : int
        Most changed teachers looked at.
    """
    bounds = [
        reach(event, votes, order, steps, offsets)
        for event, votes, offsets in released.parts_with_votes()
    ]
    return _PrivateReach(np.sum(bounds, axis=0))


def reach(
    event: Event,
    votes: VoteHistogram,
    order: float,
    steps: int,
    offsets: FloatArray | None = None,
) -> FloatArray:
    """Return U_0 … U_steps: bounds on the summed Rényi cost of all queries within 0 … `steps` changed teachers."""
    # votes, offsets: (queries, classes); costs: (distinct, steps + 1); repeats: (distinct,)
    # total, level, returned: (steps + 1,)
    # Its constructor refuses votes and offsets that do not fit the event.
    ExactCosts(event, votes, offsets)
    if not votes.n_queries:
        return np.zeros(steps + 1)

    costs, repeats = _per_query(event, votes, order, steps, offsets)
    curve = data_independent.rdp_of_three_outcomes(event, np.array([order]))
    limit = float(curve.values[0])
    total = repeats @ np.fmin(costs, limit)
    level = np.arange(1, steps + 2)  # j + 1
    raised = total * (1 + _STRETCH * level) + votes.n_queries * _ABSOLUTE * level
    return np.maximum.accumulate(raised)


def _per_query(
    event: Event,
    votes: VoteHistogram,
    order: float,
    steps: int,
    offsets: FloatArray | None,
) -> tuple[FloatArray, IntArray]:
    """Return bounds for the distinct queries, shape (distinct, steps + 1), and how often each occurs."""
    if isinstance(event, Check):
        noise = argmax_bound.gaussian_noise(event.sigma, order)
        if noise is not None:
            needed, repeats = np.unique(noise_to_pass(event, votes, offsets), return_counts=True)
            return _check_reach(noise, order, needed, steps), repeats
    elif votes.n_classes == 2 and votes.n_teachers <= _MOST_TEACHERS:
        rows, repeats = np.unique(votes.counts, axis=0, return_counts=True)
        return _reach_of_two_classes(event, votes, rows, order, steps), repeats
    elif isinstance(event, NoisyArgmaxLaplace | NoisyArgmaxGaussian):
        if isinstance(event, NoisyArgmaxLaplace):
            noise = argmax_bound.laplace_noise(event.scale, order)
        else:
            noise = argmax_bound.gaussian_noise(event.sigma, order)
        if noise is not None:
            ordered = -np.sort(-votes.counts, axis=1)
            rows, repeats = np.unique(ordered, axis=0, return_counts=True)
            return _argmax_reach(noise, order, rows, steps), repeats

    raise UnsupportedEventError(
        f"No publishable bound on the exact cost of {type(event).__name__} is known for {votes.n_classes} classes, "
        f"{votes.n_teachers} teachers and order {order:g}. Publish the data-independent epsilon."
    )


# One check.


def noise_to_pass(event: Check, votes: VoteHistogram, offsets: FloatArray | None) -> IntArray:
    """Return the noise, in votes, from which on each check passes; private."""
    # votes, offsets: (queries, classes); returned: (queries,)
    shift = 0.0 if offsets is None else offsets
    needed = np.ceil(event.threshold + shift)
    return (needed - votes.counts).min(axis=1).astype(np.int64)


def _check_reach(
    noise: Noise,
    order: float,
    needed: IntArray,
    steps: int,
) -> FloatArray:
    """Return the cost of a check within j = 0..steps changed ballots."""
    # needed, at: (queries,); excess: (2·half_width + 2·steps + 4,), by x; worst, returned: (queries, steps + 1)
    # The check passes if noise ≥ x, and each ballot moves x by at most one. So within j ballots, the cost is that of
    # whether noise ≥ x′ against whether noise ≥ x′ + 1, for an x′ from x − 1 − j to x + j.
    # The index of x is x + half_width − 1 before the padding, and x + half_width − 1 + (steps + 2) after it.
    excess = np.pad(noise.excess_of_one_count(order), steps + 2)
    at = np.clip(needed, -noise.half_width, noise.half_width + 1) + noise.half_width + steps + 1
    by_distance = list[FloatArray]()
    for distance in range(steps + 1):
        above = excess[at + distance]
        below = excess[at - 1 - distance]
        by_distance.append(np.maximum(above, below))
    at_distance = np.stack(by_distance, axis=1)
    worst = np.maximum.accumulate(at_distance, axis=1)
    return divergence(worst + noise.outside(order), order)


# A label of two classes depends only on how far one is ahead, so all exact costs are computed.


def _reach_of_two_classes(
    event: Event, votes: VoteHistogram, rows: IntArray, order: float, steps: int
) -> FloatArray:
    """Return the largest exact cost of a label of two classes within j = 0..steps changed ballots."""
    # rows: (distinct, 2); by_gap: (2·teachers + 1,); returned: (distinct, steps + 1)
    by_gap = _exact_by_gap(event, votes.n_teachers, votes.unit, order)
    at = rows[:, 0] - rows[:, 1] + votes.n_teachers
    by_distance = list[FloatArray]()
    for distance in range(steps + 1):
        width = 2 * _GAP_PER_BALLOT * distance + 1
        highest = cast("FloatArray", scipy.ndimage.maximum_filter1d(by_gap, width, mode="nearest"))
        by_distance.append(highest[at])
    return np.stack(by_distance, axis=1)


@lru_cache(maxsize=8)
def _exact_by_gap(
    event: Event,
    n_teachers: int,
    unit: PrivacyUnit,
    order: float,
) -> FloatArray:
    """Return the exact cost by n₀ − n₁ = −n_teachers … n_teachers, the gap between the counts of classes 0 and 1.

    Of every gap, a histogram where all moves are possible: both classes have votes, and a teacher abstains.
    """
    # gaps, returned: (2·teachers + 1,); counts: (2·teachers + 1, 2)
    gaps = np.arange(-n_teachers, n_teachers + 1)
    of_class_1 = np.full(len(gaps), n_teachers + 1)
    counts = np.column_stack([of_class_1 + gaps, of_class_1])
    histograms = VoteHistogram(counts, 3 * n_teachers + 3, unit)
    return ExactCosts(event, histograms).per_query(np.array([order]))[:, 0]


# The cost of one noisy argmax within j changed ballots, for any number of classes: docs/proofs/release.md, section 2.
# n_1 ≥ n_2 ≥ … are the sorted counts, and M is the largest noisy count of all classes but the two between which the
# ballot moves. (x, y), in votes, is the position in docs/proofs/argmax_bound.md: about M − n_a and M − n_b.
#
# 1. E[φ] is convex, so it may be averaged over M, where `argmax_bound` takes the worst position.
# 2. Majorants replace it: Ψ rises in x and falls in d = y − x, and Θ falls in x and y.
# 3. A changed ballot moves each n_i, and so M, by at most one vote, and x, y and d by at most two. So j ballots shift
#    the arguments of Ψ and Θ by at most 2j, and the majorants at the shifted arguments bound the cost.


class _Majorants(NamedTuple):
    """Monotone upper bounds on E[φ] of a moved ballot, at positions: (4) and (5) of the proof."""

    noise: Noise
    step: int  # votes between positions
    last: int
    # Ψ(x, d) at [x, d + last], for a ballot between the first class and another, or an abstention.
    with_first: FloatArray  # (last + 1, 2·last + 1)
    # Θ(x, y) at [x, y], for a ballot between two other classes, or one and an abstention.
    without_first: FloatArray  # (last + 1, last + 1)

    def rounded_up(self, votes: IntArray) -> IntArray:
        """Return the position of x, in votes, rounded up: a bound that rises in x stays a bound."""
        negated = (-votes - self.noise.half_width) // self.step
        return np.clip(-negated, 0, self.last)

    def rounded_down(self, votes: IntArray) -> IntArray:
        """Return the position of x or y, in votes, rounded down: a bound that falls stays a bound."""
        position = (votes + self.noise.half_width) // self.step
        return np.clip(position, 0, self.last)

    def column_of_gap(self, votes: IntArray) -> IntArray:
        """Return the column of Ψ for d = y − x, in votes, rounded down: Ψ falls in d."""
        difference = votes // self.step
        return np.clip(difference, -self.last, self.last) + self.last


@lru_cache(maxsize=4)
def _majorants_of(noise: Noise, positions: Positions, order: float) -> _Majorants:
    """Return the majorants for one noise and order."""
    # three, without_first: (last + 1, last + 1), by x and y; two: (2·last + 1,), by d, if no other class can win
    # by_gap, with_first: (last + 1, 2·last + 1), by x and d
    last = positions.last
    every = np.arange(last + 1)
    by_x = list[FloatArray]()
    for x in every:
        by_x.append(positions.excess_at(np.full(last + 1, x), every, order))
    three = np.stack(by_x)
    three = np.maximum(three, three.T)  # either class may be the one that loses

    # By x − y; it serves y − x as well once it is symmetric. Of cells one fewer is returned: the last is repeated.
    two = positions.excess_of_two(order)
    two = np.maximum(two, two[::-1])
    left_out = 2 * last + 1 - len(two)
    two = np.append(two, np.full(left_out, two[-1]))

    gaps = np.arange(-last, last + 1)
    y = every[:, None] + gaps
    by_gap = np.where(y < 0, two, three[every[:, None], np.clip(y, 0, last)])
    # Ψ is over all x′ ≤ x, down to where no other class can win.
    by_gap = np.maximum(np.maximum.accumulate(by_gap, axis=0), two)
    with_first = _largest_from(by_gap, axis=1)
    without_first = _largest_from(_largest_from(three, axis=0), axis=1)
    return _Majorants(
        noise,
        positions.step,
        last,
        with_first,
        without_first,
    )


def _largest_from(values: FloatArray, axis: int) -> FloatArray:
    """Return the largest of each value and all that follow it along an axis."""
    # values, returned: (…)
    reversed_values = np.flip(values, axis)
    return np.flip(np.maximum.accumulate(reversed_values, axis=axis), axis)


def _argmax_reach(noise: Noise, order: float, rows: IntArray, steps: int) -> FloatArray:
    """Return the cost of a label within j = 0..steps changed ballots."""
    # rows: (distinct, classes), most votes first; returned: (distinct, steps + 1)
    majorants = _majorants_of(noise, argmax_bound.positions_of(noise), order)
    excess = list[FloatArray]()
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = rows[start : start + _ROWS_AT_ONCE]
        excess.append(_argmax_excess(majorants, block, steps))
    worst = np.concatenate(excess) + noise.outside(order)
    return divergence(worst, order)


def _argmax_excess(majorants: _Majorants, ordered: IntArray, steps: int) -> FloatArray:
    """Return a bound on E[φ] of any moved ballot within j = 0..steps changed ballots: the larger of (6) and (7)."""
    # ordered: (queries, classes), most votes first; shifts: (steps + 1,); returned: (queries, steps + 1)
    noise = majorants.noise
    first = ordered[:, 0]
    second = ordered[:, 1]
    shifts = _GAP_PER_BALLOT * np.arange(steps + 1)
    if ordered.shape[1] > 2:
        # M is over classes 3, 4, … if the other class is the second, and otherwise over all but the first.
        third = ordered[:, 2]
        best_of_rest = _best_of(noise, ordered[:, 2:])
        with_second = _excess_with_first(
            majorants,
            best_of_rest,
            first,
            second,
            shifts,
        )
    else:
        # Of two classes, no third one can win.
        third = np.full(len(ordered), np.iinfo(np.int32).min)
        column = majorants.column_of_gap((first - second)[:, None] - _TIES_RAISE - shifts)
        with_second = majorants.with_first[0, column]
    best_other = _best_of(noise, ordered[:, 1:])
    with_third = _excess_with_first(
        majorants,
        best_other,
        first,
        third,
        shifts,
    )
    without_first = _excess_without_first(majorants, first, second, third, shifts)
    with_first = np.maximum(with_third, with_second)
    return np.maximum(with_first, without_first)


def _excess_with_first(
    majorants: _Majorants,
    best_other: tuple[IntArray, FloatArray],
    first: IntArray,
    rival: IntArray,
    shifts: IntArray,
) -> FloatArray:
    """Return a bound on E[φ] of a ballot between the first class and its rival, or an abstention: (6) of the proof."""
    # value, mass, x: (queries, values), of M; first, rival: (queries,); shifts: (steps + 1,)
    # columns, returned: (queries, steps + 1)
    value, mass = best_other
    columns = majorants.column_of_gap((first - rival)[:, None] - _TIES_RAISE - shifts)
    by_distance = list[FloatArray]()
    for shift, column in zip(shifts, columns.T, strict=True):
        needed = value + _TIES_RAISE - first[:, None] + shift
        x = majorants.rounded_up(needed)
        bounds = mass * majorants.with_first[x, column[:, None]]
        by_distance.append(bounds.sum(axis=1))
    return np.stack(by_distance, axis=1)


def _excess_without_first(
    majorants: _Majorants,
    first: IntArray,
    second: IntArray,
    third: IntArray,
    shifts: IntArray,
) -> FloatArray:
    """Return a bound on E[φ] of a ballot between two other classes, or one and an abstention: (7) of the proof."""
    # first, second, third: (queries,); lead, x, y: (queries, values), of the first noisy count; shifts: (steps + 1,)
    # returned: (queries, steps + 1)
    noise = majorants.noise
    lead = first[:, None] + np.arange(-noise.half_width, noise.half_width + 1)
    by_distance = list[FloatArray]()
    for shift in shifts:
        x = majorants.rounded_down(lead - second[:, None] - _TIES_LOWER - shift)
        y = majorants.rounded_down(lead - third[:, None] - _TIES_LOWER - shift)
        by_distance.append(majorants.without_first[x, y] @ noise.here)
    followed = np.stack(by_distance, axis=1)
    cut_off = max(0.0, 1 - float(noise.here.sum()))
    return followed + cut_off * float(majorants.without_first[0, 0])


def _best_of(noise: Noise, counts: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the values and the law of the largest noisy count; cut-off mass goes beyond all positions."""
    # counts: (queries, classes); below: (queries, values); value, mass: (queries, values + 1)
    width = 2 * noise.half_width + 1
    most = counts.max(axis=1)[:, None]
    value = most + np.arange(-noise.half_width, noise.half_width + 2)
    noise_below = np.concatenate([[0.0], np.cumsum(noise.here)])
    below = np.ones((len(counts), width))
    for column in counts.T:
        at = value[:, :-1] - column[:, None] + noise.half_width + 1
        below *= noise_below[np.clip(at, 0, width)]
    value[:, -1] = np.iinfo(np.int32).max
    mass = np.diff(below, axis=1, prepend=0.0, append=1.0)
    return value, np.maximum(mass, 0)
