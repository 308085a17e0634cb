"""Two kinds of epsilon, two types: one may be published, the other depends on the private votes."""

import math
from dataclasses import dataclass
from typing import NoReturn, final

from tutelage.exceptions import NotPublishableError
from tutelage.neighboring import PrivacyUnit

_MOST_DECIMALS = 9
_HIDDEN = "depends on the private votes; `.reveal()` opens it for the data's owner"


@final
@dataclass(frozen=True, slots=True)
class PublicEpsilon:
    """An (ε, δ) guarantee that may be printed, stored and filed: computed from public parameters, or sanitised.

    Parameters
    ----------
    epsilon : float
        Upper bound on the privacy loss, in nats.
    delta : float
        Additive term of the guarantee: P[outcome] ≤ e^ε · P[outcome of a neighbour] + δ.
    unit : PrivacyUnit
        Whom it protects and against which change.
    method : str
        The theorem that gave the value.
    order : float or None
        Rényi order at which the value was attained, where the method has one.
    simulated : bool
        True where the noise was seeded: the number is then what real noise would have cost, not a guarantee.
    output_dependent : bool
        True where it holds for the outcome at hand, after a private test or noised cost, and not for the mechanism:
        other votes, or other noise, would have given another number.
    """

    epsilon: float
    delta: float
    unit: PrivacyUnit
    method: str
    order: float | None = None
    simulated: bool = False
    output_dependent: bool = False

    def __str__(self) -> str:
        taint = " (simulated noise: not private)" if self.simulated else ""
        return f"ε = {round_up(self.epsilon)} at δ = {self.delta:g}{taint}"


@final
class PrivateEpsilon:
    """An (ε, δ) value that depends on the private votes: guarded, and opened only by an explicit call.

    It cannot be formatted as or converted to a number, compared by value or pickled, so it cannot slip into a log, a
    card or a saved model. Publishing it would itself leak.

    Parameters
    ----------
    epsilon : float
        The private value, in nats.
    order : float
        Rényi order at which it was attained; private too.
    delta : float
        Additive term of the guarantee: P[outcome] ≤ e^ε · P[outcome of a neighbour] + δ.
    unit : PrivacyUnit
        Whom it protects and against which change.
    method : str
        The theorem that gave the value.
    """

    __slots__ = ("_epsilon", "_order", "delta", "method", "unit")

    def __init__(self, epsilon: float, order: float, delta: float, unit: PrivacyUnit, method: str) -> None:
        self._epsilon = epsilon
        self._order = order
        self.delta = delta
        self.unit = unit
        self.method = method

    def reveal(self) -> float:
        """Return the private epsilon, for the eyes of the data's owner only."""
        return self._epsilon

    def reveal_order(self) -> float:
        """Return the private Rényi order of the value, for the eyes of the data's owner only."""
        return self._order

    def __repr__(self) -> str:
        return f"PrivateEpsilon(<{_HIDDEN}>, delta={self.delta:g}, method={self.method!r})"

    def __format__(self, format_spec: str) -> str:
        if format_spec:
            raise NotPublishableError(f"A PrivateEpsilon cannot be formatted as a number: its value {_HIDDEN}.")
        return repr(self)

    def __float__(self) -> NoReturn:
        raise NotPublishableError(f"A PrivateEpsilon is not a plain number: its value {_HIDDEN}.")

    def __reduce__(self) -> NoReturn:
        raise NotPublishableError(f"A PrivateEpsilon cannot be stored: its value {_HIDDEN}.")


def round_up(value: float, digits: int = 4) -> float:
    """Return `value` rounded upward to `digits` decimals, so that a printed epsilon never understates."""
    if not math.isfinite(value):
        return value
    scaled = math.ceil(value * 10**digits) / 10**digits
    return scaled if scaled >= value else math.nextafter(scaled, math.inf)


def bayes_factor(epsilon: float) -> str:
    """Return e^ε, rounded upward, as one reads it: 1.35, 149 or 3·10^43."""
    if epsilon < math.log(1e6):
        factor = math.exp(epsilon)
        return f"{round_up(factor, 2 if factor < 100 else 0):,.{2 if factor < 100 else 0}f}"
    power = math.floor(epsilon / math.log(10))
    leading = math.ceil(math.exp(epsilon - power * math.log(10)))
    return f"{leading}·10^{power}" if leading < 10 else f"1·10^{power + 1}"


def digits_for_bound(value: float, least: int, whole: float = 1.0) -> int:
    """Return with how many decimals a bound below `whole` is rounded upward, so that what is left of it survives.

    One unit of the last digit is at most a fiftieth of what is left: 99.82 of 100 becomes 99.823, not 99.9.

    Parameters
    ----------
    value : float
        The bound.
    least : int
        Decimals to be shown at least.
    whole : float
        What it cannot pass.
    """
    left = whole - value
    return least if left <= 0 else max(least, min(_MOST_DECIMALS, math.ceil(-math.log10(left / 50))))
