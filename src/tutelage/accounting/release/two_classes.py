"""Exact costs of every histogram of two classes, and how large they get within j changed ballots.

Two classes have so few histograms that nothing needs to be bounded: all costs are computed, and one changed ballot
after the other spreads the largest.
"""

from functools import lru_cache

import numpy as np

from tutelage._typing import FloatArray, IntArray
from tutelage.accounting.exact import ExactCosts
from tutelage.events import Event
from tutelage.neighboring import PrivacyUnit
from tutelage.votes import VoteHistogram

CLASSES = 2
MOST_TEACHERS = 400  # 80,000 histograms, abstentions included: seconds


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
        Nats, private.
    """
    table = _exact_table(event, n_teachers, unit, order)
    columns = [table[counts[:, 0], counts[:, 1]]]
    for _ in range(steps):
        table = _with_neighbours(table)
        columns.append(table[counts[:, 0], counts[:, 1]])
    return np.stack(columns, axis=1)


@lru_cache(maxsize=8)
def _exact_table(event: Event, n_teachers: int, unit: PrivacyUnit, order: float) -> FloatArray:
    """Return the exact cost of every histogram (a, b) with a + b ≤ n_teachers; −∞ elsewhere."""
    table = np.full((n_teachers + 1, n_teachers + 1), -np.inf)
    first, second = np.nonzero(np.add.outer(np.arange(n_teachers + 1), np.arange(n_teachers + 1)) <= n_teachers)
    histograms = VoteHistogram(np.column_stack([first, second]), n_teachers, unit)
    table[first, second] = ExactCosts(event, histograms).per_query(np.array([order]))[:, 0]
    table.setflags(write=False)
    return table


def _with_neighbours(table: FloatArray) -> FloatArray:
    """Return the largest of each histogram's cost and of those one ballot away: moved, cast or withdrawn."""
    wide = np.pad(table, 1, constant_values=-np.inf)
    moves = [(0, 0), (1, -1), (-1, 1), (1, 0), (-1, 0), (0, 1), (0, -1)]
    size = len(table)
    shifted = [wide[1 + a : 1 + a + size, 1 + b : 1 + b + size] for a, b in moves]
    return np.where(np.isneginf(table), -np.inf, np.max(shifted, axis=0))
