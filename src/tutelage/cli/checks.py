"""Warnings of a run: findings for its card, and warnings about private rows for their owner only.

Warnings about private rows are printed and never stored on a card.
"""

import re
from collections.abc import Iterator
from dataclasses import astuple

import numpy as np
import typer

from tutelage._internal.typing import Matrix
from tutelage.accounting import data_independent
from tutelage.cli.config import PrivateSection, RunConfig
from tutelage.cli.sources import RunData, pool_of
from tutelage.estimator import PATEClassifier
from tutelage.events import of_queries
from tutelage.features import UNKNOWN
from tutelage.partition import canonical_ids, folded_ids
from tutelage.privacy import ONE_TEACHER, PrivacyUnit, PublicEpsilon
from tutelage.published import public_number_of_people
from tutelage.reporting import ClassAccuracy
from tutelage.reporting.lints import LARGE_EPSILON, Finding, lint


def say(findings: tuple[Finding, ...]) -> None:
    """Print findings on standard error, dangers in red."""
    for finding in findings:
        color = typer.colors.RED if finding.severity == "danger" else typer.colors.YELLOW
        typer.secho(f"tutelage: {finding.severity}: {finding.reason}", err=True, fg=color)


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


_WORDS_FOR_PEOPLE = {
    "account", "client", "customer", "email", "employee", "guid", "household", "id", "ids", "member", "mrn",
    "participant", "patient", "person", "pid", "respondent", "ssn", "student", "subject", "uid", "user", "uuid",
}  # fmt: skip
_FEWEST_PEOPLE = 10
_FEWEST_ROWS_OF_CLASS = 3
_MOST_ROWS_OF_ONE = 20  # on average; a column named like an id with fewer values may be a category
_MOST_ROWS_OF_ONE_UNNAMED = 3
_LONGEST_ID = 40  # longer cells are free text
_NEARLY_ALL = 0.9
_RARE = 0.01  # equal pairs


def private_warnings(settings: RunConfig, data: RunData) -> Iterator[str]:
    """Yield warnings about the private rows, which name columns and quote no cell.

    They depend on private rows, and are therefore text and no `Finding`, which a card would take.
    """
    yield from _odd_cells(settings, data)
    rarest = min(np.count_nonzero(data.y_private == value) for value in data.classes)
    if rarest < _FEWEST_ROWS_OF_CLASS and data.batches is None:  # the first batch may have rows of one class only
        yield (
            f"A class has fewer than {_FEWEST_ROWS_OF_CLASS} private rows. Teachers cannot learn it, and the "
            "student will not predict it. Merge it with another class in `classes`, or remove it and its rows."
        )
    if settings.private is not None:
        yield from _odd_people(settings.private, data)
    if settings.public.overlap == "checked" and _share_rows(data):
        yield (
            "Some public rows equal private rows in every feature column, while private rows of different people are "
            "seldom equal. Public rows are not protected: remove from them everyone whose rows are private. If equal "
            'rows are of different people, set `overlap = "ignored"` in [public]. `tutelage audit` compares further.'
        )


def _odd_cells(settings: RunConfig, data: RunData) -> Iterator[str]:
    number_columns, code_columns = np.split(data.X_private.T, [len(data.numbers)])
    # Not strict: private rows of other columns than the public ones are refused later, in words of their own.
    empty = [name for name, cells in zip(data.numbers, number_columns, strict=False) if _has_empty(cells)]
    if empty and not settings.by_vectors:  # ballots take empty cells as they are
        yield (
            f"Private rows have empty cells in: {', '.join(empty)}. Teachers that take missing values, as forests do, "
            "learn from them; for others, impute inside the model, so that each uses its own rows."
        )
    unknown = [name for name, cells in zip(data.categorical, code_columns, strict=False) if UNKNOWN in cells]
    if unknown:
        yield (
            f"Private rows have values that no public row has in: {', '.join(unknown)}. All such values are treated "
            "as one 'unknown' category. Add public rows that have them, or leave the column out with `ignore`."
        )


def _odd_people(private: PrivateSection, data: RunData) -> Iterator[str]:
    if private.entity is None:
        others = {name: cells for name, cells in data.cells.items() if name not in (private.label, private.silo)}
        for name in [name for name, cells in others.items() if _says_whose_row(name, cells)]:
            yield (
                f"Column '{name}' of the private rows may say whose row it is: it has many values, and some are in "
                "several rows. Without `entity`, the guarantee is for one row, not for all rows of one person. If it "
                f'says so, set `entity = "{name}"` in [private].'
            )
    for name, column in ((private.entity, data.entity_ids), (private.silo, data.silos)):
        if column is not None and _differ_by_spelling_only(column):
            yield (
                f"Some values of column '{name}' differ only by case, by width, by invisible characters, or by zeros "
                "around a number. They count as different, so that rows of one person may reach several teachers. If "
                "they mean the same, write them in one way."
            )


def _says_whose_row(name: str, cells: list[str]) -> bool:
    values, rows = len(set(cells)), len(cells)
    if values == rows:
        return False  # one row is one person then
    words = set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()))
    if words & _WORDS_FOR_PEOPLE:
        return values >= _FEWEST_PEOPLE and values * _MOST_ROWS_OF_ONE > rows
    codes = sum(len(cell) <= _LONGEST_ID and any(map(str.isalpha, cell)) for cell in cells)
    return values * _MOST_ROWS_OF_ONE_UNNAMED >= rows and codes > _NEARLY_ALL * rows


def _differ_by_spelling_only(column: Matrix) -> bool:
    ids = canonical_ids(column)
    return len(np.unique(folded_ids(ids))) < len(np.unique(ids))


def _share_rows(data: RunData) -> bool:
    """Return whether public rows are private ones, and not for the reason that many rows are alike anyway."""
    from tutelage.audit.overlap import audit_overlap  # which takes a while to load

    if data.X_private.shape[1:] != data.X_public.shape[1:]:
        return False  # refused later, in words of their own
    found = audit_overlap(data.X_private, data.X_public, data.entity_ids)
    if found.equal == 0 or found.alike_among_private > 0:
        return not found.by_chance
    # With no private rows alike, a few equal ones pass any test of them. Cells that seldom agree tell more.
    return not found.by_chance or _equal_by_columns(data.X_private, data.X_public) < _RARE


def _equal_by_columns(private: Matrix, public: Matrix) -> float:
    """Return how many pairs of a private and a public row would be equal if columns had nothing to do with another."""
    pairs = float(len(private) * len(public))
    for one, other in zip(private.T, public.T, strict=True):
        values, cells = np.unique(np.concatenate([one, other]), return_inverse=True)
        counts = (np.bincount(part, minlength=len(values)) for part in np.split(cells, [len(one)]))
        pairs *= float(np.prod(list(counts), axis=0, dtype=np.float64).sum()) / (len(one) * len(other))
    return pairs


def _has_empty(cells: Matrix) -> bool:
    return cells.dtype.kind == "f" and bool(np.isnan(cells).any())  # text has no NaN, and is refused later
