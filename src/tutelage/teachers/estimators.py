"""Teachers that are clones of one scikit-learn classifier, trained in parallel.

A teacher is a function of its own shard, its number and the public settings, never of another shard: that is the
other half of the sensitivity claim (`partition` is the first), and tests/test_one_row.py checks it ballot for ballot.
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Self, final

import numpy as np

from tutelage._internal.fitting import fit_clone, require_classifier
from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN, Ballots, IntArray, Matrix
from tutelage.exceptions import InvalidBallotError
from tutelage.partition import Shards
from tutelage.teachers.base import (
    Ensemble,
    Own,
    TeacherRecipe,
    TrainableTeachers,
    ballots_of_teachers,
    public_rows,
)
from tutelage.teachers.checkpoints import BallotFile, resume, source_of
from tutelage.teachers.parallel import Job, Results, result_or_error, train_each, without_lost


@final
class EstimatorTeachers(Ensemble):
    """One clone of a scikit-learn classifier per shard.

    An empty shard has no teacher and abstains; a shard with one class has a teacher that always votes for it.
    Teachers are trained by the back end that `joblib.parallel_config` names, and the votes are the same with all of
    them. A teacher is sequential: what its estimator would do in parallel, or on several threads, it does on one.
    A teacher that fails on its rows abstains; `TeacherLostWarning` says that there is one. If a process dies, the fit
    ends with `TeacherTrainingError`, and the same call continues from its checkpoints.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Cloned for every shard; every ``random_state`` left unset in it is set from `seed` and the teacher's number.
    n_classes : int
        Number of classes; labels are the integers below it.
    seed : int
        Seed of the teachers' own randomness. It has no part in privacy.
    n_jobs : int, optional
        Teachers trained at once, as in joblib: by default as `joblib.parallel_config` says, or one. Dask uses every
        worker.
    progress : bool
        Show a progress bar on work that takes long.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_classes: int,
        seed: int,
        n_jobs: int | None = None,
        progress: bool = False,
    ) -> None:
        require_classifier(estimator, "estimator", "EstimatorTeachers")
        super().__init__(n_classes, seed, n_jobs, progress=progress)
        self._estimator = estimator

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Train one teacher per shard and keep them in memory; see `TrainableTeachers.fit`."""
        values, labels = self._rows_and_labels(X, y, shards)
        job = self._job(_train, self._own(values, labels, shards))
        results = train_each(job, range(shards.n_shards), self._n_jobs)
        trained = dict(self._with_progress(without_lost(results), shards))
        teachers = [trained.get(number) for number in range(shards.n_shards)]
        self._kept = teachers, values.shape[1:]
        self._unit = shards.unit
        return self

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each fitted teacher's class index, or −1, on each row: shape (teachers, rows); private."""
        teachers, queries = self._teachers_and_queries(X_public)

        def ballots() -> Results:
            for number, teacher in enumerate(teachers):
                ballot = result_or_error(
                    number,
                    self._seed,
                    _vote,
                    teacher,
                    queries,
                    self._n_classes,
                )
                yield number, ballot

        known = without_lost(ballots())
        return ballots_of_teachers(known, len(teachers), len(queries))

    def fit_ballots(
        self,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        X_public: Matrix,
        checkpoints: str | Path | None = None,
    ) -> Ballots:
        """Train, vote and forget, one teacher at a time; see `TrainableTeachers.fit_ballots`."""
        values, labels = self._rows_and_labels(X, y, shards)
        queries = public_rows(X_public, values.shape[1:])

        def settings() -> object:
            return self._estimator, source_of(self._estimator), self._n_classes, queries

        own = self._own(values, labels, shards)
        job = self._job(_train_and_vote, own, queries, self._n_classes)
        form = BallotFile(len(queries), self._n_classes)
        finished = resume(
            checkpoints,
            form,
            settings,
            own,
            shards.n_shards,
            lambda numbers: train_each(job, numbers, self._n_jobs),
        )
        results = self._with_progress(without_lost(finished), shards)
        ballots = ballots_of_teachers(results, shards.n_shards, len(queries))
        self._unit = shards.unit
        return ballots

    def _job(self, work: Callable[..., object], own: Own, *shared: object) -> Job:
        """Return the work on each shard, which gets its own rows, labels and seed, the estimator and what is shared."""
        return Job(work, own, (self._estimator, *shared), self._seed)

    def _with_progress(self, results: Results, shards: Shards) -> Results:
        return progress_bar(results, "Training teachers", shards.n_shards, shown=self._progress)


def _train_and_vote(
    X: Matrix,
    y: IntArray,
    seed: int,
    estimator: object,
    X_public: Matrix,
    n_classes: int,
) -> Ballots:
    return _vote(_train(X, y, seed, estimator), X_public, n_classes)


def _train(X: Matrix, y: IntArray, seed: int, estimator: object) -> Any:
    """Return the teacher of these rows; None if there are none."""
    return fit_clone(estimator, X, y, seed) if len(y) else None


def _vote(teacher: Any, X_public: Matrix, n_classes: int) -> Ballots:
    """Return a teacher's votes, abstentions where there is no teacher; a refusal quotes none."""
    if teacher is None:
        return np.full(len(X_public), ABSTAIN, np.int16)
    # Each teacher gets rows of its own: one that scales them in place would show its scale to all who come after it.
    ballot = np.asarray(teacher.predict(deepcopy(X_public)))
    classes = np.arange(n_classes)
    if ballot.shape != (len(X_public),) or not np.isin(ballot, classes).all():
        raise InvalidBallotError("A teacher must predict one known class per row.")
    return ballot.astype(np.int16)


def ensemble_of(
    teacher: Any,
    *,
    n_classes: int,
    seed: int,
    n_jobs: int | None = None,
    progress: bool = False,
) -> TrainableTeachers:
    """Return untrained teachers: those of a `TeacherRecipe`, or clones of a scikit-learn classifier."""
    if isinstance(teacher, TeacherRecipe):
        return teacher.ensemble(n_classes=n_classes, seed=seed, n_jobs=n_jobs, progress=progress)
    return EstimatorTeachers(
        teacher,
        n_classes=n_classes,
        seed=seed,
        n_jobs=n_jobs,
        progress=progress,
    )
