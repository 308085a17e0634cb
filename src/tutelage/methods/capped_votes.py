"""Every person votes on the few public rows nearest to its own, and the noisy winners are released."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, final

import numpy as np

from tutelage._internal.records import frozen
from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import CappedGNMax
from tutelage.methods.rehearsal import PublicLabels, Rehearsal, taught_by
from tutelage.methods.requests import Public, Sizes
from tutelage.methods.votes import STUDENT, VotesOnQueries, VotingPeople
from tutelage.noise import NoiseSource
from tutelage.partition import Shards
from tutelage.people.memory import PeopleInMemory
from tutelage.students.selection import QuerySelector
from tutelage.teachers import NearestQueries, NearestTeachers

_VOTES_TRIED = (5, 20)  # by a plan


@final
@frozen
class CappedVotes(VotesOnQueries):
    """Every person is a teacher without a model, and votes its label on the few public rows nearest to its own.

    All answers together cost about `cap` times one, however many there are.

    Parameters
    ----------
    votes : int
        Most votes of one person in one round.
    n_queries, selection, rounds, student, student_features
        As for `TeacherVotes`.
    mechanism : CappedGNMax, optional
        How votes are released; its cap is that of all rounds together. Default: the least noise that ε allows.
    """

    name = "capped-votes"
    title = "few votes per person"
    votes: int = 5
    n_queries: int | None = None
    selection: str | QuerySelector = "first"
    rounds: int = 1
    mechanism: CappedGNMax | None = None
    student: Any = None
    student_features: Any = None

    def __post_init__(self) -> None:
        self._check(self._check_own)

    def _check_own(self) -> None:
        integer_at_least(self.votes, 1, "votes", "CappedVotes")
        if not isinstance(self.mechanism, CappedGNMax) and self.mechanism is not None:
            raise InvalidParameterError(
                "CappedVotes.mechanism",
                "be a CappedGNMax, because every person has only a few votes",
                f"a {type(self.mechanism).__name__}",
                "Leave it out to get the least noise that ε allows.",
            )

    @property
    def cap(self) -> int:
        """Most votes of one person in all rounds."""
        if self.mechanism is None:
            return self.votes * self.rounds
        return self.mechanism.cap

    def with_noise(self, noise: float) -> Self:
        """Return the method with `CappedGNMax` of this σ."""
        return replace(self, mechanism=CappedGNMax(noise, self.cap))

    @classmethod
    def proposals(cls, _people: int, _sizes: Sizes, /) -> Sequence[Self]:
        """Return the settings that a plan tries: few votes, and a few more."""
        return [cls(votes=votes, student=STUDENT) for votes in _VOTES_TRIED]

    def rehearsal(self, known: PublicLabels, people: int) -> Rehearsal:
        """Return students of the votes of people on rows near their own, but never on their own row."""
        n_people = len(known.labeled)
        n_classes = known.n_classes
        shards = Shards.of_single_people(n_people)
        most = self.votes + known.own
        teachers = NearestTeachers(
            most,
            known.labeled,
            known.classes,
            shards,
            n_classes=n_classes,
        )
        votes = teachers.few_votes(known.rows)
        if known.own:
            votes = votes.at(votes.queries != votes.teachers)
        votes = votes.first(self.votes)
        sigma = self.calibrated.sigma

        def predict(
            taught: IntArray, noise: NoiseSource, _scores: FloatArray | None = None
        ) -> IntArray:
            # counts, drawn: (queries, classes)
            cast = votes.at(np.isin(votes.teachers, taught))
            counts = np.zeros((len(known.rows), n_classes), np.int64)
            np.add.at(counts, (cast.queries, cast.labels), 1)
            drawn = noise.discrete_gaussian(sigma * len(taught) / people, counts.shape)
            return taught_by(self.student, (counts + drawn).argmax(axis=1), known)

        return predict

    def prepare(self, public: Public, people: PeopleInMemory, /) -> VotingPeople:
        """Return the people, with their rows as the public map shows them; private."""
        rows = people.through(public.teacher_map, public.teacher_rows.shape[-1]).rows
        teachers = NearestQueries(self.votes).fit(
            rows,
            people.labels,
            people.shards,
            n_classes=len(public.classes),
            features=public.teacher_map,
        )
        return VotingPeople(teachers)
