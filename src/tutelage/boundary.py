"""The boundary between private rows and what is released: people, ledger and noise meet here and nowhere else.

A method (`tutelage.methods`) yields requests; `Boundary.release` answers each of them in these steps:

1. Lock: take the ledger's turn, so that no other release goes on meanwhile.
2. Check: recall the answers that the ledger remembers, which are free, and refuse the request if the budget does not
   allow the others.
3. Ballots: let teachers or people cast them, and compare their form with the one that the request asks for. A failure
   up to here spends nothing.
4. Reserve: write the worst-case cost to the ledger. It is on the disk before any noise is drawn.
5. Draw: file the private ballots for their owner, then add noise. If the mechanism fails, the reservation is
   forfeited: its budget stays spent, and nothing is released. If the process dies or is interrupted, the reservation
   stays open: the next release of these queries takes it over and draws again at no further cost, which is allowed
   because the first noise was never shown (docs/proofs/ledger.md).
6. Settle: store the answers, and refund what the worst case cost beyond what happened. If the ledger cannot be
   written, the answers stay withheld in this object; `store_late` stores them, and never draws again.

An *event* describes what a mechanism ran, by public settings from which its cost follows; a *ballot* is the vote or
vector of one teacher or person. A *campaign* is a row of batches for which one event pays, because the ledger limits
how many votes each person casts in all of them; *wishes* are the votes before that limit. In the literature, such a
boundary is a privacy filter: it stops releases before they exceed the budget, whatever later requests depend on.

In a consortium each member draws a share of the noise, or none, and spends at a boundary of its own: `BatchBoundary`.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol, Self, final

import numpy as np

from tutelage import mechanisms
from tutelage._internal.records import by_identity
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Private
from tutelage.events import (
    TIER_STEPS,
    Composed,
    Event,
    Repeated,
    TierSteps,
    in_tiers,
)
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidBallotError,
    InvalidDataError,
    InvalidParameterError,
    LedgerError,
    LedgerLockedError,
    LedgerStorageError,
    TutelageError,
)
from tutelage.ledger import Labels, Ledger
from tutelage.ledger.account import (
    Account,
    Reservation,
)
from tutelage.ledger.beginning import Whom
from tutelage.ledger.campaigns import Voters
from tutelage.ledger.history import History
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.methods.base import Method
from tutelage.methods.requests import (
    Answer,
    Asking,
    NoisedBallots,
    Public,
    Request,
    Result,
    Wishes,
    first_places,
    run_steps,
)
from tutelage.noise import NoiseSource, SystemNoise
from tutelage.privacy import round_up

Filing = Callable[[int, Any], object]
Guard = Callable[[History], object]
_Files = dict[str, bytes]  # by name


@final
@by_identity
class _Unstored(Private):
    """Answers that were drawn and are not in the ledger yet; private."""

    reservation: Reservation
    answers: dict[bytes, Labels]
    happened: Event  # run under the reservation
    charged: Event  # spent for this request; by a campaign, the whole campaign or nothing
    entries: set[int]  # of the ledger, under which the answers count as drawn
    noised: NoisedBallots


@final
@by_identity
class _Charged(Private):
    """The cost of one request, and the ballots behind answers that were drawn for it; private."""

    event: Event
    cost: float  # in ε of the budget
    noised: NoisedBallots | None = None


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
    tiers : tuple
        Names of the tiers of the people, if there are any, with the steps of each; public. Then `prepared` is a
        `PreparedTiers`, and all that can be asked for are noisy sums.
    """

    def __init__(
        self,
        ledger: Ledger,
        noise: NoiseSource,
        prepared: Any = None,
        file: Filing | None = None,
        tiers: TierSteps = (),
    ) -> None:
        self.ledger = ledger
        # A release that has its turn replaces it by the account of its own people.
        self.account = ledger.account
        self.prepared = prepared
        self._file = file
        self._noise = noise
        self._tiers = tiers
        self.n_earlier = 0  # answers of earlier releases that were recalled
        self._charged: list[_Charged] = []
        self._unstored: _Unstored | None = None
        self._entries = set[int]()  # of the ledger, under which answers were drawn here
        # By query key: whether the noise of its answer was drawn here, and not earlier.
        self._drawn_here = dict[bytes, bool]()

    @property
    def noised(self) -> list[NoisedBallots]:
        """The ballots behind the answers that were drawn here; private."""
        return [charged.noised for charged in self._charged if charged.noised is not None]

    @property
    def n_drawn(self) -> int:
        """Number of different answers whose noise was drawn here."""
        return sum(self._drawn_here.values())

    @property
    def n_remembered(self) -> int:
        """Number of different answers that were there before: these ballots do not show in them."""
        return len(self._drawn_here) - self.n_drawn

    @property
    def reservations(self) -> frozenset[int]:
        """The entries of the ledger under which all answers were drawn, now or earlier."""
        earlier = [key for key, is_here in self._drawn_here.items() if not is_here]
        return self.account.drawn_under(earlier) | self._entries

    @property
    def event(self) -> Event:
        """All that was charged for the answers given here."""
        events = [charged.event for charged in self._charged]
        if len(events) == 1:
            return events[0]
        return Composed(tuple(events))

    @property
    def cost(self) -> float:
        """The cost of the answers given here, in ε of the budget."""
        return sum(charged.cost for charged in self._charged)

    def run(self, steps: Asking[Result]) -> Result:
        """Answer one request after the other, and return what the method makes of the answers."""
        try:
            return run_steps(
                steps,
                self._answer,
                lambda learned: self.account.load_or_learn(learned.name, learned.make),
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
        """Return what earlier releases answered; the people of this release are not asked."""
        keys = self.keys(request)
        event = Repeated(self.event_of_one(request), 0)
        answers = self.account.recall_earlier(keys)
        if not answers or (len(answers) < len(set(keys)) and request.is_of_sum):
            return None
        self.n_earlier += len(answers)
        values = np.array([answers.get(key, (ABSTAIN,)) for key in keys], dtype=np.int64)
        return Answer(self._in_ballots(values), event, 0.0)

    def _in_ballots(self, values: Any) -> Any:
        """Return numbers of a sum in units of whole ballots, exactly; without tiers they are so, and whole."""
        return values / TIER_STEPS if self._tiers else values

    def require_room(self, method: Method, public: Public) -> None:
        """Refuse a method whose first request has new queries that the budget does not allow; ask nothing."""
        first = next(method.steps(public))
        if isinstance(first, Request):
            keys = self.keys(first)
            event = self.event_of_one(first)
            try:
                self._recall_with_room(first, event, keys)
            except BudgetExceededError:
                # A reservation that a crashed process left open, which pays for some, is found in the turn alone.
                if not self.ledger.state().unsettled:
                    raise
                with self.account.turn(keys):
                    self._recall_with_room(first, event, keys)
        elif not self.account.has_learned(first.name):
            # The method learns something before its first request, which is not stored: so it never asked anything.
            worst_case = in_tiers(method.event(public.sizes), self._tiers)
            self.account.require_room(worst_case, 1)

    def keys(self, request: Request) -> list[bytes]:
        """Return the key of each query, by which the ledger remembers its answer."""
        require_name_of_its_own(request.mechanism)
        rows = [request.rows]
        if request.predictions is not None:
            rows.append(request.predictions)
        return self.account.keys(request.context(self.event_of_one(request)), *rows)

    def n_fitting(self, request: Request) -> int:
        """Return how many more new answers the budget allows, each at its worst case.

        Capped votes have no such limit if the budget allows or has paid for one event: return `sys.maxsize`.
        """
        fitting = self.account.fitting(self.event_of_one(request))
        if request.form.cap is not None and (fitting > 0 or self._has_campaign_begun(request)):
            return sys.maxsize
        return fitting

    def n_fitting_rows(self, request: Request, keys: list[bytes]) -> int:
        """Return how many rows, from the first on, the budget allows now; remembered answers are free."""
        if self.n_fitting(request) == sys.maxsize:
            return len(keys)
        return self.account.fitting_queries(self.event_of_one(request), keys)

    def release(self, request: Request, guard: Guard | None = None) -> Answer:
        """Return the answers, of which new ones are drawn now; the budget allows all new ones, or none is drawn.

        The `guard` may refuse new ones by what was done through the ledger.
        """
        keys = self.keys(request)
        # A release whose answers are all remembered need not wait for others, unless it has answers to store.
        with self.account.turn(unless_answered=keys if self._unstored is None else ()):
            self.store_late()
            labels, charged = self._recall_or_draw(request, keys, guard)
        # values: (queries, numbers)
        values = np.array([labels[key] for key in keys], dtype=np.int64)
        return Answer(self._in_ballots(values), charged.event, charged.cost)

    def _release_in_part(self, request: Request) -> Answer | None:
        """Return the answers to the first rows, as many as the budget allows; None for none."""
        keys = self.keys(request)
        while True:
            fitting = self.n_fitting_rows(request, keys)
            if not fitting:
                return None
            with suppress(BudgetExceededError):  # another release spent in between
                return self.release(request.of_rows(slice(fitting)))

    def _recall_or_draw(
        self, request: Request, keys: list[bytes], guard: Guard | None
    ) -> tuple[Mapping[bytes, Labels], _Charged]:
        """Return the answer to each key, and note and return what they cost, in this release's turn: steps 2 to 6."""
        event = self.event_of_one(request)
        free = _Charged(Repeated(event, 0), 0.0)
        places = first_places(keys)
        remembered = self._recall_with_room(request, event, places)
        self._drawn_here = dict.fromkeys(remembered, False) | self._drawn_here
        new = [key for key in places if key not in remembered]
        if not new:
            self._charged.append(free)
            return remembered, free
        if guard is not None:
            guard(self.ledger.history())

        ballots, predictions = self._cast(request, np.array([places[key] for key in new]))
        if isinstance(ballots, Wishes):
            labels, charged = self._draw_granted(request, event, new, ballots)
            return {**remembered, **labels}, charged

        reserved = self.account.reserve_new(event, places)
        answered = reserved.answers
        self._drawn_here = dict.fromkeys(answered, False) | self._drawn_here
        if reserved.reservation is None:
            self._charged.append(free)
            return answered, free
        # Where the ledger's disk has no locks, others may have answered some of the queries since.
        if len(answered) > len(remembered):
            is_left = np.array([key not in answered for key in new])
            new = [key for key in new if key not in answered]
            ballots = ballots.select(is_left)
            if predictions is not None:
                predictions = predictions[is_left]
        labels, charged = self._draw(request, reserved.reservation, new, ballots, predictions)
        return answered | labels, charged

    def _cast(self, request: Request, rows: IntArray) -> tuple[Any, FloatArray | None]:
        """Return the ballots on these rows of a request, in the form that it asks for, and the predictions for them."""
        form = request.form_in(self._tiers)
        ballots: Any
        if self._tiers:
            ballots = self.prepared.cast(request, rows)
        else:
            ballots = request.ballot.cast(self.prepared, request, rows)
        predictions = request.predictions
        if predictions is not None:
            predictions = predictions[rows]
        is_campaign = isinstance(ballots, Wishes)
        if not is_campaign:
            request.mechanism.check(ballots, predictions)
        if is_campaign != request.campaign or not form.holds(ballots.form):
            raise InvalidBallotError("The ballots do not have the form that the request asks for.")
        return ballots, predictions

    def _draw_granted(
        self, request: Request, event: Any, new: list[bytes], wishes: Wishes
    ) -> tuple[dict[bytes, Labels], _Charged]:
        """Return new labels of a campaign, from the votes that each person has left; the first batch pays for all."""
        voters = Voters(wishes.names, wishes.digest)
        wanted = wishes.votes.per_teacher()
        granted = self.account.reserve_votes(
            event, self._campaign(request), voters, wanted, len(new)
        )
        ballots = wishes.histogram(granted.votes)
        return self._draw(
            request,
            granted.reservation,
            new,
            ballots,
            None,
            granted.campaign,
            pays=granted.is_paid_now,
        )

    def event_of_one(self, request: Request) -> Event:
        """Return the worst-case event of one answer."""
        form: Any = request.form_in(self._tiers)
        return request.mechanism.most(form, simulated=self._noise.simulated)

    def _recall_with_room(
        self, request: Request, event: Event, keys: Collection[bytes]
    ) -> Mapping[bytes, Labels]:
        """Return the remembered answers of a request; refuse it if the budget does not allow the others."""
        if not request.campaign:
            total = request.total
            if total is not None:
                total = in_tiers(total, self._tiers)
            return self.account.recall_with_room(event, keys, total)
        answers = self.account.recall(keys)
        if len(answers) < len(set(keys)) and not self._has_campaign_begun(request):
            self.account.require_room(event, 1)
        return answers

    def _draw(
        self,
        request: Request,
        reservation: Reservation,
        keys: list[bytes],
        ballots: Any,
        predictions: FloatArray | None,
        campaign: Reservation | None = None,
        *,
        pays: bool = False,
    ) -> tuple[dict[bytes, Labels], _Charged]:
        """Draw the answers to these keys under a reservation and store them; return those that count, and their cost.

        If this batch `pays` for its campaign, the cost of the whole campaign is charged to it, and otherwise nothing.
        """
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
            # The failure may depend on the noise. So the budget stays spent, and a repeated call pays again.
            self.account.forfeit(reservation)
            raise

        happened = charged = drawn.event
        entries = {reservation.number}
        if campaign is not None:
            # The reservation of the campaign was charged for it.
            happened = Repeated(campaign.event, 0)
            charged = Repeated(campaign.event, int(pays))
            entries.add(campaign.number)
        unstored = _Unstored(
            reservation,
            answers,
            happened,
            charged,
            entries,
            NoisedBallots(request, ballots, drawn, predictions),
        )
        # From here on, whatever interrupts this, these answers are stored or dropped, and never drawn again.
        self._unstored = unstored
        try:
            labels = self.account.settle(reservation, answers, happened)
        except (LedgerStorageError, LedgerLockedError):
            raise
        except TutelageError:
            # The mechanism ran more than was reserved, or its answers have another length: withhold them.
            self._unstored = None
            self.account.forfeit(reservation)
            raise
        return labels, self._note_stored(unstored)

    def _note_stored(self, stored: _Unstored) -> _Charged:
        """Take note that answers are in the ledger, and return what they cost."""
        self._drawn_here |= dict.fromkeys(stored.answers, True)
        self._entries |= stored.entries
        charged = _Charged(stored.charged, self.account.share_of(stored.charged), stored.noised)
        # An interrupted call may have noted them before. Cost and ballots are noted in one step.
        if not any(noised is stored.noised for noised in self.noised):
            self._charged.append(charged)
        self._unstored = None
        return charged

    def store_late(self) -> None:
        """Store answers that could not be stored when they were drawn.

        If another process took over their reservation meanwhile and drew other answers, these are dropped, unreleased.
        """
        late = self._unstored
        if late is None:
            return
        with self.account.turn():
            if not self.account.is_settled(late.reservation):
                self.account.settle(late.reservation, late.answers, late.happened)
                self._note_stored(late)
            elif self.account.recall(late.answers) == late.answers:
                self._note_stored(late)  # the call was interrupted after it had stored them
        self._unstored = None

    def _has_campaign_begun(self, request: Request) -> bool:
        """Return whether an earlier batch began the campaign of a request, and so spent its cost."""
        return request.campaign and self.account.find(self._campaign(request)) is not None

    def _campaign(self, request: Request) -> str:
        """Return the name of the campaign of a request in the ledger."""
        context = json.dumps(request.context(self.event_of_one(request)), sort_keys=True)
        name = f"campaign {hashlib.sha256(context.encode()).hexdigest()}"
        if self.account.release_name is None:
            return name
        return f"{name} of {self.account.release_name}"


class _HasQueries(Protocol):
    """A batch, of which the boundary knows how many queries it has."""

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        ...


@final
class BatchBoundary:
    """The boundary of a consortium's member, for batches that several members answer; each spends its own budget.

    Parameters
    ----------
    ledger : Ledger
        The budget of this member.
    name_of : function
        Returns the name of a batch in the ledger: no other batch has that name.
    account : Account, optional
        The budget of the people of one release, while it has its turn. Default: that of everybody. To recall answers
        and to check what the budget allows, use it directly; spend through this boundary.
    """

    def __init__(
        self, ledger: Ledger, name_of: Callable[..., str], account: Account | None = None
    ) -> None:
        self.ledger = ledger
        self.account = account or ledger.account
        self._name_of = name_of

    @contextmanager
    def turn(self, whom: Whom | None = None) -> Generator[Self]:
        """Hold off all other releases and withdrawals, and yield a boundary that spends the budget of these people."""
        with self.ledger.begin(None, whom) as scope:
            yield type(self)(self.ledger, self._name_of, scope.account)

    def reservation_of(self, batch: _HasQueries) -> Reservation | None:
        """Return the reservation of a batch, or None."""
        return self.account.find(self._name_of(batch))

    def is_settled(self, batch: _HasQueries) -> bool:
        """Return whether a batch was reserved and is settled."""
        reservation = self.reservation_of(batch)
        return reservation is not None and self.account.is_settled(reservation)

    def reserve_once(self, batch: _HasQueries, event: Event) -> Reservation:
        """Spend the worst case of a batch, in which each query is this event; a second call spends nothing."""
        return self.account.reserve(event, batch.n_queries, self._name_of(batch))

    def draw_once(
        self,
        batch: _HasQueries,
        reservation: Reservation,
        draw: Callable[[NoiseSource], _Files],
        store_first: Callable[[_Files], _Files],
    ) -> tuple[_Files, bool]:
        """Draw this member's share of the noise; return the stored files, and whether another process stored them.

        `store_first` stores what `draw` made, unless files are stored already, and returns the stored ones. Two
        processes may both draw, but only the files that were stored first ever leave this machine.
        """
        # The caller may have read the reservation before a person withdrew. Reserving checks this again, for free.
        self.reserve_once(batch, reservation.event)
        try:
            drawn = draw(SystemNoise())
        except Exception:
            self.account.forfeit(reservation)
            raise
        stored = store_first(drawn)
        return stored, stored != drawn

    def settle_once(
        self, reservation: Reservation, answers: dict[bytes, Labels], happened: Event
    ) -> None:
        """Settle a batch by the answers that were opened, unless it is settled already."""
        with self.account.turn():  # of two processes, the second finds what the first one settled
            if not self.account.is_settled(reservation):
                self.account.settle(reservation, answers, happened)


_OWN_MECHANISMS: list[type[Mechanism]] = [
    kind
    for kind in vars(mechanisms).values()
    if isinstance(kind, type) and issubclass(kind, Mechanism) and kind is not Mechanism
]
# By the names of mechanisms in keys.
_OWN_NAMES = {kind.__qualname__: kind for kind in _OWN_MECHANISMS} | {
    kind.key_name: kind for kind in _OWN_MECHANISMS
}


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
