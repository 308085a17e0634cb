"""Named columns of any kind as numbers, by what a public table or a declaration says they are.

A category list, a mean or a vocabulary fitted over all private rows would let one person move every teacher. So the
type and the categories of each column are read off the public table, and a private value that it does not have gets
the code −1.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicFeatureMap, PublicRows
from tutelage.features.cells import (
    TEXT,
    as_texts,
    categories_of,
    codes_of,
    columns_of,
    days_of,
    kind_of,
    named_cells,
    numbers_of,
    require_kind,
)
from tutelage.features.fitted import PublicTransformer
from tutelage.features.texts import text_features
from tutelage.tables import as_table, spelled


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
    """

    names: Sequence[str]  # feature columns in order
    categories: Sequence[npt.NDArray[np.str_] | None]  # in the order of their codes; None for columns of other kinds
    dates: Sequence[str] = ()  # names of the columns of dates
    text_names: Sequence[str] = ()  # and of text
    text_maps: Sequence[PublicTransformer] = ()  # whose features were learned from public texts

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
        """
        if isinstance(names, str):
            raise InvalidParameterError(
                f"`names` of PublicColumns.learn must be a sequence of names. Got {names!r}; pass [{names!r}]."
            )
        table = named_cells(public, names)
        if table is None:
            raise InvalidDataError(
                "`public` of PublicColumns.learn must be rows with named columns: a DataFrame, a DuckDB relation, a "
                f"Table or a mapping of names to cells; or texts. Got a {type(public).__name__}."
            )
        names = tuple(table.columns) if names is None else names
        given = dict(kinds or {}) if as_table(public, names) is not None else {TEXT: "text", **(kinds or {})}
        _check_kinds(given, names)
        learned = {name: _declared(given[name]) if name in given else kind_of(table, name) for name in names}
        for name in given:
            require_kind(table, name, learned[name])
        for name in [name for name, kind in learned.items() if isinstance(kind, str) and kind == "category"]:
            learned[name] = categories_of(table, name)
        source = table.source or "the public rows"
        texts = {name: PublicRows(as_texts(table.column(name)), source) for name in names if _is(learned[name], "text")}
        return cls._of(learned, {name: text_features(public) for name, public in texts.items()})

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

        A column that is missing, or holds text where the public rows hold numbers, is refused; no cell is quoted.
        """
        if not all(isinstance(each, PublicTransformer) and each.row_by_row for each in self.text_maps):
            raise InvalidParameterError(
                "`text_maps` of PublicColumns must be maps of `text_features`: private texts go through them together."
            )
        table = as_table(X, self.names)
        columns = dict(zip(self.names, columns_of(X if table is None else table, self.names), strict=True))
        if len({len(cells) for cells in columns.values()}) > 1:
            raise InvalidDataError("The columns of the rows must have as many cells each. Got columns of two lengths.")
        source = f" of {table.source}" if table is not None and table.source else ""
        known = dict(zip(self.names, self.categories, strict=True))
        numbers = [
            (days_of if name in self.dates else numbers_of)(columns[name], f"Column '{name}'{source}")
            for name in self.numbers
        ]
        codes = [
            codes_of(columns[name], np.asarray(known[name]), f"Column '{name}'{source}") for name in self.categorical
        ]
        texts = [
            features.transform(as_texts(columns[name]))
            for name, features in zip(self.text_names, self.text_maps, strict=True)
        ]
        return np.column_stack([*numbers, *codes, *texts])


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


def _is(kind: str | npt.NDArray[np.str_], word: str) -> bool:
    return isinstance(kind, str) and kind == word
