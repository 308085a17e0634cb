"""What every mechanism is, and what it releases."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, is_dataclass
from math import nan
from numbers import Integral, Rational, Real
from typing import TYPE_CHECKING, ClassVar, cast, final

import numpy as np
import numpy.typing as npt

from tutelage._typing import ABSTAIN, FloatArray, IntArray
from tutelage.events import Event, Repeated, settings_of
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.neighboring import PrivacyUnit
from tutelage.noise import NoiseSource
from tutelage.votes import VoteHistogram

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    cost : float
        What a ledger charged for it, in ε of its budget; NaN where no ledger was charged. It is public.
    by_vote : mask of shape (rows of votes,), optional
        Which rows of votes gave an answer under noise; public too. By default those that have a label.
    """

    labels: IntArray
    event: Event
    cost: float = nan
    by_vote: npt.NDArray[np.bool_] | None = None

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Mask in the shape of `labels`: what has a label."""
        return self.labels != ABSTAIN

    @property
    def voted(self) -> npt.NDArray[np.bool_]:
        """Mask of shape (rows of votes,): which rows of votes gave an answer under noise."""
        return self.answered.ravel() if self.by_vote is None else self.by_vote


class Mechanism(ABC):
    """A way to release labels from private votes. Its fields are public parameters; votes are arguments.

    To write one, subclass it as a frozen dataclass, define `event_of_one` and `release`, and run
    `tutelage.testing.MechanismContract` against it.
    """

    __slots__ = ()
    key_name: ClassVar[str]

    def key(self) -> str:
        """Return what a ledger remembers answers by: the name and version of the mechanism, and its settings.

        Settings are numbers, text, tuples and frozen records of these; define it anew for others. A field that is as
        it is by default is left out, so that a field that a later version adds changes no key: defaults never change.
        So is a field with ``repr=False``. A mechanism that is no dataclass is remembered by its `repr`.

        Raises
        ------
        InvalidParameterError
            If a setting is of another kind.
        """
        return _key_of_record(self) if is_dataclass(self) else repr(self)

    @property
    def takes_predictions(self) -> bool:
        """Whether `release` needs the student's predictions."""
        return False

    @property
    def votes_per_query(self) -> int:
        """How many rows of votes one query has."""
        return 1

    @property
    def noises_votes_as_given(self) -> bool:
        """Whether noise is added to the counts of `votes` themselves, so that costs by the votes can be read off them.

        Say so of a mechanism of your own only if it is true: of one that sums, selects or scales counts first, those
        costs are of other counts, and can be far too small. A class that defines `release` has to say it anew.
        """
        return False

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

    def check(self, votes: VoteHistogram, predictions: FloatArray | None = None) -> None:
        """Raise what `release` would refuse, from shapes and public values only, before anything is spent on it.

        Raises
        ------
        InvalidDataError
            If the votes have the wrong shape, or predictions are missing, unwanted or no probabilities.
        """
        name = type(self).__name__
        if votes.n_queries % self.votes_per_query:
            raise InvalidDataError(
                f"Votes for {name} must hold {self.votes_per_query} rows per query. Got {votes.n_queries} rows."
            )
        if not self.takes_predictions:
            if predictions is not None:
                raise InvalidDataError(f"{name} takes no predictions. Leave them out.")
            return
        found = np.zeros(0) if predictions is None else np.asarray(predictions)
        fits = found.shape == votes.counts.shape and np.all(found >= 0) and np.allclose(found.sum(axis=1), 1, atol=1e-6)
        if not fits:
            raise InvalidDataError(
                f"`predictions` of {name} must be the student's probabilities, rows summing to 1, of shape "
                f"{votes.counts.shape}. Got shape {found.shape}."
            )

    @final
    def event(self, votes: VoteHistogram, *, simulated: bool) -> Event:
        """Return the most that answering all queries of `votes` can be, from its shape and unit, never its counts."""
        one = self.event_of_one(votes.n_classes, votes.unit, simulated=simulated)
        return Repeated(one, votes.n_queries // self.votes_per_query)


def _key_of(value: object) -> str:
    """Return the one spelling of a setting, in which numbers, text and records can be told apart."""
    match value:
        case Mechanism():
            return value.key()
        case bool() | None:
            return str(value)
        case Integral():
            return str(int(value))
        case Real() if not isinstance(value, Rational):
            return repr(float(value))
        case str():
            return json.dumps(value)
        case tuple() | list():
            return f"[{','.join(map(_key_of, cast('Sequence[object]', value)))}]"
        case _ if is_dataclass(value):
            return _key_of_record(value)
        case _:
            pass
    raise InvalidParameterError(
        f"A {type(value).__name__} cannot be part of what answers are remembered by. Take numbers, text, tuples or "
        "frozen dataclasses of these as settings, or define `key` of the mechanism."
    )


def _key_of_record(record: object) -> str:
    settings = ",".join(f"{name}={_key_of(setting)}" for name, setting in settings_of(record).items())
    kind = type(record)
    return f"{vars(kind).get('key_name', kind.__qualname__)}({settings})"  # never an inherited one
