"""The sensitivity claim itself: one changed private row changes the ballots of one teacher only, bit for bit."""

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from tutelage import GNMax, PATEClassifier
from tutelage.partition import Shards
from tutelage.teachers import ClassMeans, NaiveBayes, NearestNeighbours, Network, Ridge, ensemble_of
from tutelage.votes import tally

KEY = b"a key of 32 bytes for the tests."
TEACHERS = 12


def small_network(n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, n_classes))


ESTIMATORS = {
    "forest": RandomForestClassifier(n_estimators=10),
    "scaled regression": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "naive Bayes": GaussianNB(),
    "class means": ClassMeans(),
    "class means in a public metric": ClassMeans(np.diag([1.0, 2.0, 3.0])),
    "ridge": Ridge(),
    "closed-form naive Bayes": NaiveBayes(),
    "nearest neighbours": NearestNeighbours(3),
    "networks one by one": Network(small_network, epochs=4, learning_rate=0.03, device="cpu", engine="alone"),
    "networks together": Network(small_network, epochs=4, learning_rate=0.03, device="cpu", engine="together"),
}


@pytest.fixture
def noisy_rows():
    """Rows that are hard enough for every row to matter."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 3))
    return X, (X[:, 0] + rng.normal(size=240) > 0).astype(np.int64)


def vote(estimator, X, y, shards):
    teachers = ensemble_of(estimator, n_classes=2, seed=5)
    return teachers.fit_ballots(X, y, shards, np.random.default_rng(9).normal(size=(300, 3)))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_changed_row_changes_one_teacher(name, noisy_rows):
    X, y = noisy_rows
    shards = Shards.of_rows(len(y), TEACHERS, key=KEY)
    before = vote(ESTIMATORS[name], X, y, shards)
    changes = 0
    for row in (0, 17, 239):
        X_other, y_other = X.copy(), y.copy()
        X_other[row] = [-50.0, 50.0, 0.0]
        y_other[row] = 1 - y[row]
        after = vote(ESTIMATORS[name], X_other, y_other, shards)
        changed = np.flatnonzero((before != after).any(axis=1))
        assert set(changed) <= {shards.assignment[row]}
        changes += len(changed)
    assert changes > 0  # an extreme row with the wrong label does sway its teacher


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_removed_entity_changes_one_teacher(name, noisy_rows):
    X, y = noisy_rows
    ids = np.arange(len(y)) // 2
    before = vote(ESTIMATORS[name], X, y, Shards.of_entities(ids, TEACHERS, key=KEY))
    kept = ids != 40
    shards = Shards.of_entities(ids[kept], TEACHERS, key=KEY)
    after = vote(ESTIMATORS[name], X[kept], y[kept], shards)
    home = Shards.of_entities([40], TEACHERS, key=KEY).assignment[0]
    assert set(np.flatnonzero((before != after).any(axis=1))) == {home}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("how", ["rows", "entities", "public fraction"])
def test_the_estimator_that_users_call_keeps_the_claim(name, how, noisy_rows, monkeypatch):
    X, y = noisy_rows
    seen = []

    def spy(ballots, n_classes, unit):
        seen.append(ballots.copy())
        return tally(ballots, n_classes, unit)

    monkeypatch.setattr("tutelage.classifier.tally", spy)
    model = PATEClassifier(
        ESTIMATORS[name],
        n_teachers=TEACHERS,
        mechanism=GNMax(3.0),
        classes=[0, 1],
        random_state=0,
        student=GaussianNB(),
    )
    arguments: dict[str, Any] = {"X_public": np.random.default_rng(9).normal(size=(300, 3))}
    if how == "entities":
        arguments["entity_ids"] = np.arange(240) // 2
    elif how == "public fraction":
        arguments = {}
        model.set_params(public_fraction=0.4)
    changes = 0
    for row in (0, 17, 100, 239):
        X_other, y_other = X.copy(), y.copy()
        X_other[row], y_other[row] = [-50.0, 50.0, 0.0], 1 - y[row]
        if how == "public fraction":
            X_other[row] = X[row]  # the inputs of the share that is declared public are not protected
        model.fit(X, y, **arguments)
        model.fit(X_other, y_other, **arguments)
        before, after = seen[-2:]
        changed = np.flatnonzero((before != after).any(axis=1))
        assert len(changed) <= 1
        changes += len(changed)
    assert changes > 0


def test_a_scaler_fitted_over_all_rows_would_be_caught(noisy_rows):
    X, y = noisy_rows
    shards = Shards.of_rows(len(y), TEACHERS, key=KEY)
    estimator = LogisticRegression()
    X_other = X.copy()
    X_other[17] = [-5000.0, 5000.0, 0.0]
    before = vote(estimator, StandardScaler().fit_transform(X), y, shards)
    after = vote(estimator, StandardScaler().fit_transform(X_other), y, shards)
    assert (before != after).any(axis=1).sum() > 1
