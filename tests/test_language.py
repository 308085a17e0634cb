"""The words of pages, docstrings, messages and comments: American spelling, and no phrase that is listed here."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import REPOSITORY

# Each phrase is a regular expression, beside words to use instead. Add phrases freely; `\b` is put around them.
DIALECT = {
    r"mends?|mended|mending": "fix",
    r"finds? out|found out": "detect, or discover",
    r"by hand": "manually",
    r"anew": "again",
    r"and (?:is|are) none": "but is not",
    r"as which": "name the noun",
    r"belongs? into": "belongs in",
    r"wants? to be (?:told|asked)": "needs",
    r"nobody|is none of (?:these|them)": "a passive, or the name of the component",
    r"got round|gets? round": "bypass",
    r"yours to see to|to see to": "you must make sure",
    r"stands? for (?:it|them)|as it stands": "replace, or without changes",
    r"for any votes": "worst-case",
    r"by the votes": "vote-dependent",
    r"sanitised|sanitized": "tested",
    r"asked rows?|rows? (?:that )?(?:is|are|were|was) asked": "query",
    r"foretells?|foretold": "predict",
    r"dealt (?:out )?(?:to|by)": "assigned to, divided by",
    r"put back": "restore",
    r"say nothing|says nothing": "abstain, or does not state",
    r"whatever the votes": "for every possible set of votes",
    r"(?<!there )(?:is|are) no (?:vulnerabilit(?:y|ies)|tables?|class|classes|numbers?|guarantees?)": "is not a",
}
# Stand-ins for a noun, except in questions.
SENTENCES = r"(?:What|Who|Whoever|Whatever|That which) (?![^.?!]*\?)"

BRITISH = {
    r"(?:un)?label(?:led|ling)": "labeled",
    r"neighbour\w*": "neighbor",
    r"colour\w*": "color",
    r"behaviour\w*": "behavior",
    r"favour\w*": "favor",
    r"honour\w*": "honor",
    r"centre[sd]?": "center",
    r"metres?": "meter",
    r"licence[sd]?": "license",
    r"defence": "defense",
    r"cancelled|cancelling": "canceled",
    r"modelled|modelling": "modeled",
    r"travelled|signalled|totalled|levelled": "one l",
    r"grey": "gray",
    r"programmes?": "program",
    r"catalogues?": "catalog",
    r"judgement": "judgment",
    r"whilst|amongst|towards": "while, among, toward",
    r"(?:real|optim|min|max|normal|random|recogn|organ|general|summar|emphas|anonym|penal|standard|util|initial|"
    r"regular|parallel|quant|character|memor|author|sanit|final|serial|vector|discret|factor)"
    r"is(?:e|es|ed|ing|ation|ations|er|ers)": "-ize",
    r"analys(?:e|ed|ing)": "-yze",
}

RECORD = "src/tutelage/reporting/record.py"
EXEMPT = {"dialect": (RECORD,), "British": ()}  # of a list of claims

FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
MARKUP = re.compile(
    r"``.+?``|`[^`]+`|\]\([^)]*\)|<[^>]+>|https?://\S+|\$[^$]+\$|'[^'\s]+'", re.DOTALL
)


def pieces(text: str) -> Iterator[str]:
    """Yield the paragraphs, items and rows of a text, each as one line."""
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.))", text):
        yield " ".join(part.split())


def prose_of_python(text: str) -> Iterator[str]:
    """Yield the comments, the docstrings and the messages: strings of several words."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value.strip()
        ):
            yield from pieces(
                re.sub(r"^ *>>>.*$|^ *\.\.\. .*$", "", node.value, flags=re.MULTILINE)
            )


def found_in(path: Path, phrases: dict[str, str], sentences: str = "") -> list[str]:
    """Return the phrases in the prose of a page or module, without its code."""
    text = path.read_text(encoding="utf-8")
    prose = prose_of_python(text) if path.suffix == ".py" else pieces(FENCED.sub("", text))
    pattern = rf"(?i:\b(?:{'|'.join(phrases)})\b)"
    if sentences:
        pattern += rf"|(?:^|(?<=[.:!] ))\s*(?:[-*|] )?{sentences}"
    told = ((said, found) for said in prose for found in re.findall(pattern, MARKUP.sub(" ", said)))
    return [f"{path.relative_to(REPOSITORY)}: {found!r} in {said!r}" for said, found in told]


def texts() -> list[Path]:
    pages = [
        page for folder in ("docs", "examples") for page in (REPOSITORY / folder).rglob("*.md")
    ]
    folders = ("src", "consortium/src", "reproductions", "examples", "tools")
    modules = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    return sorted([*REPOSITORY.glob("*.md"), *pages, *modules])


@pytest.mark.rest
@pytest.mark.parametrize(
    ("kind", "phrases", "sentences"), [("dialect", DIALECT, SENTENCES), ("British", BRITISH, "")]
)
def test_no_text_has_a_phrase_of_the_list(kind, phrases, sentences):
    read = set(texts()) - {REPOSITORY / name for name in EXEMPT[kind]}
    findings = [finding for path in sorted(read) for finding in found_in(path, phrases, sentences)]
    assert not findings, "\n".join(findings)
