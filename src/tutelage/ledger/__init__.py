"""A durable privacy budget: reserve, then draw noise, then settle; answers are remembered and repeats are free."""

from tutelage.ledger.answers import Labels
from tutelage.ledger.history import LedgerState
from tutelage.ledger.ledger import Ledger

__all__ = [
    "Labels",
    "Ledger",
    "LedgerState",
]
