"""``tutelage reproduce``: a table of the papers, recomputed, with the published numbers beside ours."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tutelage.exceptions import ConfigError
from tutelage.reproductions import NAMES, Record, Row, load


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which one; --list names them.", show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do less, in about a minute.")] = False,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data where they are not found.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder for the record (json, csv) and its figure (png, svg).")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List what can be reproduced, and leave.")] = False,
) -> None:
    """Recompute a table or figure of the papers. Data are looked for in TUTELAGE_DATA and in the cache."""
    if list_all:
        for known in NAMES:
            typer.echo(f"{known:<20}{(load(known).__doc__ or '').splitlines()[0]}")
        return
    if name is None:
        raise ConfigError("Name a reproduction; `tutelage reproduce --list` lists them.")
    record = load(name).reproduce(quick=quick, download=download, progress=sys.stderr.isatty() and not as_json)
    if as_json:
        typer.echo(json.dumps(record.as_dict(), indent=2, ensure_ascii=False))
    else:
        _print(record)
    if output is not None:
        for path in record.save(output):
            typer.echo(f"Wrote {path}", err=True)


def _print(record: Record) -> None:
    title = f"{record.name}: {record.source}{', in its quick form' if record.quick else ''}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "published", "asked", "ours", "95 % interval"):
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for row in record.rows:
        table.add_row(row.name, _number(row.published), _asked(row), _number(row.ours), _interval(row))
    console = Console()
    console.print(table)
    for note in record.notes:
        console.print(note, highlight=False)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _asked(row: Row) -> str:
    if row.at_least is not None:
        return f"≥ {row.at_least:.2f}"
    return "" if row.at_most is None else f"≤ {row.at_most:.2f}"


def _interval(row: Row) -> str:
    return "" if row.interval is None else f"{row.interval[0]:.2f} – {row.interval[1]:.2f}"
