"""Framed messages between computing parties over mutual TLS 1.3, and what happens when one falls silent."""

import asyncio
import secrets
import ssl
import struct
import tempfile
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import TypeVar, final

from tutelage.exceptions import FederationError, InvalidParameterError, PartyLostError


def context_for(
    mine: str, key_pem: bytes, all_of_them: Sequence[str], *, server: bool
) -> ssl.SSLContext:
    """Return the settings of one end of a connection: TLS 1.3 alone, both ends show one of the certificates.

    Which end shows which is not checked here: compare what the other end shows with the certificate of the party it
    must be. The key touches the disk encrypted only.
    """
    from cryptography.hazmat.primitives import serialization

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata="\n".join(all_of_them))
    if server:
        context.num_tickets = 0  # a session is never resumed
    password = secrets.token_hex(32).encode()
    encryption = serialization.BestAvailableEncryption(password)
    form_ = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    try:
        encrypted = serialization.load_pem_private_key(key_pem, None).private_bytes(
            *form_, encryption
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "key.pem"
            path.write_bytes(mine.encode("ascii") + b"\n" + encrypted)
            context.load_cert_chain(path, password=password)
    except (ValueError, TypeError, ssl.SSLError):
        raise InvalidParameterError(
            "a computing party.tls_key_pem", "be the private key of this party's certificate"
        ) from None
    return context


Result = TypeVar("Result")

MOST_BYTES = 2**24  # of one message
MOST_UNASKED = 2**10  # messages that were not asked for yet; parties are a few apart
MOST_UNASKED_BYTES = 2**26
_PATIENCE = 2.0  # seconds for a connection to close
_HEADER = struct.Struct("<BqI")  # kind, label, length
Label = tuple[int, int]  # kind and number of a message


@final
class FrameKind(IntEnum):
    """Content of a frame."""

    ELEMENTS = 0  # of the field, as MPyC's protocols send them
    BYTES = 1  # of `Session.exchange`
    FINISHED = 2  # the sender's computation is over


@final
class Failure:
    """The first error; it wakes every task that waits on `raised`."""

    def __init__(self) -> None:
        self.raised: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def report(self, error: FederationError) -> None:
        """Let the computation end with `error`, unless another came before."""
        if not self.raised.done():
            self.raised.set_exception(error)
            # It counts as seen, also where everything ends before somebody waits.
            self.raised.exception()

    async def unless(self, work: Awaitable[Result]) -> Result:
        """Return what `work` returns, unless something goes wrong before."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self.raised}, return_when=asyncio.FIRST_COMPLETED)
            if self.raised.done():
                self.raised.result()
            return task.result()
        finally:
            task.cancel()


@final
class Link:
    """The connection to one other party, which has proven who it is."""

    def __init__(
        self,
        party: int,
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        failure: Failure,
    ) -> None:
        self.party = party
        self.bytes_sent = 0
        self._name = name
        self._reader = reader
        self._writer = writer
        self._failure = failure
        self._arrived: dict[Label, bytes] = {}
        self._awaited: dict[Label, asyncio.Future[bytes]] = {}
        self._asked: dict[Label, float] = {}  # when, of what is awaited, the earliest first
        self._unasked_bytes = 0

    def send(self, label: int, payload: bytes, kind: FrameKind = FrameKind.ELEMENTS) -> None:
        """Send a message under a label that is used once."""
        self._writer.write(_HEADER.pack(kind, label, len(payload)) + payload)
        self.bytes_sent += _HEADER.size + len(payload)

    def receive(self, label: int, kind: FrameKind = FrameKind.ELEMENTS) -> asyncio.Future[bytes]:
        """Return what will hold the message sent under a label."""
        message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        payload = self._arrived.pop((kind, label), None)
        if payload is None:
            self._awaited[kind, label] = message
            self._asked[kind, label] = asyncio.get_running_loop().time()
        else:
            self._unasked_bytes -= len(payload)
            message.set_result(payload)
        return message

    def silent_for(self) -> float:
        """Return for how many seconds the message has been waited for that was asked for first; 0 if none is."""
        if not self._asked:
            return 0.0
        first = next(iter(self._asked.values()))
        return asyncio.get_running_loop().time() - first

    async def listen(self) -> None:
        """Take in frames until the other party has finished; report whatever else ends them."""
        try:
            while await self._take_frame() != FrameKind.FINISHED:
                pass
        except (OSError, EOFError):
            self.report("was lost")
        except (ValueError, FederationError):
            self.report("sent what is no message")

    async def _take_frame(self) -> FrameKind:
        """Take in one frame and return its kind."""
        kind, label, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        # Messages that are not expected yet are kept within a limit.
        is_full = (
            len(self._arrived) >= MOST_UNASKED or self._unasked_bytes + length > MOST_UNASKED_BYTES
        )
        is_awaited = (kind, label) in self._awaited
        if length > MOST_BYTES or (is_full and not is_awaited):
            raise ValueError("too much")
        payload = await self._reader.readexactly(length)
        awaited = self._awaited.pop((kind, label), None)
        if awaited is not None:
            del self._asked[kind, label]
            if not awaited.done():
                awaited.set_result(payload)
        elif (kind, label) in self._arrived:
            raise ValueError("a label used twice")
        else:
            self._arrived[kind, label] = payload
            self._unasked_bytes += length
        return FrameKind(kind)

    def report(self, what: str) -> None:
        """Let the computation end because of what happened to the other party."""
        self._failure.report(
            PartyLostError(
                f"The computing party {self._name} {what}. Nothing was opened; start all three again with the same "
                "files."
            )
        )

    async def close(self) -> None:
        """Close the connection once everything written has been sent; the other party needs nothing more."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _PATIENCE)


async def watch(links: Sequence[Link], failure: Failure, timeout: float, deadline: float) -> None:
    """Report a party whose message has been waited for `timeout` seconds, and the end of `deadline` seconds in all."""
    clock = asyncio.get_running_loop().time
    end = clock() + deadline
    while clock() < end:
        left = max(0.0, end - clock())
        await asyncio.sleep(min(timeout / 5, 1.0, left))
        for link in links:
            if link.silent_for() > timeout:
                link.report(f"has been silent for {timeout:g} s")
    failure.report(
        PartyLostError(
            f"The computation was not finished after {deadline:g} s. Nothing was opened. Start all three again with "
            "the same files."
        )
    )
