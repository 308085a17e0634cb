"""What a page says, before it is set as Markdown or HTML."""

from dataclasses import dataclass
from typing import final

from tutelage.reporting.drawings import Drawing
from tutelage.reporting.lints import Finding

NOT_STATED = "not stated"


@final
@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values."""

    rows: tuple[tuple[str, str], ...]


@final
@dataclass(frozen=True, slots=True)
class Bullets:
    """Sentences, one below the other."""

    sentences: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """What the people behind the data say, or None where they do not."""

    about: str
    text: str | None


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """A question with what the software knows and what the people behind the data say; both may be missing."""

    question: str
    known: str | None
    stated: str | None


@final
@dataclass(frozen=True, slots=True)
class Answers:
    """Questions and answers, numbered."""

    entries: tuple[Answer, ...]


@final
@dataclass(frozen=True, slots=True)
class Findings:
    """What was objected to; None where nobody looked."""

    entries: tuple[Finding, ...] | None


Block = Prose | Facts | Bullets | Statement | Answers | Drawing


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


@final
@dataclass(frozen=True, slots=True)
class Part:
    """Sections under one heading."""

    title: str
    sections: tuple[Section, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    alarm: str | None
    claim: tuple[str, str]
    highlights: tuple[tuple[str, str], ...]
    picture: Drawing
    findings: Findings
    parts: tuple[Part, ...]
