"""The start page, the tutorial, the guarantee, the how-tos and the concepts run as they stand, and print what they say.

Blocks of a page run in order, in one folder, with one set of Python names. A `toml` block is written to the file that
its first line names, and so is a `python` block that begins with the name of a file. After another `python` block, a
`text` block is what it printed. In a `console` block, lines after a command are what it printed; it succeeds unless a
refusal or `echo $?` is shown. An ellipsis stands for anything; lines may be left out between those that are shown.
"""

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conftest import FITS_AGAIN, REPOSITORY
from tutelage import datasets
from tutelage.datasets import AdultSplit, load_adult
from tutelage.exceptions import UnsupportedEventError
from tutelage.testing import MechanismContract

pytestmark = pytest.mark.rest

DOCS = REPOSITORY / "docs"
FIRST = [DOCS / name for name in ("index.md", "tutorial.md", "privacy_guarantee.md")]
PAGES = sorted([*FIRST, *DOCS.glob("howto/*.md"), *DOCS.glob("concepts/*.md")])
LANGUAGES = {"python", "toml", "console", "sh", "text"}
NOT_RUN = ("pip install", "python examples/consortium/run.py", "tutelage reproduce", "dask ")
CLUSTERS = ("from dask.distributed import", "import ray")  # blocks that need one are compiled only
TRACKERS = ("import mlflow", "import wandb")  # the same where the library is not installed
# Runs a program of the reader's, who has not installed this package.
WITHOUT_THE_PACKAGE = """if True:
    import runpy, sys
    sys.modules["tutelage"] = None
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""

Call = Callable[..., subprocess.CompletedProcess[str]]


def blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def assert_shown(promised: str, printed: str) -> None:
    """Assert that every promised line was printed, in order; blanks do not count."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    for line in filter(None, (" ".join(line.split()) for line in promised.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        assert any(pattern.fullmatch(found) for found in lines), (
            f"{line!r} was not printed, or out of order: {printed}"
        )


def commands(language: str, block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block, and what it printed: nothing is said of that in `sh` blocks."""
    if language == "sh":
        yield from ((command, "") for command in block.splitlines())
        return
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def run(command: str, folder: Path, called: Call) -> tuple[str, int]:
    """Return what a command prints, and its exit code."""
    words = shlex.split(command)
    if words[0] == "tutelage":
        left = called(*words[1:], cwd=folder)
    else:
        if words[0] == "python":
            words[:1] = [sys.executable, "-c", WITHOUT_THE_PACKAGE]
        left = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return left.stdout + left.stderr, left.returncode


def assert_kept(language: str, block: str, folder: Path, called: Call) -> None:
    """Run the commands of a block, and assert that each prints what is shown and ends as is shown."""
    shown, code = [*commands(language, block)], 0
    for (command, output), (following, _) in zip(shown, [*shown[1:], ("", "")], strict=True):
        if command == "echo $?":
            assert output.strip() == str(code)
        elif not command.startswith(NOT_RUN):
            printed, code = run(command, folder, called)
            assert_shown(output, printed)
            ends_well = following != "echo $?" and not output.startswith("tutelage: ")
            assert (code == 0) == ends_well, f"{command} ended with exit code {code}: {printed}"


def can_run(block: str) -> bool:
    return not block.startswith(CLUSTERS) and not (
        block.startswith(TRACKERS) and not find_spec(block.split()[1])
    )


@pytest.fixture
def few_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adult with fewer private and public rows; what the guides say of costs holds whatever the rows."""
    adult = load_adult()
    few = AdultSplit(
        adult.X_private[:12000],
        adult.y_private[:12000],
        adult.X_public[:8000],
        adult.y_public[:8000],
    )
    monkeypatch.setattr(datasets, "load_adult", lambda: few)


def write_stays(folder: Path) -> None:
    """Write the files of the page of tables: stays in a hospital."""
    for name, n, seed in (("patients", 3000, 0), ("public", 1500, 1)):
        random = np.random.default_rng(seed)
        age, days = random.integers(20, 95, n), random.integers(1, 29, n)
        columns: dict[str, Any] = {
            "age": [str(years) if years % 17 else "" for years in age],
            "ward": random.choice(["surgery", "medicine", "geriatrics"], n),
            "grade": random.choice(["low", "mid", "high"], n),
            "admitted": [f"2025-03-{day:02d}" for day in days],
            "staff_id": [f"s{number}" for number in random.integers(0, 10 * n, n)],
        }
        if name == "patients":
            columns["readmitted"] = np.where(age > 60, "yes", np.where(days > 25, "unknown", "no"))
            columns["patient_id"] = [f"p{number // 2}" for number in range(n)]
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", sep=";", index=False)


def write_patients(folder: Path) -> None:
    """Write the file of the page on consortiums: 500 rows of 400 patients of a hospital."""
    rows = [
        f"p{row % 400},{20 + row % 76},surgery,{'yes' if row % 76 > 50 else 'no'}"
        for row in range(500)
    ]
    (folder / "hospital-1.csv").write_text("\n".join(["patient,age,ward,readmitted", *rows]))


FILES_OF = dict.fromkeys(("tables.md", "no-public-rows.md"), write_stays) | {
    "consortium.md": write_patients
}


@FITS_AGAIN
@pytest.mark.whole_models
# Where a page continues a ledger.
@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
@pytest.mark.usefixtures("few_people")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: Call
) -> None:
    if "from torch import" in page.read_text():
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # no processes for a few small teachers
    FILES_OF.get(page.name, lambda _: None)(tmp_path)
    module = ModuleType("guide")  # a home for the page's classes and functions
    names: dict[str, Any] = module.__dict__
    printed = ""
    for language, block in blocks(page):
        assert language in LANGUAGES
        if language == "toml" or re.match(r"# [\w-]+\.py$", block.splitlines()[0]):
            name = block.splitlines()[0].removeprefix("# ")
            assert Path(name).suffix in (".toml", ".py")
            (tmp_path / name).write_text(block)
        elif language == "python":
            said, code = io.StringIO(), compile(block, page.name, "exec")
            with redirect_stdout(said):
                exec(code if can_run(block) else "", names)  # noqa: S102  our own documentation
            printed = said.getvalue()
        elif language == "text":
            assert_shown(block, printed)
        else:
            assert_kept(language, block, tmp_path, called)


def test_the_mechanism_of_the_guide_keeps_the_contract_and_the_quiet_one_does_not() -> None:
    names: dict[str, Any] = {"__name__": "documented"}
    for language, block in blocks(DOCS / "howto" / "write-a-mechanism.md"):
        exec(block if language == "python" else "", names)  # noqa: S102  our own documentation
    for name in filter(lambda it: it.startswith("test_"), dir(MechanismContract)):
        getattr(names["TestCoarseGNMax"](), name)()
    with pytest.raises(AssertionError):
        names["TestTooQuiet"]().test_labels_follow_the_law_of_the_event()
    with pytest.raises(UnsupportedEventError, match="CoarseGNMax"):
        names["session"].accountant()


def test_a_promise_that_is_not_kept_is_found(tmp_path: Path, called: Call) -> None:
    (tmp_path / "x").write_text("")
    for code in (0, 1):
        with pytest.raises(AssertionError):
            assert_kept("console", f"$ tutelage run x\n$ echo $?\n{code}\n", tmp_path, called)
    assert_kept("console", "$ tutelage run x\n$ echo $?\n2\n", tmp_path, called)
    assert_shown("ε = … at\nlast", "first\nε  =  3 at\nbetween\nlast")
    with pytest.raises(AssertionError):
        assert_shown("last\nfirst", "first\nlast")
