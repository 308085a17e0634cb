"""Events, and votes where a theorem reads them, to privacy cost.

Names are loaded on first use: a ledger needs none of the data-dependent theory.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tutelage.accounting.accountant import Accountant as Accountant

__all__ = ["Accountant"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("tutelage.accounting.accountant"), name)
    raise AttributeError(f"module 'tutelage.accounting' has no attribute {name!r}")
