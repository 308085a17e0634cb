"""The truth for small cases, by direct enumeration: the oracle of the accounting tests."""

import numpy as np


def discrete_laplace_masses(scale: float, reach: int) -> np.ndarray:
    """Return P(k) for k = −reach..reach."""
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return weights * np.tanh(1 / (2 * scale))


def discrete_gaussian_masses(sigma: float, reach: int) -> np.ndarray:
    """Return P(k) for k = −reach..reach."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


def label_probabilities(counts: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Return P(argmax_j (n_j + Z_j) = j) with ties to the lowest index, from the masses of Z on −reach..reach."""
    reach = len(masses) // 2
    values = np.arange(counts.min() - reach, counts.max() + reach + 1)

    def at(count: int) -> np.ndarray:
        index = values - count + reach
        inside = (index >= 0) & (index < len(masses))
        return np.where(inside, masses[np.clip(index, 0, len(masses) - 1)], 0)

    mass = np.stack([at(count) for count in counts])
    below = np.cumsum(mass, axis=1) - mass
    up_to = np.cumsum(mass, axis=1)
    probabilities = [
        np.sum(mass[j] * np.prod(below[:j], axis=0) * np.prod(up_to[j + 1 :], axis=0)) for j in range(len(counts))
    ]
    return np.array(probabilities)


def neighbours(counts: np.ndarray, *, abstain: bool = False) -> list[np.ndarray]:
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
