"""The truth for small cases, by direct enumeration: the oracle of the accounting tests."""

from itertools import product

import numpy as np

from tutelage.accounting.data_independent import rdp
from tutelage.accounting.exact import ExactCosts, _worst_divergences
from tutelage.testing.laws import _argmax_law as label_probabilities
from tutelage.testing.laws import discrete_gaussian_masses, discrete_laplace_masses

__all__ = ["discrete_gaussian_masses", "discrete_laplace_masses", "label_probabilities"]


def histograms(teachers: int, classes: int, *, silent: bool = False) -> np.ndarray:
    """Return every way in which so many teachers vote, all of them or, where some are `silent`, at most so many."""
    counts = np.array(list(product(range(teachers + 1), repeat=classes)))
    return counts[counts.sum(axis=1) <= teachers if silent else counts.sum(axis=1) == teachers]


def neighbors(counts: np.ndarray, *, abstain: bool = False) -> list[np.ndarray]:
    """Return every histogram that one moved ballot makes of `counts`, or one that turns into an abstention."""
    moved = []
    for source in np.flatnonzero(counts):
        for target in range(len(counts) + abstain):
            if target != source:
                other = counts.copy()
                other[source] -= 1
                other[target : target + 1] += 1  # none beyond the last class: it abstains
                moved.append(other)
    return moved


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """Return the most by which a set of outcomes can pass e^ε times its chance in the other world."""
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """Return the Rényi divergence D_order(p‖q) of two finite distributions."""
    return float(np.log(np.sum(p**order * q ** (1 - order))) / (order - 1))


def log_renyi_moment(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """Return log Σ p^order q^(1−order), in the log domain."""
    with np.errstate(divide="ignore"):
        exponents = order * np.log(p) + (1 - order) * np.log(q)
    peak = exponents.max()
    return float(peak + np.log(np.exp(exponents - peak).sum()))


def per_source(
    costs: ExactCosts, orders: np.ndarray, counts: np.ndarray | None = None
) -> np.ndarray:
    """Return the exact cost of moves by the class that the ballot leaves, shape (queries, classes + 1, orders).

    The last is a teacher that abstained. Mechanisms in which class order plays no part sort their classes; `counts` are
    the votes before.
    """
    out = np.full((len(costs._known), costs._known.shape[1] + 1, len(orders)), np.inf)
    for number, (rows, _) in enumerate(costs._chunks):
        laws = costs._law(number)
        found = _worst_divergences(laws, orders)
        # Classes put aside share the last source.
        by_class = np.repeat(found[:, -1:, :], out.shape[1], axis=1)
        np.put_along_axis(by_class, laws.sources[:, :, None], found, axis=1)
        out[rows] = by_class
    found = np.minimum(out, rdp(costs._event, orders).values)[costs._inverse]
    if counts is not None:
        np.put_along_axis(
            found, np.argsort(counts, axis=1)[:, :, None], found[:, :-1].copy(), axis=1
        )
    return found
