"""Rows beside what a model of public labels says of them: the start from which ballots go on.

The model never sees a private row while it is learned, so its scores are a public map of one row.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Self, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from tutelage._internal.records import settable
from tutelage._internal.threads import one_thread
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, IntArray, Mask, Matrix
from tutelage.exceptions import InvalidDataError
from tutelage.features.base import (
    FeatureMap,
    PublicFeatureMap,
    PublicRows,
    keeps_nothing,
    takes_rows_together,
)
from tutelage.features.learned import PublicProjection, PublicScaling
from tutelage.features.rowwise import reach_of

LEAST_CHANCE = 1e-3  # of a class, before they are made to sum to one
_FOLDS = 5
# Inverse penalties of a logistic regression over columns of unit deviation, and over columns that all keep their sizes:
# a frequent word, or a frequent category, is worth more than a rare one.
_PENALTIES = (1e-3, 1e-2, 1e-1)
_PENALTIES_OF_SIZES = (1e-1, 1.0, 1e1, 1e2, 1e3)
_MOST_COLUMNS = 200  # that trees are grown on: images have more, and edges that trees do not find
_FEWEST_OF_TREES = 200  # rows with labels
_TREES: dict[str, Any] = {
    "max_iter": 100,
    "learning_rate": 0.06,
    "max_leaf_nodes": 15,
    "random_state": 0,
}
_MOST_CLASSES = 10  # of which a plan grows trees, one for each class
_SHARES_OF_TREES = (0.25, 0.5, 0.75)  # of the scores of both
_SHARPEST = 3.0  # times that scores are made larger or smaller, as logarithms up to about this


class _Labeled(NamedTuple):
    """Public rows, as they came and as teachers see them, and their labels."""

    rows: Matrix
    seen: Matrix
    labels: IntArray  # class indices, or −1
    n_classes: int

    def at(self, places: Array) -> "_Labeled":
        """Return some of the rows, by index or by a mask."""
        return self._replace(
            rows=self.rows[places],
            seen=self.seen[places],
            labels=self.labels[places],
        )

    def folds(self, order: IntArray) -> IntArray:
        """Return the fold of each row, into which those in `order` are dealt, class by class; −1 for the others."""
        fold = np.full(len(self.labels), ABSTAIN)
        by_class = order[np.argsort(self.labels[order], kind="stable")]
        fold[by_class] = np.arange(len(order)) % _FOLDS
        return fold

    def scores(
        self,
        fit: "_Fit",
        fold: IntArray,
        without: tuple[int, ...],
        places: IntArray,
    ) -> FloatArray:
        """Return the scores of some rows by a model of the labels in the folds, but for those left out."""
        is_left_out = np.isin(fold, (ABSTAIN, *without))
        model = fit(self.at(~is_left_out))
        return model.scores(self.rows[places], self.seen[places])

    def scores_apart(self, fit: "_Fit", fold: IntArray) -> FloatArray:
        """Return the scores of each row by a model of the other folds; a row in no fold counts as in the first."""
        apart = np.zeros((len(self.labels), self.n_classes))
        for number in range(_FOLDS):
            places = np.flatnonzero(np.maximum(fold, 0) == number)
            if len(places):
                apart[places] = self.scores(fit, fold, (number,), places)
        return apart


class PublicModel(NamedTuple):
    """A logistic regression that was fitted to public rows, trees, or a sum of both; its scores are exact by row."""

    linear: PublicProjection | None  # of the rows as teachers see them
    offsets: FloatArray  # what is added to its scores
    trees: Any  # a HistGradientBoostingClassifier of the rows as they came, or None
    present: IntArray  # indices of the classes that have public rows
    n_classes: int
    # Times that scores of the one and of the other count, so that chances are right on average.
    sharpness: FloatArray = np.ones(2)

    def scores(self, rows: Matrix, seen: Matrix) -> FloatArray:
        """Return the logarithm of the chance of each class, less their mean, shape (rows, classes)."""
        total = np.zeros((len(rows), len(self.present)))
        of_linear, of_trees = self.sharpness
        if self.linear is not None:
            total += of_linear * (self.linear.transform(seen) + self.offsets)
        if self.trees is not None:
            # The threads of OpenMP do not survive a fork, and wait busily for each other.
            with one_thread("openmp"):
                scores = np.asarray(self.trees.decision_function(rows), np.float64)
            if scores.ndim == 1:
                scores = np.stack([np.zeros_like(scores), scores], axis=1)
            total += of_trees * scores
        chances = np.zeros((len(total), self.n_classes))
        chances[:, self.present] = chances_of(total)
        return log_chances(chances)


_Fit = Callable[[_Labeled], PublicModel]


@final
@settable
class ScoredRows(PublicFeatureMap):
    """Rows as teachers see them, and after them a score for each class, from a model of public labels."""

    seen_by: Any  # public map, or None
    model: PublicModel

    @classmethod
    def learn(
        cls,
        rows: Matrix,
        seen_by: FeatureMap | None,
        seen: Matrix,
        labels: IntArray,
        n_classes: int,
    ) -> tuple[Self, Matrix]:
        """Return the map, and what it makes of the public rows where a model sees no label of the rows it scores.

        Parameters
        ----------
        rows, seen : arrays of shape (public rows, columns)
            Public rows as they came, and through the map `seen_by`.
        labels : integer array of shape (public rows,)
            Class index of each, or −1 where it is not known.
        n_classes : int
            Number of classes.
        """
        known = labels != ABSTAIN
        counts = np.bincount(labels[known], minlength=n_classes)
        if np.count_nonzero(counts > 1) < 2:
            raise InvalidDataError(
                "`y_public` must hold at least two classes with two rows each, which a model can learn from. Leave it "
                "out, or give more labels."
            )
        public = _Labeled(rows, seen, labels, n_classes)
        order = np.random.default_rng(0).permutation(np.flatnonzero(known))
        best = _best_of(public, public.folds(order), _fits(rows, known))
        model = best.fit(public.at(known))
        model = model._replace(sharpness=best.sharpness * model.sharpness)
        return cls(seen_by, model), np.hstack([seen, best.sharp_scores(best.apart)])

    @property
    def row_by_row(self) -> bool:
        """Whether rows of several people may go through it together."""
        return self.seen_by is None or takes_rows_together(self.seen_by)

    def keeps_nothing(self) -> bool:
        """Return whether no part keeps anything of the rows that it transforms."""
        return self.seen_by is None or keeps_nothing([self.seen_by])

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the rows as teachers see them beside the scores, shape (rows, features + classes)."""
        rows = np.asarray(X)
        seen = rows
        if self.seen_by is not None:
            seen = np.asarray(self.seen_by.transform(rows))
        return np.hstack([seen, self.model.scores(rows, seen)])


class Start(NamedTuple):
    """Public rows in five parts, and their scores by models of the labels of other parts."""

    parts: tuple[IntArray, ...]
    apart: FloatArray  # of each row, by a model of the four other parts
    # For each part: scores of it and its partner by a model of the three other parts, and of other rows as above.
    pairs: tuple[FloatArray, ...]

    fit: _Fit  # of the kind of model that expects unseen labels best

    @classmethod
    def learn(
        cls,
        rows: Matrix,
        seen: Matrix,
        labels: IntArray,
        n_classes: int,
        order: IntArray,
        like: Self | None = None,
    ) -> Self | None:
        """Return the scores of public rows, of which those in `order` are dealt; None if there are too few of a class.

        The kind of model is that of `like`, or chosen as `ScoredRows` chooses it for a release; of many classes, no
        trees are grown.
        """
        # With fewer labels, a model could be left with one class.
        if np.count_nonzero(np.bincount(labels[order]) > 2) < 2:
            return None
        public = _Labeled(rows, seen, labels, n_classes)
        fold = public.folds(order)
        parts = tuple(order[fold[order] == number] for number in range(_FOLDS))
        fits = [like.fit] if like else [*_fits(rows, fold != ABSTAIN)]
        if not like and n_classes > _MOST_CLASSES and _fit_trees in fits:
            fits.remove(_fit_trees)
        best = _best_of(public, fold, fits)
        apart = best.sharp_scores(best.apart)

        def apart_from(*pair: int) -> FloatArray:
            places = np.concatenate([parts[number] for number in pair])
            scores = apart.copy()
            scores[places] = best.sharp_scores(public.scores(best.fit, fold, pair, places))
            return scores

        first = apart_from(0, 1)
        second = apart_from(2, 3)
        third = apart_from(4, 0)
        return cls(parts, apart, (first, first, second, second, third), best.fit)

    def at(self, kept: IntArray) -> "Start":
        """Return the scores of some rows, by models of the labels of all."""
        parts = tuple(np.flatnonzero(np.isin(kept, part)) for part in self.parts)
        pairs = tuple(scores[kept] for scores in self.pairs)
        return self._replace(parts=parts, apart=self.apart[kept], pairs=pairs)

    def partner(self, number: int) -> IntArray:
        """Return the part that casts ballots where another one is scored."""
        partners = (1, 0, 3, 2, 0)
        return self.parts[partners[number]]


@final
@settable
class BesideScores(PublicFeatureMap):
    """Features of rows with scores, and after them the scores."""

    features: FeatureMap
    n_scores: int

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return features and scores, shape (rows, features + scores)."""
        rows = np.asarray(X, np.float64)
        features = self.features.transform(rows)
        return np.hstack([features, rows[:, -self.n_scores :]])


def chances_of(scores: FloatArray) -> FloatArray:
    """Return the chance of each class by its score, shape (rows, classes)."""
    # Trees give columns: sums of many rows would be in another order than of one.
    scores = np.ascontiguousarray(scores)
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def log_chances(chances: FloatArray) -> FloatArray:
    """Return the logarithm of chances that are not too small, less its mean over the classes."""
    logarithms = np.log(np.maximum(chances, LEAST_CHANCE))
    return logarithms - logarithms.mean(axis=1, keepdims=True)


class _Trial(NamedTuple):
    """How well a way of fitting models expects labels that it has not seen."""

    sharpness: float  # what scores are multiplied by, so that chances are right on average
    surprise: float  # by a label, then
    fit: _Fit
    apart: FloatArray  # scores of each row by a model of other folds, before they are multiplied

    def sharp_scores(self, scores: FloatArray) -> FloatArray:
        """Return such scores as logarithms of chances that are right on average."""
        return log_chances(chances_of(self.sharpness * scores))


_surprise = attrgetter("surprise")


def _best_of(
    public: _Labeled,
    fold: IntArray,
    fits: Iterable[_Fit],
) -> _Trial:
    """Return the trial of the way of fitting models that expects unseen labels best.

    The best linear one and trees are tried together, too, in several shares.
    """
    dealt = fold != ABSTAIN

    def trial(fit: _Fit, apart: FloatArray) -> _Trial:
        return _Trial(*_sharpness(apart[dealt], public.labels[dealt]), fit, apart)

    trials = [trial(fit, public.scores_apart(fit, fold)) for fit in fits]
    *linear, trees = trials
    if linear and trees.fit is _fit_trees:
        best = min(linear, key=_surprise)
        for share in _SHARES_OF_TREES:
            sharpness = np.array([(1 - share) * best.sharpness, share * trees.sharpness])
            of_linear, of_trees = sharpness
            both = partial(_fit_both, best.fit, sharpness)
            trials.append(trial(both, of_linear * best.apart + of_trees * trees.apart))
    return min(trials, key=_surprise)


def _fits(rows: Matrix, known: Mask) -> Iterator[_Fit]:
    """Yield how models are fitted; the better one is chosen by what it says of rows whose labels it has not seen."""
    for penalty in _PENALTIES:
        yield partial(_fit_linear, equal_columns=True, penalty=penalty)
    for penalty in _PENALTIES_OF_SIZES:
        yield partial(_fit_linear, equal_columns=False, penalty=penalty)
    are_numbers = rows.ndim == 2 and rows.dtype.kind in "buif"
    enough = np.count_nonzero(known) >= _FEWEST_OF_TREES
    if are_numbers and rows.shape[1] <= _MOST_COLUMNS and enough:
        yield _fit_trees


def _fit_linear(
    public: _Labeled,
    *,
    equal_columns: bool,
    penalty: float,
) -> PublicModel:
    # public.seen: (rows, columns); directions: (columns, classes), or (columns, 1) for two classes
    seen = public.seen
    scaling = PublicScaling.learn(PublicRows(seen, "public rows with labels"))
    center = scaling.center
    deviation = scaling.deviation
    if not equal_columns:
        deviation = np.full_like(deviation, np.linalg.norm(deviation))
        scaling = PublicScaling(center, deviation)
    model: Any = LogisticRegression(C=penalty, max_iter=500)
    with one_thread("blas"):  # or the last bits would depend on the machine's load
        model.fit(scaling.transform(seen), public.labels)
    divisors = np.where(deviation > 0, deviation, np.inf)
    directions = model.coef_.T / divisors[:, None]
    offsets = np.asarray(model.intercept_)
    if len(model.classes_) == 2:
        directions = np.hstack([-directions, directions]) / 2
        offsets = np.hstack([-offsets, offsets]) / 2
    return PublicModel(
        linear=PublicProjection(center, directions, reach_of(seen, center)),
        offsets=offsets,
        trees=None,
        present=model.classes_.astype(np.int64),
        n_classes=public.n_classes,
    )


def _fit_trees(public: _Labeled) -> PublicModel:
    model: Any = HistGradientBoostingClassifier(**_TREES)
    with one_thread("openmp"):
        model.fit(public.rows, public.labels)
    return PublicModel(
        linear=None,
        offsets=np.zeros(0),
        trees=model,
        present=np.asarray(model.classes_, np.int64),
        n_classes=public.n_classes,
    )


def _fit_both(fit_linear: _Fit, sharpness: FloatArray, public: _Labeled) -> PublicModel:
    linear = fit_linear(public)
    return linear._replace(trees=_fit_trees(public).trees, sharpness=sharpness)


def _sharpness(
    scores: FloatArray,
    labels: IntArray,
) -> tuple[float, float]:
    """Return by what scores are to be multiplied so that labels are likeliest, and how surprising they are then."""
    # scores: (rows, classes); labels: (rows,)
    rows = np.arange(len(labels))

    def surprise(power: float) -> float:
        chances = chances_of(np.exp(power) * scores)
        return -float(np.log(chances[rows, labels]).mean())

    limit = float(np.log(_SHARPEST))
    best: Any = minimize_scalar(surprise, bounds=(-2 * limit, limit), method="bounded")
    return float(np.exp(best.x)), float(best.fun)
