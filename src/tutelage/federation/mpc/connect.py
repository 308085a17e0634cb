"""Starting one of three computing parties: who it talks to, how it knows them, and how all of it ends."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tutelage import _validation
from tutelage._forks import LongLock
from tutelage.exceptions import FederationError, InvalidParameterError
from tutelage.federation.mpc.links import Failure, FrameKind, Link, watch
from tutelage.federation.mpc.meeting import Endpoint, Meeting
from tutelage.federation.mpc.session import Session
from tutelage.federation.mpc.tls import certificate_bytes
from tutelage.federation.mpc.transcript import Transcript
from tutelage.federation.sharing import PARTIES

Result = TypeVar("Result")

A_DAY = 86_400.0  # seconds
_LAST_PORT = 2**16 - 1
_ONE_AT_A_TIME = LongLock()  # MPyC keeps its runtime in module globals


def run_party(
    me: int,
    endpoints: Sequence[Endpoint],
    tls_key_pem: bytes,
    body: Callable[[Session], Awaitable[Result]],
    *,
    timeout: float,
    deadline: float = A_DAY,
    listen: tuple[str, int] | None = None,
    waiting: Callable[[tuple[str, ...]], object] | None = None,
    transcript: Path | None = None,
) -> Result:
    """Connect to the two other computing parties, run `body` with them, and return what it returns.

    What makes it private: connections are mutual TLS 1.3, the certificate of the other end decides which party it is,
    and what it claims to be must agree. Parties exchange no pickled objects. Whoever is refused is not answered, and
    the parties go on waiting for the right one.
    """
    timeout = _validation.positive(timeout, "timeout", "run_party")
    deadline = _validation.positive(deadline, "deadline", "run_party")
    _check(me, endpoints)
    _check_listen(listen)
    _outside_a_loop()
    with _ONE_AT_A_TIME, _Loop() as loop:
        meeting = Meeting(me, endpoints, tls_key_pem, listen)
        return loop.run(_Party(me, endpoints, meeting, timeout, deadline).run(body, waiting, transcript))


class _Loop:
    """A fresh event loop that ends with all that runs in it and never prints."""

    def __enter__(self) -> "_Loop":
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, _context: None)
        return self

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """Run `main` until it ends."""
        task = self._loop.create_task(main)
        while not task.done():
            # MPyC stops the loop where one of its tasks fails; what follows from that is for `main` to see.
            with suppress(RuntimeError):
                self._loop.run_until_complete(task)
        return task.result()

    def __exit__(self, *_exception: object) -> None:
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            with suppress(RuntimeError):
                self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


def _outside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise FederationError("run_party runs an event loop of its own. Call it from a thread in which none runs.")


def _check(me: int, endpoints: Sequence[Endpoint]) -> None:
    if len(endpoints) != PARTIES:
        raise InvalidParameterError(f"`endpoints` of run_party must be {PARTIES}. Got {len(endpoints)}.")
    if _validation.integer_at_least(me, 0, "me", "run_party") >= PARTIES:
        raise InvalidParameterError(f"`me` of run_party must be 0, 1 or 2. Got {me}.")
    if len({certificate_bytes(endpoint.certificate_pem) for endpoint in endpoints}) != PARTIES:
        raise InvalidParameterError("`endpoints` of run_party must have a certificate each. Two have the same.")


def _check_listen(listen: tuple[str, int] | None) -> None:
    if listen is not None and not 1 <= _validation.integer_at_least(listen[1], 1, "listen", "run_party") <= _LAST_PORT:
        raise InvalidParameterError(f"`listen` of run_party must have a port of at most {_LAST_PORT}. Got {listen[1]}.")


class _Party:
    """One party while it runs."""

    def __init__(
        self, me: int, endpoints: Sequence[Endpoint], meeting: Meeting, timeout: float, deadline: float
    ) -> None:
        self._me = me
        self._endpoints = endpoints
        self._meeting = meeting
        self._timeout, self._deadline = timeout, deadline

    async def run(
        self,
        body: Callable[[Session], Awaitable[Result]],
        waiting: Callable[[tuple[str, ...]], object] | None,
        transcript: Path | None,
    ) -> Result:
        """Connect, run the body, and see to it that the others are through as well."""
        written = None if transcript is None else Transcript(transcript)
        failure = Failure()
        try:
            met = await self._meeting.everybody(self._timeout, waiting)
            links = {
                place: Link(place, self._endpoints[place].name, one.reader, one.writer, failure, written)
                for place, one in met.items()
            }
            keys = {place: one.key for place, one in met.items()}
            return await self._together(links, keys, failure, written, body)
        finally:
            self._meeting.abort()
            if written is not None:
                written.close()

    async def _together(
        self,
        links: Mapping[int, Link],
        keys: Mapping[int, bytes],
        failure: Failure,
        transcript: Transcript | None,
        body: Callable[[Session], Awaitable[Result]],
    ) -> Result:
        background = [asyncio.create_task(link.listen()) for link in links.values()]
        watching = watch(list(links.values()), failure, self._timeout, self._deadline)
        background.append(asyncio.create_task(watching))
        try:
            result = await failure.unless(body(Session(self._me, links, keys, failure, transcript)))
            await failure.unless(_farewell(links.values()))
        finally:
            for task in background:
                task.cancel()
        return result


async def _farewell(links: Collection[Link]) -> None:
    """Wait until every party has its result, so that one that fails is noticed by all."""
    for link in links:
        link.send(0, b"", FrameKind.FINISHED)
    for link in links:
        await link.receive(0, FrameKind.FINISHED)
    for link in links:
        await link.close()
