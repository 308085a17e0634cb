"""``tutelage schema``: the kinds of the columns of a public table, and the schema of a configuration for editors."""

import json
import re
from collections.abc import Sequence
from inspect import cleandoc
from pathlib import Path
from typing import cast

import msgspec

from tutelage._internal.records import Entries
from tutelage.cli.text import AsJson, parameters_in, print_json, say
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.features.cells import kind_of
from tutelage.tables import Table, is_missing, read_table

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def schema(
    public: Path | None = None,
    *,
    ignore: list[str] | None = None,
    ranges: bool = False,
    config: bool = False,
    as_json: AsJson = False,
) -> None:
    """Print the kind of each column of public rows, and its categories, as [columns] of a configuration.

    Everything that is printed counts as public. Never name a private file.

    Parameters
    ----------
    public
        Public rows (csv or Parquet).
    ignore
        A column that is not a feature, such as the label. Can be repeated.
    ranges
        Print ranges of numbers, too: a file for `schema` in [public] of a configuration.
    config
        Print the JSON schema of a configuration, for editors.
    """
    if config == (public is not None):
        raise ConfigError("Name a file of public rows, or pass --config, and not both.")
    if config and ranges:
        raise ConfigError("--ranges is about public rows. Leave it out, or leave out --config.")
    if public is None:
        print_json(_schema_of_config(), ascii_only=False)
        return
    table = read_table(public)
    for name in ignore or ():
        table.column(name)  # refuses a name that is misspelled
    features = table.without(ignore or ())
    if ranges:
        # It loads scikit-learn, which kinds of columns do not need.
        from tutelage.features import Schema

        proposed = Schema.learn(features).columns
        if as_json:
            print_json({"columns": proposed}, ascii_only=False)
            return
        say(f"# Proposed from {table.n_rows:,} public rows of {public.name}. Correct any mistakes.")
        say(
            f"proposed_by = {toml_value(str(public))}  # `run` compares private rows with it\n\n[schema]"
        )
        for name, column in proposed.items():
            say(f"{toml_key(name)} = {toml_value(column)}")
        for name in sorted(features.columns.keys() - proposed.keys()):
            say(f"# {toml_key(name)} was left out: dates, long texts, or nearly always one value")
        return
    columns = {name: column_entry(table, name) for name in features.columns}
    if as_json:
        print_json({"rows": table.n_rows, "columns": columns}, ascii_only=False)
        return
    say(f"# Learned from {table.n_rows:,} rows of {public.name}. Correct any mistakes.")
    say("# Next: paste this table into the configuration of `tutelage run`.\n[columns]")
    for name, column in columns.items():
        for line in _lines(name, column):
            say(line)


def _schema_of_config() -> Entries:
    """Return the JSON schema of a configuration."""
    from tutelage.cli.config import Settings  # loads every method, which columns do not need
    from tutelage.cli.method import schema_of_methods

    schema = msgspec.json.schema(Settings, schema_hook=lambda _: schema_of_methods())
    for section in schema["$defs"].values():
        doc = cleandoc(section["description"])
        section["description"], _, entries = doc.partition("\n\nParameters\n")
        for name, _, meaning in parameters_in(entries):
            section["properties"][name]["description"] = meaning
    plain = json.loads(json.dumps(schema), object_hook=_without_null)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **plain}


def _without_null(part: Entries) -> Entries:
    """Return a part of a schema without null, which TOML does not have, and with what it means in every branch."""
    kept = {key: value for key, value in part.items() if value is not None}
    about = {key: value for key, value in kept.items() if key == "description"}
    branches = [about | branch for branch in kept.pop("anyOf", ()) if branch != {"type": "null"}]
    if len(branches) == 1:
        return branches[0] | kept
    if branches:
        kept["anyOf"] = branches
    return kept


def column_entry(table: Table, name: str) -> Entries:
    """Return the kind of a public column, and the reason if it has to be left out."""
    missing = sum(map(is_missing, table.column(name).tolist()))
    try:
        kind = kind_of(table, name)
    except InvalidDataError as error:
        return {"kind": "ignore", "missing": missing, "reason": str(error)}
    if isinstance(kind, str):
        return {"kind": kind, "missing": missing}
    return {"kind": "category", "categories": kind.tolist(), "missing": missing}


def _lines(name: str, column: Entries) -> list[str]:
    """Return a column as lines of TOML."""
    lines = list[str]()
    if "reason" in column:
        lines.append(f"# {' '.join(column['reason'].splitlines())}")
    value = toml_value(column.get("categories", column["kind"]))
    empty = f"  # empty cells: {column['missing']:,}" if column["missing"] else ""
    lines.append(f"{toml_key(name)} = {value}{empty}")
    return lines


def toml_key(name: str) -> str:
    """Return a name as a key of TOML."""
    return name if _BARE.fullmatch(name) else _in_quotes(name)


def toml_value(value: object) -> str:
    """Return text, a number, or a sequence of them as a value of TOML."""
    if isinstance(value, str):
        return _in_quotes(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, cast('Sequence[object]', value)))}]"
    return repr(value)


def _in_quotes(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
