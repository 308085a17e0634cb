"""Each entity perturbs its own vote before sending it, so that no one is trusted with the votes; and decoders.

A channel is the table of chances of each report for each class. The truncated geometric mechanism is the class as a
number, plus discrete Laplace noise, clamped: right for classes with an order, as printed wrong (docs/errata.md).
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import permutations
from math import exp, inf, nextafter, sqrt
from typing import Any, ClassVar, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from tutelage import events
from tutelage._internal.records import frozen, settle
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, IntArray
from tutelage._internal.validation import (
    ballots_between,
    integer_at_least,
    local_epsilon,
    noise_scale,
    positive,
    probability,
)
from tutelage.accounting import data_independent
from tutelage.accounting.calibration import least_noise
from tutelage.events import Event, NoisyBallot, Repeated
from tutelage.exceptions import AsPrintedWarning, InvalidBallotError, InvalidParameterError
from tutelage.mechanisms.registry import RegistryEntry, Setting
from tutelage.noise import NoiseSource, keep_chance
from tutelage.privacy import ONE_ENTITY, PrivacyUnit

_MOST_NOISE = 1e4  # votes: more leaves nothing of one vote

__all__ = [
    "ClassResponse",
    "Decoder",
    "KRandomizedResponse",
    "LocalGaussian",
    "LocalMechanism",
    "TruncatedGeometric",
    "TruncatedGeometricAsPrinted",
    "count_reports",
    "decode",
    "invert_channel",
    "local_gaussian_for",
    "maximize_likelihood",
    "plurality_threshold",
    "weight_of_report",
]


class LocalMechanism(ABC):
    """A randomizer of one entity's votes. The report is private against every reader.

    Whether an entity takes part is not hidden, so it must not depend on its data. Fields are public parameters.
    """

    __slots__ = ()
    _ABSENT = ABSTAIN

    @abstractmethod
    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what one response of one entity is; the entity's ledger reserves it before any noise is drawn."""

    @final
    def perturb(self, ballots: ArrayLike, n_classes: int, noise: NoiseSource) -> IntArray:
        """Draw one response per vote, with fresh `noise`; calling again is another response and costs again.

        Parameters
        ----------
        ballots : integer array of shape (entities, queries)
            Private class index below `n_classes` per entity and query, or −1 where the entity does not take part.

        Returns
        -------
        integer array of shape (entities, queries), or (entities, queries, classes) for `LocalGaussian`
            What may be sent; −1 where the entity does not take part, or 0 in every class for `LocalGaussian`, where −1
            is a report like others.
        """
        integer_at_least(n_classes, 2, "n_classes", type(self).__name__)
        name = f"`ballots` of {type(self).__name__}"
        ballots = ballots_between(ballots, n_classes, name, "(entities, queries)")
        taking_part = ballots != ABSTAIN
        drawn = self._respond(ballots[taking_part].astype(np.int64), n_classes, noise)
        reports = np.full((*ballots.shape, *drawn.shape[1:]), self._ABSENT, np.int64)
        reports[taking_part] = drawn
        return reports

    @abstractmethod
    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        """Draw one response per class; the first axis of the result is that of `classes`."""


class ClassResponse(LocalMechanism):
    """A local mechanism that reports a class: its whole law is a matrix of chances, the channel."""

    __slots__ = ()

    @abstractmethod
    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns) given each class (rows); rows sum to 1.

        Columns are the classes; where reports may be no class, a last column is their chance.
        """


@frozen
class _OfEpsilon(ClassResponse):
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", local_epsilon(self.epsilon, type(self).__name__))


Number = TypeVar("Number", float, Fraction)


def randomized_response(keep: Number, n_classes: int) -> list[list[Number]]:
    """Return the channel that keeps a class with chance `keep`, or else reports any other, all equally likely."""
    other = (1 - keep) / (n_classes - 1)
    return [
        [keep if report == own else other for report in range(n_classes)]
        for own in range(n_classes)
    ]


def truncated_geometric(alpha: Number, n_classes: int, beyond: int = 0) -> list[list[Number]]:
    """Return the α-truncated geometric channel on the classes (Ghosh, Roughgarden and Sundararajan 2012).

    The law of own + Z clamped, P(Z = k) ∝ α^|k|. With `beyond` 1 that of Zhao's equation (2), whose report 0 is not a
    class: here the last column.
    """
    size = n_classes + beyond

    def probability_of(own: int, report: int) -> Number:
        inside = 1 if report in (0, size - 1) else 1 - alpha
        return inside * alpha ** abs(report - own) / (1 + alpha)

    return [
        [probability_of(own + beyond, (report + beyond) % size) for report in range(size)]
        for own in range(n_classes)
    ]


@final
@frozen
class KRandomizedResponse(_OfEpsilon):
    """Keep the class with probability e^ε/(e^ε + classes − 1), or else report any other; each response is ε-private.

    Parameters
    ----------
    epsilon : float
        Pure loss ε of one response, in nats, between 1e-6 and 100.

    Notes
    -----
    Local differential privacy for the entity's whole data, whatever its teacher does with them (Kairouz, Oh and
    Viswanath 2014). The chance to keep a class is a multiple of 2⁻⁶⁰, rounded downward, so no more than ε is spent.
    """

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what one response of one entity is."""
        return events.RandomizedResponse(
            self.epsilon,
            n_classes,
            unit,
            simulated,
        )

    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns) given each class (rows); rows sum to 1."""
        return np.array(
            randomized_response(keep_chance(self.epsilon, n_classes) / events.CERTAIN, n_classes)
        )

    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        return noise.randomized_response(classes, n_classes, self.epsilon)


@final
@frozen
class LocalGaussian(LocalMechanism):
    """Report the vote as a vector of one 1 and zeros, plus discrete Gaussian noise; λ/σ² at Rényi order λ.

    Parameters
    ----------
    sigma : float
        Parameter σ of the noise on each class, in votes. `local_gaussian_for` finds it for an (ε, δ).

    Notes
    -----
    Another vote moves one class down and another up by one, an L2 distance of √2. Zhao promises a Gaussian variant
    and does not specify it; this one adds up: the sum over entities is a noisy vote count.
    """

    _ABSENT = 0

    sigma: float

    def __post_init__(self) -> None:
        settle(self, "sigma", noise_scale)

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what one response of one entity is."""
        return NoisyBallot(self.sigma, n_classes, unit, simulated)

    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        drawn = noise.discrete_gaussian(self.sigma, (len(classes), n_classes))
        drawn[np.arange(len(classes)), classes] += 1
        return drawn


@frozen
class _Clamped(_OfEpsilon):
    """Discrete Laplace noise on the class, clamped to the classes and to so many reports that are beyond them."""

    _beyond: ClassVar[int]

    def event_of_one(self, n_classes: int, unit: PrivacyUnit, *, simulated: bool) -> Event:
        """Return what one response of one entity is."""
        return events.TruncatedGeometricResponse(self._scale(n_classes), n_classes, unit, simulated)

    def channel(self, n_classes: int) -> FloatArray:
        """Return the chance of each report (columns; the last one may be no class) given each class (rows)."""
        return np.array(
            truncated_geometric(exp(-1 / self._scale(n_classes)), n_classes, self._beyond)
        )

    def _scale(self, n_classes: int) -> float:
        distance = (
            integer_at_least(n_classes, 2, "n_classes", type(self).__name__) - 1 + self._beyond
        )
        return _scale_above(distance, self.epsilon)

    def _respond(self, classes: IntArray, n_classes: int, noise: NoiseSource) -> IntArray:
        size = n_classes + self._beyond
        drawn = noise.discrete_laplace(self._scale(n_classes), classes.shape)
        return (np.clip(classes + self._beyond + drawn, 0, size - 1) - self._beyond) % size


@final
@frozen
class TruncatedGeometric(_Clamped):
    """Add discrete Laplace noise of scale (classes − 1)/ε to the class and clamp it; each response is ε-private.

    Parameters
    ----------
    epsilon : float
        Pure loss ε of one response, in nats, between 1e-6 and 100.

    Notes
    -----
    The α-truncated geometric mechanism, α = e^(−ε/(classes − 1)), of Ghosh, Roughgarden and Sundararajan 2012: what
    equations (1) and (2) of Zhao mean. Reports near the class are likelier, which helps only where classes have an
    order, and the first and last class are reported too often: see `decode`.
    """

    _beyond = 0


@final
@frozen
class TruncatedGeometricAsPrinted(_Clamped):
    """Zhao's equation (2) to the letter, for comparison: each response is only ε(classes − 1)/classes-private.

    Classes are numbered 1, …, M there while reports are 0, …, M: report 0 is not a class and is wasted. Here its index
    is M, one beyond the last class.

    Parameters
    ----------
    epsilon : float
        ε of the printed equation, in nats, between 1e-6 and 100.

    Warns
    -----
    AsPrintedWarning
        Always: `TruncatedGeometric` spends all of ε and reports classes only.
    """

    _beyond = 1

    def __post_init__(self) -> None:
        _OfEpsilon.__post_init__(self)
        warnings.warn(
            "Equation (2) as printed reports a number that is not a class, and its true loss is epsilon*(classes - "
            "1)/classes. Use TruncatedGeometric, or KRandomizedResponse.",
            AsPrintedWarning,
            stacklevel=3,
        )


def _scale_above(distance: int, epsilon: float) -> float:
    """Return the smallest float from distance/ε on, so that the noise is never less than ε allows."""
    scale = distance / epsilon
    return scale if Fraction(scale) * Fraction(epsilon) >= distance else nextafter(scale, inf)


def local_gaussian_for(epsilon: float, delta: float, answers: int) -> LocalGaussian:
    """Return the local Gaussian mechanism with the least noise whose `answers` responses are (ε, δ)-private together.

    Calibrated to five digits by the exact composition of the discrete noise that is drawn, L2 sensitivity √2; for more
    than a vote or two of noise it is the analytic Gaussian mechanism (Balle and Wang 2018, Theorem 8).

    Parameters
    ----------
    epsilon : float
        ε of all responses of one entity, in nats.
    delta : float
        δ of the same guarantee.
    answers : int
        How many responses one entity gives.

    Raises
    ------
    InvalidParameterError
        If it would take noise of more than ten thousand votes.
    """
    owner = "local_gaussian_for"
    epsilon = positive(epsilon, "epsilon", owner)
    probability(delta, "delta", owner)
    answers = integer_at_least(answers, 1, "answers", owner)

    def share(sigma: float) -> float:
        event = Repeated(NoisyBallot(sigma, 2, ONE_ENTITY), answers)
        return data_independent.epsilon(event, delta).epsilon / epsilon

    if share(_MOST_NOISE) > 1:
        raise InvalidParameterError(
            f"{owner}.epsilon",
            f"be larger for {answers} responses, which need noise of more than {_MOST_NOISE:g} votes",
            f"{epsilon:g}",
            "Ask fewer queries, or raise $epsilon.",
        )
    return LocalGaussian(least_noise(share))


_EPSILON = Setting("epsilon", "epsilon", "epsilon of one response")
_SIGMA = Setting("sigma", "sigma", "sigma of the noise on the vote counts, in votes")
# Every local mechanism by name, with its settings and the instances that audits and tests use.
LOCAL: Mapping[str, RegistryEntry[LocalMechanism]] = {
    name: RegistryEntry[LocalMechanism](name, kind, (setting,), line, (1.0,))
    for name, kind, setting, line in (
        (
            "k-randomized-response",
            KRandomizedResponse,
            _EPSILON,
            "the default: classes have no order",
        ),
        ("truncated-geometric", TruncatedGeometric, _EPSILON, "classes have an order"),
        (
            "truncated-geometric-as-printed",
            TruncatedGeometricAsPrinted,
            _EPSILON,
            "only to compare with the paper's equation (2)",
        ),
        ("local-gaussian", LocalGaussian, _SIGMA, "reports are only ever summed"),
    )
}


# Decoding is post-processing, so free. Which decoder finds the right class: docs/proofs/local.md.

_MOST_STEPS = 2000
_SETTLED = 1e-7  # largest change of a share in one step
_QUERIES_AT_ONCE = 4096


@final
class Decoder(StrEnum):
    """How reports become a label."""

    # The class reported most, Zhao's equations (3) and (4); for LocalGaussian the largest sum.
    PLURALITY = "plurality"
    INVERSE = "inverse"  # the largest unbiased estimate of the true count
    # The largest share in the distribution of votes that makes the reports likeliest.
    LIKELIHOOD = "likelihood"


def decode(
    reports: ArrayLike,
    mechanism: LocalMechanism | Sequence[LocalMechanism],
    n_classes: int,
    decoder: Decoder | str | None = None,
) -> IntArray:
    """Return the label that the reports speak for, per query; lowest index wins ties.

    Reports of different mechanisms count by `weight_of_report`, which is public: one at a small ε says little.

    Parameters
    ----------
    reports : integer array of shape (entities, queries), or (entities, queries, classes) for `LocalGaussian`
        What `LocalMechanism.perturb` drew, −1 (or zeros) for entities that did not take part.
    mechanism : LocalMechanism or sequence of them
        What every entity perturbed its vote by, or what each of them did, in their order: every entity may choose its
        own ε or σ.
    n_classes : int
        Number of classes.
    decoder : Decoder, optional
        Default: plurality for `KRandomizedResponse`, where all three agree but for ties, and for `LocalGaussian`,
        which has no other; likelihood for the truncated geometric mechanisms. Several mechanisms may be decoded by
        plurality only if all are `KRandomizedResponse` or all are `LocalGaussian`.

    Returns
    -------
    integer array of shape (queries,)
        Class index, or −1 for a query without reports.

    Raises
    ------
    InvalidParameterError
        If the decoder does not fit this mechanism, or is plurality where it elects the wrong class even of a unanimous
        vote, however many entities there are. If there is not one mechanism per entity, or some report a class and
        others a vector.
    """
    integer_at_least(n_classes, 2, "n_classes", "decode")
    reports_of = _by_mechanism(np.asarray(reports), mechanism)
    chosen = _known_decoder(decoder, list(reports_of))
    channels = list[FloatArray]()
    counts = list[IntArray]()
    weights = list[float]()
    sums = list[Array]()
    scores: Any
    for kind, some in reports_of.items():
        weights.append(weight_of_report(kind, n_classes))
        if isinstance(kind, ClassResponse):
            channels.append(_channel_for(kind, n_classes, chosen))
            counts.append(count_reports(some, channels[-1].shape[1]))
        else:
            sums.append(_sums_of_vectors(some, n_classes))
    if sums:
        heard: Any = sum(of_kind.any(axis=(0, 2)) for of_kind in sums)
        scores = sum(
            weight * of_kind.sum(axis=0) for weight, of_kind in zip(weights, sums, strict=True)
        )
        return np.where(heard, scores.argmax(axis=1), ABSTAIN)
    all_counts = np.hstack(counts)
    match chosen:
        case Decoder.PLURALITY:
            # An estimate of a vote by randomized response is its report divided by p − q, whose square is the weight
            # but for a constant, so that the report itself counts by the root.
            scores = sum(
                sqrt(weight) * of_kind[:, :n_classes]
                for weight, of_kind in zip(weights, counts, strict=True)
            )
        case Decoder.INVERSE:
            scores = sum(
                weight * invert_channel(of_kind, channel)
                for weight, of_kind, channel in zip(weights, counts, channels, strict=True)
            )
        case Decoder.LIKELIHOOD:
            scores = maximize_likelihood(all_counts, np.hstack(channels))
    return np.where(all_counts.any(axis=1), scores.argmax(axis=1), ABSTAIN)


def weight_of_report(mechanism: LocalMechanism, n_classes: int) -> float:
    """Return how much one report counts beside those of other mechanisms: 1/variance of the estimate of its vote.

    The estimate is unbiased, one number per class; its variance is the mean over the classes, for votes of which each
    class has an equal share. It follows from public settings alone, so that weighting costs no privacy.

    Parameters
    ----------
    mechanism : LocalMechanism
        What the vote was perturbed by.
    n_classes : int
        Number of classes, at least 2.
    """
    share = 1 / integer_at_least(n_classes, 2, "n_classes", "weight_of_report")
    if isinstance(mechanism, LocalGaussian):
        return 1 / (share * (1 - share) + mechanism.sigma**2)
    if not isinstance(mechanism, ClassResponse):
        raise InvalidParameterError(
            "weight_of_report.mechanism",
            "be a ClassResponse or LocalGaussian",
            f"a {type(mechanism).__name__}",
        )
    channel = mechanism.channel(n_classes)
    # estimates: (outcomes, classes)
    estimates = np.linalg.pinv(channel)
    squares: FloatArray = channel.mean(axis=0) @ estimates**2
    return 1 / float(np.mean(squares) - share**2)


def _by_mechanism(
    reports: Array, mechanism: LocalMechanism | Sequence[LocalMechanism]
) -> dict[LocalMechanism, Array]:
    """Return the reports of each different mechanism."""
    if isinstance(mechanism, LocalMechanism):
        return {mechanism: reports}
    of_each = list(mechanism)
    if not of_each or reports.shape[:1] != (len(of_each),):
        raise InvalidParameterError(
            "decode.mechanism",
            "be one mechanism, or as many as `reports` has rows",
            f"{len(of_each)} for reports of shape {reports.shape}",
        )
    kinds = list(dict.fromkeys(of_each))
    if len({isinstance(kind, ClassResponse) for kind in kinds}) > 1:
        raise InvalidParameterError(
            "decode.mechanism",
            "report either a class in all entities, or a vector in all",
            "both",
            "Decode the reports of `LocalGaussian` apart.",
        )
    numbers = np.array([kinds.index(kind) for kind in of_each])
    return {kind: reports[numbers == number] for number, kind in enumerate(kinds)}


def _channel_for(mechanism: ClassResponse, n_classes: int, decoder: Decoder) -> FloatArray:
    """Return the channel of a mechanism; refuse plurality where it elects the wrong class."""
    channel = mechanism.channel(n_classes)
    if decoder is Decoder.PLURALITY and plurality_threshold(channel) >= 1:
        raise InvalidParameterError(
            "decode.decoder",
            f"not be 'plurality' for {mechanism!r} with {n_classes} classes, because even a unanimous vote "
            "would elect the wrong class",
            fix="Use 'likelihood' or 'inverse', or use KRandomizedResponse.",
        )
    return channel


def _sums_of_vectors(reports: Array, n_classes: int) -> Array:
    if reports.ndim != 3 or reports.shape[2] != n_classes or reports.dtype.kind not in "iu":
        raise InvalidBallotError(
            f"`reports` of LocalGaussian must be an integer array of shape (entities, queries, {n_classes}). "
            f"Got {reports.dtype} of shape {reports.shape}."
        )
    return reports


def count_reports(reports: ArrayLike, outcomes: int) -> IntArray:
    """Return how often each outcome was reported, c_j(x): shape (queries, outcomes); absent entities are not counted.

    Parameters
    ----------
    reports : integer array of shape (entities, queries)
        Outcome per entity and query, or −1.
    outcomes : int
        Number of outcomes: columns of the channel.
    """
    reports = ballots_between(reports, outcomes, "`reports`", "(entities, queries)")
    queries: int = reports.shape[1]
    places = reports.astype(np.int64) + np.arange(queries) * outcomes
    return np.bincount(places[reports != ABSTAIN], minlength=queries * outcomes).reshape(
        queries, outcomes
    )


def invert_channel(counts: IntArray, channel: FloatArray) -> FloatArray:
    """Return unbiased estimates of the votes for each class, of shape (queries, classes); they may be negative.

    Parameters
    ----------
    counts : integer array of shape (queries, outcomes)
        Reports of each outcome.
    channel : array of shape (classes, outcomes)
        `ClassResponse.channel`.
    """
    # E[counts] = votes · channel, and channel · pinv(channel) = 1 for rows that are linearly independent.
    return counts @ np.linalg.pinv(channel)


def maximize_likelihood(counts: IntArray, channel: FloatArray) -> FloatArray:
    """Return the shares of the classes that make the reports likeliest, of shape (queries, classes); rows sum to 1.

    Expectation maximization from equal shares, until no share moves by 1e-7 in a step, 2000 steps at most: the
    likelihood is concave, and no step lowers it. Shares stay equal where nothing was reported. Parameters are those of
    `invert_channel`; of several mechanisms, the columns of all channels, and the counts of their outcomes, in one row.
    """
    shares = np.full((len(counts), len(channel)), 1 / len(channel))
    heard = np.flatnonzero(counts.sum(axis=1))
    for start in range(0, len(heard), _QUERIES_AT_ONCE):
        part = heard[start : start + _QUERIES_AT_ONCE]
        frequencies = counts[part] / counts[part].sum(axis=1, keepdims=True)
        found = shares[part]
        for _ in range(_MOST_STEPS):
            before = found
            found = before * ((frequencies / (before @ channel)) @ channel.T)
            if np.abs(found - before).max(initial=0) < _SETTLED:
                break
        shares[part] = found
    return shares


def plurality_threshold(channel: Array) -> Any:
    """Return the share of the votes above which the reports of many entities are most often the winner's.

    It holds for all votes of the others: at or below it, there are votes of which a wrong class is reported most often,
    however many entities there are. 1/2 for randomized response; 1 where not even all votes suffice.

    Parameters
    ----------
    channel : array of shape (classes, outcomes)
        `ClassResponse.channel`, or the same in exact numbers.
    """
    highest = channel[0, 0] * 0
    for winner, rival in permutations(range(len(channel)), 2):
        behind = channel[:, rival] - channel[:, winner]
        lead = -behind[winner]
        if lead <= 0:
            return 1 + highest * 0
        most = max(np.delete(behind, winner))
        if most > 0:
            highest = max(highest, most / (most + lead))
    return highest


def _known_decoder(decoder: Decoder | str | None, mechanisms: Sequence[LocalMechanism]) -> Decoder:
    has_channel = isinstance(mechanisms[0], ClassResponse)
    by_plurality = not has_channel or all(
        isinstance(kind, KRandomizedResponse) for kind in mechanisms
    )
    if decoder is None:
        return Decoder.PLURALITY if by_plurality else Decoder.LIKELIHOOD
    if decoder not in list(Decoder):
        raise InvalidParameterError(
            "decode.decoder", f"be one of {', '.join(Decoder)}", f"{decoder!r}"
        )
    chosen = Decoder(decoder)
    if chosen is not Decoder.PLURALITY and not has_channel:
        raise InvalidParameterError(
            "decode.decoder",
            f"be 'plurality' for {type(mechanisms[0]).__name__}, which has no channel",
            f"{chosen.value!r}",
        )
    if chosen is Decoder.PLURALITY and len(mechanisms) > 1 and not by_plurality:
        raise InvalidParameterError(
            "decode.decoder",
            "not be 'plurality' for several mechanisms, unless all are KRandomizedResponse",
            fix="Use 'likelihood' or 'inverse'.",
        )
    return chosen
