"""The tutorial of OpenMined: its reproduction."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config

from tutelage.exceptions import InvalidDataError
from tutelage_reproductions import tutorial
from tutelage_reproductions.datasets import load_digits
from tutelage_reproductions.datasets.images import DIGIT_NAMES, ImageSplit
from tutelage_reproductions.tutorial import TutorialNetwork

SIZE = tutorial._Size(epochs=10, pool=200, steps=2)


def enlarged(images: np.ndarray, times: int) -> np.ndarray:
    """Return images of 8 by 8 as flat ones of so many times the side length."""
    return (
        np.kron(images.reshape(-1, 8, 8), np.ones((times, times)))
        .reshape(len(images), -1)
        .astype(np.uint8)
    )


@pytest.fixture
def less_mnist(monkeypatch):
    """Scikit-learn's digits, enlarged, as if they were MNIST."""
    pytest.importorskip("torch")
    digits = load_digits()
    less = replace(
        digits,
        X_train=15 * enlarged(digits.X_train, 2),
        X_test=15 * enlarged(digits.X_test, 2),
        image_shape=(16, 16),
    )
    monkeypatch.setattr(tutorial, "_data", lambda download: less)
    monkeypatch.setattr(tutorial, "_FULL", SIZE)
    monkeypatch.setattr(tutorial, "_TEACHERS", 10)
    monkeypatch.setattr(tutorial, "_BATCH", 8)
    monkeypatch.setattr(tutorial, "_DRAWS", 2)
    monkeypatch.setattr(tutorial, "_ASKED", 40)
    monkeypatch.setattr(tutorial, "_HELD_OUT", slice(200, 300))
    monkeypatch.setattr(tutorial, "glyph_features", lambda public: _as_they_are())
    with parallel_config(backend="sequential"):
        yield less


def _as_they_are() -> Any:
    """Return a pipeline whose last step the reproduction leaves out."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    return make_pipeline(FunctionTransformer(), FunctionTransformer())


def test_the_tutorial_prints_one_number_and_its_answers_cost_another(less_mnist, monkeypatch):
    # So little noise that the votes of ten teachers matter.
    monkeypatch.setattr(tutorial, "_GAMMA", 1.0)
    record = tutorial.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    assert record.name == "tutorial"
    assert "digits" in record.notes[0]
    assert not [row.name for row in record.rows if row.falls_short and row.why is None]
    assert rows["plurality, %"].ours > 40
    printed = rows["ε printed by the tutorial, labels used as indices"]
    assert printed.published == 59.47392676433782
    assert printed.why is not None
    for how in ("vote-dependent", "worst-case"):
        exact = rows[
            f"{how} ε of 200 queries" + (", exact" if how == "vote-dependent" else "")
        ].ours
        by_moments = rows[f"{how} ε of 200 queries, the tutorial's moments"].ours
        assert exact < by_moments
        assert by_moments != pytest.approx(printed.ours, rel=1e-3)
    assert rows["queries within ε = 2, GNMax(sigma=25.0)"].ours == 105
    assert rows["40 queries by GNMax(sigma=25.0): worst-case ε"].ours < 2
    students = [row for row in record.rows if "student" in row.name]
    assert len(students) == 2
    for row in students:
        assert row.interval is not None
        assert row.interval[0] <= row.ours <= row.interval[1]
        assert row.ours < 100


def test_a_student_is_scored_by_the_labels_of_images_that_were_held_out(monkeypatch):
    y = np.arange(30) % 10
    X = np.zeros((30, 4), np.uint8)
    images = ImageSplit(X, y, X, y, (2, 2), DIGIT_NAMES, "made up")
    monkeypatch.setattr(tutorial, "_HELD_OUT", slice(5, 13))
    said = np.array([5, 6, 7, 8, 0, 0, 0, 2])  # of 5, 6, 7, 8, 9, 0, 1, 2: two are wrong
    right, (low, high) = tutorial._score(SimpleNamespace(predict=lambda X: said), X[5:13], images)
    assert right == 75
    assert low < 75 < high < 100


def test_color_images_get_a_network_as_student(less_mnist):
    colored = replace(
        less_mnist,
        X_train=np.repeat(less_mnist.X_train, 3, axis=1),
        X_test=np.repeat(less_mnist.X_test, 3, axis=1),
        image_shape=(16, 16, 3),
    )
    right_way = tutorial._right_way(colored, SIZE)
    assert type(right_way.student).__name__ == "ConsistencyStudent"
    assert right_way.seen.shape == (200, 768)
    weights = TutorialNetwork((32, 32, 3))(10).state_dict()
    # As the tutorial has it.
    assert (50, 5 * 5 * 20) in [tuple(weight.shape) for weight in weights.values()]
    assert tutorial._ballots(colored, SIZE._replace(epochs=1), progress=False).shape == (10, 200)


def test_svhn_is_taken_where_all_of_it_is_found(monkeypatch, tmp_path):
    X, y = np.zeros((1, 1), np.uint8), np.zeros(1, np.int64)
    whole = ImageSplit(X, y, X, y, (1, 1), DIGIT_NAMES, "whole")
    monkeypatch.setattr(
        tutorial, "load_svhn", lambda download: replace(whole, name=f"SVHN, {download}")
    )
    monkeypatch.setattr(tutorial, "load_mnist", lambda: replace(whole, name="MNIST"))
    monkeypatch.setenv("TUTELAGE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "train_32x32.mat").touch()
    assert tutorial._data(download=False).name == "MNIST"
    assert tutorial._data(download=True).name == "SVHN, True"
    (tmp_path / "svhn" / "test_32x32.mat").touch()
    assert tutorial._data(download=False).name == "SVHN, False"


def test_without_torch_the_reproduction_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(tutorial, "find_spec", lambda name: None)
    with pytest.raises(InvalidDataError, match="\\[torch\\]"):
        tutorial.reproduce(quick=True, download=False, progress=False)


def test_truncated_noise_ties_more_often_than_lemma_4_allows():
    values = np.arange(-400, 401)
    assert tutorial._truncated_law(3, values).sum() == pytest.approx(1)
    # All of (−1, 1) becomes 0.
    assert tutorial._truncated_law(0, values)[400] == pytest.approx(1 - np.exp(-0.2))
    claimed, found = (row.ours for row in list(tutorial._truncation_rows([_no_noise()]))[2:])
    assert claimed == pytest.approx(100 * (2 + 4) / (4 * np.exp(4)))
    drawn = np.trunc(np.array([[40, 60]]) + np.random.default_rng(1).laplace(0, 5, (200_000, 2)))
    assert found == pytest.approx(100 * np.mean(drawn[:, 0] >= drawn[:, 1]), abs=0.12)
    assert found > 1.08 * claimed


def _no_noise() -> Any:
    return tutorial._Noisy(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, bool))
