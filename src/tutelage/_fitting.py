"""Fitting a clone of a scikit-learn classifier the way teachers and students share."""

from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

from tutelage._typing import Matrix


def fit_clone(estimator: Any, X: Matrix, y: npt.NDArray[Any], seed: int) -> Any:
    """Return a clone of `estimator` fitted on at least one row; where all of `y` is one class, its constant answer.

    Every ``random_state`` left unset is set to `seed`. Every ``verbose`` is off, for it prints the losses of one shard,
    and every ``memory``, for it files rows of one shard where others may read them.
    Many classifiers refuse a single class; a teacher that failed there would fail because of private labels.
    """
    if np.all(y == y[0]):
        return DummyClassifier(strategy="most_frequent").fit(X, y)
    fresh: Any = clone(estimator)
    if fresh is estimator:  # it says so of itself, but a teacher must not carry on where another stopped
        fresh = deepcopy(estimator)
    unset = {
        name: seed
        for name, value in fresh.get_params().items()
        if name.split("__")[-1] == "random_state" and value is None
    }
    loud = {name: False for name in fresh.get_params() if name.split("__")[-1] == "verbose"}
    cached = {name: None for name in fresh.get_params() if name.split("__")[-1] == "memory"}
    return fresh.set_params(**unset, **loud, **cached).fit(X, y)
