"""Fits without a ledger: the second one of the same people says what all of them spent together."""

import pickle
import re
import warnings
from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB

from conftest import REPOSITORY
from tutelage import GNMax, PATEClassifier, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.events import Composed, Repeated
from tutelage.exceptions import BudgetContinuedWarning, RepeatedFitWarning
from tutelage.labeling.refits import Refits
from tutelage.privacy import ONE_TEACHER, round_up
from tutelage.teachers import ClassMeans, Ridge

MECHANISM = GNMax(5.0)
ONE = MECHANISM.event_of_one(2, ONE_TEACHER, simulated=False)
X = np.random.default_rng(0).uniform(size=(200, 4))
Y = (X[:, 0] > 0.5).astype(int)
PUBLIC = np.random.default_rng(1).uniform(size=(20, 4))


def model(**changes) -> PATEClassifier:
    settings = {"teacher": ClassMeans(), "n_teachers": 10, "mechanism": MECHANISM, "classes": [0, 1], "random_state": 0}
    return PATEClassifier(**{"student": GaussianNB(), **settings, **changes})


def fit(estimator=None, rows=slice(None), **options) -> PATEClassifier:
    return (estimator or model()).fit(X[rows], Y[rows], **{"X_public": PUBLIC, **options})


def together(fits: int, queries: int = 20) -> str:
    epsilon = round_up(data_independent.epsilon(Repeated(ONE, fits * queries), 1e-5).epsilon)
    return rf"^This is fit {fits} without a ledger, .* guarantee one row ε = {epsilon:g} at δ = 1e-05, and not"


def test_a_grid_search_states_the_sum_of_its_fits():
    search = GridSearchCV(model(), {"teacher": [ClassMeans(), Ridge()]}, cv=3)
    with pytest.warns(RepeatedFitWarning) as caught:
        search.fit(X, Y, X_public=PUBLIC)
    said = [str(warning.message) for warning in caught]
    # Three folds share two thirds of their rows, so only the first of seven fits has nothing before it.
    assert [sentence.split()[3] for sentence in said] == ["2", "3", "4", "5", "6", "7"]
    epsilon = data_independent.epsilon(Repeated(ONE, 7 * 20), 1e-5).epsilon
    assert search.best_estimator_.epsilon_.epsilon < epsilon
    assert f"ε = {round_up(epsilon):g} at δ = 1e-05" in said[-1]
    assert f"not the {round_up(search.best_estimator_.epsilon_.epsilon):g} of this fit alone" in said[-1]


@pytest.mark.parametrize(
    "again",
    [
        lambda fitted: fit(fitted),
        lambda fitted: fit(clone(fitted)),
        lambda _: fit(model(mechanism=MECHANISM, n_teachers=20)),
        lambda _: fit(rows=slice(170, 200)),
        lambda _: model().fit(X[::-1], 1 - Y, X_public=PUBLIC),
        lambda fitted: pickle.loads(pickle.dumps(fitted)).fit(X[:, :2], Y, X_public=PUBLIC[:, :2]),  # noqa: S301
        lambda fitted: deepcopy(fitted).fit(X[:, :2], Y, X_public=PUBLIC[:, :2]),
    ],
    ids=["same", "clone", "other settings", "few of the rows", "other labels", "pickled", "copied"],
)
def test_a_second_fit_of_the_same_rows_or_estimator_adds_up(again):
    first = fit()
    with pytest.warns(RepeatedFitWarning, match=together(2)):
        again(first)


def test_people_are_known_by_their_ids_whichever_columns_are_used():
    people = [f"p{number // 2}" for number in range(200)]
    fit(entity_ids=people)
    with pytest.warns(RepeatedFitWarning, match="guarantee one entity ε"):
        model().fit(X[:100, 2:], Y[:100], X_public=PUBLIC[:, 2:], entity_ids=people[100:])
    with pytest.warns(RepeatedFitWarning, match="guarantee one row ε"):
        fit()  # which protects one row of theirs


def test_what_does_not_add_up_is_not_warned_of(tmp_path):
    fit(rows=slice(100))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatedFitWarning)
        fit(rows=slice(100, 200))  # other people
        fit(rows=slice(0, 100), estimator=model(noise=SimulationNoise(0)))  # protects nobody
        warnings.simplefilter("ignore", BudgetContinuedWarning)
        for question in "ab":
            fit(model(ledger=tmp_path / "a.ledger", budget=9.0, question=question))  # the ledger adds up


def test_fits_of_different_noise_compose():
    fit()
    other = GNMax(9.0)
    with pytest.warns(RepeatedFitWarning) as caught:
        fit(model(mechanism=other, delta=1e-6, n_queries=7))
    seven = Repeated(other.event_of_one(2, ONE_TEACHER, simulated=False), 7)
    epsilon = data_independent.epsilon(Composed((Repeated(ONE, 20), seven)), 1e-6).epsilon
    assert f"ε = {round_up(epsilon):g} at δ = 1e-06" in str(caught[0].message)


def known(rows: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in rows]


def test_a_table_is_the_same_whatever_the_public_rows_make_of_it():
    rng = np.random.default_rng(0)
    rows = {"age": rng.uniform(size=300), "city": rng.choice(["Bonn", "Ulm"], 300)}
    y = rng.integers(0, 2, 300)
    for cities in (["Bonn", "Ulm"], ["Aachen", "Bonn", "Ulm"]):
        public = {"age": rng.uniform(size=60), "city": rng.choice(cities, 60)}
        with warnings.catch_warnings() if len(cities) == 2 else pytest.warns(RepeatedFitWarning, match="fit 2 without"):
            PATEClassifier(epsilon=5.0, random_state=0).fit(rows, y, X_public=public)


def test_a_table_is_the_same_with_ids_and_without():
    rng = np.random.default_rng(1)
    rows, y = {"age": rng.uniform(size=300)}, rng.integers(0, 2, 300)
    public = {"age": rng.uniform(size=60)}
    PATEClassifier(epsilon=5.0, random_state=0).fit(rows, y, X_public=public, entity_ids=np.arange(300))
    with pytest.warns(RepeatedFitWarning, match="fit 2 without"):
        PATEClassifier(epsilon=5.0, random_state=0).fit(rows, y, X_public=public)


def test_a_tenth_of_the_smaller_set_is_shared_by_chance_and_more_is_not():
    refits = Refits()
    refits.count("a", known(X), None, ONE, 5, unit="row")
    for shared, mark in ((10, "b"), (11, "c")):
        rows = np.concatenate([X[:shared], X[: 100 - shared] + 1 + shared])
        refits.count(mark, known(rows), None, ONE, 5, unit="row")
    assert [refits.spent(mark, 1e-5).fits for mark in "abc"] == [2, 1, 2]


def test_fits_that_another_one_links_are_counted_together():
    refits = Refits()
    for mark, rows in (("a", X[:100]), ("b", X[100:]), ("c", X)):
        refits.count(mark, known(rows), None, ONE, 5, unit="row")
    assert [refits.spent(mark, 1e-5).fits for mark in "abc"] == [3, 3, 3]


def test_what_is_kept_of_a_row_are_eight_bytes_however_often_it_is_fitted():
    refits = Refits()
    for number in range(20):
        refits.count(
            str(number), known(X[number : 180 + number]), np.arange(number, 180 + number), ONE, 5, unit="patient"
        )
    (group,) = refits._groups
    assert group.rows.nbytes + group.people.nbytes == 8 * 2 * 199
    assert "uint64" not in repr(group)


def test_the_page_on_tuning_prints_what_it_says(capsys):
    page = (REPOSITORY / "docs" / "pitfalls.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(example, {})  # noqa: S102  our own documentation
    assert capsys.readouterr().out.split() == printed.split()
