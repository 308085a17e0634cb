"""An ε in place of noise: teachers who vote get the least noise with which all their queries fit into the budget."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from tutelage import GNMax, Ledger, PATEClassifier, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.accounting.filter import RenyiFilter
from tutelage.events import of_queries
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidParameterError,
    LedgerMismatchError,
    MuchNoiseWarning,
)
from tutelage.methods import Method, TeacherVotes
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.terms import Asked

pytestmark = [
    pytest.mark.usefixtures("repeatable"),
    pytest.mark.filterwarnings("ignore::tutelage.exceptions.MuchNoiseWarning"),
]

DELTA = 1e-5
ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
TREE = DecisionTreeClassifier(max_depth=2, random_state=0)
PUBLIC = np.random.default_rng(3).uniform(size=(90, 4))


VOTES = TeacherVotes(TREE, n_teachers=20, student=TREE)


def model(
    method: Method | None = VOTES, epsilon: float | None = 2.0, **changes: Any
) -> PATEClassifier:
    return PATEClassifier(
        epsilon, method=method, random_state=0, noise=SimulationNoise(0), **changes
    )


def cost(sigma: float, queries: int, limit: RenyiFilter) -> int:
    return limit.cost(of_queries(GNMax(sigma).event_of_one(2, ROW, simulated=False), queries))


@pytest.mark.rest
@pytest.mark.parametrize(
    ("epsilon", "n_queries", "rounds"), [(1.0, 9, 1), (4.0, None, 1), (1.0, 50, 4)]
)
def test_the_noise_is_the_least_with_which_all_queries_fit(binary_rows, epsilon, n_queries, rounds):
    found: Any = model(replace(VOTES, n_queries=n_queries, rounds=rounds), epsilon).fit(
        *binary_rows, X_public=PUBLIC
    )
    asked, sigma = n_queries or len(PUBLIC), found.mechanism_.sigma
    limit = RenyiFilter.suited_to(epsilon, DELTA)
    assert cost(sigma, asked, limit) <= limit.capacity < cost(sigma * 0.9998, asked, limit)
    assert 0.9 * epsilon < found.epsilon_.epsilon <= epsilon
    assert found.ledger_.spent <= found.ledger_.budget == epsilon
    assert len(found.rounds_) == rounds
    assert sum(found.rounds_) == asked


def test_another_budget_than_that_of_the_ledger_trains_no_teacher(
    binary_rows, tmp_path, monkeypatch
):
    path = tmp_path / "a.ledger"
    Ledger.create(path, epsilon=2.0, delta=DELTA, unit=ROW)
    monkeypatch.setattr("tutelage.methods.TeacherVotes.prepare", lambda *_, **__: 1 / 0)
    with pytest.raises(
        InvalidParameterError, match="`epsilon` must be at most 2, the budget of the ledger"
    ):
        model(ledger=path, epsilon=2.5).fit(*binary_rows, X_public=PUBLIC)
    with pytest.raises(LedgerMismatchError, match="`budget` must be 2"):
        model(ledger=path, budget=2.5).fit(*binary_rows, X_public=PUBLIC)


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore::tutelage.exceptions.BudgetContinuedWarning")
@pytest.mark.parametrize("votes", [False, True])
def test_equal_releases_fill_a_budget_together_and_no_other_fits(binary_rows, tmp_path, votes):
    method = VOTES if votes else None
    shared: dict[str, Any] = {
        "ledger": tmp_path / "a.ledger",
        "epsilon": None,
        "budget": 2.0,
        "releases": 3,
    }
    asked = ("first", "second", "third", "first")
    fits: Any = [
        model(method, **shared, question=question).fit(*binary_rows, X_public=PUBLIC)
        for question in asked
    ]
    assert 1.999 < fits[2].ledger_.spent == fits[3].ledger_.spent <= 2.0
    if not votes:  # μ² of three sums is three times that of one
        alone: Any = model(method).fit(*binary_rows, X_public=PUBLIC)
        noise = [each.mechanism_.noise_multiplier for each in (fits[2], alone)]
        assert noise[0] == pytest.approx(3**0.5 * noise[1], rel=1e-4)
        event = fits[2].release_.event
        each = Asked(None, 2.0, 3, DELTA, given=False).each
        assert data_independent.epsilon(event, DELTA).epsilon == pytest.approx(each, rel=1e-3)
    with pytest.raises(BudgetExceededError):
        model(method, **shared, question="fourth").fit(*binary_rows, X_public=PUBLIC)


@pytest.mark.parametrize("changes", [
    {"epsilon": 1.0}, {"budget": None, "ledger": None},
    {"method": TeacherVotes(n_teachers=20, mechanism=GNMax(9.0))},
])  # fmt: skip
def test_releases_divide_a_budget_and_nothing_else(binary_rows, tmp_path, changes):
    settings: dict[str, Any] = {
        "ledger": tmp_path / "a.ledger",
        "budget": 2.0,
        "releases": 3,
        **changes,
    }
    with pytest.raises(
        InvalidParameterError, match="`releases` of PATEClassifier must come with `budget`"
    ):
        PATEClassifier(**settings).fit(*binary_rows, X_public=PUBLIC)


def test_it_fills_a_ledger_that_exists_by_the_order_of_that_ledger(binary_rows, tmp_path):
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=2.0, delta=DELTA, unit=ROW, order=40.0)
    found: Any = model(ledger=ledger).fit(*binary_rows, X_public=PUBLIC)
    limit, sigma = RenyiFilter(2.0, DELTA, 40.0), found.mechanism_.sigma
    assert cost(sigma, 90, limit) <= limit.capacity < cost(sigma * 0.9998, 90, limit)
    assert 1.99 < ledger.state().spent <= 2.0


@pytest.mark.rest
def test_noise_beyond_all_votes_is_warned_of(binary_rows):
    with pytest.warns(
        MuchNoiseWarning, match=r"σ = \d+(\.\d+)? votes, is larger than all 20 votes on a query"
    ):
        model(epsilon=1.0).fit(*binary_rows, X_public=PUBLIC)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MuchNoiseWarning)
        model(replace(VOTES, n_queries=9), 4.0).fit(*binary_rows, X_public=PUBLIC)
