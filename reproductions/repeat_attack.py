"""Ask one query again and again, and reconstruct the votes from the answers: with the ledger's memory, and without.

    python reproductions/repeat_attack.py

Two classes, 250 teachers, GNMax. The share of answers for the first class gives the gap between the counts away, as the
inverse of the noise's distribution; the table shows by how many votes the attacker is wrong.
"""

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import special

from tutelage import GNMax, LabelingSession, Ledger, SystemNoise, VoteHistogram

SIGMA, TEACHERS = 40.0, 250
REPEATS = (1, 10, 100, 1_000, 10_000)
TARGETS = (126, 140, 160, 180, 200)


def guessed_gap(labels: np.ndarray) -> float:
    """Return the attacker's guess of n_0 − n_1 from the labels heard."""
    share = np.mean(labels == 0)
    known = np.clip(share, 0.5 / len(labels), 1 - 0.5 / len(labels))
    return float(np.clip(np.sqrt(2) * SIGMA * special.ndtri(known), -TEACHERS, TEACHERS))


def errors(repeats: int, *, remembered: bool) -> list[float]:
    """Return by how many votes the attacker's guess is wrong, for every target."""
    found = []
    for first in TARGETS:
        votes = VoteHistogram(np.array([[first, TEACHERS - first]]), TEACHERS)
        if remembered:
            ledger = Ledger.in_memory(epsilon=1.0, delta=1e-5, unit=votes.unit)
            session = LabelingSession(votes, GNMax(SIGMA), ledger)
            heard = np.array([session.ask(np.array([[0.5, 0.5]])).labels[0] for _ in range(repeats)])
        else:
            asked = VoteHistogram(np.tile(votes.counts, (repeats, 1)), TEACHERS)
            heard = GNMax(SIGMA).release(asked, SystemNoise()).labels
        found.append(abs(guessed_gap(heard) - (2 * first - TEACHERS)))
    return found


def main() -> None:
    """Print the table."""
    table = Table("times asked", "without memory: votes wrong", "with the ledger: votes wrong", title_justify="left")
    for repeats in REPEATS:
        unguarded, guarded = errors(repeats, remembered=False), errors(repeats, remembered=True)
        table.add_row(f"{repeats:,}", f"{np.mean(unguarded):.1f}", f"{np.mean(guarded):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
