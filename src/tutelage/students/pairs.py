"""Cells of pairs of columns, and what they add to an additive model beyond the columns themselves."""

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from math import prod, sqrt
from typing import Self, final

import numpy as np

from tutelage._internal.records import by_identity
from tutelage._internal.typing import FloatArray, IntArray

_NOT_KNOWN = partial(np.zeros, (0, 0))


@final
@by_identity
class Pair:
    """Two columns with the cell that each of their groups, or bins, is in, and what each cell of both adds; public."""

    columns: tuple[int, int]
    cells: tuple[IntArray, IntArray]
    # Once they are known, shape (cells of both, outputs); cells of both are numbered row by row.
    effects: FloatArray = field(default_factory=_NOT_KNOWN)
    doubts: FloatArray = field(default_factory=_NOT_KNOWN)  # deviations of these, by the noise

    @property
    def shape(self) -> tuple[int, ...]:
        """How many cells each column has."""
        return tuple(int(cells.max()) + 1 for cells in self.cells)

    @property
    def n_cells(self) -> int:
        """How many cells both columns have together."""
        return prod(self.shape)

    def places(self, rows: IntArray) -> IntArray:
        """Return the cell of each row of groups, or bins: exact by row."""
        first, second = (
            cells[np.clip(rows[:, column], 0, len(cells) - 1)]
            for column, cells in zip(self.columns, self.cells, strict=True)
        )
        return first * self.shape[1] + second

    def of(self, rows: IntArray) -> FloatArray:
        """Return what the cell of each row adds, shape (rows, outputs)."""
        return self.effects[self.places(rows)]

    def by_bins(self, groups: Sequence[IntArray], weight: float, moved: float) -> Self:
        """Return the pair with the cell of each bin, by the groups of bins of all columns, and a part of its effects.

        The noise has moved the weight of this part so far.
        """
        first, second = (
            cells[groups[column]] for column, cells in zip(self.columns, self.cells, strict=True)
        )
        doubts = np.hypot(weight * self.doubts, moved * self.effects)
        effects = np.asarray_chkfinite(weight * self.effects)
        return replace(self, cells=(first, second), effects=effects, doubts=doubts)


def by_pair(pairs: Sequence[Pair], sums: FloatArray) -> list[FloatArray]:
    """Return the sums over the cells of each pair, by all of them, shape (outputs, cells)."""
    return np.split(
        sums,
        np.cumsum([pair.n_cells for pair in pairs])[:-1],
        axis=1,
    )


def joined_groups(sizes: FloatArray, walk: int, most: int) -> IntArray:
    """Return the cell of each group of a column: of neighbors about as many people, or each large category alone.

    The first `walk` groups are intervals that follow each other; others are with the highest interval. The last group
    holds what is in no group, and has no cell of its own.
    """
    if not walk:
        by_size = np.argsort(-sizes, kind="stable")
        return np.minimum(
            np.argsort(by_size),
            min(most, len(sizes) - 1) - 1,
        )
    ends = np.cumsum(sizes[:walk])
    middles = (ends - sizes[:walk] / 2) / ends[-1]
    # Without gaps: a large group alone may be wider than a cell.
    _, cells = np.unique(np.floor(most * middles), return_inverse=True)
    return np.append(cells, np.full(len(sizes) - walk, cells[-1]))


def most_wrong(
    pairs: Sequence[Pair],
    residuals: FloatArray,
    sigma: float,
) -> list[Pair]:
    """Return the pairs in whose cells noisy residuals, shape (outputs, cells), are largest beyond noise, first.

    Residuals that one column explains by itself do not count.
    """

    def beyond_noise(pair: Pair, wrong: FloatArray) -> float:
        grid = wrong.reshape(-1, *pair.shape)
        for axis in (1, 2):
            grid = grid - grid.mean(axis=axis, keepdims=True)
        # As chi squared is beyond its mean, in its deviations.
        freedom = max(1, len(grid) * prod(n_cells - 1 for n_cells in pair.shape))
        return float(((grid / sigma) ** 2).sum() - freedom) / sqrt(freedom)

    scores = [*map(beyond_noise, pairs, by_pair(pairs, residuals))]
    return [pairs[place] for place in np.argsort(-np.array(scores), kind="stable").tolist()]
