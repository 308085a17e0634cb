"""The command line's frame: verbs, and how refusals reach the user."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from tutelage.cli.account import account
from tutelage.cli.run import run
from tutelage.exceptions import ConfigError, InvalidParameterError, TutelageError

app = typer.Typer(
    name="tutelage",
    help="Private Aggregation of Teacher Ensembles: teachers vote, noise protects, a student learns.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables would print private rows
    rich_markup_mode=None,
)
app.command()(run)
app.command()(account)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tutelage {version('tutelage')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
) -> None:
    """Private Aggregation of Teacher Ensembles: teachers vote, noise protects, a student learns."""


def main() -> None:
    """Run the command line: a refusal is one sentence on standard error; exit code 2 where the call was wrong."""
    try:
        app()
    except TutelageError as error:
        typer.secho(f"tutelage: {error}", err=True, fg=typer.colors.RED)
        sys.exit(2 if isinstance(error, ConfigError | InvalidParameterError) else 1)
