"""Ledgers for tests: new ones with the usual terms, and edits of their files by somebody who knows how."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tutelage import Ledger
from tutelage.ledger.entries import Checkpoint, Entry
from tutelage.privacy import ONE_TEACHER


def new_ledger(path: Path | None = None, epsilon: float = 2.0, **terms: Any) -> Ledger:
    """Return a new ledger, in memory if it has no path."""
    terms = {"epsilon": epsilon, "delta": 1e-5, "unit": ONE_TEACHER, **terms}
    return Ledger.in_memory(**terms) if path is None else Ledger.create(path, **terms)


def edit(path: Path, *statements: str) -> None:
    """Run statements of SQL on the file."""
    with closing(sqlite3.connect(path)) as raw, raw:
        for statement in statements:
            raw.execute(statement)


def resealed(path: Path, **change: object) -> None:
    """Rewrite the checkpoint for the newest entry there is, with the key that lies in the file."""
    with closing(sqlite3.connect(path)) as raw, raw:
        key, text = raw.execute("SELECT key, text FROM secret, checkpoint").fetchone()
        head, newest = raw.execute("SELECT hash, text FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        spent = {"accounts": {"": json.loads(newest)["spent"]}}
        sums = Checkpoint(**{**json.loads(text), "head": head.hex(), **spent, **change})
        raw.execute("UPDATE checkpoint SET text = ?, code = ?", sums.sealed(key))


def rechained(path: Path, change: dict[int, dict[str, object]]) -> None:
    """Rewrite entries and compute the whole chain anew, as someone can who knows how."""
    with closing(sqlite3.connect(path)) as raw, raw:
        last = None
        for number, text in raw.execute("SELECT number, text FROM entries ORDER BY number").fetchall():
            content = {**json.loads(text), **change.get(number, {})}
            kind, spent = content.pop("kind"), content.pop("spent")
            entry = Entry.after(last, kind, spent, **content)
            raw.execute("UPDATE entries SET text = ?, hash = ? WHERE number = ?", (entry.text, entry.hash, number))
            last = entry
    resealed(path)
