import json
import os
import shutil
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tutelage._internal import outputs
from tutelage.digests import canonical
from tutelage.exceptions import (
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    StaleBatchError,
)
from tutelage.mechanisms import GNMax
from tutelage.privacy import ONE_TEACHER
from tutelage_consortium import files
from tutelage_consortium.batches import Batch
from tutelage_consortium.consortium import Consortium
from tutelage_consortium.documents import SignedDocument
from tutelage_consortium.keys import Identity, Role
from tutelage_consortium.mailbox import Mailbox
from tutelage_consortium.messages import Header, Kind, seal, sealed_by, unseal

ENTITY, OTHER_ENTITY = (Identity.generate(name, Role.ENTITY) for name in ("north", "south"))
PARTIES = [
    Identity.generate(f"party{place}", Role.COMPUTING, f"127.0.0.1:{7001 + place}")
    for place in range(3)
]
AGGREGATOR = Identity.generate("aggregator", Role.AGGREGATOR)
MEMBERS = tuple(identity.member for identity in (ENTITY, OTHER_ENTITY, AGGREGATOR, *PARTIES))
CONSORTIUM = Consortium(
    name="Two hospitals", members=MEMBERS, classes=("a", "b", "c"), mechanism=GNMax(40), teachers_per_entity=50,
    quorum=2, colluding=1, unit=ONE_TEACHER,
)  # fmt: skip
SAME_TERMS = replace(CONSORTIUM, identifier="0" * 32)
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
BATCH = Batch.make(AGGREGATOR, CONSORTIUM, ROWS)
HEADER = Header.of(CONSORTIUM, BATCH, Kind.SHARES, "north", "party0")
THREE = [party.member for party in PARTIES]
THERE, BACK = (ENTITY.member, THREE[0]), (THREE[0], AGGREGATOR.member)
PAYLOAD = b"private bytes of an entity"
ENVELOPE = seal(ENTITY, PARTIES[0].member, HEADER, PAYLOAD)


@pytest.mark.parametrize("dtype", ["?", "i1", "<i8", ">u4", "<f2", ">f4", ">f8"])
def test_rows_of_every_plain_type_come_back_bit_for_bit(dtype):
    rows = np.random.default_rng(0).normal(size=(3, 1, 2, 4)).astype(dtype)
    loaded = Batch.from_bytes(Batch.make(AGGREGATOR, CONSORTIUM, rows).to_bytes(), CONSORTIUM)
    assert (loaded.rows.dtype, loaded.rows.shape) == (rows.dtype.newbyteorder("="), rows.shape)
    assert loaded.rows.tobytes() == rows.astype(rows.dtype.newbyteorder("<")).tobytes()


def test_a_batch_is_saved_and_loaded(tmp_path):
    path = tmp_path / "new" / "one.batch"
    BATCH.save(path)
    BATCH.save(path)
    loaded = Batch.load(path, CONSORTIUM)
    assert loaded.to_bytes() == BATCH.to_bytes()
    assert (loaded.consortium, loaded.n_queries) == (CONSORTIUM.fingerprint, 3)
    assert "rows" not in repr(loaded)
    with pytest.raises(InvalidDataError, match="other content"):
        Batch.make(AGGREGATOR, CONSORTIUM, ROWS).save(path)


def test_the_hash_of_queries_depends_on_their_type_shape_and_content_alone():
    def hashed(rows, terms=CONSORTIUM):
        return Batch.make(AGGREGATOR, terms, rows).query_hash

    zeros = np.zeros((2, 6))
    others = [zeros, zeros.reshape(6, 2), zeros.reshape(12), zeros.astype(np.float32), zeros + 1]
    assert len(set(map(hashed, others))) == len(others)
    assert hashed(zeros) == hashed(zeros.copy()) == hashed(zeros, SAME_TERMS)
    assert hashed(np.asfortranarray(ROWS)) == hashed(ROWS.astype(">f4")) == BATCH.query_hash


@pytest.mark.parametrize("rows", [
    *(np.array([cell]) for cell in ("text", None, 1j)),
    *(np.zeros(shape) for shape in ((0, 4), (4, 0), (1,) * 9, ())),
], ids=str)  # fmt: skip
def test_rows_that_are_no_plain_numbers_are_not_asked(rows):
    with pytest.raises(InvalidDataError, match="`rows` of a batch"):
        Batch.make(AGGREGATOR, CONSORTIUM, rows)


def test_only_the_aggregator_asks():
    for identity in (ENTITY, PARTIES[0], Identity.generate("aggregator", Role.AGGREGATOR)):
        with pytest.raises(InvalidParameterError, match="must be that of the aggregator"):
            Batch.make(identity, CONSORTIUM, ROWS)


def test_a_batch_of_another_consortium_is_stale_and_no_part_can_be_another_batchs():
    with pytest.raises(StaleBatchError, match="not for 'Two hospitals' in its present form"):
        Batch.from_bytes(BATCH.to_bytes(), replace(CONSORTIUM, mechanism=GNMax(41)))
    with pytest.raises(ForgedMessageError, match="not signed"):
        Batch.from_bytes(replace(BATCH, consortium=SAME_TERMS.fingerprint).to_bytes(), SAME_TERMS)
    other = Batch.make(AGGREGATOR, CONSORTIUM, ROWS + 1)
    for name in ("identifier", "rows", "query_hash", "signature"):
        part: dict[str, Any] = {name: getattr(other, name)}
        with pytest.raises(ForgedMessageError):
            Batch.from_bytes(replace(BATCH, **part).to_bytes(), CONSORTIUM)


def test_a_batch_with_any_one_bit_changed_is_never_taken():
    message = BATCH.to_bytes()
    for place in range(len(message)):
        changed = message[:place] + bytes([message[place] ^ 1 << place % 8]) + message[place + 1 :]
        with pytest.raises((ForgedMessageError, StaleBatchError, InvalidDataError)):
            Batch.from_bytes(changed, CONSORTIUM)


@pytest.mark.parametrize("changes", [
    {"dtype": "|O8"}, {"identifier": "../../etc"}, {"query_hash": None}, {"query_hash": "0" * 64},
    {"more": 1}, {"format": 2},
    *({"shape": shape} for shape in ([-3, -4], [True, 12], [2**62, 2**62])),
])  # fmt: skip
def test_a_header_that_says_something_else_is_refused_before_it_is_used(changes):
    line = canonical({**json.loads(BATCH._line), **changes}).encode() + b"\n"
    signed = SignedDocument.sign(AGGREGATOR, line, ROWS.tobytes())  # by a hostile aggregator
    refused, why = (
        (InvalidDataError, "format")
        if "format" in changes
        else (ForgedMessageError, "damaged|not known")
    )
    with pytest.raises(refused, match=why):
        Batch.from_bytes(signed.to_bytes(), CONSORTIUM)


OTHER_BATCH = Batch.make(AGGREGATOR, CONSORTIUM, ROWS)
DEVIATIONS = {
    "consortium": SAME_TERMS.fingerprint,
    "batch": OTHER_BATCH.identifier,
    "query_hash": "0" * 64,
    "kind": Kind.LABELS,
    "sender": "south",
    "recipient": "party1",
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_an_envelope_of_another_matter_is_refused_whichever_header_it_carries(name):
    """Replays on another batch among them; and under the expected header, written over the one it was sent with."""
    assert unseal(PARTIES[0], ENTITY.member, HEADER, ENVELOPE) == PAYLOAD
    assert PAYLOAD[:8] not in ENVELOPE
    other = replace(HEADER, **{name: DEVIATIONS[name]})
    sender = OTHER_ENTITY if name == "sender" else ENTITY
    recipient = PARTIES[1] if name == "recipient" else PARTIES[0]
    with pytest.raises(
        ForgedMessageError, match=f"`{name}` of a message from {sender.member.name} must be"
    ):
        unseal(recipient, sender.member, other, ENVELOPE)
    swapped = (
        HEADER.to_bytes() + seal(sender, recipient.member, other, PAYLOAD)[len(other.to_bytes()) :]
    )
    with pytest.raises(ForgedMessageError, match="not signed by north"):
        unseal(PARTIES[0], ENTITY.member, HEADER, swapped)


def test_a_sealed_payload_without_its_senders_signature_is_refused():
    head, twin = HEADER.to_bytes(), Identity.generate("north", Role.ENTITY)
    sealed = PARTIES[0].member.seal(PAYLOAD, head)
    unmarked = ENTITY.sign(head + sealed)  # a signature that was made for something else
    others = [SignedDocument.sign(by, head, sealed).signature for by in (OTHER_ENTITY, twin)]
    for signature in (bytes(64), *others, unmarked):
        with pytest.raises(ForgedMessageError, match="not signed by north"):
            unseal(PARTIES[0], ENTITY.member, HEADER, head + signature + sealed)


def test_a_ciphertext_that_was_replaced_is_not_its_senders():
    replaced = ENVELOPE[:-1] + bytes([ENVELOPE[-1] ^ 1])
    with pytest.raises(ForgedMessageError, match="not signed by north"):
        sealed_by(ENTITY.member, HEADER, replaced)


def test_nobody_else_opens_a_sealed_payload_or_signs_it_as_their_own():
    twin_party = Identity.generate("party0", Role.COMPUTING, "a:1")
    with pytest.raises(ForgedMessageError, match="party0 cannot be decrypted"):
        unseal(twin_party, ENTITY.member, HEADER, ENVELOPE)
    mine = Header.of(CONSORTIUM, BATCH, Kind.SHARES, "south", "party0")
    stolen = ENVELOPE[len(HEADER.to_bytes()) + 64 :]
    resigned = SignedDocument.sign(OTHER_ENTITY, mine.to_bytes(), stolen)
    with pytest.raises(ForgedMessageError, match="cannot be decrypted"):
        unseal(PARTIES[0], OTHER_ENTITY.member, mine, resigned.to_bytes())


def test_an_envelope_with_any_one_bit_changed_or_cut_anywhere_is_forged():
    for place in range(len(ENVELOPE)):
        flipped = (
            ENVELOPE[:place] + bytes([ENVELOPE[place] ^ 1 << place % 8]) + ENVELOPE[place + 1 :]
        )
        for envelope in (flipped, ENVELOPE[:place], ENVELOPE[place + 1 :]):
            with pytest.raises(ForgedMessageError):
                unseal(PARTIES[0], ENTITY.member, HEADER, envelope)
    later = ENVELOPE.replace(b'"format":1', b'"format":2', 1)
    with pytest.raises(ForgedMessageError, match=r"has another format \(2\); read it"):
        unseal(PARTIES[0], ENTITY.member, HEADER, later)


def test_what_is_no_file_or_too_long_is_nobodys_labels(tmp_path):
    box = Mailbox(tmp_path)
    box.put_labels(BATCH, *BACK, "a" * 64, b"fine")
    (fine,) = (tmp_path / "labels" / BATCH.identifier).iterdir()
    folder, long = (fine.with_name(fine.name.replace("a" * 64, run * 64)) for run in "bc")
    folder.mkdir()
    long.write_bytes(bytes(2**20 + 12 * BATCH.n_queries + 1))
    assert list(box.labels(BATCH, *BACK)) == [("a" * 64, b"fine")]


@pytest.mark.parametrize("links", [True, False], ids=["links", "no hard links"])
def test_other_bytes_are_never_written_over_the_first(links, tmp_path, monkeypatch):
    if not links:
        monkeypatch.setattr(outputs, "_rename", lambda *_: False)
        monkeypatch.setattr(
            outputs.os, "link", Mock(side_effect=OSError(1, "Operation not permitted"))
        )
    box = Mailbox(tmp_path)
    for _ in range(2):
        box.answer(BATCH, *THERE).put(b"first")
    for other in (b"", b"fir", b"first!", b"other"):
        with pytest.raises(InvalidDataError, match="other content"):
            box.answer(BATCH, *THERE).put(other)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in files] == [b"first"]


def test_a_message_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    order, sync, put = [], os.fsync, files.put_new
    monkeypatch.setattr(files.os, "fsync", lambda file: order.append("sync") or sync(file))
    monkeypatch.setattr(
        files, "put_new", lambda part, path: order.append("name") or put(part, path)
    )
    Mailbox(tmp_path).answer(BATCH, *THERE).put(b"x")
    assert order == ["sync", "name", "sync"]


def test_no_name_leaves_the_folder(tmp_path):
    box = Mailbox(tmp_path / "shared")
    for name in ("../x", "", "a.b", "/etc", "x" * 41):
        attempts: list[Any] = [
            partial(replace, ENTITY.member, name=name),
            partial(box.put_labels, BATCH, *BACK, name, b""),
            partial(box.batch, name, CONSORTIUM),
            partial(replace, BATCH, identifier=name),
        ]
        for attempt in attempts:
            with pytest.raises(InvalidParameterError):
                attempt()
    assert list(tmp_path.iterdir()) == []


def test_a_link_a_pipe_and_a_huge_file_are_no_messages(tmp_path):
    mailbox = Mailbox(tmp_path)
    link, pipe, huge = (mailbox.answer(BATCH, ENTITY.member, each).path for each in THREE)
    link.parent.mkdir(parents=True)
    link.symlink_to("/etc/passwd")
    os.mkfifo(pipe)
    huge.touch()
    os.truncate(huge, 2**40)
    for recipient in THREE:
        with pytest.raises(ForgedMessageError, match="no plain file of at most"):
            mailbox.answer(BATCH, ENTITY.member, recipient).envelope()


def test_members_come_with_their_newest_keys_last_and_junk_is_none(tmp_path):
    box, renewed = Mailbox(tmp_path), Identity.generate("north", Role.ENTITY)
    assert box.members() == []
    laid = [renewed.member, OTHER_ENTITY.member, ENTITY.member]
    for place, member in enumerate(laid):
        before = {*tmp_path.rglob("*.json")}
        box.put_member(member)
        (path,) = {*tmp_path.rglob("*.json")} - before
        os.utime(path, (place, place))
    box.put_member(renewed.member)  # as each step does: the same bytes change nothing
    text, folder = (tmp_path / "members" / f"south.{digit * 16}.json" for digit in "ab")
    text.write_text("{}")
    folder.mkdir()
    (tmp_path / "members" / "south.json").write_bytes(PARTIES[0].member.to_bytes())
    assert box.members() == laid


def test_the_newest_roster_is_that_with_the_largest_number(tmp_path):
    box = Mailbox(tmp_path)
    assert box.newest_roster() is None
    for number in (0, 10, 9):
        box.put_roster(replace(CONSORTIUM, roster=number))
    (tmp_path / "rosters" / "11.json.part").write_text("junk")
    assert box.newest_roster() == box.newest_roster(10) == replace(CONSORTIUM, roster=10)
    assert box.newest_roster(11) is None
    with pytest.raises(InvalidDataError, match="other content"):
        box.put_roster(replace(CONSORTIUM, roster=10, members=MEMBERS[::-1]))


def test_a_roster_is_accepted_by_those_who_signed_it(tmp_path):
    box, after, folder = (
        Mailbox(tmp_path),
        replace(CONSORTIUM, roster=1),
        tmp_path / "accepted" / "0",
    )
    assert box.names_of_accepting(CONSORTIUM) == ()
    for identity in (PARTIES[1], ENTITY):
        box.put_acceptance(identity, CONSORTIUM)
    # Another roster of the same number.
    assert box.names_of_accepting(replace(CONSORTIUM, name="Others")) == ()
    shutil.copytree(folder, folder.with_name("1"))
    assert box.names_of_accepting(after) == ()
    shutil.copy(folder / "north.signature", folder / "south.signature")
    (folder / "party0.signature").write_bytes(b"")
    assert box.names_of_accepting(CONSORTIUM) == ("north", "party1")


def test_a_batch_under_the_name_of_another_is_refused(tmp_path):
    box = Mailbox(tmp_path)
    box.put_batch(BATCH, CONSORTIUM)
    (path,) = (tmp_path / "batches").iterdir()
    path.rename(path.with_name(path.name.replace(BATCH.identifier, "a" * 32)))
    with pytest.raises(ForgedMessageError, match=f"holds batch {BATCH.identifier}"):
        box.batch("a" * 32, CONSORTIUM)
