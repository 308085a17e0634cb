import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from tutelage.exceptions import InvalidDataError, OneClassWarning
from tutelage.students import ForestStudent, LabelPropagationStudent, fit_student, load_student
from tutelage.students.store import write_student

pytestmark = pytest.mark.rest

CLASSES = np.array(["no", "yes"])


def test_a_student_learns_the_answered_queries_in_the_users_words():
    X = np.array([[0.0], [1.0], [0.1], [0.9], [0.5]])
    student = fit_student(DecisionTreeClassifier(), X, np.array([0, 1, 0, 1, -1]), CLASSES, seed=0)
    assert student.predict([[0.0], [1.0]]).tolist() == ["no", "yes"]
    assert student.tree_.n_node_samples[0] == 4


def test_one_released_class_makes_a_constant_student_and_says_so():
    with pytest.warns(OneClassWarning, match="same class"):
        student = fit_student(
            LogisticRegression(), np.eye(3), np.array([1, 1, -1]), CLASSES, seed=0
        )
    assert student.predict(np.eye(3)).tolist() == ["yes"] * 3


@pytest.mark.parametrize("estimator", [
    HistGradientBoostingClassifier(max_iter=3),
    make_pipeline(StandardScaler(), MLPClassifier(max_iter=1000)), CalibratedClassifierCV(LogisticRegression()),
], ids=lambda estimator: type(estimator).__name__)  # fmt: skip
def test_a_student_comes_back_from_disk(estimator, tmp_path):
    X = np.random.default_rng(0).uniform(size=(60, 3))
    student = fit_student(estimator, X, (X[:, 0] > 0.5).astype(int), CLASSES, seed=0)
    write_student(student, tmp_path / "student.skops")
    assert np.array_equal(load_student(tmp_path / "student.skops").predict(X), student.predict(X))


def test_a_missing_or_foreign_file_is_refused(tmp_path):
    (tmp_path / "other.skops").write_bytes(b"not an archive")
    for name, said in (
        ("nothing", "cannot be read: No such file"),
        ("other", "is not a readable skops file"),
    ):
        with pytest.raises(InvalidDataError, match=f"{name}.skops {said}"):
            load_student(tmp_path / f"{name}.skops")


def noisy_table(rate: float, n_rows: int = 900) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, labels of the first 300 of which some are flipped, and the truth."""
    generator = np.random.default_rng(0)
    X = generator.random((n_rows, 4))
    truth = (X[:, 0] + 0.5 * X[:, 1] > 0.75).astype(np.int64)
    labels = np.where(generator.random(n_rows) < rate, 1 - truth, truth)
    labels[300:] = -1
    return X, labels, truth


def test_noisier_labels_need_larger_leaves_and_mislead_less_than_with_small_ones():
    X, labels, _ = noisy_table(0.0)
    assert ForestStudent(random_state=0).fit(X, labels).estimator_.min_samples_leaf == 1
    X, labels, truth = noisy_table(0.3)
    student = ForestStudent(random_state=0).fit(X, labels)
    assert student.estimator_.min_samples_leaf == 16
    forest = RandomForestClassifier(random_state=0).fit(X[:300], labels[:300])
    assert student.score(X[300:], truth[300:]) > forest.score(X[300:], truth[300:]) + 0.03


@pytest.mark.filterwarnings("ignore:Every released label is the same class:UserWarning")
@pytest.mark.parametrize("labels", [[0, -1, -1], [0, 0, 0, 0, 1, 2, -1, 2]], ids=str)
def test_a_forest_takes_a_handful_of_labels_and_missing_cells(labels):
    X = np.random.default_rng(0).random((len(labels), 2))
    X[0, 1] = np.nan
    student = ForestStudent(random_state=0).fit(X, labels)
    assert student.classes_.tolist() == sorted(set(labels) - {-1})
    assert np.allclose(student.predict_proba(X).sum(axis=1), 1)


@parametrize_with_checks(
    [ForestStudent(random_state=0), LabelPropagationStudent(random_state=0)],
    # scikit-learn itself leaves semi-supervised classifiers out of this check, by name.
    expected_failed_checks=lambda _: {
        "check_classifiers_classes": "−1 is no class here: it marks an unlabeled row"
    },
)
@pytest.mark.filterwarnings("ignore:Every released label is the same class:UserWarning")
@pytest.mark.filterwarnings("ignore:The number of unique classes is greater than 50%:UserWarning")
def test_our_students_keep_scikit_learns_contract(estimator, check):
    assert check(estimator) is None
