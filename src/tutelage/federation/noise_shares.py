"""How much noise each entity adds, so that what the honest ones add is enough, and how large its votes can then be.

Whoever colludes knows the own share of noise and can subtract it. So every entity adds discrete Gaussians of parameter
σ/√h, where h entities are counted on to be honest; what more than h add only hides more. Proofs:
docs/proofs/summed_noise.md.
"""

from math import ceil, log, sqrt

from tutelage._validation import integer_at_least
from tutelage.events import Composed, ConfidenceCheck, Event, NoisyArgmaxGaussian, SummedNoise
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import ConfidentGNMax, GNMax
from tutelage.neighboring import ONE_TEACHER, PrivacyUnit

_FALSE_ALARM = 2.0**-100  # chance that honest votes of one entity fail one projection: it is in nobody's δ
MOST_BITS = 26  # of what the computing parties compare

SharedMechanism = GNMax | ConfidentGNMax


def share_sigmas(mechanism: SharedMechanism, honest: int) -> tuple[float, ...]:
    """Return the parameter σ/√h of one entity's discrete Gaussians, one per block of what it sends."""
    parts = parts_of(event_of_one(mechanism, 2, ONE_TEACHER, honest, simulated=False))
    votes = [part.sigma_of_share for part in parts if isinstance(part.event, NoisyArgmaxGaussian)]
    checks = [part.sigma_of_share for part in parts if isinstance(part.event, ConfidenceCheck)]
    return (*votes, *checks)


def event_of_one(
    mechanism: SharedMechanism, n_classes: int, unit: PrivacyUnit, honest: int, *, simulated: bool
) -> Event:
    """Return the most that answering one query can be, for whoever sees labels and abstentions only."""
    honest = integer_at_least(honest, 1, "honest", "event_of_one")
    return _summed(_shared(mechanism).event_of_one(n_classes, unit, simulated=simulated), honest)


def bit_length(
    mechanism: SharedMechanism,
    honest: int,
    entities: int,
    teachers_per_entity: int,
    n_classes: int,
    queries: int,
) -> int:
    """Return bits L such that every number that is compared lies in [−2^(L−1), 2^(L−1)).

    Compared are differences of two noised totals, and a noised total and the threshold. The range is that of votes
    which pass the test of `projection_bound`, whoever made them, not that of honest votes: outside it a comparison is
    no bit, and what is opened would say more than a label.

    Notes
    -----
    An entity with a number beyond twice the bound passes each of forty projections with probability ½ at most: two of
    the coefficients −1, 0, 1 would have to keep one and the same sum within the bound. So it passes with 2⁻⁴⁰.
    """
    entities = integer_at_least(entities, 1, "entities", "bit_length")
    at_most(integer_at_least(honest, 1, "honest", "bit_length"), entities, "honest", "entities", "bit_length")
    total = 2 * entities * projection_bound(mechanism, honest, teachers_per_entity, n_classes, queries)
    threshold = ceil(mechanism.threshold) if isinstance(mechanism, ConfidentGNMax) else 0
    return max(2 * total, total + abs(threshold)).bit_length() + 1


def projection_bound(
    mechanism: SharedMechanism, honest: int, teachers_per_entity: int, n_classes: int, queries: int
) -> int:
    """Return what a projection of one entity's noised votes on coefficients −1, 0, 1 stays below, if it is honest.

    The coefficients are independent, ±1 with probability ¼ each. docs/proofs/summed_noise.md has the proof.
    """
    teachers = integer_at_least(teachers_per_entity, 1, "teachers_per_entity", "projection_bound")
    classes = integer_at_least(n_classes, 2, "n_classes", "projection_bound")
    queries = integer_at_least(queries, 1, "queries", "projection_bound")
    vote, *check = share_sigmas(mechanism, honest)
    parts = 2 + 2 * len(check)
    tail = log(2 * parts / _FALSE_ALARM)
    counts = teachers * sqrt((1 + len(check)) * queries / 2)
    noise = vote * sqrt(classes * queries)
    # All classes of a query share the check's noise: their coefficients add up first.
    common = [sigma * sqrt(classes / 2 * (queries + 2 * sqrt(queries * tail) + 2 * tail)) for sigma in check]
    return ceil((counts + noise + sum(common)) * sqrt(2 * tail))


def _shared(mechanism: SharedMechanism) -> SharedMechanism:
    if not isinstance(mechanism, SharedMechanism):
        raise InvalidParameterError(
            f"`mechanism` of a consortium that sums its noise must be a GNMax or ConfidentGNMax. "
            f"Got a {type(mechanism).__name__}."
        )
    return mechanism


def _summed(event: Event, shares: int) -> Event:
    if isinstance(event, Composed):
        return Composed(tuple(_summed(part, shares) for part in event.events))
    return SummedNoise(event, shares)  # type: ignore[arg-type]


def parts_of(event: Event) -> list[SummedNoise]:
    """Return the releases of `event` whose noise is summed."""
    parts = (part.event for part in event.flatten())
    return [part for part in parts if isinstance(part, SummedNoise)]


def at_most(value: int, most: int, name: str, other: str, owner: str) -> None:
    """Refuse a number above another, by their names."""
    if value > most:
        raise InvalidParameterError(f"`{name}` of {owner} must be at most `{other}`, {most}. Got {value}.")
