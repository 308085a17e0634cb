"""The parameters that both estimators have: what each may be, and which go together."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from functools import partial, wraps
from inspect import signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, ParamSpec, Self, cast, final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from tutelage._internal.fitting import require_classifier
from tutelage._internal.records import Entries, by_keywords, settable
from tutelage._internal.validation import (
    integer_at_least,
    nearest,
    positive,
    probability,
    problems_in,
)
from tutelage.exceptions import InvalidParameterError, Problem, UnknownParameterError, quote
from tutelage.features.base import require_public_map
from tutelage.features.columns import ColumnMap, LearnedMap, require_no_columns
from tutelage.features.schema import Schema
from tutelage.ledger import Ledger
from tutelage.ledger.ledger import DEFAULT_DELTA
from tutelage.ledger.people import require_release_name
from tutelage.methods import METHODS, AdditiveMean, Method, TeacherVotes
from tutelage.methods.base import with_student
from tutelage.methods.needs import Offered, unmet
from tutelage.noise import NoiseSource, known_noise
from tutelage.people.groups import Groups
from tutelage.release import Once
from tutelage.students import NoisySumClassifier
from tutelage.students.base import steps_of
from tutelage.students.images import ImageStudent
from tutelage.targets import Target
from tutelage.teachers.base import is_recipe
from tutelage.terms import Asked

Columns = ColumnMap | Mapping[str, str | Sequence[Any]] | None

# Limits of parameters; the record of the method checks its own.
_SWITCH = (bool | np.bool_, "True or False")
_TYPES: dict[str, tuple[Any, str]] = {
    "unit": (str | None, "a str"),
    "ledger": ((str, PathLike, Ledger, NoneType), "a path or a Ledger"),
    "question": (str | Real | np.bool_ | None, "a str"),
    "n_jobs": (Integral | None, "an integer"),
    "progress": _SWITCH,
}
_TYPES_OF_FIT: dict[str, tuple[Any, str]] = {
    "release": (str | None, "a str"),
    "data_changed": _SWITCH,
    "insist": _SWITCH,
    "checkpoints": ((str, PathLike, NoneType), "a path"),
    "report": (bool | np.bool_ | None, "True, False or None"),
    "holdout": (Real, "a number"),
}


def _check_jobs(value: object, name: str, owner: str) -> None:
    if isinstance(value, Integral) and value == 0:
        raise InvalidParameterError(f"{owner}.{name}", "be at least 1, or -1 for all cores", "0")


_NUMBERS: dict[str, Callable[[Any, str, str], object]] = {
    "epsilon": positive,
    "budget": positive,
    "delta": probability,
    "releases": lambda value, name, owner: integer_at_least(value, 1, name, owner),
    "random_state": lambda value, name, owner: integer_at_least(value, 0, name, owner),
    "n_jobs": _check_jobs,
}
ARGUMENTS_OF_FIT = (
    "X",
    "y",
    "X_public",
    "y_public",
    "entity_ids",
    "silos",
    "whole_rows",
    "tiers",
    "groups",
    *_TYPES_OF_FIT,
)


@final
@by_keywords
class Resolved:
    """The resolved parameters of an estimator, with defaults and names replaced by what they stand for; public."""

    method: Method  # with the student that it teaches
    once: Once
    schema: Schema | None  # in place of public rows
    # The kinds of named columns; None if public rows show them.
    columns: Columns
    # The map that teachers see the rows through; None if they see them as they are.
    teacher_map: Any
    student_map: Any
    # Whether the student sees rows through the map of the teachers, also if it is chosen later.
    same_map: bool
    noise: NoiseSource
    groups: Groups | None = None  # that a test report tells apart

    @property
    def trains(self) -> bool:
        """Whether teachers are trained, each on a shard of the rows."""
        return self.method.needs.shards

    @property
    def student(self) -> Any:
        """The student that is cloned."""
        if self.method.student is None:
            return NoisySumClassifier()
        return self.method.student

    @property
    def allow_nan(self) -> bool:
        """Whether missing cells go through the maps or, where there is none, into teachers and student."""
        if self.teacher_map is not None:
            of_teachers = _takes_missing_values(self.teacher_map)
        elif self.trains:
            of_teachers = _takes_missing_values(getattr(self.method, "teacher", None))
        else:
            of_teachers = True  # the default map of people takes them
        if self.student_map is not None:
            return of_teachers and _takes_missing_values(self.student_map)
        if self.same_map and not self.trains:
            return of_teachers
        return of_teachers and _takes_missing_values(self.student)


_Init = ParamSpec("_Init")


def naming_unknown(init: Callable[_Init, None]) -> Callable[_Init, None]:
    """Return a constructor that refuses unknown parameters by name, with advice; its signature is unchanged."""
    known = list(signature(init).parameters)[1:]
    owner = init.__qualname__.partition(".")[0]

    @wraps(init)
    def checking_init(*args: _Init.args, **given: _Init.kwargs) -> None:
        UnknownParameterError.raise_for(
            Problem(
                f"{owner}.{name}",
                "be left out: there is no such parameter",
                fix=_place_of(name, known),
            )
            for name in given
            if name not in known
        )
        init(*args, **given)

    return checking_init


def _problems_of_types(
    owner: str, settings: object, types: Mapping[str, tuple[Any, str]]
) -> Iterator[Problem]:
    """Yield problems of settings that are not of their type."""
    for name, (kind, rule) in types.items():
        value = getattr(settings, name)
        if not isinstance(value, kind):
            yield Problem(f"{owner}.{name}", f"be {rule}", quote(value))


def _place_of(name: str, known: list[str]) -> str:
    """Return advice on where a parameter belongs that no estimator has."""
    if name in ARGUMENTS_OF_FIT:
        return "Pass it to `fit`."
    if name == "public":
        return "Pass a Schema as $columns, and public rows to `fit`."
    # `TeacherVotes` first, for settings that methods share.
    for kind in (TeacherVotes, *METHODS.values(), AdditiveMean):
        if name in signature(kind).parameters:
            return f"It is a setting of a method. Pass it as method={kind.__name__}({name}=...)."
    return nearest(name, known)


@settable
class Parameters(BaseEstimator):
    """The parameters that both estimators have; `PATEClassifier` documents them."""

    epsilon: float | None = None
    _: KW_ONLY
    delta: float | None = None
    budget: float | None = None
    releases: int = 1
    ledger: str | Path | Ledger | None = None
    unit: str | None = None
    question: str = ""
    method: Method | None = None
    columns: Schema | Columns = None
    noise: NoiseSource | None = None
    random_state: int | None = None
    n_jobs: int | None = None
    progress: bool = False
    features = cast("Any", None)  # a parameter of a classifier, so without an annotation here
    _owner: ClassVar[str]  # as errors call the estimator
    _columns: ClassVar[tuple[Any, str]]  # the types of `columns`, and what errors say of them

    @property
    @abstractmethod
    def _target(self) -> Target:
        """The classes or numbers that are learned."""

    @abstractmethod
    def _problems_of_target(self) -> Iterator[Problem]:
        """Yield problems of the parameters that describe the target."""

    @property
    @abstractmethod
    def _default_method(self) -> Method:
        """The method if `method` is None."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of a method by its name, as in ``method__teacher__max_depth``.

        Other estimators that share the method keep it as it is.

        Parameters
        ----------
        **params
            Parameters of the estimator or, after two underscores, of a parameter.
        """
        own = Entries()
        of_method = Entries()
        for name, value in params.items():
            first, _, rest = name.partition("__")
            if first == "method" and rest:
                of_method[rest] = value
            else:
                own[name] = value
        super().set_params(**own)
        if of_method:
            self.method = self.method_meant().with_params(**of_method)
        return self

    def resolved(self, once: Once = Once(), **rows: bool) -> Resolved:  # noqa: B008
        """Return the parameters with defaults and names resolved; nothing is trained or drawn.

        Parameters
        ----------
        once : Once, optional
            What is true of one fit alone.
        **rows : bool
            Which rows a fit has for its method, by the names of `Offered`. Default: those that every method takes.

        Raises
        ------
        InvalidParameterError
            If one is not what it must be, or they do not go together.
        """
        InvalidParameterError.raise_for(
            [
                *self._problems(),
                *_problems_of_types(f"{self._owner}.fit", once, _TYPES_OF_FIT),
            ]
        )
        run = self._unchecked(once)
        self._check_together(run, **rows)
        return run

    def _check_together(self, run: Resolved, **rows: bool) -> None:
        """Refuse a method that needs other rows, or parameters that do not go together."""
        named = run.once.release is not None
        offered = Offered(self._target, schema=self._has_schema, name=named, **rows)
        InvalidParameterError.raise_for(
            [
                *unmet(run.method, offered, self._owner),
                *self._problems_together(run),
            ]
        )

    @property
    def _has_schema(self) -> bool:
        return isinstance(self.columns, Schema)

    def method_meant(self) -> Method:
        """Return the method as given, or the default one."""
        if isinstance(self.method, Method):
            return self.method
        if self.method is None:
            return self._default_method
        raise InvalidParameterError(
            f"{self._owner}.method",
            "be a method of tutelage.methods, such as NoisyMoments() or TeacherVotes(teacher)",
            quote(self.method),
        )

    def _unchecked(self, once: Once = Once()) -> Resolved:  # noqa: B008
        """Return the resolved parameters, without the checks of `resolved`."""
        method = self.method_meant()
        student_map = method.student_features
        same_map = student_map is None
        if same_map:
            student_map = self.features
        if isinstance(student_map, str):
            student_map = None
        method = with_student(method, public_features=student_map is not None)
        if method.student is not None:
            require_classifier(method.student, "student", type(method).__name__)
        if same_map and isinstance(method.student, ImageStudent):
            same_map = False
            student_map = None
        schema = None
        columns = None
        if isinstance(self.columns, Schema):
            schema = self.columns
        else:
            columns = self.columns
        return Resolved(
            method=method,
            once=once,
            schema=schema,
            columns=columns,
            teacher_map=self.features,
            student_map=student_map,
            same_map=same_map,
            noise=known_noise(self.noise, self._owner),
        )

    def _problems(self) -> Iterator[Problem]:
        """Yield problems of single parameters; none quotes what may be rows, ids or votes."""
        yield from _problems_of_types(self._owner, self, _TYPES)
        for name, check in _NUMBERS.items():
            value = getattr(self, name)
            if hasattr(value, "fit"):
                yield Problem(
                    f"{self._owner}.{name}",
                    "be a number",
                    f"a {type(value).__name__}",
                    "A teacher is a setting of a method: method=TeacherVotes(teacher).",
                )
                continue
            if value is not None or name == "releases":
                yield from problems_in(partial(check, value, name, self._owner))
        yield from self._problems_of_target()
        kind, rule = self._columns
        yield from _problems_of_types(self._owner, self, {"columns": ((kind, NoneType), rule)})
        if not isinstance(self.features, LearnedMap | None):
            for check in (require_public_map, require_no_columns):
                yield from problems_in(partial(check, self.features, self._owner, "features"))
        yield from problems_in(self._unchecked)

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._unchecked().allow_nan
        # Privacy noise is fresh in every fit, whatever the random_state.
        tags.non_deterministic = True
        return tags

    def _asked(self, run: Resolved, delta: float) -> Asked:
        return Asked(
            self.epsilon,
            self.budget,
            self.releases,
            delta,
            given=run.method.mechanism is not None,
            named=run.once.release is not None,
        )

    def _problems_together(self, run: Resolved) -> Iterator[Problem]:
        """Yield problems of parameters that do not go together."""
        once = run.once
        if self.ledger is None and once.data_changed:
            yield Problem(
                f"{self._owner}.fit.data_changed",
                "come with $ledger, because only a ledger knows the earlier data",
                fix="Set $ledger, or leave it out.",
            )
        if run.schema is not None and self.features:
            yield Problem(
                f"{self._owner}.features",
                "be left out if $columns is a Schema, because it needs public rows",
            )
        asked = self._asked(run, DEFAULT_DELTA)
        yield from asked.problems(self._owner, has_ledger=self.ledger is not None)
        if once.release is not None and self.ledger is None:
            yield Problem(
                f"{self._owner}.fit.release",
                "come with $ledger, which records releases by name",
                fix="Set $ledger to a file.",
            )
        if once.release is not None:
            yield from problems_in(partial(require_release_name, once.release))
        if once.checkpoints is not None and self.random_state is None:
            yield Problem(
                f"{self._owner}.fit.checkpoints",
                "come with $random_state; without it, the next fit splits the rows differently and reuses nothing",
            )


def _takes_missing_values(estimator: Any) -> bool:
    """Return whether a teacher, an estimator, or the first step of a pipeline, takes rows with missing cells."""
    if is_recipe(estimator):
        return getattr(estimator, "takes_missing_values", False) is True
    _, first = steps_of(estimator)[0]
    return first is not None and get_tags(first).input_tags.allow_nan
