"""The parameters of a `PATEClassifier`: what each may be, what they come to, and which go together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions, validate_parameter_constraints

from tutelage._internal.fitting import require_classifier
from tutelage._internal.validation import nearest, problems_in, shown
from tutelage.estimator.classes import class_of, question_of
from tutelage.exceptions import InvalidParameterError, UnknownParameterError
from tutelage.features.base import require_public_map
from tutelage.ledger import Ledger
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.methods import Method, NoisyMoments
from tutelage.methods.shortcuts import DEFAULTS, method_for
from tutelage.methods.tuned import DEFAULT_SHARE, MOST_SETTINGS
from tutelage.noise import NoiseSource, known_noise
from tutelage.students import NoisySumClassifier, default_student, student_named
from tutelage.students.selection import QuerySelector, selector_named

_OF_FIT = ("X", "y", "X_public", "entity_ids", "silos", "whole_rows")
_TUNED = ("method", "teacher", "features", "student", "student_features")
_OF_METHOD = ("teacher", "student")  # of these


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resolved:
    """The resolved parameters of a `PATEClassifier`: defaults and names are what they stand for; public."""

    method: Method  # with the student that it teaches
    teacher_map: Any | None  # what teachers see the rows through; None where they see them as they are
    student_map: Any | None
    same_map: bool  # whether the student is to see what the teachers see, whatever that becomes
    noise: NoiseSource

    @property
    def student(self) -> Any:
        """What the student is a clone of."""
        return NoisySumClassifier() if self.method.student is None else self.method.student


_Init = ParamSpec("_Init")


def _naming_unknown(init: Callable[_Init, None]) -> Callable[_Init, None]:
    """Return a constructor that refuses unknown parameters by name, with advice; its signature is unchanged."""
    known = [name for name in signature(init).parameters if name != "self"]

    @wraps(init)
    def checked(*args: _Init.args, **given: _Init.kwargs) -> None:
        problems = [
            f"`{name}` is not a parameter of PATEClassifier. "
            + ("Pass it to `fit`." if name in _OF_FIT else nearest(name, known))
            for name in given
            if name not in known
        ]
        if problems:
            raise UnknownParameterError(*problems)
        init(*args, **given)

    return checked


class Parameters(BaseEstimator):
    """The parameters, of which `PATEClassifier` has the documentation."""

    # scikit-learn's convention: one table of allowed values. Constraints across parameters are checked in `fit`.
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "method": [Method, None],
        "teacher": "no_validation",
        "n_teachers": [Interval(Integral, 1, None, closed="left"), None],
        "mechanism": [Mechanism, NoisySum, None],
        "student": "no_validation",
        "features": "no_validation",
        "student_features": [StrOptions({"rows"}), HasMethods("transform"), None],
        "classes": ["array-like", Mapping, None],
        "n_queries": [Interval(Integral, 1, None, closed="left"), None],
        "selection": [QuerySelector, str, None],
        "rounds": [Interval(Integral, 1, None, closed="left"), None],
        "unit": [str, None],
        "insist": ["boolean"],
        "ledger": [str, PathLike, Ledger, None],
        "question": [str, Real, "boolean", None],
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "budget": [Interval(Real, 0, None, closed="neither"), None],
        "data_changed": ["boolean"],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "public_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "checkpoints": [str, PathLike, None],
        "noise": "no_validation",
        "random_state": [Interval(Integral, 0, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "progress": ["boolean"],
        "tune": [list, tuple, None],
        "tune_share": [Interval(Real, 0, 1, closed="neither")],
    }

    @_naming_unknown
    def __init__(
        self,
        teacher: Any = None,
        *,
        method: Method | None = None,
        n_teachers: int | None = None,
        mechanism: Mechanism | NoisySum | None = None,
        student: Any = None,
        features: Any = None,
        student_features: Any = None,
        classes: npt.ArrayLike | Mapping[Any, Any] | None = None,
        n_queries: int | None = None,
        selection: QuerySelector | str | None = None,
        rounds: int | None = None,
        unit: str | None = None,
        ledger: str | Path | Ledger | None = None,
        question: str = "",
        epsilon: float | None = None,
        budget: float | None = None,
        data_changed: bool = False,
        insist: bool = False,
        delta: float = 1e-5,
        public_fraction: float | None = None,
        checkpoints: str | Path | None = None,
        noise: NoiseSource | None = None,
        random_state: int | None = None,
        n_jobs: int | None = None,
        progress: bool = False,
        tune: Sequence[Mapping[str, Any]] | None = None,
        tune_share: float = DEFAULT_SHARE,
    ) -> None:
        self.teacher = teacher
        self.method = method
        self.n_teachers = n_teachers
        self.mechanism = mechanism
        self.student = student
        self.features = features
        self.student_features = student_features
        self.classes = classes
        self.n_queries = n_queries
        self.selection = selection
        self.rounds = rounds
        self.unit = unit
        self.ledger = ledger
        self.question = question
        self.epsilon = epsilon
        self.budget = budget
        self.data_changed = data_changed
        self.insist = insist
        self.delta = delta
        self.public_fraction = public_fraction
        self.checkpoints = checkpoints
        self.noise = noise
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.progress = progress
        self.tune = tune
        self.tune_share = tune_share

    def resolved(self) -> Resolved:
        """Return what the parameters come to; nothing is trained or drawn.

        Raises
        ------
        InvalidParameterError
            If one is not what it must be, or they do not go together.
        """
        problems = list[str]()
        for name, allowed in Parameters._parameter_constraints.items():  # whatever table a subclass has
            problems += problems_in(lambda one=name, kind=allowed: _check_parameter(one, getattr(self, one), kind))
        if isinstance(self.classes, Mapping):
            problems += problems_in(lambda: class_of(self.classes))
        student_map = self._student_map()
        of_student = None if self.student_features is None else student_map  # otherwise that of `features` again
        for name, feature_map in (("features", self.features), ("student_features", of_student)):
            if feature_map is not None:
                problems += problems_in(
                    lambda one=name, its=feature_map: require_public_map(its, "PATEClassifier", one)
                )
        for named, name in ((student_named, self.student), (selector_named, self.selection)):
            if isinstance(name, str):
                problems += problems_in(lambda of=named, its=name: of(its))
        if not problems:  # otherwise they may be anything
            problems += problems_in(self._method)
        problems += problems_in(lambda: known_noise(self.noise, "PATEClassifier"))
        if problems:
            raise InvalidParameterError(*dict.fromkeys(problems))
        run = Resolved(
            method=self._method(),
            teacher_map=self.features,
            student_map=student_map,
            same_map=self.student_features is None,
            noise=known_noise(self.noise, "PATEClassifier"),
        )
        if problems := list(self._problems_together(run)):
            raise InvalidParameterError(*problems)
        return run

    def resolved_settings(self) -> list[Resolved]:
        """Return what the parameters come to, and after that what each setting of `tune` comes to.

        Raises
        ------
        InvalidParameterError
            If one is not what it must be, or they do not go together.
        """
        run = self.resolved()
        if self.tune is None:
            return [run]
        if not 2 <= len(self.tune) <= MOST_SETTINGS:
            raise InvalidParameterError(
                f"`tune` of PATEClassifier must be a list of 2 to {MOST_SETTINGS} settings. Got {len(self.tune)}."
            )
        for setting in self.tune:
            strange = setting if not isinstance(setting, Mapping) else [name for name in setting if name not in _TUNED]
            if strange or not isinstance(setting, Mapping):
                raise InvalidParameterError(
                    f"Each setting in `tune` of PATEClassifier must be a mapping whose names are among "
                    f"{', '.join(_TUNED)}. Got {shown(strange)}."
                )
        if run.method.mechanism is not None:
            raise InvalidParameterError(
                "`tune` of PATEClassifier finds the noise of its sums by `epsilon`. Leave out `mechanism`."
            )
        runs = [self.with_setting(setting).resolved() for setting in self.tune]
        if not all(isinstance(one.method, NoisyMoments) for one in (run, *runs)):
            raise InvalidParameterError(
                "`tune` of PATEClassifier is for ballots of VectorBallots. For other teachers, tune on public rows "
                "in place of it."
            )
        return [run, *runs]

    def with_setting(self, setting: Mapping[str, Any]) -> Self:
        """Return a shallow copy that has the parameters of one setting of `tune`, and no `tune`.

        A `method` of the setting replaces the shortcuts of the estimator. A shortcut of the setting changes its method.
        """
        changes = {**setting, "tune": None}
        if "method" in setting:
            changes = DEFAULTS | changes
        elif self.method is not None and not setting.keys().isdisjoint(_OF_METHOD):
            of_method = {name: changes.pop(name) for name in _OF_METHOD if name in setting}
            changes["method"] = _changed(self.method, **of_method)
        elif setting.get("teacher") is not None:
            changes["rounds"] = None  # which are the teacher's
        return copy(self).set_params(**changes)

    def _method(self) -> Method:
        """Return the method, with the student that it teaches."""
        shortcuts = {name: getattr(self, name) for name in DEFAULTS}
        method = method_for(self.method, by_votes=self.checkpoints is not None, **shortcuts)
        student = student_named(method.student) if isinstance(method.student, str) else method.student
        if student is None and not method.closed_form:
            student = default_student(public_features=self._student_map() is not None)
        if student is not None:
            require_classifier(student, "student", "PATEClassifier")
        return replace(method, student=student)  # pyright: ignore[reportArgumentType]

    def _question(self) -> Any:
        """Return the question by which answers are remembered."""
        return question_of(self.question, self.classes)

    def _student_map(self) -> Any | None:
        if isinstance(self.student_features, str):
            return None
        return self.features if self.student_features is None else self.student_features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = takes_missing_values(self._method(), self.features, self._student_map())
        tags.non_deterministic = True  # privacy noise is fresh in every fit, whatever the random_state
        return tags

    def _problems_together(self, run: Resolved) -> Iterator[str]:
        """Yield problems of parameters that do not go together."""
        if self.ledger is None and self.data_changed:
            yield "`data_changed` of PATEClassifier is about a ledger; name its file in `ledger`."
        if run.method.mechanism is not None and self.epsilon is not None:
            yield (
                "`epsilon` and `mechanism` of PATEClassifier both determine how much noise there is. Pass one of them; "
                "what a `ledger` may hold in all is its `budget`."
            )
        if self.budget is not None and self.ledger is None:
            yield (
                "`budget` of PATEClassifier is what a `ledger` may hold in all; name its file. For one fit, `epsilon` "
                "is enough."
            )
        if self.checkpoints is not None and self.random_state is None:
            yield (
                "`checkpoints` of PATEClassifier needs a `random_state`; without one the next fit has other shards and "
                "reuses nothing."
            )
        if run.method.by_predictions and not hasattr(run.student, "predict_proba"):
            yield (
                "`student` of PATEClassifier must have `predict_proba`, because later rounds use its predictions. Got "
                f"a {type(run.student).__name__}."
            )


def _changed(method: Any, *, teacher: Any = None, **student: Any) -> Method:
    """Return a method with another student, or the method of another teacher with the same student and noise."""
    if teacher is None:
        return replace(method, **student)
    return method_for(None, teacher=teacher, **({"mechanism": method.mechanism, "student": method.student} | student))


def _check_parameter(name: str, value: object, allowed: Any) -> None:
    """Refuse what scikit-learn's table does not allow, without quoting what may be rows, ids or votes."""
    counted = isinstance(value, bool | np.bool_) and "boolean" not in allowed  # True would pass for the integer 1
    complaint = ""
    try:
        validate_parameter_constraints({name: allowed}, {name: object() if counted else value}, "PATEClassifier")
    except (ValueError, TypeError, OverflowError) as error:
        complaint = str(error)
    if complaint:  # out here: raised while it is handled, the complaint would be carried along
        rule = complaint.partition(" Got ")[0] if " Got " in complaint else f"`{name}` of PATEClassifier is unusable."
        raise InvalidParameterError(f"{rule} Got {shown(value)}.")


def takes_missing_values(method: Method, teacher_map: Any | None, student_map: Any | None) -> bool:
    """Return whether missing cells go through the maps or, where there is none, into teachers and student."""
    teacher = method.takes_missing_values if teacher_map is None else _allows_nan(teacher_map)
    student = NoisySumClassifier() if method.student is None else method.student
    return teacher and _allows_nan(student if student_map is None else student_map)


def _allows_nan(estimator: Any) -> bool:
    first = estimator.steps[0][1] if isinstance(estimator, Pipeline) else estimator
    return get_tags(first).input_tags.allow_nan
