"""The audits of one pipeline as a list of verdicts, each with its reason."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from tutelage._typing import Matrix
from tutelage._validation import integer_at_least
from tutelage.audit.fresh_noise import audit_fresh_noise, telling_probes
from tutelage.audit.law import audit_law
from tutelage.audit.mechanism import MechanismAudit, Part, audit_mechanism
from tutelage.audit.overlap import audit_overlap, entities_in_several_shards
from tutelage.audit.pipelines import ballots_of_classifier
from tutelage.audit.sensitivity import audit_sensitivity
from tutelage.audit.worst_votes import worst_neighbours
from tutelage.budget import round_up
from tutelage.classifier import PATEClassifier
from tutelage.events import Composed
from tutelage.mechanisms import Mechanism
from tutelage.mechanisms.registry import entry_of
from tutelage.neighboring import ONE_TEACHER
from tutelage.noise import NoiseSource
from tutelage.partition import as_column

Verdict = Literal["pass", "fail", "note"]
_ALONE = "There is one teacher, so no change could have reached a second one: nothing was shown."
_CONFIDENCE = 1 - 1e-6  # of each check
_DELTA = 0.01  # smaller ones show in rare events only, which take more draws
_MOST_CLASSES = 4
_ROWS, _TEACHERS, _QUERIES = 1_500, 10, 300


@final
@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one check."""

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
    rows = _sample(ids if ids is not None else np.arange(len(private.X)))
    few = _copy_with(model, n_teachers=min(model.n_teachers, _TEACHERS), n_jobs=1, progress=False)
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
    found = [Checked("public rows are no private ones", verdict, reason, private=True)]
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
    neighbours = worst_neighbours(mechanism, delta=_DELTA, part=part, draws=draws, confidence=_CONFIDENCE)
    found = audit_mechanism(
        mechanism, neighbours, delta=_DELTA, part=part, draws=draws, confidence=_CONFIDENCE, noise=noise
    )
    return Checked(name, _verdict(found.passed), _in_words(found))


def _fresh_noise(mechanism: Mechanism, n_teachers: int, n_classes: int, noise: NoiseSource | None) -> Checked:
    probes = telling_probes(mechanism, n_teachers, n_classes)
    audits = [audit_fresh_noise(kind, probe, confidence=_CONFIDENCE, noise=noise) for kind, probe in probes]
    wrong = [f"{audit.mechanism}: {' '.join(audit.reasons)}" for audit in audits if not audit.passed]
    right = "Batches of 1 to 2,000 equal queries, tied and unanimous, each got noise of their own, of the right size."
    reason = f"{' '.join(wrong)} Do not release with it." if wrong else right
    return Checked("noise of its own for every query", _verdict(not wrong), reason)


def _in_words(found: MechanismAudit) -> str:
    what = "the check" if found.part == "check" else "one answer"
    shown = (
        f"{found.mechanism}: at δ = {found.delta:g}, {2 * found.draws:,} releases show ε ≥ {found.lower_bound:.3f} for "
        f"{what}; claimed is {round_up(found.claim, 3):.3f}."
    )
    return shown if found.passed else f"{shown} The mechanism gives away more than is paid for: do not release with it."


def _telling_votes(mechanism: Mechanism, n_teachers: int, n_classes: int) -> list[tuple[int, ...]]:
    """Return made-up votes at which noise of another size shows most: a lead of about the noise, a full threshold."""
    scale = max(getattr(mechanism, name, 0.0) for name in ("scale", "sigma", "sigma_vote"))
    lead = int(np.clip(round(scale), min(1, n_teachers), n_teachers))
    firsts = [(n_teachers + lead) // 2]
    threshold = getattr(mechanism, "threshold", None)
    if threshold is not None:
        firsts.append(int(np.clip(round(threshold), 1, n_teachers)))
    others = (0,) * (min(n_classes, _MOST_CLASSES) - 2)
    return list(dict.fromkeys((first, n_teachers - first, *others) for first in firsts))


def _ids_and_silos(private: PrivateRows) -> tuple[npt.NDArray[Any] | None, dict[Any, Any] | None]:
    """Return the id of each row, where units may be removed, and the silo of each id."""
    if private.silos is None:
        return (None if private.entity_ids is None else as_column(private.entity_ids)), None
    owners = private.entity_ids
    ids = np.arange(len(private.X)) if owners is None else as_column(owners)
    return ids, dict(zip(ids.tolist(), private.silos.tolist(), strict=True))


def _sample(ids: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the rows of entities chosen at random, about as many as one tries out on."""
    known, places = np.unique(ids.astype(str), return_inverse=True)
    order = np.random.default_rng(0).permutation(len(known))[places]
    return np.sort(np.argsort(order, kind="stable")[:_ROWS])


def _copy_with(model: PATEClassifier, **settings: Any) -> PATEClassifier:
    copy: Any = clone(model)
    return copy.set_params(**settings)
