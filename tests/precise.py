"""The cost of one move to fifty digits: the oracle behind the oracle."""

from itertools import permutations

import mpmath
from mpmath import mp, mpf

_CACHE: dict = {}


def precise_cost(
    kind: str, counts: list[int], scale: float, order: float, source: int, target: int
) -> float:
    """Return the larger of the two Rényi divergences between `counts` and its neighbor; target m is abstention."""
    moved = list(counts)
    moved[source] -= 1
    if target < len(counts):
        moved[target] += 1
    with mp.workdps(50):
        law = LAWS[kind]
        p, q, lam = law(counts, mpf(scale)), law(moved, mpf(scale)), mpf(order)
        forward = mpmath.log(sum(a**lam * b ** (1 - lam) for a, b in zip(p, q, strict=True)))
        backward = mpmath.log(sum(b**lam * a ** (1 - lam) for a, b in zip(p, q, strict=True)))
        return float(max(forward, backward) / (lam - 1))


def _discrete(mass, counts):
    """Sum the mass of each winner over the integers, ties to the lowest index."""
    reach = len(mass) // 2
    below = [mpf(0)]
    for weight in mass:
        below.append(below[-1] + weight)
    total = below[-1]

    def cumulative(x: int):
        return below[min(max(x + reach + 1, 0), len(mass))] / total

    law = []
    for j, own in enumerate(counts):
        share = mpf(0)
        for z, weight in enumerate(mass):
            value = own + z - reach
            term = weight / total
            for i, other in enumerate(counts):
                if i != j:
                    term *= cumulative(value - other - (i < j))
            share += term
        law.append(share)
    return law


def _noise(kind: str, scale, most: int):
    """Return unnormalised masses, followed far enough for a class without votes to win against `most`."""
    key = kind, scale, most
    if key not in _CACHE:
        _CACHE.clear()
        if kind == "laplace":
            reach = int(75 * scale) + most + 3
            _CACHE[key] = [mpmath.exp(-abs(k) / scale) for k in range(-reach, reach + 1)]
        else:
            reach = int(13 * scale) + most + 8
            _CACHE[key] = [
                mpmath.exp(-(mpf(k) ** 2) / (2 * scale**2)) for k in range(-reach, reach + 1)
            ]
    return _CACHE[key]


def _softmax(counts, scale):
    odds = [mpmath.exp(n / scale) for n in counts]
    return [value / sum(odds) for value in odds]


def _permute_and_flip(counts, scale):
    heads = [mpmath.exp((n - max(counts)) / scale) for n in counts]
    law = [mpf(0)] * len(counts)
    orders = list(permutations(range(len(counts))))
    for order in orders:
        reached = mpf(1)
        for label in order:
            law[label] += reached * heads[label] / len(orders)
            reached *= 1 - heads[label]
    return law


LAWS = {
    "laplace": lambda counts, scale: _discrete(_noise("laplace", scale, max(counts)), counts),
    "gaussian": lambda counts, scale: _discrete(_noise("gaussian", scale, max(counts)), counts),
    "exponential": _softmax,
    "permute and flip": _permute_and_flip,
}
