import copy
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tutelage import VoteHistogram
from tutelage.ballots import tally
from tutelage.exceptions import InvalidDataError, NotPublishableError
from tutelage.privacy import ONE_TEACHER, NeighboringRelation, PrivacyUnit

PATIENT = PrivacyUnit("patient", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY)


@given(
    ballots=arrays(
        np.int16, st.tuples(st.integers(1, 30), st.integers(0, 10)), elements=st.integers(-1, 3)
    )
)
def test_counts_are_the_ballots_per_class(ballots):
    votes = tally(ballots, 5)
    assert votes.counts.shape == (ballots.shape[1], 5)
    assert votes.n_teachers == ballots.shape[0]
    assert np.array_equal(votes.counts, np.sum(ballots[:, :, None] == np.arange(5), axis=0))


@pytest.mark.parametrize("ballots", [[[0, 3]], [[-2, 0]], [0, 1], [[0.0, 1.0]]])
def test_ballots_that_are_none_are_refused(ballots):
    with pytest.raises(InvalidDataError):
        tally(np.array(ballots), 3)


@pytest.mark.parametrize(("counts", "teachers"), [
    ([1, 2], 10), ([[1.0, 2.0]], 10), ([[1, -1]], 10), ([[9, 9]], 10), ([[2**63 + 5] * 2], 10), ([["ada", "bob"]], 10),
])  # fmt: skip
def test_counts_that_are_no_votes_are_refused_and_not_quoted(counts, teachers):
    with pytest.raises(InvalidDataError) as refused:
        VoteHistogram(np.array(counts), teachers)
    assert "ada" not in str(refused.value)


def test_counts_stay_as_they_are_and_where_they_are():
    votes = VoteHistogram(
        np.array([[200, 50, 5], [11, 22, 33], [1, 1, 1]], dtype=np.uint8), 255, PATIENT
    )
    assert votes.counts.sum() == 324
    with pytest.raises(ValueError, match="read-only"):
        votes.counts[0, 0] = 9
    shown = repr([votes, str(votes)])
    assert "200" not in shown
    assert "33" not in shown
    for smuggle in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(NotPublishableError):
            smuggle(votes)
    some = votes.first(2)
    assert (some.counts.tolist(), some.unit) == ([[200, 50, 5], [11, 22, 33]], PATIENT)
    with pytest.raises(InvalidDataError):
        votes.first(4)


def test_a_saved_histogram_comes_back_whole_and_is_private(tmp_path):
    votes = VoteHistogram(np.array([[3, 1], [0, 2]]), 4, PATIENT)
    votes.save(tmp_path / "votes.npz")
    assert (tmp_path / "votes.npz").stat().st_mode & 0o777 == 0o600
    back = VoteHistogram.load(tmp_path / "votes.npz")
    assert np.array_equal(back.counts, votes.counts)
    assert (back.n_teachers, back.unit) == (4, PATIENT)
    assert VoteHistogram.load(tmp_path / "votes.npz", array="counts").unit == PATIENT
    with pytest.raises(InvalidDataError):
        VoteHistogram.load(tmp_path / "votes.npz", n_teachers=9)


def test_bare_arrays_are_read_by_name(tmp_path):
    path = tmp_path / "votes.npz"
    np.savez(path, mnist=np.array([[3, 1], [2, 2]]), svhn=np.array([[1, 0], [2, 2]]))
    mnist = VoteHistogram.load(path, array="mnist")
    assert (mnist.n_teachers, mnist.unit) == (4, ONE_TEACHER)
    with pytest.raises(InvalidDataError, match="mnist, svhn"):
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


def test_files_that_are_no_votes_are_refused(tmp_path):
    path = tmp_path / "votes.npz"
    with pytest.raises(InvalidDataError, match=r"votes\.npz"):
        VoteHistogram.load(path)
    VoteHistogram(np.array([[3, 1]]), 4).save(path)
    with np.load(path) as file:
        np.savez(path, **{name: value for name, value in file.items() if name != "unit"})
    with pytest.raises(InvalidDataError, match=r"votes\.npz"):
        VoteHistogram.load(path)
