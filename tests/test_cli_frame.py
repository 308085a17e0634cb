"""The command line's frame: what it shows first, completes and suggests, and that verbs load when they are called."""

import subprocess
import sys
from typing import Any

import pytest
import typer.main

from conftest import REPOSITORY
from test_cli import refusal
from tutelage.cli.app import _VERBS, app
from tutelage.cli.config import load_config

HEAVY = {"numpy", "scipy", "sklearn", "opendp", "torch", "matplotlib"}


def modules_after(*arguments: str, **environment: str) -> set[str]:
    """Return the packages that one call of the command line loads."""
    script = f"""if True:
        import os, sys
        os.environ.update({environment!r})
        sys.argv = ["tutelage", *{arguments!r}]
        from tutelage.cli import main
        try:
            main()
        except SystemExit:
            print("loaded:", *sorted({{name.split(".")[0] for name in sys.modules}}))
    """
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return set(printed.rpartition("loaded:")[2].split())


def test_without_arguments_it_says_what_it_is_and_what_to_do_first(called):
    shown = called()
    assert shown.returncode == 0
    assert shown.stderr == ""
    assert shown.stdout == called("--help").stdout == called("-h").stdout
    assert all(f"\n  {verb} " in shown.stdout for verb in _VERBS)


def test_the_first_steps_work_as_shown(called, tmp_path):
    assert "tutelage example adult " in called().stdout
    assert "tutelage run adult.toml" in called("example", "adult", cwd=tmp_path).stdout
    assert "tutelage run files.toml" in called("example", "files", cwd=tmp_path).stdout
    assert load_config(tmp_path / "adult.toml").dataset == "adult"
    assert load_config(tmp_path / "files.toml").private is not None
    message = refusal(called("run", "files.toml", cwd=tmp_path), 1)
    assert message == "tutelage: public.csv cannot be read: No such file or directory."


def test_the_adult_example_is_the_one_of_the_repository(called, tmp_path):
    called("example", "adult", "--output", tmp_path / "mine.toml")
    ours = (REPOSITORY / "examples" / "adult.toml").read_text()
    assert (tmp_path / "mine.toml").read_text() == ours.replace('"../demo"', '"demo"')


def test_an_example_replaces_no_file(called, tmp_path):
    (tmp_path / "adult.toml").write_text("mine")
    message = refusal(called("example", "adult", cwd=tmp_path), 2)
    assert message == "tutelage: adult.toml already exists. Name another file with --output."
    assert (tmp_path / "adult.toml").read_text() == "mine"
    nowhere = called("example", "adult", "--output", tmp_path / "no" / "x.toml")
    assert "must be in a folder that exists" in refusal(nowhere, 2)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("rnu", "There is no verb 'rnu'. Did you mean `tutelage run`?"),
        ("xyzzy", "There is no verb 'xyzzy'. `tutelage --help` lists the verbs."),
    ],
)
def test_an_unknown_verb_brings_the_nearest(typed, said, called):
    assert refusal(called(typed), 2) == f"tutelage: {said}"


def commands(command: Any = None, name: str = "tutelage"):
    """Yield a command, with its full name, and all that are below it."""
    command = command or typer.main.get_command(app)
    yield name, command
    if hasattr(command, "list_commands"):
        for inner in command.list_commands(None):
            yield from commands(command.get_command(None, inner), f"{name} {inner}")


@pytest.mark.parametrize("columns", [80, 60])
def test_every_help_text_fits_the_screen_uncut(columns):
    shown = {
        name: command.get_help(command.context_class(command, terminal_width=columns)) for name, command in commands()
    }
    assert len(shown) > 20
    lines = [line for text in shown.values() for line in text.splitlines()]
    assert [line for line in lines if len(line) > columns] == []
    assert [line for line in lines if line.endswith("...") and "VERB ..." not in line] == []


def test_what_is_shown_first_loads_nothing_heavy():
    assert "typer" in modules_after()
    for loaded in (modules_after(), modules_after("--version"), modules_after("rnu")):
        assert not HEAVY & loaded
