"""What every local mechanism is: one entity's votes in, what may leave its house out."""

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._typing import ABSTAIN, FloatArray, IntArray
from tutelage._validation import integer_at_least
from tutelage.events import Event
from tutelage.exceptions import InvalidBallotError
from tutelage.neighboring import PrivacyUnit
from tutelage.noise import NoiseSource


class LocalMechanism(ABC):
    """A way for one entity to report its votes, private against everybody who sees the report.

    Whether an entity takes part is not hidden, so it must not depend on its data. Fields are public parameters.
    """

    __slots__ = ()
    _ABSENT = ABSTAIN

    @abstractmethod
    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what one response of one entity is; the entity's ledger reserves it before any noise is drawn."""

    @abstractmethod
    def pure_epsilon(self, n_classes: int) -> float:
        """Return the largest privacy loss of one response, in nats; infinite where only (ε, δ) holds."""

    @final
    def perturb(self, ballots: npt.ArrayLike, n_classes: int, noise: NoiseSource) -> IntArray:
        """Draw one response per vote, with fresh `noise`; calling again is another response and costs again.

        Parameters
        ----------
        ballots : integer array of shape (entities, queries)
            Private class index per entity and query, or −1 where the entity does not take part.
        n_classes : int
            Number of classes.
        noise : NoiseSource
            Where the noise comes from.

        Returns
        -------
        integer array of shape (entities, queries), or (entities, queries, classes) for `LocalGaussian`
            What may be sent; −1 where the entity does not take part, or 0 in every class for `LocalGaussian`, where −1
            is a report like others.

        Raises
        ------
        InvalidBallotError
            If the ballots are no matrix of integers between −1 and the last class.
        """
        integer_at_least(n_classes, 2, "n_classes", type(self).__name__)
        ballots = np.asarray(ballots)
        if ballots.ndim != 2 or not np.issubdtype(ballots.dtype, np.integer):
            raise InvalidBallotError(
                f"`ballots` of {type(self).__name__} must be an integer array of shape (entities, queries). "
                f"Got {ballots.dtype} of shape {ballots.shape}."
            )
        if ballots.size and (ballots.min() < ABSTAIN or ballots.max() >= n_classes):
            raise InvalidBallotError(
                f"A ballot must be {ABSTAIN} (not taking part) or a class index below {n_classes}."
            )
        taking_part = ballots != ABSTAIN
        drawn = self._respond(ballots[taking_part].astype(np.int64), n_classes, noise)
        reports = np.full((*ballots.shape, *drawn.shape[1:]), self._ABSENT, dtype=np.int64)
        reports[taking_part] = drawn
        return reports

    @final
    def as_dict(self) -> dict[str, Any]:
        """Return the mechanism as plain JSON-ready values, with its class name under ``"mechanism"``."""
        return {"mechanism": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]

    @abstractmethod
    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        """Draw one response per class; the first axis of the result is that of `classes`."""


class ClassResponse(LocalMechanism):
    """A local mechanism that reports a class: its whole law is a matrix of chances, the channel."""

    __slots__ = ()

    @abstractmethod
    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns) given each class (rows); rows sum to 1.

        Columns are the classes; where reports may be no class, a last column is their chance.
        """
