"""Fits without a ledger in one process, which no ledger adds up."""

from collections import Counter
from typing import NamedTuple, final

from tutelage._internal.forks import BriefLock
from tutelage.accounting import data_independent
from tutelage.events import Composed, Event, Repeated


class Spent(NamedTuple):
    """Number and total ε of the fits without a ledger in this process; public."""

    fits: int
    unit: str
    epsilon: float


@final
class FitsWithoutLedger:
    """Counts the fits without a ledger in this process, which no ledger adds up; public."""

    def __init__(self) -> None:
        self._fits = 0
        self._queries = Counter[Event]()
        self._units = set[str]()
        self._lock = BriefLock()

    def count(self, one: Event, queries: int, unit: str, delta: float) -> Spent:
        """Count a fit before its labels are drawn; return the worst-case ε of all fits so far, at `delta`.

        `one` is the most that one query can be, of one teacher; `unit` is the unit that the fit protects.
        """
        with self._lock:
            self._fits += 1
            self._queries[one] += queries
            self._units.add(unit)
            event = Composed(tuple(Repeated(one, queries) for one, queries in self._queries.items()))
            # Protection of all rows of an entity covers each row. The reverse does not hold.
            name = unit if len(self._units) == 1 else "row"
            return Spent(self._fits, name, data_independent.epsilon(event, delta).epsilon)


WITHOUT_LEDGER = FitsWithoutLedger()
