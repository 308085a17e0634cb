"""A card as Markdown: the words, the numbers, and the captions of the figures."""

import re

from tutelage._internal.html import straight
from tutelage.reporting.content import (
    NO_OBJECTIONS,
    Block,
    Bullets,
    Code,
    Facts,
    Page,
    Prose,
    Statement,
)
from tutelage.reporting.drawings import Drawing
from tutelage.reporting.lints import Finding
from tutelage.reporting.meaning import RULE

_SIGNS = re.compile(r"([\\|<\[`])")


def markdown_of(page: Page) -> str:
    """Return the page as Markdown in which names and statements are text, whatever they hold."""
    lines = [f"# {page.title}", "", plain(page.subtitle), ""]
    if page.alarm is not None:
        lines += [f"> **{page.alarm}**", ""]
    lines += [f"**{plain(page.sentence)}**", ""]
    lines += [f"Verdict on ε: **{page.verdict.word}**. {plain(page.verdict.reason)} {RULE}", ""]
    lines += [*_table(page.facts.rows), ""]
    lines += ["## Annex: objections", "", *_findings(page.findings), ""]
    for part in page.parts:
        lines += [f"## Annex: {part.title[0].lower()}{part.title[1:]}", ""]
        for section in part.sections:
            lines += [f"### {section.title}", ""]
            for block in section.blocks:
                lines += [*_lines(block), ""]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return text in one line that opens no tag, table cell, link or code, and runs one way."""
    return _SIGNS.sub(r"\\\1", straight(" ".join(text.split())))


def _lines(block: Block) -> list[str]:
    match block:
        case Prose(text):
            return [plain(text)]
        case Facts(rows):
            return _table(rows)
        case Bullets(sentences):
            return [f"- {plain(sentence)}" for sentence in sentences]
        case Code(about, text):
            return [plain(about), "", f"    {straight(' '.join(text.split()))}"]
        case Statement(about, text):
            return [f"*Stated, {about}:* {plain(text)}"]
        case Drawing(title, caption):
            return [f"*{title}{'' if title.endswith('?') else '.'}* {plain(caption)} (Drawn in card.html.)"]


def _table(rows: tuple[tuple[str, str], ...]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {plain(name)} | {plain(value)} |" for name, value in rows)]


def _findings(findings: tuple[Finding, ...] | None) -> list[str]:
    if findings is None:
        return ["The settings were not checked."]
    if not findings:
        return [NO_OBJECTIONS]
    return [f"- **{plain(finding.severity)}**: {plain(finding.reason)}" for finding in findings]
