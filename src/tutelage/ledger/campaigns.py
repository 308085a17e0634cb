"""How many votes each teacher has cast in each campaign of a ledger: private, in a file of its own beside the ledger.

Votes are spent here before noise is drawn, and each spending leaves a new token. The ledger records the token before
noise is drawn, too: a file without the token that was recorded last is missing, older or another one, and with it
teachers would vote again. A token that the ledger does not know is that of a process that was killed in between: its
votes are wasted.
"""

import hashlib
import hmac
import os
import secrets
import sqlite3
import stat
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from tutelage._internal.typing import IntArray
from tutelage.exceptions import (
    InvalidDataError,
    LedgerMismatchError,
    LedgerStorageError,
    LedgerTamperedError,
    OverlappingShardsError,
)
from tutelage.ledger.store import check_schema, connected, durable, explained

_SCHEMA = {
    "spendings": (
        "CREATE TABLE spendings (campaign BLOB NOT NULL, token TEXT NOT NULL, data BLOB NOT NULL, "
        "PRIMARY KEY (campaign, token)) WITHOUT ROWID"
    ),
    "spent": (
        "CREATE TABLE spent (campaign BLOB NOT NULL, teacher BLOB NOT NULL, votes INTEGER NOT NULL, "
        "PRIMARY KEY (campaign, teacher)) WITHOUT ROWID"
    ),
    "sums": "CREATE TABLE sums (campaign BLOB PRIMARY KEY, code BLOB NOT NULL) WITHOUT ROWID",
}
_SPENT = "SELECT teacher, votes FROM spent WHERE campaign = ? ORDER BY teacher"


class Voters(NamedTuple):
    """The voters of a campaign; private."""

    names: Sequence[str]  # one per teacher; the data of one person always reach the teacher of the same name
    data: bytes  # what the names are of: if it changes, a name may stand for another teacher

    def hashed(self, wanted: IntArray, key: bytes) -> tuple[list[bytes], bytes]:
        """Return keyed hashes of the names and of the data, once each voter has a name and a number of votes."""
        if len(set(self.names)) < len(self.names):
            raise OverlappingShardsError(
                "Each teacher of a campaign must have its own name. Otherwise one person could vote as two teachers."
            )
        fits = wanted.shape == (len(self.names),) and np.issubdtype(wanted.dtype, np.integer)
        if not fits or np.any(wanted < 0):  # fewer than none would give votes back
            raise InvalidDataError("`wanted` must be a number of votes from 0 on for each teacher, as integers.")
        names = [_keyed(key, b"teacher", name.encode("utf-8", "surrogatepass")) for name in self.names]
        return names, _keyed(key, b"voters", self.data)


@final
class SpentVotes:
    """The file of spent votes of a ledger, or its like in memory. Its caller holds the ledger for writing."""

    def __init__(self, ledger: Path | None, timeout: float) -> None:
        self._file = None if ledger is None else Path(f"{ledger}.votes")
        self._timeout = timeout
        self._memory = None if ledger is not None else connected(":memory:", timeout)

    def spend(
        self, campaign: bytes, cap: int, hashed: tuple[list[bytes], bytes], wanted: IntArray, recorded: str | None
    ) -> tuple[IntArray, str]:
        """Spend votes, on the disk before this returns; return how many each teacher may cast now, and the token.

        `campaign` is the hash of the entry that spent its budget, `recorded` the token that the ledger recorded last.
        """
        teachers, data = hashed
        with explained(self._file, self._timeout), self._connection(exists=recorded is not None) as connection:
            run = connection.execute
            run("BEGIN IMMEDIATE")
            if not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _SCHEMA.values():
                    run(statement)
            check_schema(connection, _SCHEMA)
            before = dict(run("SELECT token, data FROM spendings WHERE campaign = ?", (campaign,)))
            if recorded is not None and recorded not in before:
                raise LedgerTamperedError(
                    f"{self._file} was replaced by an older or another one since votes were last spent. Restore it: "
                    "without it, teachers would vote again."
                )
            if any(found != data for found in before.values()):
                raise LedgerMismatchError(
                    "The votes of this campaign were cast by other teachers, or from other rows. Ask with those of "
                    "before, rows in the same order; if people have ids, name them."
                )
            spent = dict(run(_SPENT, (campaign,)))
            if before and run("SELECT code FROM sums WHERE campaign = ?", (campaign,)).fetchone() != (_code(spent),):
                raise LedgerTamperedError(
                    f"{self._file} does not hold the votes that were spent: it was edited. Restore it: without them, "
                    "teachers would vote again."
                )
            left = cap - np.array([spent.get(teacher, 0) for teacher in teachers], dtype=np.int64)
            granted = np.minimum(wanted, np.maximum(left, 0))
            rows = sorted(zip(teachers, granted.tolist(), strict=True))  # as the table is, which is faster
            connection.executemany(
                "INSERT INTO spent VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET votes = votes + excluded.votes",
                ((campaign, teacher, votes) for teacher, votes in rows if votes),
            )
            token = secrets.token_hex(16)
            run("INSERT INTO spendings VALUES (?, ?, ?)", (campaign, token, data))
            run("INSERT OR REPLACE INTO sums VALUES (?, ?)", (campaign, _code(dict(run(_SPENT, (campaign,))))))
            run("COMMIT")
        return granted, token

    @contextmanager
    def _connection(self, *, exists: bool) -> Generator[sqlite3.Connection]:
        """Open the file, which must not be missing if it `exists`; what was not committed is undone."""
        with self._opened(exists=exists) if self._memory is None else nullcontext(self._memory) as connection:
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _opened(self, *, exists: bool) -> AbstractContextManager[sqlite3.Connection]:
        file = Path() if self._file is None else self._file
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | (0 if exists else os.O_CREAT), 0o600)
        except OSError as error:
            raise LedgerStorageError(
                f"{file} cannot be opened: {error.strerror}. It holds how many votes each teacher has cast; restore it."
            ) from None
        with os.fdopen(descriptor) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise LedgerStorageError(f"{file} is not a file. Restore it.")
            if os.fstat(opened.fileno()).st_nlink != 1:
                raise LedgerStorageError(f"{file} must have one name, and has a hard link. Remove the other one.")
        return durable(file, self._timeout)


def _code(spent: Mapping[bytes, int]) -> bytes:
    """Return a hash of the votes that each teacher has cast."""
    digest = hashlib.sha256()
    for teacher, votes in spent.items():
        digest.update(teacher + votes.to_bytes(8, "big"))
    return digest.digest()


def _keyed(key: bytes, kind: bytes, text: bytes) -> bytes:
    return hmac.digest(key, b"campaign " + kind + b" " + text, hashlib.sha256)
