"""What training teachers costs beside the obvious way to do it, side by side in one run.

    python benchmarks/teachers.py [forests] [heads] [networks] [--rounds 3] [--queries 500]
        [--teachers 250] [--trees 100]           forests on UCI Adult
        [--networks 250] [--epochs 30]           networks on MNIST, 240 images each

MNIST is found by TUTELAGE_DATA.

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
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import psutil
import torch
from joblib import parallel_config
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import NearestCentroid
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tutelage._internal.typing import ABSTAIN, IntArray
from tutelage.ballots import tally
from tutelage.datasets import load_adult
from tutelage.features import PublicRows
from tutelage.networks import TwoConvolutions
from tutelage.partition import Shards
from tutelage.teachers import ClassMeans, EstimatorTeachers, HeadTeachers, Network, NetworkTeachers
from tutelage_reproductions.datasets import load_mnist
from tutelage_reproductions.glyphs import glyph_features
from tutelage_reproductions.protocol import fit_classifier

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
    own, ended = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        seconds += times.user + times.system
    return seconds


def in_turns(
    ways: Mapping[str, Way], problem: Problem, rounds: int
) -> tuple[dict[str, Cost], dict[str, np.ndarray]]:
    """Return the median cost of each way and its ballots, letting the ways take turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    ballots = {name: way(problem.smaller(4)) for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            clock, processor = time.perf_counter(), processor_seconds()
            ballots[name] = way(problem)
            costs[name].append(Cost(time.perf_counter() - clock, processor_seconds() - processor))
    medians = {
        name: Cost(*map(statistics.median, zip(*found, strict=True)))
        for name, found in costs.items()
    }
    return medians, ballots


def report(
    title: str, problem: Problem, costs: Mapping[str, Cost], ballots: Mapping[str, np.ndarray]
) -> None:
    """Print the costs, how much lower they are than the first way's, and how right the votes are."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table(title=f"{title}, {machine}", title_justify="left")
    for heading in (
        "",
        "wall s",
        "CPU s",
        "times less CPU",
        "a teacher is right",
        "plurality is right",
        "same votes",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    first = next(iter(costs))
    for name, cost in costs.items():
        votes = tally(ballots[name], int(problem.y.max()) + 1).counts
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
    return Problem(
        data.X_private, data.y_private, shards, data.X_public[:queries], data.y_public[:queries]
    )


def plain_forests(problem: Problem, trees: int) -> np.ndarray:
    """Train and vote as one would with scikit-learn alone."""
    ballots = list[IntArray]()
    for number, rows in enumerate(problem.shards.rows):
        seed = int(np.random.SeedSequence([0, number]).generate_state(1)[0])
        untrained = RandomForestClassifier(trees, random_state=seed)
        forest = fit_classifier(untrained, problem.X[rows], problem.y[rows])
        ballots.append(forest.predict(problem.X_public))
    return np.array(ballots)


def our_forests(problem: Problem, trees: int, **setting: Any) -> np.ndarray:
    """Train and vote through a back end of joblib."""
    teachers = EstimatorTeachers(RandomForestClassifier(trees), n_classes=2, seed=0)
    with parallel_config(**setting):
        return teachers.fit_ballots(problem.X, problem.y, problem.shards, problem.X_public)


@contextmanager
def dask_cluster() -> Generator[None]:
    """Run two Dask workers, each a process, as the current cluster."""
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        )
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


def plain_class_means(problem: Problem) -> np.ndarray:
    """Fit and vote as one would with scikit-learn alone."""
    ballots = list[IntArray]()
    with np.errstate(invalid="ignore"):  # where every row of a shard is of a class of its own
        for rows in problem.shards.rows:
            if len(rows):
                means = fit_classifier(NearestCentroid(), problem.X[rows], problem.y[rows])
                ballots.append(means.predict(problem.X_public))
            else:
                ballots.append(np.full(len(problem.X_public), ABSTAIN))
    return np.array(ballots)


def our_class_means(problem: Problem) -> np.ndarray:
    """Fit and vote by matrix products over all shards."""
    teachers = HeadTeachers(ClassMeans(), n_classes=int(problem.y.max()) + 1)
    return teachers.fit_ballots(problem.X, problem.y, problem.shards, problem.X_public)


def heads(options: argparse.Namespace) -> None:
    """Class means over public features of MNIST: scikit-learn in a loop, and all shards at once."""
    mnist = load_mnist()
    clock, processor = time.perf_counter(), processor_seconds()
    features = glyph_features(PublicRows(mnist.X_test[:9000], "MNIST test images"))
    X, X_test = features.transform(mnist.X_train), features.transform(mnist.X_test)
    print(
        f"features of 70,000 images: {time.perf_counter() - clock:.1f} s on the clock, "
        f"{processor_seconds() - processor:.1f} s of all cores"
    )
    ways: dict[str, Way] = {
        "scikit-learn in a loop": plain_class_means,
        "tutelage, all at once": our_class_means,
    }
    for teachers in (250, 1000, 4000):
        shards = Shards.of_rows(len(X), teachers, key=KEY)
        problem = Problem(X, mnist.y_train, shards, X_test, mnist.y_test)
        costs, ballots = in_turns(ways, problem, options.rounds)
        report(f"{teachers:,} class means, 10,000 queries, MNIST", problem, costs, ballots)


class ChannelByChannel(nn.Module):
    """Lay images out as a DataLoader of image files does."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the same images, one color after the other."""
        return images.contiguous()


def tutorial_networks(problem: Problem, factory: TwoConvolutions, epochs: int) -> np.ndarray:
    """Train and vote as tutorials do: a DataLoader for each teacher, images channel by channel, torch's own threads."""
    queries = DataLoader(
        TensorDataset(torch.tensor(problem.X_public / 255, dtype=torch.float32)), batch_size=50
    )
    ballots = list[IntArray]()
    for rows in problem.shards.rows:
        images = torch.tensor(problem.X[rows] / 255, dtype=torch.float32)
        loader = DataLoader(
            TensorDataset(images, torch.tensor(problem.y[rows])), batch_size=32, shuffle=True
        )
        _, shift, *layers = cast("nn.Sequential", factory(10))
        network = nn.Sequential(nn.Unflatten(1, (1, 28, 28)), shift, ChannelByChannel(), *layers)
        adam_w = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=0.01)
        optimiser = cast("torch.optim.Optimizer", adam_w)
        schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, epochs * len(loader))
        for _ in range(epochs):
            for batch, labels in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(batch), labels).backward()
                optimiser.step()
                schedule.step()
        network.eval()
        with torch.no_grad():
            ballots.append(
                torch.cat([network(batch).argmax(dim=1) for (batch,) in queries]).numpy()
            )
    return np.array(ballots)


def our_networks(problem: Problem, factory: TwoConvolutions, epochs: int) -> np.ndarray:
    """Train and vote in two processes of one thread each."""
    teachers = NetworkTeachers(
        Network(factory, epochs=epochs, device="cpu"), n_classes=10, seed=0, n_jobs=2
    )
    return teachers.fit_ballots(problem.X, problem.y, problem.shards, problem.X_public)


def networks(options: argparse.Namespace) -> None:
    """Networks of two convolutions on MNIST: the tutorials' way, and ours."""
    mnist, factory, epochs = load_mnist(), TwoConvolutions(), options.epochs
    shards = Shards.of_rows(len(mnist.X_train), 250, key=KEY)
    problem = Problem(mnist.X_train, mnist.y_train, shards, mnist.X_test, mnist.y_test).smaller(
        options.networks
    )
    ways: dict[str, Way] = {
        "a DataLoader per teacher": lambda it: tutorial_networks(it, factory, epochs),
        "tutelage, 2 processes": lambda it: our_networks(it, factory, epochs),
    }
    costs, ballots = in_turns(ways, problem, options.rounds)
    report(
        f"{options.networks} networks, {epochs} epochs, 10,000 queries, MNIST",
        problem,
        costs,
        ballots,
    )


SECTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "forests": forests,
    "heads": heads,
    "networks": networks,
}


def main() -> None:
    """Run the sections asked for, by default all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--networks", type=int, default=250)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(
            f"there are sections {', '.join(SECTIONS)}, but not {', '.join(sorted(unknown))}"
        )
    for name in options.sections or SECTIONS:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
