from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.exceptions import InvalidDataError, InvalidParameterError, OverlappingShardsError
from tutelage.partition import Shards, canonical_ids, folded_ids
from tutelage.privacy import NeighboringRelation

KEY = b"a key of 32 bytes for the tests."
LETTERS = "aZ07 .-_é\u0301\ud55c\ud800"  # of all, hypothesis would make a table first
IDS = st.lists(
    st.integers(0, 10**9) | st.text(LETTERS, min_size=1).filter(str.strip), min_size=2, max_size=40
)


def assignment(ids, n_shards=7, key=KEY):
    return Shards.of_entities(np.array(ids, dtype=object), n_shards, key=key).assignment.tolist()


@settings(max_examples=20)
@given(ids=IDS, data=st.data())
def test_deleting_or_adding_an_entity_moves_no_other_row(ids, data):
    before = assignment(ids)
    position = data.draw(st.integers(0, len(ids) - 1))
    without = assignment(ids[:position] + ids[position + 1 :])
    assert without == before[:position] + before[position + 1 :]
    assert (
        assignment([*ids[:position], "someone new", *ids[position:]])[position + 1 :]
        == before[position:]
    )


@given(ids=IDS)
def test_all_rows_of_an_entity_meet_in_one_shard(ids):
    doubled = assignment(ids + ids)
    assert doubled[: len(ids)] == doubled[len(ids) :]


@pytest.mark.parametrize("ids", [["17", " 017", "+17", "17.0", 17], ["Jose\u0301", "Jos\xe9"]])
def test_an_entity_has_one_shard_however_its_id_is_spelled(ids):
    assert len(set(assignment(ids, n_shards=1_000))) == 1


def test_the_order_of_other_peoples_rows_does_not_reach_a_shard():
    # So many that a sort which keeps no order shows.
    ids = np.random.default_rng(0).integers(0, 300, 4_000)
    for make in (
        partial(Shards.of_entities, n_shards=5, key=KEY),
        lambda ids: Shards.of_single_people(len(ids), ids),
    ):
        shards = make(ids)
        order = np.arange(4_000)
        others = shards.assignment != 2
        order[others] = order[others][::-1]
        again = make(ids[order])
        assert np.array_equal(again.assignment, shards.assignment[order])
        assert np.array_equal(again.rows[2], np.flatnonzero(shards.assignment == 2))


@given(n_rows=st.integers(1, 300), n_shards=st.integers(1, 50))
def test_shards_are_disjoint_and_cover_all_rows_and_later_rows_move_no_earlier_one(
    n_rows, n_shards
):
    shards = Shards.of_rows(n_rows, n_shards, key=KEY)
    assert len(shards.rows) == n_shards
    assert sorted(np.concatenate(shards.rows).tolist()) == list(range(n_rows))
    for number, rows in enumerate(shards.rows):
        assert np.all(shards.assignment[rows] == number)
    assert np.array_equal(
        Shards.of_rows(n_rows + 50, n_shards, key=KEY).assignment[:n_rows], shards.assignment
    )


@pytest.mark.parametrize("length", [16, 63, 64])
def test_keys_that_differ_in_zero_bytes_at_their_end_are_different_keys(length):
    """HMAC pads a key with zero bytes; equal shards of 60 rows have a chance of 7^-60."""
    keys = [b"k" * length + bytes(zeros) for zeros in range(3)]
    assert len({Shards.of_rows(60, 7, key=key).assignment.tobytes() for key in keys}) == 3


def test_the_key_decides_and_shards_are_even():
    ids = list(range(4_000))
    one, other = assignment(ids, 10), assignment(ids, 10, key=b"another key for the same ids....")
    assert np.mean(np.array(one) == np.array(other)) == pytest.approx(0.1, abs=0.02)
    assert np.bincount(one).min() > 300


def test_each_way_to_partition_says_whom_it_protects():
    assert Shards.of_rows(5, 2, key=KEY).unit.neighboring is NeighboringRelation.CHANGE_ONE_ROW
    entity = Shards.of_entities([1, 2], 2, key=KEY, name="patient")
    assert (entity.unit.name, entity.unit.neighboring.name) == (
        "patient",
        "ADD_REMOVE_OR_CHANGE_ONE_ENTITY",
    )
    silo = Shards.of_silos(["a", "b", "a"])
    assert (silo.unit.name, silo.unit.neighboring.name) == (
        "row",
        "ADD_REMOVE_OR_CHANGE_WITHIN_SILO",
    )
    assert Shards.of_silos(["a"], name="patient").unit.name == "row"  # nobody checked patients
    assert (Shards.of_silos(["a"], ["p1"], name="patient").unit.name, silo.n_shards) == (
        "patient",
        2,
    )


def test_an_entity_in_two_shards_is_refused_without_naming_it():
    with pytest.raises(OverlappingShardsError, match="more than one shard") as caught:
        Shards.of_silos(["north", "south", "north"], ["ada", "bob", "bob"])
    assert "bob" not in str(caught.value)
    assert Shards.of_silos(["north", "south", "north"], ["ada", "bob", "ada"]).n_shards == 2


@pytest.mark.parametrize("ids", [
    ["17", 17.0], ["a", None], [True, False], [b"a", b"b"], ["a", " "], [[1, 2]],
])  # fmt: skip
def test_ids_that_do_not_name_an_entity_are_refused(ids):
    assert len(assignment(["\ud800", "a"])) == 2  # which is odd, and a name
    for shards in (
        partial(Shards.of_entities, ids, 7, key=KEY),
        partial(Shards.of_silos, ["a", "b"], ids),
    ):
        with pytest.raises(
            InvalidDataError, match=r"integers or strings|An id is empty|one id per row"
        ):
            shards()


def test_a_short_key_and_no_shards_are_refused():
    with pytest.raises(InvalidParameterError, match="at least 16 bytes"):
        Shards.of_rows(5, 2, key=b"short")
    with pytest.raises(InvalidParameterError, match="`n_shards`"):
        Shards.of_rows(5, 0, key=KEY)
    assert "assignment hidden" in repr(Shards.of_rows(3, 2, key=KEY))


@pytest.mark.parametrize("assignment", [[0, 5], [-1, 0], [[0, 1]], [0.0, 1.0]])
def test_an_assignment_is_one_known_shard_per_row(assignment):
    with pytest.raises(InvalidDataError, match="`assignment` of Shards"):
        Shards(np.array(assignment), 2, Shards.of_rows(1, 1, key=KEY).unit)


def test_one_long_id_takes_its_own_memory_and_no_more():
    ids = canonical_ids(["x" * 10**6, *(f"p{row}" for row in range(500))])
    assert ids.nbytes < 10**4
    assert folded_ids(ids).nbytes < 10**4
    shards = Shards.of_single_people(501, ids)
    assert shards.people is not None
    assert shards.people.nbytes < 10**4
    assert (
        len(set(canonical_ids(["Jose\u0301", "Jos\u00e9"])))
        == len(set(canonical_ids(["a\0", "a"])))
        == 1
    )
