"""Choose among declared settings of vector ballots: a trial, a rehearsal in public, a score from each person.

The estimator is tried without changes, with a part of the budget. Its student predicts the class probabilities of each
public row. Every setting is rehearsed on public rows with labels that were drawn by that, under as much noise as it
will have. Then each person says which students of the rehearsal are right, and the best setting gets the rest of the
budget. Everything that leaves the private rows is a sum of bounded ballots through Gaussian noise, so the cost is that
of such sums and is known before the first of them. Proof: docs/proofs/ballots.md.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial, reduce
from hashlib import sha256
from math import ceil, sqrt
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
from sklearn import config_context
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from tutelage._internal.threads import QUIET, on_all_cores
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Matrix
from tutelage.ballots import BallotSum, Vector, add_sums, sum_of_products
from tutelage.digests import data_digest, spelled_out
from tutelage.events import Composed, Event
from tutelage.features.base import check_row_by_row, features_of_private
from tutelage.mechanisms import NoisySum
from tutelage.methods.noisy_moments import NoisyMoments, NoisySums, PeopleReady, SumsReleased, subject_of
from tutelage.methods.rehearsal import rehearsed
from tutelage.methods.requests import Answer, PrivateRows, Public, Request, Sizes, Steps
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.privacy import PrivacyUnit
from tutelage.students import NoisySumClassifier, fit_student
from tutelage.students.stacking import linear_scores
from tutelage.teachers.blocks import PeopleBlock, PeopleInMemory, blocks_of
from tutelage.teachers.parallel import MachineFaultError, is_of_machine

MOST_SETTINGS = 100
DEFAULT_SHARE = 0.4  # of all 1/σ²
_SCORES = 0.3  # of the share for tuning
_REHEARSED = 10_000  # rows, about; at least all public rows, and no more than there are people
# Students whose `predict` changes nothing: others are copied for every person, for a random state would carry over.
_KEEP_NOTHING = (LogisticRegression, DecisionTreeClassifier, RandomForestClassifier)
_STEPS = 2**16  # to which a score of one is rounded
# The proof covers every setting: all cost the same but for the rounding of each round upward, which is far below this.
_A_LITTLE_LESS = 1 - 1e-6


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


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One setting, and the public rows as its teachers and its student see them; public."""

    setting: Mapping[str, Any]
    method: NoisyMoments
    student_map: Any
    public: Public

    @property
    def ballot(self) -> tuple[Any, ...]:
        """By which settings share a rehearsal: a ledger, too, knows sums by the public rows as teachers see them."""
        rows, stack = self.public.teacher_rows, 0.0 if self.public.labels is None else self.method.stack
        return self.method.teacher, stack, rows.shape, sha256(np.ascontiguousarray(rows).tobytes()).digest()

    def with_noise(self, mechanism: NoisySum) -> NoisyMoments:
        """Return the setting's method under this mechanism."""
        return replace(self.method, mechanism=mechanism)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ScoreBallot:
    """The ballot that says how much more often each student of the rehearsal is right than the average; public."""

    candidates: Sequence[Candidate]
    students: Sequence[Any]

    def cast(self, prepared: PeopleReady, _request: Request, _places: IntArray, /) -> BallotSum:
        """Return the private sum of what all people say of the students."""
        people, classes = prepared.views[0], self.candidates[0].public.classes

        def cast_by(block: PeopleBlock, *, alone: bool) -> BallotSum:
            rows = block.rows[:, 0]
            right = [
                _predicted(one, student, prepared, rows, block.people, classes, alone=alone) == block.labels
                for one, student in zip(self.candidates, self.students, strict=True)
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


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuned(NoisySums):
    """The sums of the best of several settings of `NoisyMoments`, and before them the sums by which it is chosen.

    Parameters
    ----------
    pilot : Candidate
        Which is tried first: what the estimator is without any of the settings.
    candidates : sequence of Candidate
        The settings.
    share : float
        Share of all 1/σ² for everything but the final sums.
    mechanism : NoisySum, optional
        The noise of one sum that costs as much as everything together.
    """

    name: ClassVar[str] = "tuned"
    title: ClassVar[str] = "vector ballots, tuned"
    pilot: Candidate
    candidates: Sequence[Candidate]
    share: float
    mechanism: NoisySum | None = None
    student: Any = None

    def _part(self, share: float) -> NoisySum:
        """Return the release that takes a share of all 1/σ²."""
        return NoisySum(self.calibrated.noise_multiplier / sqrt(share))

    @property
    def _final(self) -> NoisySum:
        return self._part(1 - self.share)

    @property
    def _trial(self) -> NoisySum:
        return self._part(self.share * (1 - _SCORES))

    @property
    def _scores(self) -> NoisySum:
        return self._part(self.share * _SCORES)

    def _form_of_scores(self, unit: PrivacyUnit) -> Vector:
        k = len(self.candidates)
        return Vector((1, k), score_norm(k) ** 2, unit)

    def _after_trial(self, sizes: Sizes) -> list[Event]:
        """Return what the scores are, and the final sums at most, whichever setting is chosen."""
        longest = max((one.method for one in self.candidates), key=lambda one: one.rounds)
        stack = max(one.method.stack for one in self.candidates)  # whose ballots have the coarser steps
        final = replace(longest, stack=stack, mechanism=NoisySum(self._final.noise_multiplier * _A_LITTLE_LESS))
        scores = self._scores.most(self._form_of_scores(sizes.unit), simulated=sizes.simulated)
        return [scores, final.event_of_sums(sizes)]

    def event_of_one(self, sizes: Sizes) -> Event:
        """Return what everything together is at most."""
        trial, count = self.pilot.with_noise(self._trial), self.pilot.with_noise(self._final)
        return Composed((trial.event_of_sums(sizes), *self._after_trial(sizes), *count.event_of_count(sizes)))

    def check(self, _public: Public, /) -> None:
        """Refuse public rows from which no features can be learned, before the number of people is released."""
        for one in (self.pilot, *self.candidates):
            one.with_noise(self._final).check(one.public)

    def prepare(self, _public: Public, people: PrivateRows, /) -> PeopleReady:
        """Return the people, with their rows as the maps of each setting show them; private."""
        settings = (self.pilot, *self.candidates)
        maps = {id(each): each for one in settings for each in (one.public.teacher_map, one.student_map)}
        for feature_map in filter(None, maps.values()):  # the student's is applied to private rows here
            check_row_by_row(feature_map, self.pilot.public.rows)
        views = [people.people(one.public.teacher_map, one.public.teacher_rows.shape[-1]) for one in settings]
        seen = [people.through(one.student_map, one.public.student_rows.shape[-1]) for one in settings]
        return PeopleReady(tuple(views), tuple(seen))

    def steps(self, public: Public) -> Steps:
        """Ask for a trial, rehearse every setting in public, ask for scores, and then for the sums of the best."""
        first, sizes = self.pilot, public.sizes
        final = first.with_noise(self._final)
        n_people = yield from final.counted(first.public, self.event_of_one(sizes))
        after = self._after_trial(sizes)
        trial: SumsReleased = yield from first.with_noise(self._trial).sums(
            first.public, n_people, trial_for=self._final, then=after
        )
        students = self._rehearsed(trial.student.predict_proba(first.public.teacher_rows), n_people)
        described = [trial.named, self._final.key(), *map(_described, self.candidates, students)]
        scores: Answer = yield Request(
            mechanism=self._scores,
            form=self._form_of_scores(public.unit),
            subject={"sum": [*subject_of(first.public), n_people, "scores", *described]},
            ballot=ScoreBallot(self.candidates, students),
            total=Composed(tuple(after)),
        )
        found = scores.values[0] / (_STEPS * n_people)
        noise = self._scores.noise_multiplier * score_norm(len(found)) / (_STEPS * n_people)
        chosen = int(found.argmax())
        best = self.candidates[chosen]
        # The first sum of the trial was over the very ballots that the first final sum of the same setting is over.
        known = trial.moments[0] if best.ballot == first.ballot else None
        method = best.with_noise(self._final)
        released: SumsReleased = yield from method.sums(best.public, n_people, known=known)
        tuning = Tuning(tuple(one.setting for one in self.candidates), tuple(found.tolist()), noise, chosen)
        return method.outcome(best.public, n_people, released, tuning_=tuning)

    def _rehearsed(self, probabilities: FloatArray, n_people: int) -> list[Any]:
        """Return the student of each setting, from public rows and the probabilities of their classes alone."""
        n_rows, classes = len(probabilities), self.pilot.public.classes
        copies = max(1, min(n_people, _REHEARSED) // n_rows)
        drawn = np.random.default_rng(0).random((copies, n_rows, 1))
        up_to = np.cumsum(probabilities, axis=1)
        labels = np.minimum((drawn > up_to).sum(axis=2), len(classes) - 1).ravel()
        shards = Shards.of_single_people(len(labels))
        # The mean over the rehearsal's rows has the noise of that over all people.
        mechanism = NoisySum(self._final.noise_multiplier * len(labels) / n_people)
        rehearsals = dict[Any, SumsReleased]()
        for one in self.candidates:
            if one.ballot not in rehearsals:
                people = PeopleInMemory(np.tile(one.public.teacher_rows, (copies, 1)), labels, shards)
                public = replace(one.public, simulated=True, unit=shards.unit, setting_number=0)
                steps = one.with_noise(mechanism).sums(public, len(labels))
                rehearsals[one.ballot] = rehearsed(steps, PeopleReady((people,)), SimulationNoise(0))
        return [_student(one, rehearsals[one.ballot]) for one in self.candidates]

    def describe_queries(self, rounds: int, /) -> str:
        """Return what a card says about the choice of the queries."""
        return self.pilot.method.describe_queries(rounds)


def _student(one: Candidate, rehearsal: SumsReleased) -> Any:
    """Return the student that a setting makes of its rehearsal."""
    if one.method.student is None:
        return rehearsal.student
    labels = np.searchsorted(one.public.classes, rehearsal.student.predict(one.public.teacher_rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about labels of which others may be used in the end
        # One seed, whatever that of the fit: the same settings are to find the same students again.
        return fit_student(one.method.student, one.public.student_rows, labels, one.public.classes, seed=0)


def _described(one: Candidate, student: Any) -> list[Any]:
    """Return what a student of the rehearsal follows from, beside the trial."""
    public, learner = one.public, one.method.student
    rows = one.method.known_by(public)
    if learner is None:
        return rows
    rows = [*rows, data_digest(public.student_rows).hex()]
    with suppress(Exception):  # a learner that cannot be spelled out is known by what it says
        return [*rows, spelled_out(learner)]
    return [*rows, data_digest(np.searchsorted(public.classes, student.predict(public.student_rows))).hex()]


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
    one: Candidate,
    student: Any,
    prepared: PeopleReady,
    places: IntArray,
    people: IntArray,
    classes: npt.NDArray[Any],
    *,
    alone: bool,
) -> npt.NDArray[Any]:
    """Return the class index that a student gives to each row, as if its person's rows were the only ones.

    The closed form takes each row by itself to the last bit. Any other student sees the rows of one person at a time:
    a sum that is rounded otherwise because of other rows could change what the student says of this one. A student that
    fails on the rows of a person, for example on a number beyond single precision, is wrong on them: the budget of the
    trial is spent by then. Where others may be the reason, the person is tried once more, `alone`.
    """
    number = one.public.setting_number
    if one.method.student is None:
        each, last = np.arange(len(places))[:, np.newaxis], student[-1]
        seen = features_of_private(student[:-1], prepared.views[number].rows[places], each, last.n_features_in_)
        return (last.expected if isinstance(last, NoisySumClassifier) else partial(linear_scores, last))(seen).argmax(1)
    of_people = np.split(prepared.student_rows[number][places], np.flatnonzero(np.diff(people)) + 1)
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
