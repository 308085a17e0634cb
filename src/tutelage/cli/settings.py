"""Settings of users: TOML tables, read as records, and mechanisms, as a table or as options."""

import difflib
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeGuard, TypeVar, get_args, get_origin

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
_WORDS_FOR_TYPES = {
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
# From the value, type and name of an entry, and what a message calls its table, to the setting.
Reader = Callable[[object, object, str, str], object]


def is_table(value: object) -> TypeGuard[Entries]:
    """Return whether a value of TOML is a table."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value of TOML is a list."""
    return isinstance(value, list)


def read_settings(path: Path) -> Entries:
    """Return the settings in a TOML file."""
    try:
        text = read_text(path)
        # Each part of a dotted key takes as long as all parts before it.
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            raise RecursionError
        settings = tomllib.loads(text)
        _require_all_printable(settings, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply.") from None
    except ValueError as error:
        # For a number of thousands of digits, Python's own words are about a limit of Python.
        reason = "a number has too many digits" if "limit" in str(error) else str(error)
        raise ConfigError(f"{path} is not valid TOML: {reason}.") from None
    return settings


def read_entry(value: object, kind: object, name: str, where: str) -> object:
    """Return an entry of this type; sections and tables are read entry by entry."""
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    parts: tuple[object, ...] = get_args(plain) or (plain,)
    for section in parts:
        if not isinstance(section, type) or not issubclass(section, Section):
            continue
        if get_origin(plain) is not tuple:
            return read_section(section, value, f"[{name}]")
        tables = value if is_list(value) else [value]
        return tuple(read_section(section, table, f"[{name}]") for table in tables)
    if get_origin(plain) is dict:
        names = value if is_table(value) else ()
        return read_entries(value, dict.fromkeys(names, get_args(plain)[1]), f"[{name}]")
    if isinstance(value, int | float) and not abs(value) <= _MOST:
        raise ConfigError(
            f"`{name}` in {where} must be at most {_MOST:g} in size. Got {str(value)[:20]}."
        )
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        rule = _rule(msgspec.json.schema(kind))
        raise ConfigError(f"`{name}` in {where} must be {rule}. Got {value!r}.") from None


def read_section(kind: type[Read], table: object, where: str) -> Read:
    """Return a table as a record."""
    fields = msgspec.structs.fields(kind)
    types = {field.name: field.type for field in fields}
    required = [field.name for field in fields if field.required]
    return kind(**read_entries(table, types, where, required))


def read_entries(
    table: object,
    types: Mapping[str, object],
    where: str,
    required: Iterable[str] = (),
    read: Reader = read_entry,
) -> Entries:
    """Return the entries of a table; an error names all problems."""
    entries, problems = entries_in(table, types, where, required, read)
    if problems:
        raise ConfigError(*chain(*problems.values()))
    return entries


def entries_in(
    table: object,
    types: Mapping[str, object],
    where: str,
    required: Iterable[str] = (),
    read: Reader = read_entry,
) -> tuple[Entries, dict[str, list[str]]]:
    """Return the entries of a table that are as their types say, and the problems of the others, by name."""
    if not is_table(table):
        raise ConfigError(f"{where} must be a table of settings. Got {table!r}.")
    problems = {key: [f"{where} needs `{key}`. Add it."] for key in required if key not in table}
    entries = Entries()
    for key, value in table.items():
        if key not in types:
            problems[key] = [f"`{key}` is not a setting of {where}. {nearest(key, types)}"]
            continue
        try:
            entries[key] = read(value, types[key], key, where)
        except (ConfigError, InvalidParameterError) as error:
            problems[key] = [*error.sentences(on_command_line)]
    return entries, problems


def _rule(schema: Entries) -> str:
    """Return the demands of a schema in words."""
    if "$defs" in schema:  # of an enumeration
        (schema,) = schema["$defs"].values()
    if "anyOf" in schema:
        rules = [_rule(branch) for branch in schema["anyOf"] if branch.get("type") != "null"]
        return ("; or " if "," in rules[0] else " or ").join(rules)
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    demands = [_WORDS_FOR_TYPES[schema["type"]]]
    of_each = schema.get("items") or schema.get("additionalProperties")
    if of_each:
        demands.append(f"each entry {_rule(of_each)}")
    for key, limit in _LIMITS.items():
        if key in schema:
            demands.append(limit.format(schema[key]))
    return ", ".join(demands)


def _require_all_printable(value: object, path: Path) -> None:
    if isinstance(value, str):
        require_printable(value, f"An entry of {path}")
    elif is_table(value):
        _require_all_printable([*value, *value.values()], path)
    elif is_list(value):
        for part in value:
            _require_all_printable(part, path)


class Chosen(NamedTuple):
    """The mechanism that options describe."""

    name: str
    mechanism: Mechanism

    def as_options(self) -> str:
        """Return the options that describe the mechanism."""
        options = [f"--mechanism {self.name}"]
        for name, value in CENTRAL[self.name].settings_of(self.mechanism).items():
            options.append(f"{_option_name(name)} {value:g}")
        return " ".join(options)


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
        parameters = signature(with_help(verb)).parameters.values()
        (place,) = (parameter.name for parameter in parameters if parameter.annotation is Chosen)

        @wraps(verb)
        def with_options(**arguments: Any) -> None:
            name = arguments.pop("mechanism")
            settings = Entries()
            for option in options[1:]:
                value = arguments.pop(option.name)
                if value is not None:
                    settings[_option_name(option.name)] = value
            mechanism = _build(known[name], settings, f"--mechanism {name}", _option_name)
            verb(**arguments, **{place: Chosen(name, mechanism)})

        in_signature = list[Parameter]()
        for parameter in parameters:
            if parameter.name == place:
                in_signature += options
            else:
                in_signature.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
        with_options.__signature__ = Signature(in_signature)  # type: ignore[attr-defined]
        return with_options

    return decorate


def _options(known: Mapping[str, RegistryEntry[Mechanism]]) -> list[Parameter]:
    """Return ``--mechanism`` and an option per setting, each with the mechanisms that take it."""

    def parse(text: str) -> str:
        return _entry(text, known, "--mechanism").name

    mechanism = Option(
        parser=parse,
        autocompletion=lambda: [*known],
        help=f"How labels are released from the votes: {', '.join(known)}.",
        metavar="NAME",
    )
    options = [Parameter("mechanism", Parameter.KEYWORD_ONLY, annotation=Annotated[str, mechanism])]
    kinds = Entries()
    helps = dict[str, str]()
    takers = dict[str, list[str]]()
    for entry in known.values():
        for setting in entry.settings:
            kinds[setting.name] = entry.type_of(setting)
            helps[setting.name] = setting.help
            takers.setdefault(setting.name, []).append(entry.name)
    for name, kind in kinds.items():
        option = Option(help=f"{', '.join(takers[name])}: {helps[name]}.")
        annotation = Annotated[kind | None, option]
        options.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return options


def read_mechanism(table: object, known: Mapping[str, RegistryEntry[Kind]], where: str) -> Kind:
    """Return the mechanism that a table describes."""
    types = Entries()
    if is_table(table):
        types = dict.fromkeys(table, object) | {"name": str}
    settings = read_entries(table, types, where, ["name"])
    entry = _entry(settings.pop("name"), known, "The mechanism")
    return _build(entry, settings, f"{where} with the name {entry.name}")


def _entry(name: str, known: Mapping[str, RegistryEntry[Kind]], where: str) -> RegistryEntry[Kind]:
    if name not in known:
        raise ConfigError(
            f"{where} must be one of {', '.join(known)}. Got {name!r}.{_suggestion(name, known)}"
        )
    return known[name]


def _build(
    entry: RegistryEntry[Kind],
    settings: Entries,
    where: str,
    spelling: Callable[[str], str] = str,
) -> Kind:
    """Return the mechanism with these settings; `spelling` returns how users write the name of one."""
    types = {spelling(setting.name): entry.type_of(setting) for setting in entry.settings}
    entries = read_entries(settings, types, where, types)
    values = {setting.parameter: entries[spelling(setting.name)] for setting in entry.settings}
    return entry.kind(**values)


def _option_name(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _suggestion(name: str, known: Collection[str]) -> str:
    """Return a hint at the mechanism that an unknown name may mean: of the same noise, or of similar spelling."""
    plain = name.lower().replace("_", "-")
    near = [_BY_NOISE.get(plain, "")]
    if near[0] not in known:
        near = difflib.get_close_matches(plain, known, 1)
    return f" Did you mean '{near[0]}'?" if near else ""
