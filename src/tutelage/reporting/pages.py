"""A card as a page: its contents, and how they are set as Markdown or as one self-contained HTML file.

Both show the same words and numbers; Markdown has the captions of the figures only. The HTML file has style and
drawings inside, runs no script and fetches nothing.
"""

import re
from importlib.resources import files
from typing import NamedTuple

from tutelage._internal.html import escape, facts, straight
from tutelage.reporting.drawings import Drawing
from tutelage.reporting.lints import Finding
from tutelage.reporting.meaning import RULE, Verdict

NO_OBJECTIONS = (
    "None were found. δ is compared with the number of units only if that number is public or declared. Tuning on "
    "private rows is known only if it is declared. Private rows among the public rows are found by "
    "tutelage audit, not here."
)
NOT_STATED = "not stated"
# A browser that opens the file runs no script, fetches nothing and sends no form, whatever a name in it says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SIGNS = re.compile(r"([\\|<\[`])")


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


def page_of(page: Page) -> str:
    """Return the page as HTML in which names and statements are text, whatever they hold."""
    parts = "".join(_part(number, part) for number, part in enumerate(page.parts, 1))
    alarm = "" if page.alarm is None else f'<p class="alarm" role="alert">{escape(page.alarm)}</p>'
    body = (
        f"<header>{alarm}<p class=kicker>{escape(page.subtitle)}</p><h1>{escape(page.title)}</h1></header>"
        f"<main>{_first_page(page)}<div class=annex>{_contents(page.parts)}{_findings(page.findings)}"
        f"{parts}</div></main><footer>Made by tutelage. The first headings of the annex are components of the "
        "differential privacy pyramid of NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees "
        "(2025).</footer>"
    )
    return document(page.title, body, "simulated" if page.alarm else "")


def document(title: str, body: str, kind: str = "") -> str:
    """Return a whole file around the body."""
    style = files("tutelage.reporting").joinpath("page.css").read_text(encoding="utf-8")
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
    )
    return (
        f'{head}<title>{escape(title)}</title><style>{style}</style></head><body class="{kind}">{body}</body></html>\n'
    )


def figure(drawing: Drawing) -> str:
    """Return a drawing with its title and caption."""
    return (
        f"<figure><figcaption><strong>{escape(drawing.title)}</strong> {escape(drawing.caption)}</figcaption>"
        f"{drawing.svg}</figure>"
    )


def _first_page(page: Page) -> str:
    return (
        f'<section class=first aria-label="First page"><p class=sentence>{escape(page.sentence)}</p>'
        f'<p class="verdict {page.verdict.word}"><strong>Verdict on ε: {page.verdict.word}.</strong> '
        f"{escape(page.verdict.reason)} <span>{RULE}</span></p>"
        f"{facts(page.facts.rows)}</section>"
    )


def _contents(parts: tuple[Part, ...]) -> str:
    entries = []
    for number, part in enumerate(parts, 1):
        links = "".join(
            f'<li><a href="#{_anchor(number, place)}">{escape(section.title)}</a></li>'
            for place, section in enumerate(part.sections, 1)
        )
        entries.append(f"<li>{escape(part.title)}<ul>{links}</ul></li>")
    return f'<h2 class=top>Annex</h2><nav aria-label="Contents of the annex"><ol>{"".join(entries)}</ol></nav>'


def _findings(findings: tuple[Finding, ...] | None) -> str:
    if findings is None:
        inside = "<p>The settings were not checked.</p>"
    elif not findings:
        inside = f"<p>{NO_OBJECTIONS}</p>"
    else:
        entries = (
            f'<li class="{entry.severity}"><strong>{entry.severity}</strong> {escape(entry.reason)}</li>'
            for entry in findings
        )
        inside = f"<ul>{''.join(entries)}</ul>"
    return f'<section class="findings"><h2>Objections</h2>{inside}</section>'


def _part(number: int, part: Part) -> str:
    sections = (
        f'<section id="{_anchor(number, place)}"><h3>{escape(section.title)}</h3>'
        f"{''.join(map(_block, section.blocks))}</section>"
        for place, section in enumerate(part.sections, 1)
    )
    return f"<section class=part><h2>{escape(part.title)}</h2>{''.join(sections)}</section>"


def _anchor(part: int, section: int) -> str:
    return f"section-{part}-{section}"


def _block(block: Block) -> str:
    match block:
        case Prose(text):
            return f"<p>{escape(text)}</p>"
        case Facts(rows):
            return facts(rows)
        case Bullets(sentences):
            return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"
        case Code(about, text):
            return f'<p>{escape(about)}</p><pre tabindex="0"><code>{escape(text)}</code></pre>'
        case Statement(about, text):
            return f'<p class="statement"><span>Stated, {escape(about)}:</span>{escape(text)}</p>'
        case Drawing():
            return figure(block)


def markdown_of(page: Page) -> str:
    """Return the page as Markdown in which names and statements are text, whatever they hold."""
    lines = [f"# {page.title}", "", plain(page.subtitle), ""]
    if page.alarm is not None:
        lines += [f"> **{page.alarm}**", ""]
    lines += [f"**{plain(page.sentence)}**", ""]
    lines += [f"Verdict on ε: **{page.verdict.word}**. {plain(page.verdict.reason)} {RULE}", ""]
    lines += [*_markdown_table(page.facts.rows), ""]
    lines += ["## Annex: objections", "", *_markdown_findings(page.findings), ""]
    for part in page.parts:
        lines += [f"## Annex: {part.title[0].lower()}{part.title[1:]}", ""]
        for section in part.sections:
            lines += [f"### {section.title}", ""]
            for block in section.blocks:
                lines += [*_markdown_lines(block), ""]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return text in one line that opens no tag, table cell, link or code, and runs one way."""
    return _SIGNS.sub(r"\\\1", straight(" ".join(text.split())))


def _markdown_lines(block: Block) -> list[str]:
    match block:
        case Prose(text):
            return [plain(text)]
        case Facts(rows):
            return _markdown_table(rows)
        case Bullets(sentences):
            return [f"- {plain(sentence)}" for sentence in sentences]
        case Code(about, text):
            return [plain(about), "", f"    {straight(' '.join(text.split()))}"]
        case Statement(about, text):
            return [f"*Stated, {about}:* {plain(text)}"]
        case Drawing(title, caption):
            return [f"*{title}{'' if title.endswith('?') else '.'}* {plain(caption)} (Drawn in card.html.)"]


def _markdown_table(rows: tuple[tuple[str, str], ...]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {plain(name)} | {plain(value)} |" for name, value in rows)]


def _markdown_findings(findings: tuple[Finding, ...] | None) -> list[str]:
    if findings is None:
        return ["The settings were not checked."]
    if not findings:
        return [NO_OBJECTIONS]
    return [f"- **{plain(finding.severity)}**: {plain(finding.reason)}" for finding in findings]
