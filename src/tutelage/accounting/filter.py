"""Privacy filters: how much an (ε, δ) budget holds, and what each release takes from it.

A budget is kept at one Rényi order or, for integer Gaussian noise alone, as a limit on μ². Which of the two, and the
order, are fixed with the budget. Then queries, mechanisms and the moment to stop may all depend on earlier answers, and
everything released together is (ε, δ)-differentially private: docs/proofs/ledger.md. Both filters at once would not
keep to it. Costs are whole numbers of grains, rounded upward, so that sums are exact whatever their order. A grain is
the same after the budget was raised.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import field, replace
from enum import StrEnum
from functools import lru_cache
from math import ceil, floor, isfinite, log
from typing import ClassVar, Self, final

import numpy as np

from tutelage._internal.records import Entries, frozen
from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import positive, probability
from tutelage.accounting import data_independent
from tutelage.accounting.composition import epsilon_of_shifts, most_shifts
from tutelage.accounting.rdp import RenyiCurve, search_epsilon
from tutelage.events import Event, event_of
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.privacy import PrivacyUnit, PublicEpsilon, round_up

# Nats; rounding a cost upward to whole grains is far below the digits that anybody reads.
GRAIN = 1e-12
# Covers the rounding of the few operations between a proved cost and its grains.
_UPWARD = 1 + 1e-12
_MOST_EPSILON = 1e5  # its grains fit 64-bit integers
_MOST_ORDER = 1e6
_MANY = 2**62
# As fine as the smallest budgets need; grains are whole numbers of any size.
_GRAIN_OF_MU_SQUARED = 1e-15
_ORDERS: FloatArray = 1 + np.geomspace(1e-2, 1e5, 2000)
_SEARCHED: FloatArray = 1 + np.geomspace(1e-2, 1e5, 60)
# An odometer has one order that suits Gaussian noise at each of these shares of its budget. They never change, because
# cards are proved by them.
_SHARES = np.geomspace(0.05, 0.65, 3).tolist()


@final
class Accounting(StrEnum):
    """How a budget is kept. Ledgers store the value."""

    RENYI = "renyi"
    GAUSSIAN = "gaussian"

    @classmethod
    def of(cls, value: object) -> Self:
        """Return how a budget is kept, by its code."""
        if value in list(cls):
            return cls(value)
        raise InvalidParameterError("the budget.accounting", f"be {' or '.join(cls)}", f"{value!r}")


class _Filter(ABC):
    """Base class of filters."""

    __slots__ = ()
    accounting: ClassVar[Accounting]
    epsilon: float
    delta: float
    _method: ClassVar[str]

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Grains that the budget holds."""

    @abstractmethod
    def cost(self, event: Event) -> int:
        """Return the worst-case budget that `event` spends, in grains."""

    @abstractmethod
    def epsilon_of_length(self, share: float) -> float:
        """Return the ε, at the δ of the budget, of people whose ballots have at most this share of the length.

        It is of everything within a budget that was never raised, if all of it is noisy sums in which all ballots of
        these people are so short (docs/proofs/ballots.md).
        """

    @abstractmethod
    def larger_budget(self, epsilon: float) -> "Filter":
        """Return a larger budget, in the same grains, which may be chosen in view of all answers so far."""

    def _check(self) -> None:
        object.__setattr__(self, "epsilon", _require_epsilon(self.epsilon))
        object.__setattr__(self, "delta", probability(self.delta, "delta", "the budget"))

    def as_dict(self) -> Entries:
        """Return the budget as plain values; a kind that is not named is that of a Rényi order."""
        entries: Entries = {"epsilon": self.epsilon, "delta": self.delta}
        if isinstance(self, RenyiFilter):
            entries["order"] = self.order
        else:
            entries["accounting"] = self.accounting.value
        entries["capacity"] = self.capacity
        return entries

    def fitting(self, event: Event, spent: int) -> int:
        """Return how many more times `event` fits after `spent` grains."""
        cost = self.cost(event)
        if not cost:
            return _MANY
        return max(0, self.capacity - spent) // cost

    def check_epsilon(self, epsilon: float | None) -> None:
        """Refuse an ε of one release that is more than the whole limit."""
        if epsilon is not None and epsilon > self.epsilon:
            raise InvalidParameterError(
                "epsilon",
                f"be at most {self.epsilon:g}, the budget of the ledger",
                f"{epsilon:g}",
                "Lower $epsilon, or raise the budget of the ledger.",
            )

    def share(self, grains: int) -> float:
        """Return grains as their share of ε: a currency in which the whole budget is worth ε, and shares add up."""
        return self.epsilon * grains / self.capacity

    def guarantee(self, unit: PrivacyUnit, *, simulated: bool) -> PublicEpsilon:
        """Return the (ε, δ) of everything that is ever released within the budget."""
        method = f"budget of a ledger: {self._method}"
        order = self.order if isinstance(self, RenyiFilter) else None
        return PublicEpsilon(self.epsilon, self.delta, unit, method, order, simulated)


@final
@frozen
class RenyiFilter(_Filter):
    """A budget (ε, δ), enforced at one Rényi order."""

    accounting: ClassVar[Accounting] = Accounting.RENYI
    _method: ClassVar[str] = (
        "a Rényi filter on data-independent costs, conversion of CKS 2020 Proposition 12"
    )
    epsilon: float
    delta: float
    order: float

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "order", float(self.order))
        if not (1 < self.order <= _MOST_ORDER and self.capacity > 0):
            raise InvalidParameterError(
                "the budget.order",
                f"be above 1, at most {_MOST_ORDER:g}, and so large that its conversion to (ε, δ) "
                f"adds less than {self.epsilon:g}",
                f"{self.order:g}",
                "Leave $order out to use the best one.",
            )

    @classmethod
    def suited_to(cls, epsilon: float, delta: float, event: Event | None = None) -> Self:
        """Return the budget at the order that holds the most of `event`, or of Gaussian noise where none is named."""
        epsilon = _require_epsilon(epsilon)
        delta = probability(delta, "delta", "the budget")
        # Gaussian noise costs in proportion to the order, whatever its σ.
        room = epsilon - _conversion(_ORDERS, delta)
        best = float(_ORDERS[np.argmax(room / _ORDERS)])
        if event is None:
            return cls(epsilon, delta, best)

        orders = np.append(_SEARCHED, best)
        costs = data_independent.rdp_of_three_outcomes(event, orders).values
        room = epsilon - _conversion(orders, delta)
        best = float(orders[np.argmax(room / costs)])
        return cls(epsilon, delta, best)

    @classmethod
    def holding(cls, event: Event, delta: float) -> Self:
        """Return the smallest budget found that holds `event`, which must not depend on votes."""

        def total(orders: FloatArray) -> FloatArray:
            return data_independent.rdp_of_three_outcomes(event, orders).values

        order = search_epsilon(total, delta).order
        bare = cls(_MOST_EPSILON, delta, order)
        epsilon = bare.cost(event) * GRAIN * _UPWARD + _conversion_term(order, delta)
        return cls(max(epsilon, 0.0) * _UPWARD + 2 * GRAIN, delta, order)

    @property
    def capacity(self) -> int:
        """Grains that the budget holds."""
        return _capacity(self.epsilon, self.delta, self.order)

    def cost(self, event: Event) -> int:
        """Return the worst-case budget that `event` spends, in grains."""
        return sum(times * _grains(kind, self.order) for kind, times in event.flatten())

    def epsilon_of_length(self, share: float) -> float:
        """Return the ε of people whose ballots have at most this share of the length."""
        # A sum costs in proportion to the order, so that its limit at one order is a limit at each.
        slope = share**2 * self.capacity * GRAIN / self.order * _UPWARD
        found = search_epsilon(lambda orders: slope * orders, self.delta)
        return max(0.0, found.epsilon)

    def larger_budget(self, epsilon: float) -> "RenyiFilter":
        """Return a larger budget at the same order and δ."""
        return replace(self, epsilon=_require_more(epsilon, self.epsilon))


@final
@frozen
class GaussianFilter(_Filter):
    """A budget (ε, δ) for integer Gaussian noise on sums of ballots, enforced as a limit on μ² without a conversion.

    The conversion without loss is for one limit, fixed before all answers. One that was raised, from the `first` ε, is
    kept at a Rényi order that follows from this, and each of the two takes half of δ.
    """

    accounting: ClassVar[Accounting] = Accounting.GAUSSIAN
    _method: ClassVar[str] = (
        "a filter on the Gaussian differential privacy of discrete Gaussian noise"
    )
    order: ClassVar[None] = None
    epsilon: float
    delta: float
    first: float | None = None
    mu_squared: float = field(init=False)

    def __post_init__(self) -> None:
        self._check()
        if self.first is not None:
            object.__setattr__(self, "first", _require_epsilon(self.first))
        mu_squared = _most_mu_squared(self.epsilon, self.delta, self.first)
        object.__setattr__(self, "mu_squared", mu_squared)
        if not self.mu_squared:
            raise InvalidParameterError(
                "the budget.epsilon",
                "be larger, because no Gaussian noise meets it at this $delta",
                f"epsilon={self.epsilon:g} and delta={self.delta:g}",
                "Raise $epsilon or $delta.",
            )

    @classmethod
    def holding(cls, event: Event, delta: float) -> Self:
        """Return the smallest budget found that holds `event`, which must not depend on votes."""
        mu_squared = _require_payable(data_independent.mu_squared(event), event)
        least = epsilon_of_shifts(mu_squared, delta)
        if not isfinite(least):
            least = 0.0
        more = 1e-9
        limit = cls(least * (1 + more) + more, delta)
        while limit.cost(event) > limit.capacity:
            more *= 4
            limit = cls(least * (1 + more) + more, delta)
        return limit

    def epsilon_of_length(self, share: float) -> float:
        """Return the ε of people whose ballots have at most this share of the length."""
        return epsilon_of_shifts(share**2 * self.mu_squared * _UPWARD, self.delta)

    def larger_budget(self, epsilon: float) -> "GaussianFilter":
        """Return a larger budget; the first time, its δ is twice as large."""
        first = self.epsilon
        delta = self.delta
        if self.first is not None:
            first = self.first
            delta /= 2
        order, added = _after_raise(first, delta)
        least = max(self.epsilon, order * self.mu_squared / 2 + added)
        return GaussianFilter(_require_more(epsilon, least), 2 * delta, first)

    @property
    def capacity(self) -> int:
        """Grains that the budget holds."""
        return floor(self.mu_squared / _UPWARD / _GRAIN_OF_MU_SQUARED)

    def cost(self, event: Event) -> int:
        """Return the worst-case budget that `event` spends, in grains."""
        data_independent.mu_squared(event)  # refuses parts of different units
        return sum(times * self._grains(kind) for kind, times in event.flatten())

    def _grains(self, event: Event) -> int:
        mu_squared = _require_payable(data_independent.mu_squared(event), event)
        return ceil(mu_squared * _UPWARD / _GRAIN_OF_MU_SQUARED)


Filter = RenyiFilter | GaussianFilter


def epsilon_so_far(limit: Filter, released: Counter[Event]) -> float:
    """Return an ε that holds for what was released so far at the δ of a budget, whatever made somebody look now.

    `limit` is the budget as it was before the first release. Proof: docs/proofs/ledger.md.
    """
    # orders, above, costs, logs: (orders of the odometer,)
    happened = +released
    if not happened:
        return 0.0
    orders = _orders_of_odometer(limit.epsilon, limit.delta)
    delta = limit.delta / len(_SHARES)
    costs = data_independent.rdp_of_three_outcomes(event_of(happened), orders).values * _UPWARD
    above = orders - 1

    def martingale(loss: float) -> tuple[float, float]:
        """Return log(δ M) at a privacy loss, and its slope there."""
        logs = log(delta) + above * (loss - costs)
        total = float(np.logaddexp.reduce(logs))
        return total, float(np.exp(logs - total) @ above)

    # loss + log(1 − δ M(loss)) is concave with a slope of at most 1; its largest value is the ε.
    low = float(np.min(costs - log(orders.max() * limit.delta) / above))
    high = float(np.min(costs - log(delta) / above))
    while high - low > _UPWARD - 1 + 1e-12 * abs(high):
        middle = (low + high) / 2
        total, slope = martingale(middle)
        if total + np.log1p(slope) <= 0:
            low = middle
        else:
            high = middle
    total, _ = martingale(low)
    epsilon = low + float(np.log1p(-np.exp(total))) + (high - low)
    return max(0.0, epsilon) * (1 + 1e-9) + 1e-9


@lru_cache(maxsize=256)
def _orders_of_odometer(epsilon: float, delta: float) -> FloatArray:
    """Return its orders, each the best for Gaussian noise that spends one of the shares."""
    conversion = _conversion(_ORDERS, delta / len(_SHARES))
    whole = most_shifts(epsilon, delta) / 2
    best = list[float]()
    for share in _SHARES:
        costs = share * whole * _ORDERS
        best.append(_ORDERS[np.argmin(costs + conversion)])
    return np.array(best)


def limit_of(epsilon: float, delta: float, accounting: Accounting) -> Filter:
    """Return the budget (ε, δ), kept at the order that suits Gaussian noise or as a limit on μ²."""
    if accounting is Accounting.GAUSSIAN:
        return GaussianFilter(epsilon, delta)
    return RenyiFilter.suited_to(epsilon, delta)


def holding(event: Event, delta: float, accounting: Accounting) -> Filter:
    """Return the smallest limit in which everything of an event fits."""
    if accounting is Accounting.GAUSSIAN:
        return GaussianFilter.holding(event, delta)
    return RenyiFilter.holding(event, delta)


def filter_of(record: Entries) -> Filter:
    """Return the budget that `as_dict` gave, or what became of it after all that was `raised`, the first first."""
    if Accounting.of(record.get("accounting", Accounting.RENYI)) is Accounting.RENYI:
        return RenyiFilter(record["epsilon"], record["delta"], record["order"])
    match record.get("raised", []):
        case []:
            return GaussianFilter(record["epsilon"], record["delta"])
        case [{"before": first}, *_]:
            return GaussianFilter(record["epsilon"], record["delta"], first)
        case _:
            raise InvalidParameterError("a budget.raised", "give the ε before each raise")


def _conversion(orders: FloatArray, delta: float) -> FloatArray:
    """Return what the conversion to (ε, δ) adds at each order (CKS 2020, Proposition 12)."""
    # orders, returned: (orders,)
    return RenyiCurve(orders, np.zeros(len(orders))).at(delta)


def _conversion_term(order: float, delta: float) -> float:
    """Return what the conversion to (ε, δ) adds at one order."""
    terms = _conversion(np.array([order]), delta)
    return float(terms[0])


@lru_cache(maxsize=256)
def _capacity(epsilon: float, delta: float, order: float) -> int:
    room = epsilon - _conversion_term(order, delta)
    return floor(room / _UPWARD / GRAIN)


@lru_cache(maxsize=256)
def _most_mu_squared(epsilon: float, delta: float, first: float | None) -> float:
    """Return the most that the μ² of all releases may add up to."""
    if first is None:
        return most_shifts(epsilon, delta)
    order, added = _after_raise(first, delta / 2)
    return max(0.0, 2 * (epsilon - added) / order / _UPWARD)


def _after_raise(first: float, delta: float) -> tuple[float, float]:
    """Return the order at which a Gaussian budget is kept once it is raised, and what the conversion adds to ε."""
    # The order suits twice the budget, so that there is room after it is raised.
    order = RenyiFilter.suited_to(min(2 * first, _MOST_EPSILON), delta).order
    return order, _conversion_term(order, delta)


def _require_more(epsilon: object, least: float) -> float:
    """Return the ε of a budget that is raised, if it is more than the present one holds."""
    larger = _require_epsilon(epsilon)
    if larger <= least * (1 + 1e-9):  # so that it holds more after all rounding
        raise InvalidParameterError(
            "a raised budget.epsilon",
            f"be above {round_up(least)}; a budget is never lowered",
            f"{larger:g}",
        )
    return larger


@lru_cache(maxsize=4096)
def _grains(event: Event, order: float) -> int:
    curve = data_independent.rdp_of_three_outcomes(event, np.array([order]))
    cost = float(curve.values[0])
    return ceil(_require_payable(cost, event) * _UPWARD / GRAIN)


def _require_payable(cost: float, event: Event) -> float:
    if not isfinite(cost) or cost > _MOST_EPSILON:
        raise UnsupportedEventError(
            f"One {type(event).__name__} costs more than any budget allows. Take more noise."
        )
    return cost


def _require_epsilon(value: object) -> float:
    """Return the ε of a budget, if it is one."""
    epsilon = positive(value, "epsilon", "the budget")
    if epsilon > _MOST_EPSILON:
        raise InvalidParameterError(
            "the budget.epsilon", f"be at most {_MOST_EPSILON:g}", f"{epsilon:g}"
        )
    return epsilon
