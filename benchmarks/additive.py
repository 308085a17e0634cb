"""How accurate an additive model without public rows is (docs/howto/no-public-rows.md).

    python benchmarks/additive.py [--data Diabetes ...] [--folds 2 3 4 5] [--epsilons 0.1 0.5 1 3]

The schema is proposed by the public rows of each split, as `tutelage schema --ranges` does, and nothing else is. The
settings were chosen on folds 0 and 1. One process, one fit after the other.
"""

import argparse
import time

import numpy as np
from splits import SOURCES

from tutelage import PATEClassifier, SimulationNoise
from tutelage.features import Schema


def main() -> None:
    """Measure every data set at every ε."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=SOURCES, default=["Adult, alike", "Diabetes"])
    parser.add_argument("--folds", nargs="+", type=int, default=[2, 3, 4, 5])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1.0, 3.0])
    options = parser.parse_args()
    for name in options.data:
        splits = [SOURCES[name](fold) for fold in options.folds]
        for epsilon in options.epsilons:
            right, seconds = [], []
            for seed, rows in enumerate(splits):
                start = time.perf_counter()
                settings = {"classes": np.unique(rows.y_private), "noise": SimulationNoise(seed)}
                model = PATEClassifier(public=Schema.learn(rows.public), epsilon=epsilon, **settings)
                model.fit(rows.private, rows.y_private, entity_ids=rows.ids)
                seconds.append(time.perf_counter() - start)
                right.append(100 * float(np.mean(model.predict(rows.scored) == rows.y_scored)))
            spread = np.std(right, ddof=1) / np.sqrt(len(right)) if len(right) > 1 else np.nan
            print(
                f"{name}, ε = {epsilon:g}: {np.mean(right):.1f} ± {spread:.1f} %, {np.median(seconds):.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
