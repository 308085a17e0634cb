"""Cost of noise that is summed from shares of several owners: how far the sum is from one discrete Gaussian.

Their chances differ by a factor e^τ at most, so a proved cost of the one, with a small surcharge, is one of the other.
Proofs: docs/proofs/summed_noise.md.
"""

from math import exp, inf, nextafter, pi

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import integer_at_least, noise_scale
from tutelage.events import Event, SummedNoise

_UPWARD = 4.001  # for 4, covers the higher terms of the series and the rounding of the exponentials
LEAST_SIGMA = 1.0  # of one share: below it the higher terms are not covered


def log_ratio(sigma: float, shares: int) -> float:
    """Return a bound τ on |log P(z)/W(z)| for all integers z; P is the law of the sum, W one discrete Gaussian.

    Kairouz, Liu and Steinke 2021, arXiv:2102.06387, bound the same ratio by a sum of the same exponentials.
    """
    sigma = noise_scale(sigma, "sigma", "log_ratio")
    shares = integer_at_least(shares, 1, "shares", "log_ratio")
    if shares == 1:
        return 0.0
    if sigma < LEAST_SIGMA:
        return inf
    return _UPWARD * (exp(-((pi * sigma) ** 2)) + (shares - 2) * exp(-4 * (pi * sigma) ** 2 / 3))


def log_distance(event: Event) -> float:
    """Return how far one release is at most from the same with its noise drawn whole, as a log ratio of chances."""
    if not isinstance(event, SummedNoise):
        return 0.0
    return event.variables * log_ratio(event.sigma_of_share, event.shares)


def renyi_surcharge(distance: float, orders: FloatArray) -> FloatArray:
    """Return what must be added to a Rényi divergence where both laws move by e^±distance."""
    return distance * (2 * orders - 1) / (orders - 1)


def moved_delta(delta: float, distance: float) -> float:
    """Return the δ at which to compute ε with noise drawn whole, so that `moved_epsilon` of it holds at `delta`."""
    return nextafter(delta * exp(-distance), 0) if distance else delta


def moved_epsilon(epsilon: float, distance: float) -> float:
    """Return the ε that holds for summed noise, from one at `moved_delta` for noise drawn whole."""
    return nextafter(epsilon + 2 * distance, inf) if distance else epsilon
