"""Exact costs of every histogram of two classes, and how large they get within j changed ballots.

Which of two classes is reported depends on how far one is ahead alone, so there are so few cases that nothing needs to
be bounded: all costs are computed, and each changed ballot moves the gap by at most two votes.
"""

from functools import lru_cache

import numpy as np
from scipy import ndimage

from tutelage._typing import FloatArray, IntArray
from tutelage.accounting.exact import ExactCosts
from tutelage.events import Event
from tutelage.neighboring import PrivacyUnit
from tutelage.votes import VoteHistogram

CLASSES = 2
MOST_TEACHERS = 5_000  # 10,001 gaps: about a second
_GAP_PER_BALLOT = 2


def argmax_reach(
    event: Event, n_teachers: int, unit: PrivacyUnit, counts: IntArray, order: float, steps: int
) -> FloatArray:
    """Return the largest exact cost within j = 0..steps changed ballots, shape (queries, steps + 1).

    Parameters
    ----------
    event : Event
        One noisy argmax on two classes.
    n_teachers : int
        Ballots in all; those that are no vote are abstentions.
    unit : PrivacyUnit
        What moves one ballot.
    counts : integer array of shape (queries, 2)
        Vote counts.
    order : float
        Rényi order λ > 1.
    steps : int
        Most changed ballots looked at.

    Returns
    -------
    array of shape (queries, steps + 1)
        Nats, private. Column 0 is the exact cost, where both classes have votes to lose.
    """
    by_gap = _exact_by_gap(event, n_teachers, unit, order)
    at = counts[:, 0] - counts[:, 1] + n_teachers
    widths = 2 * _GAP_PER_BALLOT * np.arange(steps + 1) + 1
    highest: list[FloatArray] = [ndimage.maximum_filter1d(by_gap, width, mode="nearest")[at] for width in widths]
    return np.stack(highest, axis=1)


@lru_cache(maxsize=8)
def _exact_by_gap(event: Event, n_teachers: int, unit: PrivacyUnit, order: float) -> FloatArray:
    """Return the exact cost by n₀ − n₁ = −n_teachers … n_teachers, with a ballot to lose and to gain on either side."""
    gaps = np.arange(-n_teachers, n_teachers + 1)
    second = np.full(len(gaps), n_teachers + 1)
    histograms = VoteHistogram(np.column_stack([second + gaps, second]), 3 * n_teachers + 3, unit)
    return ExactCosts(event, histograms).per_query(np.array([order]))[:, 0]
