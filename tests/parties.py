"""Three computing parties as real processes on this machine, for tests: what each does, and how it ends."""

import datetime as dt
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tutelage.federation.mpc import Endpoint, run_party
from tutelage.federation.sharing import decode, split

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tutelage.federation.mpc"])


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
    seconds: float
    printed: str


def certificate(name: str) -> tuple[str, bytes]:
    """Return a self-signed certificate and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tutelage:{name}")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(9))
    signed = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return signed.public_bytes(serialization.Encoding.PEM).decode(), private


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens at."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def three() -> list[Party]:
    """Return three parties who know each other."""
    made = [certificate(name) for name in ("one", "two", "three")]
    endpoints = tuple(
        Endpoint(name, "127.0.0.1", port, pem)
        for name, port, (pem, _) in zip(("one", "two", "three"), free_ports(3), made, strict=True)
    )
    return [Party(me, endpoints, key) for me, (_, key) in enumerate(made)]


class Running:
    """A party's process, which runs the body so many times, each time with these options of run_party."""

    def __init__(
        self,
        party: Party,
        body: Callable[..., Any],
        *given: Any,
        times: int = 1,
        **options: Any,
    ) -> None:
        self._pipe, theirs = PROCESSES.Pipe()
        arguments = (theirs, party, body, given, {"timeout": 20.0} | options, times)
        self.process = PROCESSES.Process(target=_run, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def said(self, within: float = 20.0) -> Any:
        """Return the next thing that the body says with `Speaking.say`."""
        assert self._pipe.poll(within), "the party said nothing"
        return self._pipe.recv()

    def ended(self, within: float = 40.0) -> Ended:
        """Return how the process ended."""
        while not isinstance(end := self.said(within), Ended):
            pass
        self.process.join(10)
        return end

    def kill(self) -> None:
        """End the process as if its machine had died, but for the network, which notices."""
        self.process.kill()
        self.process.join()


def _run(
    pipe: Connection,
    party: Party,
    body: Callable[..., Any],
    given: Any,
    options: dict[str, Any],
    times: int,
) -> None:
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    start = time.monotonic()
    result = error = None
    try:
        for _ in range(times):
            result = run_party(
                party.me,
                party.endpoints,
                party.key,
                lambda session: body(session, pipe.send, *given),
                **options,
            )
    except Exception as raised:
        error = raised
    seconds = time.monotonic() - start
    os.write(2, b"end")
    printed = os.read(reading, 2**16).decode().removesuffix("end")
    pipe.send(Ended(result, error, seconds, printed))


def summands(values: np.ndarray) -> list[np.ndarray]:
    """Return three object arrays that add up to the values mod p."""
    return [decode(share, values.shape) for share in split(values)]


def run_three(
    body: Callable[..., Any],
    given: list[tuple[Any, ...]],
    *,
    transcripts: list[Path] | None = None,
    **options: Any,
) -> list[Ended]:
    """Run the body in three processes, each with what is given to it, and return how they ended."""
    running = [
        Running(party, body, *mine, transcript=transcripts[party.me] if transcripts else None, **options)
        for party, mine in zip(three(), given, strict=True)
    ]
    return [one.ended() for one in running]
