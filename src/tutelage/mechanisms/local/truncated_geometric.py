"""The class as a number, plus discrete Laplace noise, clamped: right for classes with an order, as printed wrong."""

import warnings
from dataclasses import dataclass
from fractions import Fraction
from math import exp, inf, nextafter
from typing import final

import numpy as np

from tutelage import events
from tutelage._typing import FloatArray, IntArray
from tutelage._validation import integer_at_least, local_epsilon
from tutelage.exceptions import AsPrintedWarning
from tutelage.mechanisms.local.base import ClassResponse
from tutelage.mechanisms.local.channels import truncated_geometric, truncated_geometric_as_printed
from tutelage.neighboring import PrivacyUnit
from tutelage.noise import NoiseSource


@final
@dataclass(frozen=True, slots=True)
class TruncatedGeometric(ClassResponse):
    """Add discrete Laplace noise of scale (classes − 1)/ε to the class and clamp it; each response is ε-private.

    Parameters
    ----------
    epsilon : float
        Pure loss ε of one response, in nats, between 1e-6 and 100.

    Notes
    -----
    The α-truncated geometric mechanism, α = e^(−ε/(classes − 1)), of Ghosh, Roughgarden and Sundararajan 2012: what
    equations (1) and (2) of Zhao mean. Reports near the class are likelier, which helps only where classes have an
    order, and the first and last class are reported too often: see `decode`.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", local_epsilon(self.epsilon, "TruncatedGeometric"))

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> events.Event:
        """Return what one response of one entity is."""
        return events.TruncatedGeometricResponse(self._scale(n_classes), n_classes, unit, simulated)

    def pure_epsilon(self, n_classes: int) -> float:
        """Return the largest privacy loss of one response, in nats: of the first class against the last."""
        integer_at_least(n_classes, 2, "n_classes", "TruncatedGeometric")
        return self.epsilon

    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns) given each class (rows); rows sum to 1."""
        return np.array(truncated_geometric(exp(-1 / self._scale(n_classes)), n_classes))

    def _scale(self, n_classes: int) -> float:
        return _scale_above(integer_at_least(n_classes, 2, "n_classes", "TruncatedGeometric") - 1, self.epsilon)

    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        drawn = noise.discrete_laplace(self._scale(n_classes), classes.shape)
        return np.clip(classes + drawn, 0, n_classes - 1)


@final
@dataclass(frozen=True, slots=True)
class TruncatedGeometricAsPrinted(ClassResponse):
    """Zhao's equation (2) to the letter, for comparison: each response is only ε(classes − 1)/classes-private.

    Classes are numbered 1, …, M there while reports are 0, …, M: report 0 is no class and is wasted. Here its index is
    M, one beyond the last class.

    Parameters
    ----------
    epsilon : float
        ε of the printed equation, in nats, between 1e-6 and 100.

    Warns
    -----
    AsPrintedWarning
        Always: `TruncatedGeometric` spends all of ε and reports classes only.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", local_epsilon(self.epsilon, "TruncatedGeometricAsPrinted"))
        warnings.warn(
            "Equation (2) as printed reports a number that is no class, and its true loss is "
            "epsilon*(classes - 1)/classes. Use TruncatedGeometric, or KRandomizedResponse.",
            AsPrintedWarning,
            stacklevel=3,
        )

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> events.Event:
        """Return what one response of one entity is."""
        return events.TruncatedGeometricResponse(self._scale(n_classes), n_classes, unit, simulated)

    def pure_epsilon(self, n_classes: int) -> float:
        """Return the largest privacy loss of one response, in nats, which is below the printed ε."""
        integer_at_least(n_classes, 2, "n_classes", "TruncatedGeometricAsPrinted")
        return self.epsilon * (n_classes - 1) / n_classes

    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns; the last is no class) given each class (rows); rows sum to 1."""
        return np.array(truncated_geometric_as_printed(exp(-1 / self._scale(n_classes)), n_classes))

    def _scale(self, n_classes: int) -> float:
        return _scale_above(integer_at_least(n_classes, 2, "n_classes", "TruncatedGeometricAsPrinted"), self.epsilon)

    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        drawn = noise.discrete_laplace(self._scale(n_classes), classes.shape)
        printed = np.clip(classes + 1 + drawn, 0, n_classes)
        return np.where(printed == 0, n_classes, printed - 1)


def _scale_above(distance: int, epsilon: float) -> float:
    """Return the smallest float from distance/ε on, so that the noise is never less than ε allows."""
    scale = distance / epsilon
    return scale if Fraction(scale) * Fraction(epsilon) >= distance else nextafter(scale, inf)
