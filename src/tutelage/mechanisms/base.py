"""What every mechanism is, and what it releases."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from tutelage._typing import ABSTAIN, FloatArray, IntArray
from tutelage.events import Event, Repeated
from tutelage.exceptions import InvalidDataError
from tutelage.neighboring import PrivacyUnit
from tutelage.noise import NoiseSource
from tutelage.votes import VoteHistogram


@final
@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The public outcome of a batch of queries.

    Parameters
    ----------
    labels : integer array of shape (queries,), or (queries, findings) for a `MultiLabel` mechanism
        Class index, or −1 where the mechanism gave no answer.
    event : Event
        What was done, as it happened, exactly enough to account for it.
    cost : float or None
        What a ledger charged for it, in ε of its budget; None where there was no ledger. It is public.
    """

    labels: IntArray
    event: Event
    cost: float | None = None

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Mask in the shape of `labels`: what has a label."""
        return self.labels != ABSTAIN


class Mechanism(ABC):
    """A way to release labels from private votes. Its fields are public parameters; votes are arguments.

    To write one, subclass it as a frozen dataclass, define `event_of_one` and `release`, and run
    `tutelage.testing.MechanismContract` against it.
    """

    __slots__ = ()

    @property
    def takes_predictions(self) -> bool:
        """Whether `release` needs the student's predictions."""
        return False

    @property
    def votes_per_query(self) -> int:
        """How many rows of votes one query has."""
        return 1

    @abstractmethod
    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return the most that answering one query can be; a ledger reserves so much before any noise is drawn."""

    @abstractmethod
    def release(self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None) -> Release:
        """Answer every query of `votes` once with fresh `noise`; calling again is another release and costs again.

        Parameters
        ----------
        votes : VoteHistogram
            Private votes, `votes_per_query` rows per query.
        noise : NoiseSource
            Where the noise comes from.
        predictions : array of shape (queries, classes), optional
            The student's predicted probabilities, for a mechanism that takes them.
        """

    @final
    def event(self, votes: VoteHistogram, *, simulated: bool) -> Event:
        """Return the most that answering all queries of `votes` can be, from its shape and unit, never its counts."""
        queries, rest = divmod(votes.n_queries, self.votes_per_query)
        if rest:
            raise InvalidDataError(
                f"The votes must hold {self.votes_per_query} rows per query. Got {votes.n_queries} rows."
            )
        return Repeated(self.event_of_one(votes.n_classes, votes.unit, simulated=simulated), queries)


def refuse_predictions(mechanism: Mechanism, predictions: FloatArray | None) -> None:
    """Raise if predictions reach a mechanism that would ignore them."""
    if predictions is not None:
        raise InvalidDataError(f"{type(mechanism).__name__} takes no predictions. Leave them out.")
