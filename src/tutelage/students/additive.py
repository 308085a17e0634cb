"""A student that is a table of effects, one for each bin of each column; it follows from noisy sums alone.

No row has a part in it. Counts by class give a score for each bin, what these get wrong gives a correction, and a last
sum says how much of each column's score and of the correction to believe (`tutelage.students.stacking`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import sqrt
from typing import Any, Self, cast, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tutelage._internal.drawing import escape
from tutelage._internal.records import by_identity
from tutelage._internal.typing import Array, FloatArray, IntArray, Mask, Matrix
from tutelage.exceptions import InvalidDataError
from tutelage.features.schema import Schema
from tutelage.features.scored import chances_of
from tutelage.reporting.record import Curve
from tutelage.reporting.render import render
from tutelage.students.pairs import Pair, by_pair, joined_groups
from tutelage.students.stacking import TwoArrays
from tutelage.tables import is_number

_BAND = 2.0  # deviations of the noise
_MOST_SHOWN = 12  # columns, on a card, and categories in a drawing
_MOST_DRAWN = 6  # columns
_GROUPS = (16, 64)  # that a column has at most, where people are few and where they are many
_PEOPLE_OF_GROUP = 20.0  # deviations of the noise that each of more than few groups holds
_FULL = 3.0  # deviations of the noise that a group holds at least, if any other can be put to it
_HALF = 0.5  # of a score: columns say the same in part
# Candidates for that part; where columns say nearly the same, it is small.
_PARTS = np.geomspace(0.005, _HALF, 40)
# Candidates for how much further scores are from their mean than by chance.
_STRETCHES = np.geomspace(1, 20, 40)
_LEAST_CHANCE = 1e-300  # which has a logarithm
_LEAST_SHARE = 0.05  # of a class in a group, times its share in all
_LEAST_VARIANCE = 0.02  # of a class in a group
_MADE_UP = 2_000  # rows, whose columns have nothing to do with each other
_PRIOR_ROWS = 10
# How large effects are expected to be, as variances.
_SPREADS = np.append(0.0, np.exp(np.arange(-10, 3, 0.5)))

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
    # Pairs of columns, with what cells of both add beyond the columns; students of earlier versions have none.
    pairs_: tuple[Pair, ...] = ()
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
        self.effects_ = _entries_at(groups, effects)
        self.noise_ = _entries_at(groups, noise)
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
        bins = rows.astype(np.int64)
        totals = self.intercept_ + sum_of_effects(self.effects_, bins)
        for pair in self.pairs_:
            totals += pair.of(bins)
        return totals

    def effects(self) -> list[dict[str, Any]]:
        """Return the table: for each bin its column, its cells in words, and what it adds to each output.

        `noise` is two standard deviations of the privacy noise: in most cases, the effect without noise is
        no further away. It does not say how far effects are from those of other people. A frame library or `json.dumps`
        takes the table as it is. The first line is what every row begins from; its noise is not estimated. The last
        lines are of pairs of columns, if there are any: what each cell of both adds beyond the two columns. Their noise
        leaves out that the borders of their cells follow from noisy sums, too.
        """
        check_is_fitted(self)
        first_line: dict[str, Any] = {
            "column": "",
            "cells": "every row",
            "effects": self._by_output(self.intercept_),
            "noise": None,
        }
        lines = [first_line]
        columns = zip(self.cells_.items(), self.effects_, self.noise_, strict=True)
        parts = [(column, cells, effects, doubts) for (column, cells), effects, doubts in columns]
        parts += [(*self._in_words(pair), pair.effects, pair.doubts) for pair in self.pairs_]
        for column, cells, effects, doubts in parts:
            for cell, effect, doubt in zip(cells, effects, doubts, strict=True):
                lines.append(
                    {
                        "column": column,
                        "cells": cell,
                        "effects": self._by_output(effect),
                        "noise": self._by_output(_BAND * doubt),
                    }
                )
        return lines

    def _in_words(self, pair: Pair) -> tuple[str, list[str]]:
        """Return the columns of a pair, and its cells, in words."""
        names = list(self.cells_)
        words = list[list[str]]()
        for column, cells in zip(pair.columns, pair.cells, strict=True):
            bins = self.cells_[names[column]]
            is_range = self.ordered_[column]
            words.append(
                [_joined_in_words(bins, cells == cell, is_range) for cell in range(cells.max() + 1)]
            )
        cells_of_both = [" and ".join(both) for both in product(*words)]
        return " and ".join(names[column] for column in pair.columns), cells_of_both

    def _by_output(self, numbers: FloatArray) -> dict[str, float]:
        return dict(zip(self.outputs, numbers.tolist(), strict=True))

    def influences(self) -> list[tuple[str, str, str, str, float]]:
        """Return the columns and pairs that move rows furthest: name, output, lowest and highest cells, distance.

        Cells of columns that are empty or unknown are left out: mostly, their effect is noise. Of two classes the
        second one is looked at, and of several the one that the column moves furthest.
        """
        influences = list[tuple[str, str, str, str, float]]()
        for (column, cells), effects in zip(
            self.cells_.items(),
            self.effects_,
            strict=True,
        ):
            influences += self._influence(column, cells, effects[:-1])
        for pair in self.pairs_:
            influences += self._influence(*self._in_words(pair), pair.effects)
        return sorted(influences, key=lambda influence: -influence[-1])[:_MOST_SHOWN]

    def _influence(
        self,
        name: str,
        cells: list[str],
        effects: FloatArray,
    ) -> list[tuple[str, str, str, str, float]]:
        """Return how far these effects, shape (cells, outputs), move rows, if they do at all."""
        distances = np.ptp(effects, axis=0)
        place = 1 if len(distances) == 2 else int(distances.argmax())
        distance = float(distances[place])
        if distance == 0:
            return []
        of_output = effects[:, place]
        low = _range_in_words(cells, of_output == of_output.min())
        high = _range_in_words(cells, of_output == of_output.max())
        return [(name, self.outputs[place], low, high, distance)]

    def curves(self) -> list[Curve]:
        """Return the effects of the columns that move rows furthest, to be drawn; cells are left out as above.

        Categories come by their effects; of many, those with large ones.
        """
        curves = list[Curve]()
        names = list(self.cells_)
        of_columns = [influence for influence in self.influences() if influence[0] in names]
        for column, output, *_ in of_columns[:_MOST_DRAWN]:
            place = names.index(column)
            output_place = self.outputs.index(output)
            effects = self.effects_[place][:-1, output_place]
            noise = _BAND * self.noise_[place][:-1, output_place]
            shown = np.arange(len(effects))
            if not self.ordered_[place]:
                large = np.argsort(-np.abs(effects), kind="stable")[:_MOST_SHOWN]
                shown = large[np.argsort(-effects[large], kind="stable")]
            curves.append(
                Curve(
                    column,
                    output,
                    self.ordered_[place],
                    [self.cells_[column][cell] for cell in shown.tolist()],
                    _to_four_digits(effects[shown]),
                    _to_four_digits(noise[shown]),
                )
            )
        return curves

    def _repr_html_(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what notebooks show: the curves, without a script."""
        if not hasattr(self, "effects_"):
            return f"<pre>{escape(repr(self))}</pre>"
        return render(
            "curves.jinja",
            "html",
            curves=self.curves(),
            scores=len(self.outputs) > 1,
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return text and curves to notebooks that ask for all forms: scikit-learn has a form of its own."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


@final
class AdditiveClassifier(ClassifierMixin, TableOfEffects):
    """Scores of classes that are sums of one effect for each column: a table that can be read.

    `PATEClassifier(columns=Schema(...))` makes it. Rows are numbers of bins, as `Schema.transform` returns them.
    """

    classes_: Array

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

    def predict(self, X: npt.ArrayLike) -> Array:
        """Return the likeliest class value of each row."""
        return self.classes_[self.totals(X).argmax(axis=1)]


def _to_four_digits(numbers: FloatArray) -> list[float]:
    return [float(f"{number:.4g}") for number in numbers.tolist()]


def _range_in_words(cells: list[str], is_chosen: Mask) -> str:
    """Return the first and the last of some cells, in words; of intervals their ends."""
    places = np.flatnonzero(is_chosen).tolist()
    first = cells[places[0]]
    last = cells[places[-1]]
    if len(places) == 1:
        return first
    low, *upper = first.split(" to ")
    *lower, high = last.split(" to ")
    if upper and lower and is_number(low):
        return f"{low} to {high}"
    return f"{first} … {last}"


def _joined_in_words(bins: list[str], is_chosen: Mask, is_range: bool) -> str:
    """Return bins in words, intervals by the first and the last; the last bin is what is empty or unknown."""
    if not is_range:
        return ", ".join(bins[place] for place in np.flatnonzero(is_chosen).tolist())
    intervals = _range_in_words(bins[:-1], is_chosen[:-1])
    return f"{intervals}, {bins[-1]}" if is_chosen[-1] else intervals


def sum_of_effects(effects: Sequence[FloatArray], groups: IntArray) -> FloatArray:
    """Return the sum of the effects of each row's groups or bins, column by column: exact by row."""
    # effects: (groups, outputs) of each column; groups: (rows, columns); total: (rows, outputs)
    total: FloatArray = np.zeros((len(groups), effects[0].shape[1]))
    for effect, places in zip(effects, groups.T, strict=True):
        total += np.take(effect, places, axis=0, mode="clip")
    return total


def by_bins(numbers: Sequence[IntArray], bins: Matrix) -> IntArray:
    """Return the number that each bin of each column has, for each cell."""
    return np.column_stack(_entries_at(bins.astype(np.int64).T, numbers))


def _entries_at(places: Iterable[IntArray], tables: Iterable[Array]) -> list[Array]:
    """Return the entries at the places of each table."""
    return [table[place] for place, table in zip(places, tables, strict=True)]


@final
@by_identity
class Correction:
    """Effects that a noisy sum shows to be missing; public."""

    effects: Columns  # of each group, shape (groups, outputs)
    doubts: Columns  # deviations of these, by the noise


@by_identity
class Effects(ABC):
    """Effects of the groups of bins of each column, as a first noisy sum tells them; public."""

    # Group of each bin of each column; the last number is that of bins of no group.
    groups: tuple[IntArray, ...]
    tables: Columns  # effect of each group, shape (groups, outputs)
    doubts: Columns  # deviations of these effects, by the noise
    sizes: Columns  # about how many people each group has
    # How many groups of each column, the first ones, are intervals that follow each other.
    walks: tuple[int, ...]
    # Shares of the classes; or, where numbers from 0 to 1 are predicted, of their distances to 1 and to 0.
    shares: FloatArray
    # How much of each column's effects, and then of each correction, is in what the next sum begins from.
    weights: FloatArray
    corrections: tuple[Correction, ...] = ()

    @classmethod
    def of(
        cls,
        sums: FloatArray,
        sigma: float,
        scale: int,
        cells: Sequence[IntArray],
        ordered: Sequence[bool],
        *,
        by_cell: bool,
    ) -> Self:
        """Return the effects by noisy sums over the cells of all columns, in steps of `scale` to a person.

        `sums` are counts of each class, or sums of 1 − u and u, where numbers are u; their shape is (…, cells).
        `cells` says which cell of its column each bin counts toward, and `ordered` whether these follow each other.
        With `by_cell` each cell has an effect of its own, that of its group: all releases of a question have these.
        """
        sizes = [int(cell[-1]) + 1 for cell in cells]
        per_column = np.split(sums, np.cumsum(sizes)[:-1], axis=1)
        totals = [column.sum(axis=1) / scale for column in per_column]
        shares = cls._shares(np.average(totals, axis=0, weights=1 / np.array(sizes)))
        noise = sigma * sqrt(len(sums))

        groups = list[IntArray]()  # of the cells
        walks = list[int]()
        tables = list[FloatArray]()
        doubts = list[FloatArray]()
        people = list[FloatArray]()
        for column, is_range in zip(per_column, ordered, strict=True):
            group, n_groups, walk = _group_cells(
                column.sum(axis=0).tolist(),
                noise,
                is_range,
            )
            group_sums = np.zeros((n_groups + 1, len(sums)))
            np.add.at(group_sums, group, (column / scale).T)
            n_cells = np.bincount(group, minlength=len(group_sums))[:, None]
            group_noise = sigma / scale * np.sqrt(n_cells[:-1])
            table, doubt, size = cls._estimate(shares, group_sums[:-1], group_noise, walk)
            groups.append(group)
            walks.append(walk)
            # Cells of no group have zeros.
            tables.append(np.pad(table, ((0, 1), (0, 0))))
            doubts.append(np.pad(doubt, ((0, 1), (0, 0))))
            people.append(np.pad(size[:, 0], (0, 1)))
        # Sums that somebody made up could otherwise make a ballot fail, depending on its rows.
        np.asarray_chkfinite(np.vstack(tables))

        bin_groups = _entries_at(cells, groups)
        if by_cell:
            tables = _entries_at(groups, tables)
            doubts = _entries_at(groups, doubts)
            per_cell = np.maximum(sums.sum(axis=0), noise) / scale
            people = np.split(per_cell, np.cumsum(sizes)[:-1])
            ranges = zip(sizes, ordered, strict=True)
            walks = [size - 1 if is_range else 0 for size, is_range in ranges]
            bin_groups = cells
        return cls(
            tuple(bin_groups),
            tuple(tables),
            tuple(doubts),
            tuple(people),
            tuple(walks),
            shares,
            np.full(len(tables), cls._first_part(len(tables))),
        )

    @staticmethod
    @abstractmethod
    def _first_part(_n_columns: int, /) -> float:
        """Return the part of all effects that the second sum begins from."""

    @staticmethod
    @abstractmethod
    def _shares(totals: FloatArray) -> FloatArray:
        """Return the shares of the outputs by the sums over all people."""

    @staticmethod
    @abstractmethod
    def _estimate(
        shares: FloatArray,
        sums: FloatArray,
        noise: FloatArray,
        walk: int,
    ) -> Columns:
        """Return the effect of each group of a column, its doubt, and about how many people it has.

        `sums`, shape (groups, outputs), have `noise`, shape (groups, 1).
        """

    def made_up_rows(self) -> IntArray:
        """Return made-up rows, as groups of these sizes, whose columns have nothing to do with each other."""
        rng = np.random.default_rng(0)
        columns = [rng.choice(len(size), _MADE_UP, p=size / size.sum()) for size in self.sizes]
        return np.column_stack(columns)

    def groups_of(self, bins: Matrix) -> IntArray:
        """Return the group of each cell."""
        return by_bins(self.groups, bins)

    def explanations(self, groups: IntArray) -> list[FloatArray]:
        """Return the effect of each column at each row, and the sum of each correction."""
        explanations = _entries_at(groups.T, self.tables)
        for correction in self.corrections:
            explanations.append(sum_of_effects(correction.effects, groups))
        return explanations

    @abstractmethod
    def with_residuals(self, residuals: FloatArray, sigma: float, scale: float) -> Self:
        """Return these with a correction by noisy sums of what they get wrong, shape (outputs, groups).

        One whole person is `scale` in the sums.
        """

    def with_correction(self, correction: Correction) -> Self:
        """Return these with one more correction, of which nothing is believed so far."""
        # As above: ballots follow from it.
        np.asarray_chkfinite(np.vstack(correction.effects))
        return replace(
            self,
            weights=np.append(self.weights, 0.0),
            corrections=(*self.corrections, correction),
        )

    def with_weights(self, weights: FloatArray) -> Self:
        """Return these with other weights, which later ballots follow from."""
        weighted = replace(self, weights=np.asarray_chkfinite(weights))
        np.asarray_chkfinite(np.vstack(weighted.start_effects))
        return weighted

    @property
    def start_effects(self) -> list[FloatArray]:
        """The effects of each group that the next sum begins from."""
        n_columns = len(self.tables)
        of_columns = self.weights[:n_columns]
        start = [weight * table for weight, table in zip(of_columns, self.tables, strict=True)]
        for weight, correction in zip(self.weights[n_columns:], self.corrections, strict=True):
            for place, effects in enumerate(correction.effects):
                start[place] = start[place] + weight * effects
        return start

    def doubts_of_start(self, moved: FloatArray) -> list[FloatArray]:
        """Return the deviations of these effects by the noise, which has moved the weights so far."""
        n_columns = len(self.tables)
        doubts = list[FloatArray]()
        for place, (table, doubt) in enumerate(zip(self.tables, self.doubts, strict=True)):
            variances = (self.weights[place] * doubt) ** 2 + (moved[place] * table) ** 2
            for number, correction in enumerate(self.corrections, n_columns):
                variances = variances + (self.weights[number] * correction.doubts[place]) ** 2
                variances = variances + (moved[number] * correction.effects[place]) ** 2
            doubts.append(np.sqrt(variances))
        return doubts

    def _corrections(
        self,
        wrong: FloatArray,
        weights: Sequence[FloatArray],
        noise: float,
        free: float = 1.0,
        variance: float = 1.0,
    ) -> Correction:
        """Return the correction by the noisy sums of what the effects get wrong, shape (groups, outputs).

        `weights` are how much an effect moves each sum. `free` is the share of its variance that the noise has left.
        """
        corrections = list[FloatArray]()
        doubts = list[FloatArray]()
        ends = np.cumsum([len(table) for table in self.tables])[:-1]
        columns = zip(
            np.split(wrong, ends),
            weights,
            self.sizes,
            self.walks,
            strict=True,
        )
        for residuals, weight, size, walk in columns:
            has_people = size > 0
            correction = np.zeros_like(residuals)
            doubt = np.zeros_like(residuals)
            correction[has_people], doubt[has_people] = _missing_effects(
                residuals[has_people],
                weight[has_people],
                noise,
                free,
                size[has_people],
                walk,
                variance,
            )
            corrections.append(correction)
            doubts.append(doubt)
        return Correction(tuple(corrections), tuple(doubts))


@final
@by_identity
class Scores(Effects):
    """Scores of the bins of each column by noisy counts, and what these say of the people; public."""

    offset: FloatArray | float = 0.0  # of each class, by the sums so far
    pairs: tuple[Pair, ...] = ()  # by bins, as the student adds them; no sum begins from them

    @staticmethod
    def _first_part(_n_columns: int, /) -> float:
        return _HALF

    @staticmethod
    def _shares(totals: FloatArray) -> FloatArray:
        people = np.maximum(totals, 1.0)
        return people / people.sum()

    @staticmethod
    def _estimate(
        shares: FloatArray,
        sums: FloatArray,
        noise: FloatArray,
        walk: int,
    ) -> Columns:
        """Return the score of each group for each class, its doubt, and about how many people it has."""
        # sums, beyond, effects, scores: (groups, classes); noise, people: (groups, 1)
        m = len(shares)
        total = sums.sum(axis=1, keepdims=True)
        people = np.maximum(total, noise * sqrt(m))
        scale = np.sqrt(shares * (1 - shares))
        beyond = (sums - shares * total) / people / scale
        of_noise = (noise / people / scale) ** 2 * ((1 - shares) ** 2 + shares**2 * (m - 1))
        effects, doubts = expected_effects(beyond, 1 / people, of_noise, people[:, 0], walk)

        # As many times their share as the classes have in all; the logarithms less their mean are the scores.
        times_share = 1 + scale * effects / shares
        moved = scale * doubts / shares
        scores = np.log(np.maximum(times_share, _LEAST_SHARE))
        low = np.log(np.maximum(times_share - moved, _LEAST_SHARE))
        high = np.log(np.maximum(times_share + moved, _LEAST_SHARE))
        scores -= scores.mean(axis=1, keepdims=True)

        # The noise of the classes adds up to none.
        centered = np.eye(m) - 1 / m
        spread = (centered * ((high - low) / 2)[:, None]) @ centered
        return scores, np.sqrt((spread**2).sum(axis=2) * m / (m - 1)), people

    @property
    def base(self) -> FloatArray:
        """Logarithm of the share of each class, less their mean."""
        logarithms = np.log(self.shares)
        return logarithms - logarithms.mean()

    def start(self, groups: IntArray) -> FloatArray:
        """Return the scores that the later sums begin from."""
        return self.base + self.offset + sum_of_effects(self.start_effects, groups)

    def _likeliest_part(self, residuals: FloatArray, scale: float) -> float:
        """Return how much of the scores to believe: less if the noisy residuals show that their sum is too sure.

        Columns that say nearly the same, such as opinions, count several times. They do not in made-up rows. So the
        distance of these from the mean of their class, which the counts tell, is stretched until their residuals agree
        with the scores as much as those of people. The part is the one by which their classes are likeliest.
        """
        # residuals: (classes, groups); totals, means, hot: (made-up rows, classes)
        n_people = np.mean([size.sum() for size in self.sizes])
        agreements = residuals.T / scale * np.vstack(self.tables)
        agreement = float(agreements.sum()) / n_people
        labels, totals, means = self._made_up_by_class()
        hot = np.eye(len(self.shares))[labels]

        def disagreement(stretch: float) -> float:
            scores = means + stretch * (totals - means)
            wrong = hot - chances_of(self.base + _HALF * scores)
            return float(abs((wrong * scores).sum(axis=1).mean() - agreement))

        stretch = min(_STRETCHES.tolist(), key=disagreement)
        likely = means + stretch * (totals - means)

        def surprise(part: float) -> float:
            chances = chances_of(self.base + part * likely)[np.arange(len(labels)), labels]
            return -float(np.log(np.maximum(chances, _LEAST_CHANCE)).sum())

        return min(_PARTS.tolist(), key=surprise)

    def _made_up_by_class(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the classes of made-up rows, the sums of their scores, and the mean sum of each one's class.

        Within a class, the columns have nothing to do with each other.
        """
        rng = np.random.default_rng(0)
        m = len(self.shares)
        labels = np.sort(rng.choice(m, _MADE_UP, p=self.shares))
        counts = np.bincount(labels, minlength=m).tolist()
        totals = np.zeros((len(labels), m))
        means = np.zeros((len(labels), m))
        for table, size in zip(self.tables, self.sizes, strict=True):
            chances = size * np.exp(table).T  # classes, groups
            chances /= chances.sum(axis=1, keepdims=True)
            groups = list[IntArray]()
            for label, count in enumerate(counts):
                drawn = cast("IntArray", rng.choice(len(size), count, p=chances[label]))
                groups.append(drawn)
            totals += table[np.concatenate(groups)]
            means += (chances @ table)[labels]
        return labels, totals, means

    def with_residuals(self, residuals: FloatArray, sigma: float, scale: float) -> Self:
        """Return these with a correction by the noisy sums of what they get wrong, shape (classes, groups).

        After the first of these sums, less of the scores is believed if it shows that they are too sure.
        """
        correction = self._correction(residuals, sigma, scale)
        if self.corrections:
            return self.with_correction(correction)
        part = self._likeliest_part(residuals, scale)
        # Mostly, too sure scores get wrong that they are too sure, which the part of them has repaired. The square was
        # chosen by trial.
        shorter = (part / _HALF) ** 2
        correction = Correction(
            tuple(shorter * effects for effects in correction.effects),
            tuple(shorter * doubts for doubts in correction.doubts),
        )
        less_sure = replace(self, weights=np.full(len(self.tables), part))
        return less_sure.with_correction(correction)

    def candidates(self, most_columns: int, most_cells: int) -> list[Pair]:
        """Return all pairs of the columns whose effects vary most, joined to so many cells of each at most."""
        variances = list[float]()
        for effects, size in zip(self.start_effects, self.sizes, strict=True):
            mean = np.average(effects, axis=0, weights=size)
            squares = np.average((effects - mean) ** 2, axis=0, weights=size)
            variances.append(float(squares.sum()))
        largest = np.argsort(-np.array(variances), kind="stable")[:most_columns]
        pairs = combinations(sorted(largest.tolist()), 2)
        return [self.pair(columns, most_cells) for columns in pairs]

    def pair(self, columns: tuple[int, int], most_cells: int) -> Pair:
        """Return a pair of columns, joined to so many cells of each at most."""
        first, second = (
            joined_groups(self.sizes[column], self.walks[column], most_cells) for column in columns
        )
        return Pair(columns, (first, second))

    def missing_in_pairs(
        self,
        pairs: Sequence[Pair],
        sums: FloatArray,
        sigma: float,
        scale: float,
    ) -> list[Pair]:
        """Return the pairs with what each cell adds, of which nothing is believed so far.

        `sums`, shape (outputs, cells), are of what the scores get wrong about each class, and of the spreads of that.
        """
        noise = sigma / scale
        found = list[Pair]()
        for pair, of_pair in zip(
            pairs,
            by_pair(pairs, sums / scale),
            strict=True,
        ):
            # wrong, spreads: (cells, classes)
            wrong, spreads = np.split(of_pair.T, 2, axis=1)
            spreads = np.maximum(spreads, noise / 2)
            effects, doubts = _missing_effects(
                wrong - wrong.mean(axis=1, keepdims=True),
                spreads,
                noise,
                self._free,
                spreads.sum(axis=1),
                0,
            )
            # The noise on spreads moves each effect in proportion, by about all of it where it hides them.
            doubts = np.hypot(doubts, effects * np.minimum(1, noise / spreads))
            found.append(replace(pair, effects=np.asarray_chkfinite(effects), doubts=doubts))
        return found

    def _correction(self, residuals: FloatArray, sigma: float, scale: float) -> Correction:
        # chances, spreads: (made-up rows, classes); wrong: (groups, classes)
        made_up = self.made_up_rows()
        chances = chances_of(self.start(made_up))
        spreads = chances * (1 - chances)
        weights = list[FloatArray]()
        for groups, size, table in zip(made_up.T, self.sizes, self.tables, strict=True):
            within = np.zeros_like(table)
            np.add.at(within, groups, spreads)
            rows = np.bincount(groups, minlength=len(size))[:, None]
            spread = (within + _PRIOR_ROWS * spreads.mean(axis=0)) / (rows + _PRIOR_ROWS)
            weights.append(size[:, None] * np.maximum(spread, _LEAST_VARIANCE))
        wrong = residuals.T / scale
        wrong -= wrong.mean(axis=1, keepdims=True)
        return self._corrections(wrong, weights, sigma / scale, self._free)

    @property
    def _free(self) -> float:
        """The share of its variance that noise keeps if the mean of the classes is taken from each."""
        return 1 - 1 / len(self.shares)


def _group_cells(
    totals: list[int],
    noise: float,
    is_range: bool,
) -> tuple[IntArray, int, int]:
    """Return the group of each cell by noisy totals, in whole steps: few, such that the noise does not hide them.

    The last cell holds what is empty or unknown. It may be in no group, which the last number stands for. The second
    value is how many groups there are, and the third how many of them, the first ones, follow each other.
    """
    last = len(totals) - 1
    is_full = [total > _FULL * noise for total in totals]
    if is_range:
        groups = _neighboring_cells(totals[:-1], noise)
        walk = len(groups)
        if is_full[last]:
            groups.append([last])
    else:
        most = _number_of_groups(sum(max(total, 0) for total in totals), noise)
        largest = sorted(range(len(totals)), key=lambda cell: -totals[cell])[: most - 1]
        groups = [[cell] for cell in largest if is_full[cell]]
        rest = [cell for cell in range(len(totals)) if [cell] not in groups]
        walk = 0
        if rest:
            groups.append(rest)
    group_of_cell = np.full(len(totals), len(groups))
    for group, cells in enumerate(groups):
        group_of_cell[cells] = group
    return group_of_cell, len(groups), walk


def _number_of_groups(total: int, noise: float) -> int:
    """Return how many groups a column has at most: more than few where there are many people."""
    return int(np.clip(total / (_PEOPLE_OF_GROUP * noise), *_GROUPS))


def _neighboring_cells(totals: list[int], noise: float) -> list[list[int]]:
    """Return neighboring cells together; one that has more than half of all stays alone."""
    positive = [max(total, 0) for total in totals]
    stays_alone = [2 * total > sum(positive) for total in positive]
    shared = sum(total for cell, total in enumerate(positive) if not stays_alone[cell])
    share = shared / _number_of_groups(sum(positive), noise)

    def is_full(cells: list[int], least: float) -> bool:
        total = sum(positive[cell] for cell in cells)
        hidden = _FULL * noise * sqrt(len(cells))
        return stays_alone[cells[0]] or total >= max(least, hidden)

    runs = list[list[int]]()
    for cell, alone in enumerate(stays_alone):
        if not runs or alone or is_full(runs[-1], share):
            runs.append([cell])
        else:
            runs[-1].append(cell)

    groups = list[list[int]]()
    for run in runs:
        if groups and not is_full(run, 0.0) and not stays_alone[groups[-1][0]]:
            groups[-1] += run
        else:
            groups.append(run)
    return groups


def _prior_of(sizes: FloatArray, walk: int) -> FloatArray:
    """Return the prior covariance of the effects of groups: a random walk along numbers; their mean is 0."""
    # sizes: (groups,); factor: (groups, groups)
    factor = np.eye(len(sizes))
    factor[:walk, :walk] = np.tril(np.ones((walk, walk))) / sqrt(max(walk, 1))
    factor = factor - (sizes / sizes.sum()) @ factor
    return factor @ factor.T


def expected_effects(
    seen: FloatArray,
    around: FloatArray,
    noise: FloatArray,
    sizes: FloatArray,
    walk: int,
    variance: float = 1.0,
) -> TwoArrays:
    """Return the expected effects, shape (groups, outputs), over spreads as likely as what was seen makes them.

    `around` and `noise` are the variances of what was seen, by the people, in units of `variance`, and by the noise.
    The second array is the doubt: the deviation of the effects that would be expected without noise from these.
    """
    # seen, noise: (groups, outputs); sizes: (groups,); by_noise, by_people, scale: (outputs, groups);
    # smoothers: (outputs, groups, groups)
    prior = _prior_of(sizes, walk)
    deviation = sqrt(variance)
    by_noise = (noise / variance).T
    by_people = np.broadcast_to(around, noise.shape).T
    with_noise = _Shrinkage.of(prior, by_people + by_noise)
    without = _Shrinkage.of(prior, by_people)
    in_deviations = seen.T / deviation / with_noise.deviations
    along = np.matmul(in_deviations[:, None], with_noise.axes)[:, 0]
    surprise = (along**2 / (1 + with_noise.times) + np.log1p(with_noise.times)).sum(axis=(1, 2))

    # Each spread counts by how likely it makes what was seen; none beforehand as much as all others together.
    surprise[1:] += 2 * np.log(len(_SPREADS) - 1)
    likely = np.exp(-(surprise - surprise.min()) / 2)
    likely /= likely.sum()
    expected = np.einsum("s,soa->oa", likely, with_noise.shares * along)
    effects = with_noise.deviations * np.matmul(with_noise.axes, expected[..., None])[..., 0]

    # By the law of total variance: the variance of the effects given noisy sums, less the one given exact sums.
    smoothers = np.tensordot(likely, with_noise.smoothers * without.smoothers, 1)
    scale = with_noise.deviations * without.deviations
    variances = scale * np.matmul(smoothers, (by_noise / scale)[..., None])[..., 0]
    # Rounding may leave less than nothing.
    return deviation * effects.T, deviation * np.sqrt(np.maximum(variances, 0)).T


def _missing_effects(
    wrong: FloatArray,
    by: FloatArray,
    noise: float,
    free: float,
    sizes: FloatArray,
    walk: int,
    variance: float = 1.0,
) -> TwoArrays:
    """Return the effects that noisy sums of residuals, shape (groups, outputs), show to be missing, and their doubts.

    `by` is how much an effect moves each sum. `free` is the share of its variance that the noise has left.
    """
    # The intercept follows from the rest.
    wrong = wrong - by * (wrong.sum(axis=0) / by.sum(axis=0))
    of_noise = (noise / by) ** 2 * free
    return expected_effects(wrong / by, 1 / by, of_noise, sizes, walk, variance)


@final
@by_identity
class _Shrinkage:
    """How much of what was seen is believed at each spread, along axes that are independent of each other."""

    deviations: FloatArray  # of what was seen, shape (outputs, groups)
    axes: FloatArray  # (outputs, groups, axes)
    times: FloatArray  # variance of the effects, in that of what was seen, shape (spreads, outputs, axes)

    @classmethod
    def of(cls, prior: FloatArray, variances: FloatArray) -> Self:
        """Return it by the variances of what was seen, shape (outputs, groups)."""
        deviations = np.sqrt(variances)
        values, axes = np.linalg.eigh(prior / (deviations[:, :, None] * deviations[:, None]))
        return cls(deviations, axes, _SPREADS[:, None, None] * np.maximum(values, 0))

    @property
    def shares(self) -> FloatArray:
        """The shares that are believed, shape (spreads, outputs, axes)."""
        return self.times / (1 + self.times)

    @property
    def smoothers(self) -> FloatArray:
        """The matrices that do the same to groups, shape (spreads, outputs, groups, groups)."""
        return np.matmul(self.axes * self.shares[:, :, None], np.swapaxes(self.axes, 1, 2))
