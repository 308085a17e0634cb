"""A student that learns from the answered queries alone, as in PATE 2017, Appendix C."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from tutelage._fitting import fit_clone
from tutelage._typing import ABSTAIN, IntArray, Matrix
from tutelage.exceptions import InvalidDataError


def fit_supervised(estimator: Any, X_public: Matrix, labels: IntArray, classes: npt.NDArray[Any], *, seed: int) -> Any:
    """Return a clone of `estimator` fitted on the answered queries; it predicts the user's own class values.

    It sees public rows and released labels only, so training it, and any use of it, costs no further privacy.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Cloned; the original stays unfitted.
    X_public : array of shape (queries, features)
        The queried public rows.
    labels : integer array of shape (queries,)
        Released class index per query, −1 where there was no answer.
    classes : array of shape (classes,)
        Class values in index order.
    seed : int
        Sets every ``random_state`` of the clone that is left unset.

    Raises
    ------
    InvalidDataError
        If no query was answered.
    """
    answered = np.asarray(labels) != ABSTAIN
    if not answered.any():
        raise InvalidDataError(
            "No query was answered, so there is nothing to learn from. Ask more, or with less noise."
        )
    X, y = X_public[answered], classes[labels[answered]]
    if np.all(y == y[0]):
        warnings.warn("Every released label is the same class; the student always answers it.", stacklevel=2)
    return fit_clone(estimator, X, y, seed)
