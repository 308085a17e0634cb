"""The parameters of a `PATEClassifier`: what each may be, the method that they describe, and which go together."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial, wraps
from inspect import signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from tutelage._internal.fitting import require_classifier
from tutelage._internal.validation import integer_at_least, nearest, positive, probability, problems_in
from tutelage.digests import canonical
from tutelage.exceptions import InvalidParameterError, Problem, UnknownParameterError, shown
from tutelage.features.base import require_public_map
from tutelage.features.schema import Schema
from tutelage.goals import Goal
from tutelage.ledger import Ledger
from tutelage.ledger.cohorts import require_release_name
from tutelage.ledger.ledger import DEFAULT_DELTA
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.methods import Method
from tutelage.methods.base import takes_missing_values
from tutelage.methods.shortcuts import DEFAULTS, method_for
from tutelage.noise import NoiseSource, known_noise
from tutelage.students import NoisySumClassifier, default_student, student_named
from tutelage.students.base import weight_parameter
from tutelage.students.selection import QuerySelector
from tutelage.terms import Asked

_OWNER = "PATEClassifier"
_OF_FIT = ("X", "y", "X_public", "y_public", "entity_ids", "silos", "whole_rows")
# Limits of parameters; the record of the method checks its own.
_TYPES: dict[str, tuple[Any, str]] = {
    "public": (Schema | None, "a Schema"),
    "unit": (str | None, "a str"),
    "release": (str | None, "a str"),
    "ledger": (str | PathLike | Ledger | None, "a path or a Ledger"),
    "question": (str | Real | np.bool_ | None, "a str"),
    "checkpoints": (str | PathLike | None, "a path"),
    "n_jobs": (Integral | None, "an integer"),
    **dict.fromkeys(("insist", "data_changed", "progress"), (bool | np.bool_, "True or False")),
}
_NUMBERS: dict[str, Callable[[Any, str, str], object]] = {
    **dict.fromkeys(("epsilon", "budget"), positive),
    "delta": probability,
    "releases": lambda value, name, owner: integer_at_least(value, 1, name, owner),
    "random_state": lambda value, name, owner: integer_at_least(value, 0, name, owner),
}


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
        """The student that is cloned."""
        return NoisySumClassifier() if self.method.student is None else self.method.student

    @property
    def takes_missing_values(self) -> bool:
        """Whether missing cells go through the maps or, where there is none, into teachers and student."""
        teachers, student = self.teacher_map, self.student if self.student_map is None else self.student_map
        of_teachers = self.method.takes_missing_values if teachers is None else takes_missing_values(teachers)
        return of_teachers and takes_missing_values(student)


_Init = ParamSpec("_Init")


def _naming_unknown(init: Callable[_Init, None]) -> Callable[_Init, None]:
    """Return a constructor that refuses unknown parameters by name, with advice; its signature is unchanged."""
    known = list(signature(init).parameters)[1:]

    @wraps(init)
    def checked(*args: _Init.args, **given: _Init.kwargs) -> None:
        if unknown := [name for name in given if name not in known]:
            raise UnknownParameterError(
                *(
                    Problem(
                        f"{_OWNER}.{name}",
                        "be left out: there is no such parameter",
                        fix="Pass it to `fit`." if name in _OF_FIT else nearest(name, known),
                    )
                    for name in unknown
                )
            )
        init(*args, **given)

    return checked


@dataclass(eq=False, repr=False)
class Parameters(BaseEstimator):
    """The parameters, of which `PATEClassifier` has the documentation."""

    teacher: Any = None
    _: KW_ONLY
    method: Method | None = None
    public: Schema | None = None
    n_teachers: int | None = None
    mechanism: Mechanism | NoisySum | None = None
    student: Any = None
    features: Any = None
    student_features: Any = None
    classes: npt.ArrayLike | Mapping[Any, Any] | None = None
    n_queries: int | None = None
    selection: QuerySelector | str | None = None
    rounds: int | None = None
    unit: str | None = None
    ledger: str | Path | Ledger | None = None
    question: str = ""
    epsilon: float | None = None
    budget: float | None = None
    releases: int = 1
    release: str | None = None
    data_changed: bool = False
    insist: bool = False
    delta: float | None = None
    checkpoints: str | Path | None = None
    noise: NoiseSource | None = None
    random_state: int | None = None
    n_jobs: int | None = None
    progress: bool = False
    goal: str = "accuracy"
    class_weight: Mapping[Any, float] | None = None
    _of_numbers: ClassVar[bool] = False
    _owner: ClassVar[str] = _OWNER  # as errors call the estimator

    def resolved(self) -> Resolved:
        """Return what the parameters come to; nothing is trained or drawn.

        Raises
        ------
        InvalidParameterError
            If one is not what it must be, or they do not go together.
        """
        if problems := list(self._problems()):
            raise InvalidParameterError(*problems)
        run = self._unchecked()
        if problems := list(self._problems_together(run)):
            raise InvalidParameterError(*problems)
        return run

    def _unchecked(self) -> Resolved:
        """Return the method, with the student that it teaches, and what else the parameters come to."""
        student_map = self.features if self.student_features is None else self.student_features
        student_map = None if isinstance(student_map, str) else student_map
        shortcuts = {name: getattr(self, name) for name in DEFAULTS}
        method = method_for(
            self.method, by_votes=self.checkpoints is not None, by_schema=self.public is not None, **shortcuts
        )
        student = student_named(method.student) if isinstance(method.student, str) else method.student
        if student is None and not method.closed_form:
            student = default_student(public_features=student_map is not None)
        if student is not None:
            require_classifier(student, "student", self._owner)
        return Resolved(
            method=replace(method, student=student),  # pyright: ignore[reportArgumentType]
            teacher_map=self.features,
            student_map=student_map,
            same_map=self.student_features is None,
            noise=known_noise(self.noise, self._owner),
        )

    def _problems(self) -> Iterator[Problem]:
        """Yield problems of single parameters; none quotes what may be rows, ids or votes."""
        for name, (kind, rule) in _TYPES.items():
            if not isinstance(value := getattr(self, name), kind):
                yield Problem(f"{self._owner}.{name}", f"be {rule}", shown(value))
        for name, check in _NUMBERS.items():
            if (value := getattr(self, name)) is not None:
                yield from problems_in(partial(check, value, name, self._owner))
        if self.classes is not None and (isinstance(self.classes, str) or not hasattr(self.classes, "__len__")):
            yield Problem(f"{self._owner}.classes", "be a list of class values, or a mapping", shown(self.classes))
        elif isinstance(self.classes, Mapping):
            yield from problems_in(partial(class_of, self.classes))
        for name, feature_map in (("features", self.features), ("student_features", self.student_features)):
            if name == "student_features" and isinstance(feature_map, str):
                if feature_map != "rows":
                    yield Problem(f"{self._owner}.{name}", "be 'rows' or a public feature map", shown(feature_map))
            elif feature_map is not None:
                yield from problems_in(partial(require_public_map, feature_map, self._owner, name))
        yield from problems_in(partial(Goal, self.goal))
        yield from problems_in(self._unchecked)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._unchecked().takes_missing_values
        tags.non_deterministic = True  # privacy noise is fresh in every fit, whatever the random_state
        return tags

    def _asked(self, method: Method, delta: float) -> Asked:
        given, named = method.mechanism is not None, self.release is not None
        return Asked(self.epsilon, self.budget, self.releases, delta, given, named)

    def _problems_together(self, run: Resolved) -> Iterator[Problem]:
        """Yield problems of parameters that do not go together."""
        if self.ledger is None and self.data_changed:
            yield Problem(
                f"{self._owner}.data_changed", "come with $ledger, because only a ledger knows the earlier data"
            )
        if run.method.of_numbers and not self._of_numbers:
            kind = type(run.method).__name__
            yield Problem(
                f"{self._owner}.method", "predict classes", f"{kind}, which predicts numbers", "Use PATERegressor."
            )
        elif run.method.needs_schema and self.public is None:
            yield Problem(f"{self._owner}.public", "be a Schema for Additive, which learns without public rows")
        elif self.public is not None and not run.method.needs_schema:
            kind = type(run.method).__name__
            yield Problem(
                f"{self._owner}.method", "be Additive, the default, for a public schema", kind, "Leave it out."
            )
        elif self.public is not None:
            extra = {"features": self.features, "student_features": self.student_features}
            for name in (name for name, value in extra.items() if value):
                yield Problem(
                    f"{self._owner}.{name}", "be left out: it needs public rows, and $public takes their place"
                )
        asked = self._asked(run.method, DEFAULT_DELTA)
        yield from asked.problems(self._owner, has_ledger=self.ledger is not None)
        if self.release is not None and self.ledger is None:
            must = "come with $ledger, because it is the name of a release through a ledger"
            yield Problem(f"{self._owner}.release", must, fix="Name the file of the ledger.")
        if self.release is not None:
            yield from problems_in(partial(require_release_name, self.release))
        if self.checkpoints is not None and self.random_state is None:
            must = "come with $random_state; without one the next fit has other shards and reuses nothing"
            yield Problem(f"{self._owner}.checkpoints", must)
        goal, method, student = Goal(self.goal), run.method, run.student
        weighs = self.class_weight is not None or goal.name == "balanced_accuracy"
        name = None if method.closed_form else weight_parameter(student)
        if weighs and not (method.takes_weights if name is None else student.get_params()[name] is None):
            yield Problem(
                f"{self._owner}.{'goal' if self.class_weight is None else 'class_weight'}",
                "come with a method or student that takes class weights: NoisyMoments, Additive, or a classifier with "
                "`class_weight`",
                f"{type(method).__name__} and {type(student).__name__}",
                "Choose one, such as RandomForestClassifier(), and leave its own `class_weight` unset.",
            )
        if (goal.ranks or method.uses_predictions) and not hasattr(student, "predict_proba"):
            reason = f"{goal.title} ranks rows" if goal.ranks else "later rounds use its predictions"
            must = f"have `predict_proba`, because {reason}"
            yield Problem(f"{self._owner}.student", must, f"a {type(student).__name__}")


Parameters.__init__ = _naming_unknown(Parameters.__init__)


def _changed(method: Any, *, teacher: Any = None, **student: Any) -> Method:
    """Return a method with another student, or the method of another teacher with the same student and noise."""
    if teacher is None:
        return replace(method, **student)
    return method_for(None, teacher=teacher, **({"mechanism": method.mechanism, "student": method.student} | student))


def class_of(classes: Any) -> dict[Any, Any]:
    """Return the class of each label: of classes in a list the label itself, in a mapping those that list it.

    Raises
    ------
    InvalidParameterError
        If a mapping does not give each class a list of labels, each once, or its classes are of several types.
    """
    if not isinstance(classes, Mapping):
        return {label: label for label in np.asarray(classes).tolist()}
    lists = [labels if isinstance(labels, list | tuple) else [] for labels in classes.values()]
    merged = [label for labels in lists for label in labels]
    once = len(set(map(str, merged))) == len(merged) and all(isinstance(label, Hashable) for label in merged)
    # Numbers beside text would become text, and be found no more.
    if not (all(lists) and once and len(set(map(type, classes))) == 1):
        raise InvalidParameterError(
            Problem(
                "PATEClassifier.classes",
                "give each class, all text or all numbers, the list of its labels, each label once, "
                "if it is a mapping: {'yes': ['<30', '>30'], 'no': ['NO']}",
            )
        )
    return {label: name for name, labels in classes.items() for label in labels}


def question_of(question: Any, classes: Any) -> Any:
    """Return the question as answers are remembered by it: labels merged in another way are another question."""
    if not isinstance(classes, Mapping):
        return question
    return canonical([question, {str(name): sorted(map(str, labels)) for name, labels in classes.items()}])
