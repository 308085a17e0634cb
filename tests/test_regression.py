"""Numbers as targets: each sum on small worlds, one person at a time, and what the student says."""

import itertools
import json
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_regressor
from sklearn.metrics import r2_score

from test_additive import SCHEMA, SMALL, cast, requests_of
from tutelage import PATERegressor, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.exceptions import InvalidDataError, InvalidParameterError, PreflightError
from tutelage.features import Schema
from tutelage.mechanisms import NoisySum
from tutelage.methods.additive_mean import _LONGEST, STEPS, residuals_in_steps
from tutelage.reporting import read_card
from tutelage.students import load_student
from tutelage.students.additive_mean import EDGES, N_PARTS
from tutelage.students.stacking import joint_norm, joint_steps


def made_up(n: int, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Return rows and numbers from about 0 to 10, of which the rows explain nine tenths."""
    rng = np.random.default_rng(seed)
    age, work, hours = rng.integers(17, 91, n), rng.choice(["private", "public"], n), rng.random(n)
    y = 4 + (age - 50) / 20 + 1.5 * (work == "public") + 2 * hours + 0.4 * rng.normal(size=n)
    return {"age": age, "work": work.astype(object), "hours": hours}, y


def of(seed: int = 0, **more: Any) -> PATERegressor:
    given = {"public": SCHEMA, "target_range": (0, 10), "epsilon": 1.0, "noise": SimulationNoise(seed)}
    return PATERegressor(**(given | more))


# Ballots: each sum, both relations


def asked_of(rows: Any, y: Any, look: Any = None, ids: Any = None, **changes: Any) -> list[Any]:
    """Return the requests of a fit for sums of ballots; `look` sees each of them with the sum."""
    model = of(**{"epsilon": None, "mechanism": NoisySum(5.0), **changes})
    return requests_of(model._fitting().intended(rows, y, entity_ids=ids), look)


NONNEGATIVE = (True, False, False, True)


@pytest.mark.parametrize("place", range(4))
def test_all_people_of_a_small_world_cast_ballots_within_the_bound_and_neighbors_are_no_further_apart(place):
    """All people with up to two rows: none of their ballots is longer, nor two further apart, than is charged."""
    rng = np.random.default_rng(0)
    rows = {"a": rng.integers(0, 3, 300), "b": np.array(["x"] * 300, dtype=object)}
    request = asked_of(rows, 3.0 * rows["a"] + rng.random(300), public=SMALL, unit="row")[place]
    row = [(cells, number) for cells in itertools.product(range(4), range(2)) for number in (0, 1, STEPS // 3, STEPS)]
    people = [[one] for one in row] + [list(pair) for pair in itertools.combinations_with_replacement(row, 2)][::3]
    each: Any = [(*map(list, zip(*one, strict=True)), [0] * len(one)) for one in people]
    ballots = np.array([cast(request, *one, unit=request.form.unit).ravel() for one in each]).astype(object)
    lengths = (ballots**2).sum(axis=1)
    bound = request.form.norm_squared
    assert max(lengths) <= bound  # added or removed
    apart = max((lengths[:, None] + lengths[None, :] - 2 * (ballots @ ballots.T)).ravel())
    event = request.mechanism.most(request.form, simulated=True)
    charged = (2 if event.nonnegative else 4) * bound
    assert apart <= charged  # replaced
    assert apart > (0.999, 0.999, 0.1, 0.999)[place] * charged  # the bound is attained but for the joint sum
    assert event.nonnegative == NONNEGATIVE[place]
    assert not event.nonnegative or min(ballots.ravel()) >= 0


@pytest.mark.parametrize("entity", [False, True])
def test_four_sums_cost_what_one_of_the_given_noise_would(entity):
    requests = asked_of(*made_up(300), ids=np.arange(300) // 3 if entity else None, unit=None if entity else "row")
    spent = sum(
        (2 if one.event.nonnegative else 4) * one.event.norm_squared / one.event.sigma**2
        for request in requests
        for one in request.mechanism.most(request.form, simulated=True).flatten()
    )
    assert len(requests) == 4
    assert spent == pytest.approx(4 / 5.0**2, rel=1e-9)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_ballots_of_people_do_not_depend_on_who_is_beside_them(seed, entity):
    rng = np.random.default_rng(seed)
    rows = {"a": rng.integers(0, 3, 200), "b": np.array(["x"] * 200, dtype=object)}
    y, ids = 12 * rng.random(200) - 1, np.arange(200) // (2 if entity else 1)
    bins, some, steps = SMALL.transform(rows), ids < 20, of()._fitting()._merged(y)

    def compare(request: Any, ballots: Any) -> None:
        unit = request.form.unit
        alone = [cast(request, bins[ids == one], steps[ids == one], ids[ids == one], unit) for one in range(20)]
        together = cast(request, bins[some], steps[some], ids[some], unit)
        np.testing.assert_array_equal(together, sum(alone))
        backwards = cast(request, bins[::-1], steps[::-1], ids[::-1], unit)
        np.testing.assert_array_equal(backwards, ballots.totals)

    asked_of(rows, y, compare, ids=ids, public=SMALL)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, STEPS)), min_size=1, max_size=20))
def test_residuals_are_whole_and_no_longer_than_allowed(given_rows):
    expected, labels = np.array(given_rows).T
    assert np.abs(residuals_in_steps(expected, labels.astype(int))).max() <= _LONGEST


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_joint_ballot_is_no_longer_than_its_norm(size, seed):
    rng = np.random.default_rng(seed)
    shown = rng.normal(size=(50, size))
    shown /= np.sqrt((shown**2).sum(axis=1, keepdims=True)) * rng.choice([1.0, 1.0, 3.0], (50, 1))
    ballots = joint_steps(shown, rng.choice([-1.0, 1.0, 0.3], 50)).astype(object)
    assert max((ballots**2).sum(axis=1)) <= joint_norm(size) ** 2


@pytest.mark.parametrize("cell", ["nan", float("inf"), None, "many", 10**400, [1], 1j, np.datetime64("2020-01-01")])
def test_a_number_that_is_none_is_refused_without_a_word_of_it(cell):
    rows, y = made_up(300)
    odd = y.astype(object)
    odd[7] = cell
    with pytest.raises(InvalidDataError) as refused:
        of().fit(rows, odd)
    assert "y must" in str(refused.value)
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


def test_a_fit_releases_within_its_budget_and_predicts(tmp_path):
    rows, y = made_up(20_000)
    model = of(ledger=tmp_path / "a.ledger").fit(rows, y)
    other, truth = made_up(5_000, 1)
    assert model.score(other, truth) == r2_score(truth, model.predict(other)) > 0.85
    assert model.predict(other).min() >= 0
    assert model.predict(other).max() <= 10
    release = model.fit_
    assert len(release.release_.event.flatten()) == 4
    assert data_independent.epsilon(release.release_.event, 1e-5).epsilon <= model.epsilon_.epsilon <= 1.0
    assert 0.999 < release.ledger_.spent <= 1.0
    again = of(ledger=tmp_path / "a.ledger")
    with pytest.warns(match="released before"):
        again.fit(rows, y)
    assert again.fit_.ledger_.spent == release.ledger_.spent
    assert again.student_.effects() == model.student_.effects()
    folder = model.save(tmp_path / "out", model.card(other, truth))
    np.testing.assert_array_equal(load_student(folder).predict(other), model.predict(other))
    card = read_card(folder / "card.json")
    assert card.errors[0].explained == pytest.approx(model.score(other, truth))
    assert card.classes == ()
    text = (folder / "card.md").read_text()
    assert "noisy sums and public data alone" in " ".join(text.split())
    assert "R²" in text
    assert "class" not in text.split("Utility")[1].split("Bias")[0]


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
    size = rng.random(20_000)
    rows = {name: size + 0.02 * rng.random(20_000) for name in "abcdefgh"}
    y = 10 * size**2
    schema = Schema(dict.fromkeys(rows, (0.0, 1.02)))
    for epsilon in (0.5, 3.0, 30.0):
        assert of(public=schema, epsilon=epsilon).fit(rows, y).score(rows, y) > 0.8


def test_a_fit_with_people_of_several_rows():
    rows, y = made_up(9_000)
    model = of(epsilon=3.0).fit(rows, y, entity_ids=np.arange(9_000) // 3)
    assert model.score(rows, y) > 0.8
    assert len(model.fit_.release_.event.flatten()) == 5  # and the number of people
    assert 0.99 < model.fit_.ledger_.spent <= 3.0
    assert model.fit_.n_private_rows_ is None


def test_where_noise_hides_the_columns_the_student_predicts_about_the_mean():
    rng = np.random.default_rng(0)
    rows, _ = made_up(3_000)
    y = 5 + 2 * rng.random(3_000)
    assert np.mean([of(seed, epsilon=0.3).fit(rows, y).score(rows, y) for seed in range(8)]) > -0.3


def test_it_is_a_regressor_of_scikit_learn():
    model = of(epsilon=2.0)
    assert is_regressor(model)
    copied: Any = clone(model)
    assert copied.get_params()["target_range"] == (0, 10)
    rows, y = made_up(3_000)
    ids = np.arange(3_000)
    with_decimals: Any = of(unit="person").set_params(target_range=(0.0, 10.0))
    named = with_decimals.fit({**rows, "days": y, "person": ids}, "days", entity_ids="person")
    assert named.student_.effects() == of(unit="person").fit(rows, y, entity_ids=ids).student_.effects()
    assert named.n_features_in_ == 3
    assert np.isfinite(named.predict_quantiles(rows)).all()


def test_the_table_of_effects_gives_the_numbers():
    rows, y = made_up(5_000)
    model = of(epsilon=3.0).fit(rows, y)
    table, cells = model.student_.effects(), SCHEMA.cells
    json.dumps(table)
    bins = SCHEMA.transform({"age": [40], "work": ["public"], "hours": [0.5]})[0].astype(int)
    chosen = [("", "every row"), *((name, cells[name][place]) for name, place in zip(cells, bins, strict=True))]
    found = [line["effects"]["target"] for line in table if (line["column"], line["cells"]) in chosen]
    assert sum(found) == pytest.approx(model.predict({"age": [40], "work": ["public"], "hours": [0.5]})[0])
    assert next(one[0] for one in model.student_.influences()) == "age"
    assert model.student_.below_.shape == (N_PARTS, len(EDGES))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"target_range": (5, 5)}, "`target_range` of PATERegressor must be the lowest and the highest"),
        ({"target_range": "ab"}, "`target_range`"),
        ({"target_range": (0, float("inf"))}, "`target_range` of PATERegressor must be finite"),
        ({"target_range": None}, "`target_range`"),
        ({"public": {"age": (0, 1)}}, "`public` of PATERegressor must be a Schema"),
        ({"mechanism": 3.0, "epsilon": None}, "`mechanism` of AdditiveMean must be a NoisySum"),
        ({"epsilon": -1.0}, "`epsilon`"),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence_and_nothing_is_spent(wrong, said, tmp_path):
    with pytest.raises(InvalidParameterError, match=said):
        of(ledger=tmp_path / "a.ledger", **wrong).fit(*made_up(300))
    assert not (tmp_path / "a.ledger").exists()


def test_rows_with_ids_are_refused_until_the_unit_is_decided():
    rows, y = made_up(300)
    with pytest.raises(PreflightError):
        of(noise=None).check({**rows, "patient_id": np.arange(300) // 3}, y)
