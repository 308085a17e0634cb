"""Choose among declared settings of vector ballots: a trial, a rehearsal in public, a score from each person.

The estimator is tried without changes, with a part of the budget. Its student predicts the class probabilities of each
public row. Every setting is rehearsed on public rows with labels that were drawn by that, under as much noise as it
will have. Then each person says which students of the rehearsal are right, and the best setting gets the rest of the
budget. Everything that leaves the private rows is a sum of bounded ballots through Gaussian noise, so the cost is that
of such sums and is known before the first of them. Proof: docs/proofs/ballots.md.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from math import ceil, sqrt
from typing import Any, final

import numpy as np
import numpy.typing as npt
from sklearn import config_context
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from tutelage._internal.threads import QUIET, on_all_cores
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Matrix
from tutelage.ballots import BallotSum, add_sums, sum_of_products
from tutelage.events import Composed, Event, NoisySumGaussian
from tutelage.features.base import features_of_private
from tutelage.labeling.fits import FitRelease
from tutelage.labeling.rounds import AskedRounds
from tutelage.labeling.sums import BallotRounds, ReleasedVectors, release_sum
from tutelage.ledger import Ledger
from tutelage.ledger.digests import data_digest
from tutelage.mechanisms import NoisySum, Release
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.privacy import PrivacyUnit
from tutelage.students import NoisySumClassifier, fit_student
from tutelage.teachers.blocks import PeopleBlock, PeopleInMemory, blocks_of
from tutelage.teachers.parallel import MachineFaultError, is_of_machine

MOST_SETTINGS = 100
DEFAULT_SHARE = 0.4  # of all 1/σ²
_SCORES = 0.3  # of the share for tuning
_REHEARSED = 10_000  # rows, about; at least all public rows, and no more than there are people
# Students whose `predict` changes nothing: others are copied for every person, for a random state would carry over.
_KEEP_NOTHING = (LogisticRegression, DecisionTreeClassifier, RandomForestClassifier)
_STEPS = 2**16  # to which a score of one is rounded
# The proof covers every setting: all cost the same but for the rounding of a few floats, which is far below this.
_A_LITTLE_LESS = 1 - 1e-9


@final
@dataclass(frozen=True, slots=True)
class Tuning:
    """How one of several settings was chosen; public.

    Parameters
    ----------
    settings : tuple of mappings
        The settings, as they were given.
    scores : tuple of float
        How much more often the student of each setting was right in the rehearsal than the average student: share of a
        person's rows, averaged over people. They went through noise.
    noise : float
        Standard deviation of the noise on each score.
    chosen : int
        Which setting was chosen, from 0 on.
    """

    settings: tuple[Mapping[str, Any], ...]
    scores: tuple[float, ...]
    noise: float
    chosen: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TunedRelease(FitRelease):
    """Release of a fit that chose among settings; public but for ballots."""

    tuning: Tuning


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One setting with its ballots, its student and the rows as both see them."""

    setting: Mapping[str, Any]
    rounds: BallotRounds  # who casts which ballots
    student: Any
    asked: Matrix  # public rows as the teachers see them
    seen: Matrix  # public rows as the student sees them
    people: PeopleInMemory  # private rows as the teachers see them
    private_seen: Matrix = field(repr=False)  # private rows as the student sees them

    def __repr__(self) -> str:
        return "Candidate(<private rows hidden>)"

    @property
    def ballot(self) -> tuple[Any, ...]:
        """By which settings share a rehearsal: a ledger, too, knows sums by the public rows as teachers see them."""
        return self.rounds.teacher, self.asked.shape, sha256(np.ascontiguousarray(self.asked).tobytes()).digest()


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskingTuned:
    """The sums of the best of several settings, and before them the sums by which it is chosen."""

    pilot: Candidate  # which is tried first: what the estimator is without any of the settings
    candidates: Sequence[Candidate]
    share: float  # of all 1/σ², for everything but the final sums
    mechanism: NoisySum  # with the noise of one sum which costs as much as everything together
    n_queries: int = 1

    def _part(self, share: float) -> NoisySum:
        """Return the release that takes a share of all 1/σ²."""
        return NoisySum(self.mechanism.noise_multiplier / sqrt(share))

    @property
    def _final(self) -> NoisySum:
        return self._part(1 - self.share)

    @property
    def _trial(self) -> NoisySum:
        return self._part(self.share * (1 - _SCORES))

    @property
    def _scores(self) -> NoisySum:
        return self._part(self.share * _SCORES)

    def _after_trial(self, unit: PrivacyUnit) -> list[Event]:
        """Return what the scores are, and the final sums at most, whichever setting is chosen."""
        longest = max((one.rounds for one in self.candidates), key=lambda rounds: rounds.teacher.rounds)
        k, simulated = len(self.candidates), longest.noise.simulated
        scores = NoisySumGaussian(self._scores.noise_multiplier * score_norm(k), score_norm(k) ** 2, k, unit, simulated)
        return [scores, longest.of_rounds(NoisySum(self._final.noise_multiplier * _A_LITTLE_LESS), unit)]

    def event_of_one(self, unit: PrivacyUnit) -> Event:
        """Return what everything together is at most."""
        rounds = self.pilot.rounds
        trial, count = rounds.of_rounds(self._trial, unit), rounds.of_count(self._final, unit)
        return Composed((trial, *self._after_trial(unit), *count))

    def prepare(self, ledger: Ledger) -> Callable[[Ledger], TunedRelease]:
        """Refuse what a ledger has no room for, of which it remembers nothing; return what releases it."""
        for one in (self.pilot, *self.candidates):
            one.rounds.check_public(self._final, one.asked)
        if ledger.state().spent == 0:
            ledger.require(self.event_of_one(self.pilot.people.unit), 1)
        return self._release

    def _release(self, ledger: Ledger) -> TunedRelease:
        """Spend, draw and return the labels that the student of the chosen setting gives."""
        first, unit = self.pilot, self.pilot.people.unit
        n_people, count = first.rounds.counted(ledger, self._final, self.event_of_one(unit))
        after = self._after_trial(unit)
        trial = first.rounds.in_rounds(ledger, self._trial, first.asked, n_people, trial_for=self._final, then=after)
        students = self._rehearsed(trial.student.predict_proba(first.asked), n_people)
        ballots = self._cast(students)
        about = [*first.rounds.about, n_people, "scores", *map(self._described, self.candidates, students)]
        first.rounds.require_room(ledger, after, self._scores, ballots, about)
        scores = release_sum(ballots, self._scores, ledger, about, first.rounds.noise)
        found = scores.values[0] / (_STEPS * n_people)
        noise = self._scores.noise_multiplier * score_norm(len(found)) / (_STEPS * n_people)
        chosen = int(found.argmax())
        best = self.candidates[chosen]
        # The first sum of the trial was over the very ballots that the first final sum of the same setting is over.
        known = trial.moments[0] if best.ballot == first.ballot else None
        released = best.rounds.in_rounds(ledger, self._final, best.asked, n_people, known=known)
        released = released.after([*([] if count is None else [count]), trial, scores])
        labels, n_rows = np.searchsorted(first.rounds.classes, released.student.predict(best.asked)), len(best.asked)
        n_drawn = n_rows if released.cost else 0
        return TunedRelease(
            asked=AskedRounds(np.arange(n_rows), Release(labels, released.event, released.cost), (n_rows,)),
            n_drawn=n_drawn,
            n_remembered=n_rows - n_drawn,
            reservations=released.reservations,
            n_teachers=n_people,
            ballots=released.ballots,
            moments=released.moments,
            student=released.student,
            tuning=Tuning(tuple(one.setting for one in self.candidates), tuple(found.tolist()), noise, chosen),
        )

    def _rehearsed(self, probabilities: FloatArray, n_people: int) -> list[Any]:
        """Return the student of each setting, from public rows and the probabilities of their classes alone."""
        n_rows, classes = len(probabilities), self.pilot.rounds.classes
        copies = max(1, min(n_people, _REHEARSED) // n_rows)
        drawn = np.random.default_rng(0).random((copies, n_rows, 1))
        up_to = np.cumsum(probabilities, axis=1)
        labels = np.minimum((drawn > up_to).sum(axis=2), len(classes) - 1).ravel()
        shards = Shards.of_single_people(len(labels))
        # The mean over the rehearsal's rows has the noise of that over all people.
        mechanism = NoisySum(self._final.noise_multiplier * len(labels) / n_people)
        rehearsals = dict[Any, ReleasedVectors]()
        for one in self.candidates:
            if one.ballot not in rehearsals:
                people = PeopleInMemory(np.tile(one.asked, (copies, 1)), labels, shards)
                rounds = replace(one.rounds, people=people, noise=SimulationNoise(0))
                rehearsals[one.ballot] = rounds.in_rounds(None, mechanism, one.asked, len(labels))
        return [self._student(one, rehearsals[one.ballot]) for one in self.candidates]

    def _student(self, one: Candidate, rehearsal: ReleasedVectors) -> Any:
        """Return the student that a setting makes of its rehearsal."""
        if isinstance(one.student, NoisySumClassifier):
            return rehearsal.student
        labels = np.searchsorted(one.rounds.classes, rehearsal.student.predict(one.asked))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about labels of which others may be used in the end
            # One seed, whatever that of the fit: the same settings are to find the same students again.
            return fit_student(one.student, one.seen, labels, one.rounds.classes, seed=0)

    def _described(self, one: Candidate, student: Any) -> list[Any]:
        """Return what a student of the rehearsal is known by: the rows it was learned from and what it says of them."""
        kind = type(one.student)
        closed_form = isinstance(one.student, NoisySumClassifier)
        predicted = student.predict(one.asked if closed_form else one.seen)
        found = np.searchsorted(one.rounds.classes, predicted)
        coefficients = [data_digest(student[-1].coef_).hex()] if closed_form else []
        return [f"{kind.__module__}.{kind.__qualname__}", data_digest(one.asked, one.seen, found).hex(), *coefficients]

    def _cast(self, students: Sequence[Any]) -> BallotSum:
        """Return the sum of what all people say of the students."""
        people, classes = self.pilot.people, self.pilot.rounds.classes

        def cast_by(block: PeopleBlock, *, alone: bool) -> BallotSum:
            places = block.rows[:, 0]
            right = [
                _predicted(one, student, places, block.people, classes, alone=alone) == block.labels
                for one, student in zip(self.candidates, students, strict=True)
            ]
            return score_ballots(np.stack(right, axis=1), block.people, people.unit)

        def cast_beside(block: PeopleBlock) -> BallotSum | PeopleBlock:
            try:
                return cast_by(block, alone=False)
            except MachineFaultError:
                return block

        numbers = np.arange(len(people.rows))[:, np.newaxis]
        cast = list(on_all_cores(cast_beside, blocks_of(numbers, people.labels, people.shards.assignment)))
        # Other people may have been the reason, by their use of memory: once more, with nothing beside it.
        return reduce(add_sums, (cast_by(one, alone=True) if isinstance(one, PeopleBlock) else one for one in cast))


def score_norm(n_settings: int) -> int:
    """Return the largest norm of a ballot about so many settings, in whole steps.

    Shares of 0 to 1, less their mean, have a norm of √k/2 at most, and rounding adds √k/2 steps. The norm that
    `sum_of_products` finds is rounded upward.
    """
    return ceil((_STEPS + 1) * sqrt(n_settings) / 2) + 1


def score_ballots(right: npt.NDArray[np.bool_], people: IntArray, unit: PrivacyUnit) -> BallotSum:
    """Return the sum of one ballot per person: the share of the person's rows that each student has right.

    `right`, shape (rows, settings), says whether the student of each setting is right; `people`, shape (rows,), whose
    row it is, in ascending order, with all rows of these people.
    """
    starts = np.flatnonzero(np.diff(people, prepend=people[0] - 1))
    n_right = np.add.reduceat(right.astype(np.int64), starts, axis=0)
    n_rows = np.diff(starts, append=len(people))[:, np.newaxis]
    k = right.shape[1]
    # Without the mean over all settings, which tells nothing about which is best and would take length.
    beyond = (k * n_right - n_right.sum(axis=1, keepdims=True)) / (k * n_rows)
    whole = np.rint(beyond * _STEPS).astype(np.int64)
    ones = np.ones((len(whole), 1), dtype=np.int64)
    return sum_of_products(ones, whole, np.arange(len(whole)), norm=score_norm(k), unit=unit)


def _fresh(student: Any) -> Any:
    """Return a student that has seen no private row: a copy, unless its `predict` is known to keep nothing."""
    return student if type(student) in _KEEP_NOTHING else deepcopy(student)


def _predicted(
    one: Candidate, student: Any, places: IntArray, people: IntArray, classes: npt.NDArray[Any], *, alone: bool
) -> npt.NDArray[Any]:
    """Return the class index that a student gives to each row, as if its person's rows were the only ones.

    The closed form takes each row by itself to the last bit. Any other student sees the rows of one person at a time:
    a sum that is rounded otherwise because of other rows could change what the student says of this one. A student that
    fails on the rows of a person, for example on a number beyond single precision, is wrong on them: the budget of the
    trial is spent by then. Where others may be the reason, the person is tried once more, `alone`.
    """
    if isinstance(one.student, NoisySumClassifier):
        each, last = np.arange(len(places))[:, np.newaxis], student[-1]
        rows = one.people.rows[places]
        return last.expected(features_of_private(student[:-1], rows, each, len(last.coef_))).argmax(axis=1)
    of_people = np.split(one.private_seen[places], np.flatnonzero(np.diff(people)) + 1)
    # scikit-learn's own check of parameters in each call would take longer than a single row.
    with QUIET, config_context(skip_parameter_validation=True):
        return np.concatenate([_of_person(student, rows.copy(), classes, alone=alone) for rows in of_people])


def _of_person(student: Any, rows: Matrix, classes: npt.NDArray[Any], *, alone: bool) -> IntArray:
    """Return the class index that a student gives to each row of a person; -1 for all where it fails on them.

    A failure that may be due to others counts only if the person was `alone`.
    """
    fault = False
    try:
        found = np.asarray(_fresh(student).predict(rows))
        places = np.minimum(np.searchsorted(classes, found), len(classes) - 1)
        is_one = np.broadcast_to(classes[places] == found, len(rows)) & (found.shape == (len(rows),))
        return np.where(is_one, places, ABSTAIN)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # compiled extensions panic with exceptions of their own
        fault = is_of_machine(error) and not alone
    if fault:  # out here: the error, which may quote a row, is not carried along
        raise MachineFaultError
    return np.full(len(rows), ABSTAIN)
