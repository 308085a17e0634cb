"""Settings of users: TOML tables, read as records, and mechanisms, as a table or as options."""

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from typer import Option

from tutelage._internal.gate import read_text
from tutelage._internal.records import Entries
from tutelage._internal.validation import nearest
from tutelage.cli.text import require_printable, with_help
from tutelage.cli.words import on_command_line
from tutelage.exceptions import ConfigError, InvalidParameterError
from tutelage.mechanisms import Mechanism
from tutelage.mechanisms.registry import CENTRAL, RegistryEntry

_MOST_DOTS = 2000  # in a line
_MOST = 2**53  # up to which floats tell whole numbers apart
_NAMED = {
    "string": "text", "integer": "a whole number", "number": "a number", "array": "a list", "object": "a table",
    "boolean": "true or false",
}  # fmt: skip
_LIMITS = {"minimum": "at least {}", "maximum": "at most {}", "minItems": "not empty"}
_BY_NOISE = {
    "laplace": "lnmax",
    "laplacian": "lnmax",
    "gaussian": "gnmax",
    "gauss": "gnmax",
    "normal": "gnmax",
}
Kind = TypeVar("Kind")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of settings. Types say what an entry may be, and the docstring what it means, here and in the schema."""


Read = TypeVar("Read", bound=Section)
# Value, type, name and table of an entry to what it is.
Reader = Callable[[Any, Any, str, str], Any]


def read_settings(path: Path) -> Entries:
    """Return what a TOML file says."""
    try:
        text = read_text(path)
        # Each takes as long as all before it.
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            raise RecursionError
        found = tomllib.loads(text)
        _require_all_printable(found, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply.") from None
    except ValueError as error:
        # Of a number of thousands of digits, Python's own words are about Python.
        reason = "a number has too many digits" if "limit" in str(error) else str(error)
        raise ConfigError(f"{path} is not valid TOML: {reason}.") from None
    return found


def read_section(kind: type[Read], table: Any, where: str) -> Read:
    """Return a table as a record."""
    known = msgspec.structs.fields(kind)
    required = [one.name for one in known if one.required]
    return kind(**read_entries(table, {one.name: one.type for one in known}, where, required))


def read_entries(
    table: Any,
    types: Mapping[str, Any],
    where: str,
    required: Iterable[str] = (),
    read: Reader | None = None,
) -> Entries:
    """Return the entries of a table; an error names all problems."""
    found, problems = entries_in(table, types, where, required, read)
    if problems:
        raise ConfigError(*chain(*problems.values()))
    return found


def entries_in(
    table: Any,
    types: Mapping[str, Any],
    where: str,
    required: Iterable[str] = (),
    read: Reader | None = None,
) -> tuple[Entries, dict[str, list[str]]]:
    """Return the entries of a table that are as their types say, and the problems of the others, by name."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table of settings. Got {table!r}.")
    problems = {key: [f"{where} needs `{key}`. Add it."] for key in required if key not in table}
    found = Entries()
    read = read or read_entry
    for key, value in table.items():
        if key not in types:
            problems[key] = [f"`{key}` is not a setting of {where}. {nearest(key, types)}"]
            continue
        try:
            found[key] = read(value, types[key], key, where)
        except (ConfigError, InvalidParameterError) as error:
            problems[key] = [*error.sentences(on_command_line)]
    return found, problems


def read_entry(value: Any, kind: Any, name: str, where: str) -> Any:
    """Return an entry of this type; sections and tables are read entry by entry."""
    plain = kind.__origin__ if hasattr(kind, "__metadata__") else kind
    parts: tuple[Any, ...] = get_args(plain) or (plain,)
    for section in parts:
        if not isinstance(section, type) or not issubclass(section, Section):
            continue
        if get_origin(plain) is not tuple:
            return read_section(section, value, f"[{name}]")
        values = value if isinstance(value, list) else [value]
        return tuple(read_section(section, one, f"[{name}]") for one in values)
    if get_origin(plain) is dict:
        names = value if isinstance(value, dict) else ()
        return read_entries(value, dict.fromkeys(names, parts[1]), f"[{name}]")
    if isinstance(value, int | float) and not abs(value) <= _MOST:
        raise ConfigError(
            f"`{name}` in {where} must be at most {_MOST:g} in size. Got {str(value)[:20]}."
        )
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        rule = _rule(msgspec.json.schema(kind))
        raise ConfigError(f"`{name}` in {where} must be {rule}. Got {value!r}.") from None


def _rule(schema: Entries) -> str:
    """Return what a schema asks for, in words."""
    if "$defs" in schema:  # of an enumeration
        (schema,) = schema["$defs"].values()
    if "anyOf" in schema:
        rules = [_rule(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return ("; or " if "," in rules[0] else " or ").join(rules)
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    said = [_NAMED[schema["type"]]]
    if each := schema.get("items") or schema.get("additionalProperties"):
        said.append(f"each entry {_rule(each)}")
    for key, rule in _LIMITS.items():
        if key in schema:
            said.append(rule.format(schema[key]))
    return ", ".join(said)


def _require_all_printable(value: Any, path: Path) -> None:
    if isinstance(value, str):
        require_printable(value, f"An entry of {path}")
    elif isinstance(value, dict):
        _require_all_printable([*value, *value.values()], path)
    elif isinstance(value, list):
        for part in value:
            _require_all_printable(part, path)


class Chosen(NamedTuple):
    """The mechanism that options describe."""

    name: str
    mechanism: Mechanism

    def as_options(self) -> str:
        """Return the options that describe the mechanism."""
        settings = CENTRAL[self.name].settings_of(self.mechanism)
        return f"--mechanism {self.name} {' '.join(f'{_as_option(name)} {one:g}' for name, one in settings.items())}"


def choosing_mechanism(
    *, predictions: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a verb's parameter of type `Chosen` by ``--mechanism`` and an option for each setting."""
    known = {
        name: entry
        for name, entry in CENTRAL.items()
        if predictions or not entry.make_sharp().takes_predictions
    }
    options = _options(known)

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        taken = signature(with_help(verb)).parameters.values()
        (place,) = (parameter.name for parameter in taken if parameter.annotation is Chosen)

        @wraps(verb)
        def with_options(**arguments: Any) -> None:
            given = {_as_option(option.name): arguments.pop(option.name) for option in options}
            name = given.pop("--mechanism")
            settings = {option: value for option, value in given.items() if value is not None}
            made = _made(known[name], settings, f"--mechanism {name}", _as_option)
            verb(**arguments, **{place: Chosen(name, made)})

        shown = list[Parameter]()
        for parameter in taken:
            shown += (
                options
                if parameter.name == place
                else [parameter.replace(kind=Parameter.KEYWORD_ONLY)]
            )
        with_options.__signature__ = Signature(shown)  # type: ignore[attr-defined]
        return with_options

    return decorate


def _options(known: Mapping[str, RegistryEntry[Mechanism]]) -> list[Parameter]:
    """Return ``--mechanism`` and an option per setting, each with the mechanisms that take it."""

    def option(name: str, kind: Any, default: Any, **shown: Any) -> Parameter:
        return Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, Option(**shown)],
        )

    said = {
        "help": f"How labels are released from the votes: {', '.join(known)}.",
        "metavar": "NAME",
    }
    parser = {
        "parser": lambda text: _entry(text, known, "--mechanism").name,
        "autocompletion": lambda: [*known],
    }
    found = [option("mechanism", str, Parameter.empty, **parser, **said)]
    kinds = {
        one.name: (entry.type_of(one), one.help)
        for entry in known.values()
        for one in entry.settings
    }
    for name, (kind, meaning) in kinds.items():
        takers = [
            entry.name for entry in known.values() if name in {one.name for one in entry.settings}
        ]
        found.append(option(name, kind | None, None, help=f"{', '.join(takers)}: {meaning}."))
    return found


def read_mechanism(table: Any, known: Mapping[str, RegistryEntry[Kind]], where: str) -> Kind:
    """Return the mechanism that a table describes."""
    types = dict.fromkeys(table, Any) | {"name": str} if isinstance(table, dict) else {}
    given = read_entries(table, types, where, ["name"])
    entry = _entry(given.pop("name"), known, "The mechanism")
    return _made(entry, given, f"{where} with the name {entry.name}")


def _entry(name: str, known: Mapping[str, RegistryEntry[Kind]], where: str) -> RegistryEntry[Kind]:
    if name not in known:
        raise ConfigError(
            f"{where} must be one of {', '.join(known)}. Got {name!r}.{_meant(name, known)}"
        )
    return known[name]


def _made(
    entry: RegistryEntry[Kind],
    given: Entries,
    where: str,
    spelled: Callable[[str], str] = str,
) -> Kind:
    """Return the mechanism with these settings; `spelled` says what users call one."""
    types = {spelled(one.name): entry.type_of(one) for one in entry.settings}
    read = read_entries(given, types, where, types)
    return entry.kind(**{one.parameter: read[spelled(one.name)] for one in entry.settings})


def schema_of_mechanism(entry: RegistryEntry[Any]) -> Entries:
    """Return the JSON schema of the table of a mechanism."""
    settings = Entries()
    for one in entry.settings:
        settings[one.name] = {**msgspec.json.schema(entry.type_of(one)), "description": one.help}
    return table_schema(entry.name, entry.line, settings, settings)


def table_schema(
    name: str,
    text: str,
    entries: Mapping[str, Any],
    required: Iterable[str],
) -> Entries:
    """Return the JSON schema of a table with a `name`, and with no other entries than these."""
    return {
        "type": "object",
        "title": name,
        "description": text,
        "additionalProperties": False,
        "required": ["name", *required],
        "properties": {"name": {"const": name, "description": text}, **entries},
    }


def _as_option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a hint at the mechanism that an unknown name may mean: of the same noise, or of similar spelling."""
    plain = name.lower().replace("_", "-")
    near = [_BY_NOISE.get(plain, "")]
    if near[0] not in [*known]:
        near = difflib.get_close_matches(plain, known, 1)
    return f" Did you mean '{near[0]}'?" if near else ""
