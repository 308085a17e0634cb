"""Teachers that are clones of one scikit-learn classifier, trained in parallel.

A teacher is a function of its own shard, its number and the public settings, never of another shard: that is the
other half of the sensitivity claim (`partition` is the first), and tests/test_one_row.py checks it ballot for ballot.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

from tutelage._internal.fitting import fit_clone
from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN, Ballots, IntArray, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidBallotError, InvalidDataError, InvalidParameterError
from tutelage.partition import Shards
from tutelage.teachers.base import Ensemble, TeacherRecipe, TrainableTeachers, public_rows, teacher_seed
from tutelage.teachers.checkpoints import BallotFile, Checkpoints, source_of
from tutelage.teachers.forests import with_fast_forests
from tutelage.teachers.parallel import Job, guarded, train_each


@final
class EstimatorTeachers(Ensemble):
    """One clone of a scikit-learn classifier per shard.

    An empty shard has no teacher and abstains; a shard with one class has a teacher that always votes for it.
    Teachers are trained by the back end that `joblib.parallel_config` names, and the votes are the same with all of
    them. A teacher is sequential: what its estimator would do in parallel, or on several threads, it does on one.
    If a worker dies, the teachers that it had not finished are trained again; a teacher that kills its worker every
    time, even with no other in flight, abstains, and `TeacherLostWarning` says that there is one.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Cloned for every shard; every ``random_state`` left unset in it is set from `seed` and the teacher's number.
    n_classes : int
        Number of classes; labels are the integers below it.
    seed : int
        Seed of the teachers' own randomness. It has no part in privacy.
    n_jobs : int, optional
        Teachers trained at once, as in joblib: by default as `joblib.parallel_config` says, or one. Dask and Ray
        use every worker.
    progress : bool
        Show a progress bar on work that takes long.
    fast_forests : bool
        Grow random forests without scikit-learn's overhead per tree, wherever that is known to give the same trees.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_classes: int,
        seed: int,
        n_jobs: int | None = None,
        progress: bool = False,
        fast_forests: bool = True,
    ) -> None:
        if not isinstance(estimator, BaseEstimator) or not is_classifier(estimator):
            raise InvalidParameterError(
                "`estimator` of EstimatorTeachers must be a scikit-learn classifier such as RandomForestClassifier(). "
                f"Got {estimator!r:.80}."
            )
        super().__init__(n_classes)
        self._estimator = estimator
        self._seed = integer_at_least(seed, 0, "seed", "EstimatorTeachers")
        self._n_jobs = n_jobs
        self._progress = progress
        self._fast_forests = fast_forests
        self._teachers: list[Any] = []
        self._row_shape: tuple[int, ...] = ()

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Train one teacher per shard and keep them in memory; see `TrainableTeachers.fit`."""
        values, labels = self._checked(X, y, shards)
        rows = shards.rows
        job = Job(
            _train,
            own=lambda number: (
                _own_cells(values[rows[number]]),
                labels[rows[number]],
                teacher_seed(self._seed, number),
            ),
            shared=(self._cloned(),),
            seed=self._seed,
        )
        trained = dict(self._shown(self._run(job, range(shards.n_shards)), shards))
        self._teachers = [trained.get(number) for number in range(shards.n_shards)]
        self._unit, self._row_shape = shards.unit, values.shape[1:]
        return self

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each fitted teacher's class index, or −1, on each row: shape (teachers, rows); private."""
        if not self._teachers:
            raise InvalidDataError("These teachers have not been trained. Call `fit` first, or use `fit_ballots`.")
        queries, numbered = public_rows(X_public, self._row_shape), enumerate(self._teachers)
        votes = (guarded(number, self._seed, _vote, it, queries) for number, it in numbered)
        return np.stack([_checked_ballot(vote, len(queries), self._n_classes) for vote in votes])

    def fit_ballots(
        self, X: Matrix, y: IntArray, shards: Shards, X_public: Matrix, checkpoints: str | Path | None = None
    ) -> Ballots:
        """Train, vote and forget, one teacher at a time; see `TrainableTeachers.fit_ballots`."""
        values, labels = self._checked(X, y, shards)
        queries = public_rows(X_public, values.shape[1:])
        code = () if checkpoints is None else source_of(self._estimator)
        settings = self._estimator, code, self._n_classes, queries
        store = Checkpoints(checkpoints, BallotFile(len(queries), self._n_classes), settings)
        ballots = np.full((shards.n_shards, len(queries)), ABSTAIN, dtype=np.int16)
        rows, seeds = shards.rows, [teacher_seed(self._seed, number) for number in range(shards.n_shards)]
        job = Job(
            _train_and_vote,
            own=lambda number: (_own_cells(values[rows[number]]), labels[rows[number]], seeds[number]),
            shared=(self._cloned(), queries),
            seed=self._seed,
        )
        todo = store.resume(
            store.identities(values, labels, shards, seeds), lambda numbers: self._votes(job, numbers, len(queries))
        )
        for number, ballot in self._shown(todo, shards):
            ballots[number] = ballot
        self._unit = shards.unit
        return ballots

    def _run(self, job: Job, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        return train_each(job, numbers, self._n_jobs)

    def _votes(self, job: Job, numbers: Sequence[int], n_queries: int) -> Iterator[tuple[int, Ballots]]:
        return ((n, _checked_ballot(vote, n_queries, self._n_classes)) for n, vote in self._run(job, numbers))

    def _shown(self, results: Iterable[tuple[int, Any]], shards: Shards) -> Iterator[tuple[int, Any]]:
        return progress_bar(results, "Training teachers", shards.n_shards, shown=self._progress)

    def _cloned(self) -> Any:
        return with_fast_forests(self._estimator) if self._fast_forests else self._estimator


def _own_cells(rows: Matrix) -> Matrix:
    """Return rows whose cells, where they are objects that could be changed, are nobody else's."""
    return deepcopy(rows) if rows.dtype == object else rows


def _train_and_vote(X: Matrix, y: IntArray, seed: int, estimator: Any, X_public: Matrix) -> Matrix | None:
    return _vote(_train(X, y, seed, estimator), X_public)


def _train(X: Matrix, y: IntArray, seed: int, estimator: Any) -> Any | None:
    return fit_clone(estimator, X, y, seed) if len(y) else None


def _vote(teacher: Any | None, X_public: Matrix) -> Matrix | None:
    # Each teacher gets rows of its own: one that scales them in place would show its scale to all who come after it.
    return None if teacher is None else np.asarray(teacher.predict(deepcopy(X_public)))


def _checked_ballot(ballot: Matrix | None, n_queries: int, n_classes: int) -> Ballots:
    """Return a teacher's votes, abstentions where there is no teacher; a refusal quotes none."""
    if ballot is None:
        return np.full(n_queries, ABSTAIN, dtype=np.int16)
    if ballot.shape != (n_queries,) or not np.isin(ballot, np.arange(n_classes)).all():
        raise InvalidBallotError("A teacher must predict one known class per row.")
    return ballot.astype(np.int16)


def ensemble_of(
    teacher: Any, *, n_classes: int, seed: int, n_jobs: int | None = None, progress: bool = False
) -> TrainableTeachers:
    """Return untrained teachers: those that a recipe makes, or clones of a scikit-learn classifier.

    Parameters
    ----------
    teacher : TeacherRecipe or scikit-learn classifier
        What each teacher is.
    n_classes, seed, n_jobs, progress
        As in `TeacherRecipe.ensemble`.
    """
    if isinstance(teacher, TeacherRecipe):
        return teacher.ensemble(n_classes=n_classes, seed=seed, n_jobs=n_jobs, progress=progress)
    return EstimatorTeachers(teacher, n_classes=n_classes, seed=seed, n_jobs=n_jobs, progress=progress)
