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
from dataclasses import replace
from itertools import islice
from math import sqrt
from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import FloatArray, IntArray
from tutelage.features.scored import chances_of
from tutelage.methods import Method, NoisyMoments
from tutelage.methods.rehearsal import PublicLabels
from tutelage.noise import SimulationNoise

N_FOLDS = 5
_DEALS = 3
_SMALL = 1_000  # rows
# The people of a trial: then its students vary five times as much by who takes part.
MANY_TIMES = 25
# Times the gain of the last doubling: what the real number of people adds to a trial.
STILL_TO_COME = 0.5
_FOLDS_OF_SAFETY = 2


class Trial(NamedTuple):
    """The accuracy of students of trial runs, or what they reach of another goal."""

    shares: tuple[float, ...]  # of each run, on the held-out rows
    halves: tuple[float, ...]  # with half of the people
    # The gain of the real number of people, in multiples of the gain of the last doubling.
    still_to_come: float
    people: int = 0  # who took part in one run
    floor: float = 0.0  # the least that is expected of a student

    @property
    def expected(self) -> float:
        """Expected accuracy of a student of the real number of people, at least `floor`."""
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
        error = float(np.std(differences)) / len(differences) ** 0.5
        return self.expected - other.expected, error

    def shift(self, by: float) -> "Trial":
        """Return the trial with a number added to every share."""
        shares = np.clip(np.add(self.shares, by), 0, 1)
        halves = np.clip(np.add(self.halves, by), 0, 1)
        return self._replace(shares=tuple(shares.tolist()), halves=tuple(halves.tolist()))


def run_trials(
    method: Method,
    known: PublicLabels,
    people: int,
    *,
    folds: int | None = None,
    deals: int = _DEALS,
    least: float = 0.0,
) -> Trial:
    """Return the accuracy of students of a method on labeled public rows.

    `people` take part in the real run, for which the noise of the method is. Of the fifths of the labels, `folds` are
    scored, by default all. Few labels are dealt into fifths `deals` times, many labels once. Where only some fifths
    are scored, nothing is added for the real number of people; a method that scores below `least` on the first of
    these is hopeless, and is not tried on others.
    """
    rng = np.random.default_rng(0)
    noise = SimulationNoise(0)  # nothing here needs protection
    student = method.rehearsal(known, people)
    shares = list[float]()
    halves = list[float]()
    n_voters = 0
    for number in range(_deals_of(known, deals)):
        for rows, held_out, scores, to_add in islice(_folds(method, known, number), folds):
            voters = rng.permutation(rows)[:people]
            n_voters = len(voters)
            predicted = student(
                voters,
                noise,
                scores,
            )
            shares.append(_score(predicted, known, held_out) + to_add)
            if folds is None:
                half = voters[: max(1, n_voters // 2)]
                predicted = student(half, noise, scores)
                halves.append(_score(predicted, known, held_out) + to_add)
            elif shares[0] < least:
                return Trial(tuple(shares), tuple(shares), 0.0, n_voters)
    still_to_come = STILL_TO_COME if people > n_voters else 0.0
    return Trial(tuple(shares), tuple(halves or shares), still_to_come, n_voters)


class Safety(NamedTuple):
    """The expected accuracy of ballots with so many landmarks, and how much of it is safe from some liars; public."""

    n_landmarks: int
    right: float  # share of the rows
    safe: float  # share of the rows that are right and survive the liars
    error: float  # standard error of this share, by which rows are scored


def run_safety(method: NoisyMoments, known: PublicLabels, people: int, liars: int) -> Safety:
    """Return how many predictions of trials are right, and survive `liars` of the `people` of the real run.

    The method has one round, and its student does not start from public labels.
    """
    known = replace(known, own=False)
    rehearsed = method.rehearsal(known, people)
    noise = SimulationNoise(0)
    n_scored = 0
    right = list[float]()
    safe = list[float]()
    for rows, held_out, _, _ in islice(_folds(method, known, 0), _FOLDS_OF_SAFETY):
        taught = np.random.default_rng(0).permutation(rows)[:people]
        predicted, survived = rehearsed.predicted_and_liars(taught, noise)
        n_scored += len(held_out)
        is_right = predicted[held_out] == known.classes[held_out]
        right.append(float(is_right.mean()))
        safe.append(float((is_right & (survived[held_out] >= liars)).mean()))
    share = float(np.mean(safe))
    error = sqrt(share * (1 - share) / n_scored)
    return Safety(method.n_landmarks, float(np.mean(right)), share, error)


def labels_alone(known: PublicLabels) -> Trial | None:
    """Return the accuracy of a model of public labels on labels that it was not shown; None if there are too few."""
    shares = list[float]()
    for number in range(_deals_of(known, _DEALS)):
        start = known.start(number)
        if start is not None:
            predicted = _classes_by_scores(start.apart, known)
            shares += [_score(predicted, known, part) for part in start.parts]
    return Trial(tuple(shares), tuple(shares), 0.0) if shares else None


def _deals_of(known: PublicLabels, deals: int) -> int:
    """Return how often labels are dealt: many labels once."""
    return deals if len(known.classes) < _SMALL else 1


def _folds(
    method: Method, known: PublicLabels, number: int
) -> Iterator[tuple[IntArray, IntArray, FloatArray | None, float]]:
    """Yield the rows that cast ballots, those that score, scores to start from, and a number to add to the accuracy."""
    start = known.start(number)
    order = known.order(number)
    parts = np.array_split(order, min(N_FOLDS, len(order)))
    if start is not None:
        parts = start.parts
    for place, held_out in enumerate(parts):
        if start is None or not method.needs.start:
            yield np.setdiff1d(order, held_out), held_out, None, 0.0
            continue
        scores = start.pairs[place]
        fewer = _score(_classes_by_scores(scores, known), known, held_out)
        more = _score(_classes_by_scores(start.apart, known), known, held_out)
        yield start.partner(place), held_out, scores, more - fewer


def _classes_by_scores(scores: FloatArray, known: PublicLabels) -> IntArray:
    """Return the classes that a model of public labels predicts by its scores."""
    # scores, chances: (labeled rows, classes); weights: (classes,)
    chances = chances_of(scores)
    weights = known.weights
    if weights is not None:
        chances = chances * weights.of(chances.mean(axis=0))
    return chances.argmax(axis=1)


def _score(predicted: IntArray, known: PublicLabels, places: IntArray) -> float:
    """Return how much of the goal predictions reach on the labels at these places."""
    one_hot = np.eye(known.n_classes)[predicted[places]]  # (places, classes)
    return known.goal.score(known.classes[places], one_hot)
