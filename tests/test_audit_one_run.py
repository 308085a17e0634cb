"""The bound from one run: the paper's numbers, enumeration, coverage, and a pipeline that leaks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.neighbors import KNeighborsClassifier

from tutelage import GNMax, PATEClassifier, SimulationNoise
from tutelage.audit.one_run import audit_in_one_run, epsilon_lower_bound, p_value, pate_canaries
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.methods import TeacherVotes

pytestmark = pytest.mark.rest


@pytest.mark.parametrize(("canaries", "guesses", "correct", "delta", "published"), [
    (1_000, 100, 75, 1e-4, 0.673),  # arXiv:2305.08846v1, Appendix D
    # Section 7, Figure 11; the paper cuts off the last digits.
    (100_000, 1_510, 1_439, 1e-5, 2.675),
])  # fmt: skip
def test_the_numbers_of_the_paper(canaries, guesses, correct, delta, published):
    found = epsilon_lower_bound(correct, guesses, canaries, delta, 0.95)
    assert found == pytest.approx(published, abs=1e-3)
    assert p_value(correct, guesses, canaries, found, delta) == pytest.approx(0.05, abs=1e-6)


def slow_p_value(correct, guesses, canaries, epsilon, delta):
    """Return the bound by sums over single outcomes."""
    right = np.exp(epsilon) / (1 + np.exp(epsilon))
    mass = [stats.binom.pmf(k, guesses, right) for k in range(guesses + 1)]
    shares = [sum(mass[correct - i : correct]) / i for i in range(1, correct + 1)]
    return min(1.0, sum(mass[correct:]) + 2 * canaries * delta * max(shares, default=0.0))


@given(st.integers(1, 30), st.data(), st.floats(0, 4), st.sampled_from([0.0, 1e-6, 1e-3, 0.2]))
def test_the_p_value_is_that_of_the_theorem(guesses, data, epsilon, delta):
    correct, canaries = data.draw(st.integers(0, guesses)), data.draw(st.integers(guesses, 100))
    found = p_value(correct, guesses, canaries, epsilon, delta)
    assert found == pytest.approx(
        slow_p_value(correct, guesses, canaries, epsilon, delta), rel=1e-9, abs=1e-12
    )
    assert p_value(correct, guesses, canaries, epsilon + 0.1, delta) >= found - 1e-12
    assert p_value(correct, guesses, canaries, epsilon, delta + 0.01) >= found


def randomised_response(epsilon: float, seed: int):
    """Return a score that gives every coin away with the odds that ε allows."""

    def score(included):
        lies = np.random.default_rng(seed).random(len(included)) > 1 / (1 + np.exp(-epsilon))
        return (included != lies).astype(float)

    return score


def test_randomised_response_is_overstated_as_seldom_as_it_says_and_nearly_reached():
    bounds = [
        audit_in_one_run(
            randomised_response(1.0, seed),
            400,
            guesses=400,
            confidence=0.9,
            random_state=seed + 1000,
        )
        for seed in range(150)
    ]
    above = sum(found.lower_bound > 1.0 for found in bounds)
    assert above <= stats.binom.ppf(0.999, 150, 0.1)
    large = audit_in_one_run(randomised_response(1.0, 0), 40_000, guesses=40_000, random_state=1)
    assert 0.9 < large.lower_bound <= 1.0


def test_scores_that_know_nothing_show_nothing_and_all_right_guesses_no_more_than_their_number_allows():
    found = audit_in_one_run(
        lambda included: np.zeros(len(included)), 1_000, guesses=1_000, random_state=0, claim=0.1
    )
    assert found.lower_bound == 0
    assert found.passed
    found = audit_in_one_run(
        lambda included: included.astype(float), 100, guesses=40, random_state=0, claim=1.0
    )
    assert found.correct == 40
    assert found.lower_bound == pytest.approx(-np.log(0.05 ** (-1 / 40) - 1), rel=1e-6)
    assert epsilon_lower_bound(40, 40, 100, 1e-3, 0.95) < found.lower_bound
    assert not found.passed


def pipeline(n_teachers: int, sigma: float) -> PATEClassifier:
    nearest = KNeighborsClassifier(1)
    method = TeacherVotes(nearest, n_teachers=n_teachers, mechanism=GNMax(sigma), student=nearest)
    return PATEClassifier(
        classes=range(10), method=method, random_state=0, noise=SimulationNoise(0)
    )


def audit_of(model: PATEClassifier, **settings):
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 3))
    strange = 50 * random.normal(size=(200, 3))
    y = (X[:, 0] > 0).astype(int)
    odd = 2 + np.arange(200) % 8
    score = pate_canaries(model, X, y, X_canaries=strange, y_canaries=odd, **settings)
    return audit_in_one_run(score, 200, guesses=100, random_state=0, claim=1.0)


def test_a_pipeline_that_listens_to_single_people_is_found_out_and_one_of_many_teachers_and_noise_is_not():
    found = audit_of(pipeline(1, 0.2))
    assert found.correct >= 85
    assert not found.passed
    found = audit_of(pipeline(40, 20.0), entity_ids=[f"p{number}" for number in range(400)])
    assert found.passed
    assert found.lower_bound < 0.5


def test_canaries_leave_the_checkpoints_and_the_unit_of_the_real_run_alone(tmp_path, monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    model = pipeline(3, 1.0).set_params(unit="patient")
    folder = tmp_path / "checkpoints"

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(GNMax, "release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, X_public=9 + X[:5], entity_ids=np.arange(60), checkpoints=folder)
    monkeypatch.undo()
    left = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert left
    score = pate_canaries(model, X, y, X_canaries=9 + X[:5], y_canaries=np.arange(2, 7))
    assert np.shape(score(np.array([True, False, True, False, True]))) == (5,)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == left


def test_canaries_must_be_people_of_their_own():
    with pytest.raises(InvalidDataError, match="canary 0"):
        audit_of(pipeline(2, 1.0), entity_ids=["canary 0"] * 400)
    for missing in ("classes", "random_state"):
        with pytest.raises(InvalidParameterError, match="`classes` and `random_state` set"):
            audit_of(pipeline(2, 1.0).set_params(**{missing: None}))
    with pytest.raises(InvalidDataError, match="`y_canaries` must be among the `classes`"):
        audit_of(pipeline(2, 1.0).set_params(classes=[0, 1, 3]))


@pytest.mark.parametrize(("canaries", "settings", "named"), [
    (5, {"guesses": 6}, "guesses"),
    (5, {"delta": float("nan")}, "delta"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_before_the_run(canaries, settings, named):
    def run(included):
        raise AssertionError("the pipeline ran")

    with pytest.raises(InvalidParameterError, match="of audit_in_one_run") as refused:
        audit_in_one_run(run, canaries, **{"guesses": 5, **settings})
    assert refused.value.parameter == named
    with pytest.raises(InvalidDataError, match="one finite number"):
        audit_in_one_run(lambda included: np.full(5, np.nan), 5, guesses=2)
