"""Networks that learn images: the changes that they see, what they learn, and how they travel."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression

from tutelage import PATEClassifier, SimulationNoise, SystemNoise
from tutelage.exceptions import InvalidDataError, InvalidParameterError, OneClassWarning
from tutelage.features import LearnedMap, PublicRows, image_features
from tutelage.methods import CappedVotes, NoisyMoments, TeacherVotes
from tutelage.planning import plan
from tutelage.students import load_student
from tutelage.students.store import write_student
from tutelage.teachers import ClassMeans

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402  needs the extra

from tutelage.students import ConsistencyStudent, ImageAugmentation  # noqa: E402
from tutelage.students.networks.base import (  # noqa: E402
    AveragedNetwork,
    robust_loss,
    robustness_at,
    step_size,
)
from tutelage.students.networks.consistency import _ClassShares  # noqa: E402
from tutelage.students.networks.residual import residual_network  # noqa: E402

DIGITS: Any = load_digits()
X, X_TEST = DIGITS.data[:-360], DIGITS.data[-360:]
Y, Y_TEST = DIGITS.target[:-360], DIGITS.target[-360:]
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


def few_labels() -> np.ndarray:
    """Return labels of 60 digits, four of them wrong, and −1 for the others."""
    generator = np.random.default_rng(0)
    labels = np.full(len(X), -1)
    asked = generator.choice(len(labels), 60, replace=False)
    labels[asked] = Y[asked]
    labels[asked[:4]] = (labels[asked[:4]] + generator.integers(1, 10, 4)) % 10
    return labels


LABELS = few_labels()


def tiny(**settings) -> ConsistencyStudent:
    return ConsistencyStudent(**{"steps": 3, "batch_size": 4, "random_state": 0, **settings})


@pytest.mark.rest
def test_unlabeled_images_teach_what_few_labels_do_not():
    cheap = {"steps": 300, "batch_size": 32, "unlabeled_ratio": 2, "averaging": 0.95}
    right = {
        weight: np.mean(
            tiny(**cheap, unlabeled_weight=weight).fit(X, LABELS).predict(X_TEST) == Y_TEST
        )
        for weight in (0.0, 1.0)
    }
    assert right[1.0] > 0.85
    assert right[1.0] > right[0.0] + 0.03


def test_the_same_seed_gives_the_same_student_and_leaves_other_streams_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = (tiny().fit(X, LABELS).predict_proba(X_TEST) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(one, other)
    assert not np.array_equal(one, tiny(random_state=1).fit(X, LABELS).predict_proba(X_TEST))
    assert not np.array_equal(tiny(random_state=None).fit(X, LABELS).predict_proba(X_TEST), one)


def test_classes_keep_the_users_words_and_may_be_one():
    words = np.where(LABELS < 0, -1, np.where(LABELS < 5, "low", "high").astype(object))
    student = tiny().fit(X, words)
    assert student.classes_.tolist() == ["high", "low"]
    assert set(student.predict(X_TEST)) <= {"high", "low"}
    with pytest.warns(OneClassWarning, match="same class"):
        alone = tiny().fit(X, np.where(LABELS == 3, 3, -1))
    assert alone.predict_proba(X_TEST[:1]).tolist() == [[1.0]]
    everything = tiny().fit(X, Y)
    assert np.allclose(everything.predict_proba(X_TEST).sum(axis=1), 1)
    assert np.allclose(
        everything.predict_proba(X_TEST[:1]), everything.predict_proba(X_TEST)[:1], atol=1e-5
    )


def test_a_first_student_says_what_is_learned_first():
    shifted = ShiftedClasses(max_iter=300)
    student = tiny(steps=150, batch_size=64, unlabeled_weight=0.0, first_student=shifted).fit(
        X, LABELS
    )
    agree = np.mean(
        student.predict(X_TEST) == shifted.fit(X[LABELS >= 0], LABELS[LABELS >= 0]).predict(X_TEST)
    )
    assert agree > 0.7  # without it, no more than a tenth would be one too high


class ShiftedClasses(LogisticRegression):
    """A first student that says one more than it learned."""

    def predict(self, X):
        return (np.asarray(super().predict(X)) + 1) % 10


def test_color_images_and_own_modules_are_learned():
    images = np.random.default_rng(0).random((12, 4, 4, 3)) * 255
    student = tiny(factory=lambda n_classes: nn.Linear(48, n_classes), steps=2, bfloat16=True)
    student.fit(images, np.array([0, 1, *[-1] * 10]))
    assert student.predict_proba(images).shape == (12, 2)
    assert set(student.weights_) == {"weight", "bias"}
    assert all(isinstance(value, np.ndarray) for value in student.weights_.values())


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (4, 16), (8, 4, 2)])
def test_images_are_learned_as_they_are_and_flattened(shape):
    images = X[:100].reshape(-1, *shape)
    by_images = tiny().fit(images, LABELS[:100])
    flat = tiny(image_shape=[*shape]).fit(X[:100], LABELS[:100])
    assert by_images.image_shape_ == flat.image_shape_ == shape
    expected = by_images.predict_proba(X_TEST)
    assert np.array_equal(flat.predict_proba(X_TEST.reshape(-1, *shape)), expected)
    if shape == (8, 8):  # square and gray
        assert np.array_equal(tiny().fit(X[:100], LABELS[:100]).predict_proba(X_TEST), expected)


def test_rows_of_another_image_shape_are_refused():
    with pytest.raises(InvalidParameterError, match="images of 62 numbers are not square and gray"):
        tiny().fit(X[:, :62], LABELS)
    fitted = tiny().fit(X.reshape(-1, 8, 8), LABELS)
    with pytest.raises(InvalidDataError, match="dim 3"):
        fitted.predict(X.reshape(-1, 4, 16))
    with pytest.raises(InvalidDataError, match=r"shape \(4, 16\), .* Got images of shape \(8, 8\)"):
        tiny(image_shape=(4, 16)).fit(X.reshape(-1, 8, 8), LABELS)
    with pytest.raises(
        InvalidParameterError, match=r"\(height, width, channels\). Got \(2, 2, 4, 4\)"
    ):
        tiny().fit(X.reshape(-1, 2, 2, 4, 4), LABELS)


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
        ({"image_shape": 64}, "`image_shape`"),
        ({"image_shape": (8, 9)}, "Got rows of 64 numbers"),
        ({"image_shape": (1, 64)}, "`image_shape`"),
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

    with pytest.raises((InvalidParameterError, InvalidDataError), match=complaint):
        tiny().set_params(**wrong).fit(X, LABELS)


def test_a_student_comes_back_from_disk(tmp_path):
    student = tiny(augmentation=ImageAugmentation(shift=1)).fit(X.reshape(-1, 8, 8), LABELS)
    write_student(student, tmp_path / "student.skops")
    back = load_student(tmp_path / "student.skops")
    assert np.array_equal(back.predict_proba(X_TEST), student.predict_proba(X_TEST))
    assert back.augmentation == student.augmentation
    assert back.image_shape_ == (8, 8)


def test_a_network_of_ones_own_is_not_read_unless_it_is_trusted(tmp_path):
    student = tiny(factory=own_network).fit(X, LABELS)
    write_student(student, tmp_path / "student.skops")
    with pytest.raises(InvalidDataError, match="own_network"):
        load_student(tmp_path / "student.skops")


def own_network(n_classes: int) -> nn.Module:
    return nn.Linear(64, n_classes)


VOTES = TeacherVotes(ClassMeans(), n_teachers=60, n_queries=60, student=tiny())


def fitted(X: np.ndarray, X_public: np.ndarray, **settings) -> PATEClassifier:
    settings = {"method": VOTES, "noise": SimulationNoise(0), "random_state": 0, **settings}
    return PATEClassifier(classes=range(10), **settings).fit(X, Y, X_public=X_public)


EDGES = image_features(PublicRows(X_TEST, "public digits"), (8, 8), n_components=20)


@pytest.mark.parametrize(
    ("features", "shape", "known"),
    [
        (None, (8, 8), (8, 8)),
        (None, (8, 8, 1), (8, 8, 1)),
        (None, (64,), None),
        (LearnedMap("images", image_shape=(8, 8)), (64,), (8, 8)),
        (EDGES, (64,), (8, 8)),
    ],
    ids=["images", "a channel", "flat", "a map to learn", "a map"],
)
def test_an_estimator_shows_its_student_pixels_and_their_shape(features, shape, known):
    images, public = X.reshape(-1, *shape), X_TEST.reshape(-1, *shape)
    model = fitted(images, public, features=features)
    assert model.student_.image_shape == known
    assert model.student_.n_features_in_ == 64
    assert model.student_map_ is None
    student = model.whole_student()
    assert np.array_equal(student.predict(public), model.predict(public))
    card = model.card()
    assert card.student.name == "ConsistencyStudent"
    described = " × ".join(map(str, known or (8, 8)))
    assert card.release.feature_map == f"none; the student sees the pixels of images of {described}"


@pytest.mark.parametrize("method", [CappedVotes(votes=5), NoisyMoments()], ids=lambda one: one.name)
def test_a_student_of_images_learns_from_the_labels_of_people(method):
    model = fitted(
        X.reshape(-1, 8, 8),
        X_TEST.reshape(-1, 8, 8),
        epsilon=5.0,
        method=method.with_params(student=tiny()),
    )
    assert model.student_.image_shape == (8, 8)
    assert model.student_map_ is None


def test_an_estimator_refuses_a_shape_that_its_images_do_not_have():
    with pytest.raises(InvalidParameterError, match=r"public images, \(8, 8\), or be left out"):
        fitted(
            X.reshape(-1, 8, 8),
            X_TEST.reshape(-1, 8, 8),
            method=VOTES.with_params(student__image_shape=(4, 16)),
        )
    with pytest.raises(InvalidParameterError, match="Got rows of 64 numbers"):
        fitted(X, X_TEST, method=VOTES.with_params(student__image_shape=(4, 4)))


def test_a_student_of_images_has_a_name():
    method = TeacherVotes(ClassMeans(), n_teachers=60, n_queries=60, student="consistency")
    run = PATEClassifier(classes=range(10), method=method, features=EDGES).resolved()
    assert isinstance(run.student, ConsistencyStudent)
    assert run.student_map is None
    assert (
        PATEClassifier(method=method.with_params(student_features=EDGES)).resolved().student_map
        is EDGES
    )


@pytest.mark.parametrize("student", ["consistency", tiny()], ids=["a name", "a student"])
def test_a_plan_refuses_it_because_trials_have_no_images(student):
    method = VOTES.with_params(student=student)
    with pytest.raises(InvalidParameterError, match="features and not images"):
        plan(1.0, people=1000, X_public=X_TEST[:60], y_public=Y_TEST[:60], method=method)


@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_later_rounds_and_fits_know_the_shape_too(tmp_path):
    rounds = VOTES.with_params(n_queries=20, rounds=2, selection="least-confident")
    assert fitted(X.reshape(-1, 8, 8), X_TEST.reshape(-1, 8, 8), method=rounds).rounds_ == (10, 10)
    settings = {"ledger": tmp_path / "digits.ledger", "noise": SystemNoise(), "epsilon": 1.0}
    drawn = [
        fitted(X.reshape(-1, *shape), X_TEST.reshape(-1, *shape), **settings).drawn_
        for shape in ((8, 8), (8, 8), (64,))
    ]
    assert drawn == [60, 0, 0]  # the same question, however its images come


CONFIGURATION = """
[target]
classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
column = "y"
[private]
file = "private.npz"
unit = "row"
[public]
file = "public.npz"
[method]
name = "teacher-votes"
teacher = "ClassMeans"
n_teachers = 60
n_queries = 60
student = { name = "consistency", image_shape = [4, 16], steps = 3, batch_size = 4 }
[privacy]
epsilon = 8.0
[output]
folder = "out"
"""


@pytest.mark.rest
def test_a_configuration_names_it(tmp_path, called):
    np.savez(tmp_path / "private.npz", X=X, y=Y)
    np.savez(tmp_path / "public.npz", X=X_TEST)
    (tmp_path / "config.toml").write_text(CONFIGURATION)
    ran = called("run", "config.toml", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert load_student(tmp_path / "out").image_shape_ == (4, 16)


WITHOUT_TORCH = """
import sys


class NoTorch:
    def find_spec(self, name, *_):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name=name)


sys.meta_path.insert(0, NoTorch())
{}
"""


@pytest.mark.rest
@pytest.mark.parametrize(
    "code",
    [
        "from tutelage.students import ConsistencyStudent",
        "from tutelage.methods import TeacherVotes; TeacherVotes(student='consistency')",
        "from tutelage.students import load_student; load_student('student.skops')",
    ],
)
def test_without_torch_one_sentence_says_what_to_install(code, tmp_path):
    write_student(tiny().fit(X, LABELS), tmp_path / "student.skops")
    shown = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH.format(code)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    last = shown.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: Neural networks need torch: pip install ")


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
    shares = _ClassShares(torch.tensor([0, 1] * 500), 2)
    said = torch.tensor([[0.6, 0.4]] * 10)
    moved = [shares.align(said) for _ in range(500)][-1]
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
    images = torch.rand(n_images, *(*shape, 1)[:3]) * 255
    parts = ("scaling", "shear", "elastic", "contrast", "brightness", "negative", "cover")
    each: dict[str, Any] = dict.fromkeys(parts, strength)
    changes = ImageAugmentation(rotation=90 * strength, **each)
    for changed in (changes.weak(images), changes.strong(images)):
        assert changed.shape == images.shape
        assert images.min() <= changed.min() <= changed.max() <= images.max()


def test_a_weak_change_is_a_shift_of_all_colors_together():
    image = torch.zeros(9, 9, 3)
    image[4, 4] = torch.tensor([1.0, 2.0, 3.0])
    moved = ImageAugmentation(shift=2).weak(image.repeat(400, 1, 1, 1))
    assert torch.equal(moved.sum(dim=(1, 2)), torch.tensor([1.0, 2.0, 3.0]).repeat(400, 1))
    places = torch.nonzero(moved[..., 0])
    assert {(line, column) for _, line, column in places.tolist()} == {
        (line, column) for line in range(2, 7) for column in range(2, 7)
    }


def test_without_strength_nothing_changes():
    images = torch.rand(5, 6, 7, 3)
    still = ImageAugmentation(**STILL)
    assert torch.equal(still.weak(images), images)
    assert torch.allclose(still.strong(images), images, atol=1e-5)


def test_each_strong_change_does_what_it_says():
    torch.manual_seed(0)
    images = torch.rand(200, 16, 16, 1)
    rows = images.flatten(1)

    def changed(images: Any, **strength: float) -> Any:
        settings: dict[str, Any] = {**STILL, **strength}
        return ImageAugmentation(**settings).strong(images).flatten(1)

    brighter = changed(0.2 + 0.5 * images, brightness=0.05) - (0.2 + 0.5 * rows)
    assert brighter.abs().max() <= 0.05 * 0.5 + 1e-5
    inner = (brighter - brighter.median(dim=1, keepdim=True).values).abs() < 1e-5
    assert inner.float().mean() > 0.9  # one offset per image, but where it would leave the range
    negative = changed(images, negative=0.5)
    inverted = torch.isclose(negative, rows.min() + rows.max() - rows, atol=1e-5).all(dim=1)
    assert torch.isclose(negative[~inverted], rows[~inverted], atol=1e-5).all()
    assert 60 < inverted.sum() < 140
    covered = changed(images, cover=0.5)
    gone = ~torch.isclose(covered, rows, atol=1e-5)
    assert 0 < gone.float().mean() < 0.25
    means = rows.mean(dim=1, keepdim=True).expand_as(rows)
    assert torch.allclose(covered[gone], means[gone], atol=1e-5)


def test_turning_moves_a_line_by_no_more_than_the_angle():
    torch.manual_seed(0)
    image = torch.zeros(33, 33)
    image[16] = 1
    rotated = replace(ImageAugmentation(**STILL), rotation=20.0)
    turned = rotated.strong(image[None, :, :, None].repeat(300, 1, 1, 1))
    lines, columns = torch.meshgrid(torch.arange(33.0) - 16, torch.arange(33.0) - 16, indexing="ij")
    bright = turned.reshape(300, 33, 33) > 0.5
    angles = torch.rad2deg(torch.atan2(lines, columns.abs()))[None].expand(300, -1, -1)[
        bright & (columns > 8)
    ]
    assert 15 < angles.abs().max() < 24


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("shift", -1), ("rotation", 180), ("cover", 1.0), ("negative", -0.1)],
)
def test_augmentations_that_cannot_be_are_refused(name, wrong):
    with pytest.raises(InvalidParameterError, match=f"`{name}`"):
        ImageAugmentation(**{name: wrong})


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (32, 32, 3), (17, 40, 1), (2, 3)])
def test_the_residual_network_fits_its_images_and_does_not_see_their_brightness(shape):
    network = residual_network(shape, 7).eval()
    rows = torch.rand(3, int(np.prod(shape))) * 100
    assert network(rows).shape == (3, 7)
    assert torch.allclose(network(rows), network(2 * rows + 30), atol=1e-4)
    assert network(torch.zeros_like(rows)).isfinite().all()
