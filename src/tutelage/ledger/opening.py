"""Find or create the ledger that a release spends from: given, on file, new, or for this release alone."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tutelage.events import Event, of_queries
from tutelage.exceptions import LedgerMismatchError, LedgerStorageError
from tutelage.ledger.filter import Accounting, Filter, GaussianFilter, RenyiFilter
from tutelage.ledger.ledger import Ledger
from tutelage.privacy import PrivacyUnit


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

    def existing_or_trial(self) -> Ledger:
        """Return the ledger, or one in memory if its file does not exist yet, to check whether a batch fits.

        A budget that turns out too small then leaves no file behind, in which it would be fixed.
        """
        if isinstance(self.where, Ledger):
            return self._checked(self.where)
        if self.where is not None and Path(self.where).exists():
            return self._checked(Ledger.open(self.where))
        return Ledger.in_memory(**self._new())

    def open_or_make(self) -> Ledger:
        """Return the ledger, creating its file if it does not exist; refuse another budget or unit."""
        if self.where is None or isinstance(self.where, Ledger) or Path(self.where).exists():
            return self.existing_or_trial()
        try:
            return Ledger.create(self.where, **self._new())
        except LedgerStorageError:
            if not Path(self.where).exists():
                raise
            return self.existing_or_trial()  # another process made it in the meantime

    def _new(self) -> dict[str, Any]:
        limit = self._limit()
        kept = {"order": limit.order, "accounting": limit.accounting}
        return {"epsilon": limit.epsilon, "delta": self.delta, "unit": self.unit, **kept}

    def _limit(self) -> Filter:
        gaussian = self.accounting is Accounting.GAUSSIAN
        if self.epsilon is None:
            kind = GaussianFilter if gaussian else RenyiFilter
            return kind.holding(of_queries(self.event, self.queries), self.delta)
        if gaussian:
            return GaussianFilter(self.epsilon, self.delta)
        return RenyiFilter.suited_to(self.epsilon, self.delta, self.event if self.suited else None)

    def _checked(self, ledger: Ledger) -> Ledger:
        for name, wanted, found in (("budget", self.epsilon, ledger.epsilon), ("delta", self.delta, ledger.delta)):
            if wanted is not None and wanted != found:
                raise LedgerMismatchError(
                    f"`{name}` must be {found:g}, as when the ledger was made: a budget is set once. Got {wanted:g}."
                )
        if ledger.unit != self.unit:
            raise LedgerMismatchError(
                f"The ledger protects one {ledger.unit}, this release another unit, {self.unit}. Partition the data as "
                "before."
            )
        return ledger
