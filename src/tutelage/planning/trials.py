"""Trial runs on labeled public rows that take the place of the private rows, with the real run's noise per person.

All public rows take part without their labels, as in the real run. Four fifths of the labels cast ballots in place of
the private rows, and the student is scored on the other fifth. This is done five times, so that every label is scored
once. A trial has fewer people and proportionally less noise. It differs from the real run in what more labels add,
which is estimated from the gain of the last doubling of their number.

A method that starts from labels of public rows is given three fifths of the labels as a start, one fifth as people,
and is scored on the last fifth. The real run starts from all labels: what a model learns from a fourth fifth, which is
measured, is added.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import FloatArray, IntArray
from tutelage.features.scored import chances_of
from tutelage.methods import Method
from tutelage.methods.rehearsal import PublicLabels
from tutelage.noise import SimulationNoise

_FOLDS = 5
_DEALS = 3
_SMALL = 1_000  # rows
# The people of a trial: then its students vary five times as much by who takes part.
MANY_TIMES = 25
# Times the gain of the last doubling: what the real number of people adds to a trial.
STILL_TO_COME = 0.5


class Trial(NamedTuple):
    """The accuracy of students of trial runs, or what they reach of another goal."""

    shares: tuple[float, ...]  # of each run, on the held-out rows
    halves: tuple[float, ...]  # with half of the people
    # The gain of the real number of people, in multiples of the gain of the last doubling.
    still_to_come: float
    people: int = 0  # who took part in one run
    floor: float = 0.0  # what a student starts from

    @property
    def expected(self) -> float:
        """Expected accuracy of a student of the real number of people, at least what it starts from."""
        share = float(np.mean(self.shares))
        gain = self.still_to_come * max(share - float(np.mean(self.halves)), 0.0)
        # At most half of the errors vanish: a student that fails for half of the people by chance is no large gain.
        return max(share + min(gain, (1 - share) / 2), self.floor)

    @property
    def spread(self) -> float:
        """Standard deviation of runs, over folds and draws of the noise."""
        return float(np.std(self.shares))

    @property
    def error(self) -> float:
        """Standard error of the expected accuracy."""
        return self.spread / len(self.shares) ** 0.5

    def gain(self, other: "Trial") -> tuple[float, float]:
        """Return how much better than another trial on the same rows it is expected to be, and the standard error."""
        differences = np.subtract(self.shares, other.shares)
        return self.expected - other.expected, float(np.std(differences)) / len(differences) ** 0.5

    def moved(self, by: float) -> "Trial":
        """Return the trial with a number added to every share."""

        def all_moved(shares: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(np.clip(np.add(shares, by), 0, 1).tolist())

        return self._replace(shares=all_moved(self.shares), halves=all_moved(self.halves))


def tried(
    method: Method,
    known: PublicLabels,
    people: int,
    *,
    folds: int | None = None,
    deals: int = _DEALS,
) -> Trial:
    """Return the accuracy of students of a method on labeled public rows.

    `people` take part in the real run, for which the noise of the method is. Of the fifths of the labels, `folds` are
    scored, by default all. Few labels are dealt into fifths `deals` times, many labels once. Where only some fifths
    are scored, nothing is added for the real number of people.
    """
    rng = np.random.default_rng(0)
    noise = SimulationNoise(0)  # nothing here needs protection
    student = method.rehearsal(known, people)
    shares = list[float]()
    halves = list[float]()
    taught = 0
    # Fewer labels are dealt into fifths several times.
    for number in range(_deals_of(known, deals)):
        for cast_by, held_out, scores, to_add in islice(_dealt(method, known, number), folds):
            people_of_trial = rng.permutation(cast_by)[:people]
            taught = len(people_of_trial)
            predicted = student(people_of_trial, noise, scores)
            shares.append(_right(predicted, known, held_out) + to_add)
            if folds is None:
                predicted = student(people_of_trial[: max(1, taught // 2)], noise, scores)
                halves.append(_right(predicted, known, held_out) + to_add)
    still_to_come = STILL_TO_COME if people > taught else 0.0
    return Trial(tuple(shares), tuple(halves or shares), still_to_come, taught)


def labels_alone(known: PublicLabels) -> Trial | None:
    """Return the accuracy of a model of public labels on labels that it was not shown; None if there are too few."""
    shares = list[float]()
    for number in range(_deals_of(known, _DEALS)):
        if start := known.start(number):
            predicted = _by_scores(start.apart, known)
            shares += [_right(predicted, known, part) for part in start.parts]
    return Trial(tuple(shares), tuple(shares), 0.0) if shares else None


def _deals_of(known: PublicLabels, deals: int) -> int:
    """Return how often labels are dealt: many labels once."""
    return deals if len(known.classes) < _SMALL else 1


def _dealt(
    method: Method, known: PublicLabels, number: int
) -> Iterator[tuple[IntArray, IntArray, FloatArray | None, float]]:
    """Yield who casts ballots, which rows are scored, scores to start from, and what is to be added to the accuracy."""
    start = known.start(number)
    order = known.order(number)
    parts = np.array_split(order, min(_FOLDS, len(order))) if start is None else start.parts
    for fold, held_out in enumerate(parts):
        if start is None or not method.needs.start:
            yield np.setdiff1d(order, held_out), held_out, None, 0.0
            continue
        scores = start.pairs[fold]
        fewer = _right(_by_scores(scores, known), known, held_out)
        more = _right(_by_scores(start.apart, known), known, held_out)
        yield start.partner(fold), held_out, scores, more - fewer


def _by_scores(scores: FloatArray, known: PublicLabels) -> IntArray:
    """Return the classes that a model of public labels predicts by its scores."""
    chances = chances_of(scores)
    weights = 1.0 if known.weights is None else known.weights.of(chances.mean(axis=0))
    return (chances * weights).argmax(axis=1)


def _right(predicted: IntArray, known: PublicLabels, places: IntArray) -> float:
    return known.goal.score(known.classes[places], np.eye(known.n_classes)[predicted[places]])
