"""Ballots in, their noisy sum out, and the ledger charged in between."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
from sklearn.pipeline import Pipeline

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import IntArray, Matrix
from tutelage.ballots import BallotSum
from tutelage.events import Composed, Event, NoisySumGaussian, Repeated, settings_of
from tutelage.exceptions import InvalidParameterError
from tutelage.features.base import FeatureMap, chained, check_row_by_row, features_of_private, require_public_map
from tutelage.features.stored import map_from_bytes, map_to_bytes
from tutelage.ledger import Ledger
from tutelage.ledger.digests import data_digest
from tutelage.ledger.entries import canonical
from tutelage.mechanisms import NoisySum
from tutelage.noise import NoiseSource
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.students import Moments, NoisySumClassifier
from tutelage.teachers import VectorBallots
from tutelage.teachers.blocks import PeopleBlock, PrivatePeople

_NOISE_OF_COUNT = 10.0  # times that of the ballots: the number of people takes a hundredth of what they take


class SumRelease(NamedTuple):
    """Result of asking for a sum; public."""

    values: IntArray  # shape (classes, numbers): the noisy sum
    event: Event  # what was charged for it now
    cost: float  # in ε of the ledger's budget; 0 where the ledger remembered it
    reservations: frozenset[int]  # under which it was drawn, now or earlier


def release_sum(
    ballots: BallotSum, mechanism: NoisySum, ledger: Ledger, about: Sequence[Any], noise: NoiseSource
) -> SumRelease:
    """Return the noisy sum of ballots, charged to a ledger before noise is drawn, and remembered.

    The same sum again is the same numbers, at no cost: fresh noise would let whoever repeats it average it away.
    `about` is what is summed, as plain public values: the question, and everything that the ballots were made with.
    A sum that does not fit the budget is refused, and nothing was spent.
    """
    event = mechanism.event(ballots, simulated=noise.simulated)
    query = _query(ledger, mechanism, event, about)
    with ledger.releasing([query]):
        answers, reservation = ledger.reserve_new(event, [query])
        if reservation is None:
            values = _shaped(answers[query], ballots)
            return SumRelease(values, Repeated(event, 0), 0.0, ledger.drawn_under([query]))
        with ledger.drawing(reservation):
            drawn = mechanism.release(ballots, noise)
        settled = ledger.settle(reservation, {query: tuple(drawn.values.ravel().tolist())}, drawn.event)
    values = _shaped(settled.labels[query], ballots)
    return SumRelease(values, drawn.event, settled.share, ledger.drawn_under([query]))


def event_of_rounds(
    teacher: VectorBallots, mechanism: NoisySum, n_classes: int, unit: PrivacyUnit, *, simulated: bool
) -> Event:
    """Return what all rounds of ballots release at most."""
    numbers, noise = teacher.most_numbers(n_classes), mechanism.noise_multiplier
    rounds = (
        teacher.event_of_round(noise, number, numbers, unit, simulated=simulated) for number in range(teacher.rounds)
    )
    return Composed(tuple(rounds))


def event_of_count(mechanism: NoisySum, unit: PrivacyUnit, *, simulated: bool) -> list[Event]:
    """Return what the noisy number of people is, if that number is private."""
    if unit.neighboring is NeighboringRelation.CHANGE_ONE_ROW:
        return []
    return [NoisySumGaussian(_of_count(mechanism).noise_multiplier, 1, 1, unit, simulated)]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReleasedVectors:
    """Result of all rounds of ballots; public but for the ballots."""

    ballots: tuple[BallotSum, ...]  # the private sums, one per round
    moments: tuple[Moments, ...]  # what was released of each, as the student takes it
    student: Pipeline  # the classifier in closed form, over rows as the features take them
    n_people: int  # who cast ballots; where their number is private, a noisy count
    event: Event  # this and what follows is as in `SumRelease`, of all that was released
    cost: float
    reservations: frozenset[int]

    def after(self, parts: Sequence["SumRelease | ReleasedVectors"]) -> "ReleasedVectors":
        """Return the same with what was charged for other parts before it."""
        parts = [*parts, self]
        return replace(
            self,
            event=Composed(tuple(part.event for part in parts)),
            cost=sum(part.cost for part in parts),
            reservations=frozenset[int]().union(*(part.reservations for part in parts)),
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class BallotRounds:
    """Rounds of ballots of vectors, and the release of their sums."""

    teacher: VectorBallots  # what people cast
    people: PrivatePeople  # the private rows, and whose they are
    classes: npt.NDArray[Any]  # class values
    noise: NoiseSource
    question: str  # what the classes are about
    progress: bool = False

    def most(self, mechanism: NoisySum, unit: PrivacyUnit | None = None) -> Event:
        """Return what a release is at most, with the noisy number of people where that number is private."""
        return Composed((self.of_rounds(mechanism, unit), *self.of_count(mechanism, unit)))

    def of_rounds(self, mechanism: NoisySum, unit: PrivacyUnit | None = None) -> Event:
        """Return what all rounds are at most."""
        unit, simulated = unit or self.people.unit, self.noise.simulated
        return event_of_rounds(self.teacher, mechanism, len(self.classes), unit, simulated=simulated)

    def of_count(self, mechanism: NoisySum, unit: PrivacyUnit | None = None) -> list[Event]:
        """Return what the noisy number of people is, if that number is private."""
        return event_of_count(mechanism, unit or self.people.unit, simulated=self.noise.simulated)

    def release(self, ledger: Ledger, mechanism: NoisySum, X_public: Matrix) -> ReleasedVectors:
        """Return the student of noisy sums of what all people cast, and of public rows as the teachers see them.

        The noise of `mechanism` is that of one sum which costs as much as all rounds together. If what is not
        remembered of all rounds does not fit the budget, it is refused, and nothing was spent.
        """
        n_people, count = self.counted(ledger, mechanism, self.most(mechanism))
        found = self.in_rounds(ledger, mechanism, X_public, n_people)
        return found if count is None else found.after([count])

    def in_rounds(
        self,
        ledger: Ledger | None,
        mechanism: NoisySum,
        X_public: Matrix,
        n_people: int,
        *,
        trial_for: NoisySum | None = None,
        known: Moments | None = None,
        then: Sequence[Event] = (),
    ) -> ReleasedVectors:
        """Return the student as `release` does, where `counted` told how many people there are, or about how many.

        There is no ledger where the rows are public and the noise is simulated, so that nothing is spent. Sums may be a
        trial for others that will be released by the mechanism `trial_for`, whose features they have; `known` is the
        first mean of such a trial, which is averaged with that of the first round. There must be room for what is
        released afterwards, `then`, too.
        """
        about = [*self.about, n_people, settings_of(self.teacher), data_digest(X_public).hex()]
        features = self._kept_features(ledger, about, X_public, n_people, trial_for or mechanism)
        vectors_of = require_public_map(features, "BallotRounds")
        seen = vectors_of.transform(X_public)
        student = NoisySumClassifier().fit_moments(seen, [], n_rows=n_people, classes=self.classes)
        about = [*about, *(["trial", trial_for.key()] if trial_for else [])]
        rounds, ballots, parts = list[Moments](), list[BallotSum](), list[SumRelease]()
        for number in range(self.teacher.rounds):
            of_round = NoisySum(self.teacher.noise_of_round(mechanism.noise_multiplier, number))
            radius = student.radius(seen)
            products_of = partial(_products, chained(self.people.first_map, features), student)
            ballots.append(self.teacher.cast(self._blocks(number), products_of, radius, self.people.unit))
            # The subject of a later round follows from the sums before, which are part of its name: as whole numbers,
            # which are the same on every machine.
            about = [*about, [] if not parts else data_digest(parts[-1].values).hex()]
            if not rounds and ledger is not None:
                self.require_room(ledger, [self.of_rounds(mechanism), *then], of_round, ballots[0], about)
            parts.append(self._released(ledger, of_round, ballots[-1], about))
            sigma = of_round.event(ballots[-1], simulated=self.noise.simulated).sigma
            found = Moments.of_sum(parts[-1].values, sigma, self.teacher.scale(radius) * n_people, radius)
            rounds.append(found.averaged_with(known) if known is not None and not rounds else found)
            student = NoisySumClassifier().fit_moments(seen, rounds, n_rows=n_people, classes=self.classes)
        return ReleasedVectors(
            ballots=tuple(ballots),
            moments=tuple(rounds),
            student=Pipeline([*features.steps, ("classifier", student)]),
            n_people=n_people,
            event=Composed(tuple(part.event for part in parts)),
            cost=sum(part.cost for part in parts),
            reservations=frozenset[int]().union(*(part.reservations for part in parts)),
        )

    def check_public(self, mechanism: NoisySum, X_public: Matrix) -> None:
        """Refuse public rows from which no features can be learned, before the number of people is released."""
        if self._count_is_private:
            self._features(X_public, len(X_public), mechanism)

    def _features(self, X_public: Matrix, n_people: int, mechanism: NoisySum) -> Pipeline:
        """Return the features that the ballots are cast by, learned from public rows."""
        features = self.teacher.features(
            X_public,
            n_classes=len(self.classes),
            n_people=n_people,
            noise_multiplier=mechanism.noise_multiplier,
        )
        check_row_by_row(require_public_map(features, "BallotRounds"), X_public)
        return features

    def _kept_features(
        self, ledger: Ledger | None, about: Sequence[Any], X_public: Matrix, n_people: int, mechanism: NoisySum
    ) -> Pipeline:
        """Return the features as they were first learned for these sums, on whatever machine that was."""
        if ledger is None:
            return self._features(X_public, n_people, mechanism)
        name = canonical([*about, mechanism.key()])
        return map_from_bytes(ledger.kept(name, lambda: map_to_bytes(self._features(X_public, n_people, mechanism))))

    def _released(
        self, ledger: Ledger | None, mechanism: NoisySum, ballots: BallotSum, about: Sequence[Any]
    ) -> SumRelease:
        """Release a sum through a ledger, or where there is none under simulated noise."""
        if ledger is not None:
            return release_sum(ballots, mechanism, ledger, about, self.noise)
        if not self.noise.simulated:
            raise InvalidParameterError("Sums that no ledger is charged for must have simulated noise.")
        drawn = mechanism.release(ballots, self.noise)
        return SumRelease(drawn.values, drawn.event, 0.0, frozenset())

    def _blocks(self, number: int) -> Iterator[PeopleBlock]:
        """Return the private rows of one round, under a progress bar."""
        title = f"Casting ballots, round {number + 1} of {self.teacher.rounds}"
        blocks, n_people = self.people.blocks(), self.people.n_people
        return progress_bar(blocks, title, n_people, shown=self.progress, size=lambda one: len(np.unique(one.people)))

    @property
    def about(self) -> list[Any]:
        """Question and class values: the beginning of the name of every sum."""
        return [self.question, *(str(value) for value in self.classes.tolist())]

    @property
    def _count_is_private(self) -> bool:
        """Whether the number of people is private."""
        return bool(self.of_count(NoisySum(1.0)))

    def counted(self, ledger: Ledger, mechanism: NoisySum, whole: Event) -> tuple[int, SumRelease | None]:
        """Return how many people there are; where that is private, about how many, and the release that says so."""
        if not self._count_is_private:
            return self.people.n_people, None
        ballots = BallotSum(np.array([[self.people.n_people]]), 1, self.people.unit)
        of_count, about = _of_count(mechanism), [*self.about, "people"]
        self.require_room(ledger, [whole], of_count, ballots, about)
        count = release_sum(ballots, of_count, ledger, about, self.noise)
        return max(1, int(count.values[0, 0])), count

    def require_room(
        self, ledger: Ledger, whole: Sequence[Event], first: NoisySum, ballots: BallotSum, about: Sequence[Any]
    ) -> None:
        """Refuse what does not fit as a whole, before the first of it is spent, unless that was released before."""
        event = first.event(ballots, simulated=self.noise.simulated)
        if not ledger.recall([_query(ledger, first, event, about)]):
            ledger.require(Composed(tuple(whole)), 1)


def _products(vectors_of: FeatureMap, student: NoisySumClassifier, block: PeopleBlock) -> tuple[Matrix, Matrix]:
    """Return the vectors of some private rows, and what the student gets wrong on them."""
    each = np.arange(len(block.rows))[:, np.newaxis]
    vectors = features_of_private(vectors_of, block.rows, each, len(student.coef_))
    return vectors, student.residuals(vectors, block.labels)


def _of_count(mechanism: NoisySum) -> NoisySum:
    return NoisySum(mechanism.noise_multiplier * _NOISE_OF_COUNT)


def _query(ledger: Ledger, mechanism: NoisySum, event: NoisySumGaussian, about: Sequence[Any]) -> bytes:
    context = {"sum": list(about), "mechanism": mechanism.key(), "event": event.as_dict()}
    return ledger.query_hashes(context, np.zeros((1, 1)))[0]


def _shaped(numbers: Sequence[int], ballots: BallotSum) -> IntArray:
    return np.array(numbers, dtype=np.int64).reshape(ballots.totals.shape)
