"""The old call: its published numbers, its misuse, and the faults of the original."""

import numpy as np
import pytest

from tutelage.compat import perform_analysis
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage_reproductions.pysyft import analysis_of_pysyft

EVERY = np.arange(50)


def seed_zero() -> tuple[np.ndarray, np.ndarray]:
    """Return the votes and labels of PySyft's own test."""
    random = np.random.RandomState(0)
    votes = (random.rand(100, 50) * 10).astype(int)
    labels = (random.rand(50) * 10).astype(int)
    votes[:, :10] = 0
    return votes, labels


def test_called_rightly_it_gives_the_analysis_of_the_paper():
    votes, _ = seed_zero()
    found = perform_analysis(
        teacher_preds=votes, indices=EVERY, noise_eps=0.1, delta=1e-5, n_classes=10
    )
    assert found.data_dependent == pytest.approx(6.8847, abs=5e-5)
    assert found.data_independent == pytest.approx(7.8376, abs=5e-5)


def test_labels_as_indices_are_refused_with_the_reason_and_no_label():
    votes, labels = seed_zero()
    with pytest.raises(InvalidDataError, match="look like the student's labels") as caught:
        perform_analysis(votes, labels, 0.1, n_classes=10)
    assert not set("123456789") & set(str(caught.value).replace("shape[1]", ""))


def test_the_old_number_has_the_faults_that_are_known():
    votes, labels = seed_zero()
    assert analysis_of_pysyft(votes, labels, 0.1, 1e-5) == pytest.approx((1.4828, 7.8376), abs=5e-5)


@pytest.mark.filterwarnings("ignore:May not have used")
def test_theorem_3_is_not_used_where_it_does_not_hold():
    votes = np.array([[0, 0], [1, 1], [0, 0]])  # two classes, one vote ahead
    ours = perform_analysis(votes, [0], noise_eps=0.7, n_classes=2, moments=3)
    assert (
        analysis_of_pysyft(votes, np.array([0]), 0.7, 1e-5, moments=3)[0]
        < ours.data_dependent - 0.1
    )
    assert ours.data_dependent <= ours.data_independent


@pytest.mark.filterwarnings("ignore:May not have used")
def test_only_answered_examples_count_and_classes_without_votes_are_asked_for():
    votes, _ = seed_zero()
    few = perform_analysis(votes, np.arange(10), 0.1, n_classes=10)
    assert few == perform_analysis(votes[:, :10], np.arange(10), 0.1, n_classes=10)
    with pytest.warns(UserWarning, match="`n_classes`"):
        assert (
            perform_analysis(votes[:, :10], np.arange(10), 0.1).data_dependent < few.data_dependent
        )


def test_tensors_of_torch_count_alike():
    torch = pytest.importorskip("torch")
    votes, _ = seed_zero()
    found = perform_analysis(torch.tensor(votes), torch.tensor(EVERY), noise_eps=0.1, n_classes=10)
    assert found == perform_analysis(votes, EVERY, 0.1, n_classes=10)


@pytest.mark.filterwarnings("ignore:May not have used")
def test_what_is_probably_not_meant_is_warned_of():
    with pytest.warns(UserWarning, match="teachers are rows"):
        perform_analysis(np.repeat(seed_zero()[0], 6, axis=0), EVERY, 0.1, n_classes=10)


@pytest.mark.parametrize(("name", "value"), [
    ("indices", np.array([-1, 2])),
    ("teacher_preds", np.full((3, 50), 10)),
    ("teacher_preds", np.ma.array(np.zeros((3, 50)), mask=np.eye(3, 50, dtype=bool))),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(name, value):
    arguments = {
        "teacher_preds": seed_zero()[0],
        "indices": EVERY,
        "noise_eps": 0.1,
        "n_classes": 10,
        name: value,
    }
    with pytest.raises((InvalidDataError, InvalidParameterError)):
        perform_analysis(**arguments)
