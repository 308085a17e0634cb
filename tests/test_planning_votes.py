import json
import re
import sys
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from sklearn.naive_bayes import GaussianNB

from conftest import REPOSITORY
from tutelage._internal import validation
from tutelage.accounting import Accountant, data_independent
from tutelage.datasets import load_digits
from tutelage.events import Composed, ConfidenceCheck, NoisyArgmaxGaussian, NoisyArgmaxLaplace, Repeated
from tutelage.exceptions import InvalidDataError, InvalidParameterError, UnsupportedEventError
from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax, PermuteAndFlip
from tutelage.planning import ProxyVotes, TeacherModel, calibration, plan_votes, votes_of_public_teachers
from tutelage.planning.calibration import Sketch, calibrated
from tutelage.planning.teacher_model import (
    expected_labels,
    expected_without_noise,
    typical_counts,
    typical_votes,
)
from tutelage.privacy import ONE_TEACHER
from tutelage.votes import VoteHistogram

MNIST_MEDOIDS: dict[float, float] = {
    60: 0.981,
    240: 0.990,
}  # measured: right votes of class means on medoids, by rows per teacher


def cast(model: TeacherModel, n_teachers: int, rows: float, seed: int, copies: int = 1) -> np.ndarray:
    """Cast votes as the model says, the right class first; independent of how the planner computes with them."""
    rng = np.random.default_rng(seed)
    right = np.tile(model.right_shares(rows), copies)
    wrong = np.full((len(right), model.classes - 1), 1.0)
    if model.classes > 2:
        wrong[:] = (1 - model.confusion) / (model.classes - 2)
        wrong[:, 0] = model.confusion
    return rng.multinomial(n_teachers, np.column_stack([right, (1 - right)[:, None] * wrong]))


def proved(mechanism, epsilon_queries: int, delta: float) -> float:
    one = mechanism.event_of_one(7, ONE_TEACHER, simulated=False)
    return data_independent.epsilon(Repeated(one, epsilon_queries), delta).epsilon


def sketch_of(mechanism, queries: int = 1) -> Sketch:
    match mechanism:
        case ConfidentGNMax(threshold=threshold, sigma_threshold=check, sigma_vote=vote):
            return Sketch(ConfidentGNMax, (check, vote), queries, threshold)
        case GNMax(sigma=noise):
            return Sketch(GNMax, (noise,), queries)
    return Sketch(type(mechanism), (mechanism.scale,), queries)


# Teachers


@pytest.mark.parametrize("points", [{60: 0.981, 240: 0.990}, {15: 0.556, 30: 0.695, 120: 0.825}, {500: 0.7}])
def test_the_model_has_the_accuracies_it_was_made_of(points):
    model = TeacherModel.from_accuracies(points, 10)
    for rows, accuracy in points.items():
        assert model.accuracy(rows) == pytest.approx(accuracy, abs=0.02)
    assert "given" not in model.assumptions[0].replace("as given", "")


def test_two_accuracies_foretell_the_agreement_that_was_measured():
    # 60,000 images of MNIST among class means: the plurality of 4,000 teachers of 15 images is right on 99 % of medoids
    # and their votes on 76 %; on 98 % of 1,000 teachers of 60.
    model = TeacherModel.from_accuracies(MNIST_MEDOIDS, 10)
    assert model.accuracy(15) == pytest.approx(0.76, abs=0.03)
    assert model.accuracy(30) == pytest.approx(0.927, abs=0.01)
    assert expected_without_noise(typical_votes(model, 4000, 15)) == pytest.approx(0.99, abs=0.015)
    shares = model.right_shares(240)
    spread = shares.var() / (shares.mean() * (1 - shares.mean()))
    assert spread == pytest.approx(0.83, abs=0.1)  # measured 0.828: nearly all teachers err on the same images


@settings(max_examples=40)
@given(st.integers(2, 20), st.floats(0.05, 0.98), st.floats(0.1, 1e4), st.floats(1, 1e5), st.floats(1.01, 10))
def test_more_rows_never_make_a_teacher_of_easy_queries_worse(classes, above_chance, half, rows, more):
    model = TeacherModel(classes=classes, limit=1 / classes + above_chance * (1 - 1 / classes), half=half)
    shares, better = model.right_shares(rows), model.right_shares(rows * more)
    assert np.all((shares >= 0) & (shares <= 1))
    assert np.all(np.diff(shares) >= 0)
    easy = shares > 1.01 / classes
    assert np.all(better[easy] >= shares[easy] - 1e-12)


def test_what_is_not_known_is_an_assumption_in_words():
    assert "assumed" in TeacherModel.assumed(3).assumptions[0]
    assert "a second accuracy would settle it" in TeacherModel.from_accuracies({100: 0.8}, 4).assumptions[0]
    impossible = TeacherModel.from_accuracies({3: 0.9, 1000: 0.95}, 10)  # three rows are of three classes at most
    assert "(given: 90.0%)" in impossible.assumptions[0]


@pytest.mark.parametrize("labelled", [True, False])
def test_the_model_is_found_again_in_votes_that_it_cast(labelled):
    true = TeacherModel(classes=5, limit=0.93, half=20.0, confusion=0.6)
    labels = np.zeros(800, dtype=int) if labelled else None
    proxies = [
        ProxyVotes(VoteHistogram(cast(true, n, rows, seed=1, copies=4), n), rows, labels)
        for n, rows in ((40, 25), (30, 150))
    ]
    found = TeacherModel.from_votes(proxies)
    for rows in (12, 50, 400):
        assert found.accuracy(rows) == pytest.approx(true.accuracy(rows), abs=0.02 if labelled else 0.08)
    assert found.confusion == pytest.approx(0.6, abs=0.05 if labelled else 0.1)
    assert ("most votes is right" in found.assumptions[0]) != labelled


def test_agreement_does_not_mistake_chance_for_difficulty():
    rng = np.random.default_rng(0)
    alike = VoteHistogram(rng.multinomial(10, [0.7, 0.3], size=4000), 10)
    assert ProxyVotes(alike, 5, np.zeros(4000, dtype=int)).agreement() < 0.02
    split = VoteHistogram(np.repeat([[10, 0], [0, 10]], 50, axis=0), 10)
    assert ProxyVotes(split, 5, np.zeros(100, dtype=int)).agreement() == 1


def test_public_rows_give_votes_to_plan_by():
    digits = load_digits()
    proxies = votes_of_public_teachers(
        GaussianNB(), digits.X_train[:600], digits.y_train[:600], (20, 100), n_classes=10, n_teachers=6
    )
    assert [proxy.votes.n_teachers for proxy in proxies] == [6, 4]
    assert {proxy.votes.n_queries for proxy in proxies} == {200}
    assert proxies[0].accuracy() < proxies[1].accuracy()
    model = TeacherModel.from_votes(proxies)
    assert model.accuracy(100) == pytest.approx(proxies[1].accuracy(), abs=0.1)
    with pytest.raises(InvalidDataError, match="two teachers"):
        votes_of_public_teachers(GaussianNB(), digits.X_train[:60], digits.y_train[:60], (30,), n_classes=10)


def test_proxy_votes_are_read_from_a_file(tmp_path):
    counts = np.array([[8, 2], [3, 7]])
    np.savez(tmp_path / "whole.npz", counts=counts, labels=np.array([0, 1]), rows_per_teacher=np.float64(30))
    found = ProxyVotes.load(tmp_path / "whole.npz")
    assert (found.rows_per_teacher, found.accuracy()) == (30.0, pytest.approx(15.5 / 21))
    np.savez(tmp_path / "bare.npz", counts)
    assert ProxyVotes.load(tmp_path / "bare.npz", rows_per_teacher=12).labels is None
    with pytest.raises(InvalidDataError, match="--proxy-rows"):
        ProxyVotes.load(tmp_path / "bare.npz")
    for wrong in (np.array("many"), np.array([20, 30]), np.float64("nan"), np.array(0)):
        np.savez(tmp_path / "wrong.npz", counts=counts, rows_per_teacher=wrong)
        with pytest.raises(InvalidDataError, match="`rows_per_teacher` of one number above 0"):
            ProxyVotes.load(tmp_path / "wrong.npz")


def test_private_votes_are_not_planned_by(tmp_path):
    VoteHistogram(np.array([[8, 2], [3, 7]]), 10).save(tmp_path / "private-votes.npz")
    with pytest.raises(InvalidDataError, match="file of private votes"):
        ProxyVotes.load(tmp_path / "private-votes.npz", rows_per_teacher=12)


@pytest.mark.parametrize("labels", [np.array([0, 2]), np.array([0]), np.array([0.0, 1.0]), np.array([-1, 0])])
def test_labels_that_are_no_classes_are_refused(labels):
    with pytest.raises(InvalidDataError, match="class indices below 2"):
        ProxyVotes(VoteHistogram(np.array([[8, 2], [3, 7]]), 10), 5, labels)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_small_shard_chooses_among_the_classes_that_it_has(classes):
    model, rows = TeacherModel(classes=classes, limit=0.8, half=3.0), 4.0
    rng = np.random.default_rng(0)
    has = rng.poisson(rows / classes, (200_000, classes)) > 0
    known = np.where(has[:, 0], has.sum(axis=1), np.inf)  # nobody guesses a class that it never saw
    simulated = []
    for share in (seen := special.ndtr(np.sqrt(rows / 3) * (special.ndtri(0.8) + special.ndtri([0.02, 0.3, 0.9])))):
        right = 1 / known + (1 - 1 / known) * (2 * share - 1) if share > 0.5 else 2 * share / known
        simulated.append(float(np.where(has[:, 0], right, 0).mean()))
    assert (seen > 0.5).tolist() == [False, True, True]
    places = [int(200 * place) for place in (0.02, 0.3, 0.9)]
    assert model.right_shares(rows)[places] == pytest.approx(simulated, abs=0.01)


# Labels


@pytest.mark.parametrize(
    ("mechanism", "tolerance"),
    [
        (GNMax(40.0), 0.01),
        (LNMax(30.0), 0.015),
        (ExponentialMax(40.0), 0.01),
        (ConfidentGNMax(150.0, 40.0, 30.0), 0.01),
    ],
    ids=str,
)
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_expected_labels_are_those_that_votes_and_noise_give(mechanism, tolerance, classes):
    model, n = TeacherModel(classes=classes, limit=0.9, half=30.0, confusion=0.6), 250
    expected = expected_labels(sketch_of(mechanism), typical_votes(model, n, 60))
    rng = np.random.default_rng(7)
    counts = cast(model, n, 60, seed=3, copies=150)
    passed, noise = np.ones(len(counts), dtype=bool), np.zeros(counts.shape)
    match mechanism:
        case GNMax(sigma=sigma):
            noise = rng.normal(0, sigma, counts.shape)
        case LNMax(scale=scale):
            noise = rng.laplace(0, scale, counts.shape)
        case ExponentialMax(scale=scale):
            noise = rng.gumbel(0, scale, counts.shape)
        case ConfidentGNMax(threshold=threshold, sigma_threshold=check, sigma_vote=sigma):
            passed = counts.max(axis=1) + rng.normal(0, check, len(counts)) >= threshold
            noise = rng.normal(0, sigma, counts.shape)
    right = (counts + noise).argmax(axis=1) == 0
    assert expected.answered == pytest.approx(passed.mean(), abs=tolerance)
    assert expected.right == pytest.approx(right[passed].mean(), abs=tolerance)


def test_ten_hospitals_are_foretold_too():
    model = TeacherModel(classes=2, limit=0.9, half=100.0)
    expected = expected_labels(sketch_of(GNMax(5.0)), typical_votes(model, 10, 200))
    counts = cast(model, 10, 200, seed=0, copies=200)
    right = (counts + np.random.default_rng(1).normal(0, 5, counts.shape)).argmax(axis=1) == 0
    assert expected.right == pytest.approx(right.mean(), abs=0.01)


@settings(max_examples=30)
@given(st.integers(2, 12), st.floats(0.6, 0.99), st.integers(20, 5000), st.floats(0.1, 1e4), st.floats(1.01, 5))
def test_more_noise_never_gets_more_labels_right_where_teachers_are_good(classes, limit, n, noise, more):
    votes = typical_votes(TeacherModel(classes=classes, limit=limit, half=1.0), n, 1e6)
    sketch = sketch_of(GNMax(noise))
    assert expected_labels(sketch.scaled(more), votes).right <= expected_labels(sketch, votes).right + 1e-3


def test_labels_of_measured_runs_come_within_a_fifth():
    model = TeacherModel.from_accuracies(MNIST_MEDOIDS, 10)
    measured = ((1000, 160, 0.985), (2000, 240, 0.975), (2000, 400, 0.92), (2000, 707, 0.825), (1000, 400, 0.797),
                (250, 106, 0.761), (4000, 1500, 0.658), (4000, 2535, 0.393))  # fmt: skip
    for n, sigma, right in measured:
        expected = expected_labels(sketch_of(GNMax(sigma)), typical_votes(model, n, 60_000 / n)).right
        assert expected == pytest.approx(right, rel=0.2)


def test_typical_counts_are_whole_votes_of_all_teachers():
    counts = typical_counts(typical_votes(TeacherModel.assumed(7), 333, 20))
    assert counts.shape == (25, 7)
    assert np.all(counts.sum(axis=1) == 333)
    assert np.all(counts >= 0)


def test_a_mechanism_without_a_plan_is_refused():
    with pytest.raises(UnsupportedEventError, match="PermuteAndFlip"):
        expected_labels(sketch_of(PermuteAndFlip(3.0)), typical_votes(TeacherModel.assumed(3), 10, 20))
    with pytest.raises(UnsupportedEventError, match="PermuteAndFlip"):
        calibrated(sketch_of(PermuteAndFlip(3.0)), 1.0, 1e-6)


# Noise


@pytest.mark.parametrize("kind", [GNMax(1.0), LNMax(1.0), ExponentialMax(1.0), ConfidentGNMax(30, 1.5, 1.0)], ids=str)
@pytest.mark.parametrize(("epsilon", "queries"), [(3.0, 20), (0.7, 1), (8.0, 400)])
def test_the_noise_is_enough_and_hardly_more(kind, epsilon, queries):
    sketch = calibrated(sketch_of(kind, queries), epsilon, 1e-6)
    assert 0.95 * epsilon <= proved(sketch.mechanism(), queries, 1e-6) <= epsilon
    assert proved(sketch.scaled(0.93).mechanism(), queries, 1e-6) > epsilon  # planted: seven per cent less would not do


@pytest.mark.parametrize(
    ("epsilon", "queries", "sigma"), [(0.283, 50, 106.1), (0.0762, 200, 707.1), (0.0213, 200, 2263), (0.097, 200, 566)]
)
def test_the_noise_of_measured_runs_is_found_again(epsilon, queries, sigma):
    found = calibrated(Sketch(GNMax, (1.0,), queries), epsilon, 1e-5).mechanism()
    assert isinstance(found, GNMax)
    assert found.sigma == pytest.approx(sigma, rel=0.05)


def test_an_epsilon_that_no_noise_gives_is_refused():
    with pytest.raises(InvalidParameterError, match="`epsilon` of plan_votes"):
        calibrated(Sketch(GNMax, (1.0,), 100), 1e-9, 1e-5)


@pytest.mark.parametrize(
    "mechanism", [GNMax(7.0), LNMax(3.0), ExponentialMax(3.0), ConfidentGNMax(30.0, 9.0, 4.0)], ids=str
)
def test_noise_is_sought_by_the_costs_of_the_accountant(mechanism):
    sketch, orders = sketch_of(mechanism), np.array([1.01, 2.0, 7.5, 300.0])
    assert sketch.mechanism() == mechanism
    costs = [
        cost.closed(noise, orders) for cost, noise in zip(calibration._COSTS[sketch.kind], sketch.noise, strict=True)
    ]
    one = mechanism.event_of_one(7, ONE_TEACHER, simulated=False)
    assert np.array_equal(np.sum(costs, axis=0), data_independent.rdp(one, orders).values)


@pytest.mark.parametrize(
    ("event", "cost"),
    [
        (NoisyArgmaxGaussian(20.0, 2, ONE_TEACHER), calibration._GAUSSIAN),
        (NoisyArgmaxLaplace(20.0, 2, ONE_TEACHER), calibration._LAPLACE),
        (ConfidenceCheck(5.0, 20.0, 2, ONE_TEACHER), calibration._CHECK),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_kept_costs_are_those_that_the_accountant_searches(event, cost):
    orders = np.maximum(calibration._RELATIVE_ORDERS * 20, 1.01)
    found = data_independent.rdp_of_three_outcomes(event, orders).values
    assert np.array(cost.relative) * orders / 20**2 == pytest.approx(found, rel=1e-9)


def test_a_search_checks_no_number_that_it_tries():
    checks = 0

    def count(frame, event, _):
        nonlocal checks
        called = frame.f_code
        checks += event == "call" and called.co_filename == validation.__file__ and called.co_name[0] not in "_<"

    sys.setprofile(count)
    try:
        plan_votes(2.1, 1e-6, rows=4_000, classes=3, label_accuracy=0.99)
    finally:
        sys.setprofile(None)
    assert 0 < checks < 300  # of what is recommended and shown; thousands where each of the hundreds tried is checked


# Plans


@pytest.fixture(scope="module")
def good():
    return plan_votes(
        2.0, 1e-6, rows=20_000, classes=5, model=TeacherModel.from_accuracies({50: 0.8, 200: 0.9}, 5), queries=30
    )


def test_a_plan_recommends_what_keeps_its_word(good):
    best = good.recommended
    assert good.possible
    assert good.findings == ()
    assert best.right >= 0.9
    assert proved(best.mechanism, best.queries, 1e-6) == pytest.approx(good.epsilon.epsilon)
    assert 0.97 * 2.0 <= good.epsilon.epsilon <= 2.0
    assert 0 < good.private_epsilon < good.epsilon.epsilon
    assert best in good.options
    assert best.answers >= 30 - 1e-6
    assert best.teachers * best.rows_per_teacher == pytest.approx(20_000)
    for option in good.options:
        assert proved(option.mechanism, option.queries, 1e-6) <= 2.0


def test_a_plan_stands_neither_at_an_edge_nor_beside_the_best(good):
    plain = {o.teachers: o.right for o in good.options if isinstance(o.mechanism, GNMax)}
    recommended = plain[good.recommended.teachers]
    assert recommended >= max(plain.values()) - 0.02


def test_a_plan_is_plain_values_and_a_configuration(good):
    values = json.loads(json.dumps(good.as_dict(), allow_nan=False))
    assert values["recommended"]["teachers"] == good.recommended.teachers
    assert values["epsilon"] <= values["target_epsilon"] == 2.0
    config = tomllib.loads(good.as_config())
    assert config["teachers"]["number"] == good.recommended.teachers
    assert config["public"]["queries"] == good.recommended.queries
    assert config["privacy"] == {"delta": 1e-6}
    assert good.as_table().row_count <= len(good.options)


def test_less_privacy_and_more_teachers_help_along_the_frontier(good):
    for number in {point.teachers for point in good.frontier}:
        right = [point.right for point in good.frontier if point.teachers == number]
        assert np.all(np.diff(right) >= -1e-3)


def test_an_impossible_wish_says_what_would_do_and_it_does():
    model = TeacherModel.from_accuracies({200: 0.9, 50: 0.82}, 2)
    wish = {"delta": 1e-6, "rows": 2000, "classes": 2, "model": model, "label_accuracy": 0.85}
    found = plan_votes(1.0, teachers=10, queries=40, **wish)
    assert not found.possible
    assert found.obstacle is not None
    assert "10 teachers of 200 rows" in found.obstacle
    epsilon, teachers = (
        re.findall(pattern, found.obstacle)[0] for pattern in (r"ε of at least ([\d.]+)", r"at least ([\d,]+) teachers")
    )
    assert plan_votes(float(epsilon) * 1.05, teachers=10, queries=40, **wish).possible
    assert not plan_votes(float(epsilon) * 0.8, teachers=10, queries=40, **wish).possible
    more = int(teachers.replace(",", ""))
    assert plan_votes(1.0, teachers=more + 5, queries=40, **{**wish, "rows": 200 * (more + 5)}).possible
    assert not plan_votes(1.0, teachers=more // 2, queries=40, **{**wish, "rows": 200 * (more // 2)}).possible


def test_fewer_queries_are_advised_where_they_help():
    model = TeacherModel.from_accuracies({100: 0.95, 30: 0.9}, 2)
    wish = {"rows": 500, "classes": 2, "model": model, "teachers": 25}
    found = plan_votes(3.0, 1e-6, queries=200, **wish)
    fewer = int(re.findall(r"at most (\d+) quer", found.obstacle or "")[0])
    assert 1 < fewer < 200
    assert plan_votes(3.0, 1e-6, queries=fewer - 1, **wish).possible
    assert not plan_votes(3.0, 1e-6, queries=2 * fewer, **wish).possible


def test_teachers_that_fall_short_without_noise_are_named_as_the_obstacle():
    model = TeacherModel(classes=4, limit=0.6, half=10.0)
    found = plan_votes(1.0, 1e-6, rows=5000, classes=4, model=model, queries=20, teachers=50, label_accuracy=0.9)
    assert found.obstacle is not None
    assert "Even without noise" in found.obstacle


def test_queries_are_chosen_where_none_are_named():
    model = TeacherModel.from_accuracies({20: 0.85, 100: 0.95}, 3)
    many, few = (
        plan_votes(epsilon, 1e-6, rows=3000, classes=3, model=model, public_rows=150).recommended.queries
        for epsilon in (4.0, 0.4)
    )
    assert 150 >= many > few


@pytest.mark.parametrize("classes", [2, 10])
def test_where_nothing_is_said_the_goal_is_one_that_can_be_reached(classes):
    found = plan_votes(8.0, 1e-5, rows=30_000, classes=classes)
    assert found.possible
    assert found.recommended.queries > 100
    assert found.label_accuracy == pytest.approx(0.87, abs=0.02)


def test_a_goal_out_of_reach_leaves_as_many_queries_as_are_about_as_good():
    found = plan_votes(8.0, 1e-5, rows=30_000, classes=10, label_accuracy=0.9)
    assert found.recommended.queries > 20


def test_teachers_of_a_row_or_two_are_foretold_to_do_no_worse_than_chance():
    for classes in (2, 10):
        for rows in (1.0, 2.0, 5.0):
            votes = typical_votes(TeacherModel.assumed(classes), 3000, rows)
            right = TeacherModel.assumed(classes).right_shares(rows)
            assert right.mean() > -np.expm1(-rows) / classes
            if rows >= classes:
                assert expected_without_noise(votes) > 1 / classes


def test_many_queries_are_planned_in_seconds_and_in_little_memory(monkeypatch):
    asked = []

    def counted(epsilon, count, delta):
        asked.append(count)
        return float("inf")

    monkeypatch.setattr("tutelage.planning.calibration.optimal_epsilon", counted)
    calibrated(Sketch(ExponentialMax, (1.0,), 1_000_000), 0.5, 1e-6)
    assert not asked  # a million answers would take minutes and gigabytes
    calibrated(Sketch(ExponentialMax, (1.0,), 1_001), 0.5, 1e-6)
    assert set(asked) == {1_001}


def test_the_foretold_exact_epsilon_is_that_of_the_votes_foretold(good):
    best, model = good.recommended, TeacherModel.from_accuracies({50: 0.8, 200: 0.9}, 5)
    counts = typical_counts(typical_votes(model, best.teachers, best.rows_per_teacher))
    places = np.linspace(0, len(counts) - 1, best.queries).round().astype(int)
    votes, accountant = VoteHistogram(counts[places], best.teachers), Accountant()
    assert isinstance(best.mechanism, ConfidentGNMax)
    one = best.mechanism.event_of_one(5, votes.unit, simulated=False)
    assert isinstance(one, Composed)
    check, answer = one.events
    answered = round(best.answers)
    accountant.add(Repeated(check, best.queries), votes)
    accountant.add(Repeated(answer, answered), votes.select(np.arange(best.queries - answered, best.queries)))
    assert good.private_epsilon == pytest.approx(accountant.exact(1e-6).reveal(), rel=0.05)


def test_objections_stand_on_the_plan():
    found = plan_votes(15.0, 0.01, rows=2000, classes=2, queries=10, teachers=20)
    assert {finding.code for finding in found.findings} >= {"epsilon-too-large", "delta-too-large"}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"epsilon": 0.0}, "`epsilon` of plan_votes"),
        ({"epsilon": float("nan")}, "`epsilon` of plan_votes"),
        ({"delta": 0.0}, "`delta` of plan_votes"),
        ({"rows": 1}, "`rows` of plan_votes"),
        ({"classes": 1}, "`classes` of plan_votes"),
        ({"classes": 0, "model": TeacherModel.assumed(3)}, "`classes` of plan_votes"),
        ({"model": 0.9}, "`model` of plan_votes must be a TeacherModel. Got float"),
        ({"queries": 0}, "`queries` of plan_votes"),
        ({"rows": 2, "classes": 3}, "`rows` of plan_votes must be at least one for each of 3 classes"),
        ({"teachers": 51}, "`teachers` of plan_votes must be at most 50"),
        ({"queries": 20, "public_rows": 10}, "`queries` of plan_votes must be at most the 10 public rows"),
        ({"label_accuracy": 1.0}, "`label_accuracy` of plan_votes"),
        ({"model": TeacherModel.assumed(3)}, "`model` of plan_votes is about 3 classes"),
    ],
)
def test_nonsense_is_refused_by_name(changed, sentence):
    wish = {"epsilon": 1.0, "delta": 1e-6, "rows": 100, "classes": 2, "queries": 5, **changed}
    with pytest.raises(InvalidParameterError, match=sentence):
        plan_votes(wish.pop("epsilon"), wish.pop("delta"), **wish)


@pytest.mark.parametrize("points", [{}, {0: 0.8}, {50: 0.1}, {50: 1.0}, {50: float("nan")}, {float("inf"): 0.8}])
def test_accuracies_that_are_none_are_refused(points):
    with pytest.raises(InvalidParameterError):
        TeacherModel.from_accuracies(points, 10)


def test_a_model_out_of_range_is_refused():
    given = TeacherModel(classes=3, limit=0.8, half=12.0)
    assert given.assumptions[0].startswith("As given, teachers reach 80.0%")
    for wrong in ({"limit": 0.3}, {"limit": 1.0}, {"half": 0.0}, {"confusion": 1.1}, {"classes": 1}):
        with pytest.raises(InvalidParameterError):
            replace(given, **wrong)
    with pytest.raises(InvalidDataError, match="one number of classes"):
        TeacherModel.from_votes([])


# What is documented and reproduced


def test_the_documented_plan_works(capsys):
    page = (REPOSITORY / "docs" / "planning-votes.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(example, {})  # noqa: S102  our own documentation
    assert capsys.readouterr().out.startswith("ε = ")
