"""A number as public rows alone tell it: trees over the bins of a public schema, from targets of public rows.

The trees never see a private row while they are grown, so their prediction is a public function of one row.
"""

from io import BytesIO
from typing import Any, Self, final

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from tutelage._internal.records import settable
from tutelage._internal.threads import one_thread
from tutelage._internal.typing import Array, FloatArray, IntArray, Matrix
from tutelage.features.rowwise import in_chunks

DEPTH = 6  # of a tree
FEWEST = 20  # rows with a number
_TREES: dict[str, Any] = {
    "max_iter": 100,
    "learning_rate": 0.06,
    "max_leaf_nodes": 15,
    "max_depth": DEPTH,
    "random_state": 0,
}
_FOLDS = 5
_AT_ONCE = 2**12  # rows
_ARRAYS = ("feature", "threshold", "below", "value")


@final
@settable
class PublicTrees:
    """Trees whose values add up to a number from 0 to 1; as arrays, of shape (trees, nodes), exact by row."""

    base: float
    feature: IntArray  # column that a node looks at
    # Up to this number, a row goes to the first of two nodes, which follow each other.
    threshold: FloatArray
    below: IntArray  # the first of these; of a leaf itself
    value: FloatArray  # of a leaf

    @classmethod
    def learn(cls, bins: Matrix, shares: FloatArray) -> Self:
        """Return trees that predict numbers from 0 to 1 by bins."""
        # bins: (rows, columns); shares: (rows,)
        model: Any = HistGradientBoostingRegressor(**_TREES)
        with one_thread("openmp"):
            model.fit(bins, shares)
        trees: list[Array] = [predictors[0].nodes for predictors in model._predictors]
        shape = (len(trees), max(map(len, trees), default=1))
        learned = cls(
            base=float(np.ravel(model._baseline_prediction)[0]),
            feature=np.zeros(shape, np.int64),
            threshold=np.full(shape, np.inf),  # a leaf keeps its rows
            below=np.zeros(shape, np.int64),
            value=np.zeros(shape),
        )
        for tree, nodes in enumerate(trees):
            learned._take(tree, nodes)
        return learned

    def _take(self, tree: int, nodes: Array) -> None:
        """Take over a tree, with the two nodes below each node side by side."""
        free = 1  # the next place without a node
        queue = [(0, 0)]  # nodes of scikit-learn, and their places here
        while queue:
            number, place = queue.pop()
            node = nodes[number]
            self.below[tree, place] = place
            self.value[tree, place] = node["value"]
            if not node["is_leaf"]:
                self.feature[tree, place] = node["feature_idx"]
                self.threshold[tree, place] = node["num_threshold"]
                self.below[tree, place] = free
                queue.append((node["left"], free))
                queue.append((node["right"], free + 1))
                free += 2

    def shares(self, bins: Matrix) -> FloatArray:
        """Return the number from 0 to 1 that is expected of each row."""
        return in_chunks(self._shares, bins, _AT_ONCE)

    def _shares(self, bins: Matrix) -> FloatArray:
        # bins: (rows, columns); the arrays of one tree: (nodes,)
        total = np.full(len(bins), self.base)
        rows = np.arange(len(bins))
        trees = zip(self.feature, self.threshold, self.below, self.value, strict=True)
        for feature, threshold, below, value in trees:
            node = np.zeros(len(bins), np.int64)
            for _ in range(DEPTH):
                is_second = bins[rows, feature[node]] > threshold[node]
                node = below[node] + is_second
            total += value[node]
        return np.clip(total, 0.0, 1.0)


@final
@settable
class PublicStart:
    """Trees of public targets, and the public rows by trees that have not seen their targets."""

    trees: PublicTrees
    apart: FloatArray  # the number of each public row, as trees of other rows expect it
    bins: Matrix  # of the public rows
    shares: FloatArray  # their numbers

    @classmethod
    def learn(cls, bins: Matrix, shares: FloatArray) -> Self:
        """Return trees of public rows with targets, and what trees of the other rows expect of each."""
        fold = np.random.default_rng(0).permutation(len(shares)) % _FOLDS
        apart = np.zeros(len(shares))
        for number in range(_FOLDS):
            is_left_out = fold == number
            others = PublicTrees.learn(bins[~is_left_out], shares[~is_left_out])
            apart[is_left_out] = others.shares(bins[is_left_out])
        return cls(PublicTrees.learn(bins, shares), apart, bins, shares)

    def to_bytes(self) -> bytes:
        """Return what was learned, without the rows, as the bytes of an npz file."""
        file = BytesIO()
        np.savez(file, apart=self.apart, **vars(self.trees))
        return file.getvalue()

    @classmethod
    def from_bytes(
        cls,
        content: bytes,
        bins: Matrix,
        shares: FloatArray,
    ) -> Self:
        """Return what was learned of these rows, from what `to_bytes` wrote."""
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            base = float(arrays["base"])
            trees = PublicTrees(base, *(arrays[name] for name in _ARRAYS))
            return cls(trees, arrays["apart"], bins, shares)
