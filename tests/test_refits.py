"""Fits without a ledger: a warning states what all of them spent together; and what is the caller's own stays so."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from conftest import REPOSITORY
from tutelage import GNMax, PATEClassifier, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.events import Composed, Repeated
from tutelage.exceptions import BudgetContinuedWarning, RepeatedFitWarning
from tutelage.methods import TeacherVotes
from tutelage.privacy import ONE_TEACHER, round_up
from tutelage.teachers import ClassMeans, Ridge

pytestmark = pytest.mark.usefixtures("repeatable")  # seven noisy labels can all be of one class

MECHANISM = GNMax(5.0)
ONE = MECHANISM.event_of_one(2, ONE_TEACHER, simulated=False)
X = np.random.default_rng(0).uniform(size=(200, 4))
Y = (X[:, 0] > 0.5).astype(int)
PUBLIC = np.random.default_rng(1).uniform(size=(20, 4))
VOTES = TeacherVotes(ClassMeans(), n_teachers=10, mechanism=MECHANISM, student=GaussianNB())


def model(method=VOTES, **changes) -> PATEClassifier:
    return PATEClassifier(method=method, classes=[0, 1], random_state=0, **changes)


def fit(estimator=None, **options) -> PATEClassifier:
    return (estimator or model()).fit(X, Y, **{"X_public": PUBLIC, **options})


@pytest.mark.rest
def test_a_grid_search_states_the_sum_of_its_fits():
    search = GridSearchCV(model(), {"method__teacher": [ClassMeans(), Ridge()]}, cv=3)
    with pytest.warns(RepeatedFitWarning) as caught:
        search.fit(X, Y, X_public=PUBLIC)
    said = [str(warning.message) for warning in caught if warning.category is RepeatedFitWarning]
    assert len(said) == 6
    epsilon = data_independent.epsilon(Repeated(ONE, 7 * 20), 1e-5).epsilon
    assert search.best_estimator_.epsilon_.epsilon < epsilon
    assert f"guarantee one row ε = {round_up(epsilon):g} at δ = 1e-05" in said[-1]
    assert (
        f"not the {round_up(search.best_estimator_.epsilon_.epsilon):g} of this fit alone"
        in said[-1]
    )


def test_fits_of_different_noise_and_units_compose():
    people = [f"p{number // 2}" for number in range(200)]
    fit(entity_ids=people)
    with pytest.warns(RepeatedFitWarning, match="guarantee one entity ε"):
        fit(entity_ids=people)
    other = GNMax(9.0)
    with pytest.warns(RepeatedFitWarning) as caught:
        fit(model(VOTES.with_params(mechanism=other, n_queries=7), delta=1e-6))
    seven = Repeated(other.event_of_one(2, ONE_TEACHER, simulated=False), 7)
    epsilon = data_independent.epsilon(Composed((Repeated(ONE, 40), seven)), 1e-6).epsilon
    assert f"guarantee one row ε = {round_up(epsilon):g} at δ = 1e-06" in str(caught[0].message)


def test_what_does_not_add_up_is_not_warned_of(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatedFitWarning)
        fit(model(noise=SimulationNoise(0)))  # protects nobody
        fit()
        fit(model(noise=SimulationNoise(0)))
        warnings.simplefilter("ignore", BudgetContinuedWarning)
        for question in "ab":
            # The ledger adds up.
            fit(model(ledger=tmp_path / "a.ledger", budget=9.0, question=question))


@pytest.mark.parametrize("stream", [None, np.random.RandomState(5)], ids=["global", "passed"])
def test_the_callers_streams_and_arrays_are_left_alone_and_decide_nothing_later(stream):
    tree = DecisionTreeClassifier(splitter="random", max_features=1, random_state=stream)
    found = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002
        before = pickle.dumps((np.random.get_state(), stream))  # noqa: NPY002
        own = X.copy(), Y.copy(), PUBLIC.copy()
        votes = VOTES.with_params(teacher=tree, student=KNeighborsClassifier(1))
        one = model(votes, noise=SimulationNoise(0))
        one.fit(*own[:2], X_public=own[2])
        assert pickle.dumps((np.random.get_state(), stream)) == before  # noqa: NPY002
        for array in own[: 3 * (seed - 1)]:  # which the caller uses for something else
            array[:] = 0
        found.append((one.release_.labels.tolist(), one.predict(X).tolist()))
    assert found[0] == found[1]


def test_the_page_on_pitfalls_adds_up_seven_fits():
    one = GNMax(10.0).event_of_one(2, ONE_TEACHER, simulated=False)
    alone, together = (
        data_independent.epsilon(Repeated(one, 50 * fits), 1e-5).epsilon for fits in (1, 7)
    )
    page = " ".join((REPOSITORY / "docs" / "pitfalls.md").read_text().split())
    assert f"with `GNMax(10)` at δ = 1e-5, from {alone:.2f} to {together:.2f}." in page
