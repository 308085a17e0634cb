"""Objections of a run to its settings: on standard error before it, and on its card."""

from dataclasses import astuple

import numpy as np
import typer

from tutelage.accounting import data_independent
from tutelage.cli.config import RunConfig
from tutelage.cli.sources import RunData, pool_of
from tutelage.cli.text import say
from tutelage.estimator import PATEClassifier
from tutelage.events import of_queries
from tutelage.partition import canonical_ids
from tutelage.privacy import ONE_TEACHER, PrivacyUnit, PublicEpsilon
from tutelage.published import public_number_of_people
from tutelage.reporting import ClassAccuracy
from tutelage.reporting.lints import LARGE_EPSILON, Finding, lint


def show_findings(findings: tuple[Finding, ...]) -> None:
    """Print findings on standard error, dangers in red."""
    for finding in findings:
        color = typer.colors.RED if finding.severity == "danger" else typer.colors.YELLOW
        say(f"tutelage: {finding.severity}: {finding.reason}", err=True, color=color)


def objections_before(settings: RunConfig, data: RunData) -> tuple[Finding, ...]:
    """Return what is wrong with the settings before anything is spent, for the owner only: people may be private."""
    people = None  # in batches, not known yet
    if data.batches is None:
        people = len(data.X_private) if data.entity_ids is None else len(np.unique(canonical_ids(data.entity_ids)))
    teachers = settings.teachers.number if data.silos is None else len(np.unique(canonical_ids(data.silos)))
    return _of(settings, data, _planned_epsilon(settings, data), teachers, people)


def objections_on_card(
    settings: RunConfig, data: RunData, model: PATEClassifier, epsilon: PublicEpsilon, scores: tuple[ClassAccuracy, ...]
) -> tuple[Finding, ...]:
    """Return what may stand on the card: nothing that was counted on rows whose number is no public fact."""
    declared = None if settings.private is None else settings.private.people
    people = public_number_of_people(model) or declared
    return _of(settings, data, epsilon.epsilon, model.n_teachers_, people, unit=epsilon.unit, scores=scores)


def _of(
    settings: RunConfig,
    data: RunData,
    epsilon: float | None,
    teachers: int | None,
    people: int | None,
    *,
    unit: PrivacyUnit | None = None,
    scores: tuple[ClassAccuracy, ...] = (),
) -> tuple[Finding, ...]:
    return lint(
        epsilon=epsilon,
        delta=settings.privacy.delta,
        unit=unit,
        accuracy=[astuple(entry) for entry in scores],
        entities=people,
        teachers=None if settings.by_people else teachers,
        classes=len(data.classes),
        threshold=getattr(settings.votes, "threshold", None),
        stopping="fixed" if settings.public.rounds == 1 else "data-independent",
        tuned_on=settings.privacy.tuned_on,
        insisted=settings.privacy.insist,
        mechanism="interactive" if settings.votes is not None and settings.votes.takes_predictions else None,
    )


def _planned_epsilon(settings: RunConfig, data: RunData) -> float | None:
    """Return the ε that everything in the ledger may come to: its budget, or by default just enough for this run."""
    if settings.privacy.budget or settings.privacy.epsilon:
        return settings.privacy.budget or settings.privacy.epsilon
    if settings.votes is None:
        return None  # what is not planned is known once the sum or the labels were released
    queries = settings.public.queries or len(pool_of(settings, data))
    event = of_queries(settings.votes.event_of_one(len(data.classes), ONE_TEACHER, simulated=False), queries)
    bound = data_independent.rdp(event).to_epsilon(settings.privacy.delta).epsilon
    # Only a large ε is objected to, so the tighter bound, which takes seconds, is for those alone.
    return bound if bound <= LARGE_EPSILON else data_independent.epsilon(event, settings.privacy.delta).epsilon
