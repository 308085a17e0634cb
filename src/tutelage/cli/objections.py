"""What a privacy officer would object to in a run: said before anything is spent, and filed on its card."""

from dataclasses import astuple

import numpy as np
import typer

from tutelage.accounting import data_independent
from tutelage.budget import PublicEpsilon
from tutelage.cli.config import RunConfig
from tutelage.cli.sources import RunData, pool_of
from tutelage.events import Repeated
from tutelage.lints import LARGE_EPSILON, Finding, lint
from tutelage.neighboring import ONE_TEACHER, PrivacyUnit
from tutelage.partition import canonical_ids
from tutelage.report import ClassAccuracy


def say(findings: tuple[Finding, ...]) -> None:
    """Print findings on standard error, dangers in red."""
    for finding in findings:
        colour = typer.colors.RED if finding.severity == "danger" else typer.colors.YELLOW
        typer.secho(f"tutelage: {finding.severity}: {finding.reason}", err=True, fg=colour)


def objections_before(settings: RunConfig, data: RunData) -> tuple[Finding, ...]:
    """Return what is wrong with the settings before anything is spent, for the data's owner only.

    Parameters
    ----------
    settings : RunConfig
        What is to be done.
    data : RunData
        On which rows; how many people are behind them decides about δ, and may be private.
    """
    teachers = settings.teachers.number if data.silos is None else len(np.unique(canonical_ids(data.silos)))
    people = len(data.X_private) if data.entity_ids is None else len(np.unique(canonical_ids(data.entity_ids)))
    return _of(settings, data, _planned_epsilon(settings, data), teachers, people)


def objections_on_card(
    settings: RunConfig, data: RunData, epsilon: PublicEpsilon, teachers: int, scores: tuple[ClassAccuracy, ...]
) -> tuple[Finding, ...]:
    """Return what may stand on the card: nothing that was counted on rows whose number is no public fact.

    Parameters
    ----------
    settings : RunConfig
        What was done.
    data : RunData
        On which rows.
    epsilon : PublicEpsilon
        The publishable ε.
    teachers : int
        Teachers entitled to vote.
    scores : tuple of ClassAccuracy
        How good the student is on public labelled rows.
    """
    public = data.entity_ids is None and data.silos is None  # then neighbours change a row, and all have as many
    people = len(data.X_private) if public else None
    return _of(settings, data, epsilon.epsilon, teachers, people, unit=epsilon.unit, scores=scores)


def _of(
    settings: RunConfig,
    data: RunData,
    epsilon: float | None,
    teachers: int,
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
        teachers=teachers,
        classes=len(data.classes),
        threshold=getattr(settings.mechanism, "threshold", None),
        stopping="fixed" if settings.public.rounds == 1 else "data-independent",
        tuned_on=settings.privacy.tuned_on,
        mechanism="interactive" if settings.mechanism.takes_predictions else None,
    )


def _planned_epsilon(settings: RunConfig, data: RunData) -> float:
    """Return the ε that everything in the ledger may come to: its budget, or by default just enough for this run."""
    if settings.privacy.epsilon is not None:
        return settings.privacy.epsilon
    queries = settings.public.queries or len(pool_of(settings, data))
    event = Repeated(settings.mechanism.event_of_one(len(data.classes), ONE_TEACHER, simulated=False), queries)
    bound = data_independent.rdp(event).to_epsilon(settings.privacy.delta).epsilon
    # Only a large ε is objected to, so the tighter bound, which takes seconds, is for those alone.
    return bound if bound <= LARGE_EPSILON else data_independent.epsilon(event, settings.privacy.delta).epsilon
