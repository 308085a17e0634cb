"""A durable privacy budget: reserve, then draw noise, then settle; answers are remembered and repeats are free."""

from tutelage.ledger.campaigns import Voters
from tutelage.ledger.digests import data_digest
from tutelage.ledger.filter import Accounting
from tutelage.ledger.history import History, LedgerState
from tutelage.ledger.ledger import Granted, Labels, Ledger, Reservation, Settled, existing_ledger, opened_ledger

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
