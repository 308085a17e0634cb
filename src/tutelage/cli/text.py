"""Parts that the verbs share: escaped text, JSON, options, and the message after an interruption."""

import inspect
import json
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tutelage._internal.outputs import NEVER, Form, claim_output
from tutelage._internal.releases import Manifest
from tutelage.exceptions import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

INTERRUPTED = 130  # exit code as a shell reports a signal: 128 and its number
_MORE_THAN_RELEASED = 4  # exit code
_UNCUT = 1000  # characters
_UNKNOWN_WIDTH = 80

ANOTHER_FILE = "name another file with --output"
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Html = Annotated[Path | None, typer.Option(help="Also draw the bars in a new HTML file.")]
Array = Annotated[str | None, typer.Option(help="Array to read, if the file contains several.")]
Teachers = Annotated[
    int | None, typer.Option(help="Number of teachers, if some of them abstained.")
]

# Control characters but tab and newline, separators of lines, what turns the direction of writing, and the letter
# that replaces bytes of another encoding.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffd]"
)

# Carriage returns, and colors and movements of the cursor, which progress bars consist of.
_OBEYED_ON_A_TERMINAL = re.compile(f"(?!\r|\x1b\\[[0-9;?]*[A-Za-z]){_OBEYED.pattern}")


def _printable(text: object) -> str:
    """Return text in which control characters are escaped."""
    return _OBEYED.sub(_escape, str(text))


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"  # as in JSON and TOML


def require_printable(text: str, where: str) -> str:
    """Return text; refuse control characters, which a terminal would obey."""
    if _OBEYED.search(text):
        raise ConfigError(f"{where} must have no control characters. Got {text!r}.")
    return text


def say(
    text: object = "",
    *,
    err: bool = False,
    nl: bool = True,
    color: str | None = None,
) -> None:
    """Print a line, without control characters: all text that the verbs print goes through here or `plain_console`."""
    escaped = _printable(text)
    # A terminal breaks lines inside of words.
    if err and sys.stderr is not None and sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        wrap = TextWrapper(width, break_long_words=False, break_on_hyphens=False)
        escaped = "\n".join(map(wrap.fill, escaped.split("\n")))
    typer.secho(escaped, err=err, nl=nl, fg=color)


def print_json(content: object, *, ascii_only: bool = True, indent: int | None = 2) -> None:
    """Print plain values as JSON."""
    say(json.dumps(content, indent=indent, ensure_ascii=ascii_only))


def remark(text: str) -> None:
    """Print a remark, which is neither a result nor a refusal, on standard error."""
    say(f"tutelage: {text}", err=True, color=typer.colors.YELLOW)


def complain(sentence: str) -> None:
    """Print a refusal on standard error."""
    say(f"tutelage: {sentence}", err=True, color=typer.colors.RED)


def refuse_others(manifest: Manifest, folder: Path) -> None:
    """End, with an exit code of its own, if a folder contains more than its release: nothing vouches for the rest."""
    others = ", ".join(manifest.others(folder))
    if others:
        complain(
            f"{folder} contains files that are not part of the release: {others}. Remove them, and verify again."
        )
        raise typer.Exit(_MORE_THAN_RELEASED)


@contextmanager
def interruption_says(what: str) -> Generator[None]:
    """End on Ctrl-C with a sentence on what happened to the work."""
    try:
        yield
    except KeyboardInterrupt:
        remark(f"interrupted; {what}")
        raise typer.Exit(INTERRUPTED) from None


def is_confirmed(question: str, *, default: bool) -> bool:
    """Return whether the user agrees at the terminal; without one, return False."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    try:
        return typer.confirm(question, default=default, err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None


def parameters_in(doc: str) -> Iterator[tuple[str, str, str]]:
    """Yield the names, the type and the description of each entry in the parameters of a docstring."""
    for names, kind, lines in re.findall(
        r"^(\w[\w, ]*)(?: : (.*))?\n((?:    .+\n?)+)", doc, re.MULTILINE
    ):
        yield names, kind, " ".join(line.strip() for line in lines.splitlines())


def with_help(verb: Callable[..., None]) -> Callable[..., None]:
    """Let the docstring of a verb describe its arguments, which are positional in Python, and its options.

    The type of an entry is the spelling of the option, if it is not that of the parameter.
    """
    text, _, section = (inspect.getdoc(verb) or "").partition("\n\nParameters\n")
    verb.__doc__ = text
    parameters = inspect.signature(verb).parameters
    for name, spelling, meaning in parameters_in(section):
        kind = parameters[name].annotation
        spellings = [spelling] if spelling else []
        if kind is bool and not spelling:  # without it, there would be an option for False too
            spellings = [f"--{name.replace('_', '-')}"]
        if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
            argument = typer.Option(*spellings, help=meaning)
        else:
            argument = typer.Argument(*spellings, help=meaning)
        verb.__annotations__[name] = Annotated[kind, argument]
    return verb


class PlainStream(TextIOWrapper):
    """A standard stream without control characters; on a terminal, those of colors remain."""

    def write(self, text: str) -> int:
        """Write text without them."""
        pattern = _OBEYED_ON_A_TERMINAL if self.isatty() else _OBEYED
        super().write(pattern.sub(_escape, text))
        return len(text)


class _Verbs(TyperGroup):
    """Lists each verb with its whole first sentence, which typer would cut on a narrow screen."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        lines = list[tuple[str, str]]()
        for name in self.list_commands(ctx):
            verb = self.get_command(ctx, name)
            if verb is not None:
                lines.append((name, verb.get_short_help_str(_UNCUT)))
        with formatter.section("Verbs"):
            formatter.write_dl(lines)


def verb_group(purpose: str) -> typer.Typer:
    """Return a verb that has verbs of its own."""
    return typer.Typer(
        cls=_Verbs,
        help=purpose,
        subcommand_metavar="VERB ...",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def plain_console() -> "Console":
    """Return a console on standard output that prints strings as text, never as markup."""
    from rich.console import Console  # not every verb needs it
    from rich.text import Text

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(_printable(text), **options)

    console = PlainConsole(markup=False, emoji=False)
    console.width = console.width or _UNKNOWN_WIDTH  # which COLUMNS may say to be 0
    return console


def new_table(*headings: str, **options: Any) -> "Table":
    """Return a table to be filled and printed by `plain_console`."""
    from rich.table import Table

    return Table(*headings, **options)


def in_style(text: str, style: str) -> "Text":
    """Return text for `plain_console` in a color, or bold."""
    from rich.text import Text

    return Text(text, style)


def write_new(file: Path, text: str, way_out: str = ANOTHER_FILE, *, over: Form = NEVER) -> None:
    """Write a text file, over no other one than of that kind."""
    with claim_output(file, over, way_out=way_out) as claim, claim.write() as part:
        part.write_text(text, encoding="utf-8")


def write_page(file: Path, heading: str, drawn: object) -> None:
    """Write what a notebook shows to a new file, as a page."""
    from tutelage.reporting.render import render  # not every verb needs it

    write_new(
        file,
        render("bars.jinja", "html", heading=heading, drawn=drawn),
        "name another file with --html",
    )
    say(f"Wrote {file}", err=True)
