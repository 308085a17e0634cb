"""An account of a ledger: what its budget allows, what is reserved and settled, and public maps that it keeps."""

import json
import logging
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import field, replace
from hashlib import sha256
from typing import Final, NamedTuple, final

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
    tiers_of,
)
from tutelage.exceptions import (
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
from tutelage.ledger.disk import DiskSpace
from tutelage.ledger.entries import Entry, EntryKind
from tutelage.ledger.opened import OpenedLedger
from tutelage.ledger.transaction import Transaction
from tutelage.ledger.turns import is_held

# A noisy number has up to 20 digits, which may take as much disk space as two labels.
_LABELS_PER_NUMBER = 2
_LOGGER = logging.getLogger(__name__)


@final
@frozen
class Reservation:
    """Budget that is spent before any noise is drawn; `Account.settle` refunds what was not needed."""

    number: int  # of its entry in the ledger
    hash: bytes  # of that entry
    event: Event  # worst case of one query
    queries: int
    grains: int  # cost in whole units of the budget, which add up without rounding
    # Space on the disk for the answers, reserved while this object lives.
    disk_space: DiskSpace | None = field(default=None, compare=False, repr=False)


class _Reserved(NamedTuple):
    """The reservation of new queries, and the remembered answers to the others."""

    reservation: Reservation | None  # None where all queries have answers
    answers: dict[bytes, Labels]


@final
@by_identity
class _Granted(Private):
    """The votes that teachers may cast on a batch of a campaign; private."""

    votes: IntArray  # how many, per teacher
    reservation: Reservation  # of this batch, at no cost
    campaign: Reservation  # whose cost covers all batches
    is_paid_now: bool  # whether this batch is the first, and so paid for the campaign


@final
class Account(NeverPickled):
    """The budget of the people of one release, or of everybody.

    The budget of a query is spent before its noise is drawn, so a crash wastes budget and never leaks. The
    spent budget follows from worst-case costs, never from the votes.
    """

    def __init__(self, opened: OpenedLedger, beginning: Beginning | None = None) -> None:
        self._opened = opened
        self._beginning = beginning or Beginning(opened)
        self.release_name: Final = self._beginning.release_name

    def keys(
        self,
        context: Entries,
        rows: npt.ArrayLike,
        *beside: npt.ArrayLike,
    ) -> list[bytes]:
        """Return the key of each query: a hash with the ledger's secret, by which its answer is remembered.

        It depends on the `context` of all queries, the public row, and the other public values `beside` it.
        """
        return query_hashes(self._opened.key, context, rows, *beside)

    def turn(self, unless_answered: Collection[bytes] = ()) -> AbstractContextManager[None]:
        """Wait for other releases to end, and hold them off in the block.

        If the keys in `unless_answered` all have answers, it does not wait; with no keys, it always waits.
        """
        return self._opened.turn(unless_answered)

    def share_of(self, event: Event) -> float:
        """Return the worst-case budget that `event` would spend, as a share of ε."""
        self._opened.check_unit(event)
        return self._opened.limit.share(self._opened.limit.cost(event))

    def recall(self, keys: Collection[bytes]) -> dict[bytes, Labels]:
        """Return the remembered answers to the queries with these keys; repeating them costs nothing."""
        with self._opened.hold() as read:
            return remembered_answers(read, keys)

    def recall_earlier(self, keys: Collection[bytes]) -> dict[bytes, Labels]:
        """Return those remembered answers that were settled before this release began.

        So a release that is repeated finds the same ones, even if other releases answered more queries since.
        """
        with self._opened.hold() as read:
            begun = self._beginning.entry(read)
            start = read.last().number + 1 if begun is None else begun.number
            earlier = dict[bytes, Labels]()
            for key, labels in remembered_answers(read, keys).items():
                # A batch of a campaign has two reservations; its own has the larger number than the campaign's.
                settled = read.settling(max(drawn_under(read, key)))
                if settled is not None and settled.number < start:
                    earlier[key] = labels
            return earlier

    def drawn_under(self, keys: Collection[bytes]) -> frozenset[int]:
        """Return the numbers of the reservations under which the remembered answers to these queries were drawn."""
        with self._opened.hold() as read:
            numbers = [drawn_under(read, key) for key in keys]
        return frozenset[int]().union(*numbers)

    def find(self, batch: str) -> Reservation | None:
        """Return the reservation of a batch or campaign of this name, or None."""
        with self._opened.hold() as read:
            return _batch(read, batch)

    def is_settled(self, reservation: Reservation) -> bool:
        """Return whether a reservation of this ledger was settled."""
        with self._opened.hold() as read:
            return read.settling(reservation.number) is not None

    def fitting(self, event: Event) -> int:
        """Return how many more new queries the budget allows, of which each is `event` in the worst case."""
        with self._opened.hold() as read:
            return self._opened.limit.fitting(event, self._beginning.grains_spent(read))

    def fitting_queries(self, event: Event, keys: Sequence[bytes]) -> int:
        """Return how many queries, from the first on, the budget allows; those with an answer are free."""
        fitting = self.fitting(event)
        with self._opened.hold() as read:
            answers = remembered_answers(read, keys)
            # A crashed process may have paid for some of the first queries: find the longest such part.
            if read.checkpoint().unsettled:
                for count in range(len(keys), 0, -1):
                    new = {key for key in keys[:count] if key not in answers}
                    if self._left_open(read, new, event) is not None:
                        return count

        new = set[bytes]()
        for place, key in enumerate(keys):
            if key not in answers:
                new.add(key)
            if len(new) > fitting:
                return place
        return len(keys)

    def require_room(self, event: Event, queries: int) -> None:
        """Raise `BudgetExceededError` if the budget does not allow these new queries; raise what `reserve` does.

        Each is `event` in the worst case. Nothing is written.
        """
        opened = self._opened
        opened.copies.look()
        with opened.hold() as read:
            spent = self._spent_for(read, event)
        opened.check_room(event, of_queries(event, queries).count, spent)

    def recall_with_room(
        self, event: Event, keys: Collection[bytes], whole: Event | None = None
    ) -> dict[bytes, Labels]:
        """Return the remembered answers; raise `BudgetExceededError` if the budget does not allow the other queries.

        Each of the others is `event` in the worst case. If there are others, the budget must allow the `whole` release
        that they begin. A reservation that `reserve` would take over is paid already. Nothing is written.
        """
        opened = self._opened
        opened.copies.look()
        with opened.hold() as read:
            answers = remembered_answers(read, keys)
            new = set(keys) - answers.keys()
            if not new:
                return answers
            spent = self._spent_for(read, event)
            left_open = self._left_open(read, new, event)

        if whole is not None:
            if left_open is not None:
                spent -= left_open.grains
            opened.check_room(whole, 1, spent)
        elif left_open is None:
            opened.check_room(event, of_queries(event, len(new)).count, spent)
        return answers

    def _spent_for(self, read: Transaction, event: Event) -> int:
        """Return the grains that were spent, once the file and the unit of an event are found to allow a release."""
        self._opened.check_unit(event)
        self._opened.copies.check(read)
        _check_tiers(read, event)
        return self._beginning.grains_spent(read)

    def reserve(self, event: Event, queries: int, batch: str | None = None) -> Reservation:
        """Spend the worst-case cost of queries, on the disk before this returns; draw no noise before.

        Each is `event` in the worst case. All are reserved, or `BudgetExceededError` says how many would fit and
        nothing is spent. Disk space for the answers is reserved too, while the reservation lives. Publications are also
        refused if the δ of all of them would exceed the ledger's. A `batch` with a name is reserved once, and found
        again after a crash.
        """
        self._check_reservable(event, queries)
        with self._reserving() as held:
            known = None if batch is None else _batch(held, batch)
            if known is None:
                return self._write_reservation(held, event, queries, batch, queries)
            is_same = known.event == event and known.queries == queries
            if not is_same or not self._is_ours(held, known):
                raise LedgerError(
                    f"Batch {batch} was reserved in {self._opened} as something else. Name another."
                )
            return known

    def settle(
        self, reservation: Reservation, answers: dict[bytes, Labels], happened: Event
    ) -> dict[bytes, Labels]:
        """Store the answers of a batch, refund what it did not need, and return the answers that count.

        A query that another session answered in the meantime keeps that answer: there is one answer per query.

        If this raises, the answers must not be released: more was run than reserved, the reservation is settled
        already, or the answers could not be stored. If they could not be stored, their cost stays spent, and the caller
        may make the same call again.

        `answers` are labels by query key, or the noisy numbers of a `NoisySumGaussian`, as many as its dimension;
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
        return labels

    def forfeit(self, reservation: Reservation) -> None:
        """Settle a reservation without an answer; nothing is refunded."""
        happened = Repeated(reservation.event, reservation.queries)
        with self._opened.hold(write=True) as write:
            _settle(write, reservation, {}, happened, 0)

    def has_learned(self, name: str) -> bool:
        """Return whether the ledger keeps content under a public name."""
        with self._opened.hold() as read:
            return kept_content(read, self._kept_name(name)) is not None

    def load_or_learn(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the content under a public name; the first time, `make` it, and keep it for good.

        So a map that is learned from public rows for a release stays the same on every machine.
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
        """Yield a transaction to reserve in; refuse if a copy of the ledger was used, or if people withdrew.

        A read-only ledger can remember answers, so it gets a transaction too; only writing to it is refused.
        """
        opened = self._opened
        opened.copies.look()
        with opened.hold(write=not opened.store.read_only) as held:
            opened.copies.check(held)
            self._beginning.check_left_out(held)
            yield held
        self._beginning.was_written(held)
        # Another process may have reserved in a copy of the ledger at the same time. Both look again after they
        # committed, so at least one of them finds the other and refuses.
        if opened.copies.newest:
            opened.copies.look()
            with opened.hold() as read:
                opened.copies.check(read)

    def _check_reservable(self, event: Event, queries: int = 1) -> None:
        """Refuse an event that cannot be reserved, or no queries."""
        self._opened.check_unit(event)
        _check_storable(event)
        # Refuses a batch of both sums and labels.
        vector_of(event)
        # Computes the cost, which takes time, before the file is locked; it is cached.
        self._opened.limit.cost(event)
        integer_at_least(queries, 1, "queries", "Account.reserve")

    def reserve_new(self, event: Event, keys: Collection[bytes]) -> _Reserved:
        """Reserve those of the queries with these keys that have no answer, each `event` in the worst case.

        If a process crashed after it had reserved them, its reservation is taken over.
        """
        self._check_reservable(event)
        try:
            with self._reserving() as held:
                answers = remembered_answers(held, keys)
                new = set(keys) - answers.keys()
                if not new:
                    return _Reserved(None, answers)
                left_open = self._left_open(held, new, event)
                if left_open is None:
                    count = of_queries(event, len(new)).count
                    batch = _batch_name_of(new)
                    made = self._write_reservation(held, event, count, batch, len(new))
                    return _Reserved(made, answers)
                self._beginning.write(held)
                _LOGGER.info(
                    "A step that was reserved and not answered is taken over, at no further cost."
                )
                space = self._reserve_space(event, len(new))
                return _Reserved(replace(left_open, disk_space=space), answers)
        except (LedgerLockedError, LedgerMismatchError, LedgerStorageError):
            # Remembered answers cost nothing and need no reservation, so a ledger that refuses one can repeat them.
            answers = self.recall(keys)
            if set(keys) - answers.keys():
                raise
            return _Reserved(None, answers)

    def reserve_votes(
        self,
        event: CappedArgmaxGaussian,
        campaign: str,
        voters: Voters,
        wanted: IntArray,
        queries: int,
    ) -> _Granted:
        """Reserve queries of a campaign, and grant teachers votes on them, of the cap over all batches of its name.

        `event` is the worst case of the whole campaign, which the first batch pays for; the others spend nothing.
        `wanted`, private, is how many votes each of the `voters` would cast. No entry shows how many anybody has cast.
        """
        self._check_reservable(event, queries)
        wanted = np.asarray(wanted)
        hashed = voters.hash_names(wanted, self._opened.key)
        with self._reserving() as held:
            known = whole = _batch(held, campaign)
            if whole is None:
                # The first batch pays for the campaign. This reservation is settled at once, in full and without an
                # answer: the answers belong to the reservations of the batches, which cost nothing.
                whole = self._write_reservation(held, event, 1, campaign, 1)
                _settle(held, whole, {}, event, 0)
            elif not self._is_campaign(held, whole, event):
                raise LedgerError(
                    f"Campaign {campaign} was begun in {self._opened} as something else. Name another."
                )
            self._beginning.write(held)
            votes = spend_votes(held, whole.number, event.cap, hashed, wanted)
            entry = self._add_reserved(held, event, 0, 0, {"campaign": whole.number})
            space = self._opened.store.reserve_space(queries, 1)
        free = Reservation(entry.number, entry.hash, event, 0, 0, space)
        return _Granted(votes, free, whole, known is None)

    def _is_campaign(self, read: Transaction, known: Reservation, event: Event) -> bool:
        """Return whether a reservation paid for this campaign, and not for labels that were drawn under it."""
        settled = read.settling(known.number)
        is_free = settled is not None and settled.content["answers"] == 0
        is_same = known.event == event and known.queries == 1
        return is_same and is_free and self._is_ours(read, known)

    def _write_reservation(
        self,
        write: Transaction,
        event: Event,
        queries: int,
        batch: str | None,
        answers: int,
    ) -> Reservation:
        """Write a reservation; refuse it if the budget does not allow it or, for a publication, its δ."""
        opened = self._opened
        if isinstance(event, PublicationTest):
            opened.history_in(write).check_share(event.delta)
        cost = queries * opened.limit.cost(event)
        opened.check_room(event, queries, self._beginning.grains_spent(write))
        self._beginning.write(write)
        named = {} if batch is None else {"batch": batch}
        entry = self._add_reserved(write, event, queries, cost, named)
        space = self._reserve_space(event, answers)
        _LOGGER.info(
            "Budget reserved: %.4g of ε = %g.", opened.limit.share(cost), opened.limit.epsilon
        )
        return Reservation(entry.number, entry.hash, event, queries, cost, space)

    def _add_reserved(
        self, write: Transaction, event: Event, queries: int, cost: int, more: Entries
    ) -> Entry:
        """Write the entry of a reservation."""
        _check_tiers(write, event)
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
        """Return the reservation that a crashed process made for exactly these queries and did not settle.

        Only the holder of the turn may take it over: while it holds the turn, no process that lives can settle it.
        """
        if not is_held(self._opened.store.file) or not read.checkpoint().unsettled:
            return None
        unsettled = list[Entry]()
        # An entry that was tampered with is not taken over; reserving again costs more, and never less.
        with suppress(LedgerTamperedError):
            named = read.entries_with("batch", _batch_name_of(new))
            unsettled = [entry for entry in named if read.settling(entry.number) is None]
        if not unsettled:
            return None

        found = _reservation(unsettled[-1])
        queries = of_queries(event, len(new)).count
        same = event, queries, queries * self._opened.limit.cost(event)
        if (found.event, found.queries, found.grains) != same:
            return None
        # A copy of the ledger that holds the reservation may take it over too, and draw other noise for it.
        copies = self._opened.copies.newest.values()
        if any(newest.number >= found.number for newest in copies):
            return None
        # The people of this release must have paid for it.
        return found if self._is_ours(read, found) else None

    def _is_ours(self, read: Transaction, reservation: Reservation) -> bool:
        """Return whether a reservation spends the budget of the people who take part in this release."""
        entry = read.entry(reservation.number)
        return entry is not None and entry.content.get("release") == self.release_name

    def _reserve_space(self, event: Event, queries: int) -> DiskSpace | None:
        """Reserve space on the disk for the answers to so many queries."""
        vector = vector_of(event)
        numbers = sum(part.times for part in event.flatten())
        if vector is not None:
            numbers = _LABELS_PER_NUMBER * vector[0]
        return self._opened.store.reserve_space(queries, numbers)


def _batch_name_of(new: Collection[bytes]) -> str:
    """Return the name of the batch of exactly these queries, so that it is found again after a crash."""
    return f"step {sha256(b''.join(sorted(new))).hexdigest()}"


def _check_tiers(read: Transaction, event: Event) -> None:
    """Refuse an event in which people of a tier count more or less than in earlier ones: their ε is of all of them."""
    sums = read.checkpoint()
    tiers = [[*tier] for tier in tiers_of(event)]
    if sums.asked and sums.tiers != tiers:
        raise LedgerMismatchError(
            "All releases of a ledger must have the same `tiers`, each with the same ε, because the ε of a tier is of "
            "all of them together. Pass those of the first release, or none if it had none."
        )
    if tiers and sums.raised:
        raise LedgerMismatchError(
            "`tiers` must be left out if the budget of the ledger was raised, because the ε of a tier follows from the "
            "first budget. Nothing more can be released for people in tiers."
        )


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
    if reservation.disk_space is not None:
        reservation.disk_space.free()
    new = remember(write, answers, number)
    content = reserved.content
    copied = {name: content[name] for name in ("written", "release") if name in content}
    write.add(
        EntryKind.ANSWERED,
        -refund,
        # A column that SQLite keeps unique, so that nothing is settled twice, and a field under the entry's hash.
        settles=number,
        reservation=number,
        happened=happened.as_dict(),
        refund=refund,
        **copied,
        answers=len(new),
        digest=digest_of(new),
    )
    return remembered_answers(write, answers)
