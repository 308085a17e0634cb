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
    Example.adult: "It needs no other file. Next:",
    Example.files: 'Fill in what is marked "yours" there. Then:',
}


def example(
    name: Annotated[
        Example,
        typer.Argument(
            help="adult: an experiment on bundled data. files: to fill in for your own.", show_default=False
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
        raise ConfigError(f"{target} is there already; name another file by --output.") from None
    typer.echo(f"Wrote {target}. {_WHAT_NEXT[name]}\n  tutelage run {target}")
