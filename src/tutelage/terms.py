"""Which ε, δ, share and noise apply to a release: decided here, by what is asked and what a ledger holds."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tutelage.accounting.calibration import noise_within, repeated_event
from tutelage.accounting.composition import epsilon_of_shifts, most_shifts
from tutelage.accounting.filter import Accounting, Filter, limit_of
from tutelage.events import Event, NoisySumGaussian
from tutelage.exceptions import InvalidParameterError, Problem
from tutelage.privacy import ONE_ENTITY

_LENGTH = 2**16  # of a ballot, as the steps of methods have it
DEFAULT_EPSILON = 1.0  # where the noise follows from the budget, and neither is named


class Asked(NamedTuple):
    """The ε, budget and δ that a caller asks for; public. None where nothing is said."""

    epsilon: float | None
    budget: float | None
    releases: int
    delta: float
    given: bool  # whether a mechanism is given, so that the noise is its own
    # Whether the release has a name: people who come later then have all of the budget.
    named: bool = False

    @property
    def each(self) -> float | None:
        """ε of one release as far as it is stated: of equal ones, that of each; None where nothing is said."""
        if self.epsilon is not None or self.budget is None:
            return self.epsilon
        if self.releases == 1:
            return self.budget
        mu_squared = most_shifts(self.budget, self.delta) / self.releases
        return epsilon_of_shifts(mu_squared, self.delta)

    def problems(self, owner: str, *, has_ledger: bool) -> Iterator[Problem]:
        """Yield what does not go together."""
        if self.given and self.epsilon is not None:
            yield Problem(
                f"{owner}.epsilon",
                "be left out if the method has a `mechanism`, because each of them sets the noise",
                fix="To limit all releases together, set $budget.",
            )
        if self.budget is not None and not has_ledger:
            yield Problem(
                f"{owner}.budget",
                "come with $ledger, because it limits all releases of one ledger",
                fix="Set $ledger to a file. For a single fit, use $epsilon instead.",
            )
        if self.releases > 1 and (self.budget is None or self.epsilon is not None or self.given):
            yield Problem(
                f"{owner}.releases",
                "come with $budget alone, which it divides into equal releases",
                fix="Set $budget, and leave out $epsilon and the `mechanism` of the method.",
            )


class Terms(NamedTuple):
    """The limit and the share of a release, and how both are kept; public."""

    # The limit of all releases; None for a ledger that just holds this one, with the mechanism given.
    limit: Filter | None
    # The ε of this release; None for the whole limit, or for what a given mechanism costs.
    share: float | None
    releases: int  # equal ones that the limit is for
    stated: float | None  # ε of this release as it was stated, if only a ledger does not know it
    accounting: Accounting  # by which a new ledger keeps its limit
    by_itself: Accounting  # which bounds the ε of this release alone

    def least_noise(self, event_of: Callable[[float], Event]) -> float:
        """Return the least noise at which a release stays within its share and the limit."""
        if self.limit is None:
            raise InvalidParameterError(
                "mechanism", "be left out to get the least noise that ε allows"
            )
        return noise_within(
            self.limit, repeated_event(event_of, self.releases), self.share, self.by_itself
        )


def terms_of(asked: Asked, accounting: Accounting, held: Filter | None) -> Terms:
    """Return the terms of a release, by what is asked, how its method is accounted for, and the limit of a ledger.

    The limit is that of the ledger; of a new one, the budget, or else ε, or else 1. A mechanism that is given has a
    cost of its own. A budget for several equal releases gives the least noise with which so many stay within it.
    """
    if held is not None:
        stated = asked.epsilon
        if asked.budget is not None:
            stated = stated or held.epsilon
        return Terms(held, asked.epsilon, asked.releases, stated, accounting, accounting)
    if asked.given and asked.budget is None:
        return Terms(None, None, 1, None, accounting, accounting)
    target = asked.budget or asked.epsilon or DEFAULT_EPSILON
    of_new = _accounting_of_new(asked, accounting, target)
    limit = limit_of(target, asked.delta, of_new)
    return Terms(limit, asked.epsilon, asked.releases, asked.epsilon or target, of_new, accounting)


def _accounting_of_new(asked: Asked, accounting: Accounting, target: float) -> Accounting:
    """Return how a new ledger keeps its limit: of one with room for more, orders of Rényi hold all kinds of releases.

    A sum that nearly fills it costs more by an order than by itself: by an order it would need more noise than its ε.
    """
    if asked.given:
        return Accounting.RENYI
    if asked.epsilon in (None, target) or accounting is Accounting.RENYI:
        return accounting
    if asked.named:
        return Accounting.RENYI
    alone = limit_of(asked.epsilon, asked.delta, accounting)
    noise = noise_within(alone, _one_sum)
    shared = limit_of(target, asked.delta, Accounting.RENYI)
    if shared.cost(_one_sum(noise)) <= shared.capacity:
        return Accounting.RENYI
    return accounting


def _one_sum(noise: float) -> Event:
    """Return a sum with this much noise, in lengths of a ballot: whatever its form, its ε follows from that alone.

    Ballots are long in whole numbers, as those of methods are: for shorter ones, rounding would count.
    """
    return NoisySumGaussian(noise * _LENGTH, _LENGTH**2, 1, ONE_ENTITY)
