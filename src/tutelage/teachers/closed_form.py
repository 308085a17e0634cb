"""Classifiers whose fit is a formula, for thousands of small shards at once: class means and ridge.

One teacher's numbers must not depend on another's rows, not even in their last bit: a rounding that depended on another
person's rows could decide a near tie, and one person would change two votes. So sums run over one shard's rows alone,
in their order, and products over several teachers have shapes made of public numbers only (teachers, classes, features,
queries), never of shard sizes. tests/test_teachers.py compares bit for bit.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from tutelage._internal.records import by_identity
from tutelage._internal.threads import one_thread
from tutelage._internal.typing import ABSTAIN, Ballots, FloatArray, IntArray, Mask, Matrix, Private
from tutelage._internal.validation import positive
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.partition import Shards
from tutelage.teachers.base import Ensemble, as_numbers, public_rows
from tutelage.teachers.parallel import result_without_quotes

_linalg: Any = linalg  # the door to functions of scipy, which has no types
_QUERIES_SCORED = 256  # at once: the working arrays stay in a core's cache
_TEACHERS_SCORED = 64
_TEACHERS_AT_LEAST = 64  # fitted at once
MEMORY = 2**28  # bytes, about, that teachers take which are fitted, asked and forgotten together


@final
@by_identity
class LabeledShards(Private):
    """Private rows with their shards, as the formulas take them."""

    X: FloatArray
    y: IntArray
    shards: Shards
    n_classes: int

    def counts(self) -> IntArray:
        """Return the rows of each class in each shard, shape (teachers, classes)."""
        cells = self.shards.n_shards * self.n_classes
        return np.bincount(self._cells(), minlength=cells).reshape(-1, self.n_classes)

    def class_means(self) -> FloatArray:
        """Return the mean row of each class in each shard, zero where it has none: (teachers, classes, features)."""
        cells = self._cells()
        order = np.argsort(cells, kind="stable")
        present, starts = np.unique(cells[order], return_index=True)
        counts = self.counts()
        sums = np.zeros((counts.size, self.X.shape[1]))
        if len(present):
            # The rows of a cell are added one after the other.
            sums[present] = np.add.reduceat(self.X[order], starts, axis=0)
        return sums.reshape(*counts.shape, -1) / np.maximum(counts, 1)[:, :, None]

    def _cells(self) -> IntArray:
        return self.shards.assignment * self.n_classes + self.y


@final
@by_identity
class _LinearScores:
    """Teachers that vote for the largest of linear scores ``weights · x + biases``; private."""

    weights: FloatArray = field(repr=False)
    biases: FloatArray = field(repr=False)

    @classmethod
    def of(cls, weights: FloatArray, biases: FloatArray, known: Mask) -> "_LinearScores":
        """Take weights (teachers, classes, features), biases and known classes, both (teachers, classes)."""
        columns = np.ascontiguousarray(weights.transpose(1, 2, 0))
        return cls(columns, np.where(known, biases, -np.inf).T)

    def ballots(self, X_public: FloatArray) -> Ballots:
        """Return the class of the largest score, the lowest index among equals."""
        n_teachers = self.biases.shape[1]
        ballots = np.full((n_teachers, len(X_public)), ABSTAIN, np.int16)
        for first in range(0, n_teachers, _TEACHERS_SCORED):
            teachers = slice(first, first + _TEACHERS_SCORED)
            for start in range(0, len(X_public), _QUERIES_SCORED):
                queries = slice(start, start + _QUERIES_SCORED)
                self._vote(X_public[queries], teachers, ballots[teachers, queries].T)
        return ballots

    def _vote(self, rows: FloatArray, teachers: slice, votes: NDArray[np.int16]) -> None:
        # rows: (queries, features); weights: (features, teachers); votes, scores: (queries, teachers)
        best = np.full(votes.shape, -np.inf)
        for label, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            scores = rows @ weights[:, teachers]
            scores += biases[teachers]
            np.copyto(votes, label, where=scores > best)
            np.maximum(scores, best, out=best)


@final
class HeadTeachers(Ensemble):
    """One closed-form classifier per shard over public features, all shards at once.

    Privacy: each teacher is what the formula gives on its own shard, to the last bit.

    A teacher of a few dozen rows cannot learn features, but over good public features class means are enough; then
    thousands of teachers cost seconds, and noise can grow with their number. An empty shard abstains.

    Parameters
    ----------
    head : ClassMeans or Ridge
        The formula, or one of your own.
    n_classes : int
        Number of classes; labels are the integers below it.
    """

    def __init__(self, head: "Head", *, n_classes: int) -> None:
        super().__init__(n_classes)
        if not isinstance(head, Head):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind: type = head if isinstance(head, type) else type(head)
            raise InvalidParameterError(
                "HeadTeachers.head", "be a head in closed form, such as ClassMeans()", kind.__name__
            )
        self._head = head

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Fit one teacher per shard, on rows of public features, and keep them; see `TrainableTeachers.fit`."""
        rows, labels = self._rows_and_labels(X, y, shards)
        rows = _finite(rows, "X")
        rows.setflags(write=False)
        private = LabeledShards(rows, labels, shards, self._n_classes)
        # A warning would come of one shard's rows.
        with one_thread("blas"), np.errstate(all="ignore"):
            self._kept = _in_silence(self._head, self._head.fit, private), rows.shape[1:]
        self._unit = shards.unit
        return self

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each fitted teacher's class index, or −1, on each row: shape (teachers, rows); private."""
        fitted, queries = self._teachers_and_queries(X_public)
        rows = _finite(queries, "X_public")
        # One thread: products this small lose by threads that wait for each other.
        with one_thread("blas"), np.errstate(all="ignore"):
            return _in_silence(self._head, fitted.ballots, rows)

    def fit_ballots(
        self,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        X_public: Matrix,
        checkpoints: str | Path | None = None,  # noqa: ARG002  a formula is evaluated again sooner than it is read
    ) -> Ballots:
        """Fit, vote and forget, a block of teachers at a time; see `TrainableTeachers.fit_ballots`. No file is kept."""
        rows, labels = self._rows_and_labels(X, y, shards)
        queries = public_rows(X_public, rows.shape[1:])
        ballots = np.full((shards.n_shards, len(queries)), ABSTAIN, np.int16)
        # A handful of 64-bit arrays of (classes, features).
        bytes_of_teacher = 8 * 8 * self._n_classes * rows.shape[-1]
        blocks_at_once = max(1, MEMORY // (bytes_of_teacher * _TEACHERS_AT_LEAST))
        at_once = _TEACHERS_AT_LEAST * blocks_at_once
        for first in range(0, shards.n_shards, at_once):
            last = min(first + at_once, shards.n_shards)
            here = (shards.assignment >= first) & (shards.assignment < last)
            some = Shards(shards.assignment[here] - first, last - first, shards.unit)
            group = HeadTeachers(self._head, n_classes=self._n_classes)
            group.fit(rows[here], labels[here], some)
            ballots[first:last] = group.ballots(queries)
        self._unit = shards.unit
        return ballots


class Head(ABC):
    """A classifier whose fit is a formula; pass one as the teacher of `TeacherVotes`."""

    @abstractmethod
    def fit(self, private: LabeledShards) -> Any:
        """Return all teachers, each fitted on its own shard: `ballots(X_public)` has their votes, (teachers, rows)."""

    def ensemble(self, *, n_classes: int, **_: object) -> HeadTeachers:
        """Return untrained teachers; see `TeacherRecipe.ensemble`. A formula draws nothing and takes seconds."""
        return HeadTeachers(self, n_classes=n_classes)


@final
@dataclass(frozen=True)
class ClassMeans(Head):
    """Vote for the class whose mean is nearest."""

    def fit(self, private: LabeledShards) -> _LinearScores:
        """Return linear scores: μ · x − μᵀμ / 2 grows as the squared distance to μ falls."""
        means = private.class_means()
        biases = -0.5 * np.einsum("tcf,tcf->tc", means, means)
        return _LinearScores.of(means, biases, private.counts() > 0)


@final
@dataclass(frozen=True)
class Ridge(Head):
    """Least squares with a penalty on the class indicators, the intercept free, as scikit-learn's RidgeClassifier.

    Parameters
    ----------
    alpha : float
        Penalty on the squared weights, above 0.
    class_weights : sequence of float, optional
        How many times a row of each class counts, in the order of the classes; public. Teachers of few rows of a rare
        class hardly ever vote for it without. Default: once.
    """

    alpha: float = 1.0
    class_weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        positive(self.alpha, "alpha", "Ridge")
        if self.class_weights is not None:
            weights = [positive(weight, "class_weights", "Ridge") for weight in self.class_weights]
            object.__setattr__(self, "class_weights", tuple(weights))

    def fit(self, private: LabeledShards) -> _LinearScores:
        """Return linear scores, one shard after the other: each is a small system of its own.

        A shard whose system cannot be solved, for want of a larger `alpha`, abstains like an empty one.
        """
        n_classes = private.n_classes
        class_weights = np.ones(n_classes)
        if self.class_weights is not None:
            class_weights = np.array(self.class_weights)
        if len(class_weights) != n_classes:
            raise InvalidParameterError(
                "Ridge.class_weights",
                f"have one weight for each of the {n_classes} classes",
                f"{len(class_weights)}",
            )
        shape = private.shards.n_shards, n_classes, private.X.shape[1]
        weights = np.zeros(shape)
        biases = np.zeros(shape[:2])
        known = private.counts() > 0
        for number, rows in enumerate(private.shards.rows):
            y = private.y[rows]
            if not len(y):
                continue
            targets = np.eye(n_classes)[y]
            try:
                solution = self._solution(private.X[rows], targets, class_weights[y])
            except (linalg.LinAlgError, ValueError):
                # Singular to working precision, or beyond the largest float.
                known[number] = False
                continue
            weights[number], biases[number] = solution
        return _LinearScores.of(weights, biases, known)

    def _solution(
        self, X: FloatArray, targets: FloatArray, counts: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the weights of one teacher, shape (classes, features), and its biases, shape (classes,)."""
        # X: (rows, features); targets: (rows, classes); counts: (rows,)
        center = np.average(X, axis=0, weights=counts)
        share = np.average(targets, axis=0, weights=counts)
        size = np.sqrt(counts)[:, None]
        rows = size * (X - center)
        targets = size * (targets - share)
        # (XᵀX + αI)⁻¹Xᵀ = Xᵀ(XXᵀ + αI)⁻¹: the smaller of the two systems.
        if len(rows) < rows.shape[1]:
            weights = self._solve(rows @ rows.T, targets).T @ rows
        else:
            weights = self._solve(rows.T @ rows, rows.T @ targets).T
        return weights, share - weights @ center

    def _solve(self, gram: FloatArray, targets: FloatArray) -> FloatArray:
        factor = _linalg.cho_factor(gram + self.alpha * np.eye(len(gram)), lower=True)
        return _linalg.cho_solve(factor, targets)


def _in_silence(head: Head, work: Callable[[Any], Any], argument: object) -> Any:
    """Return the result of `work`; only a head of this package may warn or raise, because others may quote rows."""
    if type(head).__module__ == __name__:
        return work(argument)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return result_without_quotes("The head of the teachers", work, argument)


def _finite(rows: Matrix, name: str) -> FloatArray:
    # A copy: whoever reuses the caller's memory changes no teacher.
    matrix = as_numbers(rows, name, np.float64, copy=True)
    if matrix.ndim != 2:
        raise InvalidDataError(
            f"`{name}` must have shape (rows, features). Got shape {matrix.shape}."
        )
    if not np.isfinite(matrix).all():
        raise InvalidDataError(
            f"`{name}` holds NaN or infinity. Fill them with values that are public, such as zero."
        )
    return matrix
