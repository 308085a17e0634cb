"""What a public feature map is, and the only rows that one may be learned from.

A statistic over all private rows (a mean, a vocabulary, a principal axis) would let one person move every teacher. So
a map here holds everything it knows in its constructor: it was given as a public parameter, or it was learned by a
``learn`` that takes `PublicRows` and nothing else. Its ``fit`` learns nothing, wherever a pipeline calls it.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

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
