"""The truth for small cases, by direct enumeration: the oracle of the accounting tests."""

import numpy as np

from tutelage.testing.laws import argmax_law as label_probabilities
from tutelage.testing.laws import discrete_gaussian_masses, discrete_laplace_masses

__all__ = [
    "discrete_gaussian_masses",
    "discrete_laplace_masses",
    "label_probabilities",
    "log_renyi_moment",
    "neighbors",
    "renyi",
]


def neighbors(counts: np.ndarray, *, abstain: bool = False) -> list[np.ndarray]:
    """Return every histogram that one moved ballot makes of `counts`, or one that turns into an abstention."""
    moved = []
    for source in np.flatnonzero(counts):
        for target in range(len(counts)):
            if target != source:
                other = counts.copy()
                other[source] -= 1
                other[target] += 1
                moved.append(other)
        if abstain:
            other = counts.copy()
            other[source] -= 1
            moved.append(other)
    return moved


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """Return the Rényi divergence D_order(p‖q) of two finite distributions."""
    return float(np.log(np.sum(p**order * q ** (1 - order))) / (order - 1))


def log_renyi_moment(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """Return log Σ p^order q^(1−order), in the log domain."""
    with np.errstate(divide="ignore"):
        exponents = order * np.log(p) + (1 - order) * np.log(q)
    peak = exponents.max()
    return float(peak + np.log(np.exp(exponents - peak).sum()))
