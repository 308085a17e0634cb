"""Sealed messages: only the recipient reads one, and knows whose it is and what it answers."""

from enum import StrEnum
from typing import Self, final

from tutelage._internal.records import Names, frozen, plain
from tutelage.exceptions import (
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    quote,
)
from tutelage.signing import document
from tutelage_consortium.batches import Batch
from tutelage_consortium.documents import MOST_BYTES, MOST_PAYLOAD_BYTES, SignedDocument
from tutelage_consortium.keys import Identity, Member
from tutelage_consortium.terms import ConsortiumTerms

_KIND = "envelope"


@final
class Kind(StrEnum):
    """Kinds of messages by content, sender and recipient."""

    SHARES = "shares"  # of noised votes, from an entity to a computing party
    LABELS = "labels"  # in shares, from a computing party to the aggregator


@final
@frozen
class Header:
    """Subject of a message; public."""

    consortium: str
    batch: str
    query_hash: str
    kind: Kind
    sender: str
    recipient: str

    @classmethod
    def of(
        cls, consortium: ConsortiumTerms, batch: Batch, kind: Kind, sender: str, recipient: str
    ) -> Self:
        """Return the header of a message about `batch` from one member of `consortium` to another, by their names."""
        return cls(
            consortium.fingerprint, batch.identifier, batch.query_hash, kind, sender, recipient
        )

    def to_bytes(self) -> bytes:
        """Return the header as one line of canonical JSON."""
        return document(_KIND, self)


@final
@frozen
class Opened:
    """The name of a computation, and whose votes are in it; sent with the share of a computing party."""

    run: str
    entities: Names


def seal(identity: Identity, recipient: Member, header: Header, payload: bytes) -> bytes:
    """Encrypt `payload` to `recipient`, bound to `header`, and sign both; the result may travel over anything.

    Notes
    -----
    HPKE in base mode (RFC 9180) with the header as info, then a signed document of the header and the ciphertext. The
    header names the sender inside the seal as well, so that no member can sign another member's ciphertext as its own.
    """
    _require_named(identity.member, header.sender, "sender")
    _require_named(recipient, header.recipient, "recipient")
    if len(payload) > MOST_PAYLOAD_BYTES:
        raise InvalidDataError(
            f"A payload must be at most {MOST_PAYLOAD_BYTES} bytes. Split the batch."
        )
    line = header.to_bytes()
    return SignedDocument.sign(identity, line, recipient.seal(payload, line)).to_bytes()


def unseal(identity: Identity, sender: Member, expected: Header, envelope: bytes) -> bytes:
    """Return the payload of an envelope that is exactly what is expected."""
    _require_named(identity.member, expected.recipient, "recipient")
    return identity.unseal(sealed_by(sender, expected, envelope), expected.to_bytes())


def sealed_by(sender: Member, expected: Header, envelope: bytes) -> bytes:
    """Return the ciphertext of an envelope that its sender signed under the expected header; any member can."""
    _require_named(sender, expected.sender, "sender")
    if len(envelope) > MOST_BYTES:
        raise ForgedMessageError(
            f"A message from {sender.name} is longer than {MOST_BYTES} bytes, the limit."
        )
    sealed = SignedDocument.from_bytes(envelope)
    if sealed.line != expected.to_bytes() or not sealed.body:
        raise _refusal(sealed, sender, expected)
    if not sealed.is_signed_by(sender):
        raise ForgedMessageError(f"A message was not signed by {sender.name}, or was damaged.")
    return sealed.body


def _require_named(member: Member, name: str, role: str) -> None:
    """Refuse keys of another member than a header names."""
    if member.name != name:
        raise InvalidParameterError(f"the header.{role}", f"be {member.name!r}", f"{name!r}")


def _refusal(sealed: SignedDocument, sender: Member, expected: Header) -> ForgedMessageError:
    """Return why a message with another line than the expected header is refused."""
    damaged = ForgedMessageError(f"A message from {sender.name} is damaged. It must be sent again.")
    try:
        content = plain(sealed.about(_KIND, Header, damaged))
    except (ForgedMessageError, InvalidDataError) as error:
        if error is damaged:
            return damaged
        return ForgedMessageError(f"A message from {sender.name} cannot be read. {error}")
    for name, wanted in plain(expected).items():
        if content[name] != wanted:
            return ForgedMessageError(
                f"`{name}` of a message from {sender.name} must be {wanted}. Got {quote(content[name])}."
            )
    return damaged
