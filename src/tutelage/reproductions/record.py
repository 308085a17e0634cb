"""What a reproduction found: each published number beside ours."""

import csv
import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
from scipy import stats

from tutelage.exceptions import InvalidParameterError

Interval = tuple[float, float]


class Drawing(Protocol):
    """A figure that can write itself; a dataclass of plain numbers."""

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write the figure as png and svg into `folder`, and return the paths."""
        ...


_CONFIDENCE = 0.95


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number.

    Parameters
    ----------
    name : str
        What it is, with its unit.
    ours : float
        The value found.
    published : float, optional
        What the paper prints.
    at_least, at_most : float, optional
        What this project asks of itself.
    interval : tuple of two floats, optional
        95 % confidence interval of `ours`; the notes of the record say over what.
    seconds : float, optional
        Time on the clock that it took to get it, with what else came of the same work.
    """

    name: str
    ours: float
    published: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    interval: Interval | None = None
    seconds: float | None = None


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
        What a reader must know to compare: seeds, data, what was left out and why.
    figure : Drawing, optional
        The same as a picture.
    """

    name: str
    source: str
    rows: tuple[Row, ...]
    quick: bool
    notes: tuple[str, ...] = ()
    figure: Drawing | None = None

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if len(set(names)) < len(names):
            raise InvalidParameterError("`rows` of Record must have names of their own.")

    def save(self, folder: Path) -> list[Path]:
        """Write the record as json and csv, and its figure as png and svg, into `folder`; return the paths.

        Parameters
        ----------
        folder : path
            Where to; made if it is not there.

        Raises
        ------
        InvalidParameterError
            If there is a figure and matplotlib is not installed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        as_json, as_csv = folder / f"{self.name}.json", folder / f"{self.name}.csv"
        as_json.write_text(json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        with as_csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [column.name for column in fields(Row)])
            writer.writeheader()
            writer.writerows(asdict(row) for row in self.rows)
        drawn = [] if self.figure is None else self.figure.save(folder, self.name)  # last: it may lack matplotlib
        return [as_json, as_csv, *drawn]

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values, for JSON."""
        return asdict(self)


def share(right: npt.ArrayLike) -> tuple[float, Interval]:
    """Return a share in per cent and its exact (Clopper–Pearson) confidence interval.

    Parameters
    ----------
    right : boolean array
        One entry per case.
    """
    right = np.asarray(right)
    found = stats.binomtest(int(right.sum()), right.size)
    low, high = found.proportion_ci(_CONFIDENCE, method="exact")
    return 100 * found.statistic, (100 * low, 100 * high)


def mean(values: npt.ArrayLike) -> tuple[float, Interval | None]:
    """Return a mean and its confidence interval by Student's distribution.

    Parameters
    ----------
    values : array of shape (repetitions,)
        At least one; of a single value there is no interval.
    """
    values = np.asarray(values, dtype=np.float64)
    centre = float(values.mean())
    if len(values) == 1:
        return centre, None
    spread = float(values.std(ddof=1)) / math.sqrt(len(values))
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)) * spread
    return centre, (centre - half, centre + half)
