"""What every mechanism is, and what it releases."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from tutelage._typing import ABSTAIN, IntArray
from tutelage.events import Event
from tutelage.noise import NoiseSource
from tutelage.votes import VoteHistogram


@final
@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The public outcome of a batch of queries.

    Parameters
    ----------
    labels : integer array of shape (queries,)
        Class index per query, or −1 where the mechanism gave no answer.
    event : Event
        What was done, exactly enough to account for it.
    """

    labels: IntArray
    event: Event

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Mask of shape (queries,): which queries have a label."""
        return self.labels != ABSTAIN


class Mechanism(ABC):
    """A way to release labels from private votes. Its fields are public parameters; votes are arguments."""

    @abstractmethod
    def event(self, votes: VoteHistogram, *, simulated: bool) -> Event:
        """Return what answering all queries of `votes` is, reading its shape and unit only, never its counts."""

    @abstractmethod
    def release(self, votes: VoteHistogram, noise: NoiseSource) -> Release:
        """Answer every query of `votes` once with fresh `noise`; calling again is another release and costs again."""
