"""What a local response costs: against every pair of votes, in exact numbers, and through accountant and ledger."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact import hockey_stick, renyi
from test_local_mechanisms import MAKERS, as_printed
from tutelage.accounting import Accountant
from tutelage.accounting.composition import (
    gaussian_composition,
    lattice_composition,
    pure_dp_composition,
)
from tutelage.accounting.data_independent import (
    _loss_law,
    basic_epsilon,
    epsilon,
    pure_dp_renyi,
    rdp,
    response_composition,
    response_rdp,
)
from tutelage.accounting.rdp import DEFAULT_ORDERS
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    Composed,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    NoisyBallot,
    RandomizedResponse,
    Repeated,
    TruncatedGeometricResponse,
)
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    UnsupportedEventError,
)
from tutelage.privacy import ONE_ENTITY, ONE_TEACHER
from tutelage_consortium.local import local_gaussian_for

ORDERS = np.array([1.01, 1.5, 2.0, 4.0, 16.0, 64.0])
RESPONSE = RandomizedResponse(0.1, 10, ONE_ENTITY)
EVENTS = [
    RESPONSE,
    TruncatedGeometricResponse(9.0, 10, ONE_ENTITY),
    NoisyBallot(10.0, 10, ONE_ENTITY),
]


@pytest.mark.parametrize(("classes", "value"), [(2, 6.0), (3, 0.05), (7, 6.0)])
@MAKERS
def test_the_cost_is_that_of_the_worst_pair_of_votes_in_the_channel(make, classes, value):
    mechanism = make(value)
    channel = mechanism.channel(classes)
    cost = rdp(mechanism.event_of_one(classes, ONE_ENTITY, simulated=False), ORDERS).values
    for order, found in zip(ORDERS, cost, strict=True):
        worst = max(renyi(one, other, order) for one, other in product(channel, repeat=2))
        assert worst <= found * (1 + 1e-9) + 1e-12
        assert found == pytest.approx(worst, rel=1e-6, abs=1e-10)


@MAKERS
@pytest.mark.parametrize("classes", [2, 5])
def test_the_worst_pair_dominates_every_other_at_every_epsilon(make, classes):
    mechanism = make(1.3)
    channel = mechanism.channel(classes)
    law = _loss_law(mechanism.event_of_one(classes, ONE_ENTITY, simulated=False))
    losses = law.top - law.step * np.arange(len(law.log_mass))
    for target in np.linspace(0, 1.4, 15):
        dominating = float(np.exp(law.log_mass) @ np.maximum(1 - np.exp(target - losses), 0))
        worst = max(hockey_stick(one, other, target) for one, other in product(channel, repeat=2))
        assert dominating == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
@MAKERS
def test_composition_is_that_of_all_outcomes_of_three_responses(make, classes):
    mechanism = make(0.7)
    one, *_, other = mechanism.channel(classes)
    p = np.einsum("i,j,k->ijk", one, one, one).ravel()
    q = np.einsum("i,j,k->ijk", other, other, other).ravel()
    event = mechanism.event_of_one(classes, ONE_ENTITY, simulated=False)
    for delta in (1e-1, 1e-2, 1e-3, 1e-6):
        found = response_composition(event, 3, delta)
        assert hockey_stick(p, q, found) <= delta
        assert found == 0 or hockey_stick(p, q, found - 2e-5) > delta


@given(
    st.floats(0.01, 3), st.integers(2, 12), st.integers(1, 60), st.sampled_from([1e-2, 1e-5, 1e-9])
)
def test_responses_never_cost_more_than_any_pure_mechanism(value, classes, count, delta):
    optimal = pure_dp_composition(value, count, delta)
    for event in (
        RandomizedResponse(value, classes, ONE_ENTITY),
        TruncatedGeometricResponse((classes - 1) / value, classes, ONE_ENTITY),
    ):
        found = response_composition(event, count, delta)
        assert found <= min(optimal * (1 + 1e-5) + 1e-5, count * value * (1 + 1e-12))
        assert np.all(rdp(event, ORDERS).values <= pure_dp_renyi(value, ORDERS) * (1 + 1e-12))
        assert rdp(Repeated(event, count)).to_epsilon(delta).epsilon >= found - 1e-5


def test_a_hundred_responses_cost_ten_by_the_paper_and_4_3_at_most():
    total = Repeated(RESPONSE, 100)
    assert str(basic_epsilon(total)) == "ε = 10.0 at δ = 0"
    assert pure_dp_composition(0.1, 100, 1e-5) == pytest.approx(4.307, abs=5e-4)
    assert epsilon(total, 1e-5).epsilon < 4.307


def test_budgets_that_differ_by_query_add_up():
    parts = (
        Repeated(RESPONSE, 3),
        RandomizedResponse(0.5, 10, ONE_ENTITY),
        NoisyArgmaxLaplace(20.0, 10, ONE_ENTITY),
    )
    assert basic_epsilon(Composed(parts)).epsilon == pytest.approx(0.9)
    printed = as_printed(1.0).event_of_one(10, ONE_ENTITY, simulated=False)
    assert basic_epsilon(printed).epsilon == pytest.approx(0.9)
    assert epsilon(Composed(parts), 1e-5).epsilon <= 0.9
    assert basic_epsilon(Repeated(RESPONSE, 0)).epsilon == 0


def test_what_has_no_pure_loss_has_no_basic_cost():
    for event in (NoisyBallot(3.0, 10, ONE_ENTITY), NoisyArgmaxGaussian(3.0, 10, ONE_ENTITY)):
        with pytest.raises(UnsupportedEventError, match="No epsilon at δ = 0"):
            basic_epsilon(event)
    with pytest.raises(UnsupportedEventError, match="different units"):
        basic_epsilon(Composed((RESPONSE, RandomizedResponse(0.1, 10, ONE_TEACHER))))


def test_a_vector_response_costs_what_gaussian_noise_on_two_counts_does():
    event = NoisyBallot(5.0, 10, ONE_ENTITY)
    assert rdp(event, ORDERS).values == pytest.approx(ORDERS / 25)
    assert epsilon(Repeated(event, 7), 1e-5).epsilon == gaussian_composition(5.0, 7, 1e-5)


@pytest.mark.rest
@pytest.mark.parametrize(("target", "answers"), [(0.5, 1), (4.0, 20)])
def test_local_noise_is_the_least_that_keeps_epsilon(target, answers):
    sigma = local_gaussian_for(target, 1e-5, answers).sigma
    event = Repeated(NoisyBallot(sigma, 10, ONE_ENTITY), answers)
    assert epsilon(event, 1e-5).epsilon <= target  # true of the discrete noise that is drawn
    assert (
        epsilon(Repeated(NoisyBallot(sigma * 0.9999, 10, ONE_ENTITY), answers), 1e-5).epsilon
        > target
    )


@pytest.mark.rest
@pytest.mark.parametrize("wrong", [(1e-9, 1e-5, 10), (1.0, 0.0, 1), (1.0, 1e-5, 0)])
def test_local_noise_that_no_vote_could_pass_is_refused(wrong):
    with pytest.raises(InvalidParameterError):
        local_gaussian_for(*wrong)


@pytest.mark.rest
def test_lattices_that_are_too_wide_fall_back_to_a_looser_cost():
    assert lattice_composition(np.array([0.5, 0.5]), 1.0, 2.0, 10**6, 1e-5) == np.inf
    assert lattice_composition(np.array([0.5, 0.5]), 1.0, 2.0, 10, 1e-290) == np.inf
    many = epsilon(Repeated(RandomizedResponse(1e-3, 10, ONE_ENTITY), 10**6), 1e-5)
    assert 0 < many.epsilon < pure_dp_composition(1e-3, 10**6, 1e-5)


@pytest.mark.parametrize("value", [1e-6, 100.0])
@pytest.mark.parametrize("classes", [2, 1000])
def test_curves_are_finite_and_rise_at_every_order(value, classes):
    for event in (
        RandomizedResponse(value, classes, ONE_ENTITY),
        TruncatedGeometricResponse((classes - 1) / value, classes, ONE_ENTITY),
    ):
        curve = rdp(event).values
        assert np.all(np.isfinite(curve))
        assert np.all(curve >= 0)
        assert curve.max() <= value * (1 + 1e-9)
        assert np.all(response_rdp(event, DEFAULT_ORDERS) >= 0)


@pytest.mark.parametrize("event", EVENTS, ids=lambda it: type(it).__name__)
def test_the_accountant_adds_responses_and_refuses_to_cost_them_by_the_votes(event):
    accountant = Accountant()
    accountant.add(Repeated(event, 5))
    assert accountant.data_independent(1e-5).epsilon == epsilon(Repeated(event, 5), 1e-5).epsilon
    with pytest.raises(InvalidDataError, match="depends on the votes"):
        accountant.exact(1e-5)
    votes = VoteHistogram(np.full((5, 10), 2), 20, ONE_ENTITY)
    with pytest.raises(
        UnsupportedEventError, match=f"No exact cost is known for the event {type(event).__name__}"
    ):
        Accountant().add(Repeated(event, 5), votes)
