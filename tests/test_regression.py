"""Numbers as targets: each sum on small worlds, one person at a time, and what the student says."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score

from test_additive import SCHEMA, people
from tutelage import PATEClassifier, PATERegressor, SimulationNoise
from tutelage.estimator.inputs import Rows
from tutelage.exceptions import (
    BudgetExceededError,
    InvalidDataError,
    InvalidParameterError,
    NotPublishableError,
    PreflightError,
)
from tutelage.features import Schema
from tutelage.methods.additive_mean import _LONGEST, _residuals_in_steps
from tutelage.students.stacking import joint_norm, joint_steps
from tutelage.targets import STEPS


def made_up(n: int, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Return rows and numbers from about 0 to 10, of which the rows explain nine tenths."""
    rows, age, rng = people(n, seed)
    return rows, 4 + age / 20 + 1.5 * (rows["work"] == "public") + 2 * rows[
        "hours"
    ] + 0.4 * rng.normal(size=n)


def of(seed: int = 0, **more: Any) -> PATERegressor:
    given = {
        "columns": SCHEMA,
        "target_range": (0, 10),
        "epsilon": 1.0,
        "noise": SimulationNoise(seed),
    }
    return PATERegressor(**(given | more))


# Ballots; their sums are in test_public_numbers


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, STEPS)), min_size=1, max_size=20),
    st.floats(0.05, 1.0),
)
def test_residuals_are_whole_and_no_longer_than_allowed(given_rows, largest):
    expected, labels = np.array(given_rows).T
    residuals = _residuals_in_steps(expected, labels.astype(int), largest)
    assert residuals.dtype == np.int64
    assert np.abs(residuals).max() <= _LONGEST


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_joint_ballot_is_no_longer_than_its_norm(size, seed):
    rng = np.random.default_rng(seed)
    shown = rng.normal(size=(50, size))
    shown /= np.sqrt((shown**2).sum(axis=1, keepdims=True)) * rng.choice([1.0, 1.0, 3.0], (50, 1))
    ballots = joint_steps(shown, rng.choice([-1.0, 1.0, 0.3], 50)).astype(object)
    assert max((ballots**2).sum(axis=1)) <= joint_norm(size) ** 2


@pytest.mark.parametrize(
    "cell", ["nan", float("inf"), None, "many", 10**400, [1], 1j, np.datetime64("2020-01-01")]
)
def test_a_number_that_is_none_is_refused_without_a_word_of_it(cell):
    rows, y = made_up(300)
    odd = y.astype(object)
    odd[7] = cell
    with pytest.raises(InvalidDataError) as refused:
        of().fit(rows, odd)
    assert "The target must" in str(refused.value)
    assert refused.value.__cause__ is None
    assert str(cell) not in str(refused.value)


def test_a_number_beyond_the_range_counts_as_its_end():
    rows, y = made_up(300)
    found = [of(3).fit(rows, np.where(y > 6, each, y)).student_.effects() for each in (10, 1e9)]
    assert found[0] == found[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # would tell of a row
        of(3, target_range=(0, 0.5)).fit(rows, np.where(np.arange(300) == 7, 1e308, y / 20))


# Fits


def test_a_card_and_a_score_say_how_far_off_predictions_are():
    model, (other, truth) = of().fit(*made_up(8_000)), made_up(2_000, 1)
    found = model.predict(other)
    assert model.score(other, truth) == r2_score(truth, found) > 0.8
    assert 0 <= found.min() < found.max() <= 10
    card = model.card(other, truth)
    assert card.student.judged.errors[0].r_squared == pytest.approx(model.score(other, truth))
    assert card.release.classes == ()
    assert "class" not in card.as_markdown().split("Utility")[1].split("Bias")[0]


def test_quantiles_hold_as_many_numbers_as_they_say():
    rows, y = made_up(20_000)
    model, (other, truth) = of(epsilon=3.0).fit(rows, y), made_up(10_000, 1)
    quantiles = (0.05, 0.1, 0.5, 0.9, 0.95)
    found = model.predict_quantiles(other, quantiles)
    assert np.all(np.diff(found, axis=1) >= 0)
    # Histograms are coarse, and rows that made them explain what they say a little better: .04 is for both.
    np.testing.assert_allclose((truth[:, np.newaxis] <= found).mean(axis=0), quantiles, atol=0.04)
    for wrong in ((), (0.0,), (1.5,), (float("nan"),)):
        with pytest.raises(InvalidParameterError):
            model.predict_quantiles(other, wrong)


def test_columns_that_say_the_same_do_no_harm():
    """One step of a logistic fit is far off with such columns."""
    rng = np.random.default_rng(0)
    size = rng.random(8_000)
    rows = {name: size + 0.02 * rng.random(8_000) for name in "abcdefgh"}
    y, schema = 10 * size**2, Schema(dict.fromkeys(rows, (0.0, 1.02)))
    for epsilon in (1.0, 30.0):
        assert of(columns=schema, epsilon=epsilon).fit(rows, y).score(rows, y) > 0.8


def test_it_is_a_regressor_of_scikit_learn():
    model = of(epsilon=2.0, target_range=(0.0, 10.0), unit="person")
    assert is_regressor(model)
    copied: Any = clone(model)
    parameters = copied.get_params(deep=False)
    assert parameters["target_range"] == (0.0, 10.0)
    assert len(parameters) == 14
    assert parameters.keys() - PATEClassifier().get_params(deep=False).keys() == {"target_range"}
    rows, y = made_up(1_000)
    named: Any = model.fit(
        {**rows, "days": y, "person": np.arange(1_000)}, "days", entity_ids="person"
    )
    assert (
        named.student_.effects()
        == copied.fit(rows, y, entity_ids=np.arange(1_000)).student_.effects()
    )
    assert named.n_features_in_ == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"target_range": (5, 5)},
            "`target_range` of PATERegressor must be the lowest and the highest",
        ),
        ({"target_range": (0, float("inf"))}, "`target_range` of PATERegressor must be between"),
        ({"columns": {"age": (0, 1)}}, "`columns` of PATERegressor must be a Schema"),
        (
            {"method__mechanism": 3.0, "epsilon": None},
            "`mechanism` of AdditiveMean must be a NoisySum",
        ),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence_and_nothing_is_spent(wrong, said, tmp_path):
    with pytest.raises(InvalidParameterError, match=said):
        of(ledger=tmp_path / "a.ledger").set_params(**wrong).fit(*made_up(300))
    assert not (tmp_path / "a.ledger").exists()


def test_rows_with_ids_are_refused_until_the_unit_is_decided():
    rows, y = made_up(300)
    with pytest.raises(PreflightError):
        of(noise=None).check({**rows, "patient_id": np.arange(300) // 3}, y)


def test_a_fit_that_is_refused_and_a_check_leave_a_fitted_model_as_it_was(tmp_path):
    rng = np.random.default_rng(0)
    age, other = rng.uniform(20, 80, 400), {"age": rng.uniform(20, 8000, 200)}
    given: dict[str, Any] = {"target_range": (0, 10), "epsilon": 1.0, "noise": SimulationNoise(0)}
    model: Any = PATERegressor(**given, ledger=tmp_path / "a.ledger")
    model.fit({"age": age}, age / 10, X_public={"age": rng.uniform(20, 80, 200)})
    before, seen = vars(model).copy(), model.predict({"age": [25.0, 50.0, 75.0]})
    for again in (model.fit, model.check):
        with pytest.raises(BudgetExceededError):
            again({"age": age}, age / 10, X_public=other)
        assert vars(model) == before
        np.testing.assert_array_equal(model.predict({"age": [25.0, 50.0, 75.0]}), seen)
    fresh = PATERegressor(**given)
    with pytest.raises(NotFittedError):
        fresh.check({"age": age}, age / 10, X_public=other).predict(other)


def test_a_row_of_a_fit_is_never_pickled():
    with pytest.raises(NotPublishableError, match="not pickled"):
        pickle.dumps(Rows([[1]], [1]))


def test_an_error_of_a_regressor_names_it():
    with pytest.raises(InvalidParameterError, match=r"`y` of PATERegressor\.fit must be an array"):
        PATERegressor(1.0, (0, 1), columns=Schema({"a": (0, 1.5)})).fit(np.ones((5, 1)), "days")
