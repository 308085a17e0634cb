"""A durable privacy budget: reserve, then draw noise, then settle; answers are remembered and repeats are free."""

from tutelage.ledger.campaigns import Voters
from tutelage.ledger.filter import Accounting
from tutelage.ledger.history import History, LedgerState
from tutelage.ledger.ledger import Granted, Labels, Ledger, Reservation, Settled
from tutelage.ledger.opening import existing_ledger, opened_ledger
from tutelage.ledger.queries import data_digest

__all__ = [
    "Accounting",
    "Granted",
    "History",
    "Labels",
    "Ledger",
    "LedgerState",
    "Reservation",
    "Settled",
    "Voters",
    "data_digest",
    "existing_ledger",
    "opened_ledger",
]
