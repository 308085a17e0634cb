"""Interface of teacher ensembles, and a seed for each teacher."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from tutelage._internal.typing import (
    ABSTAIN,
    Array,
    Ballots,
    IntArray,
    Matrix,
    NeverPickled,
    is_array,
)
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError
from tutelage.partition import Shards
from tutelage.privacy import PrivacyUnit

Own = Callable[[int], tuple[Matrix, IntArray, int]]
"""The rows, the labels and the seed of a teacher, by its number; private."""


def teacher_seed(seed: int, number: int) -> int:
    """Return the seed of teacher `number`, the same however many teachers there are and wherever they train."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


class TeacherEnsemble(Protocol):
    """Teachers, each fitted on its own shard, that vote on public rows."""

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        ...

    @property
    def unit(self) -> PrivacyUnit:
        """Whose change moves at most one teacher's ballots."""
        ...

    def ballots(self, X_public: Array) -> Ballots:
        """Return each teacher's class index, or −1, on each row: shape (teachers, rows); private."""
        ...


class TrainableTeachers(TeacherEnsemble, Protocol):
    """Teachers that are trained here; each is a function of its own shard, its number and public settings."""

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Train one teacher per shard and keep them in memory, to vote on rows that come later.

        Parameters
        ----------
        X : array of shape (rows, ...)
            Private rows.
        y : integer array of shape (rows,)
            Class index of each private row.
        shards : Shards
            Which row goes to which teacher. One that fails on its rows abstains; that all fail is an error.
        """
        ...

    def fit_ballots(
        self,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        X_public: Matrix,
        checkpoints: str | Path | None = None,
    ) -> Ballots:
        """Train, vote and forget, so that memory does not grow with the ensemble.

        Parameters
        ----------
        X, y, shards
            As in `fit`, whose errors it raises too.
        X_public : array of shape (queries, ...)
            Public rows to vote on.
        checkpoints : path, optional
            Private folder in which the ballots of teachers that took long to train are kept as plain arrays, so that a
            killed run resumes. A ballot is reused only if everything that it depends on is unchanged. The caller
            deletes them with `discard_checkpoints`.
        """
        ...


@runtime_checkable
class TeacherRecipe(Protocol):
    """Public settings of one kind of teacher, from which an ensemble is made.

    One whose teachers take rows with missing cells may say so by an attribute `takes_missing_values = True`.
    """

    def ensemble(
        self,
        *,
        n_classes: int,
        seed: int,
        n_jobs: int | None,
        progress: bool,
    ) -> TrainableTeachers:
        """Return untrained teachers; `seed` is of their own randomness, and has no part in privacy."""
        ...


def is_recipe(teacher: object) -> bool:
    """Return whether a teacher is a recipe, and not its class."""
    return isinstance(teacher, TeacherRecipe) and not isinstance(teacher, type)


class Ensemble(NeverPickled):
    """Shared state of all ensembles of one process: their classes, and the unit of the shards they were trained on."""

    def __init__(
        self,
        n_classes: int,
        seed: int = 0,
        n_jobs: int | None = None,
        *,
        progress: bool = False,
    ) -> None:
        owner = type(self).__name__
        self._n_classes = integer_at_least(n_classes, 2, "n_classes", owner)
        self._seed = integer_at_least(seed, 0, "seed", owner)
        self._n_jobs = n_jobs
        self._progress = progress
        self._unit: PrivacyUnit | None = None
        # Teachers that `fit` trained, and the shape of a row.
        self._kept: tuple[Any, tuple[int, ...]] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        return self._n_classes

    @property
    def unit(self) -> PrivacyUnit:
        """Whose change moves at most one teacher's ballots: the unit of the shards that they were trained on."""
        if self._unit is None:
            raise InvalidDataError("These teachers have not been trained. Call `fit` first.")
        return self._unit

    def _teachers_and_queries(self, X_public: ArrayLike) -> tuple[Any, Array]:
        """Return the teachers that `fit` trained, and public rows for them."""
        if self._kept is None:
            raise InvalidDataError(
                "These teachers have not been trained. Call `fit` first, or use `fit_ballots`."
            )
        teachers, row_shape = self._kept
        return teachers, public_rows(X_public, row_shape)

    def _own(self, X: Matrix, y: IntArray, shards: Shards) -> Own:
        rows = shards.rows

        def own(number: int) -> tuple[Matrix, IntArray, int]:
            # Cells that are objects could be changed, so each teacher gets its own copies.
            return deepcopy(X[rows[number]]), y[rows[number]], teacher_seed(self._seed, number)

        return own

    def _rows_and_labels(
        self, X: ArrayLike, y: ArrayLike, shards: Shards
    ) -> tuple[Matrix, IntArray]:
        """Return private rows and labels as arrays that belong to the shards."""
        rows = X if is_array(X) else _numbers(X)
        labels: IntArray = np.asarray(y)
        n_rows = len(rows) if rows.ndim else 0
        if rows.ndim == 0 or not n_rows == labels.size == len(shards.assignment):
            raise InvalidDataError(
                f"X, y and the shards must have one entry per private row. Got {n_rows}, {labels.size} and "
                f"{len(shards.assignment)}."
            )
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise InvalidDataError(
                f"Labels must be class indices, one integer per row. Got {labels.dtype} of shape {labels.shape}."
            )
        if np.any((labels < 0) | (labels >= self._n_classes)):
            raise InvalidDataError(f"Labels must be class indices from 0 to {self._n_classes - 1}.")
        return rows, labels.astype(np.int64)


def _numbers(X: ArrayLike) -> Matrix:
    # A type found over all rows, text because one person's cell is text, would change the rows of everybody else.
    with suppress(TypeError, ValueError):
        return np.asarray(X, np.float64)
    # Out here, or what NumPy said, which quotes a cell, would be carried along as the context.
    raise InvalidDataError(
        "X must be numbers, rows of equal length, or a NumPy array of any type. Encode text by categories that are "
        "public."
    )


def as_numbers(rows: Array, name: str, kind: type[np.floating[Any]], *, copy: bool) -> Matrix:
    """Return rows as numbers of a kind; anything else is refused without quoting it."""
    with suppress(TypeError, ValueError), np.errstate(over="ignore"):
        return rows.astype(kind, subok=False, copy=copy)
    raise InvalidDataError(
        f"`{name}` must hold numbers. Encode text by categories that are public."
    )


def ballots_of_teachers(
    ballots: Iterable[tuple[int, Ballots]], n_teachers: int, n_queries: int
) -> Ballots:
    """Return the ballots of all teachers, shape (teachers, queries); missing teachers abstain."""
    together = np.full((n_teachers, n_queries), ABSTAIN, np.int16)
    for number, ballot in ballots:
        together[number] = ballot
    return together


def public_rows(X_public: ArrayLike, like: tuple[int, ...]) -> Array:
    """Return public rows as an array, if there are any and each has the shape `like` of a private row."""
    rows = np.asarray(X_public)
    if rows.ndim == 0 or len(rows) == 0 or rows.shape[1:] != like:
        raise InvalidDataError(
            f"`X_public` must hold at least one row, and rows of shape {like} like those of X. Got shape {rows.shape}."
        )
    return rows
