"""The least noise that keeps an ε for any votes: searched by an estimate on plain numbers, then proved."""

from collections.abc import Callable
from functools import cache, lru_cache
from math import ceil, exp, floor, inf, log, log10
from typing import NamedTuple

import numpy as np
from scipy import optimize

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import integer_at_least, positive, probability
from tutelage.accounting import data_independent
from tutelage.accounting.composition import continuous_gaussian_composition, optimal_epsilon
from tutelage.accounting.rdp import EpsilonAtOrder, least_epsilon
from tutelage.events import NoisyBallot, Repeated
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.mechanisms import ConfidentGNMax, ExponentialMax, GNMax, LNMax, LocalGaussian
from tutelage.privacy import ONE_ENTITY, ONE_TEACHER

Planned = GNMax | LNMax | ExponentialMax | ConfidentGNMax
_RELATIVE_ORDERS: FloatArray = np.geomspace(0.05, 6, 12)  # λ/σ
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
            f"`epsilon` of plan_votes must be one that noise of {_NOISE[0]:g} to {_NOISE[1]:g} votes can give "
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
    if sketch.kind not in _COSTS:
        raise UnsupportedEventError(f"There is no plan for the mechanism {sketch.kind.__name__}.")
    rates = [cost.estimate(noise) for cost, noise in zip(_COSTS[sketch.kind], sketch.noise, strict=True)]
    found = least_epsilon(_ORDERS, np.sum([sketch.queries * rate for rate in rates], axis=0), delta)
    return EpsilonAtOrder(min(found.epsilon, _pure_epsilon(sketch, delta)), found.order)


def _pure_epsilon(sketch: Sketch, delta: float) -> float:
    if sketch.kind not in (LNMax, ExponentialMax) or sketch.queries > _MOST_PURE:
        return inf
    return optimal_epsilon(2 / sketch.noise[0], sketch.queries, delta)


class _Cost(NamedTuple):
    """The Rényi cost of one release by noise σ and order λ: in closed form, and about the smaller one by search."""

    closed: Callable[[float, FloatArray], FloatArray]
    relative: tuple[float, ...] | None = None  # D_λ·σ²/λ at the relative orders

    def estimate(self, noise: float) -> FloatArray:
        """Return about the smaller cost at each order."""
        closed = self.closed(noise, _ORDERS)
        if self.relative is None:
            return closed
        relative = np.interp(np.log(_ORDERS / noise), np.log(_RELATIVE_ORDERS), self.relative, right=inf)
        return np.minimum(closed, relative * _ORDERS / noise**2)


# What `rdp_of_three_outcomes` returns at σ = 20, as the tests check; at another σ it is the same within a few percent.
_GAUSSIAN = _Cost(
    lambda sigma, orders: data_independent.gaussian_rdp(sigma, 2, orders),
    (0.6401648175891864, 0.6402062455281741, 0.6403509803969387, 0.6407119684853079, 0.6416714668293265,
     0.6439892735747607, 0.6498895985442675, 0.6649555553321334, 0.7056317692510826, 0.7999232797912174,
     0.889453361399274, 1.0),
)  # fmt: skip
_CHECK = _Cost(
    lambda sigma, orders: data_independent.gaussian_rdp(sigma, 1, orders),
    (0.3183515789046805, 0.3183451707738072, 0.31842107502246314, 0.3185127641222957, 0.3187578153705202,
     0.31935534932103776, 0.32083465996017974, 0.3245219431498238, 0.33412503398609494, 0.3601821025741617,
     0.4110212956516152, 0.5),
)  # fmt: skip
_LAPLACE = _Cost(
    lambda scale, orders: data_independent.pure_dp_renyi(2 / scale, orders),
    (0.6668007527681942, 0.666675854860401, 0.6661218926886523, 0.6644159798440002, 0.6598157250238748,
     0.6484058383556907, 0.6225232193596675, 0.5756480670733933, 0.5062383815390701, 0.4145746724017535,
     0.31612822247102373, 0.2288749803018248),
)  # fmt: skip
_COSTS: dict[type[Planned], tuple[_Cost, ...]] = {
    GNMax: (_GAUSSIAN,),
    LNMax: (_LAPLACE,),
    ExponentialMax: (_Cost(data_independent.exponential_rdp),),
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
