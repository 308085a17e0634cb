"""The methods that a plan compares, each with the least noise that is proved to keep ε."""

from typing import final

from tutelage._internal.records import frozen
from tutelage.accounting.calibration import epsilon_to_state, noise_within
from tutelage.accounting.filter import Filter, limit_of
from tutelage.exceptions import InvalidParameterError, quote
from tutelage.methods import Method, Sizes, proposals, require_trials
from tutelage.methods.base import with_student
from tutelage.privacy import PrivacyUnit, PublicEpsilon


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

    @property
    def sizes(self) -> Sizes:
        """The sizes, from which the cost of a method follows."""
        return Sizes(
            n_classes=self.classes, n_public=self.public_rows, unit=self.unit, labeled=self.labeled
        )

    def limit(self, method: Method) -> Filter:
        """Return the budget of the whole release."""
        return limit_of(self.epsilon, self.delta, method.needs.accounting)


def methods_for(target: Target) -> list[Method]:
    """Return all methods to compare, each with the least noise that keeps ε; the first is the default."""
    methods = proposals(target.people, target.sizes, named=target.named)
    return [with_least_noise(method, target) for method in methods]


def with_least_noise(method: Method, target: Target) -> Method:
    """Return a method with its noise, or the least that keeps ε."""
    if method.mechanism is not None:
        return method
    noise = noise_within(
        target.limit(method), lambda noise: method.with_noise(noise).event(target.sizes)
    )
    return method.with_noise(noise)


def method_asked(method: object, target: Target, *, public_features: bool = False) -> Method:
    """Return a method that a user asks about, with its student, and with its noise or the least that keeps ε.

    The default student depends on whether rows go through a public feature map. A method that cannot be tried on public
    rows is refused.
    """
    if not isinstance(method, Method):
        raise InvalidParameterError(
            "plan.method", "be a method of tutelage.methods, such as TeacherVotes()", quote(method)
        )
    require_trials(method)
    if method.student is None:
        method = with_student(method, public_features=public_features)
    return with_least_noise(method, target)


def proved_epsilon(method: Method, target: Target) -> PublicEpsilon:
    """Return the ε that is proved for the whole release of a method, for any private rows."""
    return epsilon_to_state(method.event(target.sizes), target.limit(method), target.unit)
