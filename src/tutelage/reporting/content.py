"""What a page says, before it is set as Markdown or HTML."""

from typing import NamedTuple

from tutelage.reporting.drawings import Drawing
from tutelage.reporting.lints import Finding

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


class Statement(NamedTuple):
    """What the people behind the data say, or None where they do not."""

    about: str
    text: str | None


class Answer(NamedTuple):
    """A question with what the software knows and what the people behind the data say; both may be missing."""

    question: str
    known: str | None
    stated: str | None


class Answers(NamedTuple):
    """Questions and answers, numbered."""

    entries: tuple[Answer, ...]


Block = Prose | Facts | Bullets | Statement | Answers | Drawing


class Section(NamedTuple):
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


class Part(NamedTuple):
    """Sections under one heading."""

    title: str
    sections: tuple[Section, ...]


class Page(NamedTuple):
    """A whole page."""

    title: str
    subtitle: str
    alarm: str | None
    claim: tuple[str, str]
    highlights: tuple[tuple[str, str], ...]
    picture: Drawing
    findings: tuple[Finding, ...] | None  # None where nobody looked
    parts: tuple[Part, ...]
