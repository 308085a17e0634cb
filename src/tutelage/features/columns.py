"""Named columns of any kind as numbers, by what a public table or a declaration says they are, and the named maps.

A category list, a mean or a vocabulary fitted over all private rows would let one person move every teacher. So the
type and the categories of each column are read off the public table, and a private value that it does not have gets
the code −1.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from os import PathLike
from typing import Any, NamedTuple, Self, final

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import InputTags, Tags, TargetTags

from tutelage._internal.records import Entries, Names, frozen, settable
from tutelage._internal.typing import Array, Matrix, is_array
from tutelage.exceptions import InvalidDataError, InvalidParameterError, literal, quote
from tutelage.features.base import PublicFeatureMap, PublicRows, features_of_private, parts_of
from tutelage.features.cells import (
    COMMA,
    DAY_FIRST,
    DAYS,
    NUMERIC,
    TEXT,
    Categories,
    ColumnKind,
    as_texts,
    categories_of,
    codes_of,
    columns_of,
    in_numbers,
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
    require_same_types,
)

ColumnKinds = Mapping[str, str | Sequence[Any]]  # by name: a word, or the categories


@final
@settable
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
    forms: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def learn(
        cls,
        public: object,
        names: Sequence[str] | None = None,
        kinds: ColumnKinds | None = None,
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
        if names is None:
            names = tuple(table.columns)
        declared = dict(kinds or {})
        if as_table(public, names) is None:  # texts alone
            declared = {TEXT: "text", **declared}
        _check_kinds(declared, names)
        categories = list[Categories | None]()
        dates = list[str]()
        texts = list[str]()
        forms = dict[str, str]()
        for name in names:
            if name in declared:
                kind = _declared_kind(declared[name])
                require_kind(table, name, kind)
            else:
                kind = kind_of(table, name)
            if not isinstance(kind, str):
                categories.append(kind)
            elif kind == "category":
                categories.append(categories_of(table, name))
            else:
                categories.append(None)
                if kind == "text":
                    texts.append(name)
                if kind in DAYS:
                    dates.append(name)
                if name in declared and kind in (COMMA, "date", DAY_FIRST):
                    forms[name] = kind
        source = table.source or "the public rows"
        maps = list[PublicTransformer]()
        for name in texts:
            cells = as_texts(table.column(name))
            maps.append(text_features(PublicRows(cells, source)))
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
        names = list[str]()
        for name, categories in zip(self.names, self.categories, strict=True):
            if categories is None and name not in self.text_names:
                names.append(name)
        return tuple(names)

    @property
    def categorical(self) -> Names:
        """Names of the columns of categories, whose codes come after them; the features of texts come last."""
        columns = zip(self.names, self.categories, strict=True)
        return tuple(name for name, categories in columns if categories is not None)

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
        names = [*self.numbers, *self.categorical]
        for name, width in zip(self.text_names, self._text_widths, strict=True):
            names += [f"{name}~{axis}" for axis in range(width)]
        return np.array(names, dtype=object)

    def transform(self, X: object) -> Matrix:
        """Return a matrix: first numbers and dates, then the codes of the categories, then the features of texts.

        A column that is missing, or holds text where the public rows hold numbers, is refused; no cell is quoted.
        """
        text_maps: Any = self.text_maps
        for text_map in text_maps:
            if not isinstance(text_map, PublicTransformer) or not text_map.row_by_row:
                raise InvalidParameterError(
                    "PublicColumns.text_maps",
                    "be maps made by `text_features`, because the texts of many people go through them together",
                )
        if not self.names:
            raise InvalidDataError(
                "The rows have no columns to learn from. Pass rows with at least one feature."
            )
        columns = columns_of(X, self.names)
        source = ""
        if isinstance(X, Table) and X.source:
            source = f" of {X.source}"
        kinds = self.kinds
        parts = list[Matrix]()  # of shape (rows,), and (rows, features) of texts
        for name in self.numbers:
            column = f"Column '{name}'{source}"
            numbers = in_numbers(columns[name], str(kinds[name]), column)
            if np.isinf(numbers).any():
                raise InvalidDataError(
                    f"{column} contains infinity, or a number too large. Cells may be missing, but all others must be "
                    "finite."
                )
            parts.append(numbers)
        for name, categories in zip(self.names, self.categories, strict=True):
            if categories is not None:
                column = f"Column '{name}'{source}"
                parts.append(codes_of(columns[name], np.asarray(categories), column))
        for name, text_map in zip(self.text_names, self.text_maps, strict=True):
            parts.append(text_map.transform(as_texts(columns[name])))
        return np.column_stack(parts)


_SERIES: Any = (Sequence, np.ndarray)
KINDS = (*NUMERIC, "category", "text")
"""The words for kinds of columns."""


def _check_kinds(kinds: ColumnKinds, names: Collection[str]) -> None:
    for name, kind in kinds.items():
        if name not in names:
            raise InvalidParameterError(
                "PublicColumns.learn.kinds", "name columns of the public rows", f"{name!r}"
            )
        if isinstance(kind, str) and kind in KINDS:
            continue
        values = list[object]()
        if isinstance(kind, _SERIES) and not isinstance(kind, str):
            values = [*kind]
        if not values or len(set(map(cell_text, values))) < len(values):
            raise InvalidParameterError(
                "PublicColumns.learn.kinds",
                f"give column '{literal(name)}' one of {', '.join(KINDS)}, or the list of its categories, each once",
                quote(kind),
            )


def _declared_kind(kind: str | Sequence[Any]) -> ColumnKind:
    if isinstance(kind, str):
        return kind
    return np.array([cell_text(value) for value in kind])


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


class _NumberedRows(NamedTuple):
    """Public rows as numbers; plain rows are not checked yet."""

    rows: Matrix
    columns: ColumnMap | None = None  # what named columns are, by the rows or as declared
    table: Table | None = None  # the rows as they came, if their columns have names
    image_shape: tuple[int, ...] | None = None

    def feature_map(self, wanted: LearnedMap) -> Any:
        """Return the map, learned from the public rows; by default that for people who cast ballots."""
        name = wanted.name
        if name is None:
            name = TABLE_MAP_OF_PEOPLE if self.image_shape is None else _IMAGE_MAP_OF_PEOPLE
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
        # The more columns, the fewer steps of each.
        n_steps = max(2, min(_STEPS, _MOST_STEPS // max(1, n_numbers)))
        steps = PublicSteps.learn(public, n_numbers, n_steps, n_features=n_features)
        if not n_features and not any(map(len, (*steps.steps, *steps.categories))):
            raise InvalidDataError(
                "The public rows must have a column with different cells. Add columns, or public rows."
            )
        return steps


def numbered_rows(
    X_public: Any,
    declared: ColumnMap | ColumnKinds | None = None,
) -> _NumberedRows:
    """Return public rows with named columns, texts and images as numbers, and rows that are a matrix as they are.

    The kinds of the columns are `declared`, or learned from the rows; a mapping declares some of them.
    """
    if is_array(X_public) and X_public.ndim > 2:
        return _NumberedRows(dense_rows(X_public), image_shape=X_public.shape[1:])
    public = named_cells(dense_rows(X_public))
    if public is None:
        return _NumberedRows(X_public)
    if declared is None or isinstance(declared, Mapping):
        kinds = dict(declared or {})
        if as_table(X_public) is None:  # one column of texts, which has no name
            kinds = {TEXT: "text", **kinds}
        declared = PublicColumns.learn(public, kinds=kinds)
    # As arrays, whatever scikit-learn's `set_output` makes of them elsewhere.
    return _NumberedRows(np.asarray(declared.transform(public)), declared, public)


def numbered_as(
    public: _NumberedRows,
    X: Any,
) -> tuple[Any, Table | None]:
    """Return private rows as numbers in the columns of the public rows, and as a table if their columns have names.

    It refuses sparse rows, names that only one of the two has, a column of two types, and images of two shapes.
    """
    shape = public.image_shape
    if shape is not None or (is_array(X) and X.ndim > 2):
        if shape is None or np.shape(X)[1:] != shape or len(shape) > 3:
            of_public = "others" if shape is None else ("rows", *shape)
            raise InvalidDataError(
                "Images must have shape (rows, height, width) or (rows, height, width, channels), in `X` and "
                f"`X_public` alike. Got shapes {np.shape(X)} and {of_public}."
            )
        return dense_rows(X), None
    private = named_cells(dense_rows(X))
    if (private is None) != (public.table is None):
        with_names = "X"
        without = "X_public"
        if private is None:
            with_names, without = without, with_names
        raise InvalidDataError(
            f"`X` and `X_public` must both have named columns, or neither. Only `{with_names}` has; pass `{without}` "
            "with the same columns."
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
    shards = np.arange(len(cells))[:, np.newaxis]
    return features_of_private(columns, cells, shards, public.rows.shape[1]), private


def require_as_public(
    private: Table,
    public: Table,
    columns: ColumnMap,
) -> None:
    """Refuse private columns that one cell may have changed, beside the public ones: see `require_same_types`."""
    dates = list[str]()
    if isinstance(columns, PublicColumns):
        dates = [name for name, form in columns.forms.items() if form == "date"]
    require_same_types(private, public, columns.names, dates=dates)


def public_features(X_public: Any, *special: object) -> Any:
    """Return public rows without the columns of labels and ids, if they have names."""
    public = as_table(X_public)
    if public is None:
        return X_public
    return public.without([name for name in special if isinstance(name, str)])


def dense_rows(rows: Any) -> Any:
    """Return `rows`, images as one row of numbers each; refuse sparse ones."""
    refuse_containers(rows)
    if issparse(rows):
        raise InvalidDataError(
            "Rows must be a dense array or a table. Got a sparse matrix; call its `toarray()`."
        )
    if is_array(rows) and rows.ndim in (3, 4):
        return rows.reshape(len(rows), -1)
    return rows


def refuse_containers(rows: object) -> None:
    """Refuse what holds rows and is not the rows themselves."""
    kind = type(rows).__name__
    if isinstance(rows, str | PathLike):
        raise InvalidDataError(
            f"Rows must be an array or a table. Got a {kind}; use read_table(path)."
        )


def require_no_columns(
    feature_map: object,
    owner: str,
    name: str,
) -> None:
    """Refuse a map that takes named columns: these come before the map of features, which takes numbers."""
    for step in parts_of(feature_map):
        if isinstance(step, PublicColumns) or (isinstance(step, PublicTransformer) and step.kinds):
            raise InvalidParameterError(
                f"{owner}.{name}",
                "take numbers",
                "a map of named columns",
                "Pass it as $columns, and the steps after it as $features.",
            )
