"""How fast three computing parties find the labels of shared votes, each a process of its own, over TLS on one machine.

    python benchmarks/mpc.py [--queries 10000] [--sigma 40] [--bits 22]

The votes are those of 250 teachers on MNIST that the authors of PATE published, found by TUTELAGE_DATA, again from
the first where they do not suffice. Noise is added in shares of five entities. Every label is compared with the plain
argmax of the same noised totals. 22 bits are what a batch of a thousand queries over ten classes is compared in.
"""

import argparse
import multiprocessing
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from rich.console import Console
from rich.table import Table

from tutelage.ballots import VoteHistogram
from tutelage.noise import SystemNoise
from tutelage_consortium.keys import Identity, Role
from tutelage_consortium.mpc import Endpoint, Session, run_party
from tutelage_consortium.sharing import decode, recombine, split

ENTITIES = 5
THRESHOLD, SIGMA_OF_CHECK = 200, 150.0


class Measured(NamedTuple):
    """What one party found, and what it took."""

    share: bytes
    seconds: float
    cpu: float
    bytes_sent: int


class Task(NamedTuple):
    """Labels to be found, and what they must be."""

    name: str
    given: list[tuple[Any, ...]]  # for each party
    expected: np.ndarray


def noised_sum(votes: np.ndarray, sigma: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the three parties' sums of all entities' shares, and the noised totals that they stand for."""
    noise = [
        SystemNoise().discrete_gaussian(sigma / ENTITIES**0.5, votes.shape) for _ in range(ENTITIES)
    ]
    parts = [votes + noise[0], *noise[1:]]
    shares = [[decode(share, votes.shape) for share in split(part)] for part in parts]
    return [np.sum(mine, axis=0) for mine in zip(*shares, strict=True)], np.sum(parts, axis=0)


def tasks(votes: np.ndarray, sigma: float, bits: int) -> list[Task]:
    """Return GNMax over ten classes and over two, and Confident-GNMax over ten."""
    found = list[Task]()
    for classes in (10, 2):
        shares, totals = noised_sum(votes[:, :classes], sigma)
        found.append(
            Task(
                f"GNMax, {classes} classes",
                [(share[np.newaxis], bits) for share in shares],
                totals.argmax(axis=1) + 1,
            )
        )
    shares, totals = noised_sum(votes, sigma)
    checks, checked = noised_sum(votes, SIGMA_OF_CHECK)
    given = [
        (np.stack([share, check]), bits, THRESHOLD)
        for share, check in zip(shares, checks, strict=True)
    ]
    expected = np.where(checked.max(axis=1) >= THRESHOLD, totals.argmax(axis=1) + 1, 0)
    return [*found, Task("Confident-GNMax, 10 classes", given, expected)]


def free_ports() -> list[int]:
    """Return three ports of this machine that nothing listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def started(body: Callable[..., None], given: Iterable[tuple[Any, ...]]) -> list[Connection]:
    """Start one process for each that is given something, and return the pipes to them."""
    spawn = multiprocessing.get_context("spawn")
    pipes = list[Connection]()
    for arguments in given:
        here, there = cast("tuple[Connection, Connection]", spawn.Pipe())
        spawn.Process(target=body, args=(there, *arguments)).start()
        pipes.append(here)
    return pipes


def endpoints() -> tuple[list[Endpoint], list[bytes]]:
    """Return three parties on free ports of this machine, and their keys."""
    ports = free_ports()
    made = [
        Identity.generate(f"party-{port}", Role.COMPUTING, f"127.0.0.1:{port}") for port in ports
    ]
    found = [
        Endpoint(one.member.name, "127.0.0.1", port, one.member.certificate or "")
        for one, port in zip(made, ports, strict=True)
    ]
    return found, [one.tls_key_pem or b"" for one in made]


def party(
    pipe: Connection, me: int, parties: list[Endpoint], key: bytes, given: list[tuple[Any, ...]]
) -> None:
    """Be one party: find the labels of every task, and say what each took."""

    async def body(session: Session) -> list[Measured]:
        found = list[Measured]()
        for task in given:
            await session.exchange(b"ready")
            sent, clock, processor = session.bytes_sent, time.perf_counter(), time.process_time()
            share = await session.labels(*task)
            took = time.perf_counter() - clock, time.process_time() - processor
            found.append(Measured(share, *took, session.bytes_sent - sent))
        return found

    pipe.send(run_party(me, parties, key, body, timeout=120.0))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--sigma", type=float, default=40.0)
    parser.add_argument("--bits", type=int, default=22, help="of what is compared")
    options = parser.parse_args()
    votes = VoteHistogram.load(
        Path(os.environ["TUTELAGE_DATA"]) / "pate2018_votes.npz", array="mnist_250_teachers"
    )
    counts = np.resize(votes.counts, (options.queries, votes.counts.shape[1])).astype(np.int64)
    work = tasks(counts, options.sigma, options.bits)
    parties, keys = endpoints()
    pipes = started(
        party,
        ((me, parties, key, [task.given[me] for task in work]) for me, key in enumerate(keys)),
    )
    report(work, [pipe.recv() for pipe in pipes], options.queries, options.bits)


def report(work: list[Task], found: list[list[Measured]], queries: int, bits: int) -> None:
    """Print what every task took, and whether its labels are right."""
    machine = f"3 processes on {os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table(title=f"{queries:,} queries, {bits} bits, {machine}", title_justify="left")
    for heading in (
        "",
        "seconds",
        "queries per second",
        "CPU s of a party",
        "bytes a query, a party",
        "right labels",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    for number, task in enumerate(work):
        each = [party[number] for party in found]
        right = int((recombine([one.share for one in each], (queries,)) == task.expected).sum())
        seconds = max(one.seconds for one in each)
        table.add_row(
            task.name,
            f"{seconds:.1f}",
            f"{queries / seconds:,.0f}",
            f"{np.mean([one.cpu for one in each]):.1f}",
            f"{np.mean([one.bytes_sent for one in each]) / queries:,.0f}",
            f"{right:,} of {queries:,}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
