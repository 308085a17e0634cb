"""The accounting of Scalable PATE (2018) for Gaussian noise: Theorem 6 at the orders of Proposition 10, and the check.

This is the reproduction path of the published figures. Vote-dependent results are private. Following the paper,
Theorem 6 bounds the divergence in one direction, from the data at hand to a neighbor. Laplace answers are accounted
as the paper's scripts do, by Theorem 3 of 2017. Letters and conditions: docs/proofs/pate2018.md.
"""

from typing import cast

import numpy as np
from scipy import special

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import noise_scale
from tutelage.accounting import pate2017
from tutelage.events import (
    ConfidenceCheck,
    Event,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
)
from tutelage.exceptions import UnsupportedEventError
from tutelage.votes import VoteHistogram

_ROUNDING = 1e-15  # per order: several times the rounding of the logarithms, so that values err upward
_CHUNK = 2**21  # numbers in one (queries, orders) block: 16 MiB


def total_cost(event: Event, votes: VoteHistogram, orders: FloatArray) -> FloatArray:
    """Return the summed Rényi cost of all queries at each order as the paper accounts for them, in nats; private."""
    step = max(1, _CHUNK // len(orders))
    rows = np.arange(votes.n_queries)
    chunks = (votes.select(rows[start : start + step]) for start in range(0, votes.n_queries, step))
    return sum((costs(event, chunk, orders).sum(axis=0) for chunk in chunks), np.zeros(len(orders)))


def costs(event: Event, votes: VoteHistogram, orders: FloatArray) -> FloatArray:
    """Return the Rényi cost of each query at each order, shape (queries, orders); see `total_cost`."""
    match event:
        case NoisyArgmaxLaplace(scale=scale):
            log_q = pate2017.log_q_continuous(votes, scale)
            return pate2017.log_moments(log_q, scale, orders - 1) / (orders - 1)
        case NoisyArgmaxGaussian(sigma=sigma):
            return answer_costs(log_q_continuous(votes, sigma), sigma, orders)
        case ConfidenceCheck(threshold=threshold, sigma=sigma):
            above = (votes.counts.max(axis=1) - threshold) / sigma
            return check_costs(special.log_ndtr(above), special.log_ndtr(-above), sigma, orders)
        case _:
            raise UnsupportedEventError(f"Scalable PATE 2018 has no bound for the event {type(event).__name__}.")


def answer_costs(log_q: FloatArray, sigma: float, orders: FloatArray) -> FloatArray:
    """Return the smaller of Theorem 6 and λ/σ² for each query and order, in nats; private."""
    sigma = noise_scale(sigma, "sigma", "answer_costs")
    log_q = np.minimum(np.asarray(log_q, dtype=np.float64), 0)[:, None]
    lam = np.asarray(orders, dtype=np.float64)[None, :]
    independent = lam / sigma**2
    # Proposition 10, arXiv:1802.08908v1: μ₂ = σ √log(1/q̃), μ₁ = μ₂ + 1. GNMax is (μ, μ/σ²)-RDP at every μ.
    mu_2 = sigma * np.sqrt(-log_q)
    mu_1 = mu_2 + 1
    epsilon_1, epsilon_2 = mu_1 / sigma**2, mu_2 / sigma**2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Theorem 6's conditions: λ ≤ μ₁ and q̃ ≤ e^{(μ₂−1)ε₂} / (μ₁/(μ₁−1) · μ₂/(μ₂−1))^{μ₂}.
        most = (mu_2 - 1) * epsilon_2 - mu_2 * (np.log(mu_1 / (mu_1 - 1)) + np.log(mu_2 / (mu_2 - 1)))
        valid = (lam <= mu_1) & (mu_2 > 1) & (log_q <= most) & (log_q + epsilon_2 < 0)
        log_kept = np.log1p(-np.exp(log_q))
        log_a = log_kept - np.log1p(-np.exp((log_q + epsilon_2) * (1 - 1 / mu_2)))
        log_b = epsilon_1 - log_q / (mu_1 - 1)
        dependent = np.logaddexp(log_kept + (lam - 1) * log_a, log_q + (lam - 1) * log_b) / (lam - 1)
        dependent += _ROUNDING * lam / (lam - 1)
    dependent = np.where(np.isneginf(log_q), 0, dependent)
    valid |= np.isneginf(log_q)
    return np.where(valid, np.clip(dependent, 0, independent), independent)


def check_costs(log_passes: FloatArray, log_fails: FloatArray, sigma: float, orders: FloatArray) -> FloatArray:
    """Return the cost of each confidence check: Theorem 6 with the less likely outcome as q, at most λ/2σ²."""
    return answer_costs(np.minimum(log_passes, log_fails), sigma * 2**0.5, orders)


def log_q_continuous(votes: VoteHistogram, sigma: float) -> FloatArray:
    """Return log q per query, private, by Proposition 7 for continuous noise: q ≤ ½ Σ_j erfc(Δ_j/2σ)."""
    behind, _ = pate2017.gaps(votes)
    scaled = behind / (2**0.5 * noise_scale(sigma, "sigma", "log_q_continuous"))
    return np.minimum(cast("FloatArray", special.logsumexp(special.log_ndtr(-scaled), axis=1)), 0)
