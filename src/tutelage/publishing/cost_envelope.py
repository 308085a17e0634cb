"""How far a private cost can move: what a release could have cost were up to j of the ballots behind it others.

`reach` returns U_0 ≤ U_1 ≤ …, summed over queries. Two properties make it the ground of a published ε, both proved in
docs/proofs/release.md: U_0 is at least the exact cost, and U_j of one data set is at most U_{j+1} of its neighbor,
because a neighbor changes at most one ballot of every query.
"""

from functools import lru_cache
from typing import NamedTuple, cast, final

import numpy as np
from scipy import ndimage

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

# Rounding moves a sum by far less than this, relative, or per query. Raising U_j by it once more per ballot keeps U_j
# of one data set below U_{j+1} of its neighbor as computed, not only as proved.
_STRETCH = 1e-9
_ABSOLUTE = 1e-12

_GAP_PER_BALLOT = 2  # votes by which one moved ballot changes how far one class is behind another
# Votes by which class order, and the tie-break that the tables leave out, can move a position.
_TIE = 1
_TIE_GAP = 2
_ROWS_AT_ONCE = 64  # histograms in one block of laws
_MOST_TEACHERS = 5_000  # 10,001 gaps of two classes: about a second


@final
class _PrivateReach(NeverPickled):
    """How far an exact cost can move with the ballots, guarded: `reveal()` alone opens the bounds U_0 …, in nats."""

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
    # votes, offsets: (queries, classes); costs: (distinct, steps + 1); repeats: (distinct,); returned: (steps + 1,)
    ExactCosts(event, votes, offsets)  # refuses what does not fit
    if not votes.n_queries:
        return np.zeros(steps + 1)

    costs, repeats = _per_query(event, votes, order, steps, offsets)
    curve = data_independent.rdp_of_three_outcomes(event, np.array([order]))
    limit = float(curve.values[0])
    total = repeats @ np.fmin(costs, limit)
    level = np.arange(1, steps + 2)
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
    # needed: (queries,); excess: one per position; worst: (queries, steps + 1), which is returned as costs
    # Position x is the pair "noise ≥ x" and "noise ≥ x + 1"; a moved ballot makes it or the one below.
    excess = np.pad(noise.excess_of_one_count(order), steps + 2)
    at = np.clip(needed, -noise.reach, noise.reach + 1) + noise.reach + steps + 1
    by_step = list[FloatArray]()
    for step in range(steps + 1):
        above = excess[at + step]
        below = excess[at - 1 - step]
        by_step.append(np.maximum(above, below))
    exactly = np.stack(by_step, axis=1)
    worst = np.maximum.accumulate(exactly, axis=1)
    return divergence(worst + noise.outside(order), order)


# A label of two classes depends only on how far one is ahead, so all exact costs are computed.


def _reach_of_two_classes(
    event: Event, votes: VoteHistogram, rows: IntArray, order: float, steps: int
) -> FloatArray:
    """Return the largest exact cost of a label of two classes within j = 0..steps changed ballots."""
    # rows: (distinct, 2); by_gap: (2·teachers + 1,); returned: (distinct, steps + 1)
    by_gap = _exact_by_gap(event, votes.n_teachers, votes.unit, order)
    at = rows[:, 0] - rows[:, 1] + votes.n_teachers
    by_step = list[FloatArray]()
    for step in range(steps + 1):
        width = 2 * _GAP_PER_BALLOT * step + 1
        highest = cast("FloatArray", ndimage.maximum_filter1d(by_gap, width, mode="nearest"))
        by_step.append(highest[at])
    return np.stack(by_step, axis=1)


@lru_cache(maxsize=8)
def _exact_by_gap(
    event: Event,
    n_teachers: int,
    unit: PrivacyUnit,
    order: float,
) -> FloatArray:
    """Return the exact cost by n₀ − n₁ = −n_teachers … n_teachers, with a ballot to lose and to gain on either side."""
    # gaps, returned: (2·teachers + 1,)
    gaps = np.arange(-n_teachers, n_teachers + 1)
    second = np.full(len(gaps), n_teachers + 1)
    counts = np.column_stack([second + gaps, second])
    histograms = VoteHistogram(counts, 3 * n_teachers + 3, unit)
    return ExactCosts(event, histograms).per_query(np.array([order]))[:, 0]


# How large the cost of one noisy argmax can be within j changed ballots, for any number of classes. The moment of the
# three outcomes of docs/proofs/argmax_bound.md is averaged over the best of the others instead of maximized, after it
# was made monotone in how far that is behind: then j changed ballots shift it by 2j at most. Proof:
# docs/proofs/release.md, section 2.


class _Envelope(NamedTuple):
    """Upper bounds on E[φ] of a moved ballot, monotone in where the classes stand; see `_envelope_of`."""

    noise: Noise
    step: int  # votes between positions
    last: int
    leading: FloatArray  # [x, d + last]: one of the two classes leads; rises in x, falls in d
    trailing: FloatArray  # [x, y]: neither leads; falls in both

    def x_at_most(self, votes: IntArray) -> IntArray:
        """Return positions no lower than these, in votes of noise that a class needs."""
        negated = (-votes - self.noise.reach) // self.step
        return np.clip(-negated, 0, self.last)

    def x_at_least(self, votes: IntArray) -> IntArray:
        """Return positions no higher than these."""
        position = (votes + self.noise.reach) // self.step
        return np.clip(position, 0, self.last)

    def gap(self, votes: IntArray) -> IntArray:
        """Return columns of `leading` for gaps of at least these, in votes."""
        difference = votes // self.step
        return np.clip(difference, -self.last, self.last) + self.last


@lru_cache(maxsize=4)
def _envelope_of(noise: Noise, positions: Positions, order: float) -> _Envelope:
    """Return the monotone bounds for one noise and order."""
    # three, trailing: (last + 1, last + 1), by x and y; two: (2·last + 1,), by x − y;
    # by_gap, leading: (last + 1, 2·last + 1), by x and y − x
    last = positions.last
    places = np.arange(last + 1)
    by_x = list[FloatArray]()
    for x in places:
        by_x.append(positions.excess_at(np.full(last + 1, x), places, order))
    three = np.stack(by_x)
    three = np.maximum(three, three.T)  # either class may be the one that loses

    two = positions.excess_of_two(order)
    two = np.maximum(two, two[::-1])
    left_out = 2 * last + 1 - len(two)
    two = np.append(two, np.full(left_out, two[-1]))

    gaps = np.arange(-last, last + 1)
    y = places[:, None] + gaps
    by_gap = np.where(y < 0, two, three[places[:, None], np.clip(y, 0, last)])
    # The best other may be anywhere below.
    by_gap = np.maximum(np.maximum.accumulate(by_gap, axis=0), two)
    leading = _largest_from(by_gap, axis=1)
    trailing = _largest_from(_largest_from(three, axis=0), axis=1)
    return _Envelope(noise, positions.step, last, leading, trailing)


def _largest_from(values: FloatArray, axis: int) -> FloatArray:
    """Return the largest of each value and all that follow it along an axis."""
    # values, returned: (…)
    reversed_values = np.flip(values, axis)
    return np.flip(np.maximum.accumulate(reversed_values, axis=axis), axis)


def _argmax_reach(noise: Noise, order: float, rows: IntArray, steps: int) -> FloatArray:
    """Return the cost of a label within j = 0..steps changed ballots."""
    # rows: (distinct, classes), most votes first; returned: (distinct, steps + 1)
    envelope = _envelope_of(noise, argmax_bound.positions_of(noise), order)
    excess = list[FloatArray]()
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = rows[start : start + _ROWS_AT_ONCE]
        excess.append(_argmax_excess(envelope, block, steps))
    moment = np.concatenate(excess) + noise.outside(order)
    return divergence(moment, order)


def _argmax_excess(envelope: _Envelope, ordered: IntArray, steps: int) -> FloatArray:
    """Return the largest E[φ] of a moved ballot within j = 0..steps changed ballots."""
    # ordered: (queries, classes), most votes first; moved: (steps + 1,); returned: (queries, steps + 1)
    noise = envelope.noise
    first = ordered[:, 0]
    second = ordered[:, 1]
    moved = _GAP_PER_BALLOT * np.arange(steps + 1)
    if ordered.shape[1] > 2:
        third = ordered[:, 2]
        best_of_rest = _best_of(noise, ordered[:, 2:])
        with_second = _leading(envelope, best_of_rest, first, second, moved)
    else:
        third = np.full(len(ordered), np.iinfo(np.int32).min)  # no class
        gap = envelope.gap((first - second)[:, None] - _TIE_GAP - moved)
        with_second = envelope.leading[0, gap]
    best_other = _best_of(noise, ordered[:, 1:])
    with_third = _leading(envelope, best_other, first, third, moved)
    without_first = _trailing(envelope, first, second, third, moved)
    with_first = np.maximum(with_third, with_second)
    return np.maximum(with_first, without_first)


def _leading(
    envelope: _Envelope,
    best_other: tuple[IntArray, FloatArray],
    first: IntArray,
    rival: IntArray,
    moved: IntArray,
) -> FloatArray:
    """Return E over the best other of the bound for ballots between the first class and its rival, or neither."""
    # value, mass: (queries, values); first, rival: (queries,); moved: (steps + 1,); returned: (queries, steps + 1)
    value, mass = best_other
    gaps = envelope.gap((first - rival)[:, None] - _TIE_GAP - moved)
    by_step = list[FloatArray]()
    for shift, gap in zip(moved, gaps.T, strict=True):
        needed = value + _TIE_GAP - first[:, None] + shift
        x = envelope.x_at_most(needed)
        bounds = mass * envelope.leading[x, gap[:, None]]
        by_step.append(bounds.sum(axis=1))
    return np.stack(by_step, axis=1)


def _trailing(
    envelope: _Envelope,
    first: IntArray,
    second: IntArray,
    third: IntArray,
    moved: IntArray,
) -> FloatArray:
    """Return E over the noise of the first class of the bound for ballots between two others, or one and none."""
    # first, second, third: (queries,); lead, x, y: (queries, values); moved: (steps + 1,)
    # returned: (queries, steps + 1)
    noise = envelope.noise
    lead = first[:, None] + np.arange(-noise.reach, noise.reach + 1)
    by_step = list[FloatArray]()
    for shift in moved:
        x = envelope.x_at_least(lead - second[:, None] - _TIE - shift)
        y = envelope.x_at_least(lead - third[:, None] - _TIE - shift)
        by_step.append(envelope.trailing[x, y] @ noise.here)
    followed = np.stack(by_step, axis=1)
    cut_off = max(0.0, 1 - float(noise.here.sum()))
    return followed + cut_off * float(envelope.trailing[0, 0])


def _best_of(noise: Noise, counts: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the values and the law of the largest noisy count; cut-off mass goes on top."""
    # counts: (queries, classes); value, below, mass: (queries, values)
    width = 2 * noise.reach + 1
    most = counts.max(axis=1)[:, None]
    value = most + np.arange(-noise.reach, noise.reach + 1)
    noise_below = np.concatenate([[0.0], np.cumsum(noise.here)])
    below = np.ones(value.shape)
    for column in counts.T:
        at = value - column[:, None] + noise.reach + 1
        below *= noise_below[np.clip(at, 0, width)]
    mass = np.diff(below, axis=1, prepend=0.0)
    mass[:, -1] += 1 - below[:, -1]
    return value, np.maximum(mass, 0)
