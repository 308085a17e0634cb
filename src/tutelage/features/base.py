"""What a public feature map is, and the only rows that one may be learned from.

A statistic over all private rows (a mean, a vocabulary, a principal axis) would let one person move every teacher. So
a map here holds everything it knows in its constructor: it was given as a public parameter, or it was learned by a
``learn`` that takes `PublicRows` and nothing else. Its ``fit`` learns nothing, wherever a pipeline calls it.
"""

import warnings
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, cast, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.typing import Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError

_ROWS_TRIED = 512


@final
@dataclass(frozen=True, slots=True, eq=False)
class PublicRows:
    """Rows that their owner declares public: whoever they are about gets no protection here.

    Parameters
    ----------
    values : array of shape (rows, ...)
        The rows.
    source : str
        Where they come from, for reports: ``"MNIST test images 0 to 8999"``.

    Raises
    ------
    InvalidDataError
        If there is no row.
    """

    values: npt.NDArray[Any] = field(repr=False)
    source: str

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if values.ndim < 2 or len(values) == 0:
            raise InvalidDataError(f"PublicRows must hold at least one row of features. Got shape {values.shape}.")
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        return len(self.values)

    def through(self, feature_map: "FeatureMap") -> "PublicRows":
        """Return the features of these rows, public like the rows and the map; another map is refused."""
        return PublicRows(require_public_map(feature_map, "PublicRows.through").transform(self.values), self.source)


class FeatureMap(Protocol):
    """A fixed function of one row: it may be applied to private rows without any cost, and published."""

    def transform(self, X: npt.NDArray[Any]) -> Matrix:
        """Return the features of each row, shape (rows, features).

        Raises
        ------
        InvalidDataError
            If `X` does not hold such rows as the map takes: most maps take finite numbers in a known number of columns.
        """
        ...


class PublicFeatureMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all public maps, yours too: a scikit-learn transformer whose ``fit`` learns nothing.

    Subclasses define ``transform`` and keep what they know in constructor parameters, so that a clone, a pipeline and a
    file keep it too. The features of a row are to depend on that row alone, *to the last bit*: no statistic over the
    rows of a call, and no plain matrix product, which rounds by how many rows there are (`PublicProjection` does not).
    With a property ``_n_features_out``, as scikit-learn's transformers have it, the features get names.
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  scikit-learn's signature
        """Return the map unchanged: whatever it knows was public before."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Any:
        """Return a name for each feature; None, for numbers in place of names, where their count is not known."""
        return super().get_feature_names_out(input_features) if hasattr(self, "_n_features_out") else None

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the parameters, of arrays only their shapes: what a map learned may be the public rows themselves."""
        parts = [f"{name}={_short(value)}" for name, value in self.get_params(deep=False).items()]
        return f"{type(self).__name__}({', '.join(parts)})"[:N_CHAR_MAX]


def _short(value: object) -> str:
    return f"<array of shape {value.shape}>" if isinstance(value, np.ndarray) else repr(value)


def require_public_map(features: object, owner: str, name: str = "features") -> FeatureMap:
    """Return `features` if nothing in it is fitted to rows.

    Raises
    ------
    InvalidParameterError
        If it is neither a map of this package, nor derived from `PublicFeatureMap` with a ``fit`` that learns nothing,
        nor a plain pipeline of such.
    """
    parts = [step for _, step in features.steps] if type(features) is Pipeline else [features]
    for part in parts:
        if not isinstance(part, PublicFeatureMap) or type(part).fit is not PublicFeatureMap.fit:
            raise InvalidParameterError(
                f"`{name}` of {owner} must be a public feature map or a pipeline of such, so that no statistic of "
                f"private rows is in it. Got a {type(part).__name__}; a map of your own derives from PublicFeatureMap "
                "and leaves its `fit` alone."
            )
    return cast("FeatureMap", features)


def chained(*feature_maps: Any | None) -> Any:
    """Return one map that applies those given, one after the other; None stands for no map."""
    steps: list[Any] = []
    for each in feature_maps:
        steps += [step for _, step in each.steps] if isinstance(each, Pipeline) else [each] if each is not None else []
    return make_pipeline(*steps)


def check_row_by_row(features: FeatureMap, X_public: npt.NDArray[Any]) -> None:
    """Refuse a map that, on public rows, gives a row other features when other rows are beside it.

    The first few hundred rows are tried.

    Raises
    ------
    InvalidParameterError
        If a bit of a row's features depends on the rows beside it.
    """
    rows = X_public[:_ROWS_TRIED]
    third = max(1, len(rows) // 3)
    with np.errstate(all="ignore"):  # a map that divides by a spread warns about a single row
        whole = np.asarray(features.transform(np.array(rows)))
        backwards = features.transform(np.array(rows[::-1]))[::-1]
        others = [backwards, *(features.transform(np.array(rows[:count])) for count in (1, third))]
    for other in others:
        if np.asarray(other).tobytes() != np.ascontiguousarray(whole[: len(other)]).tobytes():
            raise InvalidParameterError(
                "`features` gives a row other features when other rows are beside it, so that one person would move "
                "several teachers. Compute each row by itself, to the last bit; for a matrix product use "
                "PublicProjection."
            )


def features_of_private(
    features: FeatureMap, X: npt.NDArray[Any], shards: Iterable[npt.NDArray[np.integer[Any]]], n_features: int
) -> Matrix:
    """Return the features of private rows, as one that never saw rows of two shards at once would give them.

    A map of this package takes all rows in one call: its features of a row depend on no other. Any other is copied for
    each shard, sees that shard alone, and is thrown away, so neither it nor what it writes down outlives the shard. Of
    an error only its type comes out, and no warning.

    Parameters
    ----------
    features : FeatureMap
        The map.
    X : array of shape (rows, ...)
        Private rows.
    shards : iterable of integer arrays
        Row numbers of each shard.
    n_features : int
        Features that the map makes of a public row.

    Raises
    ------
    InvalidDataError
        If the map raises, or makes something else of private rows than of public ones.
    """
    if _is_ours(features):
        return _quiet_features(features, X)
    found = np.empty((len(X), n_features))  # of one type and width, whatever the map makes of the first shard
    for rows in shards:
        if len(rows):
            part = _quiet_features(features, X[rows])
            if part.shape != (len(rows), n_features) or part.dtype.kind not in "buif":
                raise InvalidDataError(
                    f"The feature map must make {n_features} numbers of each private row, as it does of public ones."
                )
            found[rows] = part
    return found


def _quiet_features(features: FeatureMap, X: npt.NDArray[Any]) -> Matrix:
    interrupted, kind = False, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(deepcopy(features).transform(np.array(X)))
    except KeyboardInterrupt:
        interrupted = True
    except BaseException as error:  # compiled extensions panic with exceptions of their own
        kind = type(error).__name__
    if interrupted:
        raise KeyboardInterrupt
    raise InvalidDataError(
        f"The feature map raised {kind} on private rows. Its message may quote them and is withheld; apply it to "
        "public rows to read it."
    )


def _is_ours(features: object) -> bool:
    parts = [step for _, step in features.steps] if isinstance(features, Pipeline) else [features]
    return all(type(part).__module__.startswith("tutelage.features.") for part in parts)


def require_public(rows: object, owner: str) -> PublicRows:
    """Return `rows` if they were declared public."""
    if not isinstance(rows, PublicRows):
        raise InvalidParameterError(
            f"{owner} is learned from public rows only: a statistic of private rows would let one person move every "
            f'teacher. Got a {type(rows).__name__}; if these rows are public, say so by PublicRows(X, source="...").'
        )
    return rows
