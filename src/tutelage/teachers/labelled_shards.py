"""Private rows shard by shard, and what a formula makes of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, final, runtime_checkable

import numpy as np

from tutelage._typing import Ballots, FloatArray, IntArray
from tutelage.partition import Shards


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabelledShards:
    """Private rows with their shards, as the formulas take them."""

    X: FloatArray = field(repr=False)
    y: IntArray = field(repr=False)
    shards: Shards
    n_classes: int

    def counts(self) -> IntArray:
        """Return the rows of each class in each shard, shape (teachers, classes)."""
        cells = self.shards.n_shards * self.n_classes
        return np.bincount(self._cells(), minlength=cells).reshape(-1, self.n_classes)

    def class_sums(self, values: FloatArray) -> FloatArray:
        """Return the sums of `values`, a row per private row, over each class of each shard: (teachers, classes, n)."""
        cells = self._cells()
        order = np.argsort(cells, kind="stable")
        present, starts = np.unique(cells[order], return_index=True)
        sums = np.zeros((self.shards.n_shards * self.n_classes, values.shape[1]))
        if len(present):
            sums[present] = np.add.reduceat(values[order], starts, axis=0)  # row after row, within one cell
        return sums.reshape(self.shards.n_shards, self.n_classes, -1)

    def class_means(self) -> FloatArray:
        """Return the mean row of each class in each shard, zero where it has none: (teachers, classes, features)."""
        return self.class_sums(self.X) / np.maximum(self.counts(), 1)[:, :, None]

    def each(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Yield the rows and labels of one shard after the other."""
        return ((self.X[rows], self.y[rows]) for rows in self.shards.rows)

    def _cells(self) -> IntArray:
        return self.shards.assignment * self.n_classes + self.y


class FittedTeachers(Protocol):
    """What a formula made of all shards; private."""

    def ballots(self, X_public: FloatArray) -> Ballots:
        """Return each teacher's vote on each row, shape (teachers, rows)."""
        ...


@runtime_checkable
class ClosedForm(Protocol):
    """A classifier whose fit is a formula."""

    def fit(self, private: LabelledShards) -> FittedTeachers:
        """Return all teachers, each fitted on its own shard."""
        ...

    def ensemble(self, *, n_classes: int) -> Any:
        """Return untrained teachers."""
        ...
