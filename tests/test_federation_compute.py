"""Three computing parties as real processes: what they open, and what happens when one of them dies or lies."""

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consortia import PARTIES, TEACHERS, Computing, all_ended, compute, found, unanimous
from tutelage._internal.records import named
from tutelage.exceptions import FederationError, ForgedMessageError, PartyLostError, QuorumError, StaleBatchError
from tutelage.federation import ComputingParty, Identity, Role
from tutelage.federation.computing_party import EntityShares, read_statement
from tutelage.federation.mailbox import Kind, Opened
from tutelage.federation.sharing import HEAD_BYTES, MODULUS, decode, recombine, split
from tutelage.mechanisms import ConfidentGNMax, GNMax

pytestmark = pytest.mark.rest

LABELS = np.array([0, 1, 2, 1, 0, 2, 2, 0])
QUIET = GNMax(3.0)  # 100 unanimous teachers against this noise: a wrong label once in 1e50


@pytest.fixture
def members(tmp_path):
    return found(tmp_path, QUIET, epsilon=1000.0)


def voted(members, entities=4):
    batch = members.ask(len(LABELS))
    for number in range(entities):
        members.send(batch, f"hospital-{number}", unanimous(LABELS))
    return batch


CONFIDENT = ConfidentGNMax(60.0, 20.0, 10.0)


def settled(members):
    return [entry["kind"] for entry in members.ledger("aggregator").export()]


def test_labels_reach_the_aggregator_and_nobody_else(members):
    batch = voted(members)
    outcomes = all_ended(members, batch)
    assert {one.entities for one in outcomes} == {tuple(f"hospital-{number}" for number in range(4))}
    np.testing.assert_array_equal(members.aggregator().collect(batch, members.mailbox).labels, LABELS)
    assert members.aggregator().collect(batch, members.mailbox).labels.tolist() == LABELS.tolist()
    assert settled(members) == ["opened", "reserved", "answered"]
    state = members.ledger("aggregator").state()
    assert members.aggregator().ask(batch.rows, members.mailbox) is None  # remembered
    assert members.ledger("aggregator").state() == state


def test_unsure_queries_are_abstained_from_and_cost_the_check_alone(tmp_path):
    members = found(tmp_path, ConfidentGNMax(80.0, 3.0, 3.0), epsilon=2000.0)
    batch, split_votes = members.ask(6), np.resize([0, 1], (TEACHERS, 1))
    for number in range(4):
        members.send(batch, f"hospital-{number}", np.hstack([unanimous(LABELS[:3]), np.tile(split_votes, (1, 3))]))
    all_ended(members, batch)
    np.testing.assert_array_equal(members.aggregator().collect(batch, members.mailbox).labels, [0, 1, 2, -1, -1, -1])
    happened = members.ledger("aggregator").export()[-1]["happened"]["of"]
    found_events = [(part["of"]["event"], part["of"]["of"]["event"], part["count"]) for part in happened]
    assert found_events == [("SummedNoise", "ConfidenceCheck", 6), ("SummedNoise", "NoisyArgmaxGaussian", 3)]


def test_entities_may_drop_out_down_to_the_quorum_and_no_further(members):
    batch = voted(members, entities=2)
    outcomes = all_ended(members, batch, QuorumError)
    assert "2 of 4 entities answered" in str(outcomes[0])
    assert "No answer from hospital-2, hospital-3: let more entities" in str(outcomes[0])
    with pytest.raises(QuorumError, match=r"not complete.*left, middle, right sent none"):
        members.aggregator().collect(batch, members.mailbox)
    members.send(batch, "hospital-2", unanimous(LABELS))
    all_ended(members, batch)
    spent = members.ledger("hospital-3").state()
    with pytest.raises(StaleBatchError, match="computed already, without hospital-3: left, middle, right sent labels"):
        members.send(batch, "hospital-3", unanimous(LABELS))
    assert members.ledger("hospital-3").state() == spent
    stuff(members, batch, "hospital-3", stuffed(0))  # from another who does not care: too late, it was begun without it
    assert {one.entities for one in compute(members, batch)} == {("hospital-0", "hospital-1", "hospital-2")}
    np.testing.assert_array_equal(members.aggregator().collect(batch, members.mailbox).labels, LABELS)


def test_a_party_killed_mid_batch_opens_nothing_and_the_same_shares_are_tried_again(members):
    batch = voted(members)
    running = [Computing(members, name, batch, killed=name == "right") for name in PARTIES]
    for party in running[:2]:
        with pytest.raises(PartyLostError):
            party.outcome()
    assert (members.folder / "right" / "computed").exists()  # the parties had agreed and begun
    with pytest.raises(QuorumError):
        members.aggregator().collect(batch, members.mailbox)
    assert settled(members) == ["opened", "reserved"]
    spent = [members.ledger(name).state().spent for name in ("aggregator", "hospital-0")]
    all_ended(members, batch)
    np.testing.assert_array_equal(members.aggregator().collect(batch, members.mailbox).labels, LABELS)
    assert [members.ledger(name).state().spent for name in ("aggregator", "hospital-0")] == spent


def test_a_batch_once_begun_is_never_computed_with_other_votes(members):
    batch = voted(members)
    all_ended(members, batch)
    envelope(members, batch, "hospital-1").unlink()
    assert "never computed twice with different votes" in str(all_ended(members, batch, StaleBatchError)[0])


def envelope(members, batch, entity, party="left"):
    return members.place(batch, entity, party)


def forge(members, batch, entity, sealed, party="left"):
    """Put other bytes in the place of an entity's envelope."""
    envelope(members, batch, entity, party).write_bytes(sealed)


@pytest.mark.parametrize("what", ["tampered", "replayed", "for another party", "of another entity", "cut short"])
def test_an_envelope_that_is_not_what_was_signed_is_left_out_with_the_reason(what, members):
    earlier = voted(members)
    batch = members.ask(4, first=100)
    for number in range(4):
        members.send(batch, f"hospital-{number}", unanimous(LABELS[:4]))
    right = envelope(members, batch, "hospital-3").read_bytes()
    forged = {
        "tampered": right[:-1] + bytes([right[-1] ^ 1]),
        "replayed": envelope(members, earlier, "hospital-3").read_bytes(),
        "for another party": envelope(members, batch, "hospital-3", "right").read_bytes(),
        "of another entity": envelope(members, batch, "hospital-2").read_bytes(),
        "cut short": right[: len(right) // 2],
    }
    forge(members, batch, "hospital-3", forged[what])
    held, left_out = ComputingParty(members.home("left"))._held(batch, members.mailbox)
    assert sorted(held) == ["hospital-0", "hospital-1", "hospital-2"]
    assert list(left_out) == ["hospital-3"]
    if what == "tampered":  # the whole way, once: the others leave it out as well
        outcomes = all_ended(members, batch)
        assert {one.entities for one in outcomes} == {("hospital-0", "hospital-1", "hospital-2")}
        np.testing.assert_array_equal(members.aggregator().collect(batch, members.mailbox).labels, LABELS[:4])


def test_shares_of_two_splittings_are_never_mixed(members):
    batch = voted(members)
    payload = bytes(HEAD_BYTES) + split(np.zeros((1, len(LABELS), 3), dtype=int))[0]
    forge(members, batch, "hospital-3", members.sealed(batch, Kind.SHARES, "hospital-3", "left", payload))
    held, _ = ComputingParty(members.home("left"))._held(batch, members.mailbox)
    assert len(held) == 4  # each envelope is well formed by itself
    outcomes = all_ended(members, batch)
    assert {one.entities for one in outcomes} == {("hospital-0", "hospital-1", "hospital-2")}
    assert all("do not belong together" in one.left_out["hospital-3"] for one in outcomes)  # not only for their size


def test_shares_are_not_shown():
    shown = repr(EntityShares("ab", np.array([[[123456]]], dtype=object), "digest"))
    assert "hidden" in shown
    assert "123456" not in shown


def stuff(members, batch, name, votes):
    """Send votes of an entity's own making, in shares that fit each other."""
    for party, shares in zip(PARTIES, split(votes), strict=True):
        sealed = members.sealed(batch, Kind.SHARES, name, party, bytes(HEAD_BYTES) + shares)
        members.put_answer(batch, name, party, sealed)


def stuffed(size):
    votes = np.zeros((1, len(LABELS), 3), dtype=int)
    votes[0, :, 1] = size
    return votes


def test_without_a_quorum_of_honest_sizes_nothing_is_opened_and_the_rows_can_be_asked_anew(members):
    batch = voted(members, entities=2)
    stuff(members, batch, "hospital-3", stuffed(10**6))
    outcomes = all_ended(members, batch, QuorumError)
    assert all("hospital-3 was left out: what it sent is larger" in str(one) for one in outcomes)
    assert members.labels(batch, "left") == []
    aggregator = members.aggregator()
    assert aggregator.ask(batch.rows, members.mailbox).identifier == batch.identifier
    spent = members.ledger("aggregator").state().spent
    anew = aggregator.ask(batch.rows, members.mailbox, new_batch=True)
    assert anew.identifier != batch.identifier
    assert members.ledger("aggregator").state().spent == pytest.approx(2 * spent)
    assert aggregator.ask(batch.rows, members.mailbox).identifier == anew.identifier
    for number in range(3):
        members.send(anew, f"hospital-{number}", unanimous(LABELS))
    all_ended(members, anew)
    np.testing.assert_array_equal(aggregator.collect(anew, members.mailbox).labels, LABELS)


def test_an_entity_cannot_probe_the_others_votes_by_sending_others_under_the_same_name(members):
    batch = voted(members, entities=3)
    stuff(members, batch, "hospital-3", stuffed(0))
    all_ended(members, batch)
    for path in (members.folder / "mailbox" / "shares" / batch.identifier).glob("hospital-3.*"):
        path.unlink()
    stuff(members, batch, "hospital-3", stuffed(7))  # the same name of the splitting, other numbers
    all_ended(members, batch, StaleBatchError)
    assert len(members.labels(batch, "left")) == 1


@pytest.mark.parametrize("forgetful", PARTIES)
def test_what_one_party_remembers_binds_those_that_were_set_back(forgetful, members):
    """A backup restored at two parties, and other shares at one of them: the third one's record is enough."""
    batch = voted(members, entities=3)
    stuff(members, batch, "hospital-3", stuffed(0))
    all_ended(members, batch)
    for party in PARTIES:
        if party != PARTIES[PARTIES.index(forgetful) - 1]:
            shutil.rmtree(members.folder / party / "computed")
    other = members.sealed(batch, Kind.SHARES, "hospital-3", forgetful, bytes(HEAD_BYTES) + split(stuffed(7))[0])
    forge(members, batch, "hospital-3", other, forgetful)
    all_ended(members, batch, StaleBatchError)
    assert len(members.labels(batch, "left")) == 1


def test_votes_that_pass_the_test_of_their_size_open_labels_and_nothing_else(tmp_path):
    """Votes far beyond honest ones would wrap in comparisons sized for honest votes, and open what is no label."""
    members = found(tmp_path, CONFIDENT, epsilon=900.0)
    batch = members.ask(len(LABELS))
    for number in range(3):
        members.send(batch, f"hospital-{number}", unanimous(LABELS))
    terms: Any = members.consortium
    bound = terms.scheme.bound(batch.n_queries)
    votes = np.zeros((2, len(LABELS), 3), dtype=int)
    votes[:, 0, 0], votes[:, 0, 1] = bound // 5, -bound // 5
    assert bound // 5 > 2**8  # of the honest: 100 votes and their noise
    stuff(members, batch, "hospital-3", votes)
    outcomes = compute(members, batch)
    assert {one.entities for one in outcomes} == {tuple(f"hospital-{number}" for number in range(4))}, outcomes
    answers = {party: share for party, _, share in members.aggregator()._answers(batch, members.mailbox)}
    opened = recombine([answers[party] for party in PARTIES], (8,))
    assert set(opened.tolist()) <= {0, 1, 2, 3}
    assert opened[0] == 1  # the stuffed query is lost to the liar, and only that


def test_what_was_stored_of_a_computation_is_never_guessed(members):
    batch = voted(members)
    all_ended(members, batch)
    for path in (members.folder / "left" / "computed" / batch.identifier).iterdir():
        path.unlink()
    with pytest.raises(StaleBatchError, match="does not contain the stored content"):
        Computing(members, "left", batch).outcome()


def test_parties_at_different_batches_or_homes_compute_nothing(members, tmp_path):
    one, other = voted(members), members.ask(3, first=50)
    for number in range(3):
        members.send(other, f"hospital-{number}", unanimous(LABELS[:3]))
    running = [Computing(members, name, batch) for name, batch in zip(PARTIES, (one, one, other), strict=True)]
    for party in running:
        with pytest.raises(FederationError):
            party.outcome()
    assert [members.labels(batch, "left") for batch in (one, other)] == [[], []]


def test_a_party_with_other_keys_is_no_peer(members):
    batch, home = voted(members), members.folder / "right"
    impostor = Identity.generate("right", Role.COMPUTING, str(members.member("right").address))
    for path in home.glob("right.*.json"):
        path.unlink()
    impostor.save(home)
    with pytest.raises(FederationError, match="not those that right joined with"):
        ComputingParty(members.home("right"))
    others = [member for member in members.consortium.members if member.name != "right"]
    (home / "rosters" / "0.json").unlink()
    replace(members.consortium, members=(*others, impostor.member)).save(home / "rosters" / "0.json")
    outcomes = compute(members, batch, timeout=6.0)
    assert [type(one) for one in outcomes[:2]] == [PartyLostError, PartyLostError], outcomes
    assert members.labels(batch, "left") == []


def test_a_label_that_one_party_falsified_is_found_out(members):
    batch = voted(members)
    all_ended(members, batch)
    (place,) = (members.folder / "mailbox" / "labels" / batch.identifier).glob("middle.*")
    content = Opened(place.name.split(".")[3], tuple(f"hospital-{number}" for number in range(4)))
    false = json.dumps(named("opened", content)).encode() + b"\n" + bytes(12 * len(LABELS))
    place.write_bytes(members.sealed(batch, Kind.LABELS, "middle", "aggregator", false))
    with pytest.raises(ForgedMessageError, match="contradict each other"):
        members.aggregator().collect(batch, members.mailbox)
    assert settled(members) == ["opened", "reserved"]


def test_what_one_party_and_the_aggregator_see_holds_no_vote_count(tmp_path):
    members = found(tmp_path, GNMax(40.0), epsilon=5.0)
    rng, records = np.random.default_rng(0), tmp_path / "records"
    records.mkdir()
    batch, counts = members.ask(40), np.zeros((40, 3), dtype=int)
    for number in range(4):
        ballots = rng.integers(0, 3, (TEACHERS, 40))
        counts += np.stack([(ballots == label).sum(axis=0) for label in range(3)], axis=1)
        members.send(batch, f"hospital-{number}", ballots)
    all_ended(members, batch, records=records)
    members.aggregator().collect(batch, members.mailbox)
    held, _ = ComputingParty(members.home("left"))._held(batch, members.mailbox)
    own = [int(value) for shares in held.values() for value in shares.blocks.ravel()]
    answers = members.aggregator()._answers(batch, members.mailbox)
    labels = [int(value) for _, _, share in answers for value in decode(share, (batch.n_queries,))]
    seen = elements_seen(records / "left") + own + labels
    assert len(seen) > 10_000
    reach = 25 * 4 + 12 * 80  # a count, a total, or either with all noise, is not larger
    assert not [value for value in seen if 0 < min(value, MODULUS - value) <= reach]  # uniform: one in 1e23 would be
    assert 0 < counts.min() <= counts.max() <= reach  # what was looked for


def elements_seen(path):
    """Return every field element that a party received from the others, and all that was opened to it.

    What is opened is masked by 60 bits; 0 says that a product with something random is 0, as a comparison needs.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [line[name] for line in lines for name in ("elements", "opened") if name in line]
    assert {type(value) for values in found for value in values} <= {int, str}
    return [int(value) for values in found for value in values]


@pytest.mark.parametrize("change", [
    {"begun": {}}, {"begun": ""}, {"begun": {"a": ["x"]}}, {"held": {"a": ["x"]}}, {"held": []}, {"nonce": 1}, {"x": 1}
])  # fmt: skip
def test_a_statement_in_another_form_is_refused_in_one_sentence(change):
    said = {"file": "statement", "format": 1, "roster": "r", "batch": "b", "queries": "q", "nonce": "n"}
    said |= {"held": {"a": ["s", "d"]}, "begun": None}
    assert read_statement(json.dumps(said).encode()).held == {"a": ("s", "d")}
    with pytest.raises(ForgedMessageError, match="not in the form"):
        read_statement(json.dumps(said | change).encode())
