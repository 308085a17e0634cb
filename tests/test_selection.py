from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.selection import (
    BinaryExperts,
    FirstRows,
    GivenRows,
    LeastConfident,
    Medoids,
    PublicKnowledge,
    QuerySelector,
    RandomRows,
    SiameseSimilarity,
    TypiClust,
)

SELECTORS = [
    FirstRows(), RandomRows(), GivenRows(tuple(range(39, -1, -1))), Medoids(), TypiClust(), LeastConfident(),
    BinaryExperts(at_least=1), SiameseSimilarity(steps=3), SiameseSimilarity(same="image", steps=3),
]  # fmt: skip
CENTRES = np.array([[0, 0], [100, 0], [0, 100], [100, 100]])


def blobs(sizes: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Groups of rows, far apart, and the group of each row."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    return CENTRES[group] + np.random.default_rng(seed).normal(size=(len(group), 2)), group


def knowing(X: np.ndarray, labels: np.ndarray, probabilities: np.ndarray | None = None) -> PublicKnowledge:
    """What is known after every row with a label was asked."""
    return PublicKnowledge(X=X, labels=labels, asked=labels >= 0, probabilities=probabilities)


@pytest.fixture(scope="module")
def known() -> PublicKnowledge:
    """Four groups of ten rows, two rows of each asked, one of them without an answer."""
    X, group = blobs((10, 10, 10, 10))
    asked = np.arange(40) % 10 < 2
    labels = np.where(asked, group, -1)
    labels[1] = -1
    return PublicKnowledge(
        X=X, labels=labels, asked=asked, probabilities=np.random.default_rng(1).dirichlet([1] * 4, 40)
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
    with pytest.raises(InvalidParameterError, match="`n_queries` of"):
        selector.select(known, 0, 0)
    with pytest.raises(InvalidParameterError, match="`seed` of"):
        selector.select(known, 1, -1)


def test_rows_in_the_order_given(known):
    assert FirstRows().select(known, 3, 0).tolist() == [2, 3, 4]


def test_given_rows_keep_their_order_and_must_suffice(known):
    assert GivenRows((5, 0, 3, 5, 2)).select(known, 3, 0).tolist() == [5, 3, 2]  # row 0 was asked before
    with pytest.raises(InvalidDataError, match="`rows` of GivenRows must hold at least 4 distinct numbers"):
        GivenRows((5, 0, 3, 5, 2)).select(known, 4, 0)


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
def test_rules_say_truly_whether_they_need_answers_or_a_student(selector, known):
    nothing, answers = PublicKnowledge.before(known.X), replace(known, probabilities=None)
    for without, needed in ((nothing, selector.needs_answers), (answers, selector.needs_student)):
        if needed:
            with pytest.raises(InvalidDataError, match="Ask a first batch by another rule"):
                selector.select(without, 1, 0)
        else:
            assert selector.select(without, 1, 0).shape == (1,)


def test_random_rows_are_all_equally_likely():
    before = PublicKnowledge.before(np.zeros((5, 1)))
    counts = np.bincount(np.concatenate([RandomRows().select(before, 2, seed) for seed in range(2000)]), minlength=5)
    assert np.all(np.abs(counts - 800) < 5 * np.sqrt(2000 * 0.4 * 0.6))


def test_medoids_are_nearest_their_centres_and_come_largest_cluster_first():
    X, group = blobs((5, 30, 10, 20))
    chosen = Medoids().select(PublicKnowledge.before(X), 4, 0)
    assert group[chosen].tolist() == [1, 3, 2, 0]
    for row in chosen:
        own = np.flatnonzero(group == group[row])
        assert row == own[np.linalg.norm(X[own] - X[own].mean(axis=0), axis=1).argmin()]


@pytest.mark.parametrize("selector", [Medoids(), TypiClust()], ids=repr)
def test_what_is_covered_is_not_asked_again(selector):
    X, group = blobs((30, 30, 5, 5))
    asked = np.isin(np.arange(70), [3, 40])  # a row of each large group
    known = PublicKnowledge(X=X, labels=np.full(70, -1), asked=asked)
    assert set(group[selector.select(known, 2, 0)]) == {2, 3}


def test_the_typical_row_is_the_one_with_the_nearest_neighbors():
    ring = 10 * np.column_stack([np.cos(np.arange(12)), np.sin(np.arange(12))])
    dense = np.array([9.0, 0.0]) + 0.1 * np.random.default_rng(0).normal(size=(4, 2))
    X = np.concatenate([ring, dense, [[4.0, 0.0]]])  # the last is nearest the centre, and alone
    before = PublicKnowledge.before(X)
    assert Medoids().select(before, 1, 0) == [16]
    distances = np.sort(np.linalg.norm(X[:, None] - X, axis=2), axis=1)
    assert TypiClust(3).select(before, 1, 0) == [distances[:, 1:4].mean(axis=1).argmin()]
    assert TypiClust(3).select(before, 1, 0)[0] in range(12, 16)
    assert TypiClust(1000).select(before, 1, 0) == [distances[:, 1:9].mean(axis=1).argmin()]


@settings(max_examples=40)
@given(
    values=st.lists(st.integers(0, 3), min_size=1, max_size=25),
    data=st.data(),
    selector=st.sampled_from([Medoids(), TypiClust()]),
)
def test_equal_rows_leave_no_query_unused(values, data, selector):
    asked = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    known = PublicKnowledge(X=np.array(values)[:, None], labels=np.full(len(values), -1), asked=asked)
    for n_queries in {1, (len(known.open) + 1) // 2, len(known.open)} - {0}:
        if n_queries <= len(known.open):
            chosen = selector.select(known, n_queries, 0)
            assert len(np.unique(chosen)) == n_queries
            assert set(chosen) <= set(known.open)


def test_representatives_of_images_are_those_of_their_flattened_rows():
    images = np.random.default_rng(0).normal(size=(50, 4, 3))
    chosen = Medoids().select(PublicKnowledge.before(images), 5, 0)
    assert np.array_equal(chosen, Medoids().select(PublicKnowledge.before(images.reshape(50, 12)), 5, 0))


@pytest.mark.parametrize("X", [np.array([[np.nan], [0.0]]), np.array([["a"], ["b"]]), np.array([[np.inf], [1.0]])])
@pytest.mark.parametrize("selector", [Medoids(), TypiClust(), BinaryExperts(at_least=1), SiameseSimilarity()], ids=repr)
def test_rows_that_are_no_finite_numbers_are_refused(selector, X):
    known = knowing(np.concatenate([X, X]), np.array([0, 1, -1, -1]))
    with pytest.raises(InvalidDataError, match=f"{type(selector).__name__} needs public rows of finite numbers"):
        selector.select(known, 1, 0)


def test_the_least_confident_rows_come_first(known):
    confidence = known.probabilities.max(axis=1)
    expected = sorted(known.open, key=lambda row: confidence[row])
    assert LeastConfident().select(known, 32, 0).tolist() == expected


def test_least_confident_needs_a_student_with_finite_probabilities():
    with pytest.raises(InvalidDataError, match="LeastConfident needs the probabilities that a student predicts"):
        LeastConfident().select(PublicKnowledge.before(np.eye(3)), 1, 0)
    known = knowing(np.eye(2), np.array([-1, -1]), np.array([[0.5, 0.5], [np.nan, 0.5]]))
    with pytest.raises(InvalidDataError, match="must be finite"):
        LeastConfident().select(known, 1, 0)


class Oracle(ClassifierMixin, BaseEstimator):
    """Reads the score of the class that it is the expert of from the row itself: its own class has a 1 in column 0."""

    def fit(self, X, y):
        self.own_ = int(X[y.argmax(), 0])
        self.classes_ = np.array([False, True])
        return self

    def predict_proba(self, X):
        score = X[:, 1 + self.own_]
        return np.column_stack([1 - score, score])


SCORES = np.array([
    [0.80, 0.20, 0.20, 0.20, 0.20, 0.00],  # undecided, candidate 0.8
    [0.95, 0.20, 0.20, 0.20, 0.20, 0.20],  # its candidate is sure
    [0.30, 0.20, 0.20, 0.20, 0.05, 0.05],  # only three others
    [0.50, 0.20, 0.20, 0.20, 0.20, 0.20],  # undecided, candidate 0.5
    [0.90, 0.20, 0.20, 0.20, 0.20, 0.20],  # 0.9 is not below 0.9
    [0.40, 0.10, 0.10, 0.10, 0.10, 0.10],  # 0.1 is not above 0.1
    [0.60, 0.60, 0.60, 0.60, 0.60, 0.60],  # undecided: equal candidates are other experts too
])  # fmt: skip


def test_experts_ask_what_they_are_undecided_about_first_and_the_lowest_candidate_first():
    labelled = np.column_stack([np.arange(6), np.eye(6)])
    pool = np.column_stack([np.zeros(7), SCORES])
    known = knowing(np.concatenate([labelled, pool]), np.concatenate([np.arange(6), np.full(7, -1)]))
    rule = BinaryExperts(estimator=Oracle())
    assert np.flatnonzero(rule.undecided(known, 0)[6:]).tolist() == [0, 3, 6]
    assert (rule.select(known, 7, 0) - 6).tolist() == [3, 6, 0, 2, 5, 4, 1]


def test_experts_find_the_rows_between_classes():
    X, group = blobs((40, 40))
    between = np.array([[50.0, 0.0], [49.0, 1.0]])
    known = knowing(np.concatenate([X, between]), np.concatenate([np.where(np.arange(80) % 2, -1, group), [-1, -1]]))
    rule = BinaryExperts(at_least=1, score_below=0.7, estimator=LogisticRegression())
    assert set(rule.select(known, 2, 0)) == {80, 81}
    undecided = rule.undecided(known, 0)
    assert np.flatnonzero(undecided).tolist() == [80, 81]


def test_experts_need_more_classes_than_must_object():
    X, group = blobs((5, 5, 5, 5))
    with pytest.raises(InvalidDataError, match=r"of more than 4 classes, one expert each. Got 4"):
        BinaryExperts().select(knowing(X, np.where(np.arange(20) % 2, group, -1)), 1, 0)
    with pytest.raises(InvalidDataError, match="Got 0"):
        BinaryExperts().select(PublicKnowledge.before(X), 1, 0)


@pytest.mark.parametrize("same", ["class", "image"])
def test_what_resembles_no_labelled_row_is_asked_first(same):
    pytest.importorskip("torch")
    X, group = blobs((40, 40, 40, 40))
    labels = np.where((np.arange(160) % 4 == 0) & (group < 3), group, -1)
    known = knowing(X, labels)
    rule = SiameseSimilarity(same=same, steps=300)
    chosen = rule.select(known, 30, 0)
    assert np.mean(group[chosen] == 3) > 0.9  # by chance a third
    probabilities, matched = rule.best_matches(known, 0)
    seen = group < 3
    assert np.mean(matched[seen] == group[seen]) > 0.95
    assert probabilities[seen].mean() > probabilities[~seen].mean() + 0.1


def test_siamese_networks_take_images():
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, size=(30, 17 * 17))
    known = knowing(X, np.where(np.arange(30) < 10, np.arange(30) % 2, -1))
    rule = SiameseSimilarity(image_shape=(17, 17), steps=2)
    assert len(rule.select(known, 5, 0)) == 5
    probabilities, matched = rule.best_matches(known, 0)
    assert np.all((probabilities >= 0) & (probabilities <= 1))
    assert set(matched) <= {0, 1}


def test_siamese_networks_need_labels_and_leave_the_streams_alone():
    torch = pytest.importorskip("torch")
    X, group = blobs((5, 5))
    with pytest.raises(InvalidDataError, match=r"SiameseSimilarity\(same='class'\) compares with labeled rows"):
        SiameseSimilarity(steps=1).select(knowing(X, np.where(np.arange(10) < 3, group, -1)), 1, 0)
    with pytest.raises(InvalidDataError, match="compares with labeled rows"):
        SiameseSimilarity(same="image", steps=1).select(PublicKnowledge.before(X), 1, 0)
    state = torch.get_rng_state()
    SiameseSimilarity(same="image", steps=1).select(knowing(X, np.where(np.arange(10) < 3, group, -1)), 1, 0)
    assert torch.equal(state, torch.get_rng_state())


def test_pairs_are_what_they_say():
    pytest.importorskip("torch")
    from tutelage.students.networks.siamese import _pairs

    groups = np.array([7, 2, 2, 9, 7, 7])
    one, other, same = _pairs(groups, 3000, np.random.default_rng(0))
    assert np.array_equal(groups[one] == groups[other], same == 1)
    assert same.mean() == 0.5
    assert set(groups[one]) == set(groups[other]) == {2, 7, 9}


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: TypiClust(0), "n_neighbors"),
        (lambda: BinaryExperts(score_below=1.5), "score_below"),
        (lambda: BinaryExperts(others_above=0), "others_above"),
        (lambda: BinaryExperts(at_least=0), "at_least"),
        (lambda: SiameseSimilarity(same="row"), "same"),  # type: ignore[arg-type]
        (lambda: SiameseSimilarity(steps=0), "steps"),
        (lambda: SiameseSimilarity(embedding=0), "embedding"),
        (lambda: SiameseSimilarity(batch_size=1), "batch_size"),
    ],
)
def test_settings_out_of_range_are_named(build, name):
    with pytest.raises(InvalidParameterError, match=f"`{name}` of"):
        build()


@dataclass(frozen=True)
class Chosen(QuerySelector):
    """A rule that chooses what it is told."""

    rows: tuple[int, ...]

    def _choose(self, known, n_queries, generator):
        return np.array(self.rows)


@pytest.mark.parametrize("rows", [(2, 2), (0, 2), (2, 40), (2,), (2, 3, 4), (2.0, 3.0)])
def test_a_rule_that_asks_twice_or_out_of_range_is_refused(known, rows):
    with pytest.raises(InvalidDataError, match="Chosen must return 2 distinct numbers of rows"):
        Chosen(rows).select(known, 2, 0)
    assert Chosen((2, 3)).select(known, 2, 0).tolist() == [2, 3]


@pytest.mark.parametrize(
    "parts",
    [
        {"labels": np.array([-1, 0]), "asked": np.array([True, True, True])},
        {"labels": np.array([-1, 0, -1]), "asked": np.array([0, 1, 0])},
        {"labels": np.array([-1, 0, -1]), "asked": np.array([True, True])},
        {"labels": np.array([-1] * 3), "asked": np.zeros(3, dtype=bool), "probabilities": np.zeros(3)},
        {"labels": np.array([-1] * 3), "asked": np.zeros(3, dtype=bool), "probabilities": np.zeros((2, 4))},
    ],
)
def test_knowledge_that_does_not_fit_together_is_refused(parts):
    with pytest.raises(InvalidDataError, match="PublicKnowledge must hold one label, one mark"):
        PublicKnowledge(X=np.zeros((3, 1)), **parts)


def test_a_label_nobody_asked_for_is_refused():
    with pytest.raises(InvalidDataError, match="never released"):
        PublicKnowledge(X=np.zeros((2, 1)), labels=np.array([0, 1]), asked=np.array([True, False]))


def test_knowledge_shows_no_row():
    assert "12345" not in repr(PublicKnowledge.before(np.array([[12345.0]])))


def test_the_best_match_is_the_one_with_the_best_odds_of_all_pairs():
    torch = pytest.importorskip("torch")
    from tutelage.students.networks.siamese import train_siamese

    X, group = blobs((12, 12, 12))
    network = train_siamese(X, group, image_shape=None, embedding=5, steps=30, batch_size=16, seed=0)
    probabilities, which = network.best_matches(X[:9], X[9:])
    pairs = np.repeat(X[:9], 27, axis=0), np.tile(X[9:], (9, 1))
    with torch.no_grad():
        odds = network(*(torch.tensor(rows, dtype=torch.float32) for rows in pairs)).reshape(9, 27).sigmoid().numpy()
    assert probabilities == pytest.approx(odds.max(axis=1), abs=1e-5)
    assert odds[np.arange(9), which] == pytest.approx(odds.max(axis=1), abs=1e-5)
