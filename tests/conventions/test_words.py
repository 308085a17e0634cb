"""Names in code: one meaning for each class, one noun for each concept, functions named after results or actions."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import tutelage
import tutelage_consortium
from conftest import REPOSITORY

PACKAGES = [Path(tutelage.__file__).parent, Path(tutelage_consortium.__file__).parent]
PARTICIPLES = 27  # functions that are named by a participle alone: properties of public classes
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_PARTICIPLE = re.compile(
    r"\w+ed|begun|bound|broken|built|chosen|cut|done|drawn|felt|found|given|gone|grown|heard|held|hidden|kept|"
    r"known|laid|left|lent|lost|made|met|paid|said|seen|sent|shown|sold|spent|stood|struck|taken|taught|"
    r"thought|thrown|told|torn|understood|worn|written"
)
_ARE_NOUNS = {"embed", "feed", "need", "seed", "speed"}


def definitions() -> Iterator[tuple[str, ast.AST]]:
    """Yield every node of the package's modules with the path of its module."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield str(path.relative_to(package.parent)), node


def is_participle(name: str) -> bool:
    """Return whether a function's name is one word that says what happened, not what is returned or done."""
    word = name.strip("_")
    if "_" in word or word in _ARE_NOUNS:
        return False
    return _PARTICIPLE.fullmatch(word) is not None


def nouns_to_avoid() -> set[str]:
    """Return the words of the last column in the glossary's table of names in code."""
    table = (
        (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## In code")[2]
    )
    rows = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("|")]
    words = [row[2] for row in rows[2:]]
    return {word for words_of_row in words for word in re.split(r"[,\s]+", words_of_row) if word}


def test_a_participle_is_recognized():
    assert all(map(is_participle, ("summed", "_told", "given")))
    assert not any(map(is_participle, ("sum_of_ballots", "_is_settled", "seed", "read_card")))


def test_a_class_name_has_one_meaning():
    homes = defaultdict(set)
    for module, node in definitions():
        if isinstance(node, ast.ClassDef):
            homes[node.name].add(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_functions_are_named_after_what_they_return_or_do():
    named = [
        f"{module}:{node.lineno} {node.name}"
        for module, node in definitions()
        if isinstance(node, _FUNCTION) and is_participle(node.name)
    ]
    assert len(named) <= PARTICIPLES, "\n".join(named)


def test_a_concept_has_the_noun_of_the_glossary():
    avoided = nouns_to_avoid()
    assert "contribution" in avoided
    wrong = []
    for module, node in definitions():
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                words = set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))
            case _:
                continue
        if avoided & words:
            wrong.append(f"{module}:{node.lineno} {name}")
    assert wrong == []
