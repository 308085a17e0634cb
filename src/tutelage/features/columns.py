"""Named columns of any kind as numbers, by what a public table or a declaration says they are.

A category list, a mean or a vocabulary fitted over all private rows would let one person move every teacher. So the
type and the categories of each column are read off the public table, and a private value that it does not have gets
the code −1.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from tutelage.features.base import PublicFeatureMap, PublicRows
from tutelage.features.cells import TEXT, as_texts, named_cells
from tutelage.features.fitted import PublicTransformer
from tutelage.features.texts import text_features
from tutelage.tables import Cells, Table, as_table, is_missing, is_number, spelled

UNKNOWN = -1  # code of a category that no public row has
_EMPTY = ("", "?")  # how text spells a missing value
_TRUTH = ("False", "True")  # the categories of a column of truth values
_DAY = 86_400 * 10**6  # microseconds
_EPOCH = datetime(1970, 1, 1)
_ENOUGH_CELLS = 50  # in a column that is no category
_WORDS_OF_TEXT = 3  # names of people mostly have fewer
_WITH_COMMA = re.compile(r"[-+]?[\d.]*\d(,\d+)*([.]\d+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?")


@final
@dataclass(eq=False, repr=False)
class PublicColumns(PublicFeatureMap):
    """Turns named columns into a matrix of numbers, as learned from a public table.

    It takes rows with column names (a frame of pandas, Polars or PyArrow, a DuckDB relation, a `Table`, a mapping of
    names to cells), whose columns may come in any order and may have others beside them; or plain rows, whose columns
    come in the order of `names`; or, for a single column, its cells. The same rows give the same matrix in each of
    these forms.

    A date or time becomes the number of days since 1970-01-01 (UTC). In a column of numbers or dates, an empty cell
    (None, NaN, empty text or ``?``) becomes NaN. In a column of categories, it gets the code of the empty public cells,
    if there are any. Text becomes `text_features`, and an empty cell zeros.

    Parameters
    ----------
    names : sequence of str
        Feature columns in order.
    categories : sequence of arrays of str, or None
        The categories of each column, in the order of their codes; None for columns of other kinds. All of it is
        public.
    dates : sequence of str
        Names of the columns of dates.
    text_names : sequence of str
        Names of the columns of text.
    text_maps : sequence of PublicTransformer
        Their features, learned from public texts.
    """

    names: Sequence[str]
    categories: Sequence[npt.NDArray[np.str_] | None]
    dates: Sequence[str] = ()
    text_names: Sequence[str] = ()
    text_maps: Sequence[PublicTransformer] = ()

    @classmethod
    def learn(
        cls, public: Any, names: Sequence[str] | None = None, kinds: Mapping[str, str | Sequence[Any]] | None = None
    ) -> Self:
        """Read the kind and the categories of each column off a public table.

        Cells of a csv file are numbers or dates if every filled one is. Text that differs in most rows is text if most
        cells have three words or more, and refused otherwise. Categories are those of the public rows, in alphabetical
        order unless the column has an order of its own.

        Parameters
        ----------
        public : DataFrame, DuckDB relation, Table, mapping of names to cells, or texts
            Public rows. An array, a list or a column of texts becomes one column, ``"text"``.
        names : sequence of str, optional
            The feature columns. Default: all.
        kinds : mapping of names to kinds, optional
            The kinds of columns that you know: ``"number"``, ``"date"``, ``"category"``, ``"text"``, or the categories,
            as in ``{"age": "number", "grade": ["a", "b", "c"]}``. The others are read off.

        Raises
        ------
        InvalidDataError
            If a column is missing, is not of its declared kind, or holds something other than numbers, text, truth
            values and dates; or if at least 50 cells of text are filled, more than half of them differ and most have
            fewer than three words.
        InvalidParameterError
            If `kinds` names another column or kind.
        """
        table = named_cells(public, names)
        if table is None:
            raise InvalidDataError(
                "`public` of PublicColumns.learn must be rows with named columns: a DataFrame, a DuckDB relation, a "
                f"Table or a mapping of names to cells; or texts. Got a {type(public).__name__}."
            )
        names = tuple(table.columns) if names is None else names
        given = dict(kinds or {}) if as_table(public, names) is not None else {TEXT: "text", **(kinds or {})}
        _check_kinds(given, names)
        learned = {name: _declared(given[name]) if name in given else _learned(table, name) for name in names}
        for name in given:
            _require_kind(table, name, learned[name])
        for name in [name for name, kind in learned.items() if isinstance(kind, str) and kind == "category"]:
            learned[name] = _categories(table, name)
        source = table.source or "the public rows"
        texts = {name: PublicRows(as_texts(table.column(name)), source) for name in names if _is(learned[name], "text")}
        return cls._of(learned, {name: text_features(public) for name, public in texts.items()})

    @classmethod
    def of_kinds(cls, kinds: Mapping[str, str | Sequence[Any]]) -> Self:
        """Return columns of declared kinds, without public rows; the inverse of `kinds` where no column is text.

        Parameters
        ----------
        kinds : mapping of names to kinds
            For each column ``"number"``, ``"date"`` or its categories; with ``""`` for empty cells, if these count as a
            category.

        Raises
        ------
        InvalidParameterError
            If a kind is something else, or needs public rows: ``"text"`` and ``"category"`` do.
        """
        _check_kinds(kinds, kinds)
        for name, kind in kinds.items():
            if kind in ("text", "category"):
                raise InvalidParameterError(
                    f"`kinds` of PublicColumns.of_kinds must give '{name}' a kind that needs no public rows. Got "
                    f"{kind!r}; list the categories, or use PublicColumns.learn(public, kinds=...)."
                )
        return cls._of({name: _declared(kind) for name, kind in kinds.items()}, {})

    @classmethod
    def _of(cls, learned: Mapping[str, "str | npt.NDArray[np.str_]"], texts: Mapping[str, PublicTransformer]) -> Self:
        known = tuple(None if isinstance(kind, str) else kind for kind in learned.values())
        dates = tuple(name for name, kind in learned.items() if _is(kind, "date"))
        return cls(tuple(learned), known, dates, tuple(texts), tuple(texts.values()))

    @property
    def kinds(self) -> dict[str, str | list[str]]:
        """The kind of each column: ``"number"``, ``"date"``, ``"text"``, or the list of its categories."""
        words = dict.fromkeys(self.dates, "date") | dict.fromkeys(self.text_names, "text")
        known = zip(self.names, self.categories, strict=True)
        return {name: words.get(name, "number") if found is None else list(map(str, found)) for name, found in known}

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns of numbers and dates, which come first in the matrix."""
        known = zip(self.names, self.categories, strict=True)
        return tuple(name for name, found in known if found is None and name not in self.text_names)

    @property
    def categorical(self) -> tuple[str, ...]:
        """Names of the columns of categories, whose codes come after them; the features of texts come last."""
        return tuple(compress(self.names, (known is not None for known in self.categories)))

    @property
    def n_text_features(self) -> int:
        """How many columns of the matrix, the last ones, are features of texts."""
        return sum(self._text_widths)

    @property
    def _text_widths(self) -> list[int]:
        return [features.transform([""]).shape[1] for features in self.text_maps]

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """The names, as scikit-learn's pipelines show them."""
        return np.array(self.names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.names)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> npt.NDArray[Any]:  # noqa: ARG002
        """Return the names in the order of the matrix: numbers and dates, then categories, then axes of texts."""
        widths = zip(self.text_names, self._text_widths, strict=True)
        axes = [f"{name}~{axis}" for name, width in widths for axis in range(width)]
        return np.array([*self.numbers, *self.categorical, *axes], dtype=object)

    def transform(self, X: Any) -> Matrix:
        """Return a matrix: first numbers and dates, then the codes of the categories, then the features of texts.

        Parameters
        ----------
        X : DataFrame, DuckDB relation, Table, mapping of names to cells, array of shape (rows, columns), or cells
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
        codes = [_codes(columns[name], np.asarray(known[name])) for name in self.categorical]
        texts = [
            features.transform(as_texts(columns[name]))
            for name, features in zip(self.text_names, self.text_maps, strict=True)
        ]
        return np.column_stack([*numbers, *codes, *texts])

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
        if rows.ndim == 1 and len(self.names) == 1:
            rows = rows[:, np.newaxis]
        if rows.ndim != 2 or rows.shape[1] != len(self.names):
            raise InvalidDataError(
                f"Rows without column names must have {len(self.names)} columns, in this order: "
                f"{', '.join(self.names)}. Got shape {rows.shape}."
            )
        return iter(rows.T)


_KINDS = ("number", "date", "category", "text")


def _check_kinds(kinds: Mapping[str, Any], names: Collection[str]) -> None:
    for name, kind in kinds.items():
        if name not in names:
            raise InvalidParameterError(f"`kinds` must name columns of the public rows. Got {name!r}.")
        if isinstance(kind, str) and kind in _KINDS:
            continue
        values = [] if isinstance(kind, str) or not isinstance(kind, Sequence | np.ndarray) else list(kind)
        if not values or len(set(map(spelled, values))) < len(values):
            raise InvalidParameterError(
                f"`kinds` must give column '{name}' one of {', '.join(_KINDS)}, or the list of its categories, each "
                f"once. Got {kind!r}."
            )


def _declared(kind: str | Sequence[Any]) -> str | npt.NDArray[np.str_]:
    return kind if isinstance(kind, str) else np.array([spelled(value) for value in kind])


def kind_of(table: Table, name: str) -> str | list[str]:
    """Return the kind of a public column, as `PublicColumns.kinds` has it; refuse text that is no category."""
    found = _learned(table, name)
    return found if isinstance(found, str) else found.tolist()


def _require_kind(table: Table, name: str, kind: str | npt.NDArray[np.str_]) -> None:
    """Refuse public cells that are not of the declared kind."""
    cells, column = table.column(name), f"Column '{name}' of the public rows"
    values = cells if isinstance(cells, list) else cells.tolist()
    if isinstance(kind, str):
        if kind in ("number", "date"):
            _converted(values, float if kind == "number" else _day, f"{column} must hold {kind}s only, as declared")
        return
    filled = [value for value in values if not _is_empty(value)]
    strange = [value for value, code in zip(filled, _codes(filled, kind), strict=True) if code == UNKNOWN]
    if strange:
        raise InvalidDataError(
            f"{column} must hold its declared categories: {', '.join(kind.tolist())}. Got {spelled(strange[0])!r}."
        )


def _is(kind: str | npt.NDArray[np.str_], word: str) -> bool:
    return isinstance(kind, str) and kind == word


def _learned(table: Table, name: str) -> str | npt.NDArray[np.str_]:
    """Return the kind of a public column: a word, or its categories."""
    cells = table.column(name)
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iufM" and np.any(cells == cells):  # filled: no NaN, NaT
        return "date" if cells.dtype.kind == "M" else "number"
    filled = _filled(cells)
    if name in table.levels or all(map(_is_truth, filled)):
        return _categories(table, name)
    if all(map(is_number if isinstance(cells, list) else _is_number, filled)):
        return "number"
    if all(map(_is_date, filled)):
        return "date"
    strange = next((value for value in filled if not isinstance(value, _SIMPLE)), None)
    if strange is not None:
        raise InvalidDataError(
            f"Column '{name}' of the public rows must hold numbers, text, truth values or dates. Got cells of type "
            f"{type(strange).__name__}."
        )
    known = _categories(table, name)
    different = [text for text in known.tolist() if text]
    if len(filled) < _ENOUGH_CELLS or 2 * len(different) <= len(filled):
        return known
    if 2 * sum(len(text.split()) >= _WORDS_OF_TEXT for text in different) > len(different):
        return "text"
    raise InvalidDataError(_no_category(name, different))


def _categories(table: Table, name: str) -> npt.NDArray[np.str_]:
    """Return the categories of a public column, sorted or in their order."""
    cells = table.column(name)
    filled = _filled(cells)
    known = set(map(spelled, filled))
    if name in table.levels:
        order = [level for level in table.levels[name] if level in known]
    elif all(map(_is_truth, filled)):
        order = list(_TRUTH) if filled else []
    else:
        order = sorted(known)
    return np.array([""] * (len(filled) < len(cells)) + order)


def _filled(cells: Cells) -> list[Any]:
    values = cells if isinstance(cells, list) else cells.tolist()
    return [value for value in values if not is_missing(value)]


_SIMPLE = (str, Real, Decimal, date, time)


def _no_category(name: str, texts: list[str]) -> str:
    """Return why a public column whose cells are nearly all different is refused."""
    held = f"Column '{name}' of the public rows holds"
    if any("," in text for text in texts) and all(map(_WITH_COMMA.fullmatch, texts)):
        return f"{held} numbers with commas. Write decimals with a point, and nothing between thousands."
    return (
        f"{held} text that differs in most rows, so it is no category, and is too short to learn from. Leave the "
        "column out (`ignore` in [private]). If it says whose row it is, pass it as `entity_ids`. If it is "
        f"text after all, declare it: kinds={{'{name}': 'text'}}."
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
