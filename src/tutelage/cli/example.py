"""``tutelage example``: configurations that come with the package, to run or to fill in."""

from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from tutelage.exceptions import ConfigError


class Example(StrEnum):
    """What can be written."""

    adult = "adult"
    files = "files"


_WHAT_NEXT = {
    Example.adult: "It needs no other file. Next, run:",
    Example.files: 'Fill in the lines marked "yours". Then run:',
}


def example(
    name: Annotated[
        Example,
        typer.Argument(
            help="adult: an experiment on bundled data. files: a template for your own files.", show_default=False
        ),
    ],
    output: Annotated[Path | None, typer.Option("--output", help="File to write.  [default: NAME.toml]")] = None,
) -> None:
    """Write a starter configuration for `tutelage run`. Existing files are never overwritten."""
    target = output or Path(f"{name.value}.toml")
    text = (files("tutelage.cli") / "examples" / f"{name.value}.toml").read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{target} exists already; name another file with --output.") from None
    typer.echo(f"Wrote {target}. {_WHAT_NEXT[name]}\n  tutelage run {target}")
