"""Events, and votes where a theorem reads them, to privacy cost."""

from tutelage.accounting.accountant import Accountant, Breakdown, PrivateBreakdown, PrivateReach
from tutelage.accounting.release.choosing import choose_release
from tutelage.accounting.release.proposal import Proposal
from tutelage.accounting.release.proposing import propose
from tutelage.accounting.release.smooth_plan import SmoothPlan, plan_smooth_release

__all__ = [
    "Accountant",
    "Breakdown",
    "PrivateBreakdown",
    "PrivateReach",
    "Proposal",
    "SmoothPlan",
    "choose_release",
    "plan_smooth_release",
    "propose",
]
