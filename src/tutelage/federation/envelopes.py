"""Sealed and signed messages between members: only the recipient reads one, and knows whose it is and what it answers.

An envelope is one line of JSON, the header; 64 bytes of the sender's signature; and the sealed payload.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self, final

from tutelage._internal.validation import shown
from tutelage.exceptions import ForgedMessageError, InvalidDataError, InvalidParameterError
from tutelage.federation.batches import Batch
from tutelage.federation.consortium import Consortium
from tutelage.federation.documents import parse
from tutelage.federation.keys import Identity, Member
from tutelage.ledger.entries import canonical

MOST_BYTES = 2**28  # two million queries of ten classes
_FORMAT = 1
_CONTEXT = b"tutelage sealed message, format 1\0"
_MOST_HEADER_BYTES = 1024
_SIGNATURE_BYTES = 64
# HPKE adds a key of 32 bytes and a tag of 16.
MOST_PAYLOAD_BYTES = MOST_BYTES - (_MOST_HEADER_BYTES + 1 + _SIGNATURE_BYTES + 48)


@final
class Kind(StrEnum):
    """Kinds of messages by content, sender and recipient."""

    SHARES = "shares"  # of noised votes, from an entity to a computing party
    LABELS = "labels"  # in shares, from a computing party to the aggregator
    BALLOTS = "ballots"  # perturbed one by one, from an entity to the aggregator


@final
@dataclass(frozen=True, slots=True)
class Header:
    """Subject of a message; public."""

    consortium: str
    batch: str
    query_hash: str
    kind: Kind
    sender: str
    recipient: str

    @classmethod
    def of(cls, consortium: Consortium, batch: Batch, kind: Kind, sender: str, recipient: str) -> Self:
        """Return the header of a message about `batch` from one member of `consortium` to another, by their names."""
        return cls(consortium.fingerprint, batch.identifier, batch.query_hash, kind, sender, recipient)

    def to_bytes(self) -> bytes:
        """Return the header as one line of canonical JSON."""
        return canonical({"file": "envelope", "format": _FORMAT, **asdict(self)}).encode() + b"\n"


def seal(identity: Identity, recipient: Member, header: Header, payload: bytes) -> bytes:
    """Encrypt `payload` to `recipient`, bound to `header`, and sign both; what comes out may travel over anything.

    Notes
    -----
    HPKE in base mode (RFC 9180) with the header as info, then Ed25519 over a fixed context, the header and the
    ciphertext. The header names the sender inside the seal as well, so that no member can sign another member's
    ciphertext as its own.
    """
    _require_named(identity.member, header.sender, "sender")
    _require_named(recipient, header.recipient, "recipient")
    if len(payload) > MOST_PAYLOAD_BYTES:
        raise InvalidDataError(f"A payload must be at most {MOST_PAYLOAD_BYTES} bytes. Split the batch.")
    line = header.to_bytes()
    ciphertext = recipient.seal(payload, line)
    return line + identity.sign(_CONTEXT + line + ciphertext) + ciphertext


def unseal(identity: Identity, sender: Member, expected: Header, envelope: bytes) -> bytes:
    """Return the payload of an envelope that is exactly what is expected."""
    _require_named(identity.member, expected.recipient, "recipient")
    return identity.unseal(sealed_by(sender, expected, envelope), expected.to_bytes())


def sealed_by(sender: Member, expected: Header, envelope: bytes) -> bytes:
    """Return the ciphertext of an envelope that its sender signed under the expected header; any member can."""
    _require_named(sender, expected.sender, "sender")
    if len(envelope) > MOST_BYTES:
        raise ForgedMessageError(f"A message from {sender.name} is longer than {MOST_BYTES} bytes, the most there is.")
    line = envelope[: envelope.find(b"\n", 0, _MOST_HEADER_BYTES) + 1]
    body = envelope[len(line) :]
    if line != expected.to_bytes() or len(body) <= _SIGNATURE_BYTES:
        raise _refusal(line, sender, expected)
    signature, ciphertext = body[:_SIGNATURE_BYTES], body[_SIGNATURE_BYTES:]
    if not sender.has_signed(_CONTEXT + line + ciphertext, signature):
        raise ForgedMessageError(f"A message was not signed by {sender.name}, or was damaged.")
    return ciphertext


def _require_named(member: Member, name: str, role: str) -> None:
    if member.name != name:
        raise InvalidParameterError(f"`{role}` of the header must be {member.name!r}. Got {name!r}.")


def _refusal(line: bytes, sender: Member, expected: Header) -> ForgedMessageError:
    """Return why a message that begins with another line than the expected header is refused."""
    damaged = ForgedMessageError(f"A message from {sender.name} is damaged. It must be sent again.")
    try:
        content = parse(line, "envelope", _FORMAT, damaged)
    except (ForgedMessageError, InvalidDataError) as error:
        if error is damaged:
            return damaged
        return ForgedMessageError(f"A message from {sender.name} cannot be read. {error}")
    for name, wanted in asdict(expected).items():
        if (got := content.get(name)) != wanted:
            return ForgedMessageError(f"`{name}` of a message from {sender.name} must be {wanted}. Got {shown(got)}.")
    return damaged
