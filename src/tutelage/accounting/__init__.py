"""Events, and votes where a theorem reads them, to privacy cost."""

from tutelage.accounting.accountant import Accountant, Breakdown, PrivateBreakdown, PrivateReach
from tutelage.accounting.release.proposal import Proposal
from tutelage.accounting.release.proposing import propose

__all__ = ["Accountant", "Breakdown", "PrivateBreakdown", "PrivateReach", "Proposal", "propose"]
