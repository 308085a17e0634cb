"""The least noise of responses that are randomized before they are sent."""

from tutelage._internal.validation import integer_at_least, positive, probability
from tutelage.accounting import data_independent
from tutelage.events import NoisyBallot, Repeated
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import LocalGaussian
from tutelage.privacy import ONE_ENTITY

_LEAST, _MOST = 0.05, 1e4  # votes: less noise hides nothing, more leaves nothing of one vote
_CLOSE = 1e-6  # of the noise


def local_gaussian_for(epsilon: float, delta: float, answers: int) -> LocalGaussian:
    """Return the local Gaussian mechanism with the least noise whose `answers` responses are (ε, δ)-private together.

    Calibrated by the exact composition of the discrete noise that is drawn, L2 sensitivity √2.

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
        return data_independent.epsilon(Repeated(NoisyBallot(sigma, 2, ONE_ENTITY), answers), delta).epsilon <= epsilon

    high = _LEAST
    while not enough(high):
        if high > _MOST:
            raise InvalidParameterError(
                f"`epsilon` of local_gaussian_for is too small for {answers} responses: they need noise of more than "
                f"{_MOST:g} votes. Got {epsilon:g}. Ask fewer queries, or raise `epsilon`."
            )
        high *= 2
    low = high / 2
    while high > _LEAST and high > low * (1 + _CLOSE):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return LocalGaussian(high)
