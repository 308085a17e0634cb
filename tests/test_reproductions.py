import json
import sys

import numpy as np
import pytest

from conftest import GOLDEN
from test_cli import refusal
from tutelage.datasets import load_mnist
from tutelage.exceptions import InvalidParameterError
from tutelage.reproductions import NAMES, exact_costs, load, mnist_teachers, repeat_attack
from tutelage.reproductions.record import mean, share
from tutelage.votes import VoteHistogram


def test_every_reproduction_says_what_it_is(called):
    listed = called("reproduce", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(NAMES)
    for name, line in zip(NAMES, listed, strict=True):
        assert callable(load(name).reproduce)
        assert len(line.split(maxsplit=1)[1]) > 20


def test_a_name_that_is_none_is_refused_with_those_that_are(called):
    sentence = refusal(called("reproduce", "mnist-teacher"), 2)
    assert "There is no reproduction 'mnist-teacher'. There are: mnist-teachers" in sentence
    assert "--list" in refusal(called("reproduce"), 2)
    with pytest.raises(InvalidParameterError, match="There are: "):
        load("os")


def test_missing_data_are_named(called, monkeypatch, tmp_path):
    monkeypatch.setenv("TUTELAGE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "MNIST" in refusal(called("reproduce", "mnist-teachers"), 1)


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
    assert set(right) == {"name", "ours", "published", "at_least", "at_most", "interval", "seconds"}


def test_the_table_shows_published_numbers_beside_ours(less_mnist, called, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(mnist_teachers, "find_spec", lambda name: None)
    printed = called("reproduce", "mnist-teachers").stdout
    assert "arXiv:1610.05755v4" in printed
    assert "95 % interval" in printed
    assert "The networks were left out: torch is not installed" in " ".join(printed.split())


def test_intervals_are_those_of_the_textbook():
    centre, (low, high) = share(np.arange(100) < 7)
    assert centre == pytest.approx(7)
    assert (low, high) == pytest.approx((2.86, 13.89), abs=0.01)  # Clopper and Pearson 1934
    centre, (low, high) = mean([1.0, 2.0, 3.0])
    assert (low, centre, high) == pytest.approx((-0.484, 2, 4.484), abs=1e-3)  # t = 4.303 at two degrees of freedom


def test_costs_by_every_analysis_are_reproduced(called, monkeypatch):
    votes = VoteHistogram.load(GOLDEN / "votes.npz", array="mnist_like_100")
    monkeypatch.setattr(exact_costs, "published_votes", lambda: None)
    monkeypatch.setattr(exact_costs, "RUNS", 2)
    monkeypatch.setattr(
        exact_costs,
        "experiments",
        lambda path: [
            lambda: exact_costs.laplace_row("made up", votes.first(20), 1e-5, 2.04, 9.0),
            lambda: exact_costs.confident_row("checked", votes.first(5), 1e-5, (200, 150, 40), 1.97, 9.0),
            lambda: 1 / 0,
        ],
    )
    printed = called("reproduce", "exact-costs", "--quick", "--json")
    assert printed.returncode == 0, printed.stderr
    rows = {row["name"]: row for row in json.loads(printed.stdout)["rows"]}
    exact = rows["made up, δ = 1e-05: exact"]
    assert exact["published"] == 2.04
    assert (
        exact["ours"]
        < rows["made up, δ = 1e-05: bound of 2018"]["ours"]
        < rows["made up, δ = 1e-05: any votes"]["ours"]
    )
    assert rows["checked, δ = 1e-05: exact"]["ours"] < rows["checked, δ = 1e-05: any votes"]["ours"]


def test_repeating_a_query_gives_the_votes_away_without_memory_only(called, monkeypatch):
    monkeypatch.setattr(repeat_attack, "REPEATS", (1, 300))
    record = json.loads(called("reproduce", "repeat-attack", "--json").stdout)
    wrong = {row["name"]: row["ours"] for row in record["rows"]}
    assert wrong["asked 300 times without memory: votes wrong"] < 15
    assert wrong["asked 300 times with the ledger: votes wrong"] > 30


def test_published_votes_that_are_missing_are_named(called, monkeypatch, tmp_path):
    monkeypatch.setenv("TUTELAGE_DATA", str(tmp_path))
    assert "pate2018_votes.npz" in refusal(called("reproduce", "exact-costs"), 1)
