import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from consortia import CLASSES, TEACHERS, found, unanimous
from processes import die_at_line, ended, forked
from tutelage.exceptions import (
    FederationError,
    InvalidDataError,
    LedgerMismatchError,
    StaleBatchError,
)
from tutelage.ledger import Ledger
from tutelage.mechanisms import ConfidentGNMax, GNMax
from tutelage.noise import SystemNoise
from tutelage.privacy import ONE_TEACHER
from tutelage_consortium import Aggregator, Batch, Entity, Home, Mailbox, Role
from tutelage_consortium.messages import Kind
from tutelage_consortium.sharing import HEAD_BYTES, MODULUS, SPLIT_NAME_BYTES, decode

LABELS = np.array([0, 1, 2, 1, 0, 2])


@pytest.fixture(scope="module")
def founded(tmp_path_factory):
    return found(tmp_path_factory.mktemp("founded"))


@pytest.fixture
def members(founded, tmp_path):
    return founded.copied(tmp_path)


def noised(members, batch, name, blocks=1):
    """What all three computing parties together would see of one entity."""
    shape = (blocks, batch.n_queries, CLASSES)
    total = (
        sum(decode(payload[HEAD_BYTES:], shape) for payload in members.payloads(batch, name))
        % MODULUS
    )
    return np.where(total > MODULUS // 2, total - MODULUS, total).astype(int)


def test_a_batch_is_paid_for_once_and_its_envelopes_stay_the_same(members):
    batch = members.ask(len(LABELS))
    first = members.send(batch, "hospital-0", unanimous(LABELS))
    state = members.ledger("hospital-0").state()
    assert (state.spent > 0, state.unsettled) == (True, 0)
    # Votes cannot change.
    assert members.send(batch, "hospital-0", unanimous(LABELS[::-1])) == first
    assert members.ledger("hospital-0").state() == state


def test_the_check_of_confident_votes_carries_one_noise_per_query(tmp_path):
    members = found(tmp_path, ConfidentGNMax(60.0, 100.0, 50.0))
    batch = members.ask(300)
    members.send(batch, "hospital-0", unanimous(np.zeros(300, dtype=int)))
    votes, check = noised(members, batch, "hospital-0", blocks=2) - np.array([TEACHERS, 0, 0])
    assert np.all(check == check[:, :1])
    assert abs(check[:, 0].std() / (100 / np.sqrt(2)) - 1) < 0.2
    assert abs(votes.std() / (50 / np.sqrt(2)) - 1) < 0.15
    assert abs(np.corrcoef(votes[:, 0], check[:, 0])[0, 1]) < 0.3


def test_ballots_that_do_not_fit_are_refused_and_cost_nothing(members):
    batch, entity = members.ask(6), members.entity("hospital-0")
    for ballots, message in (
        (np.zeros((2, 5), dtype=int), "of shape .teachers, 6., one column per query"),
        (np.zeros((2, 6)), "whole numbers"),
        (np.zeros((26, 6), dtype=int), "of 1 to 25 teachers"),
        (np.full((2, 6), 3), "class index below 3"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            entity.vote(batch, ballots, members.mailbox)
    assert members.ledger("hospital-0").state().spent == 0


def test_noise_is_never_drawn_anew_for_a_batch_whose_envelopes_are_lost(members):
    batch, votes = members.ask(6), members.folder / "hospital-0" / "votes"
    members.send(batch, "hospital-0", unanimous(LABELS))
    for path in votes.glob("*/*"):
        path.unlink()
    with pytest.raises(StaleBatchError, match="does not contain the stored"):
        members.send(batch, "hospital-0", unanimous(LABELS))
    shutil.rmtree(votes)
    with pytest.raises(
        StaleBatchError, match="new ones would hold fresh noise, which is another release"
    ):
        members.send(batch, "hospital-0", unanimous(LABELS))


def test_a_share_whose_draw_fails_stays_spent_and_is_never_drawn_again(members, monkeypatch):
    batch = members.ask(6)
    with monkeypatch.context() as patch:
        patch.setattr(SystemNoise, "discrete_gaussian", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            members.send(batch, "hospital-0", unanimous(LABELS))
    state = members.ledger("hospital-0").state()
    assert (state.spent > 0, state.unsettled) == (True, 0)
    with pytest.raises(StaleBatchError, match="fresh noise"):
        members.send(batch, "hospital-0", unanimous(LABELS))
    assert members.ledger("hospital-0").state() == state


def test_a_ledger_of_another_unit_and_a_member_of_another_role_are_refused(members, tmp_path):
    other = Ledger.create(tmp_path / "other", epsilon=1.0, delta=1e-5, unit=ONE_TEACHER)
    with pytest.raises(LedgerMismatchError, match="the consortium one 'patient'"):
        Entity(members.home("hospital-0"), other)
    with pytest.raises(
        FederationError, match="aggregator is the aggregator, but only an entity can"
    ):
        Entity(members.home("aggregator"), members.ledger("aggregator"))


def test_a_ledger_belongs_to_the_member_that_it_was_made_for_or_that_it_first_paid_for(
    members, tmp_path
):
    first = Ledger.create(
        tmp_path / "first", epsilon=20.0, delta=1e-5, unit=members.consortium.unit
    )
    Entity(members.home("hospital-1"), first).vote(
        members.ask(6), unanimous(LABELS), members.mailbox
    )
    for ledger, owner in (
        (members.ledger("hospital-0"), "hospital-0"),
        (Ledger.open(tmp_path / "first"), "hospital-1"),
    ):
        before = ledger.state()
        for other, role in (("hospital-2", Entity), ("aggregator", Aggregator)):
            with pytest.raises(
                LedgerMismatchError, match=f"is the ledger of {owner}, not of {other}"
            ):
                role(members.home(other), ledger)
        assert ledger.state() == before
        Entity(members.home(owner), ledger)


def refused_at_no_cost(members, batch, error, message):
    with pytest.raises(error, match=message):
        members.send(batch, "hospital-0", unanimous(LABELS))
    assert members.ledger("hospital-0").state().entries == 1


def test_votes_that_could_not_be_sent_or_used_are_not_paid_for(members):
    batch = members.ask(6)
    asked_there = Batch.make(
        members.home("aggregator").identity, replace(members.consortium, name="Others"), batch.rows
    )
    refused_at_no_cost(
        members, asked_there, StaleBatchError, "is not for 'Hospitals' in its present form"
    )
    shares, place = members.mailbox.folder / "shares", members.place(batch, "hospital-0", "middle")
    shares.write_text("in the way")
    refused_at_no_cost(members, batch, InvalidDataError, r"cannot be written: .* Nothing was spent")
    shares.unlink()
    place.parent.mkdir(parents=True)
    place.write_bytes(b"votes of a folder that was set back")
    refused_at_no_cost(
        members, batch, InvalidDataError, "already exists, but its budget was not spent from this"
    )
    place.unlink()
    members.put_labels(batch, "left", "0" * 64, b"junk that left did not sign")
    members.send(batch, "hospital-1", unanimous(LABELS))
    signed = members.sealed(batch, Kind.LABELS, "right", "aggregator", b"its share")
    members.put_labels(batch, "right", "1" * 64, signed)
    refused_at_no_cost(
        members, batch, StaleBatchError, "computed already, without hospital-0: right sent labels"
    )
    members.send(batch, "hospital-1", unanimous(LABELS))  # was in time


def test_a_roster_is_accepted_by_its_words_only(members, tmp_path):
    consortium = members.consortium
    other = found(tmp_path / "x")
    home = members.home("hospital-0")
    with pytest.raises(FederationError, match="must be the six words of the roster"):
        home.join(other.consortium, consortium.words)
    with pytest.raises(FederationError, match="has joined another consortium"):
        home.join(other.consortium, other.consortium.words)
    without = replace(consortium, members=consortium.members[1:], roster=1)
    with pytest.raises(
        FederationError, match="does not name hospital-0 with the keys of this folder"
    ):
        home.join(without, without.words)
    with pytest.raises(FederationError, match="holds 0"):
        Home(tmp_path / "mailbox")
    home.join(consortium, f" {consortium.words.upper()}\n")
    assert home.consortium_as(Role.ENTITY) == consortium


@pytest.mark.rest
@pytest.mark.parametrize("step", [197, pytest.param(7, marks=pytest.mark.slow)])
def test_an_entity_killed_all_along_its_vote_pays_once_and_sends_one_thing(step, members, tmp_path):
    batch = members.ask(6)
    before = members.copied(tmp_path / "before").folder
    members.send(batch, "hospital-1", unanimous(LABELS))  # what is loaded once per process

    def vote_until(line):
        entity = members.entity("hospital-0")
        die_at_line(line)
        entity.vote(batch, unanimous(LABELS), members.mailbox)

    line, died, states = 0, True, Counter()
    while died:
        line += step
        for folder in ("hospital-0", "mailbox"):
            shutil.rmtree(members.folder / folder)
            shutil.copytree(before / folder, members.folder / folder)
        died = ended(forked(lambda line=line: vote_until(line))) != 0
        spent = members.ledger("hospital-0").state().spent
        stored = any((members.folder / "hospital-0" / "votes").glob("[0-9a-f]*"))
        assert spent > 0 or not stored  # nothing is made that is not paid for
        states[spent > 0, stored] += 1
        members.send(batch, "hospital-0", unanimous(LABELS))
        sent = members.payloads(batch, "hospital-0")
        # Also where some were sent before the kill.
        assert len({payload[:SPLIT_NAME_BYTES] for payload in sent}) == 1
        shutil.rmtree(members.mailbox.folder / "shares")
        members.send(batch, "hospital-0", unanimous(LABELS[::-1]))
        assert members.payloads(batch, "hospital-0") == sent
        entries = members.ledger("hospital-0").export()
        assert [entry["kind"] for entry in entries] == ["opened", "reserved", "answered"]
    assert min(states[False, False], states[True, False], states[True, True]) > 0


def test_another_batch_under_the_same_identifier_is_another_batch(members, tmp_path):
    """A hostile aggregator may sign what it likes; a reservation is for these rows only."""
    aggregator, entity = members.home("aggregator").identity, members.entity("hospital-0")
    small, large = (
        Batch.make(aggregator, members.consortium, np.zeros((queries, 1))) for queries in (1, 50)
    )
    forged = replace(large, identifier=small.identifier).signed_by(aggregator)
    for batch in (small, Batch.from_bytes(forged.to_bytes(), members.consortium)):
        ballots = unanimous(np.zeros(batch.n_queries, dtype=int))
        entity.vote(batch, ballots, Mailbox(tmp_path / batch.query_hash))
    entries = members.ledger("hospital-0").export()
    assert [entry["queries"] for entry in entries if entry["kind"] == "reserved"] == [1, 50]


def test_a_batch_too_large_to_compute_is_refused_before_anybody_pays(tmp_path):
    members = found(
        tmp_path, ConfidentGNMax(600.0, 150.0, 40.0), classes=tuple(map(str, range(1000)))
    )
    most = members.consortium.most_queries()
    assert 100 < most < 10_000
    with pytest.raises(InvalidDataError, match=f"can hold {most:,} queries at most"):
        members.ask(most + 1)
    batch = Batch.make(
        members.home("aggregator").identity, members.consortium, np.zeros((most + 1, 1))
    )
    with pytest.raises(InvalidDataError, match="Ask fewer at once"):
        members.entity("hospital-0").vote(
            batch, np.zeros((1, most + 1), dtype=int), members.mailbox
        )
    assert [members.ledger(name).state().spent for name in ("aggregator", "hospital-0")] == [0, 0]
    assert replace(members.consortium, mechanism=GNMax(1e7)).most_queries() == 0
