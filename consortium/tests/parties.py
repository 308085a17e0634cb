"""Three computing parties as real processes on this machine, for tests: what each does, and how it ends."""

import asyncio
import hashlib
import json
import multiprocessing
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tutelage_consortium import Identity, Role
from tutelage_consortium.mpc import Endpoint, links, run_party
from tutelage_consortium.mpc.links import FrameKind, Link
from tutelage_consortium.mpc.runtime import ArrayRuntime
from tutelage_consortium.sharing import ELEMENT_BYTES, decode, split

# Six words cost a tenth of a second by design, and those of one roster are always the same.
hashlib.scrypt = cache(hashlib.scrypt)

Body = Callable[..., Any]
_ROOM = links.MOST_UNASKED_BYTES
BACKSTOP = 240.0  # seconds; no test is to need them, however busy the machine
PROCESSES = multiprocessing.get_context("forkserver")
# What every party loads is loaded once, for a test starts three at a time.
PROCESSES.set_forkserver_preload(
    [
        "tutelage_consortium.command",
        "tutelage_consortium.mpc",
        *(f"tutelage_consortium.{name}" for name in ("aggregator", "computing_party", "entity")),
    ]
)


@dataclass(frozen=True)
class Party:
    """What one party needs, as `run_party` takes it."""

    me: int
    endpoints: tuple[Endpoint, ...]
    key: bytes


@dataclass(frozen=True)
class Ended:
    """How a party's process ended: what it returned or the error that it raised, and all that it printed as errors."""

    result: Any
    error: Exception | None
    printed: str


def certificate(name: str) -> tuple[str, bytes]:
    """Return a self-signed certificate and its key, both PEM."""
    made = Identity.generate(name, Role.COMPUTING, "127.0.0.1:1")
    assert made.member.certificate is not None
    assert made.tls_key_pem is not None
    return made.member.certificate, made.tls_key_pem


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens at, and that no system gives to a connection that calls."""
    with ExitStack() as closing:
        found = list[int]()
        while len(found) < count:
            port = secrets.choice(range(10_000, 32_768))
            with suppress(OSError):
                closing.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
        return found


def three() -> list[Party]:
    """Return three parties who know each other."""
    made = [certificate(name) for name in ("one", "two", "three")]
    endpoints = tuple(
        Endpoint(name, "127.0.0.1", port, pem)
        for name, port, (pem, _) in zip(("one", "two", "three"), free_ports(3), made, strict=True)
    )
    return [Party(me, endpoints, key) for me, (_, key) in enumerate(made)]


def time_passes(seconds: float) -> None:
    """Set the clock of the running event loop forward: what waits for a time waits so much less."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds


class Child:
    """A process that says something, and how it ended at last."""

    def __init__(self, work: Body, *given: Any) -> None:
        self._pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=work, args=(theirs, *given), daemon=True)
        self.process.start()
        theirs.close()

    def said(self) -> Any:
        """Return the next thing that it says."""
        assert self._pipe.poll(BACKSTOP), "the process said nothing"
        return self._pipe.recv()

    def ended(self) -> Any:
        """Return how it ended."""
        found = self.said()
        self.process.join(BACKSTOP)
        return found


class Running(Child):
    """A party's process, which runs the body with these options of run_party.

    If it `tells`, it says with every call of `waiting` whom it waits for, and lets the time pass that it is sent.
    """

    def __init__(
        self,
        party: Party,
        body: Body,
        *given: Any,
        tells: bool = False,
        room: int = _ROOM,
        **options: Any,
    ) -> None:
        super().__init__(_run, party, body, given, {"timeout": BACKSTOP} | options, tells, room)

    def waits_for(self, *names: str) -> None:
        """Return once the party says that it waits for these and for nobody else."""
        while self.said() != names:
            pass

    def let_pass(self, seconds: float) -> None:
        """Let time pass for this party, the next time that it tells whom it waits for."""
        self._pipe.send(seconds)

    def ended(self) -> Ended:
        """Return how the process ended."""
        while not isinstance(end := self.said(), Ended):
            pass
        self.process.join(BACKSTOP)
        return end

    def kill(self) -> None:
        """End the process as if its machine had died, but for the network, which notices."""
        self.process.kill()
        self.process.join()


def _run(
    pipe: Connection, party: Party, body: Body, given: Any, options: Any, tells: bool, room: int
) -> None:
    links.MOST_UNASKED_BYTES = room

    def tell(missing: tuple[str, ...]) -> None:
        pipe.send(missing)
        if pipe.poll():
            time_passes(pipe.recv())

    reading, writing = os.pipe()
    os.dup2(writing, 2)
    result = error = None
    options["waiting"] = tell if tells else None
    try:
        result = run_party(
            party.me,
            party.endpoints,
            party.key,
            lambda session: body(session, pipe.send, *given),
            **options,
        )
    except Exception as raised:
        error = raised
    os.write(2, b"end")
    printed = os.read(reading, 2**16).decode().removesuffix("end")
    pipe.send(Ended(result, error, printed))


def record(path: Path) -> None:
    """Let this process write down, as lines of JSON, what a party receives and opens."""
    file, receive, opened = path.open("w"), Link.receive, ArrayRuntime.open_shares

    def write(**line: Any) -> None:
        print(json.dumps(line), file=file, flush=True)

    def elements(data: bytes) -> list[int]:
        return decode(data, (len(data) // ELEMENT_BYTES,)).tolist()

    def received(link: Link, label: int, kind: FrameKind = FrameKind.ELEMENTS) -> Any:
        said = (
            (lambda data: {"elements": elements(data)})
            if kind == FrameKind.ELEMENTS
            else (lambda _: {})
        )
        message = receive(link, label, kind)
        message.add_done_callback(
            lambda done: done.cancelled() or write(**{"from": link.party, **said(done.result())})
        )
        return message

    async def seen(*given: Any, **options: Any) -> Any:
        values = await opened(*given, **options)
        write(opened=values.ravel().tolist())
        return values

    Link.receive, ArrayRuntime.open_shares = received, seen  # type: ignore[method-assign]


def summands(values: np.ndarray) -> list[np.ndarray]:
    """Return three object arrays that add up to the values mod p."""
    return [decode(share, values.shape) for share in split(values)]


def run_three(body: Body, given: list[tuple[Any, ...]], **options: Any) -> list[Ended]:
    """Run the body in three processes, each with what is given to it, and return how they ended."""
    running = [
        Running(party, body, *mine, **options) for party, mine in zip(three(), given, strict=True)
    ]
    return [one.ended() for one in running]
