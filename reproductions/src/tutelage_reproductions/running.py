"""The list of all reproductions, and functions that run one or all of them."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, final

from tutelage.exceptions import InvalidParameterError, TutelageError
from tutelage_reproductions.record import Circumstances, Record, commit

# First the papers in their order, then experiments of this project.
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
    """A module that reproduces one table or figure."""

    __doc__: str | None

    def reproduce(self, *, quick: bool, download: bool, progress: bool) -> Record:
        """Return the numbers.

        Parameters
        ----------
        quick : bool
            Run a shorter form of about a minute; the record is marked as quick.
        download : bool
            Download data sets that are not found.
        progress : bool
            Show a progress bar for long work.
        """
        ...


def load(name: str) -> Reproduction:
    """Return the reproduction of this name.

    Raises
    ------
    InvalidParameterError
        If there is no reproduction of this name; the message lists all names.
    """
    if name not in NAMES:
        raise InvalidParameterError("reproduction", f"be one of {', '.join(NAMES)}", repr(name))
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


def run_all(
    names: Sequence[str], *, quick: bool, download: bool, progress: bool
) -> Iterator[Record | Refused]:
    """Yield each record when it is complete; a reproduction without its data or an extra does not stop the others.

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
        except (TutelageError, OSError, ModuleNotFoundError) as error:
            # The last says which extra is missing.
            yield Refused(name, str(error))


def still_to_run(names: Sequence[str], folder: Path, *, quick: bool) -> list[str]:
    """Return the reproductions without a record of this form, or a fuller one, in a folder.

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
    """Return whether a record exists with its figure, which is drawn last and needs matplotlib."""
    path = folder / f"{name}.json"
    if not path.is_file() or (Record.load(path).quick and not quick):
        return False
    return (
        json.loads(path.read_text(encoding="utf-8"))["figure"] is None
        or path.with_suffix(".png").is_file()
    )
