"""Hospitals without public rows: each sum follows from those before it, by a schema that all agreed on."""

import json
import math
import warnings
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consortia import PATIENT, all_ended, found
from test_federation_sums import is_normal
from tutelage.accounting import data_independent
from tutelage.exceptions import BudgetExceededError, ForgedMessageError, InvalidDataError, InvalidParameterError
from tutelage.features import Schema
from tutelage.federation import Batch, Consortium, Entity
from tutelage.federation.entity import ballots_of
from tutelage.federation.sharing import HEAD_BYTES, added
from tutelage.federation.sums import OpenedSum
from tutelage.ledger import Ledger
from tutelage.mechanisms import GNMax, NoisySum
from tutelage.methods import Additive
from tutelage.teachers import VectorBallots

NAMES, ROWS, PEOPLE, MULTIPLIER = ["hospital-0", "hospital-1", "hospital-2"], 600, 400, 0.5
SCHEMA = Schema({"work": ["private", "public"], "age": (17, 90), "hours": (0.0, 1.0)})
TERMS = {"teachers_per_entity": 1, "n_classes": 2, "schema": SCHEMA, "people": (PEOPLE,) * 3, "quorum": 2}


def people(seed):
    """Return a table, classes and ids; every second person has two rows."""
    rng = np.random.default_rng(seed)
    age, work, hours = rng.integers(17, 91, ROWS), rng.choice(["private", "public"], ROWS), rng.random(ROWS)
    score = (age - 50) / 12 + 1.5 * (work == "public") + 2 * hours - 1.5
    table = {"hours": hours, "age": age.astype(str), "work": work.astype(object), "other": rng.random(ROWS)}
    return table, (score + rng.logistic(size=ROWS) > 0).astype(int), np.arange(ROWS) * 2 // 3


def agreed(folder, **terms):
    return found(folder, NoisySum(MULTIPLIER), **{"entities": 3, "epsilon": 100.0} | TERMS | terms)


@pytest.fixture
def members(tmp_path):
    return agreed(tmp_path)


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    return agreed(tmp_path_factory.mktemp("agreed")).consortium.sums()


def first_of(sums):
    return sums._after(())


def plain(sums, asked, seeds: Any = range(3)):
    """Return the sum of the ballots without noise, as nobody in the consortium ever sees it."""
    return np.sum([ballots_of(sums, asked, *people(seed)).totals for seed in seeds], axis=0)


def right(asked, seed=99):
    table, y, _ = people(seed)
    return np.mean(asked.classifier.predict(table) == y)


def packed(members, row):
    return Batch.make(members.home("aggregator").identity, members.consortium, row)


def row_of(*opened, **more):
    said = {"file": "opened sums", "format": 1, "sums": [*opened], **more}
    return np.frombuffer(json.dumps(said).encode(), dtype=np.uint8)[None]


def test_three_sums_are_opened_one_after_another_and_teach_a_table(members):
    sums, collected, spent, noise = members.consortium.sums(), None, [], []
    for number in range(3):
        batch = members.aggregator().ask(None, members.mailbox).batch
        assert members.aggregator().ask(None, members.mailbox).batch.identifier == batch.identifier
        asked = sums.round_of(batch)
        assert asked.number == number
        for seed, name in enumerate(NAMES):
            X, y, ids = people(seed)
            members.entity(name).cast(batch, X, y, members.mailbox, entity_ids=ids)
        payloads = members.payloads(batch, NAMES[0])
        of_one = added([each[HEAD_BYTES:] for each in payloads], asked.shape) - plain(sums, asked, [0])
        share = sums.event_asked(asked).sigma_of_share
        assert abs(of_one).max() < 6 * share
        all_ended(members, batch)
        collected: Any = members.aggregator().collect_sum(batch, members.mailbox)
        assert (collected.entities, collected.rounds_left) == (tuple(NAMES), 2 - number)
        # Three hospitals add a share each, where one is counted on.
        noise.extend(((collected.values - plain(sums, asked)) / (share * math.sqrt(3))).ravel())
        spent.append(members.ledger(NAMES[0]).state().spent)
    assert is_normal(noise)
    assert not is_normal(np.multiply(noise, 2))
    assert not is_normal(np.divide(noise, 2))
    assert right(collected.round) > 0.68
    assert [step["column"] for step in collected.round.classifier[-1].effects()][1] == "age"
    assert members.aggregator().ask(None, members.mailbox) == (None, 0)
    for name in ("aggregator", *NAMES):
        ledger = members.ledger(name)
        assert ledger.state().unsettled == 0
        assert spent[-1] == pytest.approx(ledger.share_of(sums.event_from(0)), rel=1e-3)
        ledger.verify()
    assert [each / spent[-1] for each in spent[:2]] == pytest.approx([0.45, 0.7], abs=0.01)


def test_the_sums_cost_what_those_of_a_fit_do_with_the_noise_of_the_honest(sums):
    whole = Additive(NoisySum(MULTIPLIER)).event_of_sums(sums.public.sizes)
    assert [one.event for one in whole.flatten()] == [one.event for one in sums.events]
    assert {one.shares for one in sums.events} == {sums.terms.honest} == {1}
    cost = sums.terms.epsilon_of_queries(1, 1e-5).epsilon
    assert cost == pytest.approx(data_independent.epsilon(whole, 1e-5).epsilon, rel=1e-3)
    asked = first_of(sums)
    for most in sums.events:
        event = sums.event_asked(asked)
        assert (event.event.sigma, event.event.norm_squared) == (most.event.sigma, most.event.norm_squared)
        assert (event.event.unit, event.event.nonnegative) == (PATIENT, most.event.nonnegative)
        assert event.variables <= most.variables
        asked = sums.round_after(asked, plain(sums, asked), NAMES)


def test_ballots_of_hospitals_add_up_to_those_of_all_and_one_person_moves_them_by_their_length(sums):
    asked, tables = first_of(sums), [people(seed) for seed in range(3)]
    joined = {name: np.concatenate([X[name] for X, _, _ in tables]) for name in tables[0][0]}
    y = np.concatenate([each[1] for each in tables])
    ids = np.concatenate([each[2] + number * 10**6 for number, each in enumerate(tables)])
    for event in sums.events:
        total = plain(sums, asked)
        np.testing.assert_array_equal(ballots_of(sums, asked, joined, y, ids).totals, total)
        X, labels, whose = people(0)
        for person in (0, 1):
            mine = whose == person
            changed = {name: np.where(mine, "zzz", cells.astype(object)) for name, cells in X.items()}
            after = ballots_of(sums, asked, changed, np.where(mine, 1 - labels, labels), whose)
            left = {name: cells[~mine] for name, cells in X.items()}
            gone = ballots_of(sums, asked, left, labels[~mine], whose[~mine])
            for other, factor in ((after, 2 if event.event.nonnegative else 4), (gone, 1)):
                moved = ((other.totals - plain(sums, asked, [0])) ** 2).sum()
                assert 0 < moved <= factor * event.event.norm_squared
        asked = sums.round_after(asked, total, NAMES)


def test_hospitals_that_answered_stand_for_all(sums):
    asked, missing = first_of(sums), [[0, 1, 2], [0, 1], [2]]
    for seeds in missing:
        asked = sums.round_after(asked, plain(sums, asked, seeds), [NAMES[seed] for seed in seeds])
    assert right(asked) > 0.75
    event = sums.events[0]
    answer = sums._answer(OpenedSum((NAMES[2],), (7,) * event.variables), event)
    assert set(answer.values.ravel()) == {21}
    assert answer.sigma == pytest.approx(3 * event.sigma_of_share)
    asked = sums.round_after(first_of(sums), plain(sums, first_of(sums)), NAMES)
    assert right(asked) > 0.75  # by counts alone: what was not opened teaches nothing


OPENED = {"entities": NAMES, "values": [0] * 106}
DAMAGED = {
    "no JSON": np.zeros((1, 9), dtype=np.uint8),
    "numbers": np.zeros((1, 9)),
    "another file": row_of(file="round"),
    "more than sums": row_of(more=1),
    "no sums": row_of(sums=None),
    "a stranger": row_of(OPENED | {"entities": [*NAMES, "hospital-9"]}),
    "one twice": row_of(OPENED | {"entities": NAMES[:1] * 2}),
    "nobody": row_of(OPENED | {"entities": []}),
    "too few numbers": row_of(OPENED | {"values": [0] * 105}),
    "fractions": row_of(OPENED | {"values": [0.5] * 106}),
    "no honest sum": row_of(OPENED | {"values": [2**51] * 106}),
    "beyond 64 bits": row_of(OPENED | {"values": [2**80] * 106}),
    "too many sums": row_of(*[OPENED] * 3),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_batch_that_no_sums_lead_to_is_refused_before_anything_is_spent(what, members):
    numbers = math.prod(first_of(members.consortium.sums()).shape)
    assert numbers == 106, "adapt OPENED"
    members.consortium.sums().round_of(packed(members, row_of(OPENED)))
    X, y, ids = people(0)
    with pytest.raises(ForgedMessageError):
        members.entity(NAMES[0]).cast(packed(members, DAMAGED[what]), X, y, members.mailbox, entity_ids=ids)
    assert members.ledger(NAMES[0]).state().spent == 0


HUGE = 2**50 - 1


@given(st.data())
def test_no_row_makes_a_ballot_fail_whatever_an_aggregator_says_was_opened(sums, data):
    X, y, ids = people(0)
    asked = first_of(sums)
    for _ in range(data.draw(st.integers(1, 2))):
        cells = math.prod(asked.shape)
        values = data.draw(st.lists(st.sampled_from([0, 1, -1, 5000, HUGE, -HUGE]), min_size=cells, max_size=cells))
        entities = data.draw(st.sampled_from([NAMES, NAMES[:1]]))
        try:
            asked = sums.round_after(asked, np.array(values), entities)
        except ForgedMessageError:  # before a row is read
            break
    cast = ballots_of(sums, asked, X, y, ids)
    assert cast.form == asked.request.form


NOTHING_SPENT = {
    "no names": (lambda X, y, ids: (np.column_stack([X["age"], X["hours"], X["work"]]), y, ids), "named columns"),
    "a column is missing": (lambda X, y, ids: ({"age": X["age"], "work": X["work"]}, y, ids), "no column 'hours'"),
    "fewer labels": (lambda X, y, ids: (X, y[:-1], ids), "one class index for each"),
    "another class": (lambda X, y, ids: (X, y + 1, ids), "from 0 to 1"),
    "nobody's rows": (lambda X, y, ids: (X, y, None), "`entity_ids` must say whose row it is"),
}


@pytest.mark.parametrize("what", NOTHING_SPENT)
def test_rows_that_do_not_fit_are_refused_before_anything_is_spent(what, members):
    change, message = NOTHING_SPENT[what]
    X, y, ids = change(*people(0))
    batch = members.aggregator().ask(None, members.mailbox).batch
    with pytest.raises(InvalidDataError, match=message):
        members.entity(NAMES[0]).cast(batch, X, y, members.mailbox, entity_ids=ids)
    assert members.ledger(NAMES[0]).state().spent == 0


ODD = {
    "units": (
        lambda X: X | {"age": [str(12 * int(age)) for age in X["age"]]},
        "column 'age' is often outside its range",
    ),
    "codes": (
        lambda X: X | {"work": np.where(X["work"] == "public", "1", "0")},
        "column 'work' is often empty or unkn",
    ),
    "cells": (lambda X: X | {"hours": np.where(X["hours"] < 0.5, np.nan, X["hours"])}, "column 'hours' is often empty"),
    "nothing": (lambda X: X, None),
}


@pytest.mark.parametrize("what", ODD)
def test_an_owner_is_told_of_odd_columns_before_anything_is_spent_and_nobody_else(what, members, monkeypatch):
    change, said = ODD[what]
    (X, y, ids), name, spent = people(0), NAMES[0], []
    batch = members.aggregator().ask(None, members.mailbox).batch
    monkeypatch.setattr(warnings, "warn", lambda *_, **__: spent.append(members.ledger(name).state().spent))
    members.entity(name).cast(batch, change(X), y, members.mailbox, entity_ids=ids)
    assert spent == [0] * (said is not None)
    monkeypatch.undo()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("error")  # which may not make a hospital fail
        members.entity(name).cast(batch, change(X), y, members.mailbox, entity_ids=ids)
    assert [said in str(one.message) for one in told] == [True] * (said is not None)
    for path in [*members.mailbox.folder.rglob("*"), *(members.folder / name).rglob("*")]:
        assert not path.is_file() or b"often" not in path.read_bytes()


def test_a_check_of_columns_that_fails_keeps_no_answer_back(members, monkeypatch):
    def failing(_given):
        raise ValueError

    monkeypatch.setattr("tutelage.federation.entity.told_of_columns", failing)
    (X, y, ids), name = people(0), NAMES[0]
    members.entity(name).cast(
        members.aggregator().ask(None, members.mailbox).batch, X, y, members.mailbox, entity_ids=ids
    )
    assert members.ledger(name).state().spent > 0


def test_a_budget_without_room_for_all_sums_refuses_the_first(members):
    batch, (X, y, ids) = members.aggregator().ask(None, members.mailbox).batch, people(0)
    one = data_independent.epsilon(members.consortium.sums().events[0], 1e-5).epsilon
    small = Ledger.in_memory(epsilon=one * 1.2, delta=1e-5, unit=PATIENT)
    with pytest.raises(BudgetExceededError):
        Entity(members.home(NAMES[0]), small).cast(batch, X, y, members.mailbox, entity_ids=ids)
    assert small.state().spent == 0


def test_terms_with_a_schema_come_back_from_their_file(members, tmp_path):
    terms = members.consortium
    terms.save(tmp_path / "terms.json")
    again = Consortium.load(tmp_path / "terms.json")
    assert again.fingerprint == terms.fingerprint
    kept, agreed = (cast("Schema", one.schema) for one in (again, terms))
    assert kept.names == agreed.names == ("age", "hours", "work")
    assert kept.cells == agreed.cells
    columns: Any = dict(reversed([*SCHEMA.columns.items()]))
    assert replace(terms, schema=Schema(columns)).fingerprint == terms.fingerprint
    for other in (columns | {"age": (17, 91)}, columns | {"work": ["public", "private"]}, {"age": (17, 90)}):
        assert replace(terms, schema=Schema(other)).fingerprint != terms.fingerprint
    with pytest.raises(InvalidDataError, match="None where the terms have a schema"):
        members.aggregator().ask(np.zeros((9, 3)), members.mailbox)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": VectorBallots()}, "Leave out `teacher`"),
        ({"mechanism": GNMax(8.0)}, "needs a plain NoisySum"),
        ({"people": (1,)}, "one number per entity"),
        ({"schema": {"age": (1, 2)}}, "`schema` of Consortium must be a Schema. Got a dict"),
        ({"schema": None}, "`teacher` of Consortium must be VectorBallots"),
    ],
)
def test_terms_that_do_not_go_with_a_schema_are_refused(changes, message, members):
    with pytest.raises(InvalidParameterError, match=message):
        replace(members.consortium, **changes)
