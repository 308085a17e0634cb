"""Base class of mechanisms, and their releases."""

from abc import ABC, abstractmethod
from math import nan
from numbers import Integral, Real
from typing import ClassVar, final

import numpy as np

from tutelage._internal.records import by_identity
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Mask
from tutelage.ballots import OneHot, VoteHistogram
from tutelage.events import CappedArgmaxGaussian, Event, of_queries, settings_of
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.noise import NoiseSource
from tutelage.privacy import PrivacyUnit


@final
@by_identity
class Release:
    """The public outcome of a batch of queries.

    Parameters
    ----------
    labels : integer array of shape (queries,)
        Class index, or −1 where the mechanism gave no answer.
    event : Event
        What was done, as it happened, exactly enough to account for it.
    cost : float
        Budget that it spent from a ledger, as a share of ε; NaN without a ledger. It is public.
    by_vote : mask of shape (queries,), optional
        Which queries got an answer under noise; public too. By default those that have a label.
    """

    labels: IntArray
    event: Event
    cost: float = nan
    by_vote: Mask | None = None

    @property
    def answers(self) -> list[tuple[int, ...]]:
        """Return the label of each query, as a ledger remembers it."""
        return [(label,) for label in self.labels.tolist()]

    @property
    def answered(self) -> Mask:
        """Mask of shape (queries,): which queries have a label."""
        return self.labels != ABSTAIN

    @property
    def voted(self) -> Mask:
        """Mask of shape (queries,): which queries got an answer under noise."""
        if self.by_vote is None:
            return self.answered
        return self.by_vote


class Mechanism(ABC):
    """A way to release labels from private votes. Its fields are public parameters; votes are arguments.

    To write one, subclass it as a frozen dataclass, define `event_of_one` and `release`, and run
    `tutelage.testing.MechanismContract` against it.

    Attributes
    ----------
    noises_votes_as_given : bool
        Whether noise is added to the counts of `votes` themselves, so that a cost that depends on the votes can be
        computed from them. Set it in a class of your own only if it is true. If counts are summed, selected or scaled
        first, that cost is of other counts, and can be far too small.
    shows_every_answer : bool
        Whether every answer that was drawn is among the labels, so that a query without a label had no answer.

    Notes
    -----
    Each class sets these two for itself. A subclass does not inherit them, because what it overrides may break them.
    """

    __slots__ = ()
    key_name: ClassVar[str]
    noises_votes_as_given: ClassVar[bool] = False
    shows_every_answer: ClassVar[bool] = False

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for promise in ("noises_votes_as_given", "shows_every_answer"):
            if promise not in vars(cls):
                setattr(cls, promise, False)

    def key(self) -> str:
        """Return what a ledger remembers answers by: whatever answers differently must have another key.

        A class with a `key_name` of its own is known by it, and by the settings that differ from their defaults, so
        that a later version can add a setting: defaults of such a class never change. Any other is known by its `repr`.
        """
        kind = type(self)
        if "key_name" in vars(kind):  # never an inherited one
            settings = list[str]()
            for name, setting in settings_of(self).items():
                settings.append(f"{name}={_setting_text(setting)}")
            return f"{self.key_name}({','.join(settings)})"
        if kind.__repr__ is object.__repr__:
            raise InvalidParameterError(
                f"{kind.__name__}.__repr__",
                "show all settings, because the ledger finds stored labels by it",
                fix=f"Make {kind.__name__} a dataclass, or define `__repr__`.",
            )
        return repr(self)

    @property
    def takes_predictions(self) -> bool:
        """Whether `release` needs the student's predictions."""
        return False

    @abstractmethod
    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return the most that answering one query can be; a ledger reserves so much before any noise is drawn."""

    @final
    def most(self, form: object, *, simulated: bool) -> Event:
        """Return the most that answering one query on ballots of this form can be; other forms have no theorem."""
        if not isinstance(form, OneHot):
            raise InvalidParameterError(
                f"{type(self).__name__}.ballots",
                "be votes, because the cost of this mechanism is proved only for votes",
                fix="For vectors, use NoisySum.",
            )
        of_one = self.event_of_one(form.n_classes, form.unit, simulated=simulated)
        if isinstance(of_one, CappedArgmaxGaussian) and (form.cap is None or form.cap > of_one.cap):
            raise InvalidParameterError(
                f"{type(self).__name__}.ballots",
                f"come from teachers that cast at most {of_one.cap} votes each",
                fix="Use CappedVotes, or another mechanism.",
            )
        return of_one

    @abstractmethod
    def release(
        self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None
    ) -> Release:
        """Answer every query of `votes` once with fresh `noise`; calling again is another release and costs again.

        Parameters
        ----------
        votes : VoteHistogram
            Private votes, one row per query.
        noise : NoiseSource
            Where the noise comes from.
        predictions : array of shape (queries, classes), optional
            The student's predicted probabilities, for a mechanism that takes them.
        """

    def check(self, votes: VoteHistogram, predictions: FloatArray | None = None) -> None:
        """Raise what `release` would refuse, from shapes and public values only, before anything is spent on it."""
        name = type(self).__name__
        of_one = self.event_of_one(votes.n_classes, votes.unit, simulated=False)
        is_capped = isinstance(of_one, CappedArgmaxGaussian)
        if is_capped and (votes.cap is None or votes.cap > of_one.cap):
            cap = "none" if votes.cap is None else votes.cap
            raise InvalidDataError(
                f"Votes for {name} must have a `cap` of at most {of_one.cap} votes per teacher. Got {cap}; count "
                f"capped ballots with `tally(..., cap={of_one.cap})`."
            )
        if not self.takes_predictions:
            if predictions is not None:
                raise InvalidDataError(f"{name} takes no predictions. Leave them out.")
            return
        # predictions: (queries, classes), as the votes
        if predictions is None:
            predictions = np.zeros(0)
        chances = np.asarray(predictions)
        fits = chances.shape == votes.counts.shape and np.all(chances >= 0)
        if not fits or not np.allclose(chances.sum(axis=1), 1, atol=1e-6):
            raise InvalidDataError(
                f"`predictions` of {name} must be the student's probabilities, rows summing to 1, of shape "
                f"{votes.counts.shape}. Got shape {chances.shape}."
            )

    @final
    def event(self, votes: VoteHistogram, *, simulated: bool) -> Event:
        """Return the most that answering all queries of `votes` can be, from its shape and unit, never its counts."""
        of_one = self.event_of_one(votes.n_classes, votes.unit, simulated=simulated)
        return of_queries(of_one, votes.n_queries)


def _setting_text(setting: object) -> str:
    """Return a setting as it is written in a key."""
    match setting:
        case Mechanism():
            return setting.key()
        case bool():
            return str(setting)
        case Integral():
            return str(int(setting))
        case Real():
            return repr(float(setting))
        case _:
            raise InvalidParameterError(
                "key_name.settings",
                "be numbers or mechanisms, because they become part of the key",
                f"a {type(setting).__name__}",
                "Change the setting, or leave out `key_name`.",
            )
