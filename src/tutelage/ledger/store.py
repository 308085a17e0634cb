"""The ledger's file: SQLite with a rollback journal, every commit on the disk before the call returns.

One writer at a time holds the file from the first read of a transaction to its commit (``BEGIN IMMEDIATE``). The
connection is kept, and no lock is held between transactions: POSIX locks are forgotten by a fork and vanish when
anybody in the process closes the file, so a lock that is kept, as a write-ahead log needs one, can be lost.

A commit waits for the disk five times: for the journal, for its name in the folder, and for its header, so that a
power cut can be undone whatever was written of the pages; for the pages; and for the removal of the journal, so that
what is committed stays so.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from glob import escape
from pathlib import Path
from tempfile import mkstemp
from typing import final
from weakref import finalize

from tutelage._internal.forks import BriefLock
from tutelage._internal.outputs import OF_LEDGERS, put_new, sync
from tutelage.exceptions import (
    LedgerError,
    LedgerLockedError,
    LedgerMissingError,
    LedgerOvertakenError,
    LedgerStorageError,
    LedgerTamperedError,
)
from tutelage.ledger.disk import DiskSpace, check_locks, hold_folder
from tutelage.ledger.entries import Entry, EntryKind, another_format
from tutelage.ledger.transaction import INDEXES, SCHEMA, Cache, Transaction

_APPLICATION = 0x74757465  # "tute" in the header of the file
_HEADER = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
_MAKING = ".making-"  # follows the name of a file that is not whole yet
_VERSION = 1
_OF_PARENTS: list[sqlite3.Connection] = []
_Identity = tuple[int, int, int]  # of a file: its device, its number, and when it changed last


@final
class Store:
    """An open ledger file, or one in memory: for good, or until its first reservation makes the file."""

    def __init__(
        self,
        path: Path | None,
        *,
        timeout: float,
        read_only: bool = False,
        memory: sqlite3.Connection | None = None,
    ) -> None:
        self.path = path
        # Another working directory is not another ledger.
        self.file = None if path is None else _resolve(path)
        self.timeout = timeout
        self.read_only = read_only
        self._lock = BriefLock()  # held during every transaction of this process
        self._process = os.getpid()
        self._memory = memory
        # The identity of the file, its connection, and how to close it.
        self._kept: tuple[_Identity, sqlite3.Connection, Callable[[], object]] | None = None
        self._is_durable = False  # the connection
        self._cache = Cache()
        self._version: int | None = None  # of the file, by the kept connection, when it was read
        # Called at the first reservation, just before it makes the file.
        self.check: Callable[[], None] | None = None
        if self.file is not None and memory is None:
            if not read_only:
                check_locks(self.file.parent)
            # Otherwise a forked child could hold the file for ever. No other thread waits for a lock that is new.
            with self._lock, _explain_errors(path, timeout):
                self._check_header()
            # The search for copies leaves out what has no name of a ledger.
            _require_name(self.file)

    @classmethod
    def create(cls, path: Path | None, first: Entry, key: bytes, *, timeout: float) -> "Store":
        """Return a ledger with its first entry, in memory until `make_file` or the first reservation."""
        if path is not None:
            if not path.parent.is_dir():
                raise LedgerStorageError(
                    f"{path} cannot be made: its folder does not exist. Create the folder first."
                )
            _require_name(path)
            check_locks(path.parent)
        memory = _connect(":memory:", timeout)
        for statement in (SCHEMA | INDEXES).values():
            memory.execute(statement)
        memory.execute("INSERT INTO secret VALUES (?)", (key,))
        memory.execute(f"PRAGMA user_version = {_VERSION}")

        write = Transaction(memory)
        write.append(first)
        write.write_sums()
        return cls(path, timeout=timeout, memory=memory)

    def make_file(self) -> None:
        """Write a ledger that is in memory to its file, readable by its owner only, if no ledger is there."""
        if self.file is not None and self._memory is not None:
            with self._lock, _explain_errors(self.path, self.timeout):
                _write_file(self.file, self._memory, self.timeout)
                self._memory = None

    @contextmanager
    def transaction(self, *, write: bool = False) -> Generator[Transaction]:
        """Hold the file, for writing if asked, until the block ends: committed if it ends well, undone if it raises."""
        with self._lock, _explain_errors(self.path, self.timeout):
            # Taken before the file is opened, so that what is committed to is what is there.
            before = self._identity()
            try:
                connection = self._connection(before)
                if write and self._memory is None and not self._is_durable:
                    _make_durable(connection)
                    self._is_durable = True
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                held = Transaction(connection, self._cache_of(connection))
                held.check_schema()
                yield held
                if self._identity()[:2] != before[:2]:
                    raise LedgerTamperedError(
                        f"{self.path} was replaced while in use. Nothing was written."
                    )
                held.write_sums()
                makes = False
                if self.file is not None and self._memory is not None:
                    makes = EntryKind.RESERVED in held.kinds
                    if makes:
                        _write_file(self.file, connection, self.timeout, self.check)
                connection.execute("COMMIT")
                if write and self._kept is not None:
                    with suppress(LedgerError):  # it is on the disk already
                        self._kept = self._identity(), *self._kept[1:]
                if makes:
                    self._memory = None
                    self.check = None
                    self._forget()
            except BaseException:
                self._undo()
                raise
            finally:
                if self.read_only:
                    self._forget()

    @property
    def has_file(self) -> bool:
        """Whether it is on file."""
        return self._memory is None

    def reserve_space(self, queries: int, labels: int) -> DiskSpace | None:
        """Reserve disk space for answers to queries, of so many labels each; return None for a ledger in memory."""
        if self.file is None:
            return None
        return DiskSpace(self.file, queries, labels)

    @contextmanager
    def snapshot(self) -> Generator[Transaction]:
        """Yield a copy of the present file in memory, so that other processes need not wait while it is read."""
        with self._copy(self.path) as copy:
            yield Transaction(copy)

    def back_up(self, path: Path) -> None:
        """Write a copy of the present file to a new one, readable by its owner only, while others may use this one."""
        _require_name(path)
        with self._copy(path) as copy:
            _write_file(_resolve(path), copy, self.timeout)

    @contextmanager
    def _copy(self, named: Path | None) -> Generator[sqlite3.Connection]:
        """Yield a copy in memory of what is on the disk now, and of nothing that was read before."""
        with closing(_connect(":memory:", 0)) as copy:
            with self._lock:
                self._forget()
                with self.transaction() as read:
                    read.connection.backup(copy)
            with _explain_errors(named, self.timeout):
                yield copy

    def _connection(self, identity: _Identity) -> sqlite3.Connection:
        """Return the connection to the file with this identity, the same as before where no other wrote to it.

        SQLite tells what another connection wrote by a count in the file, and a copy that is written over the file,
        of an earlier time, may come to the same count.
        """
        if self._memory is not None:
            if self._process != os.getpid():
                raise LedgerError(
                    "A ledger in memory cannot be used by a second process. Give it a file."
                )
            return self._memory
        if self._process != os.getpid():
            self._kept = None  # the parent's, which a child neither uses nor closes
            self._process = os.getpid()
            self._forget()
        if self._kept is not None and self._kept[0] == identity:
            return self._kept[1]

        self._forget()
        file = self.file or Path()
        mode = "rw"
        if self.read_only:
            mode = "ro"
            if not Path(f"{file}-journal").exists() and not os.access(file.parent, os.W_OK):
                mode = "ro&immutable=1"
        connection = _connect(f"{file.as_uri()}?mode={mode}", self.timeout)
        self._kept = identity, connection, finalize(self, _close, connection, self._process)
        return connection

    def _cache_of(self, connection: sqlite3.Connection) -> Cache:
        """Return what was read in earlier transactions, unless somebody else has written since."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._cache = Cache()
            self._version = version
        return self._cache

    def _forget(self) -> None:
        """Close the connection, and forget what was read through it."""
        self._is_durable = False
        self._cache = Cache()
        self._version = None
        if self._kept is not None:
            self._kept[2]()
            self._kept = None

    def _undo(self) -> None:
        """Undo what was written in a transaction, and forget what was read."""
        if self._memory is not None and self._memory.in_transaction:
            self._memory.execute("ROLLBACK")
        self._forget()  # closing a connection undoes its transaction

    def _identity(self) -> _Identity:
        """Return which file it is, and when it changed last, refusing one that is not there or has a second name."""
        if self.file is None or self._memory is not None:
            return 0, 0, 0
        try:
            state = self.file.stat()
        except OSError:
            raise LedgerMissingError(
                f"{self.path} does not exist. Make it with `tutelage ledger init`."
            ) from None
        if not stat.S_ISREG(state.st_mode):
            raise LedgerStorageError(f"{self.path} is not a file. Name the ledger's file.")
        # Two names would have two journals, and a crash would restore the wrong one.
        if state.st_nlink > 1:
            raise LedgerStorageError(
                f"{self.path} has a second name (a hard link). Keep one, so that there is one budget."
            )
        return state.st_dev, state.st_ino, state.st_ctime_ns

    def _check_header(self) -> None:
        """Refuse what is no ledger."""
        connection = self._connection(self._identity())
        application, version, tables = (
            connection.execute(query).fetchone()[0] for query in _HEADER
        )
        if application == version == tables == 0:
            raise LedgerStorageError(
                f"{self.path} is empty, so it is not a ledger. Restore a copy that verifies, or name another file."
            )
        if application != _APPLICATION:
            raise LedgerStorageError(
                f"{self.path} is a database, but no ledger of tutelage. Name another file."
            )
        if version != _VERSION:
            raise another_format(str(self.path), version)


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # the latter before Python 3.13
        raise LedgerStorageError(
            f"{path} is a link that leads in a circle. Name the ledger's file."
        ) from None


def is_beside_ledger(name: str) -> bool:
    """Return whether a file of this name may belong to a ledger that has another."""
    return name.endswith(OF_LEDGERS) or _MAKING in name


def _require_name(path: Path) -> None:
    """Refuse the name of a ledger that is that of a file beside another, or, of a new one, beside which these lie."""
    if is_beside_ledger(path.name):
        raise LedgerStorageError(
            f"{path} cannot be the name of a ledger, because files with such names belong to other ledgers and are "
            "removed with them. Rename the file, or name another, such as one that ends with .ledger."
        )
    left = [file for file in (f"{path}{end}" for end in OF_LEDGERS[:3]) if os.path.lexists(file)]
    if left and not os.path.lexists(path):  # SQLite would take it for the new ledger's own
        raise LedgerStorageError(
            f"{left[0]} is left of an earlier ledger of this name, and would damage a new one. Restore that ledger, or "
            "name another file."
        )


def _connect(database: str, timeout: float) -> sqlite3.Connection:
    """Open a database, in which transactions begin when they are told to."""
    uri = database.startswith("file:")
    return sqlite3.connect(
        database, uri=uri, timeout=timeout, isolation_level=None, check_same_thread=False
    )


def _close(connection: sqlite3.Connection, process: int) -> None:
    if process == os.getpid():
        connection.close()
    else:
        _OF_PARENTS.append(connection)


def _make_durable(connection: sqlite3.Connection) -> None:
    """Have every commit on the disk before the call returns."""
    connection.execute("PRAGMA journal_mode = DELETE")
    # FULL, and the journal's end outlives a power cut.
    connection.execute("PRAGMA synchronous = EXTRA")


def _write_file(
    file: Path, memory: sqlite3.Connection, timeout: float, check: Callable[[], None] | None = None
) -> None:
    """Copy what is in memory to a new file, which appears whole and never over another; `check` may refuse it first."""
    begins = f"{file.name}{_MAKING}"
    with hold_folder(file.parent, f"{escape(begins)}*"):
        if check is not None:
            check()
        try:
            descriptor, name = mkstemp(prefix=begins, dir=file.parent)  # readable by its owner only
        except OSError as error:
            raise LedgerStorageError(
                f"{file} cannot be made: {error.strerror}. Name another file."
            ) from None
        os.close(descriptor)
        part = Path(name)
        try:
            with closing(_connect(f"{part.as_uri()}?mode=rw", timeout)) as copy:
                _make_durable(copy)
                _copy_tables(memory, copy)
            put_new(part, file)
        except FileExistsError:
            raise LedgerOvertakenError(
                f"{file} exists already, with its own budget. Open it, or name another file."
            ) from None
        finally:
            for path in (part, Path(f"{part}-journal")):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # the new name survives a power cut, where the system can make it
            sync(file.parent)


def _copy_tables(source: sqlite3.Connection, copy: sqlite3.Connection) -> None:
    """Write all tables of a ledger, and its indexes, in one transaction."""
    copy.execute("BEGIN EXCLUSIVE")
    for name, statement in SCHEMA.items():
        copy.execute(statement)
        # These are the columns that are stored; `table_info` leaves derived ones out.
        stored = [column for _, column, *_ in source.execute(f"PRAGMA table_info({name})")]
        rows = source.execute(f"SELECT {', '.join(stored)} FROM {name}")  # noqa: S608  one of our own
        marks = ", ".join("?" * len(stored))
        copy.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)  # noqa: S608
    for statement in INDEXES.values():
        copy.execute(statement)
    copy.execute(f"PRAGMA application_id = {_APPLICATION}")
    copy.execute(f"PRAGMA user_version = {_VERSION}")
    copy.execute("COMMIT")


@contextmanager
def _explain_errors(path: Path | None, timeout: float) -> Generator[None]:
    """Raise what SQLite raises as one sentence of a type that says what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        kind = LedgerStorageError
        match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                kind = LedgerLockedError
                problem = (
                    f"was held by another process for {timeout:g} seconds. Nothing was written this time, and what had "
                    "been reserved before stays spent; try again when it is done."
                )
            case sqlite3.SQLITE_FULL:
                problem = "cannot grow: no room on its disk. Nothing more was written; make room."
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                problem = (
                    "is read-only here. Nothing was written; make the file and its folder writable."
                )
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR:
                problem = f"cannot be read or written ({error}). Look at its disk and its folder's rights."
            case sqlite3.SQLITE_NOTADB:
                problem = "is no ledger. Name another file, or restore this one."
            case _:
                kind = LedgerTamperedError
                problem = f"is damaged ({error}). Restore it from a copy that verifies."
        raise kind(f"{path} {problem}") from None
