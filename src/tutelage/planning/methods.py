"""The target of a plan: ε for these people, and each method with the least noise that is proved to keep it."""

from typing import TypeVar, final

from tutelage._internal.records import frozen
from tutelage.accounting import data_independent
from tutelage.accounting.calibration import noise_within
from tutelage.accounting.filter import Filter, limit_of
from tutelage.exceptions import InvalidParameterError, quote
from tutelage.mechanisms import GNMax
from tutelage.methods import Method, Sizes, proposals
from tutelage.methods.base import with_student
from tutelage.methods.report import layout_of_classes, sigma_of_report
from tutelage.methods.teacher_votes import TeacherVotes
from tutelage.privacy import NeighboringRelation, PrivacyUnit, PublicEpsilon
from tutelage.reporting.measured import ClassLayout, expected_half_width
from tutelage.students import student_named
from tutelage.students.images import ImageStudent
from tutelage.teachers import ensemble_of

_AnyMethod = TypeVar("_AnyMethod", bound=Method)


@final
@frozen
class Target:
    """The guarantee that a plan must keep, and the public sizes."""

    epsilon: float
    delta: float
    unit: PrivacyUnit
    people: int  # their number, as of all sizes
    public_rows: int
    classes: int
    # Whether the run starts from labels of public rows, if its method takes them.
    labeled: bool = False
    named: bool = False  # whether the release has a name
    tested: bool = False  # whether a test report says how good the student is on the people

    @property
    def sizes(self) -> Sizes:
        """The sizes, from which the cost of a method follows."""
        return Sizes(
            n_classes=self.classes,
            n_public=self.public_rows,
            unit=self.unit,
            labeled=self.labeled,
            report=self.report,
        )

    @property
    def report(self) -> ClassLayout | None:
        """The ballots of the test report, if there is one."""
        return layout_of_classes(tuple(map(str, range(self.classes)))) if self.tested else None

    def half_width_of_report(self, method: Method, accuracy: float, share: float) -> float | None:
        """Return half the width of the report's interval for such a share of the people; None if it is hidden."""
        layout = self.report
        if layout is None or not method.needs.report or method.student is not None:
            return None
        sigma = sigma_of_report(method.noise or 0.0, layout)
        is_exact = share == 1 and self.unit.neighboring is NeighboringRelation.CHANGE_ONE_ROW
        return expected_half_width(accuracy, sigma, layout, share * self.people, exact=is_exact)

    def limit(self, method: Method) -> Filter:
        """Return the budget of the whole release."""
        return limit_of(self.epsilon, self.delta, method.needs.accounting)

    def methods(self) -> list[Method]:
        """Return all methods to compare, each with the least noise that keeps ε; the first is the default."""
        methods = proposals(self.people, self.sizes, named=self.named)
        return [self.with_least_noise(method) for method in methods]

    def with_least_noise(self, method: _AnyMethod) -> _AnyMethod:
        """Return a method with its noise, or the least that keeps ε."""
        if method.mechanism is not None:
            return method
        noise = noise_within(
            self.limit(method), lambda noise: method.with_noise(noise).event(self.sizes)
        )
        return method.with_noise(noise)

    def epsilon_of(self, method: Method) -> PublicEpsilon:
        """Return the ε that is proved for the whole release of a method, for any private rows.

        It is that of the release, or that of the limit where this is smaller.
        """
        event = method.event(self.sizes)
        limit = self.limit(method)
        alone = data_independent.epsilon(event, limit.delta)
        fits = limit.cost(event) <= limit.capacity
        if fits and alone.epsilon > limit.epsilon:
            return limit.guarantee(self.unit, simulated=event.is_simulated)
        return alone

    def method_asked(self, method: object, *, public_features: bool = False) -> Method:
        """Return a method that a user asks about, with its student, and with its noise or the least that keeps ε.

        The default student depends on whether rows go through a public feature map. A method that cannot be tried on
        public rows is refused.
        """
        if not isinstance(method, Method):
            raise InvalidParameterError(
                "plan.method",
                "be a method of tutelage.methods, such as TeacherVotes()",
                quote(method),
            )
        _require_trials(method)
        if method.student is None:
            method = with_student(method, public_features=public_features)
        return self.with_least_noise(method)


def _require_trials(method: Method) -> None:
    """Refuse settings that cannot be tried on public rows."""
    name = type(method).__name__
    if method.needs.public == "schema":
        raise InvalidParameterError(
            "plan.method",
            "be one that uses public rows, because a plan tries it on them",
            name,
            "Train without a plan.",
        )
    if not method.needs.student and method.student is not None:
        raise InvalidParameterError(
            f"{name}.student", "be left out for a plan, which tries only the student in closed form"
        )
    student = method.student
    if isinstance(student, str):
        student = student_named(student, name)
    if isinstance(student, ImageStudent):
        raise InvalidParameterError(
            f"{name}.student",
            "be another one for a plan, whose trials show students features and not images",
            type(student).__name__,
            "Plan with the default student, and then train this one.",
        )
    if not isinstance(method, TeacherVotes):
        return
    if method.rounds > 1 or method.rule.needs_answers or method.rule.needs_student:
        raise InvalidParameterError(
            "TeacherVotes.rounds",
            "be 1 for a plan, and $selection must be a rule that needs no labels, such as 'first' or 'medoids'",
        )
    if not isinstance(method.mechanism, GNMax | None):
        raise InvalidParameterError(
            "TeacherVotes.mechanism",
            "be a GNMax for a plan",
            type(method.mechanism).__name__,
            "Leave it out to get the least noise that ε allows.",
        )
    # Refuses what cannot be trained, such as recorded votes.
    ensemble_of(method.teacher, n_classes=2, seed=0)
