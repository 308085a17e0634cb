"""Find or create the ledger that a release spends from: given, on file, new, or for this release alone."""

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import final

from tutelage.events import Event, of_queries
from tutelage.exceptions import LedgerMismatchError, LedgerMissingError
from tutelage.ledger.filter import Accounting, Filter, GaussianFilter, RenyiFilter
from tutelage.ledger.ledger import Ledger
from tutelage.privacy import NeighboringRelation, PrivacyUnit


def existing_ledger(where: str | os.PathLike[str] | Ledger | None) -> Ledger | None:
    """Return a ledger that is given or on file, or None where there is none yet."""
    if where is None or isinstance(where, Ledger):
        return where
    with suppress(LedgerMissingError):
        return Ledger.open(where)
    return None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTerms:
    """The ledger that a release spends from, and the budget with which it is created if it does not exist.

    Parameters
    ----------
    where : path-like, Ledger or None
        The ledger; None for one that holds just this release and is forgotten.
    event, queries : Event, int
        The most that one query can be, and how many are to be asked.
    epsilon, delta : float or None, float
        The budget. As ε of a new ledger, None makes it just large enough; of an old one, any.
    unit : PrivacyUnit
        Whom it protects.
    accounting : Accounting
        How a new ledger keeps its limit.
    suited : bool
        Whether the Rényi order of a new ledger with this `epsilon` suits the event; otherwise it suits Gaussian noise.
    """

    where: str | os.PathLike[str] | Ledger | None
    event: Event
    queries: int
    epsilon: float | None
    delta: float
    unit: PrivacyUnit
    accounting: Accounting = Accounting.RENYI
    suited: bool = True

    def open(self) -> Ledger:
        """Return the ledger, or a new one whose first reservation makes its file; refuse another budget or unit."""
        found = existing_ledger(self.where)
        if found is not None:
            return self._checked(found)
        return Ledger.made_by_spending(None if isinstance(self.where, Ledger) else self.where, self._limit(), self.unit)

    def _limit(self) -> Filter:
        gaussian = self.accounting is Accounting.GAUSSIAN
        if self.epsilon is None:
            kind = GaussianFilter if gaussian else RenyiFilter
            return kind.holding(of_queries(self.event, self.queries), self.delta)
        if gaussian:
            return GaussianFilter(self.epsilon, self.delta)
        return RenyiFilter.suited_to(self.epsilon, self.delta, self.event if self.suited else None)

    def _checked(self, ledger: Ledger) -> Ledger:
        require_terms(ledger, self.epsilon, self.delta, self.unit)
        return ledger


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
