"""Published files of a fit: the privacy card, the released labels and the student, each from public values only."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tutelage._internal.gate import read_input
from tutelage._internal.records import sha256_of
from tutelage._internal.releases import STUDENT_FILE, today
from tutelage._internal.typing import Untyped
from tutelage.accounting import data_independent
from tutelage.accounting.filter import Filter
from tutelage.accounting.tiers import guarantee_of_tier
from tutelage.events import (
    TIER_STEPS,
    CappedArgmaxGaussian,
    Check,
    Composed,
    Event,
    InteractiveCheck,
    NoisySumGaussian,
    PublicationTest,
    Repeated,
    SummedNoise,
    event_from_dict,
    tiers_of,
)
from tutelage.exceptions import InvalidDataError
from tutelage.ledger.history import Charge, History, LedgerState
from tutelage.noise import SystemNoise, known_noise
from tutelage.privacy import NeighboringRelation
from tutelage.reporting import PrivacyCard
from tutelage.reporting.evidence import evidence_of
from tutelage.reporting.lints import FROM_CARD, NOT_CHECKED, Case, lint
from tutelage.reporting.record import (
    NOT_RECORDED,
    BatchCost,
    BudgetPart,
    Curve,
    Finding,
    FrontierPoint,
    Guarantee,
    Influence,
    Judged,
    Proposed,
    ReleasePart,
    StudentPart,
    TierPart,
    record_of,
)
from tutelage.students.store import write_student
from tutelage.tables import is_formula
from tutelage.targets import Numbers

_pipeline = Untyped("sklearn.pipeline")
_MOST_BATCHES = 200
_SYSTEM = "OpenDP exact discrete samplers, operating system entropy"
_FRONTIER = (1 / 4, 1 / 2, 1, 2, 4)  # each costs up to a second or so


def card_of(
    guarantee: Guarantee,
    release: ReleasePart,
    student: StudentPart,
    budget: BudgetPart,
    statements: dict[str, str],
    before: Sequence[Finding] = (),
    ledger: History | None = None,
    **settings: Any,
) -> PrivacyCard:
    """Return a card; every card is made here, a changed one of the parts of the one before.

    Objections that follow from its own values, and from everything that its ledger released, are not taken from those
    `before`. `settings` are those of `Case` that the card does not hold.
    """
    event = event_from_dict(guarantee.event)
    released = event if ledger is None else ledger.event
    shares = [
        part.event.shares for part in released.flatten() if isinstance(part.event, SummedNoise)
    ]
    of_card: dict[str, Any] = {
        "epsilon": guarantee.epsilon.epsilon,
        "delta": guarantee.epsilon.delta,
        "unit": guarantee.epsilon.unit,
        "teachers": release.teachers,
        "shares": min(shares, default=None),
        "judged": student.judged,
    }
    for part in event.flatten():
        check = part.event.without_shares()
        if isinstance(check, Check):
            of_card["threshold"] = check.threshold
            of_card["classes"] = check.classes
            of_card["mechanism"] = "confident"
            if isinstance(check, InteractiveCheck):
                of_card["mechanism"] = "interactive"

    found = {finding.code: finding for finding in lint(Case(**of_card | settings))}
    findings = list[Finding]()
    for earlier in before:
        if earlier.code in found or earlier.code not in FROM_CARD:
            findings.append(found.pop(earlier.code, earlier))
    return PrivacyCard(
        guarantee=guarantee,
        release=release,
        student=student,
        budget=budget,
        findings=(*findings, *found.values()),
        statements=statements,
    )


def card_of_model(
    model: Any,
    judged: Judged,
    statements: dict[str, str],
    features: Iterable[str] | None = None,
    *,
    feature_map: str | None = None,
    people: int | None = None,
    **settings: Any,
) -> PrivacyCard:
    """Return the card of a fitted estimator.

    Parameters
    ----------
    model : estimator
        A fitted one.
    judged : Judged
        Its student on public rows.
    statements : dict of str to str
        Those of the people behind the data, by topic.
    features : iterable of str, optional
        Names of the columns, if they are not those of the model.
    feature_map : str, optional
        The map in words, if more is known of it than the model knows.
    people : int, optional
        A number of people that is public, if the model knows none.
    **settings
        Of `Case`, if more is known of them than the model knows.
    """
    guarantee = _guarantee_of(model)
    epsilon = guarantee.epsilon
    classes = model.target_.names
    frontier: tuple[FrontierPoint, ...] = ()
    if model.n_teachers_ is not None and not model.facts_.of_sums:
        event = model.mechanism_.event_of_one(
            len(classes), epsilon.unit, simulated=epsilon.simulated
        )
        frontier = _frontier_of(event, len(model.release_.labels), epsilon.delta)
    if hasattr(model, "open_ledger_"):
        history = model.open_ledger_.history().before_releases
        budget = _budget_of(history.state, _batches_of(history), frontier)
    else:
        budget = _budget_of(model.ledger_, frontier=frontier)
    tiers = [
        TierPart(name, length, epsilon) for name, (epsilon, length) in sorted(model.tiers_.items())
    ]
    budget = replace(budget, tiers=tuple(tiers))
    if feature_map is None:
        feature_map = _origin_of_features(model)
    # The number of rows if it is public, or the noisy number of people that a sum of ballots released.
    entities = model.n_private_rows_
    if entities is None and model.facts_.teachers is None and not model.tiers_:
        entities = model.n_teachers_
    return card_of(
        guarantee,
        _release_of(model, features, feature_map),
        _student_of(model, judged),
        budget,
        statements,
        entities=entities or people,
        classes=len(classes),
        classes_from=model.target_.origin,
        insisted=model.insisted_,
        **model.facts_.for_lint,
        **settings,
    )


def card_of_ledger(history: History) -> PrivacyCard:
    """Return the card of everything that was released through a ledger."""
    if not history.batches:
        raise InvalidDataError(
            "The ledger contains no release yet, so there is nothing to report. Ask queries first."
        )
    event = history.event
    now = history.state
    batches = _batches_of(history)
    queries = sum(batch.queries for batch in batches)
    frontier: tuple[FrontierPoint, ...] = ()
    first, *others = {charge.event for charge in history.batches}
    if queries and not others and not isinstance(first, CappedArgmaxGaussian):
        frontier = _frontier_of(first, queries, now.delta)
    release = ReleasePart(
        mechanism="; ".join(
            f"{part.times:,} × {_settings(part.event)}" for part in event.flatten()
        ),
        noise_source="simulated from a seed" if now.simulated else _SYSTEM,
        queries=queries,
        answered=None,
        teachers=None,
        selection=NOT_RECORDED,
        feature_map=NOT_RECORDED,
        versions={"tutelage": version("tutelage")},
        created=today(),
    )
    guarantee = Guarantee(epsilon=now.guarantee(), event=record_of(event))
    budget = replace(_budget_of(now, batches, frontier), tiers=_tiers_of_ledger(history))
    return card_of(guarantee, release, StudentPart(name=NOT_RECORDED), budget, {}, (NOT_CHECKED,))


def up_to_date(card: PrivacyCard, history: History, *, later: bool) -> PrivacyCard:
    """Return a card with the budget of its ledger now; with its ε of everything, if that was released `later`."""
    guarantee = card.guarantee
    frontier = card.budget.frontier
    tiers = card.budget.tiers
    if later:  # the ε is of everything in the ledger, because later releases are of the same people
        epsilon = history.state.guarantee()
        tiers = _tiers_of_ledger(history)
        alone = guarantee.alone
        if not card.covers_ledger:
            alone = guarantee.epsilon
        tested = guarantee.tested
        proposal = guarantee.proposal
        # No guarantee of real noise is left.
        if epsilon.simulated and not guarantee.epsilon.simulated:
            alone = None
            tested = None
            proposal = None
            frontier = ()
        guarantee = Guarantee(
            epsilon=epsilon, event=guarantee.event, tested=tested, proposal=proposal, alone=alone
        )
    now = history.before_releases
    budget = replace(_budget_of(now.state, _batches_of(now), frontier), tiers=tiers)
    return card_of(
        guarantee,
        card.release,
        card.student,
        budget,
        card.statements,
        card.findings,
        history,
    )


def _tiers_of_ledger(history: History) -> tuple[TierPart, ...]:
    """Return the tiers of everything released through a ledger, by its first budget: later, they are refused."""
    first = history.until(0)
    tiers = list[TierPart]()
    for name, steps in tiers_of(history.event):
        everybody = first.limit.guarantee(first.state.unit, simulated=history.state.simulated)
        epsilon = guarantee_of_tier(everybody, first.limit, steps)
        tiers.append(TierPart(name, steps / TIER_STEPS, epsilon))
    return tuple(tiers)


def _budget_of(
    state: LedgerState,
    batches: tuple[BatchCost, ...] = (),
    frontier: tuple[FrontierPoint, ...] = (),
) -> BudgetPart:
    """Return what a card says of a ledger."""
    return msgspec.convert(
        {**state.as_dict(), "batches": batches, "frontier": frontier}, BudgetPart
    )


def write_results(folder: Path, model: Any, card: PrivacyCard, student: Any) -> None:
    """Write what may be published into an empty folder: card, student and labels."""
    odd = [value for value in model.target_.names.tolist() if is_formula(value)]
    if odd:
        raise InvalidDataError(
            f"A spreadsheet would run the class value {odd[0]!r} in labels.csv as a formula. Rename it before you fit."
        )
    card.write(folder)
    evidence = evidence_of(card, sha256_of(read_input(folder / "card.json")))
    write_student(student, folder / STUDENT_FILE, evidence)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["public_row", "label"])
        release = model.release_
        for row, label, is_answered in zip(
            model.queries_, release.labels, release.answered, strict=True
        ):
            writer.writerow([row, model.target_.names[label] if is_answered else ""])


def _batches_of(history: History) -> tuple[BatchCost, ...]:
    """Return what each batch of a ledger took; of very many, neighbors in time are put together."""
    batches = list[BatchCost]()
    for charge in history.charges:
        share = history.limit.share(charge.cost)
        checks = share * _share_of_checks(charge, history.limit)
        queries = charge.queries
        sums = 0
        parts = [part.event.without_shares() for part in charge.event.flatten()]
        if all(isinstance(part, NoisySumGaussian) for part in parts):
            sums = queries
            queries = 0
        written = charge.reserved.content["written"]
        batches.append(BatchCost(written, queries, checks, share - checks, sums))
    return BatchCost.merge(batches, _MOST_BATCHES)


def _share_of_checks(charge: Charge, limit: Filter) -> float:
    """Return the part of a charge that went to checks, or to the publication of an ε."""
    total = 0
    of_checks = 0
    for part in charge.happened.flatten():
        cost = limit.cost(Repeated(part.event, part.times))
        total += cost
        if isinstance(part.event.without_shares(), Check | PublicationTest):
            of_checks += cost
    return of_checks / (total or 1)


def _frontier_of(event: Event, queries: int, delta: float) -> tuple[FrontierPoint, ...]:
    """Return what other numbers of queries would cost by themselves, every one of them answered."""
    numbers = sorted({max(1, round(queries * factor)) for factor in _FRONTIER})
    return tuple(
        FrontierPoint(number, data_independent.epsilon(Repeated(event, number), delta))
        for number in numbers
    )


def _guarantee_of(model: Any) -> Guarantee:
    """Return what a fit guarantees, and beside it a smaller ε that was tested."""
    event = model.release_.event
    tested = None
    proposal = None
    if model.publication_ is not None and hasattr(model, "open_ledger_"):
        event = Composed((event, *model.open_ledger_.history().publications.values()))
        tested = model.publication_.smaller
        if tested is not None:
            proposal = msgspec.convert(model.proposal_.as_dict(), Proposed)
    return Guarantee(
        epsilon=model.epsilon_,
        event=record_of(event),
        tested=tested,
        proposal=proposal,
        if_added_or_removed=_if_added_or_removed(model),
    )


def _release_of(model: Any, features: Iterable[str] | None, feature_map: str) -> ReleasePart:
    """Return how a fit released."""
    release = model.release_
    noise = known_noise(model.noise, "card")
    of_model = range(model.n_features_in_) if model.columns_ is None else model.columns_.names
    classes = () if isinstance(model.target_, Numbers) else model.target_.names
    return ReleasePart(
        mechanism=str(model.mechanism_),
        noise_source=_SYSTEM if isinstance(noise, SystemNoise) else type(noise).__name__,
        queries=len(release.labels),
        selection=model.facts_.selection,
        answered=int(release.answered.sum()),
        teachers=model.n_teachers_,
        classes=tuple(map(str, classes)),
        features=tuple(map(str, features or of_model)),
        feature_map=feature_map,
        versions={name: version(name) for name in ("tutelage", "opendp", "scikit-learn", "numpy")},
        created=model.day_,
    )


def _student_of(model: Any, judged: Judged) -> StudentPart:
    """Return the student of a fit."""
    student = model.student_
    weights: Mapping[object, float] = model.class_weight_ or {}
    name = None if model.method is None else model.method.student
    if not isinstance(name, str):
        taught: Any = student if model.method_.student is None else model.method_.student
        if isinstance(taught, _pipeline.Pipeline):
            taught = taught[-1]
        name = type(taught).__name__
    influences: list[Influence] = []
    curves: list[Curve] = []
    if hasattr(student, "influences"):
        influences = [Influence(*influence) for influence in student.influences()]
    if hasattr(student, "curves"):
        curves = student.curves()
    return StudentPart(
        name=name,
        class_weight={str(value): weight for value, weight in weights.items()},
        judged=judged,
        influences=tuple(influences),
        curves=tuple(curves),
    )


def _if_added_or_removed(model: Any) -> float | None:
    """Return the ε of people who join or leave, where each casts one ballot and their number is private."""
    relation = model.epsilon_.unit.neighboring
    if (
        relation is not NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY
        or model.facts_.teachers is not None
        or model.n_teachers_ is None
        or model.epsilon_ == model.ledger_.guarantee()
    ):
        return None
    return data_independent.epsilon_if_added_or_removed(model.release_.event, model.epsilon_.delta)


def _origin_of_features(model: Any) -> str:
    """Return the map from columns to the input of the student, in words."""
    # They load scikit-learn, which a card that is read does not need.
    from tutelage.features import Schema
    from tutelage.features.base import parts_of

    if isinstance(model.columns_, Schema):
        return model.columns_.origin
    if model.student_map_ is None:
        if hasattr(model.student_, "image_shape_"):
            shape = " × ".join(map(str, model.student_.image_shape_))
            return f"none; the student sees the pixels of images of {shape}"
        return "none"
    names = [type(step).__name__ for step in parts_of(model.student_map_)]
    return f"{', '.join(names)}, published with the student"


def _settings(event: Event) -> str:
    """Return an event as its class and settings; without the settings of a publication, which may be a long table."""
    record = event.as_dict()
    if isinstance(event, PublicationTest):
        return record["event"]
    if isinstance(event, SummedNoise):
        return f"{_settings(event.event)}, with noise from {event.shares} honest hospitals"
    settings = ", ".join(
        f"{name}={value}"
        for name, value in record.items()
        if name not in ("event", "unit", "simulated")
    )
    return f"{record['event']}({settings})"
