import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.nn import functional

from tutelage.exceptions import InvalidDataError, InvalidParameterError, OneClassWarning
from tutelage.students import load_student
from tutelage.students.networks.base import scores_of
from tutelage.students.store import write_student
from tutelage_reproductions.students import adversarial
from tutelage_reproductions.students.adversarial import (
    AdversarialStudent,
    Discriminator,
    Generator,
    corrected_loss,
    descend,
    entropy,
    generated_loss,
    lengths_of,
    matching_loss,
    real_loss,
)


def student(**settings):
    small = {
        "hidden": (32, 32),
        "generator_units": 32,
        "steps": 20,
        "random_state": 0,
        "device": "cpu",
    }
    return AdversarialStudent(**{**small, **settings})


@parametrize_with_checks(
    [student(hidden=(16,), generator_units=16, steps=80, batch_size=10)],
    expected_failed_checks=lambda _: {
        "check_classifiers_classes": "has a class -1, which marks unlabeled rows"
    },
)
@pytest.mark.filterwarnings("ignore:Every released label is the same class:UserWarning")
@pytest.mark.filterwarnings("ignore:The number of unique classes is greater than 50%:UserWarning")
def test_it_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def moons():
    """600 rows of two interleaved halves; ten of the first 500 are labeled, one of them wrongly."""
    X, classes = make_moons(600, noise=0.07, random_state=0)
    y = np.full(500, -1)
    for value in (0, 1):
        y[np.flatnonzero(classes[:500] == value)[:5]] = value
    y[np.flatnonzero(y == 0)[0]] = 1
    return X[:500], y, X[500:], classes[500:]


def test_unlabelled_rows_teach_what_few_labels_do_not():
    X, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(X))
    X, classes = X[order], classes[order]
    y = np.append(classes[:30], [-1] * 1370)
    settings = {"hidden": (64, 64), "generator_units": 64}
    with_all = student(**settings, steps=400).fit(X[:1400], y)
    alone = student(**settings, steps=200, unlabeled_weight=0).fit(X[:1400], y)
    assert with_all.score(X[1400:], classes[1400:]) > alone.score(X[1400:], classes[1400:]) + 0.04


def test_wrong_labels_do_not_win_over_the_cluster_they_lie_in():
    X, classes = map(
        np.asarray, make_blobs(400, n_features=10, centers=3, cluster_std=4.0, random_state=1)[:2]
    )
    y = classes[:200].copy()
    y[:60] = (y[:60] + 1) % 3
    fitted = student(steps=200, label_noise=0.4, random_state=1).fit(X[:200], y)
    assert fitted.score(X[200:], classes[200:]) > 0.95
    assert fitted.score(X[:200], y) < 0.75


def test_the_same_seed_gives_the_same_student_and_another_one_another(moons):
    X, y, X_new, _ = moons
    first, again, other = (
        student(random_state=seed).fit(X, y).predict_proba(X_new) for seed in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_training_leaves_the_callers_random_stream_alone(moons):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    student().fit(*moons[:2]).predict(moons[2])
    assert torch.equal(torch.rand(3), expected)


def test_a_student_comes_back_from_disk(moons, tmp_path):
    X, y, X_new, _ = moons
    fitted = student().fit(X, np.where(y == -1, -1, np.array(["left", "right"], dtype=object)[y]))
    write_student(fitted, tmp_path / "student.skops")
    back = load_student(
        tmp_path / "student.skops", trusted=(f"{adversarial.__name__}.AdversarialStudent",)
    )
    assert np.array_equal(back.predict_proba(X_new), fitted.predict_proba(X_new))
    assert set(back.predict(X_new)) <= {"left", "right"}
    assert all(type(weights) is np.ndarray for weights in fitted.weights_.values())


@pytest.mark.parametrize("scale", [1e-6, 255.0, 1e6])
def test_the_unit_of_rows_does_not_matter(moons, scale):
    X, y, X_new, _ = moons
    plain = student(steps=5).fit(X, y).predict_proba(X_new)
    scaled = student(steps=5).fit(scale * X, y).predict_proba(scale * X_new)
    assert np.allclose(plain, scaled, atol=1e-2)


@pytest.mark.parametrize("n_classes", [2, 3, 26])
def test_probabilities_are_of_the_classes_that_were_released(n_classes):
    X = np.random.default_rng(0).uniform(size=(n_classes + 4, 5))
    y = np.append(10 * np.arange(n_classes), [-1] * 4)
    fitted = student(steps=2).fit(X, y)
    assert fitted.classes_.tolist() == (10 * np.arange(n_classes)).tolist()
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (n_classes + 4, n_classes)
    assert np.allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("n_unlabelled", [0, 1])
def test_few_or_no_unlabelled_rows_suffice(n_unlabelled):
    X = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])[: 2 + n_unlabelled]
    y = np.array([0, 1, -1])[: 2 + n_unlabelled]
    assert student(steps=100).fit(X, y).predict(X[:2]).tolist() == [0, 1]


@pytest.mark.parametrize("rows", [np.zeros((6, 3)), np.ones((6, 1)), np.full((6, 3), 7e12)])
def test_rows_that_do_not_differ_are_no_reason_to_fail(rows):
    probabilities = student(steps=5).fit(rows, [0, 1, 1, -1, -1, -1]).predict_proba(rows)
    assert np.all(np.isfinite(probabilities))
    assert np.ptp(probabilities, axis=0).max() == 0


@pytest.mark.parametrize("y", [["yes", -1, -1], ["yes", "yes", "yes"]])
def test_one_released_class_makes_a_constant_student_and_says_so(y):
    with pytest.warns(OneClassWarning, match="same class"):
        fitted = student().fit(np.eye(3), np.array(y, dtype=object))
    assert fitted.predict(np.eye(3) + 5).tolist() == ["yes"] * 3
    assert fitted.predict_proba(np.eye(3)).tolist() == [[1.0]] * 3


def test_rows_that_cannot_be_learned_from_are_refused():
    X = np.eye(3)
    for rows, y in [
        (np.where(X == 1, np.nan, X), [0, 1, -1]),
        (X, [-1, -1, -1]),
        (X, [0, 1]),
        (X[0], [0]),
    ]:
        with pytest.raises(InvalidDataError):
            student().fit(rows, y)
    with pytest.raises(InvalidDataError, match="3 features"):
        student(steps=1).fit(X, [0, 1, -1]).predict(np.ones((2, 4)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"hidden": ()},
            r"`hidden` of AdversarialStudent must be a tuple of at least one layer's size. Got \(\)",
        ),
        ({"hidden": [32]}, "`hidden` of AdversarialStudent must be a tuple of at least one"),
        ({"hidden": (32, 0)}, "`hidden` of AdversarialStudent must be an integer >= 1. Got 0"),
        ({"generator_units": 0}, "`generator_units` of AdversarialStudent must be an integer >= 1"),
        ({"steps": 2.5}, "`steps` of AdversarialStudent must be an integer >= 1"),
        ({"batch_size": 1}, "`batch_size` of AdversarialStudent must be an integer >= 2"),
        (
            {"labeled_batch_size": 0},
            "`labeled_batch_size` of AdversarialStudent must be an integer >= 1",
        ),
        (
            {"unlabeled_weight": -1},
            "`unlabeled_weight` of AdversarialStudent must be a number, at least 0",
        ),
        (
            {"entropy_weight": 100},
            "`entropy_weight` of AdversarialStudent must be a number, at least 0",
        ),
        (
            {"label_noise": 1},
            "`label_noise` of AdversarialStudent must be a number, at least 0 and below 1",
        ),
        ({"input_noise": np.nan}, "`input_noise` of AdversarialStudent must be a number"),
        ({"hidden_noise": None}, "`hidden_noise` of AdversarialStudent must be a number"),
        (
            {"averaging": 1.0},
            "`averaging` of AdversarialStudent must be a number, at least 0 and below 1",
        ),
        (
            {"learning_rate": 0},
            "`learning_rate` of AdversarialStudent must be a finite number above 0",
        ),
        (
            {"device": "abacus"},
            "`device` of AdversarialStudent must be a device that torch can use here",
        ),
        ({"random_state": -1}, "`random_state` of AdversarialStudent must be an integer >= 0"),
    ],
)
def test_settings_out_of_range_are_named(settings, message):
    made = student(**settings)
    with pytest.raises(InvalidParameterError, match=message):
        made.fit(np.eye(3), [0, 1, -1])


@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_the_further_class_has_score_zero(size):
    scores = size * torch.randn(
        200, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    # All k + 1 classes, written out.
    every = torch.cat([scores, torch.zeros(200, 1)], dim=1).log_softmax(dim=1)
    assert torch.allclose(real_loss(scores), -every[:, :7].logsumexp(dim=1))
    assert torch.allclose(generated_loss(scores), -every[:, 7])
    among_classes = every[:, :7] - every[:, :7].logsumexp(dim=1, keepdim=True)
    assert torch.allclose(entropy(scores), -(among_classes.exp() * among_classes).sum(dim=1))


def test_scores_beyond_the_range_of_exponentials_give_finite_losses():
    scores = torch.tensor([[1e4, -1e4], [-1e4, -1e4]], requires_grad=True)
    total = real_loss(scores).sum() + generated_loss(scores).sum() + entropy(scores).sum()
    total.backward()
    assert torch.isfinite(total)
    assert scores.grad is not None
    assert torch.all(torch.isfinite(scores.grad))


@pytest.mark.parametrize("noise", [0.0, 0.2, 0.9])
def test_a_released_label_may_have_been_drawn_from_all_classes(noise):
    scores = torch.randn(50, 4, dtype=torch.float64)
    labels = torch.arange(50) % 4
    released = (
        scores.softmax(dim=1) @ ((1 - noise) * torch.eye(4) + noise / 4).double()
    )  # brute force: all replacements
    assert torch.allclose(
        corrected_loss(scores, labels, noise), -released[torch.arange(50), labels].log()
    )


def test_a_contradicted_label_pulls_less_where_labels_may_be_wrong():
    scores = torch.tensor([[12.0, 0.0]], requires_grad=True)
    pulls = [
        torch.autograd.grad(corrected_loss(scores, torch.tensor([1]), noise).sum(), scores)[0]
        .abs()
        .sum()
        for noise in (0.0, 0.1)
    ]
    assert pulls[1] < 0.01 * pulls[0]


def test_matching_compares_means_and_nothing_else():
    real, generated = torch.randn(5, 3), torch.randn(8, 3)
    assert float(matching_loss(real, generated)) == pytest.approx(
        float(np.mean((real.numpy().mean(0) - generated.numpy().mean(0)) ** 2)), rel=1e-5
    )
    assert float(matching_loss(real, real[[4, 3, 2, 1, 0]])) == pytest.approx(0, abs=1e-12)


def test_weights_have_the_directions_and_lengths_they_say():
    network = Discriminator(6, (5, 4), 3, 0.3, 0.5)
    for depth, layer in enumerate(network.layers):
        direction = layer.parametrizations.weight.original1  # type: ignore[union-attr]
        assert torch.allclose(
            layer.weight,  # type: ignore[arg-type]
            lengths_of(layer) * functional.normalize(direction, dim=1),  # type: ignore[arg-type]
            atol=1e-6,
        )
        assert lengths_of(layer).requires_grad == (depth == 2)


def test_first_weights_give_every_unit_mean_0_and_deviation_1():
    rows = 40 + 9 * torch.randn(3000, 6) * torch.linspace(0.5, 2, 6)
    network = Discriminator(6, (20, 8), 3, 0.0, 0.0)
    network.start_from(rows)
    assert float(network.unit) == pytest.approx(float(rows.var(dim=0).mean().sqrt()), rel=1e-3)
    units = rows / network.unit
    for layer in network.layers:
        before = layer(units)
        assert torch.allclose(before.mean(dim=0), torch.zeros(before.shape[1]), atol=1e-3)
        assert torch.allclose(before.std(dim=0), torch.ones(before.shape[1]), atol=1e-3)
        units = before.relu()


def test_noise_is_for_training_only_and_as_large_as_asked():
    network = Discriminator(2000, (1,), 2, 0.25, 0.0)
    network.unit.fill_(4.0)
    rows = torch.zeros(50, 2000)
    assert float(network._noisy(rows, 0).std()) == pytest.approx(0.25, rel=0.02)
    assert network.eval()._noisy(rows, 0) is rows
    assert torch.equal(network(rows + 1), network(rows + 1))


def test_generated_rows_stay_within_the_range_of_each_column():
    low, high = torch.tensor([-3.0, 0.0, 5.0]), torch.tensor([-1.0, 255.0, 5.0])
    rows = Generator(16, low, high)(500)
    assert rows.shape == (500, 3)
    assert torch.all((low <= rows) & (rows <= high))
    assert torch.all(rows.std(dim=0)[:2] > 0)


def test_each_network_descends_its_own_loss_from_where_both_were():
    first, second = (torch.nn.Parameter(torch.tensor(2.0)) for _ in range(2))
    optimisers = [torch.optim.SGD([parameter]) for parameter in (first, second)]
    product = first * second
    descend(optimisers, [product, 3 * product], 0.1)
    assert first.item() == pytest.approx(2 - 0.1 * 2)
    # Not 3 * 1.8: the first had not moved yet.
    assert second.item() == pytest.approx(2 - 0.1 * 3 * 2)


def test_features_are_matched_by_the_generator_alone():
    """The gradients of a step are those of each loss for its own network, as autograd gives them one at a time."""
    rows, labels = torch.randn(12, 4), torch.tensor([0, 1])
    made = student(hidden=(6, 5), batch_size=8)
    made.n_features_in_ = 4
    discriminator = made._module(2)
    discriminator.start_from(rows)
    generator = Generator(6, rows.amin(dim=0), rows.amax(dim=0))
    networks = (discriminator, generator)
    before = [copy.deepcopy(network.state_dict()) for network in networks]
    learning = [
        [value for value in network.parameters() if value.requires_grad] for network in networks
    ]

    def losses():
        torch.manual_seed(1)
        return made._losses(discriminator, generator, rows, torch.tensor([0, 1]), labels)

    wanted = [torch.autograd.grad(losses()[which], learning[which]) for which in (0, 1)]
    descend([torch.optim.SGD(parameters) for parameters in learning], losses(), 0.5)
    for network, parameters, start, gradients in zip(
        networks, learning, before, wanted, strict=True
    ):
        names = [name for name, value in network.named_parameters() if value.requires_grad]
        for name, parameter, gradient in zip(names, parameters, gradients, strict=True):
            assert torch.allclose(parameter, start[name] - 0.5 * gradient, atol=1e-6)
    fixed = [name for name, value in discriminator.named_parameters() if not value.requires_grad]
    assert fixed
    assert all(torch.equal(discriminator.state_dict()[name], before[0][name]) for name in fixed)


def test_the_discriminators_loss_is_that_of_one_softmax_over_all_classes_and_the_further_one():
    rows, labels, known = torch.randn(30, 4), torch.tensor([2, 0, 1]), torch.tensor([7, 3, 3])
    made = student(
        hidden=(6,), batch_size=9, unlabeled_weight=0.7, entropy_weight=0.0, label_noise=0.0
    )
    made.set_params(input_noise=0.0, hidden_noise=0.0).n_features_in_ = 4
    discriminator = made._module(3)
    generator = Generator(6, rows.amin(dim=0), rows.amax(dim=0))
    torch.manual_seed(2)
    loss, of_generator = made._losses(discriminator, generator, rows, known, labels)
    torch.manual_seed(2)
    real, generated = rows[torch.randint(30, (9,))], generator(9)

    def every(some):
        scores = discriminator(some)
        return torch.cat([scores, torch.zeros(len(some), 1)], dim=1).log_softmax(dim=1)

    one_of_k, none = every(real)[:, :3].logsumexp(dim=1).mean(), every(generated)[:, 3].mean()
    of_labels = discriminator(rows[known]).log_softmax(dim=1)[torch.arange(3), labels].mean()
    assert torch.allclose(loss, -of_labels - 0.7 * 0.5 * (one_of_k + none), atol=1e-6)
    means = [discriminator.features(some).mean(dim=0) for some in (real, generated)]
    assert torch.allclose(of_generator, (means[0] - means[1]).square().mean(), atol=1e-6)


def test_training_may_stop_when_the_classes_of_public_rows_stay(monkeypatch):
    monkeypatch.setattr(adversarial, "_BETWEEN_LOOKS", 5)
    X, y = (
        (np.arange(40)[:, None] % 2 * 8.0 + np.arange(80).reshape(40, 2) / 80).astype(np.float32),
        np.full(40, -1),
    )
    y[:4] = np.arange(4) % 2
    looks = []
    monkeypatch.setattr(
        adversarial, "scores_of", lambda *given: looks.append(1) or scores_of(*given)
    )
    settings = {
        "hidden": (8, 8),
        "generator_units": 4,
        "batch_size": 10,
        "random_state": 0,
        "steps": 200,
    }
    AdversarialStudent(**settings).fit(X, y)
    assert looks == []
    AdversarialStudent(**settings, settled=0.01).fit(X, y)
    assert 2 <= len(looks) < 40
