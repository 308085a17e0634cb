"""Which reproductions there are; each is loaded when it is asked for."""

from importlib import import_module
from typing import Protocol

from tutelage.exceptions import InvalidParameterError
from tutelage.reproductions.record import Record

# In the order of the papers, and then what was found beside them.
NAMES = (
    "mnist-baseline",
    "svhn-baseline",
    "mnist-teachers",
    "fig2",
    "fig3",
    "table4",
    "fig5",
    "active-learning",
    "adult",
    "adult-sweep",
    "diabetes",
    "mnist-students",
    "mnist-frontier",
    "svhn-student",
    "zhao",
    "tutorial",
    "epsilons",
    "exact-costs",
    "publishable",
    "repeat-attack",
    "plan-check",
    "membership",
    "mechanism-audits",
    "planted-faults",
)


class Reproduction(Protocol):
    """A module that reproduces one table or figure; the first line of its docstring says which."""

    __doc__: str | None

    def reproduce(self, *, quick: bool, download: bool, progress: bool) -> Record:
        """Return the numbers.

        Parameters
        ----------
        quick : bool
            Do less, in about a minute, and say so in the record.
        download : bool
            Fetch the data where they are not found here.
        progress : bool
            Show a progress bar on work that takes long.
        """
        ...


def load(name: str) -> Reproduction:
    """Return the reproduction of this name.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists those that there are.
    """
    if name not in NAMES:
        raise InvalidParameterError(f"There is no reproduction {name!r}. There are: {', '.join(NAMES)}.")
    module: Reproduction = import_module(f"tutelage.reproductions.{name.replace('-', '_')}")  # type: ignore[assignment]
    return module
