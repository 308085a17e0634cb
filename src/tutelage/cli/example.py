"""``tutelage example``: starter configurations that come with the package."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from tutelage._internal.outputs import NEVER, claimed
from tutelage.cli.text import ANOTHER_FILE, say
from tutelage.exceptions import ConfigError

# Each begins with one line for users: its purpose and the next step.
_EXAMPLES = {
    file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
    for file in sorted((files("tutelage.cli") / "examples").iterdir(), key=lambda file: file.name)
    if file.name.endswith(".toml")
}
_LINES = {name: text.partition("\n")[0].removeprefix("# ") for name, text in _EXAMPLES.items()}


def _known(name: str) -> str:
    if name not in _EXAMPLES:
        raise ConfigError(f"The example must be one of {', '.join(_EXAMPLES)}. Got {name!r}.")
    return name


def example(
    name: Annotated[
        str,
        typer.Argument(
            parser=_known,
            metavar="|".join(_EXAMPLES),
            autocompletion=lambda: [*_EXAMPLES],
            help=" ".join(f"{name}: {line}" for name, line in _LINES.items()),
            show_default=False,
        ),
    ],
    output: Annotated[Path | None, typer.Option("--output", help="File to write.  [default: NAME.toml]")] = None,
) -> None:
    """Write a starter configuration for `tutelage run`. Existing files are never overwritten."""
    target = output or Path(f"{name}.toml")
    if target.exists():
        raise ConfigError(f"{target} already exists. Name another file with --output.")
    with claimed(target, NEVER, way_out=ANOTHER_FILE) as claim, claim.written() as part:
        part.write_text(_EXAMPLES[name], encoding="utf-8")
    say(f"Wrote {target}. {_LINES[name]}\nNext: tutelage run {target}")
