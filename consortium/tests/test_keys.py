import copy
import json
import os
import pickle
import stat
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.exceptions import (
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    NotPublishableError,
)
from tutelage_consortium.keys import Identity, Member, Role

ALICE = Identity.generate("alice", Role.ENTITY)
PARTIES = [
    Identity.generate(f"party{place}", Role.COMPUTING, f"127.0.0.1:{7001 + place}")
    for place in range(3)
]


def secrets_of(identity: Identity) -> list[str]:
    content = json.loads(identity._private_document())
    pem = content["tls"] or ""
    return [content["signing"], content["sealing"], *pem.splitlines()[1:-1]]


@pytest.mark.parametrize("identity", [ALICE, PARTIES[0]])
def test_an_identity_is_saved_and_loaded_and_its_public_file_holds_no_secret(identity, tmp_path):
    before = os.umask(0)
    try:
        private, public = identity.save(tmp_path / "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    for secret in secrets_of(identity):
        assert secret in private.read_text().replace("\\n", "\n")
        assert secret not in public.read_text()
    loaded = Identity.load(private)
    assert loaded.member == identity.member == Member.load(public)
    assert loaded._private_document() == identity._private_document()


@pytest.mark.parametrize("kind", ["private", "public"])
def test_keys_are_never_overwritten(kind, tmp_path):
    path = tmp_path / f"alice.{kind}.json"
    path.write_text("mine")
    with pytest.raises(InvalidDataError, match=r"never overwritten|that others may read"):
        ALICE.save(tmp_path)
    assert ([*tmp_path.iterdir()], path.read_text()) == ([path], "mine")


@pytest.mark.parametrize("mode", [0o640, 0o602])
def test_keys_that_others_may_read_are_not_used(mode, tmp_path):
    private, _ = ALICE.save(tmp_path)
    private.chmod(mode)
    with pytest.raises(InvalidDataError, match=r"Run: chmod 600 .*alice\.private\.json"):
        Identity.load(private)
    private.chmod(0o600)
    assert Identity.load(private).member == ALICE.member


def test_an_identity_is_not_shown_copied_or_pickled():
    shown = f"{PARTIES[0]} {PARTIES[0]!r}"
    assert not any(secret in shown for secret in secrets_of(PARTIES[0]))
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(NotPublishableError, match="not pickled"):
            leave(ALICE)


def test_private_keys_must_belong_to_the_member_and_a_tls_key_to_its_certificate(tmp_path):
    private, _ = ALICE.save(tmp_path)
    content = json.loads(private.read_text())
    other = json.loads(Identity.generate("alice", Role.ENTITY)._private_document())
    for name in ("signing", "sealing"):
        private.write_text(json.dumps({**content, name: other[name]}))
        with pytest.raises(InvalidDataError, match="do not belong"):
            Identity.load(private)
    for identity, key, message in (
        (PARTIES[0], PARTIES[1].tls_key_pem, "TLS key does not belong"),
        (PARTIES[0], b"no key", "TLS key does not belong"),
        (ALICE, PARTIES[0].tls_key_pem, "if and only if"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            Identity(identity.member, identity._signing, identity._sealing, key)


@given(data=st.data())
def test_a_damaged_private_file_is_refused_without_quoting_it(data, tmp_path_factory):
    text = bytearray(PARTIES[0]._private_document())
    path = tmp_path_factory.getbasetemp() / "damaged.private.json"
    cut = data.draw(st.integers(0, len(text) - 2))
    if data.draw(st.booleans()):
        del text[cut:]
    else:
        text[cut] ^= data.draw(st.integers(1, 255))
    path.write_bytes(text)
    path.chmod(0o600)
    said, loaded = "", None
    try:
        loaded = Identity.load(path)
    except (InvalidDataError, InvalidParameterError) as refused:
        said = f"{refused} {refused.__cause__}"
    assert not any(secret in said for secret in secrets_of(PARTIES[0]))
    if loaded is not None:  # white space, the port, or the case of a digit were changed
        assert loaded.unseal(PARTIES[0].member.seal(b"text", b""), b"") == b"text"
        assert PARTIES[0].member.has_signed(b"text", loaded.sign(b"text"))


@pytest.mark.parametrize("address", [None, "host", "host:65536", "a b:1", "a:1:2", "[::1]"])
def test_a_computing_party_needs_an_address(address):
    with pytest.raises(InvalidParameterError, match="`address` of a computing party"):
        Identity.generate("party", Role.COMPUTING, address)


def test_only_computing_parties_have_addresses_and_certificates():
    with pytest.raises(InvalidParameterError, match="only computing parties"):
        replace(PARTIES[0].member, role=Role.ENTITY)
    with pytest.raises(InvalidParameterError, match="`role` of Member"):
        replace(ALICE.member, role="king")


def test_the_seven_points_whose_secret_all_know_are_no_sealing_keys():
    prime = 2**255 - 19
    others = [
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    ]
    for point in (*others, 0, 1, *range(prime - 1, prime + 2)):
        with pytest.raises(InvalidParameterError, match="must be a usable X25519 key"):
            replace(ALICE.member, sealing_key=point.to_bytes(32, "little").hex())


def test_a_certificate_is_the_members_own():
    for other in (
        None,
        "text",
        PARTIES[1].member.certificate,
        f"{PARTIES[0].member.certificate}\n",
    ):
        with pytest.raises(InvalidParameterError, match="that was generated for party0"):
            replace(PARTIES[0].member, certificate=other)
    with pytest.raises(InvalidParameterError, match="that was generated for other"):
        replace(PARTIES[0].member, name="other")


def test_a_seal_is_for_one_member_and_one_purpose_and_never_the_same():
    sealed = ALICE.member.seal(b"text", b"info")
    assert sealed != ALICE.member.seal(b"text", b"info")
    assert len(sealed) == len(b"text") + 48
    for identity, info in ((ALICE, b"other"), (PARTIES[0], b"info")):
        with pytest.raises(ForgedMessageError, match="cannot be decrypted"):
            identity.unseal(sealed, info)
