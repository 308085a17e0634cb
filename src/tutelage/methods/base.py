"""A method: a public record, and a generator of requests that never sees a private row."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from tutelage._internal.fitting import clone_with
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, IntArray, Matrix
from tutelage._internal.validation import problems_in
from tutelage.accounting.filter import Accounting
from tutelage.events import Event, Repeated
from tutelage.exceptions import InvalidParameterError, Problem, quote
from tutelage.features.base import require_public_map
from tutelage.features.columns import require_no_columns
from tutelage.methods.rehearsal import PublicLabels, Rehearsal, rehearse, taught_by
from tutelage.methods.requests import Facts, Prepared, Public, Sizes, Steps
from tutelage.noise import NoiseSource
from tutelage.partition import Shards
from tutelage.people.memory import PeopleInMemory
from tutelage.students import ForestStudent, LabelPropagationStudent, student_named
from tutelage.targets import Classes, Numbers

RowIds = npt.ArrayLike | None  # of rows
_AnyMethod = TypeVar("_AnyMethod", bound="Method")


class Needs(NamedTuple):
    """The things that a method asks of a fit, and further ones that it can use; public.

    Attributes
    ----------
    target : Classes or Numbers
        What it predicts.
    public : {"rows", "schema", "either"}
        Whether it takes public rows, or a public schema in their place.
    shards : bool
        Whether teachers are trained, each on a shard of the rows. Otherwise every person casts ballots.
    student : bool
        Whether a student learns from released labels. Otherwise it follows from what is released.
    batches : bool
        Whether rows may be read in batches.
    empty : bool
        Whether cells of a table may be empty.
    start : bool
        Whether it can start from labels of public rows.
    weights : bool
        Whether the student that follows from what is released predicts by class weights.
    report : bool
        Whether a last sum can say how good the student is on the people.
    fewest : int
        Public rows below which a warning is due.
    accounting : Accounting
        How the cost is proved, if the ledger is of this release alone.
    """

    target: type[Classes] | type[Numbers] = Classes
    public: Literal["rows", "schema", "either"] = "rows"
    shards: bool = False
    student: bool = True
    batches: bool = False
    empty: bool = False
    start: bool = False
    weights: bool = False
    report: bool = False
    fewest: int = 0
    accounting: Accounting = Accounting.RENYI


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
    # The map for rows of the student and of the choice of queries, or "rows"; None for that of `features`.
    student_features: Any = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name and, if `deep`, those of the estimators among them, as scikit-learn names them.

        Parameters
        ----------
        deep : bool
            Whether to return them.
        """
        params = dict[str, Any]()
        of_estimators = dict[str, Any]()
        for setting in fields(self):  # type: ignore[arg-type]
            value = getattr(self, setting.name)
            params[setting.name] = value
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                for inner, parameter in value.get_params().items():
                    of_estimators[f"{setting.name}__{inner}"] = parameter
        return params | of_estimators

    def with_params(self, **params: Any) -> Self:
        """Return the method with other settings; it stays as it is, because other estimators may have it.

        Parameters
        ----------
        **params
            Settings or, after two underscores, parameters of an estimator among them: ``teacher__max_depth``.
        """
        own = {name: value for name, value in params.items() if "__" not in name}
        known = self.get_params(deep=False)
        for name in params:
            if name.partition("__")[0] not in known:
                raise ValueError(
                    f"{type(self).__name__} has no setting {name!r}. It has: {', '.join(sorted(known))}."
                )
        changed = replace(cast("Any", self), **own)
        estimators = dict[str, Any]()
        for key, value in params.items():
            name, nested, inner = key.partition("__")
            if nested:
                estimators.setdefault(name, {})[inner] = value
        for name, inner in estimators.items():
            estimator = clone_with(getattr(changed, name), **inner)
            changed = replace(changed, **{name: estimator})
        return changed

    def _problems_of_student_features(self) -> Iterator[Problem]:
        seen = self.student_features
        owner = type(self).__name__
        if isinstance(seen, str):
            if seen != "rows":
                yield Problem(
                    f"{owner}.student_features", "be 'rows' or a public feature map", quote(seen)
                )
        elif seen is not None:
            for check in (require_public_map, require_no_columns):
                yield from problems_in(partial(check, seen, owner, "student_features"))

    def __sklearn_clone__(self) -> Self:
        """Return itself, which never changes."""
        return self

    @property
    @abstractmethod
    def noise(self) -> float | None:
        """The noise of the mechanism; None where it follows from the budget."""

    @property
    def calibrated(self) -> Any:
        """The mechanism, which is given or was found by the budget."""
        if self.mechanism is None:
            raise InvalidParameterError(
                f"{type(self).__name__}.mechanism", "be set, or found by a fit"
            )
        return self.mechanism

    @abstractmethod
    def with_noise(self, noise: float) -> Self:
        """Return the method with a mechanism of this noise."""

    def shards(
        self,
        n_rows: int,
        entity_ids: RowIds,
        _silos: RowIds,
        name: str,
        _key: bytes,
        /,
    ) -> Shards:
        """Return the shard of each row; by default, every person is a teacher."""
        return Shards.of_single_people(n_rows, entity_ids, name=name)

    def facts(self, n_teachers: int | None, _n_rounds: int = 1, /) -> Facts:
        """Return what is stated of a release: who casts ballots, how rows are chosen, and what ends it."""
        facts = Facts(
            voters="people who cast ballots",
            selection="all public rows of the run",
            of_sums=not self.needs.student,
            teachers=None,
            threshold=getattr(self.mechanism, "threshold", None),
            stopping="fixed",
            mechanism=None,
        )
        if self.needs.shards:
            facts = facts._replace(voters="teachers", teachers=n_teachers)
        if getattr(self.mechanism, "takes_predictions", False):
            facts = facts._replace(mechanism="interactive")
        return facts

    def check_training(self, _rows: Matrix, _n_classes: int, /) -> None:
        """Try on public rows, with made-up labels, what would otherwise fail on private ones."""
        return

    @abstractmethod
    def event_of_one(self, sizes: Sizes) -> Event:
        """Return the most that one answer can be."""

    def event(self, sizes: Sizes) -> Repeated:
        """Return the most that everything can be, whatever the private rows are."""
        return Repeated(self.event_of_one(sizes), 1)

    def check(self, _public: Public, /) -> None:
        """Refuse public rows from which nothing can be learned, before anything is spent; by default none."""
        return

    @abstractmethod
    def prepare(self, public: Public, people: Any, /) -> Prepared:
        """Return who casts the ballots of `people`; private.

        People are in memory (`PeopleInMemory`), unless `needs.batches` allows others. It trains teachers, or sends rows
        through a public map. No row of a person may make it fail.
        """

    @abstractmethod
    def steps(self, public: Public) -> Steps:
        """Ask for what is released, request after request, and return what was made of it."""

    @classmethod
    def proposals(cls, _people: int, _sizes: Sizes, /) -> Sequence[Self]:
        """Return the settings that a plan tries for about so many people; by default the defaults."""
        return [cls()]

    def rehearsal(self, known: PublicLabels, people: int) -> Rehearsal:
        """Return how a student is made of labeled public rows that take the place of the people.

        The noise of the method is for the number of `people` who take part in the real run.
        """
        classes = np.arange(known.n_classes)

        def predict(
            taught: IntArray, noise: NoiseSource, _scores: FloatArray | None = None
        ) -> IntArray:
            method = self.with_noise((self.noise or 0.0) * len(taught) / people)
            shards = Shards.of_single_people(len(taught))
            rows = PeopleInMemory(known.labeled[taught], known.classes[taught], shards)
            public = known.public(shards.unit, len(taught))
            prepared = method.prepare(public, rows)
            outcome = rehearse(method.steps(public), prepared, noise)
            if outcome.student is not None:
                predicted: Array = outcome.student.predict(known.labeled)
                return np.searchsorted(classes, predicted)
            labels = np.full(len(known.rows), ABSTAIN)
            labels[outcome.queries] = outcome.labels
            return taught_by(self.student, labels, known)

        return predict


def with_student(method: _AnyMethod, *, public_features: bool) -> _AnyMethod:
    """Return a method with the student that it teaches, if one is to learn from labels: by default that of rows.

    `public_features` says whether these go through a public map.
    """
    student = method.student
    if isinstance(student, str):
        student = student_named(student, type(method).__name__)
    elif student is None and method.needs.student:
        # By neighbors, where public features say what is near.
        student = LabelPropagationStudent() if public_features else ForestStudent()
    return replace(method, student=student)  # type: ignore[type-var]
