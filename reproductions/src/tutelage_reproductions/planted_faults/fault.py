"""A fault that somebody made, planted, and the check that must notice it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from tutelage.exceptions import TutelageError

Check = Callable[[Any], bool]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, beside the same thing done rightly.

    Parameters
    ----------
    name : str
        What goes wrong.
    planted : str
        How it is made here.
    caught_by : str
        What notices it.
    check : callable
        Takes an implementation and returns whether it holds; a refusal of ours counts as noticing.
    right, wrong : object
        The implementation without the fault, and with it.
    """

    name: str
    planted: str
    caught_by: str
    check: Check = field(repr=False)
    right: Any = field(repr=False)
    wrong: Any = field(repr=False)

    @property
    def caught(self) -> bool:
        """Whether the check notices the fault."""
        return not _holds(self.check, self.wrong)

    @property
    def accepts_what_is_right(self) -> bool:
        """Whether the check leaves the right implementation alone."""
        return _holds(self.check, self.right)


def _holds(check: Check, implementation: Any) -> bool:
    try:
        with np.errstate(all="ignore"):  # some faults take logarithms of negative numbers
            return check(implementation)
    except (TutelageError, AssertionError):
        return False
