"""Events, and votes where a theorem reads them, to privacy cost."""

from tutelage.accounting.accountant import Accountant, Breakdown, PrivateBreakdown

__all__ = ["Accountant", "Breakdown", "PrivateBreakdown"]
