"""Signed documents: one line of JSON that says what a document is about, its signature, and a body of bytes.

All that members sign for each other is one: batches of queries, sealed messages, and that a roster is accepted or a
batch collected. The signature covers a context, the line, which names kind and format, and the SHA-256 of the body, so
that no document passes for another one.
"""

import hashlib
from typing import Self, TypeVar, final

from tutelage._internal.records import frozen, record_in
from tutelage.exceptions import TutelageError
from tutelage.signing import document
from tutelage_consortium.keys import Identity, Member

MOST_LINE_BYTES = 4096
SIGNATURE_BYTES = 64  # Ed25519
MOST_BYTES = 2**28  # of a message: two million queries of ten classes
# HPKE adds a key of 32 bytes and a tag of 16.
MOST_PAYLOAD_BYTES = MOST_BYTES - (MOST_LINE_BYTES + SIGNATURE_BYTES + 48)
_CONTEXT = b"tutelage signed document, format 1\0"

About = TypeVar("About")


@final
@frozen
class SignedDocument:
    """A document as it travels; whose it is, is checked by `is_signed_by`."""

    line: bytes  # with its end
    signature: bytes
    body: bytes

    @classmethod
    def sign(cls, identity: Identity, line: bytes, body: bytes = b"") -> Self:
        """Return the document with the signature of a member."""
        return cls(line, identity.sign(_message(line, body)), body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the parts of a document; where no line ends in time, the line is empty and about nothing."""
        ends = data.find(b"\n", 0, MOST_LINE_BYTES) + 1
        body_begins = ends + SIGNATURE_BYTES
        return cls(data[:ends], data[ends:body_begins], data[body_begins:])

    def to_bytes(self) -> bytes:
        """Return the document as it travels."""
        return self.line + self.signature + self.body

    def is_signed_by(self, member: Member) -> bool:
        """Return whether a member signed line and body."""
        return member.has_signed(_message(self.line, self.body), self.signature)

    def about(self, kind: str, of: type[About], damaged: TutelageError) -> About:
        """Return the record of the line; a line that is not exactly as it would be written is damage."""
        record = record_in(self.line, kind, of, damaged)
        if document(kind, record) != self.line:
            raise damaged
        return record


def _message(line: bytes, body: bytes) -> bytes:
    """Return the bytes that are signed."""
    return _CONTEXT + line + hashlib.sha256(body).digest()
