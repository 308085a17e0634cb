"""Whether labels come out as often as their event says, and at which made-up neighbors an audit shows most.

The law of an event finds wrong noise of any scale, too much of it included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import final

import numpy as np
from scipy import stats

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage._internal.validation import integer_at_least, probability
from tutelage.audit.mechanism import Neighbors, Part, best_event, check_draws, check_settings, log_ratio, release_many
from tutelage.events import (
    CappedArgmaxGaussian,
    Check,
    ConfidenceCheck,
    Event,
    ExponentialArgmax,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlip,
)
from tutelage.exceptions import UnsupportedEventError
from tutelage.mechanisms import InteractiveGNMax, Mechanism
from tutelage.noise import NoiseSource, known_noise
from tutelage.privacy import ONE_TEACHER
from tutelage.testing.laws import label_law


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LawAudit:
    """How well the labels of one made-up vote count agree with the law of their event; public.

    Parameters
    ----------
    mechanism, counts, draws, confidence
        As for `audit_law`.
    p_value : float
        Probability that a right mechanism differs as much from the law.
    """

    mechanism: str
    counts: tuple[int, ...]
    draws: int
    p_value: float
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

    Parameters
    ----------
    mechanism : Mechanism
        What is audited, as it is installed; it takes no predictions and answers one vote per query.
    counts : tuple of int
        Made-up votes; a lead of about the noise shows most.
    draws : int
        How often they are released.
    confidence : float
        Probability with which a right mechanism is to pass.
    noise : NoiseSource, optional
        Default: `SystemNoise`, the noise of real releases.

    Raises
    ------
    InvalidParameterError
        If `confidence` or `draws` is out of range.
    UnsupportedEventError
        If the law of the mechanism's labels is not known here.

    Notes
    -----
    Exact binomial tests, one per label, corrected for their number after Bonferroni.
    """
    probability(confidence, "confidence", "audit_law")
    check_draws(integer_at_least(draws, 1, "draws", "audit_law"), "draws", "audit_law")
    law = law_at(mechanism, counts)
    labels = release_many(mechanism, counts, draws, known_noise(noise, "audit_law"), sum(counts)).labels
    return LawAudit(
        mechanism=repr(mechanism),
        counts=counts,
        draws=draws,
        p_value=law_p_value(labels.ravel(), law),
        confidence=confidence,
    )


def law_at(
    mechanism: Mechanism, counts: tuple[int, ...], prediction: tuple[float, ...] | None = None, teachers: int = 0
) -> FloatArray:
    """Return the law of a label at these votes; a student with a prediction expects those of so many teachers."""
    event = mechanism.event_of_one(len(counts), ONE_TEACHER, simulated=False)
    offsets = None if prediction is None else InteractiveGNMax.offsets(np.array(prediction), teachers)
    return label_law(event, np.array(counts), offsets)


def law_p_value(labels: IntArray, law: FloatArray) -> float:
    """Return the probability that right labels differ as much from their law, abstentions being its last entry."""
    seen = np.roll(np.bincount(labels - ABSTAIN, minlength=len(law)), -1)
    values = [
        stats.binomtest(int(times), len(labels), min(1.0, float(chance))).pvalue
        for times, chance in zip(seen, law, strict=True)
    ]
    return float(min(1.0, len(values) * min(values)))


_REACH = 5.0  # gaps beyond so many scales are too rare to be seen in any feasible number of draws
_CANDIDATES = 60


def worst_neighbors(
    mechanism: Mechanism, *, delta: float, part: Part = "release", draws: int = 100_000, confidence: float = 0.999
) -> Neighbors:
    """Return the neighbors of two classes at which `draws` releases are expected to show most, by the exact laws.

    Parameters
    ----------
    mechanism : Mechanism
        What is to be audited; its event must be one of `tutelage.events`.
    delta, part, draws, confidence
        As for `audit_mechanism`.

    Raises
    ------
    InvalidParameterError
        If a parameter is out of range.
    UnsupportedEventError
        If the law of the mechanism's labels is not known here.
    """
    check_settings(mechanism, delta, part, draws, confidence, "worst_neighbors")
    half, level = draws // 2, 1 - confidence

    def expected(neighbors: Neighbors) -> float:
        votes, teachers = (neighbors.here, neighbors.there), sum(neighbors.here)
        here, there = (law_at(mechanism, counts, neighbors.prediction, teachers) for counts in votes)
        if part == "check":
            here, there = (np.array([1 - law[-1], law[-1]]) for law in (here, there))
        weights = log_ratio(here, there, at_least=1e-300)
        seen_here, seen_there = (np.rint(half * law).astype(np.int64) for law in (here, there))
        here_more, _ = best_event(weights, seen_here, seen_there, half, delta, level)
        there_more, _ = best_event(-weights, seen_there, seen_here, half, delta, level)
        return max(here_more, there_more)

    return max(_candidates(mechanism, part), key=expected)


def noise_and_check(mechanism: Mechanism) -> tuple[float, Check | None]:
    """Return how large the noise of an answer is, in votes, and the check before it, if there is one."""
    match [release.event for release in mechanism.event_of_one(2, ONE_TEACHER, simulated=False).flatten()]:
        case [ConfidenceCheck() | InteractiveCheck() as check, answer]:
            return _scale_of(answer), check
        case [answer]:
            return _scale_of(answer), None
    raise UnsupportedEventError(f"The label law of {mechanism} is not known here.")


def _candidates(mechanism: Mechanism, part: Part) -> list[Neighbors]:
    """Return neighbors of two classes: around a tie, and, where there is a check, around its threshold."""
    scale, check = noise_and_check(mechanism)
    gaps = [] if part == "check" else _spread(0, ceil(_REACH * scale))
    found = [Neighbors((gap + 1, 1), (gap, 2)) for gap in gaps]
    if check is not None:
        reach, threshold = ceil(_REACH * check.sigma), ceil(check.threshold)
        aims = _spread(max(0, threshold - reach), max(1, threshold + reach))
        found += [_near_threshold(aim, interactive=isinstance(check, InteractiveCheck)) for aim in aims]
    if isinstance(check, InteractiveCheck):
        found = [pair._replace(prediction=(0.5, 0.5)) for pair in found]
    return found


def _scale_of(answer: Event) -> float:
    """Return how large the noise of an answer is, in votes."""
    match answer:
        case NoisyArgmaxGaussian(sigma=sigma) | CappedArgmaxGaussian(sigma=sigma):
            return sigma
        case NoisyArgmaxLaplace(scale=scale) | ExponentialArgmax(scale=scale) | PermuteAndFlip(scale=scale):
            return scale
        case _:
            raise UnsupportedEventError(f"The label law of {type(answer).__name__} is not known here.")


def _near_threshold(aim: int, *, interactive: bool) -> Neighbors:
    """Return votes whose largest count, less what a student of even mind expects, is `aim` and then one more."""
    if interactive:
        return Neighbors((2 * aim + 1, 1), (2 * aim + 2, 0))
    most = max(aim, 1)
    return Neighbors((most, 1), (most + 1, 0))


def _spread(low: int, high: int) -> Sequence[int]:
    return range(low, high + 1, max(1, (high - low) // _CANDIDATES))
