"""Numbers of the papers, typed here a second time, and numbers on pages: all of them agree with docs/results."""

import ast
import math
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from tutelage_reproductions import epsilons
from tutelage_reproductions.page import ours, records_of
from tutelage_reproductions.record import Record, Row
from tutelage_reproductions.running import NAMES

RESULTS = REPOSITORY / "docs" / "results"

# By reproduction: a part of a row's name that no other row with a published number has, and what the paper prints.
PUBLISHED = {
    "mnist-baseline": {"two convolutions": 99.18},
    "svhn-baseline": {"two convolutions": 92.8},
    "mnist-teachers": {"250 networks: mean teacher": 83.86, "250 networks: noisy plurality": 93.18},
    "fig2": {
        "MNIST, 250 networks, γ = 0.05: accuracy": 93.18,
        "MNIST, 250 published teachers, γ = 0.05: accuracy": 93.18,
        "MNIST, 250 published teachers: mean teacher": 83.86,
        "SVHN, 250 published teachers, γ = 0.05: accuracy": 87.79,
        "SVHN, 250 published teachers: mean teacher": 83.18,
    },
    "table4": {
        "MNIST, 100 queries: ε by the paper's method": 2.04,
        "MNIST, 100 queries: student": 98.00,
        "MNIST, 1,000 queries: ε by the paper's method": 8.03,
        "MNIST, 1,000 queries: student": 98.10,
        "MNIST, all 9,000 queries": 93.18,
        "SVHN, 500 queries: ε by the paper's method": 5.04,
        "SVHN, 500 queries: student": 82.72,
        "SVHN, 1,000 queries: ε by the paper's method": 8.19,
        "SVHN, 1,000 queries: student": 90.66,
    },
    "active-learning": {"logistic, experts": 500.0, "network, experts": 500.0},
    "adult": {
        "without privacy: forest": 85.0,
        "500 queries: forest": 83.0,
        "500 queries: vote-dependent ε, bound of 2017": 2.66,
    },
    "adult-sweep": {
        "500 labels, scale 20, ε = 6.3369: forest": 83.0,
        "500 labels, scale 20, ε = 6.3369: vote-dependent ε, bound of 2017": 2.66,
    },
    "diabetes": {
        "stays with readmitted within 30 days": 23_403.0,
        "stays with diabetesMed = No": 23_403.0,
        **{
            f"{case}, by row: {what}": published
            for case in ("diabetesMed, 17 columns", "readmission", "diabetesMed, and pioglitazone")
            for what, published in (
                ("student", 93.94),
                ("forest without privacy", 93.81),
                ("vote-dependent ε, bound of 2017", 1.44),
            )
        },
    },
    "mnist-students": {
        f"{queries} queries{what}": published
        for queries in ("random", "medoids")
        for what, published in (
            (": exact ε", 2.04),
            (", label propagation: test", 98.0),
            (", PATE-G", 98.0),
        )
    },
    "mnist-frontier": {"σ = ": 98.0},
    "svhn-student": {
        "exact ε": 4.96,
        "queries labeled": 3_098.0,
        "student, consistency training": 91.6,
    },
    "zhao": {
        "chance that class 1 is reported as 0": 0.475,
        "equation (2), ε = 1: largest privacy loss": 1.0,
        "2 classes, ε = 1: chance to keep the class": math.e / (1 + math.e),
        "T·ε": 10.0,
    },
    "tutorial": {
        "ε printed by the tutorial": 59.47392676433782,
        "worst-case ε of 9,000 queries, the tutorial's moments": 1451.5129254649705,
    },
    "epsilons": {
        "2017 §3.3, 1,000 queries": 26.0,
        "2017 §3.3, 100 queries": 5.80,
        "2017 MNIST, 100 queries": 2.04,
        "2017 MNIST, 1,000 queries": 8.03,
        "2017 SVHN, 500 queries": 5.04,
        "2017 SVHN, 1,000 queries": 8.19,
        "2017 Adult, 500 queries": 2.66,
        "2017 Diabetes if unanimous, 500 queries": 1.44,
        "2018 MNIST, 640 queries": 1.97,
        "2018 SVHN, 8,500 queries": 4.96,
        "PySyft's test, 50 queries, γ = 0.1, δ = 1e-05, vote-dependent": 6.8847,
        "PySyft's test, 50 queries, γ = 0.1, δ = 1e-05, labels as indices": 1.4828,
        "PySyft's test, 50 queries, γ = 0.1, δ = 1e-05, worst case": 7.8376,
        "tutorial, 9,000 queries": 1451.5129,
        "Zhao, 100 responses of 0.1": 10.0,
    },
    "exact-costs": {
        "MNIST, LNMax 20, 100 queries": 2.04,
        "MNIST, LNMax 20, 1,000 queries": 8.03,
        "SVHN, LNMax 20, 500 queries": 5.04,
        "SVHN, LNMax 20, 1,000 queries": 8.19,
        "MNIST, Confident 200/150/40, 640 queries": 1.97,
        "SVHN, Confident 300/200/40, 8,500 queries": 4.96,
    },
    "publishable": {
        "MNIST, LNMax 20, 100 queries": 2.04,
        "MNIST, LNMax 20, 1,000 queries": 8.03,
        "MNIST, Confident-GNMax (200, 150, 40), 640 queries": 1.97,
    },
}
PREDICTED = {"plan-check"}  # its published numbers are those that `tutelage plan` predicted
COMPUTED = {  # what modules make of the papers' numbers instead of writing it down
    "diabetes": {23_403.0: {34_104, 12_702}},
    "zhao": {math.e / (1 + math.e): set(), 10.0: {100, 0.1}},
}
LARGER_THAN = 60.0  # "the gap remains larger than 60 %", PATE 2017 on its Figure 3


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    return {record.name: record for record in records_of(RESULTS)}


def test_every_reproduction_has_a_record_and_the_page_says_which_are_quick(records):
    assert set(records) == set(NAMES)
    pattern = r"^- \[([a-z0-9-]+)\]\(docs/results/\1\.md\)( \(quick form\))?: "
    listed = re.findall(pattern, page_of_results(), re.MULTILINE)
    assert {name: bool(quick) for name, quick in listed} == {
        name: record.quick for name, record in records.items()
    }


def page_of_results() -> str:
    return (REPOSITORY / "RESULTS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PREDICTED])
def test_records_have_the_numbers_of_the_papers(name, records):
    if records[name].quick:
        pytest.skip("its record is of the quick form, which leaves rows out")
    rows = {row.name: row.published for row in records[name].rows if row.published is not None}
    golden = PUBLISHED.get(name, {})
    matched = {part: [row for row in rows if part in row] for part in golden}
    assert {part: [rows[row] for row in found] for part, found in matched.items()} == {
        part: [pytest.approx(number, rel=1e-12)] for part, number in golden.items()
    }
    assert {row for found in matched.values() for row in found} == set(rows)


@pytest.mark.parametrize("name", [*PUBLISHED, "fig3"])
def test_modules_have_the_numbers_of_the_papers(name):
    """A record is of the day on which it was made; what the next one will have stands in the module."""
    module = import_module(f"tutelage_reproductions.{name.replace('-', '_')}")
    written = numbers_in(Path(str(module.__file__)))
    wanted = {LARGER_THAN} if name == "fig3" else set(PUBLISHED[name].values())
    for computed, parts in COMPUTED.get(name, {}).items():
        wanted = wanted - {computed} | parts
    assert wanted - written == set()


def numbers_in(module: Path) -> set[float]:
    """Return the numbers that a module writes down."""
    nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    return {float(value) for value in values if isinstance(value, int | float)}


# Pages


def page(name: str) -> str:
    """Return a page as one line."""
    return " ".join((REPOSITORY / name).read_text(encoding="utf-8").split())


def row_of(record: Record, name: str) -> Row:
    (row,) = (row for row in record.rows if row.name == name)
    return row


def is_written(number: str, value: Row | float) -> bool:
    """Return whether a number on a page is this value, rounded to the digits that it shows; a cost, upward only."""
    ours = value.ours if isinstance(value, Row) else value
    written, unit = (
        float(number.replace(",", "").replace("−", "-")),
        10.0 ** -len(number.partition(".")[2]),
    )
    if isinstance(value, Row) and value.better == "lower":
        return -1e-9 <= written - ours < unit
    return abs(written - ours) <= unit / 2 * (1 + 1e-9)


def assert_says(text: str, pattern: str, values: Sequence[Row | float | None]) -> None:
    """Assert that a pattern is found once, and that its groups are these values."""
    (found,) = re.finditer(pattern, text)
    assert_written(found.groups(), values)


def assert_written(numbers: Sequence[str], values: Sequence[Row | float | None]) -> None:
    for number, value in zip(numbers, values, strict=True):
        assert value is not None
        assert is_written(number, value), f"{number} is written where this was found: {value}"


def test_what_a_number_on_a_page_may_be():
    assert is_written("2.04", 2.0449)
    assert is_written("2.05", Row(name="ε", ours=2.0411, better="lower"))
    assert is_written("62", Row(name="%", ours=62.35, better="higher"))
    assert is_written("−0.3", -0.2629)
    assert is_written("11,357", 11_357.0)
    assert not is_written("2.04", 2.046)
    assert not is_written("63", Row(name="%", ours=62.35, better="higher"))
    assert not is_written("2.06", Row(name="ε", ours=2.0411, better="lower"))
    assert not is_written("2.04", Row(name="ε", ours=2.0411, better="lower"))


# Numbers that look like a recorded ε cut short, and are something else.
NO_RECORDED_EPSILON = {
    ("docs/dependencies.md", "14.6"),  # megabytes
    ("docs/planning.md", "68.1"),  # an accuracy
}  # fmt: skip


def test_no_page_cuts_a_recorded_epsilon_short(records):
    """An ε on a page is rounded up: a number is suspect if it is just below one of them, and above none."""
    rows = [row for record in records.values() for row in record.rows]
    recorded = {row.ours for row in rows if row.better == "lower" and "ε" in row.name}
    recorded |= {float(said) for row in rows for said in re.findall(r"ε = (\d+\.\d+)", row.name)}
    theirs = {row.published for row in rows}
    suspects = set()
    pages = [
        page for folder in ("docs", "examples") for page in (REPOSITORY / folder).rglob("*.md")
    ]
    pages = [page for page in pages if page.parent != RESULTS]
    for path in (REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md", *pages):
        for said in re.findall(
            r"(?<![\w.,–+-])\d+\.\d+(?![\d.]*\d|[–-]\d|\s*%)", path.read_text(encoding="utf-8")
        ):
            written, unit = float(said), 10.0 ** -len(said.partition(".")[2])
            digits = len(said.replace(".", "").lstrip("0"))
            above = any(epsilon <= written < epsilon + unit for epsilon in recorded)
            if digits >= 3 and not above and written not in theirs:
                cut = any(written < epsilon < written + unit for epsilon in recorded)
                suspects |= {(path.relative_to(REPOSITORY).as_posix(), said)} if cut else set()
    assert suspects <= NO_RECORDED_EPSILON


def test_the_published_costs_of_the_smoothed_bounds_are_rounded_up(records):
    rows = {row.name: row.ours for row in records["epsilons"].rows}
    text = (REPOSITORY / "reproductions" / "docs" / "proofs" / "smooth_sensitivity.md").read_text(
        encoding="utf-8"
    )
    lines = re.findall(
        r"^\| (MNIST|SVHN), .*? ([\d,]+) \w+, 1e-([56]) \| ([\d.]+) \|", text, re.MULTILINE
    )
    assert len(lines) == 6
    for data, number, exponent, said in lines:
        year = 2018 if number in {"640", "8,500"} else 2017
        true = rows[f"{year} {data}, {number} queries, δ = 1e-0{exponent}: {epsilons._ANY}"]
        assert true <= float(said) < true + 0.01


def test_what_attacks_disproved_is_rounded_down(records):
    found = {
        row.name: row for name in ("membership", "mechanism-audits") for row in records[name].rows
    }
    bounds = [row for row in found.values() if row.is_lower_bound]
    assert len(bounds) > 50
    assert all(float(ours(row)) <= row.ours for row in bounds)


def page_of(name: str) -> str:
    return (REPOSITORY / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_how_often_a_guess_is_right_is_rounded_up():
    text = page_of("concepts/what-pate-protects")
    said = re.findall(r"^\| ([\d.]+) \| (\d+\.\d):1 \| (\d+(?:\.\d+)?) \|$", text, re.MULTILINE)
    assert len(said) == 6
    for at, odds, right in said:
        assert math.exp(float(at)) <= float(odds) < math.exp(float(at)) + 0.1
        truth = 100 / (1 + math.exp(-float(at)))
        assert truth <= float(right) < truth + (1 if truth < 99 else 0.01)


COLUMNS = {
    "worst case": epsilons._ANY,
    "tested": epsilons._TESTED,
    "worst case with test": epsilons._WITH_TEST,
    "exact": epsilons._EXACT,
}


def test_the_readme_compares_recorded_numbers(records):
    adult, frontier = records["adult"], records["mnist-frontier"]
    ours, theirs = "540 ridge, GNMax 295, 4,000 queries: ", "250 forests, LNMax 20, 500 queries: "
    best = "4,000 teachers, 200 queries, ε = 0.0213: mean over folds, %"
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    percent_at = r"(\S+) %[^.]*? at ε = ([\d.]+\d)"
    for beginning, values in (
        ("PATE 2017 published", [
            row_of(adult, f"{theirs}forest, %").published,
            row_of(adult, f"{theirs}vote-dependent ε, bound of 2017").published,
            next(row.published for row in frontier.rows if row.published is not None),
            row_of(records["mnist-students"], "random queries: exact ε").published,
        ]),
        ("tutelage, also with votes, reaches", [
            row_of(adult, f"{ours}student, %"),
            row_of(adult, f"{ours}worst-case ε"),
            row_of(frontier, best),
            Row(name="ε", ours=0.0213, better="lower"),
        ]),
    ):  # fmt: skip
        assert_says(readme, f"{beginning} {percent_at} and {percent_at}", values)


def test_the_readme_compares_with_the_best_alternative(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "tools")
    comparison: Any = import_module("comparison")
    table = "\n".join(comparison.lines())
    assert f"\n\n{table}\n\n" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert comparison.table()["UCI Adult"].keys() == {"labels", "rows", "schema"}
    losses = [
        min(ours - other for other, ours in cells.values()) for cells in comparison.table().values()
    ]
    assert min(losses) < 0 < max(losses)


def test_the_page_on_costs_never_says_too_little(records):
    rows = {row.name: row for row in records["epsilons"].rows}
    _, text = page_of("privacy_guarantee").split("## What labels cost")
    heads, _, *lines = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    _, published, *columns = (
        cell.replace("(private)", "").strip(" *") for cell in heads.split("|")
    )
    assert published == "in the paper"
    assert columns == list(COLUMNS)
    assert len(lines) == 3
    for line in lines:
        about, published, *cells = (cell.strip(" *") for cell in line.split("|"))
        data, mechanism, queries, delta = about.split(", ")
        year = {"LNMax": 2017, "Confident-GNMax": 2018}[mechanism]
        case = f"{year} {data}, {queries.split()[0]} queries, δ = {float(delta.removeprefix('δ = ')):g}"
        assert float(published) == rows[f"{case}: {epsilons._OWN}"].published
        for column, cell in zip(columns, cells, strict=True):
            row = rows.get(f"{case}: {COLUMNS[column]}")
            assert (row is None) == (not cell), f"{case}: {column}"
            assert row is None or row.ours <= float(cell) <= 1.01 * row.ours, f"{case}: {column}"
