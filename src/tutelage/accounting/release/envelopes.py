"""How large the cost of one noisy argmax or check can be within j changed ballots, for any number of classes.

Given the noise of all other classes, a moved ballot can tell three outcomes apart (docs/proofs/three_outcomes.md). Here
their moment is averaged over the best of the others instead of maximised, after it was made monotone in how far that
is behind: then j changed ballots shift it by 2j at most. Proof: docs/proofs/release.md, section 2.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from tutelage._typing import FloatArray, IntArray
from tutelage.accounting.three_outcomes import (
    Noise,
    Positions,
    divergence,
    excess_at,
    excess_of_one_count,
    excess_of_two,
)

_GAP_PER_BALLOT = 2  # votes by which one moved ballot changes how far one class is behind another
_TIE, _TIE_GAP = 1, 2  # votes by which class order, and the tie-break that the tables leave out, can move a position
_ROWS_AT_ONCE = 64  # histograms in one block of laws


@final
@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """Upper bounds on E[φ] of a moved ballot, monotone in where the classes stand; see `envelope_of`."""

    noise: Noise
    order: float
    step: int  # votes between positions
    last: int
    leading: FloatArray  # [x, d + last]: one of the two classes leads; rises in x, falls in d
    trailing: FloatArray  # [x, y]: neither leads; falls in both

    def x_at_most(self, votes: IntArray) -> IntArray:
        """Return positions no lower than these, in votes of noise that a class needs."""
        return np.clip(-((-votes - self.noise.reach) // self.step), 0, self.last)

    def x_at_least(self, votes: IntArray) -> IntArray:
        """Return positions no higher than these."""
        return np.clip((votes + self.noise.reach) // self.step, 0, self.last)

    def gap(self, votes: IntArray) -> IntArray:
        """Return columns of `leading` for gaps of at least these, in votes."""
        return np.clip(votes // self.step, -self.last, self.last) + self.last


@lru_cache(maxsize=4)
def envelope_of(noise: Noise, positions: Positions, order: float) -> Envelope:
    """Return the monotone bounds for one noise and order.

    Parameters
    ----------
    noise : Noise
        Law of the noise on every count.
    positions : Positions
        `three_outcomes.positions_of(noise)`.
    order : float
        Rényi order λ > 1.
    """
    last = positions.last
    places = np.arange(last + 1)
    three = np.stack([excess_at(positions, np.full(last + 1, x), places, order) for x in places])
    three = np.maximum(three, three.T)  # either class may be the one that loses
    two = excess_of_two(positions, order)
    two = np.maximum(two, two[::-1])
    two = np.append(two, np.full(2 * last + 1 - len(two), two[-1]))
    gaps = np.arange(-last, last + 1)
    y = places[:, None] + gaps
    by_gap = np.where(y < 0, two, three[places[:, None], np.clip(y, 0, last)])
    by_gap = np.maximum(np.maximum.accumulate(by_gap, axis=0), two)  # the best other may be anywhere below
    leading = np.maximum.accumulate(by_gap[:, ::-1], axis=1)[:, ::-1]
    trailing = np.maximum.accumulate(np.maximum.accumulate(three[::-1, ::-1], axis=0), axis=1)[::-1, ::-1]
    return Envelope(noise, order, positions.step, last, leading, trailing)


def argmax_reach(envelope: Envelope, counts: IntArray, steps: int) -> FloatArray:
    """Return a bound on the cost of a noisy argmax within j = 0..steps changed ballots, shape (queries, steps + 1).

    Parameters
    ----------
    envelope : Envelope
        From `envelope_of`.
    counts : integer array of shape (queries, classes)
        Vote counts.
    steps : int
        Most changed ballots looked at.

    Returns
    -------
    array of shape (queries, steps + 1)
        Nats, private. Column j at a histogram is at most column j + 1 at its neighbours, and column 0 is at least the
        exact cost, in both directions.
    """
    ordered = -np.sort(-counts, axis=1)
    blocks = [ordered[start : start + _ROWS_AT_ONCE] for start in range(0, len(ordered), _ROWS_AT_ONCE)]
    excess = np.concatenate([_argmax_excess(envelope, block, steps) for block in blocks])
    return divergence(excess + envelope.noise.outside(envelope.order), envelope.order)


def check_reach(noise: Noise, order: float, needed: IntArray, steps: int) -> FloatArray:
    """Return the cost of a check within j = 0..steps changed ballots, shape (queries, steps + 1).

    Parameters
    ----------
    noise : Noise
        Law of the noise on the largest count.
    order : float
        Rényi order λ > 1.
    needed : integer array of shape (queries,)
        Noise, in votes, that makes the check pass: ⌈threshold⌉ minus the largest count.
    steps : int
        Most changed ballots looked at.
    """
    # Position x is the pair "noise ≥ x" and "noise ≥ x + 1"; a moved ballot makes it or the one below.
    excess = np.pad(excess_of_one_count(noise, order), steps + 2)
    at = np.clip(needed, -noise.reach, noise.reach + 1) + noise.reach + steps + 1
    worst = np.maximum(excess[at], excess[at - 1])
    columns: list[FloatArray] = []
    for step in range(steps + 1):
        worst = np.maximum(worst, np.maximum(excess[at + step], excess[at - 1 - step]))
        columns.append(worst)
    return divergence(np.stack(columns, axis=1) + noise.outside(order), order)


def _argmax_excess(envelope: Envelope, ordered: IntArray, steps: int) -> FloatArray:
    """Return the bound on E[φ], from counts in falling order."""
    first, second = ordered[:, 0], ordered[:, 1]
    no_class = np.iinfo(np.int32).min
    third = ordered[:, 2] if ordered.shape[1] > 2 else np.full(len(ordered), no_class)
    moved = _GAP_PER_BALLOT * np.arange(steps + 1)
    worst = _leading(envelope, _best_of(envelope.noise, ordered[:, 1:]), first, third, moved)
    if ordered.shape[1] > 2:
        worst = np.maximum(worst, _leading(envelope, _best_of(envelope.noise, ordered[:, 2:]), first, second, moved))
    else:
        by_gap = envelope.leading[0, envelope.gap((first - second)[:, None] - _TIE_GAP - moved)]
        worst = np.maximum(worst, by_gap)
    return np.maximum(worst, _trailing(envelope, first, second, third, moved))


def _leading(
    envelope: Envelope, best_other: tuple[IntArray, FloatArray], first: IntArray, other: IntArray, moved: IntArray
) -> FloatArray:
    """Return E over the best other of the bound for ballots between the first class and `other`, or neither."""
    value, mass = best_other
    column = envelope.gap((first - other)[:, None] - _TIE_GAP - moved)
    out = np.empty(column.shape)
    for place, shift in enumerate(moved):
        x = envelope.x_at_most(value + _TIE_GAP - first[:, None] + shift)
        out[:, place] = (mass * envelope.leading[x, column[:, place, None]]).sum(axis=1)
    return out


def _trailing(envelope: Envelope, first: IntArray, second: IntArray, third: IntArray, moved: IntArray) -> FloatArray:
    """Return E over the noise of the first class of the bound for ballots between two others, or one and none."""
    noise = envelope.noise
    lead = first[:, None] + np.arange(-noise.reach, noise.reach + 1)
    out = np.empty((len(first), len(moved)))
    for place, shift in enumerate(moved):
        x = envelope.x_at_least(lead - second[:, None] - _TIE - shift)
        y = envelope.x_at_least(lead - third[:, None] - _TIE - shift)
        out[:, place] = envelope.trailing[x, y] @ noise.here
    return out + max(0.0, 1 - float(noise.here.sum())) * float(envelope.trailing[0, 0])


def _best_of(noise: Noise, counts: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the values and the law of the largest noisy count, shapes (queries, values); cut-off mass goes on top."""
    width = 2 * noise.reach + 1
    value = counts.max(axis=1)[:, None] + np.arange(-noise.reach, noise.reach + 1)
    up_to = np.concatenate([[0.0], np.cumsum(noise.here)])
    below = np.ones(value.shape)
    for column in counts.T:
        below *= up_to[np.clip(value - column[:, None] + noise.reach + 1, 0, width)]
    mass = np.diff(below, axis=1, prepend=0.0)
    mass[:, -1] += 1 - below[:, -1]
    return value, np.maximum(mass, 0)
