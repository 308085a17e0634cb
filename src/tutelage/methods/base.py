"""A method: a public record, and a generator of requests that never sees a private row."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Matrix
from tutelage.accounting.filter import Accounting
from tutelage.events import Event, Repeated, of_queries
from tutelage.exceptions import InvalidParameterError, Problem
from tutelage.methods.rehearsal import PublicLabels, Rehearsal, rehearsed, taught_by
from tutelage.methods.requests import Prepared, PrivateRows, Public, Sizes, Steps
from tutelage.noise import NoiseSource
from tutelage.partition import Shards


class Method(ABC):
    """How private rows teach a student: a frozen record of public settings. To write one, see docs/methods.md.

    Attributes
    ----------
    name : str
        Its name in configurations, whose other entries are the fields of the record.
    title : str
        What a plan calls it.
    voters : str
        What a report calls those who cast ballots.
    of_people : bool
        Whether every person is a teacher, so that nothing is trained.
    closed_form : bool
        Whether the student follows from what is released, unless another one is given.
    in_batches : bool
        Whether rows may be read in batches.
    takes_empty : bool
        Whether cells of a table may be empty.
    takes_labels : bool
        Whether it starts from labels of public rows.
    takes_weights : bool
        Whether a student in closed form predicts by the class weights of `Public`.
    needs_schema : bool
        Whether it takes a public schema in place of public rows.
    of_numbers : bool
        Whether it predicts a number, and no class.
    fewest_public : int
        Public rows below which a warning is due.
    accounting : Accounting
        How the cost is proved.
    """

    __slots__ = ()
    name: ClassVar[str]
    title: ClassVar[str]
    voters: ClassVar[str] = "people who cast ballots"
    of_people: ClassVar[bool] = True
    closed_form: ClassVar[bool] = False
    in_batches: ClassVar[bool] = False
    takes_empty: ClassVar[bool] = False
    takes_labels: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    needs_schema: ClassVar[bool] = False
    of_numbers: ClassVar[bool] = False
    fewest_public: ClassVar[int] = 0
    accounting: ClassVar[Accounting] = Accounting.RENYI
    mechanism: Any  # None until it is calibrated, or given
    student: Any

    @property
    def n_shards(self) -> int:
        """How many shards teachers are trained on; none where every person is a teacher."""
        return 0

    @property
    @abstractmethod
    def noise(self) -> float | None:
        """The noise of the mechanism; None where it follows from the budget."""

    @property
    def calibrated(self) -> Any:
        """The mechanism, which is given or was found by the budget."""
        if self.mechanism is None:
            raise InvalidParameterError(Problem(f"{type(self).__name__}.mechanism", "be given, or follow from an ε"))
        return self.mechanism

    @abstractmethod
    def with_noise(self, noise: float) -> Self:
        """Return the method with a mechanism of this noise."""

    def reduced(self, _teachers: int, _queries: int, /) -> Self:
        """Return the method with at most so many teachers and queries, for trials; by default unchanged."""
        return self

    def noise_warning(self, _teachers: int | None, /) -> str:
        """Return a warning if the noise hides what so many teachers vote."""
        return ""

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
        names = [one.name for one in fields(self) if one.name not in ("mechanism", "student")]  # type: ignore[arg-type]
        default = {one.name: one.default for one in fields(self)}  # type: ignore[arg-type]
        given = {name: getattr(self, name) for name in names if getattr(self, name) != default[name]}
        return {name: _shown(value) for name, value in given.items()}

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
