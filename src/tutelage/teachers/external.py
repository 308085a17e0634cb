"""Teachers trained elsewhere: any callable that votes (an HTTP model, an LLM prompt), and ballots from files."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike

from tutelage._internal.files import ArrayForm, name_in, read_arrays
from tutelage._internal.gate import user_path
from tutelage._internal.streams import own_streams
from tutelage._internal.typing import ABSTAIN, Array, Ballots, is_series
from tutelage._internal.validation import integer_at_least, require_instance
from tutelage.exceptions import (
    InvalidBallotError,
    InvalidDataError,
    InvalidParameterError,
    TeacherTrainingError,
)
from tutelage.privacy import PrivacyUnit
from tutelage.teachers.base import Ensemble, ballots_of_teachers
from tutelage.teachers.parallel import MachineFaultError, result_without_quotes, without_lost

Teacher = Callable[[Any], ArrayLike]
_BALLOTS = "`ballots` of RecordedTeachers"


@final
class CallableTeachers(Ensemble):
    """One callable per teacher: a model behind HTTP, a prompt with one person's examples, a function of yours.

    The caller is responsible for privacy: each callable may know the data of its own shard and of no other, and
    must be a function of that shard and public things, with random numbers of its own if it needs any. Two teachers
    behind one model that learned from both shards, or a prompt with rows of several, void the guarantee. Each callable
    gets a copy of the queries, so changes it makes to them stay local.

    Parameters
    ----------
    teachers : sequence of callables
        Each takes public rows, as they were asked, to one class index, or −1, per row.
    n_classes : int
        Number of classes voted on.
    unit : PrivacyUnit
        Whose change moves at most one teacher: `Shards.unit` of the partition that they know, for example.
    max_workers : int
        Teachers asked at once, in threads: for teachers that mostly wait for a remote service.

    Examples
    --------
    >>> import numpy as np
    >>> from tutelage.privacy import ONE_TEACHER
    >>> from tutelage.teachers import CallableTeachers
    >>> def in_the_word(examples):
    ...     return lambda texts: [int(any(word in text for word in examples)) for text in texts]
    >>> prompts = [in_the_word(["win"]), in_the_word(["cash", "free"])]
    >>> teachers = CallableTeachers(prompts, n_classes=2, unit=ONE_TEACHER)
    >>> teachers.ballots(np.array(["win cash", "see you at six"]))
    array([[1, 0],
           [1, 0]], dtype=int16)
    """

    def __init__(
        self,
        teachers: Sequence[Teacher],
        *,
        n_classes: int,
        unit: PrivacyUnit,
        max_workers: int = 1,
    ) -> None:
        super().__init__(n_classes)
        if len(teachers) == 0 or not all(callable(teacher) for teacher in teachers):
            raise InvalidParameterError("CallableTeachers.teachers", "be one or more callables")
        self._teachers = list(teachers)
        require_instance(
            "CallableTeachers.unit", "be a PrivacyUnit, such as Shards.unit", unit, PrivacyUnit
        )
        self._unit = unit
        self._max_workers = integer_at_least(max_workers, 1, "max_workers", "CallableTeachers")

    def ballots(self, X_public: Array) -> Ballots:
        """Return each teacher's class index, or −1, on each row: shape (teachers, rows); private.

        A teacher that raises, or does not return one class index, or −1, per row, abstains on all of them; a
        `TeacherLostWarning` says that there is one. An `OSError` (a lost connection or a timeout, for example) or a
        `MemoryError` may be due to other people, so no teacher abstains because of it: the call fails.
        """

        def ballot_or_error(
            number: int, teacher: Teacher
        ) -> tuple[int, Ballots | TeacherTrainingError]:
            try:
                return number, self._ballot(number, teacher, X_public)
            except MachineFaultError:
                raise
            except (TeacherTrainingError, InvalidBallotError) as error:
                return number, TeacherTrainingError(str(error))

        n_teachers = len(self._teachers)
        with ThreadPoolExecutor(self._max_workers) as threads:
            ballots = threads.map(ballot_or_error, range(n_teachers), self._teachers)
            return ballots_of_teachers(without_lost(ballots), n_teachers, len(X_public))

    def _ballot(self, number: int, teacher: Teacher, X_public: Array) -> Ballots:
        """Return the answer of one teacher, shape (rows,)."""

        def ask() -> Array:
            return np.asarray(teacher(deepcopy(X_public)))

        # Several threads would share the streams of the process.
        with own_streams(number, 0) if self._max_workers == 1 else nullcontext():
            answer = result_without_quotes(f"Teacher {number} of CallableTeachers", ask)
        owner = f"The answer of teacher {number} of CallableTeachers"
        return _as_ballots(answer[None], len(X_public), self._n_classes, owner)[0]


@final
class RecordedTeachers(Ensemble):
    """Ballots that were cast before on rows that are known, by teachers that need not be here.

    Parameters
    ----------
    ballots : integer array of shape (teachers, rows)
        Class index per teacher and row, or −1 for an abstention; private.
    X_public : array of shape (rows, ...)
        The public rows that they were cast on.
    n_classes : int
        Number of classes voted on.
    unit : PrivacyUnit
        Whose change moves at most one teacher's ballots.

    """

    def __init__(
        self,
        ballots: ArrayLike,
        X_public: ArrayLike,
        *,
        n_classes: int,
        unit: PrivacyUnit,
    ) -> None:
        super().__init__(n_classes)
        require_instance(
            "RecordedTeachers.unit", "be a PrivacyUnit, such as Shards.unit", unit, PrivacyUnit
        )
        self._unit = unit
        keys = _keys(X_public)
        self._ballots = _as_ballots(ballots, len(keys), n_classes, _BALLOTS)
        self._places = dict[object, int]()
        for place, key in enumerate(keys):
            first = self._places.setdefault(key, place)
            if first != place and np.any(self._ballots[:, first] != self._ballots[:, place]):
                raise InvalidDataError(
                    "`X_public` of RecordedTeachers holds a row twice, with other ballots."
                )

    @classmethod
    def load(
        cls,
        path: str | Path,
        X_public: ArrayLike,
        *,
        n_classes: int,
        unit: PrivacyUnit,
        array: str = "ballots",
    ) -> Self:
        """Read ballots from the array `array` of an npz file, shape (teachers, rows); never unpickles."""
        arrays = read_arrays(user_path(path))
        name_in(arrays, path, array, usual=array)
        _check_form(arrays.form(array), len(np.asarray(X_public)), _BALLOTS)
        return cls(arrays[array], X_public, n_classes=n_classes, unit=unit)

    def ballots(self, X_public: ArrayLike) -> Ballots:
        """Return the ballots that were cast on these rows, in any order, shape (teachers, rows); private."""
        try:
            places = [self._places[key] for key in _keys(X_public)]
        except KeyError:
            raise InvalidDataError(
                "A row of `X_public` is not among those that the ballots were cast on."
            ) from None
        return self._ballots[:, places]


def _as_ballots(ballots: ArrayLike, n_rows: int, n_classes: int, what: str) -> Ballots:
    """Return ballots of shape (teachers, rows) as they are kept; a refusal quotes none."""
    votes = np.asarray(ballots)
    _check_form(votes, n_rows, what)
    if np.any((votes < ABSTAIN) | (votes >= n_classes)):
        raise InvalidBallotError(
            f"{what} must be {ABSTAIN} (abstain) or a class index below {n_classes}."
        )
    return votes.astype(np.int16)


def _check_form(ballots: Array | ArrayForm, n_rows: int, what: str) -> None:
    if len(ballots.shape) != 2 or ballots.shape[1] != n_rows or ballots.dtype.kind not in "iu":
        raise InvalidBallotError(
            f"{what} must be integers, one for each of the {n_rows} rows asked."
        )


def _keys(X_public: ArrayLike) -> list[object]:
    """Return what tells rows apart by value: numbers alike are alike whatever their type, and text is text."""
    rows = np.asarray(X_public)
    if rows.ndim == 0:
        raise InvalidDataError("`X_public` must hold rows. Got a single value.")
    return [_frozen(row) for row in rows.tolist()]


def _frozen(value: object) -> object:
    if is_series(value):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None  # which is not equal to itself
    if not isinstance(value, str | int | float):
        raise InvalidDataError(
            f"A row of `X_public` must hold numbers or text. Got a {type(value).__name__}."
        )
    return value
