"""Exact composition against brute force, closed forms and dp-accounting."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from exact import (
    discrete_gaussian_masses,
    discrete_laplace_masses,
    hockey_stick,
    label_probabilities,
)
from tutelage.accounting import data_independent
from tutelage.accounting.composition import (
    gaussian_composition,
    gaussian_dp_epsilon,
    pure_dp_composition,
)
from tutelage.events import NoisyArgmaxGaussian, NoisyArgmaxLaplace, Repeated
from tutelage.privacy import ONE_TEACHER


@pytest.mark.parametrize(
    ("epsilon", "count", "delta"), [(0.1, 7, 1e-2), (1.0, 5, 1e-5), (0.02, 12, 1e-2)]
)
def test_pure_composition_is_the_least_epsilon_of_enumerated_randomised_response(
    epsilon, count, delta
):
    truth, lie = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    outcomes = ((np.arange(2**count)[:, None] >> np.arange(count)) & 1).sum(axis=1)
    p = truth ** (count - outcomes) * lie**outcomes
    q = lie ** (count - outcomes) * truth**outcomes
    found = pure_dp_composition(epsilon, count, delta)
    assert hockey_stick(p, q, found) <= delta * (1 + 1e-9)
    assert found == 0 or hockey_stick(p, q, found - 1e-4) > delta


@pytest.mark.parametrize(
    ("sigma", "count", "delta"),
    [(0.3, 1, 1e-2), (0.8, 3, 1e-6), (5.0, 3, 1e-2), (0.2, 200, 1e-2), (1.9, 200, 1e-6)],
)
def test_gaussian_composition_is_the_least_epsilon_of_the_enumerated_noise(sigma, count, delta):
    reach = math.ceil(13 * sigma) + 8
    one = discrete_gaussian_masses(sigma, reach)
    total = np.array([1.0])
    for _ in range(2 * count):
        total = np.convolve(total, one)
    sums = np.arange(len(total)) - len(total) // 2
    losses = (2 * count - 2 * sums) / (2 * sigma**2)

    def delta_at(epsilon: float) -> float:
        return float(total @ -np.expm1(np.minimum(0, epsilon - losses)))

    found = gaussian_composition(sigma, count, delta)
    assert delta_at(found) <= delta
    assert delta_at(found - 1e-3) > delta


@pytest.mark.parametrize(("sigma", "count"), [(1.0, 10), (0.5, 10), (40.0, 100)])
def test_gaussian_composition_agrees_with_dp_accounting(sigma, count):
    discrete_gaussian, interval = privacy_loss_distribution.from_discrete_gaussian_mechanism, 1e-4
    pld = discrete_gaussian(sigma, sensitivity=1, value_discretization_interval=interval)
    # Rounds every loss up to the interval.
    theirs = pld.self_compose(2 * count).get_epsilon_for_delta(1e-5)
    ours = gaussian_composition(sigma, count, 1e-5)
    assert ours <= theirs + 1e-6
    assert theirs - ours < 2 * count * interval


@pytest.mark.rest
@pytest.mark.parametrize(
    ("epsilon", "count", "delta"), [(0.1, 100, 1e-5), (0.1, 1000, 1e-6), (1.0, 20, 1e-9)]
)
def test_pure_composition_agrees_with_dp_accounting(epsilon, count, delta):
    # That program replaces the bit by a random one with this probability.
    flip = 2 / (np.exp(epsilon) + 1)
    pld = privacy_loss_distribution.from_randomized_response(
        flip, 2, value_discretization_interval=1e-5
    )
    theirs = pld.self_compose(count).get_epsilon_for_delta(delta)
    ours = pure_dp_composition(epsilon, count, delta)
    assert ours == pytest.approx(theirs, abs=count * 1e-5)


@pytest.mark.rest
@pytest.mark.parametrize(("event", "masses"), [
    (NoisyArgmaxLaplace(20.0, 2, ONE_TEACHER), discrete_laplace_masses(20.0, 900)),
    (NoisyArgmaxGaussian(40.0, 2, ONE_TEACHER), discrete_gaussian_masses(40.0, 500)),
])  # fmt: skip
def test_what_may_be_published_covers_a_tied_vote_as_dp_accounting_composes_it(event, masses):
    laws = [label_probabilities(np.array(counts), masses) for counts in ([125, 125], [124, 126])]
    lower, upper = ({label: float(np.log(p)) for label, p in enumerate(law)} for law in laws)
    pld = privacy_loss_distribution.from_two_probability_mass_functions(
        lower, upper, pessimistic_estimate=False, value_discretization_interval=1e-5
    )
    for count in (1, 100, 1000):
        true = pld.self_compose(count).get_epsilon_for_delta(1e-5)
        ours = data_independent.epsilon(Repeated(event, count), 1e-5).epsilon
        assert true <= ours
        # The search over three outcomes is not far above what two of them cost.
        assert ours < 1.4 * true + 0.1


def test_the_discrete_noise_costs_what_the_continuous_would_to_seven_digits():
    discrete = gaussian_composition(40.0, 1000, 1e-5)
    # Exact Gaussian composition, by two other programs.
    assert discrete == pytest.approx(4.98330640597, rel=1e-7)
    continuous = gaussian_dp_epsilon(math.sqrt(2 * 1000) / 40.0, 1e-5)
    assert continuous == pytest.approx(4.98330640597, rel=1e-10)


def test_nothing_costs_nothing_and_the_impossible_is_infinite():
    assert gaussian_composition(5.0, 0, 1e-5) == pure_dp_composition(0.1, 0, 1e-5) == 0
    for cost in (
        gaussian_composition(5.0, 10, 1e-14),
        gaussian_composition(1e5, 10**6, 1e-5),
        pure_dp_composition(1e-3, 10**7, 1e-5),
        pure_dp_composition(0.1, 20_000, 1e-310),  # which double precision cannot tell
        gaussian_dp_epsilon(math.sqrt(2) / 1e12, 1e-20),
    ):
        assert cost == math.inf
    many = data_independent.epsilon(
        Repeated(NoisyArgmaxLaplace(2000.0, 2, ONE_TEACHER), 10**7), 1e-5
    )
    assert 17 < many.epsilon < 30  # the Rényi curve takes over
