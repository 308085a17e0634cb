"""What every kind of teacher ensemble can do."""

from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from tutelage._typing import Ballots, IntArray, Matrix
from tutelage.exceptions import InvalidDataError
from tutelage.neighboring import PrivacyUnit
from tutelage.partition import Shards


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

    def ballots(self, X_public: npt.NDArray[Any]) -> Ballots:
        """Return each teacher's class index, or −1, on each row: shape (teachers, rows); private."""
        ...


class TrainableTeachers(TeacherEnsemble, Protocol):
    """Teachers that are trained here; each is a function of its own shard, its number and public settings."""

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Train one teacher per shard and keep them, to vote on rows that come later."""
        ...

    def fit_ballots(
        self, X: Matrix, y: IntArray, shards: Shards, X_public: Matrix, checkpoints: Path | None = None
    ) -> Ballots:
        """Train, vote and forget; what took long to train is kept in `checkpoints`, so that a killed run resumes."""
        ...


@runtime_checkable
class TeacherRecipe(Protocol):
    """Public settings of one kind of teacher, from which an ensemble is made."""

    def ensemble(self, *, n_classes: int, seed: int, n_jobs: int | None, progress: bool) -> TrainableTeachers:
        """Return untrained teachers.

        Parameters
        ----------
        n_classes : int
            Number of classes; labels are the integers below it.
        seed : int
            Seed of the teachers' own randomness, if they have any. It has no part in privacy.
        n_jobs : int or None
            Teachers trained at once, as in joblib, where they are trained one by one.
        progress : bool
            Show a progress bar on work that takes long.
        """
        ...


def check_private_rows(X: Matrix, y: IntArray, shards: Shards, n_classes: int) -> None:
    """Refuse rows, labels and shards that do not belong together.

    Raises
    ------
    InvalidDataError
        If they have different lengths, or a label is no class index; no label is quoted.
    """
    if not len(X) == len(y) == len(shards.assignment):
        raise InvalidDataError(
            f"X, y and the shards must have one entry per private row. Got {len(X)}, {len(y)} and "
            f"{len(shards.assignment)}."
        )
    y = np.asarray(y)
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise InvalidDataError(f"Labels must be class indices, one integer per row. Got {y.dtype} of shape {y.shape}.")
    if len(y) and (np.min(y) < 0 or np.max(y) >= n_classes):
        raise InvalidDataError(f"Labels must be class indices from 0 to {n_classes - 1}.")
