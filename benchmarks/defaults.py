"""How near raw rows with default settings come to the recorded accuracies, whose features were made by hand.

    python benchmarks/defaults.py [--data "SMS spam" ...] [--epsilons 0.1 0.5 1 3] [--seeds 5]

Texts, csv columns and images go as they are into `PATEClassifier(epsilon=...)`, with nothing else set but the class
values and, so that the experiment can be repeated, `SimulationNoise`. The splits are those of `tutelage reproduce
rivals`, and the recorded accuracies are its rows "vector ballots" (docs/results/rivals.csv). One process, one thread.
"""

import argparse
import ast
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from tutelage import PATEClassifier, SimulationNoise
from tutelage.tables import read_table
from tutelage_reproductions import rivals_data
from tutelage_reproductions.datasets import load_diabetes, load_fashion_mnist, split_by_patient
from tutelage_reproductions.datasets.releases import find
from tutelage_reproductions.protocol import shuffled_folds
from tutelage_reproductions.record import mean_share, percent_right

STAYS, NOT_FEATURES = "diabetes130.csv.gz", ("encounter_id", "patient_nbr", "readmitted")
RECORDED = Path(__file__).parents[1] / "docs" / "results" / "rivals.csv"


class Raw(NamedTuple):
    """Rows as a user has them, and their classes."""

    private: Any
    y_private: Any
    public: Any
    y_public: Any
    scored: Any
    y_scored: Any


def messages(fold: int) -> Raw:
    """Return short messages, as texts."""
    return _of(rivals_data.dealt(*rivals_data.sms_texts(), rivals_data.SMS, fold))


def news(fold: int) -> Raw:
    """Return short news, as texts."""
    return _of(rivals_data.dealt(*rivals_data.ag_news_texts(), rivals_data.AG_NEWS, fold))


def _of(dealt: rivals_data.Dealt) -> Raw:
    return Raw(*dealt)


def stays(fold: int) -> Raw:
    """Return stays in hospitals as the columns of the csv file, without ids and the label."""
    split = split_by_patient(load_diabetes(), key=rivals_data.key_of(fold), balanced=True)
    table = read_table(find(STAYS))
    line = {int(number): place for place, number in enumerate(table.column("encounter_id"))}

    def columns(encounters: Any) -> dict[str, list[str]]:
        lines = [line[number] for number in encounters.tolist()]
        names = [name for name in table.columns if name not in NOT_FEATURES]
        return {name: [table.columns[name][place] for place in lines] for name in names}

    private, public, test = (
        columns(part.encounters) for part in (split.private, split.public, split.test)
    )
    return Raw(private, split.private.y, public, split.public.y, test, split.test.y)


def clothes(fold: int) -> Raw:
    """Return images of clothes, as images."""
    images, split = load_fashion_mnist(), shuffled_folds(rivals_data.FOLDS)[fold]
    private, rest = (X.reshape(-1, 28, 28) for X in (images.X_train, images.X_test))
    pool, held_out = split.pool, split.held_out
    return Raw(
        private,
        images.y_train,
        rest[pool],
        images.y_test[pool],
        rest[held_out],
        images.y_test[held_out],
    )


SOURCES: dict[str, Callable[[int], Raw]] = {
    "SMS spam": messages,
    "AG News": news,
    "Diabetes": stays,
    "Fashion-MNIST": clothes,
}


def recorded(name: str, epsilon: float) -> str:
    """Return the recorded accuracy and its interval."""
    with RECORDED.open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    row = rows[f"{name}, ε = {epsilon:g}: vector ballots, %"]
    return shown(float(row["ours"]), ast.literal_eval(row["interval"]))


def shown(mean: float, interval: tuple[float, float] | None) -> str:
    """Return a mean and its interval, which a single seed does not have."""
    return (
        f"{mean:.1f}"
        if interval is None
        else f"{mean:.1f} ({interval[0]:.1f} to {interval[1]:.1f})"
    )


def right(rows: Raw, epsilon: float, seed: int) -> float:
    """Return the share, in %, of the scored rows that a student is right on."""
    classes = np.unique(rows.y_private)
    model = PATEClassifier(
        epsilon=epsilon, classes=classes, noise=SimulationNoise(seed), random_state=seed
    )
    model.fit(rows.private, rows.y_private, X_public=rows.public)
    return percent_right(model.predict(rows.scored), rows.y_scored)


def main() -> None:
    """Measure every data set at every ε."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    table = Table(
        title=f"{options.seeds} seeds, each with a split of its own", title_justify="left"
    )
    for heading in ("data", "ε", "raw rows, %", "recorded, %", "seconds per fit"):
        table.add_column(heading, justify="right")
    console = Console(width=120)
    for name in options.data:
        splits = [SOURCES[name](seed) for seed in range(options.seeds)]
        for epsilon in options.epsilons:
            start = time.perf_counter()
            mean, interval = mean_share(
                [right(rows, epsilon, seed) for seed, rows in enumerate(splits)]
            )
            seconds = (time.perf_counter() - start) / options.seeds
            cells = name, f"{epsilon:g}", shown(mean, interval), recorded(name, epsilon)
            table.add_row(*cells, f"{seconds:.1f}")
            console.print(*cells, f"{seconds:.1f}", sep=", ")
    console.print(table)


if __name__ == "__main__":
    main()
