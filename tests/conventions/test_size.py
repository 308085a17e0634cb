"""The package stays small: a ceiling of lines per package, and a public name has a user."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tutelage
from conftest import REPOSITORY

PACKAGE = Path(tutelage.__file__).parent
MODULES = 200
# Lines of each package; lowered with each cut, raised only with a line in CHANGELOG.md that names the capability.
CEILINGS = {
    "_internal": 1_510,
    "accounting": 2_740,
    "audit": 1_660,
    "cli": 5_040,
    "datasets": 170,
    "estimator": 2_240,
    "features": 3_030,
    "federation": 4_600,
    "ledger": 3_080,
    "mechanisms": 1_175,
    "methods": 2_545,
    "planning": 1_035,
    "publishing": 1_115,
    "reporting": 1_440,
    "students": 3_075,
    "teachers": 2_955,
    "testing": 385,
    "root": 5_005,
}
DOC_WORDS = 48_530  # of docs/, code, tables and formulas included
TEST_LINES = 37_060


def lines_of(*paths: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


@pytest.mark.parametrize("package", CEILINGS)
def test_a_package_stays_below_its_ceiling(package):
    folder = PACKAGE if package == "root" else PACKAGE / package
    found = lines_of(*(folder.glob("*.py") if package == "root" else folder.rglob("*.py")))
    assert found <= CEILINGS[package]
    assert found >= 0.95 * CEILINGS[package], "lower the ceiling"


def test_every_package_has_a_ceiling():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"root"} == CEILINGS.keys()


def test_there_are_few_modules_and_tests_and_docs_are_short():
    assert len(list(PACKAGE.rglob("*.py"))) <= MODULES
    assert lines_of(*(REPOSITORY / "tests").rglob("*.py")) <= TEST_LINES
    assert sum(len(page.read_text().split()) for page in (REPOSITORY / "docs").rglob("*.md")) <= DOC_WORDS


def _files(folder: str, kind: str) -> Iterator[Path]:
    return (REPOSITORY / folder).rglob(kind)


def public_names() -> set[str]:
    found = set()
    for path in PACKAGE.rglob("__init__.py"):
        module = __import__(".".join(["tutelage", *path.parent.relative_to(PACKAGE).parts]), fromlist=["__all__"])
        found |= set(getattr(module, "__all__", ()))
    return found


def test_every_public_name_has_a_user():
    places = [
        *(
            path
            for name in ("examples", "benchmarks", "reproductions/src")
            for path in (REPOSITORY / name).rglob("*.py")
        ),
        *(REPOSITORY / "examples").rglob("*.ipynb"),
        *(path for path in _files("docs", "*.md") if "reference" not in path.parts),
        REPOSITORY / "README.md",
    ]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in places)))
    assert public_names() - words == set()
