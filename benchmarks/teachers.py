"""What training teachers costs beside the obvious way to do it, side by side in one run.

    python benchmarks/teachers.py forests [--teachers 250] [--trees 100] [--queries 500] [--rounds 3]

The ways take turns, and each is given as the median of its rounds: seconds on the clock, and seconds of all cores in
this process and its children. Workers are up and have trained a few teachers before the clock starts.
"""

import argparse
import os
import platform
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import psutil
from joblib import parallel_config
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

from tutelage.datasets import load_adult
from tutelage.partition import Shards
from tutelage.teachers import EstimatorTeachers
from tutelage.votes import tally

KEY = b"a key of 32 bytes for benchmarks"


class Problem(NamedTuple):
    """Private rows in shards, and public rows to vote on."""

    X: np.ndarray
    y: np.ndarray
    shards: Shards
    X_public: np.ndarray
    y_public: np.ndarray

    def smaller(self, teachers: int) -> "Problem":
        """Return the same for the first teachers only, to warm up on."""
        mine = np.flatnonzero(self.shards.assignment < teachers)
        shards = Shards(self.shards.assignment[mine], teachers, self.shards.unit)
        return self._replace(X=self.X[mine], y=self.y[mine], shards=shards)


Way = Callable[[Problem], np.ndarray]  # returns ballots


class Cost(NamedTuple):
    """Seconds on the clock and of all cores."""

    wall: float
    cpu: float


def processor_seconds() -> float:
    """Return the seconds that this process, its children and theirs have used of all cores so far."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        seconds += times.user + times.system
    return seconds


def in_turns(ways: Mapping[str, Way], problem: Problem, rounds: int) -> tuple[dict[str, Cost], dict[str, np.ndarray]]:
    """Return the median cost of each way and its ballots, letting the ways take turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    ballots = {name: way(problem.smaller(4)) for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            clock, processor = time.perf_counter(), processor_seconds()
            ballots[name] = way(problem)
            costs[name].append(Cost(time.perf_counter() - clock, processor_seconds() - processor))
    medians = {name: Cost(*map(statistics.median, zip(*found, strict=True))) for name, found in costs.items()}
    return medians, ballots


def report(title: str, problem: Problem, costs: Mapping[str, Cost], ballots: Mapping[str, np.ndarray]) -> None:
    """Print the costs, how much lower they are than the first way's, and how right the votes are."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table(title=f"{title}, {machine}", title_justify="left")
    for heading in ("", "wall s", "CPU s", "times less CPU", "a teacher is right", "plurality is right", "same votes"):
        table.add_column(heading, justify="right" if heading else "left")
    first = next(iter(costs))
    for name, cost in costs.items():
        votes = tally(ballots[name], 2).counts
        table.add_row(
            name,
            f"{cost.wall:.1f}",
            f"{cost.cpu:.1f}",
            f"{costs[first].cpu / cost.cpu:.1f}",
            f"{(ballots[name] == problem.y_public).mean():.4f}",
            f"{(votes.argmax(axis=1) == problem.y_public).mean():.4f}",
            "yes" if np.array_equal(ballots[name], ballots[first]) else "no",
        )
    Console(width=130).print(table)


def adult(teachers: int, queries: int) -> Problem:
    """Return UCI Adult, split as in PATE 2017."""
    data = load_adult()
    shards = Shards.of_rows(len(data.y_private), teachers, key=KEY)
    return Problem(data.X_private, data.y_private, shards, data.X_public[:queries], data.y_public[:queries])


def plain_forests(problem: Problem, trees: int) -> np.ndarray:
    """Train and vote as one would with scikit-learn alone."""
    ballots = []
    for number, rows in enumerate(problem.shards.rows):
        seed = int(np.random.SeedSequence([0, number]).generate_state(1)[0])
        forest = RandomForestClassifier(trees, random_state=seed).fit(problem.X[rows], problem.y[rows])
        ballots.append(forest.predict(problem.X_public))
    return np.array(ballots)


def our_forests(problem: Problem, trees: int, **setting: Any) -> np.ndarray:
    """Train and vote through a back end of joblib."""
    teachers = EstimatorTeachers(RandomForestClassifier(trees), n_classes=2, seed=0)
    with parallel_config(**setting):
        return teachers.fit_ballots(problem.X, problem.y, problem.shards, problem.X_public)


@contextmanager
def dask_cluster() -> Iterator[None]:
    """Run two Dask workers, each a process, as the current cluster."""
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0")
        stack.enter_context(cluster)
        stack.enter_context(Client(cluster))
        yield


def forests(options: argparse.Namespace) -> None:
    """Random forests: scikit-learn in a loop, and here on one core, on two, and on two Dask workers."""
    problem, trees = adult(options.teachers, options.queries), options.trees
    ways: dict[str, Way] = {
        "scikit-learn in a loop": lambda it: plain_forests(it, trees),
        "tutelage, sequential": lambda it: our_forests(it, trees, backend="sequential"),
        "tutelage, 2 processes": lambda it: our_forests(it, trees, backend="loky", n_jobs=2),
        "tutelage, 2 Dask workers": lambda it: our_forests(it, trees, backend="dask"),
    }
    with dask_cluster():
        costs, ballots = in_turns(ways, problem, options.rounds)
    title = f"{options.teachers} forests of {trees} trees, {options.queries:,} queries, UCI Adult"
    report(title, problem, costs, ballots)


SECTIONS: dict[str, Callable[[argparse.Namespace], None]] = {"forests": forests}


def main() -> None:
    """Run the sections asked for, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"there are sections {', '.join(SECTIONS)}, but not {', '.join(sorted(unknown))}")
    for name in options.sections or SECTIONS:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
