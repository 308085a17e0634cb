"""Plant faults, one after the other, in copies of the checkout, and print which tests see each.

    python tools/mutants.py                 all faults of tools/mutants.toml
    python tools/mutants.py WORD ...        those whose name or file contains a word

The test that saw the fault last runs first. If it passes or is gone, those that import the changed module, or one that
imports it; then the others of the quick tier, nearest first; then the rest. A fault that no test sees shows a claim
without a guard: write the test, or delete the line. With --record, tools/mutants.toml keeps which test saw each.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FAULTS = Path(__file__).with_suffix(".toml")
_PACKAGES = {
    "tutelage": ROOT / "src",
    "tutelage_consortium": ROOT / "consortium" / "src",
    "tutelage_reproductions": ROOT / "reproductions" / "src",
}
_TESTS = (ROOT / "tests", ROOT / "consortium" / "tests")
_COPIED = ("src", "tests", "consortium", "reproductions", "docs", "examples", "tools", "benchmarks")
# No guards.
_OF_WORDS = (
    "test_docs",
    "test_hosting",
    "test_language",
    "test_mutants",
    "test_sentences",
    "test_size",
)
_QUICK, _REST = "not rest and not slow", "rest and not slow"
_NEAR = 2  # imports between a test and the module
_AT_ONCE = 40  # files of tests
_NOTHING_RAN = (4, 5)  # exit codes of pytest: no such test, and none with the marks


class Fault(NamedTuple):
    """One small change of the source that breaks a promise."""

    name: str
    file: str
    was: str
    becomes: str
    harm: str
    seen_by: str = ""

    def planted(self) -> str:
        """Return the text of the file with the fault."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if text.count(self.was) != 1:
            raise ValueError(
                f"{self.name}: the text to change must occur once in {self.file}. Update {FAULTS.name}."
            )
        return text.replace(self.was, self.becomes)


def faults(words: Iterable[str]) -> list[Fault]:
    """Return the faults on file whose name or file contains one of the words, or all."""
    known = [Fault(**one) for one in tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]]
    chosen = [one for one in known if any(word in f"{one.name} {one.file}" for word in words)]
    return chosen if words else known


def _file_of(module: str) -> Path | None:
    """Return the file of a module of the project or of the tests."""
    package = _PACKAGES.get(module.partition(".")[0])
    for base in _TESTS if package is None else (package,):
        path = base.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imported(path: Path) -> Iterator[Path]:
    """Yield the files that a file imports; of a name that a package passes on, the file where it is defined."""
    for node in ast.walk(_tree(path)):
        names = list[str]()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = _file_of(f"{node.module}.{alias.name}")
                package = _file_of(node.module)
                if (
                    inner is None
                    and package is not None
                    and package.name == "__init__.py"
                    and package != path
                ):
                    yield from _where_defined(package, alias.name)
                else:
                    names.append(
                        f"{node.module}.{alias.name}" if inner is not None else node.module
                    )
        for name in names:
            found = _file_of(name)
            if found is not None:
                yield found


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    return tuple(_imported(path))


def _where_defined(package: Path, name: str) -> Iterator[Path]:
    for node in ast.walk(_tree(package)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and name in {alias.name for alias in node.names}
        ):
            found = _file_of(node.module)
            if found is not None:
                yield found
                return
    yield package


def distances(changed: Path) -> dict[Path, int]:
    """Return by how many imports each file of tests is away from a file."""
    folders = (ROOT / "src", ROOT / "consortium", ROOT / "tests")
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    importers = defaultdict[Path, set[Path]](set)
    for path in sources:
        for one in _imports(path):
            importers[one].add(path)
    found, next_ones, distance = {changed: 0}, [changed], 0
    while next_ones:
        distance += 1
        next_ones = [path for one in next_ones for path in importers[one] if path not in found]
        found |= dict.fromkeys(next_ones, distance)
    far = max(found.values()) + 1  # of those that call the command line, or read files
    tests = [
        path
        for folder in _TESTS
        for path in folder.rglob("test_*.py")
        if path.stem not in _OF_WORDS
    ]
    return {
        path: found.get(path, far) for path in sorted(tests, key=lambda path: found.get(path, far))
    }


def _likeliest(changed: Path, tests: Iterable[Path]) -> list[str]:
    """Return files of tests for `pytest`: those first whose names share most words with the changed file."""
    words = {
        word.rstrip("s") for word in (*changed.stem.split("_"), *changed.parent.name.split("_"))
    }
    shared = {
        path: len(words & {word.rstrip("s") for word in path.stem.split("_")}) for path in tests
    }
    return [
        str(path.relative_to(ROOT)) for path in sorted(shared, key=shared.__getitem__, reverse=True)
    ]


def _failing(copy: Path, tests: list[str], marks: str) -> str | None:
    """Return the first of some tests, or of those in some files, that fails in a copy, if any does."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-m",
        marks,
    ]
    places = [f"{copy / folder}" for folder in ("src", "consortium/src", "reproductions/src")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for start in range(0, len(tests), _AT_ONCE):
        ended = subprocess.run(  # noqa: S603
            [*command, *tests[start : start + _AT_ONCE]],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode not in (0, *_NOTHING_RAN):
            lines = [
                line for line in ended.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))
            ]
            return (lines or [f"exit code {ended.returncode}"])[0].split(" - ")[0]
    return None


def _copied(folder: str) -> Path:
    """Copy what tests need into a folder, and return the copy."""
    copy = Path(folder) / "tutelage"
    copy.mkdir()
    for name in _COPIED:
        shutil.copytree(
            ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for path in (*ROOT.glob("*.*"), ROOT / "Makefile"):
        if path.is_file():
            shutil.copy2(path, copy)
    return copy


def _searched(fault: Fault) -> Iterator[tuple[str, list[str], str]]:
    """Yield tier, tests and marks of each search for a test that sees a fault, cheapest first."""
    if (ROOT / fault.seen_by.partition("::")[0]).is_file():
        yield "quick", [fault.seen_by], _QUICK
        yield "rest", [fault.seen_by], _REST
    changed = ROOT / fault.file
    away = distances(changed)
    near = _likeliest(changed, (path for path, by in away.items() if by <= _NEAR))
    far = _likeliest(changed, (path for path, by in away.items() if by > _NEAR))
    for tier, marks in (("quick", _QUICK), ("rest", _REST)):
        yield tier, near, marks
        yield f"{tier}, far away", far, marks


def seen(fault: Fault) -> tuple[str, str]:
    """Return by which tier a fault is seen, and by which test; by none where all tests pass."""
    with TemporaryDirectory(prefix="mutant-") as folder:
        copy = _copied(folder)
        (copy / fault.file).write_text(fault.planted(), encoding="utf-8")
        for tier, tests, marks in _searched(fault):
            told = _failing(copy, tests, marks)
            if told is not None:
                shutil.copy2(ROOT / fault.file, copy / fault.file)
                test = told.partition(" ")[2].partition("[")[0]
                is_sound = told.startswith("FAILED ") and _failing(copy, [test], marks) is None
                return (tier, test) if is_sound else ("fails without it", told)
    return "none", ""


def _told(fault: Fault) -> tuple[Fault, str, str]:
    tier, test = seen(fault)
    print(f"{tier:16}  {fault.name}  ({fault.file})  {test}", flush=True)
    return fault, tier, test


def _record(fault: Fault, test: str) -> None:
    """Write beside a fault which test sees it."""
    start = "[[fault]]\n"
    head, *blocks = FAULTS.read_text(encoding="utf-8").split(start)
    for number, block in enumerate(blocks):
        if block.startswith(f'name = "{fault.name}"\n'):
            kept = block.partition("\nseen_by = ")[0].rstrip("\n")
            blocks[number] = f'{kept}\nseen_by = "{test}"\n' + "\n" * (number + 1 < len(blocks))
    FAULTS.write_text(start.join([head, *blocks]), encoding="utf-8")


def main() -> int:
    """Plant the faults, and print a line for each and the sum; return 1 if no test sees one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="of the names or files of faults")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="faults at the same time"
    )
    parser.add_argument(
        "--record", action="store_true", help="write which test sees each into the list of faults"
    )
    given = parser.parse_args()
    chosen = faults(given.words)
    for one in chosen:
        one.planted()  # or a text that is not found would end hours of work
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(_told, chosen))
    if given.record:
        for fault, tier, test in results:
            if tier.startswith(("quick", "rest")):
                _record(fault, test)
    tiers = [tier for _, tier, _ in results]
    quick = sum(tier.startswith("quick") for tier in tiers)
    seen = quick + sum(tier.startswith("rest") for tier in tiers)
    print(f"{seen} of {len(tiers)} faults are seen, {quick} of them by the quick tier.")
    return int(seen < len(tiers))


if __name__ == "__main__":
    raise SystemExit(main())
