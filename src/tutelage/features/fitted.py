"""Maps of other libraries as public feature maps: fitted here on public rows, or with weights that are public.

A transformer of scikit-learn is cloned and fitted by `PublicTransformer.learn`, so that nothing in it comes from a
private row. An encoder that was trained elsewhere cannot be fitted here: `PublicEncoder` states where its weights come
from.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any, Self, cast, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from tutelage._internal.fitting import arrays_out, clone_with
from tutelage._internal.records import settable
from tutelage._internal.typing import Array, FloatArray, Matrix, is_array
from tutelage.exceptions import InvalidDataError, InvalidParameterError, Problem, literal
from tutelage.features.base import (
    PublicFeatureMap,
    check_row_by_row,
    parts_of,
    require_public,
)
from tutelage.features.cells import (
    DAY,
    TEXT,
    as_texts,
    columns_of,
    in_numbers,
    kind_of,
    named_cells,
)
from tutelage.tables import Table, as_table

_MOST_FEATURES = 2**16
_ROWS_FOR_WIDTH = 2  # public rows on which a new map must give a matrix
# Packages whose objects keep nothing of the rows that they transform. Random streams are the exception.
_STATELESS = ("builtins", "collections", "copyreg", "numpy", "scipy", "sklearn", "tutelage")
_STATEFUL = "numpy.random"
_BY_ROW = (
    Binarizer, CountVectorizer, HashingVectorizer, MaxAbsScaler, MinMaxScaler, OneHotEncoder, OrdinalEncoder,
    RobustScaler, SimpleImputer, StandardScaler, TfidfTransformer, TfidfVectorizer,
)  # fmt: skip
_ENCODING = Lock()


class _Vouched(PublicFeatureMap):
    """A map whose parts are not of this package. It holds for its lifetime what it was made with."""

    source: str
    row_by_row: bool

    def __sklearn_clone__(self) -> Self:
        return copy(self)  # a clone of scikit-learn would forget what was learned

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the names of the parts and where they come from, and nothing that was learned."""
        stated = f"{self._part_name}, source={self.source!r}, row_by_row={self.row_by_row}"
        return f"{type(self).__name__}({stated})"[:N_CHAR_MAX]

    @property
    def _part_name(self) -> str:
        raise NotImplementedError


@final
@settable
class PublicTransformer(_Vouched):
    """A transformer of scikit-learn that was fitted on public rows; made by `learn`.

    Any transformer or pipeline is accepted. A transformer that was fitted elsewhere is refused, because its rows cannot
    be checked. If these were public, pass its ``transform`` to `PublicEncoder`.
    """

    fitted: Any
    source: str  # where the public rows come from, for reports
    # Whether the features of a row do not depend on the rows beside it, to the last bit.
    row_by_row: bool = False
    # The columns of rows that have named ones, by the public rows: number, date or text. Texts alone are one column.
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    library: str = ""  # of the frames that the transformer gets; empty for a matrix or texts

    def __post_init__(self) -> None:
        raise InvalidParameterError(
            "PublicTransformer.transformer",
            "be fitted by PublicTransformer.learn(transformer, public), because the rows of other fits are unknown",
            fix="If its weights are public, use PublicEncoder.",
        )

    @classmethod
    def learn(
        cls,
        transformer: object,
        public: Any,
        *,
        row_by_row: bool | None = None,
        source: str = "the public table",
    ) -> Self:
        """Clone a transformer, fit the clone on public rows and return it as a public feature map.

        Parameters
        ----------
        transformer : scikit-learn transformer or pipeline
            Whether it was fitted before does not matter: the clone forgets it.
        public : PublicRows, or rows with named columns
            Rows of numbers, or texts, as the transformer takes them. Of a DataFrame, a DuckDB relation, a `Table` or a
            mapping of names to cells, all columns are features; the transformer gets frames of pandas or Polars, whose
            columns are numbers, dates or text by the public rows. A ``ColumnTransformer`` takes these.
        row_by_row : bool, optional
            True is your statement that the features of a row do not depend on the rows beside it, to the last bit.
            Private rows then go through the map in large blocks. Products of sparse rows qualify; products of dense
            rows do not, because their rounding depends on the number of rows. It is checked on the public rows. False
            sends private rows through the map one shard at a time, and those with named columns one by one, which is
            always safe, and slower. Default: True for scaling, one-hot and ordinal codes, simple imputing, counts of
            words and TF-IDF, and for chains of these; otherwise False.
        source : str
            Where public rows with named columns come from, for reports.
        """
        table = as_table(public)
        if table is None:
            require_public(public, "PublicTransformer")
        _require_transformer(transformer)
        kinds = dict[str, str]()
        library = ""
        if table is None:
            values: Array = public.values
            source = public.source
            if values.ndim == 1:
                kinds = {TEXT: "text"}
        else:
            kinds = _frame_kinds(table)
            library = _frame_library(public)
            values = _rows_of(table, tuple(kinds))
        try:
            fitted = clone_with(transformer)
            _require_fresh(fitted)
            rows = _as_frame(values, kinds, library) if library else values
            with arrays_out():
                fitted.fit(rows)
        except Exception as error:
            raise InvalidParameterError(
                "PublicTransformer.learn.transformer",
                "support cloning, and fitting on the public rows without labels",
                fix=f"It raised {type(error).__name__}: {literal(error)}",
            ) from None
        learned = cls.__new__(cls)
        vars(learned).update(
            fitted=fitted,
            source=source,
            row_by_row=row_by_row is True,
            kinds=kinds,
            library=library,
        )
        width = learned.transform(values[:_ROWS_FOR_WIDTH]).shape[1]
        if width > _MOST_FEATURES:
            raise InvalidDataError(
                f"`transformer` of PublicTransformer.learn must make at most {_MOST_FEATURES} features, for they "
                f"become dense. Got {width}; add a TruncatedSVD, or use text_features."
            )
        if learned.row_by_row:
            check_row_by_row(learned, values)
        if row_by_row is None:
            learned.row_by_row = _is_known_by_row(fitted) and learned.keeps_nothing()
        return learned

    def transform(self, X: Any) -> FloatArray:
        """Return the features as 64-bit floats, shape (rows, features); sparse ones are made dense."""
        rows = X
        if self.library:
            rows = _as_frame(X, self.kinds, self.library)
        elif self.kinds:
            rows = _only_texts(X)
        # Frames cannot hold the sparse rows of a step in between.
        with arrays_out():
            features = self.fitted.transform(rows)
        return _dense_features(features, len(rows), "PublicTransformer")

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Any:
        """Return the names that the transformer gives, or None where it gives none."""
        if self.kinds:
            input_features = None
        try:
            return self.fitted.get_feature_names_out(input_features)
        except (AttributeError, NotImplementedError, ValueError):  # of a step without names
            return None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, where they have some: texts are one column."""
        return tuple(self.kinds)

    def cells(self, table: Table) -> Array:
        """Return the cells of rows with named columns as an array that `transform` takes, or texts."""
        if self.library:
            return _rows_of(table, self.names)
        return _only_texts(table)

    def keeps_nothing(self) -> bool:
        """Return whether all parts are of scikit-learn, numpy and scipy, which keep nothing of rows they transform."""
        parts = _all_in(self.fitted, (np.ufunc, type))
        return all(_is_stateless(part) for part in parts)

    @property
    def _part_name(self) -> str:
        return type(self.fitted).__name__


@final
@settable
class PublicEncoder(_Vouched):
    """A function from rows to features whose weights are public, such as a network that was trained on public images.

    Its training rows cannot be determined, so `source` is your statement that no private row did. It is also your
    statement that the function keeps nothing of the rows that it was called with. Private rows go through it one shard
    at a time.

    Parameters
    ----------
    encode : callable
        Takes rows, an array of shape (rows, numbers), and returns features of shape (rows, features). A student is
        saved with it, in a file that opens only for readers who vouch for the function.
    source : str
        Where the weights come from, for reports: ``"ResNet-18, trained on ImageNet"``.
    row_by_row : bool
        Your statement that the features of a row do not depend on the rows beside it, to the last bit; see
        `PublicTransformer.learn`. Dense networks do not qualify.
    """

    encode: Callable[[Matrix], Any]
    source: str
    row_by_row: bool = False

    def __post_init__(self) -> None:
        if not callable(self.encode):
            got = f"a {type(self.encode).__name__}"
            raise InvalidParameterError(
                "PublicEncoder.encode", "be a function from rows to features", got
            )
        source: Any = self.source
        if not isinstance(source, str) or not source.strip():
            raise InvalidParameterError(
                "PublicEncoder.source",
                "state where the weights come from",
                f"{self.source!r}",
                "Their training must not have used private rows.",
            )

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the features as 64-bit floats, shape (rows, features)."""
        rows = np.asarray(X)
        with _ENCODING:  # a function of somebody else may not bear several calls at once
            features = self.encode(rows)
        return _dense_features(features, len(rows), "PublicEncoder")

    @property
    def _part_name(self) -> str:
        return getattr(self.encode, "__name__", type(self.encode).__name__)


def _require_transformer(transformer: object) -> None:
    got = f"{type(transformer)}"
    if isinstance(transformer, type):
        got = transformer.__name__
    elif hasattr(transformer, "fit") and hasattr(transformer, "transform"):
        return
    raise InvalidParameterError(
        "PublicTransformer.learn.transformer",
        "be a scikit-learn transformer, which has `fit` and `transform`",
        got,
    )


def _is_known_by_row(part: Any) -> bool:
    """Return whether a transformer works element by element, or adds up along one sparse row, to the last bit."""
    if isinstance(part, str):  # "drop" and "passthrough"
        return True
    kind = cast("type[object]", type(part))
    if kind is Pipeline:
        return all(_is_known_by_row(step) for step in parts_of(part))
    if kind is FeatureUnion:
        return all(_is_known_by_row(step) for _, step in part.transformer_list)
    if kind is ColumnTransformer:
        return all(_is_known_by_row(step) for _, step, _ in part.transformers_)
    if kind is FunctionTransformer:  # "passthrough", fitted
        return part.func is None
    return kind in _BY_ROW


def _dense_features(
    features: Any,
    n_rows: int,
    owner: str,
) -> FloatArray:
    if issparse(features):
        features = features.toarray()
    elif hasattr(features, "detach"):  # of torch
        features = features.detach().cpu().numpy()
    dense: Array = np.asarray(features)
    if dense.dtype.kind not in "buif" or dense.ndim != 2 or len(dense) != n_rows:
        raise InvalidDataError(
            f"{owner} must make a row of numbers of each of {n_rows} rows. Got {dense.dtype} of shape {dense.shape}."
        )
    return dense.astype(np.float64)


def _problem_of_fit(part: str) -> Problem:
    return Problem(
        "PublicTransformer.learn.transformer",
        "have no part that keeps an earlier fit, because the rows of that fit cannot be checked",
        part,
        "Leave it out, or use PublicEncoder if its weights are public.",
    )


def _require_fresh(transformer: object) -> None:
    """Refuse an unfitted transformer in which something stays fitted: a frozen part, or a method of a fitted one."""
    for part in _all_in(transformer, PublicFeatureMap):
        kind: Any = type(part)
        plain_clone = BaseEstimator.__sklearn_clone__
        own_clone = getattr(kind, "__sklearn_clone__", plain_clone)
        if own_clone is not plain_clone and not isinstance(part, PublicFeatureMap):
            raise InvalidParameterError(*_problem_of_fit(kind.__name__))
        owner = getattr(part, "__self__", None)
        if isinstance(owner, BaseEstimator) and any(name.endswith("_") for name in vars(owner)):
            raise InvalidParameterError(*_problem_of_fit(f"a method of {type(owner).__name__}"))


def _is_stateless(part: object) -> bool:
    """Return whether a part is of libraries that keep nothing of the rows that they transform."""
    if isinstance(part, np.ufunc):  # others may hold a function of Python
        return getattr(np, part.__name__, None) is part
    definition = part if hasattr(part, "__qualname__") else type(part)
    module = str(getattr(definition, "__module__", None) or "builtins")
    return module.partition(".")[0] in _STATELESS and not module.startswith(_STATEFUL)


def _all_in(
    whole: object,
    closed: type | tuple[type, ...],
) -> Iterator[object]:
    """Yield an object and all that it consists of, each once; those of the closed kinds are not looked into."""
    seen = dict[int, Any]()
    waiting = [whole]
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen[id(part)] = part  # kept, so that no other gets its id
            yield part
            if not isinstance(part, closed):
                waiting += reversed(_inside(part))


_SERIES: Any = (list, tuple, set, frozenset)
_MAPPING: Any = dict


def _inside(part: Any) -> list[Any]:
    """Return the parts of an object that can hold others."""
    if isinstance(part, _MAPPING):
        return [*part, *part.values()]
    if isinstance(part, _SERIES):
        return [*part]
    if is_array(part):
        return part.tolist() if part.dtype == object else []
    return [getattr(part, "__self__", None), *getattr(part, "__dict__", {}).values()]


_LIBRARIES = ("pandas", "polars")


def _frame_kinds(table: Table) -> dict[str, str]:
    """Return the kind of each public column, as a frame holds it: number, date or text."""
    kinds = dict[str, str]()
    for name in table.columns:
        kind = kind_of(table, name, short_texts=True)
        kinds[name] = kind if isinstance(kind, str) else "text"
    return kinds


def _frame_library(rows: object) -> str:
    """Return the library whose frames scikit-learn is to get: that of the rows, or one that is installed."""
    own = type(rows).__module__.partition(".")[0]
    for name in (own, *_LIBRARIES):
        if name in _LIBRARIES and find_spec(name):
            return name
    raise InvalidDataError(
        "Rows with named columns go into a transformer as frames. Install pandas or Polars."
    )


def _as_frame(
    X: object,
    kinds: Mapping[str, str],
    library: str,
) -> Any:
    """Return rows as a frame whose columns have the kinds of the public ones, whatever the cells of these rows are.

    Numbers become 64-bit floats, dates moments in microseconds, and everything else text, in which an empty cell is
    blank.
    """
    columns = dict[str, Array]()
    for name, cells in columns_of(X, kinds).items():
        kind = kinds[name]
        if kind == "text":
            columns[name] = as_texts(cells)
            continue
        numbers = in_numbers(cells, kind, f"Column '{name}'")
        columns[name] = numbers
        if kind == "date":
            moments = np.rint(np.nan_to_num(numbers) * DAY).astype("datetime64[us]")
            columns[name] = np.where(np.isnan(numbers), np.datetime64("NaT"), moments)
    return import_module(library).DataFrame(columns)


def _only_texts(rows: object) -> Array:
    """Return the texts of rows that have no other column."""
    table = named_cells(rows)
    got = f"a {type(rows).__name__}"
    if table is not None:
        columns = [*table.columns.values()]
        if len(columns) == 1:
            return as_texts(columns[0])
        got = f"{len(columns)} columns"
    raise InvalidDataError(
        f"Rows of a map of texts must be texts: a list, an array or a column of them. Got {got}."
    )


def _rows_of(table: Table, names: Sequence[str]) -> Array:
    """Return the cells of named columns as rows, shape (rows, columns)."""
    columns = columns_of(table, names).values()
    return np.stack([cells.astype(object) for cells in columns], axis=1)
