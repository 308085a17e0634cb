"""The sentences of all errors, in one list: a change of wording shows in its diff, and no other test pins it.

`python tests/conventions/test_sentences.py` writes the list again.
"""

import ast
import pickle
from pathlib import Path

import tutelage
from tutelage import exceptions
from tutelage.cli.words import on_command_line

SENTENCES = Path(__file__).parents[1] / "golden" / "sentences.txt"
ERRORS = {
    name
    for name, kind in vars(exceptions).items()
    if isinstance(kind, type) and issubclass(kind, exceptions.TutelageError)
}
OF_PROBLEMS = {"InvalidParameterError", "UnknownParameterError"}


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
    """Return the kind and message of every error that the package makes."""
    found = set[str]()
    for path in Path(tutelage.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Problem")):
                    found.add(f"Problem: {problem(node)}")
                case ast.Call(func=ast.Name(id=kind), args=[message, *_]) if kind in ERRORS - OF_PROBLEMS:
                    found.add(f"{kind}: {template(message)}".replace("\n", "\\n"))
    return sorted(found)


def test_the_sentences_of_errors_are_those_of_the_list():
    written, listed = set(sentences()), set(SENTENCES.read_text(encoding="utf-8").splitlines())
    changed = [f"+ {one}" for one in sorted(written - listed)] + [f"- {one}" for one in sorted(listed - written)]
    assert not changed, "\n".join([*changed, "If this is meant, run this file as a script."])


def test_a_program_can_tell_errors_apart_without_their_sentences():
    error = exceptions.InvalidParameterError(exceptions.Problem("plan.epsilon", "be above 0", "-1", "Raise $epsilon."))
    assert (error.code, error.parameter) == ("invalid-parameter", "epsilon")
    assert str(error) == "`epsilon` of plan must be above 0. Got -1. Raise `epsilon`."
    assert error.said(on_command_line) == ("--epsilon must be above 0. Got -1. Raise --epsilon.",)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


if __name__ == "__main__":
    SENTENCES.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
