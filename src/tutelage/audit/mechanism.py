"""A lower bound on the ε of a mechanism as it is installed, from many releases of two made-up neighbors.

One half of the draws chooses the event that tells the neighbors apart, the other half bounds its probabilities, so
nothing is looked at twice. A right mechanism is accused with a probability of at most 1 − confidence.
"""

from collections.abc import Sequence
from math import ceil, inf, sqrt
from operator import itemgetter
from typing import Literal, NamedTuple, final, get_args

import numpy as np

from tutelage._internal.records import frozen
from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least, number_between, probability
from tutelage.accounting import data_independent
from tutelage.ballots import BallotSum
from tutelage.events import (
    CappedArgmaxGaussian,
    Check,
    Composed,
    Event,
    ExponentialArgmax,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
    Repeated,
)
from tutelage.exceptions import InvalidParameterError, UnsupportedEventError, quote
from tutelage.mechanisms import InteractiveGNMax, Mechanism, NoisySum, Release
from tutelage.noise import NoiseSource, known_noise
from tutelage.privacy import ONE_TEACHER
from tutelage.testing.laws import (
    at_least,
    at_most,
    frequencies_of,
    label_law,
    made_up_votes,
    p_value_of,
)


def _refuted_epsilon(
    more: IntArray,
    less: IntArray,
    trials: int,
    delta: float,
    level: float,
) -> FloatArray:
    """Return the largest ε ≥ 0 that an event refutes: P(S) ≤ e^ε P′(S) + δ fails for every smaller one."""
    above = at_least(more, trials, level / 2) - delta
    below = at_most(less, trials, level / 2)
    with np.errstate(divide="ignore"):
        log_ratio = np.log(np.maximum(above, 0)) - np.log(below)
    return np.maximum(log_ratio, 0.0)


def _best_event(
    scores: FloatArray,
    frequencies: Sequence[IntArray],
    trials: int,
    delta: float,
    level: float,
) -> tuple[float, IntArray, int]:
    """Return the largest ε that outcomes with the largest, or the least, scores refute on these frequencies.

    Their places follow, and at which of the two neighbors they were seen more often.
    """
    # scores, frequencies at each neighbor: (outcomes,)
    events = list[tuple[float, IntArray, int]]()
    for more, order in enumerate((-scores, scores)):
        ranked = np.argsort(order, kind="stable")
        often = np.cumsum(frequencies[more][ranked])
        seldom = np.cumsum(frequencies[1 - more][ranked])
        bounds = _refuted_epsilon(often, seldom, trials, delta, level)
        best = int(np.argmax(bounds))
        events.append((float(bounds[best]), ranked[: best + 1], more))
    return max(events, key=itemgetter(0))


Part = Literal["release", "check"]
_MOST_DRAWS = 10**7  # of all queries together; they are held in memory


class Neighbors(NamedTuple):
    """Two synthetic vote counts that differ by one moved ballot, and a prediction if the mechanism needs one."""

    here: tuple[int, ...]
    there: tuple[int, ...]
    prediction: tuple[float, ...] | None = None


@final
@frozen
class MechanismAudit:
    """Result of many releases of a mechanism; public, because the votes were made up."""

    mechanism: str
    neighbors: Neighbors
    draws: int
    delta: float
    claim: float  # ε that the accounting claims at `delta`, in nats
    lower_bound: float  # the ε of the mechanism at `delta` is at least this, in nats
    confidence: float
    part: Part = "release"
    queries: int = 1

    @property
    def passed(self) -> bool:
        """Whether the claim stands: it is not below what was shown."""
        return self.lower_bound <= self.claim


def audit_mechanism(
    mechanism: Mechanism,
    neighbors: Neighbors,
    *,
    delta: float,
    part: Part = "release",
    queries: int = 1,
    draws: int = 100_000,
    confidence: float = 0.999,
    claim: float | None = None,
    noise: NoiseSource | None = None,
) -> MechanismAudit:
    """Bound the ε of `mechanism` from below by telling two neighbors apart.

    Events are prefixes in the order of the estimated likelihood ratio, which are the best ones for any (ε, δ) by the
    Neyman–Pearson lemma; bounds on their probabilities are those of Clopper and Pearson (1934).

    Parameters
    ----------
    mechanism : Mechanism
        What is audited, as it is installed.
    neighbors : Neighbors
        Made-up votes, for example those of `worst_neighbors`. Never use private votes: the draws are not counted in any
        budget.
    delta : float
        δ of the claim, at least 0 and below 1. Where δ is small, only rare events tell more, and take more draws.
    part : "release" or "check"
        Whether to look at the labels, or, of a mechanism that checks first, at which queries pass.
    queries : int
        Number of queries that are answered and tested together; the claim is for all of them.
    draws : int
        Releases of each neighbor, half of them to choose the event; at most 10⁷ over all queries.
    confidence : float
        Probability with which the bound is to hold.
    claim : float, optional
        ε that is claimed at `delta`. Default: the data-independent cost of the mechanism's event.
    noise : NoiseSource, optional
        Default: `SystemNoise`, the noise of real releases.
    """
    owner = "audit_mechanism"
    _check_settings(mechanism, delta, part, draws, confidence, owner)
    check_draws(draws * integer_at_least(queries, 1, "queries", owner), "draws", owner)
    if not _are_neighbors(np.array(neighbors.here), np.array(neighbors.there)):
        raise InvalidParameterError(
            "audit_mechanism.neighbors",
            "be vote counts of at least two classes that differ by one ballot, such as (6, 5) and (5, 6)",
        )
    if claim is None:
        event = event_of_one(mechanism, len(neighbors.here))
        if part == "check" and isinstance(event, Composed):
            event = event.events[0]
        claim = claimed_epsilon(Repeated(event, queries), delta)
    source = known_noise(noise, owner)
    teachers = max(sum(neighbors.here), sum(neighbors.there))

    def outcomes(votes: tuple[int, ...]) -> IntArray:
        """Return what each query of each draw came to: label + 1, or whether its check passed."""
        release = release_many(
            mechanism,
            votes,
            draws * queries,
            source,
            teachers,
            neighbors.prediction,
        )
        results = release.labels + 1
        if part == "check":
            results = release.voted.astype(np.int64)
        return results.reshape(draws, -1)

    here = outcomes(neighbors.here)
    there = outcomes(neighbors.there)
    return MechanismAudit(
        mechanism=repr(mechanism),
        neighbors=neighbors,
        draws=draws,
        delta=delta,
        claim=claim,
        lower_bound=lower_bound(here, there, delta, 1 - confidence),
        confidence=confidence,
        part=part,
        queries=queries,
    )


def _are_neighbors(here: IntArray, there: IntArray) -> bool:
    """Return whether two vote counts of at least two classes differ by one ballot."""
    if here.ndim != 1 or here.shape != there.shape or len(here) < 2:
        return False
    difference = there - here
    sizes = np.abs(difference)
    is_one_ballot = sizes.max() == 1 and sizes.sum() <= 2 and abs(difference.sum()) <= 1
    return bool(is_one_ballot and np.minimum(here, there).min() >= 0)


def _check_settings(
    mechanism: Mechanism | None,
    delta: float,
    part: Part,
    draws: int,
    confidence: float,
    owner: str,
) -> None:
    """Refuse settings of an audit that make no sense; of a noisy sum, which has no parts, without a mechanism."""
    number_between(delta, 0, 1, "delta", owner)
    probability(confidence, "confidence", owner)
    check_draws(integer_at_least(draws, 4, "draws", owner), "draws", owner)
    if part not in get_args(Part):
        raise InvalidParameterError(
            f"{owner}.part",
            "be 'release' or 'check'",
            f"{part!r}",
        )
    if mechanism and part == "check" and not isinstance(event_of_one(mechanism), Composed):
        raise InvalidParameterError(
            f"{owner}.part", "be 'release' for a mechanism without a check", f"{part!r}"
        )


def check_draws(draws: int, name: str, owner: str) -> None:
    """Refuse more draws, of all queries together, than fit into memory."""
    if draws > _MOST_DRAWS:
        raise InvalidParameterError(
            f"{owner}.{name}",
            f"be at most {_MOST_DRAWS:,} over all queries together, because all draws are kept in memory",
            f"{draws:,}",
        )


def event_of_one(mechanism: Mechanism, n_classes: int = 2) -> Event:
    """Return the event of one query of one teacher."""
    return mechanism.event_of_one(n_classes, ONE_TEACHER, simulated=False)


def claimed_epsilon(event: Event, delta: float) -> float:
    """Return the ε that the accounting claims for `event` at any votes."""
    if delta > 0:
        return data_independent.epsilon(event, delta).epsilon
    for part in event.flatten():
        if not isinstance(part.event, data_independent.PureArgmax):
            return inf
    return data_independent.basic_epsilon(event).epsilon


def release_many(
    mechanism: Mechanism,
    counts: tuple[int, ...],
    queries: int,
    noise: NoiseSource,
    teachers: int,
    prediction: tuple[float, ...] | None = None,
) -> Release:
    """Release queries with these votes, and with this prediction of a student where the mechanism asks it."""
    votes = made_up_votes(mechanism, counts, queries, teachers)
    predictions = None
    if prediction is not None:
        predictions = np.tile(prediction, (queries, 1))
    return mechanism.release(votes, noise, predictions)


def lower_bound(here: IntArray, there: IntArray, delta: float, level: float) -> float:
    """Return an ε that outcomes of shape (draws, queries), whole numbers from 0 on, refute at this level."""
    half = len(here) // 2
    size = int(max(here.max(), there.max())) + 1
    here_counts = np.bincount(here[:half].ravel(), minlength=size)
    there_counts = np.bincount(there[:half].ravel(), minlength=size)
    weights = np.log(here_counts + 0.5) - np.log(there_counts + 0.5)
    scores = list[FloatArray]()
    for outcomes in (here, there):
        sums: FloatArray = weights[outcomes].sum(axis=1)
        scores.append(np.round(sums, 9))
    values = np.unique(np.concatenate(scores))
    first_half = list[IntArray]()
    second_half = list[IntArray]()
    for score in scores:
        places = np.asarray(np.searchsorted(values, score))
        first_half.append(np.bincount(places[:half], minlength=len(values)))
        second_half.append(np.bincount(places[half:], minlength=len(values)))

    bound, event, more = _best_event(values, first_half, half, delta, level)
    if bound == 0:
        return 0.0  # no event was chosen by the first half, and the second must not choose one
    often = second_half[more][event].sum()
    seldom = second_half[1 - more][event].sum()
    return float(_refuted_epsilon(often, seldom, len(here) - half, delta, level))


@final
@frozen
class LawAudit:
    """How well the labels of one made-up vote count agree with the law of their event; public."""

    mechanism: str
    counts: tuple[int, ...]
    draws: int
    p_value: float  # probability that a right mechanism differs as much from the law
    confidence: float

    @property
    def passed(self) -> bool:
        """Whether the difference may be chance."""
        return self.p_value > 1 - self.confidence


def audit_law(
    mechanism: Mechanism,
    counts: tuple[int, ...],
    *,
    draws: int = 100_000,
    confidence: float = 0.999,
    noise: NoiseSource | None = None,
) -> LawAudit:
    """Release made-up votes many times and compare the frequency of every label with its exact probability.

    Exact binomial tests, one per label, corrected for their number after Bonferroni.

    Parameters
    ----------
    mechanism : Mechanism
        What is audited, as it is installed; it takes no predictions and answers one vote per query.
    counts : tuple of int
        Made-up votes; a lead of about the noise shows most.
    draws, confidence, noise
        As for `audit_mechanism`.
    """
    probability(confidence, "confidence", "audit_law")
    check_draws(integer_at_least(draws, 1, "draws", "audit_law"), "draws", "audit_law")
    source = known_noise(noise, "audit_law")
    release = release_many(mechanism, counts, draws, source, sum(counts))
    return LawAudit(
        mechanism=repr(mechanism),
        counts=counts,
        draws=draws,
        p_value=law_p_value(release.labels.ravel(), law_at(mechanism, counts)),
        confidence=confidence,
    )


def law_at(
    mechanism: Mechanism,
    counts: tuple[int, ...],
    prediction: tuple[float, ...] | None = None,
    teachers: int = 0,
) -> FloatArray:
    """Return the law of a label at these votes; a student with a prediction expects those of so many teachers."""
    event = event_of_one(mechanism, len(counts))
    offsets = None
    if prediction is not None:
        offsets = InteractiveGNMax.offsets(np.array(prediction), teachers)
    return label_law(event, np.array(counts), offsets)


def law_p_value(labels: IntArray, law: FloatArray) -> float:
    """Return the probability that right labels differ as much from their law, abstentions being its last entry."""
    frequencies = frequencies_of(labels, len(law) - 1).tolist()
    p_values = list[float]()
    for times, chance in zip(frequencies, law, strict=True):
        p_values.append(p_value_of(times, len(labels), chance))
    return least_of(p_values)


def least_of(p_values: list[float]) -> float:
    """Return the smallest p-value, corrected for their number after Bonferroni."""
    return min(1.0, len(p_values) * min(p_values))


_REACH = 5.0  # gaps beyond so many scales are too rare to be seen in any feasible number of draws
_CANDIDATES = 60


def worst_neighbors(
    mechanism: Mechanism,
    *,
    delta: float,
    part: Part = "release",
    draws: int = 100_000,
    confidence: float = 0.999,
) -> Neighbors:
    """Return the neighbors of two classes at which `draws` releases are expected to show most, by the exact laws.

    Parameters
    ----------
    mechanism : Mechanism
        What is to be audited; its event must be one of `tutelage.events` with a known law.
    delta, part, draws, confidence
        As for `audit_mechanism`.
    """
    _check_settings(mechanism, delta, part, draws, confidence, "worst_neighbors")
    half = draws // 2
    level = 1 - confidence

    def expected_bound(neighbors: Neighbors) -> float:
        teachers = sum(neighbors.here)
        laws = list[FloatArray]()
        for counts in (neighbors.here, neighbors.there):
            law = law_at(mechanism, counts, neighbors.prediction, teachers)
            if part == "check":
                law = np.array([1 - law[-1], law[-1]])
            laws.append(law)
        here, there = np.log(np.add(laws, 1e-300))
        frequencies = np.rint(np.multiply(laws, half)).astype(np.int64)
        bound, _, _ = _best_event(here - there, [*frequencies], half, delta, level)
        return bound

    return max(_candidates(mechanism, part), key=expected_bound)


def noise_and_check(mechanism: Mechanism) -> tuple[float, Check | None]:
    """Return how large the noise of an answer is, in votes, and the check before it, if there is one."""
    *checks, answer = [part.event for part in event_of_one(mechanism).flatten()]
    check = next(iter(checks), None)
    if len(checks) > 1 or not isinstance(check, Check | None):
        raise UnsupportedEventError(f"The label law of {mechanism} is not known here.")
    match answer:
        case (
            NoisyArgmaxGaussian(sigma=size)
            | CappedArgmaxGaussian(sigma=size)
            | NoisyArgmaxLaplace(scale=size)
            | ExponentialArgmax(scale=size)
            | PermuteAndFlipArgmax(scale=size)
        ):
            return size, check
        case _:
            raise UnsupportedEventError(
                f"The label law of {type(answer).__name__} is not known here."
            )


def _candidates(mechanism: Mechanism, part: Part) -> list[Neighbors]:
    """Return neighbors of two classes: around a tie, and, where there is a check, around its threshold."""
    scale, check = noise_and_check(mechanism)
    candidates = list[Neighbors]()
    if part != "check":
        for gap in _spread(0, ceil(_REACH * scale)):
            candidates.append(Neighbors((gap + 1, 1), (gap, 2)))
    if check is None:
        return candidates
    is_interactive = isinstance(check, InteractiveCheck)
    reach = ceil(_REACH * check.sigma)
    threshold = ceil(check.threshold)
    for aim in _spread(max(0, threshold - reach), max(1, threshold + reach)):
        # The largest count, less what a student of even mind expects, is `aim` and then one more.
        largest = 2 * aim + 1 if is_interactive else max(aim, 1)
        candidates.append(Neighbors((largest, 1), (largest + 1, 0)))
    if is_interactive:
        return [pair._replace(prediction=(0.5, 0.5)) for pair in candidates]
    return candidates


def _spread(low: int, high: int) -> range:
    return range(low, high + 1, max(1, (high - low) // _CANDIDATES))


_INTERVALS = 60  # of what is seen of a sum
_REACH_OF_SUM = 4.0  # standard deviations, by which they go beyond both sums


def audit_sum(
    mechanism: NoisySum,
    ballot: Sequence[int],
    *,
    delta: float,
    draws: int = 100_000,
    confidence: float = 0.999,
    claim: float | None = None,
    noise: NoiseSource | None = None,
) -> MechanismAudit:
    """Bound the ε of a noisy sum from below by telling a made-up ballot from its opposite.

    Releases are looked at along the line through both sums, on which the likelihood ratio depends alone, in intervals.

    Parameters
    ----------
    mechanism : NoisySum
        What is audited, as it is installed.
    ballot : sequence of int
        The only ballot of the one sum, as long as the mechanism allows; that of the other one is its opposite. No two
        sums of neighbors are farther apart.
    delta, draws, confidence, claim, noise
        As for `audit_mechanism`.
    """
    owner = "audit_sum"
    _check_settings(None, delta, "release", draws, confidence, owner)
    along = np.array(ballot)
    if along.ndim != 1 or not np.issubdtype(along.dtype, np.integer) or not along.any():
        raise InvalidParameterError(
            f"{owner}.ballot", "be a vector of whole numbers that are not all 0", quote(ballot)
        )
    norm_squared = int(along @ along)
    source = known_noise(noise, owner)
    # Every row of what is released at once is a sum of its own.
    sums = [BallotSum(np.tile(sign * along, (draws, 1)), norm_squared) for sign in (1, -1)]
    event = mechanism.most(sums[0].form, simulated=source.simulated)
    reach = norm_squared + _REACH_OF_SUM * event.sigma * sqrt(norm_squared)
    inner = np.linspace(-reach, reach, _INTERVALS + 1)[1:-1]

    intervals = list[IntArray]()
    for ballots in sums:
        projected = mechanism.release(ballots, source).values @ along
        intervals.append(np.digitize(projected, inner)[:, np.newaxis])
    here, there = intervals
    if claim is None:
        claim = claimed_epsilon(event, delta)
    return MechanismAudit(
        mechanism=repr(mechanism),
        neighbors=Neighbors(tuple(along.tolist()), tuple((-along).tolist())),
        draws=draws,
        delta=delta,
        claim=claim,
        lower_bound=lower_bound(here, there, delta, 1 - confidence),
        confidence=confidence,
    )
