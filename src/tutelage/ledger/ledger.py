"""The ledger: a budget that many processes may race for and none can pass, and its administration."""

import hashlib
import logging
import os
import re
import secrets
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn, Self, final

import numpy.typing as npt

from tutelage._internal.gate import user_path
from tutelage._internal.outputs import is_exposed, warned_of_disk
from tutelage._internal.releases import today
from tutelage.accounting.filter import (
    Accounting,
    Filter,
    RenyiFilter,
    holding,
    limit_of,
)
from tutelage.events import Event, of_queries
from tutelage.exceptions import (
    ExposedFileWarning,
    InvalidDataError,
    InvalidParameterError,
    LedgerError,
    LedgerMismatchError,
    LedgerMissingError,
)
from tutelage.ledger.account import Account
from tutelage.ledger.beginning import Intent, Whom
from tutelage.ledger.entries import Entry, EntryKind
from tutelage.ledger.history import History, LedgerState
from tutelage.ledger.opened import OpenedLedger
from tutelage.ledger.people import cohorts, key_of, withdraw, withdrawn
from tutelage.ledger.register import Register, names_all
from tutelage.ledger.scope import Scope
from tutelage.ledger.store import Store
from tutelage.ledger.verification import verify_entries
from tutelage.partition import canonical_ids
from tutelage.privacy import NeighboringRelation, PrivacyUnit

_TIMEOUT = 60.0
_HEAD = re.compile(r"[0-9a-fA-F]{64}")
_LOGGER = logging.getLogger(__name__)
DEFAULT_DELTA = 1e-5  # where neither a release nor a ledger says another one


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
        self._opened = OpenedLedger(store)
        self.path: Final = store.path
        self.unit: Final = self._opened.unit
        self.owner: Final[str | None] = self._opened.opening.content.get("owner")
        self.account: Final = Account(self._opened)
        self.register: Final = Register(self._opened)

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
        ledger = cls(_new_store(path, limit, unit, owner, timeout))
        ledger._opened.store.make_file()
        ledger._opened.log("made")
        return ledger

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
        return cls(_new_store(None, _limit(epsilon, delta, order, suited_to, accounting), unit))

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, read_only: bool = False, timeout: float = _TIMEOUT
    ) -> Self:
        """Open a ledger, checking its first and its newest entry and the sums over all of them.

        The answers are counted; `verify` checks every entry and every answer. `read_only` works on a read-only disk;
        `timeout` is how many seconds to wait while another process writes, before `LedgerLockedError`.
        """
        ledger = cls(Store(user_path(path), timeout=timeout, read_only=read_only))
        file = ledger._opened.store.file
        if (
            file is not None
            and not read_only
            and is_exposed(file.stat())
            and not warned_of_disk(file)
        ):
            warnings.warn(
                f"{path} contains a secret key, and others may read or change it. Run `chmod 600` on it.",
                ExposedFileWarning,
                stacklevel=2,
            )
        ledger._opened.log("opened")
        return ledger

    @property
    def limit(self) -> Filter:
        """The present budget, whatever was spent of it."""
        return self._opened.limit

    @contextmanager
    def begin(self, intent: Intent | None = None, whom: Whom | None = None) -> Generator[Scope]:
        """Begin a release once no other goes on, and hold off others until the block ends.

        The first reservation writes down the release and its people. If all of it was released before, they are written
        when the block ends without an error. An error in the block writes, settles and forfeits nothing. A block inside
        another of the same thread does not wait.

        Parameters
        ----------
        intent : Intent, optional
            The release. Without one, nothing is written that says so.
        whom : Whom, optional
            Its people; private.

        Yields
        ------
        Scope
            The account to spend from, and who takes part.

        Raises
        ------
        LedgerMismatchError
            If the ledger is tied to other data, or the release has a name that is taken.
        """
        with self._opened.turn():
            scope = Scope(self._opened, intent, whom)
            yield scope
            if intent is not None:
                scope.write()

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
            everybody (see `Register.names_all`), as that of a hospital, takes all.

        Returns
        -------
        tuple of str
            UTC day since which each of them is withdrawn, in ISO 8601; private.
        """
        opened = self._opened
        people = [key_of(opened.key, person) for person in canonical_ids(ids).tolist()]
        with opened.turn(), opened.hold(write=True) as write:
            known = cohorts(write)
            strange = sum(person not in known for person in people)
            if names_all(opened, known) and strange and not unknown:
                raise InvalidDataError(
                    f"`ids` must be of people in the releases of the ledger, and {strange:,} of {len(people):,} are "
                    "not, so no person was withdrawn. Correct them; if they are of people who may come later, pass "
                    "`unknown=True`, or --yes on the command line."
                )
            withdraw(write, people, today())
            since = withdrawn(write)
        return tuple(since[person] for person in people)

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
                    f"Ledger.raise_budget.{name}", "be printable text that is not blank"
                )
        with self._opened.turn(), self._opened.hold(write=True) as write:
            before = self.limit
            limit = before.larger_budget(epsilon)
            write.add(
                EntryKind.RAISED,
                before=before.epsilon,
                epsilon=limit.epsilon,
                delta=limit.delta,
                capacity=limit.capacity,
                by=by,
                why=why,
            )
        _LOGGER.info("Budget raised: ε = %g at δ = %g.", limit.epsilon, limit.delta)
        return self.state()

    def state(self) -> LedgerState:
        """Return what the ledger says now, by the sums that are kept with every entry."""
        with self._opened.hold() as read:
            return self._opened.state_in(read)

    def history(self) -> History:
        """Return what was done through the ledger; the first call reads and checks every entry, later ones the new."""
        return self._opened.history()

    def verify(self, head: str | None = None) -> LedgerState:
        """Check the whole file: its structure, every entry, every label, and that every cost was spent in full.

        `head` is the hash of the newest entry at an earlier time, kept elsewhere; the ledger must still hold it. Only
        this head detects a ledger that was replaced by an older copy or rewritten from some entry on.
        """
        if head is not None and not _HEAD.fullmatch(head):
            raise InvalidParameterError(
                "Ledger.verify.head", "be 64 hexadecimal digits", repr(head)
            )
        with self._opened.hold(copied=True) as read:
            verify_entries(read, head)
            return self._opened.state_in(read)

    def backup(self, path: str | os.PathLike[str]) -> str:
        """Write a copy to a file that does not exist yet, while others use the ledger; return its newest entry's hash.

        The copy holds the same budget, and not a second one: use it only in place of a ledger that was lost, and keep
        the hash elsewhere. Later spending is not in the copy.
        """
        copy = user_path(path)
        self._opened.store.back_up(copy)
        return Ledger.open(copy, read_only=True).verify().head

    def export(self) -> list[dict[str, Any]]:
        """Return every entry with its hash as plain values, for the file of an auditor; nothing in it is secret."""
        return [{**entry.content, "hash": entry.hash.hex()} for entry in self.history().entries]

    def __repr__(self) -> str:
        limit = self.limit
        return f"Ledger({self._opened}, epsilon={limit.epsilon:g}, delta={limit.delta:g}, unit={self.unit.name!r})"

    def __deepcopy__(self, _: object) -> Self:
        """Return itself: a copy of a model shares the one budget."""
        return self

    def __reduce__(self) -> NoReturn:
        raise LedgerError(
            "A Ledger cannot be pickled. Pass the path of its file, and open that file."
        )


def _limit(
    epsilon: float, delta: float, order: float | None, suited_to: Event | None, accounting: str
) -> Filter:
    kind = Accounting.of(accounting)
    if order is not None and suited_to is not None:
        raise InvalidParameterError(
            "Ledger.order", "be left out if you pass $suited_to, because both set the order"
        )
    if order is None and suited_to is None:
        return limit_of(epsilon, delta, kind)
    if kind is Accounting.GAUSSIAN:
        raise InvalidParameterError(
            "Ledger.order", "be left out, and so must $suited_to, unless $accounting is 'renyi'"
        )
    if order is None:
        return RenyiFilter.suited_to(epsilon, delta, suited_to)
    return RenyiFilter(epsilon, delta, order)


LedgerOrPath = str | os.PathLike[str] | Ledger


def existing_ledger(where: LedgerOrPath | None) -> Ledger | None:
    """Return a ledger that is given or on file, or None where there is none yet."""
    if where is None or isinstance(where, Ledger):
        return where
    with suppress(LedgerMissingError):
        return Ledger.open(where)
    return None


def open_ledger(
    where: LedgerOrPath | None,
    event: Event,
    queries: int,
    *,
    epsilon: float | None,
    delta: float,
    unit: PrivacyUnit,
    accounting: Accounting = Accounting.RENYI,
    suited: bool = True,
    check: Callable[[], None] | None = None,
) -> Ledger:
    """Return a ledger, or a new one whose first reservation makes its file; refuse another budget or unit.

    `check` may refuse a new one: it is called now, and again just before the file appears, while no other ledger is
    made beside it. If another process makes the file first, the reservation raises `LedgerOvertakenError`.

    Where ε is None, an old ledger may have any, and a new one just holds `queries` queries that are at most `event`.
    The Rényi order of a new ledger with an ε suits the event or, unless `suited`, Gaussian noise.
    """
    existing = existing_ledger(where)
    if existing is not None:
        require_terms(existing, epsilon, delta, unit)
        return existing
    if epsilon is None:
        limit = holding(of_queries(event, queries), delta, accounting)
    else:
        suits_event = suited and accounting is not Accounting.GAUSSIAN
        limit = _limit(epsilon, delta, None, event if suits_event else None, accounting)
    if check is not None:
        check()
    store = _new_store(None if isinstance(where, Ledger) else where, limit, unit)
    store.check = check
    return Ledger(store)


def _new_store(
    path: str | os.PathLike[str] | None,
    limit: Filter,
    unit: PrivacyUnit,
    owner: str | None = None,
    timeout: float = _TIMEOUT,
) -> Store:
    """Return the store of a new ledger, in memory until its first reservation makes the file, if it has one."""
    key = secrets.token_bytes(32)
    content = limit.as_dict()
    content["unit"] = unit.as_dict()
    content["key"] = hashlib.sha256(key).hexdigest()
    if owner is not None:
        content["owner"] = owner
    first = Entry.after(None, EntryKind.OPENED, 0, **content)
    return Store.create(None if path is None else user_path(path), first, key, timeout=timeout)


def require_terms(ledger: Ledger, epsilon: float | None, delta: float, unit: PrivacyUnit) -> None:
    """Refuse a ledger with another budget, where one is named, or of another unit."""
    limit = ledger.limit
    terms = (("budget", epsilon, limit.epsilon), ("delta", delta, limit.delta))
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
