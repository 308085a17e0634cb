"""The methods that a plan compares, each with the least noise that is proved to keep ε."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, final

from tutelage.accounting.calibration import noise_within, stated
from tutelage.accounting.filter import Accounting, Filter, limit_of
from tutelage.events import Composed, Event, of_queries
from tutelage.exceptions import InvalidParameterError
from tutelage.labeling.sums import event_of_count, event_of_rounds
from tutelage.mechanisms import CappedGNMax, GNMax, NoisySum
from tutelage.privacy import PrivacyUnit, PublicEpsilon
from tutelage.students import default_student
from tutelage.students.selection import QuerySelector, selector_named
from tutelage.teachers import ClassMeans, NearestQueries, VectorBallots, ensemble_of

_STUDENT, _SELECTION = "label-propagation", "medoids"
_PARAMETERS = {"teacher", "mechanism", "n_teachers", "n_queries", "rounds", "student", "selection"}
_CAPS = (5, 20)  # votes of a person
_ROWS_PER_CLASS = 3  # of a teacher
_QUERIES = 200
_TEACHERS = 250  # the default of `PATEClassifier`
_FEWEST_LABELS = 10  # of a class


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The guarantee that a plan must keep, and the public sizes."""

    epsilon: float
    delta: float
    unit: PrivacyUnit
    people: int  # their number, as of all sizes
    public_rows: int
    classes: int

    def limit(self, accounting: Accounting) -> Filter:
        """Return the budget of the whole release."""
        return limit_of(self.epsilon, self.delta, accounting)


@final
@dataclass(frozen=True, slots=True)
class PeopleBallots:
    """Every person casts a vector for each class; a noisy sum is released."""

    teacher: VectorBallots
    noise: float  # σ, in lengths of the longest ballot

    title: ClassVar[str] = "vector ballots"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ from the defaults."""
        given = {one.name: getattr(self.teacher, one.name) for one in fields(self.teacher)}
        return {one.name: given[one.name] for one in fields(self.teacher) if given[one.name] != one.default}

    def as_config(self) -> tuple[str, ...]:
        """Return the sections of a configuration."""
        settings = ", ".join(f"{name} = {value}" for name, value in self.settings.items())
        parameters = f"parameters = {{ {settings} }}\n" if settings else ""
        return (f'[teachers]\nestimator = "tutelage.teachers.VectorBallots"\n{parameters}',)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `PATEClassifier` besides ε."""
        return {"teacher": self.teacher}

    def event(self, target: Target) -> Event:
        """Return all that is released."""
        return _rounds(self.teacher, self.noise, target)


@final
@dataclass(frozen=True, slots=True)
class FewVotesOfPeople:
    """Every person votes for their label on the few public rows that are nearest to their own."""

    cap: int
    noise: float  # σ, in votes
    charged: int | None = None  # votes per person that the cost is computed for; None: as many as are cast
    student: Any = _STUDENT  # a name, or an estimator

    title: ClassVar[str] = "few votes per person"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as a table shows them."""
        return {"votes each": self.cap}

    def as_config(self) -> tuple[str, ...]:
        """Return the sections of a configuration."""
        return (
            f'[teachers]\nestimator = "tutelage.teachers.NearestQueries"\nparameters = {{ cap = {self.cap} }}\n',
            f'[student]\nestimator = "{self.student}"\n',
        )

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `PATEClassifier` besides ε."""
        return {"teacher": NearestQueries(self.cap), "student": self.student}

    def event(self, target: Target) -> Event:
        """Return all that is released."""
        return _of_capped(self.charged or self.cap, self.noise, target)


@final
@dataclass(frozen=True, slots=True)
class DenseVotes:
    """Teachers, each trained on a few rows, all vote on the same public rows."""

    teacher: Any  # a recipe of `tutelage.teachers`, or a scikit-learn classifier
    teachers: int
    queries: int
    noise: float  # σ, in votes
    student: Any = _STUDENT  # a name, or an estimator
    selection: str | QuerySelector = _SELECTION

    title: ClassVar[str] = "trained teachers"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as a table shows them."""
        return {"teachers": f"{self.teachers:,}", "queries": self.queries}

    def as_config(self) -> tuple[str, ...]:
        """Return the sections of a configuration."""
        return (
            f'[teachers]\nestimator = "tutelage.teachers.{type(self.teacher).__name__}"\nnumber = {self.teachers}\n',
            f'[public]\nqueries = {self.queries}\nselection = "{self.selection}"\n',
            f'[student]\nestimator = "{self.student}"\n',
        )

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `PATEClassifier` besides ε."""
        return {
            "teacher": self.teacher,
            "n_teachers": self.teachers,
            "n_queries": self.queries,
            "selection": self.selection,
            "student": self.student,
        }

    def event(self, target: Target) -> Event:
        """Return all that is released."""
        return _of_queries(self.noise, self.queries, target)


Method = PeopleBallots | FewVotesOfPeople | DenseVotes


def ballots_for(target: Target, teacher: VectorBallots | None = None) -> PeopleBallots:
    """Return vector ballots with the least noise that keeps ε."""
    chosen = teacher or VectorBallots()
    limit = target.limit(Accounting.GAUSSIAN)
    return PeopleBallots(chosen, noise_within(limit, lambda noise: _rounds(chosen, noise, target)))


def methods_for(target: Target) -> list[Method]:
    """Return all methods to compare, each with the least noise that keeps ε; vector ballots come first."""
    few = [FewVotesOfPeople(cap, _least_noise(lambda sigma, cap=cap: _of_capped(cap, sigma, target), target))
           for cap in _CAPS]  # fmt: skip
    queries = min(target.public_rows, max(_QUERIES, _FEWEST_LABELS * target.classes))
    teachers = max(2, target.people // (_ROWS_PER_CLASS * target.classes))
    noise = _least_noise(lambda sigma: _of_queries(sigma, queries, target), target)
    return [ballots_for(target), *few, DenseVotes(ClassMeans(), teachers, queries, noise)]


def method_of(parameters: Mapping[str, Any], target: Target, *, public_features: bool = False) -> Method:
    """Return the method that parameters of `PATEClassifier` describe, with their noise or the least that keeps ε.

    Parameters that are not set, or None, have the defaults of `PATEClassifier`; the default student depends on whether
    rows go through a public feature map. A method that cannot be tried on public rows is refused.
    """
    parameters = {name: value for name, value in parameters.items() if value is not None}
    if unknown := sorted(parameters.keys() - _PARAMETERS):
        raise InvalidParameterError(
            f"`parameters` of plan must be among {', '.join(sorted(_PARAMETERS))}: no others are tried. Got "
            f"{unknown[0]!r}."
        )
    teacher, mechanism = parameters.get("teacher", VectorBallots()), parameters.get("mechanism")
    kinds: dict[type, type] = {VectorBallots: NoisySum, NearestQueries: CappedGNMax}
    kind = kinds.get(type(teacher), GNMax)
    if mechanism is not None and not isinstance(mechanism, kind):
        raise InvalidParameterError(
            f"`mechanism` in `parameters` of plan must be a {kind.__name__} for {type(teacher).__name__}. Got "
            f"{type(mechanism).__name__}; leave it out for the least noise."
        )
    if isinstance(teacher, VectorBallots):
        if "student" in parameters:
            raise InvalidParameterError(
                "`student` in `parameters` of plan is for votes: ballots of VectorBallots are tried with their own "
                "student. Leave it out."
            )
        return PeopleBallots(teacher, mechanism.noise_multiplier) if mechanism else ballots_for(target, teacher)
    student, rounds = parameters.get("student"), parameters.get("rounds", 1)
    student = default_student(public_features=public_features) if student is None else student
    if isinstance(teacher, NearestQueries):
        cap = mechanism.cap if mechanism else teacher.cap * rounds  # of all rounds together
        charged = None if cap == teacher.cap else cap
        noise = mechanism.sigma if mechanism else _least_noise(lambda sigma: _of_capped(cap, sigma, target), target)
        return FewVotesOfPeople(teacher.cap, noise, charged, student)
    selection = parameters.get("selection", "first")
    rule = selector_named(selection) if isinstance(selection, str) else selection
    if rounds > 1 or rule.needs_answers or rule.needs_student:
        raise InvalidParameterError(
            "`rounds` and `selection` in `parameters` of plan must be one round, and a rule that needs no earlier "
            "answers, such as 'first' or 'medoids'."
        )
    # Refuses what cannot be trained, such as recorded votes.
    ensemble_of(teacher, n_classes=target.classes, seed=0)
    queries = parameters.get("n_queries", target.public_rows)
    noise = mechanism.sigma if mechanism else _least_noise(lambda sigma: _of_queries(sigma, queries, target), target)
    return DenseVotes(teacher, parameters.get("n_teachers", _TEACHERS), queries, noise, student, selection)


def _least_noise(event_of: Callable[[float], Event], target: Target) -> float:
    return noise_within(target.limit(Accounting.RENYI), event_of)


def proved(method: Method, target: Target) -> PublicEpsilon:
    """Return the ε that is proved for the whole release of a method, for any private rows."""
    accounting = Accounting.GAUSSIAN if isinstance(method, PeopleBallots) else Accounting.RENYI
    return stated(method.event(target), target.limit(accounting), target.unit)


def _rounds(teacher: VectorBallots, noise: float, target: Target) -> Event:
    mechanism = NoisySum(noise)
    rounds = event_of_rounds(teacher, mechanism, target.classes, target.unit, simulated=False)
    return Composed((rounds, *event_of_count(mechanism, target.unit, simulated=False)))


def _of_queries(sigma: float, queries: int, target: Target) -> Event:
    return of_queries(GNMax(sigma).event_of_one(target.classes, target.unit, simulated=False), queries)


def _of_capped(cap: int, sigma: float, target: Target) -> Event:
    one = CappedGNMax(sigma, cap).event_of_one(target.classes, target.unit, simulated=False)
    return of_queries(one, target.public_rows)
