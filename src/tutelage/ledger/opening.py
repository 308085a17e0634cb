"""Find the ledger that a release is to be charged to: given, on file, made now, or for this release alone."""

import os
from pathlib import Path

from tutelage.events import Event, Repeated
from tutelage.exceptions import LedgerMismatchError, LedgerStorageError
from tutelage.ledger.filter import RenyiFilter
from tutelage.ledger.ledger import Ledger
from tutelage.neighboring import PrivacyUnit


def open_or_make(
    where: str | os.PathLike[str] | Ledger | None,
    event: Event,
    queries: int,
    *,
    epsilon: float | None,
    delta: float,
    unit: PrivacyUnit,
) -> Ledger:
    """Return the ledger at `where`, making it if there is none.

    Parameters
    ----------
    where : path-like, Ledger or None
        The ledger; None for one that holds just this release and is forgotten.
    event : Event
        The most that one query can be.
    queries : int
        How many are to be asked.
    epsilon : float or None
        ε of the budget. Of a new ledger, None makes it just large enough; of an old one, any.
    delta : float
        δ of the budget.
    unit : PrivacyUnit
        Whom it protects.

    Raises
    ------
    LedgerMismatchError
        If the ledger has another budget or unit.
    """
    if where is None:
        return _new(None, event, queries, epsilon, delta, unit)
    if isinstance(where, Ledger):
        ledger = where
    else:
        path = Path(where)
        ledger = Ledger.open(path) if path.exists() else _new(path, event, queries, epsilon, delta, unit)
    _check_budget(ledger, epsilon, delta, unit)
    return ledger


def _new(
    path: Path | None, event: Event, queries: int, epsilon: float | None, delta: float, unit: PrivacyUnit
) -> Ledger:
    if epsilon is None:
        limit = RenyiFilter.holding(Repeated(event, queries), delta)
    else:
        limit = RenyiFilter.suited_to(epsilon, delta, event)
    if path is None:
        return Ledger.in_memory(epsilon=limit.epsilon, delta=delta, unit=unit, order=limit.order)
    try:
        return Ledger.create(path, epsilon=limit.epsilon, delta=delta, unit=unit, order=limit.order)
    except LedgerStorageError:
        if not path.exists():
            raise
        return Ledger.open(path)  # another process made it in the meantime


def _check_budget(ledger: Ledger, epsilon: float | None, delta: float, unit: PrivacyUnit) -> None:
    for name, wanted, found in (("epsilon", epsilon, ledger.epsilon), ("delta", delta, ledger.delta)):
        if wanted is not None and wanted != found:
            raise LedgerMismatchError(
                f"`{name}` must be {found:g}, as when the ledger was made: a budget is set once. Got {wanted:g}."
            )
    if ledger.unit != unit:
        raise LedgerMismatchError(
            f"The ledger protects one '{ledger.unit.name}' ({ledger.unit.neighboring}), this release another unit, "
            f"'{unit.name}' ({unit.neighboring}). Partition the data as before."
        )
