"""The site: links and formulas that MkDocs cannot do itself, every code block run somewhere, every command there is."""

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from conftest import REPOSITORY
from test_docs import PAGES as DOC_PAGES
from test_docs import blocks
from test_guides import PAGES as GUIDES
from tutelage.cli.app import app
from tutelage.cli.config import load_config
from tutelage.methods import TeacherVotes

PAGES = sorted([*DOC_PAGES, *(REPOSITORY / "examples").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = {"python", "toml", "sh", "console"}


def tool(name: str) -> ModuleType:
    """Load a module of tools/ as MkDocs does: others of the folder can be imported while it is loaded."""
    spec = importlib.util.spec_from_file_location(f"tool_{name}", REPOSITORY / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "tools"))
        spec.loader.exec_module(module)
    return module


# Code blocks: how many of each language a page has, and the test that runs them; test_guides.py runs whole pages.
RUN_BY = {
    "README.md": ("test_docs.py", {"python": 1, "sh": 1}),  # its sh, pip install, in test_packaging.py
    "docs/audit.md": ("test_cli_audit.py", {"python": 3}),
    "docs/ballots.md": ("test_docs.py", {"python": 2, "toml": 2}),
    "docs/configuration.md": ("test_docs.py", {"toml": 2, "python": 2}),  # its second toml below
    "docs/ledger.md": ("test_docs.py", {"python": 1}),
    "docs/local.md": ("test_docs.py", {"python": 1}),
    "docs/methods.md": ("test_docs.py", {"python": 1, "toml": 2}),
    "docs/mechanisms.md": ("test_docs.py", {"python": 1}),
    "docs/membership.md": ("test_likelihood_ratio.py", {"python": 1}),
    "docs/planning.md": ("test_planning.py", {"python": 1}),
    "docs/card.md": ("test_docs.py", {"python": 1}),
    "docs/students.md": ("test_docs.py", {"python": 1}),
    "docs/teachers.md": ("test_docs.py", {"python": 2}),
}


def source_of(test: str) -> str:
    (path,) = (path for tests in ("tests", "reproductions/tests") if (path := REPOSITORY / tests / test).exists())
    return path.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_code_block_is_run_by_a_test(page):
    name = str(page.relative_to(REPOSITORY))
    found = Counter(language for language, _ in BLOCK.findall(page.read_text()) if language in CODE)
    if page in GUIDES:
        assert name not in RUN_BY
    elif name in RUN_BY:
        test, expected = RUN_BY[name]
        assert found == expected
        assert Path(name).name in source_of(test)
    else:
        assert not found, f"{name} has code that no test runs; run it, and name the test in RUN_BY"


def test_another_estimator_is_configured_as_documented(tmp_path):
    whole, part = blocks("docs/configuration.md", "toml")
    replaced = re.sub(r"^\[method\].*?(?=^\[)", f"{part}\n", whole, flags=re.MULTILINE | re.DOTALL)
    assert replaced.count("\n[method]\n") == 1
    for text, teacher in ((whole, "RandomForestClassifier"), (replaced, "HistGradientBoostingClassifier")):
        (tmp_path / "config.toml").write_text(text)
        config = load_config(tmp_path / "config.toml")
        assert isinstance(config.method, TeacherVotes)
        assert type(config.method.teacher).__name__ == teacher
        assert config.private is not None


# Commands


def words_of_commands() -> set[str]:
    """Every command with the commands that it holds, and every option behind its command."""
    found: set[str] = set()

    def visit(command: Any, path: str) -> None:
        context = command.make_context(path, [], resilient_parsing=True)
        found.add(path)
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        found.update(f"{path} {name}" for option in options for name in option.opts)
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            visit(command.get_command(context, name), f"{path} {name}")

    visit(typer.main.get_command(app), "tutelage")
    return found


def test_documented_commands_and_options_exist():
    known, seen = words_of_commands(), 0
    for page in (page for page in PAGES if page.name != "CHANGELOG.md"):  # which also names what is gone
        text = page.read_text()
        lines = [line for _, block in BLOCK.findall(text) for line in block.splitlines()]
        lines += re.findall(r"`(tutelage [a-z][^`]*)`", BLOCK.sub("", text).replace("\n", " "))
        for line in lines:
            command = re.match(r"^(?:\$ )?(tutelage [a-z]+)( [a-z]+)?(?=\s|$)(.*)", line.split("#")[0])
            if command is None:
                continue
            verb, noun, rest = command.groups(default="")
            path = verb + noun if verb + noun in known else verb
            assert path in known, f"{page.name}: {line}"
            for option in re.findall(r"(?<=\s)--[a-z-]+", noun + rest):
                assert f"{path} {option}" in known, f"{page.name}: {option} of {line}"
            seen += 1
    assert seen > 50


def test_every_example_shows_what_it_printed_and_what_it_drew():
    page = tool("gallery").sections(REPOSITORY / "examples" / "README.md")
    assert page.count("\n```text\n") == len(re.findall(r"^## ", page, re.MULTILINE)) + 1  # two in the notebook
    assert "<strong>Privacy guarantee:</strong> ε = 1.0" in page


# Links and formulas
