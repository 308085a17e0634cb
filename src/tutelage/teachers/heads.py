"""Teachers by formula: thousands of small shards fitted and voting at once, by matrix products."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from threadpoolctl import threadpool_limits

from tutelage._internal.typing import ABSTAIN, Ballots, FloatArray, IntArray, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.partition import Shards
from tutelage.teachers.base import ClosedForm, Ensemble, FittedTeachers, LabelledShards, public_rows
from tutelage.teachers.parallel import withheld

_TEACHERS_AT_LEAST = 64


@final
class HeadTeachers(Ensemble):
    """One closed-form classifier per shard over public features, all shards at once.

    What makes it private: each teacher is what the formula gives on its own shard, to the last bit.

    A teacher of a few dozen rows cannot learn features, but over good public features class means are enough; then
    thousands of teachers cost seconds, and noise can grow with their number. An empty shard abstains.

    Parameters
    ----------
    head : ClassMeans, Ridge, NaiveBayes or NearestNeighbours
        The formula.
    n_classes : int
        Number of classes; labels are the integers below it.
    memory_limit : int
        Bytes, about, that the fitted teachers may take in `fit_ballots`: it fits, asks and forgets so many at a time,
        but at least 64.

    Raises
    ------
    InvalidParameterError
        If `head` is none, or a number is out of range.
    """

    def __init__(self, head: ClosedForm, *, n_classes: int, memory_limit: int = 2**28) -> None:
        if isinstance(head, type) or not isinstance(head, ClosedForm):
            raise InvalidParameterError(
                f"`head` of HeadTeachers must be a closed form such as ClassMeans(). Got {_named(head)}."
            )
        super().__init__(n_classes)
        self._head = head
        self._memory_limit = integer_at_least(memory_limit, 1, "memory_limit", "HeadTeachers")
        self._fitted: tuple[FittedTeachers, int] | None = None  # and the number of features

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Fit one teacher per shard, on rows of public features, and keep them; see `TrainableTeachers.fit`."""
        rows, labels = self._checked(X, y, shards)
        rows = _finite(rows, "X")
        rows.setflags(write=False)
        with threadpool_limits(1, "blas"), np.errstate(all="ignore"):  # a warning would come of one shard's rows
            fitted = _of(self._head, self._head.fit, LabelledShards(rows, labels, shards, self._n_classes))
        self._fitted, self._unit = (fitted, rows.shape[1]), shards.unit
        return self

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each fitted teacher's class index, or −1, on each row: shape (teachers, rows); private."""
        if self._fitted is None:
            raise InvalidDataError("These teachers have not been trained. Call `fit` first, or use `fit_ballots`.")
        fitted, n_features = self._fitted
        rows = _finite(public_rows(X_public, (n_features,)), "X_public")
        with (
            threadpool_limits(1, "blas"),
            np.errstate(all="ignore"),
        ):  # products this small lose by threads that wait for each other
            return _of(self._head, fitted.ballots, rows)

    def fit_ballots(
        self,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        X_public: Matrix,
        checkpoints: str | Path | None = None,  # noqa: ARG002  a formula is evaluated again sooner than it is read
    ) -> Ballots:
        """Fit, vote and forget, so many teachers at a time; see `TrainableTeachers.fit_ballots`. No file is kept."""
        rows, labels = self._checked(X, y, shards)
        queries = public_rows(X_public, rows.shape[1:])
        ballots = np.full((shards.n_shards, len(queries)), ABSTAIN, dtype=np.int16)
        at_once = self._teachers_at_once(rows.shape[-1])
        for first in range(0, shards.n_shards, at_once):
            last = min(first + at_once, shards.n_shards)
            here = (shards.assignment >= first) & (shards.assignment < last)
            some = Shards(shards.assignment[here] - first, last - first, shards.unit)
            group = HeadTeachers(self._head, n_classes=self._n_classes)
            ballots[first:last] = group.fit(rows[here], labels[here], some).ballots(queries)
        self._unit = shards.unit
        return ballots

    def _teachers_at_once(self, n_features: int) -> int:
        each = 8 * 8 * self._n_classes * n_features  # a handful of 64-bit arrays of (classes, features)
        blocks = self._memory_limit // (each * _TEACHERS_AT_LEAST)
        return _TEACHERS_AT_LEAST * max(1, blocks)


def _of(head: ClosedForm, work: Callable[[Any], Any], argument: object) -> Any:
    """Return what `work` comes to; a head that is not of this package does it in silence, for it may quote rows."""
    if type(head).__module__ == "tutelage.teachers.closed_form":
        return work(argument)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return withheld("The head of the teachers", work, argument)


def _named(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _finite(rows: Matrix, name: str) -> FloatArray:
    matrix = None
    with suppress(TypeError, ValueError):
        matrix = np.array(rows, dtype=np.float64)  # a copy: whoever reuses the caller's memory changes no teacher
    if matrix is None:
        raise InvalidDataError(f"`{name}` must hold numbers. Encode text by categories that are public.")
    if matrix.ndim != 2:
        raise InvalidDataError(f"`{name}` must have shape (rows, features). Got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise InvalidDataError(f"`{name}` holds NaN or infinity. Fill them with values that are public, such as zero.")
    return matrix
