"""The command line's frame: verbs, loaded when they are called, and how refusals reach the user."""

import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tutelage.exceptions import ConfigError, InvalidParameterError, TutelageError

_VERBS = ("plan", "run", "label", "account", "publish", "card", "ledger", "audit", "federate", "reproduce")


_show_as_python_does = warnings.showwarning


class _Verbs(TyperGroup):
    """Finds the verb ``x`` as the function or group ``x`` of `tutelage.cli.x`, so that one verb loads no other."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  click's signature
        return list(_VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  click's signature
        if cmd_name not in _VERBS:
            return None
        found = getattr(import_module(f"tutelage.cli.{cmd_name}"), cmd_name)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = cmd_name
            return group
        verb = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)
        verb.command(cmd_name)(found)
        return typer.main.get_command(verb)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # of which typer itself says nothing
            typer.secho(
                "tutelage: interrupted; what was not written yet is lost, and what a ledger was charged stays spent.",
                err=True,
                fg=typer.colors.YELLOW,
            )
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Verbs,
    name="tutelage",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables would print private rows
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tutelage {version('tutelage')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Private Aggregation of Teacher Ensembles: teachers vote, noise protects, a student learns."""


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    if category.__module__.startswith("tutelage."):
        typer.secho(f"tutelage: warning: {message}", err=True, fg=typer.colors.YELLOW)
    else:
        _show_as_python_does(message, category, *place, **more)


def main() -> None:
    """Run the command line: a refusal is one sentence on standard error; exit code 2 where the call was wrong."""
    warnings.showwarning = _show_warning
    try:
        app()
    except TutelageError as error:
        typer.secho(f"tutelage: {error}", err=True, fg=typer.colors.RED)
        sys.exit(2 if isinstance(error, ConfigError | InvalidParameterError) else 1)
    except OSError as error:
        typer.secho(f"tutelage: {error.filename or 'a file'}: {error.strerror}.", err=True, fg=typer.colors.RED)
        sys.exit(1)
