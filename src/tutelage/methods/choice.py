"""The choice of a method for a release, by what is public."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tutelage._internal.typing import IntArray, Matrix
from tutelage.features.base import FeatureMap
from tutelage.methods.base import Method
from tutelage.privacy import PrivacyUnit


class Known(NamedTuple):
    """The public facts that the choice of a method may depend on."""

    rows: Matrix  # public rows as numbers
    labels: IntArray | None  # class index of each, or −1
    features: FeatureMap | None  # the map that teachers see them through
    people: int | None  # how many there are, if each row is a person
    epsilon: float | None
    delta: float
    goal: str
    weighted: bool  # whether classes count by weights of their own
    n_classes: int
    unit: PrivacyUnit
    named: bool  # whether the release has a name


class Chooser(Protocol):
    """Chooses the method of a release, by what is public."""

    def candidates(self, known: Known, /) -> Sequence[Method]:
        """Return the methods that may have been chosen before: a begun release of the same question keeps its own."""
        ...

    def __call__(self, known: Known, /) -> Method:
        """Return the method for a new release."""
        ...
