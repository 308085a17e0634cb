"""Local randomizers: each ballot is perturbed where it was cast, so that no one is trusted with the votes.

A channel is the table of chances of each report for each class. The truncated geometric mechanism is the class as a
number, plus discrete Laplace noise, clamped: right for classes with an order, as printed wrong (docs/errata.md).
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import exp, inf, nextafter
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt

from tutelage import events
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage._internal.validation import ballots_between, integer_at_least, local_epsilon, noise_scale
from tutelage.events import Event
from tutelage.exceptions import AsPrintedWarning
from tutelage.noise import NoiseSource, keep_chance
from tutelage.privacy import PrivacyUnit


class LocalMechanism(ABC):
    """A randomizer of one entity's votes. The report is private against every reader.

    Whether an entity takes part is not hidden, so it must not depend on its data. Fields are public parameters.
    """

    __slots__ = ()
    _ABSENT = ABSTAIN

    @abstractmethod
    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what one response of one entity is; the entity's ledger reserves it before any noise is drawn."""

    @abstractmethod
    def pure_epsilon(self, n_classes: int) -> float:
        """Return the largest privacy loss of one response, in nats; infinite where only (ε, δ) holds."""

    @final
    def perturb(self, ballots: npt.ArrayLike, n_classes: int, noise: NoiseSource) -> IntArray:
        """Draw one response per vote, with fresh `noise`; calling again is another response and costs again.

        Parameters
        ----------
        ballots : integer array of shape (entities, queries)
            Private class index below `n_classes` per entity and query, or −1 where the entity does not take part.

        Returns
        -------
        integer array of shape (entities, queries), or (entities, queries, classes) for `LocalGaussian`
            What may be sent; −1 where the entity does not take part, or 0 in every class for `LocalGaussian`, where −1
            is a report like others.
        """
        integer_at_least(n_classes, 2, "n_classes", type(self).__name__)
        name = f"`ballots` of {type(self).__name__}"
        ballots = ballots_between(ballots, n_classes, name, "(entities, queries)")
        taking_part = ballots != ABSTAIN
        drawn = self._respond(ballots[taking_part].astype(np.int64), n_classes, noise)
        reports = np.full((*ballots.shape, *drawn.shape[1:]), self._ABSENT, dtype=np.int64)
        reports[taking_part] = drawn
        return reports

    @final
    def as_dict(self) -> dict[str, Any]:
        """Return the mechanism as plain JSON-ready values, with its class name under ``"mechanism"``."""
        return {"mechanism": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]

    @abstractmethod
    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        """Draw one response per class; the first axis of the result is that of `classes`."""


class ClassResponse(LocalMechanism):
    """A local mechanism that reports a class: its whole law is a matrix of chances, the channel."""

    __slots__ = ()

    @abstractmethod
    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns) given each class (rows); rows sum to 1.

        Columns are the classes; where reports may be no class, a last column is their chance.
        """


@dataclass(frozen=True, slots=True)
class _OfEpsilon(ClassResponse):
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", local_epsilon(self.epsilon, type(self).__name__))

    def pure_epsilon(self, n_classes: int) -> float:
        """Return the largest privacy loss of one response, in nats."""
        integer_at_least(n_classes, 2, "n_classes", type(self).__name__)
        return self.epsilon


Number = TypeVar("Number", float, Fraction)


def randomized_response(keep: Number, n_classes: int) -> list[list[Number]]:
    """Return the channel that keeps a class with chance `keep`, or else reports any other, all equally likely."""
    other = (1 - keep) / (n_classes - 1)
    return [[keep if report == own else other for report in range(n_classes)] for own in range(n_classes)]


def truncated_geometric(alpha: Number, n_classes: int) -> list[list[Number]]:
    """Return the α-truncated geometric channel on the classes (Ghosh, Roughgarden and Sundararajan 2012)."""
    return [_clamped(alpha, own, n_classes) for own in range(n_classes)]


def truncated_geometric_as_printed(alpha: Number, n_classes: int) -> list[list[Number]]:
    """Return the channel of Zhao's equation (2), whose report 0 is not a class: here the last column."""
    rows = [_clamped(alpha, own, n_classes + 1) for own in range(1, n_classes + 1)]
    return [[*row[1:], row[0]] for row in rows]


def _clamped(alpha: Number, own: int, size: int) -> list[Number]:
    """Return the law of own + Z clamped to 0 … size − 1, P(Z = k) ∝ α^|k|."""
    ends = (0, size - 1)
    return [(1 if report in ends else 1 - alpha) * alpha ** abs(report - own) / (1 + alpha) for report in range(size)]


@final
@dataclass(frozen=True, slots=True)
class KRandomizedResponse(_OfEpsilon):
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

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> events.Event:
        """Return what one response of one entity is."""
        return events.RandomizedResponse(self.epsilon, n_classes, unit, simulated)

    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns) given each class (rows); rows sum to 1."""
        return np.array(randomized_response(keep_chance(self.epsilon, n_classes) / events.CERTAIN, n_classes))

    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        return noise.randomized_response(classes, n_classes, self.epsilon)


@final
@dataclass(frozen=True, slots=True)
class LocalGaussian(LocalMechanism):
    """Report the vote as a vector of one 1 and zeros, plus discrete Gaussian noise; λ/σ² at Rényi order λ.

    Parameters
    ----------
    sigma : float
        Parameter σ of the noise on each class, in votes. `tutelage.planning.local_gaussian_for` finds it for an (ε, δ).

    Notes
    -----
    Another vote moves one class down and another up by one, an L2 distance of √2. Zhao promises a Gaussian variant
    and does not specify it; this one adds up: the sum over entities is a noisy vote count.
    """

    _ABSENT = 0

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", noise_scale(self.sigma, "sigma", "LocalGaussian"))

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> events.Event:
        """Return what one response of one entity is."""
        return events.NoisyBallot(self.sigma, n_classes, unit, simulated)

    def pure_epsilon(self, n_classes: int) -> float:
        """Return infinity: Gaussian noise bounds no single loss, only (ε, δ)."""
        integer_at_least(n_classes, 2, "n_classes", "LocalGaussian")
        return inf

    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        drawn = noise.discrete_gaussian(self.sigma, (len(classes), n_classes))
        drawn[np.arange(len(classes)), classes] += 1
        return drawn


@final
@dataclass(frozen=True, slots=True)
class TruncatedGeometric(_OfEpsilon):
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

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> events.Event:
        """Return what one response of one entity is."""
        return events.TruncatedGeometricResponse(self._scale(n_classes), n_classes, unit, simulated)

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
class TruncatedGeometricAsPrinted(_OfEpsilon):
    """Zhao's equation (2) to the letter, for comparison: each response is only ε(classes − 1)/classes-private.

    Classes are numbered 1, …, M there while reports are 0, …, M: report 0 is not a class and is wasted. Here its index
    is M, one beyond the last class.

    Parameters
    ----------
    epsilon : float
        ε of the printed equation, in nats, between 1e-6 and 100.

    Warns
    -----
    AsPrintedWarning
        Always: `TruncatedGeometric` spends all of ε and reports classes only.
    """

    def __post_init__(self) -> None:
        _OfEpsilon.__post_init__(self)
        warnings.warn(
            "Equation (2) as printed reports a number that is not a class, and its true loss is epsilon*(classes - "
            "1)/classes. Use TruncatedGeometric, or KRandomizedResponse.",
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
        """Return the chance of each report (columns; the last: no class) given each class (rows); rows sum to 1."""
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
