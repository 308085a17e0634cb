"""Teachers that are clones of one scikit-learn classifier, trained in parallel through joblib.

A teacher is a function of its own shard, its number and the public settings, never of another shard: that is the
other half of the sensitivity claim (`partition` is the first), and tests/test_one_row.py checks it ballot for ballot.
"""

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from joblib import Parallel, delayed

from tutelage._fitting import fit_clone
from tutelage._typing import ABSTAIN, Ballots, IntArray, Matrix
from tutelage._validation import integer_at_least
from tutelage.exceptions import InvalidDataError, TeacherTrainingError, TutelageError
from tutelage.neighboring import PrivacyUnit
from tutelage.partition import Shards
from tutelage.progress import progress_bar
from tutelage.teachers.checkpoints import BallotCheckpoints


@final
class EstimatorTeachers:
    """One clone of a scikit-learn classifier per shard.

    An empty shard has no teacher and abstains; a shard with one class has a teacher that always votes for it.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Cloned for every shard; every ``random_state`` left unset in it is set from `seed` and the teacher's number.
    n_classes : int
        Number of classes; labels are the integers below it.
    seed : int
        Seed of the teachers' own randomness. It has no part in privacy.
    n_jobs : int, optional
        Teachers trained at once, as in joblib; teachers should themselves be sequential.
    progress : bool
        Show a progress bar on work that takes long.
    """

    def __init__(
        self, estimator: Any, *, n_classes: int, seed: int, n_jobs: int | None = None, progress: bool = False
    ) -> None:
        self._estimator = estimator
        self._n_classes = integer_at_least(n_classes, 2, "n_classes", "EstimatorTeachers")
        self._seed = integer_at_least(seed, 0, "seed", "EstimatorTeachers")
        self._n_jobs = n_jobs
        self._progress = progress
        self._teachers: list[Any] = []
        self._unit: PrivacyUnit | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        return self._n_classes

    @property
    def unit(self) -> PrivacyUnit:
        """Whose change moves at most one teacher's ballots: the unit of the shards that they were fitted on."""
        if self._unit is None:
            raise InvalidDataError("These teachers have not been trained. Call `fit` first.")
        return self._unit

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Train one teacher per shard and keep them in memory, to vote on rows that come later.

        Parameters
        ----------
        X : array of shape (rows, features)
            Private rows.
        y : integer array of shape (rows,)
            Class index of each private row.
        shards : Shards
            Which row goes to which teacher.

        Raises
        ------
        TeacherTrainingError
            If the estimator fails on a shard.
        """
        self._check_rows(X, y, shards)
        tasks = (
            delayed(_numbered)(number, _train, self._estimator, X[rows], y[rows], self._teacher_seed(number))
            for number, rows in enumerate(shards.rows)
        )
        trained = dict(self._run("Training teachers", tasks, shards.n_shards))
        self._teachers = [trained[number] for number in range(shards.n_shards)]
        self._unit = shards.unit
        return self

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each fitted teacher's class index, or −1, on each row: shape (teachers, rows); private.

        Parameters
        ----------
        X_public : array of shape (queries, features)
            Public rows to vote on.

        Raises
        ------
        InvalidDataError
            If `fit` was not called.
        TeacherTrainingError
            If a teacher fails on the rows.
        """
        if not self._teachers:
            raise InvalidDataError("These teachers have not been trained. Call `fit` first, or use `fit_ballots`.")
        numbered = enumerate(self._teachers)
        return np.stack([_numbered(number, _vote, it, X_public, self._n_classes)[1] for number, it in numbered])

    def fit_ballots(
        self, X: Matrix, y: IntArray, shards: Shards, X_public: Matrix, checkpoints: Path | None = None
    ) -> Ballots:
        """Train, vote and forget, one teacher at a time, so that memory does not grow with the ensemble.

        Parameters
        ----------
        X : array of shape (rows, features)
            Private rows.
        y : integer array of shape (rows,)
            Class index of each private row.
        shards : Shards
            Which row goes to which teacher.
        X_public : array of shape (queries, features)
            Public rows to vote on.
        checkpoints : path, optional
            Private folder in which each finished teacher's ballots are kept as plain arrays, so that a killed run
            resumes. A ballot is reused only if its shard, seed, estimator and public rows are unchanged.
            The caller deletes them with `discard_checkpoints`.

        Returns
        -------
        Ballots
            Class index, or −1, per teacher and row: shape (teachers, queries); private.

        Raises
        ------
        TeacherTrainingError
            If the estimator fails on a shard.
        """
        self._check_rows(X, y, shards)
        store = BallotCheckpoints(checkpoints, (self._estimator, self._n_classes, X_public))
        ballots = np.full((shards.n_shards, len(X_public)), ABSTAIN, dtype=np.int16)
        identities, todo = {}, []
        for number, rows in enumerate(shards.rows):
            identities[number] = store.identity(X[rows], y[rows], self._teacher_seed(number))
            found = store.load(number, identities[number])
            if found is None:
                todo.append((number, rows))
            else:
                ballots[number] = found
        tasks = (
            delayed(_numbered)(
                number, _train_and_vote, self._estimator, X[rows], y[rows], self._teacher_seed(number),
                X_public, self._n_classes,
            )
            for number, rows in todo
        )  # fmt: skip
        for number, ballot in self._run("Training teachers", tasks, shards.n_shards, shards.n_shards - len(todo)):
            ballots[number] = ballot
            store.save(number, identities[number], ballot)
        return ballots

    def _run(self, title: str, tasks: Iterable[Any], total: int, done: int = 0) -> Iterable[tuple[int, Any]]:
        # max_nbytes: private rows travel through pipes; joblib would leave larger shards in shared memory after a kill.
        results: Any = Parallel(n_jobs=self._n_jobs, return_as="generator_unordered", max_nbytes=None)(tasks)
        return progress_bar(results, title, total, done, shown=self._progress)

    def _teacher_seed(self, number: int) -> int:
        return int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])

    def _check_rows(self, X: Matrix, y: IntArray, shards: Shards) -> None:
        if not len(X) == len(y) == len(shards.assignment):
            raise InvalidDataError(
                f"X, y and the shards must have one entry per private row. Got {len(X)}, {len(y)} and "
                f"{len(shards.assignment)}."
            )
        if len(y) and (np.min(y) < 0 or np.max(y) >= self._n_classes):
            raise InvalidDataError(f"Labels must be class indices from 0 to {self._n_classes - 1}.")


def _numbered(number: int, work: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    """Run `work` for teacher `number`, letting no message from inside a shard out of it."""
    # A warning or an error of the estimator may quote rows or class counts of one shard, so neither passes.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return number, work(*arguments)
        except TutelageError:
            raise
        except Exception as error:
            raise TeacherTrainingError(
                f"The teachers' estimator raised {type(error).__name__} on shard {number}. Its message may quote "
                "private rows and is withheld; fit the estimator on a made-up shard of that size to read it."
            ) from None


def _train_and_vote(estimator: Any, X: Matrix, y: IntArray, seed: int, X_public: Matrix, n_classes: int) -> Ballots:
    return _vote(_train(estimator, X, y, seed), X_public, n_classes)


def _train(estimator: Any, X: Matrix, y: IntArray, seed: int) -> Any | None:
    return fit_clone(estimator, X, y, seed) if len(y) else None


def _vote(teacher: Any | None, X_public: Matrix, n_classes: int) -> Ballots:
    if teacher is None:
        return np.full(len(X_public), ABSTAIN, dtype=np.int16)
    ballot = np.asarray(teacher.predict(X_public))
    if ballot.shape != (len(X_public),) or not np.isin(ballot, np.arange(n_classes)).all():
        raise InvalidDataError("A teacher must predict one known class per row.")
    return ballot.astype(np.int16)
