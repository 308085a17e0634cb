"""Accuracy of vector ballots on known data sets, from which plans without labels are estimated."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tutelage.planning.methods import Target

_EPSILONS = (0.1, 0.5, 1.0, 3.0)


class Reference(NamedTuple):
    """One data set: shares are of rows that no run has seen, at the four ε above and δ = 1e-5."""

    name: str
    classes: int
    majority: float
    people: int
    shares: tuple[float, ...]

    def gain(self, per_class: float) -> float:
        """Return the share of the majority class's errors that is avoided, by ε times people per class."""
        gains = (np.array(self.shares) - self.majority) / (1 - self.majority)
        places = np.log(np.array(_EPSILONS) * self.people / self.classes)
        found = float(np.interp(np.log(per_class), places, np.maximum(np.maximum.accumulate(gains), 0)))
        # Below the smallest value that was measured: in proportion.
        return found * min(1.0, per_class / float(np.exp(places[0])))

    @property
    def limit(self) -> float:
        """The gain with the least noise that was measured."""
        return self.gain(np.inf)


# Means over three splits, twenty of the last four; δ = 1e-5, one replaced row.
REFERENCES: tuple[Reference, ...] = (
    Reference("Adult", 2, 0.761, 32_561, (0.850, 0.858, 0.858, 0.859)),
    Reference("Fashion-MNIST", 10, 0.100, 60_000, (0.830, 0.875, 0.883, 0.896)),
    Reference("AG News", 4, 0.250, 5_000, (0.771, 0.800, 0.819, 0.840)),
    Reference("SMS spam", 2, 0.866, 3_500, (0.966, 0.969, 0.971, 0.978)),
    Reference("Diabetes", 2, 0.501, 14_645, (0.589, 0.612, 0.612, 0.609)),
    Reference("MNIST", 10, 0.113, 60_000, (0.991, 0.991, 0.992, 0.992)),
    Reference("Diabetes, unbalanced", 2, 0.886, 64_191, (0.885, 0.885, 0.885, 0.885)),
    Reference("SVHN", 10, 0.197, 7_000, (0.338, 0.620, 0.710, 0.774)),
    Reference("Digits", 10, 0.102, 1_200, (0.317, 0.768, 0.861, 0.900)),
    Reference("Breast cancer", 2, 0.627, 330, (0.884, 0.924, 0.946, 0.944)),
    Reference("Wine", 3, 0.399, 93, (0.440, 0.804, 0.910, 0.945)),
    Reference("Iris", 3, 0.333, 75, (0.449, 0.627, 0.713, 0.899)),
)


class Guess(NamedTuple):
    """The expected accuracy of a student and its bounds."""

    expected: float
    low: float
    high: float


def guessed(
    target: Target, majority: float, accuracy: float | None, references: Sequence[Reference] = REFERENCES
) -> Guess:
    """Return the accuracy that students of other data sets reached with as much noise per class.

    Parameters
    ----------
    target : Target
        The numbers of people and classes, and ε.
    majority : float
        Share of the most frequent class.
    accuracy : float, optional
        Accuracy of a model without privacy. Default: unknown.
    references : sequence of Reference
        The measured data sets.
    """
    per_class = target.epsilon * target.people / target.classes
    gains = [one.gain(per_class) for one in references]
    if accuracy is not None:
        top = (accuracy - majority) / (1 - majority)
        gains = [top * gain / one.limit for one, gain in zip(references, gains, strict=True) if one.limit > 0]
    return Guess(*(majority + (1 - majority) * float(gain) for gain in (np.median(gains), min(gains), max(gains))))
