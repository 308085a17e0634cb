"""Released labels to a fitted student, whatever kind it is."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

from tutelage._fitting import fit_clone
from tutelage._typing import ABSTAIN, IntArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError, OneClassWarning
from tutelage.students.base import ONE_CLASS, SemiSupervisedClassifier

_OF_SCIKIT_LEARN = (LabelPropagation, LabelSpreading, SelfTrainingClassifier)

_ENOUGH = {"steps": 1, "folds": 2}  # of what takes long, for a trial


def fit_student(estimator: Any, X_public: Matrix, labels: IntArray, classes: npt.NDArray[Any], *, seed: int) -> Any:
    """Return a fitted clone of `estimator`; it predicts the user's own class values.

    It sees public rows and released labels only, so training it, and any use of it, costs no further privacy. A student
    that learns from unlabelled rows sees all rows, the others those that were answered (PATE 2017, Appendix C).

    Parameters
    ----------
    estimator : scikit-learn classifier
        Cloned; the original stays unfitted.
    X_public : array of shape (rows, features)
        Public rows, asked or not.
    labels : integer array of shape (rows,)
        Released class index per row, −1 where it was not asked or not answered.
    classes : array of shape (classes,)
        Class values in index order.
    seed : int
        Sets every ``random_state`` of the clone that is left unset.

    Raises
    ------
    InvalidDataError
        If no query was answered.
    InvalidParameterError
        If −1 is a class and the student is one of scikit-learn's, to which it marks unlabelled rows.
    """
    labels = np.asarray(labels)
    answered = labels != ABSTAIN
    if not answered.any():
        raise InvalidDataError(
            "No query was answered, so there is nothing to learn from. Ask more, or with less noise."
        )
    X, y = X_public[answered], classes[labels[answered]]
    if np.all(y == y[0]):
        warnings.warn(ONE_CLASS, OneClassWarning, stacklevel=2)
    elif learns_from_unlabelled(estimator):
        refuse_class_of_unlabelled(estimator, classes)
        X, y = X_public.copy(), _with_unlabelled(y, answered)  # some students work in place
    return fit_clone(estimator, X, y, seed)


def learns_from_unlabelled(estimator: Any) -> bool:
    """Return whether a student, or the last step of a pipeline, takes −1 for an unlabelled row."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return isinstance(last, (SemiSupervisedClassifier, *_OF_SCIKIT_LEARN))


def refuse_class_of_unlabelled(estimator: Any, classes: npt.NDArray[Any]) -> None:
    """Refuse a class value that a student would take for the mark of an unlabelled row."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    if isinstance(last, _OF_SCIKIT_LEARN) and np.any(classes == ABSTAIN):
        raise InvalidParameterError(
            f"`classes` must not hold -1, which marks unlabelled rows for {type(last).__name__}. Give that class "
            "another value."
        )


def try_student(estimator: Any, X_public: Matrix, classes: npt.NDArray[Any], *, rows_per_class: int) -> None:
    """Fit a student to made-up labels of public rows, so that a wrong setting is found out before anything is spent.

    Networks take one step, and tests have two folds. Whatever the student raises comes through. All rows are looked at,
    for values that a student of single precision could not take.
    """
    n_classes = len(classes)
    if learns_from_unlabelled(estimator) and np.any(np.abs(X_public) > np.finfo(np.float32).max):
        raise InvalidDataError("The public rows hold a number that is too large for this student. Scale them.")
    rows = np.resize(np.arange(len(X_public)), rows_per_class * n_classes)
    labels = np.arange(len(rows)) % n_classes
    if learns_from_unlabelled(estimator):
        labels[2 * n_classes :: 3] = ABSTAIN
    less = {
        name: min(value, _ENOUGH[name.split("__")[-1]])
        for name, value in estimator.get_params().items()
        if name.split("__")[-1] in _ENOUGH and isinstance(value, int)
    }
    trial: Any = clone(estimator)
    fit_student(trial.set_params(**less), X_public[rows], labels, classes, seed=0)


def _with_unlabelled(y: npt.NDArray[Any], answered: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return class values of all rows, −1 where there was no answer; None, where −1 is a class."""
    kind = np.promote_types(y.dtype, np.int8) if y.dtype.kind in "iuf" else np.dtype(object)
    every = np.full(len(answered), ABSTAIN, dtype=kind)
    if np.any(y == ABSTAIN):
        every = np.full(len(answered), None, dtype=object)
    every[answered] = y
    return every
