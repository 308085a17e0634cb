"""The release of one fit: labels from votes or a noisy sum, spent from a ledger tied to the private rows."""

import os
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.forks import BriefLock
from tutelage._internal.typing import IntArray, Matrix
from tutelage.accounting import data_independent
from tutelage.accounting.calibration import noise_within, require_within
from tutelage.accounting.filter import Accounting, limit_of
from tutelage.ballots import BallotSum
from tutelage.events import Composed, Event, Repeated
from tutelage.exceptions import LedgerError, LedgerMismatchError
from tutelage.labeling.batches import PeopleInBatches
from tutelage.labeling.rounds import AskedRounds, ask_in_rounds, even_rounds, first_predictions, round_rows
from tutelage.labeling.session import LabelingSession, require_room
from tutelage.labeling.sums import BallotRounds
from tutelage.ledger import Ledger
from tutelage.ledger.digests import RunningDigest, data_digest, table_digest
from tutelage.ledger.entries import canonical
from tutelage.ledger.ledger import existing_ledger, opened_ledger, require_terms
from tutelage.mechanisms import Mechanism, NoisySum, Release
from tutelage.noise import NoiseSource
from tutelage.partition import Shards, canonical_ids
from tutelage.privacy import PrivacyUnit
from tutelage.students import Moments
from tutelage.students.selection import Medoids, PublicKnowledge, QuerySelector
from tutelage.tables import Table
from tutelage.teachers import NearestTeachers
from tutelage.votes import VoteHistogram

Made = TypeVar("Made")
VotesOrPeople = VoteHistogram | NearestTeachers
_DEFAULT_EPSILON = 1.0  # where the noise follows from the budget, and neither is named


class People(NamedTuple):
    """Keys that identify a data set to its ledger. Private."""

    rows: Matrix
    labels: npt.NDArray[Any]
    entity_ids: npt.NDArray[Any] | None
    silos: npt.NDArray[Any] | None
    whole_rows: npt.NDArray[Any] | Table

    def __repr__(self) -> str:
        return "People(<private rows hidden>)"

    def digest(self) -> bytes:
        """Return the digest of the entities or, where none are named, of the rows with all their columns."""
        if self.entity_ids is not None:
            return RunningDigest().add_people(np.unique(canonical_ids(self.entity_ids)).tolist()).digest()
        whole = self.whole_rows
        return table_digest(whole) if isinstance(whole, Table) else data_digest(whole)


class Spent(NamedTuple):
    """Number and total ε of the fits without a ledger in this process; public."""

    fits: int
    unit: str
    epsilon: float


@final
class FitsWithoutLedger:
    """Counts the fits without a ledger in this process, which no ledger adds up; public."""

    def __init__(self) -> None:
        self._fits = 0
        self._queries = Counter[Event]()
        self._units = set[str]()
        self._lock = BriefLock()

    def count(self, one: Event, queries: int, unit: str, delta: float) -> Spent:
        """Count a fit before its labels are drawn; return the worst-case ε of all fits so far, at `delta`.

        `one` is the most that one query can be, of one teacher; `unit` is the unit that the fit protects.
        """
        with self._lock:
            self._fits += 1
            self._queries[one] += queries
            self._units.add(unit)
            event = Composed(tuple(Repeated(one, queries) for one, queries in self._queries.items()))
            # Protection of all rows of an entity covers each row. The reverse does not hold.
            name = unit if len(self._units) == 1 else "row"
            return Spent(self._fits, name, data_independent.epsilon(event, delta).epsilon)


WITHOUT_LEDGER = FitsWithoutLedger()


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitBudget:
    """The budget that one fit spends from."""

    ledger: str | os.PathLike[str] | Ledger | None  # None for one that holds this fit alone
    epsilon: float | None  # what this fit may cost; None for the whole budget
    budget: float | None  # of a new ledger; None for one that is just large enough, or whatever an old one has
    delta: float
    people: People | PeopleInBatches  # whose rows the ledger is tied to
    unit: PrivacyUnit  # whom it protects
    data_changed: bool  # whether the rows may be others than those it is tied to
    identity: str  # of everything declared for the release: an equal one is the same release
    accounting: Accounting  # how the noise of this fit is found
    accounting_of_new: Accounting  # how a new ledger keeps its limit

    def least_noise(self, event_of: Callable[[float], Event]) -> float:
        """Return the least noise at which a release costs at most `epsilon`, or the whole budget."""
        existing = existing_ledger(self.ledger)
        begun = None if existing is None else existing.intended_noise(self.identity)
        if begun is not None:  # never found again, which might give other digits
            return begun
        limit = limit_of(self.budget or self._target, self.delta, self.accounting_of_new)
        return noise_within(existing.limit if existing else limit, event_of, self.epsilon, self.accounting)

    def opened(self, event: Event, queries: int, *, noise_by_budget: bool) -> Ledger:
        """Return the ledger with a binding of its own; the file of a new one appears with its first reservation."""
        default = self._target if noise_by_budget and existing_ledger(self.ledger) is None else None
        found = opened_ledger(
            self.ledger,
            event,
            queries,
            epsilon=self.budget or default,
            delta=self.delta,
            unit=self.unit,
            accounting=self.accounting_of_new,
            suited=not noise_by_budget,  # which was found at the other order, and the same fit must find it again
        )
        ledger = found.for_release()
        if self.ledger is not None:
            ledger.bind(self.people.digest(), changed=self.data_changed)
        self._refuse_second(ledger)
        if not ledger.has_file:
            ledger.make_only_if(partial(self._refuse_second, ledger))
        return ledger

    def check(self) -> None:
        """Refuse a ledger of another budget or unit, or a second one of the same data, without writing to any."""
        existing = existing_ledger(self.ledger)
        if existing is None:
            self._refuse_second(
                Ledger.in_memory(epsilon=self._target, delta=self.delta, unit=self.unit, accounting=self.accounting)
            )
        else:
            require_terms(existing, self.budget, self.delta, self.unit)
            require_within(self.epsilon, existing.limit)

    @property
    def _target(self) -> float:
        return self.epsilon or _DEFAULT_EPSILON

    def _refuse_second(self, ledger: Ledger) -> None:
        """Refuse to create a second ledger next to one with the budget of the same people or rows."""
        if self.ledger is None or isinstance(self.ledger, Ledger) or ledger.has_file:
            return
        if others := sorted(set(Path(self.ledger).parent.glob("*.ledger")) - {Path(self.ledger)}):
            digest = self.people.digest()
            if other := next((path for path in others if _is_of(path, digest)), None):
                raise LedgerMismatchError(
                    f"{other.name} contains the budget of these data. Pass it as `ledger`; another ledger would be a "
                    "second budget."
                )


def _is_of(path: Path, digest: bytes) -> bool:
    with suppress(LedgerError):  # one that cannot be read
        return Ledger.open(path, read_only=True).is_of(digest)
    return False


class Queries(NamedTuple):
    """Public rows, and the selection of queries among them."""

    public: Matrix
    seen: Matrix  # what the student sees of them
    sizes: tuple[int, ...]  # of the rounds
    first: QuerySelector
    chosen: IntArray  # in the first round
    voted: IntArray  # which teachers vote on beforehand
    seed: int

    @classmethod
    def chosen_by(
        cls, selector: QuerySelector, public: Matrix, seen: Matrix, n_queries: int, rounds: int, seed: int
    ) -> "Queries":
        """Return the queries; `Medoids` choose the first round where the rule needs labels."""
        sizes, first = even_rounds(n_queries, rounds), Medoids() if selector.needs_answers else selector
        chosen = round_rows(first, PublicKnowledge.before(seen), sizes[0], seed)
        return cls(public, seen, sizes, first, chosen, chosen if rounds == 1 else np.arange(len(public)), seed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitRelease:
    """The release of a fit; public except for votes and ballots."""

    asked: AskedRounds  # labels of public rows
    n_drawn: int  # how many different queries got their label in this fit; the others were answered earlier
    n_remembered: int
    reservations: Collection[int]  # entries of the ledger under which its answers were drawn, now or earlier
    n_teachers: int | None  # how many teachers voted; None where that is private
    votes: VoteHistogram | None = None  # the private votes, where teachers were trained
    # The private sums of what people cast, batch after batch.
    ballots: tuple[BallotSum, ...] | tuple[VoteHistogram, ...] = ()
    moments: tuple[Moments, ...] = ()  # what was released of each noisy sum, as the student takes it
    student: Any = None  # the student, where it comes with the labels


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskingVoters:
    """Labels of queries, from votes of teachers."""

    mechanism: Mechanism
    noise: NoiseSource
    queries: Queries
    later_selector: QuerySelector  # chooses the rows of later rounds, by the predictions of `student`
    student: Any
    shards: Shards  # whose rows they vote by
    classes: npt.NDArray[Any]
    question: Any
    # Trains the teachers and returns their votes, or returns people who vote on whatever is asked.
    voters: Callable[[], VotesOrPeople]
    capped_by_ledger: bool  # whether people vote, held by the ledger to a cap over all queries

    @property
    def n_queries(self) -> int:
        """How many queries there are."""
        return sum(self.queries.sizes)

    def event_of_one(self, unit: PrivacyUnit) -> Event:
        """Return the largest event of one query."""
        return self.mechanism.event_of_one(len(self.classes), unit, simulated=self.noise.simulated)

    def prepare(self, ledger: Ledger) -> Callable[[Ledger], FitRelease]:
        """Refuse more than the ledger allows, train the teachers, and return a function that releases labels."""
        queries, one = self.queries, self.event_of_one(self.shards.unit)
        first = first_predictions(self.mechanism, len(queries.chosen), len(self.classes))
        chosen = queries.public[queries.chosen]
        require_room(ledger, self.mechanism, one, chosen, self._about, first, campaign=self.capped_by_ledger)
        return partial(self._release, self.voters())

    def _release(self, voters: VotesOrPeople, ledger: Ledger) -> FitRelease:
        """Spend, draw and return labels, round after round."""
        queries, several = self.queries, len(self.queries.sizes) > 1
        session = LabelingSession(
            voters,
            self.mechanism,
            ledger,
            question=self._about,
            X_voted=None if self.capped_by_ledger else queries.public[queries.voted],
            noise=self.noise,
        )
        asked = ask_in_rounds(
            session,
            queries.public,
            queries.sizes,
            first=queries.first,
            then=self.later_selector,
            student=self.student if several else None,
            features=queries.seen,
            seed=queries.seed,
        )
        votes = voters if isinstance(voters, VoteHistogram) else None
        return FitRelease(
            asked=asked,
            n_drawn=session.n_drawn,
            n_remembered=session.n_remembered,
            reservations=session.reservations,
            n_teachers=self.shards.n_shards if self.shards.people is None else None,
            votes=votes.select(asked.queries) if votes is not None and several else votes,
            ballots=session.votes if votes is None else (),
        )

    @property
    def _about(self) -> str:
        return canonical([self.question, [str(value) for value in self.classes.tolist()]])


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskingSum:
    """A noisy sum of ballots, and with it labels of all public rows and the student in closed form."""

    ballot_rounds: BallotRounds  # who casts which ballots
    mechanism: NoisySum
    asked: Matrix  # public rows as the teachers see them
    n_queries: int = 1

    def event_of_one(self, unit: PrivacyUnit) -> Event:
        """Return the largest event of all sums."""
        return self.ballot_rounds.most(self.mechanism, unit)

    def prepare(self, ledger: Ledger) -> Callable[[Ledger], FitRelease]:
        """Refuse new sums that the ledger does not allow; return a function that releases them."""
        self.ballot_rounds.check_public(self.mechanism, self.asked)
        if ledger.state().spent == 0:
            ledger.require(self.event_of_one(self.ballot_rounds.people.unit), 1)
        return self._release

    def _release(self, ledger: Ledger) -> FitRelease:
        """Spend, draw and return the labels that the student gives."""
        released = self.ballot_rounds.release(ledger, self.mechanism, self.asked)
        labels = np.searchsorted(self.ballot_rounds.classes, released.student.predict(self.asked))
        of_all, n_rows = np.arange(len(self.asked)), len(self.asked)
        n_drawn = n_rows if released.cost else 0
        return FitRelease(
            asked=AskedRounds(of_all, Release(labels, released.event, released.cost), (n_rows,)),
            n_drawn=n_drawn,
            n_remembered=n_rows - n_drawn,
            reservations=released.reservations,
            n_teachers=released.n_people,
            ballots=released.ballots,
            moments=released.moments,
            student=released.student,
        )


Asking = AskingVoters | AskingSum  # what a fit is about to release, before anything is spent
