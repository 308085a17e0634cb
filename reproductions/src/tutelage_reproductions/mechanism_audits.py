"""Lower bounds on ε from 50 audits of random mechanisms, each compared with the claimed ε."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tutelage._internal.progress import progress_bar
from tutelage._internal.validation import integer_at_least, probability
from tutelage.accounting.data_independent import PureArgmax
from tutelage.audit.mechanism import (
    MechanismAudit,
    Neighbors,
    Part,
    audit_mechanism,
    audit_sum,
    worst_neighbors,
)
from tutelage.events import Composed
from tutelage.mechanisms import (
    CappedGNMax,
    ConfidentGNMax,
    ExponentialMax,
    GNMax,
    LNMax,
    Mechanism,
    NoisySum,
    PermuteAndFlip,
)
from tutelage.mechanisms.registry import CENTRAL, RegistryEntry
from tutelage.noise import NoiseSource
from tutelage.privacy import ONE_TEACHER
from tutelage_reproductions.record import Record, Row

AUDITS, SEED = 50, 2026
CONFIDENCE, EACH = 0.9999, 0.999
_DRAWS, _QUICK = 20_000, 4_000
# With so much noise a claim can be reached in a feasible number of draws; pure losses at δ = 0.
TIGHT: tuple[tuple[Mechanism, float, Part], ...] = (
    (LNMax(0.5), 0.01, "release"),
    (GNMax(1.0), 0.05, "release"),
    (CappedGNMax(1.0, 1), 0.05, "release"),
    (ExponentialMax(1.0), 0.0, "release"),
    (PermuteAndFlip(1.0), 0.0, "release"),
    (ConfidentGNMax(20.0, 1.0, 2.0), 0.01, "check"),
)
TIGHT_SUM, BALLOT, DELTA_OF_SUM = NoisySum(1.5), (3, -4), 0.05
_DELTAS = (1e-3, 1e-2, 5e-2)
# All central mechanisms, those with fewer settings first.
_KINDS = sorted(CENTRAL.values(), key=lambda entry: (len(entry.settings), entry.settings[0].name))


class Configuration(NamedTuple):
    """Audited mechanism and settings; the neighbors of a noisy sum are one ballot and its opposite."""

    mechanism: Mechanism | NoisySum
    neighbors: Neighbors
    part: Part
    queries: int
    delta: float


def random_configurations(count: int, seed: int) -> Iterator[Configuration]:
    """Yield mechanisms of every kind in turn with random parameters, two to five classes and 4 to 60 made-up teachers.

    Every eighth is a noisy sum of one ballot of two to five numbers.
    """
    random = np.random.default_rng(seed)
    for number in range(integer_at_least(count, 1, "count", "random_configurations")):
        # From half a vote to four.
        drawn: float = np.exp(random.random() * np.log(8)) / 2
        scale = float(np.round(drawn, 2))
        if number % (len(_KINDS) + 1) == len(_KINDS):
            yield _random_sum(random, scale)
            continue
        neighbors = _random_neighbors(random)
        entry = _KINDS[number % (len(_KINDS) + 1)]
        mechanism = _of_kind(entry, scale, max(neighbors.here) + int(random.integers(-2, 3)))
        if mechanism.takes_predictions:
            student = random.dirichlet(np.full(len(neighbors.here), 5.0))
            neighbors = neighbors._replace(prediction=tuple(student.tolist()))
        one = mechanism.event_of_one(len(neighbors.here), ONE_TEACHER, simulated=False)
        part: Part = "check" if isinstance(one, Composed) and random.random() < 0.5 else "release"
        deltas = (0.0, *_DELTAS) if isinstance(one, PureArgmax) else _DELTAS
        yield Configuration(
            mechanism, neighbors, part, int(random.choice([1, 1, 4])), float(random.choice(deltas))
        )


def audit_configurations(
    configurations: list[Configuration],
    *,
    draws: int = 20_000,
    confidence: float = 0.9999,
    noise: NoiseSource | None = None,
    progress: bool = False,
) -> list[MechanismAudit]:
    """Audit every configuration; with probability `confidence`, all lower bounds are right at once (Bonferroni)."""
    probability(confidence, "confidence", "audit_configurations")
    each = 1 - (1 - confidence) / max(1, len(configurations))
    return [
        _audited(one, draws, each, noise)
        for one in progress_bar(configurations, "audits", len(configurations), shown=progress)
    ]


def _audited(
    one: Configuration, draws: int, confidence: float, noise: NoiseSource | None
) -> MechanismAudit:
    drawn: dict[str, Any] = {"delta": one.delta, "confidence": confidence, "noise": noise}
    if isinstance(one.mechanism, NoisySum):
        return audit_sum(one.mechanism, one.neighbors.here, draws=draws, **drawn)
    return audit_mechanism(
        one.mechanism,
        one.neighbors,
        part=one.part,
        queries=one.queries,
        draws=draws // one.queries,
        **drawn,
    )


def _random_sum(random: np.random.Generator, scale: float) -> Configuration:
    """Return a noisy sum of a ballot and of its opposite, with noise of so many lengths of the ballot."""
    ballot = random.integers(-9, 10, int(random.integers(2, 6)))
    ballot[0] = max(1, int(ballot[0]))
    neighbors = Neighbors(tuple(ballot.tolist()), tuple((-ballot).tolist()))
    return Configuration(NoisySum(scale), neighbors, "release", 1, float(random.choice(_DELTAS)))


def _of_kind(entry: RegistryEntry[Mechanism], scale: float, most: int) -> Mechanism:
    """Return a mechanism with noise of about this scale, and a threshold of about `most` votes."""
    asks = entry.make_sharp().takes_predictions
    others = {
        "threshold": most / 2 if asks else most,
        "sigma_vote": scale if asks else round(0.8 * scale, 2),
        "confidence": 0.6,
        "cap": 1,
    }
    return entry.kind(
        **{setting.parameter: others.get(setting.parameter, scale) for setting in entry.settings}
    )


def _random_neighbors(random: np.random.Generator) -> Neighbors:
    """Return votes with close leaders, as often as not, and the same after one ballot moved or went."""
    classes = int(random.integers(2, 6))
    here = random.multinomial(int(random.integers(4, 61)), random.dirichlet(np.full(classes, 1.0)))
    if random.random() < 0.5:
        here[random.integers(classes)] = here.max()
    source = int(here.argmax() if random.random() < 0.5 else random.choice(np.flatnonzero(here)))
    target = int(random.integers(classes + 1))  # the last one stands for abstention
    there = here.copy()
    there[source] -= 1
    if target == source:
        target = classes
    if target < classes:
        there[target] += 1
    return Neighbors(tuple(here.tolist()), tuple(there.tolist()))


def tight_audits(draws: int) -> list[MechanismAudit]:
    """Return audits at the neighbors that show most, one per kind of mechanism."""
    of_sum = audit_sum(TIGHT_SUM, BALLOT, delta=DELTA_OF_SUM, draws=draws, confidence=EACH)
    of_labels = [
        audit_mechanism(
            mechanism,
            worst_neighbors(mechanism, delta=delta, part=part, draws=draws, confidence=EACH),
            delta=delta,
            part=part,
            draws=draws,
            confidence=EACH,
        )
        for mechanism, delta, part in TIGHT
    ]
    return [*of_labels, of_sum]


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  there are no data
    """Return every lower bound, in nats; `quick` draws a fifth."""
    draws = _QUICK if quick else _DRAWS
    found = audit_configurations(
        list(random_configurations(AUDITS, SEED)),
        draws=draws,
        confidence=CONFIDENCE,
        progress=progress,
    )
    rows = [
        Row(name=_named(number, one), ours=one.lower_bound, at_most=one.claim)
        for number, one in enumerate(found, 1)
    ]
    refuted = sum(not one.passed for one in found)
    rows.append(Row(name=f"claims refuted, of {AUDITS}", ours=float(refuted), at_most=0.0))
    rows += [
        Row(
            name=f"{one.mechanism}, {one.part}, δ = {one.delta:g}: lower bound as % of the claim {one.claim:.3f}",
            ours=100 * one.lower_bound / one.claim,
            at_least=None if quick else 80.0,
            at_most=100.0,
        )
        for one in tight_audits(5 * draws)
    ]
    return Record(
        name="mechanism-audits",
        source="docs/audit.md",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                f"The noise is the same as in a release, so a new run gives other numbers. All {AUDITS} bounds are "
                f"valid together with probability {CONFIDENCE} or more, those of the last rows with probability "
                f"{EACH} each."
            ),
            (
                f"Each audit draws {draws:,} releases on both neighboring inputs and uses half of them to choose "
                "the event. The last rows draw five times as many. Random neighbors are rarely the worst case, so "
                "most lower bounds are far below the claimed ε."
            ),
        ),
    )


def _named(number: int, found: MechanismAudit) -> str:
    here, there = found.neighbors.here, found.neighbors.there
    times = f", {found.queries} queries" if found.queries > 1 else ""
    return (
        f"{number}. {found.mechanism}, {found.part}{times}, {here} and {there}, δ = {found.delta:g}"
    )
