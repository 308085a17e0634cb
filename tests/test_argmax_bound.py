"""The search over three outcomes against all positions, against real histograms, and against its limits."""

import itertools
from functools import partial
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact import discrete_gaussian_masses, discrete_laplace_masses, log_renyi_moment
from precise import precise_cost
from tutelage.accounting import argmax_bound
from tutelage.accounting.argmax_bound import (
    gaussian_argmax,
    gaussian_check,
    laplace_argmax,
    positions_of,
)
from tutelage.accounting.data_independent import rdp, rdp_of_three_outcomes
from tutelage.accounting.exact import ExactCosts
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    ConfidenceCheck,
    ExponentialArgmax,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
    Repeated,
)
from tutelage.privacy import ONE_TEACHER

ARGMAX = {
    "laplace": (NoisyArgmaxLaplace, laplace_argmax),
    "gaussian": (NoisyArgmaxGaussian, gaussian_argmax),
}
MASSES = {
    "laplace": discrete_laplace_masses(1.5, 60),
    "gaussian": discrete_gaussian_masses(1.5, 16),
}


def law_of_position(
    masses: np.ndarray, loser: int, gainer: int, first: tuple[int, ...]
) -> np.ndarray:
    """Return how often the loser, the gainer and a third without noise at 0 win, `first` being how ties are broken."""
    noise = np.arange(len(masses)) - len(masses) // 2
    scores = np.stack(np.broadcast_arrays((loser + noise)[:, None], (gainer + noise)[None, :], 0))
    winner = np.array(first)[np.argmax(scores[list(first)], axis=0)]
    return np.bincount(winner.ravel(), weights=np.outer(masses, masses).ravel(), minlength=3)


@pytest.mark.rest
@pytest.mark.parametrize("order", [1.02, 2.0, 6.0])
@pytest.mark.parametrize("kind", ARGMAX)
def test_the_search_finds_the_worst_position(kind, order):
    worst = 0.0
    for first in itertools.permutations(range(3)):
        laws = {
            (loser, gainer): law_of_position(MASSES[kind], loser, gainer, first)
            for loser, gainer in itertools.product(range(-8, 9), repeat=2)
        }
        for (loser, gainer), here in laws.items():
            there = laws.get((loser - 1, gainer + 1))
            if there is not None:
                worst = max(
                    worst,
                    log_renyi_moment(here, there, order),
                    log_renyi_moment(there, here, order),
                )
    worst /= order - 1
    assert worst * (1 - 1e-9) <= ARGMAX[kind][1](1.5, order) <= worst * (1 + 1e-3)


@pytest.mark.rest
@given(
    counts=st.lists(st.integers(0, 300), min_size=2, max_size=8).filter(any),
    scale=st.floats(1.0, 60.0),
    order=st.floats(1.01, 80),
    kind=st.sampled_from(sorted(ARGMAX)),
    abstained=st.booleans(),
)
def test_no_histogram_costs_more(counts, scale, order, kind, abstained):
    event, bound = ARGMAX[kind]
    votes = VoteHistogram(np.array([counts]), sum(counts) + abstained)
    cost = ExactCosts(event(scale, len(counts), ONE_TEACHER), votes).per_query(np.array([order]))[
        0, 0
    ]
    assert cost <= bound(scale, order) * (1 + 1e-9)


@given(
    votes=st.integers(0, 400),
    threshold=st.integers(0, 400),
    sigma=st.floats(1.0, 80.0),
    order=st.floats(1.01, 100),
)
def test_no_check_costs_more(votes, threshold, sigma, order):
    histogram = VoteHistogram(np.array([[votes, 0]]), votes + 1)
    cost = ExactCosts(ConfidenceCheck(threshold, sigma, 2, ONE_TEACHER), histogram).per_query(
        np.array([order])
    )[0, 0]
    assert cost <= gaussian_check(sigma, order) * (1 + 1e-9)


def test_cells_of_wide_noise_lie_above_the_positions_in_them(monkeypatch):
    orders = (1.1, 4.0, 20.0)
    exact = np.array([gaussian_argmax(12.0, order) for order in orders])
    positions_of.cache_clear()
    monkeypatch.setattr(argmax_bound, "_LATTICE", 60)
    in_cells = [gaussian_argmax(12.0, order) for order in orders]
    positions_of.cache_clear()
    assert np.all(in_cells >= exact)
    assert np.all(in_cells <= exact * 2)


@pytest.mark.parametrize("size", [1e-6, 0.31, 1e4])
def test_every_amount_of_noise_has_a_cost_no_larger_than_the_closed_form(size):
    orders = np.array([1.001, 1.5, 30.0, 1e4])
    for event in (NoisyArgmaxLaplace, NoisyArgmaxGaussian, partial(ConfidenceCheck, 10.0)):
        release = Repeated(event(size, 3, ONE_TEACHER), 3)
        searched = rdp_of_three_outcomes(release, orders).values
        closed = rdp(release, orders).values
        assert np.all(np.isfinite(searched))
        assert np.all((searched > 0) & (searched <= closed))


def test_what_is_not_searched_says_so():
    assert gaussian_argmax(0.1, 2.0) == gaussian_check(1e7, 2.0) == inf
    assert laplace_argmax(20.0, 1e6) == inf
    near_one = 1 + 1e-15  # too near for double precision
    assert gaussian_argmax(1.0, near_one) == laplace_argmax(0.5, near_one) == inf
    assert gaussian_check(1.0, near_one) == inf
    orders = np.array([2.0])
    for kind in (PermuteAndFlipArgmax, ExponentialArgmax):
        event = kind(3.0, 4, ONE_TEACHER)
        assert rdp_of_three_outcomes(event, orders).values == rdp(event, orders).values


@given(
    counts=st.lists(st.integers(1, 30), min_size=2, max_size=5),
    scale=st.floats(0.2, 40),
    order=st.floats(1.01, 200),
)
def test_the_exponential_mechanism_stays_within_its_bounded_range(counts, scale, order):
    divergence = precise_cost("exponential", counts, scale, order, 0, 1)
    event = ExponentialArgmax(scale, len(counts), ONE_TEACHER)
    assert divergence <= rdp(event, np.array([order])).values[0] * (1 + 1e-9)


@pytest.mark.parametrize("order", [1.5, 4.0, 30.0])
def test_what_lies_beyond_the_reach_is_bounded(order):
    for noise, log_mass in (
        (argmax_bound.laplace_noise(10.0, order), lambda w: -np.abs(w) / 10),
        (argmax_bound.gaussian_noise(10.0, order), lambda w: -(w**2) / 200),
    ):
        assert noise is not None
        w = np.arange(-600, 601)
        here = log_mass(w) - np.log(np.exp(log_mass(w)).sum())
        fewer, more = (log_mass(w + step) - np.log(np.exp(log_mass(w)).sum()) for step in (1, -1))
        lost = np.add.outer(here, here), np.add.outer(fewer, more)
        outside = np.maximum.outer(np.abs(w), np.abs(w)) > noise.half_width
        for p, q in (lost, lost[::-1]):
            beyond = np.exp(q[outside]) * argmax_bound._phi((p - q)[outside], order)
            assert 0 < beyond.sum() <= noise.outside(order)
