import numpy as np
import pytest
from scipy.special import softmax
from sklearn.naive_bayes import GaussianNB

from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.selection import LeastConfident, Medoids, PublicKnowledge, RandomRows
from tutelage_reproductions import active_learning, fig5
from tutelage_reproductions.active_learning import Plan, Pool, answered, coverage, learned
from tutelage_reproductions.datasets import load_mnist
from tutelage_reproductions.fig5 import plurality, summed


def small_pool(seed: int = 0) -> Pool:
    """Two classes that overlap, a tenth of the answers wrong."""
    rng = np.random.default_rng(seed)
    truth = np.arange(400) % 2
    X = rng.normal(size=(400, 2)) + 2.0 * truth[:, None]
    answers = np.where(rng.random(400) < 0.1, 1 - truth, truth)
    return Pool(X[:300], X[:300], answers[:300], truth[:300], X[300:], truth[300:])


@pytest.mark.parametrize("then", [RandomRows(), LeastConfident(), Medoids()], ids=repr)
def test_a_student_learns_after_each_round_from_the_answers_to_what_was_asked_and_no_other(then):
    pool, seen = small_pool(), []

    def student(X, labels, seed):
        rows = [int(np.flatnonzero((row == pool.X).all(axis=1))[0]) for row in X]
        assert np.array_equal(labels, pool.answers[rows])
        seen.append(set(rows))
        return GaussianNB().fit(X, labels)

    plan = Plan(name="rule", first=RandomRows(), then=then)
    accuracies, right = learned(pool, plan, student, (20, 50, 90), seed=3)
    assert [len(rows) for rows in seen] == [20, 50, 90]
    assert seen[0] < seen[1] < seen[2]
    assert accuracies.shape == (3,)
    assert np.all((accuracies > 60) & (accuracies <= 100))
    wanted = [
        100 * np.mean(pool.answers[sorted(rows)] == pool.truth[sorted(rows)]) for rows in seen
    ]
    assert right == pytest.approx(wanted)


def test_rules_start_from_the_same_random_batch():
    first = []

    def student(X, labels, seed):
        first.append(X)
        return GaussianNB().fit(X, labels)

    for then in (RandomRows(), LeastConfident()):
        learned(
            small_pool(), Plan(name="rule", first=RandomRows(), then=then), student, (30,), seed=5
        )
    assert np.array_equal(*first)


def test_answers_are_known_of_asked_rows_only():
    before = PublicKnowledge.before(np.zeros((4, 1)))
    known = answered(
        answered(before, np.array([2]), np.array([5, 6, 7, 8])),
        np.array([0]),
        np.array([5, 6, 7, 8]),
    )
    assert known.labels.tolist() == [5, -1, 7, -1]
    assert not before.asked.any()


def test_coverage_is_the_largest_share_that_is_precise_enough():
    confidence = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    right = np.array([True, False, True, True, False])
    assert coverage(confidence, right, 0.75) == 0.8  # 3 of the first 4
    assert coverage(confidence, right, 0.9) == 0.2
    assert coverage(confidence, ~right, 0.9) == 0.0
    assert coverage(confidence[::-1], right[::-1], 0.75) == 0.8


def test_plurality_and_sums_can_disagree():
    teachers = np.array([[[0.51, 0.49]], [[0.51, 0.49]], [[0.0, 1.0]]])
    assert plurality(teachers).tolist() == [0]
    assert summed(teachers, 1.0) == pytest.approx(np.array([[0.34, 0.66]]))


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_sums_are_of_softmax_at_the_temperature_and_one_teacher_moves_them_by_two(temperature):
    rng = np.random.default_rng(0)
    scores = 3 * rng.normal(size=(7, 20, 4))
    found = summed(softmax(scores, axis=2), temperature)
    assert found == pytest.approx(softmax(scores / temperature, axis=2).mean(axis=0))
    scores[3] = 50 * rng.normal(size=(20, 4))
    other = summed(softmax(scores, axis=2), temperature)
    assert np.abs(7 * (found - other)).sum(axis=1).max() <= 2


def linear(n_classes: int):
    from torch import nn

    return nn.Linear(3, n_classes)


def distilled(**parameters):
    pytest.importorskip("torch")
    from tutelage_reproductions.distillation import DistilledStudent

    return DistilledStudent(
        linear, **({"steps": 400, "learning_rate": 0.1, "random_state": 0} | parameters)
    )


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_a_distilled_student_gives_the_probabilities_of_its_teacher_at_temperature_one(temperature):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(300, 3)), rng.normal(size=(3, 4))
    student = distilled(temperature=temperature, steps=300).fit(
        X, softmax(X @ weights / temperature, axis=1)
    )
    assert np.abs(student.predict_proba(X) - softmax(X @ weights, axis=1)).max() < 0.05
    assert np.mean(student.predict(X) == (X @ weights).argmax(axis=1)) > 0.95


def test_a_distilled_student_follows_its_seed_and_leaves_the_streams_alone():
    torch = pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(size=(30, 3))
    targets = np.eye(2)[np.arange(30) % 2]
    state = torch.get_rng_state()
    one, same, other = (distilled(steps=5, random_state=seed).fit(X, targets) for seed in (1, 1, 2))
    assert np.array_equal(one.predict_proba(X), same.predict_proba(X))
    assert not np.array_equal(one.predict_proba(X), other.predict_proba(X))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    "targets",
    [
        np.arange(4) % 2,
        np.eye(2),
        np.full((4, 2), 0.6),
        np.array([[1.5, -0.5]] * 4),
        np.full((4, 2), np.nan),
        np.ones((4, 1)),
    ],
)
def test_targets_that_are_no_probabilities_are_refused(targets):
    with pytest.raises(
        InvalidDataError,
        match="`targets` of DistilledStudent must hold one vector of probabilities",
    ):
        distilled().fit(np.zeros((4, 3)), targets)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0),
        ("steps", 0),
        ("batch_size", 0),
        ("learning_rate", -1),
        ("random_state", -1),
    ],
)
def test_settings_of_a_distilled_student_are_checked_in_fit(name, value):
    with pytest.raises(InvalidParameterError, match=f"`{name}` of DistilledStudent"):
        distilled(**{name: value}).fit(np.zeros((4, 3)), np.full((4, 2), 0.5))


@pytest.fixture
def less_mnist(monkeypatch, data_folder, tmp_path):
    """A little of MNIST, as if it were all of it, with votes of 250 good teachers on 400 of 500 test images."""
    if not (data_folder / "mnist.npz").is_file():
        pytest.skip("mnist.npz is not in TUTELAGE_DATA")
    whole = load_mnist(data_folder)
    less = type(whole)(
        X_train=whole.X_train[:3000], y_train=whole.y_train[:3000], X_test=whole.X_test[:500],
        y_test=whole.y_test[:500], image_shape=whole.image_shape, classes=whole.classes, name=whole.name,
    )  # fmt: skip
    likely = np.full((400, 10), 0.02)
    likely[np.arange(400), less.y_test[:400]] += 0.8
    np.savez(
        tmp_path / "votes.npz", mnist_250_teachers=np.random.default_rng(0).multinomial(250, likely)
    )
    for module in (active_learning, fig5):
        monkeypatch.setattr(module, "load_mnist", lambda download: less)
        monkeypatch.setattr(module, "_SEEDS", 3)
    monkeypatch.setattr(active_learning, "published_votes", lambda: tmp_path / "votes.npz")
    monkeypatch.setattr(active_learning, "_HELD_OUT", 100)
    monkeypatch.setattr(active_learning, "_ROUNDS", (50, 100))
    monkeypatch.setattr(active_learning, "_EXPERTS_FIRST", 200)
    monkeypatch.setattr(active_learning, "_EXPERTS_THEN", 50)
    monkeypatch.setattr(active_learning, "_SIAMESE_FIRST", 100)
    monkeypatch.setattr(active_learning, "_SIAMESE_THEN", 50)
    monkeypatch.setattr(active_learning, "_SIAMESE_STEPS", 3)
    monkeypatch.setattr(active_learning, "_NETWORK_STEPS", 3)
    monkeypatch.setattr(fig5, "_TEACHERS", 10)
    monkeypatch.setattr(fig5, "_PUBLIC", 200)
    monkeypatch.setattr(fig5, "_SAMPLES", (100, 200))
    monkeypatch.setattr(fig5, "_STEPS", 20)


def test_active_learning_is_reproduced_quickly_without_networks(less_mnist, monkeypatch):
    monkeypatch.setattr(active_learning, "find_spec", lambda name: None)
    record = active_learning.reproduce(quick=True, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    assert record.name == "active-learning"
    assert record.quick
    assert 50 < rows["logistic, 100 random: %"].ours < 100
    assert rows["logistic, 100 random: correct labels, %"].ours > 98
    # No student before the first batch.
    assert "logistic, 50 least confident first: gain" not in rows
    assert abs(rows["logistic, 100 least confident first: gain"].ours) < 20
    assert rows["logistic, experts of 200 queries: undecided rows"].published == 500
    assert not any("network" in name or "siamese" in name for name in rows)


@pytest.mark.slow
def test_all_of_active_learning_is_reproduced(less_mnist):
    pytest.importorskip("torch")
    record = active_learning.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    for name in (
        "logistic, 50 TypiClust: gain",
        "network, 100 medoids: gain",
        "network, shuffled, 100 random: %",
        "network, 200 queries + 50 by experts: gain",
        "siamese, same image: rows that can be labeled at 99 % right, %",
        "siamese, same class: 100 queries + 50 without a match, logistic: gain",
    ):
        interval = rows[name].interval
        assert interval is not None
        assert interval[0] <= rows[name].ours <= interval[1]
    assert len(rows) == len(record.rows)


def test_networks_that_are_left_out_are_named(less_mnist, monkeypatch):
    monkeypatch.setattr(active_learning, "find_spec", lambda name: None)
    monkeypatch.setattr(active_learning, "_RULES", ())
    record = active_learning.reproduce(quick=False, download=False, progress=False)
    assert "Networks were left out: torch is not installed" in record.notes[-1]
    assert not any("network" in row.name for row in record.rows)


def test_distillation_is_reproduced(less_mnist):
    pytest.importorskip("torch")
    record = fig5.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    assert record.name == "fig5"
    assert rows["plurality of 10 teachers: %"].ours > 80
    assert set(rows) == {"plurality of 10 teachers: %"} | {
        f"{n} samples, {what}"
        for n in (100, 200)
        for what in ("plurality: %", "T = 1: gain", "T = 5: gain")
    }
    assert 30 < rows["200 samples, plurality: %"].ours < 100


def test_distillation_needs_torch(monkeypatch):
    monkeypatch.setattr(fig5, "find_spec", lambda name: None)
    with pytest.raises(InvalidDataError, match="need torch: pip install"):
        fig5.reproduce(quick=True, download=False, progress=False)


@pytest.mark.slow
def test_students_ask_what_teachers_disagree_on(data_folder):
    record = active_learning.reproduce(quick=True, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    by_student, at_random = (
        rows[f"logistic, 1,000 {rule}: correct labels, %"]
        for rule in ("least confident first", "random")
    )
    assert by_student.ours < at_random.ours - 5


@pytest.mark.slow
def test_probabilities_teach_more_than_labels(data_folder):
    pytest.importorskip("torch")
    record = fig5.reproduce(quick=True, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    assert rows["500 samples, T = 1: gain"].ours > 0.5
