from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from tutelage.ballots import VoteHistogram
from tutelage.datasets import load_adult
from tutelage_reproductions import adult, adult_sweep
from tutelage_reproductions.figures import Panels


@pytest.fixture
def less_work(monkeypatch):
    """A tenth of Adult, few forests of few trees, and two labels by three scales."""
    whole = load_adult()
    less = replace(
        whole,
        X_private=whole.X_private[:3000], y_private=whole.y_private[:3000],
        X_public=whole.X_public[:1600], y_public=whole.y_public[:1600],
    )  # fmt: skip
    for module in (adult, adult_sweep):
        monkeypatch.setattr(module, "RandomForestClassifier", lambda: RandomForestClassifier(10))
        monkeypatch.setattr(module, "EVALUATION_ROWS", 1100)
    monkeypatch.setattr(adult, "FORESTS", 10)
    monkeypatch.setattr(adult_sweep, "load_adult", lambda: less)
    monkeypatch.setattr(adult_sweep, "SelfTrainingStudent", lambda: RandomForestClassifier(5))
    monkeypatch.setattr(adult_sweep, "_LABELS", (50, 500))
    monkeypatch.setattr(adult_sweep, "_SCALES", (0.5, 20.0, 1000.0))
    monkeypatch.setattr(adult_sweep, "_RUNS", 3)


def test_every_choice_has_its_accuracy_and_its_epsilon(less_work):
    record = adult_sweep.reproduce(quick=False, download=False, progress=False)
    assert record.name == "adult-sweep"
    ours = {(row.name.split(", ε")[0], row.name.split(": ", 1)[1]): row for row in record.rows}
    assert len(record.rows) == 2 * 3 * 3 + 1
    clear, drowned = (
        ours[f"500 labels, scale {scale}", "forest, %"].ours for scale in ("0.5", "1000")
    )
    assert clear > 78 > drowned
    costs = [
        ours[f"500 labels, scale {scale}", "exact vote-dependent ε"].ours
        for scale in ("0.5", "20", "1000")
    ]
    assert costs == sorted(costs, reverse=True)
    papers = ours["500 labels, scale 20", "forest, %"]
    assert papers.published == 83.0
    bound = ours["500 labels, scale 20", "vote-dependent ε, bound of 2017"]
    assert bound.published == 2.66
    assert bound.ours > ours["500 labels, scale 20", "exact vote-dependent ε"].ours
    assert [row.published for row in record.rows].count(None) == len(record.rows) - 2


def test_the_figure_has_a_panel_per_number_of_labels_over_the_epsilon_that_may_be_published(
    less_work,
):
    found = adult_sweep.reproduce(quick=False, download=False, progress=False).figure
    assert isinstance(found, Panels)
    assert [panel.title for panel in found.figures] == ["50 labels", "500 labels"]
    (other, few), (another, many, papers) = (panel.series for panel in found.figures)
    assert (other.x, another.x) == (many.x, few.x)
    assert list(few.x) == sorted(few.x)
    assert all(less < more for less, more in zip(few.x, many.x, strict=True))
    assert many.x[1] == pytest.approx(adult.publishable(adult_sweep.LNMax(20.0), 500))
    assert many.interval is not None
    assert all(
        low <= y <= high
        for low, y, high in zip(many.interval[0], many.y, many.interval[1], strict=True)
    )
    assert (papers.x, papers.y) == ((2.66,), (83.0,))


def test_runs_on_the_same_votes_draw_noise_of_their_own(less_work, monkeypatch):
    taught = []
    monkeypatch.setattr(
        adult_sweep,
        "score",
        lambda student, X, asked, labels, y, run: float(taught.append(labels) or 0),
    )
    divided = VoteHistogram(np.tile([125, 125], (200, 1)), 250)
    for run in (0, 1, 0):
        adult_sweep._run(adult_sweep.load_adult(), divided, 20.0, run)
    (first, *_), (second, *_), (again, *_) = taught[:2], taught[2:4], taught[4:]
    assert np.array_equal(first, again)
    assert 50 < np.sum(first != second) < 150


def test_the_votes_of_a_run_are_asked_for_once(less_work, monkeypatch):
    asked = []
    votes = adult_sweep.forest_votes

    def counted(data, queries, run, *, progress):
        asked.append((len(queries), run))
        return votes(data, queries, run, progress=progress)

    monkeypatch.setattr(adult_sweep, "forest_votes", counted)
    monkeypatch.setattr(adult_sweep, "_QUICK_LABELS", (50, 100))
    monkeypatch.setattr(adult_sweep, "_QUICK_SCALES", (20.0,))
    assert adult_sweep.reproduce(quick=True, download=False, progress=False).quick
    assert asked == [(100, 0), (100, 1)]
