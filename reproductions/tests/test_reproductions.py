import json
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import GOLDEN
from test_cli import refusal
from tutelage.ballots import VoteHistogram
from tutelage.exceptions import InvalidParameterError
from tutelage_reproductions import (
    NAMES,
    Record,
    Row,
    exact_costs,
    load,
    mnist_frontier,
    mnist_students,
    mnist_teachers,
    protocol,
    repeat_attack,
    zhao,
)
from tutelage_reproductions.datasets import load_mnist
from tutelage_reproductions.record import mean, mean_share, share


def test_every_reproduction_says_what_it_is(called):
    listed = called("reproduce", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(NAMES)
    for name, line in zip(NAMES, listed, strict=True):
        assert callable(load(name).reproduce)
        assert len(line.split(maxsplit=1)[1]) > 20
        assert len(line) <= 80


def test_a_name_that_is_none_is_refused_with_those_that_are(called):
    sentence = refusal(called("reproduce", "mnist-teacher"), 2)
    assert "be one of mnist-baseline, svhn-baseline" in sentence
    assert "--list" in refusal(called("reproduce"), 2)
    with pytest.raises(InvalidParameterError, match="must be one of"):
        load("os")


def test_missing_data_are_named(called, monkeypatch, tmp_path):
    monkeypatch.setenv("TUTELAGE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "mnist.npz" in refusal(called("reproduce", "mnist-teachers"), 1)


@pytest.fixture
def less_mnist(monkeypatch, data_folder):
    """A twentieth of MNIST, as if it were all of it."""
    if not (data_folder / "mnist.npz").is_file():
        pytest.skip("mnist.npz is not in TUTELAGE_DATA")
    whole = load_mnist(data_folder)
    less = type(whole)(
        X_train=whole.X_train[:3000], y_train=whole.y_train[:3000], X_test=whole.X_test[:1000],
        y_test=whole.y_test[:1000], image_shape=whole.image_shape, classes=whole.classes, name=whole.name,
    )  # fmt: skip
    monkeypatch.setattr(mnist_teachers, "load_mnist", lambda download: less)
    monkeypatch.setattr(mnist_teachers, "_PUBLIC", 900)
    monkeypatch.setattr(mnist_teachers, "_CLASS_MEANS", ((30, 80.0, 2.0), (60, None, None)))
    monkeypatch.setattr(mnist_teachers, "_NETWORKS", 12)
    monkeypatch.setattr(mnist_teachers, "_QUICK_NETWORKS", 2)
    monkeypatch.setattr(mnist_teachers, "_EPOCHS", 2)


def test_teachers_of_mnist_are_reproduced(less_mnist, called):
    printed = called("reproduce", "mnist-teachers", "--quick", "--json")
    assert printed.returncode == 0, printed.stderr
    record = json.loads(printed.stdout)
    assert record["name"] == "mnist-teachers"
    assert record["quick"]
    rows = {row["name"]: row for row in record["rows"]}
    right = rows["30 class means: plurality, %"]
    assert right["at_least"] == 80.0
    assert 80 < right["interval"][0] < right["ours"] < right["interval"][1] <= 100
    average = rows["2 of 12 networks: mean teacher, %"]
    assert average["published"] == 83.86
    fields = {
        "name",
        "ours",
        "published",
        "at_least",
        "at_most",
        "interval",
        "seconds",
        "better",
        "why",
    }
    assert set(right) == fields


def test_the_table_shows_published_numbers_beside_ours(less_mnist, called, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(mnist_teachers, "find_spec", lambda name: None)
    printed = called("reproduce", "mnist-teachers").stdout
    assert "arXiv:1610.05755v4" in printed
    assert "95 % interval" in printed
    assert "Networks are left out because torch is not installed" in " ".join(printed.split())


def test_intervals_are_those_of_the_textbook():
    centre, (low, high) = share(np.arange(100) < 7)
    assert centre == pytest.approx(7)
    assert (low, high) == pytest.approx((2.86, 13.89), abs=0.01)  # Clopper and Pearson 1934
    centre, interval = mean([1.0, 2.0, 3.0])
    # T = 4.303 at two degrees of freedom.
    assert (centre, interval) == (2, pytest.approx((-0.484, 4.484), abs=1e-3))
    assert mean([3.0]) == (3.0, None)
    assert mean([3.0, 4.0]) == (3.5, None)


def test_no_share_is_below_none_or_above_all():
    assert mean_share([1.0, 2.0, 3.0]) == (2, pytest.approx((0, 4.484), abs=1e-3))
    assert mean_share([97.0, 98.0, 99.0]) == (98, pytest.approx((95.516, 100), abs=1e-3))
    assert mean_share([3.0, 4.0]) == (3.5, None)


def test_costs_by_every_analysis_are_reproduced(called, monkeypatch):
    votes = VoteHistogram.load(GOLDEN / "votes.npz", array="mnist_like_100")
    monkeypatch.setattr(exact_costs, "published_votes", lambda: None)
    monkeypatch.setattr(exact_costs, "RUNS", 2)
    monkeypatch.setattr(
        exact_costs,
        "experiments",
        lambda path: [
            lambda: exact_costs.laplace_row("made up", votes.first(20), 1e-5, 2.04, 9.0),
            lambda: exact_costs.confident_row(
                "checked", votes.first(5), 1e-5, (200, 150, 40), 1.97, 9.0
            ),
            lambda: 1 / 0,
        ],
    )
    printed = called("reproduce", "exact-costs", "--quick", "--json")
    assert printed.returncode == 0, printed.stderr
    rows = {row["name"]: row for row in json.loads(printed.stdout)["rows"]}
    exact = rows["made up, δ = 1e-05: exact (private)"]
    assert exact["published"] == 2.04
    assert (
        exact["ours"]
        < rows["made up, δ = 1e-05: bound of 2018 (private)"]["ours"]
        < rows["made up, δ = 1e-05: worst case"]["ours"]
    )
    assert (
        rows["checked, δ = 1e-05: exact (private)"]["ours"]
        < rows["checked, δ = 1e-05: worst case"]["ours"]
    )


def test_repeating_a_query_gives_the_votes_away_without_memory_only(called, monkeypatch):
    monkeypatch.setattr(repeat_attack, "REPEATS", (1, 300))
    record = json.loads(called("reproduce", "repeat-attack", "--json").stdout)
    wrong = {row["name"]: row["ours"] for row in record["rows"]}
    assert wrong["query repeated 300 times without memory: error in votes"] < 15
    assert wrong["query repeated 300 times with the ledger: error in votes"] > 30


def test_local_mechanisms_are_compared_by_what_they_get_right(called, monkeypatch, tmp_path):
    monkeypatch.setattr(zhao, "_QUICK_QUERIES", 300)
    monkeypatch.setattr(zhao, "_EPSILONS", (1.0, 4.0))
    printed = called("reproduce", "zhao", "--quick", "--output", tmp_path)
    assert printed.returncode == 0, printed.stderr
    found = {row["name"]: row for row in json.loads((tmp_path / "zhao.json").read_text())["rows"]}
    right = {
        name.removesuffix(": accuracy, %"): row["ours"]
        for name, row in found.items()
        if name.endswith(": accuracy, %")
    }
    assert len(right) == 2 * 12
    assert right["k-RR, plurality, ε = 1"] > 97
    corrected = "truncated geometric, "
    plurality, inverse, likelihood = (
        right[f"{corrected}{by}, ε = 4"] for by in ("plurality", "inverse", "likelihood")
    )
    assert plurality < 70 < 80 < inverse < likelihood
    assert right["central: LNMax, ε = 1"] == right["central: GNMax, ε = 1"] == 100
    zero = found["equation (2), ε = 1: chance that class 1 is reported as 0"]
    assert zero["ours"] == pytest.approx(zero["published"], abs=5e-4)
    assert found["equation (2), ε = 1: largest privacy loss"]["ours"] == pytest.approx(0.9)
    assert found["100 responses at ε = 0.1: any pure mechanism, δ = 1e-05"][
        "ours"
    ] == pytest.approx(4.307, abs=5e-4)
    assert (tmp_path / "zhao.png").read_bytes().startswith(b"\x89PNG")


def test_published_votes_that_are_missing_are_named(called, monkeypatch, tmp_path):
    monkeypatch.setenv("TUTELAGE_DATA", str(tmp_path))
    assert "pate2018_votes.npz" in refusal(called("reproduce", "exact-costs"), 1)


@pytest.fixture
def small_protocol(monkeypatch, less_mnist):
    """A tenth of the test images in every split."""
    for module in (mnist_frontier, mnist_students):
        monkeypatch.setattr(module, "load_mnist", mnist_teachers.load_mnist)
        monkeypatch.setattr(module, "paper_split", lambda: protocol.paper_split(1000, 100))
    monkeypatch.setattr(
        mnist_frontier, "shuffled_folds", lambda count: protocol.shuffled_folds(count, 1000, 100)
    )
    monkeypatch.setattr(mnist_frontier, "_HEADLINE", (60, 20, 4.0))
    monkeypatch.setattr(mnist_frontier, "_SEEDS", 2)
    monkeypatch.setattr(mnist_frontier, "_TEACHERS", (60,))
    monkeypatch.setattr(mnist_frontier, "_QUERIES", (15, 20))
    monkeypatch.setattr(mnist_frontier, "_NOISE", (20.0, 4.0))


def test_the_frontier_of_mnist_is_a_table_and_a_figure(
    small_protocol, called, monkeypatch, tmp_path
):
    monkeypatch.setattr(
        mnist_frontier, "shuffled_folds", lambda count: protocol.shuffled_folds(2, 1000, 100)
    )
    printed = called("reproduce", "mnist-frontier", "--output", tmp_path / "out")
    assert printed.returncode == 0, printed.stderr
    record = json.loads((tmp_path / "out" / "mnist-frontier.json").read_text())
    by_name = {row["name"]: row for row in record["rows"]}
    (headline,) = (
        row for name, row in by_name.items() if name.endswith("σ = 18: mean over folds, %")
    )
    assert headline["ours"] > 60
    assert sum("60 teachers, 15 queries, ε" in name for name in by_name) == 2
    assert len((tmp_path / "out" / "mnist-frontier.csv").read_text().splitlines()) == 1 + len(
        record["rows"]
    )
    assert (tmp_path / "out" / "mnist-frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "out" / "mnist-frontier.svg").read_text()
    published = next(
        series for series in record["figure"]["series"] if series["name"] == "published"
    )
    assert 2.04 in published["x"]


def test_students_of_published_votes_are_reproduced(small_protocol, monkeypatch, tmp_path):
    truth = mnist_teachers.load_mnist(download=False).y_test[:900]
    np.savez(tmp_path / "votes.npz", mnist_250_teachers=160 * np.eye(10, dtype=int)[truth] + 9)
    monkeypatch.setattr(mnist_students, "published_votes", lambda: tmp_path / "votes.npz")
    monkeypatch.setattr(
        mnist_students,
        "_voted_folds",
        lambda voted, count: [protocol.paper_split(1000, 100)] * count,
    )
    monkeypatch.setattr(mnist_students, "_QUERIES", 30)
    monkeypatch.setattr(mnist_students, "_SEEDS", 2)
    record = mnist_students.reproduce(quick=True, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    assert rows["random queries: exact ε"].ours < rows["worst-case ε"].ours
    assert rows["medoids queries, label propagation: test[9000:], %"].ours > 50
    assert "Networks are left out" in " ".join(record.notes)


def test_rows_of_a_record_have_names_of_their_own():
    row = Row(name="accuracy, %", ours=1.0)
    with pytest.raises(InvalidParameterError, match="distinct names"):
        Record(name="a", source="b", rows=(row, row), quick=False)


def defines_one(source: str) -> bool:
    return "\ndef reproduce(*, quick: bool, download: bool, progress: bool) -> Record:" in source


def test_every_reproduction_is_listed():
    folder = Path(exact_costs.__file__).parent
    found = {
        path.relative_to(folder).parts[0]
        for path in folder.rglob("*.py")
        if defines_one(path.read_text())
    }
    assert {name.removesuffix(".py").replace("_", "-") for name in found} == set(NAMES)


def test_folds_are_disjoint_and_leave_the_rest():
    folds = protocol.shuffled_folds(5, 100, 10)
    assert len(np.unique(np.concatenate([fold.held_out for fold in folds]))) == 50
    for fold in folds:
        assert np.array_equal(np.sort(np.concatenate([fold.pool, fold.held_out])), np.arange(100))
