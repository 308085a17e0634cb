"""A closed-form replacement for Theorem 3 of PATE 2017: both directions, and smaller.

It needs what Theorem 3 needs, a pure-DP mechanism and the probability q that it does not report the plurality, and is
the exact maximum over all pairs of laws that satisfy both. Proof: reproductions/docs/proofs/two_sided_bound.md.
"""

import numpy as np

from tutelage._internal.typing import FloatArray
from tutelage.accounting import pate_bounds
from tutelage.accounting.data_independent import pure_dp_renyi
from tutelage.accounting.rdp import DEFAULT_ORDERS, RenyiCurve
from tutelage.ballots import VoteHistogram
from tutelage.privacy import PrivateEpsilon

# Per order: several times the rounding of the logarithms, so that values err upward.
_ROUNDING = 1e-15
_CHUNK = 2**20  # numbers in one (queries, orders) block: 8 MiB


def answer_costs(log_q: FloatArray, pure_epsilon: float, orders: FloatArray) -> FloatArray:
    """Return a bound on the Rényi divergence between the votes and any neighbor, in both directions; private."""
    log_q = np.asarray(log_q, dtype=np.float64)[:, None]
    lam = np.asarray(orders, dtype=np.float64)[None, :]
    independent = pure_dp_renyi(pure_epsilon, lam[0])[None, :]
    valid = log_q < -np.logaddexp(0, pure_epsilon)
    safe = np.where(valid, log_q, -np.inf)
    log_kept = np.log1p(-np.exp(safe))
    logs: list[FloatArray] = []
    for sign in (1, -1):
        moved = sign * pure_epsilon
        log_other = np.log1p(-np.exp(safe + moved))
        # F_s(q) = (1−q)^λ/(1−q e^{se})^l + q e^{−sel} and G_s(q) = (1−q e^{se})^λ/(1−q)^l + q e^{seλ}.
        logs.append(np.logaddexp(lam * log_kept - (lam - 1) * log_other, safe - (lam - 1) * moved))
        logs.append(np.logaddexp(lam * log_other - (lam - 1) * log_kept, safe + lam * moved))
    dependent = (np.max(logs, axis=0) + _ROUNDING * lam) / (lam - 1)
    return np.where(valid, np.clip(dependent, 0, independent), independent)


def total_cost(log_q: FloatArray, pure_epsilon: float, orders: FloatArray) -> FloatArray:
    """Return the summed `answer_costs` of all queries at each order, in nats; private."""
    total = np.zeros(len(orders))
    step = max(1, _CHUNK // len(orders))
    for start in range(0, len(log_q), step):
        total += answer_costs(log_q[start : start + step], pure_epsilon, orders).sum(axis=0)
    return total


def log_q_discrete(votes: VoteHistogram, scale: float) -> FloatArray:
    """Return log q per query, private, by an exact union bound for discrete Laplace noise, ties to the lowest index."""
    # behind, wins_ties, needed, log_tail: (queries, classes − 1); returned: (queries,)
    behind, wins_ties = pate_bounds.gaps(votes)
    # Z_j − Z_{j*} must reach this for class j to be reported.
    needed = np.where(wins_ties, behind, behind + 1)
    log_tail = log_tail_of_difference(needed, scale)
    return np.minimum(np.logaddexp.reduce(log_tail, axis=1), 0)


def log_tail_of_difference(needed: FloatArray, scale: float) -> FloatArray:
    """Return log P(D ≥ needed) for the difference D of two discrete Laplace variables and needed ≥ 0.

    With a = e^{−1/b}, P(D = d) = ((1−a)/(1+a))² a^d (d + (1+a²)/(1−a²)) for d ≥ 0; summed from d on, it is
    a^d (d(1−a) + (1+a+2a²)/(1+a)) / (1+a)².
    """
    # needed, returned: (…)
    a = np.exp(-1 / scale)
    rest = -np.expm1(-1 / scale)
    at_zero = (1 + a + 2 * a**2) / (1 + a)
    return -needed / scale + np.log(needed * rest + at_zero) - 2 * np.log1p(a)


def epsilon(votes: VoteHistogram, scale: float, delta: float) -> PrivateEpsilon:
    """Return ε of answering every query once with discrete Laplace noise, in both directions."""
    total = total_cost(log_q_discrete(votes, scale), 2 / scale, DEFAULT_ORDERS)
    found = RenyiCurve(DEFAULT_ORDERS, total).to_epsilon(delta)
    method = "closed form in place of Theorem 3, discrete noise, both directions, CKS 2020 Proposition 12"
    return PrivateEpsilon(found.epsilon, found.order, delta, votes.unit, method)
