"""Lower bounds on ε: never above the truth, close to it at the worst votes, and above the claim of what is faulty."""

import numpy as np
import pytest
from scipy import stats

from tutelage import (
    ConfidentGNMax,
    ExponentialMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    PermuteAndFlip,
    SimulationNoise,
)
from tutelage.audit.mechanism import (
    Neighbors,
    audit_law,
    audit_mechanism,
    claimed_epsilon,
    worst_neighbors,
)
from tutelage.events import ExponentialArgmax, NoisyArgmaxGaussian, Repeated
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.mechanisms import CappedGNMax, Mechanism, NoisySum
from tutelage.privacy import ONE_TEACHER
from tutelage.testing.laws import at_least, at_most, label_law
from tutelage_reproductions.mechanism_audits import (
    TIGHT,
    audit_configurations,
    random_configurations,
)
from tutelage_reproductions.planted_faults import faulty
from tutelage_reproductions.planted_faults.faulty import FaultyArgmax, Untold

pytestmark = pytest.mark.rest

TIE = Neighbors((1, 1), (0, 2))


@pytest.mark.parametrize("trials", [1, 7, 40])
def test_binomial_bounds_are_wrong_as_seldom_as_they_say(trials):
    happened = np.arange(trials + 1)
    low, high = at_least(happened, trials, 0.05), at_most(happened, trials, 0.05)
    for truth in np.linspace(0, 1, 101):
        chance = stats.binom.pmf(happened, trials, truth)
        assert chance[low > truth].sum() <= 0.05 + 1e-12
        assert chance[high < truth].sum() <= 0.05 + 1e-12
    assert low[0] == 0
    assert high[-1] == 1


@pytest.mark.parametrize(("mechanism", "delta", "part"), TIGHT, ids=repr)
def test_at_the_worst_votes_the_bound_comes_close_to_the_claim(mechanism, delta, part):
    settings = {"delta": delta, "part": part, "draws": 200_000, "confidence": 0.999}
    found = audit_mechanism(
        mechanism, worst_neighbors(mechanism, **settings), noise=SimulationNoise(0), **settings
    )
    assert found.passed
    assert 0.8 * found.claim <= found.lower_bound <= found.claim


def test_real_noise_is_audited_by_default():
    neighbors = worst_neighbors(GNMax(1.0), delta=0.05, draws=8_000)
    found = audit_mechanism(GNMax(1.0), neighbors, delta=0.05, draws=8_000, confidence=1 - 1e-6)
    assert found.passed  # it fails with probability below 1e-6 if the noise is right
    assert found.lower_bound > 0.2 * found.claim  # usually 0.56 of it, with a deviation of 0.056


@pytest.mark.parametrize(("mechanism", "queries"), [
    (LNMax(1.0), 6), (GNMax(1.5), 1), (ExponentialMax(2.0), 1), (PermuteAndFlip(2.0), 6)
])  # fmt: skip
def test_the_bound_is_above_the_exact_epsilon_of_the_pair_as_seldom_as_it_says(mechanism, queries):
    # Choosing the event on the draws that bound it would fail here.
    neighbors, delta, runs = Neighbors((6, 5, 4), (5, 6, 4)), 0.01, 150
    exact = exact_epsilon(mechanism, neighbors, delta, queries)
    above = sum(
        audit_mechanism(
            mechanism,
            neighbors,
            delta=delta,
            queries=queries,
            draws=400,
            confidence=0.8,
            noise=SimulationNoise(seed),
        ).lower_bound
        > exact
        for seed in range(runs)
    )
    assert above <= stats.binom.ppf(0.999, runs, 0.2)


def exact_epsilon(mechanism: Mechanism, neighbors: Neighbors, delta: float, queries: int) -> float:
    """Return the ε at δ of the pair by summing over all outcomes, three classes at most."""
    event = mechanism.event_of_one(3, ONE_TEACHER, simulated=False)
    counts = np.array(
        [(i, j, queries - i - j) for i in range(queries + 1) for j in range(queries + 1 - i)]
    )
    here, there = (
        stats.multinomial.pmf(counts, queries, label_law(event, np.array(votes))[:-1])
        for votes in neighbors[:2]
    )
    for epsilon in np.linspace(0, 30, 30_001):
        both = max(
            np.maximum(one - np.exp(epsilon) * other, 0).sum()
            for one, other in ((here, there), (there, here))
        )
        if both <= delta:
            return float(epsilon)
    raise AssertionError("no ε up to 30")


def test_no_bound_passes_its_claim_in_fifty_random_configurations():
    configurations = list(random_configurations(50, seed=2026))
    assert {type(one.mechanism) for one in configurations} == {
        LNMax, GNMax, CappedGNMax, ExponentialMax, PermuteAndFlip, ConfidentGNMax, InteractiveGNMax, NoisySum,
    }  # fmt: skip
    found = audit_configurations(configurations, noise=SimulationNoise(0))
    assert all(one.passed for one in found)
    assert sum(one.lower_bound > 0.2 * one.claim for one in found) >= 5
    assert found[0].confidence == pytest.approx(1 - 1e-4 / 50)


@pytest.mark.parametrize(
    "fault",
    [faulty.half_noise, faulty.inverse_scale, faulty.no_noise, faulty.noise_shared_by_classes],
    ids=lambda fault: fault.__name__,
)
def test_too_little_noise_is_found_out(fault):
    settings, mechanism = (
        {"delta": 0.01, "draws": 40_000, "noise": SimulationNoise(0)},
        FaultyArgmax(fault),
    )
    pairs = TIE, Neighbors((7, 1), (6, 2)), Neighbors((3, 1), (2, 2))
    assert not all(audit_mechanism(mechanism, pair, **settings).passed for pair in pairs)


def test_what_is_charged_too_little_for_is_found_out():
    mechanism = LNMax(1.0)
    pair = worst_neighbors(mechanism, delta=0.01)
    right = audit_mechanism(mechanism, pair, delta=0.01, noise=SimulationNoise(0))
    wrong = audit_mechanism(
        mechanism, pair, delta=0.01, noise=SimulationNoise(0), claim=right.claim / 2
    )
    assert right.passed
    assert not wrong.passed
    assert right.lower_bound == wrong.lower_bound


def test_many_answers_together_are_held_to_what_is_claimed_for_so_many():
    pair = Neighbors((5, 5), (4, 6))
    one, many = (
        audit_mechanism(
            GNMax(3.0), pair, delta=0.01, queries=queries, draws=20_000, noise=SimulationNoise(0)
        )
        for queries in (1, 20)
    )
    assert many.claim == pytest.approx(
        claimed_epsilon(Repeated(NoisyArgmaxGaussian(3.0, 2, ONE_TEACHER), 20), 0.01)
    )
    assert one.lower_bound < many.lower_bound <= many.claim
    assert many.lower_bound > one.claim  # twenty answers at the price of one would be found out


def test_the_law_finds_too_much_noise_and_wrong_ties_too():
    counts = (6, 5, 1)
    assert audit_law(FaultyArgmax(faulty.right), counts, noise=SimulationNoise(0)).passed
    assert audit_law(
        ConfidentGNMax(100.0, 50.0, 40.0), (140, 90, 20), noise=SimulationNoise(0)
    ).passed
    for fault in (
        faulty.noise_of_0_7,
        faulty.noise_of_1_3,
        faulty.ties_to_the_last_class,
        faulty.other_kind_of_noise,
    ):
        assert not audit_law(FaultyArgmax(fault), counts, noise=SimulationNoise(0)).passed, (
            fault.__name__
        )


@pytest.mark.parametrize(("change", "message"), [
    ({"neighbors": Neighbors((3, 3), (1, 5))}, "differ by one ballot"),
    ({"neighbors": Neighbors((-1, 3), (0, 2))}, "differ by one ballot"),
    ({"delta": float("nan")}, "`delta`"),
    ({"draws": 10**6, "queries": 11}, "`draws` of audit_mechanism must be at most 10,000,000"),
    ({"part": "check"}, "without a check"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(change, message):
    with pytest.raises(InvalidParameterError, match=message):
        audit_mechanism(LNMax(1.0), **{"neighbors": TIE, "delta": 0.01, "draws": 100, **change})


def test_pure_loss_is_claimed_at_delta_zero_and_nothing_for_an_unknown_kind():
    assert claimed_epsilon(
        Repeated(ExponentialArgmax(4.0, 3, ONE_TEACHER), 3), 0.0
    ) == pytest.approx(1.5)
    assert claimed_epsilon(NoisyArgmaxGaussian(4.0, 3, ONE_TEACHER), 0.0) == np.inf
    with pytest.raises(UnsupportedEventError, match="No cost is known for the event Event"):
        worst_neighbors(Untold(costs=False), delta=0.01)
