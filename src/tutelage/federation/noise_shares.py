"""How much noise each entity adds, so that what the honest ones add is enough, and how large its votes can then be.

Whoever colludes knows the own share of noise and can subtract it. So every entity adds discrete Gaussians of parameter
σ/√h, where h entities are counted on to be honest; what more than h add only hides more. Proofs:
docs/proofs/summed_noise.md.
"""

from math import ceil, inf, log, nextafter, sqrt

from tutelage._validation import integer_at_least
from tutelage.accounting import data_independent
from tutelage.events import Composed, ConfidenceCheck, Event, NoisyArgmaxGaussian, SummedNoise
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import ConfidentGNMax, GNMax
from tutelage.neighboring import ONE_TEACHER, PrivacyUnit

_FALSE_ALARM = 2.0**-100  # chance that honest votes of one entity fail one projection: it is in nobody's δ
_OVERFLOW = 2.0**-40 / 10**6  # chance per query that some number needs more bits

SharedMechanism = GNMax | ConfidentGNMax


def share_sigmas(mechanism: SharedMechanism, honest: int) -> tuple[float, ...]:
    """Return the parameter σ/√h of one entity's discrete Gaussians, one per block of what it sends.

    Parameters
    ----------
    mechanism : GNMax or ConfidentGNMax
        What is computed on the sums; its σ are those of the honest entities' whole noise.
    honest : int
        Entities h that are certain to answer and to keep their noise to themselves.

    Returns
    -------
    tuple of float
        Votes. `GNMax`: the noise of each count. `ConfidentGNMax`: that of each count, then that of the check, drawn
        once per query and added to every class.

    Raises
    ------
    InvalidParameterError
        If the mechanism is another one, or a share has less noise than 2 votes.
    """
    parts = parts_of(event_of_one(mechanism, 2, ONE_TEACHER, honest, simulated=False))
    votes = [part.sigma_of_share for part in parts if isinstance(part.event, NoisyArgmaxGaussian)]
    checks = [part.sigma_of_share for part in parts if isinstance(part.event, ConfidenceCheck)]
    return (*votes, *checks)


def event_of_one(
    mechanism: SharedMechanism, n_classes: int, unit: PrivacyUnit, honest: int, *, simulated: bool
) -> Event:
    """Return the most that answering one query can be, for whoever sees labels and abstentions only.

    Parameters
    ----------
    mechanism : GNMax or ConfidentGNMax
        What is computed on the sums.
    n_classes : int
        Number of counts m.
    unit : PrivacyUnit
        What moves one ballot.
    honest : int
        Entities h that are certain to answer and to keep their noise to themselves.
    simulated : bool
        Whether the noise comes from a seeded generator, which protects nobody.

    Raises
    ------
    InvalidParameterError
        If the mechanism is another one, or a share has less noise than 2 votes.
    """
    honest = integer_at_least(honest, 1, "honest", "event_of_one")
    return _summed(_shared(mechanism).event_of_one(n_classes, unit, simulated=simulated), honest)


def bit_length(mechanism: SharedMechanism, honest: int, entities: int, teachers_per_entity: int, n_classes: int) -> int:
    """Return bits L such that every number that is compared lies in [−2^(L−1), 2^(L−1)).

    Compared are differences of two noised totals, and a noised total and the threshold. One leaves the range with a
    chance of at most 2⁻⁴⁰ in a million queries, if the entities send what they should.

    Parameters
    ----------
    mechanism : GNMax or ConfidentGNMax
        What is computed on the sums.
    honest : int
        Entities h that the noise is sized for.
    entities : int
        Entities N that answer at most; each adds noise.
    teachers_per_entity : int
        Most ballots of one entity per query.
    n_classes : int
        Number of counts m.

    Raises
    ------
    InvalidParameterError
        If a number is out of range, or more entities are honest than there are.

    Notes
    -----
    A discrete Gaussian is sub-Gaussian, E[e^{tZ}] ≤ e^{t²σ²/2} (Canonne, Kamath and Steinke 2020, section 3), so a sum
    of variables with variance parameters v passes x with a chance of at most e^{−x²/2v}.
    """
    entities = integer_at_least(entities, 1, "entities", "bit_length")
    teachers = integer_at_least(teachers_per_entity, 1, "teachers_per_entity", "bit_length")
    classes = integer_at_least(n_classes, 2, "n_classes", "bit_length")
    at_most(integer_at_least(honest, 1, "honest", "bit_length"), entities, "honest", "entities", "bit_length")
    votes, *check = share_sigmas(mechanism, honest)
    most = entities * teachers
    tails = classes * (classes - 1) + 2 * len(check)  # one per ordered pair of classes, two of the check
    reach = sqrt(2 * log(tails / _OVERFLOW))
    largest = most + reach * votes * sqrt(2 * entities)
    if isinstance(mechanism, ConfidentGNMax):
        threshold = ceil(mechanism.threshold)
        largest = max(largest, max(most - threshold, threshold, most) + reach * check[0] * sqrt(entities))
    return ceil(nextafter(largest, inf)).bit_length() + 1


def projection_bound(
    mechanism: SharedMechanism, honest: int, teachers_per_entity: int, n_classes: int, queries: int
) -> int:
    """Return what a projection of one entity's noised votes on coefficients −1, 0, 1 stays below, if it is honest.

    The coefficients are random and independent, ±1 with probability ¼ each. Votes of one query have a Euclidean norm of
    k teachers at most, so their projection is sub-Gaussian with k·√B per block; noise of parameter s on independent
    cells with s·√(B·m), and noise that all m classes of a query share with s·m·√B at most.

    Parameters
    ----------
    mechanism : GNMax or ConfidentGNMax
        What is computed on the sums.
    honest : int
        Entities h that the noise is sized for.
    teachers_per_entity : int
        Most ballots k of one entity per query.
    n_classes : int
        Number of counts m.
    queries : int
        Size B of the batch.

    Returns
    -------
    int
        In votes; honest votes pass it with probability above 1 − 2⁻¹⁰⁰ per projection.
    """
    vote, *check = share_sigmas(mechanism, honest)
    norms = [(1 + len(check)) * teachers_per_entity, vote * sqrt(n_classes), *(sigma * n_classes for sigma in check)]
    return ceil(sqrt(queries) * sum(norms) * sqrt(2 * log(2 * len(norms) / _FALSE_ALARM)))


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
    parts = (part.event for part in data_independent.flatten(event))
    return [part for part in parts if isinstance(part, SummedNoise)]


def at_most(value: int, most: int, name: str, other: str, owner: str) -> None:
    """Refuse a number above another, by their names."""
    if value > most:
        raise InvalidParameterError(f"`{name}` of {owner} must be at most `{other}`, {most}. Got {value}.")
