"""Votes that are public, to plan by: of teachers of public rows, on public queries."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tutelage._files import Form, read_arrays
from tutelage._typing import IntArray, Matrix
from tutelage._validation import integer_at_least, positive
from tutelage.exceptions import InvalidDataError
from tutelage.partition import Shards
from tutelage.teachers import ensemble_of
from tutelage.votes import VoteHistogram, tally


@final
@dataclass(frozen=True, slots=True, eq=False)
class ProxyVotes:
    """Votes declared public by whoever makes this; they are read freely, so never put private ones here.

    Parameters
    ----------
    votes : VoteHistogram
        Votes on public queries, of teachers that learned from public rows.
    rows_per_teacher : float
        Mean number of rows that one of them learned from.
    labels : integer array of shape (queries,), optional
        True class index of each query. Without it, the class with most votes counts as right.

    Raises
    ------
    InvalidDataError
        If there are no queries, or the labels are not one class index per query.
    """

    votes: VoteHistogram
    rows_per_teacher: float
    labels: IntArray | None = None

    def __post_init__(self) -> None:
        positive(self.rows_per_teacher, "rows_per_teacher", "ProxyVotes")
        if self.votes.n_queries == 0:
            raise InvalidDataError("`votes` of ProxyVotes must be on at least one query. Got none.")
        if self.labels is None:
            return
        labels = np.asarray(self.labels)
        _check_labels(labels, self.votes)
        if labels.min() < 0 or labels.max() >= self.votes.n_classes:
            raise _no_labels(labels, self.votes)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, rows_per_teacher: float | None = None) -> "ProxyVotes":
        """Read public votes from an npz file: ``counts``, and if there are any ``labels`` and ``rows_per_teacher``.

        Parameters
        ----------
        path : path-like
            The npz file; never unpickled.
        rows_per_teacher : float, optional
            Where the file does not say.

        Raises
        ------
        InvalidDataError
            If the file has no counts, nothing says how many rows a teacher had, or it is one of private votes.
        """
        arrays = read_arrays(Path(path))
        if "format" in arrays:
            raise InvalidDataError(
                f"{path} is a file of private votes, as `VoteHistogram.save` writes it. A plan by private votes is a "
                "release that nobody counts; store public votes as a bare array `counts`."
            )
        rows = np.asarray(np.nan if rows_per_teacher is None else rows_per_teacher)
        if "rows_per_teacher" in arrays and math.prod(arrays.form("rows_per_teacher").shape) == 1:
            rows = arrays["rows_per_teacher"]
        if rows.size != 1 or rows.dtype.kind not in "iuf" or not 0 < rows.item() < np.inf:
            raise InvalidDataError(
                f"{path} does not say how many rows each proxy teacher learned from. Say it: --proxy-rows, or an array "
                "`rows_per_teacher` of one number above 0."
            )
        votes = VoteHistogram.load(path, array="counts" if "counts" in arrays else None)
        if "labels" in arrays:
            _check_labels(arrays.form("labels"), votes)
        return cls(votes, float(rows.item()), arrays.get("labels"))

    def accuracy(self) -> float:
        """Return the share of votes that are right; of all alike, a little less than all."""
        right, total = self._right(), self.votes.counts.sum()
        return float((right.sum() + 0.5) / (total + 1))

    def agreement(self) -> float:
        """Return how alike teachers err: the correlation of being right, between two teachers on one query, 0 to 1."""
        voters = np.maximum(self.votes.counts.sum(axis=1), 1)
        shares, mean = self._right() / voters, self.accuracy()
        spread, size = float(shares.var() / (mean * (1 - mean))), float(voters.mean())
        if size <= 1:
            return 0.0
        return float(np.clip((spread - 1 / size) / (1 - 1 / size), 0, 1))  # without what chance alone would spread

    def confusion(self) -> float:
        """Return the share of the wrong votes that go to the most frequent wrong class of their query."""
        wrong = self.votes.counts.copy()
        wrong[np.arange(len(wrong)), self._truth()] = 0
        return float((wrong.max(axis=1).sum() + 0.5) / (wrong.sum() + 1))

    def _truth(self) -> IntArray:
        return self.votes.counts.argmax(axis=1) if self.labels is None else np.asarray(self.labels)

    def _right(self) -> IntArray:
        return self.votes.counts[np.arange(self.votes.n_queries), self._truth()]


def votes_of_public_teachers(
    teacher: Any,
    X: npt.ArrayLike,
    y: IntArray,
    sizes: tuple[int, ...],
    *,
    n_classes: int,
    n_teachers: int = 50,
    seed: int = 0,
    n_jobs: int | None = None,
) -> tuple[ProxyVotes, ...]:
    """Return votes of teachers trained on public labelled rows, for each size of shard: a learning curve to plan by.

    A third of the rows, drawn at random, is voted on; shards are disjoint pieces of the others.

    Parameters
    ----------
    teacher : scikit-learn classifier or teacher recipe
        As for `PATEClassifier`.
    X : array of shape (rows, features)
        Public rows, like the private ones.
    y : integer array of shape (rows,)
        Class index of each.
    sizes : tuple of int
        Mean numbers of rows per teacher to try, each at most half of two thirds of the rows.
    n_classes : int
        Number of classes.
    n_teachers : int
        Train at most so many of each size.
    seed : int
        Of the split and the teachers.
    n_jobs : int, optional
        Teachers trained at once.

    Raises
    ------
    InvalidDataError
        If there are too few rows for two teachers of a size.
    """
    rows, labels = np.asarray(X), np.asarray(y)
    order = np.random.default_rng(seed).permutation(len(rows))
    asked, taught = np.split(order, [len(rows) // 3])
    found = []
    for size in sizes:
        integer_at_least(size, 1, "sizes", "votes_of_public_teachers")
        number = min(n_teachers, len(taught) // size)
        if number < 2:
            raise InvalidDataError(
                f"`sizes` must leave two teachers at least {len(taught)} rows. Got {size} rows per teacher."
            )
        part = taught[: number * size]
        votes = _votes(teacher, rows[part], labels[part], rows[asked], number, n_classes, seed, n_jobs)
        found.append(ProxyVotes(votes, float(size), labels[asked]))
    return tuple(found)


def _votes(
    teacher: Any, X: Matrix, y: IntArray, asked: Matrix, number: int, n_classes: int, seed: int, n_jobs: int | None
) -> VoteHistogram:
    shards = Shards.of_rows(len(X), number, key=seed.to_bytes(16, "little"))
    teachers = ensemble_of(teacher, n_classes=n_classes, seed=seed, n_jobs=n_jobs)
    return tally(teachers.fit_ballots(X, y, shards, asked), n_classes, shards.unit)


def _check_labels(labels: npt.NDArray[Any] | Form, votes: VoteHistogram) -> None:
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (votes.n_queries,):
        raise _no_labels(labels, votes)


def _no_labels(labels: npt.NDArray[Any] | Form, votes: VoteHistogram) -> InvalidDataError:
    return InvalidDataError(
        f"`labels` of ProxyVotes must be {votes.n_queries} class indices below {votes.n_classes}. "
        f"Got {labels.dtype} of shape {labels.shape}."
    )
