"""What the entries of a ledger say was done, and to which state of the data."""

from math import inf
from typing import Any, NamedTuple

from tutelage.events import PUBLICATIONS, Event, Repeated, event_from_dict
from tutelage.ledger.entries import Kind
from tutelage.ledger.filter import RenyiFilter


class Exposure(NamedTuple):
    """What people have been exposed to whose data came with one state of a data set and stayed.

    Parameters
    ----------
    version : int
        State of the data, from 1.
    since : str
        When it began, as an ISO 8601 date and time.
    queries : int
        Queries charged since then.
    share : float
        Part of the budget's ε that was charged since then: the filter's currency, not an ε of its own, since how much
        was asked may have depended on answers (docs/proofs/ledger.md).
    """

    version: int
    since: str
    queries: int
    share: float


def exposures(entries: list[dict[str, Any]]) -> tuple[Exposure, ...]:
    """Return what was charged since each state of the data began, the first state first.

    Whoever came later is exposed to less, and whoever left keeps what was spent on them; the budget counts everything,
    for all. A batch that was open when the data changed counts for the new state too: its votes may have come after.

    Parameters
    ----------
    entries : list of dict
        As `Ledger.export` gives them.
    """
    opening, settled = entries[0], answered(entries)
    limit = RenyiFilter(opening["epsilon"], opening["delta"], opening["order"])
    # An entry that is the same data set under another fingerprint begins no new state.
    bound = [entry for entry in entries if entry["kind"] == Kind.BOUND and not entry.get("same")]
    changes = bound[1:]  # the first names the state that the ledger opened with
    began = [opening, *changes]
    found: list[Exposure] = []
    for version, start in enumerate(began, start=1):
        reserved = [entry for entry in entries if entry["kind"] == Kind.RESERVED]
        after = [entry for entry in reserved if _ended(entry, settled) > start["number"]]
        grains = sum(entry["cost"] - settled.get(entry["number"], {"refund": 0})["refund"] for entry in after)
        queries = sum(entry["queries"] for entry in after if not is_publication(entry))
        found.append(Exposure(version, start["written"], queries, limit.share(grains)))
    return tuple(found)


def _ended(reserved: dict[str, Any], settled: dict[int, dict[str, Any]]) -> float:
    """Return the number of the entry that settled a batch; infinite while it is open."""
    entry = settled.get(reserved["number"])
    return inf if entry is None else entry["number"]


def is_publication(reserved: dict[str, Any]) -> bool:
    """Whether it was no query but the publication of an ε."""
    return reserved["event"]["event"] in {kind.__name__ for kind in PUBLICATIONS}


def answered(entries: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the entries that settled a batch, by the number of its reservation."""
    return {entry["reservation"]: entry for entry in entries if entry["kind"] == Kind.ANSWERED}


def happened(reserved: dict[str, Any], settled: dict[str, Any] | None) -> Event:
    """Return what a batch was charged for: as it happened, or the most that it could be while it is not settled."""
    if settled is not None:
        return event_from_dict(settled["happened"])
    return Repeated(event_from_dict(reserved["event"]), reserved["queries"])
