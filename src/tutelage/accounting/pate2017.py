"""The accounting of PATE 2017 for Laplace noise: Theorem 2 for all votes, Theorem 3 with Lemma 4 for the votes at hand.

This is the reproduction path of the published figures. Vote-dependent results are private. Following the paper,
Theorem 3 bounds the divergence in one direction, from the data at hand to a neighbor.

Two probabilities that the plurality loses are at hand: Lemma 4, for the *continuous* noise of the paper, and an exact
union bound for the *discrete* noise that tutelage draws, in which ties happen and may go against the plurality. For
discrete noise Lemma 4 is not valid. Proof and letters: docs/proofs/pate2017.md.
"""

from collections.abc import Callable

import numpy as np

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import noise_scale, probability
from tutelage.accounting.rdp import DEFAULT_ORDERS, Conversion, RenyiCurve, cks2020, classic
from tutelage.privacy import PrivateEpsilon
from tutelage.votes import VoteHistogram

MOMENTS_2017: FloatArray = np.arange(1.0, 9.0)  # the l that the paper uses
MOMENTS_2017.setflags(write=False)
METHOD = "PATE 2017 Theorem 3 and Lemma 4, moments 1..8, continuous Laplace noise, one direction"
_CHUNK = 2**22  # numbers in one (queries, moments) block: 32 MiB

LogLosingProbability = Callable[[VoteHistogram, float], FloatArray]


def published_epsilon(votes: VoteHistogram, scale: float, delta: float) -> PrivateEpsilon:
    """Return ε exactly as PATE 2017 computes it: continuous noise, moments l = 1..8, Theorem 1's tail bound."""
    probability(delta, "delta", "published_epsilon")
    return _epsilon(votes, scale, delta, log_q_continuous, MOMENTS_2017, classic, METHOD)


def discrete_epsilon(votes: VoteHistogram, scale: float, delta: float) -> PrivateEpsilon:
    """Return ε by Theorem 3 for the discrete noise of `LNMax`, ties counted, over fine orders."""
    probability(delta, "delta", "discrete_epsilon")
    method = "PATE 2017 Theorem 3, discrete Laplace noise, one direction, conversion of CKS 2020 Proposition 12"
    return _epsilon(votes, scale, delta, log_q_discrete, DEFAULT_ORDERS - 1, cks2020, method)


def log_moments(log_q: FloatArray, scale: float, moments: FloatArray) -> FloatArray:
    """Return a bound on α(l), in nats, private, per query and moment: the smaller of Theorems 2 and 3."""
    gamma = 1 / noise_scale(scale, "scale", "log_moments")
    log_q = np.asarray(log_q, dtype=np.float64)[:, None]
    moments = np.asarray(moments, dtype=np.float64)[None, :]
    independent = 2 * gamma**2 * moments * (moments + 1)  # Theorem 2, arXiv:1610.05755v4
    # Theorem 3's condition (e^{2γ}−1)/(e^{4γ}−1) = 1/(e^{2γ}+1); the script published with the paper tests q < 1/2.
    valid = log_q < -np.logaddexp(0, 2 * gamma)
    safe = np.where(valid, log_q, -np.inf)
    # Theorem 3: log((1−q)((1−q)/(1−e^{2γ}q))^l + q e^{2γl}), in the log domain so that q may underflow.
    kept = (moments + 1) * np.log1p(-np.exp(safe)) - moments * np.log1p(-np.exp(safe + 2 * gamma))
    dependent = np.logaddexp(kept, safe + 2 * gamma * moments)
    return np.where(valid, np.clip(dependent, 0, independent), independent)


def log_q_continuous(votes: VoteHistogram, scale: float) -> FloatArray:
    """Return log q per query, private, by Lemma 4 for continuous Laplace noise: q ≤ Σ_j (2 + γΔ_j)/(4 e^{γΔ_j})."""
    behind, _ = gaps(votes)
    scaled = behind / noise_scale(scale, "scale", "log_q_continuous")
    return np.minimum(np.logaddexp.reduce(np.log((2 + scaled) / 4) - scaled, axis=1), 0)


def log_q_discrete(votes: VoteHistogram, scale: float) -> FloatArray:
    """Return log q per query, private, by an exact union bound for discrete Laplace noise, ties to the lowest index."""
    behind, wins_ties = gaps(votes)
    needed = np.where(wins_ties, behind, behind + 1)  # what Z_j − Z_{j*} must reach for class j to be reported
    log_tail = log_tail_of_difference(needed, noise_scale(scale, "scale", "log_q_discrete"))
    return np.minimum(np.logaddexp.reduce(log_tail, axis=1), 0)


def _epsilon(
    votes: VoteHistogram,
    scale: float,
    delta: float,
    log_q_of: LogLosingProbability,
    moments: FloatArray,
    conversion: Conversion,
    method: str,
) -> PrivateEpsilon:
    total = total_cost(votes, scale, log_q_of, moments)
    best = RenyiCurve(moments + 1, total).to_epsilon(delta, conversion)
    return PrivateEpsilon(best.epsilon, best.order, delta, votes.unit, method)


def total_cost(votes: VoteHistogram, scale: float, log_q_of: LogLosingProbability, moments: FloatArray) -> FloatArray:
    """Return the summed Rényi cost α(l)/l of all queries at each order l + 1, in nats; private."""
    log_q = log_q_of(votes, scale)
    total = np.zeros(len(moments))
    step = max(1, _CHUNK // len(moments))
    for start in range(0, len(log_q), step):
        total += log_moments(log_q[start : start + step], scale, moments).sum(axis=0)
    return total / moments


def gaps(votes: VoteHistogram) -> tuple[FloatArray, np.ndarray]:
    """Return n_{j*} − n_j for every other class j, and whether j wins a tie against the plurality j*."""
    counts = votes.counts
    winner = counts.argmax(axis=1)[:, None]
    others = np.arange(votes.n_classes)[None, :] != winner
    shape = (votes.n_queries, votes.n_classes - 1)
    behind = (np.take_along_axis(counts, winner, axis=1) - counts)[others].reshape(shape)
    wins_ties = (np.arange(votes.n_classes)[None, :] < winner)[others].reshape(shape)
    return behind.astype(np.float64), wins_ties


def log_tail_of_difference(needed: FloatArray, scale: float) -> FloatArray:
    """Return log P(D ≥ needed) for the difference D of two discrete Laplace variables and needed ≥ 0.

    With a = e^{−1/b}, P(D = d) = ((1−a)/(1+a))² a^d (d + (1+a²)/(1−a²)) for d ≥ 0; summed from d on, it is
    a^d (d(1−a) + (1+a+2a²)/(1+a)) / (1+a)².
    """
    a, rest = np.exp(-1 / scale), -np.expm1(-1 / scale)
    return -needed / scale + np.log(needed * rest + (1 + a + 2 * a**2) / (1 + a)) - 2 * np.log1p(a)
