import copy
import json
import os
import pickle
import socket
import ssl
import stat
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from tutelage.exceptions import ForgedMessageError, InvalidDataError, InvalidParameterError, NotPublishableError
from tutelage.federation.keys import Identity, Member, Role

ALICE = Identity.generate("alice", Role.ENTITY)
PARTIES = [Identity.generate(f"party{place}", Role.COMPUTING, f"127.0.0.1:{7001 + place}") for place in range(3)]


def secrets_of(identity: Identity) -> list[str]:
    content = json.loads(identity._private_document())
    pem = content["tls"] or ""
    return [content["signing"], content["sealing"], *pem.splitlines()[1:-1]]


@pytest.mark.parametrize("identity", [ALICE, PARTIES[0]])
def test_an_identity_is_saved_and_loaded(identity, tmp_path):
    private, public = identity.save(tmp_path / "new")
    assert [path.name.split(".", 1)[1] for path in (private, public)] == ["private.json", "public.json"]
    loaded = Identity.load(private)
    assert loaded.member == identity.member == Member.load(public)
    assert identity.member.has_signed(b"text", loaded.sign(b"text"))
    assert loaded.unseal(identity.member.seal(b"text", b"info"), b"info") == b"text"
    assert loaded._private_document() == identity._private_document()


def test_the_private_file_is_for_its_owner_and_the_public_one_holds_no_secret(tmp_path):
    before = os.umask(0)
    try:
        private, public = PARTIES[0].save(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    for secret in secrets_of(PARTIES[0]):
        assert secret in private.read_text().replace("\\n", "\n")
        assert secret not in public.read_text()


@pytest.mark.parametrize("kind", ["private", "public"])
def test_keys_are_never_overwritten(kind, tmp_path):
    path = tmp_path / f"alice.{kind}.json"
    path.write_text("mine")
    with pytest.raises(InvalidDataError, match="never overwritten"):
        ALICE.save(tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "mine"


def test_keys_that_cannot_be_written_are_refused_plainly(tmp_path):
    (tmp_path / "file").write_text("")  # where a folder would have to be
    with pytest.raises(InvalidDataError, match=r"alice\.private\.json cannot be written"):
        ALICE.save(tmp_path / "file" / "folder")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o644])
def test_keys_that_others_may_read_are_not_used(mode, tmp_path):
    private, _ = ALICE.save(tmp_path)
    private.chmod(mode)
    with pytest.raises(InvalidDataError, match=r"Run: chmod 600 .*alice\.private\.json"):
        Identity.load(private)
    private.chmod(0o600)
    assert Identity.load(private).member == ALICE.member


def test_an_identity_is_not_shown_copied_or_pickled():
    for shown in (repr(PARTIES[0]), str(PARTIES[0]), f"{PARTIES[0]}"):
        assert "hidden" in shown
        assert not any(secret in shown for secret in secrets_of(PARTIES[0]))
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(NotPublishableError, match="not pickled"):
            leave(ALICE)


def test_private_keys_must_belong_to_the_member(tmp_path):
    private, _ = ALICE.save(tmp_path)
    content = json.loads(private.read_text())
    other = json.loads(Identity.generate("alice", Role.ENTITY)._private_document())
    for name in ("signing", "sealing"):
        private.write_text(json.dumps({**content, name: other[name]}))
        with pytest.raises(InvalidDataError, match="do not belong"):
            Identity.load(private)


def test_a_tls_key_must_belong_to_its_certificate():
    with pytest.raises(InvalidDataError, match="TLS key does not belong"):
        Identity(PARTIES[0].member, PARTIES[0]._signing, PARTIES[0]._sealing, PARTIES[1].tls_key_pem)
    with pytest.raises(InvalidDataError, match="if and only if"):
        Identity(PARTIES[0].member, PARTIES[0]._signing, PARTIES[0]._sealing, None)
    with pytest.raises(InvalidParameterError, match="alice is not one"):
        _ = ALICE.tls_key_pem


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


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "\xff", "[" * 100_000, '{"file": "identity", "file": "identity", "format": 1}', "NaN"],
)
def test_what_is_no_private_file_is_refused(text, tmp_path):
    path = tmp_path / "any.private.json"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(InvalidDataError, match="no complete private file"):
        Identity.load(path)


def test_a_file_of_a_later_format_a_missing_one_a_folder_and_a_pipe_are_refused(tmp_path):
    path, pipe = tmp_path / "later.private.json", tmp_path / "pipe"
    path.write_text('{"file": "identity", "format": 2}')
    path.chmod(0o600)
    os.mkfifo(pipe)
    refusals = {
        path: "format 2",
        tmp_path / "none": "does not exist",
        tmp_path: "cannot be read",
        pipe: "it is a pipe",
    }
    for name, why in refusals.items():
        with pytest.raises(InvalidDataError, match=why):
            Identity.load(name)


@pytest.mark.parametrize("name", ["", "a" * 41, "../a", "a/b", "a.b", "a b", "ä", "-a", "_a", "a\n", "a\0", None, 7])
def test_a_name_that_could_leave_its_folder_is_no_name(name):
    with pytest.raises(InvalidParameterError, match="`name` of Identity"):
        Identity.generate(name, Role.ENTITY)
    with pytest.raises(InvalidParameterError, match="`name` of Member"):
        replace(ALICE.member, name=name)


@pytest.mark.parametrize("name", ["a", "A-1_b", "9", "x" * 40])
def test_plain_names_are_names(name):
    assert Identity.generate(name, Role.AGGREGATOR).member.name == name


@pytest.mark.parametrize(
    "address",
    [None, "", "host", "host:", "host:0", "host:65536", "host:07", ":1", "a b:1", "a:1:2", "a:1\n", "[::1]"],
)
def test_a_computing_party_needs_an_address(address):
    with pytest.raises(InvalidParameterError, match="`address` of a computing party"):
        Identity.generate("party", Role.COMPUTING, address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "mpc.example.org:65535", "[::1]:7001"])
def test_addresses_of_all_kinds_are_taken(address):
    assert replace(PARTIES[0].member, address=address).address == address


def test_only_computing_parties_have_addresses_and_certificates():
    with pytest.raises(InvalidParameterError, match="Only a computing party"):
        Identity.generate("alice", Role.ENTITY, "127.0.0.1:1")
    with pytest.raises(InvalidParameterError, match="Only a computing party"):
        replace(PARTIES[0].member, role=Role.ENTITY)
    with pytest.raises(InvalidParameterError, match="`role` of Member"):
        replace(ALICE.member, role="king")


@pytest.mark.parametrize("key", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64, None, b"0" * 64, "0" * 64])
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(InvalidParameterError, match="sealing_key"):
        replace(ALICE.member, sealing_key=key)


def test_the_seven_points_whose_secret_all_know_are_no_sealing_keys():
    prime = 2**255 - 19
    others = [
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    ]
    for point in (0, 1, prime - 1, prime, prime + 1, *others):
        with pytest.raises(InvalidParameterError, match="no usable X25519 key"):
            replace(ALICE.member, sealing_key=point.to_bytes(32, "little").hex())


def test_a_certificate_is_the_members_own():
    for other in (None, "", "text", PARTIES[1].member.certificate, f"{PARTIES[0].member.certificate}" + "\n"):
        with pytest.raises(InvalidParameterError, match="`certificate` of party0"):
            replace(PARTIES[0].member, certificate=other)
    with pytest.raises(InvalidParameterError, match="`certificate` of other"):
        replace(PARTIES[0].member, name="other")


def test_a_certificate_lasts_ten_years():
    read = x509.load_pem_x509_certificate((PARTIES[0].member.certificate or "").encode())
    assert read.not_valid_before_utc < datetime.now(UTC)
    assert abs(read.not_valid_after_utc - datetime.now(UTC) - timedelta(days=3652)) < timedelta(hours=1)


def test_a_member_is_written_and_read_as_plain_values():
    for identity in (ALICE, PARTIES[0]):
        assert Member.from_dict(json.loads(json.dumps(identity.member.as_dict()))) == identity.member
    plain = ALICE.member.as_dict()
    missing = {name: value for name, value in plain.items() if name != "role"}
    for content in (None, [], {}, missing, {**plain, "more": 1}):
        with pytest.raises(InvalidDataError, match="must have the entries name, role"):
            Member.from_dict(content)


def test_a_fingerprint_depends_on_everything_known_of_a_member():
    other = Identity.generate("alice", Role.ENTITY).member
    members = [
        ALICE.member,
        replace(ALICE.member, name="bob"),
        replace(ALICE.member, role=Role.AGGREGATOR),
        replace(ALICE.member, signing_key=other.signing_key),
        replace(ALICE.member, sealing_key=other.sealing_key),
        PARTIES[0].member,
        replace(PARTIES[0].member, address="127.0.0.1:9"),
    ]
    assert len({member.fingerprint for member in members}) == len(members)
    assert all(len(member.fingerprint) == 39 for member in members)
    assert ALICE.member.fingerprint == Member.from_dict(ALICE.member.as_dict()).fingerprint


@given(st.binary(max_size=100), st.binary(max_size=64))
def test_no_other_signature_counts(message, signature):
    assert ALICE.member.has_signed(message, ALICE.sign(message))
    assert not ALICE.member.has_signed(message, signature)
    assert not ALICE.member.has_signed(message + b"\0", ALICE.sign(message))
    assert not PARTIES[0].member.has_signed(message, ALICE.sign(message))


@given(st.binary(max_size=200))
def test_what_was_not_sealed_here_does_not_open(ciphertext):
    with pytest.raises(ForgedMessageError, match="does not open"):
        ALICE.unseal(ciphertext, b"info")


def test_a_seal_is_for_one_member_and_one_purpose_and_never_the_same():
    sealed = ALICE.member.seal(b"text", b"info")
    assert sealed != ALICE.member.seal(b"text", b"info")
    assert len(sealed) == len(b"text") + 48
    for identity, info in ((ALICE, b"other"), (PARTIES[0], b"info")):
        with pytest.raises(ForgedMessageError, match="does not open"):
            identity.unseal(sealed, info)


def context(purpose: ssl.Purpose, mine: Identity, trusted: Member, folder: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(purpose, cadata=trusted.certificate)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    pem = folder / f"{mine.member.name}.pem"
    pem.write_bytes((mine.member.certificate or "").encode() + mine.tls_key_pem)
    made.load_cert_chain(pem)
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[list[object], list[object]]:
    """Return what each end saw, or why it refused: the server's and the client's."""
    ends, seen = socket.socketpair(), ([], [])

    def end(place: int, settings: ssl.SSLContext) -> None:
        try:
            with settings.wrap_socket(ends[place], server_side=place == 0) as connection:
                connection.sendall(b"x")
                connection.recv(1)  # in TLS 1.3 a client learns here that it was refused
                seen[place].extend([connection.version(), connection.getpeercert(binary_form=True)])
        except OSError as error:
            seen[place].append(error)

    other = threading.Thread(target=end, args=(0, server))
    other.start()
    end(1, client)
    other.join()
    return seen


def test_two_parties_shake_hands_over_tls_1_3_with_the_certificates_they_know(tmp_path):
    server = context(ssl.Purpose.CLIENT_AUTH, PARTIES[0], PARTIES[1].member, tmp_path)
    client = context(ssl.Purpose.SERVER_AUTH, PARTIES[1], PARTIES[0].member, tmp_path)
    of_server, of_client = shake_hands(server, client)
    certificates = [ssl.PEM_cert_to_DER_cert(party.member.certificate or "") for party in PARTIES]
    assert of_server == ["TLSv1.3", certificates[1]]
    assert of_client == ["TLSv1.3", certificates[0]]


@pytest.mark.parametrize(("server", "client"), [(0, 2), (2, 1)])
def test_a_party_with_another_certificate_is_turned_away(server, client, tmp_path):
    asked = context(ssl.Purpose.CLIENT_AUTH, PARTIES[server], PARTIES[1].member, tmp_path)
    asking = context(ssl.Purpose.SERVER_AUTH, PARTIES[client], PARTIES[0].member, tmp_path)
    outcomes = shake_hands(asked, asking)
    assert any(isinstance(outcome, ssl.SSLCertVerificationError) for outcome in (outcomes[0][0], outcomes[1][0]))
    assert all(isinstance(outcome[0], OSError) for outcome in outcomes)
