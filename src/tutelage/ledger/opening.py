"""Find or create the ledger that a release spends from: given, on file, new, or for this release alone."""

import os
from contextlib import suppress

from tutelage.events import Event, of_queries
from tutelage.exceptions import LedgerMismatchError, LedgerMissingError
from tutelage.ledger.filter import Accounting, GaussianFilter, RenyiFilter
from tutelage.ledger.ledger import Ledger
from tutelage.privacy import NeighboringRelation, PrivacyUnit


def existing_ledger(where: str | os.PathLike[str] | Ledger | None) -> Ledger | None:
    """Return a ledger that is given or on file, or None where there is none yet."""
    if where is None or isinstance(where, Ledger):
        return where
    with suppress(LedgerMissingError):
        return Ledger.open(where)
    return None


def opened_ledger(
    where: str | os.PathLike[str] | Ledger | None,
    event: Event,
    queries: int,
    *,
    epsilon: float | None,
    delta: float,
    unit: PrivacyUnit,
    accounting: Accounting = Accounting.RENYI,
    suited: bool = True,
) -> Ledger:
    """Return a ledger, or a new one whose first reservation makes its file; refuse another budget or unit.

    A ledger that is nowhere holds just this release, of `queries` queries that are each at most `event`. Where ε is
    None, an old ledger may have any, and a new one is just large enough. The Rényi order of a new ledger with an ε
    suits the event or, unless `suited`, Gaussian noise.
    """
    found = existing_ledger(where)
    if found is not None:
        require_terms(found, epsilon, delta, unit)
        return found
    gaussian = accounting is Accounting.GAUSSIAN
    if epsilon is None:
        limit = (GaussianFilter if gaussian else RenyiFilter).holding(of_queries(event, queries), delta)
    elif gaussian:
        limit = GaussianFilter(epsilon, delta)
    else:
        limit = RenyiFilter.suited_to(epsilon, delta, event if suited else None)
    return Ledger.made_by_spending(None if isinstance(where, Ledger) else where, limit, unit)


def require_terms(ledger: Ledger, epsilon: float | None, delta: float, unit: PrivacyUnit) -> None:
    """Refuse a ledger with another budget, where one is named, or of another unit."""
    for name, wanted, found in (("budget", epsilon, ledger.epsilon), ("delta", delta, ledger.delta)):
        if wanted is not None and wanted != found:
            raise LedgerMismatchError(
                f"`{name}` must be {found:g}, as when the ledger was made: a budget is set once. Got {wanted:g}."
            )
    if ledger.unit == unit:
        return
    row = NeighboringRelation.CHANGE_ONE_ROW
    if ledger.unit.neighboring is row and unit.neighboring is not row:
        raise LedgerMismatchError(
            f"The ledger protects one row, and this release one {unit.name}. A ledger of rows cannot become a ledger "
            "of people: a person may have any number of rows, so no ε for a person follows from what rows have spent. "
            "Create a new ledger for the people. It does not cover the earlier releases, whose guarantee remains the "
            "one for rows."
        )
    raise LedgerMismatchError(
        f"The ledger protects one {ledger.unit}, this release another unit, {unit}. Partition the data as before."
    )
