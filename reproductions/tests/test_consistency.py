from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

from tutelage.exceptions import InvalidDataError, InvalidParameterError, OneClassWarning
from tutelage.students import load_student
from tutelage.students.store import write_student
from tutelage_reproductions.datasets import load_digits
from tutelage_reproductions.students.augmentation import ImageAugmentation
from tutelage_reproductions.students.consistency import ConsistencyStudent, _Shares
from tutelage_reproductions.students.networks import (
    AveragedNetwork,
    ResidualNetwork,
    robust_loss,
    robustness_at,
    step_size,
)

STILL: dict[str, Any] = {
    "shift": 0,
    "rotation": 0.0,
    "scaling": 0.0,
    "shear": 0.0,
    "elastic": 0.0,
    "cover": 0.0,
}


@pytest.fixture(autouse=True)
def one_thread():
    """Train on one thread: with networks this small, several mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def few_labels(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Digits with 60 labels, four of them wrong, and what none of them tells: the test images."""
    digits, generator = load_digits(), np.random.default_rng(seed)
    labels = np.full(len(digits.X_train), -1)
    asked = generator.choice(len(labels), 60, replace=False)
    labels[asked] = digits.y_train[asked]
    labels[asked[:4]] = (labels[asked[:4]] + generator.integers(1, 10, 4)) % 10
    return digits.X_train, labels, digits.X_test


def tiny(**settings) -> ConsistencyStudent:
    return ConsistencyStudent(
        (8, 8), **{"steps": 3, "batch_size": 4, "random_state": 0, **settings}
    )


def test_unlabelled_images_teach_what_few_labels_do_not():
    X, labels, X_test = few_labels()
    truth = load_digits().y_test
    cheap = {"steps": 300, "batch_size": 32, "unlabeled_ratio": 2, "averaging": 0.95}
    right = {
        weight: np.mean(
            tiny(**cheap, unlabeled_weight=weight).fit(X, labels).predict(X_test) == truth
        )
        for weight in (0.0, 1.0)
    }
    assert right[1.0] > 0.85
    assert right[1.0] > right[0.0] + 0.03


def test_the_same_seed_gives_the_same_student_and_leaves_other_streams_alone():
    X, labels, X_test = few_labels()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = (tiny().fit(X, labels).predict_proba(X_test) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(one, other)
    assert not np.array_equal(one, tiny(random_state=1).fit(X, labels).predict_proba(X_test))
    assert not np.array_equal(tiny(random_state=None).fit(X, labels).predict_proba(X_test), one)


def test_classes_keep_the_users_words_and_may_be_one():
    X, labels, X_test = few_labels()
    words = np.where(labels < 0, -1, np.where(labels < 5, "low", "high").astype(object))
    student = tiny().fit(X, words)
    assert student.classes_.tolist() == ["high", "low"]
    assert set(student.predict(X_test)) <= {"high", "low"}
    with pytest.warns(OneClassWarning, match="same class"):
        alone = tiny().fit(X, np.where(labels == 3, 3, -1))
    assert alone.predict_proba(X_test[:1]).tolist() == [[1.0]]
    everything = tiny().fit(X, load_digits().y_train)
    assert np.allclose(everything.predict_proba(X_test).sum(axis=1), 1)
    assert np.allclose(
        everything.predict_proba(X_test[:1]), everything.predict_proba(X_test)[:1], atol=1e-5
    )


def test_a_first_student_says_what_is_learned_first():
    X, labels, X_test = few_labels()
    shifted = ShiftedClasses(max_iter=300)
    student = tiny(steps=150, batch_size=64, unlabeled_weight=0.0, first_student=shifted).fit(
        X, labels
    )
    agree = np.mean(
        student.predict(X_test) == shifted.fit(X[labels >= 0], labels[labels >= 0]).predict(X_test)
    )
    assert agree > 0.7  # without it, no more than a tenth would be one too high


class ShiftedClasses(LogisticRegression):
    """A first student that says one more than it learned."""

    def predict(self, X):
        return (np.asarray(super().predict(X)) + 1) % 10


def test_color_images_and_own_modules_are_learned():
    X = np.random.default_rng(0).random((12, 4 * 4 * 3)) * 255
    student = ConsistencyStudent(
        (4, 4, 3),
        factory=lambda n_classes: nn.Linear(48, n_classes),
        steps=2,
        batch_size=2,
        bfloat16=True,
    )
    assert student.fit(X, np.array([0, 1, *[-1] * 10])).predict_proba(X).shape == (12, 2)
    assert set(student.weights_) == {"weight", "bias"}
    assert all(isinstance(value, np.ndarray) for value in student.weights_.values())


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"steps": 0}, "`steps`"),
        ({"batch_size": 1}, "`batch_size`"),
        ({"unlabeled_ratio": 0}, "`unlabeled_ratio`"),
        ({"unlabeled_weight": -1}, "`unlabeled_weight`"),
        ({"confidence": 1.0}, "`confidence`"),
        ({"robustness": 1.5}, "`robustness`"),
        ({"averaging": 1.0}, "`averaging`"),
        ({"learning_rate": 0}, "`learning_rate`"),
        ({"weight_decay": -0.1}, "`weight_decay`"),
        ({"random_state": -1}, "`random_state`"),
        ({"factory": nn.Linear(64, 10)}, "`factory`"),
        ({"factory": lambda n_classes: None}, "`factory`"),
        ({"augmentation": "strong"}, "`augmentation`"),
        ({"augmentation": ImageAugmentation((4, 16))}, "`image_shape`"),
        ({"image_shape": 64}, "`image_shape`"),
        ({"image_shape": (8, 9)}, "must have 72 columns"),
        ({"device": "nowhere"}, "`device`"),
        ({"first_student": "label-propagation"}, "must be a scikit-learn classifier"),
        (
            {"first_student": LinearRegression()},
            "`first_student` of ConsistencyStudent must be a scikit-learn",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_settings_that_cannot_be_are_refused(wrong, complaint):
    X, labels, _ = few_labels()
    with pytest.raises((InvalidParameterError, InvalidDataError), match=complaint):
        tiny().set_params(**wrong).fit(X, labels)


def test_a_student_comes_back_from_disk(tmp_path):
    X, labels, X_test = few_labels()
    factory = ResidualNetwork((8, 8), (4, 8), kernel=3)
    student = tiny(factory=factory, augmentation=ImageAugmentation((8, 8), shift=1)).fit(X, labels)
    write_student(student, tmp_path / "student.skops")
    own = (ConsistencyStudent, ImageAugmentation, ResidualNetwork)
    trusted = tuple(f"{kind.__module__}.{kind.__name__}" for kind in own)
    back = load_student(tmp_path / "student.skops", trusted)
    assert np.array_equal(back.predict_proba(X_test), student.predict_proba(X_test))
    assert back.factory == factory


@given(
    q=st.floats(0.01, 0.99),
    scores=st.lists(st.floats(-8, 8), min_size=3, max_size=3),
    label=st.integers(0, 2),
)
def test_the_robust_loss_is_its_formula(q, scores, label):
    odds = np.exp(np.array(scores) - max(scores))
    p = odds[label] / odds.sum()
    loss = robust_loss(torch.tensor([scores], dtype=torch.float64), torch.tensor([label]), q)
    assert loss.item() == pytest.approx((1 - p**q) / q, rel=1e-6, abs=1e-9)


def test_the_robust_loss_lies_between_cross_entropy_and_absolute_error_and_pulls_less_where_contradicted():
    scores, labels = (
        torch.tensor([[4.0, 0.0], [0.0, 4.0]], requires_grad=True),
        torch.tensor([0, 0]),
    )
    p = scores.softmax(dim=1)[:, 0]
    assert torch.allclose(robust_loss(scores, labels, 0.0), -p.log())
    assert torch.allclose(robust_loss(scores, labels, 0.999), 1 - p, atol=2e-3)
    pulls = [
        torch.autograd.grad(robust_loss(scores, labels, q).sum(), scores)[0].abs().sum(dim=1)[1]
        for q in (0.0, 0.7)
    ]
    assert pulls[1] < 0.1 * pulls[0]


def test_steps_grow_and_then_fall():
    sizes = [step_size(step, 100) for step in range(100)]
    assert sizes[:5] == sorted(sizes[:5])
    assert max(sizes) == sizes[4] == sizes[5] == 1
    assert sizes[5:] == sorted(sizes[5:], reverse=True)
    assert 0 < sizes[-1] < 1e-3
    assert step_size(0, 1) == 1


def test_labels_are_believed_first():
    grown = [robustness_at(step, 100, 0.8) for step in range(100)]
    assert grown[0] == 0
    assert grown[:26] == sorted(grown[:26])
    assert grown[10] == pytest.approx(0.32)
    assert set(grown[25:]) == {0.8}


def test_the_averaged_network_follows_weights_and_statistics():
    module = nn.BatchNorm1d(1)
    averaged = AveragedNetwork(module, 0.5)
    wanted = 1.0  # the first weight of a normalized unit
    for steps, value in enumerate((1.0, 2.0, 3.0), start=1):
        state = {"weight": torch.full((1,), value), "num_batches_tracked": torch.tensor(steps)}
        module.load_state_dict(module.state_dict() | state)
        averaged.update(module)
        memory = min(0.5, steps / (steps + 10))
        wanted = memory * wanted + (1 - memory) * value
    state = averaged.module.state_dict()
    assert state["weight"].item() == pytest.approx(wanted)
    assert state["num_batches_tracked"] == 3
    assert not averaged.module.training


def test_what_is_said_too_often_is_said_less_often():
    shares = _Shares(torch.tensor([0, 1] * 500), 2)
    said = torch.tensor([[0.6, 0.4]] * 10)
    moved = [shares.aligned(said) for _ in range(500)][-1]
    assert torch.allclose(moved.sum(dim=1), torch.ones(10))
    assert torch.allclose(moved, torch.full_like(moved, 0.5), atol=0.01)


@settings(max_examples=30)
@given(
    shape=st.sampled_from([(5, 7), (6, 4, 3), (8, 8, 1)]),
    n_images=st.integers(1, 6),
    seed=st.integers(0, 1000),
    strength=st.floats(0, 0.9),
)
def test_changed_images_keep_their_shape_and_range(shape, n_images, seed, strength):
    torch.manual_seed(seed)
    rows = torch.rand(n_images, int(np.prod(shape))) * 255
    parts = ("scaling", "shear", "elastic", "contrast", "brightness", "negative", "cover")
    each: dict[str, Any] = dict.fromkeys(parts, strength)
    changes = ImageAugmentation(shape, rotation=90 * strength, **each)
    for changed in (changes.weak(rows), changes.strong(rows)):
        assert changed.shape == rows.shape
        assert rows.min() <= changed.min() <= changed.max() <= rows.max()


def test_a_weak_change_is_a_shift_of_all_colors_together():
    image = torch.zeros(9, 9, 3)
    image[4, 4] = torch.tensor([1.0, 2.0, 3.0])
    moved = (
        ImageAugmentation((9, 9, 3), shift=2)
        .weak(image.reshape(1, -1).repeat(400, 1))
        .reshape(400, 9, 9, 3)
    )
    assert torch.equal(moved.sum(dim=(1, 2)), torch.tensor([1.0, 2.0, 3.0]).repeat(400, 1))
    places = torch.nonzero(moved[..., 0])
    assert {(line, column) for _, line, column in places.tolist()} == {
        (line, column) for line in range(2, 7) for column in range(2, 7)
    }


def test_without_strength_nothing_changes():
    rows = torch.rand(5, 6 * 7 * 3)
    still = ImageAugmentation((6, 7, 3), **STILL)
    assert torch.equal(still.weak(rows), rows)
    assert torch.allclose(still.strong(rows), rows, atol=1e-5)


def test_each_strong_change_does_what_it_says():
    torch.manual_seed(0)
    rows = torch.rand(200, 16 * 16)
    brighter = ImageAugmentation((16, 16), **STILL, brightness=0.05).strong(0.2 + 0.5 * rows) - (
        0.2 + 0.5 * rows
    )
    assert brighter.abs().max() <= 0.05 * 0.5 + 1e-5
    inner = (brighter - brighter.median(dim=1, keepdim=True).values).abs() < 1e-5
    assert inner.float().mean() > 0.9  # one offset per image, but where it would leave the range
    negative = ImageAugmentation((16, 16), **STILL, negative=0.5).strong(rows)
    inverted = torch.isclose(negative, rows.min() + rows.max() - rows, atol=1e-5).all(dim=1)
    assert torch.isclose(negative[~inverted], rows[~inverted], atol=1e-5).all()
    assert 60 < inverted.sum() < 140
    covered = ImageAugmentation((16, 16), **{**STILL, "cover": 0.5}).strong(rows)
    gone = ~torch.isclose(covered, rows, atol=1e-5)
    assert 0 < gone.float().mean() < 0.25
    assert torch.allclose(
        covered[gone], rows.mean(dim=1, keepdim=True).expand_as(rows)[gone], atol=1e-5
    )


def test_turning_moves_a_line_by_no_more_than_the_angle():
    torch.manual_seed(0)
    image = torch.zeros(33, 33)
    image[16] = 1
    turned = ImageAugmentation((33, 33), **{**STILL, "rotation": 20.0}).strong(
        image.reshape(1, -1).repeat(300, 1)
    )
    lines, columns = torch.meshgrid(torch.arange(33.0) - 16, torch.arange(33.0) - 16, indexing="ij")
    bright = turned.reshape(300, 33, 33) > 0.5
    angles = torch.rad2deg(torch.atan2(lines, columns.abs()))[None].expand(300, -1, -1)[
        bright & (columns > 8)
    ]
    assert 15 < angles.abs().max() < 24


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"image_shape": [8, 8]}, "image_shape"),
        ({"image_shape": (8,)}, "image_shape"),
        ({"image_shape": (8, 0)}, "image_shape"),
        ({"shift": -1}, "shift"),
        ({"rotation": 180}, "rotation"),
        ({"cover": 1.0}, "cover"),
        ({"negative": -0.1}, "negative"),
    ],
)
def test_augmentations_that_cannot_be_are_refused(wrong, name):
    with pytest.raises(InvalidParameterError, match=f"`{name}`"):
        ImageAugmentation(**{"image_shape": (8, 8), **wrong})


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (32, 32, 3), (17, 40, 1)])
def test_the_residual_network_fits_its_images_and_does_not_see_their_brightness(shape):
    network = ResidualNetwork.for_images(shape)(7).eval()
    rows = torch.rand(3, int(np.prod(shape))) * 100
    assert network(rows).shape == (3, 7)
    assert torch.allclose(network(rows), network(2 * rows + 30), atol=1e-4)
    assert network(torch.zeros_like(rows)).isfinite().all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"image_shape": (3, 28)},
        {"image_shape": 28},
        {"image_shape": (28,)},
    ],
    ids=lambda value: str(value),
)
def test_residual_networks_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidParameterError, match=f"`{next(iter(wrong))}`"):
        ResidualNetwork(**wrong)
