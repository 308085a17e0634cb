"""How a release begins: which one it is and whose data it uses, as its first reservation writes it down."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple, Self, final

import numpy as np

from tutelage._internal.records import Entries, by_identity
from tutelage._internal.typing import Mask, Private
from tutelage.digests import RunningDigest, fingerprint, keyed_name
from tutelage.events import Event
from tutelage.exceptions import LedgerLockedError, LedgerMismatchError, LedgerStorageError
from tutelage.ledger.entries import EVERYBODY, Entry, EntryKind
from tutelage.ledger.opened import OpenedLedger
from tutelage.ledger.people import (
    UNNAMED,
    add_people,
    cohorts,
    digest_of_people,
    key_of,
    require_release_name,
    withdrawn,
)
from tutelage.ledger.transaction import Transaction


class Intent(NamedTuple):
    """A release by everything that was declared for it; public, and stored as keyed hashes alone."""

    identity: str  # of everything declared: an equal one is the same release
    # Everything declared but the name: releases that are alike but for it teach one student.
    question: str
    worst_case: Event  # of the whole release
    noise: float | None  # that was found for it; None where it was declared
    release_name: str | None = None  # with a name, people who come later have a budget of their own


@final
@by_identity
class Whom(Private):
    """The people of a release; private.

    Parameters
    ----------
    digest : bytes, optional
        `data_digest` of the people or of the rows, to which the ledger is tied. Only a keyed hash of it is stored.
    ids : sequence of str
        Canonical ids; of a release with a name, one per person in the order of the rows.
    left_out : str
        Digest of the people who have withdrawn and are left out, as `Register.not_withdrawn` returns it.
    changed : bool
        Whether people may have joined or left since the ledger was last used.
    """

    digest: bytes | None = None
    ids: Sequence[str] = ()
    left_out: str = ""
    changed: bool = False

    @classmethod
    def by_ids(cls, people: Sequence[str], left_out: str = "") -> Self:
        """Return people whose ids are all that is known of them, and who may be others each time."""
        return cls(RunningDigest().add_people({*people}).digest(), people, left_out, changed=True)


@final
class _Arrivals(Private):
    """The people who take part in a release with a name, and those who came with it; private."""

    def __init__(
        self, opened: OpenedLedger, read: Transaction, intent: Intent, people: Sequence[str]
    ) -> None:
        """Find who takes part: people whose cohort has budget left for the most that is released.

        A person belongs to the cohort of the release in which the id first appears, for good. Every cohort has the
        whole budget, and a release charges each that takes part (docs/proofs/cohorts.md).
        """
        self.release_name = str(intent.release_name)
        require_release_name(self.release_name)
        hashed = [key_of(opened.key, person) for person in people]
        sums = read.checkpoint()
        gone = withdrawn(read)
        known = {person: cohort for person, cohort in cohorts(read).items() if cohort != EVERYBODY}
        opened.check_name(read, self.release_name, intent.identity)

        cost = opened.limit.cost(intent.worst_case)
        with_room = [
            cohort
            for cohort, spent in sorted(sums.accounts.items())
            if spent + cost <= opened.limit.capacity
        ]
        self.question = keyed_name(opened.key, "question", intent.question)
        self.cohorts = sums.releases.get(self.release_name) or [*with_room, self.release_name]
        self.new: Collection[bytes] = set(hashed) - known.keys() - gone.keys()
        self.left_out = sums.withdrawn
        self._before = sums.people  # digest of all people by whom these were found to be new
        self._after: str | None = None  # and with these
        takes_part = [
            known.get(person, self.release_name) in self.cohorts and person not in gone
            for person in hashed
        ]
        self.taking_part = np.array(takes_part, dtype=bool)

    def write_people(self, write: Transaction, *, begins: bool) -> Entries:
        """Write down the people who came, once, and return what the entry says by which the release `begins`.

        It is refused if people came in between, if the release was begun with other cohorts, or if a release without a
        name was begun: these decided who takes part.
        """
        sums = write.checkpoint()
        begun = sums.releases.get(self.release_name)
        is_same = begun is None if begins else begun == self.cohorts
        if not is_same or sums.people not in (self._before, self._after) or sums.most_spent(None):
            raise LedgerMismatchError(
                "Another release through this ledger began at the same time, so nothing was released here. Run this "
                "one again."
            )
        if self.new and sums.people == self._before:
            add_people(write, sorted(self.new), self.release_name)
            self._after = digest_of_people(write)
        return {"release": self.release_name, "question": self.question, "cohorts": self.cohorts}


@final
class Beginning(Private):
    """A release that is about to begin, all of which its first reservation writes down at once; private.

    The entry of its people is written once per release, and no two are alike, so they do not show whether the data
    changed.
    """

    def __init__(
        self, opened: OpenedLedger, intent: Intent | None = None, whom: Whom | None = None
    ) -> None:
        self._opened = opened
        self._intent = intent
        self._whom = whom or Whom()
        self._is_bound = False
        self.arrivals: _Arrivals | None = None

    def check(self, read: Transaction) -> None:
        """Refuse a ledger of other data or of another release of this name, and find who takes part."""
        if self._whom.digest is not None:
            self._opened.check_data(read, self._whom.digest, changed=self._whom.changed)
        if self._intent is not None and self._intent.release_name is not None:
            self.arrivals = _Arrivals(self._opened, read, self._intent, self._whom.ids)

    @property
    def release_name(self) -> str | None:
        """The name of the release, if it has one."""
        return None if self.arrivals is None else self.arrivals.release_name

    @property
    def fields(self) -> dict[str, str]:
        """The part of an entry that says whose budget it spends."""
        if self.arrivals is None:
            return {}
        return {"release": self.arrivals.release_name}

    @property
    def taking_part(self) -> Mask | None:
        """The people who take part in a release with a name; private."""
        return None if self.arrivals is None else self.arrivals.taking_part

    def entry(self, read: Transaction) -> Entry | None:
        """Return the entry by which the release was begun before, or None."""
        if self._intent is None:
            return None
        return self._opened.begun_as(read, self._intent.identity)

    def grains_spent(self, read: Transaction) -> int:
        """Return what the people have spent, at most, who take part in the release."""
        sums = read.checkpoint()
        if self.arrivals is not None:
            return max(sums.accounts.get(cohort, 0) for cohort in self.arrivals.cohorts)
        self._opened.check_nameless(sums)
        return read.last().spent

    def check_left_out(self, write: Transaction) -> None:
        """Refuse a release that may use rows of people who withdrew."""
        left_out = (self.arrivals or self._whom).left_out
        if write.checkpoint().withdrawn not in ("", left_out):
            raise LedgerMismatchError(
                f"People have withdrawn from {self._opened}, and nothing shows that their rows are left out here, so "
                "nothing was released. Pass rows in memory with `entity_ids`, to a fit or to a round of sums between "
                "hospitals; if somebody withdrew just now, repeat it."
            )

    def write(self, write: Transaction) -> None:
        """Write which release it is and of which data, before its first reservation."""
        key = self._opened.key
        begins = self._intent is not None and self.entry(write) is None
        named = Entries()
        if self.arrivals is not None:
            named = self.arrivals.write_people(write, begins=begins)
        if self._intent is not None and begins:
            about = keyed_name(key, "intent", self._intent.identity)
            write.add(EntryKind.INTENDED, about=about, noise=self._intent.noise, **named)

        sums = write.checkpoint()
        ids = self._whom.ids
        # Releases before gave no ids, or this one gives none.
        if sums.accounts and self.arrivals is None and bool(ids) != bool(sums.people):
            add_people(write, [key_of(key, UNNAMED)], EVERYBODY)
        if self._whom.digest is None or self._is_bound or EntryKind.BOUND in write.kinds:
            return
        self._opened.check_data(write, self._whom.digest, changed=self._whom.changed)
        write.add(EntryKind.BOUND, fingerprint=fingerprint(key, self._whom.digest))
        if ids and self.arrivals is None:
            add_people(write, sorted(key_of(key, person) for person in ids), EVERYBODY)

    def was_written(self, write: Transaction) -> None:
        """Take note that a transaction is on the disk."""
        self._is_bound |= EntryKind.BOUND in write.kinds

    def write_alone(self) -> None:
        """Write the same if no reservation did, because all answers were remembered, and if the file can be written."""
        if self._whom.digest is None or self._is_bound or self._opened.store.read_only:
            return
        if self.arrivals is not None:
            # No person is charged, so those who are new here may come with a later release.
            self.arrivals.new = ()
        with (
            suppress(LedgerStorageError, LedgerLockedError),
            self._opened.hold(write=True) as write,
        ):
            self.write(write)
        self._is_bound = True
