"""Rules that ask by binary experts, siamese networks and density."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.selection import Medoids, PublicKnowledge
from tutelage_reproductions.students.selection import BinaryExperts, SiameseSimilarity, TypiClust
from tutelage_reproductions.students.siamese import _pairs, train_siamese

CENTRES = np.array([[0, 0], [100, 0], [0, 100], [100, 100]])
RULES = [
    TypiClust(),
    BinaryExperts(at_least=1),
    SiameseSimilarity(steps=3),
    SiameseSimilarity(same="image", steps=3),
]


def blobs(sizes: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Groups of rows, far apart, and the group of each row."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    return CENTRES[group] + np.random.default_rng(seed).normal(size=(len(group), 2)), group


def knowing(X: np.ndarray, labels: np.ndarray) -> PublicKnowledge:
    """Return the public knowledge after a query for every row with a label."""
    return PublicKnowledge(X=X, labels=labels, asked=labels >= 0)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_every_rule_chooses_distinct_open_rows_and_says_whether_it_needs_answers(rule):
    X, group = blobs((10, 10, 10, 10))
    known = knowing(X, np.where(np.arange(40) % 10 < 2, group, -1))
    for n_queries in (1, 32):
        chosen = rule.select(known, n_queries, 0)
        assert len(np.unique(chosen)) == n_queries
        assert not known.asked[chosen].any()
        assert np.array_equal(chosen, rule.select(known, n_queries, 0))
    if rule.needs_answers:
        with pytest.raises(InvalidDataError, match="Ask a first batch by another rule"):
            rule.select(PublicKnowledge.before(X), 1, 0)
    holes = replace(known, X=np.where(known.X > 100, np.nan, known.X))
    with pytest.raises(
        InvalidDataError, match=f"{type(rule).__name__} needs public rows of finite numbers"
    ):
        rule.select(holes, 1, 0)


def test_the_typical_row_is_the_one_with_the_nearest_neighbors():
    ring = 10 * np.column_stack([np.cos(np.arange(12)), np.sin(np.arange(12))])
    dense = np.array([9.0, 0.0]) + 0.1 * np.random.default_rng(0).normal(size=(4, 2))
    X = np.concatenate([ring, dense, [[4.0, 0.0]]])  # the last is nearest the center, and alone
    before = PublicKnowledge.before(X)
    assert Medoids().select(before, 1, 0) == [16]
    distances = np.sort(np.linalg.norm(X[:, None] - X, axis=2), axis=1)
    assert TypiClust(3).select(before, 1, 0) == [distances[:, 1:4].mean(axis=1).argmin()]
    assert TypiClust(3).select(before, 1, 0)[0] in range(12, 16)
    assert TypiClust(1000).select(before, 1, 0) == [distances[:, 1:9].mean(axis=1).argmin()]


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
    known = knowing(
        np.concatenate([labelled, pool]), np.concatenate([np.arange(6), np.full(7, -1)])
    )
    rule = BinaryExperts(estimator=Oracle())
    assert np.flatnonzero(rule.undecided(known, 0)[6:]).tolist() == [0, 3, 6]
    assert (rule.select(known, 7, 0) - 6).tolist() == [3, 6, 0, 2, 5, 4, 1]


def test_experts_find_the_rows_between_classes():
    X, group = blobs((40, 40))
    between = np.array([[50.0, 0.0], [49.0, 1.0]])
    known = knowing(
        np.concatenate([X, between]),
        np.concatenate([np.where(np.arange(80) % 2, -1, group), [-1, -1]]),
    )
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
    X, group = blobs((40, 40, 40, 40))
    labels = np.where((np.arange(160) % 4 == 0) & (group < 3), group, -1)
    known = knowing(X, labels)
    rule = SiameseSimilarity(same=same, steps=150)
    chosen = rule.select(known, 30, 0)
    assert np.mean(group[chosen] == 3) > 0.9  # by chance a third
    probabilities, matched = rule.best_matches(known, 0)
    seen = group < 3
    assert np.mean(matched[seen] == group[seen]) > 0.95
    assert probabilities[seen].mean() > probabilities[~seen].mean() + 0.1


def test_siamese_networks_take_images():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, size=(30, 17 * 17))
    known = knowing(X, np.where(np.arange(30) < 10, np.arange(30) % 2, -1))
    rule = SiameseSimilarity(image_shape=(17, 17), steps=2)
    assert len(rule.select(known, 5, 0)) == 5
    probabilities, matched = rule.best_matches(known, 0)
    assert np.all((probabilities >= 0) & (probabilities <= 1))
    assert set(matched) <= {0, 1}


def test_siamese_networks_need_labels_and_leave_the_streams_alone():
    X, group = blobs((5, 5))
    with pytest.raises(
        InvalidDataError, match=r"SiameseSimilarity\(same='class'\) compares with labeled rows"
    ):
        SiameseSimilarity(steps=1).select(knowing(X, np.where(np.arange(10) < 3, group, -1)), 1, 0)
    with pytest.raises(InvalidDataError, match="compares with labeled rows"):
        SiameseSimilarity(same="image", steps=1).select(PublicKnowledge.before(X), 1, 0)
    state = torch.get_rng_state()
    SiameseSimilarity(same="image", steps=1).select(
        knowing(X, np.where(np.arange(10) < 3, group, -1)), 1, 0
    )
    assert torch.equal(state, torch.get_rng_state())


def test_pairs_are_what_they_say():
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


def test_the_best_match_is_the_one_with_the_best_odds_of_all_pairs():
    X, group = blobs((12, 12, 12))
    network = train_siamese(
        X, group, image_shape=None, embedding=5, steps=30, batch_size=16, seed=0
    )
    probabilities, which = network.best_matches(X[:9], X[9:])
    pairs = np.repeat(X[:9], 27, axis=0), np.tile(X[9:], (9, 1))
    with torch.no_grad():
        odds = (
            network(*(torch.tensor(rows, dtype=torch.float32) for rows in pairs))
            .reshape(9, 27)
            .sigmoid()
            .numpy()
        )
    assert probabilities == pytest.approx(odds.max(axis=1), abs=1e-5)
    assert odds[np.arange(9), which] == pytest.approx(odds.max(axis=1), abs=1e-5)


@settings(max_examples=20)
@given(values=st.lists(st.integers(0, 3), min_size=1, max_size=25))
def test_equal_rows_leave_no_query_unused(values):
    known = PublicKnowledge.before(np.array(values)[:, None])
    assert len(np.unique(TypiClust().select(known, len(values), 0))) == len(values)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            BinaryExperts(),
            "`at_least` of BinaryExperts must be below the number of classes, 3. Got 4",
        ),
        (BinaryExperts(at_least=1, estimator=RidgeClassifier()), "classifier with `predict_proba`"),
        (SiameseSimilarity(image_shape=(7, 8)), "must multiply to the 1 features of a row"),
    ],
)
def test_what_does_not_suit_the_rows_is_refused_before_anything_is_spent(rule, message):
    with pytest.raises(InvalidParameterError, match=message):
        rule.check(np.zeros((9, 1)), 3)
