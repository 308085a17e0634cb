"""Smooth sensitivity against every histogram and neighbor of small ensembles, and its noise against exact sums."""

import itertools
import pickle
from math import exp, inf, log, pi
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from exact import (
    discrete_gaussian_masses,
    discrete_laplace_masses,
    label_probabilities,
    neighbors,
    renyi,
)
from tutelage.accounting import Accountant, data_independent, pate_bounds
from tutelage.accounting.rdp import RenyiCurve
from tutelage.ballots import VoteHistogram, tally
from tutelage.events import (
    ConfidenceCheck,
    ExponentialArgmax,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    Repeated,
)
from tutelage.exceptions import (
    InvalidDataError,
    InvalidParameterError,
    NothingToGainError,
    NotPublishableError,
    UnsupportedEventError,
)
from tutelage.noise import SimulationNoise
from tutelage.privacy import ONE_TEACHER
from tutelage_reproductions.smooth_plan import (
    CLAIMED,
    RESOLUTION,
    SmoothPlan,
    margin_of,
    noised,
    noised_cost_rdp,
    plan_smooth_release,
)
from tutelage_reproductions.smooth_sensitivity import (
    SmoothCosts,
    most_sensitive,
    needed_noise,
    tail_of,
)
from tutelage_reproductions.two_sided_bound import log_q_discrete

DELTA = 1e-5
ARGMAX = {
    "laplace": (
        lambda classes: NoisyArgmaxLaplace(2.0, classes, ONE_TEACHER),
        discrete_laplace_masses(2.0, 120),
    ),
    "gaussian": (
        lambda classes: NoisyArgmaxGaussian(2.5, classes, ONE_TEACHER),
        discrete_gaussian_masses(2.5, 36),
    ),
}
CHECK = ConfidenceCheck(6.5, 2.0, 3, ONE_TEACHER)


def histograms(teachers: int, classes: int) -> np.ndarray:
    """Return every histogram of at most so many votes; the rest abstained."""
    grid = itertools.product(range(teachers + 1), repeat=classes)
    return np.array([counts for counts in grid if sum(counts) <= teachers])


def released(event, counts, teachers: int, offsets=None) -> Accountant:
    counts = np.atleast_2d(counts)
    accountant = Accountant()
    accountant.add(Repeated(event, len(counts)), VoteHistogram(counts, teachers), offsets=offsets)
    return accountant


def all_neighbors(counts: np.ndarray, teachers: int) -> list[np.ndarray]:
    cast = (
        [counts + row for row in np.eye(len(counts), dtype=int)] if counts.sum() < teachers else []
    )
    return neighbors(counts, abstain=True) + cast


@pytest.mark.parametrize("kind", ARGMAX)
@pytest.mark.parametrize(("teachers", "classes"), [(12, 2), (8, 3), (5, 4)])
def test_q_bounds_the_chance_of_another_label_and_what_a_ballot_does_to_it(kind, teachers, classes):
    event, masses = ARGMAX[kind][0](classes), ARGMAX[kind][1]
    rows = histograms(teachers, classes)
    log_q = {}
    for counts in rows:
        needed, tail = needed_noise(event, VoteHistogram(counts[None], teachers))
        log_q[tuple(counts)] = min(0.0, float(np.logaddexp.reduce(tail.at_least(needed)[0])))
        lost = 1 - label_probabilities(counts, masses)[counts.argmax()]
        assert lost <= exp(log_q[tuple(counts)]) * (1 + 1e-9)
        if classes == 2:
            assert lost == pytest.approx(exp(log_q[tuple(counts)]), rel=1e-9)
    tail = tail_of(event)
    for counts in rows:
        after = tail.after_one_ballot(np.array([log_q[tuple(counts)]]), classes - 1)[0]
        assert all(log_q[tuple(other)] <= after + 1e-9 for other in all_neighbors(counts, teachers))


@pytest.mark.parametrize("order", [1.3, 4.0, 20.0])
@pytest.mark.parametrize("kind", ARGMAX)
@pytest.mark.parametrize(("teachers", "classes"), [(14, 2), (9, 3)])
def test_costs_hold_and_sensitivities_bound_every_neighbor(kind, teachers, classes, order):
    event, masses = ARGMAX[kind][0](classes), ARGMAX[kind][1]
    rows = histograms(teachers, classes)
    laws = {tuple(counts): label_probabilities(counts, masses) for counts in rows}
    found = {
        tuple(counts): SmoothCosts(released(event, counts, teachers), order) for counts in rows
    }
    for counts in rows:
        here = found[tuple(counts)]
        for other in map(tuple, all_neighbors(counts, teachers)):
            assert (
                renyi(laws[tuple(counts)], laws[other], order) <= here.cost() * (1 + 1e-9) + 1e-11
            )
            check_neighbors(here, found[other])
    if kind == "laplace":  # the papers' bound is not everywhere the data-independent one
        most = data_independent.rdp_of_three_outcomes(event, np.array([order])).values[0]
        assert min(costs.cost() for costs in found.values()) < 0.9 * most or order == 20.0


@pytest.mark.parametrize("order", [1.3, 4.0])
def test_checks_too(order):
    rows = histograms(9, 3)
    tail = np.cumsum(discrete_gaussian_masses(2.0, 60)[::-1])[::-1]
    found, laws = {}, {}
    for counts in rows:
        passes = tail[int(np.ceil(6.5)) - counts.max() + 60]
        laws[tuple(counts)] = np.array([passes, 1 - passes])
        found[tuple(counts)] = SmoothCosts(released(CHECK, counts, 9), order)
    for counts in rows:
        for other in map(tuple, all_neighbors(counts, 9)):
            assert (
                renyi(laws[tuple(counts)], laws[other], order)
                <= found[tuple(counts)].cost() * (1 + 1e-9) + 1e-11
            )
            check_neighbors(found[tuple(counts)], found[other])


def test_an_interactive_check_counts_votes_above_its_offsets():
    event, offsets = InteractiveCheck(6.5, 2.0, 3, ONE_TEACHER), np.array([[4.0, 0.0, 1.0]])
    with_offsets = SmoothCosts(released(event, np.array([5, 3, 1]), 9, offsets), 3.0)
    # The most by which votes pass their offset.
    without = SmoothCosts(released(CHECK, np.array([3, 0, 0]), 9), 3.0)
    assert with_offsets.cost() == without.cost()
    assert np.array_equal(with_offsets.local_sensitivities(), without.local_sensitivities())


def check_neighbors(here: SmoothCosts, there: SmoothCosts, beta: float = 0.1) -> None:
    own, others = here.local_sensitivities(), there.local_sensitivities()
    width = max(len(own), len(others)) + 1
    own, others = (
        np.pad(values, (0, width - len(values)), mode="edge") for values in (own, others)
    )
    assert abs(here.cost() - there.cost()) <= min(own[0], others[0])
    assert np.all(others[:-1] <= own[1:])
    smooth, other = here.smooth_sensitivity(beta), there.smooth_sensitivity(beta)
    assert smooth >= own[0]
    assert other <= exp(beta) * smooth


@pytest.mark.parametrize(
    ("event", "order"),
    [
        (NoisyArgmaxLaplace(0.7, 2, ONE_TEACHER), 3.0),
        (NoisyArgmaxGaussian(0.5, 2, ONE_TEACHER), 2.0),
    ],
)
def test_the_true_smooth_sensitivity_of_two_queries_is_bounded(event, order):
    """Four teachers with nine pairs of ballots: all 495 data sets, their distances counted in changed teachers."""
    beta, teachers = 0.2, 4
    choices = list(itertools.product((-1, 0, 1), repeat=2))
    # Teachers are alike.
    worlds: list[tuple] = list(itertools.combinations_with_replacement(choices, teachers))
    place = {world: number for number, world in enumerate(worlds)}
    near = np.eye(len(worlds), dtype=bool)
    for world, teacher, choice in itertools.product(worlds, range(teachers), choices):
        other = tuple(sorted([*world[:teacher], choice, *world[teacher + 1 :]]))
        near[place[world], place[other]] = True
    found = [
        SmoothCosts(released(event, tally(np.array(world), 2).counts, teachers), order)
        for world in worlds
    ]
    costs = np.array([costs.cost() for costs in found])
    local = np.max(np.abs(costs[:, None] - costs) * near, axis=1)
    smooth, reached = local, np.eye(len(worlds), dtype=bool)
    for distance in range(1, teachers + 1):
        reached = reached @ near
        smooth = np.maximum(smooth, exp(-beta * distance) * np.max(local * reached, axis=1))
    claimed = np.array([costs.smooth_sensitivity(beta) for costs in found])
    assert np.all(smooth <= claimed)
    assert np.all(smooth > 0)


@pytest.mark.parametrize("kind", ARGMAX)
def test_tables_are_close_to_the_theorems_and_never_below(kind):
    rows = np.array([[30, 3, 1], [20, 9, 5], [12, 11, 11], [34, 0, 0]])
    if kind == "laplace":
        event, votes = NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER), VoteHistogram(rows, 34)
        log_q = log_q_discrete(votes, 5.0)
        theorem = pate_bounds.log_moments(log_q, 5.0, np.array([4.0]))[:, 0] / 4
    else:
        event = NoisyArgmaxGaussian(8.0, 3, ONE_TEACHER)
        theorem = np.full(4, inf)
    limit = data_independent.rdp_of_three_outcomes(event, np.array([5.0])).values[0]
    for counts, expected in zip(rows, np.minimum(theorem, limit), strict=True):
        cost = SmoothCosts(released(event, counts, 34), 5.0).cost()
        assert cost <= expected * 1.002 + 2e-12
        assert kind == "gaussian" or cost >= expected


def test_the_order_of_classes_plays_no_part_beyond_ties():
    event, counts = NoisyArgmaxLaplace(4.0, 4, ONE_TEACHER), np.array([25, 3, 2, 9])
    found = [
        SmoothCosts(released(event, counts[list(order)], 39), 6.0)
        for order in itertools.permutations(range(4))
    ]
    for costs in found[1:]:
        # A tie in 4 votes of noise: e^(1/4).
        assert costs.cost() == pytest.approx(found[0].cost(), rel=0.3)
        assert costs.local_sensitivities()[0] == pytest.approx(
            found[0].local_sensitivities()[0], rel=0.3
        )


def test_taking_the_first_count_for_the_largest_is_caught():
    """The script published with PATE 2017 does, and then finds votes insensitive whose first class is behind."""
    event, order, missed = NoisyArgmaxLaplace(0.7, 3, ONE_TEACHER), 3.0, 0
    for counts in histograms(9, 3):
        here = SmoothCosts(released(event, counts, 9), order)
        faulty = 0.0 if counts[0] < counts[1] else here.local_sensitivities()[0]
        moves = [
            SmoothCosts(released(event, other, 9), order).cost() for other in neighbors(counts)
        ]
        missed += any(abs(here.cost() - cost) > faulty for cost in moves)
    assert missed > 20


@given(
    st.floats(1.05, 40),
    st.floats(0.002, 0.3),
    st.floats(0.3, 30),
    st.floats(0, 5),
    st.floats(-1, 1),
    st.floats(-1, 1),
)
def test_the_margin_makes_the_noised_cost_a_cost(order, smoothness, noise, smooth, ratio, moved):
    """E_D[(dP/dP′)^μ e^{−μ(released − cost)}] ≤ e^{μ·fixed} for any two neighbors, exactly (a Gaussian integral)."""
    margin = margin_of(order, smoothness, noise)
    if margin.fixed == inf:
        assert order * smoothness > 0.2
        return
    here = noise * max(smooth, 1e-3)
    there = here * exp(ratio * smoothness)
    change = moved * (min(here, there) / noise + 2 * min(here, there) / RESOLUTION)
    moment = log_moment(order, here, there, change + margin.of(here) - margin.of(there))
    assert moment / (order - 1) - margin.of(here) <= margin.fixed * (1 + 1e-9)


def log_moment(order: float, here: float, there: float, apart: float) -> float:
    """Return log E[(dP/dQ)^μ e^{−μx}], x ~ P = N(0, here²), Q = N(−apart, there²), by its closed form."""
    moment = order - 1
    rest = order * there**2 - moment * here**2
    variance = here**2 * there**2 / rest
    slope = moment * apart / there**2 - moment
    scales = log(variance) / 2 - order * log(here) + moment * log(there)
    return scales + variance * slope**2 / 2 + moment * apart**2 / (2 * there**2)


def log_moment_on_the_grid(
    order: float, here: float, there: float, apart: int, grid: float
) -> float:
    """Return the same for discrete Gaussians in steps of `grid`, by adding up."""
    reach = int(30 * here)
    k = np.arange(-reach, reach + 1)
    p, q = -(k**2) / (2 * here**2), -((k + apart) ** 2) / (2 * there**2)
    p -= np.logaddexp.reduce(p)
    wide = np.arange(-int(30 * there), int(30 * there) + 1)
    q -= np.logaddexp.reduce(-(wide**2) / (2 * there**2))
    return float(np.logaddexp.reduce(order * p - (order - 1) * q - (order - 1) * grid * k))


@pytest.mark.parametrize(
    ("order", "smoothness", "noise"), [(2.0, 0.1, 1.0), (5.0, 0.04, 4.0), (12.0, 0.02, 9.0)]
)
def test_the_same_on_the_grid_that_is_drawn_on_and_planted_faults_break_it(
    order, smoothness, noise
):
    margin = margin_of(order, smoothness, noise)

    def excess(
        deviation: float, *, drawn: float = 1.0, ignored: float = 1.0, margins: float = 1.0
    ) -> float:
        """Return by how much the worst neighbors miss the claim: noise drawn, smoothness ignored, margin added."""
        worst, grid = -inf, deviation / RESOLUTION
        for ratio, sign in itertools.product(
            (-smoothness * ignored, 0.0, smoothness * ignored), (-1, 1)
        ):
            here, there = deviation, deviation * exp(ratio)
            change = sign * min(here, there) / noise + margins * (
                margin.of(here) - margin.of(there)
            )
            moment = log_moment_on_the_grid(
                order, drawn * here / grid, drawn * there / grid, round(change / grid), grid
            )
            worst = max(worst, moment / (order - 1) - margins * margin.of(here))
        return worst - margin.fixed

    assert all(excess(deviation) <= 0 for deviation in (0.003, 0.03, 0.3))
    assert excess(0.003, drawn=0.5) > 0
    assert excess(0.003, ignored=4.0) > 0
    assert excess(0.8, margins=0.0) > 0


@given(st.floats(0.01, 2), st.floats(0.001, 0.2), st.floats(1.1, 30))
def test_the_charge_is_the_divergence_of_the_worst_neighbors(shift, smoothness, order):
    charged = noised_cost_rdp(shift, smoothness, np.array([order]))[0]
    for ratio in np.linspace(-smoothness, smoothness, 9):
        there = exp(ratio)
        rest = order * there**2 - (order - 1)
        if rest <= 0:
            assert charged == inf
            return
        apart = shift * min(1.0, there)
        divergence = order * apart**2 / (2 * rest) + (order * ratio - log(rest) / 2) / (order - 1)
        assert divergence <= charged * (1 + 1e-9) + 1e-9


def test_the_formula_printed_in_2018_is_below_the_divergence_of_such_neighbors():
    """At the β = 0.49/λ of the published script: a Gaussian integral by quadrature says 7.67, the formula 1.50."""
    order, smoothness, noise = 10.0, 0.049, 3.0
    there = exp(-smoothness)
    apart = there / noise

    def moment(x: float) -> float:
        logs = -order * x**2 / 2 + (order - 1) * ((x - apart) ** 2 / (2 * there**2) + log(there))
        return exp(logs) / (2 * pi) ** 0.5

    true = log(integrate.quad(moment, -60, 60, limit=500, points=[-20, -10, 0, 10, 20])[0]) / (
        order - 1
    )
    printed = order * exp(2 * smoothness) / noise**2
    printed += (smoothness * order - log(1 - 2 * order * smoothness) / 2) / (order - 1)
    charged = noised_cost_rdp(1 / noise, smoothness, np.array([order]))[0]
    assert printed < 1.6 < 7.6 < true <= charged * (1 + 1e-9)
    assert charged == pytest.approx(true, rel=1e-6)


def test_a_plan_is_chosen_and_published_votes_like_its_own_gain():
    proxy = released(
        NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER),
        np.repeat([[57, 4, 1], [40, 20, 2]], 100, axis=0),
        62,
    )
    plan = plan_smooth_release(proxy, DELTA)
    costs = SmoothCosts(proxy, plan.order)
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness))
    typical = plan.epsilon(int((costs.cost() + plan.margin.of(deviation)) / plan.grid))
    independent = proxy.data_independent(DELTA).epsilon
    assert typical < independent
    bare = RenyiCurve(np.array([plan.order]), np.array([costs.cost()])).to_epsilon(DELTA).epsilon
    assert typical > bare
    assert (
        plan.most
        >= most_sensitive(proxy, plan.order)
        >= costs.local_sensitivities()[-1] * (1 - 1e-12)
    )
    assert deviation / plan.grid >= RESOLUTION
    kept = plan_smooth_release(proxy, DELTA, ledger_order=20.0)
    assert noised_cost_rdp(kept.shift, kept.smoothness, np.array([20.0]))[0] < inf


def test_votes_with_nothing_to_gain_are_told_so():
    torn = released(
        NoisyArgmaxGaussian(20.0, 3, ONE_TEACHER), np.repeat([[21, 21, 20]], 20, axis=0), 62
    )
    with pytest.raises(NothingToGainError, match="data-independent"):
        plan_smooth_release(torn, DELTA)


def test_what_is_not_covered_or_not_a_plan_is_refused():
    votes = VoteHistogram(np.array([[5, 2, 1]]), 8)
    for event in (ExponentialArgmax(2.0, 3, ONE_TEACHER), NoisyArgmaxGaussian(1e6, 3, ONE_TEACHER)):
        accountant = Accountant()
        accountant.add(Repeated(event, 1), votes)
        with pytest.raises(UnsupportedEventError, match="data-independent"):
            SmoothCosts(accountant, 2.0)
    without = Accountant()
    without.add(Repeated(NoisyArgmaxLaplace(2.0, 3, ONE_TEACHER), 1))
    with pytest.raises(InvalidDataError, match="votes"):
        SmoothCosts(without, 2.0)
    fields: dict[str, Any] = {
        "delta": DELTA,
        "order": 5.0,
        "smoothness": 0.02,
        "noise": 3.0,
        "least": 0.01,
        "most": 1.0,
    }
    SmoothPlan(**fields)
    for fault in (
        {"order": 1.0},
        {"smoothness": 0.2},
        {"least": 2.0},
        {"noise": float("nan")},
        {"delta": 0.0},
    ):
        with pytest.raises(InvalidParameterError):
            SmoothPlan(**{**fields, **fault})


def test_private_costs_are_neither_shown_nor_stored():
    costs = SmoothCosts(
        released(NoisyArgmaxLaplace(2.0, 3, ONE_TEACHER), np.array([7, 2, 1]), 10), 2.0
    )
    assert repr(costs) == "SmoothCosts(<depends on the private votes>)"
    with pytest.raises(NotPublishableError):
        pickle.dumps(costs)


def test_the_authors_votes(mnist_votes):
    """1,000 answers of 250 teachers, Laplace noise of scale 20: 6.5 where any votes cost 9.58."""
    accountant = Accountant()
    accountant.add(
        Repeated(NoisyArgmaxLaplace(20.0, 10, ONE_TEACHER), 1000), mnist_votes.first(1000)
    )
    plan = plan_smooth_release(accountant, DELTA)
    costs = SmoothCosts(accountant, plan.order)
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness))
    assert 6.3 < plan.epsilon(int((costs.cost() + plan.margin.of(deviation)) / plan.grid)) < 6.7
    assert 0.4 < deviation < 0.6


def test_the_drawn_value_has_the_planned_scale():
    """Of 1,000 draws the standard deviation varies by 2.2 %; 12 % is five times that."""
    proxy = released(
        NoisyArgmaxLaplace(5.0, 3, ONE_TEACHER),
        np.repeat([[57, 4, 1], [40, 20, 2]], 100, axis=0),
        62,
    )
    plan = plan_smooth_release(proxy, DELTA)
    costs = SmoothCosts(proxy, plan.order)
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness)) / plan.grid
    center = (costs.cost() + plan.margin.of(deviation * plan.grid)) / plan.grid
    noise = SimulationNoise(5)
    drawn = np.array([noised(costs, plan, noise) for _ in range(1000)])
    assert abs(drawn.mean() - center) < 5 * deviation / 1000**0.5 + 1
    for wrong, fits in ((1.0, True), (0.7, False), (1.3, False)):
        assert (abs(drawn.std() / (wrong * deviation) - 1) < 0.12) == fits


SMALL, MASSES = NoisyArgmaxLaplace(1.5, 2, ONE_TEACHER), discrete_laplace_masses(1.5, 90)
# Of what is released every 256th value: laws are smooth over 1,024.
STEPS = np.arange(-40 * 1024, 120 * 1024, 256)


def law_of_world(plan: SmoothPlan, counts, drawn: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the laws of two labels and, as logarithms, of the noised cost, where ten teachers voted on two queries."""
    costs = SmoothCosts(released(SMALL, np.array(counts), 10), plan.order)
    deviation = plan.deviation(costs.smooth_sensitivity(plan.smoothness))
    center = np.ceil((costs.cost() + plan.margin.of(deviation)) / plan.grid)
    log_noise = -(((STEPS - center) / (drawn * deviation / plan.grid)) ** 2) / 2
    one, other = (label_probabilities(np.array(row), MASSES) for row in counts)
    return np.outer(one, other).ravel(), log_noise - np.logaddexp.reduce(log_noise)


def worst_delta(plan: SmoothPlan, pairs, drawn: float = 1.0) -> float:
    """Return the largest E_D[(1 − e^{ε(o)} dP_{D′}/dP_D)₊] over neighbors, ε(o) being what is claimed of outcome o."""
    claim = np.array([plan.epsilon(int(value)) for value in STEPS])
    laws = {
        counts: law_of_world(plan, counts, drawn)
        for counts in set(itertools.chain.from_iterable(pairs))
    }
    worst = 0.0
    for here, there in pairs:
        (labels, noise), (other_labels, other_noise) = laws[here], laws[there]
        loss = np.log(labels / other_labels)[:, None] + noise - other_noise
        worst = max(worst, float(labels @ -np.expm1(np.minimum(claim - loss, 0)) @ np.exp(noise)))
    return worst


def test_the_claim_holds_in_all_neighboring_worlds_and_too_little_noise_breaks_it():
    plan = SmoothPlan(delta=0.02, order=3.0, smoothness=0.08, noise=1.5, least=0.05, most=1.0)
    pairs = []
    for here in itertools.product([(10, 0), (9, 1), (8, 2), (7, 3), (5, 5), (3, 6)], repeat=2):
        near = (
            [row, *(tuple(other.tolist()) for other in neighbors(np.array(row), abstain=True))]
            for row in here
        )
        around = list(itertools.product(*near))
        pairs += [(here, there) for there in around] + [(there, here) for there in around]
    assert worst_delta(plan, pairs) <= CLAIMED * plan.delta
    assert worst_delta(plan, pairs, drawn=0.2) > plan.delta
