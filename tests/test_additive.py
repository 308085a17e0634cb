"""Additive models without public rows: each sum on small worlds, one person at a time, and what is refused."""

import itertools
import json
from dataclasses import replace
from decimal import Decimal
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from test_cli import succeeded, write_people
from test_hostile_rows import Unspeakable
from tutelage import PATEClassifier, SimulationNoise
from tutelage.accounting.filter import GaussianFilter, RenyiFilter
from tutelage.ballots import BallotSum, Vector, sum_of_cells
from tutelage.exceptions import InvalidBallotError, InvalidDataError, InvalidParameterError
from tutelage.features import Schema
from tutelage.mechanisms import NoisySum
from tutelage.methods import Additive, AdditiveMean, NoisyMoments, additive
from tutelage.methods.additive import _LONGEST, MOST_ROUNDS, _residuals_in_steps
from tutelage.methods.requests import Answer, Sizes, run_steps
from tutelage.methods.sums import PeopleReady, sum_of_entries
from tutelage.partition import Shards
from tutelage.people.blocks import PeopleBlock
from tutelage.people.memory import PeopleInMemory
from tutelage.planning import plan
from tutelage.privacy import ONE_TEACHER
from tutelage.students import load_student
from tutelage.students.additive import AdditiveClassifier
from tutelage.students.pairs import Pair, joined_groups, most_wrong
from tutelage.tables import Table, read_table

SCHEMA = Schema({"age": (17, 90), "work": ["private", "public"], "hours": (0.0, 1.0)})
CLASSES = ["no", "yes"]


def people(n: int, seed: int) -> tuple[dict[str, Any], Any, np.random.Generator]:
    """Return the rows of people, a score that follows from them, and what draws more."""
    rng = np.random.default_rng(seed)
    age, work, hours = rng.integers(17, 91, n), rng.choice(["private", "public"], n), rng.random(n)
    return {"age": age, "work": work.astype(object), "hours": hours}, age - 50, rng


def made_up(n: int, seed: int = 0) -> tuple[dict[str, Any], Any]:
    rows, age, rng = people(n, seed)
    score = age / 12 + 1.5 * (rows["work"] == "public") + 2 * rows["hours"] - 1.5
    return rows, np.where(score + rng.logistic(size=n) > 0, "yes", "no")


def of(seed: int = 0, **more: Any) -> PATEClassifier:
    given = {"columns": SCHEMA, "epsilon": 1.0, "classes": CLASSES, "noise": SimulationNoise(seed)}
    return PATEClassifier(**(given | more))


# Cells


ODD_NUMBERS = ["inf", "nan", -1e300, 10**5000, True, Decimal("40")]
ODD_CELLS = [
    *ODD_NUMBERS,
    "",
    None,
    "abc",
    b"x",
    [1],
    "public ",
    1j,
    np.longdouble("1e4000"),
    Unspeakable(),
]


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_cell_of_any_kind_moves_only_its_own_row(name):
    rows, _ = made_up(40)
    plain = {column: np.array(cells.tolist(), dtype=object) for column, cells in rows.items()}
    before = SCHEMA.transform(plain)
    np.testing.assert_array_equal(before, SCHEMA.transform(rows))  # whatever the type of the column
    others = np.arange(40) != 7
    for place, cell in enumerate(ODD_CELLS):
        plain[name][7] = cell
        after = SCHEMA.transform(plain)
        np.testing.assert_array_equal(after[others], before[others], err_msg=f"cell {place}")
        assert ((after >= 0) & (after < SCHEMA.bins)).all()


def test_numbers_beyond_the_range_are_at_its_ends_and_all_else_is_in_the_last_bin():
    of_work = ["PRIVATE", "private", "public", "", "other"]
    rows = {"age": ["16", "17", "90", "1000", "x"], "work": of_work, "hours": ["0"] * 5}
    found = SCHEMA.transform(rows)
    age, work = found[:, :2].T.astype(int)
    assert age.tolist() == [0, 0, SCHEMA.bins[0] - 2, SCHEMA.bins[0] - 2, SCHEMA.bins[0] - 1]
    assert work.tolist() == [2, 0, 1, 2, 2]
    # In the order of the columns.
    plain = np.column_stack([np.array(cells, dtype=object) for cells in rows.values()])
    np.testing.assert_array_equal(SCHEMA.transform(plain), found)
    with pytest.raises(InvalidDataError):
        SCHEMA.transform({"age": [1], "work": ["private"]})


@pytest.mark.parametrize(
    "columns", [{}, {"a": []}, {"a": (1, 1)}, {"a": (0, float("inf"))}, {"a": ["1", "1.0"]}]
)
def test_a_schema_that_says_nothing_clear_is_refused(columns):
    with pytest.raises(InvalidParameterError):
        Schema(columns)


def test_a_schema_is_proposed_by_public_rows():
    public = Table(
        "",
        {"age": ["17", "90"], "work": ["public", "private"], "day": ["2024-01-01", "2024-01-02"]},
    )
    assert Schema.learn(public).columns == {"age": [17, 90], "work": ["private", "public"]}


# Ballots: each sum, both relations


def asked_of(rows: Any, y: Any, look: Any = None, **changes: Any) -> list[Any]:
    """Return the requests of a fit for sums of ballots; `look` sees each of them with the sum."""
    ids = {"entity_ids": changes.pop("entity_ids", None)}
    method = Additive(mechanism=NoisySum(changes.pop("noise", 5.0)))
    return requests_of(
        of(**{"epsilon": None, "method": method, **changes}).prepare(rows, y, **ids), look
    )


def requests_of(whole: Any, look: Any) -> list[Any]:
    prepared, source, seen = (
        whole.method.prepare(whole.public, whole.people),
        SimulationNoise(0),
        list[Any](),
    )

    def answer(request: Any) -> Answer:
        ballots = request.ballot.cast(prepared, request, np.arange(1))
        if request.form.shape != (1, 1):
            seen.append(request)
            if look is not None:
                look(request, ballots)
        drawn = request.mechanism.release(ballots, source)
        return Answer(np.array(drawn.answers), drawn.event, 0.0)

    run_steps(whole.method.steps(whole.public), answer, lambda one: one.make())
    return seen


def cast(request: Any, bins: Any, labels: Any, people: Any, unit: Any) -> Any:
    shards = Shards.of_single_people(len(bins), np.asarray(people), name=unit.name)
    prepared = PeopleReady(
        PeopleInMemory(np.asarray(bins, dtype=float), np.asarray(labels), shards)
    )
    return request.ballot.cast(
        prepared, replace(request, form=replace(request.form, unit=shards.unit)), np.arange(1)
    ).totals


SMALL = Schema({"a": (0, 2), "b": ["x"]})


MANY = {
    3: 5.0,
    11: 0.1,
    14: 0.05,
}  # the noise at which 300 people are few or many, by how many sums there are then


@pytest.fixture(scope="module", name="small_requests")
def few_small_requests() -> list[Any]:
    return small_requests_at(MANY[3])


@pytest.fixture(scope="module")
def many_small_requests() -> dict[int, list[Any]]:
    return {n_sums: small_requests_at(noise) for n_sums, noise in MANY.items()}


def small_requests_at(noise: float) -> list[Any]:
    """Return the requests of a fit of 300 people to the small schema."""
    rng = np.random.default_rng(0)
    rows = {"a": rng.integers(0, 3, 300), "b": np.array(["x"] * 300, dtype=object)}
    y = np.where(rows["a"] + rng.normal(size=300) > 1, "yes", "no")
    return asked_of(rows, y, columns=SMALL, unit="row", noise=noise)


@pytest.mark.parametrize(
    ("n_sums", "place"), [(n_sums, place) for n_sums in MANY for place in range(n_sums)]
)
def test_all_people_of_a_small_world_cast_ballots_within_the_bound_and_neighbors_are_no_further_apart(
    n_sums, place, many_small_requests
):
    """All people with up to two rows: none of their ballots is longer, nor two further apart, than is charged."""
    request = many_small_requests[n_sums][place]
    assert len(many_small_requests[n_sums]) == n_sums
    row = [(cells, label) for cells in itertools.product(range(4), range(2)) for label in range(2)]
    people = [[one] for one in row] + [
        list(pair) for pair in itertools.combinations_with_replacement(row, 2)
    ][::3]
    each: Any = [(*map(list, zip(*one, strict=True)), [0] * len(one)) for one in people]
    ballots = np.array(
        [cast(request, *one, unit=request.form.unit).ravel() for one in each]
    ).astype(object)
    lengths = (ballots**2).sum(axis=1)
    bound = request.form.norm_squared
    assert max(lengths) <= bound  # added or removed
    apart = max((lengths[:, None] + lengths[None, :] - 2 * ballots @ ballots.T).ravel())
    event = request.mechanism.most(request.form, simulated=True)
    charged = (2 if event.nonnegative else 4) * bound
    assert apart <= charged  # replaced
    # For counts the bound is attained.
    of_residuals = place % 2 == 1 and place != 13
    assert apart > (0.999 if place == 0 else 0.4 if of_residuals else 0.1) * charged
    assert event.nonnegative == (place == 0)


@pytest.mark.parametrize(
    ("n_sums", "noise", "entity"),
    [
        (3, 5.0, False),
        (3, 5.0, True),
        (5, 0.2, False),
        (5, 0.2, True),
        (11, 0.09, False),
        (14, 0.09, False),
    ],
)
def test_all_sums_cost_what_one_of_the_given_noise_would(n_sums, noise, entity, monkeypatch):
    monkeypatch.setattr(additive, "_PEOPLE_OF_PAIRS", 1_000.0 if n_sums == 14 else np.inf)
    ids, n_rows = ({"entity_ids": np.arange(900) // 3}, 900) if entity else ({"unit": "row"}, 300)
    requests = asked_of(*made_up(n_rows, 0), noise=noise, **ids)
    spent = sum(
        (2 if one.event.nonnegative else 4) * one.event.norm_squared / one.event.sigma**2
        for request in requests
        for one in request.mechanism.most(request.form, simulated=True).flatten()
    )
    assert len(requests) == n_sums
    several_rounds = n_sums > 3
    assert spent == pytest.approx((1 - 1e-5 * several_rounds) * 4 / noise**2, rel=1e-9)


@given(st.floats(0.1, 1e3), st.lists(st.integers(2, 300), min_size=1, max_size=30))
@settings(max_examples=20, deadline=None)
def test_several_rounds_never_cost_more_than_what_is_announced(noise, bins):
    sizes = Sizes(n_classes=3, n_public=0, unit=ONE_TEACHER, bins=tuple(bins))
    for method in (Additive, AdditiveMean):
        asked = method(mechanism=NoisySum(noise))
        announced = asked.event_of_sums(sizes)
        for limit in (GaussianFilter(1.0, 1e-5), RenyiFilter.suited_to(8.0, 1e-6)):
            for rounds in range(1, MOST_ROUNDS + 1):
                for n_pairs in {0, min(6, comb(len(bins), 2))}:
                    event = asked._event_of_rounds(sizes, rounds, n_pairs)
                    assert limit.cost(event) <= limit.cost(announced)


@pytest.mark.parametrize("entries_at_once", [1, 7, 40])
def test_a_sum_is_the_same_in_parts_of_a_block(entries_at_once, monkeypatch):
    rng = np.random.default_rng(0)
    people = np.repeat([5, 6, 7, 8, 9, 11], [3, 1, 9, 1, 1, 2])
    cells, numbers = rng.integers(0, 12, (17, 2, 3)), rng.integers(-50, 50, (17, 2, 3))
    block = PeopleBlock(np.arange(17.0)[:, None], np.zeros(17, int), people)

    def entries(some: PeopleBlock) -> Any:
        places = some.rows[:, 0].astype(int)
        return cells[places], numbers[places]

    form = Vector((3, 4), 10**6, ONE_TEACHER)
    expected = np.zeros(12, int)
    for person in set(people.tolist()):
        ballot = np.zeros(12, int)
        np.add.at(ballot, cells[people == person], numbers[people == person])
        expected += np.trunc(ballot / np.sum(people == person)).astype(int)
    monkeypatch.setattr("tutelage.methods.sums._ENTRIES_AT_ONCE", entries_at_once)
    np.testing.assert_array_equal(sum_of_entries(entries, block, form).totals.ravel(), expected)


@pytest.mark.rest
def test_the_epsilon_of_several_rounds_is_stated_beside_a_larger_budget(tmp_path):
    X, y = made_up(30_000)
    model: Any = of(noise=None, budget=8.0, delta=1e-6, ledger=tmp_path / "a.ledger").fit(X, y)
    assert len(model.ballots_) > 3
    assert model.epsilon_.epsilon <= 1.0


@pytest.mark.parametrize(
    ("seed", "entity", "n_classes"), [(0, False, 2), (1, True, 2), (2, True, 12)]
)
def test_ballots_of_people_do_not_depend_on_who_is_beside_them(
    seed, entity, n_classes, monkeypatch
):
    rng = np.random.default_rng(seed)
    rows = {"a": rng.integers(0, 3, 200), "b": np.array(["x"] * 200, dtype=object)}
    labels, ids = rng.integers(0, n_classes, 200), np.arange(200) // (2 if entity else 1)
    bins, some = SMALL.transform(rows), ids < 6

    def compare(request: Any, ballots: Any) -> None:
        unit = request.form.unit
        alone = [
            cast(request, bins[ids == one], labels[ids == one], ids[ids == one], unit)
            for one in range(6)
        ]
        together = cast(request, bins[some], labels[some], ids[some], unit)
        np.testing.assert_array_equal(together, sum(alone))
        backwards = cast(request, bins[::-1], labels[::-1], ids[::-1], unit)
        np.testing.assert_array_equal(backwards, ballots.totals)

    world = {"columns": SMALL, "classes": list(range(n_classes)), "entity_ids": ids}
    n_sums = len(asked_of(rows, labels, compare, **world))
    monkeypatch.setattr(additive, "_PEOPLE_OF_PAIRS", 0.0)
    assert len(asked_of(rows, labels, compare, **world)) > n_sums


def test_a_person_of_very_many_rows_casts_the_mean_of_all_of_them(small_requests):
    bins, later = np.tile([0, 0], (5_000, 1)), (np.arange(5_000) >= 4_500).astype(int)
    ballot = cast(small_requests[0], bins, later, np.zeros(5_000, int), small_requests[0].form.unit)
    # A tenth of 1,024 steps, and nine tenths.
    assert sorted(ballot[ballot > 0].tolist()) == [102, 102, 921, 921]
    for request in small_requests[1:]:
        ballot = cast(request, bins, later, np.zeros(5_000, int), request.form.unit)
        np.testing.assert_array_equal(
            ballot, cast(request, bins, later[::-1], np.zeros(5_000, int), request.form.unit)
        )


@given(st.lists(st.floats(-40, 40), min_size=2, max_size=6), st.data())
def test_residuals_are_whole_and_no_longer_than_allowed(scores, data):
    label = data.draw(st.integers(0, len(scores) - 1))
    found = _residuals_in_steps(np.array([scores]), np.array([label])).astype(object)
    assert (found**2).sum() <= _LONGEST**2
    assert found[0, label] >= 0


def test_ballots_that_are_too_long_or_below_zero_are_refused():
    one = Vector((1, 4), 8, ONE_TEACHER)

    def total(cells: list[int], numbers: list[int], form: Vector = one) -> Any:
        n = len(cells)
        return sum_of_cells(
            np.zeros(n, int), np.array(cells, int), np.array(numbers, int), np.ones(n, int), form
        ).totals

    assert total([0, 1], [2, 2]).tolist() == [[2, 2, 0, 0]]
    assert total([0], [-1]).tolist() == [[-1, 0, 0, 0]]
    assert total([], []).tolist() == [[0, 0, 0, 0]]
    for cells, numbers in (
        ([0, 0], [2, 2]),
        ([0, 1], [2, 3]),
        ([0, 1], [2**53, 0]),
        ([0, -1], [1, 1]),
    ):
        with pytest.raises(InvalidBallotError):
            total(cells, numbers)
    with pytest.raises(InvalidBallotError):
        total([0], [-1], replace(one, nonnegative=True))


def test_a_person_with_very_many_rows_stops_nobody():
    people, cells = np.repeat(np.arange(801), 1_000), np.tile(np.arange(1_000), 801)
    numbers, n_rows = np.full(people.size, 2**16), np.where(people == 0, 10**7, 1)
    found = sum_of_cells(
        people, cells, numbers * n_rows, n_rows, Vector((1, 1_000), 2**32 * 1_000, ONE_TEACHER)
    )
    assert set(found.totals.ravel().tolist()) == {801 * 2**16}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(-50, 50)), max_size=30),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_sum_of_cells_is_the_sum_of_mean_ballots_rounded_towards_zero(entries, n_rows, in_order):
    if in_order:  # one entry for a place, which takes no sorting
        entries = sorted({each[:2]: each for each in entries}.values())
    whole = np.zeros((4, 6), dtype=object)
    for person, cell, number in entries:
        whole[person, cell] += number
    means = np.array(
        [[int(abs(x) // n_rows) * (1 if x >= 0 else -1) for x in row] for row in whole],
        dtype=object,
    )
    columns: Any = np.array(entries, dtype=int).reshape(-1, 3).T
    found = sum_of_cells(
        *columns, n_rows=np.full(len(entries), n_rows), form=Vector((2, 3), 10**9, ONE_TEACHER)
    )
    assert found.totals.ravel().tolist() == means.sum(axis=0).tolist()


@pytest.mark.parametrize("cells", [[0, 1], [1, 1], [1, 0]])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_no_number_that_is_none_gets_past_the_length_of_a_ballot(cells, number):
    """In order, in one place, and out of order."""
    one, zero = np.ones(2, int), np.zeros(2, int)
    with pytest.raises(InvalidBallotError, match="too large to be added up"):
        sum_of_cells(
            zero, np.array(cells), np.array([1.0, number]), one, Vector((1, 2), 8, ONE_TEACHER)
        )  # type: ignore[arg-type]


def test_the_noise_of_each_sum_is_what_its_event_says():
    """2,700 numbers at least, with seeds: seven hundredths are five standard errors."""
    requests = asked_of(*made_up(300), unit="row", method=Additive(mechanism=NoisySum(0.02)))
    for request in requests:
        form = request.form
        zero = BallotSum(np.zeros(form.shape, int), form.norm_squared, form.unit, form.nonnegative)
        event = request.mechanism.most(request.form, simulated=True)
        times = 1 + 2_700 // zero.totals.size
        drawn = [
            request.mechanism.release(zero, SimulationNoise(seed)).values.ravel()
            for seed in range(times)
        ]
        assert 0.93 < np.std(np.concatenate(drawn)) / event.sigma < 1.07


# Fits


def test_a_fit_with_people_of_several_rows_and_several_classes():
    rng = np.random.default_rng(0)
    rows, _ = made_up(3_000)
    y = np.digitize(rows["age"] + 5 * rng.normal(size=3_000), [40, 65])
    model = of(classes=[0, 1, 2], epsilon=3.0).fit(rows, y, entity_ids=np.arange(3_000) // 2)
    assert model.score(rows, y) > 0.75
    assert len(model.release_.event.flatten()) == 5  # and the number of people, and the report
    assert model.n_private_rows_ is None
    assert abs((model.n_teachers_ or 0) - 1_500) < 100


def test_columns_that_say_the_same_do_not_count_several_times():
    rng = np.random.default_rng(0)
    leaning = rng.normal(size=10_000)
    rows = np.clip(np.rint(2 + leaning[:, np.newaxis] + 0.4 * rng.normal(size=(10_000, 20))), 0, 4)
    rows, y = rows.astype(int), 3 * leaning + rng.logistic(size=10_000) > 6
    schema = Schema({f"question {number}": list("01234") for number in range(20)})
    model = of(columns=schema, classes=[False, True]).fit(rows[:8_000], y[:8_000])
    assert (
        model.score(rows[8_000:], y[8_000:])
        > np.mean(y[8_000:] == (3 * leaning[8_000:] > 6)) - 0.04
    )


def test_named_releases_have_the_same_cells_whatever_their_people_and_their_noise(tmp_path):
    shapes = list[Any]()
    for n, noise in ((300, 5.0), (3_000, 5.0), (3_000, 0.5)):
        file = tmp_path / f"{n} {noise}.ledger"
        method = Additive(mechanism=NoisySum(noise))
        model = of(epsilon=None, noise=None, method=method, ledger=file, budget=100.0)
        prepared = model.prepare(*made_up(n), entity_ids=np.arange(n), release="May")
        shapes.append([request.form.shape for request in requests_of(prepared, None)])
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0]) == 3


def test_many_people_are_asked_again_what_is_still_wrong(monkeypatch):
    """Four columns say nearly the same, and what the others say is seen only beside them."""
    rng = np.random.default_rng(0)
    size, other = rng.normal(size=12_000), rng.normal(size=(12_000, 2))
    copies = size[:, None] + 0.1 * rng.normal(size=(12_000, 4))
    columns = np.clip(np.hstack([copies, other]), -3, 3)
    total = 3 * size + other.sum(axis=1)
    y = np.searchsorted(np.quantile(total, [0.2, 0.4, 0.6, 0.8]), total)
    schema = Schema({f"column {number}": (-3.0, 3.0) for number in range(6)})

    def accuracy() -> float:
        model = of(columns=schema, classes=list(range(5)), epsilon=3.0)
        return model.fit(columns[:10_000], y[:10_000]).score(columns[10_000:], y[10_000:])

    of_many = accuracy()
    monkeypatch.setattr(additive, "MOST_ROUNDS", 1)
    assert of_many > accuracy() + 0.02


XOR = Schema({"first": (-1.0, 1.0), "second": (-1.0, 1.0), "other": ["a", "b"]})


def crossed(n: int) -> tuple[dict[str, Any], Any]:
    """Return people of whom no column tells anything by itself."""
    rng = np.random.default_rng(0)
    first, second = rng.uniform(-1, 1, (2, n))
    other = rng.choice(["a", "b"], n).astype(object)
    y = np.where(first * second + 0.1 * rng.normal(size=n) > 0, "yes", "no")
    return {"first": first, "second": second, "other": other}, y


def test_very_many_people_are_asked_what_pairs_of_columns_say(tmp_path):
    X, y = crossed(20_000)
    model = of(columns=XOR, epsilon=3.0).fit(X, y)
    assert model.score(X, y) > 0.85
    student: Any = model.student_
    assert student.pairs_[0].columns == (0, 1)
    lines = [line for line in student.effects() if line["column"] == "first and second"]
    far = max(lines, key=lambda line: line["effects"]["yes"])
    low, high = (float(cell.split(" to ")[0]) for cell in far["cells"].split(" and "))
    assert low * high > 0
    assert 0 < far["noise"]["yes"] < 3 * far["effects"]["yes"]
    name, output, _, cells, distance = student.influences()[0]
    assert (name, output) == ("first and second", "yes")
    assert (cells, distance > 1) == (far["cells"], True)
    assert {curve.column for curve in student.curves()} <= set(XOR.names)
    again: Any = load_student(model.save(tmp_path / "out"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again[-1].effects() == student.effects()
    assert "first and second" in (tmp_path / "out" / "card.html").read_text()
    # Few people, and releases that are averaged, keep to columns.
    assert not of(columns=XOR).fit(*crossed(2_000)).student_.pairs_
    named = of(columns=XOR, epsilon=3.0, question="q", ledger=tmp_path / "a.ledger")
    assert not named.fit(X, y, entity_ids=np.arange(len(y)), release="May").student_.pairs_


@given(
    st.lists(st.floats(0.1, 1e4), min_size=1, max_size=40), st.integers(1, 3), st.integers(2, 12)
)
def test_joined_groups_are_few_neighbors_and_none_is_left_out(sizes, beyond, most):
    of_range = joined_groups(np.array([*sizes, *[0.0] * beyond]), len(sizes), most)
    assert set(np.diff(of_range[: len(sizes)])) <= {0, 1}
    assert (of_range[len(sizes) :] == of_range.max()).all()
    of_categories = joined_groups(np.array([*sizes, 0.0]), 0, most)
    for cells in (of_range, of_categories):
        assert sorted(set(cells.tolist())) == list(range(cells.max() + 1))
        assert cells.max() < most
    assert of_categories.max() == min(most, len(sizes)) - 1
    assert np.bincount(of_categories)[:-1].max(initial=1) == 1


def test_pairs_are_chosen_by_what_no_column_explains_by_itself():
    rng = np.random.default_rng(0)
    cells = np.repeat(np.arange(4), 3)
    pairs = [Pair((0, other), (cells, cells)) for other in (1, 2, 3)]
    by_one_column = rng.normal(0, 50, (4, 1)) + rng.normal(0, 50, 4)
    crossed = np.outer([5, -5, 5, -5], [1, 1, -1, -1])
    sums = np.concatenate([by_one_column, crossed, np.zeros((4, 4))]).ravel()
    noisy = sums + rng.normal(size=48)
    assert most_wrong(pairs, np.stack([noisy, -noisy]), 1.0)[0] is pairs[1]


def test_spreads_are_no_longer_than_allowed():
    rng = np.random.default_rng(0)
    for m in (2, 3, 4, 30):
        chances = np.vstack([np.full(m, 1 / m), rng.dirichlet(np.full(m, 0.5), 10_000)])
        steps = np.trunc(chances * (1 - chances) * 2**16)
        assert (steps**2).sum(axis=1).max() <= additive._LONGEST_SPREADS_SQUARED


@pytest.mark.parametrize("column", [(17, 90), (0.0, 1.0), (-5, 40), (0, 99_999), (0, 24)])
def test_joined_bins_are_the_bins_of_one_width(column):
    """Joined to sixteen, bins are what sixteen bins and their halves would be; an end falls into the bin above it."""
    schema = Schema({"a": column})
    low, high = column
    shares = sorted({number / 16 for number in range(16)} | {2.0**-power for power in range(1, 13)})
    edges = [low + (high - low) * share for share in shares]
    if column == (0, 24):
        edges = list(range(25))
    whole = isinstance(low, int)
    numbers = np.random.default_rng(0).uniform(low, high, 500)
    if whole:
        numbers = np.append(np.rint(numbers), range(low, low + 30))
    found = schema.levels[0][-1][schema.transform({"a": numbers})[:, 0].astype(int)]
    expected = np.searchsorted(edges, numbers, side="right") - 1
    # An empty bin has no number in the one case, and is none in the other.
    _, expected = np.unique(expected, return_inverse=True)
    _, found = np.unique(found, return_inverse=True)
    np.testing.assert_array_equal(found, expected)
    for finer, wider in itertools.pairwise(schema.levels[0]):
        assert len({*zip(finer.tolist(), wider.tolist(), strict=True)}) == len(set(finer.tolist()))


def test_weights_multiply_the_odds_and_a_goal_is_what_a_score_says():
    rows, y = made_up(600)
    models = of(), of(class_weight={"yes": 5}), of(goal="balanced_accuracy")
    plain, weighed, balanced = (one.fit(rows, y) for one in models)
    assert balanced.score(rows, y) == balanced_accuracy_score(y, balanced.predict(rows))
    odds = [np.divide(*one.predict_proba(rows).T[::-1]) for one in (plain, weighed)]
    np.testing.assert_allclose(odds[1], 5 * odds[0])


@pytest.mark.parametrize(
    ("settings_of", "given_to_fit", "said"),
    [
        (
            {},
            {"X_public": np.zeros((60, 3))},
            "Pass a Schema as `columns`, or `X_public`, but not both",
        ),
        ({}, {"silos": np.arange(300) % 5}, "`silos`"),
        (
            {},
            {"entity_ids": SCHEMA.names[0]},
            "`entity_ids` of PATEClassifier.fit must not be a column of the schema",
        ),
        ({"features": SCHEMA}, {}, "`features`"),
        ({"method": NoisyMoments()}, {}, "must take a public schema, as Additive does"),
        (
            {"columns": None, "method": Additive()},
            {"X_public": np.zeros((60, 3))},
            "must be a Schema, because Additive",
        ),
        ({"columns": "schema.toml"}, {}, "`columns`"),
        ({"method__student": AdditiveClassifier()}, {}, "`student` of Additive must be left out"),
    ],
)
def test_what_needs_public_rows_is_refused_in_one_sentence_and_nothing_is_spent(
    settings_of, given_to_fit, said, tmp_path
):
    rows, y = made_up(300)
    with pytest.raises((InvalidParameterError, InvalidDataError), match=said):
        of(ledger=tmp_path / "a.ledger").set_params(**settings_of).fit(rows, y, **given_to_fit)
    assert not (tmp_path / "a.ledger").exists()


def test_a_plan_refuses_what_cannot_be_tried_on_public_rows():
    with pytest.raises(InvalidParameterError, match="that uses public rows"):
        plan(1.0, people=900, X_public=np.eye(60), y_public=np.arange(60) % 2, method=Additive())


def test_columns_in_another_order_are_another_release(tmp_path):
    rows, y = made_up(300)
    backwards = Schema({name: SCHEMA.columns[name] for name in reversed(SCHEMA.names)})
    models = [
        of(columns=one, ledger=tmp_path / "a.ledger", budget=3.0) for one in (SCHEMA, backwards)
    ]
    models[0].fit(rows, y)
    with pytest.warns(match="continues a budget"):
        models[1].fit(rows, y)
    assert models[1].ledger_.spent > 1.3 * models[0].ledger_.spent
    assert models[1].epsilon_ == models[1].ledger_.guarantee()


# The command line

CONFIG = """
[private]
file = "private.csv"
entity = "patient"
{private}

[target]
column = "ill"
classes = ["no", "yes"]

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
    write_people(tmp_path, private=300)
    proposed = called("schema", "public.csv", "--ranges", "--ignore", "ill", cwd=tmp_path)
    (tmp_path / "schema.toml").write_text(succeeded(proposed).stdout)

    def write(private="", public="", more="", schema=None):
        if schema is not None:
            (tmp_path / "schema.toml").write_text(schema)
        (tmp_path / "config.toml").write_text(
            CONFIG.format(private=private, public=public, more=more)
        )
        return tmp_path

    return write


@pytest.mark.usefixtures("repeatable")
def test_a_run_needs_no_public_rows(configured, called):
    folder = configured()
    done = succeeded(called("run", "config.toml", cwd=folder))
    assert "noisy sums and public data alone" in " ".join(
        (folder / "out" / "card.md").read_text().split()
    )
    assert "public rows labeled" not in done.stdout
    assert (folder / "out" / "labels.csv").read_text().split() == ["public_row,label"]
    student, public = load_student(folder / "out"), read_table(folder / "public.csv")
    assert student.score(public.without(["ill"]), public.column("ill")) > 0.6
    again = called("run", "config.toml", "--overwrite", cwd=folder)
    assert "The sums were released before" in " ".join(succeeded(again).stdout.split())


@pytest.mark.usefixtures("repeatable")
def test_an_audit_changes_cells_of_a_file_that_a_schema_reads(configured, called):
    found = json.loads(
        succeeded(
            called("audit", "config.toml", "--json", "--draws", "1000", cwd=configured())
        ).stdout
    )
    of_cells = next(one for one in found["checks"] if one["check"] == "one cell in the file")
    assert of_cells["verdict"] == "pass"
    assert "pandas with decimal commas" in of_cells["reason"]


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize(
    ("verb", "wrong", "sentence"),
    [
        ("run", {"public": 'file = "public.csv"'}, "`file` in [public] does not go with `schema`"),
        (
            "run",
            {"schema": "[schema]\nage = [3, 1]"},
            "`columns` of Schema must give 'age' a range",
        ),
        ("run", {"private": "batches = true"}, "`batches` in [private] does not go with `schema`"),
        ("run", {"more": '[columns]\nage = "number"'}, "[columns] does not go with `schema`"),
        (
            "run",
            {"more": '[features]\nmap = "steps"'},
            "`map` in [features] does not go with `schema`",
        ),
        (
            "plan",
            {},
            "there is one method and nothing to plan: start `tutelage run` straight away, without [method].",
        ),
    ],
)
def test_what_does_not_go_with_a_schema_is_refused_and_nothing_is_spent(
    configured, called, verb, wrong, sentence
):
    folder = configured(**wrong)
    said = called(verb, *(["--for"] if verb == "plan" else []), "config.toml", cwd=folder)
    assert said.returncode != 0
    assert "Traceback" not in said.stderr
    assert sentence in " ".join(said.stderr.split())
    assert not (folder / "private.csv.ledger").exists()
