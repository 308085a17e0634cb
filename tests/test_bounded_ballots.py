"""Sums of bounded ballots and capped votes: every small world by enumeration, against what is charged."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from exact import discrete_gaussian_masses, hockey_stick, label_probabilities, log_renyi_moment, renyi
from tutelage.accounting import argmax_bound, composition
from tutelage.accounting.composition import (
    gaussian_composition,
    gaussian_dp_epsilon,
    rounding_variance,
    shifted_gaussian_composition,
)
from tutelage.accounting.data_independent import epsilon, epsilon_if_added_or_removed, rdp, rdp_of_three_outcomes
from tutelage.events import (
    CappedArgmaxGaussian,
    Composed,
    ConfidenceCheck,
    NoisyArgmaxGaussian,
    NoisyBallot,
    NoisySumGaussian,
    Repeated,
    event_from_dict,
)
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.privacy import ONE_TEACHER

ORDERS = np.array([1.2, 2.0, 5.0])
Ballot = tuple[int | None, dict[int, int | None]]  # a vote on query 1, and on query 2 by the answer to query 1


def law_of_noise_around(center: tuple[int, ...], sigma: float, reach: int) -> np.ndarray:
    """Return the law of center + Z on the integers from −reach to reach of every coordinate."""
    masses = discrete_gaussian_masses(sigma, 2 * reach)
    joint = np.ones(1)
    for place in center:
        joint = np.multiply.outer(joint, masses[reach - place : 3 * reach + 1 - place])
    return joint.ravel()


def ballots_of(norm_squared: int, dimension: int, *, nonnegative: bool) -> list[tuple[int, ...]]:
    most = math.isqrt(norm_squared)
    entries = range(0 if nonnegative else -most, most + 1)
    return [b for b in itertools.product(entries, repeat=dimension) if sum(x * x for x in b) <= norm_squared]


@pytest.mark.parametrize(("norm_squared", "dimension"), [(4, 1), (1, 2), (5, 2)])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("sigma", [1.0, 2.5])
def test_a_sum_costs_what_the_worst_two_ballots_cost(norm_squared, dimension, nonnegative, sigma):
    ballots, reach = ballots_of(norm_squared, dimension, nonnegative=nonnegative), math.ceil(12 * sigma) + 6
    laws = [law_of_noise_around(ballot, sigma, reach) for ballot in ballots]
    bound = rdp(NoisySumGaussian(sigma, norm_squared, dimension, ONE_TEACHER, nonnegative=nonnegative), ORDERS).values
    for order, limit in zip(ORDERS, bound, strict=True):
        worst = max(log_renyi_moment(p, q, order) for p, q in itertools.permutations(laws, 2)) / (order - 1)
        assert worst <= limit * (1 + 1e-9)
        orthogonal = dimension == 2 and math.isqrt(norm_squared) ** 2 == norm_squared
        if orthogonal or not nonnegative:
            assert worst >= 0.99 * limit
        else:  # no two such integer ballots are orthogonal
            assert worst >= 0.49 * limit


@pytest.mark.parametrize(("sigma", "delta"), [(3.0, 1e-3), (20.0, 1e-8)])
@pytest.mark.parametrize(("norm_squared", "dimension"), [(4, 1), (5, 2)])
def test_an_added_ballot_costs_what_the_worst_ballot_costs(sigma, delta, norm_squared, dimension):
    reach = math.ceil(10 * sigma) + 6
    nobody = law_of_noise_around((0,) * dimension, sigma, reach)
    ballots = ballots_of(norm_squared, dimension, nonnegative=False)
    laws = [law_of_noise_around(ballot, sigma, reach) for ballot in ballots]
    pairs = [pair for law in laws for pair in ((law, nobody), (nobody, law))]
    found = epsilon_if_added_or_removed(NoisySumGaussian(sigma, norm_squared, dimension, ONE_TEACHER), delta)
    assert max(hockey_stick(p, q, found) for p, q in pairs) <= delta
    assert max(hockey_stick(p, q, 0.85 * found) for p, q in pairs) > delta


SHIFTS = [((1,), 2.0), ((2,), 2.5), ((5,), 5.0), ((3,), 20.0), ((1, 1), 2.0), ((2, -1), 4.0), ((3, 0), 12.0)]


def excess_of_delta(delta: float) -> float:
    """Return by how much the exact δ of the worst of some shifts passes δ at the ε that is charged for it."""
    worst = -math.inf
    for shift, sigma in SHIFTS:
        reach = math.ceil(11 * sigma) + 6
        p, q = (law_of_noise_around(place, sigma, reach) for place in (shift, (0,) * len(shift)))
        found = shifted_gaussian_composition([(sigma, sum(x * x for x in shift))], delta)
        worst = max(worst, hockey_stick(p, q, found) / delta - 1)
    return worst


@pytest.mark.parametrize("delta", [0.03, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("planted", [0, -1])
def test_rounded_noise_covers_every_shift_and_more_continuous_noise_does_not(delta, planted, monkeypatch):
    assert excess_of_delta(delta) <= 0
    # Continuous noise of the variance σ² itself, or of a larger one, is not what was drawn.
    monkeypatch.setattr(composition, "rounding_variance", lambda shifts: planted * rounding_variance(shifts))
    assert excess_of_delta(delta) > 0.01


@given(mu=st.floats(1e-6, 10), delta=st.floats(1e-12, 0.3))
def test_the_gaussian_epsilon_is_rounded_upward(mu, delta):
    found = gaussian_dp_epsilon(mu, delta)
    with mpmath.workdps(60):
        m = mpmath.mpf(mu)
        exact = mpmath.ncdf(m / 2 - found / m) - mpmath.exp(found) * mpmath.ncdf(-m / 2 - found / m)
        assert exact <= delta


@pytest.mark.parametrize("sigma", [12.0, 40.0, 1000.0])
@pytest.mark.parametrize("count", [1, 100])
def test_rounded_noise_costs_what_the_discrete_noise_costs(sigma, count):
    exact = gaussian_composition(sigma, count, 1e-5)
    found = shifted_gaussian_composition([(sigma, 2 * count)], 1e-5)
    assert exact * (1 - 1e-6) <= found
    assert found <= gaussian_composition(sigma * math.sqrt(1 - 2.2 / sigma**2), count, 1e-5) * (1 + 1e-6)
    assert found == pytest.approx(gaussian_dp_epsilon(math.sqrt(2 * count) / sigma, 1e-5), rel=2.5 / sigma**2)


def test_discrete_noise_is_continuous_noise_rounded_at_random(monkeypatch):
    apart, center = 1e-2, 3
    monkeypatch.setattr(composition, "_APART", apart)
    s = math.sqrt(rounding_variance(1))
    sigma = 1.1 * s  # of wider noise the continuous part blurs what is left
    x = np.linspace(center - 15, center + 15, 60_001)
    z = np.arange(center - 8, center + 9)
    rounding = np.exp(-((np.arange(-30, 40)[:, None] - x) ** 2) / (2 * s**2))
    rounding = (rounding / rounding.sum(axis=0))[np.searchsorted(np.arange(-30, 40), z)]
    rounded = (rounding * stats.norm.pdf(x, center, math.sqrt(sigma**2 - s**2))).sum(axis=1) * (x[1] - x[0])
    drawn = discrete_gaussian_masses(sigma, 20)[z - center + 20]
    ratio = np.abs(np.log(rounded / drawn)).max()
    assert apart / 8 < ratio < apart


def test_rounded_noise_adds_up_over_releases_of_different_noise():
    sigmas, shifts, delta = (3.0, 5.0), (2, -3), 1e-5
    laws = [
        [law_of_noise_around((place,), sigma, 70) for sigma, place in zip(sigmas, places, strict=True)]
        for places in ((0, 0), shifts)
    ]
    p, q = (np.outer(first, second).ravel() for first, second in laws)
    found = shifted_gaussian_composition([(3.0, 4), (5.0, 9)], delta)
    assert hockey_stick(p, q, found) <= delta
    assert hockey_stick(p, q, 0.8 * found) > delta
    assert shifted_gaussian_composition([(3.0, 0)], delta) == 0.0
    assert shifted_gaussian_composition([(1.0, 1)], delta) == math.inf


def test_rounded_noise_covers_a_release_whose_shift_depends_on_the_one_before():
    sigma, delta = 3.0, 1e-5
    noise = [law_of_noise_around((place,), sigma, 45) for place in range(3)]
    later = np.where(np.arange(-45, 46) > 0, 2, 0)  # the second release moves by 2 only where the first was positive
    there = noise[1][:, None] * np.stack([noise[place] for place in later])
    here = np.outer(noise[0], noise[0])
    found = shifted_gaussian_composition([(sigma, 1 + 4)], delta)
    for p, q in ((here, there), (there, here)):
        assert hockey_stick(p.ravel(), q.ravel(), found) <= delta


@given(
    counts=st.lists(st.integers(0, 12), min_size=2, max_size=5).filter(any),
    sigma=st.floats(0.8, 4.0),
    order=st.floats(1.05, 12),
)
def test_no_single_changed_count_costs_more(counts, sigma, order):
    here = np.array(counts)
    masses = discrete_gaussian_masses(sigma, 60)
    fewer = here - np.eye(len(here), dtype=int)[np.argmax(here)]
    p, q = label_probabilities(here, masses), label_probabilities(fewer, masses)
    worst = max(renyi(p, q, order), renyi(q, p, order))
    assert worst <= argmax_bound.gaussian_single_change(sigma, order) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("order", [1.5, 4.0])
def test_a_single_changed_count_costs_nearly_that_much_among_many_classes(order):
    sigma, others = 8.0, 1e12  # of the noise of so many equal counts the largest hardly varies
    noise = np.arange(-120, 121)
    masses = discrete_gaussian_masses(sigma, 120)
    at_most = np.cumsum(masses)
    wins = [(masses * at_most[np.clip(noise + place + 120, 0, 240)] ** others).sum() for place in range(40, 81)]
    laws = [np.array([win, 1 - win]) for win in wins]
    worst = max(renyi(p, q, order) for p, q in itertools.pairwise(laws))
    bound = argmax_bound.gaussian_single_change(sigma, order)
    assert 0.9 * bound <= worst <= bound
    assert bound == pytest.approx(order / (math.pi * sigma**2), rel=0.02)


def campaigns(cap: int) -> list[Ballot]:
    """Return every way to vote on two queries on two classes, the second vote depending on the first answer."""
    votes = (None, 0, 1)
    ways = [(first, {0: a, 1: b}) for first in votes for a in votes for b in votes]
    return [way for way in ways if all((way[0] is not None) + (vote is not None) <= cap for vote in way[1].values())]


def transcript_laws(sigma: float, leads: range) -> Iterator[dict[int | None, np.ndarray]]:
    """Yield, for each lead of class 0 among the other teachers, the law of the answer by the vote of one teacher."""
    masses = discrete_gaussian_masses(sigma, math.ceil(10 * sigma) + 8)
    for lead in leads:
        counts = np.array([max(lead, 0), max(-lead, 0)])
        yield {
            vote: label_probabilities(counts + (0 if vote is None else np.eye(2, dtype=int)[vote]), masses)
            for vote in (None, 0, 1)
        }


def worst_campaign(ways: list[Ballot], others: list[Ballot], sigma: float, order: float) -> float:
    """Return the largest Rényi divergence of two answers, over two ballots and all leads of the other teachers."""
    worlds = list(transcript_laws(sigma, range(-2, 3)))
    worst = 0.0
    for here, there in itertools.product(ways, others):
        # The lead of the second query may depend on the first answer, so the worst one is taken after each answer.
        second = [max(_moment(law[here[1][a]], law[there[1][a]], order).sum() for law in worlds) for a in (0, 1)]
        total = max(_moment(law[here[0]], law[there[0]], order) @ second for law in worlds)
        worst = max(worst, math.log(total) / (order - 1))
    return worst


def _moment(p: np.ndarray, q: np.ndarray, order: float) -> np.ndarray:
    return p**order * q ** (1 - order)


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("sigma", [1.5, 4.0])
@pytest.mark.parametrize("order", [1.3, 3.0])
def test_no_adaptive_campaign_costs_more_than_its_cap(cap, sigma, order):
    event, orders = CappedArgmaxGaussian(sigma, cap, 2, ONE_TEACHER), np.array([order])
    bound = rdp_of_three_outcomes(event, orders).values[0]
    worst = worst_campaign(campaigns(cap), campaigns(cap), sigma, order)
    assert 0.95 * bound <= worst <= bound
    single = cap * argmax_bound.gaussian_single_change(sigma, order)
    assert worst > 1.8 * single  # a cost of one changed count per vote would be found out
    never = campaigns(0)
    added = max(
        worst_campaign(campaigns(cap), never, sigma, order), worst_campaign(never, campaigns(cap), sigma, order)
    )
    assert 0.45 * single <= added <= single  # of two classes; among many it is nearly attained


@pytest.mark.parametrize("delta", [0.05, 1e-3, 1e-6])
@pytest.mark.parametrize("sigma", [1.5, 4.0])
def test_the_epsilon_of_a_campaign_covers_all_its_transcripts(delta, sigma):
    worlds = list(transcript_laws(sigma, range(-1, 2)))
    event = CappedArgmaxGaussian(sigma, 1, 2, ONE_TEACHER)
    replaced, added = epsilon(event, delta).epsilon, epsilon_if_added_or_removed(event, delta)
    assert added <= replaced
    (never,) = campaigns(0)
    for first, second in itertools.product(worlds, repeat=2):
        for here, there in itertools.product(campaigns(1), repeat=2):
            p, q = (np.concatenate([first[way[0]][a] * second[way[1][a]] for a in (0, 1)]) for way in (here, there))
            assert hockey_stick(p, q, min(replaced, shifted_gaussian_composition([(sigma, 2)], delta))) <= delta
            if never in (here, there):
                assert hockey_stick(p, q, min(added, shifted_gaussian_composition([(sigma, 1)], delta))) <= delta


@given(data=st.data(), sigma=st.floats(1.0, 4.0), order=st.floats(1.1, 8), cap=st.integers(1, 2))
def test_no_campaign_on_three_classes_costs_more_than_its_cap(data, sigma, order, cap):
    masses, votes = discrete_gaussian_masses(sigma, 45), st.sampled_from([None, 0, 1, 2])

    def laws() -> dict[int | None, np.ndarray]:
        others = np.array(data.draw(st.lists(st.integers(0, 4), min_size=3, max_size=3)))
        counts = {None: others, **{vote: others + np.eye(3, dtype=int)[vote] for vote in range(3)}}
        return {vote: label_probabilities(count, masses) for vote, count in counts.items()}

    def ballot() -> Ballot:
        first = data.draw(votes)
        spent = cap - (first is not None) < 1
        return first, {answer: None if spent else data.draw(votes) for answer in range(3)}

    first, second, here, there = laws(), [laws() for _ in range(3)], ballot(), ballot()
    p, q = (
        np.concatenate([first[way[0]][answer] * second[answer][way[1][answer]] for answer in range(3)])
        for way in (here, there)
    )
    event = CappedArgmaxGaussian(sigma, cap, 3, ONE_TEACHER)
    bound = rdp_of_three_outcomes(event, np.array([order])).values[0]
    assert log_renyi_moment(p, q, order) / (order - 1) <= bound * (1 + 1e-9)


@given(sigma=st.floats(1.7, 15), shift=st.integers(1, 9), delta=st.floats(1e-9, 0.4))
def test_no_shift_of_discrete_noise_is_charged_too_little(sigma, shift, delta):
    reach = math.ceil(11 * sigma) + 12
    p, q = (law_of_noise_around((place,), sigma, reach) for place in (shift, 0))
    found = shifted_gaussian_composition([(sigma, shift**2)], delta)
    assert hockey_stick(p, q, min(found, 600.0)) <= delta


def test_releases_of_different_kinds_add_up_to_one_distance():
    sigma = 40_000.0  # so wide that only distances are known
    releases = (
        NoisySumGaussian(sigma, 3, 7, ONE_TEACHER),
        NoisySumGaussian(sigma, 3, 7, ONE_TEACHER, nonnegative=True),
        Repeated(NoisyArgmaxGaussian(sigma, 10, ONE_TEACHER), 5),
        CappedArgmaxGaussian(sigma, 4, 10, ONE_TEACHER),
        NoisyBallot(sigma, 10, ONE_TEACHER),
    )
    together = 4 * 3 + 2 * 3 + 2 * 5 + 2 * 4 + 2
    value = epsilon(Composed(releases), 1e-6)
    assert value.epsilon == pytest.approx(shifted_gaussian_composition([(sigma, together)], 1e-6), rel=1e-9)
    added = epsilon_if_added_or_removed(Composed(releases[:4]), 1e-6)
    assert added <= shifted_gaussian_composition([(sigma, 3 + 3 + 5 + 4)], 1e-6) * (1 + 1e-9)


def test_what_holds_for_added_ballots_only_is_no_epsilon_that_a_card_takes():
    value: object = epsilon_if_added_or_removed(CappedArgmaxGaussian(40.0, 5, 10, ONE_TEACHER), 1e-5)
    assert type(value) is float
    for other in (ConfidenceCheck(3, 40.0, 10, ONE_TEACHER), NoisyBallot(40.0, 10, ONE_TEACHER)):
        with pytest.raises(UnsupportedEventError, match="added or removed ballot is known for"):
            epsilon_if_added_or_removed(Composed((NoisySumGaussian(9.0, 1, 2, ONE_TEACHER), other)), 1e-5)


def test_the_events_are_stored_without_what_is_as_by_default():
    plain = NoisySumGaussian(40.0, 12, 3, ONE_TEACHER)
    assert plain.as_dict().keys() == {"event", "sigma", "norm_squared", "dimension", "unit", "simulated"}
    for event in (plain, NoisySumGaussian(40.0, 12, 3, ONE_TEACHER, nonnegative=True), CAPPED):
        assert event_from_dict(event.as_dict()) == event


NOT_WHOLE: Any = 1.5
NOT_A_BOOL: Any = 1
CAPPED = CappedArgmaxGaussian(40.0, 5, 10, ONE_TEACHER)


@pytest.mark.parametrize(("parameter", "make"), [
    ("sigma", lambda: NoisySumGaussian(0, 1, 1, ONE_TEACHER)),
    ("norm_squared", lambda: NoisySumGaussian(1.0, NOT_WHOLE, 1, ONE_TEACHER)),
    ("norm_squared", lambda: NoisySumGaussian(1.0, 2**100 + 1, 1, ONE_TEACHER)),
    ("nonnegative", lambda: NoisySumGaussian(1.0, 1, 1, ONE_TEACHER, nonnegative=NOT_A_BOOL)),
    ("cap", lambda: CappedArgmaxGaussian(1.0, True, 2, ONE_TEACHER)),
])  # fmt: skip
def test_bounds_of_ballots_are_checked(parameter, make):
    with pytest.raises(InvalidParameterError) as refused:
        make()
    assert refused.value.parameter == parameter
