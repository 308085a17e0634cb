"""Trial runs on labeled public rows that take the place of the private rows, with the real run's noise per person.

All public rows take part without their labels, as in the real run. Four fifths of the labels cast ballots in place of
the private rows, and the student is scored on the other fifth. This is done five times, so that every label is scored
once. A trial has fewer people and proportionally less noise. It differs from the real run in what more labels add,
which is estimated from the gain of the last doubling of their number.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import numpy as np

from tutelage._internal.typing import ABSTAIN, IntArray, Matrix
from tutelage.exceptions import OneClassWarning
from tutelage.noise import NoiseSource, SimulationNoise
from tutelage.partition import Shards
from tutelage.planning.methods import DenseVotes, FewVotesOfPeople, Method, PeopleBallots
from tutelage.privacy import ONE_ENTITY
from tutelage.students import Moments, NoisySumClassifier, fit_student, student_named
from tutelage.students.selection import PublicKnowledge, selector_named
from tutelage.teachers import NearestTeachers, ensemble_of
from tutelage.teachers.blocks import PeopleInMemory
from tutelage.votes import tally

_FOLDS = 5
_DEALS = 3
_SMALL, _MOST_LABELED = 1_000, 5_000  # rows
_KEY = b"shards of trial runs on public rows"
STILL_TO_COME = 0.5  # times the gain of the last doubling: what the real number of people adds to a trial


@final
@dataclass(frozen=True, slots=True, eq=False)
class PublicLabels:
    """Public rows as the teachers see them, and the classes of some; all of it public."""

    rows: Matrix = field(repr=False)  # all public rows, shape (public rows, features)
    labeled: Matrix = field(repr=False)  # rows with labels: public rows, or those of a stand-in
    classes: IntArray = field(repr=False)  # their class indices
    n_classes: int
    own: bool  # whether the labeled rows are the public rows, in their order

    @property
    def majority(self) -> float:
        """Share of the most frequent class."""
        return float(np.bincount(self.classes, minlength=self.n_classes).max() / len(self.classes))

    def fewer(self, share: float) -> "PublicLabels":
        """Return a random share of the public rows, and of the labels if they belong to the public rows."""
        kept = np.sort(np.random.default_rng(0).permutation(len(self.rows))[: max(2, round(share * len(self.rows)))])
        if self.own:
            return PublicLabels(self.rows[kept], self.labeled[kept], self.classes[kept], self.n_classes, True)
        return replace(self, rows=self.rows[kept])


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


Student = Callable[[IntArray, NoiseSource], IntArray]
"""Maps the places of labeled rows that take part, and noise, to the predicted class of every labeled row."""


def tried(method: Method, known: PublicLabels, people: int, *, folds: int | None = None, deals: int = _DEALS) -> Trial:
    """Return the accuracy of students of a method on labeled public rows.

    `people` take part in the real run, for which the noise of the method is. Of the fifths of the labels, `folds` are
    scored, by default all. Few labels are dealt into fifths `deals` times, many labels once.
    """
    rng, noise = np.random.default_rng(0), SimulationNoise(0)  # nothing here needs protection
    student = _STUDENTS[type(method)](method, known, people)
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


def _by_ballots(method: PeopleBallots, known: PublicLabels, people: int) -> Student:
    """Return students of a noisy sum, as `BallotRounds` makes them, over features for the noise of the real run."""
    teacher, classes = method.teacher, np.arange(known.n_classes)
    features = teacher.features(known.rows, n_classes=known.n_classes, n_people=people, noise_multiplier=method.noise)
    public, vectors = features.transform(known.rows), features.transform(known.labeled)
    scores = NoisySumClassifier().fit_moments(public, [], n_rows=people, classes=classes)

    def student(taught: IntArray, noise: NoiseSource) -> IntArray:
        found, rounds = scores, list[Moments]()
        shards = Shards.of_single_people(len(taught))
        cast_by = PeopleInMemory(vectors[taught], known.classes[taught], shards)
        for number in range(teacher.rounds):
            radius = found.radius(public)
            total = teacher.cast(
                cast_by.blocks(), lambda block, by=found: (block.rows, by.residuals(block.rows, block.labels)),
                radius, ONE_ENTITY,
            ).totals  # fmt: skip
            scale = teacher.scale(radius) * len(taught)
            sigma = teacher.noise_of_round(method.noise, number) * teacher.norm * len(taught) / people
            rounds.append(Moments.of_sum(total + noise.discrete_gaussian(sigma, total.shape), sigma, scale, radius))
            found = NoisySumClassifier().fit_moments(public, rounds, n_rows=len(taught), classes=classes)
        return found.predict(vectors).astype(np.int64)

    return student


def _by_few_votes(method: FewVotesOfPeople, known: PublicLabels, people: int) -> Student:
    """Return students of the votes of people on rows near their own, but never on their own row."""
    shards = Shards.of_single_people(len(known.labeled))
    ballots = NearestTeachers(
        method.cap + known.own, known.labeled, known.classes, shards, n_classes=known.n_classes
    ).few_votes(known.rows)
    votes = (ballots.at(ballots.queries != ballots.teachers) if known.own else ballots).first(method.cap)

    def student(taught: IntArray, noise: NoiseSource) -> IntArray:
        takes_part = np.zeros(len(known.labeled), dtype=bool)
        takes_part[taught] = True
        cast = votes.at(takes_part[votes.teachers])
        counts = np.zeros((len(known.rows), known.n_classes), dtype=np.int64)
        np.add.at(counts, (cast.queries, cast.labels), 1)
        sigma = method.noise * len(taught) / people
        return _taught_by(method, counts, np.arange(len(known.rows)), sigma, known, noise)

    return student


def _by_dense_votes(method: DenseVotes, known: PublicLabels, people: int) -> Student:
    """Return students of the votes of all teachers; no teacher votes on a row that it learned from."""
    rule = selector_named(method.selection) if isinstance(method.selection, str) else method.selection
    queries = rule.select(PublicKnowledge.before(known.rows), min(method.queries, len(known.rows)), seed=0)
    teachers = ensemble_of(method.teacher, n_classes=known.n_classes, seed=0)

    def student(taught: IntArray, noise: NoiseSource) -> IntArray:
        number = max(2, round(method.teachers * len(taught) / people))
        shards = Shards.of_rows(len(taught), number, key=_KEY)
        ballots = teachers.fit_ballots(known.labeled[taught], known.classes[taught], shards, known.rows[queries])
        if known.own:
            place = np.full(len(known.labeled), -1)
            place[taught] = shards.assignment
            own = place[queries]
            ballots[own[own >= 0], np.flatnonzero(own >= 0)] = ABSTAIN
        counts = tally(ballots, known.n_classes, shards.unit).counts
        return _taught_by(method, counts, queries, method.noise * number / method.teachers, known, noise)

    return student


def _taught_by(
    method: FewVotesOfPeople | DenseVotes,
    counts: IntArray,
    queries: IntArray,
    sigma: float,
    known: PublicLabels,
    noise: NoiseSource,
) -> IntArray:
    """Return what the student of a method predicts for the labeled rows, from noisy counts of votes."""
    labels = np.full(len(known.rows), ABSTAIN)
    labels[queries] = (counts + noise.discrete_gaussian(sigma, counts.shape)).argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OneClassWarning)  # such a student is scored as it is
        estimator = student_named(method.student) if isinstance(method.student, str) else method.student
        student = fit_student(estimator, known.rows, labels, np.arange(known.n_classes), seed=0)
    return np.asarray(student.predict(known.labeled), dtype=np.int64)


_STUDENTS: dict[type, Callable[..., Student]] = {
    PeopleBallots: _by_ballots,
    FewVotesOfPeople: _by_few_votes,
    DenseVotes: _by_dense_votes,
}
