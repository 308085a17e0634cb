"""The questions of `tutelage init` as a form in a notebook."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage._internal.extras import install
from tutelage._internal.records import Entries
from tutelage.cli.init import configuration
from tutelage.cli.text import say, write_new
from tutelage.exceptions import ConfigError, TutelageError

if TYPE_CHECKING:
    from ipywidgets import interactive

_GOALS = ["accuracy", "balanced_accuracy", "average_precision", "recall at 5 %"]


def configuration_form() -> "interactive":
    """Return a form that writes a configuration for ``tutelage run``, as ``tutelage init`` does.

    Show it by naming it in the last line of a cell. It shows no private row, but an
    error may depend on one: clear the output of the form before you share the notebook.

    Raises
    ------
    ConfigError
        If ipywidgets is not installed.
    """
    try:
        from ipywidgets import Dropdown, Layout, Text, interactive
    except ImportError:
        raise ConfigError(f"A form needs ipywidgets: {install('notebook')}.") from None

    def field(question: str, kind: Callable[..., object] = Text, **settings: object) -> object:
        wide = {"style": {"description_width": "20em"}, "layout": Layout(width="45em")}
        return kind(description=question, **settings, **wide)

    return interactive(
        _write,
        {"manual": True, "manual_name": "Write"},
        private=field("Private file", placeholder="patients.csv"),
        person=field("Column with the id of the person", placeholder="or 'each row'"),
        ids=field("With 'each row': columns like ids", Dropdown, options=["", "ignore", "keep"]),
        label=field("Column to predict"),
        classes=field("Its values", placeholder="no, yes; of public labels if empty"),
        public=field("Public file", placeholder="public.csv, or schema.toml"),
        public_label=field(
            "Column of public labels", placeholder="the column to predict if empty, or 'none'"
        ),
        goal=field("Goal", Dropdown, options=_GOALS),
        epsilon=field("ε", placeholder="1"),
        releases=field("Releases of each person", placeholder="once, if no people come later"),
        people=field("About how many people", placeholder="if that may be public"),
        file=field("File to write", value="run.toml"),
    )


def _write(file: str, **answers: object) -> None:
    """Write a configuration, or print the error."""
    given = Entries({name: value for name, value in answers.items() if value != ""})
    try:
        if Path(file).name != file:
            raise ConfigError(
                "The file to write must be in the current folder. Name it without a folder."
            )
        text = configuration(**given, folder=f"{Path(file).stem}-results")
        write_new(Path(file), text, "name another file in the form")
    except TutelageError as error:
        say(error, err=True)  # into the output of the form
        return
    say(f"Wrote {file}. Next: tutelage run {file}")
