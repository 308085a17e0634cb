"""Which reproductions there are, each loaded when it is asked for; and running one or all of them."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, final

from tutelage.exceptions import InvalidParameterError, TutelageError
from tutelage_reproductions.record import Circumstances, Record, commit

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
    "rivals",
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
    module: Reproduction = import_module(f"tutelage_reproductions.{name.replace('-', '_')}")  # type: ignore[assignment]
    return module


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """A reproduction that could not be run.

    Parameters
    ----------
    name : str
        Which one.
    because : str
        One sentence.
    """

    name: str
    because: str


def run(name: str, *, quick: bool, download: bool, progress: bool) -> Record:
    """Return the record of a reproduction with its circumstances.

    Parameters
    ----------
    name : str
        Which one.
    quick, download, progress : bool
        As in `Reproduction.reproduce`.
    """
    commit()  # as it is before anything runs
    reproduction, started = load(name), time.perf_counter()
    record = reproduction.reproduce(quick=quick, download=download, progress=progress)
    return replace(record, circumstances=Circumstances.now(time.perf_counter() - started))


def run_all(names: Sequence[str], *, quick: bool, download: bool, progress: bool) -> Iterator[Record | Refused]:
    """Yield each record as it is done; one that lacks its data or an extra does not keep the others from running.

    Parameters
    ----------
    names : sequence of str
        Which ones.
    quick, download, progress : bool
        As in `Reproduction.reproduce`.
    """
    for name in names:
        try:
            yield run(name, quick=quick, download=download, progress=progress)
        except (TutelageError, OSError, ModuleNotFoundError) as error:  # the last says which extra is missing
            yield Refused(name, str(error))


def still_to_run(names: Sequence[str], folder: Path, *, quick: bool) -> list[str]:
    """Return those whose record, of this form or a fuller one, is not in a folder yet.

    Parameters
    ----------
    names : sequence of str
        Which ones are wanted.
    folder : path
        Where records are saved.
    quick : bool
        Whether a quick one is enough.
    """
    return [name for name in names if not _is_saved(name, folder, quick=quick)]


def _is_saved(name: str, folder: Path, *, quick: bool) -> bool:
    """Return whether a record is there with its figure, which is drawn last and may have lacked matplotlib."""
    path = folder / f"{name}.json"
    if not path.is_file() or (Record.load(path).quick and not quick):
        return False
    return json.loads(path.read_text(encoding="utf-8"))["figure"] is None or path.with_suffix(".png").is_file()
