"""The least noise of responses that are randomized before they are sent."""

from tutelage.accounting.calibration import local_noise
from tutelage.mechanisms import LocalGaussian


def local_gaussian_for(epsilon: float, delta: float, answers: int) -> LocalGaussian:
    """Return the local Gaussian mechanism with the least noise whose `answers` responses are (ε, δ)-private together.

    Calibrated to five digits by the exact composition of the discrete noise that is drawn, L2 sensitivity √2; for more
    than a vote or two of noise it is the analytic Gaussian mechanism (Balle and Wang 2018, Theorem 8).

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
    return LocalGaussian(local_noise(epsilon, delta, answers, "local_gaussian_for"))
