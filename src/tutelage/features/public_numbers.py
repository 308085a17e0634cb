"""A number as public rows alone tell it, over the bins of a public schema: a blend of trees and effects of columns.

It never sees a private row while it is learned, so its prediction is a public function of one row.
"""

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any, Self, final

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csr_array
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from tutelage._internal.records import settable
from tutelage._internal.threads import one_thread
from tutelage._internal.typing import Array, FloatArray, IntArray, Matrix
from tutelage.features.rowwise import in_chunks

DEPTH = 6  # of a tree
FEWEST = 20  # rows with a number
_LEAVES = (
    15,
    4,
)  # of large trees, which find interactions, and of small ones, which do with few rows
_TREES: dict[str, Any] = {
    "max_iter": 100,
    "learning_rate": 0.06,
    "max_depth": DEPTH,
    "random_state": 0,
}
_PENALTY = 1.0  # of the effects of columns
_FOLDS = 5
_AT_ONCE = 2**12  # rows
_nnls: Any = nnls  # which has no types
_ARRAYS = ("feature", "threshold", "below", "value", "effects")


@final
@settable
class PublicSum:
    """Trees and effects of columns whose values add up to a number from 0 to 1; as arrays, exact by row.

    Arrays of trees are of shape (trees, nodes).
    """

    base: float
    feature: IntArray  # column that a node looks at
    # Up to this number, a row goes to the first of two nodes, which follow each other.
    threshold: FloatArray
    below: IntArray  # the first of these; of a leaf itself
    value: FloatArray  # of a leaf
    effects: FloatArray  # of each bin, shape (columns, bins); the last one is 0, and stands for bins beyond it

    @classmethod
    def of_trees(cls, bins: Matrix, shares: FloatArray, leaves: int) -> Self:
        """Return trees of so many leaves that predict numbers from 0 to 1 by bins."""
        # bins: (rows, columns); shares: (rows,)
        model: Any = HistGradientBoostingRegressor(**_TREES, max_leaf_nodes=leaves)
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
            effects=np.zeros((bins.shape[1], 1)),
        )
        for tree, nodes in enumerate(trees):
            learned._take(tree, nodes)
        return learned

    @classmethod
    def of_columns(cls, bins: Matrix, shares: FloatArray) -> Self:
        """Return effects of columns that predict numbers from 0 to 1 by bins: a ridge regression."""
        # places: (rows, columns); effects: (columns, bins)
        n_rows = len(bins)
        n_columns: int = bins.shape[1]
        n_bins = int(bins.max()) + 1
        places = bins.astype(np.int64) + n_bins * np.arange(n_columns)
        ends = n_columns * np.arange(n_rows + 1)
        shape = (n_rows, n_columns * n_bins)
        indicators: Any = csr_array((np.ones(ends[-1]), places.ravel(), ends), shape=shape)
        model: Any = Ridge(_PENALTY, solver="sparse_cg", tol=1e-8)
        model.fit(indicators, shares)
        effects = np.reshape(model.coef_, (n_columns, n_bins))
        no_tree = np.zeros((0, 1))
        return cls(
            base=float(model.intercept_),
            feature=no_tree.astype(np.int64),
            threshold=no_tree,
            below=no_tree.astype(np.int64),
            value=no_tree,
            effects=np.pad(effects, ((0, 0), (0, 1))),
        )

    @classmethod
    def blend(cls, parts: Sequence[Self], weights: FloatArray, base: float) -> Self:
        """Return a base, and the weighted sum of how far each part is from it."""
        n_nodes = max(part.value.shape[1] for part in parts)
        n_bins = max(part.effects.shape[1] for part in parts)

        def trees_of(name: str) -> list[Array]:
            arrays = [getattr(part, name) for part in parts]
            return [np.pad(one, ((0, 0), (0, n_nodes - one.shape[1]))) for one in arrays]

        values = zip(weights, trees_of("value"), strict=True)
        effects = [
            weight * np.pad(part.effects, ((0, 0), (0, n_bins - part.effects.shape[1])))
            for weight, part in zip(weights, parts, strict=True)
        ]
        bases = np.array([part.base for part in parts])
        return cls(
            base=base + float(weights @ (bases - base)),
            feature=np.vstack(trees_of("feature")),
            threshold=np.vstack(trees_of("threshold")),
            below=np.vstack(trees_of("below")),
            value=np.vstack([weight * value for weight, value in values]),
            effects=np.sum(effects, axis=0),
        )

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
        places = np.minimum(bins, self.effects.shape[1] - 1).astype(np.int64)
        for column, effects in enumerate(self.effects):
            total += effects[places[:, column]]
        trees = zip(self.feature, self.threshold, self.below, self.value, strict=True)
        for feature, threshold, below, value in trees:
            node = np.zeros(len(bins), np.int64)
            for _ in range(DEPTH):
                is_second = bins[rows, feature[node]] > threshold[node]
                node = below[node] + is_second
            total += value[node]
        return np.clip(total, 0.0, 1.0)


_Fit = Callable[[Matrix, FloatArray], PublicSum]
_FITS: tuple[_Fit, ...] = (
    *(partial(PublicSum.of_trees, leaves=leaves) for leaves in _LEAVES),
    PublicSum.of_columns,
)


@final
@settable
class PublicStart:
    """A model of public targets, and the public rows by models that have not seen their targets."""

    model: PublicSum
    apart: (
        FloatArray  # the number of each public row, as a blend of models of other rows expects it
    )
    bins: Matrix  # of the public rows
    shares: FloatArray  # their numbers

    @classmethod
    def learn(cls, bins: Matrix, shares: FloatArray) -> Self:
        """Return a blend of models of public rows with targets, by how well each predicts rows that it has not seen."""
        # apart: (rows, models)
        fold = np.random.default_rng(0).permutation(len(shares)) % _FOLDS
        apart = np.zeros((len(shares), len(_FITS)))
        for number in range(_FOLDS):
            is_left_out = fold == number
            for place, fit in enumerate(_FITS):
                others = fit(bins[~is_left_out], shares[~is_left_out])
                apart[is_left_out, place] = others.shares(bins[is_left_out])
        mean = float(shares.mean())
        weights: FloatArray = _nnls(apart - mean, shares - mean)[0]
        parts = [fit(bins, shares) for fit in _FITS]
        expected = np.clip(mean + (apart - mean) @ weights, 0.0, 1.0)
        return cls(PublicSum.blend(parts, weights, mean), expected, bins, shares)

    def to_bytes(self) -> bytes:
        """Return what was learned, without the rows, as the bytes of an npz file."""
        file = BytesIO()
        np.savez(file, apart=self.apart, **vars(self.model))
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
            model = PublicSum(base, *(arrays[name] for name in _ARRAYS))
            return cls(model, arrays["apart"], bins, shares)
