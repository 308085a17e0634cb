"""Sums of ballots between hospitals: what is opened, what it costs, and what happens when somebody dies or lies.

No row is public: each sum follows from those before it, by a schema that all agreed on.
"""

import hashlib
import json
import math
import re
import shutil
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import REPOSITORY
from consortia import PARTIES, PATIENT, Computing, all_ended, found, unanimous
from tutelage.accounting import data_independent
from tutelage.events import TIER_STEPS, SummedNoise
from tutelage.exceptions import (
    BudgetExceededError,
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    LedgerMismatchError,
    PartyLostError,
    QuorumError,
    StaleBatchError,
)
from tutelage.features import Schema
from tutelage.ledger import Ledger
from tutelage.ledger.turns import is_held
from tutelage.mechanisms import GNMax, NoisySum
from tutelage.methods import Additive
from tutelage_consortium import Aggregator, Batch, ComputingParty, Consortium, Entity, Home
from tutelage_consortium.computing_party import _statement_of
from tutelage_consortium.entity import ballots_of
from tutelage_consortium.sharing import (
    HEAD_BYTES,
    MODULUS,
    SALT_BYTES,
    SPLIT_NAME_BYTES,
    decode,
    encode,
    open_sum,
)
from tutelage_consortium.sums import SharedSums, Sums, _answer, _OpenedSum

ENTITIES, ROWS, PEOPLE, MULTIPLIER = 4, 300, 200, 0.5
NAMES = [f"hospital-{number}" for number in range(ENTITIES)]
SCHEMA = Schema({"work": ["private", "public"], "age": (17, 90), "hours": (0.0, 1.0)})
KINDS = ["opened", *["reserved", "answered"] * 3]
TERMS = {
    "teachers_per_entity": 1,
    "classes": ("no", "yes"),
    "schema": SCHEMA,
    "people": (PEOPLE,) * ENTITIES,
}


def people(seed):
    """Return a table, classes and ids; every second person has two rows."""
    rng = np.random.default_rng(seed)
    age, work, hours = (
        rng.integers(17, 91, ROWS),
        rng.choice(["private", "public"], ROWS),
        rng.random(ROWS),
    )
    score = (age - 50) / 12 + 1.5 * (work == "public") + 2 * hours - 1.5
    table = {"hours": hours, "age": age, "work": work.astype(object), "other": rng.random(ROWS)}
    return table, (score + rng.logistic(size=ROWS) > 0).astype(int), np.arange(ROWS) * 2 // 3


def agreed(folder, **terms):
    return found(
        folder, NoisySum(MULTIPLIER), **{"entities": ENTITIES, "epsilon": 100.0} | TERMS | terms
    )


@pytest.fixture(scope="module")
def founded(tmp_path_factory):
    return agreed(tmp_path_factory.mktemp("founded"))


@pytest.fixture
def members(founded, tmp_path):
    return founded.copied(tmp_path)


@pytest.fixture(scope="module")
def founded_for_votes(tmp_path_factory):
    return found(tmp_path_factory.mktemp("votes"), GNMax(8.0))


@pytest.fixture(scope="module")
def computed(founded, tmp_path_factory):
    """Members of whom all cast the first ballots, which are added and not collected yet."""
    members = founded.copied(tmp_path_factory.mktemp("computed"))
    batch, _ = asked_by(members)
    cast_by_all(members, batch)
    all_ended(members, batch)
    return members, batch


@pytest.fixture(scope="module")
def sums(founded):
    return founded.consortium.sums()


def first_of(sums):
    return sums.first_round("first")


def asked_by(members):
    batch = members.aggregator().ask_sum("first", members.mailbox)
    assert batch is not None
    return batch, members.consortium.sums().round_of(batch)


def cast_one(members, batch, number=0):
    X, y, ids = people(number)
    return members.entity(NAMES[number]).cast(batch, X, y, members.mailbox, entity_ids=ids)


def cast_by_all(members, batch):
    for number in range(ENTITIES):
        cast_one(members, batch, number)


def plain(sums, asked, seeds: Any = range(ENTITIES)) -> np.ndarray:
    """Return the sum of ballots without noise, which nobody in the consortium ever sees."""
    return np.sum([ballots_of(sums, asked, *people(seed)).totals for seed in seeds], axis=0)


def sent(members, batch, name):
    """Return what all three computing parties together would open of one hospital."""
    payloads = members.payloads(batch, name)
    assert len({payload[:SPLIT_NAME_BYTES] for payload in payloads}) == 1
    return open_sum(
        [payload[HEAD_BYTES:] for payload in payloads],
        members.consortium.sums().round_of(batch).shape,
    )


def is_normal(values):
    """Whether the mean square of standardized noise is that of σ = 1, up to five standard errors of its third root.

    It is wrong about right noise once in a million.
    """
    spread = 2 / (9 * np.size(values))
    return abs(np.mean(np.square(values)) ** (1 / 3) - (1 - spread)) < 5 * math.sqrt(spread)


def right(asked, seed=99):
    table, y, _ = people(seed)
    return np.mean(asked.classifier.predict(table) == np.array(["no", "yes"])[y])


def packed(members, row):
    return Batch.make(members.home("aggregator").identity, members.consortium, row)


def row_of(*opened, **more):
    said = {
        "file": "opened sums",
        "format": 1,
        "release": "first",
        "people": dict.fromkeys(NAMES, PEOPLE),
        "steps": {},
    }
    said |= {"sums": [*opened], **more}
    return np.frombuffer(json.dumps(said).encode(), dtype=np.uint8)[None]


def test_three_sums_are_opened_one_after_another_and_teach_a_table(members):
    sums, collected, spent, noise = members.consortium.sums(), None, [], []
    for number in range(3):
        batch, asked = asked_by(members)
        assert asked_by(members)[0].identifier == batch.identifier
        assert asked.number == number
        cast_by_all(members, batch)
        all_ended(members, batch)
        collected: Any = members.aggregator().collect_sum(batch, members.mailbox)
        assert (collected.entities, collected.round.number) == (tuple(NAMES), number + 1)
        # Four hospitals add a share each, where two are counted on.
        sigma = sums.event_asked(asked).sigma_of_share * math.sqrt(ENTITIES)
        noise.extend(((collected.values - plain(sums, asked)) / sigma).ravel())
        spent.append(members.ledger(NAMES[0]).state().spent)
    assert is_normal(noise)
    assert right(collected.round) > 0.68
    state = members.ledger("aggregator").state()
    assert members.aggregator().ask_sum("first", members.mailbox) is None
    assert members.ledger("aggregator").state() == state
    for name in ("aggregator", *NAMES):
        ledger = members.ledger(name)
        assert [entry["kind"] for entry in ledger.export() if entry["kind"] != "bound"] == KINDS
        assert ledger.verify().spent == pytest.approx(
            ledger.account.share_of(sums.event_from(0)), rel=1e-3
        )
    assert [each / spent[-1] for each in spent[:2]] == pytest.approx([0.45, 0.7], abs=0.01)


def test_each_number_of_a_hospitals_sum_has_its_own_noise_as_wide_as_its_ledger_was_charged_for(
    members,
):
    """Differences between classes, and between numbers of a class, would lose a noise that they share."""
    (batch, asked), member = asked_by(members), members.home(NAMES[0]).identity.member
    event = members.consortium.sums().event_asked(asked)
    wider = SummedNoise(replace(event.event, sigma=3 * event.event.sigma), event.shares)
    members.consortium.boundary(members.ledger(NAMES[0]), member).reserve_once(batch, wider)
    cast_one(members, batch)
    noise = sent(members, batch, NAMES[0]) - plain(members.consortium.sums(), asked, [0])
    noise = noise / wider.sigma_of_share
    assert is_normal(noise)
    assert is_normal((noise[0] - noise[1]) / math.sqrt(2))
    assert is_normal((noise[:, 1::2] - noise[:, :-1:2]) / math.sqrt(2))
    assert not is_normal(3 * noise)  # had it been what is asked for, not what was charged


def dies(monkeypatch, send, *given):
    """Die after a batch is paid for, before what is sent is stored."""
    with monkeypatch.context() as patch:
        patch.setattr(Home, "keep", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            send(*given)


def test_people_who_withdrew_are_in_no_ballot_that_is_drawn_later(members, monkeypatch):
    (batch, asked), (X, y, ids), drawn = asked_by(members), people(0), []
    ledger, sums, honest = members.ledger(NAMES[0]), members.consortium.sums(), SharedSums.payloads

    def without(*gone):
        kept = ~np.isin(ids, gone)
        return ballots_of(
            sums, asked, {name: each[kept] for name, each in X.items()}, y[kept], ids[kept]
        ).totals

    dies(monkeypatch, cast_one, members, batch)
    spent = ledger.state().spent
    monkeypatch.setattr(
        SharedSums,
        "payloads",
        lambda *given: (is_held(ledger.path) and drawn.append(given[1])) or honest(*given),
    )
    ledger.withdraw([7])
    assert not cast_one(members, batch)  # paid for before, and never stored
    ledger.withdraw([8, 9])
    assert cast_one(members, batch)
    assert ledger.verify().spent == spent > 0
    np.testing.assert_array_equal(drawn, [without(7)])
    for release, gone in (("second", [7, 8, 9]), ("third", ids)):
        ledger.withdraw(gone)
        again = members.aggregator().ask_sum(release, members.mailbox)
        cast_one(members, again)
    np.testing.assert_array_equal(drawn[1], without(7, 8, 9))
    assert not drawn[2].any()


def test_votes_after_a_withdrawal_are_refused_and_those_that_were_stored_are_sent(
    founded_for_votes, tmp_path, monkeypatch
):
    members, name, votes = (
        founded_for_votes.copied(tmp_path),
        NAMES[0],
        unanimous(np.ones(5, dtype=int)),
    )
    stored, died, new = (members.ask(5, first=5 * number) for number in range(3))
    sent = members.send(stored, name, votes)
    dies(monkeypatch, members.send, died, name, votes)
    spent = members.ledger(name).withdraw([7]) and members.ledger(name).state().spent
    assert members.send(stored, name, votes) == sent
    for batch in (died, new):
        with pytest.raises(LedgerMismatchError, match="People have withdrawn from"):
            members.send(batch, name, votes)
    assert members.ledger(name).verify().spent == spent


def test_somebody_who_withdraws_while_ballots_are_cast_is_in_none(members, monkeypatch):
    (batch, _), ledger, begin = asked_by(members), members.ledger(NAMES[0]), Ledger.begin
    monkeypatch.setattr(Ledger, "begin", lambda *given: ledger.withdraw([7]) and begin(*given))
    with pytest.raises(LedgerMismatchError, match="repeat it"):
        cast_one(members, batch)
    assert ledger.state().spent == 0
    assert not cast_one(members, batch)


def test_terms_whose_sums_are_too_large_to_be_tested_hold_no_batch(sums):
    many = Schema({f"column {number}": (0, 1) for number in range(200)})
    large = replace(sums.terms, schema=many, people=(2**26,) * ENTITIES)
    of_few = replace(large, people=sums.terms.people)
    assert [one.most_queries() for one in (large, replace(large, size_test=False), of_few)] == [
        0,
        1,
        1,
    ]


def test_whose_ballots_are_in_a_sum_is_collected_again_if_it_is_lost(computed, tmp_path):
    members, batch = computed[0].copied(tmp_path), computed[1]
    before = members.aggregator().collect_sum(batch, members.mailbox)
    shutil.rmtree(members.folder / "aggregator" / "opened")
    with pytest.raises(StaleBatchError, match="list of hospitals"):
        asked_by(members)
    again = members.aggregator().collect_sum(batch, members.mailbox)
    np.testing.assert_array_equal(again.values, before.values)
    np.testing.assert_array_equal(
        asked_by(members)[1].opened.to_row(), before.round.opened.to_row()
    )


@pytest.mark.rest
@pytest.mark.parametrize("killed", [True, "agreeing"])
def test_a_party_killed_in_the_middle_opens_nothing_and_the_same_ballots_are_added_later(
    killed, members
):
    batch, _ = asked_by(members)
    cast_by_all(members, batch)
    running = [
        Computing(members, name, batch, killed=killed if name == "right" else False)
        for name in PARTIES
    ]
    for party in running[:2]:
        with pytest.raises(PartyLostError):
            party.outcome()
    # The parties had agreed and begun.
    assert (members.folder / "right" / "computed").exists() == (killed is True)
    with pytest.raises(QuorumError):
        members.aggregator().collect_sum(batch, members.mailbox)
    spent = [members.ledger(name).state().spent for name in ("aggregator", NAMES[0])]
    all_ended(members, batch)
    before = members.aggregator().collect_sum(batch, members.mailbox)
    all_ended(members, batch)
    np.testing.assert_array_equal(
        members.aggregator().collect_sum(batch, members.mailbox).values, before.values
    )
    assert [members.ledger(name).state().spent for name in ("aggregator", NAMES[0])] == spent


def test_the_hash_of_a_partys_shares_confirms_no_guess_of_a_hospitals_sum(members):
    """Two colluding parties hold two shares of three, the name of the splitting, and the third party's statement."""
    batch, asked = asked_by(members)
    cast_one(members, batch)
    payloads, numbers = members.payloads(batch, NAMES[0]), (math.prod(asked.shape),)
    total = open_sum([payload[HEAD_BYTES:] for payload in payloads], numbers)
    held, _ = ComputingParty(members.home(PARTIES[2]))._usable_shares(batch, members.mailbox)
    name, digest = json.loads(_statement_of(members.consortium, batch, held, None))["held"][
        NAMES[0]
    ]
    known = sum(decode(payload[HEAD_BYTES:], numbers) for payload in payloads[:2])
    share = encode((total.astype(object) - known) % MODULUS)
    salts = [payload[SPLIT_NAME_BYTES:HEAD_BYTES] for payload in payloads]
    assert len(set(salts)) == 3
    assert {len(salt) for salt in salts} == {SALT_BYTES} == {32}
    # With the third party's salt the hash is confirmed, and with nothing that the two hold.
    assert hashlib.sha256(bytes.fromhex(name) + salts[2] + share).hexdigest() == digest
    for guessed in (b"", *salts[:2], bytes(SALT_BYTES)):
        assert hashlib.sha256(bytes.fromhex(name) + guessed + share).hexdigest() != digest


@pytest.mark.rest
def test_without_a_test_of_sizes_the_parties_tell_each_other_whose_ballots_they_hold_and_nothing_else(
    tmp_path,
):
    """No share of a number passes between them, so that two of them know no more than their own shares."""
    members, folder = agreed(tmp_path, size_test=False), tmp_path / "records"
    batch, _ = asked_by(members)
    folder.mkdir()
    cast_by_all(members, batch)
    all_ended(members, batch, records=folder)
    assert not [
        name for name in PARTIES if re.search("elements|opened", (folder / name).read_text())
    ]


def test_the_sums_cost_what_those_of_a_fit_do_with_the_noise_of_the_honest(sums):
    whole = Additive(NoisySum(MULTIPLIER)).event_of_sums(sums.public(1).sizes)
    assert [one.event for one in whole.flatten()] == [one.event for one in sums.events]
    assert {one.shares for one in sums.events} == {sums.terms.honest} == {2}
    cost = data_independent.epsilon(sums.terms.scheme.event_of(), 1e-5).epsilon
    assert cost == pytest.approx(data_independent.epsilon(whole, 1e-5).epsilon, rel=1e-3)
    assert sums.terms.most_queries() == 1
    asked = first_of(sums)
    for most in sums.events:
        event = sums.event_asked(asked)
        assert (event.event.sigma, event.event.norm_squared) == (
            most.event.sigma,
            most.event.norm_squared,
        )
        assert (event.event.unit, event.event.nonnegative) == (PATIENT, most.event.nonnegative)
        assert event.variables <= most.variables
        asked = sums.round_after(asked, plain(sums, asked), NAMES)


def documented(row):
    """Return the numbers of a row of a table of docs/howto/consortium.md."""
    page = (REPOSITORY / "docs" / "howto" / "consortium.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row}")]
    return [float(cell) for cell in line.split("|")[2:-1]]


def test_the_documented_costs_are_those_of_the_terms(sums):
    costs = []
    for multiplier in (
        *documented("`noise_multiplier` |"),
        *(8 * math.sqrt(honest / 5) for honest in (5, 4, 3, 2, 1)),
    ):
        terms = replace(sums.terms, mechanism=NoisySum(multiplier))
        costs.append(
            math.ceil(data_independent.epsilon(terms.scheme.event_of(), 1e-5).epsilon * 1e4) / 1e4
        )
    assert documented("ε at δ = 1e-5, all rounds |") == costs[:6]
    assert documented("ε at δ = 1e-5, multiplier 8 |") == costs[6:]


def test_ballots_of_hospitals_add_up_to_those_of_all_and_one_person_moves_them_by_their_length(
    sums,
):
    asked, tables = first_of(sums), [people(seed) for seed in range(ENTITIES)]
    joined = {name: np.concatenate([X[name] for X, _, _ in tables]) for name in tables[0][0]}
    y = np.concatenate([each[1] for each in tables])
    ids = np.concatenate([each[2] + number * 10**6 for number, each in enumerate(tables)])
    X, labels, whose = people(0)
    for event in sums.events:
        total, own = plain(sums, asked), plain(sums, asked, [0])
        np.testing.assert_array_equal(ballots_of(sums, asked, joined, y, ids).totals, total)
        for person in (0, 1):
            mine = whose == person
            changed = {name: np.where(mine, 10**6, X[name]) for name in ("age", "hours")}
            changed["work"] = np.where(mine, "zzz", X["work"])
            other = ballots_of(sums, asked, changed, np.where(mine, 1 - labels, labels), whose)
            left = {name: cells[~mine] for name, cells in X.items()}
            gone = ballots_of(sums, asked, left, labels[~mine], whose[~mine])
            for after, factor in ((other, 2 if event.event.nonnegative else 4), (gone, 1)):
                assert 0 < ((after.totals - own) ** 2).sum() <= factor * event.event.norm_squared
        asked = sums.round_after(asked, total, NAMES)


def test_hospitals_that_answered_stand_for_all(sums):
    event = sums.events[0]
    answer = _answer(
        _OpenedSum((NAMES[2],), (7,) * event.variables), sums.beginning_of("first"), event
    )
    assert set(answer.values.ravel()) == {28}
    assert answer.sigma == pytest.approx(4 * event.sigma_of_share)


OPENED = {"entities": NAMES, "values": [0] * 166}
DAMAGED = [
    np.zeros((1, 9), dtype=np.uint8),
    row_of(file="round"),
    row_of(release=""),
    row_of(people={}),
    row_of(steps={NAMES[0]: 0}),
    row_of(steps={NAMES[0]: TIER_STEPS + 1}),
    np.repeat(row_of(OPENED), 2, axis=0),
    *(
        row_of(OPENED | {"entities": entities})
        for entities in ([*NAMES, "hospital-9"], NAMES[:1] * 2, [])
    ),
    *(row_of(OPENED | {"values": values}) for values in ([0] * 165, [2**51] * 166)),
    row_of(*[OPENED] * 3),
]


def test_a_batch_that_no_sums_lead_to_is_refused_before_anything_is_spent(members):
    members.consortium.sums().round_of(packed(members, row_of(OPENED)))  # or adapt OPENED
    (X, y, ids), entity = people(0), members.entity(NAMES[0])
    for row in DAMAGED:
        with pytest.raises(ForgedMessageError):
            entity.cast(packed(members, row), X, y, members.mailbox, entity_ids=ids)
    assert members.ledger(NAMES[0]).state().spent == 0


HUGE = 2**50 - 1


@settings(max_examples=8)
@given(st.data())
def test_no_row_makes_a_ballot_fail_whatever_an_aggregator_says_was_opened(sums, data):
    X, y, ids = people(0)
    asked = first_of(sums)
    for _ in range(data.draw(st.integers(1, 2))):
        cells = math.prod(asked.shape)
        values = data.draw(
            st.lists(st.sampled_from([0, 1, -1, 5000, HUGE, -HUGE]), min_size=cells, max_size=cells)
        )
        entities = data.draw(st.sampled_from([NAMES, NAMES[:1]]))
        try:
            asked = sums.round_after(asked, np.array(values), entities)
        except ForgedMessageError:  # before a row is read
            break
    cast = ballots_of(sums, asked, X, y, ids)
    assert cast.form == asked.request.form


NOTHING_SPENT = {
    "named columns": lambda X, y, ids: (np.column_stack([*X.values()]), y, ids),
    "no column 'hours'": lambda X, y, ids: ({"age": X["age"], "work": X["work"]}, y, ids),
    "one class index for each": lambda X, y, ids: (X, y[:-1], ids),
    "`y` must hold class indices": lambda X, y, ids: (X, y.astype(str), ids),
    "from 0 to 1": lambda X, y, ids: (X, y + 1, ids),
    "`entity_ids` must say whose row it is": lambda X, y, _: (X, y, None),
    "one id for each of the 300 rows": lambda X, y, ids: (X, y, ids[:-1]),
}


def test_rows_that_do_not_fit_are_refused_before_anything_is_spent(members):
    (batch, _), entity = asked_by(members), members.entity(NAMES[0])
    for message, change in NOTHING_SPENT.items():
        X, y, ids = change(*people(0))
        with pytest.raises(InvalidDataError, match=message):
            entity.cast(batch, X, y, members.mailbox, entity_ids=ids)
    assert members.ledger(NAMES[0]).state().spent == 0


def test_an_owner_is_told_of_odd_columns_before_anything_is_spent_and_nobody_else(
    members, monkeypatch
):
    (batch, _), (X, y, ids), entity = asked_by(members), people(0), members.entity(NAMES[0])
    told, ledger = list[tuple[str, float]](), members.ledger(NAMES[0])
    monkeypatch.setattr(
        warnings, "warn", lambda said, *_, **__: told.append((str(said), ledger.state().spent))
    )
    cast_one(members, batch, 1)
    assert told == []
    entity.cast(batch, X | {"age": 12 * X["age"]}, y, members.mailbox, entity_ids=ids)
    ((said, spent),) = told
    assert "column 'age' is often outside its range" in said
    assert spent == 0
    assert not any(
        b"often" in path.read_bytes() for path in members.folder.rglob("*") if path.is_file()
    )


def test_a_check_of_columns_that_fails_keeps_no_answer_back(members, monkeypatch):
    def failing(_given):
        raise ValueError

    monkeypatch.setattr("tutelage_consortium.entity.warnings_of_columns", failing)
    cast_one(members, asked_by(members)[0])
    assert members.ledger(NAMES[0]).state().spent > 0


def test_a_budget_without_room_for_all_sums_refuses_the_first(members):
    """Of three sums, one is worth little: nothing is begun that cannot be ended."""
    one = data_independent.epsilon(members.consortium.sums().events[0], 1e-5).epsilon
    small = Ledger.in_memory(epsilon=one * 1.2, delta=1e-5, unit=PATIENT)
    with pytest.raises(BudgetExceededError):
        Aggregator(members.home("aggregator"), small).ask_sum("first", members.mailbox)
    assert members.mailbox.batch_identifiers(members.consortium) == []
    (batch, _), (X, y, ids) = asked_by(members), people(0)
    with pytest.raises(BudgetExceededError):
        Entity(members.home(NAMES[0]), small).cast(batch, X, y, members.mailbox, entity_ids=ids)
    assert small.state().spent == 0


def test_votes_and_sums_are_not_mixed(members, founded_for_votes, tmp_path):
    (batch, _), (X, y, ids) = asked_by(members), people(0)
    votes = founded_for_votes.copied(tmp_path / "votes")
    with pytest.raises(FederationError, match="about sums of ballots"):
        members.entity(NAMES[0]).vote(batch, np.zeros((1, 1), dtype=int), members.mailbox)
    with pytest.raises(FederationError, match="Use `collect_sum`"):
        members.aggregator().collect(batch, members.mailbox)
    with pytest.raises(FederationError, match="Use `ask_sum` with the name of a release"):
        members.aggregator().ask(np.zeros((9, 3)), members.mailbox)
    with pytest.raises(FederationError, match="ask for votes"):
        votes.entity(NAMES[0]).cast(votes.ask(5), X, y, votes.mailbox, entity_ids=ids)


def test_a_last_sum_says_how_good_the_student_is_on_the_people_of_the_hospitals_that_answered(sums):
    with_report = Sums(replace(sums.terms, report=True), sums.mechanism)
    assert len(with_report.events) == len(sums.events) + 1
    assert with_report.events[:-1] == sums.events
    answered = [0, 1]
    asked = first_of(with_report)
    for _ in with_report.events:
        assert asked.report is None
        total = plain(with_report, asked, answered)
        asked = with_report.round_after(asked, total, [NAMES[number] for number in answered])
    tables = [people(number) for number in answered]
    right, n_people = [], 0
    for X, labels, ids in tables:
        predicted = np.searchsorted(sorted(sums.terms.classes), asked.classifier.predict(X))
        order = np.argsort(np.argsort(sums.terms.classes))  # of the terms, in sorted order
        right += [predicted[ids == person] == order[labels[ids == person]] for person in set(ids)]
        n_people += len(set(ids))
    assert asked.report is not None
    found: Any = asked.report.quality()
    (everybody,) = found.groups
    assert everybody.people.value == pytest.approx(n_people, rel=0.01)
    accuracy = np.mean([rows.mean() for rows in right])
    assert everybody.accuracy.value == pytest.approx(accuracy, abs=0.01)


def test_terms_with_a_report_are_stored_and_others_are_as_before(sums, tmp_path):
    terms = sums.terms
    assert "report" not in terms.as_dict()
    tested = replace(terms, report=True)
    assert tested.fingerprint != terms.fingerprint
    tested.save(tmp_path / "terms.json")
    assert Consortium.load(tmp_path / "terms.json").report


HALF = (TIER_STEPS, TIER_STEPS // 2, TIER_STEPS, TIER_STEPS)


@pytest.fixture(scope="module")
def sums_in_steps(sums):
    return replace(sums.terms, steps=HALF).sums()


def test_a_hospital_with_ballots_of_half_the_length_is_charged_a_quarter(sums, sums_in_steps):
    scheme = sums_in_steps.terms.scheme
    for name, share in zip(NAMES, (1, 1 / 4, 1, 1), strict=True):
        event = scheme.event_of(None, name)
        costs = [data_independent.rdp(one).values for one in (event, sums.terms.scheme.event_of())]
        np.testing.assert_allclose(costs[0], share * costs[1], rtol=1e-3)
    assert scheme.event_of(None, NAMES[0]) == scheme.event_of()
    assert sums_in_steps.terms.fingerprint == sums.terms.fingerprint
    assert sums_in_steps.terms.roster_hash != sums.terms.roster_hash
    assert sums_in_steps.terms.most_queries() == 1


@pytest.mark.parametrize("number", range(2))
def test_one_person_moves_a_shortened_sum_by_the_length_that_the_hospital_is_charged_for(
    sums_in_steps, number
):
    """Every round, after true sums of the rounds before; the bound of a hospital with whole ballots is twice as far."""
    asked = first_of(sums_in_steps)
    X, y, ids = people(number)
    steps = asked.opened.steps_of(NAMES[number])
    while asked.number < 3:
        event = sums_in_steps.event_asked(asked, NAMES[number]).event
        own = steps * ballots_of(sums_in_steps, asked, X, y, ids).totals
        furthest = 0.0
        for person in range(8):
            stay = ids != person
            gone = steps * ballots_of(sums_in_steps, asked, X, y, ids, stay).totals
            furthest = max(furthest, float(((gone - own) ** 2).sum()))
        assert 0.2 * event.norm_squared < furthest <= event.norm_squared
        total = sum(
            asked.opened.steps_of(name) * plain(sums_in_steps, asked, [each])
            for each, name in enumerate(NAMES)
        )
        asked = sums_in_steps.round_after(asked, total, NAMES)


@pytest.mark.parametrize("answered", [[0, 1, 2, 3], [1], [1, 2]])
def test_shortened_ballots_stand_for_whole_ones_of_all_hospitals_with_more_noise(
    sums, sums_in_steps, answered
):
    """If all hospitals have the same people, what is learned of them is the same, whoever answered."""
    names = [NAMES[number] for number in answered]
    ballots = plain(sums, first_of(sums), [0]).ravel()
    values, noise = [], []
    for one in (sums, sums_in_steps):
        opened = one.beginning_of("first")
        weights = [opened.steps_of(name) for name in names]
        sum_of_all = _OpenedSum(tuple(names), tuple((sum(weights) * ballots).tolist()))
        event = one.event_of_request(first_of(one).request, opened)
        answer = _answer(sum_of_all, opened, event)
        values.append(answer.values.ravel())
        noise.append(answer.sigma)
    np.testing.assert_array_equal(values[0], values[1])
    lengths = [HALF[number] / TIER_STEPS for number in answered]
    assert noise[1] == pytest.approx(noise[0] * len(answered) / sum(lengths))


def test_a_report_counts_people_of_a_hospital_with_short_ballots_by_their_length(sums):
    tested = replace(sums.terms, report=True, steps=HALF).sums()
    asked = first_of(tested)
    for _ in tested.events:
        total = sum(
            asked.opened.steps_of(name) * plain(tested, asked, [number])
            for number, name in enumerate(NAMES)
        )
        asked = tested.round_after(asked, total, NAMES)
    found: Any = asked.report.quality()
    assert found.groups[0].people.value == pytest.approx(3.5 * PEOPLE, rel=0.01)
    interval = found.groups[0].accuracy
    assert 0.02 < interval.high - interval.low < 0.2  # of 700 people, not of 700,000 steps


def test_a_hospital_with_short_ballots_sends_and_pays_for_them(tmp_path):
    members, noise = agreed(tmp_path, steps=HALF), []
    sums = members.consortium.sums()
    collected: Any = None
    for _ in range(3):
        batch, asked = asked_by(members)
        cast_by_all(members, batch)
        all_ended(members, batch)
        for number, name in enumerate(NAMES):
            own = asked.opened.steps_of(name) * plain(sums, asked, [number])
            sigma = sums.event_asked(asked, name).sigma_of_share
            noise.append(((sent(members, batch, name) - own) / sigma).ravel())
        collected = members.aggregator().collect_sum(batch, members.mailbox)
        assert collected.entities == tuple(NAMES)
    assert is_normal(np.concatenate(noise))
    assert right(collected.round) > 0.68
    for name in ("aggregator", *NAMES):
        ledger = members.ledger(name)
        assert ledger.verify().spent == pytest.approx(
            ledger.account.share_of(sums.event_from(0, name)), rel=1e-3
        )
    spent = [members.ledger(name).state().spent for name in NAMES]
    assert spent[1] / spent[0] == pytest.approx(1 / 4, rel=0.01)


def test_ballots_of_another_length_than_in_an_accepted_roster_are_refused(members):
    batch = packed(members, row_of(steps=dict(zip(NAMES, HALF, strict=True))))
    (X, y, ids), entity = people(0), members.entity(NAMES[0])
    with pytest.raises(StaleBatchError, match="lengths of ballots than any roster"):
        entity.cast(batch, X, y, members.mailbox, entity_ids=ids)
    assert members.ledger(NAMES[0]).state().spent == 0


@pytest.mark.parametrize("steps", [(5, 5), (0, 5, 5, 5), (5, 5, 5, TIER_STEPS + 1)])
def test_lengths_of_ballots_that_cannot_be_are_refused(sums, steps):
    with pytest.raises(InvalidParameterError, match="`steps` of Consortium must"):
        replace(sums.terms, steps=steps)


def test_terms_with_shorter_ballots_are_stored_and_others_are_as_before(
    sums, sums_in_steps, tmp_path
):
    assert "steps" not in sums.terms.as_dict()
    sums_in_steps.terms.save(tmp_path / "terms.json")
    assert Consortium.load(tmp_path / "terms.json").steps == HALF
