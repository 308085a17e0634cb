"""A promise of differential privacy beside privacy: on others, a student does nearly as well as on its own people.

Let a student be computed from the rows of people who come from one population, by a mechanism that is (ε, δ)
differentially private when one person is replaced. Let w be the expected share of a person's rows that it gets wrong,
or any other loss from 0 to 1. For people who had no part in it, the expected loss is at most e^ε·w + δ, because a
replaced person is one who had no part. This holds for every pair (ε, δ) of the mechanism. Proof: docs/proofs/report.md.
"""

from collections.abc import Iterable
from math import exp, isfinite

from tutelage.accounting import data_independent
from tutelage.accounting.composition import epsilon_of_shifts
from tutelage.accounting.filter import Filter, GaussianFilter
from tutelage.events import Event

Pairs = list[tuple[float, float]]
"""Several pairs (ε, δ) of one mechanism."""
_DELTAS = (1e-5, 1e-3, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3)


def pairs_of(event: Event) -> Pairs:
    """Return pairs (ε, δ) of an event."""
    return [(data_independent.epsilon(event, delta).epsilon, delta) for delta in _DELTAS]


def pairs_within(limit: Filter) -> Pairs:
    """Return pairs (ε, δ) of everything that is ever released within a limit."""
    pairs = [(limit.epsilon, limit.delta)]
    # A limit that was raised holds more than what its μ² says.
    if isinstance(limit, GaussianFilter) and limit.first is None:
        pairs += [(epsilon_of_shifts(limit.mu_squared, delta), delta) for delta in _DELTAS]
    return pairs


def most_on_others(loss: float, pairs: Iterable[tuple[float, float]]) -> float:
    """Return a bound on the expected loss, from 0 to 1, of people who had no part, by that of people who had."""
    bounds = [exp(epsilon) * loss + delta for epsilon, delta in pairs if isfinite(epsilon)]
    return min(1.0, *bounds)
