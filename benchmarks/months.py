"""Accuracy of students that are published every month, while people arrive: by cohorts, and what else could be done.

    python benchmarks/months.py [--data Adult ...] [--months 24] [--seeds 0 1 2 3]

People arrive in equal parts, in the order of the file, or of their ids. Each has ε = 1 in all, whichever way is taken:

- cohorts: a named release every month, each person in as many as the budget is divided into (`releases`);
- fixed ledger: one budget for everybody, divided into as many releases as there are months;
- at once: one release to all people at the whole ε, after the last month.

"Adult, votes" asks for labels of 40 public rows every month. There, the fixed ledger has six releases, too, with as
much noise as the named ones have, and ends after them.

Noise is simulated, with another seed each time. The last student is scored; rows of results/months.csv are not measured
again.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import pandas as pd
from defaults import stays
from splits import Frame, Split, adult, raw, stored_numbers

from tutelage import PATEClassifier, SimulationNoise
from tutelage.exceptions import BudgetExceededError
from tutelage.features import Schema
from tutelage.methods import CappedVotes
from tutelage_reproductions import rivals_data
from tutelage_reproductions.datasets import load_diabetes, split_by_patient

STORED = Path(__file__).parents[1] / "docs" / "results" / "months.csv"
KEY = ["table", "way", "months", "seed"]


def diabetes(fold: int) -> Split:
    """Return the stays of diabetic patients, in the order of their ids."""
    parts = raw(stays, fold)
    ids = split_by_patient(
        load_diabetes(), key=rivals_data.key_of(fold), balanced=True
    ).private.patients
    order = np.argsort(ids, kind="stable")
    rows = cast("Frame", pd.DataFrame(parts.private))
    private = rows.iloc[order].reset_index(drop=True)
    return parts._replace(private=private, y_private=parts.y_private[order], ids=ids[order])


adult_alike = partial(adult, "alike")
TABLES: dict[str, tuple[Callable[[int], Split], bool]] = {
    "Adult": (adult_alike, True),
    "Adult, schema only": (adult_alike, False),
    "Adult, votes": (adult_alike, False),
    "Diabetes": (diabetes, True),
    "Diabetes, schema only": (diabetes, False),
}
WAYS = {
    "cohorts, 24 releases": 24,
    "cohorts, 12 releases": 12,
    "cohorts, 6 releases": 6,
    "cohorts, 1 release": 1,
    "fixed ledger": None,
    "at once": 0,
}


def given_to(table: str, parts: Split, *, labeled: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings, and what is given to a fit beside the private rows."""
    if table == "Adult, votes":
        return {"method": CappedVotes(votes=5, n_queries=40), "random_state": 0}, {
            "X_public": parts.public
        }
    if labeled:
        return {}, {"X_public": parts.public, "y_public": parts.y_public}
    return {"columns": Schema.learn(parts.public)}, {}


def last_student(table: str, way: str, months: int, seed: int) -> tuple[float, float, int]:
    """Return the accuracy of the last student, the mean over all months, and how many labels there are."""
    load, labeled = TABLES[table]
    parts = load(2 + seed)
    model: PATEClassifier | None = None
    ids = np.arange(len(parts.private)) if parts.ids is None else parts.ids
    _, person = np.unique(ids, return_inverse=True)
    month_of = person * months // (person.max() + 1)
    more, given = given_to(table, parts, labeled=labeled)
    equal = WAYS[way] or (6 if table == "Adult, votes" else months)
    classes = sorted(set(parts.y_scored.tolist()))
    scores, n_labels = list[float](), 0
    with TemporaryDirectory() as folder:
        for month in range(months):
            if WAYS[way] == 0 and month < months - 1:
                continue
            one = PATEClassifier(
                budget=1.0,
                releases=1 if WAYS[way] == 0 else equal,
                question="" if WAYS[way] else f"month {month + 1}",
                ledger=f"{folder}/one.ledger",
                classes=classes,
                unit="person",
                noise=SimulationNoise(1000 * seed + month),
                **more,
            )
            kept = month_of <= month
            with suppress(BudgetExceededError):  # then the student of the month before stays
                model = one.fit(
                    parts.private[kept],
                    parts.y_private[kept],
                    entity_ids=person[kept],
                    release=None if WAYS[way] in (None, 0) else f"month {month + 1}",
                    data_changed=True,
                    **given,
                )
                n_labels += (
                    len(model.queries_) if WAYS[way] is None else len(model.queries_) - n_labels
                )
            # The budget is enough for the first month.
            scores.append(cast("PATEClassifier", model).score(parts.scored, parts.y_scored))
    return scores[-1], float(np.mean(scores)), n_labels if table == "Adult, votes" else 0


def main() -> None:
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="*", default=list(TABLES))
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--months", type=int, default=24)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for seed, table, way in product(options.seeds, options.data, options.ways):
        known = stored_numbers(STORED)
        if len(known) and (known[KEY] == [table, way, options.months, seed]).all(axis=1).any():
            continue
        start = time.perf_counter()
        last, mean, n_labels = last_student(table, way, options.months, seed)
        figures = [round(last, 5), round(mean, 5), n_labels, round(time.perf_counter() - start, 1)]
        row = [table, way, options.months, seed, *figures]
        known.loc[len(known)] = row
        known.to_csv(STORED, index=False)
        print(*row, flush=True)


if __name__ == "__main__":
    main()
