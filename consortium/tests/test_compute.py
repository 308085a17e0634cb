"""Three computing parties as real processes: what they open, and what happens when one of them dies or lies."""

import json
import shutil

import numpy as np
import pytest

from consortia import PARTIES, TEACHERS, Computing, all_ended, compute, found, unanimous
from tutelage.exceptions import FederationError, ForgedMessageError, QuorumError, StaleBatchError
from tutelage.mechanisms import ConfidentGNMax
from tutelage_consortium import ComputingParty, Identity, Role
from tutelage_consortium.computing_party import _EntityShares, _read_statement
from tutelage_consortium.messages import Kind
from tutelage_consortium.sharing import HEAD_BYTES, MODULUS, decode, recombine, split

pytestmark = pytest.mark.rest

HOSPITALS = [f"hospital-{number}" for number in range(4)]
LABELS = np.array([0, 1, 2, 1, 0, 2, 2, 0])
# Of 75 teachers or more who agree: an abstention once in 1e8.
QUIET = ConfidentGNMax(55.0, 3.0, 3.0)


@pytest.fixture(scope="module")
def founded(tmp_path_factory):
    return found(tmp_path_factory.mktemp("founded"), QUIET, epsilon=5000.0)


@pytest.fixture
def members(founded, tmp_path):
    return founded.copied(tmp_path)


@pytest.fixture(scope="module")
def first_computed(founded, tmp_path_factory):
    """Members of whom all voted on a batch, which is computed and not collected yet; the batch; and what came of it."""
    members = founded.copied(tmp_path_factory.mktemp("computed"))
    batch, records = voted(members), members.folder / "records"
    records.mkdir()
    return members, batch, all_ended(members, batch, records=records)


@pytest.fixture
def computed(first_computed, tmp_path):
    return first_computed[0].copied(tmp_path), first_computed[1]


def voted(members, entities=4):
    batch = members.ask(len(LABELS))
    for name in HOSPITALS[:entities]:
        members.send(batch, name, unanimous(LABELS))
    return batch


def settled(members):
    return [entry["kind"] for entry in members.ledger("aggregator").export()]


def test_labels_reach_the_aggregator_and_nobody_else(first_computed, computed):
    members, batch = computed
    assert {one.entities for one in first_computed[2]} == {tuple(HOSPITALS)}
    for _ in range(2):
        assert (
            members.aggregator().collect(batch, members.mailbox).labels.tolist() == LABELS.tolist()
        )
    assert members.aggregator().ask(batch.rows, members.mailbox) is None  # remembered
    assert settled(members) == ["opened", "reserved", "answered"]


def test_what_one_party_and_the_aggregator_see_holds_no_vote_count(computed):
    """Of what is opened to all, which is masked by 60 bits, 0 says that a product with something random is 0."""
    members, batch = computed
    lines = [
        json.loads(line) for line in (members.folder / "records" / "left").read_text().splitlines()
    ]
    seen = [
        value for line in lines for name in ("elements", "opened") for value in line.get(name, ())
    ]
    members.aggregator().collect(batch, members.mailbox)
    held, _ = ComputingParty(members.home("left"))._usable_shares(batch, members.mailbox)
    seen += [int(value) for shares in held.values() for value in shares.blocks.ravel()]
    for shares in members.aggregator()._answers(batch, members.mailbox).values():
        for share in shares.values():
            seen += decode(share, (batch.n_queries,)).tolist()
    assert len(seen) > 10_000
    # Counts with all noise are far below; what a mask of 60 bits leaves is above, but for 1e-5.
    reach = 2**30
    assert not [value for value in seen if 0 < min(value, MODULUS - value) <= reach]


def test_unsure_queries_are_abstained_from_and_cost_the_check_alone(members):
    batch, split_votes = members.ask(6), np.resize([0, 1, 2], (TEACHERS, 1))
    for name in HOSPITALS:
        members.send(batch, name, np.hstack([unanimous(LABELS[:3]), np.tile(split_votes, (1, 3))]))
    all_ended(members, batch)
    np.testing.assert_array_equal(
        members.aggregator().collect(batch, members.mailbox).labels, [0, 1, 2, -1, -1, -1]
    )
    happened = members.ledger("aggregator").export()[-1]["happened"]["of"]
    counted = [(part["of"]["event"], part["of"]["of"]["event"], part["count"]) for part in happened]
    assert counted == [
        ("SummedNoise", "ConfidenceCheck", 6),
        ("SummedNoise", "NoisyArgmaxGaussian", 3),
    ]


def test_entities_may_drop_out_down_to_the_quorum_and_no_further(members):
    batch = voted(members, entities=2)
    outcomes = all_ended(members, batch, QuorumError)
    assert "No answer from hospital-2, hospital-3: let more entities" in str(outcomes[0])
    with pytest.raises(QuorumError, match=r"not complete.*left, middle, right sent none"):
        members.aggregator().collect(batch, members.mailbox)
    members.send(batch, "hospital-2", unanimous(LABELS))
    all_ended(members, batch)
    with pytest.raises(
        StaleBatchError,
        match="computed already, without hospital-3: left, middle, right sent labels",
    ):
        members.send(batch, "hospital-3", unanimous(LABELS))
    assert members.ledger("hospital-3").state().spent == 0
    # From another who does not care: too late, it was begun without it.
    stuff(members, batch, "hospital-3", stuffed(0))
    assert {one.entities for one in compute(members, batch)} == {tuple(HOSPITALS[:3])}
    np.testing.assert_array_equal(
        members.aggregator().collect(batch, members.mailbox).labels, LABELS
    )


def test_a_batch_once_begun_is_never_computed_with_other_votes(computed):
    members, batch = computed
    members.place(batch, "hospital-1", "left").unlink()
    assert "never computed twice with different votes" in str(
        all_ended(members, batch, StaleBatchError)[0]
    )


def forge(members, batch, entity, sealed, party="left"):
    """Put other bytes in the place of an entity's envelope."""
    members.place(batch, entity, party).write_bytes(sealed)


def test_an_envelope_that_is_not_what_was_signed_is_left_out(members):
    earlier, batch = voted(members), members.ask(4, first=100)
    for name in HOSPITALS:
        members.send(batch, name, unanimous(LABELS[:4]))
    right = members.answer(batch, "hospital-3", "left")
    for forged in (
        members.answer(earlier, "hospital-3", "left"),
        members.answer(batch, "hospital-3", "right"),
        members.answer(batch, "hospital-2", "left"),
        right[: len(right) // 2],
        right[:-1] + bytes([right[-1] ^ 1]),
    ):
        forge(members, batch, "hospital-3", forged)
        held, left_out = ComputingParty(members.home("left"))._usable_shares(batch, members.mailbox)
        assert sorted(held) == HOSPITALS[:3]
        assert list(left_out) == ["hospital-3"]
    # The others leave it out too.
    assert {one.entities for one in all_ended(members, batch)} == {tuple(HOSPITALS[:3])}
    np.testing.assert_array_equal(
        members.aggregator().collect(batch, members.mailbox).labels, LABELS[:4]
    )


def test_shares_of_two_splittings_are_never_mixed(members):
    batch = voted(members)
    payload = bytes(HEAD_BYTES) + split(stuffed(0))[0]
    forge(
        members,
        batch,
        "hospital-3",
        members.sealed(batch, Kind.SHARES, "hospital-3", "left", payload),
    )
    held, _ = ComputingParty(members.home("left"))._usable_shares(batch, members.mailbox)
    assert len(held) == 4  # each envelope is well formed by itself
    outcomes = all_ended(members, batch)
    assert {one.entities for one in outcomes} == {tuple(HOSPITALS[:3])}
    # Not only for their size.
    assert all("do not belong together" in one.left_out["hospital-3"] for one in outcomes)


def test_shares_are_not_shown():
    shown = repr(_EntityShares("ab", np.array([[[123456]]], dtype=object), "digest"))
    assert "hidden" in shown
    assert "123456" not in shown


def stuff(members, batch, name, votes):
    """Send votes of an entity's own making, in shares that fit each other."""
    for party, shares in zip(PARTIES, split(votes), strict=True):
        sealed = members.sealed(batch, Kind.SHARES, name, party, bytes(HEAD_BYTES) + shares)
        members.put_answer(batch, name, party, sealed)


def stuffed(size):
    votes = np.zeros((2, len(LABELS), 3), dtype=int)
    votes[0, :, 1] = size
    return votes


def test_without_a_quorum_of_honest_sizes_nothing_is_opened_and_the_rows_can_be_asked_anew(members):
    batch, aggregator = voted(members, entities=2), members.aggregator()
    stuff(members, batch, "hospital-3", stuffed(10**6))
    outcomes = all_ended(members, batch, QuorumError)
    assert all("hospital-3 was left out: what it sent is larger" in str(one) for one in outcomes)
    assert members.labels(batch, "left") == []
    assert aggregator.ask(batch.rows, members.mailbox).identifier == batch.identifier
    spent = members.ledger("aggregator").state().spent
    anew = aggregator.ask(batch.rows, members.mailbox, new_batch=True)
    assert anew.identifier != batch.identifier
    assert members.ledger("aggregator").state().spent == pytest.approx(2 * spent)
    assert aggregator.ask(batch.rows, members.mailbox).identifier == anew.identifier


def test_an_entity_cannot_probe_the_others_votes_by_sending_others_under_the_same_name(members):
    batch = voted(members, entities=3)
    stuff(members, batch, "hospital-3", stuffed(0))
    all_ended(members, batch)
    for path in (members.folder / "mailbox" / "shares" / batch.identifier).glob("hospital-3.*"):
        path.unlink()
    stuff(members, batch, "hospital-3", stuffed(7))  # the same name of the splitting, other numbers
    all_ended(members, batch, StaleBatchError)
    assert len(members.labels(batch, "left")) == 1


def test_what_one_party_remembers_binds_those_that_were_set_back(members):
    """A backup restored at two parties, and other shares at one of them: the third one's record is enough."""
    batch = voted(members, entities=3)
    stuff(members, batch, "hospital-3", stuffed(0))
    all_ended(members, batch)
    for party in ("left", "middle"):
        shutil.rmtree(members.folder / party / "computed")
    other = members.sealed(
        batch, Kind.SHARES, "hospital-3", "left", bytes(HEAD_BYTES) + split(stuffed(7))[0]
    )
    forge(members, batch, "hospital-3", other)
    all_ended(members, batch, StaleBatchError)
    assert len(members.labels(batch, "left")) == 1


def test_votes_that_pass_the_test_of_their_size_open_labels_and_nothing_else(tmp_path):
    """Votes far beyond honest ones would wrap in comparisons sized for honest votes, and open what is no label."""
    members = found(tmp_path, ConfidentGNMax(60.0, 20.0, 10.0), epsilon=900.0)
    batch, terms = voted(members, entities=3), members.consortium
    size = terms.scheme.projection_bound(batch.n_queries) // 5  # type: ignore[union-attr]
    assert size > 2**8  # of the honest: 100 votes and their noise
    votes = np.zeros((2, len(LABELS), 3), dtype=int)
    votes[:, 0, 0], votes[:, 0, 1] = size, -size
    stuff(members, batch, "hospital-3", votes)
    assert {one.entities for one in all_ended(members, batch)} == {tuple(HOSPITALS)}
    (answers,) = members.aggregator()._answers(batch, members.mailbox).values()
    opened = recombine([answers[party] for party in PARTIES], (len(LABELS),))
    assert set(opened.tolist()) <= {0, 1, 2, 3}
    assert opened[0] == 1  # the stuffed query is lost to the liar, and only that


def test_what_was_stored_of_a_computation_is_never_guessed(computed):
    members, batch = computed
    for path in (members.folder / "left" / "computed" / batch.identifier).iterdir():
        path.unlink()
    with pytest.raises(StaleBatchError, match="does not contain the stored content"):
        Computing(members, "left", batch).outcome()


def test_parties_at_different_batches_open_nothing(members):
    one, other = voted(members), members.ask(3, first=50)
    for name in HOSPITALS[:3]:
        members.send(other, name, unanimous(LABELS[:3]))
    running = [
        Computing(members, name, batch)
        for name, batch in zip(PARTIES, (one, one, other), strict=True)
    ]
    for party in running:
        with pytest.raises(StaleBatchError, match="not at the same batch and roster"):
            party.outcome()
    assert [members.labels(batch, party) for batch in (one, other) for party in PARTIES] == [[]] * 6


def test_a_party_whose_keys_are_not_those_that_it_joined_with_does_not_begin(members):
    home = members.folder / "right"
    for path in home.glob("right.*.json"):
        path.unlink()
    Identity.generate("right", Role.COMPUTING, str(members.member("right").address)).save(home)
    with pytest.raises(FederationError, match="not those that right joined with"):
        ComputingParty(members.home("right"))


def test_a_label_that_one_party_falsified_is_found_out(computed):
    members, batch = computed
    (place,) = (members.mailbox.folder / "labels" / batch.identifier).glob("middle.*")
    head = members.opened(batch, "middle", "aggregator", place.read_bytes(), Kind.LABELS).partition(
        b"\n"
    )[0]
    false = head + b"\n" + bytes(12 * len(LABELS))
    place.write_bytes(members.sealed(batch, Kind.LABELS, "middle", "aggregator", false))
    with pytest.raises(ForgedMessageError, match="contradict each other"):
        members.aggregator().collect(batch, members.mailbox)
    assert settled(members) == ["opened", "reserved"]


def test_a_statement_in_another_form_is_refused():
    said = {
        "file": "statement",
        "format": 1,
        "roster": "r",
        "batch": "b",
        "queries": "q",
        "nonce": "n",
    }
    said |= {"held": {"a": ["s", "d"]}, "begun": None}
    assert _read_statement(json.dumps(said).encode()).held == {"a": ("s", "d")}
    for change in ({"begun": {"a": ["x"]}}, {"held": {"a": ["x"]}}, {"nonce": 1}, {"x": 1}):
        with pytest.raises(ForgedMessageError, match="not in the form"):
            _read_statement(json.dumps(said | change).encode())
