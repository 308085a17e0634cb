"""The parameters that both estimators have: what each may be, and which go together."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial, wraps
from inspect import signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, final

import numpy as np
from sklearn.base import BaseEstimator

from tutelage._internal.fitting import require_classifier
from tutelage._internal.validation import integer_at_least, nearest, positive, probability, problems_in
from tutelage.exceptions import InvalidParameterError, Problem, UnknownParameterError, shown
from tutelage.features.base import require_public_map
from tutelage.features.schema import Schema
from tutelage.ledger import Ledger
from tutelage.ledger.cohorts import require_release_name
from tutelage.ledger.ledger import DEFAULT_DELTA
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.methods import Method
from tutelage.methods.base import takes_missing_values
from tutelage.methods.needs import Offered, unmet
from tutelage.noise import NoiseSource, known_noise
from tutelage.students import NoisySumClassifier
from tutelage.targets import Target
from tutelage.terms import Asked

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
    """The resolved parameters of an estimator: defaults and names are what they stand for; public."""

    method: Method  # with the student that it teaches
    schema: Schema | None  # in place of public rows
    teacher_map: Any | None  # what teachers see the rows through; None where they see them as they are
    student_map: Any | None
    same_map: bool  # whether the student is to see what the teachers see, whatever that becomes
    noise: NoiseSource

    @property
    def student(self) -> Any:
        """The student that is cloned."""
        return NoisySumClassifier() if self.method.student is None else self.method.student

    @property
    def allow_nan(self) -> bool:
        """Whether missing cells go through the maps or, where there is none, into teachers and student."""
        teachers, student = self.teacher_map, self.student if self.student_map is None else self.student_map
        of_teachers = self.method.takes_missing_values if teachers is None else takes_missing_values(teachers)
        return of_teachers and takes_missing_values(student)


_Init = ParamSpec("_Init")


def naming_unknown(init: Callable[_Init, None]) -> Callable[_Init, None]:
    """Return a constructor that refuses unknown parameters by name, with advice; its signature is unchanged."""
    known, owner = list(signature(init).parameters)[1:], init.__qualname__.partition(".")[0]

    @wraps(init)
    def checked(*args: _Init.args, **given: _Init.kwargs) -> None:
        if unknown := [name for name in given if name not in known]:
            raise UnknownParameterError(
                *(
                    Problem(
                        f"{owner}.{name}",
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
    """The parameters that both estimators have, of which `PATEClassifier` has the documentation."""

    _: KW_ONLY
    method: Method | None = None
    public: Schema | None = None
    mechanism: Mechanism | NoisySum | None = None
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
    # Parameters of a classifier.
    features = None
    student = None
    student_features = None
    _owner: ClassVar[str]  # as errors call the estimator

    @property
    @abstractmethod
    def _target(self) -> Target:
        """The classes or numbers that are learned."""

    @abstractmethod
    def _problems_of_target(self) -> Iterator[Problem]:
        """Yield problems of these."""

    @abstractmethod
    def _method_meant(self) -> Method:
        """Return the method as given, or as other parameters stand for."""

    def resolved(self, **rows: bool) -> Resolved:
        """Return what the parameters come to; nothing is trained or drawn.

        Parameters
        ----------
        **rows : bool
            Which rows a fit has for its method, by the names of `Offered`. Default: those that every method takes.

        Raises
        ------
        InvalidParameterError
            If one is not what it must be, or they do not go together.
        """
        if problems := list(self._problems()):
            raise InvalidParameterError(*problems)
        run = self._unchecked()
        offered = Offered(self._target, schema=self._has_schema, name=self.release is not None, **rows)
        if problems := [*unmet(run.method, offered, self._owner), *self._problems_together(run)]:
            raise InvalidParameterError(*problems)
        return run

    @property
    def _has_schema(self) -> bool:
        return self.public is not None

    def _unchecked(self) -> Resolved:
        """Return the method, with the student that it teaches, and what else the parameters come to."""
        student_map = self.features if self.student_features is None else self.student_features
        student_map = None if isinstance(student_map, str) else student_map
        method = self._method_meant().with_student(public_features=student_map is not None)
        if method.student is not None:
            require_classifier(method.student, "student", self._owner)
        return Resolved(
            method=method,
            schema=self.public,
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
            value = getattr(self, name)
            if value is not None or name == "releases":
                yield from problems_in(partial(check, value, name, self._owner))
        yield from self._problems_of_target()
        for name, feature_map in (("features", self.features), ("student_features", self.student_features)):
            if name == "student_features" and isinstance(feature_map, str):
                if feature_map != "rows":
                    yield Problem(f"{self._owner}.{name}", "be 'rows' or a public feature map", shown(feature_map))
            elif feature_map is not None:
                yield from problems_in(partial(require_public_map, feature_map, self._owner, name))
        yield from problems_in(self._unchecked)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._unchecked().allow_nan
        tags.non_deterministic = True  # privacy noise is fresh in every fit, whatever the random_state
        return tags

    def _asked(self, method: Method, delta: float) -> Asked:
        given, named = method.mechanism is not None, self.release is not None
        return Asked(self.epsilon, self.budget, self.releases, delta, given, named)

    def _problems_together(self, run: Resolved) -> Iterator[Problem]:
        """Yield problems of parameters that do not go together."""
        if self.ledger is None and self.data_changed:
            yield Problem(
                f"{self._owner}.data_changed",
                "come with $ledger, because only a ledger knows the earlier data",
                fix="Set $ledger, or leave it out.",
            )
        for name in ("features", "student_features") if self.public is not None else ():
            if getattr(self, name):
                yield Problem(f"{self._owner}.{name}", "be left out if you set $public, because it needs public rows")
        asked = self._asked(run.method, DEFAULT_DELTA)
        yield from asked.problems(self._owner, has_ledger=self.ledger is not None)
        if self.release is not None and self.ledger is None:
            yield Problem(
                f"{self._owner}.release",
                "come with $ledger, which records releases by name",
                fix="Set $ledger to a file.",
            )
        if self.release is not None:
            yield from problems_in(partial(require_release_name, self.release))
        if self.checkpoints is not None and self.random_state is None:
            yield Problem(
                f"{self._owner}.checkpoints",
                "come with $random_state; without it, the next fit splits the rows differently and reuses nothing",
            )
