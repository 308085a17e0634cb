"""Cost of one entity's own perturbed vote: the law of its privacy loss at the worst pair of votes.

That pair dominates every other pair of votes, so its divergence is the largest and its law composes, even if
votes depend on earlier outcomes. Proofs: docs/proofs/local.md.
"""

from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import FloatArray
from tutelage.accounting.composition import lattice_composition
from tutelage.events import RandomizedResponse, TruncatedGeometricResponse

_ROUNDING = 1e-13  # per order: many times the rounding of the logarithms of chances, so that values err upward

PureResponse = RandomizedResponse | TruncatedGeometricResponse


class LossLaw(NamedTuple):
    """Privacy loss of one response: top − i·step with probability exp(log_mass[i]); −inf where it does not occur."""

    log_mass: FloatArray
    top: float
    step: float


def loss_law(event: PureResponse) -> LossLaw:
    """Return the law of the privacy loss at the worst pair of votes."""
    match event:
        case RandomizedResponse(epsilon=epsilon, classes=classes):
            # Any two votes: kept, one of the classes that are neither vote, or the other vote.
            keep = -np.log1p((classes - 1) * np.exp(-epsilon))
            neither = np.log(classes - 2) + keep - epsilon if classes > 2 else -np.inf
            return LossLaw(np.array([keep, neither, keep - epsilon]), epsilon, epsilon)
        case TruncatedGeometricResponse(scale=scale, classes=classes):
            # The first class against the last.
            log_mass = -np.arange(classes) / scale - np.log1p(np.exp(-1 / scale))
            log_mass[1:-1] += np.log(-np.expm1(-1 / scale))
            return LossLaw(log_mass, (classes - 1) / scale, 2 / scale)


def pure_epsilon(event: PureResponse) -> float:
    """Return the largest privacy loss of one response, in nats."""
    return loss_law(event).top


def response_rdp(event: PureResponse, orders: FloatArray) -> FloatArray:
    """Return the largest Rényi divergence between the responses to any two votes, rounded upward."""
    law = loss_law(event)
    losses = law.top - law.step * np.arange(len(law.log_mass))
    log_moments = np.logaddexp.reduce(law.log_mass[:, None] + losses[:, None] * (orders - 1), axis=0)
    return np.maximum(log_moments + _ROUNDING * orders, 0) / (orders - 1)


def response_composition(event: PureResponse, count: int, delta: float) -> float:
    """Return the exact ε of `count` adaptive responses of one entity, rounded upward."""
    law = loss_law(event)
    return lattice_composition(np.exp(law.log_mass), law.top, law.step, count, delta)
