import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tutelage.exceptions import InvalidDataError, InvalidParameterError, OneClassWarning
from tutelage.networks import ResidualNetwork
from tutelage.students import load_student, save_student
from tutelage.students.networks.noisy_self_training import NoisySelfTrainingStudent, surest
from tutelage_reproductions.datasets import load_digits


def few_labels() -> tuple[np.ndarray, np.ndarray]:
    """Digits with 60 labels, four of them wrong."""
    digits, generator = load_digits(), np.random.default_rng(0)
    labels = np.full(len(digits.X_train), -1)
    asked = generator.choice(len(labels), 60, replace=False)
    labels[asked] = digits.y_train[asked]
    labels[asked[:4]] = (labels[asked[:4]] + generator.integers(1, 10, 4)) % 10
    return digits.X_train, labels


def tiny(**settings) -> NoisySelfTrainingStudent:
    return NoisySelfTrainingStudent((8, 8), **{"rounds": 2, "steps": 2, "batch_size": 4, "random_state": 0, **settings})


def test_rounds_teach_what_few_labels_do_not():
    digits, (X, labels) = load_digits(), few_labels()
    right = {
        rounds: np.mean(
            tiny(rounds=rounds, steps=120, batch_size=64).fit(X, labels).predict(digits.X_test) == digits.y_test
        )
        for rounds in (1, 4)
    }
    assert right[4] > 0.82
    assert right[4] > right[1] + 0.03


def test_the_same_seed_gives_the_same_student():
    X, labels = few_labels()
    one, other = (tiny().fit(X, labels).predict_proba(X[:9]) for _ in range(2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, tiny(random_state=1).fit(X, labels).predict_proba(X[:9]))


def test_classes_keep_the_users_words_and_may_be_one():
    X, labels = few_labels()
    words = np.where(labels < 0, -1, np.where(labels < 5, "low", "high").astype(object))
    assert set(tiny().fit(X, words).predict(X)) <= {"high", "low"}
    with pytest.warns(OneClassWarning, match="same class"):
        assert tiny().fit(X, np.where(labels == 3, 3, -1)).predict(X[:1]).tolist() == [3]
    assert tiny().fit(X, load_digits().y_train).predict_proba(X[:2]).shape == (2, 10)


def test_a_student_comes_back_from_disk(tmp_path):
    X, labels = few_labels()
    student = tiny(factory=ResidualNetwork((8, 8), (4, 8), kernel=3)).fit(X, labels)
    save_student(student, tmp_path / "student.skops")
    back = load_student(tmp_path / "student.skops")
    assert np.array_equal(back.predict_proba(X[:9]), student.predict_proba(X[:9]))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"rounds": 0}, "`rounds`"),
        ({"steps": 0}, "`steps`"),
        ({"batch_size": 1}, "`batch_size`"),
        ({"robustness": 1}, "`robustness`"),
        ({"factory": 3}, "`factory`"),
        ({"image_shape": (7, 8)}, "must have 56 columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_settings_that_cannot_be_are_refused(wrong, complaint):
    X, labels = few_labels()
    with pytest.raises((InvalidParameterError, InvalidDataError), match=complaint):
        tiny().set_params(**wrong).fit(X, labels)


@given(
    odds=arrays(np.float64, (12, 3), elements=st.integers(1, 50)),
    labels=arrays(np.int64, 12, elements=st.integers(-1, 2)),
    share=st.sampled_from([0.25, 0.5, 0.75]),
)
def test_the_surest_are_believed_and_excluded_labels_are_not(odds, labels, share):
    said = odds / odds.sum(axis=1, keepdims=True)
    found = surest(torch.tensor(said), torch.tensor(labels), share)
    believed = dict(zip(found.rows.tolist(), found.labels.tolist(), strict=True))
    wanted = {row: label for row, label in enumerate(labels) if label >= 0 and said[row, label] * 3 >= 1}
    for index in range(3):
        members = [row for row in range(12) if said[row].argmax() == index]
        members.sort(key=lambda row: -said[row].max())
        for row in members[: int(np.ceil(share * len(members)))]:
            wanted.setdefault(row, index)
    assert believed == wanted
