"""Feature maps for named columns, and those that are told what they know: ranges, categories, a public table.

A category list, a mean or a vocabulary fitted over all private rows would let one person move every teacher. So the
type and the categories of each column are read off the public table, and a private value that it does not have gets
the code −1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from numbers import Real
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicFeatureMap
from tutelage.features.rowwise import number_rows
from tutelage.tables import Table, is_number


@final
@dataclass(eq=False, repr=False)
class ScaledColumns(PublicFeatureMap):
    """Scales each column from its stated public range to [0, 1].

    What lies outside the range is moved to its end, so that no outlier outweighs the other columns; NaN stays NaN.

    Parameters
    ----------
    low, high : array of shape (columns,)
        Ends of each column's range, from public knowledge.
    """

    low: npt.ArrayLike
    high: npt.ArrayLike

    def __post_init__(self) -> None:
        self._ranges()

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Return the scaled rows, shape (rows, columns)."""
        low, high = self._ranges()
        rows = number_rows(X, len(low), "ScaledColumns")
        return (np.clip(rows, low, high, dtype=np.float64) - low) / (high - low)

    def _ranges(self) -> tuple[FloatArray, FloatArray]:
        low, high = (_float_column(ends, name) for ends, name in ((self.low, "low"), (self.high, "high")))
        with np.errstate(over="ignore"):
            usable = low.shape == high.shape and np.all((low < high) & np.isfinite(high - low))
        if not usable:
            raise InvalidParameterError(
                "`low` and `high` of ScaledColumns must be one finite range per column, with low < high. "
                f"Got {self.low!r} and {self.high!r}; drop columns that have one value only."
            )
        return low, high


@final
@dataclass(eq=False, repr=False)
class OneHotColumns(PublicFeatureMap):
    """Turns each column into one 0/1 column per public category.

    A value that is no public category, NaN included, gets zeros in all of them.

    Parameters
    ----------
    categories : sequence of sequences of str or numbers
        The categories of each column, in the order of their features.

    Raises
    ------
    InvalidParameterError
        If a column has no category, one twice, or one that is neither a string nor a number.
    """

    categories: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        self._positions()

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Return the 0/1 columns side by side, shape (rows, categories of all columns)."""
        positions = self._positions()
        rows = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if rows.ndim != 2 or rows.shape[1] != len(positions):
            raise InvalidDataError(
                f"X of OneHotColumns must have shape (rows, {len(positions)}). Got shape {rows.shape}."
            )
        columns = [_one_hot(column, position) for column, position in zip(rows.T, positions, strict=True)]
        return np.concatenate(columns, axis=1)

    def _positions(self) -> list[dict[Any, int]]:
        columns = [list(column) for column in self.categories]
        if not columns or not all(_distinct(column) for column in columns):
            raise InvalidParameterError(
                "`categories` of OneHotColumns must give each column its strings or numbers, each once. "
                f"Got {self.categories!r}."
            )
        return [{category: index for index, category in enumerate(column)} for column in columns]


def _float_column(values: npt.ArrayLike, name: str) -> FloatArray:
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        column = np.empty((0, 0))
    if column.ndim != 1 or len(column) == 0:
        raise InvalidParameterError(f"`{name}` of ScaledColumns must be one number per column. Got {values!r}.")
    return column


def _distinct(column: list[Any]) -> bool:
    return (
        bool(column)
        and all(isinstance(value, str | Real) and value == value for value in column)  # NaN differs from itself
        and len(set(column)) == len(column)
    )


def _one_hot(column: Matrix, positions: dict[Any, int]) -> FloatArray:
    try:
        codes = np.array([positions.get(value, -1) for value in column.tolist()], dtype=np.int64)
    except TypeError:
        raise InvalidDataError("X of OneHotColumns must hold strings and numbers only.") from None
    return (codes[:, np.newaxis] == np.arange(len(positions))).astype(np.float64)


UNKNOWN = -1  # code of a category that no public row has
_EMPTY = ("", "?")  # how text spells a missing value
_Cells = npt.NDArray[Any] | list[str]


@final
@dataclass(eq=False, repr=False)
class PublicColumns(PublicFeatureMap):
    """Turns named columns of numbers and text into a matrix of numbers, as learned from a public table.

    It takes rows with column names (a DataFrame, a `Table`, a mapping of names to cells), whose columns may come in any
    order and may have others beside them; or plain rows, whose columns come in the order of `names`.

    In a number column, an empty cell (None, NaN, empty text or ``?``) becomes NaN. In a text column, it gets the code
    of the empty public cells, if there are such.

    Parameters
    ----------
    names : sequence of str
        Feature columns in order.
    categories : sequence of arrays of str, or None
        The categories of each text column; None for a column of numbers. All of it is public.
    """

    names: Sequence[str]
    categories: Sequence[npt.NDArray[np.str_] | None]

    @classmethod
    def learn(cls, public: Table, names: tuple[str, ...]) -> Self:
        """Read the type and the categories of each column of `names` off the `public` table.

        Raises
        ------
        InvalidDataError
            If a column is missing.
        """
        return cls(names, tuple(_categories(public.column(name)) for name in names))

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the number columns, which come first in the matrix."""
        return tuple(compress(self.names, (known is None for known in self.categories)))

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the text columns, whose codes come after them."""
        return tuple(compress(self.names, (known is not None for known in self.categories)))

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """The names, as scikit-learn's pipelines show them."""
        return np.array(self.names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.names)

    def transform(self, X: Any) -> Matrix:
        """Return a matrix of shape (rows, columns): first the number columns, then the codes of the text columns.

        Parameters
        ----------
        X : DataFrame, Table, mapping of names to cells, or array of shape (rows, columns)
            Public or private rows.

        Raises
        ------
        InvalidDataError
            If a column is missing, or holds text where the public rows hold numbers; no cell is quoted.
        """
        columns = dict(zip(self.names, self._columns_of(X), strict=True))
        if len({len(cells) for cells in columns.values()}) > 1:
            raise InvalidDataError("The columns of the rows must have as many cells each. Got columns of two lengths.")
        source = f" of {X.source}" if isinstance(X, Table) else ""
        known = dict(zip(self.names, self.categories, strict=True))
        numbers = [_numbers(columns[name], f"Column '{name}'{source}") for name in self.numbers]
        codes = [_codes(columns[name], np.asarray(known[name])) for name in self.texts]
        return np.column_stack([*numbers, *codes])

    def _columns_of(self, X: Any) -> Iterator[_Cells]:
        """Yield the cells of each column, in the order of the names."""
        if isinstance(X, Table):
            return map(X.column, self.names)
        if isinstance(X, Mapping) or hasattr(X, "columns"):
            return self._named_columns(X)
        rows = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise InvalidDataError(
                f"Rows without column names must have {len(self.names)} columns, in this order: "
                f"{', '.join(self.names)}. Got shape {rows.shape}."
            )
        return iter(rows.T)

    def _named_columns(self, X: Any) -> Iterator[_Cells]:
        given = list(getattr(X, "column_names", getattr(X, "columns", X)))
        for name in self.names:
            if given.count(name) != 1:
                has = "no column" if name not in given else "more than one column"
                raise InvalidDataError(
                    f"The rows have {has} '{name}'. They need each of: {', '.join(self.names)}. Check the spelling."
                )
            yield _cells(X[name], name)


def _categories(cells: list[str]) -> npt.NDArray[np.str_] | None:
    """Return the categories of a public column, sorted; None if every filled cell is a number."""
    filled = [cell for cell in cells if cell]
    return None if filled and all(map(is_number, filled)) else np.array(sorted(set(cells)))


def _cells(column: Any, name: str) -> npt.NDArray[Any]:
    """Return the cells of one column of whatever library."""
    cells = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column, dtype=object)
    if np.ndim(cells) != 1:
        raise InvalidDataError(f"Column '{name}' must hold one cell per row. Got shape {np.shape(cells)}.")
    return cells


def _numbers(cells: _Cells, column: str) -> FloatArray:
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "buif":
        return cells.astype(np.float64)
    numbers: FloatArray | None = None
    try:
        numbers = np.array([_number(cell) for cell in cells], dtype=np.float64)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None:  # out here: Python's own error, which quotes the cell, would be carried along as the context
        raise InvalidDataError(
            f"{column} holds text, but only numbers in the public rows. Clean the column, or leave it out."
        )
    return numbers


def _number(cell: Any) -> float:
    value = cell.strip() if isinstance(cell, str) else cell
    return np.nan if _is_empty(value) else float(value)


def _codes(cells: _Cells, categories: npt.NDArray[np.str_]) -> FloatArray:
    codes: dict[str, int] = {category: code for code, category in enumerate(categories.tolist())}
    empty = next((codes[spelling] for spelling in _EMPTY if spelling in codes), UNKNOWN)
    return np.array([_code(cell, codes, empty) for cell in cells], dtype=np.float64)


def _code(cell: Any, codes: dict[str, int], empty: int) -> int:
    if isinstance(cell, str):
        text = cell.strip()
        return codes.get(text, empty if text in _EMPTY else UNKNOWN)
    if _is_empty(cell):
        return empty
    # A column of whole numbers that has an empty cell is one of floats to pandas: 39 comes as 39.0.
    whole = int(cell) if isinstance(cell, float | np.floating) and float(cell).is_integer() else cell
    return codes.get(str(cell), codes.get(str(whole), UNKNOWN))


def _is_empty(cell: Any) -> bool:
    if cell is None or (isinstance(cell, str) and cell in _EMPTY):
        return True
    try:
        return bool(cell != cell)  # NaN, NaT
    except TypeError:  # pandas.NA does not say whether it differs from itself
        return True
    except ValueError:  # a cell that is an array
        return False
