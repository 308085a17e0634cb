"""Public rows that are private rows, and entities in several shards; findings are for the owner of the rows."""

import secrets
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import stats

from tutelage._typing import FloatArray
from tutelage._validation import positive
from tutelage.exceptions import InvalidDataError
from tutelage.partition import as_column

_GRAIN = 0.01
_NUMBERS = "buif"
_CHUNK = 1024  # rows
_LEVEL = 0.05  # of the test whether so many equal rows are chance


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How many public rows are also private ones; for the owner of the private rows.

    Parameters
    ----------
    public_rows, private_rows : int
        How many rows were compared.
    equal : int
        Public rows that equal a private row in every cell.
    near : int
        Public rows that equal one up to rounding and spelling; those that are equal included.
    alike_among_private : int
        Private rows that equal the row of another entity: where there are such, rows are alike by chance.
    """

    public_rows: int
    private_rows: int
    equal: int
    near: int
    alike_among_private: int

    @property
    def by_chance(self) -> bool:
        """Whether private rows of different entities are alike as often as public rows are like private ones."""
        alike, rows = self.equal + self.alike_among_private, self.public_rows + self.private_rows
        # Fisher's exact test: how likely that so many of those that are alike stand among the public rows.
        return bool(stats.hypergeom.sf(self.equal - 1, rows, alike, self.public_rows) > _LEVEL)

    @property
    def passed(self) -> bool:
        """Whether no public row is a private one, save for what chance explains."""
        return self.equal == 0 or self.by_chance

    @property
    def reasons(self) -> tuple[str, ...]:
        """What is wrong or doubtful, why, and the fix; empty where nothing is."""
        found = []
        if not self.passed:
            found.append(
                f"{self.equal} of {self.public_rows} public rows equal a private row, more than chance explains. What "
                "is asked about them, and the student, may show people as they are. Take them out of the public rows."
            )
        elif self.equal > 0:
            found.append(
                f"{self.equal} of {self.public_rows} public rows equal a private row, which may be chance: private "
                "rows of different entities are alike about as often. Check that the sources have no people in common."
            )
        if self.near > self.equal:
            found.append(
                f"{self.near - self.equal} more are equal up to rounding and spelling. Check where the public rows "
                "come from."
            )
        return tuple(found)


def audit_overlap(
    X_private: npt.ArrayLike,
    X_public: npt.ArrayLike,
    entity_ids: npt.ArrayLike | None = None,
    *,
    grain: float = _GRAIN,
) -> Overlap:
    """Count public rows that are private rows, exactly and up to rounding and spelling.

    Parameters
    ----------
    X_private, X_public : arrays of shape (rows, ...)
        Rows without labels, of numbers or text, cells in the same order.
    entity_ids : array of shape (private rows,), optional
        Whose row it is. Default: everybody has one row.
    grain : float
        Numbers are near where they round alike to this share of the spread of their public column.

    Raises
    ------
    InvalidDataError
        If the rows have different shapes.

    Notes
    -----
    Rows are compared by BLAKE2 hashes under a key that is forgotten with the call. Two near rows on two sides of a
    rounding edge are missed, so near duplicates are undercounted.
    """
    private, public = np.asarray(X_private), np.asarray(X_public)
    if private.ndim < 2 or private.shape[1:] != public.shape[1:] or len(private) == 0 or len(public) == 0:
        raise InvalidDataError(
            f"`X_private` and `X_public` must hold rows of one shape. Got shapes {private.shape} and {public.shape}."
        )
    ids = as_column(np.arange(len(private)) if entity_ids is None else entity_ids)
    if ids.shape != (len(private),):
        raise InvalidDataError(f"`entity_ids` must have one id per row. Got shape {ids.shape}.")
    numbers = private.dtype.kind in _NUMBERS and public.dtype.kind in _NUMBERS
    hashes = _hashes_of_numbers if numbers else _hashes_of_cells
    steps = _steps(public, positive(grain, "grain", "audit_overlap"))
    key = secrets.token_bytes(32)
    ours = hashes(private, key, None)
    return Overlap(
        public_rows=len(public),
        private_rows=len(private),
        equal=_among(hashes(public, key, None), ours),
        near=_among(hashes(public, key, steps), hashes(private, key, steps)),
        alike_among_private=_alike(ours, [str(name) for name in ids.tolist()]),
    )


def entities_in_several_shards(assignment: npt.ArrayLike, entity_ids: npt.ArrayLike) -> int:
    """Return how many entities have rows in more than one shard; each of them moves several votes.

    Parameters
    ----------
    assignment : integer array of shape (rows,)
        Shard of each row.
    entity_ids : array of shape (rows,)
        Whose row it is; blanks around an id do not count.

    Raises
    ------
    InvalidDataError
        If there is not one id per row.
    """
    places, ids = np.asarray(assignment), as_column(entity_ids)
    if places.ndim != 1 or ids.shape != places.shape:
        raise InvalidDataError(f"`entity_ids` must have one id per row. Got shapes {ids.shape} and {places.shape}.")
    pairs = {(str(name).strip(), place) for name, place in zip(ids.tolist(), places.tolist(), strict=True)}
    return sum(shards > 1 for shards in Counter(name for name, _ in pairs).values())


def _among(hashes: list[bytes], others: list[bytes]) -> int:
    known = set(others)
    return sum(row in known for row in hashes)


def _alike(hashes: list[bytes], names: list[str]) -> int:
    """Return how many rows equal a row of another entity."""
    owners: dict[bytes, set[str]] = {}
    for row, name in zip(hashes, names, strict=True):
        owners.setdefault(row, set()).add(name)
    return sum(len(owners[row]) > 1 for row in hashes)


def _hashes_of_numbers(rows: npt.NDArray[Any], key: bytes, steps: FloatArray | None) -> list[bytes]:
    """Return the hash of each row of numbers, in whole steps where there are steps."""
    flat, found = rows.reshape(len(rows), -1), []
    for start in range(0, len(flat), _CHUNK):
        numbers = flat[start : start + _CHUNK].astype(np.float64)
        if steps is not None:
            numbers = np.rint(numbers / steps)
        numbers += 0.0  # −0 becomes 0
        numbers[np.isnan(numbers)] = np.nan  # of one spelling
        found += [blake2b(row.tobytes(), key=key).digest() for row in numbers]
    return found


def _hashes_of_cells(rows: npt.NDArray[Any], key: bytes, steps: FloatArray | None) -> list[bytes]:
    """Return the hash of each row of cells of any type, rounded and in one spelling where there are steps."""
    cells = rows.reshape(len(rows), -1).tolist()
    spelled = ([_exact(cell) for cell in row] if steps is None else _rounded(row, steps) for row in cells)
    return [blake2b("\x1f".join(row).encode("utf-8", "surrogatepass"), key=key).digest() for row in spelled]


def _exact(cell: Any) -> str:
    return repr(float(cell) + 0.0) if _is_number(cell) else f"'{cell}"


def _rounded(row: list[Any], steps: FloatArray) -> list[str]:
    return [
        str(round(float(cell) / step)) if _is_number(cell) else " ".join(str(cell).casefold().split())
        for cell, step in zip(row, steps.tolist(), strict=True)
    ]


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and isfinite(cell)


def _steps(public: npt.NDArray[Any], grain: float) -> FloatArray:
    """Return the width of a rounding step of every column, from public rows alone; 1 where it holds no two numbers."""
    columns = public.reshape(len(public), -1).T
    if public.dtype.kind not in _NUMBERS:
        columns = [np.array([float(cell) for cell in column if _is_number(cell)]) for column in columns.tolist()]
    widths = np.array([_width(np.asarray(column, dtype=np.float64)) for column in columns])
    return np.where(widths > 0, grain * widths, 1.0)


def _width(column: FloatArray) -> float:
    finite = column[np.isfinite(column)]
    width = float(finite.max() - finite.min()) if finite.size else 0.0
    return width if isfinite(width) else 0.0
