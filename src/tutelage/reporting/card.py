"""The privacy card: what was protected, how, and at which cost; as pages and as a file that can be read again."""

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn, final

from tutelage._internal.gate import AnyPath, read_text, user_path
from tutelage._internal.records import Entries
from tutelage._internal.releases import CARD, claimed_folder, released
from tutelage.events import event_from_dict
from tutelage.exceptions import InvalidDataError, TutelageError, shown
from tutelage.privacy import KEY, PrivacyUnit, PublicEpsilon, stored_relation
from tutelage.reporting.lints import Finding, verdict_of
from tutelage.reporting.record import (
    STATEMENTS,
    Batch,
    CardRecord,
    ClassAccuracy,
    Curve,
    Errors,
    FrontierPoint,
    Influence,
    Reached,
)
from tutelage.reporting.render import Form, render

FORMAT = 1
_MOST_DIGITS = 20
_PARTS = {
    "accuracy_by_class": ClassAccuracy,
    "influences": Influence,
    "curves": Curve,
    "errors": Errors,
    "goals": Reached,
    "batches": Batch,
}
_AS_STORED = (
    "proposal", "mechanism", "noise_source", "queries", "answered", "teachers", "selection", "feature_map", "student",
    "student_accuracy", "public_labels_accuracy", "class_weight", "evaluation_rows", "budget", "statements", "versions",
    "created",
)  # fmt: skip


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
    public_labels_accuracy : float, optional
        Accuracy, on the same rows, of a model of public labels alone, which costs nobody any privacy.
    goals : tuple of Reached
        How much of the goal is reached on the same rows, if the goal is not accuracy.
    class_weight : dict of str to float
        How much each class counts in predictions; empty if classes count alike.
    accuracy_by_class : tuple of ClassAccuracy
        The accuracy by class.
    influences : tuple of Influence
        The columns that move scores furthest, if the student is a table of effects.
    curves : tuple of Curve
        The effects of these columns, at most six, to be drawn.
    errors : tuple of Errors
        How wrong a student that predicts numbers is on public rows, if the user gave some.
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

    def as_dict(self) -> Entries:
        """Return the card as plain JSON-ready values."""
        epsilon = self.epsilon
        return {
            "format": FORMAT,
            "private": not epsilon.simulated,
            "noise": "simulated" if epsilon.simulated else "real",
            "public_epsilon": epsilon.epsilon,
            "delta": epsilon.delta,
            "epsilon_kind": "none" if epsilon.simulated else "data-independent",
            "epsilon_method": epsilon.method,
            "epsilon_order": epsilon.order,
            "epsilon_if_added_or_removed": self.if_added_or_removed,
            "sanitised": self.sanitised and _stored_epsilon(self.sanitised),
            "alone": self.alone and _stored_epsilon(self.alone),
            "unit": epsilon.unit.name,
            KEY: epsilon.unit.neighboring.value,
            "event": self.event.as_dict(),
            "majority_share": self.majority_share,
            **{name: getattr(self, name) for name in _AS_STORED},
            "classes": list(self.classes),
            "features": list(self.features),
            "frontier": [{"queries": point.queries, **_stored_epsilon(point.epsilon)} for point in self.frontier],
            **{name: [asdict(part) for part in getattr(self, name)] for name in _PARTS},
            "findings": None if self.findings is None else [asdict(finding) for finding in self.findings],
        }

    def as_markdown(self) -> str:
        """Return the card as Markdown."""
        return self._rendered("card.jinja", "markdown")

    def as_html(self) -> str:
        """Return the card as one self-contained HTML file: it runs no script and loads nothing."""
        return self._rendered("card.jinja", "html")

    def _repr_html_(self) -> str:
        """Return what notebooks show: the first page."""
        return self._rendered("first.jinja", "html")

    def _rendered(self, template: str, form: Form) -> str:
        judged = verdict_of(self.epsilon, self.findings)
        return render(template, form, card=self, topics=STATEMENTS, verdict=judged)

    def save(self, folder: AnyPath) -> tuple[Path, Path, Path]:
        """Write ``card.json``, ``card.md`` and ``card.html`` with their manifest as a folder and return their paths.

        Only an empty folder or an earlier card is replaced. The results of a run are refused.
        """
        folder = Path(folder)
        claiming = claimed_folder(folder, CARD, "name another `folder`")
        with claiming as claim, released(claim, self.budget["head"]) as part:
            self.write(part)
        as_json, as_markdown, as_html = (folder / name for name in CARD)
        return as_json, as_markdown, as_html

    def write(self, folder: Path) -> None:
        """Write the three files of the card into a folder that has none of them."""
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        for name, content in zip(CARD, (text + "\n", self.as_markdown(), self.as_html()), strict=True):
            (folder / name).write_text(content, encoding="utf-8")


def read_card(path: AnyPath) -> PrivacyCard:
    """Return the card that `PrivacyCard.save` wrote as JSON.

    Parameters
    ----------
    path : path-like
        ``card.json``.

    Raises
    ------
    InvalidDataError
        If the file is missing, larger than 16 MiB, or not a card; the message names the entry.
    """
    path = user_path(path)
    try:
        record = json.loads(read_text(path), parse_int=_whole, parse_constant=_no_number)
    except OSError as error:
        raise InvalidDataError(f"{path} cannot be read: {error.strerror}. Name a card.json.") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidDataError):
            raise
        raise InvalidDataError(f"{path} is not a JSON file of finite numbers. Name a card.json.") from None
    try:
        return card_from_dict(record)
    except TutelageError as error:
        raise InvalidDataError(f"{path} is not a privacy card: {error}") from None


def card_from_dict(record: object) -> PrivacyCard:
    """Return the card that `PrivacyCard.as_dict` gave; the card itself checks types and ranges."""
    card = _entries(record, "the card")
    if type(card["format"]) is not int or card["format"] != FORMAT:
        raise InvalidDataError(
            f"it has another format ({shown(card['format'])}); read it with the version of tutelage that made it."
        )
    if card["noise"] not in ("real", "simulated") or type(card["private"]) is not bool:
        raise InvalidDataError("`noise` must be real or simulated, and `private` true or false.")
    event = event_from_dict(_entries(card["event"], "`event`"))
    unit = PrivacyUnit(card["unit"], stored_relation(card[KEY]))
    simulated = event.is_simulated or not card["private"] or card["noise"] == "simulated"

    def cost(name: str) -> PublicEpsilon | None:
        return None if card[name] is None else _epsilon(_entries(card[name], f"`{name}`"), unit, simulated)

    sanitised = cost("sanitised")
    findings = card["findings"]
    return PrivacyCard(
        epsilon=_epsilon(card, unit, simulated, "public_epsilon", "epsilon_"),
        sanitised=sanitised and replace(sanitised, output_dependent=True),
        alone=cost("alone"),
        if_added_or_removed=card["epsilon_if_added_or_removed"],
        event=event,
        classes=tuple(_listed(card, "classes")),
        features=tuple(_listed(card, "features")),
        frontier=tuple(
            FrontierPoint(point["queries"], _epsilon(point, unit, simulated)) for point in _nested(card, "frontier")
        ),
        findings=None if findings is None else _records(card, "findings", Finding),
        **{name: _records(card, name, kind) for name, kind in _PARTS.items()},
        **{name: card[name] for name in _AS_STORED},
    )


class _Entries(dict[str, Any]):
    """A JSON object; an entry that is missing is refused by its name."""

    def __missing__(self, name: str) -> NoReturn:
        raise InvalidDataError(f"an object has no `{name}`.")


def _entries(record: object, where: str) -> _Entries:
    if type(record) is not dict:
        raise InvalidDataError(f"{where} must be a JSON object.")
    return _Entries(record)


def _listed(card: _Entries, name: str) -> list[Any]:
    if type(card[name]) is not list:
        raise InvalidDataError(f"`{name}` must be a list.")
    return card[name]


def _nested(card: _Entries, name: str) -> list[_Entries]:
    return [_entries(part, f"`{name}`") for part in _listed(card, name)]


def _records(card: _Entries, name: str, kind: type) -> tuple[Any, ...]:
    return tuple(kind(*(part[item.name] for item in fields(kind))) for part in _nested(card, name))


def _stored_epsilon(epsilon: PublicEpsilon) -> Entries:
    return {name: getattr(epsilon, name) for name in ("epsilon", "delta", "method", "order")}


def _epsilon(card: _Entries, unit: PrivacyUnit, simulated: bool, name: str = "epsilon", of: str = "") -> PublicEpsilon:
    return PublicEpsilon(card[name], card["delta"], unit, card[f"{of}method"], card[f"{of}order"], simulated)


def _whole(digits: str) -> int:
    """Return a whole number of a size that can be counted with."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError
    return int(digits)


def _no_number(_: str) -> NoReturn:
    raise ValueError
