"""TOML files and their tables: read, then checked by name, type and range; all that the command line reads as TOML."""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tutelage._internal.gate import read_text
from tutelage._internal.validation import integer_at_least, nearest, problems_in
from tutelage.cli.text import require_printable
from tutelage.exceptions import ConfigError

_MOST = 2**53  # up to which floats tell whole numbers apart
_NAMED = {
    str: "text",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
    bool: "true or false",
}
Section = TypeVar("Section")


class Whole(NamedTuple):
    """Which whole numbers an entry may be, beside its type in `Annotated`."""

    least: int
    most: int = _MOST


class OneOf(tuple[str, ...]):
    """Which names an entry may be, beside its type in `Annotated`."""

    __slots__ = ()


def read_settings(path: Path) -> dict[str, Any]:
    """Return what a TOML file says."""
    try:
        found = tomllib.loads(read_text(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: its lists are nested too deeply.") from None
    except ValueError as error:
        # Of a number of thousands of digits, Python's own words are about Python.
        reason = "a number has too many digits" if "limit" in str(error) else str(error)
        raise ConfigError(f"{path} is not valid TOML: {reason}.") from None
    _require_all_printable(found, path)
    return found


def read_section(kind: type[Section], table: Any, name: str) -> Section:
    """Return a table as the dataclass `kind`, whose fields say what it may hold."""
    known = fields(kind)  # type: ignore[arg-type]
    required = {item.name for item in known if item.default is MISSING and item.default_factory is MISSING}
    check_entries(table, {item.name: item.type for item in known}, required, f"[{name}]")
    return kind(**table)


def check_entries(table: Any, types: Mapping[str, Any], required: Collection[str], where: str) -> None:
    """Refuse a table with unknown or missing entries, or with an entry of another type or range than it must have."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table of settings. Got {table!r}.")
    problems = list(problems_in(lambda: refuse_unknown(table, types, where)))
    for key, annotation in types.items():
        if key in table:
            problems.extend(problems_in(lambda one=key, kind=annotation: _check_entry(table[one], kind, one, where)))
        elif key in required:
            problems.append(f"{where} needs `{key}`. Add it.")
    if problems:
        raise ConfigError(*problems)


def _check_entry(value: Any, annotation: Any, name: str, where: str) -> None:
    _check_type(value, annotation, f"`{name}` in {where}")
    for allowed in getattr(annotation, "__metadata__", ()):
        _check_range(value, allowed, name, where)


def refuse_unknown(table: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuse a table with entries that are not known, and name the nearest ones that are."""
    problems = list[str]()
    for key in table:
        if key not in known:
            problems.append(f"`{key}` is not a setting of {where}. {nearest(key, known)}")
    if problems:
        raise ConfigError(*problems)


def _check_range(value: Any, allowed: Whole | OneOf, name: str, where: str) -> None:
    if isinstance(allowed, OneOf):
        if value not in allowed:
            raise ConfigError(f"`{name}` in {where} must be one of {', '.join(allowed)}. Got {value!r}.")
    elif integer_at_least(value, allowed.least, name, where) > allowed.most:
        raise ConfigError(f"`{name}` in {where} must be at most {allowed.most:,}. Got {value:,}.")


def _check_type(value: Any, annotation: Any, where: str) -> None:
    annotation = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    allowed = getattr(annotation, "__args__", (annotation,))
    if float in allowed:
        allowed = (*allowed, int)
    if isinstance(value, bool) != (bool in allowed) or not isinstance(value, allowed):
        raise ConfigError(f"{where} must be {next(_NAMED[kind] for kind in allowed if kind in _NAMED)}. Got {value!r}.")
    if isinstance(value, int | float) and not abs(value) <= _MOST:
        raise ConfigError(f"{where} must be at most {_MOST:g} in size. Got {str(value)[:20]}.")


def _require_all_printable(value: Any, path: Path) -> None:
    if isinstance(value, str):
        require_printable(value, f"An entry of {path}")
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            _require_all_printable(part, path)
