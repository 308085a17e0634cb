"""The one search for the noise of a release: the least with which an (ε, δ) limit holds it.

Plans, fits, audits and local responses all search here, so that they agree to the last digit.
"""

from collections.abc import Callable
from math import ceil, exp, floor, inf, log

import numpy as np

from tutelage.accounting import data_independent
from tutelage.accounting.filter import Accounting, Filter, limit_of
from tutelage.events import Event, Repeated
from tutelage.exceptions import InvalidParameterError

# The search for noise stays between these, in lengths of the longest ballot or in votes.
_LEAST_NOISE = 1e-3
_MOST_NOISE = 1e6
_DIGITS = 5  # of noise that is found here
# Steps of that search, which is in logarithms of the noise.
_SECANTS = 12
_LONGEST_STEP = 10.0
_LEAST_SLOPE = 0.5
_NOTHING = 1e-300  # budgets: less has no logarithm
_A_LITTLE_MORE = 1 + 1e-5  # noise

_EventOf = Callable[[float], Event]  # by the noise
Share = Callable[[float], float]  # of the budget, by the noise


def noise_within(
    limit: Filter,
    event_of: _EventOf,
    epsilon: float | None = None,
    accounting: Accounting = Accounting.RENYI,
) -> float:
    """Return the least noise at which a release fits a whole limit, spent or not, and costs at most ε by itself.

    Without `epsilon`, the release may cost the whole limit. `accounting` bounds the ε of the release by itself. More
    than the limit, and an ε for which no noise is enough, are refused.
    """
    limit.check_epsilon(epsilon)
    noise = _noise_filling(limit, event_of)
    if epsilon is None or epsilon == limit.epsilon:
        return noise
    noise = max(noise, _noise_filling(limit_of(epsilon, limit.delta, accounting), event_of))
    # The published ε is the least over a grid of orders, which may not contain the order of the limit.
    while data_independent.epsilon(event_of(noise), limit.delta).epsilon > epsilon:
        noise *= _A_LITTLE_MORE
    return noise


def repeated_event(event_of: _EventOf, releases: int) -> _EventOf:
    """Return the event of several releases with the same noise, by their noise."""
    if releases == 1:
        return event_of
    return lambda noise: Repeated(event_of(noise), releases)


def _noise_filling(limit: Filter, event_of: _EventOf) -> float:
    """Return the least noise at which a release spends a whole limit."""

    def share(noise: float) -> float:
        spent = limit.share(limit.cost(event_of(noise)))
        return spent / limit.epsilon

    return least_noise(share)


def least_noise(share: Share) -> float:
    """Return the smallest noise, to five digits, at which a release takes no more than the whole budget.

    `share` returns how many budgets the release takes: nearly as a power of the noise, so that few values are tried.
    If no noise is enough, `epsilon` is refused.
    """

    def log_excess(place: float) -> float:
        """Return how far the release is above the budget, as logarithms of both."""
        return log(max(share(exp(place)), _NOTHING))

    low = log(_LEAST_NOISE)
    high = log(_MOST_NOISE)
    place_before = high
    excess_before = log_excess(high)
    place = high - 1
    excess = log_excess(place)
    if excess_before > 0:
        raise InvalidParameterError("epsilon", "be larger, because no amount of noise meets it")

    secants = _SECANTS
    moved = inf
    while min(moved, high - low) > 10.0**-_DIGITS:
        slope = min((excess - excess_before) / (place - place_before), -_LEAST_SLOPE)
        next_place = place + float(np.clip(-excess / slope, -_LONGEST_STEP, _LONGEST_STEP))
        # A bound may jump where another one takes its place.
        if not low < next_place < high or secants == 0:
            next_place = (low + high) / 2
        else:
            secants -= 1
        moved = abs(next_place - place)
        place_before = place
        excess_before = excess
        place = next_place
        excess = log_excess(place)
        if excess > 0:
            low = place
        else:
            high = place

    unit = 10.0 ** (floor(place / log(10)) - _DIGITS + 1)
    whole = ceil(exp(place) / unit)
    more = 1
    noise = _rounded(whole * unit)
    while share(noise) > 1:
        whole = whole + more
        more = 2 * more
        noise = _rounded(whole * unit)
    return noise


def _rounded(noise: float) -> float:
    return float(f"{noise:.{_DIGITS}g}")
