"""Rows that are not a matrix (named columns, texts, images) as numbers, and the maps that have a name."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import joblib
import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.typing import Matrix, Named
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicRows, features_of_private
from tutelage.features.cells import TEXT, columns_of, named_cells
from tutelage.features.columns import PublicColumns
from tutelage.features.fitted import PublicTransformer
from tutelage.features.images import image_features
from tutelage.features.learned import PublicPCA, PublicSteps
from tutelage.tables import Table, as_table, is_missing, of_narwhals, require_same_types

ColumnMap = PublicColumns | PublicTransformer
_COMPONENTS, _OF_IMAGES = 64, 200
TABLE_MAP_OF_PEOPLE, IMAGE_MAP_OF_PEOPLE = "steps", "images"
"""The maps for tables and images where every person is a teacher, unless another one is named."""


class Columns(NamedTuple):
    """How many columns, the first ones, are numbers, and how many, the last ones, are features of texts."""

    numbers: int
    features: int = 0


def _principal_axes(public: PublicRows, components: int | None, image_shape: Sequence[int] | None, _: Columns) -> Any:
    _refuse_image_shape(image_shape)
    return PublicPCA.learn(public, components or _COMPONENTS, whiten=True)


def _steps(public: PublicRows, _: int | None, image_shape: Sequence[int] | None, columns: Columns) -> Any:
    _refuse_image_shape(image_shape)
    return PublicSteps.learn(public, columns.numbers, n_features=columns.features)


def _image_features(public: PublicRows, components: int | None, shape: Sequence[int] | None, _: Columns) -> Any:
    return image_features(public, None if shape is None else tuple(shape), n_components=components or _OF_IMAGES)


def _refuse_image_shape(image_shape: Sequence[int] | None) -> None:
    if image_shape is not None:
        raise InvalidParameterError("`image_shape` belongs to the map `images`. Leave it out.")


# Names for configurations. Each takes public rows, a number of components (None for its default), the shape of
# images, and which columns are numbers and features.
FEATURE_MAPS: Mapping[str, Named[Any]] = {
    "images": Named(_image_features, "for small images of things: edges and brightness"),
    "pca": Named(_principal_axes, "principal axes of the public rows"),
    "steps": Named(_steps, "for tables: numbers as steps at public quantiles, categories as 0/1 columns"),
}


class NumberedRows(NamedTuple):
    """Private and public rows that were not a matrix, as numbers."""

    private: Matrix
    public: Matrix
    columns: ColumnMap | None = None  # what they are, by the public rows or as declared; None for images
    table: Table | None = None  # the private rows with all their columns; None for images
    image_shape: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return "NumberedRows(<private rows hidden>)"

    def default_map(self) -> Any:
        """Return the map for people who cast ballots, learned from the public rows."""
        public = PublicRows(self.public, "X_public")
        if isinstance(self.columns, PublicColumns):
            known = Columns(len(self.columns.numbers), self.columns.n_text_features)
            return FEATURE_MAPS[TABLE_MAP_OF_PEOPLE](public, None, None, known)
        return FEATURE_MAPS[IMAGE_MAP_OF_PEOPLE](public, None, self.image_shape, Columns(0))


def numbered_rows(X: Any, X_public: Any, declared: ColumnMap | None) -> NumberedRows | None:
    """Return rows with named columns, texts and images as numbers; None for rows that are a matrix.

    The types of the columns are `declared`, or learned from the public rows. Refused are sparse rows, names that only
    one of them has, a column of two types, and images of two shapes.
    """
    if isinstance(X, np.ndarray) and X.ndim > 2:
        return _images(X, X_public)
    private, public = named_cells(dense_rows(X)), named_cells(dense_rows(X_public))
    if private is None and public is None:
        return None
    if private is None or public is None:
        named, other = ("X_public", "X") if private is None else ("X", "X_public")
        raise InvalidDataError(
            f"`X` and `X_public` must both have named columns, or neither. Only `{named}` has; pass `{other}` with the "
            "same columns."
        )
    if declared is None:
        kinds = {TEXT: "text"} if as_table(X_public) is None else None  # one column of texts, which has no name
        declared = PublicColumns.learn(public, kinds=kinds)
    columns_of(private, declared.names)  # which refuses rows that lack one
    require_same_types(private, public, declared.names)
    if isinstance(declared, PublicColumns):
        # As arrays, whatever scikit-learn's `set_output` makes of them elsewhere.
        numbers, of_public = (np.asarray(declared.transform(rows)) for rows in (private, public))
        return NumberedRows(numbers, of_public, declared, private)
    found, cells = np.asarray(declared.transform(public)), declared.cells(private)
    # Which rows are of one shard is not known yet, so each is taken by itself.
    by_itself = features_of_private(declared, cells, np.arange(len(cells))[:, np.newaxis], found.shape[1])
    return NumberedRows(by_itself, found, declared, private)


def require_same_rows(X: Any, **columns: Any) -> None:
    """Refuse columns that may hold the cells of other rows than `X` has at their places.

    That is so if one of them, or `X` beside an array, is computed again whenever it is looked at, perhaps in another
    order; or if `X` and one of them are of pandas and have different indexes.
    """
    given = {name: column for name, column in columns.items() if column is not None and not isinstance(column, str)}
    looked_at = {**given, "X": X} if given else {}
    lazy = next((name for name, rows in looked_at.items() if isinstance(of_narwhals(rows), nw.LazyFrame)), None)
    if lazy is not None:
        raise InvalidDataError(
            f"`{lazy}` is a lazy frame or a relation, whose rows may come in another order each time. Compute the "
            "private rows once, for example by `collect()` or `df()`, or pass `y` and `entity_ids` as names of columns."
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


def by_name(X: Any, y: Any, X_public: Any, entity_ids: Any) -> tuple[Any, Any, Any, Any]:
    """Return private rows, labels, public rows and ids as they are, and names of columns of `X` as these columns.

    Without public rows, features could not be told from labels.
    """
    for rows in (X, X_public):
        _refuse_containers(rows)
    if not isinstance(y, str) and not isinstance(entity_ids, str):
        return X, y, X_public, entity_ids
    if X_public is None:
        raise InvalidParameterError(
            "`y` and `entity_ids` may be names of columns only with public rows; pass X_public."
        )
    private = as_table(X)
    if private is None:
        raise InvalidParameterError("`y` and `entity_ids` may be names of columns only if `X` has named columns.")
    cells, ids = (private.column(name) if isinstance(name, str) else name for name in (y, entity_ids))
    names = [name if isinstance(name, str) else None for name in (y, entity_ids)]
    return private, cells, public_features(X_public, *names), ids


def public_features(X_public: Any, *special: str | None) -> Any:
    """Return public rows without the columns of labels and ids, if they have names."""
    public = as_table(X_public)
    return X_public if public is None else public.without([name for name in special if name is not None])


def labels_of_public(X_public: Any, y: Any) -> npt.NDArray[Any] | None:
    """Return the known labels of public rows, if `y` names a column that they have, and it has two classes or more."""
    table = as_table(X_public) if isinstance(y, str) and X_public is not None else None
    if table is None or y not in table.columns:
        return None
    cells = np.asarray(table.column(y))
    known = cells[[not is_missing(cell) for cell in cells.tolist()]]
    return known if len(set(known.tolist())) > 1 else None


def _images(X: Any, X_public: Any) -> NumberedRows:
    shape = X.shape[1:]
    if len(shape) > 3 or np.shape(X_public)[1:] != shape:
        raise InvalidDataError(
            "Images must have shape (rows, height, width) or (rows, height, width, channels), in `X` and `X_public` "
            f"alike. Got shapes {np.shape(X)} and {np.shape(X_public)}."
        )
    return NumberedRows(dense_rows(X), dense_rows(X_public), image_shape=shape)


def dense_rows(rows: Any) -> Any:
    """Return `rows`, images as one row of numbers each; refuse sparse ones."""
    _refuse_containers(rows)
    if issparse(rows):
        raise InvalidDataError("Rows must be a dense array or a table. Got a sparse matrix; call its `toarray()`.")
    return rows.reshape(len(rows), -1) if isinstance(rows, np.ndarray) and rows.ndim in (3, 4) else rows


def _refuse_containers(rows: Any) -> None:
    """Refuse what holds rows and is not the rows themselves."""
    if isinstance(rows, str | PathLike):
        raise InvalidDataError(f"Rows must be an array or a table. Got a {type(rows).__name__}; use read_table(path).")


def without_columns(*feature_maps: Any | None) -> tuple[ColumnMap | None, list[Any | None]]:
    """Return the columns that feature maps begin with, if any do, and the maps without them."""
    parts = [
        feature_map.steps if isinstance(feature_map, Pipeline) else [("", feature_map)] for feature_map in feature_maps
    ]
    found = [steps[0][1] for steps in parts if _takes_columns(steps[0][1])]
    if any(columns is not found[0] and joblib.hash(columns) != joblib.hash(found[0]) for columns in found):
        raise InvalidParameterError("All `features` and `student_features` must begin with the same PublicColumns.")
    rest = [[step for _, step in steps if not _takes_columns(step)] for steps in parts]
    maps = [None if not steps else steps[0] if len(steps) == 1 else make_pipeline(*steps) for steps in rest]
    return (found[0] if found else None), maps


def _takes_columns(step: Any) -> bool:
    return isinstance(step, PublicColumns) or (isinstance(step, PublicTransformer) and bool(step.kinds))
