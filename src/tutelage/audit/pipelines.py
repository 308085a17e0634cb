"""Pipelines in the form that `audit_sensitivity` takes: from private rows to the ballots of every teacher."""

from pathlib import Path
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils import get_tags

from tutelage._typing import Ballots, IntArray, Matrix
from tutelage.audit.sensitivity import MakeBallots
from tutelage.classifier import PATEClassifier
from tutelage.exceptions import InvalidParameterError
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.teachers import ensemble_of
from tutelage.teachers.base import TrainableTeachers

_KEY = bytes(range(32))


def ballots_of_teachers(teacher: Any, n_teachers: int, X_public: npt.ArrayLike, *, n_classes: int) -> MakeBallots:
    """Return the pipeline of teachers on a keyed partition, by entity where there are ids.

    Parameters
    ----------
    teacher : TeacherRecipe or scikit-learn classifier
        What each teacher is.
    n_teachers : int
        How many.
    X_public : array of shape (queries, features)
        What they are asked.
    n_classes : int
        Number of classes; labels are the integers below it.
    """
    queries = np.asarray(X_public)

    def make_ballots(X: Matrix, y: npt.NDArray[Any], entity_ids: npt.NDArray[Any] | None) -> Ballots:
        if entity_ids is None:
            shards = Shards.of_rows(len(X), n_teachers, key=_KEY)
        else:
            shards = Shards.of_entities(entity_ids, n_teachers, key=_KEY)
        return ensemble_of(teacher, n_classes=n_classes, seed=0).fit_ballots(X, y, shards, queries.copy())

    return make_ballots


def ballots_of_classifier(
    model: PATEClassifier, X_public: npt.ArrayLike, silo_of: dict[Any, Any] | None = None
) -> MakeBallots:
    """Return the pipeline of a `PATEClassifier`: its checks, features, partition and teachers, as `fit` runs them.

    A copy of the model is fitted, without its ledger, with simulated noise, and with a student that learns nothing;
    what is looked at are the ballots, before anything is released.

    Parameters
    ----------
    model : PATEClassifier
        What is audited; it must declare `classes`, for those found in the data would depend on them.
    X_public : array of shape (queries, features)
        Public rows that are asked.
    silo_of : dict, optional
        Silo of each entity id, where each owner is one teacher.

    Raises
    ------
    InvalidParameterError
        If the model declares no classes, or draws its public rows from the private ones.
    """
    if model.classes is None or model.public_fraction is not None:
        raise InvalidParameterError(
            "`model` of ballots_of_classifier must have `classes` and no `public_fraction`. Set the classes, and pass "
            "public rows."
        )
    queries = np.asarray(X_public)

    def make_ballots(X: Matrix, y: npt.NDArray[Any], entity_ids: npt.NDArray[Any] | None) -> Ballots:
        recorded = _Recorded(model.teacher_estimator, takes_missing_values=get_tags(model).input_tags.allow_nan)
        run: Any = clone(model)
        run.set_params(
            teacher=recorded,
            student=_LearnsNothing(),
            ledger=None,
            epsilon=None,
            checkpoints=None,
            data_changed=False,
            rounds=1,
            selection=None,
            n_queries=None,
            unit=None,
            noise=SimulationNoise(0),
            random_state=0 if model.random_state is None else model.random_state,
        )
        silos = None if silo_of is None or entity_ids is None else [silo_of[name] for name in entity_ids.tolist()]
        run.fit(X, y, X_public=queries.copy(), entity_ids=entity_ids, silos=silos)
        return recorded.cast[-1]

    return make_ballots


class _LearnsNothing(DummyClassifier):
    """A student of whatever rows the pipeline takes."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


@final
class _Recorded:
    """A recipe of teachers that keeps the ballots they cast."""

    def __init__(self, teacher: Any, *, takes_missing_values: bool) -> None:
        self.teacher = teacher
        self.takes_missing_values = takes_missing_values
        self.cast: list[Ballots] = []

    def ensemble(self, *, n_classes: int, seed: int, n_jobs: int | None, progress: bool) -> "TrainableTeachers":
        """Return teachers of the kind that is recorded."""
        teachers = ensemble_of(self.teacher, n_classes=n_classes, seed=seed, n_jobs=n_jobs, progress=progress)
        return _Recording(teachers, self.cast)


@final
class _Recording:
    """Teachers whose ballots are kept."""

    def __init__(self, teachers: TrainableTeachers, cast: list[Ballots]) -> None:
        self._teachers, self._cast = teachers, cast

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        return self._teachers.n_classes

    @property
    def unit(self) -> Any:
        """Whose change moves at most one teacher's ballots."""
        return self._teachers.unit

    def fit(self, X: Matrix, y: IntArray, shards: Shards) -> Self:
        """Train one teacher per shard."""
        self._teachers.fit(X, y, shards)
        return self

    def ballots(self, X_public: npt.NDArray[Any]) -> Ballots:
        """Return each teacher's vote on each row."""
        return self._teachers.ballots(X_public)

    def fit_ballots(
        self, X: Matrix, y: IntArray, shards: Shards, X_public: Matrix, checkpoints: str | Path | None = None
    ) -> Ballots:
        """Train, vote, keep the votes and forget."""
        ballots = self._teachers.fit_ballots(X, y, shards, X_public, checkpoints)
        self._cast.append(ballots.copy())
        return ballots
