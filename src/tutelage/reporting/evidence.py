"""What the figures of a card show: plain public numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

from tutelage.privacy import PublicEpsilon


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch of queries took from the budget, by costs that hold for all votes.

    Parameters
    ----------
    written : str
        When it was reserved, as an ISO 8601 date and time.
    queries : int
        How many were asked; 0 for the publication of an ε.
    checks, answers : float
        What its checks or the publication, and what its answers took, as shares of the budget's ε.
    """

    written: str
    queries: int
    checks: float
    answers: float

    @property
    def share(self) -> float:
        """What the batch took in all, as a share of the budget's ε."""
        return self.checks + self.answers


@final
@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """What so many queries cost at most, released all at once by the mechanism of the card.

    Parameters
    ----------
    queries : int
        How many are asked.
    epsilon : PublicEpsilon
        The cost, for all votes.
    """

    queries: int
    epsilon: PublicEpsilon


@final
@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """How good the student is on the public labelled rows of one class.

    Parameters
    ----------
    name : str
        The class.
    rows : int
        How many public rows carry this label.
    right : int
        How many of them the student has right.
    """

    name: str
    rows: int
    right: int


def merged(batches: Sequence[Batch], most: int) -> tuple[Batch, ...]:
    """Return at most `most` batches of the same sums: neighbors in time put together, each named by its last."""
    groups = min(len(batches), most)
    edges = [len(batches) * number // groups for number in range(groups + 1)] if groups else [0]
    parts = [batches[first:last] for first, last in pairwise(edges)]
    return tuple(
        Batch(
            part[-1].written,
            sum(batch.queries for batch in part),
            sum(batch.checks for batch in part),
            sum(batch.answers for batch in part),
        )
        for part in parts
    )
