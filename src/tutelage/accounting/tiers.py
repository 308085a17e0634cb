"""How short the ballots of people are who ask for a smaller ε than that of a budget, and the ε that they have."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tutelage.accounting.filter import Filter
from tutelage.events import TIER_STEPS, TierSteps
from tutelage.exceptions import InvalidParameterError, literal
from tutelage.privacy import PublicEpsilon


def steps_of(epsilons: Mapping[str, float], limit: Filter) -> TierSteps:
    """Return of how many steps the ballots of each tier are, so that its people keep to their ε under a limit."""
    tiers = list[tuple[str, int]]()
    for name, epsilon in sorted(epsilons.items()):
        steps = _most_steps(limit, epsilon)
        if steps == 0:
            raise InvalidParameterError(
                "Tiers.epsilons",
                f"be at least {limit.epsilon_of_length(1 / TIER_STEPS):.2g} here, because a ballot has "
                f"{TIER_STEPS} steps",
                literal(f"{epsilon:g} for {name!r}"),
                "Leave out the rows of these people, or raise their ε.",
            )
        tiers.append((name, steps))
    return tuple(tiers)


def guarantee_of_tier(everybody: PublicEpsilon, limit: Filter, steps: int) -> PublicEpsilon:
    """Return the guarantee of everything within a limit for the people of a tier, beside that of `everybody`."""
    epsilon = limit.epsilon_of_length(steps / TIER_STEPS)
    if epsilon >= everybody.epsilon:
        return everybody
    method = f"{everybody.method}; ballots of {steps}/{TIER_STEPS} of the length"
    return replace(everybody, epsilon=epsilon, method=method, order=None)


@lru_cache(maxsize=256)
def _most_steps(limit: Filter, epsilon: float) -> int:
    """Return the largest number of steps at which ballots are protected by ε."""
    if epsilon >= limit.epsilon:
        return TIER_STEPS
    return bisect_right(
        range(1, TIER_STEPS), epsilon, key=lambda steps: limit.epsilon_of_length(steps / TIER_STEPS)
    )
