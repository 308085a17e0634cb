"""Keep the class, or report any other: the local mechanism for classes that have no order."""

from dataclasses import dataclass
from typing import final

import numpy as np

from tutelage import events
from tutelage._typing import FloatArray, IntArray
from tutelage._validation import integer_at_least, local_epsilon
from tutelage.mechanisms.local.base import ClassResponse
from tutelage.mechanisms.local.channels import randomized_response
from tutelage.neighboring import PrivacyUnit
from tutelage.noise import NoiseSource, keep_chance


@final
@dataclass(frozen=True, slots=True)
class KRandomizedResponse(ClassResponse):
    """Keep the class with probability e^ε/(e^ε + classes − 1), or else report any other; each response is ε-private.

    Parameters
    ----------
    epsilon : float
        Pure loss ε of one response, in nats, between 1e-6 and 100.

    Notes
    -----
    Local differential privacy for the entity's whole data, whatever its teacher does with them (Kairouz, Oh and
    Viswanath 2014). The chance to keep a class is a multiple of 2⁻⁶⁰, rounded downward, so no more than ε is spent.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", local_epsilon(self.epsilon, "KRandomizedResponse"))

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> events.Event:
        """Return what one response of one entity is."""
        return events.RandomizedResponse(self.epsilon, n_classes, unit, simulated)

    def pure_epsilon(self, n_classes: int) -> float:
        """Return the largest privacy loss of one response, in nats."""
        integer_at_least(n_classes, 2, "n_classes", "KRandomizedResponse")
        return self.epsilon

    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns) given each class (rows); rows sum to 1."""
        return np.array(randomized_response(keep_chance(self.epsilon, n_classes) / events.CERTAIN, n_classes))

    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        return noise.randomized_response(classes, n_classes, self.epsilon)
