"""Accuracy of vector ballots on known data sets, from which plans without labels are estimated."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tutelage.planning.methods import Target

_EPSILONS = (0.1, 0.5, 1.0, 3.0)


class _Reference(NamedTuple):
    """One data set: shares are of rows that no run has seen, at the four ε above and δ = 1e-5."""

    name: str
    classes: int
    majority: float
    people: int
    shares: tuple[float, ...]

    def gain(self, per_class: float) -> float:
        """Return the share of the majority class's errors that is avoided, by ε times people per class."""
        # shares, gains, places: (epsilons,)
        shares = np.array(self.shares, np.float64)
        epsilons = np.array(_EPSILONS, np.float64)
        gains = (shares - self.majority) / (1 - self.majority)
        places = np.log(epsilons * self.people / self.classes)
        rising = np.maximum.accumulate(np.maximum(gains, 0))
        gain = float(np.interp(float(np.log(per_class)), places, rising))
        # Below the smallest value that was measured: in proportion.
        return gain * min(1.0, per_class / float(np.exp(places[0])))

    @property
    def limit(self) -> float:
        """The gain with the least noise that was measured."""
        return self.gain(float("inf"))


# The measured accuracies of docs/results/plan-check.csv: δ = 1e-5, one replaced row.
REFERENCES: tuple[_Reference, ...] = (
    _Reference("Adult", 2, 0.761, 32_561, (0.847, 0.856, 0.859, 0.859)),
    _Reference("Fashion-MNIST", 10, 0.100, 60_000, (0.825, 0.874, 0.881, 0.897)),
    _Reference("AG News", 4, 0.250, 5_000, (0.767, 0.808, 0.821, 0.833)),
    _Reference("SMS spam", 2, 0.866, 3_500, (0.968, 0.971, 0.971, 0.979)),
    _Reference("Diabetes", 2, 0.501, 14_645, (0.596, 0.613, 0.611, 0.613)),
    _Reference("MNIST", 10, 0.113, 60_000, (0.991, 0.992, 0.992, 0.992)),
    _Reference("Diabetes, unbalanced", 2, 0.886, 64_191, (0.885, 0.885, 0.885, 0.885)),
    _Reference("SVHN", 10, 0.197, 7_000, (0.378, 0.628, 0.700, 0.772)),
    _Reference("Digits", 10, 0.102, 1_200, (0.236, 0.678, 0.822, 0.886)),
    _Reference("Breast cancer", 2, 0.627, 330, (0.870, 0.922, 0.938, 0.946)),
    _Reference("Wine", 3, 0.399, 93, (0.465, 0.839, 0.859, 0.930)),
    _Reference("Iris", 3, 0.333, 75, (0.471, 0.583, 0.695, 0.873)),
)

# Both were fitted to 90 means of docs/results/labels.csv and of runs with few people; the mean error is 0.13 points.
_POWER = 0.016  # of the number of labels
# For each class and deviation of the noise: so many people gain half as much as without noise.
_PEOPLE_HEARD = 200


class Guess(NamedTuple):
    """The expected accuracy of a student and its bounds."""

    expected: float
    low: float
    high: float


def guess_accuracy(
    target: Target, accuracy: float | None, references: Sequence[_Reference] = REFERENCES
) -> Guess:
    """Return the accuracy that students of other data sets reached with as much noise per class.

    Classes are assumed to be equally frequent.

    Parameters
    ----------
    target : Target
        The numbers of people and classes, and ε.
    accuracy : float, optional
        Accuracy of a model without privacy. Default: unknown.
    references : sequence of _Reference
        The measured data sets.
    """
    majority = 1 / target.classes
    per_class = target.epsilon * target.people / target.classes
    gains = list[float]()
    for reference in references:
        gain = reference.gain(per_class)
        if accuracy is None:
            gains.append(gain)
        elif reference.limit > 0:
            top = (accuracy - majority) / (1 - majority)
            gains.append(top * gain / reference.limit)
    bounds = [float(np.median(gains)), min(gains), max(gains)]
    return Guess(*(majority + (1 - majority) * gain for gain in bounds))


def gain_over_labels(
    accuracy: float, *, people: int, labels: int, classes: int, noise: float
) -> float:
    """Return by how much releases that started from public labels were more accurate than these, on other data sets.

    Errors fall by a power of the number of labels, with the private ones. Where few people stand against the noise,
    releases gained nothing.

    Parameters
    ----------
    accuracy : float
        Accuracy of public labels alone.
    people, labels, classes : int
        Numbers of people, of public labels and of classes.
    noise : float
        σ of one sum that costs as much as the release, in lengths of the longest ballot.
    """
    vanish = 1 - (1 + people / labels) ** -_POWER
    heard = 1 / (1 + (_PEOPLE_HEARD * classes * noise / people) ** 3)
    return (1 - accuracy) * vanish * heard
