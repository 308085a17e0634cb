"""The privacy card: the page that says what was protected, how, and at which cost."""

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, final

from tutelage.events import Event
from tutelage.exceptions import NotPublishableError
from tutelage.privacy import PublicEpsilon
from tutelage.reporting.evidence import Batch, ClassAccuracy, FrontierPoint
from tutelage.reporting.html import page_of
from tutelage.reporting.lints import Finding
from tutelage.reporting.markdown import markdown_of
from tutelage.reporting.publishable import (
    check_all,
    check_budget,
    check_kinds,
    check_number,
    check_proposal,
    check_public,
    check_table,
)
from tutelage.reporting.sections import NOT_PROTECTED, pages_of
from tutelage.reporting.statements import check_statements, check_words

FORMAT = 3  # 1 and 2 spelled relations out


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyCard:
    """What one release did and cost, in public values only.

    Parameters
    ----------
    epsilon : PublicEpsilon
        The publishable guarantee.
    sanitised : PublicEpsilon, optional
        A second, smaller ε that the votes were looked at for, and that noise or a private test made publishable. It
        stands beside the first and never in its place.
    proposal : dict, optional
        Record of the proposal that `sanitised` is proved from, as the ledger holds it.
    alone : PublicEpsilon, optional
        ε of this release by itself, where `epsilon` is that of everything released through its ledger; `sanitised` is
        then of this release too.
    event : Event
        What was released.
    mechanism : str
        The mechanism in words, with its parameters.
    noise_source : str
        Where the noise came from.
    queries : int
        Queries asked.
    answered : int or None
        Queries answered; None where that was not recorded.
    teachers : int or None
        Teachers entitled to vote; None where that was not recorded.
    selection : str
        How the queries were chosen among the public rows.
    classes : tuple of str
        The declared classes.
    features : tuple of str
        What the student takes per row, in this order; column numbers where columns have no names.
    feature_map : str
        What turns these into what the student sees, and what it was learned from; "none" where there is no such map.
    student : str
        The student's estimator.
    student_accuracy : float or None
        Share of right predictions on public labelled rows, where the user gave some.
    evaluation_rows : int
        Number of those rows.
    accuracy_by_class : tuple of ClassAccuracy
        The same by class.
    budget : dict
        What the ledger says after the release: `LedgerState.as_dict`.
    batches : tuple of Batch
        What was taken from the budget so far, in order.
    frontier : tuple of FrontierPoint
        What other numbers of queries would cost, at the δ of `epsilon`.
    findings : tuple of Finding, optional
        What `tutelage.reporting.lints.lint` objected to; None where nobody looked.
    statements : dict of str to str
        What the people behind the data say, by the topics of `STATEMENTS`: public text.
    versions : dict of str to str
        Versions of the software that did it.
    created : str
        When, as an ISO 8601 date and time.

    Raises
    ------
    NotPublishableError
        If anything in it is of a type that may depend on the private votes: a `PrivateEpsilon`, votes, any array. If
        an ε that holds for the outcome at hand only stands anywhere but in `sanitised`, or is not the smaller one.
    InvalidParameterError
        If a number is not finite or out of range, or words promise more than any ε does.
    """

    epsilon: PublicEpsilon
    sanitised: PublicEpsilon | None = None
    proposal: dict[str, Any] | None = None
    alone: PublicEpsilon | None = None
    event: Event
    mechanism: str
    noise_source: str
    queries: int
    answered: int | None
    teachers: int | None
    selection: str = "as given"
    classes: tuple[str, ...]
    features: tuple[str, ...]
    feature_map: str = "none"
    student: str
    student_accuracy: float | None
    evaluation_rows: int
    accuracy_by_class: tuple[ClassAccuracy, ...] = ()
    budget: dict[str, Any]
    batches: tuple[Batch, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    findings: tuple[Finding, ...] | None = None
    statements: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    created: str

    def __post_init__(self) -> None:
        check_kinds(self.epsilon, (PublicEpsilon,), "epsilon")
        for item in fields(self):
            check_public(getattr(self, item.name), item.name)
        self._check_shapes()
        self._check_ranges()
        check_statements(self.statements)
        for name in ("mechanism", "noise_source", "selection", "feature_map", "student"):
            check_words(getattr(self, name), f"`{name}` of a card")
        self._check_costs()
        if self.event.is_simulated and not self.epsilon.simulated:
            raise NotPublishableError("The event was made with simulated noise, so its epsilon must be marked so too.")

    def _check_shapes(self) -> None:
        """Refuse fields of other kinds than theirs, in which a list of private numbers could hide."""
        for name in ("mechanism", "noise_source", "selection", "feature_map", "student", "created"):
            check_kinds(getattr(self, name), (str,), name)
        for name in ("queries", "evaluation_rows"):
            check_kinds(getattr(self, name), (int,), name)
        for name in ("answered", "teachers"):
            check_kinds(getattr(self, name), (int, NoneType), name)
        check_kinds(self.student_accuracy, (float, int, NoneType), "student_accuracy")
        for name in ("sanitised", "alone"):
            check_kinds(getattr(self, name), (PublicEpsilon, NoneType), name)
        if not isinstance(self.event, Event):
            raise NotPublishableError(f"`event` of a card must be an Event. Got a {type(self.event).__name__}.")
        tuples = {
            "classes": str, "features": str, "accuracy_by_class": ClassAccuracy, "batches": Batch,
            "frontier": FrontierPoint,
        }  # fmt: skip
        for name, kind in tuples.items():
            check_all(getattr(self, name), (kind,), name)
        if self.findings is not None:
            check_all(self.findings, (Finding,), "findings")
        check_budget(self.budget)
        check_proposal(self.proposal)
        check_table(self.statements, (str,), "statements")
        check_table(self.versions, (str,), "versions")

    def _check_ranges(self) -> None:
        """Refuse numbers that cannot be what they are said to be."""
        for name in ("queries", "answered", "teachers", "evaluation_rows"):
            check_number(getattr(self, name), name)
        check_number(self.student_accuracy, "student_accuracy", 1)
        if self.answered is not None:
            check_number(self.answered, "answered", self.queries)
        for entry in self.accuracy_by_class:
            check_number(entry.right, "accuracy_by_class.right", entry.rows)
        for cost in (self.epsilon, self.sanitised, self.alone, *(point.epsilon for point in self.frontier)):
            if cost is not None:
                check_number(cost.delta, "delta", 1)

    def _check_costs(self) -> None:
        """Refuse costs in the place of others, or about something else."""
        alone, sanitised = ([] if cost is None else [cost] for cost in (self.alone, self.sanitised))
        always = [*(point.epsilon for point in self.frontier), *alone]
        if any(cost.output_dependent for cost in (self.epsilon, *always)):
            raise NotPublishableError(
                "`epsilon`, `alone` and `frontier` of a card must hold for any votes and outcome. An ε that holds for "
                "the outcome at hand goes into `sanitised`."
            )
        first = self.epsilon if self.alone is None else self.alone
        if any(not cost.output_dependent or cost.epsilon >= first.epsilon for cost in sanitised):
            raise NotPublishableError(
                "`sanitised` of a card must be an ε that holds for the outcome at hand, and smaller than the one that "
                "always holds. Leave it out, or put the smaller one that always holds into `epsilon`."
            )
        beside = [*always, *sanitised]
        for cost in beside:
            if (cost.unit, cost.simulated) != (self.epsilon.unit, self.epsilon.simulated):
                raise NotPublishableError(
                    "`sanitised`, `alone` and `frontier` of a card must be about the same unit of privacy as its "
                    "`epsilon`, and simulated only where that is."
                )

    @property
    def covers_ledger(self) -> bool:
        """Whether `epsilon` bounds everything that is ever released through the ledger, and not this release alone."""
        return self.epsilon.epsilon >= self.budget["budget"] and self.epsilon.delta >= self.budget["delta"]

    @property
    def majority_share(self) -> float | None:
        """Share of the public labelled rows that always naming one class has right at most; None where none were."""
        rows = sum(entry.rows for entry in self.accuracy_by_class)
        return max(entry.rows for entry in self.accuracy_by_class) / rows if rows else None

    def as_dict(self) -> dict[str, Any]:
        """Return the card as plain JSON-ready values."""
        epsilon, sanitised, alone = self.epsilon, self.sanitised, self.alone
        return {
            "format": FORMAT,
            "created": self.created,
            "private": not epsilon.simulated,
            "noise": "simulated" if epsilon.simulated else "real",
            "public_epsilon": epsilon.epsilon,
            "delta": epsilon.delta,
            "epsilon_kind": "none" if epsilon.simulated else "data-independent",
            "epsilon_method": epsilon.method,
            "epsilon_order": epsilon.order,
            "sanitised": None if sanitised is None else _epsilon_as_dict(sanitised),
            "proposal": self.proposal,
            "alone": None if alone is None else _epsilon_as_dict(alone),
            "unit": epsilon.unit.name,
            "neighboring": epsilon.unit.neighboring.value,
            "mechanism": self.mechanism,
            "noise_source": self.noise_source,
            "event": self.event.as_dict(),
            "queries": self.queries,
            "answered": self.answered,
            "teachers": self.teachers,
            "selection": self.selection,
            "classes": list(self.classes),
            "features": list(self.features),
            "feature_map": self.feature_map,
            "student": self.student,
            "student_accuracy": self.student_accuracy,
            "evaluation_rows": self.evaluation_rows,
            "majority_share": self.majority_share,
            "accuracy_by_class": [asdict(entry) for entry in self.accuracy_by_class],
            "budget": self.budget,
            "batches": [asdict(batch) for batch in self.batches],
            "frontier": [{"queries": point.queries, **_epsilon_as_dict(point.epsilon)} for point in self.frontier],
            "findings": None if self.findings is None else [asdict(finding) for finding in self.findings],
            "statements": self.statements,
            "not_protected": list(NOT_PROTECTED),
            "versions": self.versions,
        }

    def as_markdown(self) -> str:
        """Return the card as one readable page."""
        return markdown_of(pages_of(self))

    def as_html(self) -> str:
        """Return the card as one self-contained page: figures and style inside, no scripts, nothing fetched."""
        return page_of(pages_of(self))

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
        """Write ``card.json``, ``card.md`` and ``card.html`` into `folder` and return their paths."""
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        contents = {"card.json": text + "\n", "card.md": self.as_markdown(), "card.html": self.as_html()}
        as_json, as_markdown, as_html = (Path(folder) / name for name in contents)
        for path, content in zip((as_json, as_markdown, as_html), contents.values(), strict=True):
            path.write_text(content, encoding="utf-8")
        return as_json, as_markdown, as_html


def _epsilon_as_dict(epsilon: PublicEpsilon) -> dict[str, Any]:
    return {
        "epsilon": epsilon.epsilon,
        "delta": epsilon.delta,
        "method": epsilon.method,
        "order": epsilon.order,
    }
