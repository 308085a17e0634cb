"""The contents of a card, before they are set as Markdown or HTML."""

from typing import NamedTuple

from tutelage.reporting.drawings import Drawing
from tutelage.reporting.lints import Finding
from tutelage.reporting.meaning import Verdict

NO_OBJECTIONS = (
    "None were found. δ is compared with the number of units only if that number is public or declared. Tuning on "
    "private rows is known only if it is declared. Private rows among the public rows are found by "
    "tutelage audit, not here."
)
NOT_STATED = "not stated"


class Prose(NamedTuple):
    """A paragraph."""

    text: str


class Facts(NamedTuple):
    """Names and their values."""

    rows: tuple[tuple[str, str], ...]


class Bullets(NamedTuple):
    """Sentences, one below the other."""

    sentences: tuple[str, ...]


class Code(NamedTuple):
    """Something to type or compare, in one line, and what it is for."""

    about: str
    text: str


class Statement(NamedTuple):
    """Statement of the data set owner on a topic."""

    about: str
    text: str


Block = Prose | Facts | Bullets | Code | Statement | Drawing


class Section(NamedTuple):
    """A heading and the blocks below it."""

    title: str
    blocks: tuple[Block, ...]


class Part(NamedTuple):
    """Sections under one heading of the annex."""

    title: str
    sections: tuple[Section, ...]


class Page(NamedTuple):
    """A whole card: a first page to read aloud, and an annex."""

    title: str
    subtitle: str
    alarm: str | None
    sentence: str
    verdict: Verdict
    facts: Facts
    findings: tuple[Finding, ...] | None  # None where the settings were not checked
    parts: tuple[Part, ...]
