"""Events, and votes where a theorem reads them, to privacy cost.

Names are loaded on first use: a ledger needs none of the data-dependent theory.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tutelage.accounting.accountant import Accountant as Accountant
    from tutelage.accounting.accountant import Breakdown as Breakdown
    from tutelage.accounting.accountant import PrivateBreakdown as PrivateBreakdown
    from tutelage.accounting.accountant import PrivateReach as PrivateReach
    from tutelage.accounting.release.choosing import choose_release as choose_release
    from tutelage.accounting.release.proposal import Proposal as Proposal
    from tutelage.accounting.release.proposing import propose as propose
    from tutelage.accounting.release.smooth_plan import SmoothPlan as SmoothPlan
    from tutelage.accounting.release.smooth_plan import plan_smooth_release as plan_smooth_release

_HOME = {
    "Accountant": "accountant",
    "Breakdown": "accountant",
    "PrivateBreakdown": "accountant",
    "PrivateReach": "accountant",
    "Proposal": "release.proposal",
    "SmoothPlan": "release.smooth_plan",
    "choose_release": "release.choosing",
    "plan_smooth_release": "release.smooth_plan",
    "propose": "release.proposing",
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tutelage.accounting.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tutelage.accounting' has no attribute {name!r}")
