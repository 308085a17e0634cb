"""Which ε, δ, share and noise apply: whatever is asked and held, no release costs more than was asked."""

import numpy as np
import pytest

from tutelage.accounting import data_independent
from tutelage.accounting.filter import Accounting, limit_of
from tutelage.events import NoisyArgmaxGaussian, NoisySumGaussian, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.privacy import ONE_ENTITY
from tutelage.terms import DEFAULT_EPSILON, Asked, terms_of

EPSILONS = (None, 0.1, 0.5, 0.97, 0.99, 1.0, 2.0)
EVENTS = {
    Accounting.GAUSSIAN: lambda noise: Repeated(NoisySumGaussian(noise, 4, 3, ONE_ENTITY), 2),
    Accounting.RENYI: lambda noise: Repeated(NoisyArgmaxGaussian(noise, 3, ONE_ENTITY), 5),
}


def asked_of(rng) -> Asked:
    epsilon, budget = (rng.choice(np.array(EPSILONS, dtype=object)) for _ in range(2))
    return Asked(
        epsilon,
        budget,
        int(rng.choice([1, 1, 3])),
        float(rng.choice([1e-5, 1e-3])),
        bool(rng.random() < 0.2),
    )


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.rest) for seed in range(12, 400))]
)
def test_no_release_costs_more_than_was_asked_or_than_a_ledger_holds(seed):
    rng = np.random.default_rng(seed)
    accounting = Accounting(rng.choice(list(EVENTS)))
    asked, held = asked_of(rng), None
    if rng.random() < 0.5:
        held = limit_of(
            float(rng.choice([0.5, 1.0, 3.0])), asked.delta, Accounting(rng.choice(list(EVENTS)))
        )
    if [*asked.problems("PATEClassifier", has_ledger=True)]:
        return
    terms = terms_of(asked, accounting, held)
    assert terms.share == asked.epsilon
    if held is not None:
        assert terms.limit is held
    elif terms.limit is None:
        assert asked.given
        assert asked.budget is None
    else:
        assert terms.limit.epsilon == (asked.budget or asked.epsilon or DEFAULT_EPSILON)
    if asked.given or terms.limit is None:
        return
    event_of = EVENTS[accounting]
    if asked.epsilon is not None and asked.epsilon > terms.limit.epsilon:
        with pytest.raises(InvalidParameterError, match="the budget of the ledger"):
            terms.least_noise(event_of)
        return
    noise = terms.least_noise(event_of)
    most = asked.epsilon or terms.limit.epsilon
    assert data_independent.epsilon(event_of(noise), asked.delta).epsilon <= most * (1 + 1e-12)
    together = Repeated(event_of(noise), asked.releases)
    assert terms.limit.cost(together) <= terms.limit.capacity
    # With a little less noise it would not stay within the limit of the ledger, or within that of its own ε.
    less, alone = event_of(0.98 * noise), limit_of(most, asked.delta, terms.by_itself)
    assert (
        terms.limit.cost(Repeated(less, asked.releases)) > terms.limit.capacity
        or alone.cost(less) > alone.capacity
    )


@pytest.mark.parametrize(
    ("epsilon", "budget"), [(0.97, 1.0), (0.99, 1.0), (2.9, 3.0), (7.9, 8.0), (19.0, 20.0)]
)
def test_a_sum_that_nearly_fills_its_budget_has_the_noise_of_its_own_epsilon(epsilon, budget):
    def sum_of(noise: float) -> NoisySumGaussian:
        return NoisySumGaussian(noise * 2**16, 2**32, 40, ONE_ENTITY)

    terms = terms_of(Asked(epsilon, budget, 1, 1e-5, given=False), Accounting.GAUSSIAN, None)
    found = data_independent.epsilon(sum_of(terms.least_noise(sum_of)), 1e-5).epsilon
    assert 0.995 * epsilon < found <= epsilon


def test_a_small_share_leaves_a_new_ledger_that_all_kinds_of_releases_fit_into():
    small, first_of_months = (
        Asked(0.5, 2.0, 1, 1e-5, given=False),
        Asked(0.99, 1.0, 1, 1e-5, given=False, named=True),
    )
    for asked in (small, first_of_months):
        assert terms_of(asked, Accounting.GAUSSIAN, None).accounting is Accounting.RENYI


def test_without_any_wish_a_method_gets_epsilon_one_and_a_given_mechanism_its_own_cost():
    nothing = Asked(None, None, 1, 1e-5, given=False)
    for accounting in EVENTS:
        assert terms_of(nothing, accounting, None).limit == limit_of(1.0, 1e-5, accounting)
        assert terms_of(nothing._replace(given=True), accounting, None).limit is None
