"""The least noise that keeps an ε for any votes: searched by an estimate on plain numbers, then proved."""

from collections.abc import Callable
from functools import cache, lru_cache
from math import ceil, exp, floor, inf, log, log10
from typing import NamedTuple

import numpy as np
from scipy import optimize

from tutelage._typing import FloatArray
from tutelage._validation import integer_at_least, positive, probability
from tutelage.accounting import data_independent, three_outcomes
from tutelage.accounting.curves import EpsilonAtOrder, least_epsilon
from tutelage.accounting.exact_composition import continuous_gaussian_composition, optimal_epsilon
from tutelage.events import NoisyBallot, Repeated
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax, LocalGaussian
from tutelage.neighboring import ONE_ENTITY, ONE_TEACHER

Planned = GNMax | LNMax | ExponentialMax | ConfidentGNMax
_REFERENCE = 20.0  # σ or scale at which orders are searched for good; costs depend on order/σ alone, within a few %
_RELATIVE_ORDERS: FloatArray = np.geomspace(0.05, 6, 12)
_ORDERS: FloatArray = 1 + np.geomspace(1e-2, 1e6, 250)
_NOISE = (1e-3, 1e9)  # searched, in votes
_SLACK = 1.002  # ε may stay below the target by so much, or its square
_DIGITS = 4
_MOST_PURE = 10_000  # answers; of more, the exact composition takes minutes and gigabytes, and hardly helps
_LOCAL_NOISE = (0.05, 1e4)  # votes: less noise hides nothing, more leaves nothing of one vote
_LOCAL_STEP, _LOCAL_CLOSE = 1.001, 1e-6  # discrete noise is sought around the analytic, to so much of it


class Sketch(NamedTuple):
    """A mechanism whose noise is still sought: numbers that nothing checks before it is made."""

    kind: type[Planned]
    noise: tuple[float, ...]  # of the check, where there is one, and of the answer, in votes
    queries: int  # to be asked; where a check comes first, all of them may pass
    threshold: float | None = None

    def scaled(self, factor: float) -> "Sketch":
        """Return the sketch with `factor` times the noise."""
        return self._replace(noise=tuple(noise * factor for noise in self.noise))

    def mechanism(self) -> Planned:
        """Return the mechanism with this noise."""
        return self.kind(*(() if self.threshold is None else (self.threshold,)), *self.noise)


def calibrated(sketch: Sketch, epsilon: float, delta: float) -> Sketch:
    """Return the sketch with the least noise, in proportion, that is proved to keep (ε, δ) for any votes."""
    sketch = roughly_calibrated(sketch, epsilon, delta)
    while not epsilon / _SLACK <= (reached := _proved(sketch, delta)) <= epsilon:
        if epsilon > reached > epsilon / _SLACK**2 or reached == 0:
            break  # the bound has steps of about that size, and ends at 0
        sketch = sketch.scaled(reached / epsilon * _SLACK**0.7)  # ε is nearly as 1/σ
    return sketch._replace(noise=tuple(_rounded_up(noise) for noise in sketch.noise))


def roughly_calibrated(sketch: Sketch, epsilon: float, delta: float) -> Sketch:
    """Return an approximate calibration in milliseconds; its ε is off by a few percent and not proved."""
    return sketch.scaled(_factor(sketch._replace(threshold=None), epsilon, delta))


@lru_cache(maxsize=2**12)
def _factor(sketch: Sketch, epsilon: float, delta: float) -> float:
    @cache
    def excess(log_factor: float) -> float:
        return log(max(_estimate(sketch.scaled(exp(log_factor)), delta).epsilon, 1e-9) / epsilon)

    low, high = (log(end / max(sketch.noise)) for end in _NOISE)
    if excess(low) <= 0 or excess(high) >= 0:
        raise InvalidParameterError(
            f"`epsilon` of plan must be one that noise of {_NOISE[0]:g} to {_NOISE[1]:g} votes can give "
            f"{sketch.queries:,} queries at that δ. Got {epsilon:g}."
        )
    return exp(float(optimize.brentq(excess, low, high, xtol=1e-3)))  # type: ignore[arg-type]


def _proved(sketch: Sketch, delta: float) -> float:
    """Return the ε that the accountant proves at the order that the estimate says is best."""
    one = sketch.mechanism().event_of_one(2, ONE_TEACHER, simulated=False)  # classes do not matter to the cost
    order = _estimate(sketch, delta).order
    return min(data_independent.epsilon_at(Repeated(one, sketch.queries), delta, order), _pure_epsilon(sketch, delta))


def _estimate(sketch: Sketch, delta: float) -> EpsilonAtOrder:
    """Return about the least ε of all queries, and its order."""
    rates = [cost.estimate(noise) for cost, noise in zip(_costs(sketch.kind), sketch.noise, strict=True)]
    found = least_epsilon(_ORDERS, np.sum([sketch.queries * rate for rate in rates], axis=0), delta)
    return EpsilonAtOrder(min(found.epsilon, _pure_epsilon(sketch, delta)), found.order)


def _pure_epsilon(sketch: Sketch, delta: float) -> float:
    if sketch.kind not in (LNMax, ExponentialMax) or sketch.queries > _MOST_PURE:
        return inf
    return optimal_epsilon(2 / sketch.noise[0], sketch.queries, delta)


class _Cost(NamedTuple):
    """The Rényi cost of one release by its noise: in closed form, and by search where that is smaller."""

    closed: Callable[[float, FloatArray], FloatArray]
    searched: Callable[[float, float], float] | None

    def estimate(self, noise: float) -> FloatArray:
        """Return about the smaller one at each order."""
        closed = self.closed(noise, _ORDERS)
        if self.searched is None:
            return closed
        relative = np.interp(np.log(_ORDERS / noise), np.log(_RELATIVE_ORDERS), _relative(self), right=inf)
        return np.minimum(closed, relative * _ORDERS / noise**2)


@cache
def _relative(cost: _Cost) -> FloatArray:
    """Return D_λ·σ²/λ at the relative orders λ/σ, from the search of three outcomes at one σ."""
    orders = np.maximum(_RELATIVE_ORDERS * _REFERENCE, 1.01)
    searched = [cost.searched(_REFERENCE, order) for order in orders.tolist()] if cost.searched else inf
    return np.minimum(searched, cost.closed(_REFERENCE, orders)) * _REFERENCE**2 / orders


def _costs(kind: type[Planned]) -> tuple[_Cost, ...]:
    if kind not in _COSTS:
        raise UnsupportedEventError(f"There is no plan for the mechanism {kind.__name__}.")
    return _COSTS[kind]


_GAUSSIAN = _Cost(lambda sigma, orders: data_independent.gaussian_rdp(sigma, 2, orders), three_outcomes.gaussian_argmax)
_CHECK = _Cost(lambda sigma, orders: data_independent.gaussian_rdp(sigma, 1, orders), three_outcomes.gaussian_check)
_LAPLACE = _Cost(lambda scale, orders: data_independent.pure_dp_renyi(2 / scale, orders), three_outcomes.laplace_argmax)
_COSTS: dict[type[Planned], tuple[_Cost, ...]] = {
    GNMax: (_GAUSSIAN,),
    LNMax: (_LAPLACE,),
    ExponentialMax: (_Cost(data_independent.exponential_rdp, None),),
    ConfidentGNMax: (_CHECK, _GAUSSIAN),
}


def _rounded_up(noise: float) -> float:
    """Return noise rounded upward to four digits, to be written down."""
    unit = 10.0 ** (floor(log10(noise)) - _DIGITS + 1)
    return float(f"{ceil(noise / unit - 1e-9) * unit:.{_DIGITS}g}")


def local_gaussian_for(epsilon: float, delta: float, answers: int) -> LocalGaussian:
    """Return the local Gaussian mechanism with the least noise whose `answers` responses are (ε, δ)-private together.

    Calibrated by the exact composition of the discrete noise that is drawn, L2 sensitivity √2; for more than a vote or
    two of noise it is the analytic Gaussian mechanism (Balle and Wang 2018, Theorem 8).

    Parameters
    ----------
    epsilon : float
        ε of all responses of one entity, in nats.
    delta : float
        δ of the same guarantee.
    answers : int
        How many responses one entity gives.

    Raises
    ------
    InvalidParameterError
        If it would take noise of more than ten thousand votes.
    """
    epsilon = positive(epsilon, "epsilon", "local_gaussian_for")
    probability(delta, "delta", "local_gaussian_for")
    answers = integer_at_least(answers, 1, "answers", "local_gaussian_for")

    def analytic(sigma: float) -> float:
        return continuous_gaussian_composition(sigma, answers, delta)

    def discrete(sigma: float) -> float:
        return data_independent.epsilon(Repeated(NoisyBallot(sigma, 2, ONE_ENTITY), answers), delta).epsilon

    least, most = _LOCAL_NOISE
    sigma = least
    for cost, step in ((analytic, 2.0), (discrete, _LOCAL_STEP)):
        sigma = _least(lambda noise, cost=cost: cost(noise) <= epsilon, sigma, step)
        if sigma > most:
            raise InvalidParameterError(
                f"`epsilon` of local_gaussian_for is too small for {answers} answers: their noise would pass {most:g} "
                f"votes. Got {epsilon:g}; ask fewer, or allow more."
            )
    return LocalGaussian(sigma)


def _least(enough: Callable[[float], bool], start: float, step: float) -> float:
    """Return the least local noise that is enough, bracketed by steps from `start`; above the most if none is."""
    least, most = _LOCAL_NOISE
    high = start
    while high <= most and not enough(high):
        high *= step
    while most >= high > least and enough(high / step):
        high /= step
    low = high / step
    while most >= high > low * (1 + _LOCAL_CLOSE):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
