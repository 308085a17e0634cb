"""A batch of public queries: a document that the aggregator signed, with the rows as plain bytes."""

import secrets
from dataclasses import field, replace
from math import prod
from pathlib import Path
from typing import Annotated, Literal, Self, cast, final, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from tutelage._internal.gate import AnyPath
from tutelage._internal.records import by_identity, frozen, sha256_of
from tutelage._internal.typing import Matrix
from tutelage.digests import canonical
from tutelage.exceptions import (
    ForgedMessageError,
    InvalidDataError,
    InvalidParameterError,
    StaleBatchError,
)
from tutelage.signing import document, require_hexadecimal
from tutelage_consortium.documents import MOST_LINE_BYTES, SIGNATURE_BYTES, SignedDocument
from tutelage_consortium.files import read_within, write_once
from tutelage_consortium.keys import Identity
from tutelage_consortium.terms import ConsortiumTerms

_KIND = "batch"
_MOST_BYTES = 2**30
_MOST_AXES = 8
_DType = Literal["|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"]


@final
@by_identity
class Batch:
    """Queries that the aggregator asks all entities; public. Make one with `make` or `load`."""

    consortium: str  # fingerprint of the terms
    identifier: str  # 32 hexadecimal digits, random
    rows: Matrix = field(repr=False)  # public, (queries, ...), numbers or booleans; read-only
    query_hash: str  # SHA-256 over the rows' type, shape and bytes
    signature: bytes = field(repr=False)  # the aggregator's, of all of that

    def __post_init__(self) -> None:
        for name, digits in (("consortium", 64), ("identifier", 32), ("query_hash", 64)):
            require_hexadecimal(getattr(self, name), digits, name, "Batch")

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.rows)

    @classmethod
    def make(cls, identity: Identity, consortium: ConsortiumTerms, rows: npt.ArrayLike) -> Self:
        """Ask public rows of shape (queries, ...) under a fresh identifier, by the aggregator's identity.

        Rows are numbers or booleans, finite, at least one row and at most 1 GiB.
        """
        if identity.member != consortium.aggregator:
            raise InvalidParameterError(
                "Batch.make.identity",
                f"be that of the aggregator, {consortium.aggregator.name}",
                f"that of {identity.member.name}",
            )
        plain = plain_rows(rows)
        unsigned = cls(
            consortium.fingerprint, secrets.token_hex(16), plain, hash_of_rows(plain), b""
        )
        return unsigned.signed_by(identity)

    def signed_by(self, identity: Identity) -> Self:
        """Return the same batch, signed by the present keys of the aggregator."""
        signed = SignedDocument.sign(identity, self._line, self.rows.tobytes())
        return replace(self, signature=signed.signature)

    @property
    def _line(self) -> bytes:
        kind = cast("_DType", self.rows.dtype.str)
        header = _Header(self.consortium, self.identifier, kind, self.rows.shape, self.query_hash)
        return document(_KIND, header)

    def to_bytes(self) -> bytes:
        """Return the batch as its file holds it."""
        return SignedDocument(self._line, self.signature, self.rows.tobytes()).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, consortium: ConsortiumTerms, *, own: bool = False) -> Self:
        """Return the batch that `to_bytes` wrote, after checking that `consortium`'s aggregator signed all of it.

        The signature of the aggregator's `own` copy is not checked: it may be by keys that it has no longer.
        """
        damaged = ForgedMessageError(
            "A batch of queries is damaged. The aggregator must send it again."
        )
        signed = SignedDocument.from_bytes(data)
        header = signed.about(_KIND, _Header, damaged)
        if header.consortium != consortium.fingerprint:
            raise StaleBatchError(
                f"A batch of queries is not for {consortium.name!r} in its present form."
            )
        kind = np.dtype(header.dtype)
        if prod(header.shape) * kind.itemsize != len(signed.body):
            raise damaged
        if kind == np.bool_ and signed.body.strip(b"\0\1"):
            raise damaged
        rows = np.frombuffer(signed.body, dtype=kind).reshape(header.shape)
        if header.query_hash != hash_of_rows(rows):
            raise damaged
        try:
            batch = cls(
                header.consortium, header.identifier, rows, header.query_hash, signed.signature
            )
        except InvalidParameterError:
            raise damaged from None
        if not own and not signed.is_signed_by(consortium.aggregator):
            raise ForgedMessageError(
                f"A batch of queries was not signed by {consortium.aggregator.name}, who asks."
            )
        return batch

    def save(self, path: AnyPath) -> None:
        """Write the batch to a file; another batch is never overwritten."""
        write_once(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: AnyPath, consortium: ConsortiumTerms) -> Self:
        """Read what `save` wrote, checked as by `from_bytes`."""
        most = MOST_LINE_BYTES + SIGNATURE_BYTES + _MOST_BYTES
        return cls.from_bytes(read_within(Path(path), most), consortium)


def plain_rows(rows: npt.ArrayLike) -> Matrix:
    """Return the rows as a new read-only array in C order, little-endian."""
    given = np.asarray(rows)
    kind = given.dtype.newbyteorder("<")
    if kind.str not in get_args(_DType):
        raise InvalidDataError(
            f"`rows` of a batch must be numbers or booleans of up to 64 bits. Got {given.dtype}."
        )
    if not 1 <= given.ndim <= _MOST_AXES or given.size == 0:
        raise InvalidDataError(
            f"`rows` of a batch must be of shape (queries, ...) and not empty. Got {given.shape}."
        )
    if given.nbytes > _MOST_BYTES:
        raise InvalidDataError(
            f"`rows` of a batch must take at most {_MOST_BYTES} bytes. Got {given.nbytes}."
        )
    if kind.kind == "f" and not np.isfinite(given).all():
        raise InvalidDataError(
            "`rows` of a batch must be finite, and some are NaN or infinite. Leave these rows out, or fill them in."
        )
    plain = np.array(given, dtype=kind, order="C")
    plain.setflags(write=False)
    return plain


def hash_of_rows(plain: Matrix) -> str:
    """Return the SHA-256 of the type, shape and bytes of plain rows, 64 hexadecimal digits."""
    about = canonical({"dtype": plain.dtype.str, "shape": list(plain.shape)}).encode()
    return sha256_of(about + b"\n" + plain.tobytes())


@frozen
class _Header:
    consortium: str
    identifier: str
    dtype: _DType
    shape: Annotated[
        tuple[Annotated[int, Meta(gt=0)], ...], Meta(min_length=1, max_length=_MOST_AXES)
    ]
    query_hash: str
