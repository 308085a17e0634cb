"""Teachers by formula: thousands of small shards fitted and voting at once, by matrix products."""

from pathlib import Path
from typing import Self, final

import numpy as np
from threadpoolctl import threadpool_limits

from tutelage._typing import ABSTAIN, Ballots, FloatArray, IntArray, Matrix
from tutelage._validation import integer_at_least
from tutelage.exceptions import InvalidDataError
from tutelage.neighboring import PrivacyUnit
from tutelage.partition import Shards
from tutelage.teachers.base import check_private_rows
from tutelage.teachers.labelled_shards import ClosedForm, FittedTeachers, LabelledShards

_TEACHERS_AT_LEAST = 64


@final
class HeadTeachers:
    """One closed-form classifier per shard over public features, all shards at once.

    A teacher of a few dozen rows cannot learn features, but over good public features class means are enough; then
    thousands of teachers cost seconds, and noise can grow with their number. Each teacher is what the formula gives on
    its own shard alone. An empty shard abstains.

    Parameters
    ----------
    head : ClassMeans, Ridge, NaiveBayes or NearestNeighbours
        The formula.
    n_classes : int
        Number of classes; labels are the integers below it.
    memory_limit : int
        Bytes, about, that the fitted teachers may take in `fit_ballots`: it fits, asks and forgets so many at a time,
        but at least 64.
    """

    def __init__(self, head: ClosedForm, *, n_classes: int, memory_limit: int = 2**28) -> None:
        self._head = head
        self._n_classes = integer_at_least(n_classes, 2, "n_classes", "HeadTeachers")
        self._memory_limit = integer_at_least(memory_limit, 1, "memory_limit", "HeadTeachers")
        self._fitted: FittedTeachers | None = None
        self._shape: tuple[int, PrivacyUnit] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        return self._n_classes

    @property
    def unit(self) -> PrivacyUnit:
        """Whose change moves at most one teacher's ballots: the unit of the shards that they were fitted on."""
        return self._trained()[2]

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Fit one teacher per shard and keep them in memory, to vote on rows that come later.

        Parameters
        ----------
        X : array of shape (rows, features)
            Private rows, in public features.
        y : integer array of shape (rows,)
            Class index of each private row.
        shards : Shards
            Which row goes to which teacher.

        Raises
        ------
        InvalidDataError
            If rows, labels and shards do not belong together, or a value is not finite.
        """
        rows = _finite(X, "X")
        check_private_rows(rows, y, shards, self._n_classes)
        with threadpool_limits(1, "blas"):
            self._fitted = self._head.fit(LabelledShards(rows, np.asarray(y), shards, self._n_classes))
        self._shape = rows.shape[1], shards.unit
        return self

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each fitted teacher's class index, or −1, on each row: shape (teachers, rows); private.

        Parameters
        ----------
        X_public : array of shape (queries, features)
            Public rows to vote on, in the same features.

        Raises
        ------
        InvalidDataError
            If `fit` was not called, or a value is not finite, or there are other features.
        """
        fitted, n_features, _ = self._trained()
        rows = _finite(X_public, "X_public")
        if rows.shape[1] != n_features:
            raise InvalidDataError(f"`X_public` must have the {n_features} features of X. Got {rows.shape[1]}.")
        with threadpool_limits(1, "blas"):  # products this small lose by threads that wait for each other
            return fitted.ballots(rows)

    def fit_ballots(
        self,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        X_public: Matrix,
        checkpoints: Path | None = None,  # noqa: ARG002  a formula is evaluated again sooner than it is read
    ) -> Ballots:
        """Fit, vote and forget, so many teachers at a time; see `fit` and `ballots`.

        A killed run starts again: there is nothing worth keeping.
        """
        check_private_rows(X, y, shards, self._n_classes)
        ballots = np.full((shards.n_shards, len(X_public)), ABSTAIN, dtype=np.int16)
        at_once = self._teachers_at_once(np.shape(X)[-1])
        for first in range(0, shards.n_shards, at_once):
            last = min(first + at_once, shards.n_shards)
            here = (shards.assignment >= first) & (shards.assignment < last)
            some = Shards(shards.assignment[here] - first, last - first, shards.unit)
            group = HeadTeachers(self._head, n_classes=self._n_classes)
            ballots[first:last] = group.fit(X[here], y[here], some).ballots(X_public)
        return ballots

    def _teachers_at_once(self, n_features: int) -> int:
        each = 8 * 8 * self._n_classes * n_features  # a handful of 64-bit arrays of (classes, features)
        blocks = self._memory_limit // (each * _TEACHERS_AT_LEAST)
        return _TEACHERS_AT_LEAST * max(1, blocks)

    def _trained(self) -> tuple[FittedTeachers, int, PrivacyUnit]:
        if self._fitted is None or self._shape is None:
            raise InvalidDataError("These teachers have not been trained. Call `fit` first.")
        return self._fitted, *self._shape


def _finite(rows: Matrix, name: str) -> FloatArray:
    try:
        matrix = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidDataError(f"`{name}` must hold numbers. Encode text by categories that are public.") from None
    if matrix.ndim != 2:
        raise InvalidDataError(f"`{name}` must have shape (rows, features). Got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise InvalidDataError(f"`{name}` holds NaN or infinity. Fill them with values that are public, such as zero.")
    return matrix
