"""What a public feature map is, and the only rows that one may be learned from.

A statistic over all private rows (a mean, a vocabulary, a principal axis) would let one person move every teacher. So
a map here holds everything it knows in its constructor: it was given as a public parameter, or it was learned by a
``learn`` that takes `PublicRows` and nothing else. Its ``fit`` learns nothing, wherever a pipeline calls it.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, Self, cast, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from tutelage._typing import Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError


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
        """Return the features of these rows, which are public like the rows."""
        return PublicRows(feature_map.transform(self.values), self.source)


class FeatureMap(Protocol):
    """A fixed function of one row: it may be applied to private rows without any cost, and published."""

    def transform(self, X: npt.NDArray[Any]) -> Matrix:
        """Return the features of each row, shape (rows, features)."""
        ...


class PublicFeatureMap(TransformerMixin, BaseEstimator):
    """Base of the maps in this package: a scikit-learn transformer whose ``fit`` learns nothing.

    Subclasses keep what they know in constructor parameters, so that a clone, a pipeline and a file keep it too.
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  scikit-learn's signature
        """Return the map unchanged: whatever it knows was public before."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


def require_public_map(features: object, owner: str) -> FeatureMap:
    """Return `features` if nothing in it can have been fitted on private rows.

    Raises
    ------
    InvalidParameterError
        If it is neither a map of this package, nor derived from `PublicFeatureMap`, nor a pipeline of such.
    """
    parts = [step for _, step in features.steps] if isinstance(features, Pipeline) else [features]
    for part in parts:
        if not isinstance(part, PublicFeatureMap):
            raise InvalidParameterError(
                f"`features` of {owner} must be a public feature map or a pipeline of such, so that no statistic of "
                f"private rows is in it. Got a {type(part).__name__}; a map of your own derives from PublicFeatureMap."
            )
    return cast("FeatureMap", features)


def require_public(rows: object, owner: str) -> PublicRows:
    """Return `rows` if they were declared public.

    Raises
    ------
    InvalidParameterError
        If they are anything else, whatever they hold.
    """
    if not isinstance(rows, PublicRows):
        raise InvalidParameterError(
            f"{owner} is learned from public rows only: a statistic of private rows would let one person move every "
            f'teacher. Got a {type(rows).__name__}; if these rows are public, say so by PublicRows(X, source="...").'
        )
    return rows
