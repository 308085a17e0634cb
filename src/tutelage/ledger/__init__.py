"""A durable privacy budget: reserve, then draw noise, then settle; answers are remembered and repeats are free."""

from tutelage.ledger.ledger import Ledger, LedgerState, Reservation, Settled
from tutelage.ledger.opening import open_or_make
from tutelage.ledger.queries import data_digest

__all__ = ["Ledger", "LedgerState", "Reservation", "Settled", "data_digest", "open_or_make"]
