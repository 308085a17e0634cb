"""Starting one of three computing parties: how they find and know each other, and how all of it ends."""

import asyncio
import hashlib
import os
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar, final

from tutelage._internal import validation
from tutelage._internal.forks import LongLock
from tutelage._internal.records import frozen
from tutelage.exceptions import FederationError, PartyLostError
from tutelage_consortium.mpc.links import Failure, FrameKind, Link, context_for, watch
from tutelage_consortium.mpc.runtime import ArrayRuntime
from tutelage_consortium.mpc.session import Session

_KEY_BYTES = 16
_VERSION = b"tutelage computing parties 1"
_NOBODY = "did not answer"
_OTHER_KEYS = "answered with other keys or terms than those of this party"
_PATIENCE = 30.0  # seconds for a handshake, so that a silent caller does not keep a place
_PAUSE, _TOLD_EVERY = 0.1, 2.0  # seconds


@final
@frozen
class Endpoint:
    """Where a computing party listens, and the certificate that it alone has the key of; public."""

    name: str
    host: str
    port: int
    certificate_pem: str


# Called again and again with the names of those still missing.
Waiting = Callable[[tuple[str, ...]], object]


class _Met(NamedTuple):
    """A connection to a party that has proven who it is, and the key that the two share; private."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    key: bytes

    def __repr__(self) -> str:
        return "Met(<key hidden: private>)"


@final
class _Handshake:
    """Connects one party to the two others: it calls those after it and is called by those before it.

    Each side greets with its own place and a digest of all certificates in order, so that all agree on who is who.
    The key for shared randomness follows once both greetings are found right.
    """

    def __init__(
        self,
        me: int,
        endpoints: Sequence[Endpoint],
        tls_key_pem: bytes,
        listen: tuple[str, int] | None = None,
    ) -> None:
        self.me = me
        self.endpoints = endpoints
        self._here = listen or (endpoints[me].host, endpoints[me].port)
        pems = [endpoint.certificate_pem for endpoint in endpoints]
        self._calling = context_for(pems[me], tls_key_pem, pems, server=False)
        self._called = context_for(pems[me], tls_key_pem, pems, server=True)
        self._certificates = [ssl.PEM_cert_to_DER_cert(pem.strip()) for pem in pems]
        digests = [hashlib.sha256(certificate).digest() for certificate in self._certificates]
        self._agreement = hashlib.sha256(_VERSION + b"".join(digests)).digest()
        self._met: dict[int, asyncio.Future[_Met]] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        # The outcome of the last call, by place.
        self._seen = dict.fromkeys(range(len(endpoints)), _NOBODY)

    async def everybody(self, timeout: float, waiting: Waiting | None = None) -> dict[int, _Met]:
        """Return the connections to the other parties, by place, once all stand."""
        loop = asyncio.get_running_loop()
        others = [place for place in range(len(self.endpoints)) if place != self.me]
        self._met = {place: loop.create_future() for place in others}
        server = await self._listen() if self.me else None
        calls = [asyncio.create_task(self._call(place)) for place in others if place > self.me]
        end = loop.time() + timeout
        try:
            while self._missing() and loop.time() < end:
                left = max(0.0, end - loop.time())
                await asyncio.wait(self._met.values(), timeout=min(left, _TOLD_EVERY))
                missing = self._missing()
                if waiting is not None and missing:
                    waiting(tuple(self.endpoints[place].name for place in missing))
        finally:
            for call in calls:
                call.cancel()
            if server is not None:
                server.close()
        missing = self._missing()
        if missing:
            raise PartyLostError(
                f"No connection to {' and '.join(self.endpoints[place].name for place in missing)} within {timeout:g} "
                f"s. Nothing was opened. {' '.join(map(self._reason, missing))} All three computing parties must run "
                "`tutelage consortium serve` at the same time."
            )
        return {place: found.result() for place, found in self._met.items()}

    def _missing(self) -> list[int]:
        return [place for place, found in self._met.items() if not found.done()]

    def _reason(self, place: int) -> str:
        """Return why there is no connection to a party, as far as it can be seen from here."""
        there = self.endpoints[place]
        if place < self.me:
            host, port = self._here
            return f"{there.name} did not connect to {host}:{port}."
        return f"{there.name} {self._seen[place]} at {there.host}:{there.port}."

    def abort(self) -> None:
        """Drop every connection that is still open."""
        for writer in self._writers:
            _drop(writer)

    async def _listen(self) -> asyncio.Server:
        host, port = self._here
        try:
            return await asyncio.start_server(
                self._answer, host, port, ssl=self._called, ssl_handshake_timeout=_PATIENCE
            )
        except OSError as error:
            # asyncio puts words of its own around the system's.
            why = error.strerror or "no such address here"
            if error.errno is not None and not isinstance(error, socket.gaierror):
                why = os.strerror(error.errno)
            raise FederationError(
                f"Cannot listen at {host}:{port}: {why}. Free the port, or listen at another address."
            ) from None

    async def _call(self, place: int) -> None:
        """Call a party again and again until it is the right one that answers."""
        there = self.endpoints[place]
        while True:
            seen = _NOBODY
            try:
                reader, writer = await asyncio.open_connection(
                    there.host, there.port, ssl=self._calling, ssl_handshake_timeout=_PATIENCE
                )
                seen = _OTHER_KEYS
                self._writers.add(writer)
                if self._place_of(writer) == place:
                    writer.write(self._greeting(self.me))
                    greeting = self._greeting(place)
                    if await self._receive(reader, len(greeting)) == greeting:
                        key = secrets.token_bytes(_KEY_BYTES)
                        writer.write(key)
                        self._met[place].set_result(_Met(reader, writer, key))
                        return
                self._refuse(writer)
            except ssl.SSLError:
                seen = _OTHER_KEYS
            except (OSError, EOFError):
                pass
            self._seen[place] = seen
            await asyncio.sleep(_PAUSE)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a caller if its certificate is that of the party it introduces itself as."""
        self._writers.add(writer)
        with suppress(OSError, EOFError, TimeoutError):
            place = self._place_of(writer)
            if place is not None and place < self.me:
                greeting = self._greeting(place)
                if await self._receive(reader, len(greeting)) == greeting:
                    writer.write(self._greeting(self.me))
                    key = await self._receive(reader, _KEY_BYTES)
                    if not self._met[place].done():
                        self._met[place].set_result(_Met(reader, writer, key))
                        return
        self._refuse(writer)

    def _refuse(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        _drop(writer)

    async def _receive(self, reader: asyncio.StreamReader, length: int) -> bytes:
        return await asyncio.wait_for(reader.readexactly(length), _PATIENCE)

    def _place_of(self, writer: asyncio.StreamWriter) -> int | None:
        """Return whose certificate the other end has shown."""
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if certificate not in self._certificates:
            return None
        return self._certificates.index(certificate)

    def _greeting(self, place: int) -> bytes:
        return bytes([place]) + self._agreement


Result = TypeVar("Result")

_A_DAY = 86_400.0  # seconds
_ONE_AT_A_TIME = LongLock()  # MPyC keeps its runtime in module globals


def run_party(
    me: int,
    endpoints: Sequence[Endpoint],
    tls_key_pem: bytes,
    body: Callable[[Session], Awaitable[Result]],
    *,
    timeout: float,
    deadline: float = _A_DAY,
    listen: tuple[str, int] | None = None,
    waiting: Waiting | None = None,
) -> Result:
    """Connect to the two other computing parties, run `body` with them, and return what it returns.

    Privacy: connections are mutual TLS 1.3, the certificate of the other end decides which party it is,
    and what it claims to be must agree. Parties exchange no pickled objects. A refused caller gets no reply, and the
    parties continue to wait for the right one.
    """
    timeout = validation.positive(timeout, "timeout", "run_party")
    deadline = validation.positive(deadline, "deadline", "run_party")
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise FederationError(
            "run_party runs an event loop of its own. Call it from a thread in which none runs."
        )

    async def run() -> Result:
        """Connect, run the body, and see to it that the others are through as well."""
        failure = Failure()
        background: list[asyncio.Task[None]] = []
        try:
            met = await handshake.everybody(timeout, waiting)
            links = dict[int, Link]()
            keys = dict[int, bytes]()
            for place, connection in met.items():
                name = endpoints[place].name
                links[place] = Link(place, name, connection.reader, connection.writer, failure)
                keys[place] = connection.key
            others = [*links.values()]
            background += [asyncio.create_task(link.listen()) for link in others]
            background.append(asyncio.create_task(watch(others, failure, timeout, deadline)))
            runtime = ArrayRuntime(me, links, keys, failure)
            result = await failure.unless(body(Session(runtime)))
            for link in others:  # one that fails before all have their result is noticed by all
                link.send(0, b"", FrameKind.FINISHED)
            for link in others:
                await failure.unless(link.receive(0, FrameKind.FINISHED))
            for link in others:
                await failure.unless(link.close())
            return result
        finally:
            for task in background:
                task.cancel()
            handshake.abort()

    with _ONE_AT_A_TIME, _quiet_loop() as loop:
        handshake = _Handshake(me, endpoints, tls_key_pem, listen)
        task = loop.create_task(run())
        while not task.done():
            # MPyC stops the loop where one of its tasks fails; what follows from that is for the task to see.
            with suppress(RuntimeError):
                loop.run_until_complete(task)
        return task.result()


@contextmanager
def _quiet_loop() -> Generator[asyncio.AbstractEventLoop]:
    """Give a fresh event loop that ends with all that runs in it and never prints."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    try:
        yield loop
    finally:
        while asyncio.all_tasks(loop):
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            with suppress(RuntimeError):
                loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _drop(writer: asyncio.StreamWriter) -> None:
    """End a connection without waiting for the other side."""
    # A transport that was closed twice is closing already, and in Python 3.11.2 cannot be aborted any more.
    with suppress(AttributeError):
        writer.transport.abort()
