"""How long a fit of UCI Adult takes beside gradient boosting without privacy, in turn and in one process.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/fits.py [--times 5]

The ratio of processor times hardly depends on what else the machine does.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import median

from sklearn.ensemble import HistGradientBoostingClassifier

from tutelage import PATEClassifier
from tutelage.datasets import load_adult
from tutelage.methods import NoisyMoments
from tutelage_reproductions.protocol import fit_classifier

UNLABELED = 5000


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that some work took, and the seconds of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """Measure and print both, and how many times as long ours takes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5)
    adult = load_adult()
    rows, labels, public = adult.X_private, adult.y_private, adult.X_public[:UNLABELED]

    def ours() -> object:
        return PATEClassifier(method=NoisyMoments(), epsilon=0.5, classes=[0, 1]).fit(
            rows, labels, X_public=public
        )

    def boosting() -> object:
        return fit_classifier(HistGradientBoostingClassifier(), rows, labels)

    warnings.simplefilter("ignore")  # that fits on the same rows add up
    taken = [(measured(ours), measured(boosting)) for _ in range(parser.parse_args().times)]
    for place, name in enumerate(("wall clock", "processor")):
        one, other = (median(pair[which][place] for pair in taken) for which in (0, 1))
        print(
            f"{name}: tutelage {one:.2f} s, gradient boosting {other:.2f} s, {one / other:.1f} times"
        )


if __name__ == "__main__":
    main()
