"""The command line: its verbs, loaded when they are called, and the way refusals reach the user."""

import difflib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import entry_points, version
from importlib.resources import files
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TextIO, TypeGuard

import typer
from typer.core import TyperGroup

from tutelage._internal.gate import user_path
from tutelage._internal.releases import on_one_day
from tutelage.cli.text import (
    INTERRUPTED,
    PlainStream,
    complain,
    interruption_says,
    remark,
    require_printable,
    say,
    with_help,
    write_new,
)
from tutelage.cli.words import on_command_line
from tutelage.exceptions import ConfigError, InvalidParameterError, PreflightWarning, TutelageError

# One line for each verb, by purpose. The verbs' own help says more, but reading it would load all of them.
_PURPOSES = {
    "Start": {
        "init": "Ask a few questions about your files, and write a configuration.",
        "example": "Write a starter configuration.",
        "schema": "Print what the columns of a public table are.",
        "plan": "Recommend a method for a budget, and say what to expect.",
    },
    "Release": {
        "run": "Cast ballots, add noise, and publish a student with its card.",
        "label": "Label public rows from existing votes of teachers.",
        "consortium": "Train one student for several hospitals that share no rows.",
        "predict": "Let a published student predict new rows.",
    },
    "Budget and reports": {
        "ledger": "Create, show and verify the budget of a data set.",
        "account": "Compute the privacy cost of existing votes of teachers.",
        "publish": "Prove a smaller ε that may be published.",
        "card": "Write the privacy card for your privacy officer.",
        "key": "Make a key to sign cards with.",
    },
    "Check": {
        "audit": "Attack your own pipeline before you release anything.",
        "reproduce": "Recompute a table or figure of the papers.",
    },
}
# Verbs of other distributions, and the folder of each in a checkout: an entry point of this group loads it.
_GROUP = "tutelage.verbs"
_OF_OTHERS = {
    "consortium": ("tutelage-consortium", "./consortium"),
    "reproduce": ("tutelage-reproductions", "./consortium ./reproductions"),
}
_VERBS = {name: line for verbs in _PURPOSES.values() for name, line in verbs.items()}
_FIRST_STEPS = (
    ("tutelage init", "answer a few questions, and get a configuration"),
    ("tutelage example adult", "write adult.toml, an experiment on bundled data"),
    ("tutelage run adult.toml", "run it and write its privacy card (20 seconds)"),
    ("tutelage example files", "write files.toml, to fill in for your own files"),
)
_EPILOG = (
    "Run `tutelage VERB --help` for the options of a verb. The guides come with the source code, not with the "
    "installed package: see docs/index.md there."
)

_TERMINATED = 143
_show_as_python_does = warnings.showwarning


class _Commands(TyperGroup):
    """Loads only the verb that is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  click's signature
        present = entry_points(group=_GROUP).names
        return [name for name in _VERBS if name not in _OF_OTHERS or name in present]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  click's signature
        if cmd_name not in _VERBS:
            return None
        loaded = _load(cmd_name)
        if isinstance(loaded, typer.Typer):
            for command in loaded.registered_commands:
                if command.callback is not None:
                    with_help(command.callback)
            group = typer.main.get_group(loaded)
            group.name = cmd_name
            return group
        verb = typer.Typer(
            pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None
        )
        verb.command(cmd_name)(with_help(loaded))
        return typer.main.get_command(verb)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, _VERBS))
        known = self.list_commands(ctx)
        for purpose, verbs in {"First steps": dict(_FIRST_STEPS), **_PURPOSES}.items():
            lines = [
                (name, line) for name, line in verbs.items() if name not in _VERBS or name in known
            ]
            with formatter.section(purpose):
                formatter.write_dl([(name.ljust(width), line) for name, line in lines])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in _VERBS and not ctx.resilient_parsing:
            advice = "`tutelage --help` lists the verbs."
            for name in difflib.get_close_matches(args[0], _VERBS, n=1):
                advice = f"Did you mean `tutelage {name}`?"
            raise ConfigError(f"There is no verb {args[0]!r}. {advice}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        # typer prints nothing about an interruption.
        lost = "results that were not written are lost, and budget that was spent stays spent."
        with on_one_day(), interruption_says(lost):
            return super().invoke(ctx)


def _with_home(argument: str) -> str:
    """Return an argument with ``~`` as the home folder, as where no shell put it: after ``=``."""
    require_printable(argument, "An argument")
    if argument.startswith("~/"):
        return str(user_path(argument, "An argument"))
    option, _, value = argument.partition("=")
    if option.startswith("--") and value.startswith("~/"):
        return f"{option}={user_path(value, option)}"
    return argument


def _load(verb: str) -> typer.Typer | Callable[..., None]:
    """Return the function or group ``x`` of `tutelage.cli.x`, or the verb that another distribution brings."""
    if verb == "example":
        return example
    if verb not in _OF_OTHERS:
        name = verb.replace("-", "_")
        return getattr(import_module(f"tutelage.cli.{name}"), name)
    for command in entry_points(group=_GROUP, name=verb):
        return command.load()
    distribution, folder = _OF_OTHERS[verb]
    raise ModuleNotFoundError(
        f"`tutelage {verb}` needs the package {distribution}: run `pip install {folder}` in a checkout of tutelage.",
        name=distribution,
    )


app = typer.Typer(
    cls=_Commands,
    name="tutelage",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["--help", "-h"]},
    invoke_without_command=True,
    subcommand_metavar="VERB ...",
    pretty_exceptions_enable=False,  # a traceback with local variables would print private rows
    rich_markup_mode=None,
)


def _examples() -> dict[str, str]:
    """Return the starter configurations by name."""
    folder = files("tutelage.cli") / "examples"
    texts = dict[str, str]()
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            texts[file.name.removesuffix(".toml")] = file.read_text(encoding="utf-8")
    return texts


_EXAMPLES = _examples()
# The first line of each is for users: its purpose and the next step.
_LINES = {name: text.partition("\n")[0].removeprefix("# ") for name, text in _EXAMPLES.items()}
_EACH = " ".join(f"{name}: {line}" for name, line in _LINES.items())


def _require_example(name: str) -> str:
    if name not in _EXAMPLES:
        raise ConfigError(f"The example must be one of {', '.join(_EXAMPLES)}. Got {name!r}.")
    return name


def example(
    name: Annotated[
        str,
        typer.Argument(
            parser=_require_example,
            metavar="|".join(_EXAMPLES),
            autocompletion=lambda: [*_EXAMPLES],
            help=_EACH,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="File to write.  [default: NAME.toml]")
    ] = None,
) -> None:
    """Write a starter configuration for `tutelage run`. Existing files are never overwritten."""
    target = output or Path(f"{name}.toml")
    if target.exists():
        raise ConfigError(f"{target} already exists. Name another file with --output.")
    write_new(target, _EXAMPLES[name])
    say(f"Wrote {target}. {_LINES[name]}\nNext: tutelage run {target}")


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"tutelage {version('tutelage')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Learn from sensitive data, publish the model, and prove what it cost.

    Each person's data become one ballot, a list of numbers of limited size. Only sums of all ballots, with noise, are
    released. The published model, the student, is computed from these sums and from public rows. As an option, teachers
    that are trained on parts of the data vote instead, as in Private Aggregation of Teacher Ensembles (PATE).
    """
    if context.invoked_subcommand is None:
        say(context.get_help())


def _show_warning(
    message: Warning | str, category: type[Warning], *place: Any, **more: Any
) -> None:
    if isinstance(message, PreflightWarning):
        remark(f"warning: {message.sentence(on_command_line)}")
    elif category.__module__.startswith("tutelage."):
        remark(f"warning: {message}")
    else:
        _show_as_python_does(message, category, *place, **more)


def _refuse(code: int, *sentences: str) -> None:
    for sentence in sentences:
        complain(sentence)
    sys.exit(code)


@contextmanager
def _sigterm_interrupts() -> Generator[None]:
    """End on SIGTERM as on Ctrl-C, except for the exit code, which is the usual 143."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except SystemExit as left:
        if received and left.code == INTERRUPTED:
            raise SystemExit(_TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _plain_streams() -> Generator[None]:
    """Let no control character through, and no encoding without ε stop a command."""
    if _wraps_bytes(sys.stdin):
        sys.stdin.reconfigure(errors="replace")  # by a character that no answer may have
    before = sys.stdout, sys.stderr
    sys.stdout = _plain_stream(sys.stdout)
    sys.stderr = _plain_stream(sys.stderr)
    streams = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in streams:
            if isinstance(stream, PlainStream):
                with suppress(OSError):  # the reader of a pipe has ended
                    stream.detach()  # or it would close what is below


def _plain_stream(stream: TextIO) -> TextIO:
    if _wraps_bytes(stream):
        return PlainStream(stream.buffer, stream.encoding, "backslashreplace", line_buffering=True)
    return stream


def _wraps_bytes(stream: TextIO) -> TypeGuard[TextIOWrapper]:
    return isinstance(stream, TextIOWrapper)


def main() -> None:
    """Run the command line: a refusal is a line per problem on standard error; exit code 2 if the call was wrong."""
    warnings.showwarning = _show_warning
    with _plain_streams():
        try:
            with _sigterm_interrupts():
                app([_with_home(argument) for argument in sys.argv[1:]], prog_name="tutelage")
        except TutelageError as error:
            is_wrong_call = isinstance(error, ConfigError | InvalidParameterError)
            _refuse(2 if is_wrong_call else 1, *error.sentences(on_command_line))
        except OSError as error:
            _refuse(1, f"{error.filename or 'a file'}: {error.strerror}.")
        except MemoryError:
            _refuse(
                1,
                "There is not enough memory for this. Use fewer rows or queries, or a larger machine.",
            )
        except ModuleNotFoundError as error:
            if "pip install" not in str(error):  # ours say what to install
                raise
            _refuse(1, str(error))
