"""The one search for the noise of a release: the least with which an (ε, δ) limit holds it.

Plans, fits, audits and local responses all search here, so that they agree to the last digit.
"""

from collections.abc import Callable
from math import ceil, exp, floor, inf, log
from typing import NamedTuple

import numpy as np

from tutelage.accounting import data_independent
from tutelage.accounting.composition import epsilon_of_shifts, most_shifts
from tutelage.accounting.filter import Accounting, Filter, limit_of
from tutelage.events import Event, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.privacy import PrivacyUnit, PublicEpsilon

# Lengths of the longest ballot, or votes.
_LEAST_NOISE = 1e-3
_MOST_NOISE = 1e6
_DIGITS = 5  # of noise that is found here
# Of the search for it, in logarithms.
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
    require_within(epsilon, limit)
    noise = _noise_filling(limit, event_of)
    if epsilon is None or epsilon == limit.epsilon:
        return noise
    noise = max(noise, _noise_filling(limit_of(epsilon, limit.delta, accounting), event_of))
    # The published ε is the least over a grid of orders, which may not contain the order of the limit.
    while data_independent.epsilon(event_of(noise), limit.delta).epsilon > epsilon:
        noise *= _A_LITTLE_MORE
    return noise


def repeated_event(event_of: _EventOf, releases: int) -> _EventOf:
    """Return what so many releases with the same noise come to together."""
    return event_of if releases == 1 else lambda noise: Repeated(event_of(noise), releases)


def epsilon_of_each(budget: float, delta: float, releases: int) -> float:
    """Return the ε of each of so many equal releases of Gaussian noise that fill a budget."""
    return (
        budget if releases == 1 else epsilon_of_shifts(most_shifts(budget, delta) / releases, delta)
    )


def require_within(epsilon: float | None, limit: Filter) -> None:
    """Refuse an ε of one release that is more than the whole limit."""
    if epsilon is not None and epsilon > limit.epsilon:
        raise InvalidParameterError(
            "epsilon",
            f"be at most {limit.epsilon:g}, the budget of the ledger",
            f"{epsilon:g}",
            "Lower $epsilon, or raise the budget of the ledger.",
        )


def epsilon_to_state(event: Event, limit: Filter, unit: PrivacyUnit) -> PublicEpsilon:
    """Return the ε to state of the only release within a limit: its own, or that of the limit where it is smaller."""
    alone = data_independent.epsilon(event, limit.delta)
    held = limit.cost(event) <= limit.capacity
    if held and alone.epsilon > limit.epsilon:
        return limit.guarantee(unit, simulated=event.is_simulated)
    return alone


def _noise_filling(limit: Filter, event_of: _EventOf) -> float:
    """Return the least noise at which a release spends a whole limit."""
    return least_noise(lambda noise: limit.share(limit.cost(event_of(noise))) / limit.epsilon)


def least_noise(share: Share) -> float:
    """Return the smallest noise, to five digits, at which a release takes no more than the whole budget.

    `share` returns how many budgets the release takes: nearly as a power of the noise, so that few values are tried.
    If no noise is enough, `epsilon` is refused.
    """
    low = log(_LEAST_NOISE)
    high = log(_MOST_NOISE)
    before, here = (_Tried.at(place, share) for place in (high, high - 1))
    if before.excess > 0:
        raise InvalidParameterError("epsilon", "be larger, because no amount of noise meets it")
    secants = _SECANTS
    moved = inf
    while min(moved, high - low) > 10.0**-_DIGITS:
        slope = min((here.excess - before.excess) / (here.place - before.place), -_LEAST_SLOPE)
        place = here.place + float(np.clip(-here.excess / slope, -_LONGEST_STEP, _LONGEST_STEP))
        if (
            not low < place < high or secants == 0
        ):  # a bound may jump where another one takes its place
            place = (low + high) / 2
        else:
            secants -= 1
        moved = abs(place - here.place)
        before = here
        here = _Tried.at(place, share)
        if here.excess > 0:
            low = place
        else:
            high = place
    unit = 10.0 ** (floor(here.place / log(10)) - _DIGITS + 1)
    whole = ceil(exp(here.place) / unit)
    more = 1
    while share(noise := float(f"{whole * unit:.{_DIGITS}g}")) > 1:
        whole = whole + more
        more = 2 * more
    return noise


class _Tried(NamedTuple):
    """A noise and how far its release is above the budget, as logarithms."""

    place: float
    excess: float

    @classmethod
    def at(cls, place: float, share: Share) -> "_Tried":
        return cls(place, log(max(share(exp(place)), _NOTHING)))
