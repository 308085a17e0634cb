"""The reproduction of published ε: each paper's own method gives what was printed, and ours stand beside it."""

from dataclasses import replace
from math import erfc, log, sqrt
from types import SimpleNamespace

import numpy as np
import pytest

from conftest import GOLDEN
from tutelage.accounting import pate_bounds
from tutelage.accounting.rdp import DEFAULT_ORDERS
from tutelage.ballots import VoteHistogram
from tutelage.partition import Shards
from tutelage_reproductions import epsilons, exact_costs, publishable
from tutelage_reproductions.epsilons import DotChart, Dots

BY_VOTES = {
    "2017 MNIST, 100 queries, δ = 1e-05", "2017 MNIST, 1,000 queries, δ = 1e-05", "2017 SVHN, 500 queries, δ = 1e-06",
    "2017 SVHN, 1,000 queries, δ = 1e-06", "2017 Adult, 500 queries, δ = 1e-05",
    "2018 MNIST, 640 queries, δ = 1e-05", "2018 SVHN, 640 queries, δ = 1e-06",
}  # fmt: skip


def rows_of(*cases):
    return {row.name: row for case in cases for row in epsilons._rows(case)}


@pytest.fixture
def made_up_votes(monkeypatch, tmp_path):
    """Ten rows of votes, repeated until there are as many as the papers asked, and made-up votes for Adult."""
    few = VoteHistogram.load(GOLDEN / "votes.npz", array="mnist_like_100").first(10)
    np.savez(
        tmp_path / "votes.npz",
        mnist_250_teachers=np.tile(few.counts, (100, 1)),
        svhn_250_teachers=np.tile(few.counts, (100, 1)),
    )
    larger = np.random.default_rng(0).binomial(250, 0.9, epsilons._ASKED)
    unit = Shards.of_rows(250, 250, key=bytes(16)).unit
    of_nobody = VoteHistogram(np.column_stack([larger, 250 - larger]), 250, unit)
    monkeypatch.setattr(epsilons, "published_votes", lambda: tmp_path / "votes.npz")
    monkeypatch.setattr(
        epsilons, "load_adult", lambda: SimpleNamespace(X_public=np.zeros((epsilons._ASKED, 1)))
    )
    monkeypatch.setattr(
        epsilons.adult, "forest_votes", lambda split, queries, run, progress: of_nobody
    )
    public = VoteHistogram(np.tile(few.counts, (10, 1)), few.n_teachers)
    monkeypatch.setattr(publishable, "public_mnist_votes", lambda download: public)
    monkeypatch.setattr(epsilons, "_ASKED_OF_SVHN", 640)
    monkeypatch.setattr(exact_costs, "RUNS", 2)


def test_formulas_give_what_the_papers_print():
    rows = rows_of(*epsilons._compositions(), epsilons._local(), *epsilons._programs())
    for name, value in {
        "2017 §3.3, 1,000 queries, δ = 1e-06: strong composition": 26.6226,
        "2017 §3.3, 1,000 queries, δ = 1e-06: moments of Theorem 2": 21.9078,
        "2017 §3.3, 1,000 queries, δ = 1e-06: optimal composition": 19.3447,
        "2017 §3.3, 100 queries, δ = 1e-05: strong composition": 5.7985,
        "2017 §3.3, 100 queries, δ = 1e-05: moments of Theorem 2": 5.3026,
        "2017 §3.3, 100 queries, δ = 1e-05: optimal composition": 4.3068,
        "Zhao, 100 responses of 0.1, δ = 1e-05: T·ε": 10.0,
        "Zhao, 100 responses of 0.1, δ = 1e-05: optimal composition": 4.3068,
        "PySyft's test, 50 queries, γ = 0.1, δ = 1e-05, vote-dependent: paper's own method": 6.8847,
        "PySyft's test, 50 queries, γ = 0.1, δ = 1e-05, worst case: paper's own method": 7.8376,
        "PySyft's test, 50 queries, γ = 0.1, δ = 1e-05, labels as indices: paper's own method": 1.4828,
        "tutorial, 9,000 queries, γ = 0.2, δ = 1e-05: paper's own method": 1451.5129,
    }.items():
        assert rows[name].ours == pytest.approx(value, abs=1e-4)
    for row in rows.values():
        assert not row.falls_short or row.why


def test_the_published_epsilon_of_diabetes_is_the_floor_of_its_method():
    rows = rows_of(epsilons._diabetes())
    own, bound, exact, any_votes = rows.values()
    # No vote can cost less at eight moments.
    assert own.ours == pytest.approx(np.log(1e5) / 8, abs=2e-3)
    assert not own.falls_short
    assert exact.ours < bound.ours < own.ours < any_votes.ours


def test_every_published_epsilon_by_votes_has_every_cost_beside_it(made_up_votes, tmp_path):
    record = epsilons.reproduce(quick=False, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    for name in BY_VOTES:
        own, exact, any_votes = (
            rows[f"{name}: {method}"]
            for method in ("paper's own method", "exact (private)", "worst case (publishable)")
        )
        assert own.published is not None
        assert own.why
        assert exact.ours < own.ours
        assert exact.ours < any_votes.ours
        assert exact.published is None
    for name in ("2017 MNIST, 100 queries, δ = 1e-05", "2018 MNIST, 640 queries, δ = 1e-05"):
        tested = rows[f"{name}: tested (publishable)"].ours
        assert (
            rows[f"{name}: exact (private)"].ours
            < tested
            < rows[f"{name}: worst case (publishable)"].ours
        )
        # The votes are those it was proposed on.
        assert rows[f"{name}: chance that the test passes, %"].ours > 90
    assert isinstance(record.figure, DotChart)
    assert set(record.figure.cases) >= BY_VOTES
    assert {path.suffix for path in record.save(tmp_path)} == {".json", ".csv", ".png", ".svg"}


def test_an_answer_is_expected_as_often_as_its_check_lets_it_pass():
    votes = VoteHistogram.load(GOLDEN / "votes.npz", array="mnist_like_100").first(10)
    check, answer = exact_costs.confident_events(votes, (200, 150, 40))
    sums = np.zeros(len(DEFAULT_ORDERS))
    every_answer = np.zeros(len(DEFAULT_ORDERS))
    for query in range(10):
        one = votes.select(np.array([query]))
        chance = erfc((200 - max(one.counts[0])) / 150 / sqrt(2)) / 2
        assert 0.1 < chance < 0.9
        (of_check,), (of_answer,) = (
            pate_bounds.costs_2018(event, one, DEFAULT_ORDERS) for event in (check, answer)
        )
        sums += of_check + chance * of_answer
        every_answer += of_check + of_answer
    expected, answered = (
        min(
            total + log(1e5) / (order - 1)
            for order, total in zip(DEFAULT_ORDERS, totals, strict=True)
        )
        for totals in (sums, every_answer)
    )
    assert answered > 1.05 * expected
    assert epsilons._expected(votes, (200, 150, 40), 1e-5) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("data", "asked", "noise", "delta", "expected"),
    [("mnist", 640, (200, 150, 40), 1e-5, 1.9988), ("svhn", 8_500, (300, 200, 40), 1e-6, 4.9152)],
)
def test_the_authors_votes_come_to_what_the_paper_of_2018_prints(
    data, asked, noise, delta, expected, data_folder
):
    path = data_folder / "pate2018_votes.npz"
    if not path.is_file():
        pytest.skip("pate2018_votes.npz is not in TUTELAGE_DATA")
    votes = VoteHistogram.load(path, array=f"{data}_250_teachers").first(asked)
    assert epsilons._expected(votes, noise, delta) == pytest.approx(expected, abs=2e-4)


def test_the_quick_form_trains_nothing(made_up_votes, monkeypatch):
    monkeypatch.setattr(epsilons.adult, "forest_votes", None)
    record = epsilons.reproduce(quick=True, download=False, progress=False)
    names = {row.name.split(":")[0] for row in record.rows}
    left_out = BY_VOTES - names
    assert left_out == {"2017 Adult, 500 queries, δ = 1e-05", "2018 SVHN, 640 queries, δ = 1e-06"}


def test_cases_that_lack_a_method_have_no_dot_for_it(tmp_path):
    chart = DotChart(
        title="two", x_label="ε", cases=("first", "second"), ticks=(1.0, 10.0),
        reference=Dots(name="all", values=(1.0, 2.0)), methods=(Dots(name="one", values=(None, 3.0)),),
    )  # fmt: skip
    for path in chart.save(tmp_path, "chart"):
        assert path.stat().st_size > 1_000
    with_all = replace(chart, methods=(Dots(name="one", values=(4.0, 3.0)),))
    fewer, more = (
        (found.save(tmp_path, "chart")[1]).read_text().count("<use") for found in (chart, with_all)
    )
    assert more == fewer + 1
