"""Sums of ballots between hospitals: what is opened, what it costs, and what happens when somebody dies or lies."""

import math
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import REPOSITORY
from consortia import PARTIES, PATIENT, Computing, all_ended, compute, found, unanimous
from tutelage.accounting import data_independent
from tutelage.events import Composed, NoisySumGaussian, SummedNoise
from tutelage.exceptions import (
    BudgetExceededError,
    FederationError,
    ForgedMessageError,
    InvalidDataError,
    LedgerMismatchError,
    PartyLostError,
    QuorumError,
    StaleBatchError,
)
from tutelage.federation import Batch, Entity, Home
from tutelage.federation.entity import ballots_of
from tutelage.federation.mailbox import Kind
from tutelage.federation.sharing import HEAD_BYTES, SPLIT_NAME_BYTES, added, decode, encode, split
from tutelage.federation.sums import SharedSums
from tutelage.ledger import Ledger
from tutelage.ledger.turns import is_held
from tutelage.mechanisms import GNMax, NoisySum
from tutelage.noise import SimulationNoise
from tutelage.privacy import NeighboringRelation, PrivacyUnit
from tutelage.students import Moments
from tutelage.teachers import VectorBallots

ENTITIES, ROWS, PEOPLE, CLASSES = 4, 400, 267, 10  # two classes occur
MULTIPLIER = 1.0
NAMES = [f"hospital-{number}" for number in range(ENTITIES)]
TEACHER = VectorBallots(n_landmarks=40)
ROW = PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW)
TERMS = {"teachers_per_entity": 1, "teacher": TEACHER, "people": (PEOPLE,) * ENTITIES, "n_classes": CLASSES}


def people(seed, rows=ROWS):
    """Return rows, classes and ids; every second person has two rows."""
    X = np.random.default_rng(seed).normal(size=(rows, 4))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int), np.arange(rows) * 2 // 3


X_PUBLIC, Y_PUBLIC, _ = people(99, 300)


def agreed(folder, multiplier=MULTIPLIER, epsilon=40.0, **terms):
    return found(folder, NoisySum(multiplier), entities=ENTITIES, epsilon=epsilon, **TERMS | terms)


@pytest.fixture
def members(tmp_path):
    return agreed(tmp_path)


def numbers_in(members, batch):
    return members.consortium.sums().round_of(batch).coef.size


def asked(members):
    batch = members.aggregator().ask(X_PUBLIC, members.mailbox).batch
    assert batch is not None
    return batch


def cast(members, batch, number):
    X, y, ids = people(number)
    return members.entity(NAMES[number]).cast(batch, X, y, members.mailbox, entity_ids=ids)


def cast_by(members, batch, numbers: Iterable[int] = range(ENTITIES)):
    for number in numbers:
        cast(members, batch, number)


def plain(members, batch, numbers: Iterable[int] = range(ENTITIES)) -> np.ndarray:
    """Return the sum of the ballots without noise, as nobody in the consortium ever sees it."""
    terms, rounds = members.consortium, members.consortium.sums().round_of(batch)
    return np.sum([ballots_of(terms.scheme, rounds, *people(number)).totals for number in numbers], axis=0)


def sent(members, batch, name):
    """Return what all three computing parties together would open of one hospital."""
    payloads = members.payloads(batch, name)
    assert len({payload[:SPLIT_NAME_BYTES] for payload in payloads}) == 1
    return added([payload[HEAD_BYTES:] for payload in payloads], (CLASSES, numbers_in(members, batch) // CLASSES))


def share_of(members, batch):
    number = members.consortium.sums().round_of(batch).number
    return members.consortium.sums().event_of_round(number, numbers_in(members, batch)).sigma_of_share


def is_normal(values):
    """Whether the mean square of standardized noise is that of σ = 1, up to 4.5 standard errors."""
    return abs(np.mean(np.square(values)) - 1) < 4.5 * math.sqrt(2 / np.size(values))


def test_two_rounds_open_the_noisy_sums_and_teach_a_student(members):
    identifiers, collected = set(), None
    for number in range(2):
        batch = asked(members)
        assert members.consortium.sums().round_of(batch).number == number
        assert asked(members).identifier == batch.identifier
        cast_by(members, batch)
        all_ended(members, batch)
        collected = members.aggregator().collect_sum(batch, members.mailbox)
        assert collected.entities == tuple(NAMES)
        assert collected.rounds_left == 1 - number
        # Four hospitals add a share each, where three are counted on.
        noise = (collected.values - plain(members, batch)) / (share_of(members, batch) * math.sqrt(ENTITIES))
        assert is_normal(noise)
        assert not is_normal(noise * 2)
        assert not is_normal(noise / 2)
        again = members.aggregator().collect_sum(batch, members.mailbox)
        np.testing.assert_array_equal(again.values, collected.values)
        identifiers.add(batch.identifier)
    assert collected is not None
    assert len(identifiers) == 2
    assert np.mean(collected.round.classifier.predict(X_PUBLIC) == Y_PUBLIC) > 0.9
    state = members.ledger("aggregator").state()
    assert members.aggregator().ask(X_PUBLIC, members.mailbox).batch is None
    assert members.ledger("aggregator").state() == state
    numbers = collected.values.size
    whole = Composed(tuple(members.consortium.sums().event_of_round(number, numbers) for number in range(2)))
    for name in ("aggregator", "hospital-0"):
        ledger = members.ledger(name)
        assert ledger.state().unsettled == 0
        assert ledger.state().spent == pytest.approx(ledger.share_of(whole), rel=1e-6)
        ledger.verify()
    kinds = [entry["kind"] for entry in members.ledger("aggregator").export()]
    assert kinds == ["opened", *["reserved", "answered"] * 2]


def test_a_hospital_draws_the_noise_that_its_ledger_was_charged_for(members, monkeypatch):
    batch, member = asked(members), members.home(NAMES[0]).identity.member
    event = members.consortium.sums().event_of_round(0, numbers_in(members, batch))
    wider = SummedNoise(replace(event.event, sigma=3 * event.event.sigma), event.shares)
    monkeypatch.setattr(SharedSums, "event_of", lambda *_: wider)
    members.consortium.reserve(members.ledger(NAMES[0]), batch, member, 1)
    monkeypatch.undo()
    cast(members, batch, 0)
    noise = sent(members, batch, NAMES[0]) - plain(members, batch, [0])
    assert is_normal(noise / wider.sigma_of_share)
    assert not is_normal(noise / event.sigma_of_share)


def killed(monkeypatch, send, *given):
    """Die after a batch is paid for, before what is sent is stored."""
    with monkeypatch.context() as patch:
        patch.setattr(Home, "keep", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            send(*given)


def test_people_who_withdrew_are_in_no_ballot_that_is_drawn_later(members, monkeypatch):
    batch, (X, y, ids), drawn = asked(members), people(0), []
    ledger, sums, honest = members.ledger(NAMES[0]), members.consortium.sums(), SharedSums.payloads

    def without(*gone):
        kept = ~np.isin(ids, gone)
        return ballots_of(sums, sums.round_of(batch), X[kept], y[kept], ids[kept]).totals

    killed(monkeypatch, cast, members, batch, 0)
    spent = ledger.state().spent
    monkeypatch.setattr(
        SharedSums, "payloads", lambda *given: (is_held(ledger.path) and drawn.append(given[1])) or honest(*given)
    )
    ledger.withdraw([7])
    first = cast(members, batch, 0)  # paid for before, and never stored
    ledger.withdraw([8, 9])
    assert cast(members, batch, 0) == first._replace(repeated=True)
    assert ledger.verify().spent == spent > 0
    np.testing.assert_array_equal(drawn, [without(7)])
    batch = members.aggregator().ask(X_PUBLIC[1:], members.mailbox).batch
    cast(members, batch, 0)
    np.testing.assert_array_equal(drawn[1], without(7, 8, 9))
    ledger.withdraw(ids)
    cast(members, members.aggregator().ask(X_PUBLIC[2:], members.mailbox).batch, 0)
    assert not drawn[2].any()


def test_votes_after_a_withdrawal_are_refused_and_those_that_were_stored_are_sent(tmp_path, monkeypatch):
    members, name, votes = found(tmp_path, GNMax(8.0)), NAMES[0], unanimous(np.ones(5, dtype=int))
    stored, died, new = (members.ask(5, first=5 * number) for number in range(3))
    sent = members.send(stored, name, votes)
    killed(monkeypatch, members.send, died, name, votes)
    spent = members.ledger(name).withdraw([7]) and members.ledger(name).state().spent
    assert members.send(stored, name, votes) == sent
    for batch in (died, new):
        with pytest.raises(LedgerMismatchError, match="People have withdrawn from"):
            members.send(batch, name, votes)
    assert members.ledger(name).verify().spent == spent


def test_somebody_who_withdraws_while_ballots_are_cast_is_in_none(members, monkeypatch):
    batch, ledger, leave_out = asked(members), members.ledger(NAMES[0]), Ledger.leave_out
    monkeypatch.setattr(Ledger, "leave_out", lambda *given: ledger.withdraw([7]) and leave_out(*given))
    with pytest.raises(LedgerMismatchError, match="repeat it"):
        cast(members, batch, 0)
    assert ledger.state().spent == 0
    assert not cast(members, batch, 0).repeated


@pytest.mark.rest
def test_a_hospital_that_missed_a_round_takes_part_in_the_next(members):
    first = asked(members)
    cast_by(members, first, [0, 1, 2])
    compute(members, first)
    with pytest.raises(StaleBatchError, match="computed already, without hospital-3"):
        cast(members, first, 3)
    collected = members.aggregator().collect_sum(first, members.mailbox)
    assert (collected.entities, collected.rounds_left) == (tuple(NAMES[:3]), 1)
    noise = (collected.values - plain(members, first, [0, 1, 2])) / (share_of(members, first) * math.sqrt(3))
    assert is_normal(noise)
    second = asked(members)
    cast_by(members, second)
    compute(members, second)
    collected = members.aggregator().collect_sum(second, members.mailbox)
    assert collected.entities == tuple(NAMES)
    assert collected.round.people == 3 * PEOPLE
    spent = [members.ledger(name).state().spent for name in NAMES]
    assert spent[3] == pytest.approx(0.3 * spent[0], rel=1e-6)  # what the second round takes
    assert np.mean(collected.round.classifier.predict(X_PUBLIC) == Y_PUBLIC) > 0.9


def test_whose_ballots_are_in_a_sum_is_collected_again_if_it_is_lost(members):
    batch = asked(members)
    cast_by(members, batch)
    compute(members, batch)
    before = members.aggregator().collect_sum(batch, members.mailbox)
    shutil.rmtree(members.folder / "aggregator" / "opened")
    with pytest.raises(StaleBatchError, match="list of hospitals"):
        asked(members)
    np.testing.assert_array_equal(members.aggregator().collect_sum(batch, members.mailbox).values, before.values)
    np.testing.assert_array_equal(members.consortium.sums().round_of(asked(members)).coef, before.round.coef)


@pytest.mark.rest
@pytest.mark.parametrize("killed", [True, "agreeing"])
def test_a_party_killed_in_the_middle_opens_nothing_and_the_same_ballots_are_added_later(killed, members):
    batch = asked(members)
    cast_by(members, batch)
    running = [Computing(members, name, batch, killed=killed if name == "right" else False) for name in PARTIES]
    for party in running[:2]:
        with pytest.raises(PartyLostError):
            party.outcome()
    with pytest.raises(QuorumError):
        members.aggregator().collect_sum(batch, members.mailbox)
    spent = [members.ledger(name).state().spent for name in ("aggregator", NAMES[0])]
    all_ended(members, batch)
    before = members.aggregator().collect_sum(batch, members.mailbox)
    all_ended(members, batch)
    np.testing.assert_array_equal(members.aggregator().collect_sum(batch, members.mailbox).values, before.values)
    assert [members.ledger(name).state().spent for name in ("aggregator", NAMES[0])] == spent


def test_shares_that_do_not_belong_together_open_nothing(members):
    batch = asked(members)
    cast_by(members, batch)
    compute(members, batch)
    (place,) = (members.mailbox.folder / "labels" / batch.identifier).glob("middle.*")
    head = members.opened(batch, "middle", "aggregator", place.read_bytes(), Kind.LABELS).partition(b"\n")[0]
    false = split(np.zeros(numbers_in(members, batch), dtype=np.int64))[0]
    place.write_bytes(members.sealed(batch, Kind.LABELS, "middle", "aggregator", head + b"\n" + false))
    with pytest.raises(ForgedMessageError, match="open to no sum of ballots"):
        members.aggregator().collect_sum(batch, members.mailbox)


NOTHING_SPENT = {
    "other columns": (lambda X, y, ids: (X[:, :3], y, ids), r"must be numbers of shape \(rows, 4\)"),
    "no rows": (lambda X, y, ids: (X[:0], y[:0], ids[:0]), "`X` must be private rows"),
    "fewer labels": (lambda X, y, ids: (X, y[:-1], ids), "one class index for each"),
    "names of classes": (lambda X, y, ids: (X, y.astype(str), ids), "`y` must hold class indices"),
    "another class": (lambda X, y, ids: (X, y + 9, ids), "from 0 to 9"),
    "nobody's rows": (lambda X, y, ids: (X, y, None), "`entity_ids` must say whose row it is: the terms protect one"),
    "fewer ids": (lambda X, y, ids: (X, y, ids[:-1]), "one id for each of the 400 rows"),
    "missing values": (lambda X, y, ids: (np.where(X > 2, np.nan, X), y, ids), "must hold finite numbers"),
}


@pytest.mark.parametrize("what", NOTHING_SPENT)
def test_rows_that_do_not_fit_are_refused_before_anything_is_spent(what, members):
    change, message = NOTHING_SPENT[what]
    X, y, ids = change(*people(0))
    with pytest.raises(InvalidDataError, match=message):
        members.entity(NAMES[0]).cast(asked(members), X, y, members.mailbox, entity_ids=ids)
    assert members.ledger(NAMES[0]).state().spent == 0


ODD = {
    "units": (lambda X: X * [1, 1000, 1, 1], "column 'column 1' is about "),
    "scaler": (lambda X: (X - X.mean(axis=0)) / X.std(axis=0), "A scaler seems to have been fitted on private rows"),
    "range": (lambda X: np.add(X, [0, 0, 40, 0]), "column 'column 2' is about"),
    "nothing": (lambda X: X, None),
}


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("what", ODD)
def test_an_owner_is_told_of_odd_columns_before_anything_is_spent_and_nobody_else(what, scaled, members, monkeypatch):
    change, said = ODD[what]
    sizes = np.array([1, 1, 1, 500 if scaled else 1])  # with which the map begins with a scaling
    batch = members.aggregator().ask(X_PUBLIC * sizes, members.mailbox).batch
    assert len(members.consortium.sums().round_of(batch).features) == 3 + scaled
    (X, y, ids), name, spent = people(0), NAMES[0], []
    X = change(X) * (1 if what == "scaler" else sizes)
    monkeypatch.setattr(warnings, "warn", lambda *_, **__: spent.append(members.ledger(name).state().spent))
    members.entity(name).cast(batch, X, y, members.mailbox, entity_ids=ids)
    assert set(spent) == ({0} if said else set())
    monkeypatch.undo()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("error")  # which may not make a hospital fail
        members.entity(name).cast(batch, X, y, members.mailbox, entity_ids=ids)
    assert said is None or any(said in str(one.message) for one in told)
    assert bool(told) == (said is not None)
    for path in [*members.mailbox.folder.rglob("*"), *(members.folder / name).rglob("*")]:
        assert not path.is_file() or b"private rows" not in path.read_bytes().lower()


def test_a_budget_without_room_for_all_rounds_refuses_the_first(tmp_path):
    """Of a sum in two rounds, one is worth little: nothing is begun that cannot be ended."""
    members = agreed(tmp_path)
    one = data_independent.epsilon(members.consortium.sums().event_of_round(0, 82), 1e-5).epsilon
    two = members.consortium.epsilon_of_queries(1, 1e-5).epsilon
    batch, (X, y, ids) = asked(members), people(0)
    small = Ledger.in_memory(epsilon=(one + two) / 2, delta=1e-5, unit=PATIENT)
    with pytest.raises(BudgetExceededError):
        Entity(members.home(NAMES[0]), small).cast(batch, X, y, members.mailbox, entity_ids=ids)
    assert small.state().spent == 0
    (members.folder / "aggregator" / "ledger").unlink()
    Ledger.create(members.folder / "aggregator" / "ledger", epsilon=(one + two) / 2, delta=1e-5, unit=PATIENT)
    with pytest.raises(BudgetExceededError):
        members.aggregator().ask(X_PUBLIC + 1, members.mailbox)
    assert members.mailbox.batch_identifiers() == [batch.identifier]


def test_votes_and_sums_are_not_mixed(members, tmp_path):
    batch, (X, y, ids) = asked(members), people(0)
    with pytest.raises(FederationError, match="about sums of ballots"):
        members.entity(NAMES[0]).vote(batch, np.zeros((1, 1), dtype=int), members.mailbox)
    with pytest.raises(FederationError, match="Use `collect_sum`"):
        members.aggregator().collect(batch, members.mailbox)
    votes = found(tmp_path / "votes", GNMax(8.0))
    counted = votes.ask(5)
    with pytest.raises(FederationError, match="are about votes"):
        votes.entity(NAMES[0]).cast(counted, X, y, votes.mailbox, entity_ids=ids)
    with pytest.raises(FederationError, match="are about votes"):
        votes.aggregator().collect_sum(counted, votes.mailbox)


def test_a_round_comes_back_from_its_batch(members):
    batch = asked(members)
    first = members.consortium.sums().round_of(batch)
    assert first.earlier == ()
    second = members.consortium.sums().round_after(first, plain(members, batch), NAMES)
    packed = Batch.make(members.home("aggregator").identity, members.consortium, second.to_row())
    read = members.consortium.sums().round_of(packed)
    assert (read.number, read.people, read.radius) == (1, ENTITIES * PEOPLE, second.radius)
    np.testing.assert_array_equal(read.coef, second.coef)
    np.testing.assert_array_equal(read.features.transform(X_PUBLIC), first.seen)
    np.testing.assert_array_equal(read.earlier[0].values, second.earlier[0].values)
    np.testing.assert_array_equal(read.to_row(), second.to_row())
    assert np.mean(read.classifier.predict(X_PUBLIC) == Y_PUBLIC) > 0.9


def damaged_rounds(members):
    first = members.consortium.sums().round_of(asked(members))
    row, (numbers, _) = first.to_row(), first.coef.shape
    moments = Moments(np.zeros((CLASSES, numbers)), 1.0, 1.0)

    def swapped(old, new):
        return np.frombuffer(row.tobytes().replace(old, new), np.uint8)[None]

    yield "cut short", row[:, :-8]
    yield "longer", np.concatenate([row, row[:, :8]], axis=1)
    yield "no bytes", row.astype(np.int64)
    yield "two rows", np.repeat(row, 2, axis=0)
    yield "no header", row[:, 100:]
    yield "an unknown map", swapped(b"PublicKernel", b"PublicXernel")
    yield "another file", swapped(b'"round"', b'"rouns"')
    yield "a shape of nothing", swapped(b'["radius",[]]', b'["radius",[0]]')
    yield "more classes", replace(first, coef=np.zeros((numbers, CLASSES + 1))).to_row()
    yield "more numbers", replace(first, coef=np.zeros((TEACHER.n_landmarks + 2, CLASSES))).to_row()
    yield "not finite", replace(first, coef=np.full((numbers, CLASSES), np.nan)).to_row()
    yield "no radius", replace(first, radius=0.0).to_row()
    yield "a round too many", replace(first, earlier=(moments, moments)).to_row()
    yield "sums of another shape", replace(first, earlier=(moments._replace(values=np.zeros((3, 3))),)).to_row()


def test_a_batch_that_holds_no_round_is_refused_before_anything_is_spent(members):
    identity, (X, y, ids) = members.home("aggregator").identity, people(0)
    for what, row in damaged_rounds(members):
        batch = Batch.make(identity, members.consortium, row)
        with pytest.raises(ForgedMessageError, match="no round of a sum"):
            members.entity(NAMES[0]).cast(batch, X, y, members.mailbox, entity_ids=ids)
        assert members.ledger(NAMES[0]).state().spent == 0, what


def test_the_event_has_the_noise_of_the_honest(members):
    terms = members.consortium
    event = terms.sums().event_of_round(0, 82)
    assert isinstance(event, SummedNoise)
    assert (event.shares, event.variables, event.unit) == (2, 82, PATIENT)
    assert event.event == NoisySumGaussian(MULTIPLIER / math.sqrt(0.7) * TEACHER.norm, TEACHER.norm**2, 82, PATIENT)
    # Two rounds cost what one sum with the terms' noise does.
    one = data_independent.epsilon(NoisySumGaussian(MULTIPLIER * TEACHER.norm, TEACHER.norm**2, 82, PATIENT), 1e-5)
    assert terms.epsilon_of_queries(1, 1e-5).epsilon == pytest.approx(one.epsilon, rel=1e-3)
    assert terms.epsilon_of_queries(1, 1e-5).epsilon < 12
    assert terms.most_queries() == 1


@pytest.mark.rest
def test_the_parties_tell_each_other_whose_ballots_they_hold_and_nothing_else(members, tmp_path):
    """No share of a number passes between them, so that two of them know no more than their own shares."""
    batch, folder = asked(members), tmp_path / "transcripts"
    folder.mkdir()
    cast_by(members, batch)
    all_ended(members, batch, transcripts=folder)
    for name in PARTIES:
        seen = (folder / name).read_text()
        assert "elements" not in seen
        assert "opened" not in seen


def documented(row):
    """Return the numbers of a row of a table of docs/federation.md."""
    page = (REPOSITORY / "docs" / "federation.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row}")]
    return [float(cell) for cell in line.split("|")[2:-1]]


def test_the_documented_costs_are_those_of_the_terms(members):
    multipliers = documented("`noise_multiplier` |")
    assert multipliers == [64, 32, 16, 8, 4, 2]
    terms = [replace(members.consortium, mechanism=NoisySum(each)) for each in multipliers]
    found = [each.epsilon_of_queries(1, 1e-5).epsilon for each in terms]
    assert documented("ε at δ = 1e-5, all rounds |") == [math.ceil(each * 1e4) / 1e4 for each in found]
    left = [replace(members.consortium, mechanism=NoisySum(8 * math.sqrt(j / 5))) for j in (5, 4, 3, 2, 1)]
    found = [each.epsilon_of_queries(1, 1e-5).epsilon for each in left]
    assert documented("ε at δ = 1e-5, multiplier 8 |") == [math.ceil(each * 1e4) / 1e4 for each in found]


def test_what_colluders_leave_is_noise_enough_and_shares_for_everybody_are_not(members):
    """Seeded. A colluder subtracts its own share. Planted fault: shares that are sized for all who answer."""
    event = members.consortium.sums().event_of_round(0, 20_000)

    def left(shares):
        sigma = replace(event, shares=shares).sigma_of_share
        drawn = SimulationNoise(3).discrete_gaussian(sigma, (3, 20_000))  # of a quorum of 3, one colludes
        return (drawn.sum(axis=0) - drawn[2]) / event.event.sigma

    assert is_normal(left(members.consortium.honest))
    assert not is_normal(left(members.consortium.quorum))


@given(st.lists(st.lists(st.integers(-(2**61), 2**61), min_size=3, max_size=3), min_size=1, max_size=3))
def test_additive_shares_of_several_open_to_their_sum_alone(values):
    parts = [split(np.array(value), summed=True) for value in values]
    totals = [encode(np.sum([decode(share, (3,)) for share in shares], axis=0)) for shares in zip(*parts, strict=True)]
    expected = [sum(column) for column in zip(*values, strict=True)]
    if max(map(abs, expected)) < 2**62:
        assert added(totals, (3,)).tolist() == expected
