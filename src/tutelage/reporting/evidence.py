"""The data of the figures on a card: plain public numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, final

from tutelage.privacy import PublicEpsilon, round_up


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """Budget that one batch of queries spent, by worst-case costs.

    Parameters
    ----------
    written : str
        UTC day of its release in ISO 8601.
    queries : int
        Number of queries; 0 for noisy sums, and for the publication of an ε.
    checks, answers : float
        What its checks or the publication, and what its labels or sums spent, as shares of the budget's ε.
    sums : int
        Number of noisy sums.
    """

    written: str
    queries: int
    checks: float
    answers: float
    sums: int = 0

    @property
    def share(self) -> float:
        """Spend of the whole batch, as a share of the budget's ε."""
        return self.checks + self.answers


@final
@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """The worst-case cost of a number of queries, released at once by the mechanism of the card.

    Parameters
    ----------
    queries : int
        Number of queries.
    epsilon : PublicEpsilon
        The cost, for all possible votes.
    """

    queries: int
    epsilon: PublicEpsilon


@final
@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """Accuracy of the student on the public labeled rows of one class.

    Parameters
    ----------
    name : str
        The class.
    rows : int
        Number of public rows with this label.
    right : int
        Number of these rows that the student labels correctly.
    """

    name: str
    rows: int
    right: int


class Spending(NamedTuple):
    """A budget as it is printed: `spent` is rounded upward, and `left` is the rest, so that both add up."""

    budget: float
    spent: float
    left: float

    @classmethod
    def of(cls, budget: float, spent: float) -> "Spending":
        """Return the numbers to print."""
        whole = round_up(budget)
        used = min(whole, round_up(spent))
        return cls(whole, used, round(whole - used, 9))

    def __str__(self) -> str:
        return "all of it is spent" if not self.left else f"{self.spent:.10g} is spent"


def merged(batches: Sequence[Batch], most: int) -> tuple[Batch, ...]:
    """Return at most `most` batches with the same sums: batches next in time are merged, each named by its last."""
    groups = min(len(batches), most)
    edges = [len(batches) * number // groups for number in range(groups + 1)] if groups else [0]
    parts = [batches[first:last] for first, last in pairwise(edges)]
    return tuple(
        Batch(
            part[-1].written,
            sum(batch.queries for batch in part),
            sum(batch.checks for batch in part),
            sum(batch.answers for batch in part),
            sum(batch.sums for batch in part),
        )
        for part in parts
    )
