"""How long fits take beside gradient boosting without privacy on the same rows, in turn and in one process.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/fits.py [--times 5]

The ratio of processor times hardly depends on what else the machine does.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from statistics import median
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from tutelage import PATEClassifier
from tutelage.datasets import load_adult
from tutelage.features import Schema
from tutelage.methods import Method, NoisyMoments
from tutelage_reproductions.protocol import fit_classifier

UNLABELED = 5000
ROWS, COLUMNS = 100_000, 10
Work = Callable[[], object]


def measured(work: Work) -> tuple[float, float]:
    """Return the seconds that some work took, and the seconds of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def cases_of_adult() -> Iterator[tuple[str, Work, Work]]:
    """Yield what is compared on UCI Adult: its name, our fit, and gradient boosting."""
    adult = load_adult()
    rows, labels, public = adult.X_private, adult.y_private, adult.X_public[:UNLABELED]
    names = adult.feature_names
    by_name = dict(zip(names, rows.T, strict=True))
    schema = Schema.learn(dict(zip(names, adult.X_public.T, strict=True)))

    def boosting() -> object:
        return fit_classifier(HistGradientBoostingClassifier(), rows, labels)

    yield (
        "Adult, public rows",
        lambda: classifier(NoisyMoments()).fit(rows, labels, X_public=public),
        boosting,
    )
    yield "Adult, schema", lambda: classifier(columns=schema).fit(by_name, labels), boosting


def cases_of_numbers() -> Iterator[tuple[str, Work, Work]]:
    """Yield the same of made-up numbers, of which the class depends on all."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, COLUMNS))
    public = rng.normal(size=(UNLABELED, COLUMNS))
    labels = (rows.sum(axis=1) > 0).astype(int)
    by_name = {f"c{place}": column for place, column in enumerate(rows.T)}
    schema = Schema(dict.fromkeys(by_name, (-3.0, 3.0)))

    def boosting() -> object:
        model: Any = HistGradientBoostingClassifier()
        return model.fit(rows, labels)

    yield (
        "numbers, public rows",
        lambda: classifier(NoisyMoments()).fit(rows, labels, X_public=public),
        boosting,
    )
    yield "numbers, schema", lambda: classifier(columns=schema).fit(by_name, labels), boosting


def classifier(method: Method | None = None, columns: Schema | None = None) -> Any:
    """Return ours, of two classes."""
    return PATEClassifier(method=method, columns=columns, epsilon=0.5, classes=[0, 1])


def main() -> None:
    """Measure and print both, and how many times as long ours takes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    warnings.simplefilter("ignore")  # that fits on the same rows add up
    for case, ours, boosting in chain(cases_of_adult(), cases_of_numbers()):
        taken = [(measured(ours), measured(boosting)) for _ in range(times)]
        for place, name in enumerate(("wall clock", "processor")):
            one, other = (median(pair[which][place] for pair in taken) for which in (0, 1))
            print(
                f"{case}, {name}: tutelage {one:.2f} s, gradient boosting {other:.2f} s, {one / other:.1f} times"
            )


if __name__ == "__main__":
    main()
