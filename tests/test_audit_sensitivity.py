"""The check of a user's own pipeline: right ones pass, each common fault is found and its cause named."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from tutelage import Shards
from tutelage.audit.sensitivity import (
    FAR,
    LABELS,
    REMOVED,
    SWAPPED,
    audit_sensitivity,
    ballots_of_teachers,
)
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.privacy import ONE_TEACHER
from tutelage.teachers import ClassMeans, ensemble_of

pytestmark = pytest.mark.rest

TEACHERS, KEY = 10, bytes(32)
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 3))
Y = (X[:, 0] + RANDOM.normal(size=300) > 0).astype(np.int64)
IDS = np.arange(300) // 2
QUERIES = RANDOM.normal(size=(200, 3))
right = ballots_of_teachers(ClassMeans(), TEACHERS, QUERIES, n_classes=2)


def on(partition):
    """Return class means on a partition of one's own."""

    def make_ballots(rows, labels, ids):
        shards = Shards(partition(rows, labels, ids), TEACHERS, ONE_TEACHER)
        return ensemble_of(ClassMeans(), n_classes=2, seed=0).fit_ballots(
            rows, labels, shards, QUERIES
        )

    return make_ballots


def by_label_then_place(rows, labels, ids):
    return np.argsort(np.lexsort((np.arange(len(rows)), labels))) % TEACHERS


def by_row(rows, labels, ids):
    return Shards.of_rows(len(rows), TEACHERS, key=KEY).assignment


def with_the_next(rows, labels, ids):
    """Return class means, each trained on its shard and on the next one."""
    shards = Shards.of_entities(ids, TEACHERS, key=KEY).rows
    both = [
        np.concatenate([one, other])
        for one, other in zip(shards, shards[1:] + shards[:1], strict=True)
    ]
    alone = on(lambda x, *_: np.zeros(len(x), int))
    return np.concatenate([alone(rows[own], labels[own], None)[:1] for own in both])


def test_right_pipelines_pass():
    for ids, kinds in ((IDS, {LABELS, SWAPPED, FAR, REMOVED}), (None, {LABELS, SWAPPED, FAR})):
        found = audit_sensitivity(right, X, Y, ids)
        assert found.passed
        assert found.reasons == ()
        assert {trial.change for trial in found.trials} == kinds
        assert found.unit == ("row" if ids is None else "entity")
        assert found.teachers == TEACHERS


@pytest.mark.parametrize(("make_ballots", "cause"), [
    (lambda x, y, ids: right(StandardScaler(copy=False).fit_transform(x), y, ids), "a scaler, vocabulary"),
    (on(lambda rows, labels, ids: np.arange(len(rows)) * TEACHERS // len(rows)), "shards depend on position"),
    (on(by_label_then_place), "stratified by label"),
    (on(by_row), "rows in several shards"),
    (with_the_next, "shards overlap"),
    (lambda x, y, ids: right(x, np.random.default_rng().permutation(y), ids), "the second time"),
    (lambda x, y, ids: np.zeros((TEACHERS, 20), dtype=int), "nothing was shown"),
], ids=["scaler", "slices", "stratified", "by row", "overlap", "unseeded", "constant"])  # fmt: skip
def test_faults_are_found_and_their_cause_is_named(make_ballots, cause):
    before = X.copy()
    found = audit_sensitivity(make_ballots, X, Y, [f"patient-{name}" for name in IDS.tolist()])
    assert not found.passed
    assert cause in " ".join(found.reasons)
    assert "patient-" not in repr(found)
    assert np.array_equal(X, before)


def test_text_and_small_integers_are_changed_within_their_types():
    def by_length(rows, labels, ids):
        lengths = np.array([[len(str(cell)) for cell in row] for row in rows.tolist()], dtype=float)
        return right(lengths, labels, ids)

    words = np.array(
        [["a" * (1 + row % 7), "b", "c" * (row % 3)] for row in range(300)], dtype=object
    )
    assert FAR not in {trial.change for trial in audit_sensitivity(by_length, words, Y, IDS).trials}
    pixels = RANDOM.integers(0, 255, (300, 3)).astype(np.uint8)
    assert audit_sensitivity(right, pixels, Y, IDS).worst(FAR) == 1


@pytest.mark.parametrize(("arguments", "message"), [
    ((right, X, Y[:5]), "one entry per private row"),
    ((right, X, Y, IDS[:4]), "one id per row"),
    ((lambda *_: np.zeros((4, 3)), X, Y), "must return integers"),
])  # fmt: skip
def test_columns_and_ballots_must_fit(arguments, message):
    with pytest.raises(InvalidDataError, match=message):
        audit_sensitivity(*arguments)


def test_the_number_of_entities_is_checked():
    with pytest.raises(InvalidParameterError, match="`entities`"):
        audit_sensitivity(right, X, Y, entities=0)
