"""Every person casts a vector for each class, noisy sums of these are released, and a student follows from them.

Privacy: a person's ballot is shortened to a known length, in whole steps, before it is added to others (`VectorBallots`
does, and `sum_of_products` checks it), so one person moves a sum by at most that length, which discrete Gaussian noise
hides. Ballots of later sums depend on the ballots before only through noisy sums, so all sums compose adaptively: their
1/σ² add up to that of the method's `mechanism`. `stack` is the share of the last sum, if public rows have labels; the
rounds share the rest (`VectorBallots.noise_of_round`).
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
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
from tutelage.methods.rehearsal import PublicLabels, rehearse
from tutelage.methods.report import ask_report, event_of_report, sum_of_report
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
from tutelage.students.base import steps_of
from tutelage.students.noisy_sums import OwnEffect, Spectrum
from tutelage.students.stacking import N_STACKED, Stacking, exact_chances, with_class_weights
from tutelage.teachers import VectorBallots
from tutelage.teachers.vectors import sum_of_blocks

# The features of a first release serve those that follow, too, so they are learned for this many times its people.
_FOLLOWING = 16


_SeenOf = Callable[[PeopleBlock], Matrix]
"""The features of the rows of a block; private."""


@final
@by_keywords
class _RoundBallot:
    """A ballot of one round that is cast from the features of a person's rows; public."""

    # Returns the private sum of the ballots of some people.
    cast_blocks: Callable[[_SeenOf, PrivacyUnit, Iterable[PeopleBlock]], BallotSum]
    features: FeatureMap
    n_features: int
    number: int  # of the round, from 0
    n_sums: int  # of all rounds, with the one that stacks
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
        sum_with_features = partial(
            self._sum_with_features,
            chain(people.first_map, self.features),
            people.unit,
        )

        def with_bar(blocks: Iterable[PeopleBlock], n_people: int) -> Iterable[PeopleBlock]:
            return progress_bar(
                blocks,
                f"Casting ballots, round {self.number + 1} of {self.n_sums}",
                n_people,
                shown=self.progress,
                size=lambda block: len(np.unique(block.people)),
            )

        # The features of private rows are kept from round to round, and forgotten after the last one, even if it fails.
        vectors.begin(self.features)
        try:
            return prepared.sum_of_ballots(form, sum_with_features, with_bar)
        finally:
            is_last = self.number + 1 == self.n_sums
            vectors.begin(None if is_last else self.features)

    def _sum_with_features(
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

        return self.cast_blocks(seen_of, unit, blocks)


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
        # seen: (rows, features + scores); vectors: (rows, features); prior, residuals: (rows, classes)
        seen = seen_of(block)
        vectors = _without_scores(seen, n_scores)
        return vectors, student.residuals(vectors, block.labels, _prior_of(seen, n_scores))

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
            stacking.scores_without(seen_of(block), block.labels, block.people),
            block,
            unit,
        ),
    )


def _sum_of_report(
    layout: Any,
    student: Any,
    seen_of: _SeenOf,
    unit: PrivacyUnit,
    blocks: Iterable[PeopleBlock],
) -> BallotSum:
    """Return the sum of ballots that say what the student makes of a person's rows."""
    return sum_of_blocks(
        blocks,
        lambda block: sum_of_report(
            layout, _chances_without(student, seen_of(block), block), block, unit
        ),
    )


def _with_weights(
    public: Public, classifier: Any, seen: Matrix
) -> tuple[Any, dict[Any, float] | None]:
    """Return a classifier in which classes count as is asked for, and their weights, or the same without any."""
    if public.weights is None:
        return classifier, None
    weights = public.weights.of(classifier.predict_proba(seen).mean(axis=0))
    weighted = with_class_weights(classifier, weights)
    # Liars move weights that follow from the sums, too.
    if public.weights.given is None and isinstance(weighted, NoisySumClassifier):
        weighted.certificate_ = None
    return weighted, dict(zip(public.classes.tolist(), weights.tolist(), strict=True))


def _chances_without(student: Any, seen: Matrix, block: PeopleBlock) -> FloatArray:
    """Return what the student would make of a person's rows without the person's ballots, nearly; exact by row."""
    own_effect: OwnEffect | None = getattr(student, "own_effect_", None)
    if own_effect is None:
        return exact_chances(student, seen)
    (own,) = own_effect.on_scores(seen, block.labels, block.people)
    return student.chances(student.expected(seen) - own)


class _Basis(NamedTuple):
    """The parts of ballots and student that are the same in all sums; public."""

    seen: Matrix  # (public rows, features + scores), public rows as the map shows them
    vectors: Matrix  # (public rows, features)
    prior: Matrix | None  # (public rows, classes), from the scores; None without scores
    spectrum: Spectrum  # of the vectors
    classes: Array
    ballot: Callable[..., _RoundBallot]  # made of `cast_blocks` and `number`

    def student(
        self, n_people: int, moments: Sequence[Moments], coef_before: Sequence[FloatArray]
    ) -> NoisySumClassifier:
        """Return the student that follows from the means of rounds, and its coefficients before each of them."""
        return NoisySumClassifier().fit_moments(
            self.vectors,
            moments,
            n_rows=n_people,
            classes=self.classes,
            start=self.prior,
            spectrum=self.spectrum,
            starts=coef_before,
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
        """Return an event that dominates all sums and, if the number of people is private, its noisy release."""
        return Composed((self.event_of_sums(sizes), *self.event_of_count(sizes)))

    def event_of_sums(self, sizes: Sizes) -> Event:
        """Return an event that dominates the composition of all rounds and, with public labels, the sum that stacks."""
        teacher = self.teacher
        noise = self._noise_of_rounds(sizes.labeled)
        simulated = sizes.simulated
        most_numbers = teacher.most_numbers(sizes.n_classes)
        events = list[Event]()
        for number in range(self.rounds):
            events.append(
                teacher.event_of_round(
                    noise,
                    number,
                    most_numbers,
                    sizes.unit,
                    simulated=simulated,
                )
            )
        if sizes.labeled:
            mechanism, form = self._stacking(sizes)
            events.append(mechanism.most(form, simulated=simulated))
        events += event_of_report(self.calibrated.noise_multiplier, sizes)
        return Composed(tuple(events))

    def _noise_of_rounds(self, labeled: bool) -> float:
        """Return σ of one sum that costs as much as all rounds without the one that stacks."""
        noise = self.calibrated.noise_multiplier
        if not labeled:
            return noise
        return noise / sqrt(1 - self.stack)

    def _stacking(self, sizes: Sizes) -> tuple[NoisySum, Vector]:
        """Return how the sum that stacks is released, and the form of its ballots."""
        form = form_of_joint(N_STACKED + sizes.n_classes, sizes.unit)
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
        features = _beside_scores(map_from_bytes(stored), public.n_scores)
        outcome = yield from self._rounds(public, features, turns)
        if self.student is not None:
            return replace(outcome, student=None)
        return outcome

    def _rounds(
        self,
        public: Public,
        features: FeatureMap,
        turns: Sequence[Turn],
        spectrum: Spectrum | None = None,
    ) -> Steps:
        """Ask for the sums of all rounds over features, with scores after them, and recall sums of earlier releases.

        The student is the classifier in closed form, over rows as the teachers see them.
        """
        # seen: (public rows, features + scores); vectors: (public rows, features)
        seen = require_public_map(features, "NoisyMoments").transform(public.teacher_rows)
        n_scores = public.n_scores
        vectors = _without_scores(seen, n_scores)
        ballot = partial(
            _RoundBallot,
            features=features,
            n_features=seen.shape[1],
            n_sums=self.rounds + (n_scores > 0) + (public.report is not None),
            progress=public.training.progress,
        )
        spectrum = spectrum or Spectrum.of(vectors)
        prior = _prior_of(seen, n_scores)
        basis = _Basis(seen, vectors, prior, spectrum, public.classes, ballot)
        moments, classifier, turn = yield from newest(
            turns,
            partial(self._turn, public, basis),
        )
        classifier, class_weight = _with_weights(public, classifier, seen)
        # People who only test have cast no ballots.
        if public.holdout and isinstance(classifier, NoisySumClassifier):
            classifier.own_effect_ = None
        report = yield from ask_report(
            self.calibrated.noise_multiplier,
            public,
            turn,
            ballot(
                cast_blocks=partial(_sum_of_report, public.report, classifier),
                number=self.rounds + (n_scores > 0),
            ),
            public.report,
        )
        # Ballots of the report know the classifier, so it stays as it is.
        if isinstance(classifier, NoisySumClassifier):
            classifier = copy(classifier)
            classifier.own_effect_ = None  # it has no use in predictions
        maps = steps_of(make_pipeline(*parts_of(features)))
        labels: Array = classifier.predict(seen)
        return Outcome(
            queries=np.arange(len(seen)),
            labels=np.searchsorted(public.classes, labels),
            rounds=(len(seen),),
            n_teachers=turns[-1].n,
            student=Pipeline([*maps, ("classifier", classifier)]),
            sums=tuple(moments),
            class_weight=class_weight,
            report=report,
        )

    def _turn(
        self, public: Public, basis: _Basis, turn: Turn, past: Past
    ) -> Asking[tuple[list[Moments], Any, Turn]]:
        """Return the means of each round, averaged over a release and those before it, their student, and the turn."""
        # values of a round: (classes, features); coefficients: (features, classes)
        teacher = self.teacher
        n_people = turn.n
        n_scores = public.n_scores
        noise = self._noise_of_rounds(n_scores > 0)
        form = Vector(
            (len(public.classes), basis.vectors.shape[1]),
            teacher.norm**2,  # squared L2 sensitivity, in whole steps
            public.unit,
        )
        total = self.event_of_sums(public.sizes)
        moments = list[Moments]()
        coef_before = list[FloatArray]()
        # The empty list is a part of the name that sums were stored by ever since, so it stays.
        turn = turn._replace(subject=[*turn.subject, []])
        # In each round, a ballot is the product of the features of a person's rows and of the residuals of the student
        # so far, at most `radius` long. The sum is asked for and averaged, by 1/variance, with the same round of
        # earlier releases. Their students differ, so the coefficients are averaged likewise: the student adds these
        # back to what the ballots say is missing.
        for number in range(self.rounds):
            student = basis.student(n_people, moments, coef_before)
            radius = student.radius(basis.vectors, basis.prior)
            cast_blocks = partial(_sum_of_vectors, teacher, student, radius, n_scores)
            # The mean is the sum divided by the scale, so its noise is σ/scale, and the scale is its size in averages.
            average = past[f"round {number}"]
            scale = teacher.scale(radius) * n_people
            values, sigma, turn = yield from turn.ask(
                NoisySum(teacher.noise_of_round(noise, number)),
                form,
                basis.ballot(cast_blocks=cast_blocks, number=number),
                average,
                size=scale,
                total=None if moments else total,
            )
            coef_before.append(past[f"start {number}"].with_mean(student.coef_, scale))
            # A liar replaces one ballot by another in each sum that is averaged.
            moved = 2 * teacher.norm * average.ballots_of_one(scale)
            part = average.part_of_last(scale)
            moments.append(Moments.of_sum(values, sigma, scale, radius, moved, part))
        student = basis.student(n_people, moments, coef_before)
        if not n_scores:
            return moments, student, turn

        stacking = Stacking.of(student, basis.seen)
        mechanism, stacking_form = self._stacking(public.sizes)
        cast_blocks = partial(_sum_of_stacking, stacking)
        turn = turn._replace(subject=[*turn.subject, "stacking"])
        values, sigma, turn = yield from turn.ask(
            mechanism,
            stacking_form,
            basis.ballot(cast_blocks=cast_blocks, number=self.rounds),
            past["stacking"],
        )
        return moments, stacking.classifier(values[0], sigma, n_people), turn

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
            noise_multiplier=self._noise_of_rounds(n_scores > 0),
            n_scores=n_scores,
        )

    def rehearsal(self, known: PublicLabels, people: int) -> "RehearsedSums":
        """Return students of noisy sums, over features for the noise of the real run, which are computed once.

        They start from scores by public labels, if there are any: of each row by a model that was not shown its label.
        """
        public_models = known.start(0)
        n_scores = 0
        public_rows = known.rows
        labeled_rows = known.labeled
        # With models of public labels, the labeled rows are the public rows, in their order.
        if public_models is not None:
            n_scores = known.n_classes
            public_rows = np.hstack([known.rows, public_models.apart])
            labeled_rows = np.hstack([known.labeled, public_models.apart])
        features = self._features(public_rows, known.n_classes, people, n_scores)
        whole = _beside_scores(features, n_scores)
        of_labeled = whole.transform(labeled_rows)
        of_public = of_labeled
        if public_models is None:
            of_public = whole.transform(public_rows)
        n_features: int = of_labeled.shape[1]
        unchanged = PublicScaling(np.zeros(n_features), np.ones(n_features))
        # The last scores and their result: several trials have the same scores.
        at_hand = list[tuple[FloatArray | None, tuple[Matrix, Matrix, Spectrum]]]()

        def with_scores(scores: FloatArray | None) -> tuple[Matrix, Matrix, Spectrum]:
            """Return the features of labeled and of public rows, and the spectrum of these."""
            if not at_hand or at_hand[0][0] is not scores:
                labeled = of_labeled
                public = of_public
                if public_models is not None and scores is not None:
                    changed = np.flatnonzero((scores != public_models.apart).any(axis=1))
                    rows = np.hstack([known.rows, scores])
                    labeled = of_labeled.copy()
                    labeled[changed] = whole.transform(rows[changed])
                    public = labeled
                spectrum = Spectrum.of(_without_scores(public, n_scores))
                at_hand[:] = [(scores, (labeled, public, spectrum))]
            return at_hand[0][1]

        def student_of(
            taught: IntArray, noise: NoiseSource, scores: FloatArray | None
        ) -> tuple[Pipeline, Matrix]:
            labeled, public_features, spectrum = with_scores(scores)
            n_people = len(taught)
            shards = Shards.of_single_people(n_people)
            # So that the noise per person is that of the real run.
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
            return outcome.student, labeled

        return RehearsedSums(student_of, people)


@final
@frozen
class RehearsedSums:
    """Trial runs of `NoisyMoments` on labeled public rows."""

    # From the places of labeled rows that cast ballots, noise and scores, to the student and all labeled rows as it
    # sees them.
    student_of: Callable[
        [IntArray, NoiseSource, FloatArray | None],
        tuple[Any, Matrix],
    ]
    people: int  # of the real run

    def __call__(
        self, taught: IntArray, noise: NoiseSource, scores: FloatArray | None = None
    ) -> IntArray:
        """Return the predicted class of every labeled row, as every `Rehearsal` does."""
        student, labeled = self.student_of(taught, noise, scores)
        return student.predict(labeled).astype(np.int64)

    def predicted_and_liars(
        self, taught: IntArray, noise: NoiseSource
    ) -> tuple[IntArray, IntArray]:
        """Return the predicted class of every labeled row, and how many liars of the real run it would survive."""
        student, labeled = self.student_of(taught, noise, None)
        # In the real run, each person is a smaller part of the mean.
        part = len(taught) / self.people
        return student.predict(labeled).astype(np.int64), student[-1].certified(labeled, part)


def _beside_scores(features: Any, n_scores: int) -> FeatureMap:
    return BesideScores(features, n_scores) if n_scores else features


def _without_scores(seen: Matrix, n_scores: int) -> Matrix:
    return seen[:, : seen.shape[1] - n_scores]


def _prior_of(seen: Matrix, n_scores: int) -> Matrix | None:
    """Return the chances of classes by the scores of rows, less that of a class at random; None without scores."""
    # seen: (rows, features + scores); returned: (rows, classes)
    if not n_scores:
        return None
    return chances_of(seen[:, -n_scores:]) - 1 / n_scores
