"""Requests of methods, their answers, and the rows that methods may look at.

The boundary (`tutelage.boundary`) holds people, ledger and noise. It answers each request of a generator; a resumed
fit, a rehearsal on public rows and an audit drive the same generator.

The words of methods:

- request: it asks for ballots of one `form`, released by one `mechanism`. Its answers are kept by its `subject`.
- ballot: a public record that says what people cast; it is executed where their rows are.
- wishes: votes that people would cast, before the ledger grants each a number of them. Requests that share such grants
  are a campaign.
- answer: the release for a request, public. None for a request of an earlier release that was never answered.
- noised: the ballots behind an answer, private, for the data set owner.
- asking: a generator that yields requests, is sent answers and returns a result. Steps: one that returns an outcome.
- calibrated: the mechanism of a method, given or found by the budget.
- simulated: with noise that protects no one, for rehearsals and tests.
- learned: a public value that is computed once and then stored, such as a feature map.
- place: an index in the rows of a request. Public rows have numbers.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from tutelage._internal.records import by_identity, by_keywords
from tutelage._internal.typing import Array, FloatArray, IntArray, Matrix, Private
from tutelage.ballots import (
    BallotSum,
    Missing,
    OneHot,
    Shortfall,
    Vector,
    VoteHistogram,
    sum_of_tiers,
    tally_few,
)
from tutelage.digests import data_digest
from tutelage.events import SUMS_ALONE, Event, TierSteps
from tutelage.exceptions import InvalidBallotError, UnsupportedEventError
from tutelage.features.base import FeatureMap
from tutelage.features.schema import Schema
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.privacy import PrivacyUnit
from tutelage.reporting.measured import (
    ClassLayout,
    Measured,
    MeasuredErrors,
    NumberLayout,
    measured,
    measured_errors,
)
from tutelage.students.noisy_sums import Moments
from tutelage.targets import ClassWeights
from tutelage.teachers.nearest import FewVotes

_AnyMechanism = Mechanism | NoisySum
AnyLayout = ClassLayout | NumberLayout


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Public sizes, from which the cost of a method follows."""

    n_classes: int
    n_public: int  # public rows
    unit: PrivacyUnit
    simulated: bool = False
    labeled: bool = False  # whether public rows have labels
    bins: tuple[int, ...] = ()  # of each column of a public schema
    people_known: bool = False  # whether the number of people is public, whatever the unit
    report: AnyLayout | None = None  # of the ballots of a test report, if there is one
    holdout: float = 0.0  # share of the people who cast ballots for the report alone


class Training(NamedTuple):
    """How teachers are trained: their seed, and settings that do not change the result."""

    seed: int = 0
    n_jobs: int | None = None
    progress: bool = False
    checkpoints: Any = None


@final
@by_keywords
class Public:
    """All that a method may look at."""

    rows: Matrix  # public rows as they came: by these, answers are remembered
    teacher_rows: Matrix  # as the teachers see them
    student_rows: Matrix  # as the student sees them
    classes: Array  # class values
    question: object  # what is asked about them
    unit: PrivacyUnit
    simulated: bool
    n_teachers: int | None  # that vote; of people their number where it is public
    seed: int  # of the choice of queries and of the student
    teacher_map: FeatureMap | None = None
    training: Training = field(default_factory=Training)
    # Class index of each public row, or −1. Where there are labels, the last columns of `teacher_rows` are scores.
    labels: IntArray | None = None
    # How much classes count in predictions, where they do not count alike.
    weights: ClassWeights | None = None
    schema: Schema | None = None  # in place of public rows
    release: str | None = None  # its name, if it has one
    # Names of earlier releases of the same question, from which the student learns too.
    earlier: tuple[str, ...] = ()
    report: AnyLayout | None = None  # of the ballots of a test report, if there is one
    holdout: float = 0.0  # share of the people who cast ballots for the report alone
    # Whether the number of sums was agreed on before people were counted, as between hospitals.
    agreed: bool = False

    @property
    def sizes(self) -> Sizes:
        """The sizes."""
        return Sizes(
            n_classes=len(self.classes),
            n_public=len(self.rows),
            unit=self.unit,
            simulated=self.simulated,
            labeled=self.labels is not None,
            bins=() if self.schema is None else self.schema.bins,
            report=self.report,
            holdout=self.holdout,
        )

    @property
    def n_scores(self) -> int:
        """How many columns of `teacher_rows` are scores by a model of public labels."""
        return 0 if self.labels is None else len(self.classes)

    @property
    def digests(self) -> list[str]:
        """By what sums know these rows: scores follow from the labels, but for the last bits."""
        if self.labels is None:
            return [data_digest(self.teacher_rows).hex()]
        without_scores = self.teacher_rows[:, : -self.n_scores]
        return [
            data_digest(self.rows, without_scores, self.labels).hex(),
            "labels",
        ]


@final
@by_identity
class Wishes(Private):
    """Votes that people would cast, before the ledger grants how many each may cast; private."""

    votes: FewVotes
    names: Sequence[str]  # of the people, one each
    digest: bytes  # of what the names are of
    cap: int
    unit: PrivacyUnit

    @property
    def form(self) -> OneHot:
        """The public form of the ballots."""
        return OneHot(self.votes.shape[2], self.unit, self.cap)

    def histogram(self, granted: ArrayLike) -> VoteHistogram:
        """Return the count of the first votes of each person, as many as granted."""
        first = self.votes.first(granted)
        # No people cast as one without votes does.
        shape = (max(1, first.shape[0]), *first.shape[1:])
        return tally_few(
            first.teachers,
            first.queries,
            first.labels,
            shape=shape,
            cap=self.cap,
            unit=self.unit,
        )


_CastBallots = VoteHistogram | BallotSum | Wishes | Missing


class Ballot(Protocol):
    """The ballots that people are asked to cast: a public record, which is executed where the private rows are."""

    def cast(
        self,
        prepared: Any,
        request: "Request",
        places: IntArray,
        /,
    ) -> _CastBallots:
        """Return the private ballots on the rows of a request at these places; no row of a person may make it fail."""
        ...


class Prepared(Protocol):
    """The people who cast ballots; private."""

    def private_attributes(
        self, outcome: "Outcome", noised: "Sequence[NoisedBallots]", /
    ) -> dict[str, object]:
        """Return the private attributes of a fit."""
        ...


@final
@by_identity
class PreparedTiers(Private):
    """The people of several tiers, each as a method prepared them; private."""

    parts: Sequence[Prepared]  # in the order of the tiers
    tiers: TierSteps

    def cast(self, request: "Request", places: IntArray) -> BallotSum:
        """Return the private sum of all ballots in steps, those of each tier shortened; each part is checked."""
        sums = list[BallotSum]()
        for part in self.parts:
            ballots = request.ballot.cast(part, request, places)
            if not isinstance(ballots, BallotSum) or not request.form.holds(ballots.form):
                raise InvalidBallotError(
                    "The ballots do not have the form that the request asks for."
                )
            sums.append(ballots)
        return sum_of_tiers(sums, self.tiers)

    def private_attributes(
        self, outcome: "Outcome", noised: "Sequence[NoisedBallots]", /
    ) -> dict[str, object]:
        """Return the private attributes of a fit."""
        return self.parts[0].private_attributes(outcome, noised)


@final
@by_keywords
class Request:
    """A request of a method: ballots of one form, to be released by one mechanism; public."""

    mechanism: _AnyMechanism
    form: OneHot | Vector | Shortfall
    subject: Mapping[str, object]  # by which, with mechanism and event, answers are remembered
    ballot: Ballot
    rows: Array = field(default_factory=lambda: np.zeros((1, 1)))  # there is one answer for each
    predictions: FloatArray | None = None  # of the student, for them
    # Whether one event pays for all of them, and the ledger holds each person to the cap.
    campaign: bool = False
    partial: bool = False  # whether it may be the first rows only, as many as the budget allows
    # Whether an earlier release asked it, so that it is remembered or has no answer.
    earlier: bool = False
    # All requests that it begins, as one event: there must be room for it before anything is spent.
    total: Event | None = None

    @property
    def is_of_sum(self) -> bool:
        """Whether the answer is one sum, and not a label for each row."""
        return isinstance(self.form, Vector)

    def form_in(self, tiers: TierSteps) -> OneHot | Vector | Shortfall:
        """Return the form of the ballots, where people have tiers, in steps; refuse others than vectors."""
        if not tiers:
            return self.form
        if not isinstance(self.form, Vector):
            raise UnsupportedEventError(SUMS_ALONE)
        return self.form.in_tiers(tiers)

    def of_rows(self, rows: slice) -> "Request":
        """Return the request for some of the rows."""
        predictions = self.predictions
        if predictions is not None:
            predictions = predictions[rows]
        return replace(
            self,
            rows=self.rows[rows],
            predictions=predictions,
            partial=False,
            total=None,
        )

    def context(self, event: Event) -> dict[str, Any]:
        """Return what all answers are remembered by; it never changes, or they would be drawn again."""
        about = {**self.subject, "event": event.as_dict()}
        # The test of a proposal is known by the proposal.
        if not isinstance(self.form, Shortfall):
            about["mechanism"] = self.mechanism.key()
        return about


class Learned(NamedTuple):
    """A public value that is computed once, and is the same ever after on all machines."""

    name: str
    make: Callable[[], bytes]


class Answer(NamedTuple):
    """The release for a request; public."""

    # Shape (answers, numbers): a class index each, or all numbers of a sum. A sum over people in tiers is of ballots
    # of which some are shortened, in units of whole ballots, so that its numbers are fractions.
    values: IntArray
    event: Event  # what was charged for it now, as it happened
    cost: float  # in ε of the budget; 0 where everything was remembered
    sigma: float | None = None  # of the noise on a sum, where it is not that of the mechanism

    @property
    def labels(self) -> IntArray:
        """Class index of each row, or −1."""
        return self.values[:, 0]


@final
@by_identity
class NoisedBallots(Private):
    """Ballots that noise was added to, and what came out; private."""

    request: Request
    ballots: Any
    drawn: Any
    predictions: FloatArray | None


class Reported(NamedTuple):
    """The noisy sum of a test report; public."""

    values: IntArray  # all numbers of the sum
    sigma: float  # of the noise on each
    layout: AnyLayout
    n_people: int | None  # whose ballots it adds up; None where their number is private

    def quality(self) -> Measured | MeasuredErrors:
        """Return how good the student is, with intervals."""
        if isinstance(self.layout, NumberLayout):
            return measured_errors(self.values, self.sigma, self.layout, self.n_people)
        return measured(self.values, self.sigma, self.layout, self.n_people)


@final
@by_keywords
class Outcome:
    """The result that a method made of the answers; public."""

    queries: IntArray  # numbers of the public rows that have an answer, in their order
    labels: IntArray  # class index of each, or −1
    rounds: tuple[int, ...]  # how many rows each round labeled
    n_teachers: int | None = None  # who cast ballots; a noisy number where it is private, or None
    student: Any = None  # where it follows from what was released
    sums: tuple[Moments, ...] = ()  # noisy means that were released, one per round
    # How much each class value counts in predictions.
    class_weight: Mapping[object, float] | None = None
    report: Reported | None = None


class Facts(NamedTuple):
    """Statements of reports about how a method releases; public."""

    voters: str  # those who cast ballots
    selection: str  # how the queries were chosen
    of_sums: bool  # whether the student and all labels follow from noisy sums
    teachers: int | None  # that were trained
    threshold: float | None  # in votes, below which the mechanism does not answer
    stopping: str  # the rule that ends the queries, in a word of `lint`
    mechanism: str | None  # in a word of `lint`
    predicts: bool = False  # whether later requests use a student's predictions
    testable: bool = False  # whether a smaller ε can be proposed for it, and tested on its votes

    @property
    def for_lint(self) -> dict[str, Any]:
        """The facts that `lint` looks at."""
        names = ("teachers", "threshold", "stopping", "mechanism")
        return {name: getattr(self, name) for name in names}


def first_places(keys: Sequence[bytes]) -> dict[bytes, int]:
    """Return where each different key stands first, in the order of the keys."""
    places = dict[bytes, int]()
    for place, key in enumerate(keys):
        places.setdefault(key, place)
    return places


Result = TypeVar("Result")
Asking = Generator[Request | Learned, Any, Result]
Steps = Asking[Outcome]


def run_steps(
    steps: Asking[Result],
    answer_to: Callable[[Request], Answer | None],
    learned: Callable[[Learned], bytes],
) -> Result:
    """Answer one request after the other, and return what is made of the answers."""
    answer: Answer | bytes | None = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as done:
            return done.value
        answer = learned(request) if isinstance(request, Learned) else answer_to(request)
