"""The sensitivity claim itself: one changed private row changes the ballots of one teacher only, bit for bit."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tutelage.partition import Shards
from tutelage.teachers import EstimatorTeachers

KEY = b"a key of 32 bytes for the tests."
TEACHERS = 12
ESTIMATORS = {
    "forest": RandomForestClassifier(n_estimators=10),
    "scaled regression": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "naive Bayes": GaussianNB(),
}


@pytest.fixture
def noisy_rows():
    """Rows that are hard enough for every row to matter."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 3))
    return X, (X[:, 0] + rng.normal(size=240) > 0).astype(np.int64)


def vote(estimator, X, y, shards):
    teachers = EstimatorTeachers(estimator, n_classes=2, seed=5)
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
    assert set(np.flatnonzero((before != after).any(axis=1))) <= {home}


def test_a_scaler_fitted_over_all_rows_would_be_caught(noisy_rows):
    X, y = noisy_rows
    shards = Shards.of_rows(len(y), TEACHERS, key=KEY)
    estimator = LogisticRegression()
    X_other = X.copy()
    X_other[17] = [-5000.0, 5000.0, 0.0]
    before = vote(estimator, StandardScaler().fit_transform(X), y, shards)
    after = vote(estimator, StandardScaler().fit_transform(X_other), y, shards)
    assert (before != after).any(axis=1).sum() > 1
