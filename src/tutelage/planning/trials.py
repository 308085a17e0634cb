"""Trial runs on labeled public rows that take the place of the private rows, with the real run's noise per person.

All public rows take part without their labels, as in the real run. Four fifths of the labels cast ballots in place of
the private rows, and the student is scored on the other fifth. This is done five times, so that every label is scored
once. A trial has fewer people and proportionally less noise. It differs from the real run in what more labels add,
which is estimated from the gain of the last doubling of their number.
"""

from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import IntArray
from tutelage.methods import Method
from tutelage.methods.rehearsal import PublicLabels
from tutelage.noise import SimulationNoise

_FOLDS = 5
_DEALS = 3
_SMALL, _MOST_LABELED = 1_000, 5_000  # rows
STILL_TO_COME = 0.5  # times the gain of the last doubling: what the real number of people adds to a trial


class Trial(NamedTuple):
    """The accuracy of students of trial runs."""

    shares: tuple[float, ...]  # of each run, on the held-out rows
    halves: tuple[float, ...]  # with half of the people
    still_to_come: float  # what the real number of people adds, in multiples of the gain of the last doubling

    @property
    def expected(self) -> float:
        """Expected accuracy of a student of the real number of people."""
        share = float(np.mean(self.shares))
        gain = self.still_to_come * max(share - float(np.mean(self.halves)), 0.0)
        # At most half of the errors vanish: a student that fails for half of the people by chance is no large gain.
        return share + min(gain, (1 - share) / 2)

    @property
    def spread(self) -> float:
        """Standard deviation of runs, over folds and draws of the noise."""
        return float(np.std(self.shares))

    @property
    def error(self) -> float:
        """Standard error of the expected accuracy."""
        return self.spread / len(self.shares) ** 0.5

    def moved(self, by: float) -> "Trial":
        """Return the trial with a number added to every share."""
        shares, halves = (tuple(float(np.clip(one + by, 0, 1)) for one in ones) for ones in (self.shares, self.halves))
        return Trial(shares, halves, self.still_to_come)


def tried(method: Method, known: PublicLabels, people: int, *, folds: int | None = None, deals: int = _DEALS) -> Trial:
    """Return the accuracy of students of a method on labeled public rows.

    `people` take part in the real run, for which the noise of the method is. Of the fifths of the labels, `folds` are
    scored, by default all. Few labels are dealt into fifths `deals` times, many labels once.
    """
    rng, noise = np.random.default_rng(0), SimulationNoise(0)  # nothing here needs protection
    student = method.rehearsal(known, people)
    shares, halves = list[float](), list[float]()
    # Fewer labels are dealt into fifths several times.
    for _ in range(deals if len(known.classes) < _SMALL else 1):
        order = rng.permutation(len(known.classes))[:_MOST_LABELED]
        for held_out in np.array_split(order, min(_FOLDS, len(order)))[:folds]:
            cast_by = rng.permutation(np.setdiff1d(order, held_out))[:people]
            shares.append(_right(student(cast_by, noise), known, held_out))
            halves.append(_right(student(cast_by[: max(1, len(cast_by) // 2)], noise), known, held_out))
    taught = min(len(known.classes), _MOST_LABELED) * (_FOLDS - 1) // _FOLDS
    return Trial(tuple(shares), tuple(halves), STILL_TO_COME if people > taught else 0.0)


def _right(predicted: IntArray, known: PublicLabels, places: IntArray) -> float:
    return float(np.mean(predicted[places] == known.classes[places]))
