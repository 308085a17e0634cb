"""Every person casts a vector for each class, noisy sums of these are released, and a student follows from them."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import numpy.typing as npt
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage._internal.validation import probability
from tutelage.ballots import BallotSum, Vector
from tutelage.digests import canonical
from tutelage.events import Composed, Event, settings_of
from tutelage.exceptions import InvalidParameterError, Problem
from tutelage.features import PublicScaling
from tutelage.features.base import (
    FeatureMap,
    chained,
    check_row_by_row,
    features_of_private,
    parts_of,
    require_public_map,
)
from tutelage.features.scored import BesideScores, chances_of
from tutelage.features.stored import map_from_bytes, map_to_bytes
from tutelage.mechanisms import NoisySum
from tutelage.methods.needs import Needs
from tutelage.methods.over_releases import Average, Past, Turn
from tutelage.methods.rehearsal import PublicLabels, Rehearsal, rehearsed
from tutelage.methods.requests import Answer, Learned, Outcome, Public, Request, Sizes, Steps
from tutelage.methods.sums import NoisySums, PeopleReady, count_is_private, form_of_joint, sum_of_joint
from tutelage.noise import NoiseSource
from tutelage.partition import Shards
from tutelage.people.blocks import PeopleBlock, Vectors
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import PrivacyUnit
from tutelage.students import Moments, NoisySumClassifier
from tutelage.students.noisy_sums import Spectrum
from tutelage.students.stacking import N_SCORES, Stacking, weighted
from tutelage.teachers import VectorBallots
from tutelage.teachers.vectors import sum_of_blocks

_FOLLOWING = 16  # times as many people: the features of a first release serve those that follow, too


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SummedBallot(ABC):
    """A ballot of one round that is cast from the features of a person's rows; public."""

    features: Any  # public map
    number: int  # of the round
    rounds: int
    progress: bool

    def cast(self, prepared: PeopleReady, request: Request, _places: IntArray, /) -> BallotSum:
        """Return the private sum of all people's ballots."""
        form: Any = request.form
        people, is_last = prepared.people, self.number + 1 == self.rounds
        prepared.vectors.begin(self.features)
        sum_of = partial(self._sum_of, chained(people.first_map, self.features), people.unit)
        title = f"Casting ballots, round {self.number + 1} of {self.rounds}"

        def shown(blocks: Iterable[PeopleBlock], n_people: int) -> Iterable[PeopleBlock]:
            return progress_bar(
                blocks, title, n_people, shown=self.progress, size=lambda one: len(np.unique(one.people))
            )

        try:
            return prepared.summed(form, sum_of, shown)
        finally:
            prepared.vectors.begin(None if is_last else self.features)

    @abstractmethod
    def _sum_of(
        self, vectors_of: FeatureMap, unit: PrivacyUnit, blocks: Iterable[PeopleBlock], kept: Vectors
    ) -> BallotSum:
        """Return the private sum of the ballots of some people."""

    def _seen(self, vectors_of: FeatureMap, kept: Vectors, block: PeopleBlock, n_features: int) -> Matrix:
        """Return the features of some private rows, which are kept for the next round."""
        each = np.arange(len(block.rows))[:, np.newaxis]
        return kept.of(block, lambda: features_of_private(vectors_of, block.rows, each, n_features))


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VectorBallot(SummedBallot):
    """The ballot that is vectors of a person's rows, times what the student so far gets wrong."""

    teacher: VectorBallots
    student: NoisySumClassifier
    radius: float
    n_scores: int  # columns after the vectors

    def _sum_of(
        self, vectors_of: FeatureMap, unit: PrivacyUnit, blocks: Iterable[PeopleBlock], kept: Vectors
    ) -> BallotSum:
        return self.teacher.cast(blocks, partial(self._products, vectors_of, kept), self.radius, unit)

    def _products(self, vectors_of: FeatureMap, kept: Vectors, block: PeopleBlock) -> tuple[Matrix, Matrix]:
        """Return the vectors of some private rows, and what the student gets wrong on them."""
        n_vectors = len(self.student.coef_)
        seen = self._seen(vectors_of, kept, block, n_vectors + self.n_scores)
        start = _start(seen, self.n_scores)
        return seen[:, :n_vectors], self.student.residuals(seen[:, :n_vectors], block.labels, start)


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StackingBallot(SummedBallot):
    """The ballot that says how much to believe of public labels and of the sums before."""

    stacking: Stacking

    def _sum_of(
        self, vectors_of: FeatureMap, unit: PrivacyUnit, blocks: Iterable[PeopleBlock], kept: Vectors
    ) -> BallotSum:
        n_vectors, m = len(self.stacking.student.coef_), len(self.stacking.student.classes_)

        def cast_by(block: PeopleBlock) -> BallotSum:
            seen = self._seen(vectors_of, kept, block, n_vectors + m)
            return sum_of_joint(self.stacking.ballots, self.stacking.n_weights, seen, block, unit)

        return sum_of_blocks(blocks, cast_by)


class SumsReleased(NamedTuple):
    """The result of several sums; public."""

    moments: tuple[Moments, ...]  # what was released of each, as the student takes it
    student: Pipeline  # the classifier in closed form, over rows as the teachers see them
    predicted: npt.NDArray[np.generic]  # by it, of all public rows
    class_weight: dict[Any, float] | None  # of each class in predictions, where they do not count alike


class Basis(NamedTuple):
    """All that ballots and student are about, and that is the same in all sums; public."""

    features: FeatureMap
    seen: Matrix  # public rows through these, with scores after them
    vectors: Matrix  # without
    spectrum: Spectrum


@final
@dataclass(frozen=True, slots=True)
class NoisyMoments(NoisySums):
    """Every person casts a vector for each class, and the noisy sums of all vectors give the student in closed form.

    Nothing is trained, and the cost does not depend on the number of public rows: all of them get labels.

    Parameters
    ----------
    n_landmarks, quantile, rounds
        As for `VectorBallots`, which says what a ballot is.
    stack : float
        Where public rows have labels: share of all 1/σ² for a last sum, which says how much to believe of the public
        labels and of the sums before. Without public labels it is not used.
    mechanism : NoisySum, optional
        The noise of one sum that costs as much as all rounds together. Default: the least that ε allows.
    student : scikit-learn classifier, optional
        Learns from labels that the student in closed form gives to all public rows. Default: that student itself.
    student_features : public feature map or "rows", optional
        As for `TeacherVotes`, if there is a `student`.
    """

    name: ClassVar[str] = "noisy-moments"
    title: ClassVar[str] = "vector ballots"
    needs: ClassVar[Needs] = NoisySums.needs._replace(batches=True)
    n_landmarks: int = 1000
    quantile: float = 0.4
    rounds: int = 2
    stack: float = 0.3
    mechanism: NoisySum | None = None
    student: Any = None
    student_features: Any = None

    def __post_init__(self) -> None:
        VectorBallots(self.n_landmarks, self.quantile, self.rounds)  # which checks them
        probability(self.stack, "stack", "NoisyMoments")
        if isinstance(self.student, NoisySumClassifier):  # which has no settings
            object.__setattr__(self, "student", None)
        problems = [*self._problems_of_student_features()]
        if self.student_features is not None and self.student is None:
            problems.append(Problem("NoisyMoments.student_features", "come with $student, which learns from them"))
        if problems:
            raise InvalidParameterError(*problems)
        NoisySums.__post_init__(self)

    @property
    def teacher(self) -> VectorBallots:
        """The ballots that a person casts."""
        return VectorBallots(self.n_landmarks, self.quantile, self.rounds)

    def event_of_one(self, sizes: Sizes) -> Event:
        """Return what all sums are at most, with the noisy number of people where that number is private."""
        return Composed((self.event_of_sums(sizes), *self.event_of_count(sizes)))

    def event_of_sums(self, sizes: Sizes) -> Event:
        """Return what all rounds are at most, with the sum that stacks where public rows have labels."""
        teacher, noise = self.teacher, self._of_rounds(labeled=sizes.labeled)
        numbers = teacher.most_numbers(sizes.n_classes)
        rounds = tuple(
            teacher.event_of_round(noise, number, numbers, sizes.unit, simulated=sizes.simulated)
            for number in range(self.rounds)
        )
        return Composed((*rounds, *([self._event_of_stacking(sizes)] if sizes.labeled else [])))

    def _of_rounds(self, *, labeled: bool) -> float:
        """Return σ of one sum that costs as much as all rounds without the one that stacks."""
        return self.calibrated.noise_multiplier / (sqrt(1 - self.stack) if labeled else 1)

    def _stacking(self, sizes: Sizes) -> tuple[NoisySum, Vector]:
        """Return how the sum that stacks is released, and the form of its ballots."""
        form = form_of_joint(N_SCORES + sizes.n_classes, sizes.unit)
        return NoisySum(self.calibrated.noise_multiplier / sqrt(self.stack)), form

    def _event_of_stacking(self, sizes: Sizes) -> Event:
        mechanism, form = self._stacking(sizes)
        return mechanism.most(form, simulated=sizes.simulated)

    def check(self, public: Public) -> None:
        """Refuse public rows from which no features can be learned, before the number of people is released."""
        if count_is_private(public.unit):
            self._features(public, len(public.teacher_rows))

    def steps(self, public: Public) -> Steps:
        """Ask for the number of people where it is private, and then for the sums of all rounds."""
        stack = [] if public.labels is None else [self.stack]
        turns = yield from self.turns(public, [settings_of(self.teacher), *stack, *public.digests])
        first, following = turns[0], 1 if public.release is None else _FOLLOWING
        stored = yield Learned(
            canonical([*first.subject, self.calibrated.key()]),
            lambda: map_to_bytes(self._features(public, following * first.n)),
        )
        features: Any = map_from_bytes(stored)
        whole = BesideScores(features, public.n_scores) if public.n_scores else features
        released = yield from self._rounds(public, whole, turns)
        n_rows = len(public.teacher_rows)
        return Outcome(
            queries=np.arange(n_rows),
            labels=np.searchsorted(public.classes, released.predicted),
            rounds=(n_rows,),
            n_teachers=turns[-1].n,
            student=released.student if self.student is None else None,
            sums=released.moments,
            class_weight=released.class_weight,
        )

    def _rounds(
        self, public: Public, whole: Any, turns: Sequence[Turn], spectrum: Spectrum | None = None
    ) -> Generator[Request, Answer | None, SumsReleased]:
        """Ask for the sums of all rounds over features, with scores after them; recall those of earlier releases."""
        seen = require_public_map(whole, "NoisyMoments").transform(public.teacher_rows)
        vectors = seen[:, : seen.shape[1] - public.n_scores]
        basis, past = Basis(whole, seen, vectors, spectrum or Spectrum.of(vectors)), Past(Average)
        rounds, classifier = list[Moments](), NoisySumClassifier()
        for turn in turns:
            found = yield from self._turn(public, basis, turn, past)
            rounds, classifier = found or (rounds, classifier)
        weights = None
        if public.weights is not None:
            weights = public.weights.of(classifier.predict_proba(seen).mean(axis=0))
            classifier = weighted(classifier, weights)
        return SumsReleased(
            moments=tuple(rounds),
            student=Pipeline([*make_pipeline(*parts_of(whole)).steps, ("classifier", classifier)]),
            predicted=classifier.predict(seen),
            class_weight=None if weights is None else dict(zip(public.classes.tolist(), weights.tolist(), strict=True)),
        )

    def _turn(
        self, public: Public, basis: Basis, turn: Turn, past: Past
    ) -> Generator[Request, Answer | None, tuple[list[Moments], Any] | None]:
        """Return what the sums of a release and of those before it say; of an earlier one that is not whole, None."""
        teacher, n_scores = self.teacher, public.n_scores
        vectors, start = basis.vectors, _start(basis.seen, n_scores)
        of_public: Any = {"n_rows": turn.n, "classes": public.classes, "start": start, "spectrum": basis.spectrum}
        student = NoisySumClassifier().fit_moments(vectors, [], **of_public)
        form = Vector((len(public.classes), vectors.shape[1]), teacher.norm**2, public.unit)
        ballot: dict[str, Any] = {
            "features": basis.features,
            "rounds": self.rounds + (n_scores > 0),
            "progress": public.training.progress,
        }
        rounds, starts, turn = list[Moments](), list[FloatArray](), replace(turn, subject=[*turn.subject, []])
        for number in range(self.rounds):
            of_round = NoisySum(teacher.noise_of_round(self._of_rounds(labeled=n_scores > 0), number))
            radius = student.radius(vectors, start)
            cast = VectorBallot(
                teacher=teacher, student=student, radius=radius, n_scores=n_scores, number=number, **ballot
            )
            total = None if rounds else self.event_of_sums(public.sizes)
            scale = teacher.scale(radius) * turn.n
            found = yield from turn.asked(of_round, form, cast, past[f"round {number}"], size=scale, total=total)
            if found is None:
                return None
            values, sigma, turn = found
            starts.append(past[f"start {number}"].with_mean(student.coef_, scale))
            rounds.append(Moments.of_sum(values, sigma, scale, radius))
            student = NoisySumClassifier().fit_moments(vectors, rounds, starts=starts, **of_public)
        if not n_scores:
            return rounds, student
        stacking, (mechanism, form) = Stacking.of(student, basis.seen), self._stacking(public.sizes)
        cast = StackingBallot(stacking=stacking, number=self.rounds, **ballot)
        turn = replace(turn, subject=[*turn.subject, "stacking"])
        found = yield from turn.asked(mechanism, form, cast, past["stacking"])
        if found is None:
            return None
        values, sigma, _ = found
        return rounds, stacking.classifier(values[0], sigma, turn.n)

    def _features(self, public: Public, n_people: int) -> Pipeline:
        """Return the features that the ballots are cast by, learned from public rows."""
        features = self.teacher.features(
            public.teacher_rows,
            n_classes=len(public.classes),
            n_people=n_people,
            noise_multiplier=self._of_rounds(labeled=public.labels is not None),
            n_scores=public.n_scores,
        )
        check_row_by_row(require_public_map(features, "NoisyMoments"), public.teacher_rows)
        return features

    def check_plan(self) -> None:
        """Refuse another student than the one in closed form, which is the only one that is tried."""
        if self.student is not None:
            raise InvalidParameterError(
                Problem("NoisyMoments.student", "be left out for a plan, which tries only the student in closed form")
            )

    def rehearsal(self, known: PublicLabels, people: int) -> Rehearsal:
        """Return students of noisy sums, over features for the noise of the real run, which are computed once.

        They start from scores by public labels, if there are any: of each row by a model that was not shown its label.
        """
        noise_multiplier, n_classes, start = self.calibrated.noise_multiplier, known.n_classes, known.start(0)
        n_scores = 0 if start is None else n_classes

        def beside(rows: Matrix, scores: FloatArray | None) -> Matrix:
            return rows if start is None else np.hstack([rows, start.apart if scores is None else scores])

        features = self.teacher.features(
            beside(known.rows, None),
            n_classes=n_classes,
            n_people=people,
            noise_multiplier=self._of_rounds(labeled=start is not None),
            n_scores=n_scores,
        )
        whole: Any = BesideScores(features, n_scores) if n_scores else features
        first = whole.transform(beside(known.labeled, None))
        of_public = first if start is not None else whole.transform(known.rows)
        unchanged = make_pipeline(PublicScaling(np.zeros(first.shape[1]), np.ones(first.shape[1])))

        at_hand = dict[int, tuple[Matrix, Matrix, Spectrum]]()  # with the last scores: several trials have the same

        def with_scores(scores: FloatArray | None) -> tuple[Matrix, Matrix, Spectrum]:
            if id(scores) not in at_hand:
                at_hand.clear()
                labeled, public = first, of_public
                if start is not None and scores is not None:
                    changed = np.flatnonzero((scores != start.apart).any(axis=1))
                    public = labeled = first.copy()
                    labeled[changed] = whole.transform(beside(known.rows, scores)[changed])
                at_hand[id(scores)] = labeled, public, Spectrum.of(public[:, : public.shape[1] - n_scores])
            return at_hand[id(scores)]

        def predicted(taught: IntArray, noise: NoiseSource, scores: FloatArray | None = None) -> IntArray:
            vectors, public_rows, spectrum = with_scores(scores)
            shards = Shards.of_single_people(len(taught))
            method = self.with_noise(noise_multiplier * len(taught) / people)
            public = Public.of_labels(replace(known, rows=public_rows), shards.unit, len(taught), scored=n_scores > 0)
            cast_by = PeopleReady(PeopleInMemory(vectors[taught], known.classes[taught], shards))
            turns = [Turn([], len(taught))]
            released = rehearsed(method._rounds(public, unchanged, turns, spectrum), cast_by, noise)
            return released.student.predict(vectors).astype(np.int64)

        return predicted


def _start(seen: Matrix, n_scores: int) -> Matrix | None:
    """Return what is expected of rows by their scores, less the chance of a class at random."""
    return chances_of(seen[:, -n_scores:]) - 1 / n_scores if n_scores else None
