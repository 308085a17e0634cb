"""A public schema: names, ranges and categories of columns, by which a cell is read without any public row."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import floor, log10
from numbers import Integral, Real
from typing import Any, Self, final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tutelage._internal.records import Entries, Names, settable
from tutelage._internal.typing import (
    Array,
    FloatArray,
    IntArray,
    Mask,
    Matrix,
    is_mapping,
    is_series,
)
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    Problem,
    literal,
    quote,
)
from tutelage.features.base import PublicFeatureMap
from tutelage.features.cells import categories_of, columns_of, kind_of, of_each, round_to_13_digits
from tutelage.tables import (
    NUMBER_TYPES,
    TEXT_TYPE,
    TRUTH_TYPE,
    Cells,
    Table,
    as_table,
    by_value,
    cell_text,
    chosen_by_a_cell,
    is_number,
    require_type,
)

_Column = Sequence[Any]  # the ends of a range, or categories
# Bins of a number, of one width; where people are few, they are joined to fewer.
_EVEN = (128, 64, 32, 16)
_HALVES = 12  # and toward the lower end, each half as wide as the next
_MOST_WHOLE = 24  # how far apart whole limits may be for each whole number to have a bin
_NEARLY_ALL = 0.98
_MOST_BINS = 2_000
_MOST_COLUMNS = 200
_MANY = 0.3  # of the cells of a column
_DIGITS = 3  # that an end has by itself, of those of the width of its range
_FEWEST_AT_LIMIT = 3  # rows with one number, which then tells of none of them
_LARGEST = 2**53  # whole numbers are floats, too
_WHOLE = "whole numbers"
_ADVICE = (
    "Read the csv file with tutelage.tables.read_table(path), which reads each cell by itself, or with this type, in "
    "pandas with read_csv(path, dtype={{'{}': '{}'}})."
)

# The public rows that proposed a schema. They are kept apart from it, so that no file, copy or ledger has them.
_PROPOSED_BY = WeakKeyDictionary["Schema", Table]()


@final
@settable
class Schema(PublicFeatureMap):
    """Turns named columns into bins, as declared: no row is looked at, public or private.

    It takes rows with column names, whose columns may come in any order and may have others beside them; or plain rows,
    whose columns come in the order of `columns`. Each cell is read alone, so no cell can make another one mean
    something else. A number beyond the range goes into the bin at its end. A cell that is empty, no number, or not in
    the list of categories goes into the last bin of its column. Private columns of frames, Parquet files and arrays are
    refused if one cell may have chosen their type: ranges take whole numbers if both limits are whole, and floats
    otherwise; categories take text, or numbers or truth values if all of them are.

    Parameters
    ----------
    columns : mapping of names to ranges or categories
        The feature columns: the lowest and the highest value of a number, or all categories, as texts:
        ``{"age": (17, 90), "work": ["private", "public"]}``. Limits without decimals that are no more than 24 apart
        give each whole number a bin: write ``(0.0, 1.0)`` for a share. All of it is published, so write it by public
        knowledge, never by private rows.
    """

    columns: Mapping[str, _Column]

    def __post_init__(self) -> None:
        columns: object = self.columns
        if not is_mapping(columns) or not 1 <= len(columns) <= _MOST_COLUMNS:
            raise InvalidParameterError(
                "Schema.columns",
                f"be a mapping of column names to ranges or categories, with 1 to {_MOST_COLUMNS} columns",
                quote(self.columns),
            )
        problems = [
            _problem_of(name, column)
            for name, column in columns.items()
            if not _is_described(name, column)
        ]
        if problems:
            raise InvalidParameterError.of(problems)

    @classmethod
    def learn(cls, public: object) -> Self:
        """Propose a schema by public rows, which everyone may see: their ranges and categories.

        Dates, and texts that differ in most rows, are left out. So are columns of which nearly all rows have one value:
        every column makes the noise on all others larger. A fit compares its private rows with the public ones.
        """
        columns = Entries()
        table = as_table(public)
        if table is None:
            raise InvalidDataError(
                "`public` of Schema.learn must be public rows with named columns."
            )
        for name in table.columns:
            times = Counter(table.texts(name))
            if max(times.values()) > _NEARLY_ALL * table.n_rows:
                continue
            kind = kind_of(table, name, short_texts=True)
            if not isinstance(kind, str):
                texts = [text for text in categories_of(table, name).tolist() if text]
                columns[name] = texts or ["?"]
            elif kind == "number":
                columns[name] = _range_of(_numbers(table.column(name)))
        return cls(columns).mark_proposed(table)

    def mark_proposed(self, by: Table) -> Self:
        """Return this schema, known to be proposed by public rows; where only their name is known, without columns."""
        _PROPOSED_BY[self] = by
        return self

    @property
    def proposed_by(self) -> Table:
        """The public rows that proposed it, as far as this process knows; without columns if it knows none."""
        return _PROPOSED_BY.get(self, Table("", {}))

    @property
    def origin(self) -> str:
        """Where its ranges and categories come from, for a card."""
        if not all(self._are_proposed(name).all() for name in self.names):
            return "ranges and categories as the data set owner declared them"
        name = self.proposed_by.source or "rows that the data set owner called public"
        return f"ranges and categories as {name} proposed them, or corrected"

    def _are_proposed(self, name: str) -> Mask:
        """Return which ends or categories of a column are in the public rows that proposed it."""
        column = self.columns[name]
        cells = self.proposed_by.columns.get(name, np.empty(0))
        if _is_range(column):
            return np.isin(np.array(column, np.float64), _numbers(cells))
        return np.isin(np.arange(len(column)), _bin_of(cells, column))

    def __sklearn_clone__(self) -> Self:
        return self  # nothing changes it, and it keeps its origin

    @property
    def names(self) -> Names:
        """Names of the columns, in order."""
        return tuple(self.columns)

    @property
    def bins(self) -> tuple[int, ...]:
        """How many bins each column has; the last one is for cells that are empty or unknown."""
        return tuple(1 + _number_of_bins(column) for column in self.columns.values())

    @property
    def ordered(self) -> tuple[bool, ...]:
        """Whether the bins of each column, but for the last one, are intervals of numbers."""
        return tuple(_is_range(column) for column in self.columns.values())

    @property
    def levels(self) -> list[list[IntArray]]:
        """How the bins of each column may be joined, from none joined to most: a number for each bin."""
        return [_levels_of(column) for column in self.columns.values()]

    @property
    def categorical(self) -> Names:
        """Names of the columns of categories."""
        return tuple(name for name, column in self.columns.items() if not _is_range(column))

    @property
    def cells(self) -> dict[str, list[str]]:
        """The cells of each bin of each column, in words."""
        columns = self.columns.items()
        return {name: [*_bin_names(column), "empty or unknown"] for name, column in columns}

    def empty(self) -> Table:
        """Return a table of these columns without any row."""
        return Table("", {name: np.empty(0, dtype=object) for name in self.columns})

    def table(
        self,
        X: object,
        people: npt.ArrayLike | None = None,
    ) -> Table:
        """Return private rows as a table, plain rows in the order of the columns; `people` are their canonical ids.

        All private rows that are read by a schema come through here. Columns are refused where one cell may have
        chosen how a reader took all others; text as a csv file has it is read cell by cell, and is not.
        """
        table = as_table(X)
        has_names = table is not None
        if table is None:
            table = Table("", columns_of(X, self.names))
        for name, column in self.columns.items():
            wanted, stated, dtype = type_wanted(column)
            if not has_names and "float64" in wanted:  # all columns of a matrix have one type
                wanted = NUMBER_TYPES
            require_type(table, name, wanted, f"{stated} as declared", _ADVICE.format(name, dtype))
            if has_names and name in table.columns:
                _refuse_chosen_floats(table, name, stated, people)
        return table

    def transform(self, X: object) -> Matrix:
        """Return the number of the bin of each cell, shape (rows, columns)."""
        cells = columns_of(X, self.names)
        bins = [_bin_of(cells[name], column) for name, column in self.columns.items()]
        return np.column_stack(bins)

    def values(self, table: Table) -> Matrix:
        """Return numbers as they are, and the bins of categories, shape (rows, columns)."""
        values = list[FloatArray]()
        for name, column in self.columns.items():
            cells = table.column(name)
            values.append(_numbers(cells) if _is_range(column) else _bin_of(cells, column))
        return np.column_stack(values)

    def read_off(self, rows: Table, people: IntArray) -> dict[str, str]:
        """Return how columns seem to be read off private rows, by name: for the owner of these alone.

        `people` says whose row it is, from 0 on. A column or end that public rows proposed is read off these.
        """
        warnings = dict[str, str]()
        values = self.values(rows).T  # (columns, rows)
        for (name, column), cells in zip(self.columns.items(), values, strict=True):
            is_proposed = self._are_proposed(name)
            if _is_range(column):
                if _has_private_end(cells, column, is_proposed):
                    warnings[name] = (
                        "has an end that equals a private extreme to more than three digits"
                    )
            else:
                # Each person counts once for each category.
                bin_and_person = np.unique(cells.astype(np.int64) * len(people) + people)
                bins = bin_and_person // len(people)
                n_people = np.bincount(bins, minlength=len(column))[: len(column)]
                if np.min(n_people[~is_proposed], initial=2) == 1:
                    warnings[name] = (
                        "lists only values that somebody has, and one that only one person has, beside any that "
                        "public rows proposed"
                    )
        return warnings

    def beyond(self, columns: Mapping[str, Cells]) -> dict[str, str]:
        """Return how columns do not fit in many rows, by name: for the owner of the rows alone."""
        warnings = dict[str, str]()
        for (name, column), n_bins in zip(self.columns.items(), self.bins, strict=True):
            cells = columns.get(name)
            if cells is None or not len(cells):
                continue
            if np.mean(_bin_of(cells, column) == n_bins - 1) >= _MANY:
                warnings[name] = "is often empty or unknown"
            elif _is_range(column):
                low, high = map(float, column)
                numbers = _numbers(cells)
                if np.mean((numbers < low) | (numbers > high)) >= _MANY:
                    warnings[name] = "is often outside its range"
        return warnings


def _range_of(numbers: FloatArray) -> list[int] | list[float]:
    """Return the ends of the range of some numbers, without decimals if all are whole."""
    low = float(np.nanmin(numbers))
    high = float(np.nanmax(numbers))
    if low == high:
        high += 1
    if np.all(np.isnan(numbers) | (numbers == np.rint(numbers))):
        return [int(low), int(high)]
    return [low, high]


def _has_private_end(
    cells: FloatArray,
    column: _Column,
    is_proposed: Mask,
) -> bool:
    """Return whether an end that no public row proposed is likely the extreme of very few private rows."""
    low, high = map(float, column)
    digits = _DIGITS - 1 - floor(log10(column[1] - column[0]))
    ends = (low, float(np.fmin.reduce(cells))), (high, float(np.fmax.reduce(cells)))
    for (end, extreme), was_public in zip(ends, is_proposed, strict=True):
        if was_public or round(end, digits) == end:
            continue
        is_equal = round(end, digits + 1) == round(extreme, digits + 1)
        if is_equal and np.sum(cells == extreme) < _FEWEST_AT_LIMIT:
            return True
    return False


def _is_range(column: _Column) -> bool:
    return len(column) == 2 and all(_is_real(end) for end in column)


def _is_real(end: object) -> bool:
    return isinstance(end, Real) and not isinstance(end, bool | np.bool_)


def type_wanted(column: _Column) -> tuple[Collection[str], str, str]:
    """Return the types that a private column may have, what they are called, and one of them in pandas."""
    if _is_range(column):
        are_whole = all(isinstance(end, Integral) for end in column)
    elif all(_is_plain_number(category) for category in column):
        are_whole = all(float(category) % 1 == 0 for category in column)
    elif all(by_value(category) in ("True", "False") for category in column):
        return {TRUTH_TYPE}, "truth values", "boolean"
    else:
        return {TEXT_TYPE}, "text", "str"
    if are_whole:
        return {"integer", "float64"}, _WHOLE, "Int64"
    return {"float64"}, "floats", "Float64"


def _is_plain_number(category: str) -> bool:
    """Return whether a category is a number in the spelling that its cells have."""
    if not is_number(category):
        return False
    number = float(category)
    return cell_text(number) == category and abs(number) <= _LARGEST


def _refuse_chosen_floats(
    private: Table,
    name: str,
    stated: str,
    people: npt.ArrayLike | None,
) -> None:
    """Refuse floats that one cell may have made of the whole numbers of a file, or the other way round.

    Without a fraction among its first rows, DuckDB rounds all later ones, and Polars can leave them out: so whole
    numbers and fractions are two types. With ``na_values=[999]``, pandas reads the lines ``40`` and ``0999`` as 40 and
    999, but ``40.0`` and ``0999`` as 40 and NaN; no cell has done so where no other is empty, or where two people have
    fractions.
    """
    if "float64" not in private.type_of(name):  # nor categories of them
        return
    numbers = _numbers(private.column(name))
    if stated == _WHOLE and np.any(numbers % 1 != 0):  # empty ones too
        how = "holds floats with fractions or empty cells, and was declared with whole numbers"
        advice = "If fractions are meant, declare it with decimals, as [17.0, 90.0]. "
        raise chosen_by_a_cell(private, name, how, advice + _ADVICE.format(name, "Int64"))
    ids: Array = np.arange(len(numbers))
    if people is not None:
        ids = np.asarray(people)
    if len(ids) != len(numbers):
        return  # which is refused later
    with_fraction = ids[np.nan_to_num(numbers) % 1 != 0]
    if np.isnan(numbers).any() and len(np.unique(with_fraction)) < 2:
        how = "holds floats, of which some are empty and all others whole"
        raise chosen_by_a_cell(private, name, how, _ADVICE.format(name, "Int64"))


def _is_plain(text: str) -> bool:
    """Return whether a card can say it: a lone surrogate is in no file."""
    return text.encode(errors="replace").decode() == text


def _is_described(name: object, column: object) -> bool:
    """Return whether a column has a name, and a range or categories."""
    if not isinstance(name, str) or not _is_plain(name) or not is_series(column) or not column:
        return False
    if _is_range(column):
        low, high = column
        return max(abs(low), abs(high)) <= _LARGEST and float(low) < float(high)
    if not all(isinstance(category, str) and _is_plain(category) for category in column):
        return False
    values = {by_value(category) for category in column}
    return len(values) == len(column) <= _MOST_BINS


def _problem_of(name: object, column: object) -> Problem:
    ranges = (
        f"a range within ±2**53, as [17, 90], or up to {_MOST_BINS} categories as texts, each once"
    )
    return Problem("Schema.columns", f"give {literal(quote(name))} {ranges}", quote(column))


def edges_of(column: _Column, even: int = _EVEN[0]) -> FloatArray:
    """Return the lower ends of the bins of a number, of which `even` would be of one width."""
    low, high = map(float, column)
    if all(isinstance(end, Integral) for end in column) and high - low <= _MOST_WHOLE:
        return np.arange(low, high + 1)
    halves = 2.0 ** -np.arange(1, _HALVES + 1)
    shares = np.unique(np.concatenate([np.arange(even) / even, halves]))
    edges = low + (high - low) * shares
    return np.unique(round_to_13_digits(edges.astype(np.float64)))


def _levels_of(column: _Column) -> list[IntArray]:
    """Return the numbers that the bins of a column get by being joined, from none joined to most; the last is alone."""
    if not _is_range(column):
        return [np.arange(len(column) + 1)]
    edges = edges_of(column)
    levels = list[IntArray]()
    for even in _EVEN:
        wider = edges_of(column, even)
        numbers = np.searchsorted(wider, edges, side="right") - 1
        levels.append(np.append(numbers, len(wider)))
    return levels


def _number_of_bins(column: _Column) -> int:
    return len(edges_of(column) if _is_range(column) else column)


def _bin_names(column: _Column) -> list[str]:
    if not _is_range(column):
        return [cell_text(category) for category in column]
    edges = edges_of(column).tolist()
    if np.all(np.diff(edges) == 1):
        return [f"{edge:g}" for edge in edges]
    edges.append(float(column[1]))
    return [f"{low:.6g} to {high:.6g}" for low, high in pairwise(edges)]


def code_by_value(categories: Sequence[str]) -> dict[str, int]:
    """Return the bin of each category, by its value."""
    return {by_value(category): place for place, category in enumerate(categories)}


def _bin_of(cells: Cells, column: _Column) -> FloatArray:
    """Return the bin of each cell, by this cell alone."""
    if _is_range(column):
        edges = edges_of(column)
        numbers = _numbers(cells)
        places = np.searchsorted(edges, numbers, side="right")
        places = np.maximum(places - 1, 0)
        return np.where(np.isnan(numbers), len(edges), places).astype(np.float64)
    places = code_by_value(column)
    return of_each(cells, lambda cell: places.get(by_value(cell), len(column)), np.float64)


def _numbers(cells: Cells) -> FloatArray:
    """Return cells as numbers, NaN where a cell is none, the same of every type that a reader gives them."""
    with np.errstate(all="ignore"):  # a warning would tell of a row
        if cells.dtype.kind in "iuf":
            return round_to_13_digits(cells.astype(np.float64))
        return round_to_13_digits(of_each(cells, _number, np.float64))


def _number(cell: object) -> float:
    text = by_value(cell)
    truth = {"True": 1.0, "False": 0.0}
    try:
        return float(truth.get(text, text))
    except (OverflowError, ValueError):
        return np.nan
