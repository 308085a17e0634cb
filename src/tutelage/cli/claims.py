"""A published ε on its way from ``tutelage publish test`` to a card: stored in a file, and checked with the ledger."""

import json
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from tutelage.accounting import data_independent
from tutelage.accounting.release.proposal import Proposal
from tutelage.budget import PublicEpsilon
from tutelage.cli.costs import counted, given
from tutelage.events import PUBLICATIONS, Composed, Event, PublicationTest, event_from_dict
from tutelage.exceptions import InvalidDataError, TutelageError
from tutelage.ledger import Ledger
from tutelage.ledger.entries import Kind
from tutelage.publishing import Publication

_FORMAT = 1
_ROUNDING = 1e-9  # the same costs added up in another order


class Claim(NamedTuple):
    """What a card says after a test: what holds for any votes and, where the test passed, the smaller ε."""

    data_independent: PublicEpsilon
    sanitised: PublicEpsilon | None


class _Stored(NamedTuple):
    """A claim with what it is checked by: the labels it is of, its test, and the ledger's head when it was made."""

    claim: Claim
    labels: Event
    test: PublicationTest
    head: str


def claim_of(publication: Publication) -> Claim:
    """Return what may stand on a card: the ε that was tested only where it passed and is the smaller one."""
    tested, otherwise = publication.epsilon, publication.data_independent
    smaller = publication.passed and tested.output_dependent and tested.epsilon < otherwise.epsilon
    return Claim(otherwise, tested if smaller else None)


def write_claim(path: Path, publication: Publication, labels: Event, proposal: Proposal, ledger: Ledger) -> None:
    """Write what was published of `labels` to a file that `read_claim` reads; all of it is public."""
    claim = claim_of(publication)
    record = {
        "format": _FORMAT,
        "passed": publication.passed,
        "sanitised": None if claim.sanitised is None else _as_dict(claim.sanitised),
        "data_independent": _as_dict(claim.data_independent),
        "labels": labels.as_dict(),
        "test": proposal.event(simulated=claim.data_independent.simulated).as_dict(),
        "ledger": ledger.state().head,
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_claim(path: Path, entries: list[dict[str, Any]]) -> Claim:
    """Return a claim once a ledger is found to hold its test, and nothing that it does not cover.

    Parameters
    ----------
    path : path
        What `tutelage publish test --output` wrote.
    entries : list of dict
        Those of the ledger, as `Ledger.export` gives them.

    Raises
    ------
    InvalidDataError
        If the file is no such claim, or the ledger another, a shorter one, or one that paid for more.
    """
    try:
        stored = _stored(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError, RecursionError, TutelageError):
        raise InvalidDataError(f"{path} is no claim that `tutelage publish test --output` wrote.") from None
    hashes = [entry["hash"] for entry in entries]
    if stored.head not in hashes:
        raise InvalidDataError(f"The ledger does not hold the head that {path} names: it is another, or rolled back.")
    before = _publications(entries[: hashes.index(stored.head) + 1])
    tests = [replace(event, simulated=False) for event in before if isinstance(event, PublicationTest)]
    if replace(stored.test, simulated=False) not in tests:  # a claim knows of simulated noise anywhere
        raise InvalidDataError(f"The ledger does not hold the test that {path} names.")
    if not _covers(stored, entries):
        raise InvalidDataError(f"The ledger paid for more than {path} covers: something was released besides it.")
    return stored.claim


def _as_dict(epsilon: PublicEpsilon) -> dict[str, Any]:
    return {name: getattr(epsilon, name) for name in ("epsilon", "delta", "order", "method")}


def _stored(record: Any) -> _Stored:
    """Return what a record holds; any error says that it is no claim."""
    test, smaller = event_from_dict(record["test"]), record["sanitised"]
    if record["format"] != _FORMAT or not isinstance(test, PublicationTest) or not isinstance(record["ledger"], str):
        raise ValueError
    sanitised = None if smaller is None else replace(_epsilon(smaller, test), output_dependent=True)
    claim = Claim(_epsilon(record["data_independent"], test), sanitised)
    return _Stored(claim, event_from_dict(record["labels"]), test, record["ledger"])


def _epsilon(record: Any, test: PublicationTest) -> PublicEpsilon:
    found = PublicEpsilon(unit=test.unit, simulated=test.simulated, **record)
    numbers = [found.epsilon, found.delta, *([] if found.order is None else [found.order])]
    if any(type(number) is not float or not isfinite(number) or number < 0 for number in numbers):
        raise ValueError
    if type(found.method) is not str:
        raise TypeError
    return found


def _covers(stored: _Stored, entries: list[dict[str, Any]]) -> bool:
    """Whether the claim is of every answer that was given, and its first ε pays for them and all publications."""
    labels, claimed = counted([stored.labels]), stored.claim.data_independent
    if any(times > labels[event] for event, times in given(entries).items()):
        return False
    whole = data_independent.epsilon(Composed((stored.labels, *_publications(entries))), claimed.delta)
    return whole.epsilon <= claimed.epsilon * (1 + _ROUNDING)


def _publications(entries: list[dict[str, Any]]) -> list[Event]:
    """Return every test and noised cost that a ledger was charged for."""
    charged = [event_from_dict(entry["event"]) for entry in entries if entry["kind"] == Kind.RESERVED]
    return [event for event in charged if isinstance(event, PUBLICATIONS)]
