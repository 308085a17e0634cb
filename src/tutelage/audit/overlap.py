"""Public rows that are private rows, and entities in several shards; findings are for the owner of the rows."""

import secrets
from collections import Counter
from hashlib import blake2b
from math import isfinite, isnan, nan
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import Names, frozen
from tutelage._internal.typing import Array, FloatArray
from tutelage._internal.validation import positive
from tutelage.exceptions import InvalidDataError
from tutelage.partition import as_column
from tutelage.preflight import Likeness, hashes_of_numbers
from tutelage.reporting.lints import Case, lint

_GRAIN = 0.01
_NUMBERS = "buif"


@final
@frozen
class Overlap:
    """How many public rows are also private ones; for the owner of the private rows."""

    public_rows: int
    private_rows: int
    equal: int  # public rows that equal a private row in every cell
    # Public rows that equal one up to rounding and spelling; those that are equal included.
    near: int
    # Private rows that equal the row of another entity: rows may be alike by chance.
    alike_among_private: int
    by_chance: bool  # whether chance explains those that are equal
    near_by_chance: bool  # whether chance explains those that are near

    @property
    def passed(self) -> bool:
        """Whether no public row is a private one, up to rounding and spelling, save for what chance explains."""
        return self.by_chance and self.near_by_chance

    @property
    def reasons(self) -> Names:
        """Problems and doubts, their reason and the fix; empty if there are none."""
        found = list[str]()
        of = f"of {self.public_rows:,} public rows equal a private row"
        more = self.near - self.equal
        (objection,) = lint(Case(public_overlap=1))
        beyond = f"more than chance explains. {objection.reason}"
        if not self.by_chance:
            found.append(f"{self.equal:,} {of}, {beyond}")
        elif self.equal > 0:
            found.append(
                f"{self.equal:,} {of}, which may be chance: private rows of different entities are alike about as "
                "often. Check that the sources have no people in common."
            )
        if more > 0 and self.by_chance and not self.near_by_chance:
            found.append(f"{self.near:,} {of} up to rounding and spelling, {beyond}")
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
    private = np.asarray(X_private)
    public = np.asarray(X_public)
    if (
        private.ndim < 2
        or private.shape[1:] != public.shape[1:]
        or len(private) == 0
        or len(public) == 0
    ):
        raise InvalidDataError(
            f"`X_private` and `X_public` must hold rows of one shape. Got shapes {private.shape} and {public.shape}."
        )
    ids = as_column(np.arange(len(private)) if entity_ids is None else entity_ids)
    if ids.shape != (len(private),):
        raise InvalidDataError(f"`entity_ids` must have one id per row. Got shape {ids.shape}.")
    numbers = private.dtype.kind in _NUMBERS and public.dtype.kind in _NUMBERS
    hashes = hashes_of_numbers if numbers else _hashes_of_cells
    steps = _steps(public, positive(grain, "grain", "audit_overlap"))
    key = secrets.token_bytes(32)
    names = [*map(str, ids.tolist())]
    equal = Likeness.of(hashes(private, key), names, hashes(public, key))
    near = Likeness.of(hashes(private, key, steps), names, hashes(public, key, steps))
    return Overlap(
        public_rows=len(public),
        private_rows=len(private),
        equal=equal.across,
        near=near.across,
        alike_among_private=equal.among_private,
        by_chance=equal.is_chance,
        near_by_chance=near.is_chance,
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
    places = np.asarray(assignment)
    ids = as_column(entity_ids)
    if places.ndim != 1 or ids.shape != places.shape:
        raise InvalidDataError(
            f"`entity_ids` must have one id per row. Got shapes {ids.shape} and {places.shape}."
        )
    pairs = {
        (str(name).strip(), place)
        for name, place in zip(ids.tolist(), places.tolist(), strict=True)
    }
    return sum(shards > 1 for shards in Counter(name for name, _ in pairs).values())


def _hashes_of_cells(
    rows: Array,
    key: bytes,
    steps: FloatArray | None = None,
) -> list[bytes]:
    """Return the hash of each row of cells of any type, rounded and in one spelling where there are steps."""

    def spelled(cell: Any, step: float) -> str:
        if steps is None:
            return repr(float(cell) + 0.0) if _is_number(cell) else f"'{cell}"
        number = _number(cell)
        return (
            " ".join(str(cell).casefold().split()) if isnan(number) else str(round(number / step))
        )

    flat = rows.reshape(len(rows), -1)
    widths = np.ones(flat.shape[1]) if steps is None else steps
    found = []
    for row in flat.tolist():
        text = "\x1f".join(map(spelled, row, widths.tolist()))
        found.append(blake2b(text.encode("utf-8", "surrogatepass"), key=key).digest())
    return found


def _number(cell: Any) -> float:
    """Return the number that a cell is, or that its text spells; NaN for any other cell."""
    if isinstance(cell, str):
        try:
            cell = float(cell)
        except ValueError:
            return nan
    return float(cell) if _is_number(cell) else nan


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and isfinite(cell)


def _steps(public: Array, grain: float) -> FloatArray:
    """Return the width of a rounding step of every column, from public rows alone; 1 where it holds no two numbers."""
    widths = list[float]()
    columns = public.reshape(len(public), -1).T
    if public.dtype.kind not in _NUMBERS:
        columns = np.vectorize(_number, otypes=[np.float64])(columns)
    for column in columns.astype(np.float64):
        finite = column[np.isfinite(column)]
        widths.append(float(np.ptp(finite)) if len(finite) else 0.0)
    known = np.array(widths)
    return np.where((known > 0) & np.isfinite(known), grain * known, 1.0)
