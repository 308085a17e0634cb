"""Settings of users: TOML tables, checked by name, type and range, and mechanisms, as a table or as options."""

import difflib
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from typer import Option

from tutelage._internal.gate import read_text
from tutelage._internal.validation import integer_at_least, nearest, problems_in
from tutelage.cli.text import require_printable
from tutelage.exceptions import ConfigError
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.mechanisms.local import LocalMechanism
from tutelage.mechanisms.registry import CENTRAL, Entry

_MOST = 2**53  # up to which floats tell whole numbers apart
_NAMED = {
    str: "text", int: "a whole number", float: "a number", list: "a list", dict: "a table", bool: "true or false",
}  # fmt: skip
_BY_NOISE = {"laplace": "lnmax", "laplacian": "lnmax", "gaussian": "gnmax", "gauss": "gnmax", "normal": "gnmax"}
Section = TypeVar("Section")
Kind = TypeVar("Kind", bound=Mechanism | LocalMechanism | NoisySum)


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
    problems = unknown_entries(table, types, where)
    for key, annotation in types.items():
        if key in table:
            problems.extend(problems_in(lambda one=key, kind=annotation: check_entry(table[one], kind, one, where)))
        elif key in required:
            problems.append(f"{where} needs `{key}`. Add it.")
    if problems:
        raise ConfigError(*problems)


def unknown_entries(table: Mapping[str, Any], known: Collection[str], where: str) -> list[str]:
    """Return a problem for each entry of a table that is not known, with the nearest one that is."""
    return [f"`{key}` is not a setting of {where}. {nearest(key, known)}" for key in table if key not in known]


def check_entry(value: Any, annotation: Any, name: str, table: str) -> None:
    """Refuse an entry of another type or range than it must have."""
    where, ranges = f"`{name}` in {table}", getattr(annotation, "__metadata__", ())
    annotation = annotation.__origin__ if ranges else annotation
    allowed = getattr(annotation, "__args__", (annotation,))
    if float in allowed:
        allowed = (*allowed, int)
    if isinstance(value, bool) != (bool in allowed) or not isinstance(value, allowed):
        raise ConfigError(f"{where} must be {next(_NAMED[kind] for kind in allowed if kind in _NAMED)}. Got {value!r}.")
    if isinstance(value, int | float) and not abs(value) <= _MOST:
        raise ConfigError(f"{where} must be at most {_MOST:g} in size. Got {str(value)[:20]}.")
    for within in ranges:
        if isinstance(within, OneOf):
            if value not in within:
                raise ConfigError(f"{where} must be one of {', '.join(within)}. Got {value!r}.")
        elif integer_at_least(value, within.least, name, table) > within.most:
            raise ConfigError(f"{where} must be at most {within.most:,}. Got {value:,}.")


def _require_all_printable(value: Any, path: Path) -> None:
    if isinstance(value, str):
        require_printable(value, f"An entry of {path}")
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            _require_all_printable(part, path)


class Chosen(NamedTuple):
    """The mechanism that options describe."""

    name: str
    settings: dict[str, Any]
    mechanism: Mechanism

    def as_options(self) -> str:
        """Return the options that describe the mechanism."""
        settings = " ".join(f"{_as_option(name)} {value:g}" for name, value in self.settings.items())
        return f"--mechanism {self.name} {settings}"


def choosing_mechanism(*, predictions: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a verb's parameter of type `Chosen` by ``--mechanism`` and an option for each setting."""
    known = {name: entry for name, entry in CENTRAL.items() if predictions or not entry.make_sharp().takes_predictions}

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        taken = signature(verb).parameters.values()
        place = next(parameter.name for parameter in taken if parameter.annotation is Chosen)
        options = _options(known)

        @wraps(verb)
        def with_options(**arguments: Any) -> None:
            name, *given = (arguments.pop(option.name) for option in options)
            named = zip(options[1:], given, strict=True)
            settings = {option.name: value for option, value in named if value is not None}
            chosen = Chosen(name, settings, _build(known, name, settings, _as_option))
            verb(**arguments, **{place: chosen})

        shown = [option for parameter in taken for option in (options if parameter.name == place else [parameter])]
        with_options.__signature__ = Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in shown]
        )
        return with_options

    return decorate


def read_mechanism(table: Any, known: Mapping[str, Entry[Kind]], where: str) -> Kind:
    """Return the mechanism that a table describes."""
    types = {setting.name: entry.type_of(setting) for entry in known.values() for setting in entry.settings}
    check_entries(table, {"name": str, **types}, {"name"}, where)
    settings = {name: value for name, value in table.items() if name != "name"}
    return _build(known, table["name"], settings, lambda setting: f"`{setting}`")


def _build(
    known: Mapping[str, Entry[Kind]], name: str, given: Mapping[str, Any], spelled: Callable[[str], str]
) -> Kind:
    if name not in known:
        raise ConfigError(f"The mechanism must be one of {', '.join(known)}. Got {name!r}.{_meant(name, known)}")
    parameters = {setting.name: setting.parameter for setting in known[name].settings}
    if set(given) != set(parameters):
        missing = [spelled(key) for key in parameters if key not in given]
        too_much = [spelled(key) for key in given if key not in parameters]
        wrong = [
            f"{' and '.join(keys)} {what}" for keys, what in ((missing, "missing"), (too_much, "too much")) if keys
        ]
        needed = ", ".join(map(spelled, parameters))
        raise ConfigError(f"{name} takes {needed} and no other settings: {', '.join(wrong)}.")
    return known[name].kind(**{parameters[key]: value for key, value in given.items()})


def _options(known: Mapping[str, Entry[Mechanism]]) -> list[Parameter]:
    """Return ``--mechanism`` and an option per setting, each with the mechanisms that take it."""

    def named(text: str) -> str:
        if text not in known:
            raise ConfigError(f"--mechanism must be one of {', '.join(known)}. Got {text!r}.{_meant(text, known)}")
        return text

    def option(name: str, kind: Any, default: Any, **shown: Any) -> Parameter:
        annotation = Annotated[kind, Option(**shown)]
        return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    takers: dict[str, list[str]] = {}
    meanings: dict[str, tuple[Any, str]] = {}
    for entry in known.values():
        for setting in entry.settings:
            takers.setdefault(setting.name, []).append(entry.name)
            meanings[setting.name] = entry.type_of(setting), setting.help
    said = {"help": f"How labels are released from the votes: {', '.join(known)}.", "metavar": "NAME"}
    chosen = option("mechanism", str, Parameter.empty, parser=named, autocompletion=lambda: [*known], **said)
    settings = [
        option(name, kind | None, None, help=f"{', '.join(takers[name])}: {meaning}.")
        for name, (kind, meaning) in meanings.items()
    ]
    return [chosen, *settings]


def _as_option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a hint at the mechanism that an unknown name may mean: of the same noise, or of similar spelling."""
    plain = name.lower().replace("_", "-")
    near = [_BY_NOISE[plain]] if _BY_NOISE.get(plain) in [*known] else difflib.get_close_matches(plain, known, 1)
    return f" Did you mean '{near[0]}'?" if near else ""
