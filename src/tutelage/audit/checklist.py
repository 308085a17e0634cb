"""The audits of one pipeline as a list of verdicts, each with its reason; first, whether its noise is fresh."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.base import clone

from tutelage._internal.typing import ABSTAIN, IntArray, Matrix
from tutelage._internal.validation import integer_at_least, probability
from tutelage.audit.mechanism import (
    Part,
    audit_law,
    audit_mechanism,
    law_at,
    law_p_value,
    noise_and_check,
    release_many,
    worst_neighbors,
)
from tutelage.audit.overlap import audit_overlap, entities_in_several_shards
from tutelage.audit.sensitivity import audit_sensitivity, ballots_of_classifier
from tutelage.estimator import PATEClassifier
from tutelage.events import Composed
from tutelage.mechanisms import Mechanism
from tutelage.mechanisms.registry import entry_of
from tutelage.noise import NoiseSource, known_noise
from tutelage.partition import as_column
from tutelage.privacy import ONE_TEACHER, round_up

_ROWS = 2_000
_SMALL_BATCHES = (1, 2, 10, 50, 99)
_SMALL_ROWS = 300  # of each size
_LAGS = (1, 2, 3, 5, 8, _ROWS // 4, _ROWS // 3, _ROWS // 2)
_PROBED_CLASSES = 3


class Probe(NamedTuple):
    """Made-up votes of a query, and what a student predicts where the mechanism asks it."""

    counts: tuple[int, ...]
    prediction: tuple[float, ...] | None = None


def audit_fresh_noise(
    mechanism: Mechanism, probe: Probe, *, confidence: float = 0.999, noise: NoiseSource | None = None
) -> tuple[str, ...]:
    """Release batches of equal made-up queries, large and small, and return what shows missing or reused noise.

    Notes
    -----
    Exact binomial tests, corrected for their number after Bonferroni. Two independent labels agree with the probability
    Σ_j p_j². Reuse in few queries of many, or between queries far apart in an order of its own, is not seen.
    """
    probability(confidence, "confidence", "audit_fresh_noise")
    source = known_noise(noise, "audit_fresh_noise")
    teachers = sum(probe.counts)
    law = law_at(mechanism, probe.counts, probe.prediction, teachers)
    by_chance = float(np.sum(law**2))

    def released(rows: int) -> IntArray:
        """Return the label of each query, or an abstention where the teachers did not answer."""
        release = release_many(mechanism, probe.counts, rows, source, teachers, probe.prediction)
        return np.where(release.voted, release.labels, ABSTAIN)

    first, second = released(_ROWS), released(_ROWS)
    small = []
    for size in _SMALL_BATCHES:
        batches = [released(size) for _ in range(ceil(_SMALL_ROWS / size))]
        small.append(law_p_value(np.concatenate(batches), law))
    pairs = [_agreement(*pair, by_chance) for pair in _pairs(first)]
    votes, level = f"votes like {probe.counts}", (1 - confidence) / 4
    found = (
        (
            _agreement(first, second, by_chance),
            f"Two releases of a batch with {votes} are alike: their noise is replayed.",
        ),
        (
            min(1.0, len(pairs) * min(pairs)),
            f"Queries of one batch with {votes} share noise: what differs between them is released.",
        ),
        (
            law_p_value(first, law),
            f"Labels of {votes} are not as frequent as the accounting takes them to be.",
        ),
        (
            min(1.0, len(small) * min(small)),
            f"In batches of less than 100 queries with {votes}, noise is not what it is in large ones.",
        ),
    )
    return tuple(sentence for p_value, sentence in found if p_value <= level)


def telling_probes(mechanism: Mechanism, n_teachers: int, n_classes: int) -> tuple[tuple[Mechanism, Probe], ...]:
    """Return tied and unanimous votes for the mechanism, and for one of its kind whose noise is a few votes."""
    classes = min(n_classes, _PROBED_CLASSES)
    entry = entry_of(mechanism)
    few_votes = mechanism if entry is None else entry.make_of_few_votes()
    found = []
    for kind in [mechanism] if few_votes == mechanism else [mechanism, few_votes]:
        scale, check = noise_and_check(kind)
        tied, alone = n_teachers // 2, min(round(scale), n_teachers)
        if check is not None:
            tied = alone = ceil(check.threshold)
        # A student sure of the last class expects no votes for the first, which then has to reach the threshold.
        prediction = (0.0,) * (classes - 1) + (1.0,) if kind.takes_predictions else None
        votes = (max(1, tied),) * classes, (max(1, alone), *(0,) * (classes - 1))
        found += [(kind, Probe(counts, prediction)) for counts in votes]
    return tuple(found)


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


Verdict = Literal["pass", "fail", "note"]
_ALONE = "There is one teacher, so no change could have reached a second one: nothing was shown."
_CONFIDENCE = 1 - 1e-6  # of each check
_DELTA = 0.01  # smaller ones show in rare events only, which take more draws
_MOST_CLASSES = 4
_SAMPLED_ROWS, _TEACHERS, _QUERIES = 1_500, 10, 300


@final
@dataclass(frozen=True, slots=True)
class Checked:
    """Result of one check."""

    check: str
    verdict: Verdict
    reason: str
    private: bool = False


class PrivateRows(NamedTuple):
    """Private rows as a run takes them."""

    X: Matrix
    y: npt.NDArray[Any]
    entity_ids: npt.NDArray[Any] | None = None
    silos: npt.NDArray[Any] | None = None


def check_mechanism(
    mechanism: Mechanism, n_teachers: int, n_classes: int, *, draws: int = 40_000, noise: NoiseSource | None = None
) -> list[Checked]:
    """Release made-up votes with `mechanism`, and with one of its kind with little noise, and judge what comes out."""
    part: Part = "check" if mechanism.takes_predictions else "release"
    found = []
    if part == "release":
        laws = [
            audit_law(mechanism, counts, draws=draws, confidence=_CONFIDENCE, noise=noise)
            for counts in _telling_votes(mechanism, n_teachers, n_classes)
        ]
        worst = min(laws, key=lambda law: law.p_value)
        seen = f"Over {draws:,} releases of made-up votes, "
        right = f"labels are as frequent as the accounting takes them to be (p = {worst.p_value:.2g})."
        wrong = "labels are not as frequent as the accounting takes them to be: the noise is not what its event says."
        found.append(Checked("noise as configured", _verdict(worst.passed), seen + (right if worst.passed else wrong)))
    found.append(_fresh_noise(mechanism, n_teachers, n_classes, noise))
    found.append(_claim("ε as configured", mechanism, part, draws, noise))
    entry = entry_of(mechanism)
    if entry is None:
        return found
    sharp, checks = entry.make_sharp(), isinstance(mechanism.event_of_one(2, ONE_TEACHER, simulated=False), Composed)
    if sharp != mechanism:
        found.append(_claim("ε of the same with little noise", sharp, part, draws, noise))
    if part == "release" and checks:
        found.append(_claim("ε of its check with little noise", sharp, "check", draws, noise))
    return found


def check_sensitivity(
    model: PATEClassifier, private: PrivateRows, X_public: npt.ArrayLike, *, entities: int = 4, progress: bool = False
) -> Checked:
    """Change single entities of a sample of the private rows, and count the teachers that notice."""
    integer_at_least(entities, 1, "entities", "check_sensitivity")
    ids, silo_of = _ids_and_silos(private)
    rows = sample_of(ids if ids is not None else np.arange(len(private.X)))
    few: Any = clone(model)
    few.set_params(teacher=model.resolved().teacher, n_jobs=1, progress=False)
    few.set_params(n_teachers=min(model.n_teachers or _TEACHERS, _TEACHERS))
    found = audit_sensitivity(
        ballots_of_classifier(few, np.asarray(X_public)[:_QUERIES], silo_of),
        private.X[rows],
        private.y[rows],
        None if ids is None else ids[rows],
        entities=entities,
        progress=progress,
    )
    nothing_seen = found.repeatable and found.most_changed == 0
    alone = found.passed and found.teachers < 2
    verdict: Verdict = "note" if nothing_seen or alone else _verdict(found.passed)
    right = (
        f"{len(found.trials)} changes of single units ({found.unit}) on {len(rows):,} rows each changed one of "
        f"{found.teachers:,} teachers at most, bit for bit."
    )
    reason = " ".join(found.reasons) or (_ALONE if alone else right)
    return Checked("one unit, one teacher", verdict, reason, private=True)


def check_rows(private: PrivateRows, X_public: npt.ArrayLike) -> list[Checked]:
    """Look for public rows that are private ones, and for entities in several silos."""
    overlap = audit_overlap(private.X, X_public, private.entity_ids)
    verdict: Verdict = "fail" if not overlap.passed else "note" if overlap.reasons else "pass"
    reason = " ".join(overlap.reasons) or f"None of {overlap.public_rows:,} public rows equals a private row."
    found = [Checked("no private row is among the public rows", verdict, reason, private=True)]
    if private.silos is not None and private.entity_ids is not None:
        _, silos = np.unique(private.silos, return_inverse=True)
        shared = entities_in_several_shards(silos, private.entity_ids)
        text = f"{shared:,} have rows in several silos and would move several votes. Merge the silos that share people."
        where = "one entity, one silo"
        found.append(Checked(where, _verdict(shared == 0), text if shared else "No entity is in two.", private=True))
    if private.entity_ids is None:
        found.append(
            Checked("unit of privacy", "note", "It is one row. If people have several rows, name the column with ids.")
        )
    return found


def _verdict(passed: bool) -> Verdict:
    return "pass" if passed else "fail"


def _claim(name: str, mechanism: Mechanism, part: Part, draws: int, noise: NoiseSource | None) -> Checked:
    neighbors = worst_neighbors(mechanism, delta=_DELTA, part=part, draws=draws, confidence=_CONFIDENCE)
    found = audit_mechanism(
        mechanism, neighbors, delta=_DELTA, part=part, draws=draws, confidence=_CONFIDENCE, noise=noise
    )
    what = "the check" if found.part == "check" else "one answer"
    shown = (
        f"{found.mechanism}: at δ = {found.delta:g}, {2 * found.draws:,} releases show ε ≥ {found.lower_bound:.3f} for "
        f"{what}; claimed is {round_up(found.claim, 3):.3f}."
    )
    wrong = "" if found.passed else " It reveals more than the budget counts. Do not use it."
    return Checked(name, _verdict(found.passed), shown + wrong)


def _fresh_noise(mechanism: Mechanism, n_teachers: int, n_classes: int, noise: NoiseSource | None) -> Checked:
    wrong = []
    for kind, probe in telling_probes(mechanism, n_teachers, n_classes):
        reasons = audit_fresh_noise(kind, probe, confidence=_CONFIDENCE, noise=noise)
        wrong += [f"{kind!r}: {' '.join(reasons)}"] if reasons else []
    right = "Batches of 1 to 2,000 equal queries, tied and unanimous, each got noise of their own, of the right size."
    reason = f"{' '.join(wrong)} Do not release with it." if wrong else right
    return Checked("noise of its own for every query", _verdict(not wrong), reason)


def _telling_votes(mechanism: Mechanism, n_teachers: int, n_classes: int) -> list[tuple[int, ...]]:
    """Return made-up votes at which noise of another size shows most: a lead of about the noise, a full threshold."""
    scale, check = noise_and_check(mechanism)
    lead = int(np.clip(round(scale), min(1, n_teachers), n_teachers))
    firsts = [(n_teachers + lead) // 2]
    if check is not None:
        firsts.append(int(np.clip(round(check.threshold), 1, n_teachers)))
    others = (0,) * (min(n_classes, _MOST_CLASSES) - 2)
    return list(dict.fromkeys((first, n_teachers - first, *others) for first in firsts))


def _ids_and_silos(private: PrivateRows) -> tuple[npt.NDArray[Any] | None, dict[Any, Any] | None]:
    """Return the id of each row, where units may be removed, and the silo of each id."""
    if private.silos is None:
        return (None if private.entity_ids is None else as_column(private.entity_ids)), None
    owners = private.entity_ids
    ids = np.arange(len(private.X)) if owners is None else as_column(owners)
    return ids, dict(zip(ids.tolist(), private.silos.tolist(), strict=True))


def sample_of(ids: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the rows of entities chosen at random, about as many as one tries out on."""
    known, places = np.unique(ids.astype(str), return_inverse=True)
    order = np.random.default_rng(0).permutation(len(known))[places]
    return np.sort(np.argsort(order, kind="stable")[:_SAMPLED_ROWS])
