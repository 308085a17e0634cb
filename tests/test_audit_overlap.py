"""Public rows that are private ones, near duplicates, and people in several shards."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from tutelage.audit.overlap import audit_overlap, entities_in_several_shards
from tutelage.exceptions import InvalidDataError, InvalidParameterError

RANDOM = np.random.default_rng(0)
PRIVATE, PUBLIC = RANDOM.normal(size=(300, 4)), RANDOM.normal(size=(200, 4))


def test_strangers_pass_and_private_rows_among_the_public_ones_are_found():
    found = audit_overlap(PRIVATE, PUBLIC)
    assert (found.equal, found.near, found.passed, found.reasons) == (0, 0, True, ())
    found = audit_overlap(PRIVATE, np.concatenate([PUBLIC, PRIVATE[:20]]))
    assert found.equal == 20
    assert not found.passed
    assert "Remove these rows" in found.reasons[0]
    assert "1234" not in repr(audit_overlap(np.array([[1234.5]]), np.array([[1234.5]])))


def test_near_duplicates_are_found_and_what_is_alike_by_chance_is_a_note():
    found = audit_overlap(PRIVATE, np.concatenate([PUBLIC, PRIVATE[:50] + 1e-7]))
    assert found.equal == 0
    assert found.near >= 45  # a few lie at a rounding edge
    assert found.by_chance
    assert not found.passed
    assert "up to rounding and spelling, more than chance explains. " in found.reasons[0]
    found = audit_overlap(np.round(PRIVATE[:, :1]), np.round(PUBLIC[:, :1]))
    assert found.equal > 150
    assert found.passed
    assert "may be chance" in found.reasons[0]
    public = np.concatenate([PUBLIC, PRIVATE[:20]])
    one_person = audit_overlap(np.repeat(PRIVATE[:50], 2, axis=0), public, np.arange(100) // 2)
    assert one_person.alike_among_private == 0  # rows of one person explain nothing
    assert not one_person.passed


@pytest.mark.parametrize("form", [np.float32, str])
def test_copies_in_another_precision_or_as_text_fail(form):
    public = np.concatenate([PUBLIC, PRIVATE[:100]])
    assert not audit_overlap(PRIVATE, public.astype(form)).passed


@pytest.mark.parametrize("form", [float, str])
@pytest.mark.parametrize(("load", "columns"), [
    (load_iris, slice(0, 4)),  # where flowers are equal
    (load_breast_cancer, slice(10, 14)),  # where most numbers are near, because few are large
    (load_digits, slice(0, 12)),
])  # fmt: skip
def test_parts_of_a_real_table_are_not_taken_for_one_another(load, columns, form):
    """The seeds are fixed: each of the audit's two tests is of level 1 %."""
    for seed in range(5):
        rows = np.random.default_rng(seed).permutation(load().data[:, columns]).astype(form)
        third = len(rows) // 3
        assert audit_overlap(rows[third:], rows[:third]).passed


def test_copies_among_the_private_rows_excuse_nothing():
    private, public = np.tile(PRIVATE, (10, 1)), np.concatenate([PUBLIC, PRIVATE[:100]])
    found = audit_overlap(private, public)  # without ids, copies are other people
    assert found.alike_among_private == len(private)
    assert not found.passed
    assert audit_overlap(private, PUBLIC).passed


def test_text_is_compared_exactly_and_by_spelling():
    private = np.array([["Smith", "Main  Street", 3], ["Jones", "High St", 4]], dtype=object)
    public = np.array([["smith ", "main street", 3.0], ["Jones", "High St", 4]], dtype=object)
    found = audit_overlap(private, public)
    assert (found.equal, found.near) == (1, 2)
    assert found.reasons[-1].startswith("1 more is equal up to rounding")
    assert (
        audit_overlap(np.array([["nan", "inf"]]), np.array([["NaN", "INF "]], dtype=object)).near
        == 1
    )


def test_rows_of_one_shape_ids_and_grain_must_fit():
    for public in (PUBLIC[:, :2], PUBLIC[0]):
        with pytest.raises(InvalidDataError, match="rows of one shape"):
            audit_overlap(PRIVATE, public)
    with pytest.raises(InvalidDataError, match="one id per row"):
        audit_overlap(PRIVATE, PUBLIC, [1, 2])
    with pytest.raises(InvalidParameterError, match="`grain`"):
        audit_overlap(PRIVATE, PUBLIC, grain=0.0)


def test_people_in_several_shards_are_counted():
    assert entities_in_several_shards([0, 0, 1, 1], ["a", "a", "b", "b"]) == 0
    assert entities_in_several_shards([0, 1, 1, 2], ["a", " a", "b", "b"]) == 2
    assert entities_in_several_shards(np.zeros(0, int), []) == 0
    with pytest.raises(InvalidDataError, match="one id per row"):
        entities_in_several_shards([0, 1], ["a"])
