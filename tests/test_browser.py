"""What people read, in a real browser: the card and the site open from a disk without fault."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from test_card import full_card

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

PHONE, DESKTOP = 360, 1280  # pixels
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SITE = [
    "index",
    "faq",
    "examples/index",
    "howto/choose-noise",
    "proofs/pate2018",
    "reference/estimator",
    "results",
]
FINDS = {
    "privacy_guarantee": ("ε", "epsilon"),
    "install": ("install", "cite", "Windows"),
    "which-tool": ("OpenDP",),
    "howto/consortium": ("hospital",),
    "howto/tables": ("csv",),
    "faq": ("GDPR",),
}

pytestmark = pytest.mark.timeout(900)  # building the site is slow on a busy machine


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The Chromium of this machine, or the one that playwright was told to install; nothing is downloaded here."""
    with sync_api.sync_playwright() as running:
        path = next(filter(None, map(shutil.which, NAMES)), running.chromium.executable_path)
        if not Path(path).is_file():
            pytest.skip("there is no Chromium; install one, or run `playwright install chromium`")
        opened = running.chromium.launch(executable_path=path)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    told = {"NO_MKDOCS_2_WARNING": "1", "REPOSITORY_URL": "https://example.org/of/tutelage"}
    folder = tmp_path_factory.mktemp("site")
    build = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    built = subprocess.run(
        build,
        cwd=REPOSITORY,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@contextmanager
def opened(browser: Any, width: int, scheme: str = "light") -> Iterator[tuple[Any, list[str]]]:
    """A page of a browser, and what it does that it should not: errors, and requests that leave the disk."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    faults: list[str] = []
    page.on(
        "console",
        lambda message: (
            faults.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.set_default_timeout(0)  # a busy machine may be slow
    on_disk = ("file:", "data:", "blob:")
    page.on(
        "request",
        lambda request: None if request.url.startswith(on_disk) else faults.append(request.url),
    )
    yield page, faults
    context.close()


def violations(page: Any) -> list[str]:
    """What axe-core objects to."""
    # What a style sheet holds need not be read again.
    options = {"resultTypes": ["violations"], "preload": False}
    found = axe.Axe().run(page, None, options).response["violations"]
    return [f"{one['id']}: {node['html'][:100]}" for one in found for node in one["nodes"]]


def sideways(page: Any) -> int:
    """How many pixels of the page are out of sight to the right."""
    return page.evaluate("document.scrollingElement.scrollWidth - innerWidth")


def obstacles(page: Any) -> list[str]:
    """What axe-core leaves out: closed drawers, contrasts just below the limit, tables without a header."""
    return page.evaluate((REPOSITORY / "tests" / "accessibility.js").read_text())


def look(
    browser: Any, pages: list[Path], check: Callable[[Any], list[str]] = violations
) -> dict[str, list[str]]:
    """Open pages on a phone and a desktop, in light and dark, and return what is wrong."""
    wrong: dict[str, list[str]] = {}
    for width, scheme in ((PHONE, "light"), (PHONE, "dark"), (DESKTOP, "light"), (DESKTOP, "dark")):
        with opened(browser, width, scheme) as (page, faults):
            for path in pages:
                page.goto(path.as_uri())
                found = [*faults, *check(page)]
                if sideways(page) > 0:
                    found.append(f"scrolls sideways by {sideways(page)} pixels")
                if found:
                    wrong[f"{path.name}, {width} pixels, {scheme}"] = found
                faults.clear()
    return wrong


def test_the_card_opens_without_fault(browser, tmp_path):
    full_card().save(tmp_path)
    assert look(browser, [tmp_path / "card.html"]) == {}


@pytest.mark.slow
def test_pages_of_the_site_open_without_fault(browser, site):
    assert look(browser, [site / f"{name}.html" for name in SITE]) == {}
    assert '"version": null' in (site / "index.html").read_text()  # whose list would be fetched


@pytest.mark.rest
def test_pages_and_the_card_can_be_read_by_all(browser, site, tmp_path):
    full_card().save(tmp_path)
    names = ("index", "tutorial", "reference/estimator", "results/rivals")
    assert (
        look(
            browser, [*(site / f"{name}.html" for name in names), tmp_path / "card.html"], obstacles
        )
        == {}
    )


@pytest.mark.rest
def test_search_shows_the_right_page_among_the_first_three(browser, site):
    with opened(browser, DESKTOP) as (page, faults):
        for name, words in ((name, words) for name, queries in FINDS.items() for words in queries):
            page.goto((site / "index.html").as_uri())
            page.fill(".md-search__input", words)
            page.press(".md-search__input", "End")  # the theme waits for a key
            page.wait_for_selector(".md-search-result__item")
            links = page.eval_on_selector_all(
                ".md-search-result__item > a", "links => links.map(one => one.pathname)"
            )
            assert str(site / f"{name}.html") in links[:3], words
        assert faults == []
