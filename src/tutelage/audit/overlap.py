"""Public rows that are private rows, and entities in several shards; findings are for the owner of the rows."""

import secrets
from collections import defaultdict
from hashlib import blake2b
from math import isfinite, isnan, nan
from typing import final

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
        reasons = list[str]()
        of_public = f"of {self.public_rows:,} public rows equal a private row"
        more = self.near - self.equal
        (objection,) = lint(Case(public_overlap=1))
        beyond = f"more than chance explains. {objection.reason}"
        if not self.by_chance:
            reasons.append(f"{self.equal:,} {of_public}, {beyond}")
        elif self.equal > 0:
            reasons.append(
                f"{self.equal:,} {of_public}, which may be chance: private rows of different entities are alike about "
                "as often. Check that the sources have no people in common."
            )
        if more > 0 and self.by_chance and not self.near_by_chance:
            reasons.append(f"{self.near:,} {of_public} up to rounding and spelling, {beyond}")
        elif more > 0:
            reasons.append(
                f"{more:,} more {'is' if more == 1 else 'are'} equal up to rounding and spelling. Check where the "
                "public rows come from."
            )
        return tuple(reasons)


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
    if entity_ids is None:
        entity_ids = np.arange(len(private))
    ids = as_column(entity_ids)
    if ids.shape != (len(private),):
        raise InvalidDataError(f"`entity_ids` must have one id per row. Got shape {ids.shape}.")
    are_numbers = private.dtype.kind in _NUMBERS and public.dtype.kind in _NUMBERS
    hashes = hashes_of_numbers if are_numbers else _hashes_of_cells
    steps = _steps(public, positive(grain, "grain", "audit_overlap"))
    key = secrets.token_bytes(32)
    names = [str(name) for name in ids.tolist()]
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
    shards_of = defaultdict[str, set[int]](set)
    for name, place in zip(ids.tolist(), places.tolist(), strict=True):
        shards_of[str(name).strip()].add(place)
    return sum(len(shards) > 1 for shards in shards_of.values())


def _hashes_of_cells(
    rows: Array,
    key: bytes,
    steps: FloatArray | None = None,
) -> list[bytes]:
    """Return the hash of each row of cells of any type, rounded and in one spelling where there are steps."""
    hashes = list[bytes]()
    for row in rows.reshape(len(rows), -1).tolist():
        if steps is None:
            spellings = [_exact_spelling(cell) for cell in row]
        else:
            spellings = map(_rounded_spelling, row, steps.tolist())
        text = "\x1f".join(spellings)
        hashes.append(blake2b(text.encode("utf-8", "surrogatepass"), key=key).digest())
    return hashes


def _exact_spelling(cell: object) -> str:
    if isinstance(cell, int | float) and isfinite(cell):
        return repr(float(cell) + 0.0)
    return f"'{cell}"


def _rounded_spelling(cell: object, step: float) -> str:
    number = _number(cell)
    if isnan(number):
        return " ".join(str(cell).casefold().split())
    return str(round(number / step))


def _number(cell: object) -> float:
    """Return the number that a cell is, or that its text spells; NaN for any other cell."""
    if isinstance(cell, str):
        try:
            cell = float(cell)
        except ValueError:
            return nan
    if isinstance(cell, int | float) and isfinite(cell):
        return float(cell)
    return nan


def _steps(public: Array, grain: float) -> FloatArray:
    """Return the width of a rounding step of every column, from public rows alone; 1 where it holds no two numbers."""
    widths = list[float]()
    columns = public.reshape(len(public), -1).T
    if public.dtype.kind not in _NUMBERS:
        columns = np.vectorize(_number, otypes=[np.float64])(columns)
    for column in columns.astype(np.float64):
        finite = column[np.isfinite(column)]
        width = 0.0
        if len(finite):
            width = float(np.ptp(finite))
        widths.append(width)
    spans = np.array(widths)
    return np.where((spans > 0) & np.isfinite(spans), grain * spans, 1.0)
