"""Events, and votes where a theorem reads them, to privacy cost.

Names are loaded on first use: a ledger needs none of the data-dependent theory.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tutelage.accounting.accountant import Accountant as Accountant
    from tutelage.accounting.accountant import Breakdown as Breakdown
    from tutelage.accounting.accountant import PrivateBreakdown as PrivateBreakdown

__all__ = ["Accountant", "Breakdown", "PrivateBreakdown"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("tutelage.accounting.accountant"), name)
    raise AttributeError(f"module 'tutelage.accounting' has no attribute {name!r}")
