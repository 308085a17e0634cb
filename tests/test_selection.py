from dataclasses import dataclass, replace

import numpy as np
import pytest

from blobs import groups
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.selection import (
    FirstRows,
    GivenRows,
    LeastConfident,
    Medoids,
    PublicKnowledge,
    QuerySelector,
    RandomRows,
)

SELECTORS = [
    FirstRows(),
    RandomRows(),
    GivenRows(tuple(range(39, -1, -1))),
    Medoids(),
    LeastConfident(),
]


@pytest.fixture(scope="module")
def known() -> PublicKnowledge:
    """Four groups of ten equal rows, two rows of each asked, one of them without an answer."""
    X, group = groups((10, 10, 10, 10))
    X = X.round()
    asked = np.arange(40) % 10 < 2
    labels = np.where(asked, group, -1)
    labels[1] = -1
    return PublicKnowledge(
        X=X,
        labels=labels,
        asked=asked,
        probabilities=np.random.default_rng(1).dirichlet([1] * 4, 40),
    )


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
def test_every_rule_chooses_as_many_distinct_rows_as_asked_for_and_none_twice(selector, known):
    for n_queries in (1, 7, 32):
        chosen = selector.select(known, n_queries, 0)
        assert chosen.shape == (n_queries,)
        assert np.issubdtype(chosen.dtype, np.integer)
        assert len(np.unique(chosen)) == n_queries
        assert not known.asked[chosen].any()
        assert np.array_equal(chosen, selector.select(known, n_queries, 0))


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
def test_more_rows_than_are_left_or_none_at_all_are_refused(selector, known):
    with pytest.raises(InvalidDataError, match="Got 33 queries for 32 such rows"):
        selector.select(known, 33, 0)
    for n_queries, seed, parameter in ((0, 0, "n_queries"), (1, -1, "seed")):
        with pytest.raises(InvalidParameterError) as refused:
            selector.select(known, n_queries, seed)
        assert refused.value.parameter == parameter


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
def test_rules_say_truly_whether_they_need_answers_or_a_student(selector, known):
    nothing, answers = PublicKnowledge.before(known.X), replace(known, probabilities=None)
    for without, needed in ((nothing, selector.needs_answers), (answers, selector.needs_student)):
        if needed:
            with pytest.raises(InvalidDataError, match="Ask a first batch by another rule"):
                selector.select(without, 1, 0)
        else:
            assert selector.select(without, 1, 0).shape == (1,)


def test_rows_come_in_their_order(known):
    # Row 0 was asked before.
    assert GivenRows((5, 0, 3, 5, 2)).select(known, 3, 0).tolist() == [5, 3, 2]
    expected = sorted(known.open, key=lambda row: known.probabilities[row].max())
    assert LeastConfident().select(known, 32, 0).tolist() == expected


def test_random_rows_are_all_equally_likely():
    before = PublicKnowledge.before(np.zeros((5, 1)))
    counts = np.bincount(
        np.concatenate([RandomRows().select(before, 2, seed) for seed in range(1000)]), minlength=5
    )
    assert np.all(np.abs(counts - 400) < 5 * np.sqrt(1000 * 0.4 * 0.6))


def test_medoids_are_nearest_their_centres_and_come_largest_cluster_first():
    X, group = groups((5, 30, 10, 20))
    chosen = Medoids().select(PublicKnowledge.before(X), 4, 0)
    assert group[chosen].tolist() == [1, 3, 2, 0]
    for row in chosen:
        own = np.flatnonzero(group == group[row])
        assert row == own[np.linalg.norm(X[own] - X[own].mean(axis=0), axis=1).argmin()]


def test_what_is_covered_is_not_asked_again():
    X, group = groups((30, 30, 5, 5))
    asked = np.isin(np.arange(70), [3, 40])  # a row of each large group
    known = PublicKnowledge(X=X, labels=np.full(70, -1), asked=asked)
    assert set(group[Medoids().select(known, 2, 0)]) == {2, 3}


@dataclass(frozen=True)
class Chosen(QuerySelector):
    """A rule that chooses what it is told."""

    rows: tuple[int, ...]

    def _choose(self, known, n_queries, generator):
        return np.array(self.rows)


@pytest.mark.parametrize("rows", [(2, 2), (0, 2), (2, 40), (2.0, 3.0)])
def test_a_rule_that_asks_twice_or_out_of_range_is_refused(known, rows):
    with pytest.raises(InvalidDataError, match="Chosen must return 2 distinct numbers of rows"):
        Chosen(rows).select(known, 2, 0)
    assert Chosen((2, 3)).select(known, 2, 0).tolist() == [2, 3]


@pytest.mark.parametrize(("labels", "asked", "probabilities"), [
    ([-1, 0, 1], [False, True, False], None),  # a label that was never released
    ([-1] * 3, [False] * 3, np.zeros((2, 4))),
])  # fmt: skip
def test_knowledge_that_does_not_fit_together_is_refused(labels, asked, probabilities):
    with pytest.raises(InvalidDataError, match=r"must hold one label, one mark|never released"):
        PublicKnowledge(
            X=np.zeros((3, 1)),
            labels=np.array(labels),
            asked=np.array(asked),
            probabilities=probabilities,
        )


@pytest.mark.parametrize(
    ("rule", "X"), [(Medoids(), [[np.nan], [0]]), (GivenRows((1, 1)), [[1], [0]])]
)
def test_what_a_rule_cannot_rank_is_refused(rule, X):
    with pytest.raises(InvalidDataError, match=r"must be finite|finite numbers|distinct numbers"):
        rule.select(PublicKnowledge.before(np.array(X)), 2, 0)
