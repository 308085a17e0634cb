"""Noise that several owners sum: how far it is from one discrete Gaussian, and what its releases cost."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import special, stats

from exact import discrete_gaussian_masses, label_probabilities, neighbors
from tutelage import SimulationNoise, VoteHistogram
from tutelage.accounting import Accountant, data_independent
from tutelage.accounting.composition import (
    gaussian_composition,
    log_distance,
    log_ratio,
    moved_delta,
    moved_epsilon,
    renyi_surcharge,
)
from tutelage.accounting.data_independent import epsilon, rdp, rdp_of_three_outcomes
from tutelage.accounting.exact import ExactCosts
from tutelage.accounting.filter import RenyiFilter
from tutelage.accounting.pate_bounds import costs_2018
from tutelage.accounting.rdp import RenyiCurve
from tutelage.events import (
    Composed,
    ConfidenceCheck,
    Event,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    NoisySumGaussian,
    Repeated,
    SummedNoise,
    event_from_dict,
)
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.ledger.verification import breach_of
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit

VOTE = NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER)
CHECK = ConfidenceCheck(200, 150.0, 10, ONE_TEACHER)
INTERACTIVE = InteractiveCheck(100, 150.0, 10, ONE_TEACHER)
ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
SUM = NoisySumGaussian(40.0, 4, 3, ONE_TEACHER)
ORDERS = np.array([1.01, 1.5, 2.0, 8.0, 64.0])
DIGITS = 50


def precise_gaussian(sigma, reach: int) -> list:
    weights = [mp.exp(-(mpf(z) ** 2) / (2 * sigma**2)) for z in range(-reach, reach + 1)]
    total = mp.fsum(weights)
    return [weight / total for weight in weights]


@lru_cache
def summed_and_whole(sigma: float, shares: int, reach: int) -> tuple[list, list]:
    """Return P of the sum and W of one variable on −reach..reach, to 50 digits, by plain convolution.

    Each share is cut at 16 of its σ or at the reach, if that is farther: what is missing is below 1e-50 of any chance
    compared, for the sum reaches z most easily when every share goes z/h.
    """
    with mp.workdps(DIGITS + 20):
        own = max(math.ceil(18 * sigma), math.ceil(2 * reach / shares))
        share = precise_gaussian(mpf(sigma), own)
        total = share
        for _ in range(shares - 1):
            total = np.convolve(
                np.array(total, dtype=object), np.array(share, dtype=object)
            ).tolist()
        whole = precise_gaussian(mpf(sigma) * mp.sqrt(shares), len(total) // 2)
        middle = len(total) // 2
        return total[middle - reach : middle + reach + 1], whole[
            middle - reach : middle + reach + 1
        ]


@pytest.mark.parametrize(("sigma", "shares"), [(1.0, 2), (1.0, 5), (2.0, 4)])
def test_the_sum_is_within_the_bound_of_one_discrete_gaussian(sigma, shares):
    """The bound of two shares is the spread of the ratios, and no larger."""
    total, whole = summed_and_whole(sigma, shares, math.ceil(6 * sigma * math.sqrt(shares)))
    bound = log_ratio(sigma, shares)
    with mp.workdps(DIGITS):
        ratios = [mp.log(p / w) for p, w in zip(total, whole, strict=True)]
        assert 0 < max(map(abs, ratios)) <= bound
        spread = max(ratios) - min(ratios)
        assert spread <= bound
        assert shares > 2 or spread > 0.999 * bound


@given(sigma=st.floats(1, 3), shares=st.integers(2, 60))
def test_the_closed_form_covers_the_ripple_that_every_further_share_adds(sigma, shares):
    with mp.workdps(DIGITS):
        steps = [mp.exp(-2 * (mp.pi * mpf(sigma)) ** 2 * k / (k + 1)) for k in range(1, shares)]
        # Largest over smallest theta sum.
        ripple = [mp.jtheta(3, 0, q) / mp.jtheta(4, 0, q) for q in steps]
        assert mp.fsum(mp.log(ratio) for ratio in ripple) <= log_ratio(sigma, shares)


def test_one_share_is_the_noise_itself_and_little_noise_has_no_bound():
    assert log_ratio(0.5, 1) == 0
    assert log_ratio(0.9, 2) == math.inf
    assert log_ratio(2.0, 1_000_000) < 1e-16
    assert log_ratio(2.0, 2) > 1e-17


def shifted_renyi(law: list, order: float):
    """Return D_order of a law and its shift by one, to 50 digits, over the range in which both are known."""
    lam = mpf(order)
    return mp.log(
        mp.fsum(p**lam * q ** (1 - lam) for p, q in zip(law[1:], law[:-1], strict=True))
    ) / (lam - 1)


@pytest.mark.parametrize(("sigma", "shares"), [(1.0, 2), (1.2, 5), (2.0, 4)])
def test_the_true_renyi_divergence_of_the_sum_is_below_what_is_claimed(sigma, shares):
    width = sigma * math.sqrt(shares)
    total, _ = summed_and_whole(sigma, shares, math.ceil(13 * width + 8))
    with mp.workdps(DIGITS):
        for order in (1.01, 2.0, 8.0):
            true = shifted_renyi(total, order)
            assert order / (2 * width**2) * 0.99 < true  # it is not cut short
            claimed = mpf(order) / (2 * mpf(sigma) ** 2 * shares)
            claimed += mpf(float(renyi_surcharge(log_ratio(sigma, shares), np.array([order]))[0]))
            assert true <= claimed


def test_the_surcharge_is_needed_where_shares_are_narrow():
    """At σ_s = 1 the sum of two shares costs more than one discrete Gaussian does, so nothing less would do."""
    total, whole = summed_and_whole(1.0, 2, 19)
    with mp.workdps(DIGITS):
        assert (
            max(
                shifted_renyi(total, order) - shifted_renyi(whole, order)
                for order in (1.01, 2.0, 4.0)
            )
            > 1e-12
        )


def law_of_four_shares(reach: int) -> np.ndarray:
    one = discrete_gaussian_masses(2.0, reach)
    pair = np.convolve(one, one)
    return np.convolve(pair, pair)


def test_no_pair_of_small_neighbors_costs_more_than_claimed():
    event = SummedNoise(NoisyArgmaxGaussian(4.0, 3, ONE_TEACHER), 4)
    masses = law_of_four_shares(26)
    bounds = rdp_of_three_outcomes(event, ORDERS).values, rdp(event, ORDERS).values
    laws = {}
    for counts in ([3, 2, 0], [1, 1, 1], [5, 0, 0], [2, 2, 1]):
        start = np.array(counts)
        for other in [start, *neighbors(start)]:
            laws[tuple(other)] = label_probabilities(other, masses)
        for other in neighbors(start):
            p, q = laws[tuple(start)], laws[tuple(other)]
            for index, order in enumerate(ORDERS):
                for a, b in ((p, q), (q, p)):
                    true = np.log(np.sum(a**order * b ** (1 - order))) / (order - 1)
                    assert true <= bounds[0][index] * (1 + 1e-9) + 1e-12
                    assert bounds[0][index] <= bounds[1][index]


@pytest.mark.parametrize(
    ("event", "variables"), [(VOTE, 10), (CHECK, 1), (INTERACTIVE, 1), (SUM, 3)]
)
def test_it_comes_back_from_its_record(event, variables):
    summed = SummedNoise(event, 20)
    for whole in (summed, Repeated(summed, 7), Composed((summed, VOTE))):
        assert event_from_dict(whole.as_dict()) == whole
    assert (summed.unit, summed.variables) == (event.unit, variables)
    assert not summed.is_simulated
    assert SummedNoise(replace(event, simulated=True), 20).is_simulated
    assert summed.without_shares() == event == event.without_shares()


@pytest.mark.parametrize(("event", "shares"), [
    *((event, 2) for event in (NoisyArgmaxLaplace(20.0, 10, ONE_TEACHER), Composed((CHECK, VOTE)), None)),
    *((VOTE, shares) for shares in (0, 2.0, True, None)),
])  # fmt: skip
def test_other_noise_is_not_summed_and_shares_are_counted(event, shares):
    with pytest.raises(InvalidParameterError):
        SummedNoise(event, shares)


def test_shares_of_too_little_noise_are_refused_with_the_fix():
    for shares in (2, 29):
        SummedNoise(NoisyArgmaxGaussian(2 * math.sqrt(shares), 10, ONE_TEACHER), shares)
        with pytest.raises(InvalidParameterError, match="Raise sigma, or lower `shares`"):
            SummedNoise(NoisyArgmaxGaussian(1.99 * math.sqrt(shares), 10, ONE_TEACHER), shares)
    SummedNoise(NoisyArgmaxGaussian(0.5, 10, ONE_TEACHER), 1)  # a single share is no sum
    with pytest.raises(UnsupportedEventError):
        event_from_dict({"event": "SummedNoise", "shares": 10**6, "of": VOTE.as_dict()})


@given(sigma=st.floats(30, 1e6), shares=st.integers(1, 200))
def test_the_shares_have_the_whole_noise_and_no_more(sigma, shares):
    share = SummedNoise(NoisyArgmaxGaussian(sigma, 10, ONE_TEACHER), shares).sigma_of_share
    assert Fraction(share) ** 2 * shares >= Fraction(sigma) ** 2
    assert Fraction(math.nextafter(share, 0)) ** 2 * shares < Fraction(sigma) ** 2


@pytest.mark.parametrize("event", [VOTE, CHECK, INTERACTIVE, SUM])
def test_it_costs_what_whole_noise_does_and_a_trifle(event):
    summed = SummedNoise(event, 4)
    for cost in (rdp, rdp_of_three_outcomes):
        whole, shared = cost(event, ORDERS).values, cost(summed, ORDERS).values
        assert np.all(shared >= whole)
        assert shared == pytest.approx(whole, rel=1e-12)
    whole, shared = (epsilon(Composed((Repeated(one, 5), CHECK)), 1e-5) for one in (event, summed))
    assert whole.epsilon <= shared.epsilon <= whole.epsilon * (1 + 1e-9) + 1e-12
    assert (shared.delta, shared.unit) == (1e-5, ONE_TEACHER)
    held = (RenyiFilter.holding(Repeated(one, 100), 1e-5).epsilon for one in (event, summed))
    assert next(held) <= next(held)
    with pytest.raises(UnsupportedEventError, match="different units"):
        epsilon(Composed((summed, replace(event, unit=ROW))), 1e-5)


def test_exact_composition_is_used_and_surcharged(monkeypatch):
    """With a distance that is not negligible ε rises by twice the distance of all answers, and δ is divided by e^it."""
    narrow = SummedNoise(NoisyArgmaxGaussian(2 * math.sqrt(2), 10, ONE_TEACHER), 2)
    monkeypatch.setattr(data_independent.composition, "log_ratio", lambda sigma, shares: 1e-4)
    assert log_distance(narrow) == pytest.approx(1e-3)
    assert log_distance(SummedNoise(CHECK, 2)) == pytest.approx(1e-4)
    assert log_distance(SummedNoise(SUM, 2)) == pytest.approx(3e-4)
    monkeypatch.setattr(data_independent, "_by_three_outcomes", lambda *_: [])
    monkeypatch.setattr(
        data_independent, "rdp", lambda _: RenyiCurve(np.array([2.0]), np.array([math.inf]))
    )
    found = epsilon(Repeated(narrow, 20), 1e-5)
    expected = gaussian_composition(2 * math.sqrt(2), 20, 1e-5 * math.exp(-0.02)) + 0.04
    assert found.epsilon == pytest.approx(expected, rel=1e-12)
    assert "shares" in found.method


@pytest.mark.parametrize("distance", [1e-16, 1e-3, 0.1])
def test_a_moved_pair_satisfies_the_moved_guarantee(distance):
    """The worst that a factor e^±u can do to an (ε, δ) pair of laws, outcome by outcome, is covered."""
    delta, eps, chance = 0.05, 0.5, 0.4
    # Chance of the neighbor, (ε, δ) just kept.
    other = chance * math.exp(eps) + moved_delta(delta, distance)
    moved = math.exp(distance) * other, math.exp(-distance) * chance
    left_over = moved[0] - math.exp(moved_epsilon(eps, distance)) * moved[1]
    assert delta * (1 - 1e-9) < left_over <= delta * (1 + 1e-12)


def test_what_a_settled_batch_must_keep_to_holds_for_summed_noise():
    check, vote, asked = (SummedNoise(event, 8) for event in (CHECK, VOTE, INTERACTIVE))
    one = Composed((check, vote))

    def breach(
        checks: int, votes: int, answers: list[int], check: Event = check, vote: Event = vote
    ) -> str | None:
        return breach_of(
            one, 10, Composed((Repeated(check, checks), Repeated(vote, votes))), answers
        )

    assert breach(10, 3, [3]) is None
    assert breach(10, 3, [4]) == "gives more labels than it reports answers"
    assert breach(9, 3, [3]) is not None
    assert breach(10, 3, [3], CHECK, VOTE) is not None
    assert breach_of(vote, 10, Repeated(vote, 9), [9]) is not None
    assert (
        breach_of(
            Composed((asked, vote)), 10, Composed((Repeated(asked, 10), Repeated(vote, 3))), [9]
        )
        is None
    )


def test_costs_that_need_votes_refuse_it_and_public_ones_do_not():
    votes = VoteHistogram(np.array([[90, 10], [60, 40]]), n_teachers=100)
    summed, accountant = SummedNoise(NoisyArgmaxGaussian(10.0, 2, ONE_TEACHER), 4), Accountant()
    with pytest.raises(UnsupportedEventError, match="owners summed are unknown"):
        accountant.add(Repeated(summed, 2), votes)
    for cost in (partial(ExactCosts, summed, votes), partial(costs_2018, summed, votes, ORDERS)):
        with pytest.raises(UnsupportedEventError, match="SummedNoise"):
            cost()
    accountant.add(Repeated(summed, 2))
    assert accountant.data_independent(1e-5).epsilon == epsilon(Repeated(summed, 2), 1e-5).epsilon


def test_the_accountant_knows_its_checks_from_its_answers():
    check, vote = Repeated(SummedNoise(CHECK, 8), 10), Repeated(SummedNoise(VOTE, 8), 5)
    accountant = Accountant()
    accountant.add(check)
    accountant.add(vote)
    with pytest.raises(ValueError, match="at_most"):
        accountant.event_at_limits()
    accountant.add(vote)
    assert accountant.event_at_limits() == Composed((check, vote, vote))


def law_is(drawn: np.ndarray, sigma: float) -> float:
    """Return the p-value of a chi-square test that the integers drawn are discrete Gaussian of parameter `sigma`."""
    reach = math.ceil(8 * sigma)
    masses = discrete_gaussian_masses(sigma, reach)
    edges = np.unique(np.searchsorted(np.cumsum(masses), np.linspace(0, 1, 41)[1:-1])) - reach
    bins = np.searchsorted(edges, np.arange(-reach, reach + 1), side="left")
    expected = np.bincount(bins, weights=masses) * drawn.size
    found = np.bincount(np.searchsorted(edges, drawn.ravel(), side="left"), minlength=len(expected))
    return float(stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue)


def test_noise_sized_for_everybody_is_found_too_small_once_colluders_subtract_theirs():
    """Planted fault: N shares are counted on where h are honest. What colluders cannot subtract is then too little.

    Seeded. A p-value of right noise is below 1e-4 once in 10,000 seeds.
    """
    sigma, honest, entities = 8.0, 6, 10
    event = NoisyArgmaxGaussian(sigma, 2, ONE_TEACHER)

    def left(counted: int) -> np.ndarray:
        drawn = SimulationNoise(13).discrete_gaussian(
            SummedNoise(event, counted).sigma_of_share, (entities, 40_000)
        )
        return drawn.sum(axis=0) - drawn[honest:].sum(axis=0)  # the rest told theirs

    assert law_is(left(honest), sigma) > 1e-4
    assert law_is(left(entities), sigma) < 1e-12
    claimed = rdp(
        SummedNoise(ConfidenceCheck(0, sigma, 2, ONE_TEACHER), honest), np.array([2.0])
    ).values[0]
    # This is λ/2σ² at λ = 2.
    measured, right = (2 / (2 * left(counted).var()) for counted in (entities, honest))
    assert measured > 1.6 * claimed
    assert right < 1.04 * claimed  # five standard errors


# All moves between two ballots of norm 1 with two whole numbers, up to symmetry.
MOVES = [(1, 0), (2, 0), (1, 1)]


def hockey_stick(law: np.ndarray, move: tuple[int, int], loss: float) -> float:
    """Return the δ at which a sum of two numbers under noise of this law and one that is moved are (loss, δ)-close."""

    def shifted(steps: int) -> tuple[np.ndarray, np.ndarray]:
        return np.pad(law, (steps, 0)), np.pad(law, (0, steps))

    (p, q), (r, s) = shifted(move[0]), shifted(move[1])
    return float(np.maximum(np.outer(p, r) - np.exp(loss) * np.outer(q, s), 0).sum())


def test_no_two_ballots_of_a_sum_under_summed_noise_cost_more_than_claimed():
    """Brute force, four narrow shares: Rényi divergence and δ of all moves, and a planted bound that is too small."""
    law = law_of_four_shares(20)
    event = NoisySumGaussian(4.0, 1, 2, ONE_TEACHER)
    claimed, cost = epsilon(SummedNoise(event, 4), 1e-3), rdp(SummedNoise(event, 4), ORDERS).values
    deltas = [hockey_stick(law, move, claimed.epsilon) for move in MOVES]
    assert 0.2e-3 < max(deltas) <= 1e-3
    for index, order in enumerate(ORDERS[:4]):
        by_one, by_two = (
            special.logsumexp(order * np.log(law[k:]) + (1 - order) * np.log(law[:-k]))
            / (order - 1)
            for k in (1, 2)
        )
        worst = max(by_two, 2 * by_one)
        assert worst <= cost[index] * (1 + 1e-9)
        assert worst > 0.99 * cost[index]
    planted = epsilon(SummedNoise(replace(event, nonnegative=True), 4), 1e-3)
    assert max(hockey_stick(law, move, planted.epsilon) for move in MOVES) > 1e-3
