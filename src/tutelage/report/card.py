"""The privacy card: one page that says what was protected, how, and at which cost."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from tutelage.budget import PublicEpsilon, round_up
from tutelage.events import Event
from tutelage.exceptions import NotPublishableError

_MOST_LISTED = 40
_FORMAT = 1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyCard:
    """What one release did and cost, in public values only.

    Parameters
    ----------
    epsilon : PublicEpsilon
        The publishable guarantee.
    event : Event
        What was released.
    mechanism : str
        The mechanism in words, with its parameters.
    noise_source : str
        Where the noise came from.
    queries, answered, teachers : int
        Queries asked, queries answered, and teachers entitled to vote.
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
    budget : dict
        What the ledger says after the release: `LedgerState.as_dict`.
    versions : dict of str to str
        Versions of the software that did it.
    created : str
        When, as an ISO 8601 date and time.

    Raises
    ------
    NotPublishableError
        If `epsilon` is anything but a `PublicEpsilon`.
    """

    epsilon: PublicEpsilon
    event: Event
    mechanism: str
    noise_source: str
    queries: int
    answered: int
    teachers: int
    selection: str = "as given"
    classes: tuple[str, ...]
    features: tuple[str, ...]
    feature_map: str = "none"
    student: str
    student_accuracy: float | None
    evaluation_rows: int
    budget: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    created: str

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, PublicEpsilon):
            raise NotPublishableError(
                f"A card takes a PublicEpsilon only. Got a {type(self.epsilon).__name__}, which may depend on votes."
            )
        if self.event.is_simulated and not self.epsilon.simulated:
            raise NotPublishableError("The event was made with simulated noise, so its epsilon must be marked so too.")

    def as_dict(self) -> dict[str, Any]:
        """Return the card as plain JSON-ready values."""
        return {
            "format": _FORMAT,
            "created": self.created,
            "private": not self.epsilon.simulated,
            "public_epsilon": self.epsilon.epsilon,
            "delta": self.epsilon.delta,
            "epsilon_kind": "none: simulated noise" if self.epsilon.simulated else _KIND,
            "epsilon_method": self.epsilon.method,
            "unit": self.epsilon.unit.name,
            "neighbouring": str(self.epsilon.unit.neighboring),
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
            "budget": self.budget,
            "not_protected": list(_NOT_PROTECTED),
            "versions": self.versions,
        }

    def as_markdown(self) -> str:
        """Return the card as one readable page."""
        epsilon = self.epsilon
        guarantee = f"({round_up(epsilon.epsilon)}, {epsilon.delta:g})-differential privacy"
        if epsilon.simulated:
            guarantee = "none"
        accuracy = "not measured: no labelled public rows were given"
        if self.student_accuracy is not None:
            accuracy = f"{self.student_accuracy:.2%} on {self.evaluation_rows:,} public rows"
        rows = [
            ("Guarantee", guarantee),
            ("Kind of ε", "none: simulated noise" if epsilon.simulated else _KIND),
            ("Proved by", epsilon.method),
            ("Budget of these data", _budget_line(self.budget)),
            ("Ledger", f"{self.budget['entries']:,} entries, head {self.budget['head']}"),
            ("Unit of privacy", epsilon.unit.name),
            ("Neighbouring data", str(epsilon.unit.neighboring)),
            ("Mechanism", self.mechanism),
            ("Noise", self.noise_source),
            ("Teachers", f"{self.teachers:,}"),
            ("Queries", f"{self.queries:,} asked, {self.answered:,} answered"),
            ("Queries chosen", self.selection),
            ("Classes", ", ".join(self.classes)),
            ("Student", self.student),
            ("Student takes", _listed(self.features)),
            ("Feature map", self.feature_map),
            ("Student accuracy", accuracy),
            ("Made", f"{self.created} with " + ", ".join(f"{name} {v}" for name, v in self.versions.items())),
        ]
        lines = ["# Privacy card", ""]
        if epsilon.simulated:
            lines += ["> **NOT PRIVATE.** The noise was simulated from a seed; this run protects nobody.", ""]
        lines += ["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in rows), ""]
        lines += ["## What it means", "", _meaning(epsilon), ""]
        lines += ["## What is not protected", "", *(f"- {sentence}" for sentence in _NOT_PROTECTED), ""]
        return "\n".join(lines)

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write ``card.json`` and ``card.md`` into `folder` and return their paths."""
        as_json, as_markdown = folder / "card.json", folder / "card.md"
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        as_json.write_text(text + "\n", encoding="utf-8")
        as_markdown.write_text(self.as_markdown(), encoding="utf-8")
        return as_json, as_markdown


_KIND = "data-independent: may be published"
_NOT_PROTECTED = (
    "The public rows themselves: they were shown to the teachers and may be kept by the student.",
    "Facts about the whole population that the student learns; they hold with or without any one unit.",
    "A person whose rows are spread over several units: the loss adds up over the units.",
    "Releases from the same private data outside this ledger: their epsilons add to its budget.",
    "Votes, teachers and checkpoints, which stay with the data's owner and must not be published.",
)


def _listed(names: tuple[str, ...]) -> str:
    """Return the names, of very many only the first and their number; the JSON card has them all."""
    shown = ", ".join(names[:_MOST_LISTED])
    return shown if len(names) <= _MOST_LISTED else f"{shown}, … ({len(names):,} in all)"


def _budget_line(budget: dict[str, Any]) -> str:
    return (
        f"everything released through the ledger is ({round_up(budget['budget'])}, {budget['delta']:g})-differentially "
        f"private; {round_up(budget['spent']):.4f} is spent"
    )


def _meaning(epsilon: PublicEpsilon) -> str:
    if epsilon.simulated:
        return "Nothing is guaranteed: the noise can be replayed. The values say what real noise would have cost."
    return (
        "Any outcome (the released labels, the student, this card) is at most "
        f"e^{round_up(epsilon.epsilon, 2)} times as likely, plus {epsilon.delta:g}, as on neighbouring data, "
        "whatever else the observer knows."
    )


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
