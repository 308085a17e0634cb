"""Framed messages between two authenticated computing parties, and what happens when one falls silent."""

import asyncio
import struct
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import TypeVar, final

from tutelage.exceptions import FederationError, PartyLostError
from tutelage.federation.mpc.transcript import Transcript

Result = TypeVar("Result")

MOST_BYTES = 2**24  # of one message
_MOST_WAITING = 2**26  # bytes of messages that nobody asked for yet
_OVERHEAD = 256  # bytes that a message takes besides, so that empty ones do not pile up
_PATIENCE = 2.0  # seconds for a connection to close
_HEADER = struct.Struct("<BqI")  # kind, label, length


@final
class Kind(IntEnum):
    """What a frame holds."""

    ELEMENTS = 0  # of the field, as MPyC's protocols send them
    BYTES = 1  # of `Session.exchange`
    FINISHED = 2  # the sender's computation is over


@final
class Failure:
    """The first thing that went wrong; whoever waits on `raised` is woken by it."""

    def __init__(self) -> None:
        self.raised: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def report(self, error: FederationError) -> None:
        """Let the computation end with `error`, unless another came before."""
        if not self.raised.done():
            self.raised.set_exception(error)
            self.raised.exception()  # it counts as seen, also where everything ends before somebody waits

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
    """The connection to one other party, which has proven who it is.

    Parameters
    ----------
    party : int
        The other party's place, from 0.
    name : str
        Its name.
    reader, writer : streams
        The connection.
    failure : Failure
        Where the loss of the connection is reported.
    transcript : Transcript or None
        Where received messages are written down.
    """

    def __init__(
        self,
        party: int,
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        failure: Failure,
        transcript: Transcript | None,
    ) -> None:
        self.party = party
        self.bytes_sent = 0
        self._name = name
        self._reader, self._writer = reader, writer
        self._failure, self._transcript = failure, transcript
        self._arrived: dict[tuple[int, int], bytes] = {}
        self._awaited: dict[tuple[int, int], asyncio.Future[bytes]] = {}
        self._unclaimed = 0
        self._heard = asyncio.get_running_loop().time()

    def send(self, label: int, payload: bytes, kind: Kind = Kind.ELEMENTS) -> None:
        """Send a message under a label that is used once."""
        self._writer.write(_HEADER.pack(kind, label, len(payload)) + payload)
        self.bytes_sent += _HEADER.size + len(payload)

    def receive(self, label: int, kind: Kind = Kind.ELEMENTS) -> asyncio.Future[bytes]:
        """Return what will hold the message sent under a label."""
        message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        payload = self._arrived.pop((kind, label), None)
        if payload is None:
            if not self._awaited:
                self._heard = asyncio.get_running_loop().time()
            self._awaited[kind, label] = message
        else:
            self._unclaimed -= len(payload) + _OVERHEAD
            message.set_result(payload)
        return message

    def silent_for(self) -> float:
        """Return for how many seconds a message has been waited for without any arriving."""
        return asyncio.get_running_loop().time() - self._heard if self._awaited else 0.0

    async def listen(self) -> None:
        """Take in frames until the other party has finished; report whatever else ends them."""
        try:
            while await self._take_frame() != Kind.FINISHED:
                pass
        except (OSError, EOFError):
            self.report("was lost")
        except (ValueError, FederationError):
            self.report("sent what is no message")

    async def _take_frame(self) -> Kind:
        """Take in one frame and return its kind."""
        kind, label, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        if length > MOST_BYTES or self._unclaimed + length + _OVERHEAD > _MOST_WAITING:
            raise ValueError("too long")
        payload = await self._reader.readexactly(length)
        self._heard = asyncio.get_running_loop().time()
        if self._transcript is not None:
            write = self._transcript.elements if kind == Kind.ELEMENTS else self._transcript.text
            write(self.party, payload)
        if (awaited := self._awaited.pop((kind, label), None)) is not None:
            if not awaited.done():
                awaited.set_result(payload)
        elif (kind, label) in self._arrived:
            raise ValueError("a label used twice")
        else:
            self._arrived[kind, label] = payload
            self._unclaimed += length + _OVERHEAD
        return Kind(kind)

    def report(self, what: str) -> None:
        """Let the computation end because of what happened to the other party."""
        self._failure.report(lost(self._name, what))

    async def close(self) -> None:
        """Close the connection once everything written has been sent; the other party needs nothing more."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _PATIENCE)


def lost(name: str, what: str) -> PartyLostError:
    """Return the error that tells what happened to a party."""
    return PartyLostError(
        f"The computing party {name} {what}. Nothing was opened; start all three again with the same files."
    )


async def watch(links: Sequence[Link], timeout: float) -> None:
    """Report a party from which nothing has come for `timeout` seconds while something was waited for."""
    while True:
        await asyncio.sleep(min(timeout / 5, 1.0))
        for link in links:
            if link.silent_for() > timeout:
                link.report(f"has been silent for {timeout:g} s")
