"""One accountant for a run: what it adds up, what it refuses, and what it keeps to itself."""

import traceback

import numpy as np
import pytest

from tutelage import VoteHistogram
from tutelage._internal.typing import ABSTAIN
from tutelage.accounting import Accountant, data_independent, pate_bounds
from tutelage.accounting.accountant import confident_runs
from tutelage.accounting.exact import ExactCosts
from tutelage.accounting.rdp import DEFAULT_ORDERS, RenyiCurve, classic, search_epsilon
from tutelage.ballots import tally
from tutelage.events import (
    Composed,
    ConfidenceCheck,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    Repeated,
)
from tutelage.exceptions import InvalidDataError, InvalidParameterError, UnsupportedEventError
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit, PrivateEpsilon

DELTA = 1e-5
COSTS = ("data_independent", "bound_2017", "bound_2018", "exact")
GENERATOR = np.random.default_rng(3)
BALLOTS = GENERATOR.choice(4, size=(60, 40), p=[0.7, 0.2, 0.08, 0.02]).astype(np.int16)
BALLOTS[GENERATOR.uniform(size=(60, 40)) < 0.05] = ABSTAIN
VOTES = tally(BALLOTS, 4)
LAPLACE = NoisyArgmaxLaplace(5.0, 4, ONE_TEACHER)
GAUSSIAN = NoisyArgmaxGaussian(9.0, 4, ONE_TEACHER)
CHECK = ConfidenceCheck(40, 12.0, 4, ONE_TEACHER)


def accountant_of(*additions) -> Accountant:
    accountant = Accountant()
    for event, votes in additions:
        accountant.add(Repeated(event, votes.n_queries), votes)
    return accountant


def test_a_run_of_several_kinds_adds_up_order_by_order():
    passed = VOTES.select(VOTES.counts.max(axis=1) > 38)
    both = accountant_of((CHECK, VOTES), (GAUSSIAN, passed), (LAPLACE, VOTES))

    def total(orders):
        return np.sum([ExactCosts(event, votes).total(orders) for event, votes in parts], axis=0)

    parts = ((CHECK, VOTES), (GAUSSIAN, passed), (LAPLACE, VOTES))
    found = both.exact(DELTA)
    at = np.array([found.reveal_order()])
    assert found.reveal() == pytest.approx(
        RenyiCurve(at, total(at)).to_epsilon(DELTA).epsilon, rel=1e-12
    )
    assert found.reveal() == pytest.approx(search_epsilon(total, DELTA).epsilon, rel=1e-3)
    released = Composed(tuple(Repeated(event, votes.n_queries) for event, votes in parts))
    assert both.data_independent(DELTA) == data_independent.epsilon(released, DELTA)


def test_a_query_asked_twice_is_paid_twice():
    once, twice = VOTES.first(1), VOTES.select(np.array([0, 0]))
    orders = np.array([3.0])
    assert ExactCosts(LAPLACE, twice).total(orders) == pytest.approx(
        2 * ExactCosts(LAPLACE, once).total(orders)
    )


def test_the_analyses_come_in_their_order():
    accountant, gaussian = accountant_of((LAPLACE, VOTES)), accountant_of((GAUSSIAN, VOTES))
    exact = accountant.exact(DELTA).reveal()
    assert (
        0
        < exact
        < min(accountant.bound_2018(DELTA).reveal(), accountant.bound_2017(DELTA).reveal())
    )
    curve = RenyiCurve(DEFAULT_ORDERS, pate_bounds.total_cost_2018(GAUSSIAN, VOTES, DEFAULT_ORDERS))
    assert gaussian.bound_2018(DELTA).reveal() == pytest.approx(
        curve.to_epsilon(DELTA, classic).epsilon, rel=1e-12
    )
    assert gaussian.exact(DELTA).reveal() < gaussian.data_independent(DELTA).epsilon


def test_what_may_be_published_charges_answers_up_to_a_limit_that_was_fixed():
    few = VOTES.first(10)
    accountant = accountant_of((CHECK, VOTES), (GAUSSIAN, few))
    with pytest.raises(InvalidDataError, match="at_most"):
        accountant.data_independent(DELTA)
    limited, every = Accountant(), accountant_of((CHECK, VOTES), (GAUSSIAN, VOTES))
    limited.add(Repeated(CHECK, 40), VOTES)
    limited.add(Repeated(GAUSSIAN, 10), few, at_most=25)
    expected = data_independent.epsilon(
        Composed((Repeated(CHECK, 40), Repeated(GAUSSIAN, 25))), DELTA
    )
    assert limited.data_independent(DELTA) == expected
    assert expected.epsilon < every.data_independent(DELTA).epsilon
    with pytest.raises(InvalidParameterError, match="at_most"):
        limited.add(Repeated(GAUSSIAN, 10), few, at_most=9)


def test_everything_that_reads_votes_is_guarded():
    accountant = accountant_of((LAPLACE, VOTES))
    for cost in (
        accountant.exact(DELTA),
        accountant.bound_2017(DELTA),
        accountant.bound_2018(DELTA),
    ):
        assert type(cost) is PrivateEpsilon  # which does not print or pickle


@pytest.mark.parametrize(("add", "message"), [
    (lambda a: a.add(Repeated(LAPLACE, 3), VOTES), "happened 3 times, the votes hold 40"),
    (lambda a: a.add(Repeated(LAPLACE, 41), VOTES), "happened 41 times"),
    (lambda a: a.add(Repeated(CHECK, 40), offsets=np.zeros((40, 4))), "go with `votes`"),
    (lambda a: a.add(Composed((LAPLACE, GAUSSIAN)), VOTES), "add each of its events"),
    (lambda a: a.add(Repeated(InteractiveCheck(3, 3, 4, ONE_TEACHER), 40), VOTES), "`offsets`"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_without_a_count(add, message):
    with pytest.raises((InvalidDataError, UnsupportedEventError), match=message) as caught:
        add(Accountant())
    assert str(VOTES.counts.max()) not in "".join(traceback.format_exception_only(caught.value))


WITHOUT_VOTES = Accountant()
WITHOUT_VOTES.add(Repeated(LAPLACE, 40))
ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
TWO_UNITS = accountant_of(
    (LAPLACE, VOTES),
    (NoisyArgmaxLaplace(5.0, 4, ROW), VoteHistogram(VOTES.counts, VOTES.n_teachers, ROW)),
)


@pytest.mark.parametrize(("accountant", "methods", "error", "message"), [
    (Accountant(), COSTS, InvalidDataError, "empty"),
    (WITHOUT_VOTES, COSTS[1:], InvalidDataError, "pass `votes`"),
    (accountant_of((GAUSSIAN, VOTES)), ["bound_2017"], UnsupportedEventError, "NoisyArgmaxGaussian"),
    (TWO_UNITS, ["data_independent", "exact", "bound_2018"], UnsupportedEventError, "units of privacy"),
], ids=["empty", "no votes", "no bound", "two units"])  # fmt: skip
def test_costs_that_are_unknown_are_refused(accountant, methods, error, message):
    for method in methods:
        with pytest.raises(error, match=message):
            getattr(accountant, method)(DELTA)


def test_delta_is_checked():
    for method in COSTS:
        with pytest.raises(InvalidParameterError, match=f"`delta` of Accountant.{method} "):
            getattr(accountant_of((LAPLACE, VOTES)), method)(1)


@pytest.mark.rest
def test_the_search_over_orders_ends_near_the_best_of_all_orders():
    costs = ExactCosts(LAPLACE, VOTES)
    orders = 1 + np.geomspace(1e-2, 1e4, 4000)
    best, _ = RenyiCurve(orders, costs.total(orders)).to_epsilon(DELTA)
    assert best * (1 - 1e-9) <= search_epsilon(costs.total, DELTA).epsilon <= best * (1 + 2e-4)


def test_runs_of_a_confident_mechanism_pay_for_every_check_and_for_the_answers_given():
    passed = np.stack([np.zeros(40, bool), np.ones(40, bool), VOTES.counts.max(axis=1) > 40])
    runs = confident_runs(CHECK, GAUSSIAN, VOTES, DELTA, passed)
    every = accountant_of((CHECK, VOTES), (GAUSSIAN, VOTES))
    nothing, everything, some = (cost.reveal() for cost in runs.exact)
    assert nothing == pytest.approx(accountant_of((CHECK, VOTES)).exact(DELTA).reveal(), rel=5e-3)
    assert everything == pytest.approx(every.exact(DELTA).reveal(), rel=5e-3)
    assert nothing < some < everything
    assert runs.data_independent[1].reveal() == pytest.approx(
        every.data_independent(DELTA).epsilon, rel=5e-3
    )
    assert runs.bound_2018[1].reveal() == pytest.approx(every.bound_2018(DELTA).reveal(), rel=5e-3)
    with pytest.raises(InvalidDataError, match="passed"):
        confident_runs(CHECK, GAUSSIAN, VOTES, DELTA, passed[:, :3])
