"""The sentences of all errors, in one list: a change of wording shows in its diff, and no other test pins it.

`python tests/conventions/test_sentences.py` writes the list again.
"""

import ast
import pickle
import re
from pathlib import Path

import pytest

import tutelage
import tutelage_consortium
from tutelage import exceptions
from tutelage.cli import words
from tutelage.cli.config import (
    FeaturesSection,
    PrivacySection,
    PrivateSection,
    PublicSection,
    RunSection,
    TargetSection,
)
from tutelage.cli.words import on_command_line
from tutelage.features import Schema
from tutelage.methods import METHODS

SENTENCES = Path(__file__).parents[1] / "golden" / "sentences.txt"
ERRORS = {
    name
    for name, kind in vars(exceptions).items()
    if isinstance(kind, type) and issubclass(kind, exceptions.TutelageError)
}
OF_PROBLEMS = {"InvalidParameterError", "Problem", "UnknownParameterError"}


def template(message: ast.expr) -> str:
    """Return a message with {} in place of everything that is not a constant."""
    match message:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(template, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
        case ast.BinOp(left=ast.Constant() | ast.JoinedStr() as text, op=ast.Mult()):
            return f"[{template(text)}]"  # there or not
        case _:
            return "{}"


def problem(call: ast.Call) -> str:
    """Return the sentence of a `Problem`, as a program would read it."""
    name, must, got, fix = [*map(template, call.args), "", "", ""][:4]
    fix = next((template(keyword.value) for keyword in call.keywords), fix)
    owner, _, name = name.rpartition(".")
    return f"`{name}` of {owner or 'no class'} must {must}.{' Got {}.' * bool(got)} {fix}".rstrip()


def sentences() -> list[str]:
    """Return the kind and message of every error that the packages make."""
    found = set[str]()
    folders = (Path(tutelage.__file__).parent, Path(tutelage_consortium.__file__).parent)
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(args=[ast.Starred(), *_]):
                    continue
                case ast.Call(func=ast.Name(id="require_instance"), args=[*said, _]):
                    found.add(f"Problem: {problem(ast.Call(node.func, said, []))}")
                case ast.Call(func=ast.Name(id=kind)) if kind in OF_PROBLEMS:
                    found.add(f"Problem: {problem(node)}")
                case ast.Call(func=ast.Name(id=kind), args=[message, *_]) if (
                    kind in ERRORS - OF_PROBLEMS
                ):
                    found.add(f"{kind}: {template(message)}".replace("\n", "\\n"))
    return sorted(found)


def test_the_sentences_of_errors_are_those_of_the_list():
    written, listed = set(sentences()), set(SENTENCES.read_text(encoding="utf-8").splitlines())
    changed = [f"+ {one}" for one in sorted(written - listed)] + [
        f"- {one}" for one in sorted(listed - written)
    ]
    assert not changed, "\n".join([*changed, "If this is meant, run this file as a script."])


def test_the_command_line_knows_where_each_parameter_is_set():
    for method in METHODS.values():
        assert words.on_command_line(method.__name__, "rounds") == "`rounds` in [method]"
    sections = {"privacy": PrivacySection, "private": PrivateSection, "target": TargetSection}
    sections |= {"public": PublicSection, "features": FeaturesSection, "run": RunSection}
    placed = [re.fullmatch(r"`(\w+)` in \[(\w+)\]", entry) for entry in words._ENTRIES.values()]
    for name, section in (found.groups() for found in placed if found and found[2] in sections):
        assert name in sections[section].__annotations__
    assert words.on_command_line("PATEClassifier.card", "X") == "`X` of PATEClassifier.card"
    assert words.on_command_line("plan", "X_public") == "--public"


def test_a_text_of_a_user_is_no_name_of_a_parameter():
    with pytest.raises(exceptions.InvalidParameterError, match=r"give '\$income'"):
        Schema({"$income": "low"})  # pyright: ignore[reportArgumentType]


def test_a_program_can_tell_errors_apart_without_their_sentences():
    error = exceptions.InvalidParameterError("plan.epsilon", "be above 0", "-1", "Raise $epsilon.")
    assert (error.code, error.parameter) == ("invalid-parameter", "epsilon")
    assert str(error) == "`epsilon` of plan must be above 0. Got -1. Raise `epsilon`."
    assert error.sentences(on_command_line) == (
        "--epsilon must be above 0. Got -1. Raise --epsilon.",
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


if __name__ == "__main__":
    SENTENCES.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
