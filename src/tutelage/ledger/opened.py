"""An opened ledger, on which all its rooms work: its file, its first entry, its budget, and what was read so far."""

import logging
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any, final

from tutelage.digests import is_fingerprint_of, keyed_name
from tutelage.events import Event
from tutelage.exceptions import BudgetExceededError, LedgerMismatchError, LedgerTamperedError
from tutelage.ledger.answers import remembered_answers
from tutelage.ledger.entries import Checkpoint, Entry
from tutelage.ledger.history import History, LedgerState
from tutelage.ledger.search import Copies
from tutelage.ledger.store import Store
from tutelage.ledger.transaction import Transaction
from tutelage.ledger.turns import turn
from tutelage.ledger.verification import terms_of

_LOGGER = logging.getLogger(__name__)


@final
class OpenedLedger:
    """An opened ledger."""

    def __init__(self, store: Store) -> None:
        self.store = store
        with store.transaction() as read:
            self.key = read.key()  # secret, of all keyed hashes
            self.opening = read.opening()
            self._newest = read.last()  # which is still there whenever the file is read again
            answers = read.one("SELECT count(*) FROM answers")
            sums = read.checkpoint()
            if answers != sums.answers:
                raise LedgerTamperedError(
                    "The ledger's file has fewer or more labels than its entries count. Restore a copy that verifies."
                )
        _, self.unit = terms_of(self.opening, self.key)
        self.copies = Copies(store.file, self.opening)
        self.limit = sums.limit(self.opening)  # as it was raised when the file was held last
        self._raised: list[dict[str, Any]] = sums.raised
        self._history = History(())  # what was read of it

    def __str__(self) -> str:
        return str(self.store.path or "This budget")

    @contextmanager
    def hold(self, *, write: bool = False, copied: bool = False) -> Generator[Transaction]:
        """Hold the file, or a copy of it in memory, once it is found to be the ledger that was opened."""
        had_file = self.store.has_file
        # Taken first, so that it is no later than what is read, whatever other threads write meanwhile.
        newest = self._newest
        holding = self.store.snapshot() if copied else self.store.transaction(write=write)
        with holding as held:
            if held.key() != self.key or held.hash_of(newest.number) != newest.hash:
                raise LedgerTamperedError(
                    f"{self} was replaced, by another or an older one, while it was in use."
                )
            sums = held.checkpoint()
            if not copied and sums.raised != self._raised:
                self.limit = sums.limit(self.opening)
                self._raised = sums.raised
            yield held
        self._newest = held.appended or self._newest
        if not had_file and self.store.has_file:
            self.log("made")

    @contextmanager
    def turn(self, queries: Collection[bytes] = ()) -> Generator[None]:
        """Hold the ledger against other releases until the block ends, from before a step is reserved until it settled.

        A release that waits finds the answers of the one before: equal releases at the same time are one, which is paid
        once. A step that is open although no other release goes on is that of a dead process, and a reservation takes
        it over at no further cost. It is drawn again. That is not a second release, if the time when a process dies
        does not depend on its noise: docs/proofs/ledger.md. Where all `queries` have answers, nothing is waited for.
        """
        file = self.store.file
        if file is None or self.store.read_only:
            yield
            return

        def is_needless() -> bool:
            with self.hold() as read:
                answers = remembered_answers(read, queries)
            return bool(queries) and len(answers) == len(set(queries))

        with turn(file, is_needless):
            yield

    def history(self) -> History:
        """Return what was done through the ledger; the first call reads and checks every entry, later ones the new."""
        # Taken first, so that it is no later than what is read, whatever other threads write meanwhile.
        before = self._history
        with self.hold(copied=not before.entries) as read:
            return self.history_in(read, before)

    def history_in(self, read: Transaction, before: History | None = None) -> History:
        """Return what was done through the ledger until this transaction."""
        history = (before or self._history).with_newer_entries(read)
        if len(history.entries) > len(self._history.entries):
            self._history = history
            self._newest = history.entries[-1]
        return history

    def state_in(self, read: Transaction) -> LedgerState:
        """Return what the ledger says in this transaction."""
        last = self._newest = read.last()
        return LedgerState.of(
            self.opening, last, read.checkpoint(), lambda: self.history().until(last.number).so_far
        )

    @property
    def is_new(self) -> bool:
        """Whether it has no file yet, so that it was not used by another process."""
        return self.store.file is not None and not self.store.has_file

    def check_unit(self, event: Event) -> None:
        """Refuse an event that protects another unit."""
        if any(part.event.unit != self.unit for part in event.flatten()):
            other = event.flatten()[0].event.unit
            raise LedgerMismatchError(
                f"{self} protects one {self.unit}, these votes one {other}. Use the ledger of their data set, or "
                "a vote file that says whose votes it holds."
            )

    def begun_as(self, read: Transaction, identity: str) -> Entry | None:
        """Return the entry by which the release of this identity was begun, or None."""
        about = keyed_name(self.key, "intent", identity)
        return next(iter(read.entries_with("about", about)), None)

    def check_data(self, read: Transaction, digest: bytes, *, changed: bool) -> None:
        """Refuse a ledger that is tied to other data, unless these may have changed."""
        known = read.checkpoint().fingerprint
        if known and not changed and not is_fingerprint_of(digest, known, self.key):
            raise LedgerMismatchError(
                f"{self} is tied to other people or other rows. Name the ledger of these data; if people joined "
                "or left, or rows were corrected, say that the data changed."
            )

    def check_name(self, read: Transaction, release: str, identity: str) -> None:
        """Refuse the name of another release, and a ledger whose releases had no names."""
        sums = read.checkpoint()
        begun = self.begun_as(read, identity)
        if release in sums.releases and (begun is None or begun.content.get("release") != release):
            raise LedgerMismatchError(
                f"`release` {release!r} was begun with other settings or other public rows, and a name stands for one "
                "release. Repeat it as it was, or choose another name."
            )
        if sums.most_spent(None):
            raise LedgerMismatchError(
                f"`release` must be left out: {self} has releases without a name, and no entry of it tells "
                "who spent what. Go on without names, with what is left of the budget or after `tutelage ledger "
                "raise`. Or give people who were in none of its releases a new ledger with names, and leave everyone "
                "else out of their table."
            )

    def check_nameless(self, sums: Checkpoint) -> None:
        """Refuse a release without a name where releases have names."""
        if sums.in_cohorts:
            raise LedgerMismatchError(
                f"`release` must name each release through {self}, which counts what is spent for the people who "
                "came with each. Name this one, such as release='2026-02'."
            )

    def check_room(self, event: Event, queries: int, spent: int) -> None:
        """Refuse so many queries where the budget has no room beside what is spent."""
        limit = self.limit
        cost = limit.cost(event)
        if spent + queries * cost <= limit.capacity:
            return
        fitting = limit.fitting(event, spent)
        room = max(0, limit.capacity - spent)
        if queries == 1:
            sentence = (
                f"{self} has no room for this release: it takes up to {limit.share(cost):.4g} of ε = "
                f"{limit.epsilon:g} at δ = {limit.delta:g}, and {limit.share(room):.4g} remains. Add more noise."
            )
        else:
            sentence = (
                f"{self} does not allow {queries:,} more such queries: {fitting:,} would still fit. Of its "
                f"ε = {limit.epsilon:g} at δ = {limit.delta:g}, {limit.share(spent):.4g} is spent; one of them takes "
                f"up to {limit.share(cost):.3g}. Ask fewer, or add more noise."
            )
        raise BudgetExceededError(sentence, requested=queries, fitting=fitting)

    def log(self, done: str) -> None:
        """Write down in the log that the ledger was made or opened."""
        spent = self.limit.share(self._newest.spent)
        _LOGGER.info(
            "Ledger %s: ε = %g at δ = %g, %.4g spent.",
            done,
            self.limit.epsilon,
            self.limit.delta,
            spent,
        )
