"""A method: a public record, and a generator of requests that never sees a private row."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Matrix
from tutelage.accounting.filter import Filter, limit_of
from tutelage.events import Event, Repeated, of_queries
from tutelage.exceptions import InvalidParameterError, Problem
from tutelage.methods.needs import Needs
from tutelage.methods.rehearsal import PublicLabels, Rehearsal, rehearsed, taught_by
from tutelage.methods.requests import Facts, Prepared, PrivateRows, Public, Sizes, Steps
from tutelage.noise import NoiseSource
from tutelage.partition import Shards
from tutelage.students import default_student, student_named
from tutelage.targets import ClassWeights
from tutelage.terms import Asked, Terms, terms_of

Labels = TypeVar("Labels")


class Method(ABC):
    """How private rows teach a student: a frozen record of public settings. To write one, see docs/howto/own-method.md.

    Attributes
    ----------
    name : str
        Its name in configurations, whose other entries are the fields of the record.
    title : str
        What a plan calls it.
    needs : Needs
        What it asks of rows and parameters, and which further ones it can use.
    """

    __slots__ = ()
    name: ClassVar[str]
    title: ClassVar[str]
    needs: ClassVar[Needs] = Needs()
    mechanism: Any  # None until it is calibrated, or given
    student: Any

    @property
    @abstractmethod
    def noise(self) -> float | None:
        """The noise of the mechanism; None where it follows from the budget."""

    @property
    def calibrated(self) -> Any:
        """The mechanism, which is given or was found by the budget."""
        if self.mechanism is None:
            raise InvalidParameterError(Problem(f"{type(self).__name__}.mechanism", "be set, or found by a fit"))
        return self.mechanism

    @abstractmethod
    def with_noise(self, noise: float) -> Self:
        """Return the method with a mechanism of this noise."""

    def with_student(self, *, public_features: bool) -> Self:
        """Return the method with the student that it teaches, if one is to learn from labels: by default that of rows.

        `public_features` says whether these go through a public map.
        """
        student = student_named(self.student) if isinstance(self.student, str) else self.student
        if student is None and self.needs.student:
            student = default_student(public_features=public_features)
        return replace(self, student=student)  # type: ignore[type-var]

    def limit(self, epsilon: float, delta: float) -> Filter:
        """Return a budget for one release by this method."""
        return limit_of(epsilon, delta, self.needs.accounting)

    def terms(self, asked: Asked, held: Filter | None) -> Terms:
        """Return the terms of a release by this method, by what is asked and the limit of a ledger, if there is one."""
        return terms_of(asked, self.needs.accounting, held)

    def start_from(self, labels: Labels | None) -> Labels | None:
        """Return labels of public rows if the method starts from them, or None."""
        return labels if self.needs.start else None

    def counts_classes(self, weights: ClassWeights | None) -> bool:
        """Return whether what it releases can be weighed so, where classes do not count alike."""
        return weights is None or self.needs.weights

    def shards(self, n_rows: int, entity_ids: Any, _silos: Any, name: str, _key: bytes, /) -> Shards:
        """Return whose row is whose: by default, every person is a teacher."""
        return Shards.of_single_people(n_rows, entity_ids, name=name)

    def facts(self, n_teachers: int | None, rounds: tuple[int, ...] = (0,)) -> Facts:
        """Return what reports say of how the method releases."""
        return Facts(
            voters="teachers" if self.needs.shards else "people who cast ballots",
            selection=self.describe_queries(len(rounds)),
            of_sums=not self.needs.student,
            teachers=n_teachers if self.needs.shards else None,
            threshold=getattr(self.mechanism, "threshold", None),
            stopping="data-independent" if self.is_adaptive else "fixed",
            mechanism="interactive" if getattr(self.mechanism, "takes_predictions", False) else None,
        )

    def reduced(self, _teachers: int, _queries: int, /) -> Self:
        """Return the method with at most so many teachers and queries, for trials; by default unchanged."""
        return self

    def noise_warning(self, _teachers: int | None, /) -> str:
        """Return a warning if the noise hides what so many teachers vote."""
        return ""

    def rows_warning(self, n_public: int) -> str:
        """Return a warning if there are too few public rows to learn much."""
        if n_public >= self.needs.fewest:
            return ""
        return (
            f"`X_public` has {n_public} rows, and ballots are measured against them: with fewer than "
            f"{self.needs.fewest} the student learns little for its budget. Add public rows; several hundred are best."
        )

    def check_training(self, _rows: Matrix, _n_classes: int, /) -> None:
        """Try on public rows, with made-up labels, what would otherwise fail on private ones."""
        return

    def check_selection(self, _seen: Matrix, _n_classes: int, /) -> None:
        """Refuse what cannot be chosen from public rows, as the student sees them."""
        return

    @property
    def takes_missing_values(self) -> bool:
        """Whether cells of rows of numbers may be missing."""
        return False

    @property
    def testable(self) -> bool:
        """Whether a smaller ε can be proposed for it, and tested on its votes."""
        return False

    @property
    def is_adaptive(self) -> bool:
        """Whether later queries depend on earlier answers."""
        return False

    @property
    def uses_predictions(self) -> bool:
        """Whether later requests use a student's predictions."""
        return False

    @abstractmethod
    def event_of_one(self, sizes: Sizes) -> Event:
        """Return the most that one answer can be."""

    def event_of_sums(self, sizes: Sizes) -> Event:
        """Return the most that one answer can be, where the number of people is public."""
        return self.event_of_one(sizes)

    def n_answers(self, _sizes: Sizes, /) -> int:
        """Return how many answers there are at most."""
        return 1

    def event(self, sizes: Sizes) -> Repeated:
        """Return the most that everything can be, whatever the private rows are."""
        return of_queries(self.event_of_one(sizes), self.n_answers(sizes))

    def check(self, _public: Public, /) -> None:
        """Refuse public rows from which nothing can be learned, before anything is spent; by default none."""
        return

    @abstractmethod
    def prepare(self, public: Public, people: Any, /) -> Prepared:
        """Return who casts ballots, of people whose rows are here (`PrivateRows`); private, and executed there.

        It trains teachers, or sends rows through a public map. No row of a person may make it fail.
        """

    @abstractmethod
    def steps(self, public: Public) -> Steps:
        """Ask for what is released, request after request, and return what was made of it."""

    @classmethod
    def proposals(cls, _people: int, _sizes: Sizes, /) -> Sequence[Self]:
        """Return the settings that a plan tries for about so many people; by default the defaults."""
        return [cls()]

    @abstractmethod
    def describe_queries(self, rounds: int, /) -> str:
        """Return what a card says about the choice of the queries, which were asked in so many rounds."""

    def check_plan(self) -> None:
        """Refuse settings that cannot be tried on public rows; by default none."""
        return

    def rehearsal(self, known: PublicLabels, people: int) -> Rehearsal:
        """Return how a student is made of labeled public rows that take the place of the people.

        `people` take part in the real run, for which the noise of the method is.
        """
        classes = np.arange(known.n_classes)

        def predicted(taught: IntArray, noise: NoiseSource, _scores: FloatArray | None = None) -> IntArray:
            method = self.with_noise((self.noise or 0.0) * len(taught) / people)
            shards = Shards.of_single_people(len(taught))
            rows = PrivateRows(known.labeled[taught], known.classes[taught], shards)
            public = Public.of_labels(known, shards.unit, len(taught))
            outcome = rehearsed(method.steps(public), method.prepare(public, rows), noise)
            if outcome.student is not None:
                return np.searchsorted(classes, outcome.student.predict(known.labeled))
            labels = np.full(len(known.rows), ABSTAIN)
            labels[outcome.queries] = outcome.labels
            return taught_by(self.student, labels, known)

        return predicted

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ from the defaults, but for mechanism and student, as a plan shows them."""
        found = dict[str, Any]()
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if one.name not in ("mechanism", "student") and value != one.default:
                found[one.name] = _shown(value)
        return found

    def as_config(self) -> str:
        """Return the section ``[method]`` of a configuration, without the noise."""
        student = {} if self.student is None else {"student": _shown(self.student)}
        lines = (f"{name} = {json.dumps(value)}" for name, value in (self.settings | student).items())
        return "\n".join(["[method]", f'name = "{self.name}"', *lines]) + "\n"


def takes_missing_values(estimator: Any) -> bool:
    """Return whether an estimator, or the first step of a pipeline, takes rows with missing cells."""
    return get_tags(estimator.steps[0][1] if isinstance(estimator, Pipeline) else estimator).input_tags.allow_nan


def _shown(value: Any) -> Any:
    """Return a setting as a configuration has it: an object by its name."""
    if isinstance(value, str | int | float):
        return value
    kind = type(value)
    public = kind.__module__.partition("._")[0]
    return f"{public}.{kind.__name__}" if public.startswith("sklearn.") else kind.__name__
