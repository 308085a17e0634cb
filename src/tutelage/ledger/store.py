"""The ledger's file: SQLite with a rollback journal, every commit on the disk before the call returns.

One writer at a time holds the file from the first read of a transaction to its commit (``BEGIN IMMEDIATE``). Every
transaction opens and closes the file: POSIX locks are forgotten by a fork and vanish when anybody in the process closes
the file, so a lock that is kept between transactions, as a write-ahead log needs one, can be lost.
"""

import hashlib
import json
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from tempfile import mkstemp
from typing import Any, final

from tutelage._internal.forks import BriefLock
from tutelage._internal.outputs import OF_LEDGERS, put_new, sync
from tutelage.digests import canonical
from tutelage.exceptions import (
    LedgerError,
    LedgerLockedError,
    LedgerMissingError,
    LedgerOvertakenError,
    LedgerStorageError,
    LedgerTamperedError,
)
from tutelage.ledger.disk import Room, check_locks, held_folder
from tutelage.ledger.entries import Checkpoint, Entry, Kind, another_format

_APPLICATION = 0x74757465  # "tute" in the header of the file
_WITHDRAWN = "SELECT person, day FROM withdrawn ORDER BY person"
_HEADER = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
_MAKING = ".making-"  # follows the name of a file that is not whole yet
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
    # Private, and in no entry: how many votes each teacher of a campaign has cast, and of what data they are.
    "votes": (
        "CREATE TABLE votes (campaign INTEGER NOT NULL, teacher BLOB NOT NULL, votes INTEGER NOT NULL, "
        "PRIMARY KEY (campaign, teacher)) WITHOUT ROWID"
    ),
    "voters": "CREATE TABLE voters (campaign INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    # Private, and in no entry: the cohort of each person, by a keyed hash of the id.
    "people": "CREATE TABLE people (person BLOB PRIMARY KEY, cohort TEXT NOT NULL) WITHOUT ROWID",
    # Private, and in no entry: who withdrew, by the same hash, and on which day.
    "withdrawn": "CREATE TABLE withdrawn (person BLOB PRIMARY KEY, day TEXT NOT NULL) WITHOUT ROWID",
    "kept": "CREATE TABLE kept (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
    "secret": "CREATE TABLE secret (key BLOB NOT NULL)",
    "checkpoint": "CREATE TABLE checkpoint (text TEXT NOT NULL, code BLOB NOT NULL)",
}


@final
class Transaction:
    """Reads and writes while the file is locked."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._run = connection.execute
        self.appended: Entry | None = None  # the last entry written in it
        self.kinds = set[Kind]()  # of all entries written in it
        self._votes: str | None = None  # digest of the votes, where some were spent in it
        # Read once: while the file is locked, they change by `append` alone.
        self._key: bytes | None = None
        self._last: Entry | None = None
        self._sums: Checkpoint | None = None

    def copy_to(self, other: sqlite3.Connection) -> None:
        """Copy the whole file into an empty database."""
        self._one("PRAGMA user_version")  # takes the read lock, or says that another process holds the file
        self._connection.backup(other)

    def key(self) -> bytes:
        """Return the secret key of this ledger."""
        if self._key is not None:
            return self._key
        rows = self._run("SELECT key FROM secret").fetchall()
        if len(rows) != 1 or not isinstance(rows[0][0], bytes):
            raise LedgerTamperedError("The ledger's key is missing.")
        self._key = rows[0][0]
        return rows[0][0]

    def last(self) -> Entry:
        """Return the newest entry, checked against the hash before it."""
        self._last = self._last or self._newest()
        return self._last

    def _newest(self) -> Entry:
        newest = self._run("SELECT number, text, hash FROM entries ORDER BY number DESC LIMIT 2").fetchall()
        if not newest:
            raise LedgerTamperedError("The ledger holds no entries.")
        number, text, found = newest[0]
        if number == 0:
            return Entry.read(None, text, found)
        if len(newest) < 2 or newest[1][0] != number - 1:
            raise LedgerTamperedError(f"Entry {number - 1} is missing.")
        return Entry.read(Entry({"number": number - 1}, "", newest[1][2]), text, found)

    def entries(self, after: Entry | None = None) -> Iterator[tuple[Entry, int | None]]:
        """Yield every entry after `after`, checked against the one before it, and the reservation that it settles."""
        last, start = after, 0 if after is None else after.number + 1
        rows = self._run("SELECT number, text, hash, settles FROM entries WHERE number >= ? ORDER BY number", (start,))
        for place, (number, text, found, settles) in enumerate(rows, start):
            if number != place:
                raise LedgerTamperedError(f"Entry {place} is missing.")
            last = Entry.read(last, text, found)
            yield last, settles

    def opening(self) -> Entry:
        """Return the first entry, checked against its hash."""
        row = self._run("SELECT text, hash FROM entries WHERE number = 0").fetchone()
        if row is None:
            raise LedgerTamperedError("The ledger holds no entries.")
        return Entry.read(None, *row)

    def checkpoint(self) -> Checkpoint:
        """Return the sums over all entries."""
        if self._sums is None:
            rows = self._run("SELECT text, code FROM checkpoint").fetchall()
            if len(rows) != 1:
                raise LedgerTamperedError("The ledger's checkpoint is missing.")
            self._sums = Checkpoint.unsealed(self.key(), *rows[0])
            if self._sums.head != self.last().hash.hex():
                raise LedgerTamperedError("The ledger's checkpoint is not that of its newest entry.")
        return self._sums

    def number_of_batch(self, batch: str) -> int | None:
        """Return the number of the reservation that was named `batch`."""
        begins = f'{{"batch":{canonical(batch)},'  # the first field of an entry's one spelling
        return self._one("SELECT number FROM entries WHERE substr(text, 1, ?) = ?", len(begins), begins)

    def open_batches(self) -> dict[str, int]:
        """Return the numbers of the named reservations that are not settled, by their names."""
        found = self._run(
            """SELECT number, text FROM entries AS one WHERE text LIKE '{"batch":%' AND NOT EXISTS """
            "(SELECT 1 FROM entries WHERE settles = one.number)"
        )
        return {json.loads(text)["batch"]: number for number, text in found}

    def kept(self, name: str) -> bytes | None:
        """Return what is kept under a name."""
        content = self._one("SELECT content FROM kept WHERE name = ?", name)
        return None if content is None else _bytes(content)

    def keep(self, name: str, content: bytes) -> bytes:
        """Keep content under a name, with an entry that holds its digest, and return what is kept there, if it was."""
        found = self.kept(name)
        if found is None:
            self._run("INSERT INTO kept VALUES (?, ?)", (name, content))
            self.add(Kind.KEPT, name=name, content=hashlib.sha256(content).hexdigest())
        return content if found is None else found

    def all_kept(self) -> dict[str, str]:
        """Return the digest of everything that is kept, by its name."""
        rows = self._run("SELECT * FROM kept")
        return {name: hashlib.sha256(_bytes(content)).hexdigest() for name, content in rows}

    def has_intent(self, about: str) -> bool:
        """Return whether the release with this name was begun."""
        begins = f'{{"about":{canonical(about)},'
        return self._one("SELECT 1 FROM entries WHERE substr(text, 1, ?) = ?", len(begins), begins) is not None

    def drawn_under(self, query: bytes) -> set[int]:
        """Return the reservation of the stored answer of a query, and that of its campaign."""
        number = self._one("SELECT reservation FROM answers WHERE query = ?", query)
        return set() if number is None else {number, self.content_of(number).get("campaign", number)}

    def votes_of(self, campaign: int) -> dict[bytes, int]:
        """Return how many votes each teacher of a campaign has cast, by a keyed hash of its name; private."""
        return dict(self._run("SELECT teacher, votes FROM votes WHERE campaign = ? ORDER BY teacher", (campaign,)))

    def voters_of(self, campaign: int) -> bytes | None:
        """Return a keyed digest of the data that the teachers of a campaign are of, if any has voted."""
        return self._one("SELECT data FROM voters WHERE campaign = ?", campaign)

    def add_votes(self, campaign: int, data: bytes, votes: Iterable[tuple[bytes, int]]) -> None:
        """Add votes that teachers of a campaign cast; the next entry seals them."""
        self._run("INSERT OR REPLACE INTO voters VALUES (?, ?)", (campaign, data))
        self._connection.executemany(
            "INSERT INTO votes VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET votes = votes + excluded.votes",
            ((campaign, teacher, number) for teacher, number in votes),
        )
        self._votes = self.digest_of_votes()

    def digest_of_votes(self) -> str:
        """Return a digest of the votes of all campaigns; empty where there are none."""
        digest, any_found = hashlib.sha256(), False
        for table in ("SELECT campaign, data, 0 FROM voters", "SELECT campaign, teacher, votes FROM votes"):
            for row in self._run(f"{table} ORDER BY 1, 2"):
                digest.update(repr((table, *row)).encode())
                any_found = True
        return digest.hexdigest() if any_found else ""

    def cohorts(self) -> dict[bytes, str]:
        """Return the cohort of each person, by a keyed hash of the id; private. Refuse people who were changed."""
        if self.digest_of_people() != self.checkpoint().people:
            raise LedgerTamperedError(
                "The people of the cohorts were changed in the ledger's file. Restore a copy that verifies: without "
                "some of them, people would spend a second budget."
            )
        return dict(self._run("SELECT person, cohort FROM people"))

    def add_people(self, people: Iterable[bytes], cohort: str) -> None:
        """Add people who came with a release, and seal them: no entry need follow. No cohort loses anyone."""
        self._connection.executemany(
            "INSERT INTO people VALUES (?, ?) ON CONFLICT DO UPDATE SET cohort = excluded.cohort WHERE cohort = ''",
            ((one, cohort) for one in people),
        )
        self._seal(replace(self.checkpoint(), people=self.digest_of_people()))

    def digest_of_people(self) -> str:
        """Return a digest of all people and their cohorts; empty where there are none."""
        return self._digest_of("SELECT person, cohort FROM people ORDER BY person")

    def withdrawn(self) -> dict[bytes, str]:
        """Return who withdrew, by a keyed hash of the id, and on which day; private. Refuse people who were changed."""
        if self.digest_of_withdrawn() != self.checkpoint().withdrawn:
            raise LedgerTamperedError(
                "The people who withdrew were changed in the ledger's file. Restore a copy that verifies: without some "
                "of them, their rows would be used again."
            )
        return dict(self._run(_WITHDRAWN)) if self.checkpoint().withdrawn else {}

    def withdraw(self, people: Iterable[bytes], day: str) -> None:
        """Write down people who withdrew, unless they had, and seal them: no entry follows."""
        self.withdrawn()  # not those that somebody else wrote
        self._run(_SCHEMA["withdrawn"].replace("TABLE", "TABLE IF NOT EXISTS"))
        self._connection.executemany("INSERT OR IGNORE INTO withdrawn VALUES (?, ?)", ((one, day) for one in people))
        self._seal(replace(self.checkpoint(), withdrawn=self.digest_of_withdrawn()))

    def digest_of_withdrawn(self) -> str:
        """Return a digest of all people who withdrew, with the days; empty where there are none."""
        there = self._one("SELECT 1 FROM sqlite_master WHERE name = 'withdrawn'")
        return self._digest_of(_WITHDRAWN) if there else ""

    def _digest_of(self, query: str) -> str:
        digest, any_found = hashlib.sha256(), False
        for row in self._run(query):
            digest.update(repr(row).encode())
            any_found = True
        return digest.hexdigest() if any_found else ""

    def hash_of(self, number: int) -> bytes | None:
        """Return the hash of the entry `number`."""
        return self._one("SELECT hash FROM entries WHERE number = ?", number)

    def content_of(self, number: int) -> dict[str, Any]:
        """Return the content of the entry `number`, unchecked; of none, it is empty."""
        return json.loads(self._one("SELECT text FROM entries WHERE number = ?", number) or "{}")

    def answers_to(self, number: int) -> int | None:
        """Return how many answers the reservation `number` was settled with, or None if it was not settled."""
        found = self._one("SELECT text FROM entries WHERE settles = ?", number)
        return None if found is None else json.loads(found)["answers"]

    def _one(self, query: str, *given: object) -> Any:
        """Return the one value that a query finds, or None."""
        row = self._run(query, given).fetchone()
        return None if row is None else row[0]

    def add(self, kind: Kind, change: int = 0, *, settles: int | None = None, **fields: Any) -> Entry:
        """Write the next entry, which changes what is spent by this many grains."""
        last = self.last()
        spent = max(self.checkpoint().charged(fields.get("release"), change).values()) if change else last.spent
        if kind is Kind.RESERVED:  # through two copies of a ledger, no two draws are the same entry
            fields["nonce"] = secrets.token_hex(16)
        entry = Entry.after(last, kind, spent, **fields)
        self.append(entry, settles)
        return entry

    def append(self, entry: Entry, settles: int | None = None) -> None:
        """Write an entry, and the sums with it."""
        sums = (Checkpoint("") if entry.number == 0 else self.checkpoint()).after(entry)
        if self._votes is not None:
            sums = replace(sums, votes=self._votes)
        self._run("INSERT INTO entries VALUES (?, ?, ?, ?)", (entry.number, entry.text, entry.hash, settles))
        self._seal(sums)
        self.appended = self._last = entry
        self.kinds.add(entry.kind)

    def _seal(self, sums: Checkpoint) -> None:
        self._run("DELETE FROM checkpoint")
        self._run("INSERT INTO checkpoint VALUES (?, ?)", sums.sealed(self.key()))
        self._sums = sums

    def remember(self, query: bytes, labels: str, reservation: int) -> bool:
        """Store an answer unless the query has one, and say whether it was stored."""
        return self._run("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (query, labels, reservation)).rowcount == 1

    def recall(self, query: bytes) -> str | None:
        """Return the stored answer of a query."""
        return self._one("SELECT labels FROM answers WHERE query = ?", query)

    def answers(self, reservation: int | None = None) -> Iterator[tuple[int, bytes, str]]:
        """Yield reservation, query and labels of every stored answer, or those of one reservation, by query hash."""
        chosen = "SELECT reservation, query, labels FROM answers WHERE ?1 IS NULL OR reservation = ?1 ORDER BY query"
        yield from self._run(chosen, (reservation,))

    def check_schema(self) -> None:
        """Refuse a file with a table, index, view or trigger that is not as a ledger is made."""
        try:
            check_schema(self._connection, _SCHEMA, absent="withdrawn")  # of a file that was made before it
        except LedgerTamperedError:
            with suppress(sqlite3.Error):
                self.last()  # says so if the file is of another format, which had other tables
            raise

    def check_count(self) -> None:
        """Refuse a file with fewer or more answers than its entries count."""
        if self._one("SELECT count(*) FROM answers") != self.checkpoint().answers:
            raise LedgerTamperedError(
                "The ledger's file has fewer or more labels than its entries count. Restore a copy that verifies."
            )

    def check_structure(self) -> None:
        """Refuse a file that SQLite reports as damaged."""
        if self._run("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise LedgerTamperedError("The ledger's file is damaged. Restore a copy that verifies.")
        self.check_schema()


def _bytes(content: object) -> bytes:
    if not isinstance(content, bytes):
        raise LedgerTamperedError("A map that the ledger keeps was changed. Restore a copy that verifies.")
    return content


@final
class Store:
    """An open ledger file, or one in memory: for good, or until its first reservation makes the file."""

    def __init__(
        self, path: Path | None, *, timeout: float, read_only: bool = False, memory: sqlite3.Connection | None = None
    ) -> None:
        self.path = path
        self.file = None if path is None else _resolved(path)  # another working directory is not another ledger
        self.timeout = timeout
        self.read_only = read_only
        self._lock = BriefLock()  # held during every transaction of this process
        self._process = os.getpid()
        self._memory = memory
        self.check: Callable[[], None] | None = None  # of the first reservation, just before it makes the file
        if self.file is not None and memory is None:
            if not read_only:
                check_locks(self.file.parent)
            # Otherwise a forked child could hold the file for ever. No other thread waits for a lock that is new.
            with self._lock, explained(path, timeout):
                self._check_header()
            _require_name(self.file)  # the search for copies leaves out what has no name of a ledger

    @classmethod
    def create(cls, path: Path | None, first: Entry, key: bytes, *, timeout: float) -> "Store":
        """Return a ledger with its first entry, in memory until `make_file` or the first reservation."""
        if path is not None:
            if not path.parent.is_dir():
                raise LedgerStorageError(f"{path} cannot be made: its folder does not exist. Create the folder first.")
            _require_name(path)
            check_locks(path.parent)
        memory = connected(":memory:", timeout)
        memory.execute("BEGIN")
        for statement in _SCHEMA.values():
            memory.execute(statement)
        memory.execute("INSERT INTO secret VALUES (?)", (key,))
        memory.execute(f"PRAGMA user_version = {_VERSION}")
        Transaction(memory).append(first)
        memory.execute("COMMIT")
        return cls(path, timeout=timeout, memory=memory)

    def make_file(self) -> None:
        """Write a ledger that is in memory to its file, readable by its owner only, if no ledger is there."""
        if self.file is not None and self._memory is not None:
            with self._lock, explained(self.path, self.timeout):
                _write_file(self.file, self._memory, self.timeout)
                self._memory = None

    @contextmanager
    def transaction(self, *, write: bool = False) -> Generator[Transaction]:
        """Hold the file, for writing if asked, until the block ends: committed if it ends well, undone if it raises."""
        with self._lock, explained(self.path, self.timeout):
            before = self._identity()  # taken before the file is opened, so that what is committed to is what is there
            with self._connection(write=write) as connection:
                held = Transaction(connection)
                try:
                    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                    held.check_schema()
                    yield held
                    if self._identity() != before:
                        raise LedgerTamperedError(f"{self.path} was replaced while in use. Nothing was written.")
                    makes = self.file is not None and self._memory is not None and Kind.RESERVED in held.kinds
                    if self.file is not None and makes:
                        _write_file(self.file, connection, self.timeout, self.check)
                    connection.execute("COMMIT")
                    if makes:
                        self._memory = self.check = None
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise

    @property
    def has_file(self) -> bool:
        """Whether it is on file."""
        return self._memory is None

    def room(self, queries: int, labels: int) -> Room | None:
        """Return room on the disk for this number of labeled queries; a ledger in memory needs none."""
        return None if self.file is None else Room(self.file, queries, labels)

    @contextmanager
    def snapshot(self) -> Generator[Transaction]:
        """Yield a copy of the present file in memory, so that other processes need not wait while it is read."""
        with closing(connected(":memory:", 0)) as copy:
            with self.transaction() as read:
                read.copy_to(copy)
            with explained(self.path, self.timeout):
                yield Transaction(copy)

    def back_up(self, path: Path) -> None:
        """Write a copy of the present file to a new one, readable by its owner only, while others may use this one."""
        _require_name(path)
        with closing(connected(":memory:", 0)) as copy:
            with self.transaction() as read:
                read.copy_to(copy)
            with explained(path, self.timeout):
                _write_file(_resolved(path), copy, self.timeout)

    @contextmanager
    def _connection(self, *, write: bool = False) -> Generator[sqlite3.Connection]:
        if self._memory is not None:
            if self._process != os.getpid():
                raise LedgerError("A ledger in memory cannot be used by a second process. Give it a file.")
            yield self._memory
            return
        file, mode = Path() if self.file is None else self.file, "rw"
        if self.read_only:
            resting = not Path(f"{file}-journal").exists() and not os.access(file.parent, os.W_OK)
            mode = f"ro{'&immutable=1' if resting else ''}"
        with closing(connected(f"{file.as_uri()}?mode={mode}", self.timeout)) as connection:
            yield _durable(connection) if write else connection

    def _identity(self) -> tuple[int, int]:
        """Return which file it is, refusing one that is not there or has a second name."""
        if self.file is None or self._memory is not None:
            return 0, 0
        try:
            found = self.file.stat()
        except OSError:
            raise LedgerMissingError(f"{self.path} does not exist. Make it with `tutelage ledger init`.") from None
        if not stat.S_ISREG(found.st_mode):
            raise LedgerStorageError(f"{self.path} is not a file. Name the ledger's file.")
        if found.st_nlink > 1:  # two names would have two journals, and a crash would restore the wrong one
            raise LedgerStorageError(
                f"{self.path} has a second name (a hard link). Keep one, so that there is one budget."
            )
        return found.st_dev, found.st_ino

    def _check_header(self) -> None:
        """Refuse what is no ledger."""
        self._identity()
        with self._connection() as connection:
            application, version, tables = (connection.execute(query).fetchone()[0] for query in _HEADER)
        if application == version == tables == 0:
            raise LedgerStorageError(
                f"{self.path} is empty, so it is not a ledger. Restore a copy that verifies, or name another file."
            )
        if application != _APPLICATION:
            raise LedgerStorageError(f"{self.path} is a database, but no ledger of tutelage. Name another file.")
        if version != _VERSION:
            raise another_format(str(self.path), version)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # the latter before Python 3.13
        raise LedgerStorageError(f"{path} is a link that leads in a circle. Name the ledger's file.") from None


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


def connected(database: str, timeout: float) -> sqlite3.Connection:
    """Open a database, in which transactions begin when they are told to."""
    uri = database.startswith("file:")
    return sqlite3.connect(database, uri=uri, timeout=timeout, isolation_level=None, check_same_thread=False)


def _durable(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Have every commit on the disk before the call returns."""
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA synchronous = EXTRA")  # FULL, and the journal's end outlives a power cut
    return connection


def check_schema(connection: sqlite3.Connection, expected: Mapping[str, str], absent: str = "") -> None:
    """Refuse a file of which not every table but the one that may be absent, and nothing else, was made like this."""
    schema = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    expected = {name: made for name, made in expected.items() if name != absent or name in dict(schema)}
    if dict(schema) != expected or len(schema) != len(expected):
        raise LedgerTamperedError(
            "A table, index, view or trigger of the ledger is missing or foreign. Restore a copy that verifies."
        )


def _write_file(
    file: Path, memory: sqlite3.Connection, timeout: float, check: Callable[[], None] | None = None
) -> None:
    """Copy what is in memory to a new file, which appears whole and never over another; `check` may refuse it first."""
    begins = f"{file.name}{_MAKING}"
    with held_folder(file.parent, f"{escape(begins)}*"):
        if check is not None:
            check()
        try:
            descriptor, name = mkstemp(prefix=begins, dir=file.parent)  # readable by its owner only
        except OSError as error:
            raise LedgerStorageError(f"{file} cannot be made: {error.strerror}. Name another file.") from None
        os.close(descriptor)
        part = Path(name)
        try:
            with closing(_durable(connected(f"{part.as_uri()}?mode=rw", timeout))) as made:
                made.execute("BEGIN EXCLUSIVE")
                for name, statement in _SCHEMA.items():
                    made.execute(statement)
                    there = memory.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone()
                    for row in memory.execute(f"SELECT * FROM {name}") if there else ():  # noqa: S608  one of our own
                        made.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
                made.execute(f"PRAGMA application_id = {_APPLICATION}")
                made.execute(f"PRAGMA user_version = {_VERSION}")
                made.execute("COMMIT")
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


@contextmanager
def explained(path: Path | None, timeout: float) -> Generator[None]:
    """Raise what SQLite raises as one sentence of a type that says what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        kind = LedgerStorageError
        match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                kind = LedgerLockedError
                said = (
                    f"was held by another process for {timeout:g} seconds. Nothing was written this time, and what had "
                    "been reserved before stays spent; try again when it is done."
                )
            case sqlite3.SQLITE_FULL:
                said = "cannot grow: no room on its disk. Nothing more was written; make room."
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                said = "is read-only here. Nothing was written; make the file and its folder writable."
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR:
                said = f"cannot be read or written ({error}). Look at its disk and its folder's rights."
            case sqlite3.SQLITE_NOTADB:
                said = "is no ledger. Name another file, or restore this one."
            case _:
                kind, said = LedgerTamperedError, f"is damaged ({error}). Restore it from a copy that verifies."
        raise kind(f"{path} {said}") from None
