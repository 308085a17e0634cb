"""The reference of the site, from the code: public names, modules, and the command line with every option.

A hook of mkdocs.yml. In docs/reference/, `<!-- names of tutelage.x -->` becomes the documentation of every public name
of that module, `<!-- names for: A B -->` a table of names of the package, and `<!-- commands -->` the command line.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

import tutelage
from tutelage.cli.app import app

NAMES = re.compile(r"^<!-- names of ([\w.]+) -->$", re.MULTILINE)
TABLE = re.compile(r"^<!-- names for: ([\w ]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write out what stands for code."""
    markdown = NAMES.sub(lambda found: documentation_of(found[1]), markdown)
    markdown = TABLE.sub(lambda found: table_of_names(found[1].split()), markdown)
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", command_line())
    return markdown


def public_names(module: str) -> list[str]:
    """Return the public names of a module: those it lists, or else the classes and functions that it defines."""
    found = importlib.import_module(module)
    listed = getattr(found, "__all__", None)
    if listed is not None:
        return list(listed)
    own = {name: value for name, value in vars(found).items() if getattr(value, "__module__", None) == module}
    return [
        name
        for name, value in own.items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
    ]


def documentation_of(module: str) -> str:
    """Return what makes mkdocstrings document the public names of a module, the most used first."""
    found = importlib.import_module(module)

    def rank(name: str) -> int:
        return 0 if name in tutelage.__all__ else 1 if callable(getattr(found, name)) else 2

    return "\n\n".join(f"::: {module}.{name}" for name in sorted(public_names(module), key=rank))


def table_of_names(names: list[str]) -> str:
    """Return a table of names that can be imported from the package itself, each with its first sentence."""
    lines = ["| name | what it does |", "|---|---|"]
    for name in names:
        home = f"tutelage.{tutelage._HOME[name]}.{name}"  # where the reference describes it
        lines.append(f"| [`{name}`][{home}] | {first_sentence(getattr(tutelage, name))} |")
    return "\n".join(lines)


def first_sentence(documented: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def command_line() -> str:
    """Return every command with its arguments and options."""
    return "\n\n".join(section for section in sections(typer.main.get_command(app), ["tutelage"]))


def sections(command: Any, path: list[str]) -> Iterator[str]:
    """Yield the section of a command, then those of the commands in it."""
    context = command.make_context(path[-1], [], resilient_parsing=True)
    subcommands = command.list_commands(context) if hasattr(command, "list_commands") else []
    if len(path) > 1:
        yield described(command, context, path)
    for name in subcommands:
        yield from sections(command.get_command(context, name), [*path, name])


def described(command: Any, context: Any, path: list[str]) -> str:
    """Return the section of one command: what it does, how it is called, what can be given."""
    usage = " ".join([*path, *command.collect_usage_pieces(context)])
    given = (parameter.get_help_record(context) for parameter in command.params if parameter.name != "help")
    rows = [f"| `{names}` | {' '.join(meaning.split())} |" for names, meaning in filter(None, given)]
    table = ["| argument or option | meaning |", "|---|---|", *rows] if rows else []
    heading = f"{'#' * len(path)} {' '.join(path)}"
    return "\n\n".join([heading, inspect.cleandoc(command.help), f"```text\n{usage}\n```", "\n".join(table)])
