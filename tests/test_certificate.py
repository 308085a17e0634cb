"""How many liars the predictions of a student of one noisy sum survive, against every ballot they can cast."""

import json
import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from blobs import LABELS, PRIVATE, PUBLIC, TEST, TRUE
from runs_of_people import VECTORS, configure_people
from test_cli import write_people
from tutelage import PATEClassifier, SimulationNoise
from tutelage.exceptions import InvalidParameterError
from tutelage.features import Schema
from tutelage.methods import Additive, Method, NoisyMoments, TeacherVotes
from tutelage.methods.over_releases import Average
from tutelage.reporting.card import read_card
from tutelage.students import Moments, NoisySumClassifier, load_student
from tutelage.students.certificate import Certificate, priors_of

NORM, SIGMA = 64, 20.0  # of the ballots of made-up worlds
ROWS = np.random.default_rng(0).normal(size=(300, 6)) * [1, 1, 0.9, 0.9, 0.8, 0.8]


def student_of(
    total, *, people=600, norm=NORM, public=ROWS, weights: Any = 1.0, sigma=SIGMA
) -> Any:
    """Return a student of a noisy sum of people who move it by twice the norm at most."""
    moments = Moments.of_sum(total, sigma, norm * people, 1.0, 2 * norm)
    classes = np.arange(len(total))
    student = NoisySumClassifier().fit_moments(public, [moments], n_rows=people, classes=classes)
    student.weights_ = weights
    return student


def honest_sum(n_classes, people=600):
    """Return the noisy sum of people of groups that are apart."""
    rng = np.random.default_rng(n_classes)
    labels = rng.integers(0, n_classes, people)
    vectors = rng.normal(size=(people, 6)) * 0.2 + 0.6 * np.eye(6)[labels]
    ballots = NORM * vectors.T @ (np.eye(n_classes)[labels] - 1 / n_classes)
    return np.rint(ballots.T + rng.normal(size=(n_classes, 6)) * SIGMA).astype(np.int64)


def lie(direction, k):
    """Return how k liars move the sum in a direction, in whole numbers, as far as they can."""
    length = np.linalg.norm(direction) or 1.0
    return np.trunc(direction / length * 2 * NORM * k).astype(np.int64)


@pytest.mark.parametrize(
    ("n_classes", "seed"), [(2, 0), (2, 1), pytest.param(3, 0, marks=pytest.mark.rest)]
)
def test_no_ballots_at_all_change_a_prediction_that_survives_them(n_classes, seed):
    """All ballots of whole numbers up to length 1, over features of two dimensions, by up to two people."""
    rng = np.random.default_rng(seed)
    public = rng.normal(size=(50, 2)) * [1, 0.4]
    total = rng.integers(-9, 10, (n_classes, 2))
    settings: dict[str, Any] = {"people": 6, "norm": 1, "public": public, "sigma": 0.7}
    student = student_of(total, **settings)
    liars = np.minimum(student.certified(public), 2)
    predicted = student.predict(public)
    ballots = [
        ballot for ballot in product((-1, 0, 1), repeat=total.size) if np.abs(ballot).sum() <= 1
    ]
    by_one = {tuple(np.subtract(pair[0], pair[1]).tolist()) for pair in product(ballots, repeat=2)}
    by_two = {tuple(np.add(pair[0], pair[1]).tolist()) for pair in product(by_one, repeat=2)}
    survived = np.full(len(public), 2)
    for k, changes in ((2, by_two), (1, by_one)):
        for change in changes:
            lied = student_of(total + np.reshape(change, total.shape), **settings)
            survived[lied.predict(public) != predicted] = k - 1
    assert np.all(liars <= survived)
    assert np.count_nonzero((liars > 0) & (survived < 2)) > 0


@pytest.mark.parametrize("weights", ["equal", "unequal"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_no_attack_changes_a_prediction_that_survives_it(n_classes, weights):
    total = honest_sum(n_classes)
    of_classes = np.ones(n_classes)
    if weights == "unequal":
        of_classes = np.linspace(1, 2, n_classes)
    student = student_of(total, weights=of_classes)
    liars = student.certified(ROWS)
    predicted = student.predict(ROWS)
    axes = student.certificate_.axes
    factors = (axes.T @ student.coef_)[:, 0] / student.certificate_.seen[:, 0]
    rng = np.random.default_rng(0)
    n_near = 0
    rows = np.flatnonzero(liars > 3)[:8]
    for row in rows:
        wanted = axes @ (factors * (ROWS[row] @ axes))
        own = of_classes[predicted[row]] * np.eye(n_classes)[predicted[row]]
        others = np.delete(np.arange(n_classes), predicted[row])
        classes = [of_classes[other] * np.eye(n_classes)[other] - own for other in others]
        best = [np.outer(of_class - of_class.mean(), wanted) for of_class in classes]
        mixed = [*rng.normal(size=(3, n_classes, 6)), -total]

        def changes(directions, k, row=row):
            return any(
                student_of(total + lie(direction, k), weights=of_classes).predict(ROWS[[row]])
                != predicted[row]
                for direction in directions
            )

        assert not changes([*best, *mixed], liars[row])
        n_near += changes(best, round(1.25 * (liars[row] + 1)))
    # The best ballots are nearly as good as is said, so a bound that is too small would show.
    assert n_near >= 0.7 * len(rows) > 3


def test_a_prior_is_reached_no_nearer_than_is_said():
    student = student_of(honest_sum(2))
    certificate: Certificate = student.certificate_
    priors = np.stack([*priors_of(certificate.spread)])
    reached_at = certificate.distances_to(priors)
    assert (reached_at == 0).sum() == 1
    rng = np.random.default_rng(0)
    variances = certificate.spread**2 * priors + certificate.around
    for _ in range(2000):
        change = rng.normal(size=certificate.seen.shape) * rng.exponential(0.3)
        squares = ((certificate.seen + change) ** 2).sum(axis=1)
        surprises = (2 * np.log(variances) + squares / variances).sum(axis=1)
        assert reached_at[surprises.argmin()] <= np.linalg.norm(change)


def test_a_tie_survives_nobody():
    student = student_of(np.zeros((3, 6), np.int64))
    assert not student.certified(ROWS).any()


def test_a_student_of_rows_and_one_of_unknown_people_have_no_certificate():
    student: Any = NoisySumClassifier().fit(ROWS, ROWS[:, 0] > 0)
    with pytest.raises(InvalidParameterError, match=r"Fit with `NoisyMoments\(rounds=1\)`"):
        student.certified(ROWS)


def test_a_person_with_a_ballot_in_each_release_moves_their_average_so_far():
    sizes = [10.0, 30.0, 20.0]
    plain, moved = Average(), Average()
    for size in sizes:
        before, _ = plain.with_sum(np.zeros(1), 1.0, size)
        after, _ = moved.with_sum(np.ones(1), 1.0, size)
        assert after - before == pytest.approx(moved.ballots_of_one(size))
    of_last, one = Average(), np.zeros(1)
    for number, size in enumerate(sizes):
        one, _ = of_last.with_sum(np.full(1, float(number == 2)), 1.0, size)
    assert one == pytest.approx(of_last.part_of_last(sizes[-1]))


def fitted(X=PRIVATE, y=LABELS, ids=None, **changes) -> Any:
    settings: dict[str, Any] = {
        "epsilon": 2.0,
        "classes": [0, 1, 2],
        "method": NoisyMoments(n_landmarks=30, rounds=1),
        "noise": SimulationNoise(0),
        **changes,
    }
    return PATEClassifier(**settings).fit(X, y, X_public=PUBLIC, entity_ids=ids)


@pytest.mark.parametrize("classes", [2, 3])
def test_one_person_moves_the_mean_as_far_as_is_said_and_no_further(classes):
    kept = classes > LABELS
    X, y = PRIVATE[kept], LABELS[kept]
    before = fitted(X, y, classes=range(classes))
    moved, furthest = before.moments_[0].moved, 0.0
    for row in range(5):
        lied = y.copy()
        lied[row] = (y[row] + 1) % classes
        mean = fitted(X, lied, classes=range(classes)).moments_[0].values
        furthest = max(furthest, float(np.linalg.norm(mean - before.moments_[0].values)))
    assert furthest <= moved
    if classes == 2:
        assert furthest > 0.999 * moved


@pytest.mark.parametrize("taking_part", ["the same people", "more people"])
def test_a_person_who_lies_in_two_months_moves_their_average_no_further_than_is_said(
    taking_part, tmp_path
):
    kept = LABELS < 2
    X, y = PRIVATE[kept], LABELS[kept]
    ids = np.arange(len(y))
    january = ids if taking_part == "the same people" else ids[: len(ids) // 2]

    def moments(world: str, labels: Any) -> Moments:
        (tmp_path / world).mkdir()
        model: Any = PATEClassifier(
            epsilon=2.0,
            budget=6.0,
            classes=[0, 1],
            method=NoisyMoments(n_landmarks=30, rounds=1),
            ledger=tmp_path / world / "months.ledger",
            noise=SimulationNoise(0),
        )
        for name, some in (("January", january), ("February", ids)):
            model.fit(X[some], labels[some], X_public=PUBLIC, entity_ids=ids[some], release=name)
        assert model.n_earlier_ > 0
        return model.moments_[0]

    honest = moments("honest", y)
    furthest = 0.0
    for row in range(3):
        lied = y.copy()
        lied[row] = 1 - y[row]
        lie = moments(f"liar {row}", lied).values - honest.values
        furthest = max(furthest, float(np.linalg.norm(lie)))
    assert 0.999 * honest.moved < furthest <= honest.moved


@pytest.mark.parametrize("each", [1, 3])
def test_people_who_lie_together_change_no_prediction_that_survives_them(each):
    """The people nearest to a corner, and then many rows of each, say together that it is of another class."""
    ids = None if each == 1 else np.arange(len(LABELS)) // each
    model = fitted(ids=ids)
    liars = model.certified(TEST)
    predicted = model.predict(TEST)
    assert np.mean(liars >= 10) > 0.1
    for k, far in product((1, 10, 60), (0, 3)):
        X, y = PRIVATE.copy(), LABELS.copy()
        rows = np.flatnonzero(y == 1)[:k] if ids is None else np.arange(k * each)
        X[rows] += far * np.eye(4)[0]
        y[rows] = 2
        lied = fitted(X, y, ids).predict(TEST)
        assert np.array_equal(lied[liars >= k], predicted[liars >= k])


def test_a_stored_student_and_a_card_say_the_same(tmp_path):
    model = fitted(class_weight={1: 2.0})
    liars = model.certified(TEST)
    card = model.card(TEST, TRUE)
    student = load_student(model.save(tmp_path / "results", card))
    inner = student[-1]
    vectors = inner[:-1].transform(student[:-1].transform(TEST))
    assert np.array_equal(inner[-1].certified(vectors), liars)
    shares = {"ten": np.mean(liars >= 10), "fifty": np.mean(liars >= 50)}
    content = json.loads((tmp_path / "results" / "card.json").read_text())
    assert content["student"]["judged"]["survived"] == shares
    assert read_card(tmp_path / "results" / "card.json") == card
    assert (
        f"{shares['ten']:.2%} of the same rows; no 50: {shares['fifty']:.2%}" in card.as_markdown()
    )


def test_a_run_whose_labels_only_score_prints_the_shares(tmp_path, called):
    write_people(tmp_path)
    configure_people(tmp_path, VECTORS, method="rounds = 1\nn_landmarks = 20")
    config = tmp_path / "config.toml"
    labeled = config.read_text()
    config.write_text(labeled.replace("evaluate_last = 60", "only_score = true"))
    assert (
        "`only_score` in [public] needs `evaluate_last`"
        in called("run", "config.toml", cwd=tmp_path).stderr
    )
    config.write_text(
        labeled.replace("evaluate_last = 60", "evaluate_last = 60\nonly_score = true")
    )
    result = called("run", "config.toml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    printed = result.stdout
    survived = read_card(tmp_path / "out" / "card.json").student.judged.survived
    assert survived is not None
    for liars, share in ((10, survived.ten), (50, survived.fifty)):
        assert re.search(rf"predictions safe from {liars} liars\W+{share:.2%}", printed)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": NoisyMoments(n_landmarks=30)}, "`rounds` of NoisyMoments must be 1 for"),
        ({"method": TeacherVotes(n_teachers=4, n_queries=4)}, "must be NoisyMoments"),
        ({"goal": "balanced_accuracy"}, "`goal` of PATEClassifier must come with a `class_weight`"),
        ({"classes": None}, "`classes` of PATEClassifier must be declared"),
        (
            {"method": NoisyMoments(30, rounds=1, student="forest")},
            "`student` of NoisyMoments must be left out",
        ),
    ],
)
def test_a_student_for_which_liars_can_do_more_is_refused(changes, said):
    model = fitted(**changes)
    with pytest.raises(InvalidParameterError, match=said):
        model.certified(TEST)
    assert model.card(TEST, TRUE).student.judged.survived is None


def test_public_labels_are_refused():
    settings: dict[str, Any] = {"method": NoisyMoments(n_landmarks=30, rounds=1)}
    model: Any = PATEClassifier(classes=[0, 1, 2], noise=SimulationNoise(0), **settings)
    model.fit(PRIVATE, LABELS, X_public=TEST[:400], y_public=TRUE[:400])
    with pytest.raises(InvalidParameterError, match="`y_public` of"):
        model.certified(TEST)


def test_a_table_of_effects_is_refused():
    method: Method = Additive()
    schema = Schema({"a": (0.0, 1.0), "b": (0.0, 1.0)})
    cells = np.random.default_rng(0).random((200, 2))
    model: Any = PATEClassifier(
        classes=[False, True], method=method, columns=schema, noise=SimulationNoise(0)
    )
    model.fit({"a": cells[:, 0], "b": cells[:, 1]}, cells[:, 0] > 0.5)
    with pytest.raises(InvalidParameterError, match="must be NoisyMoments"):
        model.certified({"a": cells[:, 0], "b": cells[:, 1]})
