"""The package stays small: ceilings of tokens and of their density, and a public name has a user."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import pytest

import tutelage
import tutelage_consortium
from conftest import REPOSITORY

PACKAGE = Path(tutelage.__file__).parent
OF_HOSPITALS = Path(tutelage_consortium.__file__).parent
TESTS = (REPOSITORY / "tests", REPOSITORY / "consortium" / "tests")
MODULES = {PACKAGE: 211, OF_HOSPITALS: 29}
# Ceilings of tokens, of which docstrings and comments are none: lowered with each cut. A plain line costs nothing.
OF_CODE = {PACKAGE: 296_400, OF_HOSPITALS: 42_540}
OF_TESTS = 348_320
DOC_WORDS = 59_680
PER_LINE = {PACKAGE: 8.02, OF_HOSPITALS: 8.1}  # tokens of a line of code, on average
DENSEST = 10.6  # of a module
_DENSE_FROM = 80  # lines of code, from which on the density of a module counts
_OF_CODE = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)


class Size(NamedTuple):
    """Tokens and lines of a module, docstrings, comments and empty lines left out."""

    tokens: int
    lines: int

    @classmethod
    def of(cls, path: Path) -> Self:
        text = path.read_text()
        docs = set[int]()
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                docs |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        numbered = enumerate(text.splitlines(), 1)
        lines = [
            line
            for number, line in numbered
            if number not in docs and line.strip() and line.strip()[0] != "#"
        ]
        return cls(sum(token.start[0] not in docs for token in _tokens(text)), len(lines))


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of a text; an f-string, which Python 3.12 splits into parts, is one."""
    begins, ends = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == begins:
            depth += 1
        elif token.type == ends:
            depth -= 1
            if depth == 0:
                yield token
        elif depth == 0 and token.type in _OF_CODE:
            yield token


def test_an_f_string_is_one_token_and_a_docstring_none(tmp_path):
    (tmp_path / "a.py").write_text('"""Words."""\n\n# More.\nx = f"{1 + 1} {2}"\n')
    assert Size.of(tmp_path / "a.py") == (3, 1)


@pytest.mark.parametrize("package", MODULES, ids=lambda package: package.name)
def test_the_code_stays_below_its_ceilings(package):
    modules = {path: Size.of(path) for path in package.rglob("*.py")}
    tokens, lines = map(sum, zip(*modules.values(), strict=True))
    assert len(modules) <= MODULES[package]
    assert tokens <= OF_CODE[package]
    assert tokens >= 0.97 * OF_CODE[package], "lower the ceiling"
    assert tokens / lines <= PER_LINE[package]
    dense = {
        path: size
        for path, size in modules.items()
        if size.tokens > DENSEST * max(size.lines, _DENSE_FROM)
    }
    assert dense == {}


def test_tests_and_docs_stay_below_their_ceilings():
    of_tests = sum(Size.of(path).tokens for folder in TESTS for path in folder.rglob("*.py"))
    assert of_tests <= OF_TESTS
    assert of_tests >= 0.97 * OF_TESTS, "lower the ceiling"
    assert (
        sum(len(page.read_text().split()) for page in (REPOSITORY / "docs").rglob("*.md"))
        <= DOC_WORDS
    )


def _files(folder: str, kind: str) -> Iterator[Path]:
    return (REPOSITORY / folder).rglob(kind)


def public_names() -> set[str]:
    found = {*tutelage_consortium.__all__}
    for path in PACKAGE.rglob("__init__.py"):
        module = __import__(
            ".".join(["tutelage", *path.parent.relative_to(PACKAGE).parts]), fromlist=["__all__"]
        )
        found |= set(getattr(module, "__all__", ()))
    return found


def test_every_public_name_has_a_user():
    places = [
        *(
            path
            for name in ("examples", "benchmarks", "reproductions/src")
            for path in (REPOSITORY / name).rglob("*.py")
        ),
        *(REPOSITORY / "examples").rglob("*.ipynb"),
        *(path for path in _files("docs", "*.md") if "reference" not in path.parts),
        REPOSITORY / "README.md",
    ]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in places)))
    assert public_names() - words == set()
