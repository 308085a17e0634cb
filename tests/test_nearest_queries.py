"""People who vote on the nearest queries: compared with a search row by row, and with themselves without a person."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage import GNMax, LabelingSession, Ledger, Shards
from tutelage.ballots import tally_few
from tutelage.exceptions import InvalidDataError, InvalidParameterError, NotPublishableError
from tutelage.teachers import NearestQueries

CLASSES = 3


def votes_of(votes, teacher):
    """Return the votes of one teacher, in its order."""
    own = votes.teachers == teacher
    return list(zip(votes.queries[own].tolist(), votes.labels[own].tolist(), strict=True))


def by_hand(rows, labels, public, cap):
    """Return the votes of one person, by a plain search."""
    found = [
        (sum((int(a) - int(b)) ** 2 for a, b in zip(row, query, strict=True)), place, int(label))
        for row, label in zip(rows, labels, strict=True)
        for place, query in enumerate(public)
    ]
    chosen = {}
    for _, place, label in sorted(found):
        if place not in chosen and len(chosen) < cap:
            chosen[place] = label
    return list(chosen.items())


def problem(seed, n_rows, n_people, n_public, low=-30, high=31):
    """Return private rows, labels, ids and public rows: whole numbers, which the grid keeps apart."""
    random = np.random.default_rng(seed)
    X, public = random.integers(low, high, (n_rows, 4)), random.integers(low, high, (n_public, 4))
    return X, random.integers(0, CLASSES, n_rows), random.integers(0, n_people, n_rows), public


def of_people(X, y, ids, cap):
    return NearestQueries(cap).fit(X, y, Shards.of_single_people(len(X), ids), n_classes=CLASSES)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    people=st.integers(1, 12),
    public=st.integers(1, 40),
    cap=st.integers(1, 9),
)
def test_votes_are_those_of_a_search_by_hand(seed, people, public, cap):
    # So far apart that hardly any are equally far.
    X, y, ids, queries = problem(seed, 25, people, public, -3000, 3001)
    shards = Shards.of_single_people(len(X), ids)
    votes = NearestQueries(cap).fit(X, y, shards, n_classes=CLASSES).few_votes(queries)
    for teacher in range(shards.n_shards):
        own = shards.assignment == teacher
        assert votes_of(votes, teacher) == by_hand(X[own], y[own], queries, cap)
    tally_few(votes.teachers, votes.queries, votes.labels, shape=votes.shape, cap=cap)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), low=st.sampled_from([-1, -30]), cap=st.integers(1, 6))
def test_one_person_more_or_changed_moves_no_vote_of_another(seed, low, cap):
    # Rows of −1, 0 and 1 are full of ties. Whether everybody has one row decides which way is gone.
    X, y, _, queries = problem(seed, 20, 1, 30, low, 1 - low)
    random = np.random.default_rng(seed)
    ids = np.arange(20)
    several = np.where(random.random(20) < 0.3, 19, ids)
    before = of_people(X[:19], y[:19], ids[:19], cap)
    were = before.few_votes(queries)
    for there in (ids, several):
        after = of_people(X, y, there, cap)
        votes = after.few_votes(queries)
        for name in (str(place) for place in range(19) if there[place] == place):
            assert votes_of(votes, after.names.index(name)) == votes_of(
                were, before.names.index(name)
            )


def test_order_and_number_of_rows_change_no_persons_votes():
    X, y, ids, queries = problem(2, 40, 9, 25)
    order = np.random.default_rng(0).permutation(40)
    one = of_people(X, y, ids, 4).few_votes(queries)
    other = of_people(X[order], y[order], ids[order], 4).few_votes(queries)
    for part in ("teachers", "queries", "labels"):
        assert np.array_equal(getattr(one, part), getattr(other, part))


def test_numbers_stand_for_the_same_rows_only_while_nothing_changes():
    X, y, _, _ = problem(4, 30, 1, 5)
    changed = X.copy()
    changed[7, 0] += 1

    def digest(X, y):
        return (
            NearestQueries(2).fit(X, y, Shards.of_single_people(30), n_classes=CLASSES).data_digest
        )

    assert digest(X.copy(), y.copy()) == digest(X, y)
    assert (
        len(
            {
                digest(X, y),
                digest(X[::-1], y[::-1]),
                digest(changed, y),
                digest(X, (y + 1) % CLASSES),
            }
        )
        == 4
    )


def test_votes_and_rows_do_not_print_or_pickle():
    X, y, ids, queries = problem(5, 10, 4, 6)
    teachers = of_people(X, y, ids, 2)
    assert repr(teachers.few_votes(queries)) == "FewVotes(<private rows hidden>)"
    for private in (teachers, teachers.few_votes(queries)):
        with pytest.raises(NotPublishableError):
            pickle.dumps(private)


@pytest.mark.parametrize(("cap", "X", "error"), [
    (0, np.eye(2), InvalidParameterError),
    (1, np.array([[1.0], [np.nan]]), InvalidDataError),
    (1, np.zeros((2, 3, 3)), InvalidDataError),
])  # fmt: skip
def test_what_is_no_row_or_no_cap_is_refused(cap, X, error):
    with pytest.raises(error):
        NearestQueries(cap).fit(X, np.array([0, 1]), Shards.of_single_people(2), n_classes=2)


def test_far_rows_without_ids_vote_too_at_a_price_per_query():
    far = np.array([[1e9, 0.0], [0.0, -1e9]])
    teachers = NearestQueries(1).fit(far, np.array([0, 1]), Shards.of_single_people(2), n_classes=2)
    assert teachers.names == ["0", "1"]
    assert teachers.few_votes(np.eye(2)).queries.tolist() == [0, 0]
    ledger = Ledger.in_memory(epsilon=50.0, delta=1e-5, unit=teachers.unit)
    assert (
        LabelingSession(teachers, GNMax(20.0), ledger).ask(np.eye(2)).event.flatten()[0].times == 2
    )
