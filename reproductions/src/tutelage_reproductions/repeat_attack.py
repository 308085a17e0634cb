"""Repeat one query and reconstruct the votes from the labels, with and without the ledger.

There are two classes, 250 teachers and GNMax. The share of labels of the first class reveals the gap between the counts
through the inverse of the noise's distribution. The numbers are the error of the attacker, in votes.
"""

import numpy as np
from scipy import special

from tutelage import GNMax, LabelingSession, Ledger, SystemNoise, VoteHistogram
from tutelage._internal.typing import IntArray
from tutelage_reproductions.record import Record, Row

SIGMA, TEACHERS = 40.0, 250
REPEATS = (1, 10, 100, 1_000, 10_000)
TARGETS = (126, 140, 160, 180, 200)


def guessed_gap(labels: IntArray) -> float:
    """Return the attacker's guess of n_0 − n_1 from the labels heard."""
    n_queries = len(labels)
    share = np.count_nonzero(labels == 0) / n_queries
    known = min(max(share, 0.5 / n_queries), 1 - 0.5 / n_queries)
    gap = float(np.sqrt(2) * SIGMA * special.ndtri(known))
    return min(max(gap, -TEACHERS), TEACHERS)


def errors(repeats: int, *, remembered: bool) -> list[float]:
    """Return by how many votes the attacker's guess is wrong, for every target."""
    found = list[float]()
    for first in TARGETS:
        votes = VoteHistogram(np.array([[first, TEACHERS - first]]), TEACHERS)
        if remembered:
            ledger = Ledger.in_memory(epsilon=1.0, delta=1e-5, unit=votes.unit)
            session = LabelingSession(votes, GNMax(SIGMA), ledger)
            heard = np.array(
                [session.ask(np.array([[0.5, 0.5]])).labels[0] for _ in range(repeats)]
            )
        else:
            asked = VoteHistogram(np.tile(votes.counts, (repeats, 1)), TEACHERS)
            heard = GNMax(SIGMA).release(asked, SystemNoise()).labels
        found.append(abs(guessed_gap(heard) - (2 * first - TEACHERS)))
    return found


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  there are no data
    """Return the attacker's errors; `quick` asks at most 100 times."""
    rows = list[Row]()
    for repeats in REPEATS[:3] if quick else REPEATS:
        for memory, remembered in (("without memory", False), ("with the ledger", True)):
            wrong = float(np.mean(errors(repeats, remembered=remembered)))
            rows.append(
                Row(name=f"query repeated {repeats:,} times {memory}: error in votes", ours=wrong)
            )
    return Record(
        name="repeat-attack",
        source="docs/ledger.md",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                f"Each value is a mean over {len(TARGETS)} vote counts. The noise is not simulated, so a new run "
                "gives other numbers."
            ),
        ),
    )
