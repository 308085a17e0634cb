"""The only door between private rows and what is released: people, ledger and noise meet here and nowhere else.

This is the field's privacy filter, with a memory. It answers the requests of a method (`tutelage.methods`): what was
released before is recalled; ballots are cast and their form is compared with the one that was asked for; the budget is
reserved; noise is drawn; and the reservation is settled by what happened. The members of a consortium, of whom each
draws a share of the noise or none, pay at a door of their own (`BatchBoundary`).
"""

import hashlib
import json
import sys
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self, final

import numpy as np

from tutelage import mechanisms
from tutelage._internal.records import by_keywords
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, NeverPickled
from tutelage.accounting.filter import Filter, holding
from tutelage.events import Composed, Event, Repeated
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidBallotError,
    InvalidDataError,
    InvalidParameterError,
    LedgerError,
    LedgerLockedError,
    LedgerMismatchError,
    LedgerStorageError,
    TutelageError,
)
from tutelage.ledger import Labels, Ledger
from tutelage.ledger.account import (
    Account,
    CampaignVotes,
    NewQueries,
    Queries,
    Reservation,
)
from tutelage.ledger.beginning import Intent, Whom
from tutelage.ledger.campaigns import Voters
from tutelage.ledger.history import History
from tutelage.ledger.ledger import LedgerOrPath, existing_ledger, open_ledger, require_terms
from tutelage.ledger.search import ledgers_near
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.methods.base import Method
from tutelage.methods.requests import (
    Answer,
    Asking,
    Kept,
    Public,
    Request,
    Result,
    Sizes,
    Wishes,
    first_places,
    run_steps,
)
from tutelage.noise import NoiseSource, SystemNoise
from tutelage.privacy import PrivacyUnit, round_up
from tutelage.terms import Asked, Terms, terms_of

_OWN_MECHANISMS: list[type[Mechanism]] = [
    kind
    for kind in vars(mechanisms).values()
    if isinstance(kind, type) and issubclass(kind, Mechanism) and kind is not Mechanism
]
# Their names, as keys have them.
_OWN_NAMES = {kind.__qualname__: kind for kind in _OWN_MECHANISMS} | {
    kind.key_name: kind for kind in _OWN_MECHANISMS
}
Filing = Callable[[int, Any], object]
Guard = Callable[[History], object]
_Stored = dict[str, bytes]  # files by name


@final
class Boundary:
    """Releases what methods ask for, within the budget of a ledger.

    Parameters
    ----------
    ledger : Ledger
        The budget of the people.
    noise : NoiseSource
        Where noise comes from.
    prepared : object
        Who casts ballots; private. See `tutelage.methods.requests.Prepared`.
    file : function, optional
        Stores private ballots, by the number of their reservation, before noise is drawn: a process that is killed
        later loses none.
    """

    def __init__(
        self, ledger: Ledger, noise: NoiseSource, prepared: Any = None, file: Filing | None = None
    ) -> None:
        self.ledger = ledger
        # Where a release spends, once it has its turn: of its own people.
        self.account = ledger.account
        self.prepared = prepared
        self._file = file
        self.kept: list[Kept] = []  # private
        self.n_earlier = 0  # answers of earlier releases that were recalled
        self._answered: list[Answer] = []
        self._noise = noise
        self._unstored: tuple[Reservation, dict[bytes, Labels], Event] | None = None
        self._reserved = set[int]()  # entries under which answers were drawn here
        # Whether the noise of an answer was drawn here, or earlier.
        self._drawn = dict[bytes, bool]()

    @property
    def n_drawn(self) -> int:
        """Number of different answers whose noise was drawn here."""
        return sum(self._drawn.values())

    @property
    def n_remembered(self) -> int:
        """Number of different answers that were there before: these ballots do not show in them."""
        return len(self._drawn) - self.n_drawn

    @property
    def reservations(self) -> frozenset[int]:
        """The entries of the ledger under which all answers were drawn, now or earlier."""
        earlier = [key for key, is_here in self._drawn.items() if not is_here]
        if not earlier:
            return frozenset(self._reserved)
        return self.account.drawn_under(earlier) | self._reserved

    @property
    def event(self) -> Event:
        """All that was charged here."""
        events = [answer.event for answer in self._answered]
        if len(events) == 1:
            return events[0]
        return Composed(tuple(events))

    @property
    def cost(self) -> float:
        """The cost of all that was charged here, in ε of the budget."""
        return sum(answer.cost for answer in self._answered)

    def run(self, steps: Asking[Result]) -> Result:
        """Answer one request after the other, and return what the method makes of the answers."""
        try:
            return run_steps(
                steps,
                self._answer,
                lambda learned: self.account.keep(learned.name, learned.make),
            )
        except InvalidDataError as error:
            if self.cost:
                error.args = (
                    f"{error} ε = {round_up(self.cost):.4f} of the budget was spent before that, on sums or "
                    "labels that are remembered.",
                )
            raise

    def _answer(self, request: Request) -> Answer | None:
        """Return the answers to a request, to the first rows of it, or to what earlier releases asked."""
        if request.earlier:
            return self._recall_earlier(request)
        if request.partial:
            return self._release_in_part(request)
        return self.release(request)

    def _recall_earlier(self, request: Request) -> Answer | None:
        """Return what earlier releases answered: it is not asked of the people of this release."""
        keys = self.keys(request)
        event = Repeated(self.event_of_one(request), 0)
        answers = self.account.recall_earlier(keys)
        if not answers or (len(answers) < len(set(keys)) and request.is_of_sum):
            return None
        self.n_earlier += len(answers)
        values = np.array([answers.get(key, (ABSTAIN,)) for key in keys], dtype=np.int64)
        return Answer(values, event, 0.0)

    def require_room(self, method: Method, public: Public) -> None:
        """Refuse what a method is about to ask where there is no room for what is not remembered of it."""
        first = next(method.steps(public))
        if isinstance(first, Request):
            self._recall_with_room(first, self.event_of_one(first), self.keys(first))
        elif not self.account.keeps(first.name):  # so nothing was asked by it
            most = method.event(public.sizes)
            self.account.quote(most.event, most.count)

    def keys(self, request: Request) -> list[bytes]:
        """Return what the ledger remembers each answer by."""
        require_name_of_its_own(request.mechanism)
        rows = [request.rows]
        if request.predictions is not None:
            rows.append(request.predictions)
        return self.account.keys(request.context(self.event_of_one(request)), *rows)

    def room(self, request: Request) -> int:
        """Return how many more new answers the budget allows, each at its most expensive."""
        fitting = self.account.fitting(self.event_of_one(request))
        if request.form.cap is not None and (fitting > 0 or self._is_campaign_open(request)):
            return sys.maxsize  # one event pays for all
        return fitting

    def fitting(self, request: Request, keys: list[bytes]) -> int:
        """Return how many rows, from the first on, the budget allows now; those that were answered are free."""
        if request.form.cap is not None and self.room(request) == sys.maxsize:
            return len(keys)
        return self.account.fitting(self.event_of_one(request), keys)

    def recall(self, request: Request) -> dict[bytes, Labels]:
        """Return the remembered answers of a request by their keys; repeating them costs nothing."""
        return self.account.recall(self.keys(request))

    def release(self, request: Request, guard: Guard | None = None) -> Answer:
        """Return the answers, of which those that are new are paid for and drawn now; all new ones fit, or none.

        The `guard` may refuse new ones by what was done through the ledger.
        """
        keys = self.keys(request)
        with self.account.turn(keys if self._unstored is None else ()):
            self.store_late()
            labels, event, cost = self._labels(request, keys, guard)
        # values: (queries, numbers)
        values = np.array([labels[key] for key in keys], dtype=np.int64)
        answer = Answer(values, event, cost)
        self._answered.append(answer)
        return answer

    def _release_in_part(self, request: Request) -> Answer | None:
        """Return the answers to the first rows, as many as the budget allows; None for none."""
        keys = self.keys(request)
        while True:
            fitting = self.fitting(request, keys)
            if not fitting:
                return None
            with suppress(BudgetExceededError):  # somebody else spent in between
                return self.release(request.of_rows(slice(fitting)))

    def _labels(
        self, request: Request, keys: list[bytes], guard: Guard | None
    ) -> tuple[Mapping[bytes, Labels], Event, float]:
        """Return the answer to each key, while no other release goes on through the ledger."""
        event = self.event_of_one(request)
        places = first_places(keys)
        # Room for new labels is found before anyone casts a ballot.
        answers = self._recall_with_room(request, event, places)
        self._drawn = dict.fromkeys(answers, False) | self._drawn
        new = [key for key in places if key not in answers]
        if not new:
            return answers, Repeated(event, 0), 0.0
        if guard is not None:
            guard(self.ledger.history())

        ballots, predictions = self._cast(request, np.array([places[key] for key in new]))
        if isinstance(ballots, Wishes):
            drawn, reserved = self._draw_granted(request, event, new, ballots)
            return {**answers, **drawn}, reserved, self.account.share_of(reserved)

        reserved = self.account.reserve(NewQueries(event, places))
        answered = reserved.answers
        self._drawn = dict.fromkeys(answered, False) | self._drawn
        if reserved.reservation is None:
            return answered, Repeated(event, 0), 0.0
        if len(answered) > len(answers):  # others were quicker, where the ledger takes no turns
            is_left = np.array([key not in answered for key in new])
            new = [key for key in new if key not in answered]
            ballots = ballots.select(is_left)
            if predictions is not None:
                predictions = predictions[is_left]
        drawn, share, happened = self._draw(
            request, reserved.reservation, new, ballots, predictions
        )
        return answered | drawn, happened, share

    def _cast(self, request: Request, rows: IntArray) -> tuple[Any, FloatArray | None]:
        """Return the ballots on these rows of a request, in the form that it asks for, and the predictions for them."""
        ballots: Any = request.ballot.cast(self.prepared, request, rows)
        predictions = request.predictions
        if predictions is not None:
            predictions = predictions[rows]
        is_campaign = isinstance(ballots, Wishes)
        if not is_campaign:
            request.mechanism.check(ballots, predictions)
        if is_campaign != request.campaign or not request.form.holds(ballots.form):
            raise InvalidBallotError("The ballots do not have the form that the request asks for.")
        return ballots, predictions

    def _draw_granted(
        self, request: Request, event: Any, new: list[bytes], wishes: Wishes
    ) -> tuple[dict[bytes, Labels], Event]:
        """Return new labels of a campaign, and what was paid: people vote while they have votes left.

        The first batch pays for all.
        """
        voters = Voters(wishes.names, wishes.digest)
        wanted = wishes.votes.per_teacher()
        granted = self.account.reserve(
            CampaignVotes(event, self._campaign(request), voters, wanted, len(new))
        )
        ballots = wishes.histogram(granted.votes)
        labels, _, _ = self._draw(
            request, granted.reservation, new, ballots, None, granted.campaign
        )
        return labels, Repeated(event, int(granted.is_paid_now))

    def event_of_one(self, request: Request) -> Event:
        """Return the most that one answer can be."""
        return request.mechanism.most(request.form, simulated=self._noise.simulated)

    def _recall_with_room(
        self, request: Request, event: Event, keys: Collection[bytes]
    ) -> Mapping[bytes, Labels]:
        """Return the remembered answers of a request, and refuse it where there is no room for what is new of it."""
        if not request.campaign:
            return self.account.quote(event, keys, request.total)
        answers = self.account.recall(keys)
        if len(answers) < len(set(keys)) and not self._is_campaign_open(request):
            self.account.quote(event, 1)
        return answers

    def _draw(
        self,
        request: Request,
        reservation: Reservation,
        keys: list[bytes],
        ballots: Any,
        predictions: FloatArray | None,
        campaign: Reservation | None = None,
    ) -> tuple[dict[bytes, Labels], float, Event]:
        """Draw and settle what was reserved; return the labels that count, their share of ε, and what was run."""
        if self._file is not None:
            self._file(reservation.number, ballots)
        try:
            drawn = request.mechanism.release(ballots, self._noise, predictions)
            if len(drawn.answers) != len(keys):
                raise LedgerError(
                    "The mechanism returned the wrong number of answers, so none were released."
                )
            answers = dict(zip(keys, drawn.answers, strict=True))
        except Exception:
            # It stays spent, and the step is closed: it must not be drawn again for free.
            self.account.forfeit(reservation)
            raise

        self.kept.append(Kept(request, ballots, drawn, predictions))
        self._drawn |= dict.fromkeys(keys, True)
        self._reserved.add(reservation.number)
        happened = drawn.event
        if campaign is not None:
            # The mechanisms of a campaign were charged once, by the campaign.
            happened = Repeated(campaign.event, 0)
            self._reserved.add(campaign.number)
        # Until it is stored, or in vain: whatever interrupts this, noise that was drawn is never drawn a second time.
        self._unstored = reservation, answers, happened
        try:
            settled = self.account.settle(reservation, answers, happened)
        except (LedgerStorageError, LedgerLockedError):
            raise
        except TutelageError:
            # The mechanism did not keep to what it had announced, perhaps because of its noise.
            self._unstored = None
            self._reserved.discard(reservation.number)  # under which nothing came out
            self.account.forfeit(reservation)
            raise
        self._unstored = None
        return settled.labels, settled.share, happened

    def store_late(self) -> None:
        """Store what could not be stored when it was drawn, or forget it if another process drew something else."""
        if self._unstored is None:
            return
        reservation, answers, happened = self._unstored
        with self.account.turn():
            if not self.account.is_settled(reservation):
                self.account.settle(reservation, answers, happened)
            elif self.account.recall(answers) != answers:
                # It took over the step; these answers are never released.
                self.kept.pop()
                self._drawn |= dict.fromkeys(answers, False)
        self._unstored = None

    def _is_campaign_open(self, request: Request) -> bool:
        """Return whether the budget of a campaign is spent."""
        return request.campaign and self.account.find(self._campaign(request)) is not None

    def _campaign(self, request: Request) -> str:
        """Return the name of the campaign of a request in the ledger."""
        context = json.dumps(request.context(self.event_of_one(request)), sort_keys=True)
        name = f"campaign {hashlib.sha256(context.encode()).hexdigest()}"
        if self.account.release is None:
            return name
        return f"{name} of {self.account.release}"


class _HasQueries(Protocol):
    """A batch, of which the boundary knows how many queries it has."""

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        ...


@final
class BatchBoundary:
    """The door of a member of a consortium, for batches that several members answer together; each pays by itself.

    Parameters
    ----------
    ledger : Ledger
        The budget of this member.
    name_of : function
        Returns how the ledger calls a batch: no other batch has that name.
    """

    def __init__(
        self, ledger: Ledger, name_of: Callable[..., str], account: Account | None = None
    ) -> None:
        self.ledger = ledger
        self._account = account or ledger.account
        self._name_of = name_of

    @contextmanager
    def turn(self, whom: Whom | None = None) -> Generator[Self]:
        """Hold off all other releases and withdrawals, and yield the door for what is opened of these people."""
        with self.ledger.begin(None, whom) as scope:
            yield type(self)(self.ledger, self._name_of, scope.account)

    def recall(self, keys: Collection[bytes]) -> dict[bytes, Labels]:
        """Return the remembered answers among keys."""
        return self._account.recall(keys)

    def require(self, most: Event, queries: int) -> None:
        """Refuse what has no room; spend nothing."""
        self._account.quote(most, queries)

    def reservation_of(self, batch: _HasQueries) -> Reservation | None:
        """Return the reservation of a batch, or None."""
        return self._account.find(self._name_of(batch))

    def is_closed(self, batch: _HasQueries) -> bool:
        """Return whether a batch was paid for and is settled."""
        reservation = self.reservation_of(batch)
        return reservation is not None and self._account.is_settled(reservation)

    def open(self, batch: _HasQueries, event: Event) -> Reservation:
        """Pay for a batch what it costs at most if each query is this event, once, however often it is called."""
        return self._account.reserve(Queries(event, batch.n_queries, self._name_of(batch)))

    def share(
        self,
        batch: _HasQueries,
        reservation: Reservation,
        draw: Callable[[NoiseSource], _Stored],
        keep: Callable[[_Stored], _Stored],
    ) -> tuple[_Stored, bool]:
        """Draw this member's share of the noise, and return what is stored and whether another process stored it first.

        The stored shares are sent, and sent again: noise is never drawn twice.
        """
        # This is refused if a person withdrew since, and is not left out.
        self.open(batch, reservation.event)
        try:
            made = draw(SystemNoise())
        except Exception:
            self._account.forfeit(reservation)
            raise
        stored = keep(made)
        return stored, stored != made

    def close(
        self, reservation: Reservation, answers: dict[bytes, Labels], happened: Event
    ) -> None:
        """Settle a batch by what was opened of it, if it is not settled yet."""
        with self._account.turn():  # of two processes, the second finds what the first one settled
            if not self._account.is_settled(reservation):
                self._account.settle(reservation, answers, happened)


def require_name_of_its_own(mechanism: Mechanism | NoisySum) -> None:
    """Refuse a mechanism that the ledger, which remembers answers by its name, would take for another one."""
    kind = type(mechanism)
    for name in (kind.__qualname__, mechanism.key().partition("(")[0]):
        if _OWN_NAMES.get(name, kind) is not kind:
            raise InvalidParameterError(
                "mechanism",
                "have a class name and a key that no mechanism of tutelage has",
                f"a class of your own named {kind.__qualname__}",
                "Rename your class, or change its key.",
            )


@final
@by_keywords
class Budget(NeverPickled):
    """The budget that one fit spends from; it knows the people."""

    ledger: LedgerOrPath | None  # None for one that holds this fit alone
    asked: Asked
    digest: Callable[[], bytes]  # of the people whose rows the ledger is tied to
    unit: PrivacyUnit  # whom it protects
    data_changed: bool  # whether the rows may be others than those it is tied to
    identity: str  # of everything declared for the release: an equal one is the same release
    method: Method  # whose noise may be to be found
    release: str | None = None  # its name, where people who come later have a budget of their own
    # Everything declared but the name: releases that are alike but for it teach one student.
    question: str = ""
    people: Callable[[], Sequence[str]] = tuple  # ids, each once; private

    def least_noise(self, event_of: Callable[[float], Event]) -> float:
        """Return the noise with which the release was begun, or else the least that its terms allow."""
        stored = self.stored_noise
        if stored is not None:  # never found again, which might give other digits
            return stored
        return self.terms.least_noise(event_of)

    @property
    def _existing(self) -> Ledger | None:
        return existing_ledger(self.ledger)

    @property
    def terms(self) -> Terms:
        """The terms of this release, by what its ledger holds now."""
        existing = self._existing
        limit = None if existing is None else existing.limit
        return terms_of(self.asked, self.method.needs.accounting, limit)

    @property
    def stored_noise(self) -> float | None:
        """The noise that was found for this release, or for the first of its question that has a name."""
        existing = self._existing
        if existing is None:
            return None
        return existing.register.noise_of(self.identity, self.question)

    def open_ledger(self, method: Method, sizes: Sizes) -> Ledger:
        """Return the ledger; the file of a new one appears with its first reservation."""
        terms = self.terms
        most = method.event(sizes)
        ledger = open_ledger(
            self.ledger,
            most.event,
            most.count,
            epsilon=None if terms.limit is None else terms.limit.epsilon,
            delta=self.asked.delta,
            unit=self.unit,
            accounting=terms.accounting,
            # Noise that is found was found at the other order, and the same fit must find it again.
            suited=self.asked.given,
            check=self._refuse_second,
        )
        self.check_people(ledger)
        return ledger

    def check_people(self, ledger: Ledger) -> None:
        """Refuse a ledger of other people, or with another budget or unit."""
        if self.ledger is not None:  # which reads the limit again
            ledger.register.check_data(self.digest(), changed=self._may_change)
        require_terms(ledger, self.asked.budget, self.asked.delta, self.unit)

    def intent(self, noise: float | None, most: Event) -> Intent:
        """Return what a ledger knows the release by."""
        found_noise = None if self.asked.given else noise
        return Intent(self.identity, self.question, most, found_noise, self.release)

    def whom(self, shard_ids: Callable[[], Sequence[str]], left_out: str) -> Whom:
        """Return whose data a release uses; of one with a name, each shard of rows is a person."""
        if self.ledger is None:
            return Whom(left_out=left_out)
        ids = self.people() if self.release is None else shard_ids()
        return Whom(self.digest(), ids, left_out, self._may_change)

    @property
    def _may_change(self) -> bool:
        return self.data_changed or self.release is not None

    def check(self) -> None:
        """Refuse a ledger of another budget or unit, or a second one of the same data, without writing to any."""
        existing = self._existing
        if existing is None:
            self._refuse_second()
        else:
            require_terms(existing, self.asked.budget, self.asked.delta, self.unit)
            existing.limit.check_epsilon(self.asked.epsilon)

    def check_beginning(self, ledger: Ledger, most: Event) -> None:
        """Refuse a name, people, or a release that is `most` as the ledger would, as far as is known; write nothing."""
        if isinstance(self.ledger, Ledger):
            ledger.register.check(self.release, self.identity, most)

    def rooms(self, most: Event) -> tuple[float, dict[str, int]]:
        """Return what a release takes that is `most`, and for how many such ones people have room, by their cohort.

        No cohort is named if the release was begun before, or has no name.
        """
        existing = self._existing
        limit = self.limit_for(most)
        rooms = dict[str, int]()
        if existing is not None:
            rooms = existing.register.rooms(most)
        share = limit.share(limit.cost(most))
        if self.release is None or self.release in rooms:
            return share, {}
        return share, {**rooms, self.release: limit.fitting(most, 0)}

    def limit_for(self, most: Event) -> Filter:
        """Return the limit of the ledger, or of a new one, which without a budget just holds what is `most`."""
        return self.terms.limit or holding(most, self.asked.delta, self.terms.by_itself)

    def full(self, most: Event) -> Ledger | None:
        """Return the ledger if it has no room for a release that has no name, is `most` and was not begun before."""
        if self.release is not None or self.stored_noise is not None:
            return None
        existing = self._existing
        if existing is None or existing.account.fitting(most):
            return None
        return existing

    def _refuse_second(self) -> None:
        """Refuse to create a second ledger next to one with the budget of the same people or rows."""
        if self.ledger is None or isinstance(self.ledger, Ledger):
            return
        others = ledgers_near(Path(self.ledger))
        if not others:
            return
        digest = self.digest()
        people = self.people()
        for path in others:
            if _is_of(path, digest, people):
                raise LedgerMismatchError(
                    f"{path.name} contains the budget of these data, or of some of these people. Pass it as `ledger`; "
                    "another ledger would be a second budget."
                )


def _is_of(path: Path, digest: bytes, people: Sequence[str]) -> bool:
    with suppress(LedgerError):  # one that cannot be read
        register = Ledger.open(path, read_only=True).register
        known = register.knows(people)  # one by one, if its releases have names
        return register.is_of(digest) or (known is not None and bool(known.any()))
    return False
