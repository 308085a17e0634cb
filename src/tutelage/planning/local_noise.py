"""How much noise one entity puts on its own votes for an (ε, δ)."""

from collections.abc import Callable

from tutelage._validation import integer_at_least, positive, probability
from tutelage.accounting import data_independent
from tutelage.accounting.exact_composition import continuous_gaussian_composition
from tutelage.events import NoisyBallot, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import LocalGaussian
from tutelage.neighboring import ONE_ENTITY

_LEAST, _MOST = 0.05, 1e4  # votes: less noise hides nothing, more leaves nothing of one vote
_STEP = 1.001  # factor by which discrete noise is sought around the analytic
_CLOSE = 1e-6  # relative


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

    def enough(sigma: float) -> bool:
        event = Repeated(NoisyBallot(sigma, 2, ONE_ENTITY), answers)
        return data_independent.epsilon(event, delta).epsilon <= epsilon

    sigma = _analytic_sigma(epsilon, delta, answers)
    if sigma > _MOST:
        raise InvalidParameterError(
            f"`epsilon` of local_gaussian_for is too small for {answers} answers: their noise would pass {_MOST:g} "
            f"votes. Got {epsilon:g}; ask fewer, or allow more."
        )
    while not enough(sigma):
        sigma *= _STEP
    while sigma > _LEAST and enough(sigma / _STEP):
        sigma /= _STEP
    return LocalGaussian(_least(enough, sigma / _STEP, sigma))


def _analytic_sigma(epsilon: float, delta: float, answers: int) -> float:
    """Return σ by the analytic Gaussian mechanism, for noise that is continuous; about that of discrete noise."""

    def enough(sigma: float) -> bool:
        return continuous_gaussian_composition(sigma, answers, delta) <= epsilon

    high = _LEAST
    while high <= _MOST and not enough(high):
        high *= 2
    return _least(enough, high / 2, high)


def _least(enough: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least value that is enough, from above; `high` must be."""
    while high > low * (1 + _CLOSE):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
