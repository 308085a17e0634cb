from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline

from tutelage._internal.fitting import fit_clone
from tutelage._internal.typing import IntArray, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.base import SemiSupervisedClassifier
from tutelage.students.forest import ForestStudent
from tutelage.students.propagation import LabelPropagationStudent

X, Y = np.arange(12.0).reshape(6, 2), [0, 1] * 3


class Recorder(SemiSupervisedClassifier):
    """Keeps what it was given; always answers the last class."""

    def _learn(self, X: Matrix, labels: IntArray) -> None:
        self.rows_, self.labels_ = X, labels

    def predict_proba(self, X):
        return np.eye(len(self.classes_))[[-1] * len(self._known_rows(X))]


class Seeded(Recorder):
    def __init__(self, steps: int = 1, random_state: Any = None) -> None:
        self.steps = steps
        self.random_state = random_state

    def _check_settings(self) -> None:
        integer_at_least(self.steps, 1, "steps", "Seeded")


def objects(*values: Any) -> np.ndarray:
    return np.array(values, dtype=object)


@pytest.mark.parametrize(("y", "classes", "indices"), [
    ([2, -1, 0, 2, -1, 7], [0, 2, 7], [1, -1, 0, 1, -1, 2]),
    (objects("b", -1.0, "a", "b", -1, "a"), ["a", "b"], [1, -1, 0, 1, -1, 0]),
    (np.array([True, False, False, True, False, True]), [False, True], [1, 0, 0, 1, 0, 1]),
    (np.array([200, 3, 3, 3, 3, 3], dtype=np.uint8), [3, 200], [1, 0, 0, 0, 0, 0]),
], ids=str)  # fmt: skip
def test_minus_one_is_no_class_whatever_class_values_are(y, classes, indices):
    fitted = Recorder().fit(X, y)
    assert fitted.classes_.tolist() == classes
    assert fitted.labels_.tolist() == indices
    assert fitted.predict(X).tolist() == [classes[-1]] * 6


@pytest.mark.parametrize(("y", "complaint"), [
    ([0, 1], r"one label, or -1, per row. Got shape \(2,\) for 6 rows"),
    (None, "requires y to be passed"),
    ([-1] * 6, "holds no label"),
    (objects("a", "-1", "b", -1, "a", "b"), "the text '-1'"),
    (objects("a", 3, "b", -1, "a", "b"), "all text or all numbers"),
    ([0, 1, np.nan, -1, 0, 1], "continuous or missing"),
], ids=str)  # fmt: skip
def test_what_is_no_label_is_refused(y, complaint):
    with pytest.raises(InvalidDataError, match=complaint):
        Recorder().fit(X, y)


@pytest.mark.parametrize("value", [np.nan, 1e300, "4711secret"])
def test_rows_that_are_no_numbers_are_refused_without_quoting_them(value):
    bad = X.astype(object)
    bad[2, 1] = value
    for call in (lambda: Recorder().fit(bad, Y), lambda: Recorder().fit(X, Y).predict(bad)):
        with pytest.raises(InvalidDataError, match="X of Recorder must hold") as caught:
            call()
        assert "4711" not in str(caught.value)
        assert caught.value.__context__ is None
    with pytest.raises(InvalidDataError) as caught:
        Recorder().fit(np.array([4711.5, 2.0]), [0, 1])
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "y"),
    [({"steps": 0}, Y), ({"random_state": -1}, [3] * 6), ({"random_state": "one"}, Y)],
)
def test_settings_are_checked_before_anything_is_learned(wrong, y):
    student = Seeded(**wrong)
    with pytest.raises(InvalidParameterError, match=f"`{next(iter(wrong))}` of Seeded"):
        student.fit(X, y)
    assert not hasattr(student, "rows_")


@pytest.mark.parametrize(
    "student", [LabelPropagationStudent(), ForestStudent()], ids=lambda one: type(one).__name__
)
def test_every_student_takes_one_class_says_so_once_and_takes_large_seeds(student):
    with pytest.warns(UserWarning, match="same class") as caught:
        fitted = student.set_params(random_state=2**33).fit(X, [7, -1, 7, -1, -1, 7])
    assert [warning.filename for warning in caught] == [__file__]
    assert fitted.predict_proba([[1e38, -1e38]]).tolist() == [[1.0]]
    assert fitted.predict(X).tolist() == [7] * 6


@pytest.mark.parametrize(
    "student", [LabelPropagationStudent(), ForestStudent()], ids=lambda one: type(one).__name__
)
def test_every_student_says_a_rare_class(student):
    rows = np.random.default_rng(0).random((200, 2))
    rare = rows[:, 0] > 0.93
    fitted = student.set_params(random_state=0).fit(rows, np.where(np.arange(200) < 150, rare, -1))
    assert fitted.predict(rows)[rare].mean() > 0.7


def test_a_forest_knows_how_rare_a_class_is_and_counts_it_as_told():
    rows, labels = np.random.default_rng(0).random((200, 2)), np.arange(200) % 10 == 0
    plain, weighed = (
        ForestStudent(class_weight=one, random_state=0).fit(rows, labels)
        for one in (None, {True: 9})
    )
    assert plain.predict_proba(rows)[:, 1].mean() == pytest.approx(0.1, abs=0.05)
    assert weighed.predict_proba(rows)[:, 1].mean() == pytest.approx(0.5, abs=0.15)


def test_a_clone_is_given_weights_only_if_it_takes_them_and_is_silent_and_seeded_throughout():
    rows, labels, weights = np.repeat(X, 2, axis=0), np.arange(12) % 2, np.linspace(0.1, 1, 12)
    forest = fit_clone(RandomForestClassifier(5, verbose=1), rows, labels, 3, weights)
    same = RandomForestClassifier(5, random_state=3).fit(rows, labels, weights)
    assert np.array_equal(forest.predict_proba(rows), same.predict_proba(rows))
    assert (forest.verbose, forest.random_state) == (0, 3)
    assert (
        fit_clone(RandomForestClassifier(5, random_state=9), rows, labels, 3, None).random_state
        == 9
    )
    inner = fit_clone(
        make_pipeline(RandomForestClassifier(5), memory="cache"), rows, labels, 3, weights
    )
    assert (inner.memory, inner[-1].random_state) == (None, 3)  # it would file rows of a shard
