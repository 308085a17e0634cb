"""``[method]``: a record of `tutelage.methods`, read by its fields; an object is a name, or a table with parameters."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, Literal, cast, get_args, get_type_hints

import msgspec
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import all_estimators

from tutelage._internal.records import Entries
from tutelage.cli.settings import (
    is_list,
    is_table,
    read_entries,
    read_entry,
    read_mechanism,
)
from tutelage.cli.text import parameters_in
from tutelage.exceptions import ConfigError
from tutelage.mechanisms.registry import CENTRAL, SUMS, RegistryEntry
from tutelage.methods import METHODS, Method, TeacherVotes
from tutelage.students import STUDENTS
from tutelage.students.selection import SELECTORS, QuerySelector, selector_named
from tutelage.teachers import TEACHERS, VectorBallots

_WHERE = "[method]"
_PLAIN = (int, float, str, bool)
_FOREST = "sklearn.ensemble.RandomForestClassifier"
_OBJECTS: Mapping[str, Callable[..., object]] = {**TEACHERS, **STUDENTS}
_FEATURES_FIELD = "student_features"
_ROWS = Literal["rows"]  # the one value of this field; in Python it may be a map


def read_method(table: object) -> Method:
    """Return the method that a table describes."""
    name = table.get("name") if is_table(table) else table
    if not is_table(table) or name not in list(METHODS):
        raise ConfigError(f"`name` in {_WHERE} must be one of {', '.join(METHODS)}. Got {name!r}.")
    kind = METHODS[table["name"]]
    entries = {key: value for key, value in table.items() if key != "name"}
    types, required = _fields_of(kind)
    where = f"{_WHERE} with the name {kind.name}"
    return kind(**read_entries(entries, types, where, required, _read_field))


def schema_of_methods() -> Entries:
    """Return the JSON schema of the table."""
    tables = list[Entries]()
    for kind in METHODS.values():
        texts = _descriptions(kind)
        types, required = _fields_of(kind)
        entries = Entries()
        for name, annotation in types.items():
            description = {"description": texts.get(name, "")}
            entries[name] = description | _schema_of_field(name, annotation)
        tables.append(_table_schema(kind.name, texts[""], entries, required))
    return {"anyOf": tables}


def _descriptions(kind: type[object]) -> dict[str, str]:
    """Return what the docstring of a class says of its parameters, and of itself under no name."""
    doc = inspect.getdoc(kind) or ""
    referred = {"VectorBallots": VectorBallots, "TeacherVotes": TeacherVotes}
    texts = {"": doc.partition("\n")[0]}
    for names, _, text in parameters_in(doc):
        _, refers, rest = text.partition("As for `")
        borrowed = dict[str, str]()
        if refers:
            borrowed = _descriptions(referred[rest.partition("`")[0]])
        for name in names.split(", "):
            texts[name] = borrowed.get(name, text)
    return texts


def _schema_of_field(field: str, annotation: object) -> Entries:
    """Return the JSON schema of a field of a method."""
    if field == _FEATURES_FIELD:
        return {"enum": [*get_args(_ROWS)]}
    kinds = get_args(annotation) or (annotation,)
    if entries := _mechanisms(kinds):
        return {"anyOf": [_schema_of_mechanism(entry) for entry in entries.values()]}
    if any(kind in _PLAIN for kind in kinds) and QuerySelector not in kinds:
        return msgspec.json.schema(annotation)
    if QuerySelector in kinds:
        names: list[Entries] = [{"enum": [*SELECTORS]}]
    else:
        known = STUDENTS if field == "student" else TEACHERS
        names = [{"enum": [_FOREST, *known]}, {"type": "string"}]  # any class may be named
    table = {"type": "object", "properties": {"name": {"anyOf": names}}, "required": ["name"]}
    return {"anyOf": [*names, table]}


def _schema_of_mechanism(entry: RegistryEntry[Any]) -> Entries:
    """Return the JSON schema of the table of a mechanism."""
    settings = Entries()
    for setting in entry.settings:
        schema = msgspec.json.schema(entry.type_of(setting))
        settings[setting.name] = {**schema, "description": setting.help}
    return _table_schema(entry.name, entry.line, settings, settings)


def _table_schema(
    name: str,
    text: str,
    entries: Mapping[str, object],
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


def _fields_of(kind: type[Method]) -> tuple[Entries, list[str]]:
    """Return the types of the fields, and the names of those that are required."""
    hints = get_type_hints(kind)
    types = Entries()
    required = list[str]()
    for field in fields(kind):  # type: ignore[arg-type]
        types[field.name] = hints[field.name]
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(field.name)
    return types, required


def _read_field(value: object, annotation: object, name: str, _: str) -> object:
    """Return the value of a field of this type."""
    if name == _FEATURES_FIELD:  # maps are learned by [features]
        return read_entry(value, _ROWS, name, _WHERE)
    kinds = get_args(annotation) or (annotation,)
    has_rule = QuerySelector in kinds
    where = f"`{name}` in {_WHERE}"
    if any(kind in _PLAIN for kind in kinds) and not is_table(value):
        return read_entry(value, str if has_rule else annotation, name, _WHERE)
    if entries := _mechanisms(kinds):
        table = {"name": value} if isinstance(value, str) else value
        return read_mechanism(table, entries, where)
    if has_rule:
        return _object(value, _selector, where)
    if value in list(STUDENTS):
        return value  # methods take the name of a student as it is
    return _object(value, _factory, where)


def _mechanisms(kinds: tuple[object, ...]) -> dict[str, RegistryEntry[Any]]:
    """Return the mechanisms of these types, by name."""
    classes = tuple(kind for kind in kinds if isinstance(kind, type) and kind is not object)
    return {
        name: entry
        for name, entry in {**CENTRAL, **SUMS}.items()
        if issubclass(entry.kind, classes)
    }


def _object(value: object, find: Callable[[str, str], Callable[..., object]], where: str) -> object:
    """Return the object that a name, or a table with a name and parameters, describes."""
    parameters = {**value} if is_table(value) else {"name": value}
    name = parameters.pop("name", None)
    for key, parameter in parameters.items():
        if is_list(parameter):
            # TOML has no tuples, which objects take for the shape of an image.
            parameters[key] = tuple(parameter)
    if not isinstance(name, str):
        raise ConfigError(
            f"{where} must be a name, or a table with `name` and parameters. Got {value!r}."
        )
    try:
        return find(name, where)(**parameters)
    except TypeError as error:
        raise ConfigError(f"The parameters of {where} do not fit {name}: {error}.") from None
    except ModuleNotFoundError as error:  # an extra that is not installed
        raise ConfigError(f"{where}, {name!r}: {error}") from None


def _selector(name: str, _: str) -> type[QuerySelector]:
    return type(selector_named(name, TeacherVotes.__name__))


def _factory(name: str, where: str) -> Callable[..., object]:
    """Return the teachers, the student or the scikit-learn classifier of this name."""
    if name in _OBJECTS:
        return _OBJECTS[name]
    module, _, kind = name.rpartition(".")
    hidden = any(part.startswith(("_", "test", "conftest")) for part in module.split("."))
    # A configuration must not be able to import, and so run, just anything.
    if not module.startswith("sklearn.") or hidden:
        raise ConfigError(
            f"{where} must be a dotted scikit-learn name such as {_FOREST}, or one of {', '.join(_OBJECTS)}. Got "
            f"{name!r}.{_suggestion(name)}"
        )
    try:
        classifier = getattr(import_module(module), kind)
    except (ImportError, AttributeError):
        raise ConfigError(
            f"{where} names nothing in scikit-learn. Got {name!r}.{_suggestion(name)}"
        ) from None
    if not (
        isinstance(classifier, type)
        and issubclass(classifier, ClassifierMixin)
        and issubclass(classifier, BaseEstimator)
    ):
        raise ConfigError(f"{where} must be a classifier. Got {name!r}.")
    return classifier


def _suggestion(name: str) -> str:
    """Return advice on an unknown name: the nearest one that is known, or where others can be used."""
    library, dot, _ = name.partition(".")
    if dot and library not in ("sklearn", "tutelage"):
        return " Classifiers of other libraries can be used in Python: pass one to TeacherVotes."
    by_short_name = dict[str, str]()
    for kind, classifier in cast("list[tuple[str, type]]", all_estimators("classifier")):
        module = classifier.__module__.partition("._")[0]
        by_short_name[_short_name(kind)] = f"{module}.{kind}"
    for known in _OBJECTS:
        by_short_name[_short_name(known)] = known
    near = difflib.get_close_matches(_short_name(name.rpartition(".")[2]), by_short_name, 1)
    return f" Did you mean '{by_short_name[near[0]]}'?" if near else ""


def _short_name(name: str) -> str:
    return name.removesuffix("Classifier").lower()  # the suffix makes all of them alike
