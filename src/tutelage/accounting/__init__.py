"""Events, and votes where a theorem reads them, to privacy cost.

Names are loaded on first use: a ledger needs none of the data-dependent theory.
"""

from typing import TYPE_CHECKING

from tutelage._internal import on_first_use

if TYPE_CHECKING:
    from tutelage.accounting.accountant import Accountant as Accountant

_HOME = {"Accountant": "accountant"}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = on_first_use(__name__, _HOME)
