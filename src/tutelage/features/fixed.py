"""Feature maps that are told what they know: ranges and categories from a codebook, a law, or a public table."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._typing import FloatArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicFeatureMap
from tutelage.features.rowwise import number_rows


@final
class ScaledColumns(PublicFeatureMap):
    """Scales each column from its stated public range to [0, 1].

    What lies outside the range is moved to its end, so that no outlier outweighs the other columns; NaN stays NaN.

    Parameters
    ----------
    low, high : array of shape (columns,)
        Ends of each column's range, from public knowledge.

    Raises
    ------
    InvalidParameterError
        If they are not one finite range per column.
    """

    def __init__(self, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
        self.low = low
        self.high = high
        self._ranges()

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Return the scaled rows, shape (rows, columns).

        Raises
        ------
        InvalidDataError
            If `X` does not hold numbers in as many columns.
        """
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

    def __init__(self, categories: Sequence[Sequence[Any]]) -> None:
        self.categories = categories
        self._positions()

    def transform(self, X: npt.ArrayLike) -> FloatArray:
        """Return the 0/1 columns side by side, shape (rows, categories of all columns).

        Raises
        ------
        InvalidDataError
            If `X` has another number of columns, or holds something other than strings and numbers.
        """
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
