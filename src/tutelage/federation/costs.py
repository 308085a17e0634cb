"""The noise that entities add in shares, what queries under their terms cost, and how many fit a batch.

A colluding member knows its own share of noise and can subtract it. So every entity adds discrete Gaussians of
parameter σ/√h, where h entities are counted on to be honest; what more than h add only hides more. Proofs:
docs/proofs/summed_noise.md.
"""

from dataclasses import replace
from math import ceil, log, sqrt

from tutelage._internal.validation import integer_at_least, probability
from tutelage.accounting import composition, data_independent
from tutelage.accounting.composition import gaussian_composition
from tutelage.events import Composed, ConfidenceCheck, Event, Repeated, SummedNoise
from tutelage.exceptions import InvalidDataError, InvalidParameterError, UnsupportedEventError
from tutelage.federation.consortium import Consortium, terms_of_sum
from tutelage.federation.mailbox import MOST_PAYLOAD_BYTES
from tutelage.federation.sharing import ELEMENT_BYTES, HEAD_BYTES, MOST_BITS
from tutelage.mechanisms import ConfidentGNMax, GNMax, NoisySum
from tutelage.mechanisms.local import LocalMechanism
from tutelage.privacy import ONE_TEACHER, PrivacyUnit, PublicEpsilon

_DOWNWARD = 1 - 1e-15  # covers the rounding of the noise that is left
_FALSE_ALARM = 2.0**-100  # chance that honest votes of one entity fail one projection: it is in no δ
_MOST_QUERIES, _MOST_CLASSES = 2**24, 2**16  # of what is compared in one message
_MOST_CELLS = 2**23  # of all entities together: 200 bytes of a computing party's memory each

SharedMechanism = GNMax | ConfidentGNMax


def share_sigmas(mechanism: SharedMechanism, honest: int) -> tuple[float, ...]:
    """Return the parameter σ/√h of one entity's discrete Gaussians: of its votes, then of its check if there is one."""
    parts = _parts_of(event_of_one(mechanism, 2, ONE_TEACHER, honest))
    return tuple(
        part.sigma_of_share for part in sorted(parts, key=lambda part: isinstance(part.event, ConfidenceCheck))
    )


def event_of_one(mechanism: SharedMechanism, n_classes: int, unit: PrivacyUnit, honest: int) -> Event:
    """Return the largest event of one query, for an observer of labels and abstentions only."""
    honest = integer_at_least(honest, 1, "honest", "event_of_one")
    if not isinstance(mechanism, SharedMechanism):
        raise InvalidParameterError(
            f"`mechanism` must be a GNMax or ConfidentGNMax to sum its noise. Got a {type(mechanism).__name__}."
        )
    parts = [part.event for part in mechanism.event_of_one(n_classes, unit, simulated=False).flatten()]
    summed = [SummedNoise(part, honest) for part in parts]  # type: ignore[arg-type]
    return summed[0] if len(summed) == 1 else Composed(tuple(summed))


def bit_length(
    mechanism: SharedMechanism, honest: int, entities: int, teachers_per_entity: int, n_classes: int, queries: int
) -> int:
    """Return bits L such that every number that is compared lies in [−2^(L−1), 2^(L−1)).

    Compared are differences of two noised totals, and a noised total and the threshold. The range is that of votes
    which pass the test of `projection_bound`, whoever made them, not that of honest votes: outside it a comparison is
    no bit, and what is opened would say more than a label. An entity with a number beyond twice the bound passes each
    of forty projections with probability ½ at most: two of the coefficients −1, 0, 1 would have to keep one and the
    same sum within the bound. So it passes with 2⁻⁴⁰.
    """
    entities = integer_at_least(entities, 1, "entities", "bit_length")
    _at_most(integer_at_least(honest, 1, "honest", "bit_length"), entities, "honest", "entities", "bit_length")
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


def _parts_of(event: Event) -> list[SummedNoise]:
    return [part.event for part in event.flatten() if isinstance(part.event, SummedNoise)]


def _at_most(value: int, most: int, name: str, other: str, owner: str) -> None:
    if value > most:
        raise InvalidParameterError(f"`{name}` of {owner} must be at most `{other}`, {most}. Got {value}.")


def event_of_query(consortium: Consortium) -> Event:
    """Return the largest event of one query, or of all rounds of a sum, which every ledger of the consortium spends."""
    mechanism = consortium.mechanism
    if isinstance(mechanism, NoisySum):
        return event_of_rounds(consortium)
    if isinstance(mechanism, LocalMechanism):
        return mechanism.event_of_one(consortium.n_classes, consortium.unit, simulated=False)
    return event_of_one(mechanism, consortium.n_classes, consortium.unit, consortium.honest)


def event_of_rounds(consortium: Consortium, first: int = 0) -> Event:
    """Return the most that opening the sums of a round and of all rounds after it is."""
    _, teacher = terms_of_sum(consortium)
    numbers = teacher.most_numbers(consortium.n_classes)
    return Composed(tuple(event_of_round(consortium, number, numbers) for number in range(first, teacher.rounds)))


def event_of_round(consortium: Consortium, number: int, numbers: int) -> SummedNoise:
    """Return the event of opening the sum of one round: its noisy numbers, within its share of all rounds' budget."""
    mechanism, teacher = terms_of_sum(consortium)
    whole = teacher.event_of_round(mechanism.noise_multiplier, number, numbers, consortium.unit)
    return SummedNoise(whole, consortium.honest)


def epsilon_of_queries(consortium: Consortium, queries: int, delta: float) -> PublicEpsilon:
    """Return the ε of `queries` queries, each spent as if it was labeled."""
    return data_independent.epsilon(Repeated(event_of_query(consortium), queries), delta)


def epsilon_if_fewer_honest(
    mechanism: SharedMechanism,
    n_classes: int,
    unit: PrivacyUnit,
    honest: int,
    actually_honest: int,
    answers: int,
    delta: float,
) -> PublicEpsilon:
    """Return the ε of the labels if fewer entities kept their noise to themselves than it was sized for.

    Noise of parameter σ·√(j/h) is left; the rest is known to the colluders, who subtract it.
    """
    answers = integer_at_least(answers, 1, "answers", "epsilon_if_fewer_honest")
    left = _left(mechanism, n_classes, unit, honest, actually_honest, "epsilon_if_fewer_honest")
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
    noise bound it. The smaller cost of three outcomes does not, because it covers the label alone.
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
    (one,) = _parts_of(left)
    apart = answers * composition.log_distance(one)
    at = composition.moved_delta(delta, apart)
    whole = Repeated(one.event, answers)
    value, order = data_independent.rdp(whole).to_epsilon(at)
    method = "Rényi composition, conversion of CKS 2020 Proposition 12"
    exact = gaussian_composition(one.event.sigma, answers, at)
    if exact < value:
        value, method, order = exact, "exact composition of discrete Gaussian noise", None
    value = composition.moved_epsilon(value, apart)
    return PublicEpsilon(value, delta, unit, f"{method}; all noisy counts are seen", order)


def _left(
    mechanism: SharedMechanism, n_classes: int, unit: PrivacyUnit, honest: int, actually_honest: int, owner: str
) -> Event:
    """Return the event of one query if only the noise of `actually_honest` entities is unknown to everyone else."""
    j = integer_at_least(actually_honest, 1, "actually_honest", owner)
    planned = _parts_of(event_of_one(mechanism, n_classes, unit, honest))
    _at_most(j, honest, "actually_honest", "honest", owner)
    factor = sqrt(j / honest) * _DOWNWARD
    left = [SummedNoise(replace(part.event, sigma=part.event.sigma * factor), j) for part in planned]
    return left[0] if len(left) == 1 else Composed(tuple(left))


def require_size(consortium: Consortium, queries: int) -> None:
    """Refuse a batch of more than `most_queries` queries."""
    if not _fits(consortium, queries):
        most = most_queries(consortium)
        raise InvalidDataError(
            f"A batch under these terms can hold {most:,} queries at most. Got {queries:,}. Ask fewer at once."
            if most
            else "Under these terms not one query can be computed: there are too many classes or landmarks, or noise, "
            "threshold or teachers are too many votes for the numbers that are compared. Agree on others."
        )


def most_queries(consortium: Consortium) -> int:
    """Return how many queries a batch under these terms can hold: what is compared and what is sent must fit."""
    low, high = 0, _MOST_QUERIES
    while low < high:  # what is compared and what is sent grows with the number of queries
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(consortium, middle) else (low, middle - 1)
    return low


def _fits(consortium: Consortium, queries: int) -> bool:
    mechanism, classes = consortium.mechanism, consortium.n_classes
    if isinstance(mechanism, NoisySum):
        numbers = terms_of_sum(consortium)[1].most_numbers(classes)
        return queries <= 1 and HEAD_BYTES + ELEMENT_BYTES * numbers <= MOST_PAYLOAD_BYTES
    if not isinstance(mechanism, SharedMechanism):
        return queries <= min(_MOST_QUERIES, MOST_PAYLOAD_BYTES // (8 * classes))
    cells = (2 if isinstance(mechanism, ConfidentGNMax) else 1) * classes * queries
    entities, teachers = len(consortium.entities), consortium.teachers_per_entity
    return (
        HEAD_BYTES + ELEMENT_BYTES * cells <= MOST_PAYLOAD_BYTES
        and classes <= _MOST_CLASSES
        and entities * cells <= _MOST_CELLS
        and bit_length(mechanism, consortium.honest, entities, teachers, classes, queries) <= MOST_BITS
    )
