"""Ledgers for tests: new ones with the usual terms, and edits of their files by somebody who knows how."""

import json
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from tutelage import Ledger
from tutelage._internal.typing import IntArray
from tutelage.events import CappedArgmaxGaussian, Event, NoisyArgmaxGaussian
from tutelage.ledger import Labels
from tutelage.ledger.account import (
    Account,
    Reservation,
    _Granted,
)
from tutelage.ledger.beginning import Intent, Whom
from tutelage.ledger.campaigns import Voters
from tutelage.ledger.entries import Checkpoint, Entry
from tutelage.ledger.scope import Scope
from tutelage.privacy import ONE_TEACHER

NOTHING = NoisyArgmaxGaussian(1e6, 2, ONE_TEACHER)  # where it does not matter


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
        head, newest = raw.execute(
            "SELECT hash, text FROM entries ORDER BY number DESC LIMIT 1"
        ).fetchone()
        costs = [
            json.loads(text).get("cost", 0) for (text,) in raw.execute("SELECT text FROM entries")
        ]
        spent = {
            "accounts": {"": json.loads(newest)["spent"]},
            "charged_for": sum(map(bool, costs)),
        }
        sums = Checkpoint(**{**json.loads(text), "head": head.hex(), **spent, **change})
        raw.execute("UPDATE checkpoint SET text = ?, code = ?", sums.seal(key))


def rechained(path: Path, change: dict[int, dict[str, object]]) -> None:
    """Rewrite entries and compute the whole chain anew, as someone can who knows how."""
    with closing(sqlite3.connect(path)) as raw, raw:
        last = None
        for number, text in raw.execute(
            "SELECT number, text FROM entries ORDER BY number"
        ).fetchall():
            content = {**json.loads(text), **change.get(number, {})}
            kind, spent = content.pop("kind"), content.pop("spent")
            entry = Entry.after(last, kind, spent, **content)
            raw.execute(
                "UPDATE entries SET text = ?, hash = ? WHERE number = ?",
                (entry.text, entry.hash, number),
            )
            last = entry
    resealed(path)


_BEGUN = WeakKeyDictionary[Ledger, Scope]()


def begin(ledger: Ledger, intent: Intent | None, whom: Whom) -> Scope:
    """Let a release begin with the next reservation by this object, whether it has its turn or not."""
    scope = _BEGUN[ledger] = Scope(ledger._opened, intent, whom)
    ledger.account = scope.account  # pyright: ignore[reportAttributeAccessIssue]
    return scope


def begun(ledger: Ledger) -> tuple[Intent | None, Whom]:
    """Return what was said of the release that begins."""
    scope = _BEGUN.get(ledger)
    return (None, Whom()) if scope is None else (scope._beginning._intent, scope._beginning._whom)


def reserve(ledger: Ledger, event: Event, queries: int, *, batch: str | None = None) -> Reservation:
    """Spend what queries cost at most; a batch with a name is found again."""
    return ledger.account.reserve(event, queries, batch)


def reserve_new(
    ledger: Ledger, event: Event, hashes: Collection[bytes]
) -> tuple[dict[bytes, Labels], Reservation | None]:
    """Reserve the queries that have no answer, and return the answers of the others."""
    found = ledger.account.reserve_new(event, hashes)
    return found.answers, found.reservation


def reserve_votes(
    ledger: Ledger,
    event: CappedArgmaxGaussian,
    campaign: str,
    voters: Voters,
    wanted: IntArray,
    *,
    queries: int,
) -> _Granted:
    """Spend votes of teachers in a campaign."""
    return ledger.account.reserve_votes(event, campaign, voters, wanted, queries)


def settle(
    ledger: Ledger, reservation: Reservation, answers: dict[bytes, Labels], happened: Event
) -> dict[bytes, Labels]:
    """Store the answers of a batch."""
    return ledger.account.settle(reservation, answers, happened)


def require_room(ledger, *asked):
    """Refuse queries that do not fit."""
    ledger.account.require_room(*asked)


def fitting(ledger: Ledger, event: Event) -> int:
    """Return how many more times an event fits."""
    return ledger.account.fitting(event)


def bind(
    ledger: Ledger, digest: bytes, *, changed: bool = False, people: Sequence[str] = ()
) -> None:
    """Tie the ledger to data, from its next reservation on."""
    intent, whom = begun(ledger)
    begin(ledger, intent, Whom(digest, people, whom.left_out, changed))


def write_binding(ledger: Ledger) -> None:
    """Tie the ledger to the data of `bind` now."""
    if ledger in _BEGUN:
        _BEGUN.pop(ledger).write()
    ledger.account = Account(ledger._opened)  # pyright: ignore[reportAttributeAccessIssue]


def intend(ledger: Ledger, identity: str, noise: float | None) -> None:
    """Name the release that begins with the next reservation."""
    begin(ledger, Intent(identity, "", NOTHING, noise), begun(ledger)[1])


def admit(ledger: Ledger, release: str, question: str, people: Sequence[str], most: Event) -> Any:
    """Return which people take part in a release with a name."""
    intent, whom = begun(ledger)
    intent = Intent("", question, most, None) if intent is None else intent
    named = intent._replace(question=question, worst_case=most, release_name=release)
    return begin(ledger, named, replace(whom, ids=people)).taking_part


def whole_release(
    ledger: Ledger, identity: str, reservations: Collection[int], most: Event
) -> Event | None:
    """Return all that was drawn if it is this release alone."""
    return (
        Scope(ledger._opened, Intent(identity, "", most, None), None).end(reservations, most).alone
    )


def for_release(ledger: Ledger) -> Ledger:
    """Return another object for the same opened ledger, which begins a release of its own."""
    one = object.__new__(Ledger)
    vars(one).update(vars(ledger))
    return one


def knows(ledger: Ledger, people: Sequence[str]) -> Any:
    """Return which people were in releases."""
    return ledger.register.knows(people)
