"""Lower bounds on ε from 50 audits of random mechanisms as installed, each beside its claim."""

from tutelage import ConfidentGNMax, ExponentialMax, GNMax, LNMax, PermuteAndFlip
from tutelage.audit.configurations import audit_configurations, random_configurations
from tutelage.audit.mechanism import MechanismAudit, Part, audit_mechanism
from tutelage.audit.worst_votes import worst_neighbours
from tutelage.mechanisms import Mechanism
from tutelage.reproductions.record import Record, Row

AUDITS, SEED = 50, 2026
CONFIDENCE, EACH = 0.9999, 0.999
_DRAWS, _QUICK = 20_000, 4_000
# With so much noise a claim can be reached in a feasible number of draws; pure losses at δ = 0.
TIGHT: tuple[tuple[Mechanism, float, Part], ...] = (
    (LNMax(0.5), 0.01, "release"),
    (GNMax(1.0), 0.05, "release"),
    (ExponentialMax(1.0), 0.0, "release"),
    (PermuteAndFlip(1.0), 0.0, "release"),
    (ConfidentGNMax(20.0, 1.0, 2.0), 0.01, "check"),
)


def tight_audits(draws: int) -> list[MechanismAudit]:
    """Return audits at the neighbours that show most, one per kind of mechanism."""
    return [
        audit_mechanism(
            mechanism,
            worst_neighbours(mechanism, delta=delta, part=part, draws=draws, confidence=EACH),
            delta=delta,
            part=part,
            draws=draws,
            confidence=EACH,
        )
        for mechanism, delta, part in TIGHT
    ]


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  there are no data
    """Return every lower bound, in nats; `quick` draws a fifth."""
    draws = _QUICK if quick else _DRAWS
    found = audit_configurations(
        list(random_configurations(AUDITS, SEED)), draws=draws, confidence=CONFIDENCE, progress=progress
    )
    rows = [
        Row(name=_named(number, one), ours=one.lower_bound, at_most=one.claim) for number, one in enumerate(found, 1)
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
            f"The noise is that of releases, so numbers vary. All {AUDITS} bounds are right at once with probability "
            f"{CONFIDENCE} at least, those of the last rows with probability {EACH} each.",
            f"{draws:,} releases of both neighbours, half of them to choose the event; five times as many in the last "
            "rows. Random neighbours are seldom the worst, so most lower bounds are far below their claims.",
        ),
    )


def _named(number: int, found: MechanismAudit) -> str:
    here, there = found.neighbours.here, found.neighbours.there
    times = f", {found.queries} queries" if found.queries > 1 else ""
    return f"{number}. {found.mechanism}, {found.part}{times}, {here} and {there}, δ = {found.delta:g}"
