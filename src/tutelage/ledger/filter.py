"""A privacy filter: how much Rényi cost an (ε, δ) budget holds, and what each release takes from it.

The limit is kept at one Rényi order, fixed with the budget. Then queries, mechanisms and the moment to stop may all
depend on earlier answers, and everything released together is (ε, δ)-differentially private: docs/proofs/ledger.md.
Costs are whole numbers of grains, rounded upward, so that sums are exact whatever their order.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, isfinite
from typing import Self, final

import numpy as np

from tutelage._internal.typing import FloatArray
from tutelage._internal.validation import positive, probability
from tutelage.accounting import data_independent
from tutelage.accounting.rdp import RenyiCurve, search_epsilon
from tutelage.events import Event
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError

GRAIN = 1e-12  # nats; rounding a cost upward to whole grains is far below the digits that anybody reads
_UPWARD = 1 + 1e-12  # covers the rounding of the few operations between a proved cost and its grains
_MOST_EPSILON = 1e5  # its grains fit 64-bit integers
_MOST_ORDER = 1e6
_MANY = 2**62
_ORDERS: FloatArray = 1 + np.geomspace(1e-2, 1e5, 2000)
_SEARCHED: FloatArray = 1 + np.geomspace(1e-2, 1e5, 60)


@final
@dataclass(frozen=True, slots=True)
class RenyiFilter:
    """A budget (ε, δ), enforced at one Rényi order."""

    epsilon: float
    delta: float
    order: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _epsilon(self.epsilon))
        object.__setattr__(self, "delta", probability(self.delta, "delta", "the budget"))
        object.__setattr__(self, "order", float(self.order))
        if not (1 < self.order <= _MOST_ORDER and self.capacity > 0):
            raise InvalidParameterError(
                f"`order` of the budget must be > 1, at most {_MOST_ORDER:g}, and leave room below "
                f"epsilon={self.epsilon:g}. Got {self.order:g}; leave it out to have the best one."
            )

    @classmethod
    def suited_to(cls, epsilon: float, delta: float, event: Event | None = None) -> Self:
        """Return the budget at the order that holds the most of `event`, or of Gaussian noise where none is named.

        The order must not depend on votes; that of an event does not.
        """
        epsilon, delta = _epsilon(epsilon), probability(delta, "delta", "the budget")
        # Gaussian noise costs in proportion to the order, whatever its σ.
        best = float(_ORDERS[np.argmax((epsilon - _of_conversion(_ORDERS, delta)) / _ORDERS)])
        if event is not None:
            orders = np.append(_SEARCHED, best)
            costs = data_independent.rdp_of_three_outcomes(event, orders).values
            best = float(orders[np.argmax((epsilon - _of_conversion(orders, delta)) / costs)])
        return cls(epsilon, delta, best)

    @classmethod
    def holding(cls, event: Event, delta: float) -> Self:
        """Return the smallest budget found that holds `event`, which must not depend on votes."""

        def cost(orders: FloatArray) -> FloatArray:
            return data_independent.rdp_of_three_outcomes(event, orders).values

        order = search_epsilon(cost, delta).order
        bare = cls(_MOST_EPSILON, delta, order)
        epsilon = bare.cost(event) * GRAIN * _UPWARD + float(_of_conversion(np.array([order]), delta)[0])
        return cls(max(epsilon, 0.0) * _UPWARD + 2 * GRAIN, delta, order)

    @property
    def capacity(self) -> int:
        """Grains that the budget holds."""
        room = self.epsilon - float(_of_conversion(np.array([self.order]), self.delta)[0])
        return floor(room / _UPWARD / GRAIN)

    def cost(self, event: Event) -> int:
        """Return what `event` takes from the budget, in grains, for any votes."""
        return sum(part.times * _grains(part.event, self.order) for part in event.flatten())

    def fitting(self, event: Event, spent: int) -> int:
        """Return how many more times `event` fits after `spent` grains."""
        cost = self.cost(event)
        return max(0, self.capacity - spent) // cost if cost else _MANY

    def share(self, grains: int) -> float:
        """Return grains as their share of ε: a currency in which the whole budget is worth ε, and shares add up."""
        return self.epsilon * grains / self.capacity


def _of_conversion(orders: FloatArray, delta: float) -> FloatArray:
    """Return what the conversion to (ε, δ) adds at each order (CKS 2020, Proposition 12)."""
    return RenyiCurve(orders, np.zeros(len(orders))).at(delta)


@lru_cache(maxsize=4096)
def _grains(event: Event, order: float) -> int:
    cost = float(data_independent.rdp_of_three_outcomes(event, np.array([order])).values[0])
    if not isfinite(cost) or cost > _MOST_EPSILON:
        raise UnsupportedEventError(f"One {type(event).__name__} costs more than any budget allows. Take more noise.")
    return ceil(cost * _UPWARD / GRAIN)


def _epsilon(value: object) -> float:
    """Return the ε of a budget, if it is one."""
    found = positive(value, "epsilon", "the budget")
    if found > _MOST_EPSILON:
        raise InvalidParameterError(f"`epsilon` of the budget must be at most {_MOST_EPSILON:g}. Got {found:g}.")
    return found
