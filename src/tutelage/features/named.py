"""Rows whose columns have names, as the numbers that teachers and students take."""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.typing import Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.columns import PublicColumns
from tutelage.tables import Table, as_table


class NamedRows(NamedTuple):
    """Private and public rows that have named columns, as numbers.

    Parameters
    ----------
    columns : PublicColumns
        What the columns are, by the public rows or as declared.
    private, public : array of shape (rows, columns)
        The rows as numbers.
    table : Table
        The private rows with all their columns.
    """

    columns: PublicColumns
    private: Matrix
    public: Matrix
    table: Table

    def __repr__(self) -> str:
        return "NamedRows(<private rows hidden>)"


def named_rows(X: Any, X_public: Any, declared: PublicColumns | None) -> NamedRows | None:
    """Return rows that have named columns as numbers; None for rows without names.

    Parameters
    ----------
    X, X_public : DataFrame, DuckDB relation, Table, mapping of names to cells, or array
        Private and public rows.
    declared : PublicColumns or None
        What the columns are. Default: learned from the public rows.

    Raises
    ------
    InvalidDataError
        If one of them is sparse, or only one of them has names.
    """
    private, public = as_table(require_dense(X)), as_table(require_dense(X_public))
    if private is None and public is None:
        return None
    if private is None or public is None:
        named, other = ("X_public", "X") if private is None else ("X", "X_public")
        raise InvalidDataError(
            f"`X` and `X_public` must both have named columns, or neither. Only `{named}` has; pass `{other}` with the "
            "same columns."
        )
    columns = PublicColumns.learn(public) if declared is None else declared
    # As arrays, whatever scikit-learn's `set_output` makes of them elsewhere.
    return NamedRows(columns, np.asarray(columns.transform(private)), np.asarray(columns.transform(public)), private)


def by_name(X: Any, y: Any, X_public: Any, entity_ids: Any) -> tuple[Any, Any, Any, Any]:
    """Return private rows, labels, public rows and ids as they are, and names of columns of `X` as these columns.

    Raises
    ------
    InvalidDataError
        If `X` has no column of such a name.
    InvalidParameterError
        If there are no public rows, which could not tell features from labels.
    """
    if not isinstance(y, str) and not isinstance(entity_ids, str):
        return X, y, X_public, entity_ids
    private = as_table(X)
    if private is None or X_public is None:
        raise InvalidParameterError(
            "`y` and `entity_ids` may be names of columns only if `X` and `X_public` have some."
        )
    cells, ids = (private.column(name) if isinstance(name, str) else name for name in (y, entity_ids))
    names = [name if isinstance(name, str) else None for name in (y, entity_ids)]
    return private, cells, public_features(X_public, *names), ids


def public_features(X_public: Any, *special: str | None) -> Any:
    """Return public rows without the columns of labels and ids, if they have names."""
    public = as_table(X_public)
    return X_public if public is None else public.without([name for name in special if name is not None])


def require_dense(rows: Any) -> Any:
    """Return `rows`, or refuse them if they are sparse."""
    if issparse(rows):
        raise InvalidDataError("Rows must be a dense array or a table. Got a sparse matrix; call its `toarray()`.")
    return rows


def without_columns(*feature_maps: Any | None) -> tuple[PublicColumns | None, list[Any | None]]:
    """Return the columns that feature maps begin with, if any do, and the maps without them.

    Raises
    ------
    InvalidParameterError
        If two maps begin with other columns.
    """
    parts = [
        feature_map.steps if isinstance(feature_map, Pipeline) else [("", feature_map)] for feature_map in feature_maps
    ]
    found = [steps[0][1] for steps in parts if isinstance(steps[0][1], PublicColumns)]
    if any(columns is not found[0] for columns in found):
        raise InvalidParameterError("`features` and `student_features` must begin with the same PublicColumns.")
    rest = [[step for _, step in steps if not isinstance(step, PublicColumns)] for steps in parts]
    maps = [None if not steps else steps[0] if len(steps) == 1 else make_pipeline(*steps) for steps in rest]
    return (found[0] if found else None), maps
