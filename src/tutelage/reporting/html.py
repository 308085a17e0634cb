"""A card as one self-contained HTML file: style and drawings inside, no scripts, nothing fetched."""

from importlib.resources import files

from tutelage._internal.html import escape, facts
from tutelage.reporting.content import (
    NO_OBJECTIONS,
    Block,
    Bullets,
    Code,
    Facts,
    Page,
    Part,
    Prose,
    Statement,
)
from tutelage.reporting.drawings import Drawing
from tutelage.reporting.lints import Finding
from tutelage.reporting.meaning import RULE

# A browser that opens the file runs no script, fetches nothing and sends no form, whatever a name in it says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page_of(page: Page) -> str:
    """Return the page as HTML in which names and statements are text, whatever they hold."""
    parts = "".join(_part(number, part) for number, part in enumerate(page.parts, 1))
    body = (
        f"{_header(page)}<main>{_first_page(page)}<div class=annex>{_contents(page.parts)}{_findings(page.findings)}"
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


def _header(page: Page) -> str:
    alarm = "" if page.alarm is None else f'<p class="alarm" role="alert">{escape(page.alarm)}</p>'
    return f"<header>{alarm}<p class=kicker>{escape(page.subtitle)}</p><h1>{escape(page.title)}</h1></header>"


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
