"""Exact (ε, δ) of many answers of one mechanism, from the distribution of their summed privacy loss.

All values are rounded upward: an error budget is added to δ before ε is searched, and the search ends from above.
Proofs: docs/proofs/data_independent.md.
"""

from collections.abc import Callable, Iterable
from math import exp, fsum, inf, log, nextafter, pi, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import integer_at_least, noise_scale
from tutelage.events import Event, SummedNoise

_MOST_TERMS = 2 * 10**6  # releases; more of them fall back to the Rényi curve
# Relative: far above the error of binomial masses from log gamma functions, moves ε by about 1e-7.
_SLACK = 1e-6
_LEAST_DELTA = 1e-300  # smaller binomial masses lose digits
_LEAST_MU = 1e-8  # a smaller one is lost where two normal tails are subtracted
_TAIL_ERROR = 1e-12  # relative: far above the rounding of a normal tail
# How far rounded continuous noise may be from discrete noise, as a log ratio, for every 1 of μ².
_APART = 1e-10
_SERIES = 4.001  # for 4, covers the higher terms of the theta function
# Least σ of a share of summed noise: below it the higher terms of the series are not covered.
_LEAST_SIGMA_OF_SHARE = 1.0
_UPWARD = 1 + 1e-9  # covers the rounding of a few operations on variances
_MOST_LOSSES = 2**15  # of a sum on a lattice; more of them fall back to a looser cost
_LEAST_LATTICE_DELTA = 1e-280  # products of masses underflow far below it
_FFT_ERROR = 1e-13  # absolute, on δ: far above the rounding of an inverse FFT of values ≤ 1
_FFT_ERROR_PER_SHIFT = 1e-14  # the same, from normalizing log E[cos θX], which only σ < 2 needs
# The sum is followed to 12 standard deviations, beyond which its mass is below 1e-30.
_FFT_REACH = 12.0
_FFT_MOST = 2**25  # points; a wider sum falls back to the Rényi curve


def pure_dp_composition(epsilon: float, count: int, delta: float) -> float:
    """Return the exact optimal ε of `count` adaptive releases with pure loss `epsilon` each, rounded upward."""
    # losers, log_ways, mass, losses: (count + 1,)
    count = integer_at_least(count, 0, "count", "pure_dp_composition")  # NumPy's would overflow
    if count > _MOST_TERMS or delta < _LEAST_DELTA:
        return np.inf
    losers = np.arange(count + 1)
    log_ways = (
        scipy.special.gammaln(count + 1)
        - scipy.special.gammaln(losers + 1)
        - scipy.special.gammaln(count - losers + 1)
    )
    log_lie = scipy.special.log_expit(-epsilon)
    log_truth = scipy.special.log_expit(epsilon)
    log_mass = log_ways + losers * log_lie + (count - losers) * log_truth
    mass = np.exp(log_mass) * (1 + _SLACK)
    losses = (count - 2 * losers) * epsilon
    # Kairouz, Oh and Viswanath 2015, arXiv:1311.0776v4, Theorem 3.3: `count` randomized responses.
    return _epsilon_of_losses(losses, mass, delta, upper=count * epsilon)


def lattice_composition(
    masses: FloatArray,
    top: float,
    step: float,
    count: int,
    delta: float,
) -> float:
    """Return the exact ε of `count` adaptive releases, of dominating loss top − i·step with probability masses[i]."""
    # masses: (losses,); mass, losses: (count·(losses − 1) + 1,)
    count = integer_at_least(count, 0, "count", "lattice_composition")
    if count * (len(masses) - 1) > _MOST_LOSSES or delta < _LEAST_LATTICE_DELTA:
        return np.inf
    power = np.ones(1)  # masses of the sum; only positive numbers are added, so digits stay
    for bit in bin(count)[2:]:
        power = np.convolve(power, power)
        if bit == "1":
            power = np.convolve(power, masses)
    mass = power * (1 + _SLACK)
    losses = count * top - step * np.arange(len(mass))
    return _epsilon_of_losses(losses, mass, delta, upper=count * top)


def gaussian_composition(sigma: float, count: int, delta: float) -> float:
    """Return the exact ε of `count` answers with discrete Gaussian noise on every count, rounded upward.

    One moved ballot shifts two counts by one, so the loss of all answers together is that of 2·count unit shifts, a
    function of the sum S of 2·count discrete Gaussians; its distribution comes from the characteristic function.
    """
    # mass, sums, losses: (points,)
    sigma = noise_scale(sigma, "sigma", "gaussian_composition")
    count = integer_at_least(count, 0, "count", "gaussian_composition")
    if count == 0:
        return 0.0

    shifts = 2 * count
    reach = int(np.ceil(_FFT_REACH * sqrt(shifts) * sigma)) + 1
    points = 1 << (2 * reach).bit_length()
    error = _FFT_ERROR
    if sigma < 2:
        error += _FFT_ERROR_PER_SHIFT * shifts
    if points > _FFT_MOST or delta <= 2 * error:
        return np.inf

    characteristic = np.exp(shifts * _log_characteristic(sigma, points))
    mass = np.fft.irfft(characteristic, points)
    sums = np.fft.fftfreq(points, 1 / points)
    losses = (shifts - 2 * sums) / (2 * sigma**2)  # Σ log P(x)/P(x − 1) = Σ (1 − 2x)/(2σ²)
    return _epsilon_of_losses(
        losses,
        np.maximum(mass, 0),
        delta,
        upper=float(losses.max()),
        error=error,
    )


def gaussian_dp_epsilon(mu: float, delta: float) -> float:
    """Return the ε of μ-Gaussian differential privacy at δ (Balle and Wang 2018, Theorem 8), rounded upward.

    With μ = √(2·count)/σ it is the cost of `count` answers with *continuous* Gaussian noise (Dong, Roth and Su 2022,
    Corollary 3.3).
    """
    if mu == 0:
        return 0.0
    if mu < _LEAST_MU:
        return np.inf

    def delta_at(epsilon: float) -> float:
        return _gaussian_dp_delta(mu, epsilon, _TAIL_ERROR)

    upper = mu**2 / 2 + mu * sqrt(2 * log(1 / delta))
    return _smallest_epsilon(delta_at, delta, upper)


def shifted_gaussian_composition(shifts: Iterable[tuple[float, int]], delta: float) -> float:
    """Return an ε of adaptive releases of integers with discrete Gaussian noise, rounded upward, or ∞.

    Up to a factor close to 1, discrete Gaussian noise with parameter σ is continuous noise of variance σ² − s² that
    was rounded at random, so the releases are as private as continuous ones: docs/proofs/ballots.md. `shifts` are, of
    each release, σ and the squared Euclidean distance of the integers on two neighbors. Where the distance depends on
    earlier releases, pass one σ and the most that the squared distances add up to.
    """
    mu_squared = fsum(shift_mu_squared(sigma, squared) for sigma, squared in shifts)
    return epsilon_of_shifts(mu_squared, delta)


def shift_mu_squared(sigma: float, squared: int) -> float:
    """Return what one such release adds to the μ² of them all, rounded upward, or ∞."""
    if squared == 0:
        return 0.0
    rounding = rounding_variance(sigma)
    if sigma**2 < 2 * rounding:
        return np.inf
    return _UPWARD * squared / (sigma**2 - rounding)


def rounding_variance(sigma: float) -> float:
    """Return the s² with which rounded noise is near enough to discrete noise with parameter σ ≥ 1."""
    largest_ratio = _SERIES * max(sigma, 1.0) ** 2 / _APART
    return _UPWARD * log(largest_ratio) / (2 * pi**2)


def epsilon_of_shifts(mu_squared: float, delta: float) -> float:
    """Return the ε of releases whose `shift_mu_squared` add up to so much, rounded upward, or ∞."""
    if mu_squared == 0 or mu_squared == np.inf:
        return mu_squared
    apart = _APART * mu_squared
    delta_of_rounded = moved_delta(delta, apart)
    if delta_of_rounded <= 0:
        return np.inf
    epsilon_of_rounded = gaussian_dp_epsilon(sqrt(mu_squared * _UPWARD), delta_of_rounded)
    return moved_epsilon(epsilon_of_rounded, apart)


def most_shifts(epsilon: float, delta: float) -> float:
    """Return the most that `shift_mu_squared` of all releases may add up to under (ε, δ), rounded downward."""

    def fits(mu: float) -> bool:
        apart = 2 * _APART * mu**2  # twice: covers its own rounding
        epsilon_of_rounded = epsilon - 2 * apart
        if epsilon_of_rounded < 0:
            return False
        found = _gaussian_dp_delta(mu, epsilon_of_rounded, _TAIL_ERROR * (1 + epsilon))
        return found <= moved_delta(delta, apart)

    low = 0.0
    high = _LEAST_MU
    while fits(high):
        low = high
        high = 2 * high
    if low:
        low, _ = _bisect(fits, low, high)
    return low**2 / _UPWARD


# Noise that is summed from shares of several owners. Its chances differ from those of one discrete Gaussian by a factor
# e^τ at most, so a proved cost of the one, with a small surcharge, is one of the other: docs/proofs/summed_noise.md.


def log_ratio(sigma: float, shares: int) -> float:
    """Return a bound τ on |log P(z)/W(z)| for all integers z; P is the law of the sum, W one discrete Gaussian.

    Kairouz, Liu and Steinke 2021, arXiv:2102.06387, bound the same ratio by a sum of the same exponentials.
    """
    sigma = noise_scale(sigma, "sigma", "log_ratio")
    shares = integer_at_least(shares, 1, "shares", "log_ratio")
    if shares == 1:
        return 0.0
    if sigma < _LEAST_SIGMA_OF_SHARE:
        return inf
    first = exp(-((pi * sigma) ** 2))
    further = exp(-4 * (pi * sigma) ** 2 / 3)
    return _SERIES * (first + (shares - 2) * further)


def log_distance(event: Event) -> float:
    """Return how far one release is at most from the same with its noise drawn whole, as a log ratio of chances."""
    if not isinstance(event, SummedNoise):
        return 0.0
    return event.variables * log_ratio(event.sigma_of_share, event.shares)


def renyi_surcharge(distance: float, orders: FloatArray) -> FloatArray:
    """Return what must be added to a Rényi divergence where both laws move by e^±distance."""
    # orders, returned: (orders,)
    return distance * (2 * orders - 1) / (orders - 1)


def moved_delta(delta: float, distance: float) -> float:
    """Return the δ at which to compute ε with noise drawn whole, so that `moved_epsilon` of it holds at `delta`."""
    if not distance:
        return delta
    return nextafter(delta * exp(-distance), 0)


def moved_epsilon(epsilon: float, distance: float) -> float:
    """Return the ε that holds for summed noise, from one at `moved_delta` for noise drawn whole."""
    if not distance:
        return epsilon
    return nextafter(epsilon + 2 * distance, inf)


def _gaussian_dp_delta(mu: float, epsilon: float, error: float) -> float:
    """Return the δ of μ-Gaussian differential privacy at ε, rounded upward by the relative error of a normal tail."""
    upper_tail = scipy.special.ndtr(-epsilon / mu + mu / 2)
    scaled_tail = np.exp(epsilon + scipy.special.log_ndtr(-epsilon / mu - mu / 2))
    return float(upper_tail * (1 + error) - scaled_tail * (1 - error))


def _log_characteristic(sigma: float, points: int) -> FloatArray:
    """Return log E[cos(θX)] of the discrete Gaussian at the frequencies of a real FFT of `points`."""
    # theta, returned: (points/2 + 1,); images: (images,)
    # By Poisson summation both sums have positive terms only, so nothing cancels.
    theta = 2 * np.pi * np.arange(points // 2 + 1) / points
    # Farther images are below 1e-17.
    farthest = 1 + int(np.ceil(9 / (2 * np.pi * sigma)))
    images = 2 * np.pi * np.arange(1, farthest + 1)

    def log_theta_sum(angle: FloatArray) -> FloatArray:
        log_sum = -((sigma * angle) ** 2) / 2
        for image in images:
            for shifted in (angle - image, angle + image):
                log_sum = np.logaddexp(log_sum, -((sigma * shifted) ** 2) / 2)
        return log_sum

    at_zero = log_theta_sum(np.zeros(1))
    return np.minimum(log_theta_sum(theta) - at_zero, 0)


def _epsilon_of_losses(
    losses: npt.NDArray[np.floating[Any]],
    mass: FloatArray,
    delta: float,
    *,
    upper: float,
    error: float = 0.0,
) -> float:
    """Return the smallest ε with E[(1 − e^{ε − loss})₊] + error ≤ δ, from above."""

    # losses, mass: (losses,)
    def delta_at(epsilon: float) -> float:
        beyond = -np.expm1(np.minimum(0, epsilon - losses))
        return float(mass @ beyond) + error

    return _smallest_epsilon(delta_at, delta, upper)


def _smallest_epsilon(delta_at: Callable[[float], float], delta: float, upper: float) -> float:
    """Return the smallest ε ≥ 0 with delta_at(ε) ≤ delta, from above, for a decreasing delta_at."""

    def is_too_small(epsilon: float) -> bool:
        return not delta_at(epsilon) <= delta

    if not is_too_small(0.0):
        return 0.0
    _, high = _bisect(is_too_small, 0.0, upper)
    return high


def _bisect(is_below: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return an interval, as short as its relative rounding, at whose ends `is_below` is true and false."""
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if is_below(middle):
            low = middle
        else:
            high = middle
    return low, high
