"""Time and memory of the exact costs beside the obvious way to compute them, side by side in one run.

    python benchmarks/accounting.py [--votes votes.npz --array votes]

The obvious way walks over all neighbors of every histogram and sums each law anew. It is timed on a few queries and
scaled up, which is fair as it treats queries one by one. Every measurement runs in a process of its own.
"""

import argparse
import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tutelage import VoteHistogram
from tutelage.accounting import Accountant
from tutelage.events import NoisyArgmaxGaussian, NoisyArgmaxLaplace, Repeated
from tutelage.privacy import ONE_TEACHER

DELTA = 1e-5
ORDERS = 1 + np.geomspace(1e-2, 1e5, 33)  # as many as the accountant looks at
SIZES = (100, 1_000, 10_000)
MOST_NAIVE_CLASSES = 12  # beyond it the naive way is timed on so many classes and scaled up
Mechanism = NoisyArgmaxLaplace | NoisyArgmaxGaussian


def drawn_votes(queries: int, classes: int, teachers: int) -> VoteHistogram:
    """Return votes whose plurality takes anything from a third to all ballots, all rows different."""
    random = np.random.default_rng(0)
    agreement = random.beta(4, 1, queries)[:, None]
    shares = agreement * np.eye(classes)[random.integers(0, classes, queries)]
    shares += (1 - agreement) * random.dirichlet(np.full(classes, 0.3), queries)
    return VoteHistogram(
        random.multinomial(teachers, shares / shares.sum(axis=1, keepdims=True)), teachers
    )


def naive_cost(counts: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Return the cost of one query at each order by walking over its neighbors."""
    here = naive_law(counts, masses)
    worst = np.zeros(len(ORDERS))
    for source in np.flatnonzero(counts):
        for target in range(len(counts)):
            if target != source:
                moved = counts.copy()
                moved[source] -= 1
                moved[target] += 1
                there = naive_law(moved, masses)
                for p, q in ((here, there), (there, here)):
                    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                        moment = np.log((p * (p / q) ** (ORDERS[:, None] - 1)).sum(axis=1))
                    worst = np.fmax(worst, moment / (ORDERS - 1))
    return worst


def naive_law(counts: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Return P(class wins) by summing over its noisy count."""
    below = np.concatenate([[0.0], np.cumsum(masses)])
    reach = len(masses) // 2
    law = np.zeros(len(counts))
    for winner, own in enumerate(counts):
        values = own + np.arange(-reach, reach + 1)
        joint = masses.copy()
        for rival, other in enumerate(counts):
            if rival != winner:
                at_most = np.clip(values - other - (rival < winner) + reach + 1, 0, len(masses))
                joint *= below[at_most]
        law[winner] = joint.sum()
    return law


def masses_of(event: Mechanism) -> np.ndarray:
    """Return the noise, far enough for double precision."""
    if isinstance(event, NoisyArgmaxLaplace):
        noise = -np.abs(np.arange(-int(40 * event.scale), int(40 * event.scale) + 1)) / event.scale
    else:
        noise = -(np.arange(-int(9 * event.sigma), int(9 * event.sigma) + 1) ** 2) / (
            2 * event.sigma**2
        )
    return np.exp(noise) / np.exp(noise).sum()


def time_naive(event: Mechanism, counts: np.ndarray, _teachers: int) -> tuple[float, float]:
    """Return the seconds that all queries would take, and the peak memory in MiB."""
    few = counts[:3] if counts.shape[1] <= MOST_NAIVE_CLASSES else counts[:1, :MOST_NAIVE_CLASSES]
    masses = masses_of(event)
    started = time.perf_counter()
    for row in few:
        naive_cost(row, masses)
    seconds = (time.perf_counter() - started) * len(counts) / len(few)
    # Sources, targets, outcomes and rivals each grow with the number of classes.
    return seconds * (counts.shape[1] / few.shape[1]) ** 4, peak()


def time_ours(event: Mechanism, counts: np.ndarray, teachers: int) -> tuple[float, float]:
    """Return the seconds of `Accountant.exact` on all queries, and the peak memory in MiB."""
    votes = VoteHistogram(counts, teachers)
    started = time.perf_counter()
    accountant = Accountant()
    accountant.add(Repeated(event, votes.n_queries), votes)
    accountant.exact(DELTA)
    return time.perf_counter() - started, peak()


def peak() -> float:
    """Return the largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_a_process(
    way: Callable[..., tuple[float, float]], asked: tuple[Any, ...]
) -> tuple[float, float]:
    """Return the seconds and the peak memory of a way, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(way, asked)


def measure(name: str, event: Mechanism, votes: VoteHistogram, table: Table) -> None:
    """Add one row to the table."""
    asked = (event, votes.counts, votes.n_teachers)
    naive, _ = in_a_process(time_naive, asked)
    ours, memory = in_a_process(time_ours, asked)
    noise = (
        f"Laplace {event.scale:g}"
        if isinstance(event, NoisyArgmaxLaplace)
        else f"Gaussian {event.sigma:g}"
    )
    size = f"{votes.n_queries:,} x {votes.n_classes}"
    table.add_row(
        name,
        size,
        noise,
        f"{naive:,.0f} s",
        f"{ours:.1f} s",
        f"{naive / ours:,.0f}",
        f"{memory:,.0f} MiB",
    )


def main() -> None:
    """Measure every size and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--votes", type=Path, help="npz file with votes of many classes, instead of drawn ones"
    )
    parser.add_argument("--array", help="name of the array in it")
    arguments = parser.parse_args()
    table = Table(title=f"exact costs, {os.cpu_count()} cores, Python {platform.python_version()}")
    for heading in (
        "votes",
        "size",
        "noise",
        "naive (scaled up)",
        "tutelage",
        "times faster",
        "peak memory",
    ):
        table.add_column(heading, justify="left" if heading == "votes" else "right")
    for queries in SIZES:
        for event in (
            NoisyArgmaxLaplace(20.0, 10, ONE_TEACHER),
            NoisyArgmaxGaussian(40.0, 10, ONE_TEACHER),
        ):
            measure("drawn, 250 teachers", event, drawn_votes(queries, 10, 250), table)
    many = drawn_votes(12_000, 150, 5_000)
    name = "drawn, 5,000 teachers"
    if arguments.votes:
        many, name = (
            VoteHistogram.load(arguments.votes, array=arguments.array),
            arguments.votes.stem,
        )
    measure(name, NoisyArgmaxGaussian(100.0, many.n_classes, ONE_TEACHER), many, table)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
