"""How three computing parties find each other: each knows the others' certificates, and nobody else gets a place."""

import asyncio
import hashlib
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, final

from tutelage.exceptions import FederationError, PartyLostError
from tutelage.federation.mpc.tls import certificate_bytes, certificate_of, context_for

KEY_BYTES = 16
_VERSION = b"tutelage computing parties 1"
_NOBODY = "did not answer"
_OTHER_KEYS = "answered with other keys or terms than those of this party"
_PATIENCE = 30.0  # seconds for a handshake, so that a silent caller does not keep a place
_PAUSE = 0.1
_TOLD_EVERY = 2.0  # seconds


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a computing party listens, and the certificate that it alone has the key of; public."""

    name: str
    host: str
    port: int
    certificate_pem: str


class Met(NamedTuple):
    """A connection to a party that has proven who it is, and the key that the two share; private."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    key: bytes

    def __repr__(self) -> str:
        return "Met(...)"


@final
class Meeting:
    """Connects one party to the two others: it calls those after it and is called by those before it.

    Each side greets with its own place and a digest of all certificates in order, so that all agree on who is who.
    The key for shared randomness follows once both greetings are found right.
    """

    def __init__(
        self, me: int, endpoints: Sequence[Endpoint], tls_key_pem: bytes, listen: tuple[str, int] | None = None
    ) -> None:
        self._me = me
        self._here = listen or (endpoints[me].host, endpoints[me].port)
        self._endpoints = endpoints
        self._certificates = [certificate_bytes(endpoint.certificate_pem) for endpoint in endpoints]
        pems = [endpoint.certificate_pem for endpoint in endpoints]
        self._calling = context_for(pems[me], tls_key_pem, pems, server=False)
        self._called = context_for(pems[me], tls_key_pem, pems, server=True)
        self._agreement = hashlib.sha256(_VERSION + b"".join(map(_digest, self._certificates))).digest()
        self._met: dict[int, asyncio.Future[Met]] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._seen = dict.fromkeys(range(len(endpoints)), _NOBODY)  # what became of the last call, by place

    async def everybody(
        self, timeout: float, waiting: Callable[[tuple[str, ...]], object] | None = None
    ) -> dict[int, Met]:
        """Return the connections to the other parties, by place, once all stand."""
        others = [place for place in range(len(self._endpoints)) if place != self._me]
        self._met = {place: asyncio.get_running_loop().create_future() for place in others}
        server = await self._listen() if self._me else None
        calls = [asyncio.create_task(self._call(place)) for place in others if place > self._me]
        try:
            await self._all_met(timeout, waiting)
        finally:
            for call in calls:
                call.cancel()
            if server is not None:
                server.close()
        if missing := self._missing():
            raise PartyLostError(
                f"No connection to {' and '.join(missing)} within {timeout:g} s. Nothing was opened. "
                f"{' '.join(map(self._reason, self._absent()))} All three computing parties must run `tutelage "
                "federate compute` on the same batch at the same time."
            )
        return {place: found.result() for place, found in self._met.items()}

    async def _all_met(self, timeout: float, waiting: Callable[[tuple[str, ...]], object] | None) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while (left := end - loop.time()) > 0 and self._missing():
            await asyncio.wait(self._met.values(), timeout=min(left, _TOLD_EVERY))
            if waiting is not None and (missing := self._missing()):
                waiting(missing)

    def _missing(self) -> tuple[str, ...]:
        return tuple(self._endpoints[place].name for place in self._absent())

    def _absent(self) -> list[int]:
        return [place for place, found in self._met.items() if not found.done()]

    def _reason(self, place: int) -> str:
        """Return why there is no connection to a party, as far as it can be seen from here."""
        there, (host, port) = self._endpoints[place], self._here
        if place < self._me:
            return f"{there.name} did not connect to {host}:{port}."
        return f"{there.name} {self._seen[place]} at {there.host}:{there.port}."

    def abort(self) -> None:
        """Drop every connection that is still open."""
        for writer in self._writers:
            writer.transport.abort()

    async def _listen(self) -> asyncio.Server:
        host, port = self._here
        try:
            return await asyncio.start_server(
                self._answer, host, port, ssl=self._called, ssl_handshake_timeout=_PATIENCE
            )
        except OSError as error:
            raise FederationError(
                f"Cannot listen at {host}:{port}: {_reason(error)}. Free the port, or listen at another address."
            ) from None

    async def _call(self, place: int) -> None:
        """Call a party again and again until it is the right one that answers."""
        there = self._endpoints[place]
        while True:
            seen = _NOBODY
            try:
                reader, writer = await asyncio.open_connection(
                    there.host, there.port, ssl=self._calling, ssl_handshake_timeout=_PATIENCE
                )
                seen = _OTHER_KEYS
                self._writers.add(writer)
                if self._place_of(writer) == place:
                    writer.write(self._greeting(self._me))
                    if await self._heard(reader, len(self._greeting(place))) == self._greeting(place):
                        key = secrets.token_bytes(KEY_BYTES)
                        writer.write(key)
                        self._met[place].set_result(Met(reader, writer, key))
                        return
                self._refuse(writer)
            except ssl.SSLError:
                seen = _OTHER_KEYS
            except (OSError, EOFError):
                pass
            self._seen[place] = seen
            await asyncio.sleep(_PAUSE)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Give a caller its place if its certificate is that of a party that calls this one, as which it greets."""
        self._writers.add(writer)
        with suppress(OSError, EOFError, TimeoutError):
            place = self._place_of(writer)
            if place is not None and place < self._me:
                greeting = self._greeting(place)
                if await self._heard(reader, len(greeting)) == greeting:
                    writer.write(self._greeting(self._me))
                    key = await self._heard(reader, KEY_BYTES)
                    if not self._met[place].done():
                        self._met[place].set_result(Met(reader, writer, key))
                        return
        self._refuse(writer)

    def _refuse(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    async def _heard(self, reader: asyncio.StreamReader, length: int) -> bytes:
        return await asyncio.wait_for(reader.readexactly(length), _PATIENCE)

    def _place_of(self, writer: asyncio.StreamWriter) -> int | None:
        """Return whose certificate the other end has shown."""
        shown = certificate_of(writer.get_extra_info("ssl_object"))
        return self._certificates.index(shown) if shown in self._certificates else None

    def _greeting(self, place: int) -> bytes:
        return bytes([place]) + self._agreement


def _reason(error: OSError) -> str:
    """Return why the system refused, without asyncio's own words around it."""
    if isinstance(error, socket.gaierror) or error.errno is None:
        return error.strerror or "no such address here"
    return os.strerror(error.errno)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
