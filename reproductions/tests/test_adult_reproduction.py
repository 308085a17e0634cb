import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import RidgeClassifier

from tutelage.cli.config import load_config
from tutelage.cli.prepare import prepare_release
from tutelage.cli.sources import load_sources
from tutelage.datasets import load_adult
from tutelage.methods import NoisyMoments
from tutelage.teachers import EstimatorTeachers
from tutelage_reproductions import adult
from tutelage_reproductions.record import Record

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def less_adult(monkeypatch):
    """A tenth of Adult, as if it were all of it, and as little work on it."""
    whole = load_adult()
    less = replace(
        whole,
        X_private=whole.X_private[:3000], y_private=whole.y_private[:3000],
        X_public=whole.X_public[:1600], y_public=whole.y_public[:1600],
    )  # fmt: skip
    monkeypatch.setattr(adult, "load_adult", lambda: less)
    monkeypatch.setattr(adult, "EVALUATION_ROWS", 1100)
    monkeypatch.setattr(adult, "FORESTS", 10)
    monkeypatch.setattr(adult, "_QUICK_RUNS", 3)
    monkeypatch.setattr(adult, "_ANSWERS", 60)
    monkeypatch.setattr(adult, "SelfTrainingStudent", adult.RandomForestClassifier)
    teachers = adult._Teachers(30, 1.0, 2)
    monkeypatch.setattr(
        adult,
        "_POINTS",
        (
            adult._Point(teachers, 400, 200.0, 0.1, reaches=80.0),
            adult._Point(teachers, 400, 5.0, 0.1),
        ),
    )
    return less


def test_the_papers_setting_and_ours_stand_side_by_side(less_adult):
    record = adult.reproduce(quick=True, download=False, progress=False)
    rows = {row.name: row for row in record.rows}
    assert record.name == "adult"
    assert record.quick
    assert rows["without privacy: forest, %"].published == 85.0
    papers = rows["10 forests, LNMax 20, 60 queries: forest, %"]
    assert papers.published == 83.0
    assert papers.interval is not None
    assert papers.interval[0] <= papers.ours <= papers.interval[1]
    by_votes, by_bound, any_votes = (
        rows[f"10 forests, LNMax 20, 60 queries: {how}"].ours
        for how in ("vote-dependent ε, exact", "vote-dependent ε, bound of 2017", "worst-case ε")
    )
    assert by_votes < by_bound
    assert by_votes < any_votes
    hidden, plain = (
        rows[f"30 ridge, GNMax {sigma}, 400 queries: student, %"] for sigma in (200, 5)
    )
    assert hidden.at_least == 80.0
    assert plain.ours > 79 > hidden.ours
    assert rows["30 ridge, GNMax 200, 400 queries: worst-case ε"].at_most == 1.5


def test_the_demo_has_the_defaults_and_is_compared_with_recorded_numbers():
    settings = load_config(REPOSITORY / "examples" / "adult.toml")
    assert (settings.method, settings.privacy.epsilon) in ((None, 0.5), (NoisyMoments(), 0.5))
    bare, papers = settings.published
    assert bare.student_accuracy is not None
    assert papers.student_accuracy is not None
    rows, last = load_adult(), -(settings.public.evaluate_last or 0)
    trees = HistGradientBoostingClassifier(random_state=0).fit(rows.X_private, rows.y_private)
    measured = trees.score(rows.X_public[last:], rows.y_public[last:])
    # Which differs with the version of the trees.
    assert measured == pytest.approx(bare.student_accuracy, abs=0.0015)
    recorded = {
        row.name: row for row in Record.load(REPOSITORY / "docs" / "results" / "adult.json").rows
    }
    assert (
        100 * papers.student_accuracy
        == recorded["250 forests, LNMax 20, 500 queries: forest, %"].published
    )
    assert (
        papers.epsilon
        == recorded["250 forests, LNMax 20, 500 queries: vote-dependent ε, bound of 2017"].published
    )


def test_nothing_is_objected_to_in_the_demo():
    settings = load_config(REPOSITORY / "examples" / "adult.toml")
    data = load_sources(settings)
    with warnings.catch_warnings(record=True) as told:
        prepare_release(settings, data)
    assert told == []


def test_what_a_published_epsilon_promises_is_computed_for_unsimulated_noise():
    # Gaussian mechanism of sensitivity √2 per answer: μ = √(2·500)/80, whose ε at δ = 1e-5 bounds that of its argmax.
    assert 1.2 < adult.publishable(adult.GNMax(80.0), 500) < 1.74


def test_rows_are_encoded_by_public_rows_alone(less_adult):
    before = adult._encoded(less_adult.X_public, less_adult)
    other = replace(less_adult, X_private=less_adult.X_private[::-1] + 1)
    assert np.array_equal(adult._encoded(other.X_public, other), before)
    assert set(np.unique(before)) == {0.0, 1.0}
    assert np.array_equal(adult._encoded(less_adult.X_public[7:8], less_adult)[0], before[7])
    older = less_adult.X_public[:1].copy()
    older[0, 0] = 200  # reaches every step of age
    assert adult._encoded(older, less_adult)[0, :8].all()


def test_rows_that_are_there_several_times_weigh_as_much_and_stay_with_their_teacher(less_adult):
    X, queries = (
        adult._encoded(rows, less_adult)
        for rows in (less_adult.X_private, less_adult.X_public[:200])
    )
    votes = adult._ridge_votes(adult._Teachers(30, 0.5, 3), X, less_adult.y_private, queries, run=0)
    weighted = EstimatorTeachers(
        RidgeClassifier(0.5, class_weight={0: 1.0, 1: 3.0}), n_classes=2, seed=0
    )
    ballots = weighted.fit_ballots(X, less_adult.y_private, adult._shards(X, 30, 0), queries)
    assert np.array_equal(votes.counts[:, 1], (ballots == 1).sum(axis=0))
    assert votes.unit.name == "row"


def test_the_student_is_never_shown_an_evaluation_row(less_adult):
    class Watcher(adult.LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            Watcher.seen = X
            return super().fit(X, y, sample_weight)

    encoded = adult._encoded(less_adult.X_public, less_adult)
    asked = np.arange(0, 500, 5)
    score = adult.score(
        Watcher(), encoded, asked, less_adult.y_public[asked], less_adult.y_public, 0
    )
    assert np.array_equal(Watcher.seen, encoded[asked])
    assert 70 < score < 90
