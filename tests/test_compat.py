"""The old call: its published numbers, its misuse, and the faults it can reproduce on request."""

import warnings

import numpy as np
import pytest

from tutelage.compat import perform_analysis, perform_analysis_torch
from tutelage.exceptions import InvalidDataError, InvalidParameterError

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
    found = perform_analysis(teacher_preds=votes, indices=EVERY, noise_eps=0.1, delta=1e-5, n_classes=10)
    assert found.data_dependent == pytest.approx(6.8847, abs=5e-5)
    assert found.data_independent == pytest.approx(7.8376, abs=5e-5)
    assert found == (found.data_dependent, found.data_independent)


def test_labels_as_indices_are_refused_with_the_reason_and_no_label():
    votes, labels = seed_zero()
    with pytest.raises(InvalidDataError, match="look like the student's labels") as caught:
        perform_analysis(votes, labels, 0.1, n_classes=10)
    assert not set("123456789") & set(str(caught.value).replace("shape[1]", ""))


@pytest.mark.filterwarnings("ignore:May not have used")
def test_the_old_number_can_be_had_by_name():
    votes, labels = seed_zero()
    with pytest.warns(UserWarning, match="known faults"):
        found = perform_analysis(votes, labels, 0.1, compat="pysyft")
    assert found.data_dependent == pytest.approx(1.4828, abs=5e-5)
    assert found.data_independent == pytest.approx(7.8376, abs=5e-5)


def test_the_number_of_the_tutorial():
    votes = np.random.default_rng(0).integers(0, 10, size=(100, 9000))
    found = perform_analysis(votes, np.arange(9000), noise_eps=0.2, delta=1e-5, n_classes=10)
    assert found.data_independent == pytest.approx(1451.5129254649705, rel=1e-15)
    assert found.data_dependent <= found.data_independent


def test_tensors_of_torch_count_alike():
    class Tensor:  # what a torch tensor is asked for, on machines without torch
        def __init__(self, values):
            self.values = values

        def detach(self):
            return self

        def cpu(self):
            return self

        def numpy(self):
            return self.values

    votes, _ = seed_zero()
    expected = perform_analysis(votes, EVERY, 0.1, n_classes=10)
    assert perform_analysis_torch(Tensor(votes), Tensor(EVERY), n_classes=10) == expected
    torch = pytest.importorskip("torch")
    found = perform_analysis_torch(torch.tensor(votes), torch.tensor(EVERY), noise_eps=0.1, n_classes=10)
    assert found == expected


@pytest.mark.filterwarnings("ignore:May not have used")
def test_only_the_answered_examples_are_counted():
    votes, _ = seed_zero()
    few = perform_analysis(votes, np.arange(10), 0.1, n_classes=10)
    assert few.data_independent < 4
    assert few == perform_analysis(votes[:, :10], np.arange(10), 0.1, n_classes=10)


@pytest.mark.filterwarnings("ignore:May not have used")
def test_theorem_3_is_not_used_where_it_does_not_hold():
    votes = np.array([[0, 0], [1, 1], [0, 0]])  # two classes, one vote ahead
    ours = perform_analysis(votes, [0], noise_eps=0.7, n_classes=2, moments=3)
    with pytest.warns(UserWarning, match="known faults"):
        theirs = perform_analysis(votes, [0], noise_eps=0.7, compat="pysyft", moments=3)
    assert theirs.data_dependent < ours.data_dependent - 0.1
    assert ours.data_dependent <= ours.data_independent


def test_too_few_moments_are_reported():
    with pytest.warns(UserWarning, match="enough values of l"):
        perform_analysis(np.zeros((100, 20), dtype=int), [0], noise_eps=0.1, n_classes=2)


@pytest.mark.filterwarnings("ignore:May not have used")
def test_classes_without_votes_are_asked_for():
    votes, _ = seed_zero()
    with pytest.warns(UserWarning, match="`n_classes`"):
        fewer = perform_analysis(votes[:, :10], np.arange(10), 0.1)
    assert fewer.data_dependent < perform_analysis(votes[:, :10], np.arange(10), 0.1, n_classes=10).data_dependent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gaps = perform_analysis(votes * 3, EVERY, 0.1)  # labels 0, 3, …, 27
    assert gaps.data_dependent >= perform_analysis(votes, EVERY, 0.1, n_classes=10).data_dependent


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.arange(51)}, "column numbers from 0 to 49"),
        ({"indices": np.array([-1, 2])}, "column numbers from 0 to 49"),
        ({"indices": np.array([], dtype=int)}, "column numbers"),
        ({"indices": np.array([0.5])}, "`indices` must be whole numbers"),
        ({"indices": EVERY[None]}, "`indices` must be whole numbers in 1"),
        ({"teacher_preds": np.zeros((3, 50)) + np.nan}, "`teacher_preds` must be whole numbers"),
        ({"teacher_preds": np.zeros(50, dtype=int)}, "`teacher_preds` must be whole numbers in 2"),
        ({"teacher_preds": np.full((3, 50), 10)}, "below the number of classes"),
        ({"teacher_preds": np.full((3, 50), -1)}, "must hold classes"),
        ({"noise_eps": 0}, "noise_eps"),
        ({"delta": 0}, "delta"),
        ({"moments": 0}, "moments"),
        ({"compat": "tensorflow"}, "'pysyft' or left out"),
        ({"compat": "pysyft"}, "`n_classes` cannot go with"),
        ({"teacher_preds": np.ma.array(np.zeros((3, 50)), mask=np.eye(3, 50, dtype=bool))}, "must not be masked"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    votes, _ = seed_zero()
    arguments = {"teacher_preds": votes, "indices": EVERY, "noise_eps": 0.1, "n_classes": 10} | change
    with pytest.raises((InvalidDataError, InvalidParameterError), match=message):
        perform_analysis(**arguments)


@pytest.mark.filterwarnings("ignore:May not have used")
def test_votes_the_wrong_way_round_are_noticed():
    votes, _ = seed_zero()
    with pytest.warns(UserWarning, match="teachers are rows"):
        perform_analysis(np.repeat(votes, 6, axis=0), EVERY, 0.1, n_classes=10)
