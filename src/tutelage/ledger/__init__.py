"""A durable privacy budget: reserve, then draw noise, then settle; answers are remembered and repeats are free."""

from tutelage.ledger.ledger import Labels, Ledger, LedgerState, Reservation, Settled
from tutelage.ledger.opening import LedgerTerms
from tutelage.ledger.queries import data_digest

__all__ = ["Labels", "Ledger", "LedgerState", "LedgerTerms", "Reservation", "Settled", "data_digest"]
