"""Fitting a clone of a scikit-learn classifier the way teachers and students share."""

from collections.abc import Generator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Protocol, Self, cast

import numpy as np
import sklearn
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.utils.validation import has_fit_parameter

from tutelage._internal.typing import Array, FloatArray, Matrix
from tutelage.exceptions import InvalidParameterError

scikit_learn: Any = sklearn
"""The door to functions of scikit-learn, which has no types."""


class _Estimator(Protocol):
    """The part of a scikit-learn estimator that is used here."""

    def fit(self, X: Matrix, y: Array, /, *, sample_weight: FloatArray = ...) -> Self: ...

    def get_params(self) -> dict[str, object]: ...

    def set_params(self, **values: object) -> object: ...


@contextmanager
def arrays_out() -> Generator[None]:
    """Let the transformers of scikit-learn return arrays, whatever is set elsewhere."""
    with scikit_learn.config_context(transform_output="default"):
        yield


def clone_with(estimator: object, **values: object) -> Any:
    """Return an unfitted clone of `estimator` with other values of some parameters."""
    fresh = cast("_Estimator", clone(estimator))
    fresh.set_params(**values)
    return fresh


def fit_clone(
    estimator: object,
    X: Matrix,
    y: Array,
    seed: int,
    sample_weight: FloatArray | None = None,
) -> Any:
    """Return a clone of `estimator` fitted on at least one row; where all of `y` is one class, its constant answer.

    Every ``random_state`` left unset is set to `seed`. Every ``verbose`` is off, because it prints the losses of one
    shard, and every ``memory``, because it files rows of one shard where others may read them.
    """
    # Many classifiers refuse a single class: a teacher would fail because of private labels.
    if np.all(y == y[0]):
        return DummyClassifier(strategy="most_frequent").fit(X, y)
    fresh = cast("_Estimator", clone(estimator))
    # An estimator may clone to itself, but a teacher must not carry on where another stopped.
    if fresh is estimator:
        fresh = deepcopy(fresh)
    chosen: dict[str, object] = {"random_state": seed, "verbose": False, "memory": None}
    for name, value in fresh.get_params().items():
        last = name.split("__")[-1]
        if last in chosen and (value is None or last != "random_state"):
            fresh.set_params(**{name: chosen[last]})
    if sample_weight is None or not has_fit_parameter(fresh, "sample_weight"):
        return fresh.fit(X, y)
    return fresh.fit(X, y, sample_weight=sample_weight)


def require_classifier(value: object, name: str, owner: str) -> None:
    """Raise InvalidParameterError if `value` is no scikit-learn classifier."""
    if not isinstance(value, BaseEstimator) or not is_classifier(value):
        raise InvalidParameterError(
            f"{owner}.{name}",
            "be a scikit-learn classifier, for example RandomForestClassifier()",
            f"a {type(value).__name__}",
        )
