"""`PATEClassifier` with a ballot of vectors per person: what it learns, what it costs, and what is remembered."""

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm as normal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from blobs import LABELS, PRIVATE, PUBLIC, TEST, TRUE
from tutelage import GNMax, Ledger, PATEClassifier, SimulationNoise
from tutelage.accounting.calibration import least_noise
from tutelage.exceptions import BudgetExceededError, InvalidParameterError, OneClassWarning
from tutelage.mechanisms import NoisySum
from tutelage.methods import NoisyMoments, Sizes, TeacherVotes
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.students import NoisySumClassifier, load_student
from tutelage.students.store import write_student
from tutelage.teachers import VectorBallots


def model(**changes):
    settings = {"epsilon": 1.0, "random_state": 0, "noise": SimulationNoise(0)}
    return PATEClassifier(**{**settings, **changes})


def fitted(public=PUBLIC, ids=None, *, data_changed=False, **changes) -> Any:
    return model(**changes).fit(
        PRIVATE, LABELS, X_public=public, entity_ids=ids, data_changed=data_changed
    )


def test_the_closed_form_takes_each_row_by_itself():
    student: Any = NoisySumClassifier().fit(PRIVATE, LABELS)
    whole, together = student.expected(PRIVATE), student.residuals(PRIVATE, LABELS)
    assert_allclose(whole, student.decision_function(PRIVATE), atol=1e-4)
    order = np.random.default_rng(0).permutation(len(PRIVATE))
    for kept in (order, np.arange(0, len(PRIVATE), 7), np.array([11])):
        assert np.array_equal(student.expected(PRIVATE[kept]), whole[kept])
        assert np.array_equal(student.residuals(PRIVATE[kept], LABELS[kept]), together[kept])


@pytest.fixture(scope="module")
def plain() -> Any:
    return fitted()


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "private.ledger"


def test_it_is_nearly_as_right_as_a_model_without_privacy(plain):
    open_model = LogisticRegression().fit(PRIVATE, LABELS).score(TEST, TRUE)
    # Of which steps lose two where all is linear.
    assert plain.score(TEST, TRUE) > open_model - 0.05
    chances = plain.predict_proba(TEST)
    assert_allclose(chances.sum(axis=1), 1)
    assert np.mean(chances.argmax(axis=1) == plain.predict(TEST)) > 0.99
    assert plain.release_.answered.all()
    assert len(plain.queries_) == len(PUBLIC)
    assert plain.n_teachers_ == len(PRIVATE)


@pytest.mark.rest
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_noise_is_the_least_that_keeps_to_epsilon(epsilon):
    found = fitted(epsilon=epsilon)
    assert epsilon * 0.9998 < found.epsilon_.epsilon <= epsilon
    assert [part.times for part in found.release_.event.flatten()] == [1, 1, 1]  # with the report
    rounds = [part.event for part in found.release_.event.flatten()]
    # Two ballots' lengths apart in each of two rounds, and √2 in the report, whose ballots are never negative:
    # μ² = Σ(2c/σ)² (Balle and Wang 2018, Theorem 8).
    apart = [2 if event.nonnegative else 4 for event in rounds]
    mu = np.sqrt(
        sum(c * event.norm_squared / event.sigma**2 for c, event in zip(apart, rounds, strict=True))
    )
    assert (rounds[0].sigma / rounds[1].sigma) ** 2 == pytest.approx(3 / 7)
    delta = normal.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * normal.cdf(
        -epsilon / mu - mu / 2
    )
    assert 0.97e-5 < delta <= 1e-5


def test_the_number_of_people_is_released_under_noise_where_it_is_private():
    found = fitted(ids=np.repeat(np.arange(1000), 3), unit="patient")
    assert found.epsilon_.unit == PrivacyUnit(
        "patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY
    )
    assert found.epsilon_.epsilon <= 1
    assert [part.event.dimension == 1 for part in found.release_.event.flatten()] == [
        True,
        False,
        False,
        False,
    ]
    assert 0 < abs(found.n_teachers_ - 1000) < 1000
    assert "1000" not in repr(found.ballots_)


@pytest.mark.rest
def test_other_public_rows_are_another_sum_that_the_budget_has_no_room_for(ledger):
    spent = fitted(ledger=ledger, noise=None).ledger_.spent
    mirrored = PUBLIC * np.array([-1.0, 1, 1, 1])  # only looks the same to the ballots
    with pytest.raises(BudgetExceededError):
        fitted(mirrored, ledger=ledger, noise=None)
    assert Ledger.open(ledger).state().spent == spent


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
def test_no_count_of_people_lets_half_a_campaign_through(tmp_path):
    unit = PrivacyUnit("entity", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=2.0, delta=1e-5, unit=unit)
    fits: Any = {
        "ledger": ledger,
        "method": NoisyMoments(mechanism=NoisySum(7.0)),
        "epsilon": None,
        "noise": None,
    }
    fits["ids"] = np.arange(len(PRIVATE))
    with pytest.raises(BudgetExceededError):  # nor does one that is paid first
        fitted(**{**fits, "method": NoisyMoments(mechanism=NoisySum(0.5))})
    assert ledger.state().spent == 0
    for n_public in (400, 390, 380, 370):
        before = ledger.state().spent
        try:
            fitted(PUBLIC[:n_public], **fits)
        except BudgetExceededError:
            assert ledger.state().spent == before
            break
    else:
        pytest.fail("the budget held everything")


def test_the_student_goes_to_a_file_and_holds_no_private_sum(plain, tmp_path):
    write_student(plain.whole_student(), tmp_path / "student.skops")
    assert np.array_equal(
        load_student(tmp_path / "student.skops").predict(TEST), plain.predict(TEST)
    )
    stored = pickle.loads(pickle.dumps(plain))  # noqa: S301
    assert not hasattr(stored, "ballots_")
    assert np.array_equal(stored.predict(TEST), plain.predict(TEST))
    assert not hasattr(clone(plain), "student_")


@pytest.mark.parametrize(("of_method", "changes", "said"), [
    ({"mechanism": GNMax(10.0)}, {}, "must be a NoisySum"),
    ({"mechanism": NoisySum(10.0)}, {}, "each of them sets the noise"),
    ({}, {"n_queries": 10}, r"Pass it as method=TeacherVotes\(n_queries=\.\.\.\)"),
    ({}, {"data_changed": True}, "must come with `ledger`"),
])  # fmt: skip
def test_parameters_that_mean_nothing_are_refused(of_method, changes, said):
    with pytest.raises(InvalidParameterError, match=said):
        fitted(method=NoisyMoments(**of_method), **changes)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_the_rounds_together_take_the_budget_of_one_sum(rounds):
    teacher = VectorBallots(rounds=rounds)
    assert sum(
        teacher.noise_of_round(3.0, number) ** -2 for number in range(rounds)
    ) == pytest.approx(3.0**-2)


def test_parameters_of_a_sum_mean_nothing_to_voters():
    changes: list[dict[str, Any]] = [
        {"mechanism": NoisySum(10.0)},
        {"student": NoisySumClassifier()},
    ]
    for change in changes:
        with pytest.raises(InvalidParameterError, match="NoisyMoments"):
            TeacherVotes(n_teachers=20, **change)


def test_a_student_of_one_class_is_warned_of():
    rare = np.where(np.random.default_rng(0).random(len(PRIVATE)) < 0.02, 1, 0)
    with pytest.warns(OneClassWarning, match="gives all public rows one class"):
        found = model(epsilon=0.1).fit(PRIVATE, rare, X_public=PUBLIC)
    assert set(found.predict(TEST)) == {0}


@pytest.mark.parametrize(("share", "least"), [
    (lambda noise: 54321.0 / noise, 54321.0),
    (lambda noise: (0.004321 / noise) ** 2, 0.004321),
    # No power, and then nothing.
    (lambda noise: 0.0 if noise > 1000 else (50 / noise + noise**-0.5) / 2, 27.629),
    # A better bound ends before that.
    (lambda noise: 10 / noise if noise < 100 else 200 / noise, 200.0),
    (lambda noise: 1000 / noise if noise < 100 else 50 / noise, 100.0),
])  # fmt: skip
def test_least_noise_is_the_smallest_to_five_digits(share, least):
    found = least_noise(share)
    assert share(found) <= 1
    assert found == pytest.approx(least, rel=1.1e-4)
    assert float(f"{found:.5g}") == found


def test_what_no_noise_can_meet_is_refused():
    with pytest.raises(InvalidParameterError, match="no amount of noise"):
        least_noise(lambda _: 1.1)


def test_moments_without_noise_give_least_squares():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5000, 6)), rng.integers(0, 3, 5000)
    X[np.arange(5000), y] += 1
    student = NoisySumClassifier().fit(X, y)
    expected = np.linalg.lstsq(X, np.eye(3)[y] - 1 / 3, rcond=None)[0]
    assert_allclose(student.coef_, expected - expected.mean(axis=1, keepdims=True), atol=5e-3)
    assert student.score(X, y) > 0.6


def test_a_second_round_mends_what_differs_between_public_and_private_rows():
    """With public rows of other correlations, one round leaves a part of the classes untold that a second tells."""
    one, three = (
        fitted(PUBLIC[:60], method=NoisyMoments(rounds=rounds), epsilon=20.0) for rounds in (1, 3)
    )
    assert three.score(TEST, TRUE) > one.score(TEST, TRUE)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_number_of_people_is_paid_for_where_it_is_private(relation):
    sizes = Sizes(n_classes=2, n_public=50, unit=PrivacyUnit("person", relation), simulated=True)
    paid = NoisyMoments(mechanism=NoisySum(60.0)).event_of_count(sizes)
    assert bool(paid) == (relation is not NeighboringRelation.CHANGE_ONE_ROW)
