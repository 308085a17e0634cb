"""Rényi divergences of a law and its neighbours, in both directions, rounded upward.

D_λ(P‖Q) = log(1 + Σ_j Q_j φ_λ(log P_j/Q_j))/(λ−1) with φ_λ(t) = e^{λt} − 1 − λ(e^t − 1) ≥ 0: no term is negative, so
nothing cancels, and φ grows away from 0, so a log ratio moved away from 0 by its error bound gives an upper bound.
Proof and error budget: docs/proofs/exact.md, sections 2 and 4.
"""

from dataclasses import dataclass
from typing import cast, final

import numpy as np
from scipy import special

from tutelage._typing import FloatArray
from tutelage.accounting.winner_laws import MoveLaws, Remainder

_LARGEST_EXPONENT = 500.0  # above it sums are taken in the log domain
_LEAST_LOG_MASS = -700.0  # a smaller mass is taken for e^−700, which adds at most e^−200 below that exponent
_UPWARD = 1 + 1e-11  # covers the rounding of masses, powers and sums
_EPS = 2.0**-52
_EXPONENT_ROUNDING = 16 * _EPS  # relative, of log masses and of order × ratio
_DOUBT = 1e-9  # a smaller error that changes a sign moves φ by less than its rounding


def worst_divergences(laws: MoveLaws, orders: FloatArray) -> FloatArray:
    """Return, per query, source and order, the largest divergence over targets and both directions, in nats.

    Parameters
    ----------
    laws : MoveLaws
        Laws of a chunk of histograms.
    orders : array of shape (orders,)
        Rényi orders λ > 1.

    Returns
    -------
    array of shape (queries, sources, orders)
        Never below the truth; infinite where double precision cannot follow; 0 where no move exists.
    """
    log_mass, away, reachable = _away_from_zero(laws)
    forward, backward = _Terms.of(log_mass, away), _Terms.of(log_mass + away, -away)
    worst = np.empty((*laws.possible.shape[:2], len(orders)))
    for column, order in enumerate(orders.tolist()):
        there = forward.log_moment(order, _remainder_from_here(laws.remainder, order))
        back = backward.log_moment(order, _remainder_to_here(laws.remainder, order))
        larger = np.where(reachable, np.maximum(there, back) / (order - 1), np.inf)
        worst[:, :, column] = np.where(laws.possible, larger, 0).max(axis=2)
    return worst


def _away_from_zero(laws: MoveLaws) -> tuple[FloatArray, FloatArray, np.ndarray]:
    """Return log masses, log ratios moved away from 0 by their error bounds, and which moves could be followed."""
    slack = np.copysign(laws.slack, laws.log_ratio)
    away, log_mass = laws.log_ratio + slack, laws.log_mass
    reachable = np.asarray(np.isfinite(away).all(axis=-1))
    away[~reachable] = 0
    in_doubt = (laws.slack > np.abs(laws.log_ratio)) & (laws.slack > _DOUBT) & np.expand_dims(reachable, -1)
    if in_doubt.any():  # the ratio may lie on the other side of 0: count that end too
        other_end = np.subtract(laws.log_ratio, slack, out=np.zeros_like(slack), where=in_doubt)
        away = np.concatenate([away, other_end], axis=-1)
        both = np.broadcast_to(log_mass, slack.shape)
        log_mass = np.concatenate([both, np.where(in_doubt, both, -np.inf)], axis=-1)
    return log_mass, away, reachable


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """What the moments of one direction share over all orders; the last axis holds outcomes."""

    log_mass: FloatArray
    log_ratio: FloatArray
    mass: FloatArray
    linear: FloatArray  # e^t − 1
    rounding: FloatArray  # per order: the rounding of the two terms that φ is the difference of
    largest: float

    @classmethod
    def of(cls, log_mass: FloatArray, log_ratio: FloatArray) -> "_Terms":
        linear = np.expm1(np.minimum(log_ratio, _LARGEST_EXPONENT))
        rounding = 4 * _EPS * np.abs(linear)
        largest = float(np.max(log_ratio, initial=0))
        mass = np.exp(np.maximum(log_mass, _LEAST_LOG_MASS))
        return cls(log_mass, log_ratio, mass, linear, rounding, largest)

    def log_moment(self, order: float, log_remainder: FloatArray | None) -> FloatArray:
        """Return log(1 + Σ_j mass_j φ(log_ratio_j) + remainder), an upper bound on log E[ratio^order]."""
        exponents = order * self.log_ratio
        linear, rounding = self.linear, self.rounding
        some_huge = order * self.largest > _LARGEST_EXPONENT
        huge = exponents > _LARGEST_EXPONENT if some_huge else np.zeros(0, dtype=bool)
        if some_huge:
            exponents[huge] = 0
            linear, rounding = np.where(huge, 0, linear), np.where(huge, 0, rounding)
        terms = np.expm1(exponents, out=exponents)
        terms -= order * linear
        np.maximum(terms, 0, out=terms)
        terms += order * rounding
        terms *= self.mass
        total = np.log1p(terms.sum(axis=-1) * _UPWARD)
        if some_huge:  # φ(t) ≤ e^{λt} for t ≥ 0
            upward = 1 + _EXPONENT_ROUNDING
            in_logs = np.where(huge, self.log_mass / upward + order * upward * self.log_ratio, -np.inf)
            total = _add_in_logs(total, _log_sum_exp(in_logs, axis=-1))
        if log_remainder is not None:
            total = _add_in_logs(total, log_remainder[:, None, None])
        return total


def _log_sum_exp(log_terms: FloatArray, axis: int) -> FloatArray:
    return cast("FloatArray", special.logsumexp(log_terms, axis=axis))


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
    return _log_sum_exp(remainder.log_mass + grown, axis=1)


def _remainder_to_here(remainder: Remainder | None, order: float) -> FloatArray | None:
    """Return log Σ_v mass(v) (less(v)^{1−λ} + (λ − 1) more(v)) ≥ log Σ_j P'_j φ(log P_j/P'_j), likewise."""
    if remainder is None:
        return None
    grown = np.logaddexp((1 - order) * remainder.log_less, np.log(order - 1) + remainder.log_more)
    return _log_sum_exp(remainder.log_mass + grown, axis=1)
