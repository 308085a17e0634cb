"""The types that a card accepts: an allow-list, so that a new type is refused."""

import math
import re
from dataclasses import fields
from types import NoneType

from tutelage.events import Composed, Event, Repeated, SummedNoise, event_from_dict
from tutelage.exceptions import InvalidParameterError, NotPublishableError, UnsupportedEventError
from tutelage.privacy import NeighboringRelation, PrivacyUnit, PublicEpsilon
from tutelage.reporting.evidence import Batch, ClassAccuracy, FrontierPoint
from tutelage.reporting.lints import Finding

_PLAIN = (str, bool, int, float, NoneType, NeighboringRelation)
_NUMBER = (float, int)
_MOST = 1e15  # whole numbers up to it are floats exactly
# The kinds of the fields of every record, in their order: in a field of any kind, a list of private numbers could hide.
_RECORDS: dict[type, tuple[tuple[type, ...], ...]] = {
    PublicEpsilon: (_NUMBER, _NUMBER, (PrivacyUnit,), (str,), (*_NUMBER, NoneType), (bool,), (bool,)),
    PrivacyUnit: ((str,), (NeighboringRelation,)),
    Finding: ((str,), (str,), (str,)),
    Batch: ((str,), (int,), _NUMBER, _NUMBER, (int,)),
    FrontierPoint: ((int,), (PublicEpsilon,)),
    ClassAccuracy: ((str,), (int,), (int,)),
}

# The state of a ledger; the first five are required.
BUDGET: dict[str, tuple[type, ...]] = {
    "budget": (float, int), "delta": (float, int), "spent": (float, int), "entries": (int,), "head": (str,),
    "remaining": (float, int), "order": (float, int), "unit": (str,), "neighboring": (str,), "opened": (str,),
    "accounting": (str,), "answers": (int,), "unsettled": (int,), "bound": (bool,), "simulated": (bool,),
}  # fmt: skip
_NEEDED = tuple(BUDGET)[:5]

# The record of a proposal: `tutelage.publishing.recording.record_of`.
_PROPOSAL: dict[str, type] = {
    "kind": str, "format": int, "epsilon": float, "delta": float, "order": float, "caps": list, "chances": list,
    "unit": dict,
}  # fmt: skip
_LISTS: dict[str, type] = {"caps": float, "chances": int}


def check_public(value: object, where: str) -> None:
    """Refuse a value that contains other than public types, however deeply nested."""
    kind = type(value)
    if kind is float and not math.isfinite(value):  # type: ignore[arg-type]
        raise InvalidParameterError(f"`{where}` of a card must be a finite number. Got {value!r}.")
    if kind is str and any("\ud800" <= letter <= "\udfff" for letter in value):  # type: ignore[attr-defined]
        raise InvalidParameterError(f"`{where}` of a card must be text that UTF-8 can encode. It has lone surrogates.")
    if kind in _PLAIN:
        return
    for name, part in _parts(value, where):
        check_public(part, name)


def check_kinds(value: object, kinds: tuple[type, ...], where: str) -> None:
    """Refuse a value of another type."""
    if type(value) not in kinds:
        allowed = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise _refusal(where, f"takes {allowed} only", value)


def check_number(value: object, where: str, most: float = _MOST) -> None:
    """Refuse a number that is not from 0 to `most`; other values pass."""
    if type(value) not in _NUMBER:
        return
    if not math.isfinite(value):  # type: ignore[arg-type]
        raise InvalidParameterError(f"`{where}` of a card must be a finite number. Got {value!r}.")
    if not 0 <= value <= most:  # type: ignore[operator]
        raise InvalidParameterError(f"`{where}` of a card must be from 0 to {most:g}.")


def check_all(values: object, kinds: tuple[type, ...], where: str) -> None:
    """Refuse anything but a tuple of values of these types."""
    check_kinds(values, (tuple,), where)
    for number, value in enumerate(values):  # type: ignore[arg-type]
        check_kinds(value, kinds, f"{where}[{number}]")


def check_table(values: object, kinds: tuple[type, ...], where: str) -> None:
    """Refuse anything but a dict from names to values of these types."""
    check_kinds(values, (dict,), where)
    for name, value in values.items():  # type: ignore[attr-defined]
        check_kinds(name, (str,), f"{where} keys")
        check_kinds(value, kinds, f"{where}[{name!r}]")


def check_budget(values: object) -> None:
    """Refuse anything but the state of a ledger: `LedgerState.as_dict`."""
    check_kinds(values, (dict,), "budget")
    for name, value in values.items():  # type: ignore[attr-defined]
        if name not in BUDGET:
            raise _refusal("budget", "takes only the entries of `LedgerState.as_dict`", value)
        check_kinds(value, BUDGET[name], f"budget[{name!r}]")
    missing = [name for name in _NEEDED if name not in values]  # type: ignore[operator]
    if missing:
        raise InvalidParameterError(f"`budget` of a card must have {', '.join(_NEEDED)}. It lacks {missing[0]}.")
    for name in _NEEDED[:4]:
        check_number(values[name], f"budget[{name!r}]")  # type: ignore[index]
    if not values["budget"] > 0 or not re.fullmatch("[0-9a-f]{64}", values["head"]):  # type: ignore[index]
        raise InvalidParameterError("`budget` of a card must be above 0, and its head 64 hexadecimal digits.")


def check_proposal(values: object) -> None:
    """Refuse anything but the record of a proposal, because another table could contain private numbers."""
    check_kinds(values, (dict, NoneType), "proposal")
    for name, value in ({} if values is None else values).items():  # type: ignore[attr-defined]
        if name not in _PROPOSAL:
            raise _refusal("proposal", "takes only the record of a proposal", value)
        check_kinds(value, (_PROPOSAL[name],), f"proposal[{name!r}]")
        if name in _LISTS:
            for number, part in enumerate(value):
                check_kinds(part, (_LISTS[name],), f"proposal[{name!r}][{number}]")
        if name == "unit":
            check_table(value, (str,), "proposal['unit']")


def _parts(value: object, where: str) -> list[tuple[str, object]]:
    """Return the values in an allowed container, with the name of each place."""
    if isinstance(value, Event):
        return _parts_of_event(value, where)
    if type(value) in _RECORDS:
        parts = [(f"{where}.{item.name}", getattr(value, item.name)) for item in fields(value)]  # type: ignore[arg-type]
        for (name, part), kinds in zip(parts, _RECORDS[type(value)], strict=True):
            check_kinds(part, kinds, name)
            check_number(part, name)
        return parts
    if type(value) in (tuple, list):
        return [(f"{where}[{number}]", part) for number, part in enumerate(value)]  # type: ignore[arg-type]
    if type(value) is dict and all(type(name) is str for name in value):
        return [(f"{where}[{name!r}]", part) for name, part in value.items()]
    raise _refusal(where, "takes public values only", value)


_KINDS: dict[str, tuple[type, ...]] = {"unit": (PrivacyUnit,), "simulated": (bool,), "nonnegative": (bool,)}


def _parts_of_event(event: Event, where: str) -> list[tuple[str, object]]:
    """Return the fields of an event of `tutelage.events`; another event could have private settings."""
    parts = [(f"{where}.{item.name}", getattr(event, item.name)) for item in fields(event)]
    if type(event) in (Repeated, Composed, SummedNoise):
        for name, part in parts:
            held = part if type(part) is tuple else (part,)
            if name.endswith((".count", ".shares")):
                check_kinds(part, (int,), name)
            elif not all(isinstance(one, Event) for one in held):
                raise _refusal(name, "takes events only", part)
        return parts
    for name, part in parts:
        field = name.rpartition(".")[2]
        if field == "chances":
            check_all(part, (int,), name)
        else:
            check_kinds(part, _KINDS.get(field, _NUMBER), name)
    try:
        known = type(event_from_dict(event.as_dict())) is type(event)
    except UnsupportedEventError:
        known = False
    if not known:
        raise _refusal(where, "takes the events of `tutelage.events` only", event)
    return parts


def _refusal(where: str, takes: str, value: object) -> NotPublishableError:
    return NotPublishableError(
        f"`{where}` of a card {takes}. Got a {type(value).__name__}, which may depend on the private votes."
    )
