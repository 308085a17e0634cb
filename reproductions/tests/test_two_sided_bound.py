"""The closed form in place of Theorem 3: against fifty digits, random pairs of laws, and its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from exact import log_renyi_moment
from tutelage.accounting import pate_bounds
from tutelage.accounting.data_independent import pure_dp_renyi
from tutelage_reproductions import two_sided_bound


def to_fifty_digits(log_q: float, loss: float, order: float) -> float:
    with mp.workdps(50):
        q, e, lam = mp.exp(mpf(log_q)), mpf(loss), mpf(order)
        moments = []
        for sign in (1, -1):
            other = 1 - q * mp.exp(sign * e)
            moments.append((1 - q) ** lam * other ** (1 - lam) + q * mp.exp(-sign * e * (lam - 1)))
            moments.append(other**lam * (1 - q) ** (1 - lam) + q * mp.exp(sign * e * lam))
        return float(mp.log(max(moments)) / (lam - 1))


@given(log_q=st.floats(-400, -0.7), loss=st.floats(1e-3, 4), order=st.floats(1.01, 300))
def test_the_formula_to_fifty_digits_and_never_below(log_q, loss, order):
    found = two_sided_bound.answer_costs(np.array([log_q]), loss, np.array([order]))[0, 0]
    limit = pure_dp_renyi(loss, np.array([order]))[0]
    if log_q >= -np.logaddexp(0, loss):
        assert found == limit
    else:
        exact = min(to_fifty_digits(log_q, loss, order), limit)
        assert found >= exact * (1 - 1e-14)
        assert found == pytest.approx(exact, rel=1e-9, abs=4e-15 * order / (order - 1))


@given(
    weights=st.lists(st.floats(1e-6, 1), min_size=1, max_size=5),
    tilts=st.lists(st.floats(-1, 1), min_size=5, max_size=5),
    q=st.floats(1e-8, 0.45),
    loss=st.floats(0.01, 2),
    order=st.floats(1.05, 40),
)
def test_no_pair_of_laws_that_fits_the_two_facts_is_farther_apart(weights, tilts, q, loss, order):
    rare = np.array(weights) / np.sum(weights) * q
    here = np.append(rare, 1 - q)
    there = np.append(rare * np.exp(loss * np.array(tilts[: len(rare)])), 0)
    there[-1] = 1 - there.sum()
    if q < 1 / (np.exp(loss) + 1) and abs(np.log(there[-1] / here[-1])) <= loss:
        bound = two_sided_bound.answer_costs(np.log([q]), loss, np.array([order]))[0, 0]
        farthest = max(
            log_renyi_moment(here, there, order), log_renyi_moment(there, here, order)
        ) / (order - 1)
        assert farthest <= bound * (1 + 1e-9) + 1e-12


@given(log_q=st.floats(-300, -1), loss=st.floats(0.01, 2), order=st.floats(1.05, 60))
def test_it_grows_with_the_chance_of_another_label(log_q, loss, order):
    orders = np.array([order])
    less, more = two_sided_bound.answer_costs(np.array([log_q, log_q + 0.5]), loss, orders)[:, 0]
    assert less <= more * (1 + 1e-12)


def test_it_lies_below_theorem_3_of_the_paper():
    log_q, orders = np.array([-12.0, -6.0, -3.0]), np.array([2.0, 5.0, 9.0])
    ours = two_sided_bound.answer_costs(log_q, 0.1, orders)
    theirs = pate_bounds.log_moments(log_q, 20.0, orders - 1) / (orders - 1)
    assert np.all(ours < theirs)
    assert (theirs / ours)[0, 0] > 15


def test_an_answer_that_is_certain_costs_nothing():
    found = two_sided_bound.answer_costs(np.array([-np.inf, -1e6]), 0.1, np.array([2.0, 20.0]))
    assert found == pytest.approx(np.zeros((2, 2)), abs=1e-14)


def test_the_total_is_the_sum_over_queries():
    log_q, orders = np.linspace(-30, -0.1, 5000), np.linspace(1.5, 40, 500)
    total = two_sided_bound.total_cost(log_q, 0.1, orders)
    assert total == pytest.approx(
        two_sided_bound.answer_costs(log_q, 0.1, orders).sum(axis=0), rel=1e-12
    )
