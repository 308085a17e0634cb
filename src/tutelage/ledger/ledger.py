"""The ledger: reserve, then draw noise, then settle; a budget that many processes may race for and none can pass."""

import hashlib
import json
import logging
import os
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.gate import user_path
from tutelage._internal.outputs import is_exposed, warned_of_disk
from tutelage._internal.records import frozen
from tutelage._internal.releases import today
from tutelage._internal.typing import IntArray
from tutelage._internal.validation import integer_at_least
from tutelage.accounting.filter import Accounting, Filter, RenyiFilter, accounting_of, holding, limit_of
from tutelage.digests import RunningDigest, canonical, fingerprint, is_fingerprint_of, keyed_name, query_hashes
from tutelage.events import (
    CappedArgmaxGaussian,
    Event,
    NoisySumGaussian,
    PublicationTest,
    Repeated,
    counted,
    event_from_dict,
    of_queries,
)
from tutelage.exceptions import (
    BudgetExceededError,
    ExposedFileWarning,
    InvalidDataError,
    InvalidParameterError,
    LateProposalError,
    LedgerError,
    LedgerLockedError,
    LedgerMismatchError,
    LedgerMissingError,
    LedgerStorageError,
    LedgerTamperedError,
    Problem,
    UnsupportedEventError,
)
from tutelage.ledger.campaigns import Voters, spend_votes
from tutelage.ledger.cohorts import Arrivals, cohort_key, require_release_name
from tutelage.ledger.disk import Room
from tutelage.ledger.entries import EVERYBODY, Checkpoint, Entry, Kind
from tutelage.ledger.history import History, LedgerState
from tutelage.ledger.search import Copies
from tutelage.ledger.store import Store, Transaction
from tutelage.ledger.turns import is_held, turn
from tutelage.ledger.verification import (
    answers_in,
    breach_of,
    digest_of,
    read_labels,
    terms_of,
    vector_of,
    verified,
)
from tutelage.partition import canonical_ids
from tutelage.privacy import NeighboringRelation, PrivacyUnit

_TIMEOUT = 60.0
_ROOM_PER_NUMBER = 2  # a noisy number is up to 20 digits, which may take the room of two labels
_HEAD = re.compile(r"[0-9a-fA-F]{64}")
Labels = tuple[int, ...]
DEFAULT_DELTA = 1e-5  # where neither a release nor a ledger says another one
_UNNAMED = ""  # instead of an id, of which none is empty: the people of releases that gave none
_LOGGER = logging.getLogger(__name__)


@final
@frozen
class Reservation:
    """Budget that is spent before any noise is drawn; `Ledger.settle` returns what was not needed."""

    number: int  # of its entry
    hash: bytes
    event: Event  # as for `Ledger.reserve`
    queries: int
    grains: int
    room: Room | None = field(default=None, compare=False, repr=False)  # kept for the answers while this object lives


class Granted(NamedTuple):
    """Votes that teachers may cast now; private."""

    votes: IntArray  # per teacher
    reservation: Reservation  # for the answers, at no cost of its own
    campaign: Reservation  # which was paid for all batches
    paid: bool  # by this batch


class Settled(NamedTuple):
    """Result of a batch: the labels that count, per query hash, and its share of ε."""

    labels: dict[bytes, Labels]
    share: float


@final
class Ledger:
    """The durable privacy budget of one private data set.

    Use one ledger per data set, for everything that is ever released from it, whatever the project. Any number of
    processes on one machine may share it. Make one with `create`, open it with `open`.

    The spent budget follows from worst-case costs, never from the votes, and is enforced as a privacy filter: it holds
    even if queries, mechanisms and the moment to stop depend on earlier answers (docs/proofs/ledger.md). The budget of
    a query is spent before its noise is drawn, so a crash wastes budget and never leaks.

    Examples
    --------
    >>> from tutelage.ledger import Ledger
    >>> from tutelage.privacy import ONE_TEACHER
    >>> ledger = Ledger.in_memory(epsilon=2.0, delta=1e-5, unit=ONE_TEACHER)
    >>> ledger.state().remaining
    2.0
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.transaction() as read:
            self._key, self._opening, self._seen = read.key(), read.opening(), _Seen(read.last())
            read.check_count()
            sums = read.checkpoint()
        _, self._unit = terms_of(self._opening, self._key)
        self._copies = Copies(store.file, self._opening)
        self._filter = sums.limit(self._opening)  # as it was raised when the file was held last
        self._left_out = ""  # private; by digest, the people who withdrew and are not in the rows of this release
        self._digest: bytes | None = None  # private; of the data that the next reservation binds the ledger to
        self._people: Sequence[str] = ()  # private; ids of these data
        self._changed = False  # whether they may be others than those of the release before
        # Keyed name and noise of the release that begins with the next reservation.
        self._intent: tuple[str, float | None] | None = None
        self._arrivals: Arrivals | None = None  # where it has a name

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        unit: PrivacyUnit,
        order: float | None = None,
        suited_to: Event | None = None,
        accounting: str = Accounting.RENYI,
        owner: str | None = None,
        timeout: float = _TIMEOUT,
    ) -> Self:
        """Make the ledger of a data set; its budget can be raised later, and never lowered.

        Parameters
        ----------
        path : path-like
            A file that does not exist yet, on a local disk; it will be readable by its owner only.
        epsilon, delta : float
            The budget: everything ever released through the ledger is (ε, δ)-differentially private.
        unit : PrivacyUnit
            Whom it protects; releases of other units are refused.
        order, suited_to : float or Event, optional
            Rényi order at which the limit is kept, or a release to find the best order for, instead of Gaussian noise.
        accounting : str
            How the limit is kept: ``"renyi"`` holds every kind of release, ``"gaussian"`` holds integer Gaussian noise
            on sums of ballots only (`NoisySum`, `CappedGNMax`, `GNMax`), and more of noisy sums.
        owner : str, optional
            Name of the only consortium member that may spend from it; public.
        timeout : float
            Seconds to wait while another process writes.
        """
        limit = _limit(epsilon, delta, order, suited_to, accounting)
        made = cls.made_by_spending(path, limit, unit, owner, timeout)
        made._store.make_file()
        return made._logged("made")

    @classmethod
    def in_memory(
        cls,
        *,
        epsilon: float,
        delta: float,
        unit: PrivacyUnit,
        order: float | None = None,
        suited_to: Event | None = None,
        accounting: str = Accounting.RENYI,
    ) -> Self:
        """Make a ledger that is forgotten with this process, for a single release or a trial; otherwise as `create`."""
        return cls.made_by_spending(None, _limit(epsilon, delta, order, suited_to, accounting), unit)

    @classmethod
    def made_by_spending(
        cls,
        path: str | os.PathLike[str] | None,
        limit: Filter,
        unit: PrivacyUnit,
        owner: str | None = None,
        timeout: float = _TIMEOUT,
    ) -> Self:
        """Return a new ledger whose file, if it has one, appears with its first reservation, in one transaction.

        If another process makes the file first, the reservation raises `LedgerOvertakenError`.
        """
        key = secrets.token_bytes(32)
        content = {**limit.as_dict(), "unit": unit.as_dict(), "key": hashlib.sha256(key).hexdigest()}
        first = Entry.after(None, Kind.OPENED, 0, **content, **({} if owner is None else {"owner": owner}))
        return cls(Store.create(None if path is None else user_path(path), first, key, timeout=timeout))

    def make_only_if(self, check: Callable[[], None]) -> None:
        """Call `check`, which may refuse, just before the file appears, and while no other ledger is made beside it."""
        self._store.check = check

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: bool = False, timeout: float = _TIMEOUT) -> Self:
        """Open a ledger, checking its first and its newest entry and the sums over all of them.

        The answers are counted; `verify` checks every entry and every answer. `read_only` works on a read-only disk;
        `timeout` is how many seconds to wait while another process writes, before `LedgerLockedError`.
        """
        kept = cls(Store(user_path(path), timeout=timeout, read_only=read_only))
        file = kept._store.file
        if file is not None and not read_only and is_exposed(file.stat()) and not warned_of_disk(file):
            warnings.warn(
                f"{path} contains a secret key, and others may read or change it. Run `chmod 600` on it.",
                ExposedFileWarning,
                stacklevel=2,
            )
        return kept._logged("opened")

    def _logged(self, done: str) -> Self:
        spent = self._filter.share(self._seen.newest.spent)
        _LOGGER.info("Ledger %s: ε = %g at δ = %g, %.4g spent.", done, self.epsilon, self.delta, spent)
        return self

    @property
    def path(self) -> Path | None:
        """The file, or None for one in memory."""
        return self._store.path

    @property
    def has_file(self) -> bool:
        """Whether the ledger has a file. A new one gets it with its first reservation."""
        return self._store.has_file

    @property
    def limit(self) -> Filter:
        """The present budget, whatever was spent of it."""
        return self._filter

    @property
    def epsilon(self) -> float:
        """ε of the budget."""
        return self._filter.epsilon

    @property
    def delta(self) -> float:
        """δ of the budget."""
        return self._filter.delta

    @property
    def unit(self) -> PrivacyUnit:
        """Whom the budget protects."""
        return self._unit

    @property
    def owner(self) -> str | None:
        """Name of the member of a consortium that it was made for, or None."""
        return self._opening.content.get("owner")

    def bind(self, digest: bytes, *, changed: bool = False, people: Sequence[str] = ()) -> None:
        """Tie the ledger to the private data of a release, or raise LedgerMismatchError where it is tied to others.

        The entry is written with the next reservation, or by `write_binding`. Each release has one, and no two are
        alike, so they do not show whether the data changed. Of `digest`, which is `data_digest` of the people or of the
        private rows, only a keyed hash is stored; and of the ids of `people`, where releases have no names. With
        `changed`, people may have joined or left since.
        """
        changed = changed or (self._changed and self._digest == digest)
        with self._held() as read:
            self._check_binding(read, digest, changed=changed)
        self._digest, self._changed, self._people = digest, changed, people

    def intend(self, identity: str, noise: float | None) -> None:
        """Name the release that is about to begin by everything that was declared for it, and keep its noise.

        The entry is written with the next reservation, unless the same release was begun before. Of `identity` only a
        keyed hash is stored. `noise` is None where it was declared.
        """
        self._intent = keyed_name(self._key, "intent", identity), noise

    def intended_noise(self, identity: str) -> float | None:
        """Return the noise with which the release of this identity was begun, or None."""
        begun = self._begun(self.history(), identity)
        return None if begun is None else begun.content["noise"]

    def _begun(self, history: History, identity: str) -> Entry | None:
        """Return the entry by which a release was begun."""
        about = keyed_name(self._key, "intent", identity)
        begun = (one for one in history.entries if one.kind is Kind.INTENDED and one.content["about"] == about)
        return next(begun, None)

    def whole_release(self, identity: str, reservations: Collection[int], most: Event) -> Event | None:
        """Return all that was drawn if it is this release alone, spent under these reservations and within `most`.

        Then the release was fixed before anything was answered, and its own ε holds for all that was released. Rows
        that are chosen at random without a seed are others each time: so more than `most` may be drawn, and the release
        be the one that pleased. Call it within `releasing`.
        """
        history = self.history()
        begun = self._begun(history, identity)
        reserved = {charge.number: charge.reserved.content["cost"] for charge in history.charges}
        paid = {number: cost for number, cost in reserved.items() if cost}  # a batch of a campaign costs nothing
        fixed = begun is not None and min(paid, default=0) > begun.number and paid.keys() <= set(reservations)
        within = sum(paid.values()) <= self._filter.cost(most)
        charges = [charge.most for charge in history.charges if charge.number in paid]
        # Sums together cost what their 1/σ² add up to, into however many rounds they are divided.
        only_sums = all(isinstance(event, NoisySumGaussian) for event in counted([*charges, most]))
        alike = only_sums or not _kinds(charges) - _kinds([most])
        return history.released if fixed and within and alike else None

    def earlier(self, question: str, release: str) -> tuple[str, ...]:
        """Return the releases of a question that began before the one of this name."""
        about = keyed_name(self._key, "question", question)
        begun = (one.content for one in self.history().entries if one.content.get("question") == about)
        return tuple(takewhile(lambda name: name != release, (content["release"] for content in begun)))

    def recall_earlier(self, hashes: Collection[bytes]) -> dict[bytes, Labels]:
        """Return what `recall` does, but only what was answered before this release began: it is the same repeated."""
        history = self.history()
        begun = (one.number for one in history.entries if one.content.get("release") == self.release)
        start = next(begun, history.last.number + 1)
        early = {one.number for one in history.charges if one.settled is not None and one.settled.number < start}
        with self._held() as read:
            found = _recalled(read, hashes)
            # A batch of a campaign was drawn under its own reservation, which is the later one.
            return {query: labels for query, labels in found.items() if max(read.drawn_under(query)) in early}

    def noise_of(self, question: str) -> float | None:
        """Return the noise of the first release of a question that has a name, or None."""
        about = keyed_name(self._key, "question", question)
        asked = (one.content for one in self.history().entries if one.content.get("question") == about)
        return next((content["noise"] for content in asked), None)

    def admit(self, release: str, question: str, people: Sequence[str], most: Event) -> npt.NDArray[np.bool_]:
        """Return which people take part in a named release: those whose cohort has budget left for `most`; private.

        A person belongs to the cohort of the release in which the id first appears, for good. Every cohort has the
        whole budget, and a release charges each that takes part (docs/proofs/cohorts.md). Call it within `releasing`,
        after `intend`. People who are new are written down with the next reservation.
        """
        require_release_name(release)
        hashed = [cohort_key(self._key, person) for person in people]
        with self._held() as read:
            sums, gone = read.checkpoint(), read.withdrawn()
            known = {person: cohort for person, cohort in read.cohorts().items() if cohort != EVERYBODY}
        self._check_named(release, None if self._intent is None else self._intent[0], sums.spent(None))
        cost = self._filter.cost(most)
        having = [one for one, spent in sums.accounts.items() if spent + cost <= self._filter.capacity]
        cohorts = sums.releases.get(release) or [*having, release]
        new = {person for person in hashed if person not in known and person not in gone}
        asked = keyed_name(self._key, "question", question)
        self._arrivals, self._left_out = Arrivals(release, asked, cohorts, new, sums.people), sums.withdrawn
        return np.fromiter((known.get(one, release) in cohorts and one not in gone for one in hashed), dtype=bool)

    def check_release(self, release: str | None, identity: str, most: Event) -> None:
        """Refuse, before it begins, a release whose name or whose lack of one `admit` and `reserve` would refuse.

        A new one that has a name has the whole budget of the people who come with it for all that it is at most.
        """
        with self._held() as read:
            sums = read.checkpoint()
        if release is None:
            self._check_nameless(sums)
            return
        self._check_named(release, keyed_name(self._key, "intent", identity), sums.spent(None))
        if release not in sums.releases:
            self._check_unit(most)
            self._check_room(most, 1, 0)

    def rooms(self, most: Event) -> dict[str, int]:
        """Return for how many releases that are `most` each cohort has room; empty where releases have no names."""
        with self._held() as read:
            sums = read.checkpoint()
        return {one: self._filter.fitting(most, sums.accounts[one]) for one in sums.releases}

    def _check_named(self, release: str, intent: str | None, spent_by_all: int) -> None:
        """Refuse the name of another release, and a ledger whose releases had no names."""
        begun = (one.content for one in self.history().entries if one.content.get("release") == release)
        about = next((content["about"] for content in begun if "about" in content), intent)
        if about != intent:
            raise LedgerMismatchError(
                f"`release` {release!r} was begun with other settings or other public rows, and a name stands for one "
                "release. Repeat it as it was, or choose another name."
            )
        if spent_by_all:
            raise LedgerMismatchError(
                f"`release` must be left out: {self._name} has releases without a name, and no entry of it tells "
                "who spent what. Go on without names, with what is left of the budget or after `tutelage ledger "
                "raise`. Or give people who were in none of its releases a new ledger with names, and leave everyone "
                "else out of their table."
            )

    def withdraw(self, ids: npt.ArrayLike, *, unknown: bool = False) -> tuple[str, ...]:
        """Let no release use the rows of these people from now on, even if the rows stay in the table.

        A release that goes on ends first. Earlier releases stay, and stay spent. The ledger's file alone knows who
        withdrew, by keyed hashes of the ids: no entry says so, because an entry would show that somebody's rows were
        there. So no head of the ledger tells a copy that was made before it; withdraw again after you restore one.

        Parameters
        ----------
        ids : array of shape (people,) of integers or strings
            Ids of the people who withdraw, as in `entity_ids` of a fit.
        unknown : bool
            Whether ids are taken that were in no release, as of people who may come later. A ledger that does not know
            everybody (see `names_all`), as that of a hospital, takes all.

        Returns
        -------
        tuple of str
            UTC day since which each of them is withdrawn, in ISO 8601; private.
        """
        people = [cohort_key(self._key, one) for one in canonical_ids(ids).tolist()]
        with self.releasing(), self._held(write=True) as write:
            known = write.cohorts()
            strange = sum(one not in known for one in people)
            if self._names_all(known) and strange and not unknown:
                raise InvalidDataError(
                    f"`ids` must be of people in the releases of the ledger, and {strange:,} of {len(people):,} are "
                    "not, so no person was withdrawn. Correct them; if they are of people who may come later, pass "
                    "`unknown=True`, or --yes on the command line."
                )
            write.withdraw(people, today())
            since = write.withdrawn()
        return tuple(since[one] for one in people)

    def staying(self, people: Sequence[str]) -> tuple[npt.NDArray[np.bool_], str]:
        """Return which of these people, by canonical ids, have not withdrawn, and what `leave_out` takes; private."""
        with self._held() as read:
            gone, digest = read.withdrawn(), read.checkpoint().withdrawn
        stay = (not gone or cohort_key(self._key, one) not in gone for one in people)
        return np.fromiter(stay, bool, len(people)), digest

    def leave_out(self, withdrawn: str) -> None:
        """Say that the next release uses no rows of people who withdrew, as far as `staying` told of them."""
        self._left_out = withdrawn

    def raise_budget(self, epsilon: float, *, by: str, why: str) -> LedgerState:
        """Raise the budget for good, once no other release goes on, and return the state of the ledger.

        From then on, everything released through the ledger is within the new ε. Everything released until then
        keeps the guarantee of the budget before. An answer may be the reason (docs/proofs/ledger.md). In a ledger for
        Gaussian noise alone, δ doubles the first time.

        Parameters
        ----------
        epsilon : float
            ε of all releases together, those of the past included; more than the present one.
        by, why : str
            Who decided it, and why. Both are public: they are in the ledger's entries.
        """
        for name, text in (("by", by), ("why", why)):
            if not (text.strip() and text.isprintable()):
                raise InvalidParameterError(
                    Problem(f"Ledger.raise_budget.{name}", "be printable text that is not blank")
                )
        with self.releasing(), self._held(write=True) as write:
            limit = self._filter.raised(epsilon)
            budget: dict[str, Any] = {"epsilon": limit.epsilon, "delta": limit.delta, "capacity": limit.capacity}
            write.add(Kind.RAISED, before=self.epsilon, **budget, by=by, why=why)
        _LOGGER.info("Budget raised: ε = %g at δ = %g.", limit.epsilon, limit.delta)
        return self.state()

    def write_binding(self) -> None:
        """Write the entry of `bind`, where it can be written, if no reservation did: all labels were remembered."""
        if self._arrivals is not None:
            self._arrivals.new = ()  # no person is charged, so those who are new here may come with a later release
        if self._digest is not None and not self._store.read_only:
            with suppress(LedgerStorageError, LedgerLockedError), self._held(write=True) as write:
                self._write_beginning(write)
        self._digest = self._intent = self._arrivals = None

    def for_release(self) -> Self:
        """Return this ledger with a binding of its own, for a release beside others of the same object."""
        one = object.__new__(type(self))
        vars(one).update(vars(self))
        return one

    @contextmanager
    def releasing(self, queries: Collection[bytes] = ()) -> Generator[None]:
        """Hold the ledger against other releases until the block ends, from before a step is reserved until it settled.

        A release that waits finds the answers of the one before: equal releases at the same time are one, which is paid
        once. A step that is open although no other release goes on is that of a dead process, and `reserve_new` takes
        it over at no further cost. It is drawn again. That is not a second release, if the time when a process dies
        does not depend on its noise: docs/proofs/ledger.md. Where all `queries` have answers, nothing is waited for.
        """
        file = self._store.file

        def is_needless() -> bool:
            return bool(queries) and len(self.recall(queries)) == len(set(queries))

        with nullcontext() if file is None or self._store.read_only else turn(file, is_needless):
            yield

    @contextmanager
    def drawing(self, reservation: Reservation) -> Generator[None]:
        """Keep what was reserved spent, and the step closed, if a draw fails: it must not be drawn again for free."""
        try:
            yield
        except Exception:
            self.forfeit(reservation)
            raise

    def forfeit(self, reservation: Reservation) -> None:
        """Close a step without an answer; nothing is given back."""
        with self._held(write=True) as write:
            most = Repeated(reservation.event, reservation.queries)
            self._settled(write, reservation, {}, most, 0)

    def is_of(self, digest: bytes) -> bool:
        """Return whether the ledger is tied to the data set with this digest."""
        with self._held() as read:
            return bool(known := read.checkpoint().fingerprint) and is_fingerprint_of(digest, known, self._key)

    def knows(self, people: Sequence[str]) -> npt.NDArray[np.bool_] | None:
        """Return which people, each given once by `canonical_ids`, were in its releases; None if unknown; private.

        It knows everyone whose id was given. Otherwise, it can only tell if its people are exactly these: unless it
        `names_all`, others than those whom it finds may have been there too.
        """
        with self._held() as read:
            cohorts = read.cohorts()
        found = np.array([cohort_key(self._key, person) in cohorts for person in people], dtype=bool)
        if self._names_all(cohorts):
            return found
        if self.is_of(RunningDigest().add_people(people).digest()):
            return np.ones(len(people), dtype=bool)
        return found if found.any() else None

    def names_all(self) -> bool:
        """Return whether all releases gave the ids of their people, so that it knows who was in none."""
        with self._held() as read:
            return self._names_all(read.cohorts())

    def _names_all(self, cohorts: Collection[bytes]) -> bool:
        return bool(cohorts) and cohort_key(self._key, _UNNAMED) not in cohorts

    def _check_binding(self, read: Transaction, digest: bytes, *, changed: bool) -> None:
        known = read.checkpoint().fingerprint
        other = self._digest not in (None, digest) or (known and not is_fingerprint_of(digest, known, self._key))
        if other and not changed:
            raise LedgerMismatchError(
                f"{self._name} is tied to other people or other rows. Name the ledger of these data; if people joined "
                "or left, or rows were corrected, say that the data changed."
            )

    @contextmanager
    def _reserving(self) -> Generator[Transaction]:
        """Hold the file to reserve; refuse to draw if a copy was used, even at the same time, or of who withdrew."""
        self._copies.look()
        with self._held(write=not self._store.read_only) as write:
            self._copies.check(write)
            self._check_left_out(write)
            yield write
        if self._copies.newest:  # of two that reserve at once, one finds the other
            self._copies.look()
            with self._held() as read:
                self._copies.check(read)

    def _check_left_out(self, write: Transaction) -> None:
        """Refuse a release that may use rows of people who withdrew."""
        if write.checkpoint().withdrawn not in ("", self._left_out):
            raise LedgerMismatchError(
                f"People have withdrawn from {self._name}, and nothing shows that their rows are left out here, so "
                "nothing was released. Pass rows in memory with `entity_ids`, to a fit or to a round of sums between "
                "hospitals; if somebody withdrew just now, repeat it."
            )

    def _write_beginning(self, write: Transaction) -> None:
        """Write which release it is and of which data, before its first reservation."""
        begins = self._intent is not None and not write.has_intent(self._intent[0])
        named = {} if self._arrivals is None else self._arrivals.written(write, begins=begins)
        if self._intent is not None and begins:
            about, noise = self._intent
            write.add(Kind.INTENDED, about=about, noise=noise, **named)
        sums = write.checkpoint()
        # Releases before gave no ids, or this one gives none.
        if sums.accounts and self._arrivals is None and bool(self._people) != bool(sums.people):
            write.add_people([cohort_key(self._key, _UNNAMED)], EVERYBODY)
        if self._digest is None or Kind.BOUND in write.kinds:
            return
        self._check_binding(write, self._digest, changed=self._changed)
        write.add(Kind.BOUND, fingerprint=fingerprint(self._key, self._digest))
        if self._people and self._arrivals is None:
            write.add_people(sorted(cohort_key(self._key, one) for one in self._people), EVERYBODY)

    def record_proposal(self, proposal: dict[str, Any]) -> None:
        """Write down what will be published of the labels, before the first is reserved; again, it changes nothing."""
        text = canonical(proposal)  # in which 1 and 1.0 are two
        if text in map(canonical, self.history().proposals):
            return
        with self._held(write=True) as write:
            if text in map(canonical, self._history_in(write, self._seen.history).proposals):  # another was quicker
                return
            if write.checkpoint().asked:
                raise LateProposalError(
                    f"{self._name} has labels already, and a proposal must come before the first of them: labels could "
                    "have shaped it. Publish the worst-case epsilon of these labels."
                )
            write.add(Kind.PROPOSED, proposal=proposal)

    def record_release(self, manifest: Callable[[str], str]) -> None:
        """Write down the hash of a manifest, which `manifest` returns of the present head, before it is published."""
        with self._held(write=True) as write:
            write.add(Kind.RELEASED, manifest=manifest(write.last().hash.hex()))

    def require(self, event: Event, queries: int) -> None:
        """Raise what `reserve` would unless `queries` queries would fit now; spend nothing, and keep no room."""
        self._check_unit(event)
        self._copies.look()
        with self._held() as read:
            self._copies.check(read)
            spent = self._spent(read)
        self._check_room(event, of_queries(event, queries).count, spent)

    def recall_if_fits(self, event: Event, hashes: Collection[bytes], whole: Event | None) -> dict[bytes, Labels]:
        """Return what `recall` does, once the queries without an answer are found to fit now, as by `require`.

        If there are any, there must be room for the `whole` that they are part of. Steps that `reserve_new` would take
        over are paid for.
        """
        self._copies.look()
        with self._held() as read:
            answers = _recalled(read, hashes)
            new = set(hashes) - answers.keys()
            if not new:
                return answers
            self._check_unit(event)
            self._copies.check(read)
            spent, count = self._spent(read), of_queries(event, len(new)).count
            paid = self._left_open(read, _step_of(new), event, count)
        if whole is not None:
            self._check_room(whole, 1, spent - (0 if paid is None else paid.grains))
        elif paid is None:
            self._check_room(event, count, spent)
        return answers

    def left_open(self, event: Event, hashes: Sequence[bytes]) -> int:
        """Return how many of the `query_hashes`, from the first on, are a step that `reserve_new` would take over."""
        with self._held() as read:
            if not read.checkpoint().unsettled:
                return 0
            answers, names = _recalled(read, hashes), read.open_batches()
            for place in range(len(hashes), 0, -1):
                new = {query for query in hashes[:place] if query not in answers}
                if _step_of(new) in names and self._left_open(
                    read, _step_of(new), event, of_queries(event, len(new)).count
                ):
                    return place
        return 0

    def share_of(self, event: Event) -> float:
        """Return the worst-case budget that `event` would spend, as a share of ε."""
        self._check_unit(event)
        return self._filter.share(self._filter.cost(event))

    def fitting(self, event: Event) -> int:
        """Return how many more times `event`, what one query is at most, fits into what remains."""
        with self._held() as read:
            return self._filter.fitting(event, self._spent(read))

    def reserve(self, event: Event, queries: int, *, batch: str | None = None) -> Reservation:
        """Spend what `queries` queries cost at most, on the disk before this returns; draw no noise before.

        Each query is at most `event`. Room on the disk for the answers is kept too, as long as the reservation is held.
        All queries are reserved, or `BudgetExceededError` says how many would fit and nothing is spent. Publications
        are refused too where the δ of all of them would pass the ledger's. A `batch` is spent once: `reserved_for`
        finds it again after a crash, and the same name returns the same reservation.
        """
        integer_at_least(queries, 1, "queries", "Ledger.reserve")
        self._check_reservable(event)
        with self._reserving() as write:
            known = None if batch is None else _reservation(write, write.number_of_batch(batch))
            if known is not None:
                if (known.event, known.queries) != (event, queries) or not self._is_ours(write, known):
                    raise LedgerError(f"Batch {batch} was reserved in {self._name} as something else. Name another.")
                return known
            return self._reserved(write, event, queries, batch)

    def reserve_new(self, event: Event, hashes: Collection[bytes]) -> tuple[dict[bytes, Labels], Reservation | None]:
        """Return what `recall` finds of the `query_hashes`, and what `reserve` reserves for the others, if any."""
        self._check_reservable(event)
        try:
            with self._reserving() as held:
                answers = _recalled(held, hashes)
                new = set(hashes) - answers.keys()
                if not new:
                    return answers, None
                step, count = _step_of(new), of_queries(event, len(new)).count
                left = self._left_open(held, step, event, count)
                if left is None:
                    return answers, self._reserved(held, event, count, step, answers=len(new))
                self._write_beginning(held)
                _LOGGER.info("A step that was reserved and not answered is taken over, at no further cost.")
                return answers, replace(left, room=self._room(event, len(new)))
        except (LedgerLockedError, LedgerMismatchError, LedgerStorageError):  # what is remembered is not drawn again
            answers = self.recall(hashes)
            if set(hashes) - answers.keys():
                raise
            return answers, None

    def reserve_votes(
        self, event: CappedArgmaxGaussian, campaign: str, voters: Voters, wanted: IntArray, *, queries: int
    ) -> Granted:
        """Spend votes of teachers, who are held to the cap over all batches of a campaign; draw no noise before.

        The first batch spends the budget of the campaign, which is at most `event`; the others spend nothing. The spend
        of a teacher is private: no entry of the ledger shows it. `wanted` is how many votes each teacher would cast on
        the queries of this batch.
        """
        integer_at_least(queries, 1, "queries", "Ledger.reserve_votes")
        self._check_reservable(event)
        wanted = np.asarray(wanted)
        hashed = voters.hashed(wanted, self._key)
        with self._reserving() as write:
            paid, new = self._campaign(write, event, campaign)
            self._write_beginning(write)
            votes = spend_votes(write, paid.number, event.cap, hashed, wanted)
            free: dict[str, Any] = {"event": event.as_dict(), "queries": 0, "cost": 0}
            free |= {"campaign": paid.number, **self._release_field}
            entry, room = write.add(Kind.RESERVED, **free), self._store.room(queries, 1)
        return Granted(votes, Reservation(entry.number, entry.hash, event, 0, 0, room), paid, new)

    def _campaign(self, write: Transaction, event: Event, name: str) -> tuple[Reservation, bool]:
        """Return the reservation of a campaign, and whether it was made now; it is settled at once."""
        known = _reservation(write, write.number_of_batch(name))
        if known is not None:
            # Budget that was spent on a batch's own labels cannot pay for others.
            begun = known.event, known.queries, write.answers_to(known.number)
            if begun != (event, 1, 0) or not self._is_ours(write, known):
                raise LedgerError(f"Campaign {name} was begun in {self._name} as something else. Name another.")
            return known, False
        paid = self._reserved(write, event, 1, name)
        self._settled(write, paid, {}, event, 0)
        return paid, True

    def _check_reservable(self, event: Event) -> None:
        """Refuse an event that cannot be spent, and compute its cost before the file is locked."""
        self._check_unit(event)
        _check_storable(event)
        vector_of(event)
        self._filter.cost(event)

    def _reserved(
        self, write: Transaction, event: Event, queries: int, batch: str | None = None, *, answers: int | None = None
    ) -> Reservation:
        """Write down a reservation, or refuse it where the budget or, for a publication, its δ has no room."""
        if isinstance(event, PublicationTest):
            self._history_in(write, self._seen.history).check_share(event.delta)
        cost = queries * self._filter.cost(event)
        self._check_room(event, queries, self._spent(write))
        self._write_beginning(write)
        content: dict[str, Any] = {"event": event.as_dict(), "queries": queries, "cost": cost, **self._release_field}
        if batch is not None:
            content["batch"] = batch
        entry = write.add(Kind.RESERVED, cost, **content)
        room = self._room(event, queries if answers is None else answers)
        _LOGGER.info("Budget reserved: %.4g of ε = %g.", self._filter.share(cost), self.epsilon)
        return Reservation(entry.number, entry.hash, event, queries, cost, room)

    def _left_open(self, read: Transaction, step: str, event: Event, queries: int) -> Reservation | None:
        """Return the reservation of a step that a dead process left open, which no other process can settle."""
        if not is_held(self._store.file) or not read.checkpoint().unsettled:
            return None
        found = _reservation(read, read.open_batches().get(step))
        # Its entry is not read through the chain of hashes, so that nothing in it is believed.
        same = event, queries, queries * self._filter.cost(event)
        if found is None or (found.event, found.queries, found.grains) != same:
            return None
        if any(newest.number >= found.number for newest in self._copies.newest.values()):  # which may take it over too
            return None
        return found if self._is_ours(read, found) else None  # what other people paid for is not drawn of these

    def _room(self, event: Event, queries: int) -> Room | None:
        """Return room on the disk for the answers of so many queries."""
        vector = vector_of(event)
        numbers = sum(part.times for part in event.flatten()) if vector is None else _ROOM_PER_NUMBER * vector[0]
        return self._store.room(queries, numbers)

    def reserved_for(self, batch: str) -> Reservation | None:
        """Return the reservation that was named `batch`, or None."""
        with self._held() as read:
            return _reservation(read, read.number_of_batch(batch))

    def is_settled(self, reservation: Reservation) -> bool:
        """Return whether a reservation of this ledger was settled."""
        with self._held() as read:
            return read.answers_to(reservation.number) is not None

    def settle(self, reservation: Reservation, answers: dict[bytes, Labels], happened: Event) -> Settled:
        """Store the answers of a batch, give back what it did not need, and return the answers that count.

        A query that another session answered in the meantime keeps that answer: there is one answer per query. If this
        raises, the answers must not be released: if more was run than reserved, if the reservation is settled already,
        or if they could not be stored. In the last case they stay spent, and the same call may be made again.
        `answers` are labels per `query_hashes`, or the noisy numbers of a `NoisySumGaussian`, as many as its dimension;
        `happened` is what was run.
        """
        _check_storable(happened)
        vector = vector_of(reservation.event)
        given = [answers_in(labels, vector) for labels in answers.values()]
        breach = breach_of(reservation.event, reservation.queries, happened, given)
        if breach is not None:
            raise LedgerError(f"The mechanism {breach}. Its labels are withheld, and their budget stays spent.")
        refund = reservation.grains - self._filter.cost(happened)
        try:
            with self._held(write=True) as write:
                labels = self._settled(write, reservation, answers, happened, refund)
        except (LedgerStorageError, LedgerLockedError) as error:
            share = self._filter.share(reservation.grains)
            raise type(error)(
                f"{error} Until the answers to these {len(answers):,} queries are stored, they are withheld, "
                f"and {share:.3g} of the budget ε = {self.epsilon:g} stays spent."
            ) from None
        cost = self._filter.share(reservation.grains - refund)
        _LOGGER.info("Labels released: %d, at a cost of %.4g of ε = %g.", len(labels), cost, self.epsilon)
        return Settled(labels, cost)

    def _settled(
        self, write: Transaction, reservation: Reservation, answers: dict[bytes, Labels], happened: Event, refund: int
    ) -> dict[bytes, Labels]:
        """Store the answers and the entry of a batch, and return the answers that count."""
        number = reservation.number
        mine = write.hash_of(number) == reservation.hash and write.answers_to(number) is None
        if not mine or _reservation(write, number) != reservation:
            raise LedgerError(
                "The reservation is not open: it is settled, or belongs to another ledger. Reserve again."
            )
        if reservation.room is not None:
            reservation.room.free()
        texts = ((query, canonical(labels)) for query, labels in sorted(answers.items()))
        kept = [(query, text) for query, text in texts if write.remember(query, text, number)]
        reserved = write.content_of(number)
        about = {"reservation": number, "happened": happened.as_dict(), "refund": refund}
        about |= {name: reserved[name] for name in ("written", "release") if name in reserved}  # the same of both
        write.add(Kind.ANSWERED, -refund, settles=number, **about, answers=len(kept), digest=digest_of(kept))
        return _recalled(write, answers)

    def recall(self, hashes: Collection[bytes]) -> dict[bytes, Labels]:
        """Return the remembered answers among queries, by their `query_hashes`; repeating them costs nothing."""
        with self._held() as read:
            return _recalled(read, hashes)

    def kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return what was kept under a public name; the first time, what `make` returns, for good.

        So what was learned from public rows for a release stays the same on every machine.
        """
        keyed = keyed_name(self._key, "kept", name)
        with self._held() as read:
            found = read.kept(keyed)
        entries = (one.content for one in self.history().entries if one.kind is Kind.KEPT)
        digests = {content["name"]: content["content"] for content in entries}
        if found is None and keyed not in digests:
            found = make()
            if not self._store.read_only:
                with self._held(write=True) as write:
                    found = write.keep(keyed, found)
        elif found is None or digests.get(keyed) != hashlib.sha256(found).hexdigest():
            raise LedgerTamperedError("A map that the ledger keeps was changed. Restore a copy that verifies.")
        return found

    def keeps(self, name: str) -> bool:
        """Return whether something is kept under a public name."""
        with self._held() as read:
            return read.kept(keyed_name(self._key, "kept", name)) is not None

    def drawn_under(self, hashes: Collection[bytes]) -> frozenset[int]:
        """Return the reservations under which the remembered answers of these `query_hashes` were drawn."""
        with self._held() as read:
            return frozenset[int]().union(*(read.drawn_under(query) for query in hashes))

    def query_hashes(self, context: dict[str, Any], rows: npt.ArrayLike, *beside: npt.ArrayLike) -> list[bytes]:
        """Return the keyed hash under which the answer to each query is remembered.

        It is of `context`, which all queries share, the public row, and the other public values `beside` it.
        """
        return query_hashes(self._key, context, rows, *beside)

    def state(self) -> LedgerState:
        """Return what the ledger says now, by the sums that are kept with every entry."""
        with self._held() as read:
            self._seen.newest = last = read.last()
            sums = read.checkpoint()
        return LedgerState.of(self._opening, last, sums, lambda: self.history().until(last.number).so_far)

    def history(self) -> History:
        """Return what was done through the ledger; the first call reads and checks every entry, later ones the new."""
        before = self._seen.history  # of no later time than what is read, whatever other threads write meanwhile
        with self._held(copied=not before.entries) as read:
            return self._history_in(read, before)

    def _history_in(self, read: Transaction, before: History) -> History:
        found = before.extended(read)
        if len(found.entries) > len(self._seen.history.entries):
            self._seen.history, self._seen.newest = found, found.last
        return found

    def verify(self, head: str | None = None) -> LedgerState:
        """Check the whole file: its structure, every entry, every label, and that every cost was spent in full.

        `head` is the hash of the newest entry at an earlier time, kept elsewhere; the ledger must still hold it. Only
        this head detects a ledger that was replaced by an older copy or rewritten from some entry on.
        """
        if head is not None and not _HEAD.fullmatch(head):
            raise InvalidParameterError(Problem("Ledger.verify.head", "be 64 hexadecimal digits", f"{head!r}"))
        with self._held(copied=True) as read:
            last, sums = read.last(), verified(read, head=None if head is None else head.lower())
        self._seen.newest = last
        return LedgerState.of(self._opening, last, sums, lambda: self.history().until(last.number).so_far)

    def backup(self, path: str | os.PathLike[str]) -> str:
        """Write a copy to a file that does not exist yet, while others use the ledger; return its newest entry's hash.

        The copy holds the same budget, and not a second one: use it only in place of a ledger that was lost, and keep
        the hash elsewhere. Later spending is not in the copy.
        """
        copy = user_path(path)
        self._store.back_up(copy)
        return Ledger.open(copy, read_only=True).verify().head

    def export(self) -> list[dict[str, Any]]:
        """Return every entry with its hash as plain values, for the file of an auditor; nothing in it is secret."""
        return [{**entry.content, "hash": entry.hash.hex()} for entry in self.history().entries]

    def __repr__(self) -> str:
        return f"Ledger({self._name}, epsilon={self.epsilon:g}, delta={self.delta:g}, unit={self.unit.name!r})"

    def __deepcopy__(self, _: object) -> Self:
        """Return itself: a copy of a model shares the one budget."""
        return self

    def __reduce__(self) -> NoReturn:
        raise LedgerError("A Ledger cannot be pickled. Pass the path of its file, and open that file.")

    @property
    def _name(self) -> str:
        return "This budget" if self.path is None else str(self.path)

    @property
    def release(self) -> str | None:
        """The name of the release that is made by this object, if it has one."""
        return None if self._arrivals is None else self._arrivals.release

    @property
    def _release_field(self) -> dict[str, str]:
        """The part of an entry that says whose budget it spends."""
        return {} if self._arrivals is None else {"release": self._arrivals.release}

    def _is_ours(self, read: Transaction, reservation: Reservation) -> bool:
        """Return whether a reservation spends the budget of the people who take part in this release."""
        return read.content_of(reservation.number).get("release") == self._release_field.get("release")

    def _spent(self, read: Transaction) -> int:
        """Return what the people have spent, at most, who take part in the release."""
        sums = read.checkpoint()
        if self._arrivals is not None:
            return max(sums.accounts.get(one, 0) for one in self._arrivals.cohorts)
        self._check_nameless(sums)
        return read.last().spent

    def _check_nameless(self, sums: Checkpoint) -> None:
        if sums.in_cohorts:
            raise LedgerMismatchError(
                f"`release` must name each release through {self._name}, which counts what is spent for the people who "
                "came with each. Name this one, such as release='2026-02'."
            )

    def _check_unit(self, event: Event) -> None:
        if any(part.event.unit != self.unit for part in event.flatten()):
            other = event.flatten()[0].event.unit
            raise LedgerMismatchError(
                f"{self._name} protects one {self.unit}, these votes one {other}. Use the ledger of their data set, or "
                "a vote file that says whose votes it holds."
            )

    @contextmanager
    def _held(self, *, write: bool = False, copied: bool = False) -> Generator[Transaction]:
        """Hold the file, or a copy of it in memory, once it is found to be the ledger that was opened."""
        had_file = self.has_file
        newest = self._seen.newest  # of no later time than what is read, whatever other threads write meanwhile
        with self._store.snapshot() if copied else self._store.transaction(write=write) as held:
            if held.key() != self._key or held.hash_of(newest.number) != newest.hash:
                raise LedgerTamperedError(
                    f"{self._name} was replaced, by another or an older one, while it was in use."
                )
            if not copied:
                self._filter = held.checkpoint().limit(self._opening)  # which somebody may have raised
            yield held
        self._seen.newest = held.appended or self._seen.newest
        if Kind.BOUND in held.kinds:
            self._digest = None
        if not had_file and self.has_file:
            self._logged("made")

    def _check_room(self, event: Event, queries: int, spent: int) -> None:
        cost, share = self._filter.cost(event), self._filter.share
        if spent + queries * cost <= self._filter.capacity:
            return
        fitting, room = self._filter.fitting(event, spent), max(0, self._filter.capacity - spent)
        said = (
            f"{self._name} does not allow {queries:,} more such queries: {fitting:,} would still fit. Of its "
            f"ε = {self.epsilon:g} at δ = {self.delta:g}, {share(spent):.4g} is spent; one of them takes up to "
            f"{share(cost):.3g}. Ask fewer, or add more noise."
        )
        if queries == 1:
            said = (
                f"{self._name} has no room for this release: it takes up to {share(cost):.4g} of ε = {self.epsilon:g} "
                f"at δ = {self.delta:g}, and {share(room):.4g} remains. Add more noise."
            )
        raise BudgetExceededError(said, requested=queries, fitting=fitting)


def _kinds(events: Sequence[Event]) -> Counter[str]:
    """Return how often each kind of event is in others, by what its cost depends on, to six digits."""
    found = Counter[str]()
    for event, times in counted(events).items():
        fields = {name: value for name, value in event.as_dict().items() if name != "dimension"}
        found[canonical({name: f"{x:.6g}" if isinstance(x, float) else x for name, x in fields.items()})] += times
    return found


def _step_of(new: Collection[bytes]) -> str:
    """Return the name of the step in which these queries are answered."""
    return f"step {hashlib.sha256(b''.join(sorted(new))).hexdigest()}"


@dataclass(slots=True)
class _Seen:
    """The newest entry and all that was read of the file so far, for every use of one object."""

    newest: Entry
    history: History = field(default_factory=lambda: History(()))


def _limit(epsilon: float, delta: float, order: float | None, suited_to: Event | None, accounting: str) -> Filter:
    kind = accounting_of(accounting)
    if order is not None and suited_to is not None:
        raise InvalidParameterError(
            Problem("Ledger.order", "be left out if you pass $suited_to, because both set the order")
        )
    if order is None and suited_to is None:
        return limit_of(epsilon, delta, kind)
    if kind is Accounting.GAUSSIAN:
        raise InvalidParameterError(
            Problem("Ledger.order", "be left out, and so must $suited_to, unless $accounting is 'renyi'")
        )
    return RenyiFilter.suited_to(epsilon, delta, suited_to) if order is None else RenyiFilter(epsilon, delta, order)


def _check_storable(event: Event) -> None:
    """Refuse an event that would not come back from the file as it is."""
    try:
        stored = event_from_dict(json.loads(canonical(event.as_dict())))
    except (TypeError, ValueError, RecursionError):
        stored = None
    if stored != event:
        raise UnsupportedEventError(f"A {type(event).__name__} of this kind cannot be recorded in a ledger.")


def _reservation(read: Transaction, number: int | None) -> Reservation | None:
    """Return the reservation that an entry is, or None where there is no such entry."""
    if number is None or (found := read.hash_of(number)) is None:
        return None
    content = read.content_of(number)
    return Reservation(number, found, event_from_dict(content["event"]), content["queries"], content["cost"])


def _recalled(read: Transaction, hashes: Collection[bytes]) -> dict[bytes, Labels]:
    found = ((query, read.recall(query)) for query in hashes)
    return {query: tuple(read_labels(labels)) for query, labels in found if labels is not None}


def existing_ledger(where: str | os.PathLike[str] | Ledger | None) -> Ledger | None:
    """Return a ledger that is given or on file, or None where there is none yet."""
    if where is None or isinstance(where, Ledger):
        return where
    with suppress(LedgerMissingError):
        return Ledger.open(where)
    return None


def delta_of(stated: float | None, where: str | os.PathLike[str] | Ledger | None) -> float:
    """Return δ as it is stated, or else that of the ledger, or the usual one where there is no ledger yet."""
    if stated is not None:
        return stated
    existing = existing_ledger(where)
    return DEFAULT_DELTA if existing is None else existing.delta


def opened_ledger(
    where: str | os.PathLike[str] | Ledger | None,
    event: Event,
    queries: int,
    *,
    epsilon: float | None,
    delta: float,
    unit: PrivacyUnit,
    accounting: Accounting = Accounting.RENYI,
    suited: bool = True,
) -> Ledger:
    """Return a ledger, or a new one whose first reservation makes its file; refuse another budget or unit.

    Where ε is None, an old ledger may have any, and a new one just holds `queries` queries that are at most `event`.
    The Rényi order of a new ledger with an ε suits the event or, unless `suited`, Gaussian noise.
    """
    found = existing_ledger(where)
    if found is not None:
        require_terms(found, epsilon, delta, unit)
        return found
    gaussian = accounting is Accounting.GAUSSIAN
    if epsilon is None:
        limit = holding(of_queries(event, queries), delta, accounting)
    else:
        limit = _limit(epsilon, delta, None, event if suited and not gaussian else None, accounting)
    return Ledger.made_by_spending(None if isinstance(where, Ledger) else where, limit, unit)


def require_terms(ledger: Ledger, epsilon: float | None, delta: float, unit: PrivacyUnit) -> None:
    """Refuse a ledger with another budget, where one is named, or of another unit."""
    terms = (("budget", epsilon, ledger.epsilon), ("delta", delta, ledger.delta))
    problems = [
        f"`{name}` must be {found:.15g}, that of the ledger. Got {wanted:.15g}. State that one, or none. A budget is "
        "raised by `tutelage ledger raise`, which may double δ."
        for name, wanted, found in terms
        if wanted not in (None, found)
    ]
    if problems:
        raise LedgerMismatchError(*problems)
    if ledger.unit == unit:
        return
    row = NeighboringRelation.CHANGE_ONE_ROW
    if ledger.unit.neighboring is row and unit.neighboring is not row:
        raise LedgerMismatchError(
            f"The ledger protects one row, and this release one {unit.name}. A ledger of rows cannot become a ledger "
            "of people: a person may have any number of rows, so no ε for a person follows from what rows have spent. "
            "Create a new ledger for the people. It does not cover the earlier releases, whose guarantee remains the "
            "one for rows."
        )
    raise LedgerMismatchError(
        f"The ledger protects one {ledger.unit}, this release another unit, {unit}. Name the unit of the ledger."
    )
