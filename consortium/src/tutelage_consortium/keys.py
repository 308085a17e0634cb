"""Members of a consortium and the private identity behind each, with Ed25519, X25519 and TLS keys."""

import re
from collections.abc import Iterable
from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, final

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.x509.oid import NameOID

from tutelage import signing
from tutelage._internal.gate import AnyPath
from tutelage._internal.records import by_identity, frozen, plain, record_in
from tutelage._internal.typing import NeverPickled
from tutelage.exceptions import ForgedMessageError, InvalidDataError, InvalidParameterError
from tutelage_consortium.files import read_within

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


@final
class Role(StrEnum):
    """Role of a member."""

    ENTITY = "entity"  # holds private rows and votes
    COMPUTING = "computing"  # computes on shares
    AGGREGATOR = "aggregator"  # asks, and receives the labels


@final
@frozen
class Member:
    """A member as all others know it; public."""

    name: str  # 1 to 40 letters, digits, '-' and '_'
    role: Role
    signing_key: str  # Ed25519, 64 hexadecimal digits
    sealing_key: str  # X25519, as many
    # "host:port" where a computing party listens; other members have none.
    address: str | None = None
    # Self-signed for TLS, PEM; a computing party's only.
    certificate: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        signing.require_name(self.name, "Member")
        if self.role not in tuple(Role):
            raise InvalidParameterError(
                "Member.role", f"be one of {', '.join(Role)}", f"{self.role!r}"
            )
        object.__setattr__(self, "role", Role(self.role))
        for name in ("signing_key", "sealing_key"):
            signing.require_hexadecimal(getattr(self, name), 64, name, "Member")
        try:  # a few points have a shared secret that is always zero (RFC 7748, section 6.1)
            X25519PrivateKey.generate().exchange(
                X25519PublicKey.from_public_bytes(bytes.fromhex(self.sealing_key))
            )
        except ValueError:
            raise InvalidParameterError(
                "Member.sealing_key", "be a usable X25519 key", fix="Generate another."
            ) from None
        if self.role is Role.COMPUTING:
            host_and_port(self.address)
            _check_certificate(self.certificate, self.name)
        elif self.address is not None or self.certificate is not None:
            raise InvalidParameterError(
                "Member.address",
                f"be left out for {self.name}, and $certificate too, because only computing parties have them",
            )

    @property
    def fingerprint(self) -> str:
        """128 bits of the SHA-256 of all that is known of the member, for comparing aloud before trusting its keys."""
        return signing.fingerprint_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the member as plain values."""
        return plain(self)

    def to_bytes(self) -> bytes:
        """Return the member as its public file holds it."""
        return signing.document("member", self)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read the public file that `Identity.save` wrote, checking every value."""
        damaged = InvalidDataError(
            f"{path} is no complete public file of a member. Ask for it again."
        )
        return record_in(read_within(Path(path)), "member", cls, damaged)

    def seal(self, plaintext: bytes, info: bytes) -> bytes:
        """Encrypt to this member alone, bound to `info`: HPKE, RFC 9180, X25519, HKDF-SHA256 and AES-256-GCM."""
        return _SUITE.encrypt(
            plaintext, X25519PublicKey.from_public_bytes(bytes.fromhex(self.sealing_key)), info=info
        )

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether `signature` is this member's of `message`."""
        return signing.has_signed(self.signing_key, message, signature)


def names_of(members: Iterable[Member]) -> list[str]:
    """Return the names of members, in their order."""
    return [member.name for member in members]


@final
@by_identity
class Identity(NeverPickled):
    """A member with the private keys that belong to its public ones; private. Make one with `generate` or `load`."""

    _stored_by = "save(folder)"
    member: Member
    _signing: Ed25519PrivateKey
    _sealing: X25519PrivateKey
    tls_key_pem: bytes | None  # a computing party's alone, unencrypted PKCS#8

    def __post_init__(self) -> None:
        keys = self._signing.public_key(), self._sealing.public_key()
        if tuple(key.public_bytes_raw().hex() for key in keys) != (
            self.member.signing_key,
            self.member.sealing_key,
        ):
            raise InvalidDataError(
                f"The private keys of {self.member.name} do not belong to its public ones."
            )
        if (self.member.certificate is None) != (self.tls_key_pem is None):
            raise InvalidDataError(
                f"{self.member.name} must have a TLS key if and only if it has a certificate."
            )
        if self.member.certificate is not None and self.tls_key_pem is not None:
            try:
                key = serialization.load_pem_private_key(self.tls_key_pem, None).public_key()
            except (ValueError, TypeError):
                key = None
            if (
                key
                != x509.load_pem_x509_certificate(
                    self.member.certificate.encode("ascii")
                ).public_key()
            ):
                raise InvalidDataError("The TLS key does not belong to the certificate.")

    @classmethod
    def generate(cls, name: str, role: Role, address: str | None = None) -> Self:
        """Make fresh keys for a new member; a computing party has an address, ``"host:port"`` where it listens."""
        signing.require_name(name, "Identity.generate")
        private_signing = Ed25519PrivateKey.generate()
        private_sealing = X25519PrivateKey.generate()
        tls_key_pem = certificate = None
        if role == Role.COMPUTING:
            tls_key_pem, certificate = _tls_credentials(name)
        signing_key, sealing_key = (
            key.public_key().public_bytes_raw().hex() for key in (private_signing, private_sealing)
        )
        member = Member(name, role, signing_key, sealing_key, address, certificate)
        return cls(member, private_signing, private_sealing, tls_key_pem)

    def sign(self, message: bytes) -> bytes:
        """Return this member's Ed25519 signature of `message`, 64 bytes."""
        return self._signing.sign(message)

    def unseal(self, ciphertext: bytes, info: bytes) -> bytes:
        """Decrypt what was sealed to this member with the same `info`; anything else is a `ForgedMessageError`."""
        try:
            return _SUITE.decrypt(ciphertext, self._sealing, info=info)
        except (InvalidTag, ValueError):
            raise ForgedMessageError(
                f"A message to {self.member.name} cannot be decrypted with these keys."
            ) from None

    def save(self, folder: AnyPath) -> tuple[Path, Path]:
        """Write the private and the public file, as `tutelage.signing.save_keys` does, and return both paths."""
        return signing.save_keys(
            folder,
            self.member.name,
            self._private_document(),
            lambda private: Identity.load(private).member.to_bytes(),
        )

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read the private file that `save` wrote; one that others than its owner may read is refused."""
        damaged = InvalidDataError(
            f"{path} is no complete private file of a member. Restore its copy, or remove it."
        )
        stored = record_in(signing.read_private(Path(path)), "identity", _PrivateKeys, damaged)
        try:
            signing_key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(stored.signing))
            sealing_key = X25519PrivateKey.from_private_bytes(bytes.fromhex(stored.sealing))
            tls_key_pem = None if stored.tls is None else stored.tls.encode("ascii")
        except ValueError:
            raise damaged from None
        return cls(stored.member, signing_key, sealing_key, tls_key_pem)

    def _private_document(self) -> bytes:
        tls = None if self.tls_key_pem is None else self.tls_key_pem.decode("ascii")
        stored = _PrivateKeys(
            self.member,
            self._signing.private_bytes_raw().hex(),
            self._sealing.private_bytes_raw().hex(),
            tls,
        )
        return signing.document("identity", stored)

    def __repr__(self) -> str:
        return f"Identity(<keys hidden: private>, member={self.member.name!r}, role={self.member.role.value!r})"


@frozen
class _PrivateKeys:
    member: Member
    signing: str = field(repr=False)
    sealing: str = field(repr=False)
    tls: str | None = field(repr=False)


def host_and_port(address: object, name: str = "a computing party.address") -> tuple[str, int]:
    """Return what an address says, without the brackets of an IPv6 host."""
    found = re.fullmatch(
        r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253}):([1-9][0-9]{0,4})", str(address)
    )
    if found is None or int(found[2]) > 65535:
        must = "be 'host:port' with a port from 1 to 65535, for example 'mpc.example.org:7001'"
        raise InvalidParameterError(name, must, repr(address))
    return found[1].strip("[]"), int(found[2])


def _check_certificate(pem: object, name: str) -> None:
    refusal = InvalidParameterError(
        "Member.certificate", f"be the PEM certificate that was generated for {name}"
    )
    try:
        read = x509.load_pem_x509_certificate(str(pem).encode("ascii"))
        common = [
            attribute.value
            for attribute in read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
        alternatives = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        covered = alternatives.get_values_for_type(x509.UniformResourceIdentifier)
        read.verify_directly_issued_by(read)
    except Exception:  # the parser's errors on hostile input have no common base
        raise refusal from None
    exact = read.public_bytes(serialization.Encoding.PEM).decode("ascii")
    if pem != exact or not common == covered == [f"tutelage:{name}"]:
        raise refusal


def _tls_credentials(name: str) -> tuple[bytes, str]:
    """Return a fresh P-256 key and its self-signed certificate for both ends of TLS 1.3, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tutelage:{name}")])
    alternative = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"tutelage:{name}")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3652))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem, certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
