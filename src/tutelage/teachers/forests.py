"""Random forests, tree for tree those of scikit-learn, without most of what scikit-learn does around each tree.

On a shard of a hundred rows nine tenths of `RandomForestClassifier.fit` go into validating and cloning each tree. Here
the rows are validated once, and scikit-learn's own compiled builder grows every tree from the same seed and the same
bootstrap. That builder is private to scikit-learn. So each process first compares a few forests on made-up rows with
scikit-learn's, and wherever they differ, or anything is missing or unusual, scikit-learn does everything itself.

Nothing public comes near: for forests of 100 trees on the shards of benchmarks/teachers.py (250 teachers on UCI Adult,
130 rows each), `RandomForestClassifier` takes 10.8 times the processor time, `DecisionTreeClassifier` on rows checked
beforehand 7.6 times, `ExtraTreesClassifier` 7.6 times, and a forest of 25 trees, a less accurate teacher, 2.6 times.
That time is spent by every process alike, so more shards in a process or more processes do not change it.
"""

from functools import cache
from importlib import import_module
from typing import Any, Self

import numpy as np
import numpy.typing as npt

# scikit-learn draws a forest's seeds and bootstraps from this legacy stream; it has no part in privacy noise.
from numpy.random import RandomState
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from tutelage._internal.typing import Matrix

_LARGEST_INT = 2**31 - 1
_LARGEST_VALUE = 1e30  # sums of larger ones may overflow in single precision, where scikit-learn has rules of its own
_PARAMETERS = {
    "n_estimators", "criterion", "max_depth", "min_samples_split", "min_samples_leaf", "min_weight_fraction_leaf",
    "max_features", "max_leaf_nodes", "min_impurity_decrease", "bootstrap", "oob_score", "n_jobs", "random_state",
    "verbose", "warm_start", "class_weight", "ccp_alpha", "max_samples", "monotonic_cst",
}  # fmt: skip


def with_fast_forests(estimator: Any) -> Any:
    """Return `estimator` with every random forest in it replaced by one that grows the same trees faster."""
    if type(estimator) is RandomForestClassifier:
        return _QuickForest(**estimator.get_params(deep=False))
    inside = {
        name: with_fast_forests(value)
        for name, value in estimator.get_params().items()
        if type(value) is RandomForestClassifier
    }
    if not inside:
        return estimator
    copy: Any = clone(estimator)
    return copy.set_params(**inside)


class _QuickForest(RandomForestClassifier):
    """A random forest whose trees and predictions are those of scikit-learn."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        self._is_quick = sample_weight is None and _is_common(self) and _are_plain(X, y) and _agrees_with_sklearn()
        if self._is_quick:
            _grow(self, _single_precision(X), y)
            return self
        return super().fit(X, y, sample_weight)

    def predict_proba(self, X: Any) -> Any:
        if (
            not getattr(self, "_is_quick", False)
            or not _is_plain(X)
            or X.shape[1] != self.estimators_[0].n_features_in_
        ):
            return super().predict_proba(X)
        rows = _single_precision(X)
        total = np.zeros((len(rows), len(self.classes_)))
        for tree in self.estimators_:
            total += tree.tree_.predict(rows)
        total /= len(self.estimators_)
        return total


def _grow(forest: Any, X: npt.NDArray[np.float32], y: npt.NDArray[Any]) -> None:
    """Give `forest` everything that scikit-learn's `fit` would."""
    classes, codes = np.unique(y, return_inverse=True)
    targets = codes.reshape(-1, 1).astype(np.float64)
    absent = np.isnan(X)
    missing = absent.any(axis=0) if absent.any() else None
    state = RandomState(forest.random_state)
    forest.estimator_ = DecisionTreeClassifier()
    forest.estimators_ = [
        _grown_tree(forest, seed, state, X, targets, len(classes), missing)
        for seed in state.randint(_LARGEST_INT, size=forest.n_estimators).tolist()
    ]
    forest.classes_, forest.n_classes_ = classes, len(classes)
    forest.n_features_in_, forest.n_outputs_ = X.shape[1], 1
    forest._n_samples = len(X)
    forest._n_samples_bootstrap = len(X) if forest.bootstrap else None
    forest._sample_weight = None


def _grown_tree(
    forest: Any,
    seed: int,
    state: RandomState,
    X: npt.NDArray[np.float32],
    targets: npt.NDArray[np.float64],
    n_classes: int,
    missing: Any,
) -> DecisionTreeClassifier:
    private = _private_parts()
    weights = None
    if forest.bootstrap:
        state.seed(seed)
        drawn = state.randint(0, len(X), len(X))
        weights = np.bincount(drawn, minlength=len(X)).astype(np.float64)
    state.seed(seed)  # scikit-learn starts a tree from its seed once more
    classes = np.array([n_classes], dtype=np.intp)
    lightest_leaf = forest.min_weight_fraction_leaf * len(X)
    max_features = _features_tried(forest.max_features, X.shape[1])
    criterion = private["criterion"][forest.criterion](1, classes)
    splitter = private["splitter"](criterion, max_features, forest.min_samples_leaf, lightest_leaf, state, None)
    tree: Any = DecisionTreeClassifier(**{name: getattr(forest, name) for name in forest.estimator_params})
    tree.random_state = seed
    tree.tree_ = private["tree"](X.shape[1], classes, 1)
    private["builder"](
        splitter,
        max(forest.min_samples_split, 2 * forest.min_samples_leaf),
        forest.min_samples_leaf,
        lightest_leaf,
        _LARGEST_INT if forest.max_depth is None else forest.max_depth,
        forest.min_impurity_decrease,
    ).build(tree.tree_, X, targets, weights, missing)
    tree.n_features_in_, tree.n_outputs_, tree.max_features_ = X.shape[1], 1, max_features
    tree.classes_, tree.n_classes_ = np.arange(n_classes, dtype=np.float64), classes[0]
    return tree


def _features_tried(max_features: Any, n_features: int) -> int:
    if isinstance(max_features, str):
        return max(1, int(np.sqrt(n_features) if max_features == "sqrt" else np.log2(n_features)))
    if max_features is None:
        return n_features
    return max_features if type(max_features) is int else max(1, int(max_features * n_features))


@cache
def _private_parts() -> dict[str, Any]:
    tree, criteria = import_module("sklearn.tree._tree"), import_module("sklearn.tree._criterion")
    return {
        "tree": tree.Tree,
        "builder": tree.DepthFirstTreeBuilder,
        "splitter": import_module("sklearn.tree._splitter").BestSplitter,
        "criterion": {"gini": criteria.Gini, "entropy": criteria.Entropy, "log_loss": criteria.Entropy},
    }


def _is_common(forest: Any) -> bool:
    """Return whether the parameters are ones that `_grow` knows, and in range."""
    return (
        forest.criterion in ("gini", "entropy", "log_loss")
        and _is_whole(forest.n_estimators, 1)
        and _is_whole(forest.min_samples_split, 2)
        and _is_whole(forest.min_samples_leaf, 1)
        and _is_whole(forest.random_state, 0, 2**32 - 1)
        and (forest.max_depth is None or _is_whole(forest.max_depth, 1))
        and _is_share(forest.min_weight_fraction_leaf, 0.5)
        and _is_share(forest.min_impurity_decrease, 1.0)
        and (
            forest.max_features in ("sqrt", "log2", None)
            or _is_whole(forest.max_features, 1)
            or (_is_share(forest.max_features, 1.0) and forest.max_features > 0)
        )
        and type(forest.bootstrap) is bool
        and forest.oob_score is False
        and forest.warm_start is False
        and forest.ccp_alpha == 0
        and forest.max_leaf_nodes is forest.max_samples is forest.class_weight is forest.monotonic_cst is None
    )


def _is_whole(value: object, least: int, most: int = _LARGEST_INT) -> bool:
    return type(value) is int and least <= value <= most


def _is_share(value: object, most: float) -> bool:
    return type(value) is float and 0 <= value <= most


def _are_plain(X: Any, y: Any) -> bool:
    return _is_plain(X) and type(y) is np.ndarray and y.dtype.kind in "bui" and y.shape == (len(X),)


def _is_plain(X: Any) -> bool:
    """Return whether `X` is an array of ordinary numbers, in which some may be missing."""
    if type(X) is not np.ndarray or X.ndim != 2 or not X.size or X.dtype.kind not in "buif":
        return False
    return not (np.abs(X) > _LARGEST_VALUE).any() if X.dtype.kind == "f" else True


def _single_precision(X: Matrix) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(X, dtype=np.float32)


@cache
def _agrees_with_sklearn() -> bool:
    """Return whether forests on made-up rows come out here as they do in this release of scikit-learn."""
    try:
        return set(RandomForestClassifier().get_params()) == _PARAMETERS and all(
            _comes_out_alike(RandomForestClassifier(3, random_state=number, **parameters))
            for number, parameters in enumerate(
                (
                    {},
                    {"criterion": "entropy", "bootstrap": False, "max_depth": 3, "min_samples_leaf": 2},
                    {"max_features": None, "min_impurity_decrease": 0.01, "min_weight_fraction_leaf": 0.05},
                )
            )
        )
    except Exception:
        return False


def _comes_out_alike(forest: RandomForestClassifier) -> bool:
    random = np.random.default_rng(forest.random_state)
    X = random.integers(0, 9, size=(60, 5)) / 4
    y = random.integers(0, 3, size=60)
    X[::7, 1] = np.nan
    mine = _QuickForest(**forest.get_params())
    forest.fit(X, y)
    _grow(mine, _single_precision(X), y)
    mine._is_quick = True
    return np.array_equal(mine.predict_proba(X), forest.predict_proba(X)) and all(
        np.array_equal(getattr(own.tree_, name), getattr(its.tree_, name), equal_nan=True)
        for own, its in zip(mine.estimators_, forest.estimators_, strict=True)
        for name in ("children_left", "children_right", "feature", "threshold", "value", "n_node_samples")
    )
