"""Every person casts a vector for each class, noisy sums of these are released, and a student follows from them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any, NamedTuple, final

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline

from tutelage._internal.progress import progress_bar
from tutelage._internal.records import by_keywords, frozen
from tutelage._internal.typing import Array, FloatArray, IntArray, Matrix
from tutelage._internal.validation import probability
from tutelage.ballots import BallotSum, Vector
from tutelage.digests import canonical
from tutelage.events import Composed, Event, settings_of
from tutelage.exceptions import InvalidParameterError, Problem
from tutelage.features import PublicScaling
from tutelage.features.base import (
    FeatureMap,
    chain,
    check_row_by_row,
    features_of_private,
    parts_of,
    require_public_map,
)
from tutelage.features.scored import BesideScores, chances_of
from tutelage.features.stored import map_from_bytes, map_to_bytes
from tutelage.mechanisms import NoisySum
from tutelage.methods.over_releases import Past, Turn, newest
from tutelage.methods.rehearsal import PublicLabels, Rehearsal, rehearse
from tutelage.methods.requests import Asking, Learned, Outcome, Public, Request, Sizes, Steps
from tutelage.methods.sums import (
    NoisySums,
    PeopleReady,
    count_is_private,
    form_of_joint,
    sum_of_joint,
)
from tutelage.noise import NoiseSource
from tutelage.partition import Shards
from tutelage.people.blocks import PeopleBlock, Vectors
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import PrivacyUnit
from tutelage.students import Moments, NoisySumClassifier
from tutelage.students.noisy_sums import Spectrum
from tutelage.students.stacking import N_SCORES, Stacking, with_class_weights
from tutelage.teachers import VectorBallots
from tutelage.teachers.vectors import sum_of_blocks

# Times as many people: the features of a first release serve those that follow, too.
_FOLLOWING = 16


_Features = Pipeline | BesideScores
_SeenOf = Callable[[PeopleBlock], Matrix]
"""The features of the rows of a block; private."""


@final
@by_keywords
class RoundBallot:
    """A ballot of one round that is cast from the features of a person's rows; public."""

    # Private, of some people.
    sum_of: Callable[[_SeenOf, PrivacyUnit, Iterable[PeopleBlock]], BallotSum]
    features: _Features
    n_features: int
    number: int  # of the round
    rounds: int
    progress: bool

    def cast(
        self,
        prepared: PeopleReady,
        request: Request,
        _places: IntArray,
        /,
    ) -> BallotSum:
        """Return the private sum of all people's ballots."""
        form: Any = request.form
        people = prepared.people
        vectors = prepared.vectors
        sum_of = partial(
            self._sum_of,
            chain(people.first_map, self.features),
            people.unit,
        )

        def with_bar(blocks: Iterable[PeopleBlock], n_people: int) -> Iterable[PeopleBlock]:
            return progress_bar(
                blocks,
                f"Casting ballots, round {self.number + 1} of {self.rounds}",
                n_people,
                shown=self.progress,
                size=lambda block: len(np.unique(block.people)),
            )

        vectors.begin(self.features)
        try:
            return prepared.sum_of_ballots(form, sum_of, with_bar)
        finally:
            is_last = self.number + 1 == self.rounds
            vectors.begin(None if is_last else self.features)

    def _sum_of(
        self,
        vectors_of: FeatureMap,
        unit: PrivacyUnit,
        blocks: Iterable[PeopleBlock],
        kept: Vectors,
    ) -> BallotSum:
        """Return the private sum of the ballots of some people, whose features are kept for the next round."""

        def seen_of(block: PeopleBlock) -> Matrix:
            single_rows = np.arange(len(block.rows))[:, None]
            return kept.of(
                block,
                lambda: features_of_private(
                    vectors_of,
                    block.rows,
                    single_rows,
                    self.n_features,
                ),
            )

        return self.sum_of(seen_of, unit, blocks)


def _sum_of_vectors(
    teacher: VectorBallots,
    student: NoisySumClassifier,
    radius: float,
    n_scores: int,
    seen_of: _SeenOf,
    unit: PrivacyUnit,
    blocks: Iterable[PeopleBlock],
) -> BallotSum:
    """Return the sum of ballots that are vectors of a person's rows, times what the student so far gets wrong."""

    def products_of(block: PeopleBlock) -> tuple[Matrix, Matrix]:
        seen = seen_of(block)
        vectors = seen[:, : len(student.coef_)]
        return vectors, student.residuals(vectors, block.labels, _start(seen, n_scores))

    return teacher.cast(blocks, products_of, radius, unit)


def _sum_of_stacking(
    stacking: Stacking, seen_of: _SeenOf, unit: PrivacyUnit, blocks: Iterable[PeopleBlock]
) -> BallotSum:
    """Return the sum of ballots that say how much to believe of public labels and of the sums before."""
    return sum_of_blocks(
        blocks,
        lambda block: sum_of_joint(
            stacking.ballots,
            stacking.n_weights,
            seen_of(block),
            block,
            unit,
        ),
    )


class Basis(NamedTuple):
    """All that ballots and student are about, and that is the same in all sums; public."""

    seen: Matrix  # public rows as the map shows them, with scores after them
    vectors: Matrix  # without
    start: Matrix | None  # what the scores say of them
    spectrum: Spectrum
    classes: Array
    ballot: Callable[..., RoundBallot]  # by its number and its sum

    def student(
        self, n_people: int, rounds: Sequence[Moments], starts: Sequence[FloatArray]
    ) -> NoisySumClassifier:
        """Return the student by the sums of rounds."""
        return NoisySumClassifier().fit_moments(
            self.vectors,
            rounds,
            n_rows=n_people,
            classes=self.classes,
            start=self.start,
            spectrum=self.spectrum,
            starts=starts,
        )


@final
@frozen
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

    name = "noisy-moments"
    title = "vector ballots"
    needs = NoisySums.needs._replace(batches=True)
    n_landmarks: int = 1000
    quantile: float = 0.4
    rounds: int = 2
    stack: float = 0.3
    mechanism: NoisySum | None = None
    student: Any = None
    student_features: Any = None

    def __post_init__(self) -> None:
        # The record checks its settings.
        VectorBallots(self.n_landmarks, self.quantile, self.rounds)
        probability(self.stack, "stack", "NoisyMoments")
        if isinstance(self.student, NoisySumClassifier):  # which has no settings
            object.__setattr__(self, "student", None)
        problems = [*self._problems_of_student_features()]
        if self.student_features is not None and self.student is None:
            problems.append(
                Problem(
                    "NoisyMoments.student_features", "come with $student, which learns from them"
                )
            )
        if problems:
            raise InvalidParameterError.of(problems)
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
        teacher = self.teacher
        noise = self._of_rounds(sizes.labeled)
        simulated = sizes.simulated
        numbers = teacher.most_numbers(sizes.n_classes)
        events = list[Event]()
        for number in range(self.rounds):
            events.append(
                teacher.event_of_round(
                    noise,
                    number,
                    numbers,
                    sizes.unit,
                    simulated=simulated,
                )
            )
        if sizes.labeled:
            mechanism, form = self._stacking(sizes)
            events.append(mechanism.most(form, simulated=simulated))
        return Composed(tuple(events))

    def _of_rounds(self, labeled: bool) -> float:
        """Return σ of one sum that costs as much as all rounds without the one that stacks."""
        noise = self.calibrated.noise_multiplier
        if not labeled:
            return noise
        return noise / sqrt(1 - self.stack)

    def _stacking(self, sizes: Sizes) -> tuple[NoisySum, Vector]:
        """Return how the sum that stacks is released, and the form of its ballots."""
        form = form_of_joint(N_SCORES + sizes.n_classes, sizes.unit)
        return NoisySum(self.calibrated.noise_multiplier / sqrt(self.stack)), form

    def check(self, public: Public) -> None:
        """Refuse public rows from which no features can be learned, before the number of people is released."""
        if count_is_private(public.unit):
            self._checked_features(public, len(public.teacher_rows))

    def steps(self, public: Public) -> Steps:
        """Ask for the number of people where it is private, and then for the sums of all rounds."""
        about: list[object] = [settings_of(self.teacher)]
        if public.labels is not None:
            about.append(self.stack)
        turns = yield from self.turns(public, [*about, *public.digests])
        first = turns[0]
        n_people = first.n
        if public.release is not None:
            n_people *= _FOLLOWING
        stored = yield Learned(
            canonical([*first.subject, self.calibrated.key()]),
            lambda: map_to_bytes(self._checked_features(public, n_people)),
        )
        whole = _beside_scores(map_from_bytes(stored), public.n_scores)
        outcome = yield from self._rounds(public, whole, turns)
        if self.student is not None:
            return replace(outcome, student=None)
        return outcome

    def _rounds(
        self,
        public: Public,
        whole: _Features,
        turns: Sequence[Turn],
        spectrum: Spectrum | None = None,
    ) -> Steps:
        """Ask for the sums of all rounds over features, with scores after them; recall those of earlier releases.

        The student is the classifier in closed form, over rows as the teachers see them.
        """
        seen = require_public_map(whole, "NoisyMoments").transform(public.teacher_rows)
        n_scores = public.n_scores
        vectors = seen[:, : seen.shape[1] - n_scores]
        ballot = partial(
            RoundBallot,
            features=whole,
            n_features=seen.shape[1],
            rounds=self.rounds + (n_scores > 0),
            progress=public.training.progress,
        )
        spectrum = spectrum or Spectrum.of(vectors)
        basis = Basis(
            seen,
            vectors,
            _start(seen, n_scores),
            spectrum,
            public.classes,
            ballot,
        )
        rounds, classifier = yield from newest(
            turns,
            partial(self._turn, public, basis),
        )
        class_weight = None
        if public.weights is not None:
            weights = public.weights.of(classifier.predict_proba(seen).mean(axis=0))
            classifier = with_class_weights(classifier, weights)
            class_weight = dict(zip(public.classes.tolist(), weights.tolist(), strict=True))
        maps = make_pipeline(*parts_of(whole)).steps
        return Outcome(
            queries=np.arange(len(seen)),
            labels=np.searchsorted(public.classes, classifier.predict(seen)),
            rounds=(len(seen),),
            n_teachers=turns[-1].n,
            student=Pipeline([*maps, ("classifier", classifier)]),
            sums=tuple(rounds),
            class_weight=class_weight,
        )

    def _turn(
        self, public: Public, basis: Basis, turn: Turn, past: Past
    ) -> Asking[tuple[list[Moments], Any]]:
        """Return what the sums of a release and of those before it say, and the student by them."""
        teacher = self.teacher
        n_people = turn.n
        n_scores = public.n_scores
        noise = self._of_rounds(n_scores > 0)
        form = Vector(
            (len(public.classes), basis.vectors.shape[1]),
            teacher.norm**2,
            public.unit,
        )
        total = self.event_of_sums(public.sizes)
        rounds = list[Moments]()
        starts = list[FloatArray]()
        turn = turn._replace(subject=[*turn.subject, []])
        for number in range(self.rounds):
            student = basis.student(n_people, rounds, starts)
            radius = student.radius(basis.vectors, basis.start)
            sum_of = partial(_sum_of_vectors, teacher, student, radius, n_scores)
            scale = teacher.scale(radius) * n_people
            values, sigma, turn = yield from turn.ask(
                NoisySum(teacher.noise_of_round(noise, number)),
                form,
                basis.ballot(sum_of=sum_of, number=number),
                past[f"round {number}"],
                size=scale,
                total=None if rounds else total,
            )
            starts.append(past[f"start {number}"].with_mean(student.coef_, scale))
            rounds.append(Moments.of_sum(values, sigma, scale, radius))
        student = basis.student(n_people, rounds, starts)
        if not n_scores:
            return rounds, student
        stacking = Stacking.of(student, basis.seen)
        mechanism, form = self._stacking(public.sizes)
        ballot = basis.ballot(sum_of=partial(_sum_of_stacking, stacking), number=self.rounds)
        turn = turn._replace(subject=[*turn.subject, "stacking"])
        values, sigma, _ = yield from turn.ask(
            mechanism,
            form,
            ballot,
            past["stacking"],
        )
        return rounds, stacking.classifier(values[0], sigma, n_people)

    def _checked_features(self, public: Public, n_people: int) -> Pipeline:
        """Return the features that the ballots are cast by, learned from public rows."""
        rows = public.teacher_rows
        features = self._features(rows, len(public.classes), n_people, public.n_scores)
        check_row_by_row(require_public_map(features, "NoisyMoments"), rows)
        return features

    def _features(
        self,
        rows: Matrix,
        n_classes: int,
        n_people: int,
        n_scores: int,
    ) -> Pipeline:
        return self.teacher.features(
            rows,
            n_classes=n_classes,
            n_people=n_people,
            noise_multiplier=self._of_rounds(n_scores > 0),
            n_scores=n_scores,
        )

    def rehearsal(self, known: PublicLabels, people: int) -> Rehearsal:
        """Return students of noisy sums, over features for the noise of the real run, which are computed once.

        They start from scores by public labels, if there are any: of each row by a model that was not shown its label.
        """
        start = known.start(0)
        n_scores = 0
        public_rows = known.rows
        labeled_rows = known.labeled
        if start is not None:
            n_scores = known.n_classes
            public_rows = np.hstack([known.rows, start.apart])
            labeled_rows = np.hstack([known.labeled, start.apart])
        features = self._features(public_rows, known.n_classes, people, n_scores)
        whole = _beside_scores(features, n_scores)
        of_labeled = whole.transform(labeled_rows)
        of_public = of_labeled
        if start is None:
            of_public = whole.transform(public_rows)
        n_features = of_labeled.shape[1]
        unchanged = make_pipeline(PublicScaling(np.zeros(n_features), np.ones(n_features)))
        # By the id of the last scores: several trials have the same.
        at_hand = dict[int, tuple[Matrix, Matrix, Spectrum]]()

        def with_scores(scores: FloatArray | None) -> tuple[Matrix, Matrix, Spectrum]:
            """Return the features of labeled and of public rows, and the spectrum of these."""
            if id(scores) not in at_hand:
                at_hand.clear()
                labeled = of_labeled
                public = of_public
                if start is not None and scores is not None:
                    changed = np.flatnonzero((scores != start.apart).any(axis=1))
                    rows = np.hstack([known.rows, scores])
                    labeled = of_labeled.copy()
                    labeled[changed] = whole.transform(rows[changed])
                    public = labeled
                spectrum = Spectrum.of(public[:, : n_features - n_scores])
                at_hand[id(scores)] = labeled, public, spectrum
            return at_hand[id(scores)]

        def predict(
            taught: IntArray, noise: NoiseSource, scores: FloatArray | None = None
        ) -> IntArray:
            labeled, public_features, spectrum = with_scores(scores)
            n_people = len(taught)
            shards = Shards.of_single_people(n_people)
            method = self.with_noise(self.calibrated.noise_multiplier * n_people / people)
            trial = replace(known, rows=public_features)
            public = trial.public(shards.unit, n_people, scored=n_scores > 0)
            trial_people = PeopleInMemory(
                labeled[taught],
                known.classes[taught],
                shards,
            )
            steps = method._rounds(public, unchanged, [Turn([], n_people)], spectrum)
            outcome = rehearse(steps, PeopleReady(trial_people), noise)
            return outcome.student.predict(labeled).astype(np.int64)

        return predict


def _beside_scores(features: Any, n_scores: int) -> _Features:
    return BesideScores(features, n_scores) if n_scores else features


def _start(seen: Matrix, n_scores: int) -> Matrix | None:
    """Return what is expected of rows by their scores, less the chance of a class at random."""
    if not n_scores:
        return None
    return chances_of(seen[:, -n_scores:]) - 1 / n_scores
