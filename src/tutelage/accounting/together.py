"""Fits without a ledger in one process, which no ledger adds up."""

from collections import Counter
from typing import final

from tutelage._internal.forks import BriefLock
from tutelage.accounting import data_independent
from tutelage.events import Event, event_of
from tutelage.privacy import ROW


@final
class _FitsWithoutLedger:
    """Counts the fits without a ledger in this process; public."""

    def __init__(self) -> None:
        self._fits = 0
        self._queries = Counter[Event]()
        self._units = set[str]()
        self._lock = BriefLock()

    def count(self, event: Event, queries: int, unit: str) -> int:
        """Count a fit before its labels are drawn, and return how many there were before.

        `event` is the most that one query can be, of one teacher; `unit` is the unit that the fit protects.
        """
        with self._lock:
            self._fits += 1
            self._queries[event] += queries
            self._units.add(unit)
            return self._fits - 1

    def total(self, delta: float) -> tuple[str, float]:
        """Return the unit that all fits protect, and their worst-case ε together."""
        with self._lock:
            event = event_of(self._queries)
            units = list(self._units)
        # Protection of all rows of an entity covers each row. The reverse does not hold.
        unit = units[0] if len(units) == 1 else ROW
        return unit, data_independent.epsilon(event, delta).epsilon


WITHOUT_LEDGER = _FitsWithoutLedger()
