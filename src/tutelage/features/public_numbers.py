"""A number as public rows alone tell it: trees over the bins of a public schema, from targets of public rows.

The trees never see a private row while they are grown, so their prediction is a public function of one row.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import Self, final

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from tutelage._internal.threads import one_thread
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.features.rowwise import in_chunks

DEPTH = 6  # of a tree
_TREES = {
    "max_iter": 100,
    "learning_rate": 0.06,
    "max_leaf_nodes": 15,
    "max_depth": DEPTH,
    "random_state": 0,
}
_FOLDS = 5
FEWEST = 20  # rows with a number
_AT_ONCE = 2**12  # rows
_ARRAYS = ("feature", "threshold", "below", "value")


@final
@dataclass(eq=False, repr=False)
class PublicTrees:
    """Trees whose values add up to a number from 0 to 1; as arrays, of shape (trees, nodes), exact by row."""

    base: float
    feature: IntArray  # column that a node looks at
    # Up to which a row goes to the first of its two nodes, which follow each other.
    threshold: FloatArray
    below: IntArray  # the first of these; of a leaf itself
    value: FloatArray  # of a leaf

    @classmethod
    def grown(cls, bins: Matrix, shares: FloatArray) -> Self:
        """Return trees that predict numbers from 0 to 1 by bins."""
        with one_thread("openmp"):
            fitted = HistGradientBoostingRegressor(**_TREES).fit(bins, shares)
        grown = [one[0].nodes for one in fitted._predictors]
        shape = len(grown), max(map(len, grown), default=1)
        made = cls(
            float(np.ravel(fitted._baseline_prediction)[0]),
            *(np.zeros(shape, kind) for kind in "qdqd"),
        )
        made.threshold += np.inf  # a leaf keeps its rows
        for tree, nodes in enumerate(grown):
            made._take(tree, nodes)
        return made

    def _take(self, tree: int, nodes: np.ndarray) -> None:
        """Take over a tree, with the two nodes below each node side by side."""
        place = 1
        queue = [(0, 0)]
        while queue:
            node, at = queue.pop()
            one = nodes[node]
            self.below[tree, at] = at
            self.value[tree, at] = one["value"]
            if not one["is_leaf"]:
                self.feature[tree, at] = one["feature_idx"]
                self.threshold[tree, at] = one["num_threshold"]
                self.below[tree, at] = place
                queue += [(one["left"], place), (one["right"], place + 1)]
                place += 2

    def shares(self, bins: Matrix) -> FloatArray:
        """Return the number from 0 to 1 that is expected of each row."""
        return in_chunks(self._shares, bins, _AT_ONCE)

    def _shares(self, bins: Matrix) -> FloatArray:
        found = np.full(len(bins), self.base)
        rows = np.arange(len(bins))
        for feature, threshold, below, value in zip(
            *(getattr(self, name) for name in _ARRAYS), strict=True
        ):
            node = np.zeros(len(bins), np.int64)
            for _ in range(DEPTH):
                node = below[node] + (bins[rows, feature[node]] > threshold[node])
            found += value[node]
        return np.clip(found, 0.0, 1.0)


@final
@dataclass(eq=False, repr=False)
class PublicStart:
    """Trees of public targets, and the public rows by trees that have not seen their targets."""

    trees: PublicTrees
    apart: FloatArray  # the number of each public row, as trees of other rows expect it
    bins: Matrix  # of the public rows
    shares: FloatArray  # their numbers

    @classmethod
    def learn(cls, bins: Matrix, shares: FloatArray) -> Self:
        """Return what public rows with targets say of the number."""
        fold = np.random.default_rng(0).permutation(len(shares)) % _FOLDS
        apart = np.zeros(len(shares))
        for number in range(_FOLDS):
            some = fold == number
            apart[some] = PublicTrees.grown(bins[~some], shares[~some]).shares(bins[some])
        return cls(PublicTrees.grown(bins, shares), apart, bins, shares)

    def to_bytes(self) -> bytes:
        """Return what was learned, without the rows, as the bytes of an npz file."""
        file = BytesIO()
        np.savez(file, apart=self.apart, **vars(self.trees))
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, bins: Matrix, shares: FloatArray) -> Self:
        """Return what was learned of these rows, from what `to_bytes` wrote."""
        with np.load(BytesIO(content), allow_pickle=False) as found:
            trees = PublicTrees(float(found["base"]), *(found[name] for name in _ARRAYS))
            return cls(trees, found["apart"], bins, shares)
