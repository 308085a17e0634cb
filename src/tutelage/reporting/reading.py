"""Reads a card from its JSON file and checks every entry: the file may have been edited, or made to harm."""

import json
import os
import re
from dataclasses import replace
from types import NoneType
from typing import Any, NoReturn

from tutelage._internal.gate import read_text, user_path
from tutelage.events import event_from_dict
from tutelage.exceptions import InvalidDataError, TutelageError
from tutelage.privacy import KEY, PrivacyUnit, PublicEpsilon, stored_relation
from tutelage.reporting.card import FORMAT, PrivacyCard
from tutelage.reporting.evidence import Batch, ClassAccuracy, FrontierPoint
from tutelage.reporting.lints import Finding
from tutelage.reporting.publishable import BUDGET

_MOST_DIGITS = 20
_MOST = 1e15  # whole numbers up to it are floats exactly
_FINDING = ("code", "severity", "reason")


def read_card(path: str | os.PathLike[str]) -> PrivacyCard:
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
    except RecursionError:
        raise InvalidDataError(f"{path} is not a privacy card: its event is nested too deeply.") from None
    except TutelageError as error:
        raise InvalidDataError(f"{path} is not a privacy card: {error}") from None


def card_from_dict(record: object) -> PrivacyCard:
    """Return the card that `PrivacyCard.as_dict` gave."""
    card = _Entries(record, "the card")
    if card.count("format") > FORMAT:
        raise InvalidDataError(f"it is of a later format than {FORMAT}. Upgrade tutelage.")
    event = event_from_dict(card.one("event", dict))
    unit = PrivacyUnit(card.one("unit", str), stored_relation(card.one(KEY, str)))
    noise = card.one("noise", str, otherwise="real")
    if noise not in ("real", "simulated"):
        raise InvalidDataError("`noise` must be real or simulated.")
    simulated = event.is_simulated or not card.one("private", bool) or noise == "simulated"

    def epsilon(values: _Entries, name: str = "epsilon", prefix: str = "") -> PublicEpsilon:
        order = values.number_or_none(f"{prefix}order", otherwise=None)
        method = values.one(f"{prefix}method", str)
        return PublicEpsilon(values.number(name), values.number("delta", 1.0), unit, method, order, simulated)

    checked = card.one("findings", list, NoneType, otherwise=None) is not None
    findings = (Finding(*(values.one(item, str) for item in _FINDING)) for values in card.nested("findings"))
    return PrivacyCard(
        epsilon=epsilon(card, "public_epsilon", "epsilon_"),
        sanitised=next((replace(epsilon(values), output_dependent=True) for values in card.nested("sanitised")), None),
        proposal=card.one("proposal", dict, NoneType, otherwise=None),
        alone=next((epsilon(values) for values in card.nested("alone")), None),
        if_added_or_removed=card.number_or_none("epsilon_if_added_or_removed", otherwise=None),
        event=event,
        mechanism=card.one("mechanism", str),
        noise_source=card.one("noise_source", str),
        queries=card.count("queries"),
        answered=card.count_or_none("answered"),
        teachers=card.count_or_none("teachers"),
        selection=card.one("selection", str),
        classes=tuple(card.one("classes", list)),
        features=tuple(card.one("features", list)),
        feature_map=card.one("feature_map", str),
        student=card.one("student", str),
        student_accuracy=card.number_or_none("student_accuracy", 1.0),
        evaluation_rows=card.count("evaluation_rows"),
        accuracy_by_class=tuple(_class_accuracy(values) for values in card.nested("accuracy_by_class")),
        budget=_budget(_Entries(card.one("budget", dict), "`budget`")),
        batches=tuple(_batch(values) for values in card.nested("batches")),
        frontier=tuple(FrontierPoint(values.count("queries"), epsilon(values)) for values in card.nested("frontier")),
        findings=tuple(findings) if checked else None,
        statements=card.one("statements", dict, otherwise={}),
        versions=card.one("versions", dict, otherwise={}),
        created=card.one("created", str),
    )


class _Entries:
    """A JSON object, entry by entry; an entry of the wrong type is refused by name."""

    def __init__(self, record: object, where: str) -> None:
        if not isinstance(record, dict):
            raise InvalidDataError(f"{where} must be a JSON object.")
        self._record: dict[str, Any] = record
        self._where = where

    def one(self, name: str, *kinds: type, **otherwise: Any) -> Any:
        """Return an entry of one of these kinds, or `otherwise` where it is missing and that is given."""
        if name not in self._record:
            if "otherwise" in otherwise:
                return otherwise["otherwise"]
            raise InvalidDataError(f"{self._where} has no `{name}`.")
        value = self._record[name]
        if type(value) not in kinds:  # True is not an int here
            raise InvalidDataError(f"`{name}` of {self._where} is of the wrong type.")
        return value

    def count(self, name: str) -> int:
        """Return an entry that is a whole number of at least 0."""
        return int(self.number(name, kinds=(int,)))

    def count_or_none(self, name: str) -> int | None:
        """Return an entry that is a whole number of at least 0, or null."""
        return None if self.one(name, int, NoneType) is None else self.count(name)

    def number_or_none(self, name: str, high: float = _MOST, **otherwise: None) -> float | None:
        """Return an entry that is a number from 0 to `high`, or null."""
        return None if self.one(name, float, int, NoneType, **otherwise) is None else self.number(name, high)

    def number(self, name: str, high: float = _MOST, kinds: tuple[type, ...] = (float, int)) -> float:
        """Return an entry that is a number from 0 to `high`."""
        value = self.one(name, *kinds)
        if not 0 <= value <= high:
            raise InvalidDataError(f"`{name}` of {self._where} must be a number from 0 to {high:g}.")
        return value

    def nested(self, name: str) -> "list[_Entries]":
        """Return the objects of an entry that is one, a list of them, null or missing."""
        values = self.one(name, list, dict, NoneType, otherwise=None)
        listed = values if isinstance(values, list) else [] if values is None else [values]
        return [_Entries(value, f"`{name}`") for value in listed]


def _budget(values: _Entries) -> dict[str, Any]:
    missing = object()
    found = {name: values.one(name, *kinds, otherwise=missing) for name, kinds in BUDGET.items()}
    for name in ("budget", "delta", "spent", "entries"):
        values.number(name)
    if not found["budget"] > 0 or not re.fullmatch("[0-9a-f]{64}", values.one("head", str)):
        raise InvalidDataError("`budget` must be above 0, and its head 64 hexadecimal digits.")
    return {name: value for name, value in found.items() if value is not missing}


def _batch(values: _Entries) -> Batch:
    share = float(values.number("checks")), float(values.number("answers"))
    return Batch(values.one("written", str), values.count("queries"), *share, values.count("sums"))


def _class_accuracy(values: _Entries) -> ClassAccuracy:
    rows = values.count("rows")
    return ClassAccuracy(values.one("name", str), rows, int(values.number("right", rows, kinds=(int,))))


def _whole(digits: str) -> int:
    """Return a whole number of a size that can be counted with."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError
    return int(digits)


def _no_number(_: str) -> NoReturn:
    raise ValueError
