"""What costs that hold for all votes say about a release: where the budget went, what other numbers would cost."""

from tutelage.accounting import data_independent
from tutelage.events import Event, Repeated
from tutelage.ledger import History
from tutelage.report import Batch, FrontierPoint
from tutelage.report.evidence import merged

_MOST_BATCHES = 200
_FRONTIER = (1 / 4, 1 / 2, 1, 2, 4)  # each costs up to a second or so


def batches_of(history: History) -> tuple[Batch, ...]:
    """Return what each batch of a ledger took; of very many, neighbours in time are put together."""
    batches = []
    for charge in history.charges:
        share = history.limit.share(charge.cost)
        checks = share * history.share_of_checks(charge)
        batches.append(Batch(charge.reserved.content["written"], charge.queries, checks, share - checks))
    return merged(batches, _MOST_BATCHES)


def frontier_of(one: Event, queries: int, delta: float) -> tuple[FrontierPoint, ...]:
    """Return what other numbers of queries would cost by themselves, every one of them answered."""
    numbers = sorted({max(1, round(queries * factor)) for factor in _FRONTIER})
    return tuple(FrontierPoint(number, data_independent.epsilon(Repeated(one, number), delta)) for number in numbers)
