"""The least noise that keeps a data-independent ε: searched by an estimate, settled by a proved bound."""

from dataclasses import replace
from functools import lru_cache
from math import ceil, exp, floor, log, log10

import numpy as np
from scipy import optimize

from tutelage._typing import FloatArray
from tutelage.accounting import data_independent
from tutelage.accounting.curves import RenyiCurve
from tutelage.accounting.exact_composition import pure_dp_composition
from tutelage.events import (
    ConfidenceCheck,
    Event,
    ExponentialArgmax,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    Repeated,
)
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax
from tutelage.neighboring import ONE_TEACHER, PrivacyUnit

Planned = GNMax | LNMax | ExponentialMax | ConfidentGNMax
_REFERENCE = 20.0  # σ or scale at which orders are searched for good; costs depend on order/σ alone, within a few %
_RELATIVE_ORDERS: FloatArray = np.geomspace(0.05, 6, 12)
_ORDERS: FloatArray = 1 + np.geomspace(1e-2, 1e6, 250)
_NOISE = (1e-3, 1e9)  # searched, in votes
_SLACK = 1.002  # ε may stay below the target by so much, or its square
_DIGITS = 4
_MOST_PURE = 10_000  # answers; of more, the exact composition takes minutes and gigabytes, and hardly helps


@lru_cache(maxsize=2**10)
def calibrated(mechanism: Planned, epsilon: float, delta: float, queries: int, unit: PrivacyUnit) -> Planned:
    """Return the mechanism with its noise scaled to the least that keeps (ε, δ) whatever the votes are.

    Parameters
    ----------
    mechanism : GNMax, LNMax, ExponentialMax or ConfidentGNMax
        Its noise parameters count relative to each other.
    epsilon, delta : float
        Target.
    queries : int
        How many are asked; where a check comes first, all of them may pass.
    unit : PrivacyUnit
        What moves one ballot.
    """
    mechanism = roughly_calibrated(mechanism, epsilon, delta, queries, unit)
    while not epsilon / _SLACK <= (reached := _proved(_event(mechanism, queries, unit), delta)) <= epsilon:
        if epsilon > reached > epsilon / _SLACK**2 or reached == 0:
            break  # the bound has steps of about that size, and ends at 0
        mechanism = scaled(mechanism, reached / epsilon * _SLACK**0.7)  # ε is nearly as 1/σ
    return _rounded(mechanism)


@lru_cache(maxsize=2**12)
def roughly_calibrated(mechanism: Planned, epsilon: float, delta: float, queries: int, unit: PrivacyUnit) -> Planned:
    """Return the same in milliseconds, from an estimate of ε that is a few per cent off, by no proof."""

    def excess(log_factor: float) -> float:
        event = _event(scaled(mechanism, exp(log_factor)), queries, unit)
        return log(max(_estimate(event, delta)[0], 1e-9) / epsilon)

    low, high = (log(end / _largest_noise(mechanism)) for end in _NOISE)
    if excess(low) <= 0 or excess(high) >= 0:
        raise InvalidParameterError(
            f"`epsilon` of plan must be one that noise of {_NOISE[0]:g} to {_NOISE[1]:g} votes can give {queries:,} "
            f"queries at that δ. Got {epsilon:g}."
        )
    factor = float(optimize.brentq(excess, low, high, xtol=1e-3))  # type: ignore[arg-type]
    return scaled(mechanism, exp(factor))


def scaled(mechanism: Planned, factor: float) -> Planned:
    """Return the mechanism with `factor` times the noise."""
    return replace(mechanism, **{name: getattr(mechanism, name) * factor for name in _noises(mechanism)})


def _event(mechanism: Planned, queries: int, unit: PrivacyUnit) -> Event:
    return Repeated(mechanism.event_of_one(2, unit, simulated=False), queries)  # classes do not matter to the cost


def _largest_noise(mechanism: Planned) -> float:
    """Return the largest noise parameter, in votes."""
    return max(getattr(mechanism, name) for name in _noises(mechanism))


def _noises(mechanism: Planned) -> tuple[str, ...]:
    match mechanism:
        case GNMax():
            return ("sigma",)
        case ConfidentGNMax():
            return ("sigma_threshold", "sigma_vote")
    return ("scale",)


def _rounded(mechanism: Planned) -> Planned:
    """Return the mechanism with its noise rounded upward to four digits, to be written down."""

    def up(value: float) -> float:
        unit = 10.0 ** (floor(log10(value)) - _DIGITS + 1)
        return float(f"{ceil(value / unit - 1e-9) * unit:.{_DIGITS}g}")

    return replace(mechanism, **{name: up(getattr(mechanism, name)) for name in _noises(mechanism)})


def _proved(event: Event, delta: float) -> float:
    """Return a proved ε from the order that the estimate says is best: an upper bound, at a thirtieth of the work."""
    estimate, order = _estimate(event, delta)
    if any(isinstance(part.event, ExponentialArgmax) for part in data_independent.flatten(event)):
        return estimate  # which is what is proved
    proved = data_independent.rdp_of_three_outcomes(event, np.array([order])).to_epsilon(delta).epsilon
    return min(proved, _pure_epsilon(event, delta))


def _estimate(event: Event, delta: float) -> tuple[float, float]:
    values = np.zeros(len(_ORDERS))
    for part in data_independent.flatten(event):
        values += part.times * _rate(part.event, _ORDERS)
    found = RenyiCurve(_ORDERS, values).to_epsilon(delta)
    return min(found.epsilon, _pure_epsilon(event, delta)), found.order


def _pure_epsilon(event: Event, delta: float) -> float:
    match event:
        case Repeated(event=NoisyArgmaxLaplace(scale=scale) | ExponentialArgmax(scale=scale), count=count) if (
            count <= _MOST_PURE
        ):
            return pure_dp_composition(2 / scale, count, delta)
    return np.inf


def _rate(event: Event, orders: FloatArray) -> FloatArray:
    """Return about the Rényi cost of one release at each order."""
    proved = data_independent.rdp(event, orders).values
    noise = getattr(event, "sigma", None) or getattr(event, "scale", 1.0)
    if not isinstance(event, NoisyArgmaxLaplace | NoisyArgmaxGaussian | ConfidenceCheck):
        return proved
    relative = _relative_costs(type(event))
    factor = np.interp(np.log(orders / noise), np.log(_RELATIVE_ORDERS), relative, right=np.inf)
    return np.minimum(proved, factor * orders / noise**2)


@lru_cache(maxsize=4)
def _relative_costs(kind: type[Event]) -> FloatArray:
    """Return D_λ·σ²/λ at the relative orders λ/σ, from the search of three outcomes at one σ."""
    extra = {"threshold": 0.0} if kind is ConfidenceCheck else {}
    name = "scale" if kind is NoisyArgmaxLaplace else "sigma"
    event = kind(**{name: _REFERENCE, "classes": 2, "unit": ONE_TEACHER, **extra})
    orders = np.maximum(_RELATIVE_ORDERS * _REFERENCE, 1.01)
    return data_independent.rdp_of_three_outcomes(event, orders).values * _REFERENCE**2 / orders
