import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.store import load_student, write_student
from tutelage_reproductions.students.self_training import SelfTrainingStudent


@parametrize_with_checks(
    [SelfTrainingStudent(GaussianNB(), random_state=0)],
    # scikit-learn itself leaves semi-supervised classifiers out of this check, by name.
    expected_failed_checks=lambda _: {"check_classifiers_classes": "−1 marks an unlabeled row"},
)
@pytest.mark.filterwarnings("ignore:Every released label is the same class:UserWarning")
def test_scikit_learn_contract(estimator, check):
    assert check(estimator) is None


def noisy_table(
    rate: float, *, n_rows: int = 900, n_labels: int = 300, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, labels of which some are flipped and most are missing, the truth, and which labels were flipped."""
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 4))
    truth = (X[:, 0] + 0.5 * X[:, 1] > 0.75).astype(np.int64)
    flipped = generator.random(n_rows) < rate
    labels = np.where(flipped, 1 - truth, truth)
    labels[n_labels:] = -1
    return X, labels, truth, flipped & (labels != -1)


def test_doubted_labels_are_mostly_the_wrong_ones():
    X, labels, _, flipped = noisy_table(0.1)
    doubted = (
        SelfTrainingStudent(LogisticRegression(C=100.0), random_state=0).fit(X, labels).doubted_
    )
    assert doubted.sum() >= 5
    assert np.mean(flipped[doubted]) > 0.9
    assert not np.any(doubted[labels == -1])
    assert not SelfTrainingStudent(GaussianNB(), doubt=0).fit(X, labels).doubted_.any()


class Memory(DecisionTreeClassifier):
    """A tree that counts how many rows it was shown at most."""

    most_rows = 0

    def fit(self, X, y, sample_weight=None, check_input=True):
        Memory.most_rows = max(Memory.most_rows, len(X))
        return super().fit(X, y, sample_weight, check_input)


def test_it_trains_itself_where_that_helps():
    generator = np.random.default_rng(1)
    truth = np.arange(900) % 2
    X = generator.standard_normal((900, 60)) + truth[:, None] * 3 / np.sqrt(60)
    labels = np.where(np.arange(900) < 40, truth, -1)
    student = SelfTrainingStudent(GaussianNB(), random_state=0).fit(X, labels)
    alone = GaussianNB().fit(X[:40], truth[:40])
    assert student.self_trained_
    assert student.score(X[40:], truth[40:]) > alone.score(X[40:], truth[40:]) + 0.05


def test_a_model_that_is_right_already_is_left_alone():
    X = np.random.default_rng(0).random((200, 2))
    labels = np.where(np.arange(200) < 40, X[:, 0] > 0.5, -1)
    student = SelfTrainingStudent(DecisionTreeClassifier(), random_state=0).fit(X, labels)
    assert not student.self_trained_
    tree = DecisionTreeClassifier().fit(X[:40], labels[:40])
    assert np.array_equal(student.predict(X), tree.predict(X))


def test_self_training_takes_unlabelled_rows_and_leaves_held_out_labels_alone():
    X, labels, _, _ = noisy_table(0.0, n_rows=200, n_labels=60)
    Memory.most_rows = 0
    SelfTrainingStudent(Memory(), rounds=0, random_state=0).fit(X, labels)
    assert Memory.most_rows == 60
    student = SelfTrainingStudent(Memory(), rounds=3, folds=3, random_state=0).fit(X, labels)
    # Of 60 released labels a third is held out of each test; all rows are shown only if it trained itself in the end.
    assert Memory.most_rows == (200 if student.self_trained_ else 180)


def test_a_gain_has_to_exceed_two_standard_errors(monkeypatch):
    X, labels, truth, _ = noisy_table(0.0, n_rows=200, n_labels=100)
    supervised = np.eye(2)[truth[:100]]
    supervised[:5] = supervised[:5, ::-1]  # wrong on five; an oracle is right on those
    folds = np.arange(100) % 2
    oracle = type(
        "Oracle",
        (),
        {"predict": lambda self, rows: (rows[:, 0] + 0.5 * rows[:, 1] > 0.75).astype(int)},
    )()
    monkeypatch.setattr(SelfTrainingStudent, "_self_trained", lambda *_: oracle)
    student = SelfTrainingStudent()
    student.doubted_ = np.zeros(200, dtype=bool)
    assert student._helps(None, X, labels, folds, supervised, 0)  # 5 > 2√5
    supervised[4] = supervised[4, ::-1]
    assert not student._helps(None, X, labels, folds, supervised, 0)  # 4 = 2√4


def test_a_class_does_not_lose_all_its_labels_to_doubt():
    X = np.concatenate(
        [np.zeros((30, 2)), np.ones((1, 2)), np.random.default_rng(0).random((20, 2))]
    )
    labels = np.concatenate([np.zeros(30), [1], np.full(20, -1)]).astype(int)
    student = SelfTrainingStudent(GaussianNB(), random_state=0).fit(X, labels)
    assert not student.doubted_[30]
    assert student.classes_.tolist() == [0, 1]


def test_the_same_random_state_gives_the_same_student():
    X, labels, _, _ = noisy_table(0.1, n_rows=200, n_labels=60)
    students = [
        SelfTrainingStudent(RandomForestClassifier(10), random_state=seed) for seed in (3, 3, 4)
    ]
    one, other, third = (student.fit(X, labels).predict_proba(X[:50]) for student in students)
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_class_values_are_the_users_and_probabilities_are_in_their_order():
    X, _, truth, _ = noisy_table(0.0)
    words = np.array(["low", "high"], dtype=object)[truth]
    words[300:] = -1
    student = SelfTrainingStudent(GaussianNB(), random_state=0).fit(X, words)
    assert student.classes_.tolist() == ["high", "low"]
    assert student.score(X, np.where(truth == 1, "high", "low")) > 0.85
    probabilities = student.predict_proba(X)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(student.predict(X) == "high", probabilities[:, 0] >= 0.5)


@pytest.mark.filterwarnings("ignore:Every released label is the same class:UserWarning")
@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([-1, 0, 1, 2]), min_size=1, max_size=12).filter(
        lambda labels: set(labels) != {-1}
    ),
    st.integers(2, 5),
    st.integers(0, 3),
)
def test_whatever_few_labels_there_are_it_learns_their_classes(labels, folds, rounds):
    X = np.random.default_rng(0).random((len(labels), 2))
    student = SelfTrainingStudent(
        GaussianNB(var_smoothing=0.1), folds=folds, rounds=rounds, random_state=0
    )
    probabilities = student.fit(X, labels).predict_proba(X)
    assert student.classes_.tolist() == sorted(set(labels) - {-1})
    assert probabilities.shape == (len(labels), len(student.classes_))
    assert np.allclose(probabilities.sum(axis=1), 1)


@pytest.mark.filterwarnings("ignore:Every released label is the same class:UserWarning")
@pytest.mark.parametrize(
    "labels", [[0, -1, -1], [1, 1, 1], [0, 1, -1]], ids=["one label", "one class", "one of each"]
)
def test_the_default_forest_takes_a_handful_of_labels(labels):
    student = SelfTrainingStudent(random_state=0).fit(np.eye(3), labels)
    assert set(student.predict(np.eye(3))) <= set(labels) - {-1}


@pytest.mark.parametrize("estimator", [None, GaussianNB()], ids=["default", "naive Bayes"])
def test_a_student_comes_back_from_disk(estimator, tmp_path):
    X, labels, _, _ = noisy_table(0.1, n_rows=120, n_labels=40)
    student = SelfTrainingStudent(estimator, rounds=1, random_state=0).fit(X, labels)
    write_student(student, tmp_path / "student.skops")
    trusted = (f"{SelfTrainingStudent.__module__}.SelfTrainingStudent",)
    back = load_student(tmp_path / "student.skops", trusted)
    assert np.array_equal(back.predict_proba(X), student.predict_proba(X))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rounds": -1}, "rounds"), ({"folds": 1}, "folds"), ({"doubt": 1.0}, "doubt"), ({"doubt": "few"}, "doubt"),
        ({"random_state": -1}, "random_state"), ({"estimator": LinearSVC()}, "predict_proba"),
        ({"estimator": GaussianNB}, "estimator"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_setting_is_named(settings, named):
    with pytest.raises(InvalidParameterError, match=named):
        SelfTrainingStudent(**settings).fit(np.eye(4), [0, 1, 0, -1])


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.eye(3), [-1, -1, -1]), (np.eye(3), [0, 1]), (np.full((3, 2), np.nan), [0, 1, -1]),
        (np.zeros((0, 2)), []), (np.zeros(3), [0, 1, -1]),
    ],
    ids=["no label", "too few", "missing values", "no row", "no table"],
)  # fmt: skip
def test_unusable_rows_and_labels_are_refused(X, y):
    with pytest.raises(InvalidDataError):
        SelfTrainingStudent(GaussianNB()).fit(X, y)
