"""The accounting of PATE 2017 for Laplace noise and of Scalable PATE 2018 for Gaussian noise, as the papers publish it.

This is the reproduction path of the published figures. Vote-dependent results are private. Following the papers,
Theorem 3 of 2017 and Theorem 6 of 2018 bound the divergence in one direction, from the data at hand to a neighbor.

The probability that the plurality loses to Laplace noise is that of Lemma 4, for the *continuous* noise of the paper.
It is not valid for the *discrete* noise that tutelage draws, in which ties happen and may go against the plurality.
Laplace answers of 2018 are accounted by Theorem 3 of 2017, as the paper's scripts do. Letters, conditions and proofs:
docs/proofs/pate2017.md and docs/proofs/pate2018.md.
"""

from typing import cast

import numpy as np
import scipy

from tutelage._internal.typing import FloatArray, Mask
from tutelage._internal.validation import noise_scale
from tutelage.ballots import VoteHistogram
from tutelage.events import ConfidenceCheck, Event, NoisyArgmaxGaussian, NoisyArgmaxLaplace
from tutelage.exceptions import UnsupportedEventError

MOMENTS_2017: FloatArray = np.arange(1.0, 9.0)  # the l that the paper uses
MOMENTS_2017.setflags(write=False)
METHOD_2017 = (
    "PATE 2017 Theorem 3 and Lemma 4, moments 1..8, continuous Laplace noise, one direction"
)
_CHUNK_2017 = 2**22  # numbers in one (queries, moments) block: 32 MiB
# Per order: several times the rounding of the logarithms, so that values err upward.
_ROUNDING = 1e-15
_CHUNK_2018 = 2**21  # numbers in one (queries, orders) block: 16 MiB


def log_moments(
    log_q: FloatArray,
    scale: float,
    moments: FloatArray,
) -> FloatArray:
    """Return a bound on α(l), in nats, private, per query and moment: the smaller of Theorems 2 and 3."""
    # log_q: (queries,), from here on (queries, 1); moments: (moments,); returned: (queries, moments)
    gamma = 1 / noise_scale(scale, "scale", "log_moments")
    log_q = log_q[:, None]
    independent = 2 * gamma**2 * moments * (moments + 1)  # Theorem 2, arXiv:1610.05755v4
    # Theorem 3's condition (e^{2γ}−1)/(e^{4γ}−1) = 1/(e^{2γ}+1); the script published with the paper tests q < 1/2.
    valid = log_q < -np.logaddexp(0, 2 * gamma)
    safe = np.where(valid, log_q, -np.inf)
    # Theorem 3: log((1−q)((1−q)/(1−e^{2γ}q))^l + q e^{2γl}), in the log domain so that q may underflow.
    log_same = (moments + 1) * np.log1p(-np.exp(safe))
    log_same = log_same - moments * np.log1p(-np.exp(safe + 2 * gamma))
    log_another = safe + 2 * gamma * moments
    dependent = np.logaddexp(log_same, log_another)
    return np.where(
        valid,
        np.clip(dependent, 0, independent),
        independent,
    )


def log_q_laplace(votes: VoteHistogram, scale: float) -> FloatArray:
    """Return log q per query, private, by Lemma 4 for continuous Laplace noise: q ≤ Σ_j (2 + γΔ_j)/(4 e^{γΔ_j})."""
    # behind, scaled, log_each: (queries, classes − 1); returned: (queries,)
    behind, _ = gaps(votes)
    scaled = behind / noise_scale(scale, "scale", "log_q_laplace")
    log_each = np.log((2 + scaled) / 4) - scaled
    return np.minimum(np.logaddexp.reduce(log_each, axis=1), 0)


def total_cost_2017(votes: VoteHistogram, scale: float) -> FloatArray:
    """Return the summed Rényi cost α(l)/l of all queries at l = 1..8 with continuous noise, in nats; private."""
    # log_q: (queries,); total, returned: (moments,)
    log_q = log_q_laplace(votes, scale)
    total = np.zeros(len(MOMENTS_2017))
    step = max(1, _CHUNK_2017 // len(MOMENTS_2017))
    for start in range(0, len(log_q), step):
        chunk = log_q[start : start + step]
        total += log_moments(chunk, scale, MOMENTS_2017).sum(axis=0)
    return total / MOMENTS_2017


def gaps(votes: VoteHistogram) -> tuple[FloatArray, Mask]:
    """Return n_{j*} − n_j for every other class j, and whether j wins a tie against the plurality j*."""
    # counts, others: (queries, classes); winner: (queries, 1); returned: (queries, classes − 1) each
    counts = votes.counts.astype(np.float64)
    winner = counts.argmax(axis=1)[:, None]
    places = np.arange(votes.n_classes)
    others = places != winner
    shape = (votes.n_queries, votes.n_classes - 1)
    behind = counts.max(axis=1, keepdims=True) - counts
    wins_ties = places < winner
    return behind[others].reshape(shape), wins_ties[others].reshape(shape)


def total_cost_2018(
    event: Event,
    votes: VoteHistogram,
    orders: FloatArray,
) -> FloatArray:
    """Return the summed Rényi cost of all queries at each order as the paper accounts for them, in nats; private."""
    # orders, total, returned: (orders,)
    step = max(1, _CHUNK_2018 // len(orders))
    rows = np.arange(votes.n_queries)
    total = np.zeros(len(orders))
    for start in range(0, votes.n_queries, step):
        chunk = votes.select(rows[start : start + step])
        total += costs_2018(event, chunk, orders).sum(axis=0)
    return total


def costs_2018(
    event: Event,
    votes: VoteHistogram,
    orders: FloatArray,
) -> FloatArray:
    """Return the Rényi cost of each query at each order, shape (queries, orders); see `total_cost_2018`."""
    match event:
        case NoisyArgmaxLaplace(scale=scale):
            log_q = log_q_laplace(votes, scale)
            moments = orders - 1
            return log_moments(log_q, scale, moments) / moments
        case NoisyArgmaxGaussian(sigma=sigma):
            return answer_costs(log_q_gaussian(votes, sigma), sigma, orders)
        case ConfidenceCheck(threshold=threshold, sigma=sigma):
            above = (votes.counts.max(axis=1) - threshold) / sigma
            log_passes = scipy.special.log_ndtr(above)
            log_fails = scipy.special.log_ndtr(-above)
            return check_costs(log_passes, log_fails, sigma, orders)
        case _:
            raise UnsupportedEventError(
                f"Scalable PATE 2018 has no bound for the event {type(event).__name__}."
            )


def answer_costs(
    log_q: FloatArray,
    sigma: float,
    orders: FloatArray,
) -> FloatArray:
    """Return the smaller of Theorem 6 and λ/σ² for each query and order, in nats; private."""
    # log_q: (queries,), from here on (queries, 1) like all that depends on it alone; orders: (orders,);
    # returned: (queries, orders)
    sigma = noise_scale(sigma, "sigma", "answer_costs")
    log_q = np.minimum(log_q, 0)[:, None]
    independent = orders / sigma**2
    # Proposition 10, arXiv:1802.08908v1: μ₂ = σ √log(1/q̃), μ₁ = μ₂ + 1. GNMax is (μ, μ/σ²)-RDP at every μ.
    mu_2 = sigma * np.sqrt(-log_q)
    mu_1 = mu_2 + 1
    epsilon_1 = mu_1 / sigma**2
    epsilon_2 = mu_2 / sigma**2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Theorem 6's conditions: λ ≤ μ₁ and q̃ ≤ e^{(μ₂−1)ε₂} / (μ₁/(μ₁−1) · μ₂/(μ₂−1))^{μ₂}.
        log_base = np.log(mu_1 / (mu_1 - 1)) + np.log(mu_2 / (mu_2 - 1))
        most = (mu_2 - 1) * epsilon_2 - mu_2 * log_base
        valid = (orders <= mu_1) & (mu_2 > 1)
        valid = valid & (log_q <= most) & (log_q + epsilon_2 < 0)

        log_same = np.log1p(-np.exp(log_q))
        log_a = log_same - np.log1p(-np.exp((log_q + epsilon_2) * (1 - 1 / mu_2)))
        log_b = epsilon_1 - log_q / (mu_1 - 1)
        above = orders - 1
        log_moment = np.logaddexp(log_same + above * log_a, log_q + above * log_b)
        dependent = log_moment / above
        dependent += _ROUNDING * orders / above
    is_certain = np.isneginf(log_q)
    dependent = np.where(is_certain, 0, dependent)
    return np.where(
        valid | is_certain,
        np.clip(dependent, 0, independent),
        independent,
    )


def check_costs(
    log_passes: FloatArray,
    log_fails: FloatArray,
    sigma: float,
    orders: FloatArray,
) -> FloatArray:
    """Return the cost of each confidence check: Theorem 6 with the less likely outcome as q, at most λ/2σ²."""
    # log_passes, log_fails: (queries,); orders: (orders,); returned: (queries, orders)
    log_q = np.minimum(log_passes, log_fails)
    return answer_costs(log_q, sigma * 2**0.5, orders)


def log_q_gaussian(votes: VoteHistogram, sigma: float) -> FloatArray:
    """Return log q per query, private, by Proposition 7 for continuous noise: q ≤ ½ Σ_j erfc(Δ_j/2σ)."""
    # behind, scaled: (queries, classes − 1); returned: (queries,)
    behind, _ = gaps(votes)
    scaled = behind / (2**0.5 * noise_scale(sigma, "sigma", "log_q_gaussian"))
    log_sum = cast("FloatArray", scipy.special.logsumexp(scipy.special.log_ndtr(-scaled), axis=1))
    return np.minimum(log_sum, 0)
