"""Cells of named columns: the kind of a column, from its public cells, and the conversion of cells to numbers."""

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import Array, FloatArray, is_array, is_series
from tutelage.exceptions import InvalidDataError
from tutelage.tables import (
    MOMENT,
    WRITTEN,
    Cells,
    Table,
    as_table,
    by_value,
    cell_text,
    column_array,
    is_missing,
    is_number,
)

TEXT = "text"
"""The name of a column of texts that come without one."""
UNKNOWN = -1  # code of a category that no public row has
# How text spells a missing value where cells become numbers or codes. Where the kind of a public column is determined,
# "?" is a cell like others: it makes no number column, but is one of the categories.
_EMPTY = ("", "?")
_TRUTH = ("False", "True")  # the categories of a boolean column
DAY = 86_400 * 10**6  # microseconds
_EPOCH = datetime(1970, 1, 1)
_DIGITS = 13
_NEVER_EMPTY = "biu"  # kinds of arrays, by numpy's letters
_MIN_CELLS_OF_TEXT = 50  # with fewer filled cells, a column has categories
_MIN_WORDS_OF_TEXT = 3  # names of people mostly have fewer
_WITH_COMMA = re.compile(r"[-+]?[\d.]*\d(,\d+)*([.]\d+)?")
_OTHER_DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d\d)( .*)?")  # 07.09.2024, 9/7/24 17:30
_SIMPLE = (str, Real, Decimal, date, time)
_TRUTH_TYPES: tuple[type[object], ...] = (str, bool, np.bool_)
COMMA = "decimal comma"
DAY_FIRST = "dd.mm.yyyy"

Categories = npt.NDArray[np.str_]
ColumnKind = str | Categories
"""The kind of a column: "text" or a key of `NUMERIC`, or the categories."""


def named_cells(
    rows: object,
    names: Collection[str] | None = None,
) -> Table | None:
    """Return rows with named columns as a table, and texts as a table of one column; None for anything else."""
    table = as_table(rows, names)
    if table is not None:
        return table
    cells = column_array(rows)
    if is_series(cells) and any(isinstance(cell, str) for cell in cells):
        cells = np.array(cells, dtype=object)
    # Objects, or text of numpy in either form.
    if not is_array(cells) or cells.ndim != 1 or cells.dtype.kind not in "OUT":
        return None
    texts = cells.astype(object)
    if not any(isinstance(cell, str) for cell in texts.tolist()):
        return None
    return Table("", {TEXT: texts})


def as_texts(cells: Cells) -> Array:
    """Return the cells of a column as texts, in one spelling of each value (see `by_value`); empty cells as ""."""
    return of_each(cells, by_value, object)


def columns_of(X: object, names: Collection[str]) -> dict[str, Cells]:
    """Return the cells of each column, in the order of the names; rows without names have the columns in that order."""
    table = as_table(X, names)
    if table is not None:
        missing = [name for name in names if name not in table.columns]
        if missing and not table.source:
            raise InvalidDataError(
                f"The rows have no column '{missing[0]}'. They need each of: {', '.join(names)}. Check the spelling."
            )
        columns = {name: table.column(name) for name in names}
        if len({len(cells) for cells in columns.values()}) > 1:
            raise InvalidDataError(
                "The columns of the rows must have as many cells each. Got columns of two lengths."
            )
        return columns
    rows = X if is_array(X) else np.asarray(X, dtype=object)
    if rows.ndim == 1 and len(names) == 1:
        rows = rows[:, np.newaxis]
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise InvalidDataError(
            f"Rows without column names must have {len(names)} columns, in this order: {', '.join(names)}. Got shape "
            f"{rows.shape}."
        )
    return dict(zip(names, rows.T, strict=True))


# Kinds of public columns


def kind_of(
    table: Table,
    name: str,
    *,
    short_texts: bool = False,
) -> ColumnKind:
    """Return the kind of a public column.

    Short texts that differ in most rows, such as ids, are refused; with `short_texts`, they are of kind "text".
    """
    cells = table.column(name)
    has_filled_cell = np.any(cells == cells)  # NaN and NaT differ from themselves
    if cells.dtype.kind in "iufM" and has_filled_cell:
        return "date" if cells.dtype.kind == "M" else "number"
    filled = _filled_cells(cells)
    # A column in which all cells are empty has one category, the empty one.
    if name in table.levels or all(map(_is_truth, filled)):
        return categories_of(table, name)
    # Cells of a csv file are text, which may read as a number; elsewhere, only a number counts as one.
    is_text_of_csv = table.types.get(name) == WRITTEN
    if all(map(is_number if is_text_of_csv else _has_number_type, filled)):
        return "number"
    if all(map(_is_date, filled)):
        return "date"
    for value in filled:
        if not isinstance(value, _SIMPLE):
            raise InvalidDataError(
                f"Column '{name}' of the public rows must hold numbers, text, truth values or dates. Got cells of type "
                f"{type(value).__name__}."
            )
    known = categories_of(table, name)
    different = [text for text in known.tolist() if text]
    has_comma = any("," in text for text in different)
    if has_comma and not short_texts and all(map(_WITH_COMMA.fullmatch, different)):
        raise InvalidDataError(
            f"Column '{name}' of the public rows holds numbers with commas. Declare the kind '{COMMA}', or write "
            "decimals with a point; write nothing between thousands."
        )
    if len(filled) < _MIN_CELLS_OF_TEXT or 2 * len(different) <= len(filled):
        return known
    long = sum(len(text.split()) >= _MIN_WORDS_OF_TEXT for text in different)
    if short_texts or 2 * long > len(different):
        return "text"
    if all(map(_OTHER_DATE.fullmatch, different)):
        raise InvalidDataError(
            f"Column '{name}' of the public rows holds dates in another form. Declare the kind '{DAY_FIRST}', if they "
            "have this form, or write dates as 2024-09-07."
        )
    key = name
    if not re.fullmatch(r"[\w-]+", name, re.ASCII):
        key = f'"{name}"'
    raise InvalidDataError(
        f"Column '{name}' of the public rows holds text that differs in most rows, so it is no category, and is too "
        f'short to learn from. In a configuration, write `{key} = "ignore"` or `{key} = "text"` in [columns]; in '
        f"Python, drop the column, or pass kinds={{'{name}': 'text'}}. If it says whose row it is, pass it as "
        "`entity` in [private] or as `entity_ids`."
    )


def require_kind(
    table: Table,
    name: str,
    kind: ColumnKind,
) -> None:
    """Refuse public cells that are not of the declared kind."""
    cells = table.column(name)
    column = f"Column '{name}' of the public rows"
    if isinstance(kind, str):
        if kind in NUMERIC:
            plural = {"number": "numbers", "date": "dates"}
            of = plural.get(kind, f"cells of the form '{kind}'")
            _convert_cells(cells, NUMERIC[kind], f"{column} must hold {of} only, as declared")
        return
    unknown = cells[_lookup(cells, kind) == UNKNOWN]
    for value in unknown.tolist():
        if not _is_empty(value):
            raise InvalidDataError(
                f"{column} must hold its declared categories: {', '.join(kind.tolist())}. Got {cell_text(value)!r}."
            )


def categories_of(table: Table, name: str) -> Categories:
    """Return the categories of a public column, sorted or in their order."""
    cells = table.column(name)
    filled = _filled_cells(cells)
    known = set(map(cell_text, filled))
    order = sorted(known)
    if name in table.levels:
        order = [level for level in table.levels[name] if level in known]
    elif filled and all(map(_is_truth, filled)):
        order = [*_TRUTH]
    if len(filled) < len(cells):
        order = ["", *order]
    return np.array(order, dtype=str)


def _filled_cells(cells: Cells) -> list[Any]:
    if cells.dtype.kind in _NEVER_EMPTY:
        return cells.tolist()
    return [value for value in cells.tolist() if not is_missing(value)]


def _has_number_type(cell: object) -> bool:
    return isinstance(cell, Real | Decimal) and not isinstance(cell, bool | np.bool_)


def _is_truth(cell: object) -> bool:
    return isinstance(cell, _TRUTH_TYPES) and by_value(cell) in _TRUTH


def _is_date(cell: object) -> bool:
    if not isinstance(cell, str):
        return isinstance(cell, date)
    text = cell.strip()
    try:
        return bool(MOMENT.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False


# Conversion to numbers, of each cell independently of the others


def _number_with_comma(cell: Any) -> float:
    if isinstance(cell, str):
        if "." in cell:  # between thousands, perhaps
            raise ValueError
        cell = cell.replace(",", ".")
    return float(cell)


def _day(cell: Any) -> float:
    """Return the days since 1970-01-01, by whole microseconds."""
    moment = cell
    if isinstance(cell, str):
        moment = datetime.fromisoformat(cell.strip())
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return float((moment - _EPOCH) // timedelta(microseconds=1)) / DAY


def _day_first(cell: Any) -> float:
    if isinstance(cell, str):
        cell = datetime.strptime(cell.strip(), "%d.%m.%Y")
    return _day(cell)


_ToNumber = Callable[[Any], float]
NUMERIC: dict[str, _ToNumber] = {
    "number": float,
    "date": _day,
    COMMA: _number_with_comma,
    DAY_FIRST: _day_first,
}
"""The kinds of columns whose cells become one number each, and the conversion of a cell."""
DAYS = ("date", DAY_FIRST)


def in_numbers(
    cells: Cells,
    kind: str,
    column: str,
) -> FloatArray:
    """Return cells of a kind as numbers, dates as days since 1970-01-01; `column` is what an error calls them."""
    if kind in DAYS:
        if cells.dtype.kind == "M":
            cells = cells.astype("datetime64[us]")
            days = cells.astype(np.int64) / DAY
            return np.where(np.isnat(cells), np.nan, days)
        refusal = f"{column} must hold dates only, as the public rows do"
        return _convert_cells(cells, NUMERIC[kind], refusal)
    if cells.dtype.kind in "buif":
        return round_to_13_digits(cells.astype(np.float64))
    refusal = f"{column} holds text, but only numbers in the public rows"
    return round_to_13_digits(_convert_cells(cells, NUMERIC[kind], refusal))


def round_to_13_digits(numbers: FloatArray) -> FloatArray:
    """Return numbers rounded to 13 digits: CSV parsers read the same decimal with different last bits.

    A decimal of at most 13 digits becomes the float nearest to it, and rounding errors of a parser do not change that.
    So a threshold of any feature map gives the same feature, whichever parser read the value.
    """
    with np.errstate(all="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(numbers))))
        rounded = np.rint(numbers * scale) / scale
    return np.where(np.isfinite(rounded), rounded, numbers)


def _convert_cells(
    cells: Cells,
    convert: _ToNumber,
    refusal: str,
) -> FloatArray:
    def number_of(cell: object) -> float:
        if _is_empty(cell):
            return np.nan
        return convert(cell)

    with suppress(Exception):  # of any type, because cells may be of a user's own class
        return of_each(cells, number_of, np.float64)
    # Raised outside the block: otherwise `__context__` keeps the original error, which quotes the cell.
    raise InvalidDataError(f"{refusal}. Clean the column, or leave it out.")


def of_each(
    cells: Cells,
    convert: Callable[[Any], object],
    dtype: npt.DTypeLike,
) -> Array:
    """Return the result of `convert` for each cell, called once for equal cells where finding these is quick."""
    if cells.dtype.kind in "biufM":
        different, places = np.unique(cells, return_inverse=True)
        results = np.fromiter(map(convert, different.tolist()), dtype, count=len(different))
        return results[places]
    values = cells.tolist()
    # Several times as fast as the way below, for columns of millions of cells.
    if set(map(type, values)) <= {str, NoneType}:
        result_of = {cell: convert(cell) for cell in set(values)}
        return np.fromiter(map(result_of.__getitem__, values), dtype, count=len(values))
    texts = {cell for cell in values if type(cell) is str}
    result_of = {text: convert(text) for text in texts}
    results = list[object]()
    for cell in values:
        result = result_of[cell] if type(cell) is str else convert(cell)
        results.append(result)
    return np.fromiter(results, dtype, count=len(values))


def codes_of(
    cells: Cells,
    categories: Categories,
    column: str,
) -> FloatArray:
    """Return the index of each cell among the categories, compared by value; `column` names the column in errors.

    Some readers parse a column as booleans or times only if every cell is one. A single person's odd cell would then
    change the parsed values, and so the codes, of all others. So a column without text is refused if it holds values of
    a kind that no category has.
    """
    may_be_text = cells.dtype.kind not in _NEVER_EMPTY
    if not (may_be_text and any(isinstance(cell, str) and cell.strip() for cell in cells.tolist())):
        public_kinds = {_kind_of_text(by_value(category)) for category in categories.tolist()}
        private_kinds = {_kind_of_type(kind) for kind in {*map(type, _filled_cells(cells))}}
        if not private_kinds <= public_kinds:
            raise InvalidDataError(
                f"{column} holds no text, and the public rows do. Read it as text, as the public rows were read."
            )
    return _lookup(cells, categories)


def _kind_of_type(kind: type[object]) -> str:
    if issubclass(kind, bool | np.bool_):
        return "truth"
    if issubclass(kind, Real | Decimal):
        return "number"
    # Another kind is never one of the public ones, so it is refused.
    return "date" if issubclass(kind, date) else "another"


def _kind_of_text(text: str) -> str:
    if text in _TRUTH:
        return "truth"
    if is_number(text):
        return "number"
    return "date" if _is_date(text) else "text"


def _lookup(cells: Cells, categories: Categories) -> FloatArray:
    codes = code_by_category(categories)
    return of_each(cells, lambda cell: codes.get(by_value(cell), UNKNOWN), np.float64)


def code_by_category(categories: Categories) -> dict[str, int]:
    """Return the index of each category by its value; all spellings of an empty cell have the index of one of them."""
    codes = dict[str, int]()
    for code, category in enumerate(categories.tolist()):
        codes.setdefault(by_value(category), code)
    blank, question_mark = _EMPTY
    empty = codes.get(blank, codes.get(question_mark, UNKNOWN))
    return {**dict.fromkeys(_EMPTY, empty), **codes}


def _is_empty(cell: object) -> bool:
    return is_missing(cell) or (isinstance(cell, str) and cell.strip() in _EMPTY)
