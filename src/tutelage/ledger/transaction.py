"""A transaction of a ledger: its entries, its key and the sums over all entries, while the file is locked."""

import hashlib
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, final

from tutelage.exceptions import LedgerTamperedError
from tutelage.ledger.entries import Checkpoint, Entry, EntryKind

# Fields by which entries are looked up. SQLite derives these columns from the text of an entry, so no statement writes
# them, and `verify` checks that each index agrees with the text.
_LOOKED_UP = ("batch", "about", "question", "name")
_DERIVED = ", ".join(
    f"{name} TEXT AS (CASE WHEN json_valid(text) THEN json_extract(text, '$.{name}') END)"
    for name in _LOOKED_UP
)
SCHEMA = {
    "entries": (
        "CREATE TABLE entries (number INTEGER PRIMARY KEY, text TEXT NOT NULL, hash BLOB NOT NULL, "
        f"settles INTEGER UNIQUE, {_DERIVED})"
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
INDEXES = {
    f"entries_by_{name}": f"CREATE INDEX entries_by_{name} ON entries ({name}) WHERE {name} IS NOT NULL"
    for name in _LOOKED_UP
}


@final
@dataclass(slots=True)
class Cache:
    """The parts of a file that were read, and stay so until somebody else writes to it."""

    key: bytes | None = None
    opening: Entry | None = None
    last: Entry | None = None
    sums: Checkpoint | None = None
    has_schema: bool = False


@final
class Transaction:
    """Reads and writes while the file is locked; `run` executes one statement of SQL."""

    def __init__(self, connection: sqlite3.Connection, cache: Cache | None = None) -> None:
        self.connection = connection
        self.run = connection.execute
        self.appended: Entry | None = None  # the last entry written in it
        self.kinds = set[EntryKind]()  # of all entries written in it
        self._cache = cache or Cache()
        self._is_sealed = True

    def one(self, query: str, *values: object) -> Any:
        """Return the one value that a query finds, or None."""
        row = self.run(query, values).fetchone()
        return None if row is None else row[0]

    def key(self) -> bytes:
        """Return the secret key of this ledger."""
        if self._cache.key is None:
            rows = self.run("SELECT key FROM secret").fetchall()
            if len(rows) != 1 or not isinstance(rows[0][0], bytes):
                raise LedgerTamperedError("The ledger's key is missing.")
            self._cache.key = bytes(rows[0][0])
        return self._cache.key

    def opening(self) -> Entry:
        """Return the first entry, checked against its hash."""
        if self._cache.opening is None:
            self._cache.opening = self._entry(0)
        return self._cache.opening

    def last(self) -> Entry:
        """Return the newest entry, checked against the hash before it."""
        if self._cache.last is None:
            newest = self.one("SELECT max(number) FROM entries")
            self._cache.last = self._entry(newest or 0)
        return self._cache.last

    def entry(self, number: int) -> Entry | None:
        """Return an entry, checked against the hash before it, or None where there is no such number."""
        if self.hash_of(number) is None:
            return None
        return self._entry(number)

    def _entry(self, number: int) -> Entry:
        rows = self.run(
            "SELECT number, text, hash FROM entries WHERE number IN (?, ?)", (number - 1, number)
        )
        stored = {place: (text, its_hash) for place, text, its_hash in rows}
        if number == 0:
            if number not in stored:
                raise LedgerTamperedError("The ledger holds no entries.")
            return Entry.read(None, *stored[number])
        if number - 1 not in stored:
            raise LedgerTamperedError(f"Entry {number - 1} is missing.")
        before = Entry({"number": number - 1}, "", stored[number - 1][1])
        return Entry.read(before, *stored[number])

    def entries(self, after: Entry | None = None) -> Iterator[tuple[Entry, int | None]]:
        """Yield every entry after `after`, checked against the one before it, and the reservation that it settles."""
        last = after
        start = 0 if after is None else after.number + 1
        rows = self.run(
            "SELECT number, text, hash, settles FROM entries WHERE number >= ? ORDER BY number",
            (start,),
        )
        for place, (number, text, its_hash, settles) in enumerate(rows, start):
            if number != place:
                raise LedgerTamperedError(f"Entry {place} is missing.")
            last = Entry.read(last, text, its_hash)
            yield last, settles

    def entries_with(
        self, field: Literal["batch", "about", "question", "name"], value: str
    ) -> list[Entry]:
        """Return the entries in which a field has this value, the first first, each checked as by `entry`."""
        numbers = self.run(
            f"SELECT number FROM entries WHERE {field} = ? ORDER BY number",  # noqa: S608
            (value,),
        )
        entries = [self._entry(number) for (number,) in numbers.fetchall()]
        if any(entry.content.get(field) != value for entry in entries):
            raise LedgerTamperedError(
                "An index of the ledger was changed. Restore a copy that verifies."
            )
        return entries

    def settling(self, number: int) -> Entry | None:
        """Return the entry that settled the reservation `number`, or None while it is open."""
        settled = self.one("SELECT number FROM entries WHERE settles = ?", number)
        if settled is None:
            return None
        return self._entry(settled)

    def hash_of(self, number: int) -> bytes | None:
        """Return the hash of the entry `number`."""
        last = self._cache.last
        if last is not None and last.number == number:
            return last.hash
        return self.one("SELECT hash FROM entries WHERE number = ?", number)

    def checkpoint(self) -> Checkpoint:
        """Return the sums over all entries."""
        if self._cache.sums is None:
            rows = self.run("SELECT text, code FROM checkpoint").fetchall()
            if len(rows) != 1:
                raise LedgerTamperedError("The ledger's checkpoint is missing.")
            sums = Checkpoint.unseal(self.key(), *rows[0])
            if sums.head != self.last().hash.hex():
                raise LedgerTamperedError(
                    "The ledger's checkpoint is not that of its newest entry."
                )
            self._cache.sums = sums
        return self._cache.sums

    def add(
        self, kind: EntryKind, change: int = 0, *, settles: int | None = None, **fields: Any
    ) -> Entry:
        """Write the next entry, which changes what is spent by this many grains."""
        last = self.last()
        spent = last.spent
        if change:
            accounts = self.checkpoint().accounts_after(fields.get("release"), change)
            spent = max(accounts.values())
        if kind is EntryKind.RESERVED:
            # Through two copies of a ledger, no two draws are the same entry.
            fields["nonce"] = secrets.token_hex(16)
        entry = Entry.after(last, kind, spent, **fields)
        self.append(entry, settles)
        return entry

    def append(self, entry: Entry, settles: int | None = None) -> None:
        """Write an entry, and the sums with it."""
        sums = Checkpoint("") if entry.number == 0 else self.checkpoint()
        self.run(
            "INSERT INTO entries VALUES (?, ?, ?, ?)",
            (entry.number, entry.text, entry.hash, settles),
        )
        self.seal(sums.after(entry))
        self.appended = self._cache.last = entry
        self.kinds.add(entry.kind)

    def seal(self, sums: Checkpoint) -> None:
        """Change the sums, which are written at the end of the transaction."""
        self._cache.sums = sums
        self._is_sealed = False

    def write_sums(self) -> None:
        """Write the sums, with a code that only the holder of the key can compute, if anything was written."""
        if not self._is_sealed:
            self.run("DELETE FROM checkpoint")
            self.run("INSERT INTO checkpoint VALUES (?, ?)", self.checkpoint().seal(self.key()))
            self._is_sealed = True

    def check_schema(self) -> None:
        """Refuse a file with a table, index, view or trigger that is not as a ledger is made."""
        if self._cache.has_schema:
            return
        expected = SCHEMA | INDEXES
        found = self.run("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        if dict(found) != expected or len(found) != len(expected):
            with suppress(sqlite3.Error):
                self.last()  # raises first if the file is of another format, which had other tables
            raise LedgerTamperedError(
                "A table, index, view or trigger of the ledger is missing or foreign. Restore a copy that verifies."
            )
        self._cache.has_schema = True


def digest_of_rows(rows: Iterable[object]) -> str:
    """Return a digest of rows of the file, in their order; empty where there are none."""
    digest = hashlib.sha256()
    is_empty = True
    for row in rows:
        digest.update(repr(row).encode())
        is_empty = False
    return "" if is_empty else digest.hexdigest()
