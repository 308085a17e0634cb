"""Theorem 6 against the authors' own program, its conditions, and inputs that have broken other accountants."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import special

from conftest import GOLDEN
from exact import discrete_gaussian_masses, label_probabilities, log_renyi_moment, neighbors
from tutelage import VoteHistogram
from tutelage.accounting import pate_bounds
from tutelage.accounting.rdp import RenyiCurve, classic
from tutelage.events import (
    ConfidenceCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
)
from tutelage.exceptions import UnsupportedEventError
from tutelage.privacy import ONE_TEACHER

ORACLE = json.loads((GOLDEN / "pate2018.json").read_text())
ORDERS = np.array(ORACLE.pop("orders"))


def oracle_votes(name: str) -> VoteHistogram:
    return VoteHistogram.load(GOLDEN / "votes.npz", array=name)


@pytest.mark.parametrize("name", ORACLE)
def test_the_authors_program_agrees_to_ten_digits(name):
    expected, votes = ORACLE[name], oracle_votes(name)
    gaussian = NoisyArgmaxGaussian(expected["gnmax"]["sigma"], votes.n_classes, ONE_TEACHER)
    total = pate_bounds.total_cost_2018(gaussian, votes, ORDERS)
    assert total == pytest.approx(expected["gnmax"]["rdp_total"], rel=1e-10)
    log_q = pate_bounds.log_q_gaussian(votes, gaussian.sigma)
    assert log_q[:10] == pytest.approx(expected["gnmax"]["log_q"], rel=1e-10)
    # That program bounds the order-λ divergence of pure DP by ε as well.
    laplace = NoisyArgmaxLaplace(expected["lnmax"]["scale"], votes.n_classes, ONE_TEACHER)
    pure = np.minimum(pate_bounds.costs_2018(laplace, votes, ORDERS), 2 / laplace.scale).sum(axis=0)
    assert pure == pytest.approx(expected["lnmax"]["rdp_total"], rel=1e-10)


@pytest.mark.parametrize("name", ORACLE)
def test_the_authors_expected_cost_of_confident_answers(name):
    expected, votes = ORACLE[name]["confident"], oracle_votes(name)
    check = ConfidenceCheck(expected["threshold"], expected["sigma1"], votes.n_classes, ONE_TEACHER)
    log_pass = special.log_ndtr((votes.counts.max(axis=1) - check.threshold) / check.sigma)
    assert log_pass[:10] == pytest.approx(expected["log_pass"], rel=1e-10)
    assert np.exp(log_pass).sum() == pytest.approx(expected["expected_answered"], rel=1e-10)
    select = pate_bounds.total_cost_2018(check, votes, ORDERS)
    log_fail = special.log_ndtr((check.threshold - votes.counts.max(axis=1)) / check.sigma)
    assert pate_bounds.check_costs(log_pass, log_fail, check.sigma, ORDERS).sum(
        axis=0
    ) == pytest.approx(select)
    assert select == pytest.approx(expected["rdp_select"], rel=1e-10)
    answer = NoisyArgmaxGaussian(expected["sigma2"], votes.n_classes, ONE_TEACHER)
    total = select + np.exp(log_pass) @ pate_bounds.costs_2018(answer, votes, ORDERS)
    assert total == pytest.approx(expected["rdp_total"], rel=1e-10)


def test_epsilon_at_the_authors_orders():
    votes, expected = oracle_votes("mnist_like_1000"), ORACLE["mnist_like_1000"]["gnmax"]
    orders = np.arange(4, 500) / 2
    total = pate_bounds.total_cost_2018(
        NoisyArgmaxGaussian(expected["sigma"], 10, ONE_TEACHER), votes, orders
    )
    found = RenyiCurve(orders, total).to_epsilon(expected["delta"], classic)
    assert found.epsilon == pytest.approx(expected["eps"], rel=1e-10)


def theorem_6(log_q: float, sigma: float, order: float) -> float:
    """Return Theorem 6 at the orders of Proposition 10 with fifty digits, or λ/σ² where it does not apply."""
    with mp.workdps(50):
        q, s, lam = mp.exp(mpf(log_q)), mpf(sigma), mpf(order)
        mu2 = s * mp.sqrt(-mpf(log_q))
        mu1 = mu2 + 1
        e1, e2 = mu1 / s**2, mu2 / s**2
        independent = float(lam / s**2)
        if mu2 <= 1 or lam > mu1 or mpf(log_q) + e2 >= 0:
            return independent
        if q > mp.exp((mu2 - 1) * e2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2:
            return independent
        a = (1 - q) / (1 - (q * mp.exp(e2)) ** ((mu2 - 1) / mu2))
        b = mp.exp(e1) / q ** (1 / (mu1 - 1))
        return min(
            independent, float(mp.log((1 - q) * a ** (lam - 1) + q * b ** (lam - 1)) / (lam - 1))
        )


@given(log_q=st.floats(-2000, -1e-6), sigma=st.floats(0.3, 300), order=st.floats(1.01, 500))
def test_the_formula_to_fifty_digits(log_q, sigma, order):
    found = pate_bounds.answer_costs(np.array([log_q]), sigma, np.array([order]))[0, 0]
    assert found == pytest.approx(theorem_6(log_q, sigma, order), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("teachers", "sigma", "classes"), [(250, 0.5, 10), (5000, 4.0, 2), (250, 40.0, 2)]
)
def test_unanimous_votes_and_little_noise_cost_little_and_never_less_than_nothing(
    teachers, sigma, classes
):
    votes = VoteHistogram(np.array([[0] * (classes - 1) + [teachers]]), teachers)
    costs = pate_bounds.costs_2018(
        NoisyArgmaxGaussian(sigma, classes, ONE_TEACHER), votes, np.array([1.5, 4.0, 20.0])
    )
    assert np.all(np.isfinite(costs) & (costs >= 0))
    # μ₂ = σ√log(1/q) ≈ gap/2, so small orders are far inside the theorem's range.
    assert costs[0, 0] < 0.02 * 1.5 / sigma**2


@given(
    counts=st.lists(st.integers(0, 60), min_size=2, max_size=4).filter(any), sigma=st.floats(2, 12)
)
def test_from_the_votes_at_hand_no_neighbor_is_farther_than_the_bound(counts, sigma):
    masses = discrete_gaussian_masses(sigma, 140)
    here = label_probabilities(np.array(counts), masses)
    log_q = np.log(np.delete(here, np.argmax(counts)).sum())
    bound = pate_bounds.answer_costs(np.array([log_q]), sigma, np.array([1.5, 4.0, 20.0]))[0]
    for other in neighbors(np.array(counts)):
        there = label_probabilities(other, masses)
        for order, limit in zip((1.5, 4.0, 20.0), bound, strict=True):
            assert log_renyi_moment(here, there, order) / (order - 1) <= limit * (1 + 1e-8) + 1e-12


def test_what_the_paper_has_no_bound_for_is_refused():
    with pytest.raises(UnsupportedEventError, match="PermuteAndFlipArgmax"):
        pate_bounds.total_cost_2018(
            PermuteAndFlipArgmax(2.0, 2, ONE_TEACHER), VoteHistogram(np.array([[3, 4]]), 7), ORDERS
        )
