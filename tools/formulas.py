"""Formulas on the site, without a script: `σ_s`, `e^{−x²}` in prose become letters below and above the line.

A hook of mkdocs.yml. Formulas are plain text, so that they can be read in the source too; braces may be nested.
"""

import re
from typing import Any

from mkdocs.structure.pages import Page

LITERAL = re.compile(
    r"(^```.*?^```$|``.*?``|`[^`]*`|\]\([^)]*\)|<!--.*?-->|https?://\S+|^#+ .*?$)", re.MULTILINE | re.DOTALL
)
SCRIPT = re.compile(r"(?<=\S)([_^])(?:([A-Za-z0-9]+|[α-ωΑ-Ω])|\{)")
TAGS = {"_": "sub", "^": "sup"}


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Set the formulas of a page; the reference is code throughout."""
    if page.file.src_uri.startswith("reference/"):
        return markdown
    parts = LITERAL.split(markdown)
    return "".join(part if index % 2 else typeset(part) for index, part in enumerate(parts))


def typeset(text: str) -> str:
    """Return text with what follows _ and ^ put below and above the line."""
    done, at = "", 0
    while script := SCRIPT.search(text, at):
        inner, end = script[2], script.end()
        if inner is None:
            end = closing_brace(text, script.end())
            inner = typeset(text[script.end() : end - 1].replace("<", "&lt;"))
        tag = TAGS[script[1]]
        done += f"{text[at : script.start()]}<{tag}>{inner}</{tag}>"
        at = end
    return done + text[at:]


def closing_brace(text: str, start: int) -> int:
    """Return the place after the brace that closes the one before a place."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    raise ValueError(f"A brace of the formula {text[start - 2 : start + 40]!r} is not closed; close it.")
