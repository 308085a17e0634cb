"""The examples as sections of a page: purpose, command, output, and folded source.

    python tools/gallery.py

runs every example and stores its output in examples/output/, which the page shows. A notebook has its output in itself.
The purpose of an example is in the README next to it, in its docstring or in its notebook.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"
ROW = re.compile(r"^\| \[([\w.]+)\]\(\1\) \| (.+) \|$", re.MULTILINE)
# "": a Containerfile.
LANGUAGES = {".py": "python", ".toml": "toml", ".service": "ini", "": "dockerfile"}
PICTURES = {"adult.toml": "![The first page of its card](../docs/figures/card.png)"}
WIDTH = 88  # characters of a line of output
FOLDER = re.compile(rf"{re.escape(tempfile.gettempdir())}/\w+/")


def sections(readme: Path) -> str:
    """Return a section for each example in the folder of a README, in the order of its table if it has one."""
    shown = dict(ROW.findall(readme.read_text()))
    files = sorted(
        path
        for path in readme.parent.iterdir()
        if path.is_file() and path.suffix in {*LANGUAGES, ".ipynb"}
    )
    listed = [readme.parent / name for name in shown if (readme.parent / name).is_file()]
    return "\n\n".join(
        part
        for path in [*listed, *(path for path in files if path not in listed)]
        for part in (f"## {path.name}", *body(path, sentence(shown.get(path.name, ""))))
        if part
    )


def sentence(words: str) -> str:
    """Return words of a table as a sentence."""
    return f"{words[0].upper()}{words[1:].rstrip('.')}." if words else ""


def body(path: Path, purpose: str) -> Iterator[str]:
    """Yield what an example is for, what it prints and draws, then its source, folded."""
    text, stored = path.read_text(), stored_output(path)
    if path.suffix == ".py":
        # A line that is a command becomes a block of code.
        docstring = ast.get_docstring(ast.parse(text)) or ""
        purpose = re.sub(r"^python .+$", r"```sh\n\g<0>\n```", docstring, flags=re.MULTILINE)
    yield purpose
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        yield from (
            shown
            for cell in cells
            for output in cell.get("outputs", ())
            if (shown := result(output))
        )
        yield folded(path.name, "\n\n".join(source(cell) for cell in cells))
    else:
        if stored.exists():
            yield f"One run printed:\n\n{fenced(stored.read_text(), 'text')}"
        yield PICTURES.get(path.name, "")
        yield folded(path.name, fenced(text, LANGUAGES[path.suffix]))


def source(cell: dict[str, Any]) -> str:
    """Return a cell of a notebook as Markdown."""
    lines = "".join(cell["source"])
    return (
        fenced(lines, "python")
        if cell["cell_type"] == "code"
        else re.sub(r"^#+ (.+)", r"**\1**", lines)
    )


def result(output: dict[str, Any]) -> str:
    """Return what a cell printed, or what tutelage draws in a notebook; other results are left to the notebook."""
    drawn = "".join(output.get("data", {}).get("text/html", ""))
    if drawn.startswith(("<section", "<p>")):
        return drawn.replace("<table class=facts>", "<table>")
    return fenced("".join(output["text"]), "text") if "text" in output else ""


def fenced(code: str, language: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{code.strip()}\n```"


def folded(name: str, markdown: str) -> str:
    """Return Markdown that the reader unfolds."""
    lines = (f"    {line}" if line else "" for line in markdown.splitlines())
    return "\n".join([f'??? example "Source of {name}"', "", *lines])


def stored_output(path: Path) -> Path:
    """Return the file that has the output of an example."""
    return path.parent / "output" / f"{path.name}.txt"


def printed_by(path: Path) -> str:
    """Run an example beside a copy of it and return what it prints, without folders of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "examples", path.name)
        copy.parent.mkdir()
        shutil.copy(path, copy)
        run = ["-m", "tutelage", "run"] if path.suffix == ".toml" else []
        command = [sys.executable, *run, f"examples/{path.name}"]
        environment = {**os.environ, "COLUMNS": str(WIDTH)}
        done = subprocess.run(  # noqa: S603
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
    lines = (line.rstrip() for line in FOLDER.sub("", done.stdout).splitlines())
    return "".join(
        f"{textwrap.fill(line, WIDTH) if len(line) > WIDTH else line}\n" for line in lines
    )


if __name__ == "__main__":
    for one in sorted([*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.toml")]):
        stored_output(one).parent.mkdir(exist_ok=True)
        stored_output(one).write_text(printed_by(one))
        print(stored_output(one))
