"""The ledger's file: SQLite with a write-ahead log, every commit on the disk before the call returns.

One writer at a time holds the file from the first read of a transaction to its commit (``BEGIN IMMEDIATE``), so
whatever a transaction decides on is still true when it commits. Connections are never shared between processes.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import final

from tutelage.exceptions import (
    LedgerError,
    LedgerLockedError,
    LedgerStorageError,
    LedgerTamperedError,
)
from tutelage.ledger.entries import Entry

_APPLICATION = 0x74757465  # "tute" in the header of the file
_VERSION = 1
_SCHEMA = {
    "entries": (
        "CREATE TABLE entries (number INTEGER PRIMARY KEY, text TEXT NOT NULL, hash BLOB NOT NULL, "
        "settles INTEGER UNIQUE)"
    ),
    "answers": (
        "CREATE TABLE answers (query BLOB PRIMARY KEY, labels TEXT NOT NULL, reservation INTEGER NOT NULL) "
        "WITHOUT ROWID"
    ),
    "secret": "CREATE TABLE secret (key BLOB NOT NULL)",
}
_UNFINISHED = 5.0  # seconds to wait for another process that is just making the file

Answer = tuple[bytes, str]  # keyed hash of a query, its labels


@final
class Transaction:
    """What can be read and written while the file is held."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute

    def key(self) -> bytes:
        """Return the secret key of this ledger."""
        rows = self._run("SELECT key FROM secret").fetchall()
        if len(rows) != 1 or not isinstance(rows[0][0], bytes):
            raise LedgerTamperedError("The ledger's key is missing.")
        return rows[0][0]

    def last(self) -> Entry:
        """Return the newest entry, checked against the hash before it."""
        newest = self._run("SELECT number, text, hash FROM entries ORDER BY number DESC LIMIT 2").fetchall()
        if not newest:
            raise LedgerTamperedError("The ledger holds no entries.")
        number, text, found = newest[0]
        if number == 0:
            return Entry.read(None, text, found)
        if len(newest) < 2 or newest[1][0] != number - 1:
            raise LedgerTamperedError(f"Entry {number - 1} is missing.")
        return Entry.read(Entry({"number": number - 1}, "", newest[1][2]), text, found)

    def entries(self) -> Iterator[tuple[Entry, int | None]]:
        """Yield every entry in order, each checked against the one before it, and the reservation that it settles."""
        last = None
        for place, (number, text, found, settles) in enumerate(
            self._run("SELECT number, text, hash, settles FROM entries ORDER BY number")
        ):
            if number != place:
                raise LedgerTamperedError(f"Entry {place} is missing.")
            last = Entry.read(last, text, found)
            yield last, settles

    def reservation(self, number: int) -> str | None:
        """Return the text of the entry `number` if it is not settled yet."""
        row = self._run(
            "SELECT text FROM entries WHERE number = ? AND NOT EXISTS (SELECT 1 FROM entries WHERE settles = ?)",
            (number, number),
        ).fetchone()
        return None if row is None else row[0]

    def append(self, entry: Entry, settles: int | None = None) -> None:
        """Write an entry."""
        self._run("INSERT INTO entries VALUES (?, ?, ?, ?)", (entry.number, entry.text, entry.hash, settles))

    def remember(self, query: bytes, labels: str, reservation: int) -> bool:
        """Store an answer unless the query has one, and say whether it was stored."""
        return self._run("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (query, labels, reservation)).rowcount == 1

    def recall(self, query: bytes) -> str | None:
        """Return the stored answer of a query."""
        row = self._run("SELECT labels FROM answers WHERE query = ?", (query,)).fetchone()
        return None if row is None else row[0]

    def answers(self) -> Iterator[tuple[int, bytes, str]]:
        """Yield reservation, query and labels of every stored answer, in the order of the queries' hashes."""
        yield from self._run("SELECT reservation, query, labels FROM answers ORDER BY query")

    def found_faults(self) -> bool:
        """Return whether SQLite finds its own structures damaged, or a table, index or trigger that is none of ours."""
        if self._run("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return True
        schema = self._run("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        return dict(schema) != _SCHEMA or len(schema) != len(_SCHEMA)


@final
class Store:
    """An open ledger file, or one in memory.

    Parameters
    ----------
    path : path or None
        The file; None for one in memory, which only this process can use.
    timeout : float
        Seconds to wait for another process that holds the file.
    read_only : bool
        Open it for reading only, which works on a read-only disk.
    """

    def __init__(self, path: Path | None, *, timeout: float, read_only: bool = False) -> None:
        self.path = path
        self._timeout = timeout
        self._read_only = read_only
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._inherited: list[sqlite3.Connection] = []
        with _explained(path, timeout):
            self._connection = self._connect()
            if path is not None:
                self._check_header()

    @classmethod
    def create(cls, path: Path | None, first: Entry, key: bytes, *, timeout: float) -> "Store":
        """Make the file, readable by its owner only, with its first entry.

        Raises
        ------
        FileExistsError
            If there is a file at `path`.
        LedgerStorageError
            If it cannot be made.
        """
        if path is None:
            store = cls(None, timeout=timeout)
            _write_schema(store._connection, first, key)
            return store
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise
        except OSError as error:
            raise LedgerStorageError(f"{path} cannot be made: {error.strerror}.") from None
        try:
            with (
                _explained(path, timeout),
                closing(sqlite3.connect(path, timeout=timeout, isolation_level=None)) as made,
            ):
                made.execute("PRAGMA journal_mode = WAL")
                made.execute("PRAGMA synchronous = FULL")
                _write_schema(made, first, key)
        except BaseException:
            for suffix in ("", "-wal", "-shm", "-journal"):  # nothing was released through it
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
        return cls(path, timeout=timeout)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Transaction]:
        """Hold the file, for writing if asked, until the block ends: committed if it ends well, undone if it raises."""
        with self._lock, _explained(self.path, self._timeout):
            connection = self._own_connection()
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield Transaction(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file; whatever was committed stays."""
        with self._lock:
            if self._process == os.getpid():
                self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        if self.path is None:
            return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        if not self.path.is_file():
            raise LedgerStorageError(f"{self.path} does not exist. Make it with `tutelage ledger init`.")
        if self.path.stat().st_nlink > 1:  # two names would have two write-ahead logs, and so two budgets
            raise LedgerStorageError(
                f"{self.path} has a second name (a hard link). Keep one, so that there is one budget."
            )
        connection = self._connect_to("mode=ro" if self._read_only else "mode=rw")
        if self._read_only and not Path(f"{self.path}-wal").exists() and not os.access(self.path.parent, os.W_OK):
            connection.close()
            return self._connect_to("mode=ro&immutable=1")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _connect_to(self, mode: str) -> sqlite3.Connection:
        uri = f"{self.path.resolve().as_uri()}?{mode}" if self.path else ""
        return sqlite3.connect(uri, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False)

    def _own_connection(self) -> sqlite3.Connection:
        """Return this process's connection; one that came through a fork is set aside unused and unclosed."""
        if self._process != os.getpid():
            if self.path is None:
                raise LedgerError("A ledger in memory cannot be used by a second process. Give it a file.")
            self._inherited.append(self._connection)
            self._connection, self._process = self._connect(), os.getpid()
        return self._connection

    def _check_header(self) -> None:
        """Refuse what is no ledger, waiting a little for one that is just being made."""
        until = time.monotonic() + _UNFINISHED
        while True:
            application = self._connection.execute("PRAGMA application_id").fetchone()[0]
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if (application, version) != (0, 0):
                break
            if time.monotonic() > until or self._connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise LedgerTamperedError(
                    f"{self.path} is no ledger, or one whose making was cut short, through which nothing was released. "
                    "Name another file."
                )
            time.sleep(0.02)
        if application != _APPLICATION:
            raise LedgerTamperedError(f"{self.path} is a database, but no ledger of tutelage. Name another file.")
        if version != _VERSION:
            raise LedgerTamperedError(
                f"{self.path} has format {version}; this version reads {_VERSION}. Upgrade tutelage."
            )


def _write_schema(connection: sqlite3.Connection, first: Entry, key: bytes) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.values():
        connection.execute(statement)
    connection.execute("INSERT INTO secret VALUES (?)", (key,))
    Transaction(connection).append(first)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.execute("COMMIT")


@contextmanager
def _explained(path: Path | None, timeout: float) -> Iterator[None]:
    """Raise what SQLite raises as one sentence of a type that says what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _explanation(path, error, timeout) from None


def _explanation(path: Path | None, error: Exception, timeout: float) -> LedgerError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerLockedError(
            f"{path} was held by another process for {timeout:g} seconds. Nothing was written; try again when it is "
            "done."
        )
    if code == sqlite3.SQLITE_FULL:
        return LedgerStorageError(f"{path} cannot grow: no room on its disk. Nothing was written; make room.")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return LedgerStorageError(
            f"{path} is read-only here. Nothing was written; make the file and its folder writable."
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
        return LedgerStorageError(
            f"{path} cannot be read or written ({error}). Look at its disk and its folder's rights."
        )
    return LedgerTamperedError(f"{path} is damaged, or no ledger ({error}). Restore it from a copy that verifies.")


def _sync_folder(folder: Path) -> None:
    """Make the new file's name survive a power cut, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
