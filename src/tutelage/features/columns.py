"""Named columns of any kind as numbers, by what a public table or a declaration says they are, and the named maps.

A category list, a mean or a vocabulary fitted over all private rows would let one person move every teacher. So the
type and the categories of each column are read off the public table, and a private value that it does not have gets
the code −1.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from os import PathLike
from typing import Any, NamedTuple, Self, final

import numpy as np
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline
from sklearn.utils import InputTags, Tags, TargetTags

from tutelage._internal.records import Entries, Names, frozen
from tutelage._internal.typing import Array, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError, literal, quote
from tutelage.features.base import PublicFeatureMap, PublicRows, features_of_private
from tutelage.features.cells import (
    COMMA,
    DAY_FIRST,
    NUMERIC,
    TEXT,
    Categories,
    as_texts,
    categories_of,
    codes_of,
    columns_of,
    in_numbers,
    is_day,
    kind_of,
    named_cells,
    require_kind,
)
from tutelage.features.fitted import PublicTransformer
from tutelage.features.images import image_features
from tutelage.features.learned import PublicPCA, PublicSteps
from tutelage.features.texts import text_features
from tutelage.tables import (
    Table,
    as_table,
    cell_text,
    column_array,
    is_lazy,
    is_missing,
    require_same_types,
)


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
    # In the order of their codes; None for columns of other kinds.
    categories: Sequence[Categories | None]
    dates: Sequence[str] = ()  # names of the columns of dates
    text_names: Sequence[str] = ()  # and of text
    text_maps: Sequence[PublicTransformer] = ()  # whose features were learned from public texts
    # Declared forms of numbers and dates: see `learn`.
    forms: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def learn(
        cls,
        public: Any,
        names: Sequence[str] | None = None,
        kinds: Mapping[str, str | Sequence[Any]] | None = None,
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
            as in ``{"age": "number", "grade": ["a", "b", "c"]}``. ``"decimal comma"`` stands for numbers written as
            ``1,5``, and ``"dd.mm.yyyy"`` for dates. The others are read off.
        """
        if isinstance(names, str):
            raise InvalidParameterError(
                "PublicColumns.learn.names",
                "be a sequence of names",
                f"{names!r}",
                f"Pass [{literal(repr(names))}].",
            )
        table = named_cells(public, names)
        if table is None:
            raise InvalidDataError(
                "`public` of PublicColumns.learn must be rows with named columns: a DataFrame, a DuckDB relation, a "
                f"Table or a mapping of names to cells; or texts. Got a {type(public).__name__}."
            )
        names = tuple(table.columns) if names is None else names
        given = (
            dict(kinds or {})
            if as_table(public, names) is not None
            else {TEXT: "text", **(kinds or {})}
        )
        _check_kinds(given, names)
        categories = list[Categories | None]()
        words = dict[str, str]()
        for name in names:
            if name not in given:
                kind = kind_of(table, name)
            else:
                kind = given[name]
                if not isinstance(kind, str):
                    kind = np.array([cell_text(value) for value in kind])
                require_kind(table, name, kind)
            if isinstance(kind, str) and kind != "category":
                words[name] = kind
                categories.append(None)
            else:
                categories.append(categories_of(table, name) if isinstance(kind, str) else kind)
        texts = [name for name, word in words.items() if word == "text"]
        source = table.source or "the public rows"
        maps = [text_features(PublicRows(as_texts(table.column(name)), source)) for name in texts]
        dates = [name for name, word in words.items() if is_day(word)]
        forms = {
            name: word
            for name, word in words.items()
            if name in given and word in (COMMA, "date", DAY_FIRST)
        }
        return cls(tuple(names), tuple(categories), tuple(dates), tuple(texts), tuple(maps), forms)

    @property
    def kinds(self) -> dict[str, str | list[str]]:
        """The kind of each column: a word that `learn` takes, or the list of its categories."""
        found: Entries = dict.fromkeys(self.names, "number")
        found |= dict.fromkeys(self.dates, "date")
        found |= dict.fromkeys(self.text_names, "text")
        found |= self.forms
        for name, categories in zip(self.names, self.categories, strict=True):
            if categories is not None:
                found[name] = [*map(str, categories)]
        return found

    @property
    def numbers(self) -> Names:
        """Names of the columns of numbers and dates, which come first in the matrix."""
        known = zip(self.names, self.categories, strict=True)
        return tuple(name for name, found in known if found is None and name not in self.text_names)

    @property
    def categorical(self) -> Names:
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
    def feature_names_in_(self) -> Array:
        """The names, as scikit-learn's pipelines show them."""
        return np.array(self.names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return len(self.names)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array:  # noqa: ARG002
        """Return the names in the order of the matrix: numbers and dates, then categories, then axes of texts."""
        widths = zip(self.text_names, self._text_widths, strict=True)
        axes = [f"{name}~{axis}" for name, width in widths for axis in range(width)]
        return np.array([*self.numbers, *self.categorical, *axes], dtype=object)

    def transform(self, X: Any) -> Matrix:
        """Return a matrix: first numbers and dates, then the codes of the categories, then the features of texts.

        A column that is missing, or holds text where the public rows hold numbers, is refused; no cell is quoted.
        """
        if not all(
            isinstance(each, PublicTransformer) and each.row_by_row for each in self.text_maps
        ):
            raise InvalidParameterError(
                "PublicColumns.text_maps",
                "be maps made by `text_features`, because the texts of many people go through them together",
            )
        if not self.names:
            raise InvalidDataError(
                "The rows have no columns to learn from. Pass rows with at least one feature."
            )
        columns = columns_of(X, self.names)
        source = f" of {X.source}" if isinstance(X, Table) and X.source else ""
        kinds = self.kinds
        found = list[Matrix]()
        for name in self.numbers:
            cells = in_numbers(columns[name], str(kinds[name]), f"Column '{name}'{source}")
            if np.isinf(cells).any():
                raise InvalidDataError(
                    f"Column '{name}'{source} contains infinity, or a number too large. Cells may be missing, but all "
                    "others must be finite."
                )
            found.append(cells)
        known = dict(zip(self.names, self.categories, strict=True))
        for name in self.categorical:
            found.append(
                codes_of(columns[name], np.asarray(known[name]), f"Column '{name}'{source}")
            )
        for name, features in zip(self.text_names, self.text_maps, strict=True):
            found.append(features.transform(as_texts(columns[name])))
        return np.column_stack(found)


KINDS = (*NUMERIC, "category", "text")
"""The words for kinds of columns."""


def _check_kinds(kinds: Mapping[str, Any], names: Collection[str]) -> None:
    for name, kind in kinds.items():
        if name not in names:
            raise InvalidParameterError(
                "PublicColumns.learn.kinds", "name columns of the public rows", f"{name!r}"
            )
        if isinstance(kind, str) and kind in KINDS:
            continue
        values = (
            [*kind] if isinstance(kind, Sequence | np.ndarray) and not isinstance(kind, str) else []
        )
        if not values or len(set(map(cell_text, values))) < len(values):
            raise InvalidParameterError(
                "PublicColumns.learn.kinds",
                f"give column '{literal(name)}' one of {', '.join(KINDS)}, or the list of its categories, each once",
                quote(kind),
            )


ColumnMap = PublicColumns | PublicTransformer
_COMPONENTS = 64
_OF_IMAGES = 200
_STEPS = 8  # of each column of numbers
_MOST_STEPS = 2048  # of all of them
TABLE_MAP_OF_PEOPLE = "steps"
_IMAGE_MAP_OF_PEOPLE = "images"
"""The maps for tables and images where every person is a teacher, unless another one is named."""


FEATURE_MAPS = ("images", "pca", "steps")
"""Their names in configurations."""


@final
@frozen
class LearnedMap:
    """A feature map to be learned from the public rows of a fit.

    Parameters
    ----------
    name : {"steps", "pca", "images"}, optional
        Steps at quantiles of each column, principal components, or edges and components of images. Default: "steps",
        and "images" if the rows are images.
    components : int, optional
        For "pca" (default 64) and "images" (default 200).
    image_shape : tuple of int, optional
        For "images", if rows are flat: height, width, and the number of channels, if there are any.
    source : str
        Where the public rows are from, for cards.
    """

    name: str | None = None
    components: int | None = None
    image_shape: tuple[int, ...] | None = None
    source: str = "X_public"

    def __post_init__(self) -> None:
        if self.name not in (None, *FEATURE_MAPS):
            raise InvalidParameterError(
                "LearnedMap.name", f"be one of {', '.join(FEATURE_MAPS)}", quote(self.name)
            )
        takers = {"components": ("pca", "images"), "image_shape": ("images",)}
        for setting, maps in takers.items():
            if getattr(self, setting) is not None and self.name not in maps:
                raise InvalidParameterError(
                    f"LearnedMap.{setting}", f"be left out, because it is of {' and '.join(maps)}"
                )

    def __sklearn_tags__(self) -> Tags:
        """Say whether the learned map takes rows with missing cells."""
        return Tags(
            None,
            TargetTags(required=False),
            input_tags=InputTags(allow_nan=self.name in (None, "steps")),
        )


class NumberedRows(NamedTuple):
    """Public rows as numbers; plain rows are not checked yet."""

    rows: Matrix
    columns: ColumnMap | None = None  # what named columns are, by the rows or as declared
    table: Table | None = None  # the rows as they came, if their columns have names
    image_shape: tuple[int, ...] | None = None

    def feature_map(self, wanted: LearnedMap) -> Any:
        """Return the map, learned from the public rows; by default that for people who cast ballots."""
        name = wanted.name or (
            TABLE_MAP_OF_PEOPLE if self.image_shape is None else _IMAGE_MAP_OF_PEOPLE
        )
        public = PublicRows(self.rows, wanted.source)
        if name == "images":
            return image_features(
                public,
                wanted.image_shape or self.image_shape,
                n_components=wanted.components or _OF_IMAGES,
            )
        if name == "pca":
            return PublicPCA.learn(public, wanted.components or _COMPONENTS, whiten=True)
        n_numbers = self.rows.shape[1]
        n_features = 0
        if isinstance(self.columns, PublicColumns):
            n_numbers = len(self.columns.numbers)
            n_features = self.columns.n_text_features
        # Of many columns, fewer each.
        n_steps = max(2, min(_STEPS, _MOST_STEPS // max(1, n_numbers)))
        found = PublicSteps.learn(public, n_numbers, n_steps, n_features=n_features)
        if not n_features and not any(map(len, (*found.steps, *found.categories))):
            raise InvalidDataError(
                "The public rows must have a column with different cells. Add columns, or public rows."
            )
        return found


def numbered_rows(
    X_public: Any, declared: ColumnMap | Mapping[str, str | Sequence[Any]] | None = None
) -> NumberedRows:
    """Return public rows with named columns, texts and images as numbers, and rows that are a matrix as they are.

    The kinds of the columns are `declared`, or learned from the rows; a mapping declares some of them.
    """
    if isinstance(X_public, np.ndarray) and X_public.ndim > 2:
        return NumberedRows(dense_rows(X_public), image_shape=X_public.shape[1:])
    public = named_cells(dense_rows(X_public))
    if public is None:
        return NumberedRows(X_public)
    if declared is None or isinstance(declared, Mapping):
        # One column of texts, which has no name.
        kinds = {TEXT: "text"} if as_table(X_public) is None else {}
        declared = PublicColumns.learn(public, kinds=kinds | dict(declared or {}))
    # As arrays, whatever scikit-learn's `set_output` makes of them elsewhere.
    return NumberedRows(np.asarray(declared.transform(public)), declared, public)


def numbered_as(public: NumberedRows, X: Any) -> tuple[Any, Table | None]:
    """Return private rows as numbers in the columns of the public rows, and as a table if their columns have names.

    It refuses sparse rows, names that only one of the two has, a column of two types, and images of two shapes.
    """
    shape = public.image_shape
    if shape is not None or (isinstance(X, np.ndarray) and X.ndim > 2):
        if shape is None or np.shape(X)[1:] != shape or len(shape) > 3:
            other = "others" if shape is None else ("rows", *shape)
            raise InvalidDataError(
                "Images must have shape (rows, height, width) or (rows, height, width, channels), in `X` and "
                f"`X_public` alike. Got shapes {np.shape(X)} and {other}."
            )
        return dense_rows(X), None
    private = named_cells(dense_rows(X))
    if (private is None) != (public.table is None):
        named, other = ("X_public", "X") if private is None else ("X", "X_public")
        raise InvalidDataError(
            f"`X` and `X_public` must both have named columns, or neither. Only `{named}` has; pass `{other}` with the "
            "same columns."
        )
    if private is None or public.table is None or public.columns is None:
        return dense_rows(X), None
    columns = public.columns
    columns_of(private, columns.names)  # which refuses rows that lack one
    require_as_public(private, public.table, columns)
    if isinstance(columns, PublicColumns):
        return np.asarray(columns.transform(private)), private
    cells = columns.cells(private)
    # Which rows are of one shard is not known yet, so each is taken by itself.
    each = np.arange(len(cells))[:, np.newaxis]
    return features_of_private(columns, cells, each, public.rows.shape[1]), private


def require_as_public(private: Table, public: Table, columns: ColumnMap) -> None:
    """Refuse private columns that one cell may have changed, beside the public ones: see `require_same_types`."""
    forms = columns.forms if isinstance(columns, PublicColumns) else {}
    dates = [name for name, form in forms.items() if form == "date"]
    require_same_types(private, public, columns.names, dates=dates)


def require_same_rows(X: Any, **columns: Any) -> None:
    """Refuse columns that may hold the cells of other rows than `X` has at their places.

    That is so if one of them, or `X` beside an array, is computed again whenever it is looked at, perhaps in another
    order; or if `X` and one of them are of pandas and have different indexes.
    """
    given = {
        name: column
        for name, column in columns.items()
        if column is not None and not isinstance(column, str)
    }
    if not given:
        return
    for name, rows in {**given, "X": X}.items():
        if is_lazy(rows):
            raise InvalidDataError(
                f"`{name}` is a lazy frame or a relation, whose rows may come in another order each time. Compute the "
                "private rows once, for example by `collect()` or `df()`, or pass `y` and `entity_ids` as names of "
                "columns."
            )
    index = _index(X)
    for name, column in given.items():
        other = _index(column)
        if index is not None and other is not None and not index.equals(other):
            raise InvalidDataError(
                f"`{name}` must have the index of `X`, in the same order. Select its rows by `{name}.loc[X.index]`, or "
                f"pass `{name}.to_numpy()` if the rows are in the right order."
            )


def _index(rows: Any) -> Any:
    """Return the index of a frame or column of pandas."""
    index = getattr(rows, "index", None)
    return index if type(index).__module__.partition(".")[0] == "pandas" else None


def public_features(X_public: Any, *special: Any) -> Any:
    """Return public rows without the columns of labels and ids, if they have names."""
    public = as_table(X_public)
    return (
        X_public
        if public is None
        else public.without([name for name in special if isinstance(name, str)])
    )


def labels_of_public(X_public: Any, y: Any) -> Array | None:
    """Return the known labels of public rows, given or in a column of them; None if fewer than two classes occur."""
    if isinstance(y, str):
        table = as_table(X_public)
        if table is None or y not in table.columns:
            return None
        y = table.column(y)
    cells = np.asarray([] if y is None else column_array(y))
    known = cells[[not is_missing(cell) for cell in cells.tolist()]]
    return known if len(set(map(cell_text, known.tolist()))) > 1 else None


def dense_rows(rows: Any) -> Any:
    """Return `rows`, images as one row of numbers each; refuse sparse ones."""
    refuse_containers(rows)
    if issparse(rows):
        raise InvalidDataError(
            "Rows must be a dense array or a table. Got a sparse matrix; call its `toarray()`."
        )
    return (
        rows.reshape(len(rows), -1)
        if isinstance(rows, np.ndarray) and rows.ndim in (3, 4)
        else rows
    )


def refuse_containers(rows: Any) -> None:
    """Refuse what holds rows and is not the rows themselves."""
    if isinstance(rows, str | PathLike):
        raise InvalidDataError(
            f"Rows must be an array or a table. Got a {type(rows).__name__}; use read_table(path)."
        )


def require_no_columns(feature_map: Any, owner: str, name: str) -> None:
    """Refuse a map that takes named columns: these come before the map of features, which takes numbers."""
    steps = (
        [step for _, step in feature_map.steps]
        if isinstance(feature_map, Pipeline)
        else [feature_map]
    )
    for step in steps:
        if isinstance(step, PublicColumns) or (isinstance(step, PublicTransformer) and step.kinds):
            raise InvalidParameterError(
                f"{owner}.{name}",
                "take numbers",
                "a map of named columns",
                "Pass it as $columns, and the steps after it as $features.",
            )
