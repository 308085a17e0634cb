import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from tutelage.exceptions import InvalidDataError
from tutelage_reproductions import rivals, rivals_data, rivals_libraries
from tutelage_reproductions.rivals_data import RivalData, Source
from tutelage_reproductions.rivals_methods import (
    RIVALS,
    Clipped,
    Descent,
    Means,
    Problem,
    Ridge,
    centered_sensitivity,
    centered_sums,
    chosen,
    class_sensitivity,
    class_sums,
    clipped_gradient,
    gaussian,
    mu_of,
    turned,
)

AXES = 3


def made_up(name: str = "Adult", n_classes: int = 3, rows: int = 1500, seed: int = 0) -> RivalData:
    """Return rows around one center per class."""
    rng = np.random.default_rng(seed)
    centers = 2 * rng.standard_normal((n_classes, AXES + 2))
    y = rng.integers(0, n_classes, rows)
    X = (centers[y] + rng.standard_normal((rows, AXES + 2))).astype(np.float32)
    ends = [rows // 2, rows * 3 // 4]
    private, public, scored = np.split(X, ends)
    y_private, y_public, y_scored = np.split(y, ends)
    return RivalData(
        name=name, private=private, y_private=y_private, public=public, y_public=y_public, scored=scored,
        y_scored=y_scored,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return turned(made_up())


# Splits and features


def test_adult_is_split_once_into_disjoint_parts():
    data = rivals_data.adult()
    assert (len(data.private), len(data.public), len(data.scored)) == (32_561, 4_999, 11_282)
    again = rivals_data.adult()
    assert np.array_equal(data.public, again.public)
    assert np.array_equal(
        np.sort(np.concatenate([data.y_public, data.y_scored])),
        np.sort(rivals_data.load_adult().y_public),
    )


@pytest.mark.parametrize(
    ("load", "sizes"),
    [(rivals_data.sms_spam, (3_500, 1_000, 1_074)), (rivals_data.ag_news, (5_000, 1_500, 1_100))],
)
def test_texts_are_split_into_disjoint_parts_of_the_stated_size(
    data_folder, monkeypatch, load, sizes
):
    seen = []
    recording = SimpleNamespace(transform=lambda texts: seen.append(texts) or np.eye(len(texts)))
    monkeypatch.setattr(rivals_data, "text_features", lambda public: recording)
    data = load(1)
    assert not np.array_equal(data.y_private, load(2).y_private)
    del seen[3:]
    assert tuple(len(part) for part in (data.private, data.public, data.scored)) == sizes
    everything = [text for part in seen for text in part]
    assert sorted(everything) == sorted(all_texts(load))
    assert [len(part) for part in seen] == list(sizes)


def all_texts(load):
    """Return the texts as they are in the file; an equal multiset means that no row is in two parts."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            rivals_data, "_texts", lambda name, texts, labels, sizes, fold: found.extend(texts)
        )
        load()
    return found


def test_stays_of_a_patient_are_in_one_part(data_folder):
    split = rivals_data.split_by_patient(
        rivals_data.load_diabetes(), key=rivals_data.key_of(0), balanced=True
    )
    patients = [set(part.patients.tolist()) for part in (split.private, split.public, split.test)]
    assert not any(one & other for one, other in itertools.combinations(patients, 2))
    data = rivals_data.diabetes()
    assert [len(X) for X in (data.private, data.public, data.scored)] == [
        len(p) for p in (split.private, split.public, split.test)
    ]
    assert abs(data.y_private.mean() - 0.5) < 0.02


def test_every_fold_of_stays_scores_other_rows(data_folder):
    (source,) = (source for source in rivals_data.SOURCES if source.name == "Diabetes")
    assert (
        len({data.y_scored.tobytes() for data in source.splits(source.folds, False)})
        == source.folds
    )


def test_two_folds_that_score_the_same_rows_are_refused():
    assert (
        len(list(Source("other", lambda fold, download: made_up(seed=fold), 3).splits(3, False)))
        == 3
    )
    with pytest.raises(RuntimeError, match="Fold 1 of one scores the rows of an earlier fold"):
        list(Source("one", lambda fold, download: made_up()).splits(2, False))


WORDS = ("alpha", "beta", "gamma", "delta", "omega", "kappa")
TEXTS = [" ".join(words) for words in itertools.permutations(WORDS, 3)]


def test_features_of_private_rows_depend_on_public_rows_only():
    rng = np.random.default_rng(0)
    public, private, others = (rng.integers(0, 9, (300, 4)).astype(float) for _ in range(3))
    features = rivals_data.steps(public, 2)
    together, with_others = features(private), features(np.concatenate([private, others]))
    assert np.array_equal(together, with_others[: len(private)])
    assert np.array_equal(together[:1], features(private[:1]))


def test_private_rows_do_not_turn_the_axes():
    data = made_up()
    moved = turned(
        RivalData(
            **{
                **{field: getattr(data, field) for field in data.__slots__},
                "private": data.private + 9,
            }
        )
    )
    before = turned(data)
    assert np.array_equal(before.public, moved.public)
    assert np.array_equal(before.scored, moved.scored)
    assert np.allclose(before.public.mean(axis=0), 0, atol=1e-5)
    spread = before.public.var(axis=0)
    assert np.all(np.diff(spread) <= 1e-6)
    assert np.isclose(spread.sum(), data.public.var(axis=0).sum(), rtol=1e-4)


def test_mnist_is_split_by_folds_and_has_rows_for_students(monkeypatch):
    rng = np.random.default_rng(0)
    images = rivals_data.ImageSplit(
        rng.integers(0, 256, (300, 784)).astype(np.uint8), rng.integers(0, 10, 300),
        rng.integers(0, 256, (500, 784)).astype(np.uint8), rng.integers(0, 10, 500),
        (28, 28), tuple("0123456789"), "made up",
    )  # fmt: skip
    folds = [rivals_data.shuffled_folds(5, 500, 50)]
    monkeypatch.setattr(rivals_data, "load_mnist", lambda download: images)
    monkeypatch.setattr(rivals_data, "load_fashion_mnist", lambda download: images)
    monkeypatch.setattr(rivals_data, "shuffled_folds", lambda count: folds[0])
    for fold in (0, 4):
        digits, clothes = rivals_data.mnist(fold), rivals_data.fashion_mnist(fold)
        for data in (digits, clothes):
            assert [len(part) for part in (data.private, data.public, data.scored)] == [
                300,
                450,
                50,
            ]
            assert np.array_equal(data.y_scored, images.y_test[folds[0][fold].held_out])
            assert [len(part) for part in data.for_students] == [450, 50]
        assert digits.for_students[0].shape != digits.public.shape
        assert clothes.for_students[0] is clothes.public


# Privacy


def worst(statistic, rows_of, n_classes: int) -> float:
    """Return how far the statistic of one row moves when it is replaced, over random and extreme pairs."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((40, AXES))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    X = rows_of(
        np.concatenate([100 * directions, -100 * directions, 0.2 * directions]).astype(np.float64)
    )
    found = [
        statistic(X[[row]], np.array([label]), n_classes)
        for row in range(len(X))
        for label in range(min(n_classes, 3))
    ]
    return max(
        float(np.linalg.norm(one - other)) for one, other in itertools.combinations(found, 2)
    )


@pytest.mark.parametrize("constant", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_the_sensitivity_of_sums_is_what_neighbors_reach(n_classes, constant):
    rows = Clipped(AXES, 1.5, 1.5 * constant)
    for statistic, sensitivity in (
        (class_sums, class_sensitivity(rows)),
        (centered_sums, centered_sensitivity(rows, n_classes)),
    ):
        reached = worst(statistic, rows.transform, n_classes)
        assert reached <= sensitivity * (1 + 1e-9)
        assert reached > 0.97 * sensitivity  # a constant that is 3 % too small is refuted


def test_the_sensitivity_of_a_gradient_is_twice_its_clip():
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((AXES, 3))

    def gradient(rows, classes, n_classes):
        return clipped_gradient(
            weights, rows, np.eye(n_classes)[classes], np.linalg.norm(rows, axis=1), 0.3
        )

    reached = worst(gradient, lambda X: X, 3)
    assert 0.97 * 0.6 < reached <= 0.6 * (1 + 1e-9)


def test_a_short_gradient_is_exact():
    rng = np.random.default_rng(1)
    weights, rows, told = (
        rng.standard_normal((4, 3)),
        rng.standard_normal((20, 4)),
        np.eye(3)[rng.integers(0, 3, 20)],
    )

    def loss(weights):
        scores = rows @ weights
        return float((np.log(np.exp(scores).sum(axis=1)) - (scores * told).sum(axis=1)).sum())

    found = clipped_gradient(weights, rows, told, np.linalg.norm(rows, axis=1), 1e9)
    for place in np.ndindex(4, 3):
        step = np.zeros((4, 3))
        step[place] = 1e-6
        assert found[place] == pytest.approx(
            (loss(weights + step) - loss(weights - step)) / 2e-6, rel=1e-4, abs=1e-6
        )


@pytest.mark.parametrize("epsilon", [0.0025, 0.1, 1.0, 3.0])
def test_mu_is_the_gaussian_mechanisms(epsilon):
    mu = mu_of(epsilon, 1e-5)

    def excess(x):
        return max(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), 0.0)

    middle = epsilon / mu + mu / 2
    assert quad(excess, middle, middle + 12, epsabs=1e-12)[0] == pytest.approx(1e-5, rel=1e-3)


def test_noise_has_its_deviation():
    assert gaussian((100_000,), 3.0, 0).std() == pytest.approx(3, rel=0.02)
    assert not gaussian((5,), 0.0, 0).any()


@pytest.mark.parametrize(
    ("setting", "size"),
    [
        (Ridge(AXES, 0.6, 0.3, 1.0), "centered"),
        (Means(AXES, 0.6, True), "classes"),
        (Descent(AXES, 1, 0.3, 5.0, 0.1), "gradient"),
    ],
)
def test_a_release_has_the_noise_of_its_sensitivity(data, monkeypatch, setting, size):
    """The noise that a rival adds is compared with μ and the sensitivity that the tests above confirm."""
    asked = []

    def recorded(shape, deviation, seed):
        asked.append(deviation)
        return np.zeros(shape)

    monkeypatch.setattr("tutelage_reproductions.rivals_methods.gaussian", recorded)
    problem = Problem.of(data)
    setting.fit(problem, 0.5, 0)
    rows = Clipped.of(problem.public, AXES, 0.6, 0.3)
    expected = {
        "centered": centered_sensitivity(rows, problem.n_classes) / 0.5,
        "classes": class_sensitivity(rows) / 0.5,
        "gradient": 2 * 0.3 / 0.5,
    }
    assert asked == [pytest.approx(expected[size])]


def test_steps_compose(data, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "tutelage_reproductions.rivals_methods.gaussian",
        lambda shape, deviation, seed: asked.append((shape[0], deviation)) or np.zeros(shape),
    )
    Descent(AXES, 16, 1.0, 5.0, 0.1).fit(Problem.of(data), 0.5, 0)
    # 16 releases of μ/4 each are one of μ.
    assert asked == [(16, pytest.approx(2 / (0.5 / 4)))]


# Learning


def test_without_noise_the_rivals_are_the_usual_models(data):
    problem = Problem.of(data)
    rows = Clipped.of(problem.public, AXES, 1.0, 0.3)
    X, public = (
        rows.transform(part).astype(np.float64) for part in (problem.private, problem.public)
    )
    targets = np.eye(3)[problem.classes] - 1 / 3
    penalty = 0.03 * np.linalg.norm(public, 2) ** 2 / len(public)
    weights = (
        np.linalg.inv(public.T @ public / len(public) + penalty * np.eye(AXES + 1))
        @ X.T
        @ targets
        / len(X)
    )
    found = Ridge(AXES, 1.0, 0.03, 1.0).fit(problem, math.inf, 0)
    assert np.allclose(found.weights, weights, atol=1e-6)
    assert np.array_equal(
        found.predict(data.scored), (rows.transform(data.scored) @ weights).argmax(axis=1)
    )

    means = np.array([X[problem.classes == label, :AXES].mean(axis=0) for label in range(3)])
    nearest = (
        ((rows.transform(data.scored)[:, np.newaxis, :AXES] - means) ** 2)
        .sum(axis=2)
        .argmin(axis=1)
    )
    assert np.array_equal(
        Means(AXES, 1.0, True).fit(problem, math.inf, 0).predict(data.scored), nearest
    )


def test_descent_without_noise_is_a_logistic_regression(data):
    from sklearn.linear_model import LogisticRegression

    problem = Problem.of(data)
    found = Descent(AXES + 2, 4000, 1e9, 2.0, 1.0).fit(problem, math.inf, 0)
    usual = LogisticRegression(C=np.inf, max_iter=1000).fit(problem.private, problem.classes)
    assert np.mean(found.predict(data.scored) == usual.predict(data.scored)) > 0.99


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_rivals_at_a_huge_epsilon_learn_and_at_a_tiny_one_do_not(data, rival):
    problem = Problem.of(data)
    huge, tiny = mu_of(100.0, 1e-5), mu_of(1e-4, 1e-5)
    setting = chosen(rival.settings[:: len(rival.settings) // 10], problem, huge)
    without = data.right(setting.fit(problem, math.inf, 0).predict(data.scored))
    assert without > 85
    assert data.right(setting.fit(problem, huge, 0).predict(data.scored)) == pytest.approx(
        without, abs=2
    )
    noisy = np.mean(
        [data.right(setting.fit(problem, tiny, seed).predict(data.scored)) for seed in range(20)]
    )
    assert noisy < without - 20


def test_the_setting_is_the_best_on_held_out_private_rows(data):
    weak, strong = Ridge(1, 0.95, 0.03, 1.0), Ridge(1000, 0.95, 0.03, 1.0)
    assert chosen([weak, strong], Problem.of(data), math.inf) == strong._replace(axes=AXES + 2)


def test_settings_are_compared_at_the_noise_per_row_of_all_rows(data, monkeypatch):
    seen = []
    monkeypatch.setattr("tutelage_reproductions.rivals_methods._TUNED_ON", 100)
    fit = Ridge.fit
    monkeypatch.setattr(
        Ridge,
        "fit",
        lambda self, problem, mu, seed: (
            seen.append((len(problem.private), round(mu, 9))) or fit(self, problem, mu, seed)
        ),
    )
    chosen([Ridge(1, 0.95, 0.03, 1.0)], Problem.of(data), 0.5)
    assert set(seen) == {(100, 0.5 * len(data.private) / 100)}


def test_a_student_learns_from_the_surest_half_of_each_class():
    scores = np.array([[0.9, 0.0], [0.2, 0.0], [0.1, 0.0], [0.5, 0.0], [0.0, 0.3], [0.0, 0.1]])
    assert rivals._surest(scores).tolist() == [0, -1, -1, 0, 1, -1]
    assert rivals._surest(np.array([[1.0, 0.0], [2.0, 0.0]])).tolist() == [-1, 0]


# The table


@pytest.fixture
def small(monkeypatch):
    """Small made-up splits in place of all data sets, of which one is not there, and few settings."""

    def gone(fold, download):
        raise InvalidDataError("It is gone.")

    sources = (
        Source("Adult", lambda fold, download: made_up("Adult", 2, 6000, fold)),
        Source("MNIST", lambda fold, download: made_up("MNIST", 3, seed=fold), 3),
        Source("Fashion-MNIST", gone, 5),
    )
    monkeypatch.setattr(rivals, "SOURCES", sources)
    monkeypatch.setattr(
        rivals, "RIVALS", [rival._replace(settings=rival.settings[::15]) for rival in RIVALS]
    )
    monkeypatch.setattr(rivals, "_ADULT", ((0.0, (20, 1.0, 1, 100, 1.0)),))
    monkeypatch.setattr(rivals, "_QUICK_SETTINGS", 1)
    monkeypatch.setattr(rivals, "_SEEDS", 3)
    monkeypatch.setattr(rivals, "_EPSILONS", (0.5, 3.0))
    monkeypatch.setattr(rivals, "_SMALL_EPSILONS", (0.7,))
    monkeypatch.setattr(rivals, "installed", lambda data, epsilon, delta: [])
    few = rivals._documented
    monkeypatch.setattr(
        rivals,
        "_documented",
        lambda name, epsilon: few(name, epsilon)._replace(n_teachers=20, n_queries=50),
    )


@pytest.mark.slow
def test_the_table_has_every_method_at_every_epsilon(small):
    record = rivals.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    for name, epsilon in itertools.product(("Adult", "MNIST"), ("0.5", "3")):
        for method in ("vector ballots", "votes, as documented", *(rival.name for rival in RIVALS)):
            row = rows[f"{name}, ε = {epsilon}: {method}, %"]
            assert row.interval is not None
            assert row.interval[0] <= row.ours <= row.interval[1]
    for name in ("Adult", "MNIST"):
        private = rows[f"{name}, without privacy: private rows, %"].ours
        assert private > rows[f"{name}, majority class, %"].ours + 20
        assert private > rows[f"{name}, ε = 3: DP ridge, %"].ours - 5 > 70
    assert "MNIST, ε = 0.7: DP class means and label propagation, %" in rows
    assert "Fashion-MNIST was left out, because its files were not found." in record.notes


def test_settings_are_chosen_on_every_split_with_private_rows_of_its_own(monkeypatch):
    """A row that one split scores is private in another, whose settings must not be those of the first."""
    one, other = made_up(), made_up(rows=1200)
    assert rivals._tuned_on([one, replace(one, y_scored=other.y_scored)]) == [one]
    assert rivals._tuned_on([one, other]) == [one, other]
    seen = []

    def methods(split, epsilon, *, quick, ours):
        return [
            rivals.Method(
                "named", lambda data, epsilon, seed: seen.append((split, data, seed)) or 50.0
            )
        ]

    monkeypatch.setattr(rivals, "_methods", methods)
    monkeypatch.setattr(rivals, "_bounds", lambda splits, quick: ())
    monkeypatch.setattr(rivals, "_EPSILONS", (1.0,))
    assert [row.name for row in rivals.rows_of([one, other], quick=False)] == [
        "Adult, ε = 1: named, %"
    ]
    assert seen == [
        (split, split, seed) for seed, split in enumerate([one, other, one, other, one])
    ]


def test_libraries_that_are_missing_are_named(data, monkeypatch):
    monkeypatch.setattr(rivals_libraries, "find_spec", lambda name: None)
    assert rivals_libraries.installed(data, 1.0, 1e-5) == []
    assert [note.split()[0] for note in rivals_libraries.missing()] == ["Opacus", "diffprivlib"]
    monkeypatch.setattr(rivals_libraries, "find_spec", lambda name: name == "opacus")
    assert [note.split()[0] for note in rivals_libraries.missing()] == ["diffprivlib"]


def test_settings_of_a_library_are_chosen_on_held_out_private_rows(data, monkeypatch):
    seen = []

    def fit(task, strength, seed):
        seen.append((len(task.private), strength, task.epsilon, task.delta))
        assert np.linalg.norm(task.private, axis=1).max() < 1 + 1e-5
        return lambda X: (
            np.full(len(X), np.bincount(task.classes).argmax())
            if strength == 2
            else np.full(len(X), -1)
        )

    settings = [rivals_libraries._Setting(1000, strength) for strength in (1, 2, 3)]
    monkeypatch.setattr(
        rivals_libraries, "_RIVALS", [rivals_libraries._Rival("numpy", "made up", fit, settings)]
    )
    (method,) = rivals_libraries.installed(data, 0.5, 1e-5)
    n = len(data.private)
    assert seen == [(n - n // 5, strength, 0.5, 1e-5) for strength in (1, 2, 3)]
    assert method.name == "made up"
    right = method.run(data, 0.5, 0)
    assert seen[-1] == (n, 2, 0.5, 1e-5)
    assert right == data.right(np.full(len(data.scored), np.bincount(data.y_private).argmax()))


@pytest.mark.filterwarnings("ignore")  # those libraries' own
@pytest.mark.parametrize("library", ["opacus", "diffprivlib"])
def test_libraries_learn(data, library):
    pytest.importorskip(library)
    for method in rivals_libraries.installed(data, 100.0, 1e-5):
        if library in method.name.lower():
            right = method.run(data, 100.0, 0)
            assert right is not None
            assert right > 60


@pytest.mark.slow
def test_the_quick_form_is_a_record(data_folder):
    record = rivals.reproduce(quick=True, download=False, progress=False)
    assert record.quick
    assert {row.name.split(",")[0] for row in record.rows} <= {"Adult", "SMS spam"}
    assert len(record.rows) >= 7
