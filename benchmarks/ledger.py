"""How many durable debits a ledger takes per second: one by one, in batches, and from several processes, in one run.

    python benchmarks/ledger.py [--folder FOLDER] [--debits 2000]

The first two rows are the floor: what the disk can do. Every debit is on the disk before the next one starts.
"""

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tutelage import GNMax, LabelingSession, Ledger, SystemNoise, VoteHistogram
from tutelage.events import NoisyArgmaxGaussian, Repeated
from tutelage.privacy import ONE_TEACHER

SIGMA, CLASSES = 40.0, 10
EVENT = NoisyArgmaxGaussian(SIGMA, CLASSES, ONE_TEACHER)


def new_ledger(folder: Path) -> Ledger:
    """Return a ledger with room for everything below."""
    path = folder / f"{time.monotonic_ns()}.ledger"
    ledger = Ledger.create(path, epsilon=1000.0, delta=1e-5, unit=ONE_TEACHER)
    ledger.fitting(EVENT)  # the cost of the event is computed once per process
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
        ledger.reserve(EVENT, 1)
    return time.perf_counter() - start


def reserved_and_settled(folder: Path, debits: int, batch: int) -> float:
    """Reserve a batch, then store its answers, for every batch."""
    queries = [os.urandom(32) for _ in range(debits)]
    ledger = new_ledger(folder)
    start = time.perf_counter()
    for first in range(0, debits, batch):
        asked = queries[first : first + batch]
        reservation = ledger.reserve(EVENT, len(asked))
        ledger.settle(reservation, dict.fromkeys(asked, (1,)), Repeated(EVENT, len(asked)))
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
    path, start, children = ledger.path, time.perf_counter(), []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            mine = Ledger.open(str(path))
            for _ in range(debits // processes):
                mine.settle(mine.reserve(EVENT, 1), {os.urandom(32): (1,)}, EVENT)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: here")
    parser.add_argument("--debits", type=int, default=2000)
    options = parser.parse_args()
    rows = [
        ("plain file, write and fdatasync", appended),
        ("reserve, one by one", reserved),
        ("reserve and settle, one by one", lambda folder, debits: reserved_and_settled(folder, debits, 1)),
        ("reserve and settle, batches of 100", lambda folder, debits: reserved_and_settled(folder, debits, 100)),
        ("reserve and settle, one batch", lambda folder, debits: reserved_and_settled(folder, debits, debits)),
        ("session.ask, one by one", lambda folder, debits: asked(folder, debits, 1)),
        ("session.ask, batches of 100", lambda folder, debits: asked(folder, debits, 100)),
        ("reserve and settle, 8 processes", lambda folder, debits: raced(folder, debits, 8)),
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
