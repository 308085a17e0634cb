"""Accuracy of vector ballots where public rows differ from the private ones, and where they do not.

    python benchmarks/shifted.py [--data adult diabetes ...] [--public alike shuffled "over fifty"]
        [--first 0] [--seeds 3]

*Alike*: public rows of the same source. *Shuffled*: each column of the public rows is shuffled by itself, so that they
have the right values and no correlations. *Over fifty*: of Adult, public rows of people over fifty alone. One round,
two rounds as by default, and two rounds whose correction may be of any length get the same noise. All parts are those
of a fit, but ballots are not rounded to whole numbers, and the noise is continuous and seeded.
"""

import argparse
from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from rich.console import Console

from tutelage._internal.typing import IntArray, Matrix
from tutelage.accounting.calibration import least_noise
from tutelage.datasets import load_adult
from tutelage.datasets.adult import NUMBERS
from tutelage.features import PublicRows, PublicSteps
from tutelage.ledger import Ledger
from tutelage.privacy import ONE_TEACHER
from tutelage.students import Moments, NoisySumClassifier, noisy_sums
from tutelage.teachers import VectorBallots
from tutelage_reproductions import rivals_data
from tutelage_reproductions.record import mean_share, percent_right

EPSILONS = (0.1, 0.3, 0.5, 1.0, 3.0)
HEADINGS = ("one round", "two rounds", "two rounds, unlimited")
OTHERS = {
    name: getattr(rivals_data, name)
    for name in ("diabetes", "sms_spam", "ag_news", "fashion_mnist", "mnist")
}


class Rows(NamedTuple):
    """One split."""

    public: Matrix
    private: Matrix
    labels: IntArray
    scored: Matrix
    truth: IntArray


def adult(public: str, seed: int) -> Rows:
    """Return Adult with public rows of a kind, of two thirds of its public part; the last third is scored."""
    rows, random = load_adult(), np.random.default_rng(1000 + seed)
    names = rows.feature_names
    columns = [
        names.index(name) for name in (*NUMBERS, *(name for name in names if name not in NUMBERS))
    ]
    known, private = rows.X_public[:, columns], rows.X_private[:, columns]
    order = random.permutation(len(known))
    pool, scored = np.split(order, [len(order) * 2 // 3])
    chosen = known[pool[known[pool, 0] > 50]] if public == "over fifty" else known[pool[:5000]]
    if public == "shuffled":
        chosen = _shuffled(chosen, random)
    steps = PublicSteps.learn(PublicRows(chosen, "public rows"), len(NUMBERS))
    found = (steps.transform(part) for part in (chosen, private, known[scored]))
    public_rows, private_rows, scored_rows = found
    return Rows(public_rows, private_rows, rows.y_private, scored_rows, rows.y_public[scored])


def other(name: str, public: str, seed: int) -> Rows:
    """Return another data set, whose features were made before."""
    data = OTHERS[name](seed)
    chosen = np.asarray(data.public, dtype=np.float64)
    if public == "shuffled":
        chosen = _shuffled(chosen, np.random.default_rng(seed))
    private, scored = (np.asarray(part, dtype=np.float64) for part in (data.private, data.scored))
    return Rows(chosen, private, data.y_private, scored, data.y_scored)


def _shuffled(rows: Matrix, random: np.random.Generator) -> Matrix:
    return np.stack([random.permutation(column) for column in rows.T], axis=1)


def noise_at(epsilon: float) -> float:
    """Return the noise of one sum that costs ε, in lengths of a ballot."""
    ledger = Ledger.in_memory(epsilon=epsilon, delta=1e-5, unit=ONE_TEACHER, accounting="gaussian")
    one = VectorBallots(rounds=1)
    return least_noise(
        lambda noise: (
            ledger.account.share_of(one.event_of_round(noise, 0, 10, ONE_TEACHER)) / epsilon
        )
    )


def shares(rows: Rows, epsilon: float, seed: int) -> Iterator[float]:
    """Yield the share of the scored rows, in %, that each way is right on."""
    teacher, random, n = VectorBallots(), np.random.default_rng(seed), len(rows.private)
    classes, noise = np.arange(int(rows.truth.max()) + 1), noise_at(epsilon)
    features: Any = teacher.features(
        rows.public, n_classes=len(classes), n_people=n, noise_multiplier=noise
    )
    public: Matrix = features.transform(rows.public)
    private: Matrix = features.transform(rows.private)
    scored: Matrix = features.transform(rows.scored)

    def fitted(*rounds: Moments) -> NoisySumClassifier:
        return NoisySumClassifier().fit_moments(public, rounds, n_rows=n, classes=classes)

    def noisy_mean(student: NoisySumClassifier, multiplier: float) -> Moments:
        radius = student.radius(public)
        residuals = student.residuals(private, rows.labels)
        lengths = np.linalg.norm(residuals, axis=1) * np.linalg.norm(private, axis=1)
        residuals *= np.minimum(1, radius / np.maximum(lengths, 1e-12))[:, np.newaxis]
        sigma = multiplier * radius / n
        mean: Matrix = residuals.T @ private / n
        return Moments(mean + sigma * random.standard_normal(mean.shape), sigma, radius)

    def right(student: NoisySumClassifier) -> float:
        return percent_right(student.predict(scored), rows.truth)

    yield right(fitted(noisy_mean(fitted(), noise)))
    first = noisy_mean(fitted(), teacher.noise_of_round(noise, 0))
    later = noisy_mean(fitted(first), teacher.noise_of_round(noise, 1))
    yield right(fitted(first, later))
    with patch.object(noisy_sums, "_FARTHEST", inf):
        yield right(fitted(first, later))


def main() -> None:
    """Measure every data set and kind of public rows at every ε."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=["adult", *OTHERS], default=["adult"])
    parser.add_argument("--public", nargs="+", default=["alike", "shuffled", "over fifty"])
    parser.add_argument("--first", type=int, default=0, help="the first seed; each seed is a split")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    options = parser.parse_args()
    console = Console(width=140)
    seeds = range(options.first, options.first + options.seeds)
    console.print("data, public rows, ε", *HEADINGS, sep=", ")
    for name in options.data:
        for public in options.public:
            if public == "over fifty" and name != "adult":
                continue
            splits = [
                adult(public, seed) if name == "adult" else other(name, public, seed)
                for seed in seeds
            ]
            for epsilon in EPSILONS:
                found = np.array(
                    [
                        list(shares(rows, epsilon, seed))
                        for seed, rows in zip(seeds, splits, strict=True)
                    ]
                )
                cells = list[str]()
                for column in found.T:
                    mean, interval = mean_share(column.tolist())
                    cells.append(
                        f"{mean:.1f}"
                        + (f" ({interval[0]:.1f} to {interval[1]:.1f})" if interval else "")
                    )
                console.print(name, public, f"{epsilon:g}", *cells, sep=", ", highlight=False)


if __name__ == "__main__":
    main()
