import json
import re
import runpy
import subprocess
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tutelage
import tutelage_reproductions as reproductions
from test_cli import refusal
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage_reproductions import Record, Row, command, mnist_frontier, running
from tutelage_reproductions import record as recording
from tutelage_reproductions.figures import Figure, Panels, Series
from tutelage_reproductions.page import ours, page, page_of, records_of
from tutelage_reproductions.record import Circumstances
from tutelage_reproductions.verdicts import VERDICTS

REPOSITORY = Path(__file__).parents[2]
ON = Circumstances(
    date="2026-01-01", seconds=200, processor="One", python="Python 3", tutelage="0", commit="abc+"
)


def record(name: str, *rows: Row, quick: bool = False) -> Record:
    figure = Figure(
        title="t", x_label="x", y_label="y", series=(Series(name="a", x=(1.0, 2.0), y=(1.0, 2.0)),)
    )
    return Record(
        name=name,
        source="A paper",
        rows=rows,
        quick=quick,
        notes=("Seed 0.",),
        figure=figure,
        circumstances=ON,
    )


SHORT = Row(
    name="student, %",
    ours=97.0,
    published=98.1,
    interval=(96.0, 98.0),
    better="higher",
    why="It is | small.",
)
FINE = Row(name="ε", ours=1.0, published=2.04, better="lower", seconds=3.0)


@pytest.mark.parametrize(
    ("row", "short"),
    [
        (SHORT, True),
        (FINE, False),
        (Row(name="ε", ours=2.05, published=2.04, better="lower"), True),
        (Row(name="ε", ours=2.0449, published=2.04, better="lower"), False),
        (Row(name="%", ours=98.096, published=98.10, better="higher"), False),
        (Row(name="a fact", ours=5.0, published=500.0), False),
        (Row(name="asked", ours=5.0, at_least=6.0), True),
        (Row(name="asked", ours=5.0, at_most=6.0, published=4.0), False),
        (Row(name="asked", ours=7.0, at_most=6.0, published=9.0, better="lower"), True),
    ],
)
def test_what_falls_short(row, short):
    assert row.falls_short is short


def test_a_record_comes_back_from_its_file(tmp_path):
    saved = record("fig2", SHORT, FINE, quick=True)
    saved.save(tmp_path)
    (again,) = records_of(tmp_path)
    assert again.figure is None
    assert (again.rows, again.notes, again.circumstances, again.quick) == (
        saved.rows,
        saved.notes,
        ON,
        True,
    )


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"rows": 3}', '{"name": "fig2", "rows": [{"name": "a"}], "notes": []}']
)
def test_another_file_is_no_record(tmp_path, text):
    (tmp_path / "fig2.json").write_text(text)
    with pytest.raises(InvalidDataError, match=r"fig2\.json is not a record of"):
        records_of(tmp_path)


def test_the_page_says_what_is_short_and_why():
    shown = page([record("fig2", SHORT, FINE), record("adult", FINE)], "docs/results/")
    assert "\n- [fig2](docs/results/fig2.md): **Noise: " in shown
    assert "\n    - *student, %*: 97 (published 98.10). It is | small.\n- [adult]" in shown
    assert "Total time: 6.7 min, 2026-01-01, on One, Python 3." in shown
    assert "Not run: mnist-baseline, svhn-baseline," in shown
    assert "\n    - " not in page([record("adult", FINE)])
    with pytest.raises(InvalidParameterError, match="at least one"):
        page([])
    alone = page_of(record("fig2", SHORT, FINE), {"fig2.png", "fig2.csv"})
    assert "| ε | 2.04 | 1.000 |  |" in alone
    assert "## Losses\n\n- *student, %*: 97 (published 98.10). It is | small.\n" in alone
    assert f"![{VERDICTS['fig2'].figure}](fig2.png)" in alone
    assert "(fig2.csv)" in alone
    assert ".png" not in page_of(record("adult", FINE), set())


def test_a_reason_that_rows_share_is_said_once():
    short = [
        Row(name=name, ours=1.0, at_least=2.0, at_most=3.0, why="It is small.") for name in "ab"
    ]
    assert "- *a*: 1 (goal 2–3); *b*: 1 (goal 2–3). It is small.\n" in page(
        [record("adult", *short)]
    )


def test_a_page_has_the_rows_and_the_method_of_its_verdict():
    rows = [
        Row(name=name, ours=1.0) for name in (*VERDICTS["planted-faults"].numbers(), "1. one fault")
    ]
    whole, quick = (
        page_of(record("planted-faults", *rows, quick=quick), set()) for quick in (False, True)
    )
    assert "## Method\n\nEach check also sees the correct implementation" in whole
    assert "one fault" not in whole
    assert "| 1. one fault | 1 |" in quick
    assert "## Method\n\n- Seed 0.\n" in quick


def test_rows_that_differ_in_one_part_become_columns():
    rows = [
        Row(
            name=f"{data}, ε = {epsilon}: accuracy, %",
            ours=50.0 + epsilon,
            published=published,
            better="higher",
        )
        for data, published in (("k-RR", None), ("central", 60.0))
        for epsilon in (1, 2)
    ]
    shown = page_of(record("zhao", *rows, Row(name="other", ours=3.0)), set())
    assert "| (published) | ε = 1 | ε = 2 |\n" in shown
    assert "| central | 51 (60) | 52 (60) |" in shown
    assert "| other | 3 |" in shown


def test_a_verdict_needs_its_numbers():
    names = re.findall(r"\{([^}]+)\}", VERDICTS["plan-check"].verdict + VERDICTS["plan-check"].more)
    rows = [Row(name=name, ours=90.25 + place) for place, name in enumerate(names)]
    for saved in (
        record("fig2", FINE),
        record("plan-check", *rows, quick=True),
        record("plan-check", *rows[1:]),
    ):
        assert not VERDICTS[saved.name].fits(saved)
        assert "There is no verdict" in page([saved])
    shown = page([record("plan-check", *rows)])
    assert "There is no verdict" not in shown
    assert "90.25 % of predictions are within 3 points of the measured accuracy." in shown


def test_the_interval_of_a_mean_over_seeds_or_splits_has_a_width():
    """An interval without width says that seeds or splits were one; a hundred correct answers have an interval too."""
    without = [
        f"{name}: {row.name}"
        for name in reproductions.NAMES
        for row in Record.load(REPOSITORY / "docs" / "results" / f"{name}.json").rows
        if row.interval is not None and not row.interval[1] - row.interval[0] > 1e-9
    ]
    assert not without


@pytest.mark.parametrize("name", reproductions.NAMES)
def test_every_experiment_has_a_verdict_that_fits_its_record(name):
    saved, about = Record.load(REPOSITORY / "docs" / "results" / f"{name}.json"), VERDICTS[name]
    assert saved.quick or about.fits(saved)
    assert bool(about.figure) == (REPOSITORY / "docs" / "results" / f"{name}.png").is_file()
    names = [row.name for row in saved.rows]
    assert not about.across or sum(bool(re.search(about.across, row)) for row in names) > 3
    assert about.shown in {"", "$^"} or any(re.search(about.shown, row) for row in names)


def test_the_page_of_all_results_is_short():
    assert len((REPOSITORY / "RESULTS.md").read_text(encoding="utf-8").splitlines()) <= 90


def test_panels_are_drawn_with_bars_bands_and_labels(tmp_path):
    wide = ((0.5, 1.5), (1.5, 2.5))
    curve = Series(name="a", x=(1.0, 2.0), y=(1.0, 2.0), interval=wide, bars=True)
    band, points = (
        replace(curve, bars=False, markers=False),
        replace(curve, interval=None, labels=("left", "right")),
    )
    figures = tuple(
        Figure(
            title="t", x_label="x", y_label="y", series=series, logarithmic=True, legend_below=True
        )
        for series in ((curve, band), (points,), (replace(curve, name=""),))
    )
    Panels(title="all", figures=figures, columns=2).save(tmp_path, "panels")
    figures[0].save(tmp_path, "one")
    for name in ("panels", "one"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", mnist_frontier.RIVALS)
def test_the_frontier_shows_what_rivals_found(method):
    rows = {
        row.name: row for row in Record.load(REPOSITORY / "docs" / "results" / "rivals.json").rows
    }
    for epsilon, (right, low, high) in zip(*mnist_frontier.RIVALS[method], strict=True):
        row = rows[f"MNIST, ε = {epsilon:g}: {method}, %"]
        assert (right, low, high) == pytest.approx((row.ours, *(row.interval or ())), abs=0.005)


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.5041, "2.505"), (1.4409, "1.441"), (0.07681, "0.0769"), (0.5537, "0.554"), (0.0, "0"), (3.0, "3.000"),
     (float("inf"), "inf")],
)  # fmt: skip
def test_a_cost_is_rounded_upward(value, text):
    assert ours(Row(name="ε", ours=value, better="lower")) == text


WHY_NOT = (
    InvalidDataError("It is gone."),
    ModuleNotFoundError("It is gone."),
    OSError("It is gone."),
)


@pytest.fixture
def two(monkeypatch):
    """Two reproductions, of which one lacks its data."""
    ran = []

    class Found:
        """Something."""

        def __init__(self, name):
            self.name = name

        def reproduce(self, *, quick: bool, download: bool, progress: bool):
            ran.append(self.name)
            if self.name == "adult":
                raise WHY_NOT[len(ran) % len(WHY_NOT)]
            return Record(name=self.name, source="A paper", rows=(FINE,), quick=quick)

    for module in (command, reproductions):
        monkeypatch.setattr(module, "NAMES", ("fig2", "adult"))
    monkeypatch.setattr(running, "load", Found)
    return ran


def test_all_are_run_though_one_lacks_its_data(two, called, tmp_path):
    done = called("reproduce", "--all", "--output", str(tmp_path), "--quick")
    assert done.returncode == 1
    assert "adult: It is gone." in done.stderr
    assert two == ["fig2", "adult"]
    saved = json.loads((tmp_path / "fig2.json").read_text())
    assert saved["circumstances"]["seconds"] >= 0
    assert "fig2" in (tmp_path / "RESULTS.md").read_text()


def test_what_was_done_before_is_kept_where_it_says_as_much(two, called, tmp_path):
    called("reproduce", "--all", "--output", str(tmp_path), "--quick")
    called("reproduce", "--all", "--keep", "--quick", "--output", str(tmp_path))
    assert two == ["fig2", "adult", "adult"]
    # A quick record is less than was asked for.
    called("reproduce", "--all", "--keep", "--output", str(tmp_path))
    assert two == ["fig2", "adult", "adult", "fig2", "adult"]


def test_the_commit_is_of_the_checkout_and_says_when_files_differ(monkeypatch, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    for module, name in ((tutelage, "tutelage.py"), (recording, "record.py")):
        (package / name).write_text("")
        monkeypatch.setattr(module, "__file__", str(package / name))
    assert recording.commit.__wrapped__() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert recording.commit.__wrapped__() is None  # a checkout, but not of these files
    subprocess.run([*git, "add", "package/record.py"], check=True)
    assert recording.commit.__wrapped__() is None  # of one of them
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "All"], check=True)
    clean = recording.commit.__wrapped__()
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{7,}", clean)
    (package / "record.py").write_text("changed")
    assert recording.commit.__wrapped__() == f"{clean}+"


def test_a_record_whose_figure_was_not_drawn_is_not_kept(tmp_path):
    record("fig2", FINE).save(tmp_path)
    assert running.still_to_run(("fig2",), tmp_path, quick=False) == []
    (tmp_path / "fig2.png").unlink()
    assert running.still_to_run(("fig2",), tmp_path, quick=False) == ["fig2"]


@pytest.mark.parametrize("call", [(), ("fig2", "--all"), ("fig2", "--keep"), ("--all", "--keep")])
def test_a_call_that_says_too_little_or_too_much_is_refused(called, call):
    assert "--all" in refusal(called("reproduce", *call), 2)


def test_the_pages_of_results_are_up_to_date():
    written: Any = runpy.run_path(str(REPOSITORY / "tools" / "results.py"))["written"]
    pages = written()
    assert {path: path.read_text(encoding="utf-8") for path in pages} == pages
    results = REPOSITORY / "docs" / "results"
    names = ("labels.md", "packaged.md", "plan-cases.md", "report.md")
    found = set(results.glob("*.md")) - {results / name for name in names}
    assert {path for path in pages if path.name != "RESULTS.md"} == found


@pytest.mark.parametrize("name", ["labels", "packaged"])
def test_the_pages_of_benchmarks_are_up_to_date(monkeypatch, name):
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    text = import_module(name).page()
    assert (REPOSITORY / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8") == text
    losses, _ = text.split("## Differences")
    assert losses.count("\n- ") >= 4


@pytest.mark.parametrize(("name", "page_of"), [("report", "page_of"), ("plan", "page")])
def test_the_pages_of_test_reports_and_plans_are_up_to_date(monkeypatch, name, page_of):
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    module: Any = import_module(name)
    text = getattr(module, page_of)(module.stored_numbers(module.STORED))
    assert module.STORED.with_suffix(".md").read_text(encoding="utf-8") == text


def test_every_number_that_falls_short_says_why():
    records = records_of(REPOSITORY / "docs" / "results")
    assert [found.name for found in records] == list(reproductions.NAMES)
    silent = [
        f"{found.name}: {row.name}"
        for found in records
        for row in found.rows
        if row.falls_short and not row.why
    ]
    assert not silent
