"""What costs that hold for all votes say about a release: where the budget went, what other numbers would cost."""

from typing import Any, NamedTuple

from tutelage.accounting import data_independent
from tutelage.events import PUBLICATIONS, Check, Event, Repeated, counted, event_from_dict, event_of
from tutelage.exceptions import InvalidDataError
from tutelage.ledger.entries import Kind
from tutelage.ledger.filter import RenyiFilter
from tutelage.ledger.history import answered, happened, is_publication
from tutelage.report import Batch, FrontierPoint
from tutelage.report.evidence import merged

_MOST_BATCHES = 200
_FRONTIER = (1 / 4, 1 / 2, 1, 2, 4)  # each costs up to a second or so


class Released(NamedTuple):
    """What was released: as one event, of so many queries, the last of which was at most `one`."""

    event: Event
    queries: int
    one: Event


def batches_of(entries: list[dict[str, Any]]) -> tuple[Batch, ...]:
    """Return what each batch of a ledger took; of very many, neighbours in time are put together.

    Parameters
    ----------
    entries : list of dict
        As `Ledger.export` gives them.
    """
    opening = entries[0]
    limit = RenyiFilter(opening["epsilon"], opening["delta"], opening["order"])
    answers = answered(entries)
    batches = []
    for entry in entries:
        if entry["kind"] == Kind.RESERVED:
            settled = answers.get(entry["number"])
            share = limit.share(entry["cost"] - (0 if settled is None else settled["refund"]))
            checks = share * _share_of_checks(happened(entry, settled), limit)
            queries = 0 if is_publication(entry) else entry["queries"]
            batches.append(Batch(entry["written"], queries, checks, share - checks))
    return merged(batches, _MOST_BATCHES)


def released(entries: list[dict[str, Any]]) -> Released:
    """Return everything that a ledger was charged for, as one event.

    Batches that were never settled count as if every answer had been given.

    Raises
    ------
    InvalidDataError
        If nothing was released through it.
    """
    settled = answered(entries)
    reserved = [entry for entry in entries if entry["kind"] == Kind.RESERVED]
    asked = [entry for entry in reserved if not is_publication(entry)]
    if not asked:
        raise InvalidDataError("The ledger holds no release yet, so there is nothing for a card to tell. Ask first.")
    queries = sum(entry["queries"] for entry in asked)
    times = counted(happened(entry, settled.get(entry["number"])) for entry in reserved)
    return Released(event_of(times), queries, event_from_dict(asked[-1]["event"]))


def frontier_of(one: Event, queries: int, delta: float) -> tuple[FrontierPoint, ...]:
    """Return what other numbers of queries would cost by themselves, every one of them answered.

    Parameters
    ----------
    one : Event
        The most that one query can be.
    queries : int
        The number around which others are tried.
    delta : float
        δ of every cost.
    """
    numbers = sorted({max(1, round(queries * factor)) for factor in _FRONTIER})
    return tuple(FrontierPoint(number, data_independent.epsilon(Repeated(one, number), delta)) for number in numbers)


def _share_of_checks(event: Event, limit: RenyiFilter) -> float:
    parts = [(part, limit.cost(Repeated(part.event, part.times))) for part in event.flatten()]
    whole = sum(cost for _, cost in parts)
    beside = sum(cost for part, cost in parts if isinstance(part.event.without_shares(), (Check, *PUBLICATIONS)))
    return beside / whole if whole else 0.0
