"""Feature maps for named columns, and those that are told what they know: ranges, categories, a public table.

A category list, a mean or a vocabulary fitted over all private rows would let one person move every teacher. So the
type and the categories of each column are read off the public table, and a private value that it does not have gets
the code −1.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import compress
from numbers import Real
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicFeatureMap
from tutelage.features.rowwise import number_rows
from tutelage.tables import Cells, Table, as_table, is_missing, is_number, spelled


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
_TRUTH = ("False", "True")  # the categories of a column of truth values
_DAY = 86_400 * 10**6  # microseconds
_EPOCH = datetime(1970, 1, 1)
_ENOUGH_CELLS = 50  # in a column that is refused as a category
_WITH_COMMA = re.compile(r"[-+]?[\d.]*\d(,\d+)*([.]\d+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?")


@final
@dataclass(eq=False, repr=False)
class PublicColumns(PublicFeatureMap):
    """Turns named columns into a matrix of numbers, as learned from a public table.

    It takes rows with column names (a frame of pandas, Polars or PyArrow, a DuckDB relation, a `Table`, a mapping of
    names to cells), whose columns may come in any order and may have others beside them; or plain rows, whose columns
    come in the order of `names`. The same rows give the same matrix in each of these forms.

    A date or time becomes the number of days since 1970-01-01 (UTC). In a column of numbers or dates, an empty cell
    (None, NaN, empty text or ``?``) becomes NaN. In a column of categories, it gets the code of the empty public cells,
    if there are any.

    Parameters
    ----------
    names : sequence of str
        Feature columns in order.
    categories : sequence of arrays of str, or None
        The categories of each column, in the order of their codes; None for a column of numbers or dates. All of it is
        public.
    dates : sequence of str
        Names of the columns of dates.
    """

    names: Sequence[str]
    categories: Sequence[npt.NDArray[np.str_] | None]
    dates: Sequence[str] = ()

    @classmethod
    def learn(cls, public: Any, names: Sequence[str] | None = None) -> Self:
        """Read the kind and the categories of each column off a public table.

        Text of a csv file is a number or a date if every filled cell is one. Categories are those of the public rows,
        in alphabetical order unless the column has an order of its own.

        Parameters
        ----------
        public : DataFrame, DuckDB relation, Table, or mapping of names to cells
            Public rows.
        names : sequence of str, optional
            The feature columns. Default: all.

        Raises
        ------
        InvalidDataError
            If a column is missing, or holds something other than numbers, text, truth values and dates; or if at least
            50 cells of text are filled and more than half of them differ, which makes no category.
        """
        table = as_table(public, names)
        if table is None:
            raise InvalidDataError(
                "`public` of PublicColumns.learn must be rows with named columns: a DataFrame, a DuckDB relation, a "
                f"Table or a mapping of names to cells. Got a {type(public).__name__}."
            )
        names = tuple(table.columns) if names is None else names
        learned = [_learned(table, name) for name in names]
        dates = tuple(name for name, kind in zip(names, learned, strict=True) if isinstance(kind, str))
        return cls(names, tuple(None if isinstance(kind, str) else kind for kind in learned), dates)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns of numbers and dates, which come first in the matrix."""
        return tuple(compress(self.names, (known is None for known in self.categories)))

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the columns of categories, whose codes come after them."""
        return tuple(compress(self.names, (known is not None for known in self.categories)))

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """The names, as scikit-learn's pipelines show them."""
        return np.array(self.names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.names)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> npt.NDArray[Any]:  # noqa: ARG002
        """Return the names in the order of the matrix: numbers and dates, then categories."""
        return np.array([*self.numbers, *self.texts], dtype=object)

    def transform(self, X: Any) -> Matrix:
        """Return a matrix of shape (rows, columns): first numbers and dates, then the codes of the categories.

        Parameters
        ----------
        X : DataFrame, DuckDB relation, Table, mapping of names to cells, or array of shape (rows, columns)
            Public or private rows.

        Raises
        ------
        InvalidDataError
            If a column is missing, or holds text where the public rows hold numbers; no cell is quoted.
        """
        table = as_table(X, self.names)
        columns = dict(zip(self.names, self._columns_of(X if table is None else table), strict=True))
        if len({len(cells) for cells in columns.values()}) > 1:
            raise InvalidDataError("The columns of the rows must have as many cells each. Got columns of two lengths.")
        source = f" of {table.source}" if table is not None and table.source else ""
        known = dict(zip(self.names, self.categories, strict=True))
        numbers = [
            (_days if name in self.dates else _numbers)(columns[name], f"Column '{name}'{source}")
            for name in self.numbers
        ]
        codes = [_codes(columns[name], np.asarray(known[name])) for name in self.texts]
        return np.column_stack([*numbers, *codes])

    def _columns_of(self, X: Any) -> Iterator[Cells]:
        """Yield the cells of each column, in the order of the names."""
        if isinstance(X, Table):
            missing = [name for name in self.names if name not in X.columns]
            if missing and not X.source:
                raise InvalidDataError(
                    f"The rows have no column '{missing[0]}'. They need each of: {', '.join(self.names)}. Check the "
                    "spelling."
                )
            return map(X.column, self.names)
        rows = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise InvalidDataError(
                f"Rows without column names must have {len(self.names)} columns, in this order: "
                f"{', '.join(self.names)}. Got shape {rows.shape}."
            )
        return iter(rows.T)


def _learned(table: Table, name: str) -> npt.NDArray[np.str_] | str | None:
    """Return the categories of a public column, sorted or in their order; None for numbers, and a word for dates."""
    cells = table.column(name)
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iufM" and np.any(cells == cells):  # filled: no NaN, NaT
        return "date" if cells.dtype.kind == "M" else None
    values = cells if isinstance(cells, list) else cells.tolist()
    filled = [value for value in values if not is_missing(value)]
    if name in table.levels:
        known = set(map(spelled, filled))
        order = [level for level in table.levels[name] if level in known]
    elif not filled or all(map(_is_truth, filled)):
        order = list(_TRUTH) if filled else []
    elif all(map(is_number if isinstance(cells, list) else _is_number, filled)):
        return None
    elif all(map(_is_date, filled)):
        return "date"
    else:
        strange = next((value for value in filled if not isinstance(value, _SIMPLE)), None)
        if strange is not None:
            raise InvalidDataError(
                f"Column '{name}' of the public rows must hold numbers, text, truth values or dates. Got cells of type "
                f"{type(strange).__name__}."
            )
        order = sorted(set(map(spelled, filled)))
        if len(filled) >= _ENOUGH_CELLS and 2 * len(order) > len(filled):
            raise InvalidDataError(_no_category(name, order))
    return np.array([""] * (len(filled) < len(values)) + order)


_SIMPLE = (str, Real, Decimal, date, time)


def _no_category(name: str, texts: list[str]) -> str:
    """Return why a public column whose cells are nearly all different is refused."""
    held = f"Column '{name}' of the public rows holds"
    if any("," in text for text in texts) and all(map(_WITH_COMMA.fullmatch, texts)):
        return f"{held} numbers with commas. Write decimals with a point, and nothing between thousands."
    return (
        f"{held} text that differs in most rows, so it is no category. Leave the column out (`ignore` in [private]), "
        "or replace the text by public features of it, such as an embedding, in columns of numbers."
    )


def _is_number(cell: Any) -> bool:
    return isinstance(cell, Real | Decimal) and not isinstance(cell, bool | np.bool_)


def _is_truth(cell: Any) -> bool:
    return isinstance(cell, str | bool | np.bool_) and _truth(spelled(cell)) in _TRUTH


def _truth(text: str) -> str:
    return text.capitalize() if text.casefold() in ("true", "false") else text


def _is_date(cell: Any) -> bool:
    if not isinstance(cell, str):
        return isinstance(cell, date)
    try:
        return _TIME.fullmatch(cell.strip()) is not None and bool(datetime.fromisoformat(cell.strip()))
    except ValueError:
        return False


def _day(cell: Any) -> float:
    """Return the days since 1970-01-01, by whole microseconds."""
    moment = datetime.fromisoformat(cell.strip()) if isinstance(cell, str) else cell
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return float((moment - _EPOCH) // timedelta(microseconds=1)) / _DAY


def _days(cells: Cells, column: str) -> FloatArray:
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        cells = cells.astype("datetime64[us]")
        return np.where(np.isnat(cells), np.nan, cells.astype(np.int64) / _DAY)
    return _converted(cells, _day, f"{column} must hold dates only, as the public rows do")


def _numbers(cells: Cells, column: str) -> FloatArray:
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "buif":
        return cells.astype(np.float64)
    return _converted(cells, float, f"{column} holds text, but only numbers in the public rows")


def _converted(cells: Cells, convert: Callable[[Any], float], refusal: str) -> FloatArray:
    numbers: FloatArray | None = None
    try:
        numbers = np.array([np.nan if _is_empty(cell) else convert(cell) for cell in cells], dtype=np.float64)
    except (AttributeError, OverflowError, TypeError, ValueError):
        numbers = None
    if numbers is None:  # out here: Python's own error, which quotes the cell, would be carried along as the context
        raise InvalidDataError(f"{refusal}. Clean the column, or leave it out.")
    return numbers


def _codes(cells: Cells, categories: npt.NDArray[np.str_]) -> FloatArray:
    codes: dict[str, int] = {category: code for code, category in enumerate(categories.tolist())}
    empty = next((codes[spelling] for spelling in _EMPTY if spelling in codes), UNKNOWN)
    truth = set(_TRUTH) <= set(codes) <= {*_TRUTH, ""}
    values = cells if isinstance(cells, list) else cells.tolist()
    texts = [cell if isinstance(cell, str) else spelled(cell) for cell in values] if truth else values
    if not set(map(type, texts)) <= {str, type(None)}:  # 1, 1.0 and True are equal, but not spelled alike
        return np.array([_code(cell, codes, empty) for cell in texts], np.float64)
    # Each different text once: a column of categories has few.
    known = {text: _code(_truth(str(text).strip()) if truth else text, codes, empty) for text in set(texts)}
    return np.fromiter(map(known.__getitem__, texts), np.float64, count=len(texts))


def _code(cell: Any, codes: dict[str, int], empty: int) -> int:
    if _is_empty(cell):
        return codes.get(cell.strip(), empty) if isinstance(cell, str) else empty
    return codes.get(str(cell).strip(), codes.get(spelled(cell), UNKNOWN))


def _is_empty(cell: Any) -> bool:
    return is_missing(cell) or (isinstance(cell, str) and cell.strip() in _EMPTY)
