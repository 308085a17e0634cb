"""The site: links and formulas that MkDocs cannot do itself, every code block run somewhere, every command there is."""

import re
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


# The test that runs the code blocks of a page; test_guides.py runs whole pages.
DOCS = REPOSITORY / "docs"
_IN_TEST_DOCS = "ballots card configuration ledger local mechanisms methods students teachers"
IN_TEST_DOCS = _IN_TEST_DOCS.split()
RUN_BY = {
    REPOSITORY / "README.md": "test_docs.py",
    DOCS / "audit.md": "test_cli_audit.py",
    DOCS / "membership.md": "test_likelihood_ratio.py",
    DOCS / "planning.md": "test_planning.py",
    **{DOCS / f"{name}.md": "test_docs.py" for name in IN_TEST_DOCS},
}


def source_of(test: str) -> str:
    (path,) = (
        path
        for tests in ("tests", "consortium/tests", "reproductions/tests")
        if (path := REPOSITORY / tests / test).exists()
    )
    return path.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_code_block_is_run_by_a_test(page):
    has_code = any(language in CODE for language, _ in BLOCK.findall(page.read_text()))
    test = RUN_BY.get(page)
    assert has_code == (test is not None) or page in GUIDES, (
        f"run the code of {page.name}, and name the test in RUN_BY"
    )
    assert test is None or page.name in source_of(test)


def test_another_estimator_is_configured_as_documented(tmp_path):
    whole, part = blocks("docs/configuration.md", "toml")
    replaced = re.sub(r"^\[method\].*?(?=^\[)", f"{part}\n", whole, flags=re.MULTILINE | re.DOTALL)
    assert replaced.count("\n[method]\n") == 1
    for text, teacher in (
        (whole, "RandomForestClassifier"),
        (replaced, "HistGradientBoostingClassifier"),
    ):
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
        options = [
            parameter for parameter in command.params if parameter.param_type_name == "option"
        ]
        found.update(f"{path} {name}" for option in options for name in option.opts)
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            visit(command.get_command(context, name), f"{path} {name}")

    visit(typer.main.get_command(app), "tutelage")
    return found


def test_documented_commands_and_options_exist():
    known, seen = words_of_commands(), 0
    # Which also names what is gone.
    for page in (page for page in PAGES if page.name != "CHANGELOG.md"):
        text = page.read_text()
        lines = [line for _, block in BLOCK.findall(text) for line in block.splitlines()]
        lines += re.findall(r"`(tutelage [a-z][^`]*)`", BLOCK.sub("", text).replace("\n", " "))
        for line in lines:
            command = re.match(
                r"^(?:\$ )?(tutelage [a-z]+)( [a-z]+)?(?=\s|$)(.*)", line.split("#")[0]
            )
            if command is None:
                continue
            verb, noun, rest = command.groups(default="")
            path = verb + noun if verb + noun in known else verb
            assert path in known, f"{page.name}: {line}"
            for option in re.findall(r"(?<=\s)--[a-z-]+", noun + rest):
                assert f"{path} {option}" in known, f"{page.name}: {option} of {line}"
            seen += 1
    assert seen > 50
