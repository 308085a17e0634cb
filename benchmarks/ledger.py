"""How many durable debits a ledger takes per second: one by one, in batches, and from several processes, in one run.

    python benchmarks/ledger.py [--folder FOLDER] [--debits 2000]
    python benchmarks/ledger.py --askers 60 [--folder FOLDER] [--seconds 60]
    python benchmarks/ledger.py --entries 500 100000 [--folder FOLDER]

The first two rows are the floor: what the disk can do. Every debit is on the disk before the next one starts.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from rich.console import Console
from rich.table import Table

from tutelage import GNMax, LabelingSession, Ledger, SystemNoise, VoteHistogram
from tutelage.events import NoisyArgmaxGaussian, Repeated
from tutelage.ledger.answers import digest_of
from tutelage.ledger.beginning import Intent, Whom
from tutelage.ledger.entries import EntryKind
from tutelage.privacy import ONE_TEACHER

if TYPE_CHECKING:
    from tutelage.ledger.account import Reservation

SIGMA, CLASSES = 40.0, 10
EVENT = NoisyArgmaxGaussian(SIGMA, CLASSES, ONE_TEACHER)
Measure = Callable[[Path, int], float]  # from a folder and the number of debits to seconds


def new_ledger(folder: Path) -> Ledger:
    """Return a ledger with room for everything below."""
    path = folder / f"{time.monotonic_ns()}.ledger"
    ledger = Ledger.create(path, epsilon=1000.0, delta=1e-5, unit=ONE_TEACHER)
    ledger.account.fitting(EVENT)  # the cost of the event is computed once per process
    return ledger


def appended(folder: Path, debits: int) -> float:
    """Append a line to a plain file and sync it, for every debit."""
    with (folder / "plain").open("ab", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(debits):
            file.write(b"x" * 400 + b"\n")
            os.fdatasync(file.fileno())
        return time.perf_counter() - start


def reserved(folder: Path, debits: int) -> float:
    """Reserve every query by itself."""
    ledger = new_ledger(folder)
    start = time.perf_counter()
    for _ in range(debits):
        ledger.account.reserve(EVENT, 1)
    return time.perf_counter() - start


def reserved_and_settled(folder: Path, debits: int, batch: int) -> float:
    """Reserve a batch, then store its answers, for every batch."""
    queries = [os.urandom(32) for _ in range(debits)]
    ledger = new_ledger(folder)
    start = time.perf_counter()
    for first in range(0, debits, batch):
        asked = queries[first : first + batch]
        reservation = ledger.account.reserve(EVENT, len(asked))
        ledger.account.settle(reservation, dict.fromkeys(asked, (1,)), Repeated(EVENT, len(asked)))
    return time.perf_counter() - start


def asked(folder: Path, debits: int, batch: int) -> float:
    """Ask a session: hash, look up, reserve, draw exact noise, store, return."""
    random = np.random.default_rng(0)
    rows = random.random((debits, 64))
    votes = VoteHistogram(random.multinomial(250, np.full(CLASSES, 1 / CLASSES), size=batch), 250)
    SystemNoise().discrete_gaussian(SIGMA, (1,))
    ledger = new_ledger(folder)
    session = LabelingSession(votes, GNMax(SIGMA), ledger)
    start = time.perf_counter()
    for first in range(0, debits, batch):
        session.ask(rows[first : first + batch])
    return time.perf_counter() - start


def raced(folder: Path, debits: int, processes: int) -> float:
    """Let several processes reserve and settle one by one on the same ledger."""
    ledger = new_ledger(folder)
    path = ledger.path
    start = time.perf_counter()
    children = list[int]()
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            mine = Ledger.open(str(path)).account
            for _ in range(debits // processes):
                mine.settle(mine.reserve(EVENT, 1), {os.urandom(32): (1,)}, EVENT)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return time.perf_counter() - start


def waits(folder: Path, askers: int, seconds: float) -> np.ndarray:
    """Let several processes ask one query after the other of the same ledger; return how long each answer took."""
    path = new_ledger(folder).path
    votes = VoteHistogram(np.array([[200, 30, 20]]), 250)
    # What the first ask of all computes.
    LabelingSession(votes, GNMax(SIGMA), new_ledger(folder)).ask(np.zeros((1, 4)))
    receives, sends = os.pipe()
    children = list[int]()
    for number in range(askers):
        child = os.fork()
        if child == 0:
            session = LabelingSession(votes, GNMax(SIGMA), Ledger.open(str(path)))
            random, begun = np.random.default_rng(number), time.perf_counter()
            try:
                while (asks := time.perf_counter()) < begun + seconds:
                    session.ask(random.random((1, 4)))
                    os.write(sends, np.float64(time.perf_counter() - asks).tobytes())
            finally:
                os._exit(0)
        children.append(child)
    os.close(sends)
    with os.fdopen(receives, "rb") as pipe:
        found = pipe.read()
    for child in children:
        os.waitpid(child, 0)
    return np.frombuffer(found)


def looked_up(folder: Path, entries: int) -> dict[str, float]:
    """Return how many milliseconds the look-ups take in a ledger with so many entries, each the median of 50."""
    ledger = new_ledger(folder)
    cost: dict[str, Any] = {
        "event": EVENT.as_dict(),
        "queries": 1,
        "cost": ledger.limit.cost(EVENT),
    }
    # Entries as they would be after so many batches, without the noise of any.
    with ledger._opened.hold(write=True) as write:  # pyright: ignore[reportPrivateUsage]
        for number in range(entries // 2):
            reserved = write.add(EntryKind.RESERVED, cost["cost"], **cost, batch=f"batch {number}")
            happened = {
                "reservation": reserved.number,
                "happened": EVENT.as_dict(),
                "refund": cost["cost"],
            }
            write.add(
                EntryKind.ANSWERED,
                -cost["cost"],
                settles=reserved.number,
                **happened,
                answers=0,
                digest=digest_of([]),
            )
    opened = Ledger.open(str(ledger.path))
    account = opened.account

    def release(number: int) -> None:
        with opened.begin(Intent(f"release {number}", "", EVENT, 40.0), Whom(b"rows")) as scope:
            query = number.to_bytes(32, "big")
            reserved = scope.account.reserve_new(EVENT, [query])
            reservation = cast("Reservation", reserved.reservation)  # the query is new
            scope.account.settle(reservation, {query: (1,)}, EVENT)
            scope.end([reservation.number], EVENT)

    calls: dict[str, Callable[[int], object]] = {
        "a batch by its name": lambda number: account.find(f"batch {number}"),
        "a batch that is not there": lambda number: account.find(f"no batch {number}"),
        "the noise of a release": lambda number: opened.register.noise_of(f"release {number}", ""),
        "room for a new query": lambda number: account.recall_with_room(
            EVENT, [number.to_bytes(32, "big")]
        ),
        "a release of one step": release,
    }
    found = dict[str, float]()
    for name, call in calls.items():
        times = list[float]()
        for number in range(50):
            start = time.perf_counter()
            call(number)
            times.append(time.perf_counter() - start)
        found[name] = 1000 * float(np.median(times))
    return found


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: here")
    parser.add_argument("--debits", type=int, default=2000)
    parser.add_argument(
        "--askers", type=int, help="measure instead how long each of so many waits for its answers"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--entries",
        type=int,
        nargs="+",
        help="measure instead the look-ups in ledgers of these sizes",
    )
    options = parser.parse_args()
    if options.entries:
        table = Table("ms", *(f"{number:,} entries" for number in options.entries))
        with tempfile.TemporaryDirectory(dir=options.folder or Path.cwd()) as folder:
            each = [looked_up(Path(folder), number) for number in options.entries]
        for name in each[0]:
            table.add_row(name, *(f"{one[name]:.2f}" for one in each))
        Console().print(table)
        return
    if options.askers:
        with tempfile.TemporaryDirectory(dir=options.folder or Path.cwd()) as folder:
            waited = waits(Path(folder), options.askers, options.seconds)
        middle, late = np.quantile(waited, [0.5, 0.99])
        print(
            f"{len(waited):,} answers, {options.askers} askers: p50 {middle:.3f} s, p99 {late:.3f} s"
        )
        return
    rows: list[tuple[str, Measure]] = [
        ("plain file, write and fdatasync", appended),
        ("reserve, one by one", reserved),
        ("reserve and settle, one by one", partial(reserved_and_settled, batch=1)),
        ("reserve and settle, batches of 100", partial(reserved_and_settled, batch=100)),
        ("reserve and settle, one batch", partial(reserved_and_settled, batch=options.debits)),
        ("session.ask, one by one", partial(asked, batch=1)),
        ("session.ask, batches of 100", partial(asked, batch=100)),
        ("reserve and settle, 8 processes", partial(raced, processes=8)),
    ]
    title = f"{options.debits:,} debits, {os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table("", "seconds", "debits per second", title=title, title_justify="left")
    with tempfile.TemporaryDirectory(dir=options.folder or Path.cwd()) as folder:
        for name, measure in rows:
            seconds = measure(Path(folder), options.debits)
            table.add_row(name, f"{seconds:.2f}", f"{options.debits / seconds:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
