"""``tutelage reproduce``: recompute a table of the papers and print the published numbers beside ours."""

import json
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tutelage._internal.outputs import check_replaceable, claim_output, form
from tutelage.cli.text import plain_console
from tutelage.exceptions import ConfigError, InvalidDataError, InvalidParameterError, TutelageError
from tutelage_reproductions import NAMES, Record, Refused, Row, run, run_all, still_to_run
from tutelage_reproductions.page import (
    ABOUT,
    asked,
    duration,
    interval,
    number,
    ours,
    page,
    page_of,
    records_of,
)
from tutelage_reproductions.verdicts import VERDICTS

_PAGE = "RESULTS.md"
_ANOTHER = "name another folder with --output"


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a reproduction; see --list.",
            show_default=False,
            autocompletion=lambda: list(NAMES),
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Run all of them, one after the other (1.5 hours on two cores)."
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a shorter form: about a minute each.")
    ] = False,
    download: Annotated[
        bool, typer.Option("--download", help="Download data sets that are missing.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the record as JSON. With --all, print one record per line."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Folder for json, csv and figures. With --all, also pages of all results.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="With --all: skip reproductions that are already in --output."),
    ] = False,
    list_all: Annotated[
        bool, typer.Option("--list", help="List the reproductions and exit.")
    ] = False,
) -> None:
    """Recompute a table or figure of the papers, or repeat another experiment.

    Data sets are read from the folder in TUTELAGE_DATA and from the cache.
    """
    if list_all:
        for known in NAMES:
            typer.echo(f"{known:<18}{VERDICTS[known].title}")
        return
    if every == (name is not None):
        raise ConfigError(
            "Name one reproduction, or use --all. `tutelage reproduce --list` lists them."
        )
    if keep and (output is None or not every):
        raise ConfigError(
            "--keep needs --all and --output: it skips the reproductions whose records are in that folder."
        )
    progress = sys.stderr.isatty() and not as_json
    results = None if output is None else _results_folder(output, NAMES if name is None else [name])
    if name is not None:
        record = run(name, quick=quick, download=download, progress=progress)
        _show(
            record,
            results,
            json.dumps(record.as_dict(), indent=2, ensure_ascii=False) if as_json else None,
        )
        return
    names = still_to_run(NAMES, output, quick=quick) if keep and output is not None else NAMES
    complete = True
    for found in run_all(names, quick=quick, download=download, progress=progress):
        because = (
            found.because
            if isinstance(found, Refused)
            else _shown_or_not(found, results, as_json=as_json)
        )
        if because is not None:
            complete = False
            typer.secho(f"tutelage: {found.name}: {because}", err=True, fg=typer.colors.YELLOW)
    if results is not None:
        _write_pages(results)
    if not complete:
        raise typer.Exit(1)


def _results_folder(output: Path, names: Iterable[str]) -> Path:
    """Return the folder for records, which may hold only earlier records under their names."""
    if output.exists() and not output.is_dir():
        raise ConfigError(f"--output must be a folder. Got {output}, which is a file.")
    for name in (
        _PAGE,
        *(f"{name}.{kind}" for name in names for kind in ("json", "csv", "png", "svg", "md")),
    ):
        check_replaceable(output / name, _RECORD, way_out=_ANOTHER)
    output.mkdir(parents=True, exist_ok=True)
    return output


def _is_record(path: Path) -> bool:
    """Return whether a file is a part of a saved record or a page of records."""
    content = path.read_bytes()
    match path.suffix:
        case ".md":
            return (
                ABOUT if path.name == _PAGE else f"`tutelage reproduce {path.stem}`"
            ).encode() in content
        case ".csv":
            return content.startswith(",".join(column.name for column in fields(Row)).encode())
        case ".png" | ".svg":
            return b"Matplotlib" in content
        case _:
            try:
                return Record.load(path).name == path.stem
            except InvalidDataError:
                return False


_RECORD = form("a record", _is_record)


def _shown_or_not(record: Record, results: Path | None, *, as_json: bool) -> str | None:
    """Show a record; return why a part of it could not be saved, such as a figure without matplotlib."""
    try:
        _show(
            record, results, json.dumps(record.as_dict(), ensure_ascii=False) if as_json else None
        )
    except TutelageError as error:
        return str(error)
    return None


def _show(record: Record, results: Path | None, as_json: str | None) -> None:
    if as_json is None:
        _print(record)
    else:
        typer.echo(as_json)
    if results is None:
        return
    undrawn = None
    with TemporaryDirectory() as new:
        try:
            record.save(Path(new))
        except InvalidParameterError as error:
            # Matplotlib is missing; what else was written is kept.
            undrawn = error
        _put(results, sorted(Path(new).iterdir()))
    if undrawn is not None:
        raise undrawn


def _write_pages(results: Path) -> None:
    records = records_of(results)
    if records:
        files, pages = {path.name for path in results.iterdir()}, {_PAGE: page(records)}
        pages |= {f"{record.name}.md": page_of(record, files) for record in records}
        with TemporaryDirectory() as new:
            for name, text in pages.items():
                (Path(new) / name).write_text(text, encoding="utf-8")
            _put(results, sorted(Path(new).iterdir()))


def _put(results: Path, files: Iterable[Path]) -> None:
    """Put files into the folder, each whole."""
    with claim_output(results, _RECORD, folder=True, checked=False, way_out=_ANOTHER) as claim:
        for file in files:
            with claim.add_file(file.name, _RECORD) as part:
                copyfile(file, part)
            typer.echo(f"Wrote {results / file.name}", err=True)


def _print(record: Record) -> None:
    title = f"{record.name}: {record.source}{', in its quick form' if record.quick else ''}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "published", "goal", "ours", "95 % interval", "time"):
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for row in record.rows:
        table.add_row(
            row.name,
            number(row.published),
            asked(row),
            ours(row),
            interval(row),
            duration(row.seconds),
        )
    console = plain_console()
    console.print(table)
    for row in record.rows:
        if row.why is not None:
            console.print(f"{row.name}: {row.why}", highlight=False)
    for note in record.notes:
        console.print(note, highlight=False)
    if record.circumstances is not None:
        on = record.circumstances
        console.print(
            f"{duration(on.seconds)} on {on.processor}; commit {on.commit or 'unknown'}.",
            highlight=False,
        )
