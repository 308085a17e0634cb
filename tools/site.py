"""Makes pages of files of the repository, and corrects links that lead out of docs/.

A hook of mkdocs.yml. Some files outside docs/ become pages, the examples among them. A link from a page to another file
of the repository leads to the repository if its address is known, and becomes plain text if not. In the repository
itself all these links work as they are. A page that would fetch anything from elsewhere is reported. Tables and figures
get what a small screen and a screen reader need.
"""

import html as markup
import logging
import os
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import urljoin

from gallery import sections
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = {
    "examples/README.md": "examples/index.md",
    "examples/consortium/README.md": "examples/consortium.md",
}
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "RESULTS.md": "results.md",
    "SECURITY.md": "security.md",
    **EXAMPLES,
}
FOUND_LAST = re.compile(
    "reference/|proofs/|results/|(?:architecture|changelog|contributing|dependencies|security).md"
)
LINK = re.compile(
    r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?((?:\s+\"[^\"]*\")?)\)"
)
FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^\s\">]+")
CELL = re.compile(r"<td[ >].*?</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]*")
LONG = 24  # characters
MANY = 6  # names in a cell that are worth folding
PROSE = 40  # characters: a cell with more needs a column that is wide enough to read
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
TITLED = re.compile(r"<h[1-6][^>]*>(.*?)</h[1-6]>|<table>.*?</table>", re.DOTALL)
TAG = re.compile(r"<a class=\"headerlink\".*?</a>|<[^>]*>")
EMPTY = re.compile(r"<th([^>]*)></th>")
FIGURE = re.compile(r"<p>(<img [^>]*>)</p>")
MAP = re.compile(r"\s*(?://|/\*)# sourceMappingURL=\S+?(?:\s*\*/|$)", re.MULTILINE)
LOG = logging.getLogger("mkdocs.hooks.site")  # MkDocs counts warnings of loggers below its own


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Drop edit links without a repository and pages without a file; published versions can be chosen."""
    if not config.repo_url:
        config.edit_uri = None
    # Published with other versions, whose list a page fetches; never on a disk.
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike"}
    missing = {page for name, page in OUTSIDE.items() if not (ROOT / name).is_file()}
    config.nav = without(cast("Any", config).nav, missing)
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ as pages."""
    for name, page in OUTSIDE.items():
        if (ROOT / name).is_file():
            text = (ROOT / name).read_text()
            if name in EXAMPLES:
                text = f"{text}\n{sections(ROOT / name)}"
            files.append(File.generated(config, page, content=moved(text, name, page)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Lead links to files outside docs/ to where a reader finds them, and the edit link of such a file to the file."""
    source = next((name for name, made in OUTSIDE.items() if made == page.file.src_uri), None)
    if source and config.repo_url:
        page.edit_url = urljoin(f"{config.repo_url.rstrip('/')}/{config.edit_uri}", f"../{source}")
    if FOUND_LAST.match(page.file.src_uri):
        page.meta.setdefault("search", {"boost": 0.1})  # search shows guides before them
    keywords: dict[str, list[str]] = cast("Any", config).extra["keywords"]
    if page.file.src_uri in keywords:
        page.meta["tags"] = keywords[page.file.src_uri]
    return unlinked(markdown, page.file.src_uri, config.repo_url)


def on_page_content(html: str, **_: Any) -> str:
    """Let tables scroll in a box of their own, say where long names in them may break, and give figures a caption."""
    return FIGURE.sub(
        lambda found: figure(found[1]), boxed(CELL.sub(lambda cell: readable(cell[0]), html))
    )


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Report what a reader's browser would fetch from elsewhere, and name the theme's search for a screen reader."""
    for found in FETCHED.findall(output):
        LOG.warning("%s fetches from elsewhere: %s", page.file.src_uri, found)
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def on_post_build(*, config: MkDocsConfig) -> None:
    """Drop the source maps of the theme, and what refers to them."""
    for path in Path(config.site_dir).rglob("*.map"):
        path.unlink()
        text = path.with_suffix("").read_text()
        path.with_suffix("").write_text(MAP.sub("", text))


def without(nav: Any, pages: set[str]) -> Any:
    """Return a navigation without some pages, and without the sections that this leaves empty."""
    if isinstance(nav, list):
        entries = [without(entry, pages) for entry in cast("list[Any]", nav)]
        return [entry for entry in entries if entry]
    if isinstance(nav, dict):
        sections_of = cast("dict[str, Any]", nav)
        entries = {title: without(entry, pages) for title, entry in sections_of.items()}
        return {title: entry for title, entry in entries.items() if entry}
    return None if nav in pages else nav


def moved(text: str, name: str, page: str) -> str:
    """Return the text of a file as that of a page elsewhere: links start from there, what it folds is Markdown."""

    def link(found: re.Match[str]) -> str:
        image, words, target, anchor, title = found.groups(default="")
        if ":" not in target:
            target = relative((ROOT / name).parent / target, page)
        return f"{image}[{words}]({target}{anchor}{title})"

    def prose(part: str) -> str:
        return LINK.sub(link, part).replace("<details>", '<details markdown="1">')

    return outside_fences(text, prose)


def unlinked(markdown: str, page: str, repository: str | None = None) -> str:
    """Return a page whose links to files outside docs/ lead to their pages or the repository, or else are text."""

    def resolved(found: re.Match[str]) -> str:
        image, words, target, anchor, title = found.groups(default="")
        path = Path(os.path.normpath((DOCS / page).parent / target))
        if image or ":" in target or path.is_relative_to(DOCS) or not path.exists():
            return found[0]  # a page of the site, an address, or a dead link, which MkDocs reports
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir() and f"{name}/README.md" in OUTSIDE:
            name = f"{name}/README.md"
        if name in OUTSIDE:
            return f"[{words}]({relative(DOCS / OUTSIDE[name], page)}{anchor}{title})"
        if made := EXAMPLES.get(f"{path.relative_to(ROOT).parent.as_posix()}/README.md"):
            section = f"#{slugify(case='lower')(path.name, '-')}"
            return f"[{words}]({section if made == page else relative(DOCS / made, page) + section}{title})"
        if repository:
            return f"[{words}]({repository.rstrip('/')}/blob/main/{name}{anchor}{title})"
        return f"`{name}`" if words.strip("`") in (name, path.name) else f"{words} (`{name}`)"

    return outside_fences(markdown, lambda prose: LINK.sub(resolved, prose))


def relative(path: Path, page: str) -> str:
    """Return where a file is, from a page of the site."""
    return Path(os.path.relpath(path, (DOCS / page).parent)).as_posix()


def readable(cell: str) -> str:
    """Return a cell of a table whose names may break: folded if it is a long list of names, marked if it is prose."""
    names = len(CODE.findall(cell))
    cell = CODE.sub(lambda code: breakable(code[0]), cell)
    if names > MANY and not re.search(r"</code>(?!, <code>|</td>)", cell):
        cell = re.sub(
            r"(<td[^>]*>)(.*)</td>",
            rf"\1<details><summary>{names} names</summary>\2</details></td>",
            cell,
        )
    return cell.replace("<td", '<td class="prose"', 1) if len(words_of(cell)) > PROSE else cell


def breakable(code: str) -> str:
    """Return code that may break between the parts of a name, if it is long."""
    if len(code) < LONG:
        return code
    return re.sub(r"/(?=\w)" if "/" in code else r"[._](?=\w)", r"\g<0><wbr>", code)


def boxed(html: str) -> str:
    """Return a page whose tables can be scrolled, by keyboard too; each is named by the heading above it."""
    heading, number = "", count(1)

    def box(found: re.Match[str]) -> str:
        nonlocal heading
        if found[1] is not None:
            heading = words_of(found[1])
            return found[0]
        label = markup.escape(f"Table {next(number)}: {heading}")
        table = EMPTY.sub(r"<td\1></td>", found[0])  # an empty header is not a header
        return f'<div class="table" role="group" aria-label="{label}" tabindex="0">{table}</div>'

    return TITLED.sub(box, html)


def figure(image: str) -> str:
    """Return an image with a caption: its title, or else its text alternative."""
    words = re.search(r'title="([^"]+)"', image) or re.search(r'alt="([^"]+)"', image)
    caption = words[1][0].upper() + words[1][1:] if words else ""
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def words_of(html: str) -> str:
    """Return what is read of HTML."""
    return " ".join(markup.unescape(TAG.sub("", html)).split())


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Return a page with everything changed but its fenced blocks."""
    parts = FENCE.split(markdown)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))
