from typing import Any

import numpy as np
import pytest

from tutelage._typing import IntArray, Matrix
from tutelage.exceptions import InvalidDataError
from tutelage.students.base import SemiSupervisedClassifier

X = np.arange(12.0).reshape(6, 2)


class Recorder(SemiSupervisedClassifier):
    """Keeps what it was given; always answers the last class."""

    def _learn(self, X: Matrix, labels: IntArray) -> None:
        self.rows_, self.labels_ = X, labels

    def predict_proba(self, X):
        return np.eye(len(self.classes_))[[-1] * len(self._known_rows(X))]


def objects(*values: Any) -> np.ndarray:
    return np.array(values, dtype=object)


@pytest.mark.parametrize(
    ("y", "classes", "indices"),
    [
        ([2, -1, 0, 2, -1, 7], [0, 2, 7], [1, -1, 0, 1, -1, 2]),
        (np.array([1, -1, 0, 1, -1, -1], dtype=np.int8), [0, 1], [1, -1, 0, 1, -1, -1]),
        ([2.0, -1.0, 0.0, 2.0, -1.0, 0.0], [0, 2], [1, -1, 0, 1, -1, 0]),
        (objects("b", -1, "a", "b", -1, "a"), ["a", "b"], [1, -1, 0, 1, -1, 0]),
        (objects("b", -1.0, "a", "b", -1, "a"), ["a", "b"], [1, -1, 0, 1, -1, 0]),
        (objects(5, -1, 3, 5, -1, 3), [3, 5], [1, -1, 0, 1, -1, 0]),
        (objects(np.int64(5), -1, 3.0, 5, -1, 3), [3, 5], [1, -1, 0, 1, -1, 0]),
        (np.array(["b", "a", "a", "b", "a", "a"]), ["a", "b"], [1, 0, 0, 1, 0, 0]),
        (np.array([True, False, False, True, False, True]), [False, True], [1, 0, 0, 1, 0, 1]),
        (np.array([200, 3, 3, 3, 3, 3], dtype=np.uint8), [3, 200], [1, 0, 0, 0, 0, 0]),
        ([-2, -1, 2, -1, -1, -1], [-2, 2], [0, -1, 1, -1, -1, -1]),
    ],
    ids=str,
)
def test_minus_one_is_no_class_whatever_class_values_are(y, classes, indices):
    fitted = Recorder().fit(X, y)
    assert fitted.classes_.tolist() == classes
    assert fitted.labels_.tolist() == indices
    assert fitted.predict(X).tolist() == [classes[-1]] * 6


@pytest.mark.parametrize(
    ("y", "complaint"),
    [
        ([0, 1], r"one label, or -1, per row. Got shape \(2,\) for 6 rows"),
        (0, r"Got shape \(\)"),
        (np.zeros((6, 2)), r"Got shape \(6, 2\)"),
        (None, "requires y to be passed"),
        ([-1] * 6, "holds no label"),
        (objects(*[-1] * 6), "holds no label"),
        (["a", -1, "b", -1, "a", "b"], "the text '-1'"),
        (objects("a", "-1", "b", -1, "a", "b"), "the text '-1'"),
        (objects("a", 3, "b", -1, "a", "b"), "all text or all numbers"),
        (objects("a", None, "b", -1, "a", "b"), "all text or all numbers"),
        ([0, 1, np.nan, -1, 0, 1], "continuous or missing"),
        ([0, 1, np.inf, -1, 0, 1], "continuous or missing"),
        ([0.5, 1, 0, -1, 0, 1], "continuous or missing"),
        (objects(0, 1, np.nan, -1, 0, 1), "continuous or missing"),
    ],
    ids=str,
)
def test_what_is_no_label_is_refused(y, complaint):
    with pytest.raises(InvalidDataError, match=complaint):
        Recorder().fit(X, y)


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(Warning, match="column-vector"):
        fitted = Recorder().fit(X, np.array([[0], [1], [-1], [-1], [0], [1]]))
    assert fitted.labels_.tolist() == [0, 1, -1, -1, 0, 1]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, "4711secret"])
def test_rows_that_are_no_numbers_are_refused_without_quoting_them(value):
    bad = X.astype(object)
    bad[2, 1] = value
    for call in (lambda: Recorder().fit(bad, [0] * 6), lambda: Recorder().fit(X, [0] * 6).predict(bad)):
        with pytest.raises(InvalidDataError, match="X of Recorder must hold") as caught:
            call()
        assert "4711" not in str(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("rows", [np.array([4711.5, 2.0]), np.zeros((0, 2)), np.zeros((6, 2, 1)), np.float64(4711.5)])
def test_rows_that_are_no_table_are_refused_without_quoting_them(rows):
    with pytest.raises(InvalidDataError) as caught:
        Recorder().fit(rows, [0] * len(np.atleast_1d(rows)))
    assert "4711" not in str(caught.value)


def test_other_columns_than_learned_from_are_refused():
    with pytest.raises(InvalidDataError, match="expecting 2 features"):
        Recorder().fit(X, [0] * 6).predict(X[:, :1])


def test_single_and_double_precision_are_the_same_rows():
    one, two = (Recorder().fit(X.astype(kind) / 3, [0] * 6) for kind in (np.float32, np.float64))
    assert one.rows_.dtype == two.rows_.dtype == np.float32
    assert np.allclose(one.rows_, two.rows_)
