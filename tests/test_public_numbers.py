"""Numbers with public rows: trees of public targets, and that they change no sum's cost and no one's ballot."""

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.preprocessing import OneHotEncoder

from test_additive import SCHEMA, SMALL, cast, requests_of
from test_regression import made_up, of
from tutelage.exceptions import BudgetExceededError, InvalidDataError, InvalidParameterError
from tutelage.features.public_numbers import _TREES, FEWEST, PublicStart, PublicSum
from tutelage.mechanisms import NoisySum
from tutelage.methods import AdditiveMean
from tutelage.methods.additive_mean import _LONGEST, _residuals_in_steps
from tutelage.students import load_student
from tutelage.students.additive_mean import LARGEST_RESIDUAL, Means
from tutelage.targets import STEPS


def known(n: int = 150, seed: int = 7) -> dict[str, Any]:
    rows, y = made_up(n, seed)
    return {"X_public": rows, "y_public": y}


def intended(rows: Any, y: Any, start: Any, ids: Any = None, unit: Any = None) -> Any:
    """Return what a fit of the small schema will do, which may start from public targets."""
    model = of(epsilon=None, method=AdditiveMean(mechanism=NoisySum(5.0)), columns=SMALL, unit=unit)
    return model.prepare(rows, y, entity_ids=ids, **start)


def small(n: int, seed: int = 0) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    rows = {"a": rng.integers(0, 3, n), "b": np.array(["x"] * n, dtype=object)}
    return rows, 3.0 * rows["a"] + rng.random(n)


SMALL_START = dict(zip(("X_public", "y_public"), small(100, 9), strict=True))


# Trees


@pytest.mark.parametrize("n", [FEWEST, 1_000])
@pytest.mark.parametrize("leaves", [15, 4])
def test_trees_predict_as_scikit_learn_does_and_each_row_by_itself(n, leaves):
    rows, y = made_up(n)
    bins, shares = SCHEMA.transform(rows), y / 10
    trees = PublicSum.of_trees(bins, shares, leaves)
    other = SCHEMA.transform(made_up(1_000, 1)[0])
    fitted = HistGradientBoostingRegressor(**_TREES, max_leaf_nodes=leaves).fit(bins, shares)
    found = trees.shares(other)
    np.testing.assert_allclose(found, np.clip(fitted.predict(other), 0, 1), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found[::-1], trees.shares(other[::-1]))
    np.testing.assert_array_equal(
        found[:20], [trees.shares(other[[place]])[0] for place in range(20)]
    )
    assert trees.shares(other[:0]).shape == (0,)


def test_effects_of_columns_are_those_of_a_ridge_regression():
    rows, y = made_up(300)
    bins, shares = SCHEMA.transform(rows), y / 10
    other = SCHEMA.transform(made_up(1_000, 1)[0])
    hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(bins)
    fitted = Ridge(1.0).fit(hot.transform(bins), shares)
    expected = np.clip(fitted.predict(hot.transform(other)), 0, 1)
    found = PublicSum.of_columns(bins, shares).shares(other)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    beyond = PublicSum.of_columns(np.zeros((4, 1)), np.array([0.2, 0.4, 0.6, 0.8]))
    assert beyond.shares(np.array([[0.0], [7.0]])) == pytest.approx(0.5)


def test_a_blend_is_the_weighted_sum_of_its_parts_and_no_worse_than_the_best():
    rows, y = made_up(400)
    noise = np.random.default_rng(0).normal(size=len(y))
    bins, shares = SCHEMA.transform(rows), np.clip((y + noise) / 10, 0, 1)
    parts = [PublicSum.of_trees(bins, shares, 15), PublicSum.of_columns(bins, shares)]
    blend = PublicSum.blend(parts, np.array([0.3, 0.5]), 0.4)
    expected = 0.4 + sum(
        weight * (part.shares(bins) - 0.4) for weight, part in zip((0.3, 0.5), parts, strict=True)
    )
    np.testing.assert_allclose(blend.shares(bins), expected, rtol=0, atol=1e-12)
    other, truth = made_up(2_000, 1)
    bins_of_other = SCHEMA.transform(other)
    alone = [r2_score(truth, 10 * part.shares(bins_of_other)) for part in parts]
    start = PublicStart.learn(bins, shares)
    assert r2_score(truth, 10 * start.model.shares(bins_of_other)) > max(alone) - 0.01


def test_no_public_row_is_predicted_by_models_that_saw_its_target():
    """The weights of the models, which all rows have in common, may follow from it."""
    rows, y = made_up(200)
    bins, changed = SCHEMA.transform(rows), y / 10
    changed[7] = 1 - changed[7]
    before, after = PublicStart.learn(bins, y / 10), PublicStart.learn(bins, changed)
    assert abs(after.apart[7] - before.apart[7]) < 0.02
    assert abs(after.model.shares(bins)[7] - before.model.shares(bins)[7]) > 0.02


# Ballots


STARTS = pytest.mark.parametrize(
    "start", [SMALL_START, {"X_public": None}], ids=["public numbers", "none"]
)


@pytest.mark.parametrize("entity", [False, True])
@STARTS
def test_four_sums_cost_what_one_of_the_given_noise_would_and_none_is_longer_than_planned(
    start, entity
):
    ids, unit = (np.arange(300) // 3, None) if entity else (None, "row")
    whole = intended(*small(300), start, ids, unit)
    requests = requests_of(whole, None)
    asked = [
        one.event
        for each in requests
        for one in each.mechanism.most(each.form, simulated=True).flatten()
    ]
    assert len(requests) == 4
    spent = sum((2 if one.nonnegative else 4) * one.norm_squared / one.sigma**2 for one in asked)
    assert spent == pytest.approx(4 / 5.0**2, rel=1e-9)
    chosen_for = [one.event for one in whole.method.event_of_sums(whole.public.sizes).flatten()]
    for one, most in zip(asked, chosen_for, strict=True):
        assert one.norm_squared <= most.norm_squared
        assert one.norm_squared / one.sigma**2 == pytest.approx(
            most.norm_squared / most.sigma**2, rel=1e-9
        )


@STARTS
def test_no_ballot_of_a_small_world_is_longer_nor_further_from_another_than_is_charged(start):
    """All people of one row, and many of two; the weights have one column more with public targets."""
    requests = requests_of(intended(*small(300), start, unit="row"), None)
    row = [(cells, number) for cells in np.ndindex(4, 2) for number in (0, 1, STEPS // 3, STEPS)]
    people = [[one] for one in row] + [
        list(pair) for pair in combinations_with_replacement(row, 2)
    ][::7]
    each: Any = [(*map(list, zip(*one, strict=True)), [0] * len(one)) for one in people]
    attained = (0.999, 0.999, 0.1, 0.999)  # but for the joint sum
    for request, nonnegative, part in zip(
        requests, (True, False, False, True), attained, strict=True
    ):
        ballots = np.array(
            [cast(request, *one, unit=request.form.unit).ravel() for one in each]
        ).astype(object)
        lengths, bound = (ballots**2).sum(axis=1), request.form.norm_squared
        assert 0 < max(lengths) <= bound  # added or removed
        apart = max((lengths[:, None] + lengths[None, :] - 2 * (ballots @ ballots.T)).ravel())
        charged = (2 if nonnegative else 4) * bound
        assert apart <= charged  # replaced
        assert start is SMALL_START or apart > part * charged
        assert request.mechanism.most(request.form, simulated=True).nonnegative == nonnegative
        assert not nonnegative or min(ballots.ravel()) >= 0


@pytest.mark.parametrize("entity", [False, True])
@STARTS
def test_ballots_of_people_do_not_depend_on_who_is_beside_them(start, entity):
    rows, _ = small(200)
    y, ids = 12 * np.random.default_rng(1).random(200) - 1, np.arange(200) // (2 if entity else 1)
    bins, some, steps = SMALL.transform(rows), ids < 20, of()._target.merged_labels(y)

    def compare(request: Any, ballots: Any) -> None:
        unit = request.form.unit
        alone = [
            cast(request, bins[ids == one], steps[ids == one], ids[ids == one], unit)
            for one in range(20)
        ]
        np.testing.assert_array_equal(
            cast(request, bins[some], steps[some], ids[some], unit), sum(alone)
        )
        backwards = cast(request, bins[::-1], steps[::-1], ids[::-1], unit)
        np.testing.assert_array_equal(backwards, ballots.totals)

    requests_of(intended(rows, y, start, ids), compare)


# Fits


def test_a_student_is_better_than_public_targets_alone_and_than_no_public_targets(tmp_path):
    """Effects that do not add up, which the public rows alone are too few for."""

    def given(n: int, seed: int) -> tuple[dict[str, Any], Any]:
        rows, y = made_up(n, seed)
        noise = np.random.default_rng(seed).normal(size=n)
        return rows, y / 2 + 3 * (rows["work"] == "public") * (rows["hours"] > 0.6) + noise

    (rows, y), (other, truth), public = given(20_000, 0), given(5_000, 1), given(200, 2)
    start: dict[str, Any] = dict(zip(("X_public", "y_public"), public, strict=True))
    model = of(epsilon=0.5).fit(rows, y, **start)
    by_targets = r2_score(truth, 10 * model.student_.public_.shares(SCHEMA.transform(other)))
    without = of(epsilon=0.5).fit(rows, y).score(other, truth)
    assert model.score(other, truth) > max(by_targets, without) + 0.005
    card = model.card(other, truth)
    assert card.student.judged.errors[0].of_public == pytest.approx(
        np.sqrt(1 - by_targets) * card.student.judged.errors[0].of_mean
    )
    loaded = load_student(model.save(tmp_path / "out", card))
    np.testing.assert_array_equal(loaded.predict(other), model.predict(other))
    assert "of public targets alone (ε = 0)" in " ".join(card.as_markdown().split())


@pytest.mark.parametrize("spread", [0.01, 0.2])
def test_residuals_are_cut_where_public_rows_are_rarely(spread):
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 4, (400, 1)).astype(float)
    shares = np.clip(0.5 + spread * rng.standard_normal(400), 0, 1)
    start = PublicStart.learn(bins, shares)
    tables = (np.zeros((5, 1)),)
    means = Means(
        (np.arange(4),), tables, tables, (np.ones(5),), (0,), np.array([0.5, 0.5]), np.ones(1)
    )
    assert means.largest_residual == LARGEST_RESIDUAL
    means = replace(means, public=start)
    wrong = np.abs(shares - start.apart)
    assert means.largest_residual == pytest.approx(max(0.05, np.quantile(wrong, 0.99)))
    # In steps, the largest residual is as long as without public rows.
    labels = np.rint(STEPS * np.array([0.5 + means.largest_residual, 0.5, 1.0])).astype(np.int64)
    steps = _residuals_in_steps(np.full(3, 0.5), labels, means.largest_residual)
    assert steps.tolist() == pytest.approx([_LONGEST, 0, _LONGEST], abs=1)


def test_a_second_fit_asks_for_the_same_sums_by_the_trees_that_the_ledger_kept(
    tmp_path, monkeypatch
):
    rows, y = made_up(600)
    given = {"ledger": tmp_path / "a.ledger", "epsilon": 1.0}
    first = of(**given).fit(rows, y, **known())
    with monkeypatch.context() as patched:
        patched.setattr(PublicStart, "learn", lambda *_: 1 / 0)
        named = {**known()["X_public"], "days": known()["y_public"]}
        with pytest.warns(match="released before"):
            again = of(5, **given).fit(rows, y, X_public=named, y_public="days")
    assert (again.release_.cost, again.ledger_.spent) == (0, first.ledger_.spent)
    np.testing.assert_array_equal(again.predict(rows), first.predict(rows))
    with pytest.raises(BudgetExceededError):  # other targets: another release
        of(**given).fit(rows, y, **known(seed=9))


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (
            {"X_public": None},
            InvalidParameterError,
            "`y_public` of PATERegressor.fit must come with the public rows",
        ),
        (
            {"y_public": None},
            InvalidParameterError,
            "must be left out if you pass public rows without numbers",
        ),
        ({"y_public": [1.0] * 149}, InvalidDataError, "one number per public row, 150. Got 149"),
        (
            {"y_public": [float("nan")] * 150},
            InvalidDataError,
            "y_public must hold a finite number",
        ),
        (
            {**known(FEWEST - 1)},
            InvalidDataError,
            f"at least {FEWEST} public rows. Got {FEWEST - 1}",
        ),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence_and_nothing_is_spent(
    wrong, error, said, tmp_path
):
    with pytest.raises(error, match=said):
        of(ledger=tmp_path / "a.ledger").fit(*made_up(300), **{**known(), **wrong})
    assert not (tmp_path / "a.ledger").exists()
