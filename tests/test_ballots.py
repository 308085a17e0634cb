"""Ballots of bounded length: what is summed, what is refused, and that one person moves the sum no further."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tutelage.ballots import BallotSum, add_sums, sum_of_products
from tutelage.exceptions import InvalidBallotError, InvalidDataError, NotPublishableError
from tutelage.people.blocks import PeopleBlock, blocks_of, in_turn, whole_people
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import VectorBallots


def added_up(weights, vectors):
    return sum(
        (np.outer(a, v) for a, v in zip(weights, vectors, strict=True)),
        np.zeros((3, 4), dtype=np.int64),
    )


def products(rng, n):
    return rng.integers(-9, 10, (n, 3)), rng.integers(-9, 10, (n, 4))


@given(st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_the_sum_is_that_of_all_ballots(n, seed):
    rng = np.random.default_rng(seed)
    weights, vectors = products(rng, n)
    found = sum_of_products(weights, vectors, rng.permutation(n), norm=1000)
    assert np.array_equal(found.totals, added_up(weights, vectors))
    assert found.norm_squared == 1000**2


@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_no_ballot_that_is_let_through_is_longer_than_the_sum_says(n, seed):
    rng = np.random.default_rng(seed)
    weights, vectors = products(rng, n)
    squared = int((added_up(weights, vectors) ** 2).sum())
    if squared > 1:
        with pytest.raises(InvalidBallotError):
            sum_of_products(weights, vectors, np.zeros(n, dtype=int), norm=math.isqrt(squared - 1))
    sum_of_products(weights, vectors, np.zeros(n, dtype=int), norm=2_000)


def test_one_step_too_long_is_refused():
    weights, vectors, one = np.array([[1, 0]]), np.array([[3, 4]]), np.zeros(1, dtype=int)
    sum_of_products(weights, vectors, one, norm=6)
    # A norm that is no whole number counts as the next one: √2 is not 1.
    for vector, norm in ((vectors, 4), (np.array([[1, 1]]), 1)):
        with pytest.raises(InvalidBallotError, match=f"add up to at most {norm}"):
            sum_of_products(weights, vector, one, norm=norm)
    several = np.eye(2, dtype=int), np.array([[3, 4], [0, 5]])
    sum_of_products(*several, np.array([0, 1]), norm=6)
    with pytest.raises(InvalidBallotError):  # products of one teacher count together
        sum_of_products(*several, np.array([0, 0]), norm=9)


ONES = np.ones((2, 3), dtype=int)


@pytest.mark.parametrize(("weights", "vectors", "teachers"), [
    (ONES * 0.5, ONES, [0, 1]),
    (ONES, ONES, [0, -1]),
    (ONES, np.full((2, 3), 2**40), [0, 1]),
    (ONES, np.ones(3, dtype=int), [0, 1, 2]),
])  # fmt: skip
def test_what_is_no_ballot_is_refused(weights, vectors, teachers):
    with pytest.raises(InvalidBallotError):
        sum_of_products(weights, vectors, np.array(teachers), norm=10**9 // 2)


def test_a_length_that_overflows_an_integer_is_too_long():
    one = np.zeros(1, dtype=int)
    for numbers in (2**15, 2**16, 2**17):
        with pytest.raises(InvalidBallotError, match="add up to at most 1"):
            sum_of_products(np.ones((1, 1), dtype=int), np.full((1, numbers), 2**24), one, norm=1)


def test_a_sum_is_private_and_written_for_its_owner_alone(tmp_path):
    found = BallotSum(np.array([[4711, -4711]]), 10)
    assert "4711" not in repr(found)
    with pytest.raises(NotPublishableError):
        pickle.dumps(found)
    with pytest.raises(ValueError, match="read-only"):
        found.totals[0, 0] = 1
    with pytest.raises(InvalidDataError):
        BallotSum(np.array([[0.5]]), 1)
    found.write(tmp_path / "sum.npz")
    assert (tmp_path / "sum.npz").stat().st_mode & 0o777 == 0o600
    with np.load(tmp_path / "sum.npz") as stored:
        assert (stored["totals"].tolist(), stored["norm_squared"].tolist()) == (
            [[4711, -4711]],
            "10",
        )


def people(seed, n_people=6):
    """Rows of people who have one to three each, with residuals and vectors of any length."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(n_people), rng.integers(1, 4, n_people))
    vectors = rng.normal(size=(len(ids), 4)) * rng.choice([1e-6, 0.01, 1, 100], (len(ids), 1))
    return ids, vectors, rng.normal(size=(len(ids), 3)) * rng.choice([0.01, 1, 100], (len(ids), 1))


def cast(vectors, residuals, people, radius):
    rows = np.arange(len(people))
    blocks = blocks_of(PeopleBlock(rows, np.zeros(len(people), dtype=np.int64), people))
    return VectorBallots().cast(
        blocks, lambda block: (vectors[block.rows], residuals[block.rows]), radius, ONE_TEACHER
    )


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 9))
def test_people_who_go_on_in_the_next_part_are_in_one_block(seed, at_once, part):
    ids, _, _ = people(seed)
    rows = np.arange(len(ids))
    parts = [
        PeopleBlock(rows[at : at + part], rows[at : at + part], ids[at : at + part])
        for at in rows[::part]
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tutelage.people.blocks._AT_ONCE", at_once)
        blocks = list(in_turn(whole_people(parts)))
    assert np.array_equal(np.concatenate([block.rows for block in blocks]), rows)
    assert np.array_equal(np.concatenate([block.people for block in blocks]), ids)
    assert sum(len(set(block.people)) for block in blocks) == len(set(ids))
    assert max(len(block.rows) for block in blocks) < at_once + 3


@pytest.mark.parametrize("people", [[[0, 0, 1], [1, 2]], [[1], [0]], [[1, 0]], [[0], []]])
def test_blocks_that_divide_a_person_are_refused(people):
    blocks = [
        PeopleBlock(np.ones((len(part), 1)), np.zeros(len(part), int), np.array(part, int))
        for part in people
    ]
    with pytest.raises(InvalidBallotError, match="all rows of its people"):
        VectorBallots().cast(blocks, lambda block: (block.rows, block.rows), 1.0, ONE_TEACHER)


def test_only_sums_of_one_kind_are_added():
    one = BallotSum(np.array([[1, -1]]), 2)
    assert add_sums(one, BallotSum(np.array([[2, 3]]), 2)).totals.tolist() == [[3, 2]]
    with pytest.raises(InvalidBallotError, match="one shape, norm and privacy unit"):
        add_sums(one, BallotSum(np.array([[1, -1]]), 3))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 5),
    st.sampled_from([0.01, 0.7, 3.0]),
)
def test_one_person_moves_the_sum_by_one_ballot_when_removed_and_by_two_when_replaced(
    seed, other, who, radius
):
    ids, vectors, residuals = people(seed)
    there, other_residuals = vectors.copy(), residuals.copy()
    _, drawn, drawn_residuals = people(other, n_people=12)
    mine = np.flatnonzero(ids == who)
    there[mine], other_residuals[mine] = drawn[: len(mine)], drawn_residuals[: len(mine)]

    here, replaced = (
        cast(vectors, residuals, ids, radius),
        cast(there, other_residuals, ids, radius),
    )
    without = ids != who
    removed = cast(vectors[without], residuals[without], ids[without], radius)
    bound = float(here.norm_squared)
    assert ((here.totals - removed.totals).astype(float) ** 2).sum() <= bound * (1 + 1e-12)
    assert ((here.totals - replaced.totals).astype(float) ** 2).sum() <= 4 * bound * (1 + 1e-12)


ROW, LEFT = np.array([[1.0, 0.0]]), np.array([[0.5, -0.5]])


def test_a_person_with_many_rows_casts_their_mean():
    often = 5000
    once = cast(0.6 * ROW, LEFT, np.zeros(1, int), 1.0)
    many = cast(
        np.tile(0.6 * ROW, (often, 1)), np.tile(LEFT, (often, 1)), np.zeros(often, int), 1.0
    )
    assert_allclose(many.totals, once.totals, rtol=0.1)


def test_features_that_are_not_finite_are_refused():
    with pytest.raises(InvalidDataError, match="not finite"):
        cast(np.array([[np.nan]]), LEFT, np.zeros(1, int), 1.0)
