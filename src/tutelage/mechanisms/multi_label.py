"""Several yes-or-no findings per query, as in medical images: each finding is a vote of its own."""

from dataclasses import dataclass
from typing import ClassVar, final

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import integer_at_least
from tutelage.events import CappedArgmaxGaussian, Event, Repeated
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.mechanisms.base import Mechanism, Release
from tutelage.noise import NoiseSource
from tutelage.privacy import ONE_TEACHER, PrivacyUnit
from tutelage.votes import VoteHistogram


@final
@dataclass(frozen=True, slots=True)
class MultiLabel(Mechanism):
    """Put every finding of a query to a vote of its own, absent (0) against present (1), by one mechanism.

    Parameters
    ----------
    mechanism : Mechanism
        How each finding is voted on: `GNMax`, `ConfidentGNMax`, or another that takes no predictions.
    n_findings : int
        Findings per query, at least 1.

    Notes
    -----
    One changed ballot may differ in every finding, so a query costs `n_findings` answers: composition, finding by
    finding. Votes have two classes and `n_findings` rows per query (`tally_findings`); labels have the shape
    (queries, n_findings).
    """

    key_name: ClassVar[str] = "multi-label:v1"
    mechanism: Mechanism
    n_findings: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_findings", integer_at_least(self.n_findings, 1, "n_findings", "MultiLabel"))
        inner = self.mechanism
        if not _answers_one_vote_at_a_time(inner):
            raise InvalidParameterError(
                "`mechanism` of MultiLabel must answer one vote at a time without predictions, for example "
                f"GNMax(sigma=40.0). Got {type(inner).__name__}."
            )

    @property
    def noises_votes_as_given(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  as the inner one
        """Whether the mechanism of each finding adds its noise to the votes themselves."""
        return self.mechanism.noises_votes_as_given

    @property
    def shows_every_answer(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  as the inner one
        """Whether the mechanism of each finding shows every answer that was drawn."""
        return self.mechanism.shows_every_answer

    @property
    def votes_per_query(self) -> int:
        """How many rows of votes one query has: one per finding."""
        return self.n_findings

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return the most that one query can be: one vote per finding."""
        return Repeated(self.mechanism.event_of_one(n_classes, unit, simulated=simulated), self.n_findings)

    def check(self, votes: VoteHistogram, predictions: FloatArray | None = None) -> None:
        """Raise what `release` would refuse; votes on findings have two classes, absent and present."""
        Mechanism.check(self, votes, predictions)
        if votes.n_classes != 2:
            raise InvalidDataError(
                f"Votes for MultiLabel must have two classes, absent and present. Got {votes.n_classes}."
            )

    def release(self, votes: VoteHistogram, noise: NoiseSource, predictions: FloatArray | None = None) -> Release:
        """Answer every finding of every query once with fresh `noise`; calling again costs again."""
        self.check(votes, predictions)
        released = self.mechanism.release(votes, noise)
        labels = released.labels.reshape(votes.n_queries // self.n_findings, self.n_findings)
        return Release(labels, released.event, by_vote=released.voted)


def _answers_one_vote_at_a_time(given: object) -> bool:
    if not isinstance(given, Mechanism) or given.votes_per_query != 1 or given.takes_predictions:
        return False
    return not isinstance(given.event_of_one(2, ONE_TEACHER, simulated=False), CappedArgmaxGaussian)
