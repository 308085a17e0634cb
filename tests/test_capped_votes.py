"""Votes on at most so many queries: checked on every ballot, and released by `CappedGNMax` only."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ledgers import reserve, settle
from tutelage import GNMax, LabelingSession, Ledger, VoteHistogram
from tutelage._internal.typing import ABSTAIN
from tutelage.ballots import cap_ballots, tally, tally_few
from tutelage.events import CappedArgmaxGaussian, Repeated, of_queries
from tutelage.exceptions import (
    InvalidBallotError,
    InvalidDataError,
    InvalidParameterError,
    LedgerError,
    UnsupportedEventError,
)
from tutelage.mechanisms import CappedGNMax, Mechanism
from tutelage.privacy import ONE_TEACHER

BALLOTS = arrays(
    np.int16, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.integers(-1, 2)
)
X = np.arange(8.0).reshape(4, 2)
EVENT = CappedArgmaxGaussian(20.0, 2, 2, ONE_TEACHER)


@pytest.fixture
def ledger():
    return Ledger.in_memory(epsilon=5.0, delta=1e-5, unit=ONE_TEACHER)


@pytest.fixture
def session(ledger):
    return LabelingSession(capped(), CappedGNMax(20.0, 2), ledger, X_voted=X)


def sparse(ballots):
    """Return who votes, on which query, and for which class."""
    teachers, queries = np.nonzero(ballots != ABSTAIN)
    return teachers, queries, ballots[teachers, queries]


def capped(counts=((9, 1), (2, 8), (5, 5), (0, 3)), cap=2):
    return VoteHistogram(np.array(counts), n_teachers=20, cap=cap)


@given(ballots=BALLOTS, cap=st.integers(1, 6))
def test_a_ballot_above_its_cap_is_refused_and_no_other_one(ballots, cap):
    shape = (*ballots.shape, 3)
    if (ballots != ABSTAIN).sum(axis=1).max() > cap:
        for refused in (
            lambda: tally(ballots, 3, cap=cap),
            lambda: tally_few(*sparse(ballots), shape=shape, cap=cap),
        ):
            with pytest.raises(InvalidBallotError, match="One cast more"):
                refused()
        return
    dense, few = tally(ballots, 3, cap=cap), tally_few(*sparse(ballots), shape=shape, cap=cap)
    assert np.array_equal(dense.counts, tally(ballots, 3).counts)
    assert np.array_equal(few.counts, dense.counts)
    assert (few.n_teachers, few.cap, dense.cap) == (len(ballots), cap, cap)


@pytest.mark.parametrize(("votes", "message"), [
    (([0, 0], [1, 1], [0, 1]), "one vote on a query"),
    (([0], [0], [-1]), "from 0 on"),
    (([0, 1], [0], [0]), "one teacher, one query and one class"),
])  # fmt: skip
def test_sparse_votes_that_are_none_are_refused(votes, message):
    with pytest.raises(InvalidBallotError, match=message):
        tally_few(*map(np.array, votes), shape=(3, 4, 2), cap=2)


@pytest.mark.parametrize("make", [
    lambda: VoteHistogram(np.array([[1, 1]]), 2, cap=0),
    lambda: tally_few(*np.zeros((3, 1), dtype=int), shape=(1, 1, 2), cap=0),
    lambda: cap_ballots(np.zeros((2, 3), dtype=int), np.zeros((2, 3)), 0),
])  # fmt: skip
def test_a_cap_is_a_number_of_votes(make):
    with pytest.raises(InvalidParameterError, match=r"`cap` of .* must be an integer >= 1"):
        make()


def test_counts_of_more_votes_than_the_cap_allows_are_refused():
    assert VoteHistogram(np.array([[3, 1], [2, 2]]), 4, cap=2).cap == 2
    with pytest.raises(InvalidDataError, match="votes per teacher"):
        VoteHistogram(np.array([[3, 1], [2, 2], [1, 0]]), 4, cap=2)


def test_the_cap_stays_with_the_votes(tmp_path):
    votes = capped()
    votes.save(tmp_path / "votes.npz")
    kept = [
        votes.first(2),
        votes.select(np.array([0, 3])),
        VoteHistogram.load(tmp_path / "votes.npz"),
    ]
    assert [one.cap for one in kept] == [2, 2, 2]
    VoteHistogram(votes.counts, 20).save(tmp_path / "votes.npz")
    assert VoteHistogram.load(tmp_path / "votes.npz").cap is None
    assert "cap=2" in repr(votes)
    assert "20" not in repr(votes)  # the number of people may be private


@dataclass(frozen=True)
class Mine(Mechanism):
    """A mechanism of a user's own that pays for capped votes."""

    def event_of_one(self, n_classes, unit, *, simulated):
        return CappedArgmaxGaussian(20.0, 2, n_classes, unit, simulated)

    def release(self, votes, noise, predictions=None):
        raise AssertionError


@pytest.mark.parametrize("cap", [None, 3])
def test_votes_without_the_cap_are_refused_before_anything_is_spent(cap, ledger):
    with pytest.raises(InvalidDataError, match="`cap` of at most 2"):
        LabelingSession(capped(cap=cap), Mine(), ledger).ask(X)
    assert ledger.state().spent == 0


def test_a_batch_costs_one_event_whatever_its_size(ledger, session):
    assert of_queries(EVENT, 4) == Repeated(EVENT, 1)
    released = session.ask(X)
    assert released.cost == ledger.account.share_of(EVENT)
    assert (len(released.labels), session.ask(X).cost) == (4, 0)
    state = ledger.verify()
    assert (state.answers, state.spent) == (4, released.cost)


def test_a_second_batch_of_counted_votes_is_paid_again(ledger, session):
    # Whoever counted them may have voted again: only teachers that are known by name can be held to a cap on all.
    first, second = session.ask(X[:2]), session.ask(X[2:])
    assert first.cost == second.cost > 0
    assert ledger.verify().spent == pytest.approx(2 * first.cost)


def test_an_event_of_another_kind_answers_no_more_queries_than_it_paid_for(ledger):
    event = GNMax(20.0).event_of_one(2, ONE_TEACHER, simulated=False)
    reservation = reserve(ledger, event, 1)
    with pytest.raises(LedgerError, match="more labels"):
        settle(ledger, reservation, {bytes(32): (0,), bytes([1]) * 32: (1,)}, event)


def test_capped_votes_have_no_cost_that_depends_on_them(session):
    session.ask(X)
    with pytest.raises(UnsupportedEventError, match="no cost that depends on them"):
        session.accountant()
    with pytest.raises(UnsupportedEventError, match="no cost that depends on them"):
        session.released(X)


# Votes where a teacher is most confident


def most_confident_by_hand(ballot, confidences, cap):
    votes = [
        place
        for place, vote in enumerate(ballot)
        if vote != ABSTAIN and not np.isnan(confidences[place])
    ]
    kept = sorted(votes, key=lambda place: (-confidences[place], place))[:cap]
    return [vote if place in kept else ABSTAIN for place, vote in enumerate(ballot)]


@given(
    ballots=BALLOTS,
    levels=st.lists(
        st.sampled_from([0.2, 0.5, 0.5, 0.9, np.nan, np.inf, -np.inf]), min_size=48, max_size=48
    ),
    cap=st.integers(1, 6),
)
def test_a_teacher_keeps_the_votes_that_it_is_most_sure_of(ballots, levels, cap):
    confidences = np.array(levels[: ballots.size]).reshape(ballots.shape)
    capped = cap_ballots(ballots, confidences, cap)
    tally(capped, 3, cap=cap)
    for ballot, sure, kept in zip(ballots, confidences, capped, strict=True):
        assert kept.tolist() == most_confident_by_hand(ballot.tolist(), sure, cap)


def test_what_is_no_ballot_or_confidence_is_refused():
    with pytest.raises(InvalidBallotError, match="a confidence each"):
        cap_ballots(np.zeros((2, 3), dtype=int), np.zeros((2, 4)), 1)


# The command line


def test_label_charges_one_batch(tmp_path, called):
    capped().save(tmp_path / "votes.npz")
    np.savez(tmp_path / "public.npz", X=X)
    Ledger.create(tmp_path / "a.ledger", epsilon=5.0, delta=1e-5, unit=ONE_TEACHER)
    options = "--mechanism capped --sigma 20 --cap 2 --ledger a.ledger --output labels.csv"
    result = called("label", "public.npz", "--votes", "votes.npz", *options.split(), cwd=tmp_path)
    assert "Wrote 4 of 4 labels" in result.stdout
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert (ledger.verify().answers, ledger.state().spent) == (4, ledger.account.share_of(EVENT))
