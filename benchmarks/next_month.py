"""Twelve months of stays of diabetic patients, in the order of their ids: accuracy, what is spent of each cohort, cost.

    python benchmarks/next_month.py [--releases 6] [--fold 0]

Every month has a named release, and each person ε = 1 in all. Public rows are used for the schema alone. Noise is
simulated. Writes docs/results/next_month.csv and docs/figures/next_month.png.
"""

import argparse
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from months import diabetes
from splits import Frame

from tutelage import PATEClassifier, SimulationNoise
from tutelage.features import Schema

DOCS = Path(__file__).parents[1] / "docs"
MONTHS = 12


def live(releases: int, fold: int) -> Frame:
    """Return accuracy, cost, and what is spent of each cohort, month by month."""
    parts = diabetes(fold)
    _, person = np.unique(parts.ids, return_inverse=True)
    month_of = person * MONTHS // (person.max() + 1)
    schema, found = Schema.learn(parts.public), list[dict[str, float]]()
    majority = max(np.unique(parts.y_scored, return_counts=True)[1]) / len(parts.y_scored)
    with TemporaryDirectory() as folder:
        for month in range(MONTHS):
            model = PATEClassifier(
                budget=1.0,
                releases=releases,
                columns=schema,
                ledger=f"{folder}/stays.ledger",
                classes=sorted(set(parts.y_scored.tolist())),
                unit="patient",
                noise=SimulationNoise(month),
            )
            kept = month_of <= month
            model.fit(
                parts.private[kept],
                parts.y_private[kept],
                entity_ids=person[kept],
                release=f"{month + 1:02}",
                data_changed=True,
            )
            line = {
                "month": month + 1,
                "accuracy": model.score(parts.scored, parts.y_scored),
                "majority": majority,
            }
            found.append(line | {"cost": model.release_.cost} | dict(model.ledger_.cohorts))
            print(line, flush=True)
    return pd.DataFrame(found).fillna(0.0).round(5)


def draw(table: Frame, path: Path) -> None:
    """Draw accuracy, and below it what is spent of the people who came with each release."""
    mpl.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    canvas, (above, below) = plt.subplots(
        2, sharex=True, figsize=(7, 5.4), height_ratios=(3, 2), layout="constrained"
    )
    above.plot(
        table["month"], 100 * table["accuracy"], marker="o", color="#1f5f8b", label="student"
    )
    above.axhline(
        100 * table["majority"].iloc[0], color="#999999", linestyle="--", label="one class for all"
    )
    above.set_ylabel("right on so many %")
    above.legend(frameon=False, loc="upper left")
    cohorts = table.columns[4:]
    shades = plt.get_cmap("viridis")(np.linspace(0.05, 0.9, len(cohorts)))
    for cohort, shade in zip(cohorts, shades, strict=True):
        since = table["month"] >= int(cohort)
        below.plot(
            table["month"][since], table[cohort][since], color=shade, marker=".", linewidth=1.2
        )
    below.axhline(1, color="#b03030", linewidth=1)
    below.text(1, 1.03, "ε of the budget", color="#b03030", va="bottom")
    below.set(ylabel="ε spent, by cohort", xlabel="month", ylim=(0, 1.2), xticks=table["month"])
    canvas.savefig(path, dpi=130, metadata={"Software": None})


def main() -> None:
    """Measure, write and draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=6)
    parser.add_argument("--fold", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table = live(options.releases, options.fold)
    table.to_csv(DOCS / "results" / "next_month.csv", index=False)
    draw(table, DOCS / "figures" / "next_month.png")


if __name__ == "__main__":
    main()
