"""What MkDocs cannot do by itself for the site: files of the repository as pages, and links that lead out of docs/.

A hook of mkdocs.yml. Files at the root of the repository become pages; a link from a page to another file of the
repository, which the site does not hold, becomes plain text. On the repository itself both work as they are. A page
that would fetch anything from elsewhere is reported.
"""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "RESULTS.md": "results.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^\s\">]+")
CELL = re.compile(r"<td[ >].*?</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]*")
LONG = 24  # characters
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LOG = logging.getLogger("mkdocs.hooks.site")  # MkDocs counts warnings of loggers below its own


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Drop from the navigation the pages whose file at the root does not exist."""
    config.nav = without(config.nav, {page for name, page in ROOT_PAGES.items() if not (ROOT / name).is_file()})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files at the root as pages."""
    for name, page in ROOT_PAGES.items():
        if (ROOT / name).is_file():
            files.append(File.generated(config, page, content=root_page((ROOT / name).read_text())))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Lead links to root files to their pages, and unlink what is no page."""
    return unlinked(markdown, page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """Say where long names in tables may break: paths after a slash, others after a dot or an underscore."""
    return CELL.sub(lambda cell: CODE.sub(lambda code: breakable(code[0]), cell[0]), html)


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Report what a reader's browser would fetch from elsewhere."""
    for found in FETCHED.findall(output):
        LOG.warning("%s fetches from elsewhere: %s", page.file.src_uri, found)
    return output


def without(nav: Any, pages: set[str]) -> Any:
    """Return a navigation without some pages, and without the sections that this leaves empty."""
    if isinstance(nav, list):
        return [kept for entry in nav if (kept := without(entry, pages))]
    if isinstance(nav, dict):
        return {title: kept for title, entry in nav.items() if (kept := without(entry, pages))}
    return None if nav in pages else nav


def root_page(text: str) -> str:
    """Return a file of the root as a page in docs/: its links start from there."""

    def moved(found: re.Match[str]) -> str:
        image, words, target, anchor = found.groups(default="")
        if ":" not in target:
            target = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
        return f"{image}[{words}]({target}{anchor})"

    return outside_fences(text, lambda prose: LINK.sub(moved, prose))


def unlinked(markdown: str, page: str) -> str:
    """Return a page with links to root pages led to those, and links to other files of the repository as text."""
    folder = (DOCS / page).parent

    def resolved(found: re.Match[str]) -> str:
        image, words, target, anchor = found.groups(default="")
        path = Path(os.path.normpath(folder / target))
        if image or ":" in target or path.is_relative_to(DOCS) or not path.exists():
            return found[0]  # a page of the site, an address, or a dead link, which MkDocs reports
        name = path.relative_to(ROOT).as_posix()
        if name in ROOT_PAGES:
            return f"[{words}]({Path(os.path.relpath(DOCS / ROOT_PAGES[name], folder)).as_posix()}{anchor})"
        return f"`{name}`" if words.strip("`") in (name, path.name) else f"{words} (`{name}`)"

    return outside_fences(markdown, lambda prose: LINK.sub(resolved, prose))


def breakable(code: str) -> str:
    """Return code that may break between the parts of a name, if it is long."""
    if len(code) < LONG:
        return code
    return re.sub(r"/(?=\w)" if "/" in code else r"[._](?=\w)", r"\g<0><wbr>", code)


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Return a page with everything changed but its fenced blocks."""
    parts = FENCE.split(markdown)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))
