"""How much noise each entity adds, so that what the honest ones add is enough, and what is left if fewer are honest.

Whoever colludes knows the own share of noise and can subtract it. So every entity adds discrete Gaussians of parameter
σ/√h, where h entities are counted on to be honest; what more than h add only hides more. Proofs:
docs/proofs/summed_noise.md.
"""

from dataclasses import replace
from math import ceil, inf, log, nextafter, sqrt

from tutelage._validation import integer_at_least, probability
from tutelage.accounting import data_independent, summed_noise
from tutelage.accounting.exact_composition import gaussian_composition
from tutelage.budget import PublicEpsilon
from tutelage.events import Composed, ConfidenceCheck, Event, NoisyArgmaxGaussian, Repeated, SummedNoise
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError
from tutelage.mechanisms import ConfidentGNMax, GNMax
from tutelage.neighboring import ONE_TEACHER, PrivacyUnit

_OVERFLOW = 2.0**-40 / 10**6  # chance per query that some number needs more bits
_DOWNWARD = 1 - 1e-15  # covers the rounding of the noise that is left

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
    parts = _parts(event_of_one(mechanism, 2, ONE_TEACHER, honest, simulated=False))
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
    _at_most(integer_at_least(honest, 1, "honest", "bit_length"), entities, "honest", "entities", "bit_length")
    votes, *check = share_sigmas(mechanism, honest)
    most = entities * teachers
    tails = classes * (classes - 1) + 2 * len(check)  # one per ordered pair of classes, two of the check
    reach = sqrt(2 * log(tails / _OVERFLOW))
    largest = most + reach * votes * sqrt(2 * entities)
    if isinstance(mechanism, ConfidentGNMax):
        threshold = ceil(mechanism.threshold)
        largest = max(largest, max(most - threshold, threshold, most) + reach * check[0] * sqrt(entities))
    return ceil(nextafter(largest, inf)).bit_length() + 1


def epsilon_if(
    mechanism: SharedMechanism,
    n_classes: int,
    unit: PrivacyUnit,
    honest: int,
    actually_honest: int,
    answers: int,
    delta: float,
) -> PublicEpsilon:
    """Return the ε of the labels if fewer entities kept their noise to themselves than it was sized for.

    What they leave is noise of parameter σ·√(j/h); the rest is known to the colluders, who subtract it.

    Parameters
    ----------
    mechanism : GNMax or ConfidentGNMax
        What was computed on the sums.
    n_classes : int
        Number of counts m.
    unit : PrivacyUnit
        What moves one ballot.
    honest : int
        Entities h that the noise was sized for.
    actually_honest : int
        Entities j, at most h, that were.
    answers : int
        Queries asked, each charged as if it was answered.
    delta : float
        Target δ in (0, 1).

    Raises
    ------
    InvalidParameterError
        If a number is out of range. With no honest entity there is no noise and no ε.
    """
    answers = integer_at_least(answers, 1, "answers", "epsilon_if")
    left = _left(mechanism, n_classes, unit, honest, actually_honest, "epsilon_if")
    return data_independent.epsilon(Repeated(left, answers), delta)


def epsilon_for_two_computing_parties(
    mechanism: SharedMechanism,
    n_classes: int,
    unit: PrivacyUnit,
    honest: int,
    actually_honest: int,
    answers: int,
    delta: float,
) -> PublicEpsilon:
    """Return the ε for two computing parties that pool what they have: together they see the noised totals.

    All m noisy counts of a query are a vector Gaussian mechanism: λ/σ² and the exact composition of discrete Gaussian
    noise bound it. The smaller cost of three outcomes does not, for it is that of the label alone.

    Parameters
    ----------
    mechanism : GNMax
        What was computed on the sums.
    n_classes : int
        Number of counts m.
    unit : PrivacyUnit
        What moves one ballot.
    honest : int
        Entities h that the noise was sized for.
    actually_honest : int
        Entities j, at most h, whose noise neither of the two knows. 1 where they also see each entity's own noisy
        counts, or numbers computed from them.
    answers : int
        Queries asked.
    delta : float
        Target δ in (0, 1).

    Raises
    ------
    UnsupportedEventError
        If the mechanism is `ConfidentGNMax`: its check adds the same noise to every class, so the two see the votes'
        differences bare, and nothing is guaranteed.
    InvalidParameterError
        If a number is out of range.
    """
    owner = "epsilon_for_two_computing_parties"
    if isinstance(mechanism, ConfidentGNMax):
        raise UnsupportedEventError(
            "Nothing is guaranteed against two colluding computing parties of a ConfidentGNMax: the noise of its check "
            "is equal for all classes of a query, so they see the differences of the votes. Take a GNMax, or make sure "
            "that no two of the three collude."
        )
    probability(delta, "delta", owner)
    answers = integer_at_least(answers, 1, "answers", owner)
    left = _left(mechanism, n_classes, unit, honest, actually_honest, owner)
    (one,) = _parts(left)
    apart = answers * summed_noise.log_distance(one)
    at = summed_noise.moved_delta(delta, apart)
    whole = Repeated(one.event, answers)
    value, order = data_independent.rdp(whole).to_epsilon(at)
    candidates = [
        (value, "Rényi composition, conversion of CKS 2020 Proposition 12", order),
        (gaussian_composition(one.event.sigma, answers, at), "exact composition of discrete Gaussian noise", None),
    ]
    value, method, at_order = min(candidates, key=lambda candidate: candidate[0])
    value = summed_noise.moved_epsilon(value, apart)
    return PublicEpsilon(value, delta, unit, f"{method}; all noisy counts are seen", at_order)


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


def _parts(event: Event) -> list[SummedNoise]:
    parts = (part.event for part in data_independent.flatten(event))
    return [part for part in parts if isinstance(part, SummedNoise)]


def _left(
    mechanism: SharedMechanism, n_classes: int, unit: PrivacyUnit, honest: int, actually_honest: int, owner: str
) -> Event:
    """Return what one query is at most where the noise of `actually_honest` entities is all that nobody knows."""
    j = integer_at_least(actually_honest, 1, "actually_honest", owner)
    planned = _parts(event_of_one(mechanism, n_classes, unit, honest, simulated=False))
    _at_most(j, honest, "actually_honest", "honest", owner)
    factor = sqrt(j / honest) * _DOWNWARD
    left = [SummedNoise(replace(part.event, sigma=part.event.sigma * factor), j) for part in planned]
    return left[0] if len(left) == 1 else Composed(tuple(left))


def _at_most(value: int, most: int, name: str, other: str, owner: str) -> None:
    if value > most:
        raise InvalidParameterError(f"`{name}` of {owner} must be at most `{other}`, {most}. Got {value}.")
