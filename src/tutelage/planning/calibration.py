"""The least noise of responses that are randomized before they are sent."""

from collections.abc import Callable

from tutelage._internal.validation import integer_at_least, positive, probability
from tutelage.accounting import data_independent
from tutelage.accounting.composition import continuous_gaussian_composition
from tutelage.events import NoisyBallot, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import LocalGaussian
from tutelage.privacy import ONE_ENTITY

_LOCAL_NOISE = (0.05, 1e4)  # votes: less noise hides nothing, more leaves nothing of one vote
_LOCAL_STEP, _LOCAL_CLOSE = 1.001, 1e-6  # discrete noise is searched around the analytic one, to this precision


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
                f"`epsilon` of local_gaussian_for is too small for {answers} responses: they need noise of more than "
                f"{most:g} votes. Got {epsilon:g}. Ask fewer queries, or raise `epsilon`."
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
