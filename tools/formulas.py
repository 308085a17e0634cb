r"""Formulas of the site as MathML, which browsers show without a script and without the network.

A hook of mkdocs.yml. Pages have LaTeX between dollars, which the repository renders too. The extension
pymdownx.arithmatex finds it and leaves code alone; this hook converts it. LaTeX that cannot be converted fails the
build. A display equation has the number of its \tag. In prose without dollars, `e^ε` becomes a superscript.
"""

import html
import re
from typing import Any
from xml.etree import ElementTree as ET

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

WIDEST = 40  # characters of an inline formula: browsers do not break it, and it must fit a phone
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
FIXED = re.compile(r"\\[Bb]igg?([lr])(?![A-Za-z])")
TAG = re.compile(r"\\tag\{(\w+)\}")
NOT_PROSE = re.compile(r"(<(pre|code|script|style|math)\b.*?</\2>|<[^>]*>|https?://\S+)", re.DOTALL)
ESCAPE = re.compile(r"\\[^A-Za-z ]")
SUPERSCRIPT = re.compile(r"(?<=\w)\^(\w+)")
NAMESPACE = "http://www.w3.org/1998/Math/MathML"
PRIME = "\N{PRIME}"
SIGNS = ("−", "±", "∓")
RELATIONS = set("=<>≤≥∈∝(,")  # after one of them a minus is a sign
ET.register_namespace("", NAMESPACE)


def on_page_content(content: str, *, page: Page, **_: Any) -> str:
    """Return a page with its formulas set."""
    try:
        return typeset(content)
    except ValueError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error


def typeset(content: str) -> str:
    """Return the HTML of a page with its formulas set."""
    parts = NOT_PROSE.split(FORMULA.sub(equation, content))
    prose, literals = parts[::3], parts[1::3]
    for text in prose:
        if "$$" in text or re.search(r"\\[a-z]", text):
            raise ValueError(
                f"{text.strip()[:80]!r} has LaTeX outside of dollars; put blank lines around $$."
            )
    done = [SUPERSCRIPT.sub(r"<sup>\1</sup>", text) for text in prose]
    return "".join(text + literal for text, literal in zip(done, [*literals, ""], strict=True))


def equation(found: re.Match[str]) -> str:
    """Return one formula: MathML, for a display equation in a box that scrolls by itself, with its number."""
    latex = html.unescape(found[2]).strip()
    if found[1] == "span":
        return mathml(latex, "inline")
    number = "".join(f"<span>({tag})</span>" for tag in TAG.findall(latex))
    label = f"Equation {TAG.findall(latex)[0]}" if number else "Equation"
    box = f'<div class="equation" role="group" aria-label="{label}" tabindex="0">'
    return f"{box}{mathml(TAG.sub('', latex), 'block')}{number}</div>"


def _stretched(latex: str) -> str:
    """Return LaTeX whose large brackets are as high as their content: fixed heights are lost in browsers."""
    return FIXED.sub(lambda found: {"l": r"\left", "r": r"\right"}[found[1]], latex)


def mathml(latex: str, display: str) -> str:
    """Return LaTeX as MathML."""
    if escape := ESCAPE.search(latex):
        raise ValueError(
            f"LaTeX ${latex}$ has {escape[0]}, which Markdown changes on the repository; avoid it."
        )
    try:
        root = ET.fromstring(convert(_stretched(latex), display=display))  # noqa: S314  made here
    except Exception as error:  # the library has no common class of errors
        raise ValueError(f"LaTeX ${latex}$ cannot be converted; correct it.") from error
    read = "".join(root.itertext())
    if "\\" in read or "&" in read:
        raise ValueError(
            f"LaTeX ${latex}$ has a command that latex2mathml does not know; use another one."
        )
    if display == "inline" and len(read) > WIDEST:
        raise ValueError(
            f"LaTeX ${latex}$ is too wide for a line on a phone; set it between $$ or in parts."
        )
    for parent in root.iter():
        space(parent)
    for script in [*root.iter(f"{{{NAMESPACE}}}msup"), *root.iter(f"{{{NAMESPACE}}}msubsup")]:
        lower_prime(script)
    return ET.tostring(root, encoding="unicode")


def space(parent: ET.Element) -> None:
    """Set the space around names of functions, slashes and signs, which the library leaves to the browser."""
    before = ""
    for place, child in enumerate(parent):
        text, kind = child.text or "", child.tag.rpartition("}")[2]
        if kind in ("mi", "mo") and len(text) > 1 and text.isalpha():
            opens = place + 1 < len(parent) and parent[place + 1].text == "("
            child.tag = f"{{{NAMESPACE}}}mo"
            child.attrib = {"lspace": "0.17em", "rspace": "0" if opens else "0.17em"}
        elif text == "/":
            child.attrib = {"lspace": "0", "rspace": "0"}
        elif text in SIGNS:
            child.tag = f"{{{NAMESPACE}}}mo"
            child.attrib = (
                {"form": "prefix"} if not place or before in RELATIONS else {"form": "infix"}
            )
        elif text in (":", "~", ";"):
            child.tag = f"{{{NAMESPACE}}}mo"
            child.attrib = {"lspace": "0" if text == ";" else "0.28em", "rspace": "0.28em"}
        before = text


def lower_prime(script: ET.Element) -> None:
    """Set a prime at full size: few fonts have one for superscripts, and without it a prime is tiny."""
    above = script[-1]
    prime = above if above.text == PRIME else next(iter(above), above)
    if prime.text != PRIME:
        return
    base = ET.Element(f"{{{NAMESPACE}}}mrow")
    base.append(script[0])
    ET.SubElement(base, f"{{{NAMESPACE}}}mo", lspace="0", rspace="0").text = PRIME
    script[0] = base
    if prime is above:
        script.remove(above)
        script.tag = f"{{{NAMESPACE}}}{'msub' if len(script) > 1 else 'mrow'}"
    else:
        above.remove(prime)
