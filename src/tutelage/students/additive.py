"""A student that is a table of effects, one for each bin of each column; it follows from noisy sums alone.

No row has a part in it. Counts by class give a score for each bin, what these get wrong gives a correction, and a last
sum says how much of each column's score and of the correction to believe (`tutelage.students.stacking`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any, NamedTuple, Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.drawing import escape
from tutelage._internal.records import by_identity
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidDataError
from tutelage.features.schema import Schema
from tutelage.features.scored import chances_of
from tutelage.reporting.record import Curve
from tutelage.reporting.render import render
from tutelage.students.stacking import Pair, radius_of, weights_of, with_biases
from tutelage.tables import is_number

_BAND = 2.0  # deviations of the noise
_MOST_SHOWN = 12  # columns, on a card, and categories in a drawing
_MOST_DRAWN = 6  # columns
_MOST_GROUPS = 16  # of the bins of a column
_FULL = 3.0  # deviations of the noise that a group holds at least, if any other can be put to it
_HALF = 0.5  # of a score: columns say the same in part
_PARTS = np.geomspace(0.005, _HALF, 40)  # candidates, where columns say nearly the same
# Candidates for how much further scores are from their mean than by chance.
_STRETCHES = np.geomspace(1, 20, 40)
_LEAST_CHANCE = 1e-300  # which has a logarithm
_LEAST_SHARE = 0.05  # of a class in a group, times its share in all
_LEAST_VARIANCE = 0.02  # of a class in a group
_MADE_UP = 2_000  # rows, whose columns have nothing to do with each other
_PRIOR_ROWS = 10
_SPREADS = np.append(0.0, np.exp(np.arange(-10, 3, 0.5)))  # of effects, as variances

Columns = tuple[FloatArray, ...]  # an array for each column


class TableOfEffects(BaseEstimator, ABC):
    """A student that adds up one effect for each column; rows are numbers of bins, as `Schema.transform` returns them.

    `intercept_` is what every row begins from, and `effects_` what each bin of each column adds to it.
    """

    intercept_: FloatArray
    effects_: list[FloatArray]
    noise_: list[FloatArray]  # standard deviation of each effect, by the noise alone
    cells_: dict[str, list[str]]  # of each bin, in words
    ordered_: list[bool]  # whether the bins of each column are intervals of numbers
    n_features_in_: int

    @property
    @abstractmethod
    def outputs(self) -> list[str]:
        """Names of the numbers that the effects add to: the classes, or the target."""

    def with_table(
        self,
        effects: Sequence[FloatArray],
        noise: Sequence[FloatArray],
        groups: Sequence[IntArray],
        schema: Schema,
    ) -> Self:
        """Take the effects of the groups of bins of each column, shape (groups, outputs), and their deviations."""
        self.effects_ = _picked(effects, groups)
        self.noise_ = _picked(noise, groups)
        self.cells_ = schema.cells
        self.ordered_ = list(schema.ordered)
        return self

    def totals(self, X: npt.ArrayLike) -> FloatArray:
        """Return the sum of the effects of each row, shape (rows, outputs)."""
        check_is_fitted(self)
        rows = np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_ or rows.dtype.kind not in "iuf":
            raise InvalidDataError(
                f"X of {type(self).__name__} must be bins of shape (rows, {self.n_features_in_}). Use the whole "
                "student, which takes rows as `fit` did."
            )
        return self.intercept_ + summed(self.effects_, rows.astype(np.int64))

    def effects(self) -> list[dict[str, Any]]:
        """Return the table: for each bin its column, its cells in words, and what it adds to each output.

        `noise` is two standard deviations of the privacy noise: in most cases, the effect without noise is
        no further away. It does not say how far effects are from those of other people. A frame library or `json.dumps`
        takes the table as it is. The first line is what every row begins from; its noise is not estimated.
        """
        check_is_fitted(self)
        first = {
            "column": "",
            "cells": "every row",
            "effects": self._by_output(self.intercept_),
            "noise": None,
        }
        columns = zip(self.cells_.items(), self.effects_, self.noise_, strict=True)
        lines = [first]
        for (column, cells), effects, doubts in columns:
            for cell, one, noise in zip(cells, effects, doubts, strict=True):
                line = {"column": column, "cells": cell, "effects": self._by_output(one)}
                lines.append(line | {"noise": self._by_output(_BAND * noise)})
        return lines

    def _by_output(self, numbers: FloatArray) -> dict[str, float]:
        return dict(zip(self.outputs, numbers.tolist(), strict=True))

    def influences(self) -> list[tuple[str, str, str, str, float]]:
        """Return the columns that move rows furthest: name, output, cells of the lowest and highest effect, distance.

        Cells that are empty or unknown are left out: mostly, their effect is noise. Of two classes the second one is
        looked at, and of several the one that the column moves furthest.
        """
        found = list[tuple[str, str, str, str, float]]()
        for (column, cells), effects in zip(self.cells_.items(), self.effects_, strict=True):
            shown = effects[:-1]
            distances = np.ptp(shown, axis=0)
            place = 1 if len(distances) == 2 else int(distances.argmax())
            looked_at = shown[:, place]
            low = _named(cells, looked_at == looked_at.min())
            high = _named(cells, looked_at == looked_at.max())
            if distances[place] > 0:
                found.append((column, self.outputs[place], low, high, float(distances[place])))
        return sorted(found, key=lambda one: -one[-1])[:_MOST_SHOWN]

    def curves(self) -> list[Curve]:
        """Return the effects of the columns that move rows furthest, to be drawn; cells are left out as above.

        Categories come by their effects; of many, those with large ones.
        """
        found = list[Curve]()
        for column, output, *_ in self.influences()[:_MOST_DRAWN]:
            place = list(self.cells_).index(column)
            of = self.outputs.index(output)
            effects = self.effects_[place][:-1, of]
            noise = _BAND * self.noise_[place][:-1, of]
            chosen = np.arange(len(effects))
            if not self.ordered_[place]:
                large = np.argsort(-np.abs(effects), kind="stable")[:_MOST_SHOWN]
                chosen = large[np.argsort(-effects[large], kind="stable")]
            cells = [self.cells_[column][one] for one in chosen.tolist()]
            drawn = (_rounded(numbers[chosen]) for numbers in (effects, noise))
            found.append(Curve(column, output, self.ordered_[place], cells, *drawn))
        return found

    def _repr_html_(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what notebooks show: the curves, without a script."""
        if not hasattr(self, "effects_"):
            return f"<pre>{escape(repr(self))}</pre>"
        return render("curves.jinja", "html", curves=self.curves(), scores=len(self.outputs) > 1)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return the same to notebooks that ask for all forms: scikit-learn has a form of its own."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


@final
class AdditiveClassifier(ClassifierMixin, TableOfEffects):
    """Scores of classes that are sums of one effect for each column: a table that can be read.

    `PATEClassifier(columns=Schema(...))` makes it. Rows are numbers of bins, as `Schema.transform` returns them.
    """

    classes_: npt.NDArray[Any]

    @property
    def outputs(self) -> list[str]:
        """The classes, as text."""
        return [str(value) for value in self.classes_.tolist()]

    def fit(self, _X: Matrix, _y: npt.ArrayLike) -> Self:
        """Refuse: the classifier follows from noisy sums."""
        raise InvalidDataError(
            "AdditiveClassifier learns from noisy sums. Fit PATEClassifier(columns=Schema(...))."
        )

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Return the score of each class, shape (rows, classes); the higher, the likelier."""
        return self.totals(X)

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class, shape (rows, classes)."""
        return chances_of(self.totals(X))

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the likeliest class value of each row."""
        return self.classes_[self.totals(X).argmax(axis=1)]


def _rounded(numbers: FloatArray) -> list[float]:
    return [float(f"{one:.4g}") for one in numbers.tolist()]


def _named(cells: list[str], chosen: npt.NDArray[np.bool_]) -> str:
    """Return the first and the last of some cells, in words; of intervals their ends."""
    first, *others = [
        cell for cell, is_chosen in zip(cells, chosen.tolist(), strict=False) if is_chosen
    ]
    if not others:
        return first
    low, *upper = first.split(" to ")
    *lower, high = others[-1].split(" to ")
    return f"{low} to {high}" if upper and lower and is_number(low) else f"{first} … {others[-1]}"


def summed(effects: Sequence[FloatArray], rows: IntArray) -> FloatArray:
    """Return the sum of the effects of each row's bins, column by column: exact by row."""
    found = np.zeros((len(rows), effects[0].shape[1]))
    for effect, places in zip(effects, rows.T, strict=True):
        found += effect[np.clip(places, 0, len(effect) - 1)]
    return found


def by_bins(numbers: Sequence[IntArray], bins: Matrix) -> IntArray:
    """Return the number that each bin of each column has, for each cell."""
    rows = bins.astype(np.int64)
    return np.column_stack(_picked(numbers, rows.T))


def _picked(tables: Iterable[Matrix], places: Iterable[IntArray]) -> list[Any]:
    """Return the entries at the places of each table."""
    return [table[one] for table, one in zip(tables, places, strict=True)]


class Noisy(NamedTuple):
    """Noisy sums over the cells of a column, and groups of these that the noise does not hide."""

    sums: FloatArray  # shape (outputs, cells)
    sigma: float
    group: IntArray  # of each cell; the last number stands for none
    n_groups: int
    walk: int  # how many groups, the first ones, are intervals in a row

    def by_group(self) -> Pair:
        """Return the sums of the groups, shape (groups, outputs), and the deviation of their noise."""
        sums = np.zeros((self.n_groups + 1, len(self.sums)))
        np.add.at(sums, self.group, self.sums.T)
        n_cells = np.bincount(self.group, minlength=len(sums))[:, None]
        return sums[:-1], self.sigma * np.sqrt(n_cells[:-1])


def _sizes_of(cells: Sequence[IntArray]) -> list[int]:
    """Return how many cells each column has."""
    return [int(cell[-1]) + 1 for cell in cells]


@by_identity
class Effects(ABC):
    """Effects of the groups of bins of each column, as a first noisy sum tells them; public."""

    # Group of each bin of each column; the last number is that of bins of no group.
    groups: tuple[IntArray, ...]
    tables: Columns  # effect of each group, for each class if there are classes
    doubts: Columns  # deviations of these effects, by the noise
    sizes: Columns  # about how many people each group has
    # How many groups of each column, the first ones, are intervals that follow each other.
    walks: tuple[int, ...]

    @classmethod
    def of(
        cls,
        sums: IntArray,
        sigma: float,
        scale: int,
        cells: Sequence[IntArray],
        ordered: Sequence[bool],
    ) -> Self:
        """Return the effects by noisy sums over the cells of all columns, in steps of `scale` to a person.

        `sums` are counts of each class, or sums of 1 − u and u, where numbers are u; their shape is (…, cells).
        `cells` says which cell of its column each bin counts toward, and `ordered` whether these follow each other.
        """
        sizes = _sizes_of(cells)
        per_column = np.split(sums, np.cumsum(sizes)[:-1], axis=1)
        totals = [one.sum(axis=1) / scale for one in per_column]
        total = np.average(totals, axis=0, weights=1 / np.array(sizes))
        estimate, about = cls._estimate(total)
        groups = list[IntArray]()
        walks = list[int]()
        found = list[list[FloatArray]]()
        for one, cell, follow in zip(per_column, cells, ordered, strict=True):
            runs, walk = grouped(one.sum(axis=0).tolist(), sigma * sqrt(len(sums)), ordered=follow)
            group = np.full(one.shape[1], len(runs))
            for number, places in enumerate(runs):
                group[places] = number
            groups.append(group[cell])
            walks.append(walk)
            column = Noisy(one / scale, sigma / scale, group, len(runs), walk)
            # Of no group zeros.
            found.append([np.pad(each, ((0, 1), (0, 0))) for each in estimate(column)])
        tables, doubts, people = zip(*found, strict=True)
        # Or else, by sums that somebody made up, a ballot could fail by its rows.
        np.asarray_chkfinite(np.vstack(tables))
        make: Any = cls
        return make(
            tuple(groups),
            tables,
            doubts,
            tuple(one[:, 0] for one in people),
            tuple(walks),
            about,
        )

    @classmethod
    @abstractmethod
    def _estimate(cls, totals: FloatArray) -> tuple[Callable[[Noisy], Columns], Any]:
        """Return what gives the effects of a column, their doubts and how many people they have, and what it knows.

        `totals` are the sums over all people.
        """

    def rows(self, bins: Matrix) -> IntArray:
        """Return the group of each cell."""
        return by_bins(self.groups, bins)

    def by_cell(
        self,
        sums: FloatArray,
        sigma: float,
        scale: int,
        cells: tuple[IntArray, ...],
        ordered: Sequence[bool],
    ) -> Self:
        """Return the effects of the cells of the sum in place of groups: all releases of a question have these."""
        sizes = _sizes_of(cells)
        firsts = [
            np.searchsorted(cell, np.arange(size)) for cell, size in zip(cells, sizes, strict=True)
        ]
        groups = _picked(self.groups, firsts)
        people = np.maximum(sums.sum(axis=0), sigma * sqrt(len(sums))) / scale
        return replace(
            self,
            groups=cells,
            tables=tuple(_picked(self.tables, groups)),
            doubts=tuple(_picked(self.doubts, groups)),
            sizes=tuple(np.split(people, np.cumsum(sizes)[:-1])),
            walks=tuple(
                size - 1 if follow else 0 for size, follow in zip(sizes, ordered, strict=True)
            ),
        )

    def explained_by(self, corrections: Columns, rows: IntArray) -> list[FloatArray]:
        """Return the effect of each column at each row, and the sum of the corrections."""
        return [*_picked(self.tables, rows.T), summed(corrections, rows)]

    def repaired(
        self,
        wrong: FloatArray,
        weights: Sequence[FloatArray],
        noise: float,
        free: float = 1.0,
        variance: float = 1.0,
    ) -> tuple[Columns, Columns]:
        """Return corrections by the noisy sums of what the effects get wrong, shape (groups, outputs), and doubts.

        `weights` are how much an effect moves each sum. `free` is the share of its variance that the noise has left.
        """
        found = list[Pair]()
        per_column = np.split(wrong, np.cumsum(list(map(len, self.tables)))[:-1])
        for off, weight, size, walk in zip(
            per_column,
            weights,
            self.sizes,
            self.walks,
            strict=True,
        ):
            known = size > 0
            left = off[known]
            by = weight[known]
            # The intercept follows from the rest.
            left = left - by * (left.sum(axis=0) / by.sum(axis=0))
            prior = prior_of(size[known], walk)
            correction = np.zeros_like(off)
            doubt = np.zeros_like(off)
            correction[known], doubt[known] = expected_effects(
                left / by,
                1 / by,
                (noise / by) ** 2 * free,
                prior,
                variance,
            )
            found.append((correction, doubt))
        corrections, doubts = zip(*found, strict=True)
        return corrections, doubts

    def believed(
        self,
        corrections: Columns,
        doubts: Columns,
        weights: FloatArray,
        moved: FloatArray,
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the effects and their doubts, by a weight for each column and then one for the correction."""
        effects = list[FloatArray]()
        noise = list[FloatArray]()
        d = len(self.tables)
        tables = zip(
            weights[:d],
            moved[:d],
            self.tables,
            self.doubts,
            corrections,
            doubts,
            strict=True,
        )
        for weight, move, table, doubt, correction, of_it in tables:
            effects.append(weight * table + weights[d] * correction)
            variances = (weight * doubt) ** 2 + (move * table) ** 2 + (weights[d] * of_it) ** 2
            noise.append(np.sqrt(variances + (moved[d] * correction) ** 2))
        return effects, noise


@final
@by_identity
class Scores(Effects):
    """Scores of the bins of each column by noisy counts, and what these say of the people; public."""

    shares: FloatArray  # of the classes
    part: float = _HALF  # of the scores, that later sums begin from

    @classmethod
    def _estimate(cls, totals: FloatArray) -> tuple[Callable[[Noisy], Columns], FloatArray]:
        people = np.maximum(totals, 1.0)
        shares = people / people.sum()
        return partial(_scored, shares), shares

    @property
    def base(self) -> FloatArray:
        """Logarithm of the share of each class, less their mean."""
        return np.log(self.shares) - np.log(self.shares).mean()

    def start(self, rows: IntArray) -> FloatArray:
        """Return the scores that the later sums begin from."""
        return self.base + self.part * summed(self.tables, rows)

    def less_sure(self, residuals: IntArray, scale: float) -> Self:
        """Return these scores with a smaller part if the noisy residuals show that their sum is too sure.

        Columns that say nearly the same, such as opinions, count several times. They do not in made-up rows. So the
        distance of these from the mean of their class, which the counts tell, is stretched until their residuals agree
        with the scores as much as those of people. The part is the one by which their classes are likeliest.
        """
        n_people = np.mean([size.sum() for size in self.sizes])
        agreements = residuals.T / scale * np.vstack(self.tables)
        agreement = float(agreements.sum()) / n_people
        labels, totals, means = self._made_up_by_class()
        each = np.arange(len(labels))
        hot = np.eye(len(self.shares))[labels]

        def off(stretch: float) -> float:
            scores = means + stretch * (totals - means)
            wrong = hot - chances_of(self.base + self.part * scores)
            return float(abs((wrong * scores).sum(axis=1).mean() - agreement))

        stretch = min(_STRETCHES.tolist(), key=off)
        likely = means + stretch * (totals - means)

        def surprise(part: float) -> float:
            chances = chances_of(self.base + part * likely)[each, labels]
            return -float(np.log(np.maximum(chances, _LEAST_CHANCE)).sum())

        return replace(self, part=min(_PARTS.tolist(), key=surprise))

    def _made_up_by_class(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the classes of made-up rows, the sums of their scores, and the mean sum of each one's class.

        Within a class, the columns have nothing to do with each other.
        """
        rng = np.random.default_rng(0)
        m = len(self.shares)
        labels = np.sort(rng.choice(m, _MADE_UP, p=self.shares))
        counts = np.bincount(labels, minlength=m).tolist()
        totals, means = np.zeros((2, len(labels), m))
        for table, size in zip(self.tables, self.sizes, strict=True):
            chances = size * np.exp(table).T  # classes, groups
            chances /= chances.sum(axis=1, keepdims=True)
            rows = [
                rng.choice(len(size), count, p=one)
                for count, one in zip(counts, chances, strict=True)
            ]
            totals += table[np.concatenate(rows)]
            means += (chances @ table)[labels]
        return labels, totals, means

    def corrected(
        self,
        residuals: IntArray,
        sigma: float,
        scale: float,
    ) -> tuple[Columns, Columns]:
        """Return corrections of the scores by the noisy sums of what they get wrong, shape (classes, groups).

        The second value is their doubts.
        """
        made_up = made_up_rows(self.sizes)
        chances = chances_of(self.start(made_up))
        spreads = chances * (1 - chances)
        weights = list[FloatArray]()
        for places, size, table in zip(made_up.T, self.sizes, self.tables, strict=True):
            within = np.zeros_like(table)
            np.add.at(within, places, spreads)
            rows = np.bincount(places, minlength=len(size))[:, None]
            spread = (within + _PRIOR_ROWS * spreads.mean(axis=0)) / (rows + _PRIOR_ROWS)
            weights.append(size[:, None] * np.maximum(spread, _LEAST_VARIANCE))
        wrong = residuals.T / scale
        wrong -= wrong.mean(axis=1, keepdims=True)
        return self.repaired(wrong, weights, sigma / scale, 1 - 1 / len(self.shares))


@final
@by_identity
class Weighing:
    """The ballot that says how much of each score and of the correction to believe; public."""

    scores: Scores
    corrections: Columns
    doubts: Columns  # of the corrections
    radius: float

    @classmethod
    def of(
        cls,
        scores: Scores,
        corrections: Columns,
        doubts: Columns,
    ) -> Self:
        """Return the ballot, whose length follows from made-up rows."""
        np.asarray_chkfinite(np.vstack(corrections))
        # Mostly, too sure scores get wrong that they are too sure, which the part of them has repaired. The square was
        # chosen by trial.
        shorter = (scores.part / _HALF) ** 2
        corrections, doubts = (
            tuple(shorter * one for one in each) for each in (corrections, doubts)
        )
        made = cls(scores, corrections, doubts, 1.0)
        return replace(made, radius=radius_of(made.explained(made_up_rows(scores.sizes))))

    @property
    def n_weights(self) -> int:
        """How many weights there are: one for each column, for the correction, and for each class."""
        return len(self.corrections) + 1 + len(self.scores.base)

    def explained(self, rows: IntArray) -> FloatArray:
        """Return what the weights explain of each class, shape (rows, classes, weights); exact by row."""
        return with_biases(np.stack(self.scores.explained_by(self.corrections, rows), axis=2))

    def classifier(
        self,
        total: IntArray,
        sigma: float,
        n_people: int,
        classes: npt.NDArray[Any],
        schema: Schema,
    ) -> AdditiveClassifier:
        """Return the student that follows from the noisy sum of all ballots."""
        d = len(self.corrections)
        times_radius = weights_of(total, sigma, n_people, (self.n_weights,))
        weights, moved = np.array(times_radius) / self.radius
        biases = weights[d + 1 :]
        weights[:d] += self.scores.part
        by_group, noise = self.scores.believed(self.corrections, self.doubts, weights, moved)
        made = AdditiveClassifier()
        made.classes_ = np.asarray(classes)
        made.intercept_ = self.scores.base + biases - biases.mean()
        made.n_features_in_ = d
        return made.with_table(by_group, noise, self.scores.groups, schema)


def made_up_rows(sizes: Sequence[FloatArray]) -> IntArray:
    """Return made-up rows, as groups of these sizes, whose columns have nothing to do with each other."""
    rng = np.random.default_rng(0)
    return np.column_stack([rng.choice(len(size), _MADE_UP, p=size / size.sum()) for size in sizes])


def grouped(
    totals: Sequence[int],
    noise: float,
    *,
    ordered: bool,
) -> tuple[list[list[int]], int]:
    """Return groups of bins by noisy totals, in whole steps: few, and such that the noise does not hide them.

    The last bin holds cells that are empty or unknown. It may be in no group. The second value is how many groups, the
    first ones, follow each other.
    """
    *bins, other = totals
    if ordered:
        runs = _runs(bins, noise)
        last = [[len(bins)]] if other > _FULL * noise else []
        return runs + last, len(runs)
    order = sorted(range(len(totals)), key=lambda place: -totals[place])
    alone = [place for place in order[: _MOST_GROUPS - 1] if totals[place] > _FULL * noise]
    rest = [place for place in range(len(totals)) if place not in alone]
    groups = [[place] for place in alone]
    if rest:
        groups.append(rest)
    return groups, 0


def _runs(totals: list[int], noise: float) -> list[list[int]]:
    """Return neighboring bins together; one that has more than half of all stays alone."""
    positive = [max(total, 0) for total in totals]
    large = [2 * total > sum(positive) for total in positive]
    share = (
        sum(total for total, alone in zip(positive, large, strict=True) if not alone) / _MOST_GROUPS
    )

    def holds(places: list[int], at_least: float) -> bool:
        return large[places[0]] or sum(positive[one] for one in places) >= max(
            at_least, _FULL * noise * sqrt(len(places))
        )

    runs = list[list[int]]()
    for place, alone in enumerate(large):
        if not runs or alone or holds(runs[-1], share):
            runs.append([place])
        else:
            runs[-1].append(place)
    found = list[list[int]]()
    for run in runs:
        if found and not holds(run, 0.0) and not large[found[-1][0]]:
            found[-1] += run
        else:
            found.append(run)
    return found


def _scored(shares: FloatArray, noisy: Noisy) -> Columns:
    """Return the score of each group for each class, its doubt, and about how many people it has."""
    m = len(shares)
    counts, noise = noisy.by_group()
    total = counts.sum(axis=1, keepdims=True)
    people = np.maximum(total, noise * sqrt(m))
    scale = np.sqrt(shares * (1 - shares))
    beyond = (counts - shares * total) / people / scale
    of_noise = (noise / people / scale) ** 2 * ((1 - shares) ** 2 + shares**2 * (m - 1))
    effects, doubts = expected_effects(
        beyond,
        1 / people,
        of_noise,
        prior_of(people[:, 0], noisy.walk),
    )
    # As many times their share as the classes have in all; the logarithms less their mean are the scores.
    found = 1 + scale * effects / shares
    moved = scale * doubts / shares
    low, scores, high = (
        np.log(np.maximum(found + move, _LEAST_SHARE)) for move in (-moved, 0, moved)
    )
    scores -= scores.mean(axis=1, keepdims=True)
    # The noise of the classes adds up to none.
    centered = np.eye(m) - 1 / m
    spread = (centered * ((high - low) / 2)[:, None]) @ centered
    return scores, np.sqrt((spread**2).sum(axis=2) * m / (m - 1)), people


def prior_of(sizes: FloatArray, walk: int) -> FloatArray:
    """Return the prior covariance of the effects of groups: a random walk along numbers; their mean is 0."""
    factor = np.eye(len(sizes))
    factor[:walk, :walk] = np.tril(np.ones((walk, walk))) / sqrt(max(walk, 1))
    factor = factor - (sizes / sizes.sum()) @ factor
    return factor @ factor.T


def expected_effects(
    seen: FloatArray,
    around: FloatArray,
    noise: FloatArray,
    prior: FloatArray,
    variance: float = 1.0,
) -> Pair:
    """Return the expected effects, shape (groups, outputs), over spreads as likely as what was seen makes them.

    `around` and `noise` are the variances of what was seen, by the people, in units of `variance`, and by the noise.
    The second array is the doubt: the deviation of the effects that would be expected without noise from these.
    """
    deviation = sqrt(variance)
    by_noise = (noise / variance).T
    spreads = _SPREADS[:, None, None, None]
    exact = spreads * prior + np.array(
        [np.diag(one) for one in np.broadcast_to(around, noise.shape).T]
    )
    covariance = exact + np.array([np.diag(one) for one in by_noise])
    factor = np.linalg.cholesky(covariance)
    told = (seen / deviation).T[..., None]
    squares = (np.linalg.solve(factor, told) ** 2).sum(axis=(1, 2, 3))
    surprise = 2 * np.log(np.diagonal(factor, axis1=2, axis2=3)).sum(axis=(1, 2)) + squares
    # Each spread counts by how likely it makes what was seen; none beforehand as much as all others together.
    surprise[1:] += 2 * np.log(len(_SPREADS) - 1)
    likely = np.exp(-(surprise - surprise.min()) / 2)
    likely /= likely.sum()
    expected = (spreads * (prior @ np.linalg.solve(covariance, told)))[..., 0]
    # By the law of total variance: the variance of the effects given noisy sums, less the one given exact sums.
    by_spread = spreads * prior
    given = np.linalg.solve(covariance, by_spread) * np.linalg.solve(exact, by_spread)
    doubts = np.sqrt(np.tensordot(likely, (given * by_noise[..., None]).sum(axis=2), 1))
    return deviation * np.tensordot(likely, expected, 1).T, deviation * doubts.T
