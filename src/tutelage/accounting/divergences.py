"""Rényi divergences of a law and its neighbours, in both directions, rounded upward.

D_λ(P‖Q) = log(1 + Σ_j Q_j φ_λ(log P_j/Q_j))/(λ−1) with φ_λ(t) = e^{λt} − 1 − λ(e^t − 1) ≥ 0: no term is negative, so
nothing cancels, and φ grows away from 0, so a log ratio moved away from 0 by its error bound gives an upper bound.
Proof and error budget: docs/proofs/exact.md, sections 2 and 4.
"""

import numpy as np
from scipy import special

from tutelage._typing import FloatArray
from tutelage.accounting.winner_laws import MoveLaws, Remainder

_LARGEST_EXPONENT = 500.0  # above it sums are taken in the log domain
_UPWARD = 1 + 1e-11  # covers the rounding of masses, powers and sums
_EPS = 2.0**-52
_DOUBT = 1e-9  # a smaller error that changes a sign moves φ by less than its rounding


def worst_divergence(laws: MoveLaws, order: float) -> FloatArray:
    """Return, per query and source, the largest divergence over targets and both directions, in nats.

    Parameters
    ----------
    laws : MoveLaws
        Laws of a chunk of histograms.
    order : float
        Rényi order λ > 1.

    Returns
    -------
    array of shape (queries, sources)
        Never below the truth; infinite where double precision cannot follow; 0 where no move exists.
    """
    slack = np.copysign(laws.slack, laws.log_ratio)
    away, log_mass = laws.log_ratio + slack, laws.log_mass
    reachable = np.isfinite(away).all(axis=-1)
    away[~reachable] = 0
    in_doubt = (laws.slack > np.abs(laws.log_ratio)) & (laws.slack > _DOUBT) & np.expand_dims(reachable, -1)
    if in_doubt.any():  # the ratio may lie on the other side of 0: count that end too
        other_end = np.where(in_doubt, laws.log_ratio - slack, 0)
        away = np.concatenate([away, other_end], axis=-1)
        log_mass = np.concatenate([log_mass + 0 * slack, np.where(in_doubt, log_mass, -np.inf)], axis=-1)
    with np.errstate(invalid="ignore"):
        forward = _log_moment(log_mass, away, order, _remainder_from_here(laws.remainder, order))
        backward = _log_moment(log_mass + away, -away, order, _remainder_to_here(laws.remainder, order))
    worst = np.maximum(forward, backward) / (order - 1)
    worst = np.where(reachable, worst, np.inf)
    return np.where(laws.possible, worst, 0).max(axis=2)


def _log_moment(
    log_mass: FloatArray, log_ratio: FloatArray, order: float, log_remainder: FloatArray | None
) -> FloatArray:
    """Return log(1 + Σ_j mass_j φ(log_ratio_j) + remainder), an upper bound on log E[ratio^order]."""
    exponents = order * log_ratio
    huge = exponents > _LARGEST_EXPONENT
    some_huge = bool(huge.any())
    if some_huge:
        exponents[huge] = 0
    terms = np.expm1(exponents, out=exponents)
    linear = np.expm1(np.minimum(log_ratio, _LARGEST_EXPONENT))
    if some_huge:
        linear[huge] = 0
    terms -= order * linear
    np.maximum(terms, 0, out=terms)
    terms += 4 * _EPS * order * np.abs(linear)  # the rounding of the two terms that were subtracted
    terms *= np.exp(log_mass)
    total = np.log1p(terms.sum(axis=-1) * _UPWARD)
    if some_huge:  # φ(t) ≤ e^{λt} for t ≥ 0
        in_logs = np.where(huge, log_mass + order * log_ratio, -np.inf)
        total = _add_in_logs(total, special.logsumexp(in_logs, axis=-1))
    if log_remainder is not None:
        total = _add_in_logs(total, log_remainder[:, None, None])
    return total


def _add_in_logs(log_one: FloatArray, log_other: FloatArray) -> FloatArray:
    """Return log(e^one + e^other), rounded upward; exact digits are kept where `other` is far below."""
    share = log_other - log_one
    grown = np.where(share < 0, log_one + np.log1p(np.exp(np.minimum(share, 0))), np.logaddexp(log_one, log_other))
    return grown + np.where(share > -40, 1e-11 * (1 + np.abs(grown)), 0) * np.minimum(1, np.exp(np.minimum(share, 0)))


def _remainder_from_here(remainder: Remainder | None, order: float) -> FloatArray | None:
    """Return log Σ_v mass(v) (more(v)^λ + λ − 1) ≥ log Σ_j P_j φ(log P'_j/P_j) over the outcomes put aside."""
    if remainder is None:
        return None
    grown = np.logaddexp(order * remainder.log_more, np.log(order - 1))
    return special.logsumexp(remainder.log_mass + grown, axis=1)


def _remainder_to_here(remainder: Remainder | None, order: float) -> FloatArray | None:
    """Return log Σ_v mass(v) (less(v)^{1−λ} + (λ − 1) more(v)) ≥ log Σ_j P'_j φ(log P_j/P'_j), likewise."""
    if remainder is None:
        return None
    grown = np.logaddexp((1 - order) * remainder.log_less, np.log(order - 1) + remainder.log_more)
    return special.logsumexp(remainder.log_mass + grown, axis=1)
