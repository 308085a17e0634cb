import copy
import os
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tutelage import VoteHistogram
from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import InvalidDataError, InvalidParameterError, NotPublishableError
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit
from tutelage.votes import tally

PATIENT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


@given(ballots=arrays(np.int16, st.tuples(st.integers(1, 30), st.integers(0, 10)), elements=st.integers(-1, 3)))
def test_counts_are_the_ballots_per_class(ballots):
    votes = tally(ballots, 5)
    assert votes.counts.shape == (ballots.shape[1], 5)
    assert votes.n_teachers == ballots.shape[0]
    assert np.array_equal(votes.counts.sum(axis=1), (ballots != ABSTAIN).sum(axis=0))
    for query in range(ballots.shape[1]):
        for label in range(5):
            assert votes.counts[query, label] == np.sum(ballots[:, query] == label)


@given(
    ballots=arrays(np.int16, (6, 4), elements=st.integers(-1, 2)),
    teacher=st.integers(0, 5),
    other=arrays(np.int16, 4, elements=st.integers(-1, 2)),
)
def test_one_changed_ballot_moves_counts_by_at_most_one(ballots, teacher, other):
    before = tally(ballots, 3).counts
    changed = ballots.copy()
    changed[teacher] = other
    difference = tally(changed, 3).counts - before
    assert np.abs(difference).max() <= 1
    assert (difference == 1).sum(axis=1).max() <= 1
    assert (difference == -1).sum(axis=1).max() <= 1


@pytest.mark.parametrize("ballots", [[[0, 3]], [[-2, 0]]])
def test_a_ballot_for_no_class_is_refused(ballots):
    with pytest.raises(InvalidDataError, match="class index below 3"):
        tally(np.array(ballots), 3)


def test_ballots_must_be_a_matrix_of_integers():
    with pytest.raises(InvalidDataError, match=r"\(teachers, queries\)"):
        tally(np.array([0, 1]), 2)
    with pytest.raises(InvalidDataError, match=r"\(teachers, queries\)"):
        tally(np.array([[0.0, 1.0]]), 2)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 2], r"shape \(queries, classes\)"),
        ([[3]], "at least 2 classes"),
        ([[1.0, 2.0]], "must be integers"),
        ([[1, -1]], "must be >= 0"),
        ([[9, 9]], "n_teachers=10"),
        ([[2**63 + 5, 2**63 + 5]], "n_teachers=10"),
    ],
)
def test_counts_that_are_no_votes_are_refused(counts, message):
    with pytest.raises(InvalidDataError, match=message):
        VoteHistogram(np.array(counts), 10)


def test_more_teachers_than_noise_could_hide_are_refused():
    with pytest.raises(InvalidDataError, match="at most"):
        VoteHistogram(np.array([[2**62, 0]]), 2**62)


def test_counts_of_small_integer_types_do_not_overflow():
    votes = VoteHistogram(np.array([[200, 50, 5]], dtype=np.uint8), 255)
    assert votes.counts.sum() == 255


def test_printing_shows_no_count():
    votes = VoteHistogram(np.array([[4321, 1234]]), 5555)
    for shown in (repr(votes), str(votes), f"{votes}", repr([votes])):
        assert "4321" not in shown
        assert "1234" not in shown
        assert "queries=1" in shown


def test_votes_do_not_travel_in_pickles_or_copies():
    votes = VoteHistogram(np.array([[3, 1]]), 4)
    for smuggle in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(NotPublishableError, match="save"):
            smuggle(votes)


def test_counts_cannot_be_written_to():
    votes = VoteHistogram(np.array([[3, 1]]), 4)
    with pytest.raises(ValueError, match="read-only"):
        votes.counts[0, 0] = 9


def test_a_saved_histogram_comes_back_whole_and_is_private(tmp_path):
    votes = VoteHistogram(np.array([[3, 1], [0, 2]]), 4, PATIENT)
    votes.save(tmp_path / "votes.npz")
    assert (tmp_path / "votes.npz").stat().st_mode & 0o777 == 0o600
    back = VoteHistogram.load(tmp_path / "votes.npz")
    assert np.array_equal(back.counts, votes.counts)
    assert (back.n_teachers, back.unit) == (4, PATIENT)
    assert VoteHistogram.load(tmp_path / "votes.npz", array="counts").unit == PATIENT
    with pytest.raises(InvalidDataError, match="says it has 4 teachers"):
        VoteHistogram.load(tmp_path / "votes.npz", n_teachers=9)


def test_text_in_place_of_counts_is_refused_without_quoting_it(tmp_path):
    np.savez(tmp_path / "votes.npz", names=np.array([["ada", "bob"]]))
    with pytest.raises(InvalidDataError, match="must be integers") as caught:
        VoteHistogram.load(tmp_path / "votes.npz")
    assert "ada" not in str(caught.value)


def test_bare_arrays_are_read_by_name(tmp_path):
    path = tmp_path / "votes.npz"
    np.savez(path, mnist=np.array([[3, 1], [2, 2]]), svhn=np.array([[1, 0], [2, 2]]))
    mnist = VoteHistogram.load(path, array="mnist")
    assert (mnist.n_teachers, mnist.unit) == (4, ONE_TEACHER)
    with pytest.raises(InvalidDataError, match="several arrays, mnist, svhn; say which one, or call it 'counts'"):
        VoteHistogram.load(path)
    with pytest.raises(InvalidDataError, match="pass `n_teachers`"):
        VoteHistogram.load(path, array="svhn")
    assert VoteHistogram.load(path, array="svhn", n_teachers=5).n_teachers == 5


def test_a_pickle_in_a_vote_file_is_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    np.savez(tmp_path / "votes.npz", counts=np.array([Bomb()], dtype=object))
    with pytest.raises(InvalidDataError, match="plain arrays"):
        VoteHistogram.load(tmp_path / "votes.npz")
    assert not (tmp_path / "exploded").exists()


def test_a_compressed_bomb_is_refused_before_it_unpacks(tmp_path, monkeypatch):
    monkeypatch.setattr("tutelage._internal.files._MOST_BYTES", 10_000)
    np.savez_compressed(tmp_path / "votes.npz", counts=np.zeros((100_000, 2), dtype=np.int64))
    with pytest.raises(InvalidDataError, match="unpack to more than"):
        VoteHistogram.load(tmp_path / "votes.npz")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x05\x06" + b"\0" * 18])
def test_files_that_are_no_votes_are_refused(content, tmp_path):
    path = tmp_path / "votes.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidDataError, match=r"votes\.npz"):
        VoteHistogram.load(path)
    with pytest.raises(InvalidDataError, match="does not exist"):
        VoteHistogram.load(tmp_path / "nothing.npz")


def test_files_of_another_format_or_cut_short_are_refused(tmp_path):
    path = tmp_path / "votes.npz"
    VoteHistogram(np.array([[3, 1]]), 4).save(path)
    with np.load(path) as file:
        whole = dict(file)
    np.savez(path, **{**whole, "format": np.int64(9)})
    with pytest.raises(InvalidDataError, match="format 9"):
        VoteHistogram.load(path)
    np.savez(path, **{name: value for name, value in whole.items() if name != "unit"})
    with pytest.raises(InvalidDataError, match="not a complete vote file"):
        VoteHistogram.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("counts.npy", b"garbage")
    with pytest.raises(InvalidDataError, match="plain arrays"):
        VoteHistogram.load(path)


def test_the_first_queries_can_be_taken():
    votes = VoteHistogram(np.array([[3, 1], [0, 2], [1, 1]]), 4, PATIENT)
    assert votes.first(2).counts.tolist() == [[3, 1], [0, 2]]
    assert votes.first(2).unit == PATIENT
    with pytest.raises(InvalidDataError, match="holds 3 queries"):
        votes.first(4)
    with pytest.raises(InvalidParameterError, match="`queries`"):
        votes.first(0)
