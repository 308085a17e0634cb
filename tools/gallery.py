"""The examples as sections of a page: purpose, command, and folded source.

The page is generated. The purpose of an example is in the README next to it, in its docstring or in its notebook.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROW = re.compile(r"^\| \[([\w.]+)\]\(\1\) \| (.+) \|$", re.MULTILINE)
LANGUAGES = {".py": "python", ".toml": "toml", ".service": "ini", "": "dockerfile"}  # "": a Containerfile


def sections(readme: Path) -> str:
    """Return a section for each example in the folder of a README, in the order of its table if it has one."""
    shown = dict(ROW.findall(readme.read_text()))
    files = sorted(path for path in readme.parent.iterdir() if path.is_file() and path.suffix in {*LANGUAGES, ".ipynb"})
    listed = [readme.parent / name for name in shown if (readme.parent / name).is_file()]
    return "\n\n".join(
        part
        for path in [*listed, *(path for path in files if path not in listed)]
        for part in (f"## {path.name}", sentence(shown.get(path.name, "")), *body(path))
        if part
    )


def sentence(words: str) -> str:
    """Return words of a table as a sentence."""
    return f"{words[0].upper()}{words[1:].rstrip('.')}." if words else ""


def body(path: Path) -> Iterator[str]:
    """Yield what a file says of itself, then its source, folded."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        yield folded(path.name, "\n\n".join(cells(text)))
    else:
        if path.suffix == ".py":
            # A line that is a command becomes a block of code.
            docstring = ast.get_docstring(ast.parse(text)) or ""
            yield re.sub(r"^python .+$", r"```sh\n\g<0>\n```", docstring, flags=re.MULTILINE)
        yield folded(path.name, fenced(text, LANGUAGES[path.suffix]))


def cells(notebook: str) -> Iterator[str]:
    """Yield the cells of a notebook as Markdown, each with the text that it printed."""
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        yield fenced(source, "python") if cell["cell_type"] == "code" else re.sub(r"^#+ (.+)", r"**\1**", source)
        for output in cell.get("outputs", ()):
            if printed := output.get("text") or output.get("data", {}).get("text/plain"):
                yield fenced("".join(printed), "text")


def fenced(code: str, language: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{code.strip()}\n```"


def folded(name: str, markdown: str) -> str:
    """Return Markdown that the reader unfolds."""
    lines = (f"    {line}" if line else "" for line in markdown.splitlines())
    return "\n".join([f'??? example "Source of {name}"', "", *lines])
