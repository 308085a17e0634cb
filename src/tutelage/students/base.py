"""Base class of students that learn from unlabeled rows too: scikit-learn's contract, with −1 for unlabeled.

And how a student is fitted on the rows of which labels were released.
"""

import warnings
from abc import abstractmethod
from numbers import Real
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tutelage._internal.fitting import clone_with, fit_clone, scikit_learn
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, IntArray, Mask, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError, OneClassWarning

_Values = Array  # of classes
_ONE_CLASS = "Every released label is the same class; the student always answers it."


class SemiSupervisedClassifier(ClassifierMixin, BaseEstimator):
    """Base of students that learn from labeled and unlabeled rows, all of them public.

    Subclasses define `_learn` and `predict_proba`, and may define `_check_settings`. Everything they see was released
    or public before, so training them, in whatever way and however often, costs no privacy.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class values in sorted order, without the −1 of unlabeled rows.
    n_features_in_ : int
        Number of features.
    """

    classes_: _Values
    n_features_in_: int

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Learn from rows of which some have labels.

        Parameters
        ----------
        X : array of shape (rows, features)
            Public rows.
        y : array of shape (rows,)
            Class value of each row, −1 where it has none: asked and not answered, or never asked. Class values that are
            not numbers go into an array of objects. There, None may mark rows without a label; −1 is then a class.

        Raises
        ------
        InvalidDataError
            If the rows are not a table of finite numbers, the labels not one class value per row, or no row is labeled.
        InvalidParameterError
            If a parameter is out of range.

        Warns
        -----
        OneClassWarning
            If all labels are the same class.
        """
        owner = type(self).__name__
        rows = checked_rows(self, X, reset=True)
        self.classes_, labels = _class_indices(y, len(rows), owner)
        random_state = getattr(self, "random_state", None)
        if random_state is not None:
            integer_at_least(random_state, 0, "random_state", owner)
        self._check_settings()
        if len(self.classes_) == 1:
            warnings.warn(_ONE_CLASS, OneClassWarning, stacklevel=2)
        self._learn(rows, labels)
        return self

    def _check_settings(self) -> None:
        """Raise InvalidParameterError if a parameter is out of range, InvalidDataError if rows do not fit it."""

    @abstractmethod
    def _learn(self, X: Matrix, labels: IntArray) -> None:
        """Learn from rows, shape (rows, features), and their class indices, −1 for unlabeled, shape (rows,)."""

    @abstractmethod
    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class, shape (rows, classes) in the order of `classes_`."""

    def predict(self, X: npt.ArrayLike) -> _Values:
        """Return the likeliest class value of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _known_rows(self, X: npt.ArrayLike) -> Matrix:
        """Return rows to classify, checked against those that were learned from."""
        check_is_fitted(self)
        return checked_rows(self, X, reset=False)


def checked_rows(
    student: BaseEstimator,
    X: npt.ArrayLike,
    *,
    reset: bool,
) -> Matrix:
    """Return rows in single precision; raise InvalidDataError, without quoting them, where they are not numbers."""
    owner = type(student).__name__
    try:
        with np.errstate(over="ignore"):  # what is too large is infinite then, and refused
            allows_nan = get_tags(student).input_tags.allow_nan
            return scikit_learn.utils.validation.validate_data(
                student,
                X,
                reset=reset,
                dtype=np.float32,
                ensure_all_finite="allow-nan" if allows_nan else True,
            )
    except ValueError as error:
        complaint = _without_values(str(error), owner)
    # Out here, or what scikit-learn quoted would be carried along.
    raise InvalidDataError(complaint)


def _class_indices(
    y: npt.ArrayLike | None,
    n_rows: int,
    owner: str,
) -> tuple[_Values, IntArray]:
    """Return the class values in sorted order, and each row's index among them or −1; raise InvalidDataError."""
    if y is None:
        raise InvalidDataError(f"{owner} requires y to be passed, but the target y is None.")
    values = np.asarray(y)
    if values.shape == (n_rows, 1):
        values = cast("Array", column_or_1d(values, warn=True))
    if values.shape != (n_rows,):
        raise InvalidDataError(
            f"`y` of {owner} must hold one label, or -1, per row. Got shape {values.shape} for {n_rows} rows."
        )
    if values.dtype.kind in "OU" and np.any(values == str(ABSTAIN)):
        raise InvalidDataError(
            f"`y` of {owner} holds the text '-1'. Give unlabeled rows the number -1: text and numbers go together "
            "into np.array(..., dtype=object)."
        )
    is_labeled = values != ABSTAIN
    if values.dtype == object:
        is_none = np.array([value is None for value in values])
        if is_none.any():
            is_labeled = ~is_none
    if not np.any(is_labeled):
        raise InvalidDataError(f"`y` of {owner} holds no label, so there is nothing to learn from.")
    values = _of_one_kind(values[is_labeled], owner)
    labels = np.full(n_rows, ABSTAIN, dtype=np.int64)
    classes, labels[is_labeled] = np.unique(values, return_inverse=True)
    return classes, labels


def _of_one_kind(known: _Values, owner: str) -> _Values:
    """Return labels that are all text, or all whole numbers; raise InvalidDataError otherwise."""
    if known.dtype == object and not all(isinstance(value, str) for value in known):
        if not all(isinstance(value, Real) for value in known):
            raise InvalidDataError(
                f"`y` of {owner} must hold class values that are all text or all numbers, or -1."
            )
        known = np.array(known.tolist())
    if known.dtype.kind == "f" and not np.all(np.isfinite(known) & (known == np.floor(known))):
        raise InvalidDataError(
            f"`y` of {owner} must hold class values, or -1. Got continuous or missing numbers."
        )
    return known


def _without_values(complaint: str, owner: str) -> str:
    """Return scikit-learn's complaint about rows without the values that it may quote."""
    if "contains NaN" in complaint or "contains infinity" in complaint:
        return f"X of {owner} must hold finite numbers of single precision; it holds NaN or infinity. Impute first."
    if complaint.startswith(("could not convert", "dtype='numeric'")):
        return f"X of {owner} must hold numbers. Encode text columns first."
    before, quotes, after = complaint.partition("array=")
    if quotes:
        return before + after[after.rfind("Reshape your data") :]
    return complaint.split("\n[")[0]


_OF_SCIKIT_LEARN = (LabelPropagation, LabelSpreading, SelfTrainingClassifier)

_ENOUGH = {"steps": 1, "folds": 2}  # of what takes long, for a trial


def fit_student(
    estimator: Any,
    X_public: Matrix,
    labels: IntArray,
    classes: _Values,
    *,
    seed: int,
) -> Any:
    """Return a fitted clone of `estimator`; it predicts the user's own class values.

    It sees public rows and released labels only, so training it, and any use of it, costs no further privacy. A student
    that learns from unlabeled rows sees all rows, the others those that were answered (PATE 2017, Appendix C).

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
        If −1 is a class and the student is one of scikit-learn's, to which it marks unlabeled rows.
    """
    labels = np.asarray(labels)
    answered = labels != ABSTAIN
    if not answered.any():
        raise InvalidDataError(
            "No query was answered, so there is nothing to learn from. Ask more, or with less noise."
        )
    rows = X_public[answered]
    y = classes[labels[answered]]
    if np.all(y == y[0]):
        warnings.warn(_ONE_CLASS, OneClassWarning, stacklevel=2)
    elif _learns_from_unlabeled(estimator):
        refuse_class_of_unlabeled(estimator, classes)
        rows = X_public.copy()  # some students work in place
        y = _with_unlabeled(y, answered)
    return fit_clone(estimator, rows, y, seed)


def steps_of(estimator: object) -> list[tuple[str, Any]]:
    """Return the names and the steps of a pipeline; of another estimator itself, without a name."""
    if isinstance(estimator, Pipeline):
        return cast("Any", estimator).steps
    return [("", estimator)]


def weight_parameter(estimator: Any) -> str | None:
    """Return the parameter of a student, or of the last step of a pipeline, that takes class weights."""
    step, _ = steps_of(estimator)[-1]
    name = f"{step}__class_weight" if step else "class_weight"
    return name if name in estimator.get_params() else None


def _learns_from_unlabeled(estimator: object) -> bool:
    """Return whether a student, or the last step of a pipeline, takes −1 for an unlabeled row."""
    _, last = steps_of(estimator)[-1]
    return isinstance(last, (SemiSupervisedClassifier, *_OF_SCIKIT_LEARN))


def refuse_class_of_unlabeled(estimator: object, classes: _Values) -> None:
    """Refuse a class value that a student would take for the mark of an unlabeled row."""
    _, last = steps_of(estimator)[-1]
    if isinstance(last, _OF_SCIKIT_LEARN) and np.any(classes == ABSTAIN):
        raise InvalidParameterError(
            "PATEClassifier.classes",
            f'not contain -1, because {type(last).__name__} reads -1 as "no label"',
            fix="Give that class another value.",
        )


def try_student(
    estimator: Any,
    X_public: Matrix,
    classes: _Values,
    *,
    rows_per_class: int,
) -> None:
    """Fit a student to made-up labels of public rows, to detect wrong settings before anything is spent.

    Networks take one step, and tests have two folds. Exceptions of the student are not caught. All rows are looked at,
    for values that a student of single precision could not take.
    """
    n_classes = len(classes)
    if _learns_from_unlabeled(estimator) and np.any(np.abs(X_public) > np.finfo(np.float32).max):
        raise InvalidDataError(
            "The public rows hold a number that is too large for this student. Scale them."
        )
    rows = np.resize(np.arange(len(X_public)), rows_per_class * n_classes)
    labels = np.arange(len(rows)) % n_classes
    if _learns_from_unlabeled(estimator):
        labels[2 * n_classes :: 3] = ABSTAIN
    shorter = dict[str, object]()
    for name, value in estimator.get_params().items():
        *_, parameter = name.split("__")
        if parameter in _ENOUGH and isinstance(value, int):
            shorter[name] = min(value, _ENOUGH[parameter])
    trial = clone_with(estimator, **shorter)
    fit_student(trial, X_public[rows], labels, classes, seed=0)


def _with_unlabeled(y: _Values, is_answered: Mask) -> _Values:
    """Return class values of all rows, −1 where there was no answer; None, where −1 is a class."""
    kind: npt.DTypeLike = object
    if y.dtype.kind in "iuf":
        kind = np.promote_types(y.dtype, np.int8)
    values = np.full(len(is_answered), ABSTAIN, dtype=kind)
    if np.any(y == ABSTAIN):
        values = np.full(len(is_answered), None)
    values[is_answered] = y
    return values
