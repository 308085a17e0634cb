"""A durable privacy budget: reserve, then draw noise, then settle; answers are remembered and repeats are free."""

from tutelage.ledger.entries import canonical
from tutelage.ledger.ledger import Ledger, LedgerState, Reservation
from tutelage.ledger.opening import budget_of
from tutelage.ledger.queries import data_digest

__all__ = ["Ledger", "LedgerState", "Reservation", "budget_of", "canonical", "data_digest"]
