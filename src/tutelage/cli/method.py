"""``[method]``: a record of `tutelage.methods`, read by its fields; an object is a name, or a table with parameters."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, Literal, get_args, get_type_hints

import msgspec
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import all_estimators

from tutelage._internal.records import Entries
from tutelage.cli.settings import (
    read_entries,
    read_entry,
    read_mechanism,
    schema_of_mechanism,
    table_schema,
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
_OBJECTS: Mapping[str, Any] = {**TEACHERS, **STUDENTS}
# The field, and its one value; in Python it may be a map.
_SEEN, _ROWS = "student_features", Literal["rows"]


def read_method(table: Any) -> Method:
    """Return the method that a table describes."""
    name = table.get("name") if isinstance(table, dict) else table
    if name not in list(METHODS) or not isinstance(table, dict):
        raise ConfigError(f"`name` in {_WHERE} must be one of {', '.join(METHODS)}. Got {name!r}.")
    kind = METHODS[name]
    given = {key: value for key, value in table.items() if key != "name"}
    types, required = _types(kind)
    read = read_entries(given, types, f"{_WHERE} with the name {kind.name}", required, _read)
    return kind(**read)


def schema_of_methods() -> Entries:
    """Return the JSON schema of the table."""
    found = list[Entries]()
    for kind in METHODS.values():
        text = _described(kind)
        types, required = _types(kind)
        entries = Entries()
        for name, annotation in types.items():
            entries[name] = {
                "description": text.get(name, ""),
                **_schema_of_field(name, annotation),
            }
        found.append(table_schema(kind.name, text[""], entries, required))
    return {"anyOf": found}


def _described(kind: type[Any]) -> dict[str, str]:
    """Return what the docstring of a class says of its parameters, and of itself under no name."""
    doc = inspect.getdoc(kind) or ""
    others = {"VectorBallots": VectorBallots, "TeacherVotes": TeacherVotes}
    found = {"": doc.partition("\n")[0]}
    for names, _, text in parameters_in(doc):
        _, as_for, rest = text.partition("As for `")
        known = _described(others[rest.partition("`")[0]]) if as_for else {}
        for one in names.split(", "):
            found[one] = known.get(one, text)
    return found


def _schema_of_field(field: str, annotation: Any) -> Entries:
    if field == _SEEN:
        return {"enum": [*get_args(_ROWS)]}
    kinds = get_args(annotation) or (annotation,)
    if entries := _mechanisms(kinds):
        return {"anyOf": [schema_of_mechanism(entry) for entry in entries.values()]}
    if any(kind in _PLAIN for kind in kinds) and QuerySelector not in kinds:
        return msgspec.json.schema(annotation)
    if QuerySelector in kinds:
        names: list[Entries] = [{"enum": [*SELECTORS]}]
    else:
        known = STUDENTS if field == "student" else TEACHERS
        names = [{"enum": [_FOREST, *known]}, {"type": "string"}]  # any class may be named
    table = {"type": "object", "properties": {"name": {"anyOf": names}}, "required": ["name"]}
    return {"anyOf": [*names, table]}


def _types(kind: type[Method]) -> tuple[Entries, list[str]]:
    """Return the types of the fields, and the names of those that are required."""
    types, known = get_type_hints(kind), fields(kind)  # type: ignore[arg-type]
    required = [
        one.name for one in known if one.default is MISSING and one.default_factory is MISSING
    ]
    return {one.name: types[one.name] for one in known}, required


def _read(value: Any, annotation: Any, name: str, _: str) -> Any:
    """Return the value of a field of this type."""
    if name == _SEEN:  # maps are learned by [features]
        return read_entry(value, _ROWS, name, _WHERE)
    kinds = get_args(annotation) or (annotation,)
    where = f"`{name}` in {_WHERE}"
    if any(kind in _PLAIN for kind in kinds) and not isinstance(value, dict):
        return read_entry(value, str if QuerySelector in kinds else annotation, name, _WHERE)
    if entries := _mechanisms(kinds):
        table = {"name": value} if isinstance(value, str) else value
        return read_mechanism(table, entries, where)
    if QuerySelector in kinds:
        return _object(
            value, lambda name, _where: type(selector_named(name, TeacherVotes.__name__)), where
        )
    if value in list(STUDENTS):
        return value  # methods take the name of a student as it is
    return _object(value, _factory, where)


def _mechanisms(kinds: tuple[Any, ...]) -> dict[str, RegistryEntry[Any]]:
    """Return the mechanisms of these types, by name."""
    classes = tuple(kind for kind in kinds if isinstance(kind, type) and kind is not object)
    return {
        name: entry
        for name, entry in {**CENTRAL, **SUMS}.items()
        if issubclass(entry.kind, classes)
    }


def _object(value: Any, find: Callable[[str, str], Callable[..., Any]], where: str) -> Any:
    """Return what a name, or a table with a name and parameters, stands for."""
    table = value if isinstance(value, dict) else {"name": value}
    parameters = {**table}
    name = parameters.pop("name", None)
    for key, one in parameters.items():
        if isinstance(one, list):
            # TOML has no tuples, which objects take for the shape of an image.
            parameters[key] = tuple(one)
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


def _factory(name: str, where: str) -> Callable[..., Any]:
    """Return the teachers, the student or the scikit-learn classifier of this name."""
    if name in _OBJECTS:
        return _OBJECTS[name]
    module, _, kind = name.rpartition(".")
    hidden = any(part.startswith(("_", "test", "conftest")) for part in module.split("."))
    # A configuration must not be able to import, and so run, just anything.
    if not module.startswith("sklearn.") or hidden:
        raise ConfigError(
            f"{where} must be a dotted scikit-learn name such as {_FOREST}, or one of {', '.join(_OBJECTS)}. Got "
            f"{name!r}.{_meant(name)}"
        )
    try:
        found = getattr(import_module(module), kind)
    except (ImportError, AttributeError):
        raise ConfigError(
            f"{where} names nothing in scikit-learn. Got {name!r}.{_meant(name)}"
        ) from None
    if not (
        isinstance(found, type)
        and issubclass(found, ClassifierMixin)
        and issubclass(found, BaseEstimator)
    ):
        raise ConfigError(f"{where} must be a classifier. Got {name!r}.")
    return found


def _meant(name: str) -> str:
    """Return advice on a name that nothing has: the nearest one, or where others can be used."""
    library, dot, _ = name.partition(".")
    if dot and library not in ("sklearn", "tutelage"):
        return " Classifiers of other libraries can be used in Python: pass one to TeacherVotes."
    found = {
        kind: f"{one.__module__.partition('._')[0]}.{kind}"
        for kind, one in all_estimators("classifier")
    }

    def short(known: str) -> str:
        return known.removesuffix("Classifier").lower()  # the suffix makes all of them alike

    meant = {short(one): found.get(one, one) for one in [*found, *_OBJECTS]}
    near = difflib.get_close_matches(short(name.rpartition(".")[2]), meant, 1)
    return f" Did you mean '{meant[near[0]]}'?" if near else ""
