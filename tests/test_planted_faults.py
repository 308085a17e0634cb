"""Planted faults, each of which must be noticed: those of the published list, and more in the accounting."""

import json
from dataclasses import replace

import numpy as np
import pytest

from conftest import REPOSITORY
from exact import discrete_laplace_masses, label_probabilities, log_renyi_moment, neighbors, per_source
from precise import precise_cost
from tutelage.accounting import argmax_bound, exact, outcome_probabilities, pate_bounds
from tutelage.accounting.exact import ExactCosts
from tutelage.ballots import VoteHistogram
from tutelage.events import NoisyArgmaxLaplace
from tutelage.privacy import ONE_TEACHER
from tutelage_reproductions import planted_faults
from tutelage_reproductions.planted_faults import FAULTS as PUBLISHED_FAULTS
from tutelage_reproductions.planted_faults import Fault

SCALE, ORDER = 2.0, 3.0
EVENT = NoisyArgmaxLaplace(SCALE, 3, ONE_TEACHER)
MASSES = discrete_laplace_masses(SCALE, 120)
COUNTS = np.array([[6, 6, 4], [4, 6, 6], [9, 4, 2], [4, 6, 6]])


def agree_with_enumeration() -> None:
    """Compare the total cost with a walk over all neighbors, abstention included."""
    votes = VoteHistogram(COUNTS, 16)  # in the third row somebody abstained
    expected = 0.0
    for counts in COUNTS:
        here = label_probabilities(counts, MASSES)
        moved = neighbors(counts, abstain=True)
        if counts.sum() < 16:
            moved = [*moved, *(counts + step for step in np.eye(3, dtype=int))]
        laws = [label_probabilities(other, MASSES) for other in moved]
        expected += max(max(log_renyi_moment(here, q, ORDER), log_renyi_moment(q, here, ORDER)) for q in laws)
    costs = ExactCosts(EVENT, votes)
    assert costs.total(np.array([ORDER]))[0] == pytest.approx(expected / (ORDER - 1), rel=1e-9)
    abstainer = per_source(costs, np.array([ORDER]))[:, -1, 0]
    assert np.array_equal(abstainer > 0, COUNTS.sum(axis=1) < 16)


def agree_with_fifty_digits() -> None:
    """Require that no cost lies below one computed with fifty digits, not even in its last digits."""
    for counts in ([12, 3, 2], [7, 7, 1], [20, 0, 1]):
        votes = VoteHistogram(np.array([counts]), sum(counts))
        found = per_source(ExactCosts(EVENT, votes), np.array([ORDER]))[0, :3, 0]
        for source in np.flatnonzero(counts).tolist():
            targets = [target for target in range(4) if target != source]
            assert found[source] >= max(precise_cost("laplace", counts, SCALE, ORDER, source, t) for t in targets)


def agree_with_all_classes_kept() -> None:
    """Require that classes put aside cost no less, with many of them near enough to matter."""
    votes = VoteHistogram(np.array([[30, 24] + [10] * 16, [20, 3] + [2] * 16]), 214)
    event, orders = NoisyArgmaxLaplace(3.0, 18, ONE_TEACHER), np.array([1.5, 6.0, 40.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_ALL_KEPT", 18)
        whole = per_source(ExactCosts(event, votes), orders)
        patch.setattr(exact, "_ALL_KEPT", 2)
        patch.setattr(exact, "_FAR_MASS", 0.5)
        aside = per_source(ExactCosts(event, votes), orders)
    assert np.all(aside >= whole * (1 - 1e-9))


def agree_on_the_worst_position() -> None:
    """Require that no histogram costs more than the bound for all of them, positions taken in cells."""
    argmax_bound.positions_of.cache_clear()
    random = np.random.default_rng(0)
    counts = np.concatenate([random.integers(0, 12, (40, 3)), [[5, 5, 0], [5, 6, 0], [6, 5, 4]]])
    votes = VoteHistogram(counts, int(counts.sum(axis=1).max()))
    for order in (1.1, ORDER, 9.0):
        cost = ExactCosts(EVENT, votes).per_query(np.array([order])).max()
        assert cost <= argmax_bound.laplace_argmax(SCALE, order)
    argmax_bound.positions_of.cache_clear()


def agree_on_theorem_3() -> None:
    """Require that the bounds by q lie above what enumeration finds at noise so small that the condition matters."""
    masses = discrete_laplace_masses(1.0, 60)
    votes = VoteHistogram(np.array([[2, 1]]), 3)
    here = label_probabilities(votes.counts[0], masses)
    worst = max(log_renyi_moment(here, label_probabilities(q, masses), 2.0) for q in neighbors(votes.counts[0]))
    log_q = np.log(here[1:])
    assert pate_bounds.log_moments(log_q, 1.0, np.array([1.0]))[0, 0] >= worst


def one_direction(patch: pytest.MonkeyPatch) -> None:
    def forward_only(laws, orders):
        terms = exact._Terms.of(laws.log_mass, laws.log_ratio)
        moments = [terms.log_moment(order, None) / (order - 1) for order in orders]
        return np.stack([np.where(laws.possible, moment, 0).max(axis=2) for moment in moments], axis=-1)

    patch.setattr(exact, "worst_divergences", forward_only)


def ties_that_never_happen(patch: pytest.MonkeyPatch) -> None:
    field = outcome_probabilities._Field
    along = field.along
    patch.setattr(field, "along", lambda self, table, gaps, *, below=False: along(self, table, gaps))


def only_moves_to_the_plurality(patch: pytest.MonkeyPatch) -> None:
    possible = outcome_probabilities._possible

    def to_the_first(counts, may_enter):
        keep = np.append(counts, np.zeros((len(counts), 1)), axis=1) == counts.max(axis=1)[:, None]
        return possible(counts, may_enter) & keep[:, None, :]

    patch.setattr(outcome_probabilities, "_possible", to_the_first)


def nobody_enters(patch: pytest.MonkeyPatch) -> None:
    possible = outcome_probabilities._possible
    patch.setattr(outcome_probabilities, "_possible", lambda counts, enter: possible(counts, np.zeros_like(enter)))


def equal_histograms_paid_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExactCosts, "total", lambda costs, orders: costs._costs(orders).sum(axis=0))


def class_order_ignored(patch: pytest.MonkeyPatch) -> None:
    fit = VoteHistogram(np.sort(COUNTS, axis=1), 16)
    init = ExactCosts.__init__
    patch.setattr(ExactCosts, "__init__", lambda costs, event, _votes: init(costs, event, fit))


def rounded_down(patch: pytest.MonkeyPatch) -> None:
    law_of = exact._law_of

    def narrowed(*arguments):
        laws = law_of(*arguments)
        return replace(laws, slack=0 * laws.slack)

    patch.setattr(exact, "_law_of", narrowed)
    patch.setattr(exact, "_UPWARD", 1 - 1e-11)


def classes_put_aside_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcome_probabilities._Field, "cover_far_moves", lambda *given: given[2:])
    patch.setattr(outcome_probabilities._Field, "remainder", lambda _field: None)


def outcomes_put_aside_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcome_probabilities._Field, "remainder", lambda _field: None)


def cells_read_at_their_first_corner(patch: pytest.MonkeyPatch) -> None:
    bound = argmax_bound._bound
    patch.setattr(argmax_bound, "_LATTICE", 3)
    patch.setattr(argmax_bound, "excess_of_two", lambda *_: np.zeros(1))
    patch.setattr(argmax_bound, "excess_of_one_count", lambda *_: np.zeros(1))
    patch.setattr(argmax_bound, "_bound", lambda positions, x, y, _span, order: bound(positions, x, y, 0, order))


def condition_of_theorem_3_at_a_half(patch: pytest.MonkeyPatch) -> None:
    logaddexp = np.logaddexp
    patch.setattr(np, "logaddexp", lambda x, y: np.log(2) if np.ndim(x) == 0 == np.ndim(y) else logaddexp(x, y))


FAULTS = {
    agree_with_enumeration: (
        *(one_direction, ties_that_never_happen, only_moves_to_the_plurality),
        *(nobody_enters, equal_histograms_paid_once, class_order_ignored),
    ),
    agree_with_fifty_digits: (rounded_down,),
    agree_with_all_classes_kept: (classes_put_aside_forgotten, outcomes_put_aside_forgotten),
    agree_on_the_worst_position: (cells_read_at_their_first_corner,),
    agree_on_theorem_3: (condition_of_theorem_3_at_a_half,),
}


@pytest.mark.parametrize("oracle", FAULTS)
def test_the_oracle_is_content_with_what_is_here(oracle):
    oracle()


PLANTED = [(oracle, fault) for oracle, faults in FAULTS.items() for fault in faults]


@pytest.mark.parametrize(("oracle", "fault"), PLANTED, ids=lambda function: function.__name__)
def test_the_oracle_notices(oracle, fault, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        oracle()


def test_the_list_is_whole_and_the_one_that_is_published():
    published = json.loads((REPOSITORY / "docs" / "results" / "planted-faults.json").read_text())["rows"]
    assert len(PUBLISHED_FAULTS) == len({fault.name for fault in PUBLISHED_FAULTS}) == 27
    for number, fault in enumerate(PUBLISHED_FAULTS):
        expected = f"{number + 1}. {fault.name} ({fault.planted}): caught by {fault.caught_by}"
        assert published[number]["name"] == expected


@pytest.mark.rest
@pytest.mark.parametrize("fault", PUBLISHED_FAULTS, ids=lambda fault: fault.name)
def test_the_published_fault_is_caught_and_what_is_right_is_not(fault):
    assert fault.caught
    assert fault.accepts_what_is_right


def test_the_table_counts_what_was_caught(monkeypatch):
    blind = Fault(name="blind", planted="", caught_by="", check=lambda _: True, right=1, wrong=2)
    monkeypatch.setattr(planted_faults, "FAULTS", (PUBLISHED_FAULTS[20], blind))
    record = planted_faults.reproduce(quick=False, download=False, progress=False)
    assert [row.ours for row in record.rows] == [1.0, 0.0, 1.0, 0.0]
    assert record.rows[-2].at_least == 2.0  # so one that is missed shows
