"""The privacy card: what was protected, how, and at which cost."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from tutelage._internal.html import fragment
from tutelage._internal.releases import CARD, claimed_folder, released
from tutelage.privacy import PublicEpsilon
from tutelage.reporting.pages import markdown_of, page_of
from tutelage.reporting.record import CardRecord
from tutelage.reporting.sections import NOT_PROTECTED, pages_of

FORMAT = 1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyCard(CardRecord):
    """The privacy card of a release, in public values only.

    Parameters
    ----------
    epsilon : PublicEpsilon
        The publishable guarantee.
    sanitised : PublicEpsilon, optional
        A second, smaller ε that was computed from the votes, and that noise or a private test made publishable. It
        is shown beside the first ε and never instead of it.
    proposal : dict, optional
        Record of the proposal that proves `sanitised`, as in the ledger.
    alone : PublicEpsilon, optional
        ε of this release by itself, if `epsilon` covers everything released through the ledger. `sanitised` is then
        of this release too.
    if_added_or_removed : float, optional
        ε of this release, at the δ of `epsilon`, if units are only added or removed; for releases in which each unit
        casts one ballot and the number of units is private. It covers fewer changes than `epsilon`.
    event : Event
        The release.
    mechanism : str
        The mechanism in words, with its parameters.
    noise_source : str
        The source of the noise.
    queries : int
        Queries asked.
    answered, teachers : int or None
        Queries with a label, and teachers that could vote; None if the number was not recorded.
    selection : str
        How the queries were chosen among the public rows.
    classes : tuple of str
        The declared classes.
    features : tuple of str
        The columns of a row, in the order of the student; numbers for columns without names.
    feature_map : str
        The map from columns to the input of the student, and the rows it was learned from; "none" if there is no map.
    student : str
        The estimator of the student.
    student_accuracy, evaluation_rows : float or None, int
        Accuracy on public labeled rows, if the user gave some, and the number of these rows.
    accuracy_by_class : tuple of ClassAccuracy
        The accuracy by class.
    budget : dict
        The state of the ledger after the release: `LedgerState.as_dict`.
    batches : tuple of Batch
        The releases that spent the budget so far, in order.
    frontier : tuple of FrontierPoint
        The costs of other numbers of queries, at the δ of `epsilon`.
    findings : tuple of Finding, optional
        The objections of `tutelage.reporting.lints.lint`; None if the settings were not checked.
    statements : dict of str to str
        The statements of the people behind the data, by the topics of `STATEMENTS`: public text.
    versions : dict of str to str
        Versions of the software.
    created : str
        UTC day of the release in ISO 8601.

    Raises
    ------
    NotPublishableError
        If a value is of a type that may depend on the private votes: a `PrivateEpsilon`, votes, any array. If an ε
        that holds only for the outcome at hand is anywhere but in `sanitised`, or is not the smaller one.
    InvalidParameterError
        If a number is not finite or out of range.
    """

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
            "epsilon_if_added_or_removed": self.if_added_or_removed,
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
        """Return the card as Markdown."""
        return markdown_of(pages_of(self))

    def as_html(self) -> str:
        """Return the card as one self-contained HTML file: it runs no script and loads nothing."""
        return page_of(pages_of(self))

    def _repr_html_(self) -> str:
        """Return what notebooks show: the verdict and the known lines of the first page."""
        page = pages_of(self)
        alarm = () if page.alarm is None else (("warning", page.alarm),)
        return fragment(f"{page.title}:", page.sentence, (*alarm, ("Verdict", page.verdict.word), *page.facts.rows))

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
        """Write ``card.json``, ``card.md`` and ``card.html`` with their manifest as a folder and return their paths.

        Only an empty folder or an earlier card is replaced. The results of a run are refused.
        """
        folder = Path(folder)
        claiming = claimed_folder(folder, CARD, "name another `folder`")
        with claiming as claim, released(claim, self.budget["head"]) as part:
            as_json, as_markdown, as_html = (folder / path.name for path in self.write(part))
        return as_json, as_markdown, as_html

    def write(self, folder: Path) -> tuple[Path, Path, Path]:
        """Write the three files of the card into a folder that has none of them."""
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        as_json, as_markdown, as_html = (folder / name for name in CARD)
        contents = (text + "\n", self.as_markdown(), self.as_html())
        for path, content in zip((as_json, as_markdown, as_html), contents, strict=True):
            path.write_text(content, encoding="utf-8")
        return as_json, as_markdown, as_html


def _epsilon_as_dict(epsilon: PublicEpsilon) -> dict[str, Any]:
    return {name: getattr(epsilon, name) for name in ("epsilon", "delta", "method", "order")}
