"""The record of a reproduction: published numbers beside ours, and where, when and with which code it was run."""

import csv
import json
import math
import platform
import subprocess
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import Any, Literal, Protocol, cast, final

import numpy as np
import numpy.typing as npt
import scipy
from joblib import cpu_count

import tutelage
from tutelage.exceptions import InvalidDataError, InvalidParameterError

Better = Literal["higher", "lower"]
Interval = tuple[float, float]


class Drawing(Protocol):
    """A figure that can write itself; a dataclass of plain numbers."""

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write the figure as png and svg into `folder`, and return the paths."""
        ...


_CONFIDENCE = 0.95
_FEWEST = 3
_AS_PRINTED = 0.005  # papers print two digits after the point
_PROCESSORS = Path("/proc/cpuinfo")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number.

    Parameters
    ----------
    name : str
        Name of the number, with its unit.
    ours : float
        The value found.
    published : float, optional
        The number in the paper.
    at_least, at_most : float, optional
        The goal of this project.
    interval : tuple of two floats, optional
        95 % confidence interval of `ours`; the notes of the record name its population.
    seconds : float, optional
        Wall-clock time of the work, which may give other numbers too.
    better : {"higher", "lower"}, optional
        Which values are better. Default: neither; the value is a fact and may differ in both directions.
    why : str, optional
        Why our value differs from the published one. Required if it falls short.
    """

    name: str
    ours: float
    published: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    interval: Interval | None = None
    seconds: float | None = None
    better: Better | None = None
    why: str | None = None

    @property
    def is_lower_bound(self) -> bool:
        """Whether the number is a lower bound on ε from an attack."""
        audited = self.better is None and self.at_most is not None and ", δ = " in self.name
        return audited or self.name.endswith(": lower bound on ε")

    @property
    def falls_short(self) -> bool:
        """Whether it is worse than published, up to the printed digits, or misses its goal."""
        missed = (self.at_least is not None and self.ours < self.at_least) or (
            self.at_most is not None and self.ours > self.at_most
        )
        if self.published is None or self.better is None:
            return missed
        behind = (
            self.published - self.ours if self.better == "higher" else self.ours - self.published
        )
        return missed or behind > _AS_PRINTED


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Machine, versions and time of a run."""

    date: str  # day on which it ended, ISO 8601, UTC
    seconds: float  # on the clock, the whole run
    processor: str  # model, and how many threads of it the process may use
    python: str  # version of the interpreter, and the operating system
    tutelage: str
    # Of the checkout that both packages are imported from, with "+" if files differ from it; None without a checkout.
    commit: str | None

    @classmethod
    def now(cls, seconds: float) -> "Circumstances":
        """Return those of this process."""
        return cls(
            date=datetime.now(UTC).date().isoformat(),
            seconds=round(seconds, 1),
            processor=f"{_processor()}, {cpu_count()} threads",
            python=f"Python {platform.python_version()}, {platform.system()}",
            tutelage=version("tutelage"),
            commit=commit(),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All numbers of one reproduction.

    Parameters
    ----------
    name : str
        As in ``tutelage reproduce NAME``.
    source : str
        Paper, version and place.
    rows : tuple of Row
        The numbers.
    quick : bool
        Whether less was done than the paper did.
    notes : tuple of str
        Facts needed for a comparison: seeds, data, and what was left out and why.
    figure : Drawing, optional
        A figure of the numbers.
    circumstances : Circumstances, optional
        Machine, versions and time.
    """

    name: str
    source: str
    rows: tuple[Row, ...]
    quick: bool
    notes: tuple[str, ...] = ()
    figure: Drawing | None = None
    circumstances: Circumstances | None = None

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if len(set(names)) < len(names):
            raise InvalidParameterError("Record.rows", "have distinct names")

    def save(self, folder: Path) -> list[Path]:
        """Write the record as json and csv, and its figure as png and svg, into `folder`; return the paths.

        Parameters
        ----------
        folder : path
            Created if it does not exist.

        Raises
        ------
        InvalidParameterError
            If there is a figure and matplotlib is not installed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        as_json, as_csv = folder / f"{self.name}.json", folder / f"{self.name}.csv"
        as_json.write_text(
            json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        with as_csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [column.name for column in fields(Row)])
            writer.writeheader()
            writer.writerows(asdict(row) for row in self.rows)
        # Last: it may lack matplotlib.
        drawn = [] if self.figure is None else self.figure.save(folder, self.name)
        return [as_json, as_csv, *drawn]

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values, for JSON."""
        return asdict(self)

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Return a record that was saved as json, without its figure, which was drawn beside it.

        Parameters
        ----------
        path : path
            Of the json file.

        Raises
        ------
        InvalidDataError
            If the file is not a record.
        """
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            rows = tuple(Row(**row | {"interval": _pair(row["interval"])}) for row in saved["rows"])
            on = saved["circumstances"] and Circumstances(**saved["circumstances"])
            known = {
                "rows": rows,
                "notes": tuple(saved["notes"]),
                "circumstances": on,
                "figure": None,
            }
            return cls(**saved | known)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidDataError(
                f"{path} is not a record of `tutelage reproduce --output`."
            ) from error


def _pair(ends: list[float] | None) -> Interval | None:
    return None if ends is None else (ends[0], ends[1])


def _processor() -> str:
    if _PROCESSORS.is_file():
        for line in _PROCESSORS.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def commit() -> str | None:
    """Return the commit of the checkout that this package and tutelage are imported from, as of the first call.

    Files may change during a run, but modules are read before it.
    """
    # Of these very files: an environment may lie in the working tree of some other project.
    if _git("ls-files", "--error-unmatch", __file__, tutelage.__file__) is None:
        return None
    return _git("describe", "--always", "--exclude=*", "--dirty=+")


def _git(*words: str) -> str | None:
    git = which("git")
    if git is None:
        return None
    command = [git, "-C", str(Path(__file__).parent), *words]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  fixed words
    return found.stdout.strip() if found.returncode == 0 else None


def percent_right(labels: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Return how many of the labels are true, in percent."""
    right: npt.NDArray[np.bool_] = np.asarray(labels) == np.asarray(truth)
    return 100 * float(np.mean(right))


def share(right: npt.ArrayLike) -> tuple[float, Interval]:
    """Return a share in percent and its exact confidence interval."""
    right = np.asarray(right)
    successes = int(right.sum())
    low, high = share_interval(successes, right.size)
    return 100 * (successes / right.size), (100 * low, 100 * high)


def share_interval(successes: int, trials: int) -> Interval:
    """Return the exact (Clopper–Pearson) confidence interval of a share, between 0 and 1."""
    test = scipy.stats.binomtest(successes, trials)
    return cast("Interval", test.proportion_ci(_CONFIDENCE, method="exact"))


def mean_share(percents: npt.ArrayLike) -> tuple[float, Interval | None]:
    """Return the mean of shares in percent and its confidence interval, cut to 0 and 100."""
    center, interval = mean(percents)
    return center, None if interval is None else (max(interval[0], 0.0), min(interval[1], 100.0))


def mean(values: npt.ArrayLike) -> tuple[float, Interval | None]:
    """Return a mean and its confidence interval by Student's distribution; none of fewer than three values."""
    values = np.asarray(values, dtype=np.float64)
    center = float(values.mean())
    if len(values) < _FEWEST:
        return center, None
    spread = float(values.std(ddof=1)) / math.sqrt(len(values))
    half = float(scipy.stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)) * spread
    return center, (center - half, center + half)
