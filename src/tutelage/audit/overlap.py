"""Public rows that are private rows, and entities in several shards; findings are for the owner of the rows."""

import secrets
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import positive
from tutelage.exceptions import InvalidDataError
from tutelage.partition import as_column
from tutelage.preflight import Likeness, hashes_of_numbers
from tutelage.reporting.lints import lint

_GRAIN = 0.01
_NUMBERS = "buif"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How many public rows are also private ones; for the owner of the private rows."""

    public_rows: int
    private_rows: int
    equal: int  # public rows that equal a private row in every cell
    near: int  # public rows that equal one up to rounding and spelling; those that are equal included
    alike_among_private: int  # private rows that equal the row of another entity: rows may be alike by chance
    by_chance: bool  # whether chance explains those that are equal
    near_by_chance: bool  # whether chance explains those that are near

    @property
    def passed(self) -> bool:
        """Whether no public row is a private one, up to rounding and spelling, save for what chance explains."""
        return self.by_chance and self.near_by_chance

    @property
    def reasons(self) -> tuple[str, ...]:
        """Problems and doubts, their reason and the fix; empty if there are none."""
        found, of, more = [], f"of {self.public_rows:,} public rows equal a private row", self.near - self.equal
        (objection,) = lint(public_overlap=1)
        if not self.by_chance:
            found.append(f"{self.equal:,} {of}, more than chance explains. {objection.reason}")
        elif self.equal > 0:
            found.append(
                f"{self.equal:,} {of}, which may be chance: private rows of different entities are alike about as "
                "often. Check that the sources have no people in common."
            )
        if more > 0 and self.by_chance and not self.near_by_chance:
            found.append(
                f"{self.near:,} {of} up to rounding and spelling, more than chance explains. {objection.reason}"
            )
        elif more > 0:
            found.append(
                f"{more:,} more {'is' if more == 1 else 'are'} equal up to rounding and spelling. Check where the "
                "public rows come from."
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

    Rows are compared by BLAKE2 hashes under a key that is forgotten with the call. Two near rows on two sides of a
    rounding edge are missed, so near duplicates are undercounted.

    Parameters
    ----------
    X_private, X_public : arrays of shape (rows, ...)
        Rows without labels, of numbers or text, cells in the same order.
    entity_ids : array of shape (private rows,), optional
        Whose row it is. Default: everybody has one row.
    grain : float
        Numbers are near where they round alike to this share of the spread of their public column.
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
    hashes = hashes_of_numbers if numbers else _hashes_of_cells
    steps = _steps(public, positive(grain, "grain", "audit_overlap"))
    key, names = secrets.token_bytes(32), [str(name) for name in ids.tolist()]
    equal, near = (
        Likeness.of(hashes(private, key, width), names, hashes(public, key, width)) for width in (None, steps)
    )
    return Overlap(
        public_rows=len(public),
        private_rows=len(private),
        equal=equal.across,
        near=near.across,
        alike_among_private=equal.among_private,
        by_chance=equal.is_chance(len(public), len(private)),
        near_by_chance=near.is_chance(len(public), len(private)),
    )


def entities_in_several_shards(assignment: npt.ArrayLike, entity_ids: npt.ArrayLike) -> int:
    """Return how many entities have rows in more than one shard; each of them moves several votes.

    Parameters
    ----------
    assignment : integer array of shape (rows,)
        Shard of each row.
    entity_ids : array of shape (rows,)
        Whose row it is; blanks around an id do not count.
    """
    places, ids = np.asarray(assignment), as_column(entity_ids)
    if places.ndim != 1 or ids.shape != places.shape:
        raise InvalidDataError(f"`entity_ids` must have one id per row. Got shapes {ids.shape} and {places.shape}.")
    pairs = {(str(name).strip(), place) for name, place in zip(ids.tolist(), places.tolist(), strict=True)}
    return sum(shards > 1 for shards in Counter(name for name, _ in pairs).values())


def _hashes_of_cells(rows: npt.NDArray[Any], key: bytes, steps: FloatArray | None) -> list[bytes]:
    """Return the hash of each row of cells of any type, rounded and in one spelling where there are steps."""
    cells = rows.reshape(len(rows), -1).tolist()

    def spelled(row: list[Any]) -> list[str]:
        if steps is None:
            return [repr(float(cell) + 0.0) if _is_number(cell) else f"'{cell}" for cell in row]
        return [
            " ".join(str(cell).casefold().split()) if (number := _number(cell)) is None else str(round(number / step))
            for cell, step in zip(row, steps.tolist(), strict=True)
        ]

    return [blake2b("\x1f".join(spelled(row)).encode("utf-8", "surrogatepass"), key=key).digest() for row in cells]


def _number(cell: Any) -> float | None:
    """Return the number that a cell is, or that its text spells."""
    if _is_number(cell):
        return float(cell)
    try:
        number = float(cell) if isinstance(cell, str) else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) else None


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and isfinite(cell)


def _steps(public: npt.NDArray[Any], grain: float) -> FloatArray:
    """Return the width of a rounding step of every column, from public rows alone; 1 where it holds no two numbers."""
    columns = public.reshape(len(public), -1).T
    if public.dtype.kind not in _NUMBERS:
        spelled = [[_number(cell) for cell in column] for column in columns.tolist()]
        columns = [np.array([number for number in column if number is not None]) for column in spelled]
    finite = (column[np.isfinite(column)] for column in (np.asarray(column, dtype=np.float64) for column in columns))
    widths = np.array([np.ptp(column) if column.size else 0.0 for column in finite])
    return np.where((widths > 0) & np.isfinite(widths), grain * widths, 1.0)
