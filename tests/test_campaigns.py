"""A cap on the votes of every person over all that is ever asked: spent before noise, paid once, passed by no crash."""

import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers import new_ledger, reserve, reserve_votes, settle
from processes import called_by_itself, die_at_event, forked
from tutelage import GNMax, LabelingSession, Ledger, Shards, SimulationNoise, SystemNoise
from tutelage.accounting.filter import RenyiFilter
from tutelage.events import CappedArgmaxGaussian, Repeated, count_releases
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidBallotError,
    InvalidDataError,
    LedgerError,
    LedgerMismatchError,
    LedgerStorageError,
    LedgerTamperedError,
)
from tutelage.labeling import ask_in_rounds
from tutelage.ledger.account import Account
from tutelage.ledger.campaigns import Voters
from tutelage.ledger.entries import Entry, EntryKind
from tutelage.mechanisms import CappedGNMax
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.students.selection import RandomRows
from tutelage.teachers import NearestQueries
from tutelage.teachers.nearest import FewVotes

CLASSES, DELTA = 3, 1e-5
PERSON = PrivacyUnit("person", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)
MECHANISM = CappedGNMax(sigma=20.0, cap=5)
EVENT: Any = MECHANISM.event_of_one(CLASSES, PERSON, simulated=False)


def private_rows(seed=0, n_rows=60, n_people=40):
    """Return private rows, labels, and ids."""
    random = np.random.default_rng(seed)
    return (
        random.normal(size=(n_rows, 2)),
        random.integers(0, CLASSES, n_rows),
        random.integers(0, n_people, n_rows),
    )


def people(X, y, ids, cap=2):
    return NearestQueries(cap).fit(
        X, y, Shards.of_single_people(len(X), ids, name="person"), n_classes=CLASSES
    )


def batch(number, queries=4):
    return np.random.default_rng([1, number]).normal(size=(queries, 2))


def in_memory(epsilon=50.0):
    return new_ledger(epsilon=epsilon, unit=PERSON, suited_to=EVENT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    new_ledger(tmp_path / "a.ledger", 50.0, unit=PERSON, suited_to=EVENT)
    return tmp_path / "a.ledger"


def spent_by_people(path: Path) -> list[int]:
    """Return the votes that each person has spent in all campaigns of a ledger."""
    with closing(sqlite3.connect(path)) as raw:
        return [votes for (votes,) in raw.execute("SELECT votes FROM votes")]


def session(path: Path, teachers=None, mechanism=MECHANISM, **settings) -> LabelingSession:
    return LabelingSession(
        teachers or people(*private_rows()), mechanism, Ledger.open(path), **settings
    )


def watched(patch: Any) -> list:
    """Return a list of the votes that noise is added to from now on."""
    kept, release = [], CappedGNMax.release
    patch.setattr(
        CappedGNMax,
        "release",
        lambda self, votes, *more: kept.append(votes) or release(self, votes, *more),
    )
    return kept


@pytest.fixture
def seen(monkeypatch) -> list:
    return watched(monkeypatch)


def campaign(rows, batches, mechanism=MECHANISM, cap=2, ledger=None):
    """Return the vote counts of every batch of a campaign."""
    ledger, teachers = ledger or in_memory(), people(*rows, cap=cap)
    with pytest.MonkeyPatch.context() as patch:
        kept = watched(patch)
        asking = LabelingSession(teachers, mechanism, ledger, noise=SimulationNoise(0))
        for X in batches:
            asking.ask(X)
    return [votes.counts for votes in kept]


# What it counts


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    cap=st.integers(1, 4),
    total=st.integers(1, 6),
)
def test_everybody_votes_until_the_cap_and_no_further(seed, sizes, cap, total):
    rows, mechanism = private_rows(seed, 20, 9), CappedGNMax(20.0, total)
    batches = [batch(seed + place, size) for place, size in enumerate(sizes)]
    found, teachers, left = (
        campaign(rows, batches, mechanism, cap),
        people(*rows, cap=cap),
        Counter(),
    )
    for X, counts in zip(batches, found, strict=True):
        votes, expected = teachers.few_votes(X), np.zeros((len(X), CLASSES), dtype=np.int64)
        for teacher, query, label in zip(votes.teachers, votes.queries, votes.labels, strict=True):
            if left[teacher] < total:
                left[teacher] += 1
                expected[query, label] += 1
        assert np.array_equal(counts, expected)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), change=st.sampled_from(["rows", "labels", "gone"]))
def test_one_person_moves_at_most_twice_the_cap_over_all_batches(seed, change):
    X, y, ids = private_rows(seed, 20, 9)
    own, (Z, z) = ids == ids[0], (X.copy(), y.copy())
    Z[own] = (
        np.random.default_rng(seed + 1).normal(size=Z[own].shape) if change == "rows" else Z[own]
    )
    z[own] = (z[own] + 1) % CLASSES if change == "labels" else z[own]
    there = (X[~own], y[~own], ids[~own]) if change == "gone" else (Z, z, ids)
    batches = [batch(seed + number) for number in range(5)]
    both = zip(campaign((X, y, ids), batches), campaign(there, batches), strict=True)
    moved = sum(int(np.abs(one - other).sum()) for one, other in both)  # a moved vote counts twice
    assert moved <= (MECHANISM.cap if change == "gone" else 2 * MECHANISM.cap)


def test_a_campaign_is_paid_by_its_first_batch(path):
    asking = session(path)
    share = Ledger.open(path).account.share_of(EVENT)
    assert spent_by_people(path) == []
    first = asking.ask(batch(0))
    assert (first.cost, first.event) == (share, Repeated(EVENT, 1))
    for number in range(1, 6):
        later = session(path).ask(batch(number))
        assert (later.cost, later.event) == (0.0, Repeated(EVENT, 0))
        assert later.labels.min() >= 0  # whoever has votes left: noise is drawn
    state, history = Ledger.open(path).verify(), Ledger.open(path).history()
    assert (state.spent, state.answers, state.unsettled, state.entries) == (
        share,
        24,
        0,
        1 + 2 + 2 * 6,
    )
    assert (
        history.answer_counts[EVENT]
        == count_releases(one.most for one in history.batches if one.settled is not None)[EVENT]
        == 1
    )
    assert asking.reservations == {1, 3}
    assert ask_in_rounds(session(path), batch(9, 20), [6, 6], first=RandomRows()).release.cost == 0


def test_what_was_answered_is_remembered_and_takes_no_vote(path, seen):
    first = session(path).ask(batch(0)).labels
    spent = spent_by_people(path)
    again = session(path).ask(np.concatenate([batch(0), batch(0)[:2]]))
    assert again.labels.tolist() == [*first, *first[:2]]
    assert (again.cost, len(seen)) == (0.0, 1)
    assert spent_by_people(path) == spent
    mixed = session(path).ask(np.concatenate([batch(1, 2), batch(0)]))
    assert mixed.labels[2:].tolist() == first.tolist()
    assert seen[1].n_queries == 2


def test_other_settings_and_questions_are_campaigns_of_their_own(path, seen):
    one = session(path).ask(batch(0))
    changes: tuple[dict[str, Any], ...] = (
        {"question": "another"},
        {"mechanism": CappedGNMax(20.0, 3)},
        {"noise": SimulationNoise(0)},
    )
    others = [session(path, **change).ask(batch(0)) for change in changes]
    assert min(other.cost for other in others) > 0
    assert others[0].cost == one.cost
    # Each has all its votes.
    assert all(np.array_equal(votes.counts, seen[0].counts) for votes in seen)
    assert Ledger.open(path).verify().spent == pytest.approx(
        one.cost + sum(other.cost for other in others)
    )


def test_a_campaign_that_does_not_fit_spends_nothing(tmp_path, seen):
    path = tmp_path / "a.ledger"
    new_ledger(path, 0.01, unit=PERSON)
    asking = session(path)
    assert (asking.fitting, asking.affordable(batch(0))) == (0, 0)
    with pytest.raises(BudgetExceededError):
        asking.ask(batch(0))
    assert Ledger.open(path).verify().entries == 1
    assert spent_by_people(path) == []
    assert seen == []


def test_people_who_join_have_votes_and_others_get_no_more(path, seen):
    X, y, ids = private_rows()
    some = ids != ids[0]
    for number in range(3):
        session(path, people(X[some], y[some], ids[some])).ask(batch(number))
    session(path, people(X, y, ids)).ask(batch(3))
    assert seen[-1].counts.sum() == 2  # of the one who is new


def test_rows_that_the_caller_changes_later_change_no_vote():
    X, y, ids = private_rows()
    teachers = people(X, y, np.sort(ids))  # in the order of people: nothing need be moved
    before = teachers.few_votes(batch(0))
    X[:], y[:] = 0, 0
    after = teachers.few_votes(batch(0))
    for one, other in ((before.queries, after.queries), (before.labels, after.labels)):
        assert np.array_equal(one, other)


# The votes in the ledger's file


def test_no_entry_depends_on_who_has_votes_left(tmp_path):
    # Two ledgers: people far from all queries, and near to them, leave entries of the same form.
    entries = []
    for scale in (1.0, 100.0):
        path = tmp_path / f"{scale}.ledger"
        new_ledger(path, 50.0, unit=PERSON, suited_to=EVENT)
        X, y, ids = private_rows(int(scale))
        for number in range(4):
            session(path, people(scale * X, y, ids)).ask(batch(number))
        exported = Ledger.open(path).export()
        for name in ("hash", "digest", "key", "nonce", "written"):
            for entry in exported:
                entry.pop(name, None)
        entries.append(exported)
    assert entries[0] == entries[1]


EDITS = {
    "fewer": "UPDATE votes SET votes = votes - 1",
    "all removed": "DELETE FROM votes",
    "of other data": "UPDATE voters SET data = zeroblob(32)",
    "of no data": "DELETE FROM voters",
    "older": "REPLACE INTO votes SELECT * FROM before",
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_campaign_does_not_go_on_with_votes_that_were_edited(edit, path, seen):
    session(path).ask(batch(0))
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TEMP TABLE before AS SELECT * FROM votes")
        session(path).ask(batch(1))
        raw.execute(EDITS[edit])
        raw.commit()
    with pytest.raises(LedgerTamperedError, match="votes"):
        session(path).ask(batch(7))
    assert len(seen) == 2
    assert len(session(path).ask(batch(0)).labels) == 4  # what was answered stays answered
    with pytest.raises(LedgerTamperedError):
        Ledger.open(path).verify()


def test_other_rows_without_ids_are_refused(path, seen):
    X, y, _ = private_rows()

    def asked(number: int, X: Any, y: Any, names: Any = None) -> None:
        shards = Shards(np.arange(len(X)), len(X), PERSON, names)
        session(path, NearestQueries(2).fit(X, y, shards, n_classes=CLASSES)).ask(batch(number))

    asked(0, X, y)
    asked(1, X, y)
    for others in (
        (X + 1, y),
        (X[::-1], y[::-1]),
        (X[1:], y[1:]),
        (X, y, np.arange(60).astype(str)),
    ):
        with pytest.raises(LedgerMismatchError, match="other teachers, or from other rows"):
            asked(2, *others)
    assert len(seen) == 2


# What the ledger refuses


def append_entry(path: Path, settles=None, **fields) -> None:
    """Write one more entry, its hash and the checkpoint as one would who knows how."""
    with Ledger.open(path)._opened.store.transaction(write=True) as write:
        last = write.last()
        write.append(
            Entry.after(last, fields.pop("kind", EntryKind.RESERVED), last.spent, **fields), settles
        )


FREE = {"event": EVENT.as_dict(), "queries": 0, "cost": 0, "campaign": 1}
GAUSSIAN = GNMax(20.0).event_of_one(CLASSES, PERSON, simulated=False)
FORGED = {
    "without a campaign": {name: value for name, value in FREE.items() if name != "campaign"},
    "of a campaign to come": FREE | {"campaign": 99},
    "of a campaign that is a batch": FREE | {"campaign": 3},
    "of another event": FREE | {"event": CappedArgmaxGaussian(20.0, 6, CLASSES, PERSON).as_dict()},
    "of votes on every query": FREE | {"event": GAUSSIAN.as_dict()},
    "of a batch that paid for other votes": FREE | {"event": GAUSSIAN.as_dict(), "campaign": 5},
    "with queries": FREE | {"queries": 1},
    "with a price": FREE | {"cost": 1},
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_batch_at_no_cost_needs_a_campaign_that_was_paid(forged, path):
    session(path).ask(batch(0))
    ledger = Ledger.open(path)
    settle(ledger, reserve(ledger, GAUSSIAN, 1), {}, GAUSSIAN)
    append_entry(path, **FREE)
    ledger.verify()
    append_entry(path, **FORGED[forged])
    with pytest.raises(LedgerTamperedError):
        Ledger.open(path).verify()


def test_a_campaign_gets_nothing_back_and_runs_nothing_that_was_not_paid(path):
    ledger, voters = Ledger.open(path), Voters(["a", "b"], b"")
    for wanted in ([1], [-1, 1], [1.0, 1.0]):
        with pytest.raises(InvalidDataError, match="`wanted` must be"):
            reserve_votes(ledger, EVENT, "one", voters, np.array(wanted), queries=1)
    granted = reserve_votes(ledger, EVENT, "one", voters, np.array([1, 1]), queries=1)
    with pytest.raises(LedgerError, match="ran more"):
        settle(ledger, granted.reservation, {bytes(32): (1,)}, EVENT)
    settle(ledger, granted.reservation, {bytes(32): (1,)}, Repeated(EVENT, 0))
    assert ledger.verify().answers == 1
    paid = next(entry for entry in ledger.export() if entry["kind"] == "answered")
    assert (paid["answers"], paid["refund"]) == (0, 0)
    reservation = ledger.account.find("one")
    assert reservation is not None
    for happened in (EVENT, Repeated(EVENT, 0)):
        with pytest.raises(LedgerError):
            settle(ledger, reservation, {bytes(32): (1,)}, happened)


@pytest.mark.parametrize("settled", [False, True])
def test_what_was_paid_for_other_answers_pays_for_no_campaign(settled, path):
    ledger, voters = Ledger.open(path), Voters(["a"], b"")
    reservation = reserve(ledger, EVENT, 1, batch="one")
    if settled:
        settle(ledger, reservation, {bytes(32): (1,), bytes([1]) * 32: (0,)}, EVENT)
    with pytest.raises(LedgerError, match="something else"):
        reserve_votes(ledger, EVENT, "one", voters, np.array([1]), queries=1)
    append_entry(path, **FREE)
    with pytest.raises(LedgerTamperedError):
        Ledger.open(path).verify()


def test_votes_above_what_was_granted_are_noticed(monkeypatch):
    monkeypatch.setattr(FewVotes, "first", lambda self, _: self)
    with pytest.raises(InvalidBallotError, match="One cast more"):
        campaign(private_rows(), [batch(0)], CappedGNMax(20.0, 1), cap=3)


# Crashes and races, in real processes


def asks(path: Path, numbers: Iterable[int], event: int = 0) -> tuple[int, int]:
    """Ask batches in a child; return the number of the child, and a pipe with how many votes noise was added to.

    If an event is given, the child is killed there.
    """
    read, write = os.pipe()

    def ask() -> None:
        if event:
            # Before the ledger is opened, whose connection is kept.
            die_at_event(event, path.parent)
        release, one = CappedGNMax.release, session(path)

        def noting(self, votes, noise, predictions=None):
            os.write(write, int(votes.counts.sum()).to_bytes(4, "big"))
            return release(self, votes, noise, predictions)

        CappedGNMax.release = noting
        for number in numbers:
            one.ask(batch(number))

    child = forked(ask)
    os.close(write)
    return child, read


def ended(child: int, pipe: int) -> tuple[bool, int]:
    """Return whether a child ended well, and the votes that noise was added to."""
    code = os.waitpid(child, 0)[1]
    with os.fdopen(pipe, "rb") as file:
        return code == 0, int(np.frombuffer(file.read(), ">u4").sum())


def warmed() -> int:
    """Do before the forks what is done once per process; return how many people vote."""
    SystemNoise().discrete_gaussian(1.0, (1,))
    RenyiFilter.suited_to(50.0, DELTA, EVENT).cost(EVENT)
    return len(set(private_rows()[2].tolist()))


def kill_every(step: int, path: Path) -> None:
    """Ask in one process after the other, each killed so many events of a file later than the last."""
    fresh, event, lived, n_people, states = path.read_bytes(), 0, False, warmed(), set()
    while not lived:
        event += step
        path.write_bytes(fresh)
        lived, drawn = ended(*asks(path, (0, 1), event))
        assert drawn <= sum(spent_by_people(path))  # spent before noise was drawn
        states.add((drawn > 0, Ledger.open(path).verify().answers))
        alive, more = ended(*asks(path, (0, 1)))
        spent = spent_by_people(path)
        assert alive
        assert max(spent) <= MECHANISM.cap
        assert drawn + more <= sum(spent) <= n_people * MECHANISM.cap
        state = Ledger.open(path).verify()
        assert (state.answers, state.spent) == (8, Ledger.open(path).account.share_of(EVENT))
        assert ended(*asks(path, (0, 1))) == (True, 0)  # all is remembered
        for beside in path.parent.glob("a.ledger?*"):
            beside.unlink()  # of a child that was killed
    assert states == {(False, 0), (True, 0), (True, 4), (True, 8)}
    sys.stdout.write(f"{event // step} kills")


@pytest.mark.parametrize(
    "step", [pytest.param(5, marks=pytest.mark.rest), pytest.param(1, marks=pytest.mark.slow)]
)
def test_a_process_that_is_killed_wastes_votes_and_repeats_none(step, path):
    assert " kills" in called_by_itself(
        "test_campaigns", "kill_every(int(given[0]), Path(given[1]))", step, path
    )


@pytest.mark.rest
def test_processes_that_ask_at_once_share_one_cap(path):
    n_people = warmed()
    children = [asks(path, (*range(10 * number, 10 * number + 3), 999)) for number in range(6)]
    found = [ended(*child) for child in children]
    spent = spent_by_people(path)
    assert all(alive for alive, _ in found)
    assert sum(drawn for _, drawn in found) == sum(spent) == n_people * MECHANISM.cap
    assert max(spent) == MECHANISM.cap
    state = Ledger.open(path).verify()
    assert (state.answers, state.unsettled) == (6 * 3 * 4 + 4, 0)
    assert state.spent == Ledger.open(path).account.share_of(EVENT)


def test_votes_that_were_spent_for_answers_that_cannot_be_stored_are_kept_for_them(
    path, monkeypatch, seen
):
    asking = session(path)

    def full(*_):
        raise LedgerStorageError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(Account, "settle", full)
        with pytest.raises(LedgerStorageError):
            asking.ask(batch(0))
    assert asking.ask(batch(0)).cost == 0
    assert len(seen) == 1  # the labels that had been drawn
    assert Ledger.open(path).verify().answers == 4
