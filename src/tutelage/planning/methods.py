"""The methods that a plan chooses among, each with the least noise that is proved to keep an ε."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, final

from tutelage.accounting import data_independent
from tutelage.events import Composed, Event, of_queries
from tutelage.exceptions import InvalidParameterError
from tutelage.labeling.fits import noise_within
from tutelage.labeling.sums import event_of_count, event_of_rounds
from tutelage.ledger import Accounting, Ledger
from tutelage.mechanisms import CappedGNMax, GNMax, NoisySum
from tutelage.planning.calibration import Sketch, calibrated
from tutelage.privacy import PrivacyUnit, PublicEpsilon
from tutelage.teachers import ClassMeans, NearestQueries, VectorBallots
from tutelage.teachers.base import ClosedForm

_STUDENT = "label-propagation"
_CAPS = (5, 20)  # votes of a person
_ROWS_PER_CLASS = 3  # of a teacher
_QUERIES = 200
_TEACHERS = 250  # the default of `PATEClassifier`
_FEWEST_LABELS = 10  # of a class


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a plan is made for; public.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of all that is released.
    unit : PrivacyUnit
        Whom it is for.
    people, public_rows, classes : int
        How many there are.
    """

    epsilon: float
    delta: float
    unit: PrivacyUnit
    people: int
    public_rows: int
    classes: int


@final
@dataclass(frozen=True, slots=True)
class PeopleBallots:
    """Every person casts a vector for each class; a noisy sum is released."""

    teacher: VectorBallots
    noise: float  # σ, in lengths of the longest ballot

    title: ClassVar[str] = "vector ballots"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as a table shows them."""
        return {"quantile": self.teacher.quantile, "rounds": self.teacher.rounds, "landmarks": self.teacher.n_landmarks}

    def as_config(self) -> tuple[str, ...]:
        """Return the sections of a configuration."""
        how = {
            f.name: getattr(self.teacher, f.name)
            for f in fields(self.teacher)
            if getattr(self.teacher, f.name) != f.default
        }
        settings = ", ".join(f"{name} = {value}" for name, value in how.items())
        parameters = f"parameters = {{ {settings} }}\n" if how else ""
        return (f'[teachers]\nestimator = "tutelage.teachers.VectorBallots"\n{parameters}',)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `PATEClassifier` besides ε."""
        return {"teacher": self.teacher}

    def event(self, wish: Wish) -> Event:
        """Return all that is released."""
        return _rounds(self.teacher, self.noise, wish)


@final
@dataclass(frozen=True, slots=True)
class FewVotesOfPeople:
    """Every person votes its label on the few public rows that are nearest to its own."""

    cap: int
    noise: float  # σ, in votes
    charged: int | None = None  # votes of a person that are charged for; None for as many as are cast

    title: ClassVar[str] = "few votes per person"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as a table shows them."""
        return {"votes each": self.cap}

    def as_config(self) -> tuple[str, ...]:
        """Return the sections of a configuration."""
        return (
            f'[teachers]\nestimator = "tutelage.teachers.NearestQueries"\nparameters = {{ cap = {self.cap} }}\n',
            f'[student]\nestimator = "{_STUDENT}"\n',
        )

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `PATEClassifier` besides ε."""
        return {"teacher": NearestQueries(self.cap), "student": _STUDENT}

    def event(self, wish: Wish) -> Event:
        """Return all that is released."""
        return _of_capped(self.charged or self.cap, self.noise, wish)


@final
@dataclass(frozen=True, slots=True)
class DenseVotes:
    """Teachers that are trained on a few rows each vote on the same public rows."""

    teacher: ClosedForm
    teachers: int
    queries: int
    noise: float  # σ, in votes

    title: ClassVar[str] = "trained teachers"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as a table shows them."""
        return {"teachers": f"{self.teachers:,}", "queries": self.queries}

    def as_config(self) -> tuple[str, ...]:
        """Return the sections of a configuration."""
        return (
            f'[teachers]\nestimator = "tutelage.teachers.{type(self.teacher).__name__}"\nnumber = {self.teachers}\n',
            f'[public]\nqueries = {self.queries}\nselection = "medoids"\n',
            f'[student]\nestimator = "{_STUDENT}"\n',
        )

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `PATEClassifier` besides ε."""
        return {
            "teacher": self.teacher,
            "n_teachers": self.teachers,
            "n_queries": self.queries,
            "selection": "medoids",
            "student": _STUDENT,
        }

    def event(self, wish: Wish) -> Event:
        """Return all that is released."""
        return of_queries(GNMax(self.noise).event_of_one(wish.classes, wish.unit, simulated=False), self.queries)


Method = PeopleBallots | FewVotesOfPeople | DenseVotes


def ballots_for(wish: Wish, teacher: VectorBallots | None = None) -> PeopleBallots:
    """Return vector ballots with the least noise that keeps ε."""
    chosen = teacher or VectorBallots()
    whole = Ledger.in_memory(epsilon=wish.epsilon, delta=wish.delta, unit=wish.unit, accounting=Accounting.GAUSSIAN)
    return PeopleBallots(chosen, noise_within(whole, None, lambda noise: _rounds(chosen, noise, wish)))


def methods_for(wish: Wish) -> list[Method]:
    """Return all methods to compare, each with the least noise that keeps ε; vector ballots come first."""
    few = [FewVotesOfPeople(cap, _capped_noise(cap, wish)) for cap in _CAPS]
    queries = min(wish.public_rows, max(_QUERIES, _FEWEST_LABELS * wish.classes))
    teachers = max(2, wish.people // (_ROWS_PER_CLASS * wish.classes))
    return [ballots_for(wish), *few, DenseVotes(ClassMeans(), teachers, queries, _plain_noise(queries, wish))]


def method_of(parameters: Mapping[str, Any], wish: Wish) -> Method:
    """Return the method that parameters of `PATEClassifier` describe, with the noise they name or the least.

    Raises
    ------
    InvalidParameterError
        If it is none that can be tried on public rows.
    """
    teacher, mechanism = parameters.get("teacher") or VectorBallots(), parameters.get("mechanism")
    kinds: dict[type, type] = {VectorBallots: NoisySum, NearestQueries: CappedGNMax}
    kind = kinds.get(type(teacher), GNMax)
    if mechanism is not None and not isinstance(mechanism, kind):
        raise InvalidParameterError(
            f"`mechanism` in `parameters` of plan must be a {kind.__name__} for {type(teacher).__name__}. Got "
            f"{type(mechanism).__name__}; leave it out for the least noise."
        )
    if isinstance(teacher, VectorBallots):
        return PeopleBallots(teacher, mechanism.noise_multiplier) if mechanism else ballots_for(wish, teacher)
    if isinstance(teacher, NearestQueries):
        rounds = parameters.get("rounds") or 1
        cap = mechanism.cap if mechanism else teacher.cap * rounds  # what all rounds are charged for
        return FewVotesOfPeople(teacher.cap, mechanism.sigma if mechanism else _capped_noise(cap, wish), cap)
    if not isinstance(teacher, ClosedForm):
        raise InvalidParameterError(
            "A plan can try VectorBallots, NearestQueries and the closed forms of tutelage.teachers. Got "
            f"{type(teacher).__name__}; see plan_votes for other teachers."
        )
    queries = parameters.get("n_queries") or wish.public_rows
    noise = mechanism.sigma if mechanism else _plain_noise(queries, wish)
    return DenseVotes(teacher, parameters.get("n_teachers") or _TEACHERS, queries, noise)


def _capped_noise(cap: int, wish: Wish) -> float:
    whole = Ledger.in_memory(epsilon=wish.epsilon, delta=wish.delta, unit=wish.unit)
    return noise_within(whole, None, lambda sigma: _of_capped(cap, sigma, wish))


def _plain_noise(queries: int, wish: Wish) -> float:
    return calibrated(Sketch(GNMax, (1.0,), queries), wish.epsilon, wish.delta).noise[0]


def proved(method: Method, wish: Wish) -> PublicEpsilon:
    """Return the ε that is proved for all that a method releases, whatever the private rows are."""
    return data_independent.epsilon(method.event(wish), wish.delta)


def _rounds(teacher: VectorBallots, noise: float, wish: Wish) -> Event:
    mechanism = NoisySum(noise)
    rounds = event_of_rounds(teacher, mechanism, wish.classes, wish.unit, simulated=False)
    return Composed((rounds, *event_of_count(mechanism, wish.unit, simulated=False)))


def _of_capped(cap: int, sigma: float, wish: Wish) -> Event:
    one = CappedGNMax(sigma, cap).event_of_one(wish.classes, wish.unit, simulated=False)
    return of_queries(one, wish.public_rows)
