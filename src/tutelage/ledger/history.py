"""What the entries of a ledger say was done, and to which state of the data."""

from typing import Any, NamedTuple

from tutelage.accounting.data_independent import epsilon
from tutelage.budget import PublicEpsilon
from tutelage.events import Composed, Event, Repeated, event_from_dict
from tutelage.ledger.entries import Kind


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
    epsilon : PublicEpsilon or None
        ε of everything charged since then, at the ledger's δ; None where nothing was.
    """

    version: int
    since: str
    queries: int
    epsilon: PublicEpsilon | None


def exposures(entries: list[dict[str, Any]]) -> tuple[Exposure, ...]:
    """Return what was charged since each state of the data began; the first is what everyone there from then on paid.

    Whoever came later is exposed to less, and whoever left keeps what was spent on them; the ledger's own budget counts
    everything, for all. What is charged is data-independent, so all of this is public.

    Parameters
    ----------
    entries : list of dict
        As `Ledger.export` gives them.
    """
    settled, began = answered(entries), [entries[0]]
    began += [entry for entry in entries if entry["kind"] == Kind.BOUND][1:]  # the first names the state it opened with
    found = []
    for version, start in enumerate(began, start=1):
        reserved = [e for e in entries if e["kind"] == Kind.RESERVED and e["number"] > start["number"]]
        events = tuple(happened(entry, settled.get(entry["number"])) for entry in reserved)
        cost = epsilon(Composed(events), entries[0]["delta"]) if events else None
        found.append(Exposure(version, start["written"], sum(entry["queries"] for entry in reserved), cost))
    return tuple(found)


def answered(entries: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the entries that settled a batch, by the number of its reservation."""
    return {entry["reservation"]: entry for entry in entries if entry["kind"] == Kind.ANSWERED}


def happened(reserved: dict[str, Any], settled: dict[str, Any] | None) -> Event:
    """Return what a batch was charged for: as it happened, or the most that it could be while it is not settled."""
    if settled is not None:
        return event_from_dict(settled["happened"])
    return Repeated(event_from_dict(reserved["event"]), reserved["queries"])
