"""What a ballot from every person costs: votes on the nearest queries in a campaign, and vectors, in one run.

    python benchmarks/ballots.py [--features 64] [--cap 10]

Rows are made up: floats in single precision. Every size runs in a process of its own. Of votes, peaks of memory are
those of the rows alone, after the votes, and after both batches; the second batch is asked of people who have no votes
left. Of vectors, they are those of the rows alone and after a whole fit, with the default settings.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tutelage import LabelingSession, Ledger, PATEClassifier, Shards
from tutelage.mechanisms import CappedGNMax
from tutelage.teachers import NearestQueries

SIZES = (60_000, 9_000), (1_000_000, 10_000)
CLASSES = 10


def gigabytes() -> float:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "linux" else 2**30
    )


def campaign(people: int, queries: int, features: int, cap: int) -> list[str]:
    """Let so many people vote, and ask two batches of a campaign; return what it took."""
    random = np.random.default_rng(0)
    X, public = (
        random.random((rows, features), dtype=np.float32) for rows in (people, 2 * queries)
    )
    y, shards = random.integers(0, CLASSES, people), Shards.of_single_people(people)
    before, start = gigabytes(), time.perf_counter()
    teachers = NearestQueries(cap).fit(X, y, shards, n_classes=CLASSES)
    fitted = time.perf_counter()
    teachers.few_votes(public[:queries])
    voted, peak = time.perf_counter(), gigabytes()
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "a.ledger", epsilon=1.0, delta=1e-7, unit=shards.unit)
        session = LabelingSession(teachers, CappedGNMax(200.0, cap), ledger)
        seconds = list[float]()
        for rows in (public[:queries], public[queries:]):
            begun = time.perf_counter()
            session.ask(rows)
            seconds.append(time.perf_counter() - begun)
    times = fitted - start, voted - fitted, *seconds
    sizes = before, peak, gigabytes()
    return [
        f"{people:,}",
        f"{queries:,}",
        *(f"{found:.1f}" for found in times),
        *(f"{found:.2f}" for found in sizes),
    ]


def vectors(people: int, public_rows: int, features: int) -> list[str]:
    """Fit a student of vector ballots; return what it took."""
    random = np.random.default_rng(0)
    X, public = (
        random.random((rows, features), dtype=np.float32) for rows in (people, public_rows)
    )
    y = random.integers(0, CLASSES, people)
    before, start = gigabytes(), time.perf_counter()
    PATEClassifier(epsilon=1.0, delta=1e-7, classes=range(CLASSES)).fit(X, y, X_public=public)
    fitted = time.perf_counter() - start
    return [
        f"{people:,}",
        f"{public_rows:,}",
        f"{fitted:.1f}",
        f"{before:.2f}",
        f"{gigabytes():.2f}",
    ]


CAMPAIGN = (
    "people",
    "queries",
    "fit s",
    "vote s",
    "first ask s",
    "second ask s",
    "rows GB",
    "vote GB",
    "ask GB",
)
VECTORS = "people", "public rows", "fit s", "rows GB", "fit GB"


def main() -> None:
    """Measure every kind and size in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--cap", type=int, default=10)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        kind = options.one[0]
        people, rows = map(int, options.one[1:])
        if kind == "vectors":
            cells = vectors(people, rows, options.features)
        else:
            cells = campaign(people, rows, options.features, options.cap)
        print("\t".join(cells))
        return
    machine = (
        f"{options.features} features, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    for kind, headings in ((f"{options.cap} votes each", CAMPAIGN), ("vectors", VECTORS)):
        table = Table(title=f"{kind}, {machine}", title_justify="left")
        for heading in headings:
            table.add_column(heading, justify="right")
        for size in SIZES:
            command = [sys.executable, __file__, "--one", kind, *map(str, size), *sys.argv[1:]]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603  this file
            table.add_row(*found.strip().split("\t"))
        Console(width=130).print(table)


if __name__ == "__main__":
    main()
