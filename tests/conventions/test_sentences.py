"""The sentences of all errors, in one list: a change of wording shows in its diff, and no other test pins it.

`python tests/conventions/test_sentences.py` writes the list again.
"""

import ast
from pathlib import Path

import tutelage
from tutelage import exceptions

SENTENCES = Path(__file__).parents[1] / "golden" / "sentences.txt"
ERRORS = {
    name
    for name, kind in vars(exceptions).items()
    if isinstance(kind, type) and issubclass(kind, exceptions.TutelageError)
}


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


def sentences() -> list[str]:
    """Return the kind and message of every error that the package makes."""
    found = set[str]()
    for path in Path(tutelage.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS and node.args:
                found.add(f"{node.func.id}: {template(node.args[0])}".replace("\n", "\\n"))
    return sorted(found)


def test_the_sentences_of_errors_are_those_of_the_list():
    written, listed = set(sentences()), set(SENTENCES.read_text(encoding="utf-8").splitlines())
    changed = [f"+ {one}" for one in sorted(written - listed)] + [f"- {one}" for one in sorted(listed - written)]
    assert not changed, "\n".join([*changed, "If this is meant, run this file as a script."])


def test_a_program_can_tell_errors_apart_without_their_sentences():
    error = exceptions.InvalidParameterError("`epsilon` of plan must be above 0, and `delta` below 1.")
    assert (error.code, error.parameter) == ("invalid-parameter", "epsilon")
    assert exceptions.QuorumError("Too few.").parameter is None


if __name__ == "__main__":
    SENTENCES.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
