"""An account of a ledger: quote and reserve a cost, draw noise, then settle or forfeit; and keep public maps."""

import json
import logging
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import field, replace
from hashlib import sha256
from typing import Final, NamedTuple, final, overload

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import Entries, by_identity, frozen
from tutelage._internal.typing import IntArray, NeverPickled, Private
from tutelage._internal.validation import integer_at_least
from tutelage.digests import canonical, keyed_name, query_hashes
from tutelage.events import (
    CappedArgmaxGaussian,
    Event,
    PublicationTest,
    Repeated,
    event_from_dict,
    of_queries,
)
from tutelage.exceptions import (
    InvalidParameterError,
    LedgerError,
    LedgerLockedError,
    LedgerMismatchError,
    LedgerStorageError,
    LedgerTamperedError,
    UnsupportedEventError,
)
from tutelage.ledger.answers import (
    Labels,
    answers_in,
    breach_of,
    digest_of,
    drawn_under,
    keep,
    kept_content,
    remember,
    remembered_answers,
    vector_of,
)
from tutelage.ledger.beginning import Beginning
from tutelage.ledger.campaigns import Voters, spend_votes
from tutelage.ledger.disk import Room
from tutelage.ledger.entries import Entry, EntryKind
from tutelage.ledger.opened import OpenedLedger
from tutelage.ledger.transaction import Transaction
from tutelage.ledger.turns import is_held

_ROOM_PER_NUMBER = 2  # a noisy number is up to 20 digits, which may take the room of two labels
_LOGGER = logging.getLogger(__name__)


@final
@frozen
class Reservation:
    """Budget that is spent before any noise is drawn; `Account.settle` returns what was not needed."""

    number: int  # of its entry
    hash: bytes
    event: Event  # the most that one query is
    queries: int
    grains: int
    # Kept for the answers while this object lives.
    room: Room | None = field(default=None, compare=False, repr=False)


class _Reserved(NamedTuple):
    """New queries that were reserved, and the answers of the others."""

    reservation: Reservation | None  # None where all queries have answers
    answers: dict[bytes, Labels]


@final
@by_identity
class _Granted(Private):
    """The votes that teachers may cast now; private."""

    votes: IntArray  # per teacher
    reservation: Reservation  # for the answers, at no cost of its own
    campaign: Reservation  # which was paid for all batches
    is_paid_now: bool  # by this batch


@final
@frozen
class NewQueries:
    """Queries, of which those without an answer are reserved."""

    event: Event  # the most that each is
    hashes: Collection[bytes]


@final
@frozen
class Queries:
    """A number of queries, whatever they are."""

    event: Event  # the most that each is
    queries: int
    name: str | None = None  # with a name, they are reserved once, and found again after a crash


@final
@by_identity
class CampaignVotes(Private):
    """Votes of a batch of queries, for which teachers are held to a cap over all batches of a campaign; private."""

    event: CappedArgmaxGaussian  # the most that the campaign is
    campaign: str  # its name
    voters: Voters
    wanted: IntArray  # how many votes each teacher would cast on these queries
    queries: int


class _Settled(NamedTuple):
    """Result of a batch: the labels that count, per query hash, and its share of ε."""

    labels: dict[bytes, Labels]
    share: float


@final
class Account(NeverPickled):
    """The budget of the people of one release, or of everybody.

    The budget of a query is spent before its noise is drawn, so a crash wastes budget and never leaks. The
    spent budget follows from worst-case costs, never from the votes.
    """

    def __init__(self, opened: OpenedLedger, beginning: Beginning | None = None) -> None:
        self._opened = opened
        self._beginning = beginning or Beginning(opened)
        self.release: Final = self._beginning.release  # its name, if it has one

    def keys(self, context: Entries, rows: npt.ArrayLike, *beside: npt.ArrayLike) -> list[bytes]:
        """Return the keyed hash under which the answer to each query is remembered.

        It is of `context`, which all queries share, the public row, and the other public values `beside` it.
        """
        return query_hashes(self._opened.key, context, rows, *beside)

    def turn(self, hashes: Collection[bytes] = ()) -> AbstractContextManager[None]:
        """Wait for other releases to end, unless all of these queries have answers, and hold them off in the block."""
        return self._opened.turn(hashes)

    def share_of(self, event: Event) -> float:
        """Return the worst-case budget that `event` would spend, as a share of ε."""
        self._opened.check_unit(event)
        return self._opened.limit.share(self._opened.limit.cost(event))

    def recall(self, hashes: Collection[bytes]) -> dict[bytes, Labels]:
        """Return the remembered answers among queries, by their keys; repeating them costs nothing."""
        with self._opened.hold() as read:
            return remembered_answers(read, hashes)

    def recall_earlier(self, hashes: Collection[bytes]) -> dict[bytes, Labels]:
        """Return what `recall` does, but only what was answered before this release began: it is the same repeated."""
        with self._opened.hold() as read:
            begun = self._beginning.entry(read)
            start = read.last().number + 1 if begun is None else begun.number
            early = dict[bytes, Labels]()
            for query, labels in remembered_answers(read, hashes).items():
                # A batch of a campaign was drawn under its own reservation, which is the later one.
                settled = read.settling(max(drawn_under(read, query)))
                if settled is not None and settled.number < start:
                    early[query] = labels
            return early

    def drawn_under(self, hashes: Collection[bytes]) -> frozenset[int]:
        """Return the reservations under which the remembered answers of these queries were drawn."""
        with self._opened.hold() as read:
            return frozenset[int]().union(*(drawn_under(read, query) for query in hashes))

    def find(self, batch: str) -> Reservation | None:
        """Return the reservation of a batch or campaign of this name, or None."""
        with self._opened.hold() as read:
            return _batch(read, batch)

    def is_settled(self, reservation: Reservation) -> bool:
        """Return whether a reservation of this ledger was settled."""
        with self._opened.hold() as read:
            return read.settling(reservation.number) is not None

    def fitting(self, event: Event, hashes: Sequence[bytes] | None = None) -> int:
        """Return how many more times `event`, the most that one query is, fits into what remains.

        Of queries by their hashes, return how many may be asked from the first on: those with an answer are free, and
        so is a step that a dead process left open.
        """
        with self._opened.hold() as read:
            room = self._opened.limit.fitting(event, self._beginning.grains_spent(read))
            if hashes is None:
                return room
            answers = remembered_answers(read, hashes)
            if read.checkpoint().unsettled:
                for place in range(len(hashes), 0, -1):
                    new = {query for query in hashes[:place] if query not in answers}
                    if self._left_open(read, new, event) is not None:
                        return place

        new = set[bytes]()
        for place, query in enumerate(hashes):
            if query not in answers:
                new.add(query)
            if len(new) > room:
                return place
        return len(hashes)

    def quote(
        self, event: Event, queries: Collection[bytes] | int, whole: Event | None = None
    ) -> dict[bytes, Labels]:
        """Return the remembered answers of queries, once the others are found to fit now; nothing is spent or kept.

        Each is at most `event`. If any is new, there must be room for the `whole` that they are part of. A number of
        queries stands for new ones. Steps that `reserve` would take over are paid for. Raises what `reserve` does.
        """
        opened = self._opened
        opened.copies.look()
        with opened.hold() as read:
            answers = dict[bytes, Labels]()
            new = set[bytes]()
            if isinstance(queries, int):
                count = queries
            else:
                answers = remembered_answers(read, queries)
                new = set(queries) - answers.keys()
                count = len(new)
            if not count:
                return answers
            opened.check_unit(event)
            opened.copies.check(read)
            spent = self._beginning.grains_spent(read)
            paid = self._left_open(read, new, event) if new else None

        if whole is not None:
            if paid is not None:
                spent -= paid.grains
            opened.check_room(whole, 1, spent)
        elif paid is None:
            opened.check_room(event, of_queries(event, count).count, spent)
        return answers

    @overload
    def reserve(self, what: Queries) -> Reservation: ...

    @overload
    def reserve(self, what: NewQueries) -> _Reserved: ...

    @overload
    def reserve(self, what: CampaignVotes) -> _Granted: ...

    def reserve(self, what: object) -> Reservation | _Reserved | _Granted:
        """Spend what queries cost at most, on the disk before this returns; draw no noise before.

        Room on the disk for the answers is kept too, as long as the reservation is held. All queries are reserved, or
        `BudgetExceededError` says how many would fit and nothing is spent. Publications are refused too where the δ of
        all of them would pass the ledger's. Of `NewQueries`, those with an answer are not reserved, and a step that a
        dead process left open is taken over. `Queries` of the same name are the same reservation. Of `CampaignVotes`,
        the first batch spends the budget of the campaign, and the others nothing; no entry shows how many votes a
        teacher has cast.
        """
        if not isinstance(what, Queries | NewQueries | CampaignVotes):
            kind = type(what).__name__
            raise InvalidParameterError(
                "Account.reserve.what", "be Queries(event, number)", f"a {kind}"
            )
        self._opened.check_unit(what.event)
        _check_storable(what.event)
        vector_of(what.event)
        self._opened.limit.cost(what.event)  # which takes time, and is remembered
        if isinstance(what, Queries):
            return self._reserve_queries(what)
        if isinstance(what, NewQueries):
            return self._reserve_new(what)
        return self._reserve_votes(what)

    def settle(
        self, reservation: Reservation, answers: dict[bytes, Labels], happened: Event
    ) -> _Settled:
        """Store the answers of a batch, give back what it did not need, and return the answers that count.

        A query that another session answered in the meantime keeps that answer: there is one answer per query. If this
        raises, the answers must not be released: if more was run than reserved, if the reservation is settled already,
        or if they could not be stored. In the last case they stay spent, and the same call may be made again.
        `answers` are labels per query hash, or the noisy numbers of a `NoisySumGaussian`, as many as its dimension;
        `happened` is what was run.
        """
        _check_storable(happened)
        vector = vector_of(reservation.event)
        counts = [answers_in(labels, vector) for labels in answers.values()]
        breach = breach_of(reservation.event, reservation.queries, happened, counts)
        if breach is not None:
            raise LedgerError(
                f"The mechanism {breach}. Its labels are withheld, and their budget stays spent."
            )

        limit = self._opened.limit
        refund = reservation.grains - limit.cost(happened)
        try:
            with self._opened.hold(write=True) as write:
                labels = _settle(write, reservation, answers, happened, refund)
        except (LedgerStorageError, LedgerLockedError) as error:
            share = limit.share(reservation.grains)
            raise type(error)(
                f"{error} Until the answers to these {len(answers):,} queries are stored, they are withheld, "
                f"and {share:.3g} of the budget ε = {limit.epsilon:g} stays spent."
            ) from None

        cost = limit.share(reservation.grains - refund)
        _LOGGER.info(
            "Labels released: %d, at a cost of %.4g of ε = %g.", len(labels), cost, limit.epsilon
        )
        return _Settled(labels, cost)

    def forfeit(self, reservation: Reservation) -> None:
        """Close a step without an answer; nothing is given back."""
        with self._opened.hold(write=True) as write:
            _settle(write, reservation, {}, Repeated(reservation.event, reservation.queries), 0)

    def keeps(self, name: str) -> bool:
        """Return whether something is kept under a public name."""
        with self._opened.hold() as read:
            return kept_content(read, self._kept_name(name)) is not None

    def keep(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return what is kept under a public name; the first time, what `make` returns, for good.

        So what was learned from public rows for a release stays the same on every machine.
        """
        keyed = self._kept_name(name)
        with self._opened.hold() as read:
            content = kept_content(read, keyed)
        if content is not None:
            return content
        content = make()
        if self._opened.store.read_only:
            return content
        with self._opened.hold(write=True) as write:
            return keep(write, keyed, content)

    def _kept_name(self, name: str) -> str:
        return keyed_name(self._opened.key, "kept", name)

    @contextmanager
    def _reserving(self) -> Generator[Transaction]:
        """Hold the file to reserve; refuse if a copy of it was used, even at the same time, or if people withdrew."""
        opened = self._opened
        opened.copies.look()
        with opened.hold(write=not opened.store.read_only) as write:
            opened.copies.check(write)
            self._beginning.check_left_out(write)
            yield write
        self._beginning.was_written(write)
        if opened.copies.newest:  # of two that reserve at once, one finds the other
            opened.copies.look()
            with opened.hold() as read:
                opened.copies.check(read)

    def _reserve_new(self, what: NewQueries) -> _Reserved:
        try:
            with self._reserving() as held:
                answers = remembered_answers(held, what.hashes)
                new = set(what.hashes) - answers.keys()
                if not new:
                    return _Reserved(None, answers)
                left = self._left_open(held, new, what.event)
                if left is None:
                    count = of_queries(what.event, len(new)).count
                    batch = Queries(what.event, count, _step_of(new))
                    return _Reserved(self._write_reservation(held, batch, len(new)), answers)
                self._beginning.write(held)
                _LOGGER.info(
                    "A step that was reserved and not answered is taken over, at no further cost."
                )
                return _Reserved(replace(left, room=self._room(what.event, len(new))), answers)
        except (LedgerLockedError, LedgerMismatchError, LedgerStorageError):
            # Remembered answers are not drawn again.
            answers = self.recall(what.hashes)
            if set(what.hashes) - answers.keys():
                raise
            return _Reserved(None, answers)

    def _reserve_queries(self, what: Queries) -> Reservation:
        integer_at_least(what.queries, 1, "queries", "Account.reserve")
        with self._reserving() as write:
            known = None if what.name is None else _batch(write, what.name)
            if known is None:
                return self._write_reservation(write, what, what.queries)
            is_same = known.event == what.event and known.queries == what.queries
            if not is_same or not self._is_ours(write, known):
                raise LedgerError(
                    f"Batch {what.name} was reserved in {self._opened} as something else. Name another."
                )
            return known

    def _reserve_votes(self, what: CampaignVotes) -> _Granted:
        integer_at_least(what.queries, 1, "queries", "Account.reserve")
        event = what.event
        wanted = np.asarray(what.wanted)
        hashed = what.voters.hash_names(wanted, self._opened.key)
        with self._reserving() as write:
            paid = _batch(write, what.campaign)
            is_new = paid is None
            if paid is None:
                paid = self._write_reservation(write, Queries(event, 1, what.campaign), 1)
                _settle(write, paid, {}, event, 0)
            elif not self._is_campaign(write, paid, event):
                raise LedgerError(
                    f"Campaign {what.campaign} was begun in {self._opened} as something else. Name another."
                )
            self._beginning.write(write)
            votes = spend_votes(write, paid.number, event.cap, hashed, wanted)
            entry = self._add_reserved(write, event, 0, 0, {"campaign": paid.number})
            room = self._opened.store.room(what.queries, 1)
        free = Reservation(entry.number, entry.hash, event, 0, 0, room)
        return _Granted(votes, free, paid, is_new)

    def _is_campaign(self, read: Transaction, known: Reservation, event: Event) -> bool:
        """Return whether a reservation paid for a campaign: budget that paid for its own labels pays for no others."""
        settled = read.settling(known.number)
        is_free = settled is not None and settled.content["answers"] == 0
        is_same = known.event == event and known.queries == 1
        return is_same and is_free and self._is_ours(read, known)

    def _write_reservation(self, write: Transaction, batch: Queries, answers: int) -> Reservation:
        """Write down a reservation, or refuse it where the budget or, for a publication, its δ has no room."""
        opened = self._opened
        event = batch.event
        if isinstance(event, PublicationTest):
            opened.history_in(write).check_share(event.delta)
        cost = batch.queries * opened.limit.cost(event)
        opened.check_room(event, batch.queries, self._beginning.grains_spent(write))
        self._beginning.write(write)
        named = {} if batch.name is None else {"batch": batch.name}
        entry = self._add_reserved(write, event, batch.queries, cost, named)
        room = self._room(event, answers)
        _LOGGER.info(
            "Budget reserved: %.4g of ε = %g.", opened.limit.share(cost), opened.limit.epsilon
        )
        return Reservation(entry.number, entry.hash, event, batch.queries, cost, room)

    def _add_reserved(
        self, write: Transaction, event: Event, queries: int, cost: int, more: Entries
    ) -> Entry:
        """Write the entry of a reservation."""
        content: Entries = {
            "event": event.as_dict(),
            "queries": queries,
            "cost": cost,
            **self._beginning.fields,
            **more,
        }
        return write.add(EntryKind.RESERVED, cost, **content)

    def _left_open(
        self, read: Transaction, new: Collection[bytes], event: Event
    ) -> Reservation | None:
        """Return the reservation of a step that a dead process left open, which no other process can settle."""
        if not is_held(self._opened.store.file) or not read.checkpoint().unsettled:
            return None
        found = None
        with suppress(LedgerTamperedError):  # an entry that was changed is not taken over
            named = read.entries_with("batch", _step_of(new))
            unsettled = [entry for entry in named if read.settling(entry.number) is None]
            if unsettled:
                found = _reservation(unsettled[-1])
        if found is None:
            return None

        queries = of_queries(event, len(new)).count
        same = event, queries, queries * self._opened.limit.cost(event)
        if (found.event, found.queries, found.grains) != same:
            return None
        copies = self._opened.copies.newest.values()
        if any(newest.number >= found.number for newest in copies):  # which may take it over too
            return None
        # Answers that other people paid for are not drawn from these.
        if not self._is_ours(read, found):
            return None
        return found

    def _is_ours(self, read: Transaction, reservation: Reservation) -> bool:
        """Return whether a reservation spends the budget of the people who take part in this release."""
        entry = read.entry(reservation.number)
        return entry is not None and entry.content.get("release") == self.release

    def _room(self, event: Event, queries: int) -> Room | None:
        """Return room on the disk for the answers of so many queries."""
        vector = vector_of(event)
        numbers = sum(part.times for part in event.flatten())
        if vector is not None:
            numbers = _ROOM_PER_NUMBER * vector[0]
        return self._opened.store.room(queries, numbers)


def _step_of(new: Collection[bytes]) -> str:
    """Return the name of the step in which these queries are answered."""
    return f"step {sha256(b''.join(sorted(new))).hexdigest()}"


def _check_storable(event: Event) -> None:
    """Refuse an event that would not come back from the file as it is."""
    try:
        stored = event_from_dict(json.loads(canonical(event.as_dict())))
    except (TypeError, ValueError, RecursionError):
        stored = None
    if stored != event:
        raise UnsupportedEventError(
            f"A {type(event).__name__} of this kind cannot be recorded in a ledger."
        )


def _reservation(entry: Entry) -> Reservation:
    """Return the reservation that an entry is."""
    content = entry.content
    event = event_from_dict(content["event"])
    return Reservation(entry.number, entry.hash, event, content["queries"], content["cost"])


def _batch(read: Transaction, name: str) -> Reservation | None:
    """Return the first reservation of this name, or None."""
    named = read.entries_with("batch", name)
    if not named:
        return None
    return _reservation(named[0])


def _settle(
    write: Transaction,
    reservation: Reservation,
    answers: dict[bytes, Labels],
    happened: Event,
    refund: int,
) -> dict[bytes, Labels]:
    """Store the answers and the entry of a batch, and return the answers that count."""
    number = reservation.number
    reserved = write.entry(number)
    if (
        reserved is None
        or reserved.hash != reservation.hash
        or write.settling(number) is not None
        or _reservation(reserved) != reservation
    ):
        raise LedgerError(
            "The reservation is not open: it is settled, or belongs to another ledger. Reserve again."
        )
    if reservation.room is not None:
        reservation.room.free()
    new = remember(write, answers, number)
    same = {
        name: reserved.content[name] for name in ("written", "release") if name in reserved.content
    }
    write.add(
        EntryKind.ANSWERED,
        -refund,
        settles=number,
        reservation=number,
        happened=happened.as_dict(),
        refund=refund,
        **same,
        answers=len(new),
        digest=digest_of(new),
    )
    return remembered_answers(write, answers)
