"""The reference of the site, from the code: public names, modules, and the command line with every option.

A hook of mkdocs.yml. In docs/reference/, `<!-- names of tutelage.x -->` becomes the documentation of every public name
of that module, `<!-- names for: A B -->` a table of names of the package, and `<!-- commands -->` the command line.
Names of public classes become links, classes show public bases only, and names lead to their source if the repository
is known.
"""

import importlib
import inspect
import pkgutil
import re
from abc import ABC
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

import tutelage
from tutelage.cli.app import app

NAMES = re.compile(r"^<!-- names of ([\w.]+) -->$", re.MULTILINE)
ROOT = Path(__file__).parent.parent
HEADING = re.compile(r'<h2 id="([\w.]+)" class="doc doc-heading">.*?</h2>', re.DOTALL)
BASES = re.compile(
    r'(<h\d id="([\w.]+)" class="doc doc-heading">(?:(?!<h\d ).)*?)<p class="doc doc-class-bases">.*?</p>',
    re.DOTALL,
)
CODE = re.compile(r'(?<=<code>)[^<]+(?=</code>)|(?<=<span class="n">)\w+(?=</span>)')
NO_BASES = (object, tuple, ABC, Generic, Protocol)
TABLE = re.compile(r"^<!-- names for: ([\w ]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write out what stands for code."""
    markdown = NAMES.sub(lambda found: documentation_of(found[1]), markdown)
    markdown = TABLE.sub(lambda found: table_of_names(found[1].split()), markdown)
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", command_line())
    return markdown


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Show bases and sources, and make links of names."""
    if not page.file.src_uri.startswith("reference/"):
        return html
    html = BASES.sub(lambda found: found[1] + bases_of(found[2]), html)
    html = CODE.sub(lambda code: re.sub(r"(?<![\w.])[A-Z]\w+", linked, code[0]), html)
    if not config.repo_url:
        return html
    code = f"{config.repo_url.rstrip('/')}/blob/{config.extra['source_ref']}"
    return HEADING.sub(lambda found: found[0] + source_of(found[1], code), html)


@cache
def public_classes() -> dict[str, str]:
    """Return where each class is that the reference describes, by its name; a name with two meanings is left out."""
    text = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    paths = [f"{module}.{name}" for module in NAMES.findall(text) for name in public_names(module)]
    names = [path.rpartition(".")[2] for path in paths]
    return {name: path for name, path in zip(names, paths, strict=True) if names.count(name) == 1}


def linked(name: re.Match[str]) -> str:
    """Return a name as a link to where it is described, if it is that of a class."""
    path = public_classes().get(name[0])
    return f'<autoref identifier="{path}" optional>{name[0]}</autoref>' if path else name[0]


def bases_of(path: str) -> str:
    """Return the public bases of a class as a line."""
    names = dict.fromkeys(base.__name__ for base in public_bases(pkgutil.resolve_name(path)))
    line = ", ".join(f"<code>{name}</code>" for name in names)
    return f'<p class="doc doc-class-bases">Bases: {line}</p>' if line else ""


def public_bases(derived: type) -> Iterator[type]:
    """Yield the bases of a class; in place of a base that the reference does not describe, the bases of that."""
    for base in derived.__bases__:
        if base.__name__ in public_classes() or not base.__module__.startswith("tutelage"):
            yield from () if base in NO_BASES else (base,)
        else:
            yield from public_bases(base)


def source_of(path: str, repository: str) -> str:
    """Return a link to the lines of a class or function."""
    found = inspect.unwrap(pkgutil.resolve_name(path))
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return ""
    file = Path(inspect.getfile(found)).relative_to(ROOT).as_posix()
    line = inspect.getsourcelines(found)[1]
    return f'<p class="source"><a href="{repository}/{file}#L{line}">{file}, line {line}</a></p>'


def public_names(module: str) -> list[str]:
    """Return the public names of a module: those it lists, or else the classes and functions that it defines.

    Names that the package around it lists are left out: they are described there.
    """
    found = importlib.import_module(module)
    listed = getattr(found, "__all__", None)
    if listed is not None:
        there: list[str] = []
        around = module.rpartition(".")[0]
        if "." in around:
            there = getattr(importlib.import_module(around), "__all__", [])
        return [name for name in listed if name not in there]
    own = {
        name: value
        for name, value in vars(found).items()
        if getattr(value, "__module__", None) == module
    }
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
        # Where the reference describes it, which the package states for itself alone.
        home = f"tutelage.{tutelage._HOME[name]}.{name}"  # pyright: ignore[reportPrivateUsage]
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
    if len(path) > 1:
        yield described(command, context, path)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from sections(command.get_command(context, name), [*path, name])


def described(command: Any, context: Any, path: list[str]) -> str:
    """Return the section of one command: what it does, how it is called, what can be given."""
    usage = " ".join([*path, *command.collect_usage_pieces(context)])
    given = (
        parameter.get_help_record(context)
        for parameter in command.params
        if parameter.name != "help"
    )
    rows = [
        f"| `{names}` | {' '.join(meaning.split())} |" for names, meaning in filter(None, given)
    ]
    table = ["| argument or option | meaning |", "|---|---|", *rows] if rows else []
    heading = f"{'#' * len(path)} {' '.join(path)}"
    return "\n\n".join(
        [heading, inspect.cleandoc(command.help), f"```text\n{usage}\n```", "\n".join(table)]
    )
