"""Whether every query gets noise of its own, of the right size: in batches large and small, tied and unanimous."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple, final

import numpy as np
from scipy import stats

from tutelage._typing import ABSTAIN, FloatArray, IntArray
from tutelage._validation import probability
from tutelage.mechanisms import InteractiveGNMax, Mechanism
from tutelage.mechanisms.registry import entry_of
from tutelage.neighboring import ONE_TEACHER
from tutelage.noise import NoiseSource, known_noise
from tutelage.testing.laws import label_law
from tutelage.votes import VoteHistogram

_ROWS = 2_000
_SMALL_BATCHES = (1, 2, 10, 50, 99)
_SMALL_ROWS = 300  # of each size
_LAGS = (1, 2, 3, 5, 8, _ROWS // 4, _ROWS // 3, _ROWS // 2)
_MOST_CLASSES = 3


class Probe(NamedTuple):
    """Made-up votes of a query, and what a student predicts where the mechanism asks it."""

    counts: tuple[int, ...]
    prediction: tuple[float, ...] | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FreshNoiseAudit:
    """How the labels of equal queries hang together; public, for the votes were made up."""

    mechanism: str
    probe: Probe
    replayed: float
    shared: float
    large: float
    small: float
    confidence: float

    @property
    def passed(self) -> bool:
        """Whether all of it may be chance."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """What is wrong, a sentence each; empty where nothing is."""
        votes, level = f"votes like {self.probe.counts}", (1 - self.confidence) / 4
        said = (
            (self.replayed, f"Two releases of a batch with {votes} are alike: their noise is replayed."),
            (self.shared, f"Queries of one batch with {votes} share noise: what differs between them is released."),
            (self.large, f"Labels of {votes} are not as frequent as the accounting takes them to be."),
            (self.small, f"In batches of less than 100 queries with {votes}, noise is not what it is in large ones."),
        )
        return tuple(sentence for p_value, sentence in said if p_value <= level)


def audit_fresh_noise(
    mechanism: Mechanism, probe: Probe, *, confidence: float = 0.999, noise: NoiseSource | None = None
) -> FreshNoiseAudit:
    """Release batches of equal made-up queries, large ones and small, and look for noise that is missing or reused.

    Notes
    -----
    Exact binomial tests, corrected for their number after Bonferroni. Two independent labels agree with the probability
    Σ_j p_j². Reuse in few queries of many, or between queries far apart in an order of its own, is not seen.
    """
    probability(confidence, "confidence", "audit_fresh_noise")
    source = known_noise(noise, "audit_fresh_noise")
    law = _law(mechanism, probe)
    by_chance = float(np.sum(law**2))
    first, second = (_released(mechanism, probe, _ROWS, source) for _ in range(2))
    small = []
    for size in _SMALL_BATCHES:
        batches = [_released(mechanism, probe, size, source) for _ in range(ceil(_SMALL_ROWS / size))]
        small.append(law_p_value(np.concatenate(batches), law))
    pairs = [_agreement(*pair, by_chance) for pair in _pairs(first)]
    return FreshNoiseAudit(
        mechanism=repr(mechanism),
        probe=probe,
        replayed=_agreement(first, second, by_chance),
        shared=min(1.0, len(pairs) * min(pairs)),
        large=law_p_value(first, law),
        small=min(1.0, len(small) * min(small)),
        confidence=confidence,
    )


def telling_probes(mechanism: Mechanism, n_teachers: int, n_classes: int) -> tuple[tuple[Mechanism, Probe], ...]:
    """Return tied and unanimous votes for the mechanism, and for one of its kind whose noise is a few votes."""
    classes = min(n_classes, _MOST_CLASSES)
    entry = entry_of(mechanism)
    few_votes = mechanism if entry is None else entry.make_of_few_votes()
    found = []
    for kind in [mechanism] if few_votes == mechanism else [mechanism, few_votes]:
        scale = max(getattr(kind, name, 0.0) for name in ("scale", "sigma", "sigma_vote"))
        threshold = getattr(kind, "threshold", None)
        tied = n_teachers // 2 if threshold is None else ceil(threshold)
        alone = min(round(scale), n_teachers) if threshold is None else ceil(threshold)
        # A student sure of the last class expects no votes for the first, which then has to reach the threshold.
        prediction = (0.0,) * (classes - 1) + (1.0,) if kind.takes_predictions else None
        votes = (max(1, tied),) * classes, (max(1, alone), *(0,) * (classes - 1))
        found += [(kind, Probe(counts, prediction)) for counts in votes]
    return tuple(found)


def law_p_value(labels: IntArray, law: FloatArray) -> float:
    """Return the probability that right labels differ as much from their law, abstentions being its last entry."""
    seen = np.roll(np.bincount(labels - ABSTAIN, minlength=len(law)), -1)
    values = [
        stats.binomtest(int(times), len(labels), min(1.0, float(chance))).pvalue
        for times, chance in zip(seen, law, strict=True)
    ]
    return float(min(1.0, len(values) * min(values)))


def _law(mechanism: Mechanism, probe: Probe) -> FloatArray:
    counts, offsets = np.array(probe.counts), None
    if probe.prediction is not None:
        offsets = InteractiveGNMax.offsets(np.array(probe.prediction), int(counts.sum()))
    return label_law(mechanism.event_of_one(len(counts), ONE_TEACHER, simulated=False), counts, offsets)


def _released(mechanism: Mechanism, probe: Probe, rows: int, noise: NoiseSource) -> IntArray:
    """Return the label of each query, or an abstention where the teachers did not answer."""
    votes = VoteHistogram(np.tile(probe.counts, (rows, 1)), sum(probe.counts))
    predictions = None if probe.prediction is None else np.tile(probe.prediction, (rows, 1))
    release = mechanism.release(votes, noise, predictions)
    return np.where(release.voted, release.labels, ABSTAIN)


def _pairs(labels: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Return queries that are looked at together; within a pair of arrays, none stands twice."""
    for lag in _LAGS:
        for phase in (0, 1):
            first = np.flatnonzero(np.arange(len(labels) - lag) // lag % 2 == phase)
            if len(first):
                yield labels[first], labels[first + lag]
    half = len(labels) // 2
    yield labels[:half], labels[::-1][:half]


def _agreement(one: IntArray, other: IntArray, by_chance: float) -> float:
    return float(stats.binomtest(int(np.sum(one == other)), len(one), min(1.0, by_chance)).pvalue)
