"""Additive models without public rows: each sum on small worlds, one person at a time, and what is refused."""

import itertools
import json
from dataclasses import replace
from decimal import Decimal
from math import sqrt
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from test_cli import succeeded, write_people
from test_hostile_rows import Unspeakable
from tutelage import PATEClassifier, SimulationNoise
from tutelage.accounting import data_independent
from tutelage.ballots import BallotSum, Vector, sum_of_cells
from tutelage.exceptions import InvalidBallotError, InvalidDataError, InvalidParameterError, PreflightError
from tutelage.features import Schema
from tutelage.features.scored import chances_of
from tutelage.mechanisms import NoisySum
from tutelage.methods import Additive, NoisyMoments, Sizes
from tutelage.methods.additive import _LONGEST, _STEPS, residuals_in_steps
from tutelage.methods.noisy_moments import PeopleReady
from tutelage.methods.requests import Answer, driven
from tutelage.partition import Shards, unit_of_single_people
from tutelage.planning import plan
from tutelage.privacy import ONE_TEACHER
from tutelage.students import load_student
from tutelage.students.additive import AdditiveClassifier, Scores, grouped
from tutelage.tables import Table, read_table
from tutelage.teachers.blocks import PeopleInMemory

SCHEMA = Schema({"age": (17, 90), "work": ["private", "public"], "hours": (0.0, 1.0)})
CLASSES = ["no", "yes"]


def made_up(n: int, seed: int = 0) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    age, work, hours = rng.integers(17, 91, n), rng.choice(["private", "public"], n), rng.random(n)
    score = (age - 50) / 12 + 1.5 * (work == "public") + 2 * hours - 1.5
    y = np.where(score + rng.logistic(size=n) > 0, "yes", "no")
    return {"age": age, "work": work.astype(object), "hours": hours}, y


def of(seed: int = 0, **more: Any) -> PATEClassifier:
    given = {"public": SCHEMA, "epsilon": 1.0, "classes": CLASSES, "noise": SimulationNoise(seed)}
    return PATEClassifier(**(given | more))


# Cells


ODD_NUMBERS = ["inf", "-inf", "nan", 1e300, -1e300, 10**400, 10**5000, True, Decimal("40")]
ODD_CELLS = [*ODD_NUMBERS, "", None, "abc", "?", b"x", [1], {}, "public ", 1j, np.longdouble("1e4000"), Unspeakable()]


@pytest.mark.parametrize("cell", ODD_CELLS, ids=range(len(ODD_CELLS)))
@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_cell_of_any_kind_moves_only_its_own_row(cell, name):
    rows, _ = made_up(40)
    plain = {column: np.array(cells.tolist(), dtype=object) for column, cells in rows.items()}
    before = SCHEMA.transform(plain)
    np.testing.assert_array_equal(before, SCHEMA.transform(rows))  # whatever the type of the column
    plain[name][7] = cell
    after = SCHEMA.transform(plain)
    others = np.arange(40) != 7
    np.testing.assert_array_equal(after[others], before[others])
    assert ((after >= 0) & (after < SCHEMA.bins)).all()


@pytest.mark.parametrize(
    ("column", "cells", "odd"),
    [
        ((0, 11.2), [np.float32(0.7)] * 3, "zzz"),
        (["1 day, 0:00:00", "x"], [*pd.to_timedelta(["1 day"] * 3)], "x"),
        ((0, 1), [1, 0, 1], 1j),
        ((0, 1), [True, False, True], 7),
        (["1", "0"], [1.0, 0.0, 1.0], 2 + 1j),
    ],
)
def test_a_cell_that_changes_the_type_of_its_column_moves_no_other_row(column, cells, odd):
    schema = Schema({"c": column})
    before, after = (schema.transform(pd.DataFrame({"c": each})) for each in (cells, [*cells, odd]))
    np.testing.assert_array_equal(after[:-1], before)
    assert (before < schema.bins[0] - 1).all()


def test_numbers_beyond_the_range_are_at_its_ends_and_all_else_is_in_the_last_bin():
    rows = {
        "age": ["16", "17", "90", "1000", "x"],
        "work": ["PRIVATE", "private", "public", "", "other"],
        "hours": ["0"] * 5,
    }
    age, work = SCHEMA.transform(rows)[:, :2].T.astype(int)
    assert age.tolist() == [0, 0, SCHEMA.bins[0] - 2, SCHEMA.bins[0] - 2, SCHEMA.bins[0] - 1]
    assert work.tolist() == [2, 0, 1, 2, 2]
    assert [len(cells) for cells in SCHEMA.cells.values()] == list(SCHEMA.bins)


def test_plain_rows_are_in_the_order_of_the_columns():
    rows, _ = made_up(30)
    plain = np.column_stack([np.array(cells, dtype=object) for cells in rows.values()])
    np.testing.assert_array_equal(SCHEMA.transform(plain), SCHEMA.transform(rows))
    with pytest.raises(InvalidDataError):
        SCHEMA.transform({"age": [1], "work": ["private"]})


@pytest.mark.parametrize(
    "columns",
    [{}, {"a": []}, {"a": (1, 1)}, {"a": (2, 1)}, {"a": (0, float("inf"))}, {"a": ["x", "x"]}, {"a": ["1", "1.0"]},
     {"a": [1, 2, 3]}, {"a": "number"}, [1], {3: (0, 1)}],
)  # fmt: skip
def test_a_schema_that_says_nothing_clear_is_refused(columns):
    with pytest.raises(InvalidParameterError):
        Schema(columns)


def test_a_schema_is_proposed_by_public_rows():
    public = Table("", {"age": ["17", "90"], "work": ["public", "private"], "day": ["2024-01-01", "2024-01-02"]})
    assert Schema.learn(public).columns == {"age": [17, 90], "work": ["private", "public"]}


# Ballots: each sum, both relations


def asked_of(rows: Any, y: Any, look: Any = None, **changes: Any) -> list[Any]:
    """Return the requests of a fit for sums of ballots; `look` sees each of them with the sum."""
    ids, method = {"entity_ids": changes.pop("entity_ids", None)}, Additive(mechanism=NoisySum(5.0))
    return requests_of(of(**{"epsilon": None, "method": method, **changes}).intended(rows, y, **ids), look)


def requests_of(whole: Any, look: Any) -> list[Any]:
    prepared, source, seen = whole.method.prepare(whole.public, whole.people), SimulationNoise(0), list[Any]()

    def answer(request: Any) -> Answer:
        ballots = request.ballot.cast(prepared, request, np.arange(1))
        if request.form.shape != (1, 1):
            seen.append(request)
            if look is not None:
                look(request, ballots)
        drawn = request.mechanism.release(ballots, source)
        return Answer(np.array(drawn.answers), drawn.event, 0.0)

    driven(whole.method.steps(whole.public), answer, lambda one: one.make())
    return seen


def cast(request: Any, bins: Any, labels: Any, people: Any, unit: Any) -> Any:
    shards = Shards.of_single_people(len(bins), np.asarray(people), name=unit.name)
    prepared = PeopleReady(PeopleInMemory(np.asarray(bins, dtype=float), np.asarray(labels), shards))
    return request.ballot.cast(
        prepared, replace(request, form=replace(request.form, unit=shards.unit)), np.arange(1)
    ).totals


SMALL = Schema({"a": (0, 2), "b": ["x"]})


@pytest.mark.parametrize("place", range(3))
def test_all_people_of_a_small_world_cast_ballots_within_the_bound_and_neighbors_are_no_further_apart(place):
    """All people with up to two rows: none of their ballots is longer, nor two further apart, than is charged."""
    rng = np.random.default_rng(0)
    rows = {"a": rng.integers(0, 3, 300), "b": np.array(["x"] * 300, dtype=object)}
    y = np.where(rows["a"] + rng.normal(size=300) > 1, "yes", "no")
    request = asked_of(rows, y, public=SMALL, unit="row")[place]
    row = [(cells, label) for cells in itertools.product(range(4), range(2)) for label in range(2)]
    people = [[one] for one in row] + [list(pair) for pair in itertools.combinations_with_replacement(row, 2)][::3]
    each: Any = [(*map(list, zip(*one, strict=True)), [0] * len(one)) for one in people]
    ballots = np.array([cast(request, *one, unit=request.form.unit).ravel() for one in each]).astype(object)
    lengths = (ballots**2).sum(axis=1)
    bound = request.form.norm_squared
    assert max(lengths) <= bound  # added or removed
    apart = max((lengths[:, None] + lengths[None, :] - 2 * ballots @ ballots.T).ravel())
    event = request.mechanism.most(request.form, simulated=True)
    charged = (2 if event.nonnegative else 4) * bound
    assert apart <= charged  # replaced
    assert apart > (0.999, 0.4, 0.1)[place] * charged  # for counts the bound is attained
    assert event.nonnegative == (place == 0)


@pytest.mark.parametrize("entity", [False, True])
def test_three_sums_cost_what_one_of_the_given_noise_would(entity):
    requests = asked_of(*made_up(300, 0), **({"entity_ids": np.arange(300) // 3} if entity else {"unit": "row"}))
    spent = sum(
        (2 if one.event.nonnegative else 4) * one.event.norm_squared / one.event.sigma**2
        for request in requests
        for one in request.mechanism.most(request.form, simulated=True).flatten()
    )
    assert len(requests) == 3
    assert spent == pytest.approx(4 / 5.0**2, rel=1e-9)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([2, 3, 12]))
def test_ballots_of_people_do_not_depend_on_who_is_beside_them(seed, entity, n_classes):
    rng = np.random.default_rng(seed)
    rows = {"a": rng.integers(0, 3, 200), "b": np.array(["x"] * 200, dtype=object)}
    labels, ids = rng.integers(0, n_classes, 200), np.arange(200) // (2 if entity else 1)
    bins, some = SMALL.transform(rows), ids < 20

    def compare(request: Any, ballots: Any) -> None:
        unit = request.form.unit
        alone = [cast(request, bins[ids == one], labels[ids == one], ids[ids == one], unit) for one in range(20)]
        together = cast(request, bins[some], labels[some], ids[some], unit)
        np.testing.assert_array_equal(together, sum(alone))
        backwards = cast(request, bins[::-1], labels[::-1], ids[::-1], unit)
        np.testing.assert_array_equal(backwards, ballots.totals)

    asked_of(rows, labels, compare, public=SMALL, classes=list(range(n_classes)), entity_ids=ids)


@given(st.lists(st.floats(-40, 40), min_size=2, max_size=6), st.data())
def test_residuals_are_whole_and_no_longer_than_allowed(scores, data):
    label = data.draw(st.integers(0, len(scores) - 1))
    found = residuals_in_steps(np.array([scores]), np.array([label])).astype(object)
    assert (found**2).sum() <= _LONGEST**2
    assert found[0, label] >= 0


def test_ballots_that_are_too_long_or_below_zero_are_refused():
    one = Vector((1, 4), 8, ONE_TEACHER)
    entries = np.zeros(2, int), np.array([0, 1]), np.array([2, 2]), np.ones(2, int)
    assert sum_of_cells(*entries, form=one).totals.tolist() == [[2, 2, 0, 0]]
    for cells, numbers in (
        ([0, 0], [2, 2]),
        ([0, 1], [2, 3]),
        ([0, 1], [2**40, 0]),
        ([0, 1], [2**53, 0]),
        ([0, 4], [1, 1]),
        ([0, -1], [1, 1]),
    ):
        with pytest.raises(InvalidBallotError):
            sum_of_cells(np.zeros(2, int), np.array(cells), np.array(numbers), np.ones(2, int), one)
    below: Any = np.zeros(1, int), np.array([0]), np.array([-1]), np.ones(1, int)
    assert sum_of_cells(*below, form=one).totals.tolist() == [[-1, 0, 0, 0]]
    with pytest.raises(InvalidBallotError):
        sum_of_cells(*below, form=replace(one, nonnegative=True))
    empty: Any = (np.zeros(0, int),) * 4
    assert sum_of_cells(*empty, form=one).totals.tolist() == [[0, 0, 0, 0]]


def test_a_person_with_very_many_rows_stops_nobody():
    people, cells = np.repeat(np.arange(8_001), 1_000), np.tile(np.arange(1_000), 8_001)
    numbers, n_rows = np.full(people.size, 2**16), np.where(people == 0, 10**6, 1)
    found = sum_of_cells(people, cells, numbers * n_rows, n_rows, Vector((1, 1_000), 2**32 * 1_000, ONE_TEACHER))
    assert set(found.totals.ravel().tolist()) == {8_001 * 2**16}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(-50, 50)), max_size=30), st.integers(1, 4))
def test_a_sum_of_cells_is_the_sum_of_mean_ballots_rounded_towards_zero(entries, n_rows):
    whole = np.zeros((4, 6), dtype=object)
    for person, cell, number in entries:
        whole[person, cell] += number
    means = np.array([[int(abs(x) // n_rows) * (1 if x >= 0 else -1) for x in row] for row in whole], dtype=object)
    columns: Any = np.array(entries, dtype=int).reshape(-1, 3).T
    found = sum_of_cells(*columns, n_rows=np.full(len(entries), n_rows), form=Vector((2, 3), 10**9, ONE_TEACHER))
    assert found.totals.ravel().tolist() == means.sum(axis=0).tolist()


def test_the_noise_of_each_sum_is_what_its_event_says():
    requests = asked_of(*made_up(300), unit="row", method=Additive(mechanism=NoisySum(0.02)))
    for request in requests:
        form = request.form
        zero = BallotSum(np.zeros(form.shape, int), form.norm_squared, form.unit, form.nonnegative)
        event = request.mechanism.most(request.form, simulated=True)
        drawn = np.concatenate([request.mechanism.release(zero, SimulationNoise(s)).values.ravel() for s in range(300)])
        assert 0.93 < np.std(drawn) / event.sigma < 1.07


# Fits


def test_a_fit_releases_within_its_budget_and_predicts(tmp_path):
    rows, y = made_up(20_000)
    model = of(ledger=tmp_path / "a.ledger").fit(rows, y)
    other, truth = made_up(5_000, 1)
    assert model.score(other, truth) > 0.77
    assert len(model.release_.event.flatten()) == 3
    unit = model.epsilon_.unit
    assert data_independent.epsilon(model.release_.event, 1e-5).epsilon <= model.epsilon_.epsilon <= 1.0
    assert 0.999 < model.ledger_.spent <= 1.0
    sizes = Sizes(n_classes=2, n_public=0, unit=unit, simulated=True, bins=SCHEMA.bins)
    assert data_independent.epsilon(model.method_.event(sizes), 1e-5).epsilon == model.epsilon_.epsilon
    assert (model.n_private_rows_, model.n_teachers_, len(model.queries_)) == (20_000, 20_000, 0)
    again = of(ledger=tmp_path / "a.ledger")
    with pytest.warns(match="released before"):
        again.fit(rows, y)
    assert again.ledger_.spent == model.ledger_.spent
    assert again.student_.effects() == model.student_.effects()
    folder = model.save(tmp_path / "out")
    np.testing.assert_array_equal(load_student(folder).predict_proba(other), model.predict_proba(other))
    assert "a public schema" in json.loads((folder / "card.json").read_text())["selection"]
    assert "noisy sums and public data alone" in " ".join((folder / "card.md").read_text().split())


@pytest.mark.parametrize("entity", [False, True])
def test_a_fit_with_people_of_several_rows_and_several_classes(entity):
    rng = np.random.default_rng(0)
    rows, _ = made_up(6_000)
    y = np.digitize(rows["age"] + 5 * rng.normal(size=6_000), [40, 65])
    ids = {"entity_ids": np.arange(6_000) // 2} if entity else {}
    model = of(classes=[0, 1, 2], epsilon=3.0).fit(rows, y, **ids)
    assert model.score(rows, y) > 0.75
    assert len(model.release_.event.flatten()) == 3 + entity
    assert (model.n_private_rows_ is None) == entity
    assert abs((model.n_teachers_ or 0) - (3_000 if entity else 6_000)) < 100
    assert 0.99 < model.ledger_.spent <= 3.0


def test_with_few_people_the_student_falls_back_to_the_shares_of_the_classes():
    rows, _ = made_up(150)
    y = np.where(np.arange(150) % 10 > 0, "yes", "no")
    found = [of(seed, epsilon=1.0).fit(rows, y) for seed in range(5)]
    assert np.mean([(model.predict(rows) == "yes").mean() for model in found]) > 0.8


@pytest.mark.parametrize(("n_columns", "epsilon", "limit"), [(5, 3.0, 0), (20, 0.5, 0), (20, 1.0, 6), (100, 3.0, 0)])
def test_columns_that_say_the_same_do_not_count_several_times(n_columns, epsilon, limit):
    rng = np.random.default_rng(0)
    leaning = rng.normal(size=10_000)
    rows = np.clip(np.rint(2 + leaning[:, np.newaxis] + 0.4 * rng.normal(size=(10_000, n_columns))), 0, 4)
    rows, y = rows.astype(int), 3 * leaning + rng.logistic(size=10_000) > limit
    schema = Schema({f"question {number}": list("01234") for number in range(n_columns)})
    model = of(public=schema, epsilon=epsilon, classes=[False, True]).fit(rows[:8_000], y[:8_000])
    assert model.score(rows[8_000:], y[8_000:]) > np.mean(y[8_000:] == (3 * leaning[8_000:] > limit)) - 0.04


@pytest.mark.parametrize(("same", "least", "most"), [(False, 0.5, 0.5), (True, 0.08, 0.2)])
def test_scores_begin_from_a_smaller_part_only_where_columns_say_the_same(same, least, most):
    rng = np.random.default_rng(0)
    hot = np.eye(2)[labels := rng.integers(2, size=20_000)]
    bins = (rng.random((20_000, 8)) < np.where(labels == 1, 0.7, 0.3)[:, np.newaxis]).astype(int)
    bins = np.repeat(bins[:, :1], 8, axis=1) if same else bins
    counts = np.hstack([hot.T @ np.eye(2)[column] for column in bins.T]).astype(int)
    groups = (scores := Scores.of(counts, 1.0, 1, [np.arange(2)] * 8, [False] * 8)).rows(bins)
    wrong = 1000 * (hot - chances_of(scores.start(groups))).T
    sums = np.hstack([wrong @ np.eye(len(table))[one] for table, one in zip(scores.tables, groups.T, strict=True)])
    assert least <= scores.less_sure(np.rint(sums).astype(int), 1000).part <= most


def test_an_odd_cell_of_a_file_never_fails_a_fit_and_one_of_a_frame_is_refused():
    rows, y = made_up(300)
    texts = {name: [*map(str, cells.tolist())] for name, cells in rows.items()}
    for start, name in enumerate(SCHEMA.names):
        for place, cell in enumerate(("inf", "-inf", "nan", "1e300", "9" * 5000, "True", "", "abc", "?", "public ")):
            texts[name][40 * start + place] = cell
    assert np.isfinite(of(epsilon=5.0).fit(odd := Table("", texts), y).predict_proba(odd)).all()
    odd_cells = [cell for cell in ODD_CELLS if not isinstance(cell, int | float) or cell is True]
    for name, cell in itertools.product(SCHEMA.names, odd_cells):
        plain = {one: np.array(cells.tolist(), dtype=object) for one, cells in rows.items()}
        plain[name][7] = cell
        is_text = isinstance(cell, str)
        if cell is None or (is_text and (not cell or name == "work")):
            of(epsilon=5.0).check(plain, y)
            continue
        with pytest.raises(InvalidDataError, match=f"^Column '{name}' is of several types in the private") as refused:
            of(epsilon=5.0).check(plain, y)
        assert "secret" not in f"{refused.value}{refused.value.__context__}"


def test_a_goal_weighs_classes_at_no_further_cost_and_a_ranking_changes_no_prediction(tmp_path):
    rows, y = made_up(3_000)
    y[np.arange(3_000) % 6 > 0] = "no"  # few are ill
    given: dict[str, Any] = {"ledger": tmp_path / "a.ledger", "budget": 2.0}
    plain = of(**given).fit(rows, y)
    found = [{"goal": "balanced_accuracy"}, {"class_weight": {"yes": 5}}, {"goal": "average_precision"}]
    with pytest.warns(match="released before"):
        balanced, weighed, ranked = (of(**given, **one).fit(rows, y) for one in found)
    assert {one.release_.cost for one in (balanced, weighed, ranked)} == {0.0}
    right = [np.mean(one.predict(rows)[y == "yes"] == "yes") for one in (plain, balanced)]
    assert right[1] > right[0] + 0.1
    assert balanced.score(rows, y) == balanced_accuracy_score(y, balanced.predict(rows))
    shares = 1 / np.array(list(balanced.class_weight_.values()))
    assert shares[1] / shares.sum() == pytest.approx(np.mean(y == "yes"), abs=0.02)
    odds = [np.divide(*one.predict_proba(rows).T[::-1]) for one in (plain, weighed)]
    np.testing.assert_allclose(odds[1], 5 * odds[0])
    np.testing.assert_array_equal(ranked.predict_proba(rows), plain.predict_proba(rows))
    assert "Weights of classes" in weighed.card(rows, y).as_markdown()


@pytest.mark.parametrize(
    ("settings_of", "given_to_fit", "said"),
    [
        ({}, {"X_public": np.zeros((60, 3))}, "Leave out `X_public` and `y_public`"),
        ({}, {"y_public": np.zeros(60)}, "Leave out `X_public` and `y_public`"),
        ({}, {"silos": np.arange(300) % 5}, "`silos`"),
        ({}, {"entity_ids": SCHEMA.names[0]}, "`entity_ids` must not be a column of the schema"),
        ({"features": SCHEMA}, {}, "`features`"),
        ({"n_teachers": 20}, {}, "the method must be Additive"),
        ({"method": NoisyMoments()}, {}, "the method must be Additive"),
        ({"public": None, "method": Additive()}, {"X_public": np.zeros((60, 3))}, "Additive needs a public schema"),
        ({"public": "schema.toml"}, {}, "`public`"),
        ({"student": AdditiveClassifier()}, {}, "`student` of Additive follows from the noisy sums"),
    ],
)
def test_what_needs_public_rows_is_refused_in_one_sentence_and_nothing_is_spent(
    settings_of, given_to_fit, said, tmp_path
):
    rows, y = made_up(300)
    with pytest.raises((InvalidParameterError, InvalidDataError), match=said):
        of(ledger=tmp_path / "a.ledger", **settings_of).fit(rows, y, **given_to_fit)
    assert not (tmp_path / "a.ledger").exists()


def test_a_plan_refuses_what_cannot_be_tried_on_public_rows():
    with pytest.raises(InvalidParameterError, match="A plan tries methods on public rows"):
        plan(1.0, people=900, X_public=np.eye(60), y_public=np.arange(60) % 2, parameters={"method": Additive()})


def test_rows_with_ids_are_refused_until_the_unit_is_decided():
    rows, y = made_up(300)
    with pytest.raises(PreflightError):
        of(noise=None).fit({**rows, "patient_id": np.arange(300) // 3}, y)


def test_names_of_columns_stand_for_labels_and_ids():
    rows, y = made_up(300)
    ids = np.arange(300) // 3
    named = of(unit="person").fit({**rows, "ill": y.astype(object), "person": ids}, "ill", entity_ids="person")
    assert named.student_.effects() == of(unit="person").fit(rows, y, entity_ids=ids).student_.effects()


def test_columns_in_another_order_are_another_release(tmp_path):
    rows, y = made_up(300)
    backwards = Schema({name: SCHEMA.columns[name] for name in reversed(SCHEMA.names)})
    models = [of(public=one, ledger=tmp_path / "a.ledger", budget=3.0) for one in (SCHEMA, backwards)]
    models[0].fit(rows, y)
    with pytest.warns(match="continues a budget"):
        models[1].fit(rows, y)
    assert models[1].ledger_.spent > 1.3 * models[0].ledger_.spent
    assert models[1].epsilon_ == models[1].ledger_.guarantee()


def test_the_table_of_effects_gives_the_scores():
    rows, y = made_up(2_000)
    student: Any = of(epsilon=3.0).fit(rows, y).student_
    table = student.effects()
    json.dumps(table)
    (name, of_class, lowest, highest, distance), *_ = found = student.influences()
    assert (name, of_class, highest[-6:]) == ("age", "yes", " to 90")
    assert float(lowest.split(" to ")[1]) < 45
    of_age = [line["effects"]["yes"] for line in table if line["column"] == "age"][:-1]
    assert distance == pytest.approx(max(of_age) - min(of_age))
    assert [one[-1] for one in found] == sorted((one[-1] for one in found), reverse=True)
    bins = SCHEMA.transform({"age": [40], "work": ["public"], "hours": [0.5]})
    places = zip(SCHEMA.names, bins[0].astype(int).tolist(), strict=True)
    cells = [("", "every row"), *((name, SCHEMA.cells[name][place]) for name, place in places)]
    found = [line["effects"]["yes"] for line in table if (line["column"], line["cells"]) in cells]
    assert sum(found) == pytest.approx(student.decision_function(bins)[0, 1])


def test_groups_are_few_and_hold_each_bin_once():
    totals = [5_000, 10, 20, 3_000, 800, 3, 0, 900, -5, 40]
    for ordered in (True, False):
        groups, _ = grouped(totals, 30.0, ordered=ordered)
        places = [place for group in groups for place in group]
        assert sorted(places) == sorted(set(places))
        assert set(range(9)) <= set(places)
        assert 1 < len(groups) <= 17


def test_steps_and_norms_are_whole():
    sizes = Sizes(n_classes=3, n_public=0, unit=unit_of_single_people("person", named=True), bins=(10, 4, 3))
    events: list[Any] = [one.event for one in Additive(mechanism=NoisySum(10.0)).event(sizes).flatten()]
    assert [one.norm_squared for one in events[:2]] == [3 * _STEPS**2, 3 * _LONGEST**2]
    assert events[0].sigma == pytest.approx(10 / sqrt(0.9) * sqrt(3) * _STEPS)


# The command line

CONFIG = """
[private]
file = "private.csv"
label = "ill"
classes = ["no", "yes"]
entity = "patient"
{private}

[public]
schema = "schema.toml"
{public}

[privacy]
epsilon = 5.0

[output]
folder = "out"
{more}
"""


@pytest.fixture
def configured(tmp_path, called):
    write_people(tmp_path, private=900)
    proposed = called("schema", "public.csv", "--ranges", "--ignore", "ill", cwd=tmp_path)
    (tmp_path / "schema.toml").write_text(succeeded(proposed).stdout)

    def write(private="", public="", more=""):
        (tmp_path / "config.toml").write_text(CONFIG.format(private=private, public=public, more=more))
        return tmp_path

    return write


@pytest.mark.usefixtures("repeatable")
def test_a_run_needs_no_public_rows(configured, called):
    folder = configured()
    done = succeeded(called("run", "config.toml", cwd=folder))
    assert "noisy sums and public data alone" in " ".join((folder / "out" / "card.md").read_text().split())
    assert "public rows labeled" not in done.stdout
    assert "about" in done.stdout  # how many people, noisy
    assert (folder / "out" / "labels.csv").read_text().split() == ["public_row,label"]
    assert 'load_student("out").score(rows, labels)' in done.stdout
    student, public = load_student(folder / "out"), read_table(folder / "public.csv")
    assert student.score(public.without(["ill"]), public.column("ill")) > 0.6
    assert isinstance(student[-1], AdditiveClassifier)
    assert len(student.predict(read_table(folder / "public.csv"))) == 120
    again = called("run", "config.toml", "--overwrite", cwd=folder)
    assert "The sums were released before" in " ".join(succeeded(again).stdout.split())


@pytest.mark.usefixtures("repeatable")
def test_an_audit_changes_cells_of_a_file_that_a_schema_reads(configured, called):
    found = json.loads(succeeded(called("audit", "config.toml", "--json", "--draws", "1000", cwd=configured())).stdout)
    of_cells = next(one for one in found["checks"] if one["check"] == "one cell in the file")
    assert of_cells["verdict"] == "pass"
    assert "pandas with decimal commas" in of_cells["reason"]


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize(
    ("verb", "wrong", "sentence"),
    [
        ("run", {"public": 'file = "public.csv"'}, "`file` in [public] does not go with `schema`"),
        ("run", {"public": 'label = "ill"'}, "`label` in [public] does not go with `schema`"),
        ("run", {"private": "batches = true"}, "`batches` in [private] does not go with `schema`"),
        ("run", {"more": '[columns]\nage = "number"'}, "[columns] does not go with `schema`"),
        ("run", {"more": '[features]\nmap = "steps"'}, "`map` in [features] does not go with `schema`"),
        ("run", {"more": '[features]\nstudent = "rows"'}, "`student` in [features] does not go with `schema`"),
        ("run", {"more": '[method]\nname = "noisy-moments"'}, "the default: leave the method out. Got NoisyMoments"),
        ("plan", {}, "there is one method and nothing to plan: start `tutelage run` straight away, without [method]."),
        ("plan", {"more": '[training]\ngoal = "average_precision"'}, "start `tutelage run` straight away"),
    ],
)
def test_what_does_not_go_with_a_schema_is_refused_and_nothing_is_spent(configured, called, verb, wrong, sentence):
    folder = configured(**wrong)
    said = called(verb, *(["--for"] if verb == "plan" else []), "config.toml", cwd=folder)
    assert said.returncode != 0
    assert "Traceback" not in said.stderr
    assert sentence in " ".join(said.stderr.split())
    assert not (folder / "private.csv.ledger").exists()


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize(
    "text", ["", "[schema]", "[schema]\nage = [3, 1]", "[other]\na = 1", "[schema]\nill = ['no', 'yes']"]
)
def test_a_file_that_is_no_schema_is_refused(configured, called, text):
    folder = configured()
    (folder / "schema.toml").write_text(text)
    said = called("run", "config.toml", cwd=folder)
    assert said.returncode != 0
    assert "Traceback" not in said.stderr
