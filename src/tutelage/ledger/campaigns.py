"""Campaigns of capped votes: how many votes each teacher has cast is private, and kept in the ledger's own file.

Votes are spent before noise is drawn, in the transaction of the entry that says so. No entry shows them; the ledger's
checkpoint holds a digest of them all, so that an edit is found.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import replace
from typing import final

import numpy as np

from tutelage._internal.records import by_identity
from tutelage._internal.typing import IntArray, Private
from tutelage.exceptions import (
    InvalidDataError,
    LedgerMismatchError,
    LedgerTamperedError,
    OverlappingShardsError,
)
from tutelage.ledger.transaction import Transaction, digest_of_rows


@final
@by_identity
class Voters(Private):
    """The voters of a campaign; private."""

    # One per teacher; the data of one person always reach the teacher of the same name.
    names: Sequence[str]
    data: bytes  # what the names are of: if it changes, a name may stand for another teacher

    def hash_names(self, wanted: IntArray, key: bytes) -> tuple[list[bytes], bytes]:
        """Return keyed hashes of the names and of the data, once each voter has a name and a number of votes."""
        # wanted: (teachers,)
        if len(set(self.names)) < len(self.names):
            raise OverlappingShardsError(
                "Each teacher of a campaign must have its own name. Otherwise one person could vote as two teachers."
            )
        fits = wanted.shape == (len(self.names),) and np.issubdtype(wanted.dtype, np.integer)
        if not fits or np.any(wanted < 0):  # fewer than none would give votes back
            raise InvalidDataError(
                "`wanted` must be a number of votes from 0 on for each teacher, as integers."
            )
        names = [
            _keyed_hash(key, b"teacher", name.encode("utf-8", "surrogatepass"))
            for name in self.names
        ]
        return names, _keyed_hash(key, b"voters", self.data)


def spend_votes(
    write: Transaction, campaign: int, cap: int, hashed: tuple[list[bytes], bytes], wanted: IntArray
) -> IntArray:
    """Spend votes of a campaign, the number of whose reservation is given; return how many each teacher may cast."""
    # wanted and the result: (teachers,)
    teachers, data = hashed
    if digest_of_votes(write) != write.checkpoint().votes:
        raise LedgerTamperedError(
            "The votes that teachers have cast were changed in the ledger's file. Restore a copy that verifies: with "
            "fewer, teachers would vote again."
        )
    voters = write.one("SELECT data FROM voters WHERE campaign = ?", campaign)
    if voters not in (None, data):
        raise LedgerMismatchError(
            "The votes of this campaign were cast by other teachers, or from other rows. Ask with those of before, "
            "rows in the same order; if people have ids, name them."
        )

    spent = dict(write.run("SELECT teacher, votes FROM votes WHERE campaign = ?", (campaign,)))
    left = cap - np.array([spent.get(teacher, 0) for teacher in teachers], dtype=np.int64)
    granted = np.minimum(wanted, np.maximum(left, 0))

    rows = sorted(zip(teachers, granted.tolist(), strict=True))  # as the table is, which is faster
    write.run("INSERT OR REPLACE INTO voters VALUES (?, ?)", (campaign, data))
    write.connection.executemany(
        "INSERT INTO votes VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET votes = votes + excluded.votes",
        ((campaign, teacher, number) for teacher, number in rows if number),
    )
    write.seal(replace(write.checkpoint(), votes=digest_of_votes(write)))
    return granted


def digest_of_votes(read: Transaction) -> str:
    """Return a digest of the votes of all campaigns; empty where there are none."""
    tables = ("SELECT campaign, data, 0 FROM voters", "SELECT campaign, teacher, votes FROM votes")
    return digest_of_rows(
        (table, *row) for table in tables for row in read.run(f"{table} ORDER BY 1, 2")
    )


def _keyed_hash(key: bytes, kind: bytes, text: bytes) -> bytes:
    return hmac.digest(key, b"campaign " + kind + b" " + text, hashlib.sha256)
