import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import GOLDEN
from exact import discrete_laplace_masses, label_probabilities, neighbors
from test_pate2018 import oracle_votes
from tutelage import VoteHistogram
from tutelage.accounting import Accountant, pate_bounds
from tutelage.events import NoisyArgmaxLaplace, Repeated
from tutelage.privacy import PrivateEpsilon
from tutelage_reproductions.epsilons import data_independent_moments
from tutelage_reproductions.two_sided_bound import log_q_discrete

ORACLE = json.loads((GOLDEN / "pate2017.json").read_text())


def published_epsilon(votes: VoteHistogram, scale: float, delta: float) -> PrivateEpsilon:
    accountant = Accountant()
    accountant.add(
        Repeated(NoisyArgmaxLaplace(scale, votes.n_classes, votes.unit), votes.n_queries), votes
    )
    return accountant.bound_2017(delta)


def test_the_authors_mnist_votes_give_their_epsilon(mnist_votes):
    found = published_epsilon(mnist_votes.first(100), 20, 1e-5).reveal()
    assert found == pytest.approx(2.04299, abs=5e-6)  # published as 2.04


@pytest.mark.parametrize("name", ORACLE)
def test_the_published_script_agrees_to_ten_digits(name):
    expected, votes = ORACLE[name], oracle_votes(name)
    scale = 1 / expected["gamma"]
    found = published_epsilon(votes, scale, expected["delta"])
    assert found.reveal() == pytest.approx(expected["eps"], rel=1e-10)
    log_q = pate_bounds.log_q_laplace(votes, scale)
    assert np.exp(log_q[: len(expected["first_q"])]) == pytest.approx(
        expected["first_q"], rel=1e-10
    )
    total = pate_bounds.log_moments(log_q, scale, pate_bounds.MOMENTS_2017).sum(axis=0)
    assert total == pytest.approx(expected["total_logmgf"], rel=1e-10)
    independent = data_independent_moments(scale, votes.n_queries, expected["delta"])
    assert independent == pytest.approx(expected["data_ind_eps"], rel=1e-10)


def exact_moment(counts: np.ndarray, scale: float, moment: float) -> float:
    """Return the largest α(l) from these votes to any neighbor, by enumeration of the discrete mechanism."""
    masses = discrete_laplace_masses(scale, int(40 * scale) + 60)
    p = label_probabilities(counts, masses)
    laws = [label_probabilities(other, masses) for other in neighbors(counts)]
    return max(float(np.log(np.sum(p * (p / q) ** moment))) for q in laws)


@given(
    counts=st.lists(st.integers(0, 30), min_size=2, max_size=4).filter(any),
    scale=st.floats(0.4, 30),
    moment=st.sampled_from([0.5, 1.0, 3.0, 8.0]),
)
def test_theorem_3_is_never_below_the_truth_for_the_discrete_mechanism(counts, scale, moment):
    votes = VoteHistogram(np.array([counts]), sum(counts))
    log_q = log_q_discrete(votes, scale)
    bound = pate_bounds.log_moments(log_q, scale, np.array([moment]))[0, 0]
    assert bound >= exact_moment(np.array(counts), scale, moment) * (1 - 1e-9) - 1e-13


@given(counts=st.lists(st.integers(0, 60), min_size=2, max_size=5), scale=st.floats(0.4, 30))
def test_the_discrete_q_is_never_below_the_truth_and_exact_for_two_classes(counts, scale):
    votes = VoteHistogram(np.array([counts]), max(1, sum(counts)))
    masses = discrete_laplace_masses(scale, int(40 * scale) + 100)
    law = label_probabilities(np.array(counts), masses)
    exact = np.delete(law, np.argmax(counts)).sum()  # not 1 − P(plurality), which cancels
    found = float(np.exp(log_q_discrete(votes, scale)[0]))
    assert found >= exact * (1 - 1e-9)
    if len(counts) == 2:
        assert found == pytest.approx(exact, rel=1e-6, abs=1e-15)


def test_lemma_4_would_be_too_small_for_the_discrete_mechanism():
    tie_against_the_plurality = VoteHistogram(np.array([[3, 4]]), 7)
    lemma_4 = pate_bounds.log_q_laplace(tie_against_the_plurality, 0.8)
    truth = log_q_discrete(tie_against_the_plurality, 0.8)
    assert lemma_4 < truth
