"""Sums of bounded ballots and capped votes: every small world by enumeration, against what is charged."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from exact import (
    discrete_gaussian_masses,
    hockey_stick,
    label_probabilities,
    log_renyi_moment,
    renyi,
)
from tutelage.accounting import argmax_bound, composition
from tutelage.accounting.composition import (
    gaussian_dp_epsilon,
    rounding_variance,
    shifted_gaussian_composition,
)
from tutelage.accounting.data_independent import (
    epsilon,
    epsilon_if_added_or_removed,
    rdp,
    rdp_of_three_outcomes,
)
from tutelage.events import (
    CappedArgmaxGaussian,
    Composed,
    ConfidenceCheck,
    NoisyArgmaxGaussian,
    NoisyBallot,
    NoisySumGaussian,
    RandomizedResponse,
    Repeated,
    TruncatedGeometricResponse,
)
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.privacy import ONE_TEACHER

ORDERS = np.array([1.2, 2.0, 5.0])
# A vote on query 1, and on query 2 by the answer to query 1.
Ballot = tuple[int | None, dict[int, int | None]]


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
    return [
        b
        for b in itertools.product(entries, repeat=dimension)
        if sum(x * x for x in b) <= norm_squared
    ]


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(
    ("norm_squared", "dimension", "sigma"), [(4, 1, 2.5), (1, 2, 1.0), (5, 2, 1.0)]
)
def test_a_sum_costs_what_the_worst_two_ballots_cost(norm_squared, dimension, nonnegative, sigma):
    ballots, reach = (
        ballots_of(norm_squared, dimension, nonnegative=nonnegative),
        math.ceil(12 * sigma) + 6,
    )
    laws = [law_of_noise_around(ballot, sigma, reach) for ballot in ballots]
    bound = rdp(
        NoisySumGaussian(sigma, norm_squared, dimension, ONE_TEACHER, nonnegative=nonnegative),
        ORDERS,
    ).values
    for order, limit in zip(ORDERS, bound, strict=True):
        worst = max(log_renyi_moment(p, q, order) for p, q in itertools.permutations(laws, 2)) / (
            order - 1
        )
        assert worst <= limit * (1 + 1e-9)
        # Only for a norm of 1 are two such integer ballots without negative numbers orthogonal.
        assert worst >= (0.49 if nonnegative and norm_squared > 1 else 0.99) * limit


@pytest.mark.parametrize(
    ("norm_squared", "dimension", "sigma", "delta"), [(4, 1, 20.0, 1e-8), (5, 2, 3.0, 1e-3)]
)
def test_an_added_ballot_costs_what_the_worst_ballot_costs(norm_squared, dimension, sigma, delta):
    reach = math.ceil(10 * sigma) + 6
    nobody = law_of_noise_around((0,) * dimension, sigma, reach)
    ballots = ballots_of(norm_squared, dimension, nonnegative=False)
    laws = [law_of_noise_around(ballot, sigma, reach) for ballot in ballots]
    pairs = [pair for law in laws for pair in ((law, nobody), (nobody, law))]
    found = epsilon_if_added_or_removed(
        NoisySumGaussian(sigma, norm_squared, dimension, ONE_TEACHER), delta
    )
    assert max(hockey_stick(p, q, found) for p, q in pairs) <= delta
    assert max(hockey_stick(p, q, 0.85 * found) for p, q in pairs) > delta


SHIFTS = [
    ((1,), 2.0),
    ((2,), 2.5),
    ((5,), 5.0),
    ((3,), 20.0),
    ((1, 1), 2.0),
    ((2, -1), 4.0),
    ((3, 0), 12.0),
]


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
def test_rounded_noise_covers_every_shift_and_more_continuous_noise_does_not(
    delta, planted, monkeypatch
):
    assert excess_of_delta(delta) <= 0
    # Continuous noise of the variance σ² itself, or of a larger one, is not what was drawn.
    monkeypatch.setattr(
        composition, "rounding_variance", lambda shifts: planted * rounding_variance(shifts)
    )
    assert excess_of_delta(delta) > 0.01


@given(mu=st.floats(1e-6, 10), delta=st.floats(1e-12, 0.3))
def test_the_gaussian_epsilon_is_rounded_upward(mu, delta):
    found = gaussian_dp_epsilon(mu, delta)
    with mpmath.workdps(60):
        m = mpmath.mpf(mu)
        exact = mpmath.ncdf(m / 2 - found / m) - mpmath.exp(found) * mpmath.ncdf(-m / 2 - found / m)
        assert exact <= delta


def test_discrete_noise_is_continuous_noise_rounded_at_random(monkeypatch):
    apart, center = 1e-2, 3
    monkeypatch.setattr(composition, "_APART", apart)
    s = math.sqrt(rounding_variance(1))
    sigma = 1.1 * s  # of wider noise the continuous part blurs what is left
    x = np.linspace(center - 15, center + 15, 60_001)
    z = np.arange(center - 8, center + 9)
    rounding = np.exp(-((np.arange(-30, 40)[:, None] - x) ** 2) / (2 * s**2))
    rounding = (rounding / rounding.sum(axis=0))[np.searchsorted(np.arange(-30, 40), z)]
    rounded = (rounding * stats.norm.pdf(x, center, math.sqrt(sigma**2 - s**2))).sum(axis=1) * (
        x[1] - x[0]
    )
    drawn = discrete_gaussian_masses(sigma, 20)[z - center + 20]
    ratio = np.abs(np.log(rounded / drawn)).max()
    assert apart / 8 < ratio < apart


@pytest.mark.parametrize("adaptive", [False, True])
def test_rounded_noise_adds_up_over_releases_of_different_noise(adaptive):
    (here, there), (stays, moves) = (
        [law_of_noise_around((place,), sigma, 70) for place in places]
        for sigma, places in ((3.0, (0, 2)), (5.0, (0, -3)))
    )
    # Does the second release move always, or only where the first was positive?
    second = np.where((np.arange(-70, 71) > 0)[:, None], moves, stays) if adaptive else moves
    p = np.outer(here, stays).ravel()
    q = (there[:, None] * second).ravel()
    delta = 1e-5
    found = shifted_gaussian_composition([(3.0, 4), (5.0, 9)], delta)
    for one, other in ((p, q), (q, p)):
        assert hockey_stick(one, other, found) <= delta
        assert adaptive or hockey_stick(one, other, 0.8 * found) > delta


def test_no_move_costs_nothing_and_narrow_noise_has_no_bound():
    assert shifted_gaussian_composition([(3.0, 0)], 1e-5) == 0.0
    assert shifted_gaussian_composition([(1.0, 1)], 1e-5) == math.inf


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
    assert worst <= argmax_bound.gaussian_check(sigma, order) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("order", [1.5, 4.0])
def test_a_single_changed_count_costs_nearly_that_much_among_many_classes(order):
    sigma, others = 8.0, 1e12  # of the noise of so many equal counts the largest hardly varies
    noise = np.arange(-120, 121)
    masses = discrete_gaussian_masses(sigma, 120)
    at_most = np.cumsum(masses)
    wins = [
        (masses * at_most[np.clip(noise + place + 120, 0, 240)] ** others).sum()
        for place in range(40, 81)
    ]
    laws = [np.array([win, 1 - win]) for win in wins]
    worst = max(renyi(p, q, order) for p, q in itertools.pairwise(laws))
    bound = argmax_bound.gaussian_check(sigma, order)
    assert 0.9 * bound <= worst <= bound
    assert bound == pytest.approx(order / (math.pi * sigma**2), rel=0.02)


def campaigns(cap: int, n_classes: int = 2) -> list[Ballot]:
    """Return every way to vote on two queries, the second vote depending on the first answer."""
    votes = (None, *range(n_classes))
    ways = [
        (first, dict(enumerate(second)))
        for first in votes
        for second in itertools.product(votes, repeat=n_classes)
    ]
    return [
        way
        for way in ways
        if all((way[0] is not None) + (vote is not None) <= cap for vote in way[1].values())
    ]


Law = dict[int | None, np.ndarray]  # of the answer, by the vote of one teacher


def laws_beside(others: Iterable[Iterable[int]], sigma: float) -> list[Law]:
    """Return the law of the answer beside each of the given votes of the other teachers."""
    masses, found = discrete_gaussian_masses(sigma, math.ceil(10 * sigma) + 8), list[Law]()
    for counts in map(np.array, others):
        unit = np.eye(len(counts), dtype=int)
        votes = {None: counts, **{vote: counts + unit[vote] for vote in range(len(counts))}}
        found.append({vote: label_probabilities(count, masses) for vote, count in votes.items()})
    return found


LEADS = (0, 2), (0, 1), (0, 0), (1, 0), (2, 0)


def worst_campaign(
    ways: list[Ballot], others: list[Ballot], worlds: list[Law], order: float
) -> float:
    """Return the largest Rényi divergence of two answers, over two ballots and all votes of the other teachers."""
    worst = 0.0
    for here, there in itertools.product(ways, others):
        # The votes on the second query may depend on the first answer, so the worst ones are taken after each answer.
        second = [
            max(_moment(law[here[1][a]], law[there[1][a]], order).sum() for law in worlds)
            for a in here[1]
        ]
        total = max(_moment(law[here[0]], law[there[0]], order) @ second for law in worlds)
        worst = max(worst, math.log(total) / (order - 1))
    return worst


def _moment(p: np.ndarray, q: np.ndarray, order: float) -> np.ndarray:
    return p**order * q ** (1 - order)


@pytest.mark.parametrize(("cap", "sigma", "order"), [(1, 1.5, 3.0), (2, 1.5, 1.3), (2, 4.0, 3.0)])
def test_no_adaptive_campaign_costs_more_than_its_cap(cap, sigma, order):
    event = CappedArgmaxGaussian(sigma, cap, 2, ONE_TEACHER)
    orders = np.array([order])
    bound = rdp_of_three_outcomes(event, orders).values[0]
    worlds, every, never = laws_beside(LEADS, sigma), campaigns(cap), campaigns(0)
    worst = worst_campaign(every, every, worlds, order)
    assert 0.95 * bound <= worst <= bound
    single = cap * argmax_bound.gaussian_check(sigma, order)
    assert worst > 1.8 * single  # a cost of one changed count per vote would be found out
    added = max(
        worst_campaign(*pair, worlds, order) for pair in itertools.permutations((every, never), 2)
    )
    assert 0.45 * single <= added <= single  # of two classes; among many it is nearly attained


@pytest.mark.parametrize(("delta", "sigma"), [(0.05, 4.0), (1e-3, 1.5), (1e-6, 1.5)])
def test_the_epsilon_of_a_campaign_covers_all_its_transcripts(delta, sigma):
    worlds = laws_beside(LEADS[1:4], sigma)
    event = CappedArgmaxGaussian(sigma, 1, 2, ONE_TEACHER)
    replaced, added = epsilon(event, delta).epsilon, epsilon_if_added_or_removed(event, delta)
    assert added <= replaced
    (never,) = campaigns(0)
    for first, second in itertools.product(worlds, repeat=2):
        for here, there in itertools.product(campaigns(1), repeat=2):
            p, q = (
                np.concatenate([first[way[0]][a] * second[way[1][a]] for a in (0, 1)])
                for way in (here, there)
            )
            assert (
                hockey_stick(p, q, min(replaced, shifted_gaussian_composition([(sigma, 2)], delta)))
                <= delta
            )
            if never in (here, there):
                assert (
                    hockey_stick(
                        p, q, min(added, shifted_gaussian_composition([(sigma, 1)], delta))
                    )
                    <= delta
                )


@given(st.integers(0, 2**32 - 1), st.floats(1.0, 4.0), st.floats(1.1, 8), st.integers(1, 2))
def test_no_campaign_on_three_classes_costs_more_than_its_cap(seed, sigma, order, cap):
    rng, ways = np.random.default_rng(seed), campaigns(cap, 3)
    some = [ways[place] for place in rng.integers(0, len(ways), 3)]
    worst = worst_campaign(some, some, laws_beside(rng.integers(0, 5, (3, 3)), sigma), order)
    bound = rdp_of_three_outcomes(
        CappedArgmaxGaussian(sigma, cap, 3, ONE_TEACHER), np.array([order])
    ).values[0]
    assert worst <= bound * (1 + 1e-9)


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
    assert value.epsilon == pytest.approx(
        shifted_gaussian_composition([(sigma, together)], 1e-6), rel=1e-9
    )
    added = epsilon_if_added_or_removed(Composed(releases[:4]), 1e-6)
    assert added <= shifted_gaussian_composition([(sigma, 3 + 3 + 5 + 4)], 1e-6) * (1 + 1e-9)


def test_what_holds_for_added_ballots_only_is_no_epsilon_that_a_card_takes():
    value: object = epsilon_if_added_or_removed(
        CappedArgmaxGaussian(40.0, 5, 10, ONE_TEACHER), 1e-5
    )
    assert type(value) is float
    for other in (ConfidenceCheck(3, 40.0, 10, ONE_TEACHER), NoisyBallot(40.0, 10, ONE_TEACHER)):
        with pytest.raises(UnsupportedEventError, match="added or removed ballot is known for"):
            epsilon_if_added_or_removed(
                Composed((NoisySumGaussian(9.0, 1, 2, ONE_TEACHER), other)), 1e-5
            )


NOT_WHOLE: Any = 1.5
NOT_A_BOOL: Any = 1


@pytest.mark.parametrize(("parameter", "make"), [
    ("sigma", lambda: NoisySumGaussian(0, 1, 1, ONE_TEACHER)),
    ("norm_squared", lambda: NoisySumGaussian(1.0, NOT_WHOLE, 1, ONE_TEACHER)),
    ("norm_squared", lambda: NoisySumGaussian(1.0, 2**100 + 1, 1, ONE_TEACHER)),
    ("nonnegative", lambda: NoisySumGaussian(1.0, 1, 1, ONE_TEACHER, nonnegative=NOT_A_BOOL)),
    ("cap", lambda: CappedArgmaxGaussian(1.0, True, 2, ONE_TEACHER)),
    ("epsilon", lambda: RandomizedResponse(0.0, 10, ONE_TEACHER)),
    ("classes", lambda: RandomizedResponse(1.0, 1, ONE_TEACHER)),
    ("scale", lambda: TruncatedGeometricResponse(0.0, 10, ONE_TEACHER)),
    ("sigma", lambda: NoisyBallot(-1.0, 10, ONE_TEACHER)),
])  # fmt: skip
def test_parameters_of_events_are_checked(parameter, make):
    with pytest.raises(InvalidParameterError) as refused:
        make()
    assert refused.value.parameter == parameter
