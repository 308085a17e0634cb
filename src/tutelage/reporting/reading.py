"""Reads a card from its JSON file and checks every entry: the file may have been edited, or made to harm."""

import json
import os
from dataclasses import fields, replace
from types import NoneType
from typing import Any, NoReturn, TypeVar

from tutelage._internal.gate import read_text, user_path
from tutelage.events import event_from_dict
from tutelage.exceptions import InvalidDataError, TutelageError
from tutelage.privacy import KEY, PrivacyUnit, PublicEpsilon, stored_relation
from tutelage.reporting.card import FORMAT, PrivacyCard
from tutelage.reporting.evidence import Batch, ClassAccuracy, FrontierPoint
from tutelage.reporting.lints import Finding
from tutelage.reporting.publishable import BUDGET

_MOST_DIGITS = 20
_AS_STORED = (
    "proposal", "mechanism", "noise_source", "queries", "answered", "teachers", "selection", "feature_map", "student",
    "student_accuracy", "evaluation_rows", "statements", "versions", "created",
)  # fmt: skip
Part = TypeVar("Part", Batch, ClassAccuracy, Finding)


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
    except TutelageError as error:
        raise InvalidDataError(f"{path} is not a privacy card: {error}") from None


def card_from_dict(record: object) -> PrivacyCard:
    """Return the card that `PrivacyCard.as_dict` gave; the card itself checks types and ranges."""
    card = _Entries(record, "the card")
    if card.one("format", int) > FORMAT:
        raise InvalidDataError(
            f"it has another format ({card.one('format')}); read it with the version of tutelage that made it."
        )
    noise = card.one("noise", str)
    if card.one("format") < 1 or noise not in ("real", "simulated"):
        raise InvalidDataError("`format` must be at least 1, and `noise` real or simulated.")
    event = event_from_dict(card.one("event", dict))
    unit = PrivacyUnit(card.one("unit", str), stored_relation(card.one(KEY, str)))
    simulated = event.is_simulated or not card.one("private", bool) or noise == "simulated"

    def epsilon(values: _Entries, name: str = "epsilon", prefix: str = "") -> PublicEpsilon:
        method, order = values.one(f"{prefix}method"), values.one(f"{prefix}order")
        return PublicEpsilon(values.one(name), values.one("delta"), unit, method, order, simulated)

    sanitised, alone = ([epsilon(values) for values in card.nested(name)] for name in ("sanitised", "alone"))
    findings = tuple(values.part(Finding) for values in card.nested("findings"))
    stored: dict[str, Any] = {name: card.one(name) for name in _AS_STORED}
    return PrivacyCard(
        epsilon=epsilon(card, "public_epsilon", "epsilon_"),
        sanitised=replace(sanitised[0], output_dependent=True) if sanitised else None,
        alone=alone[0] if alone else None,
        if_added_or_removed=card.one("epsilon_if_added_or_removed"),
        event=event,
        classes=tuple(card.one("classes", list)),
        features=tuple(card.one("features", list)),
        accuracy_by_class=tuple(values.part(ClassAccuracy) for values in card.nested("accuracy_by_class")),
        budget={name: value for name, value in card.one("budget", dict).items() if name in BUDGET},
        batches=tuple(values.part(Batch) for values in card.nested("batches")),
        frontier=tuple(FrontierPoint(values.one("queries"), epsilon(values)) for values in card.nested("frontier")),
        findings=None if card.one("findings", list, NoneType) is None else findings,
        **stored,
    )


class _Entries:
    """A JSON object, entry by entry; a missing entry, or one of the wrong type, is refused by name."""

    def __init__(self, record: object, where: str) -> None:
        if not isinstance(record, dict):
            raise InvalidDataError(f"{where} must be a JSON object.")
        self._record: dict[str, Any] = record
        self._where = where

    def one(self, name: str, *kinds: type) -> Any:
        """Return an entry, of one of these kinds if any are given."""
        if name not in self._record:
            raise InvalidDataError(f"{self._where} has no `{name}`.")
        value = self._record[name]
        if kinds and type(value) not in kinds:  # True is not an int here
            raise InvalidDataError(f"`{name}` of {self._where} is of the wrong type.")
        return value

    def nested(self, name: str) -> "list[_Entries]":
        """Return the objects of an entry that is one, a list of them, or null."""
        values = self.one(name, list, dict, NoneType)
        listed = values if isinstance(values, list) else [] if values is None else [values]
        return [_Entries(value, f"`{name}`") for value in listed]

    def part(self, kind: type[Part]) -> Part:
        """Return the object as a record of the card."""
        return kind(*(self.one(item.name) for item in fields(kind)))


def _whole(digits: str) -> int:
    """Return a whole number of a size that can be counted with."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError
    return int(digits)


def _no_number(_: str) -> NoReturn:
    raise ValueError
