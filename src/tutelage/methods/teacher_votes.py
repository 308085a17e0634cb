"""PATE: teachers are trained on disjoint shards, and the noisy winner of their votes is released (2017, 2018)."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Self, final

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from tutelage._internal.fitting import fit_clone, require_classifier
from tutelage._internal.records import frozen
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Matrix
from tutelage._internal.validation import integer_at_least
from tutelage.ballots import tally
from tutelage.exceptions import InvalidParameterError
from tutelage.mechanisms import CappedGNMax, GNMax, Mechanism
from tutelage.methods.base import Needs, RowIds
from tutelage.methods.rehearsal import PublicLabels, Rehearsal, taught_by
from tutelage.methods.requests import Facts, Public, Sizes
from tutelage.methods.votes import STUDENT, TalliedVotes, VotesOnQueries
from tutelage.noise import NoiseSource
from tutelage.partition import Shards
from tutelage.people.memory import PeopleInMemory
from tutelage.privacy import ONE_TEACHER
from tutelage.students.selection import PublicKnowledge, QuerySelector
from tutelage.teachers import ClassMeans, ensemble_of
from tutelage.teachers.base import is_recipe

_TRIAL_ROWS_PER_CLASS = 10
_ROWS_PER_CLASS = 3  # of a teacher, and the next two of all: what a plan tries
_QUERIES = 200
_FEWEST_LABELS = 10  # of a class
_KEY = b"shards of trial runs on public rows"


@final
@frozen
class TeacherVotes(VotesOnQueries):
    """Teachers, each trained on its own shard of the private rows, vote on public rows: PATE.

    Parameters
    ----------
    teacher : scikit-learn classifier or teacher recipe
        Cloned for each shard; `ClassMeans` and `Ridge` make thousands of teachers cheap.
    n_teachers : int
        Number of shards. Ignored if rows come with `silos`, each of which is one teacher.
    n_queries : int, optional
        Public rows to ask about, in all rounds together. Default: all.
    selection : QuerySelector or str
        Rule that chooses them, from public data only.
    rounds : int
        Rounds in which they are asked. Later ones are shortened to what the budget still allows.
    mechanism : Mechanism, optional
        How votes are released. Default: `GNMax` with the least noise that ε allows.
    student : scikit-learn classifier or str, optional
        Learns from the released labels; students of `tutelage.students` and `sklearn.semi_supervised` also from the
        public rows without a label. Default: `LabelPropagationStudent` by public features, `ForestStudent` without.
    student_features : public feature map or "rows", optional
        Map that the rows of the student and of the choice of queries pass through: another one than `features` of the
        estimator, or ``"rows"`` for the rows unchanged. It is part of every prediction. Default: `features`.

    References
    ----------
    Papernot et al. (2017), arXiv:1610.05755v4; Papernot et al. (2018), arXiv:1802.08908v1.
    """

    name = "teacher-votes"
    title = "trained teachers"
    needs = Needs(shards=True)
    teacher: Any = field(default_factory=RandomForestClassifier)
    n_teachers: int = 250
    n_queries: int | None = None
    selection: str | QuerySelector = "first"
    rounds: int = 1
    mechanism: Mechanism | None = None
    student: Any = None
    student_features: Any = None

    def __post_init__(self) -> None:
        self._check(self._check_own)

    def _check_own(self) -> None:
        integer_at_least(self.n_teachers, 1, "n_teachers", "TeacherVotes")
        if not is_recipe(self.teacher):
            require_classifier(self.teacher, "teacher", "TeacherVotes")
        mechanism = self.mechanism
        votes_on_queries = isinstance(mechanism, Mechanism) and not isinstance(
            mechanism, CappedGNMax
        )
        if not votes_on_queries and mechanism is not None:
            raise InvalidParameterError(
                "TeacherVotes.mechanism",
                "be a Mechanism for votes on single queries",
                fix="Use NoisyMoments for a `NoisySum`, and CappedVotes for a `CappedGNMax`.",
            )

    def shards(
        self,
        n_rows: int,
        entity_ids: RowIds,
        silos: RowIds,
        name: str,
        key: bytes,
        /,
    ) -> Shards:
        """Return which teacher gets which row: that of its owner, or one at random."""
        if silos is not None:
            return Shards.of_silos(silos, entity_ids, name=name)
        if entity_ids is not None:
            return Shards.of_entities(entity_ids, self.n_teachers, key=key, name=name)
        return Shards.of_rows(n_rows, self.n_teachers, key=key)

    def with_noise(self, noise: float) -> Self:
        """Return the method with `GNMax` of this σ."""
        return replace(self, mechanism=GNMax(noise))

    def check_training(self, rows: Matrix, n_classes: int, /) -> None:
        """Train a teacher on public rows with made-up labels."""
        trial = rows[np.resize(np.arange(len(rows)), _TRIAL_ROWS_PER_CLASS * n_classes)]
        made_up = np.arange(len(trial)) % n_classes
        if not is_recipe(self.teacher):
            fit_clone(self.teacher, trial, made_up, seed=0)
            return
        one = Shards(np.zeros_like(made_up), 1, ONE_TEACHER)
        ensemble_of(self.teacher, n_classes=n_classes, seed=0).fit_ballots(
            trial, made_up, one, rows[:1]
        )

    def facts(self, n_teachers: int | None, n_rounds: int = 1, /) -> Facts:
        """Return what is stated of a release; a smaller ε can be proposed for votes in one round."""
        of_votes = VotesOnQueries.facts(self, n_teachers, n_rounds)
        testable = (
            self.mechanism is not None and not self.mechanism.takes_predictions and self.rounds == 1
        )
        return of_votes._replace(testable=testable)

    @classmethod
    def proposals(cls, people: int, sizes: Sizes, /) -> Sequence[Self]:
        """Return the settings that a plan tries: a teacher for a few people, asked about typical rows."""
        queries = min(sizes.n_public, max(_QUERIES, _FEWEST_LABELS * sizes.n_classes))
        teachers = max(2, people // (_ROWS_PER_CLASS * sizes.n_classes))
        return [
            cls(
                teacher=ClassMeans(),
                n_teachers=teachers,
                n_queries=queries,
                selection="medoids",
                student=STUDENT,
            )
        ]

    def rehearsal(self, known: PublicLabels, people: int) -> Rehearsal:
        """Return students of the votes of all teachers; no teacher votes on a row that it learned from."""
        n_rows = len(known.rows)
        n_queries = min(self.n_queries or n_rows, n_rows)
        queries = self.rule.select(
            PublicKnowledge.before(known.rows),
            n_queries,
            seed=0,
        )
        teachers = ensemble_of(self.teacher, n_classes=known.n_classes, seed=0)
        sigma = self.noise or 0.0

        def predict(
            taught: IntArray, noise: NoiseSource, _scores: FloatArray | None = None
        ) -> IntArray:
            # ballots: (teachers, queries); counts, drawn: (queries, classes)
            number = max(2, round(self.n_teachers * len(taught) / people))
            shards = Shards.of_rows(len(taught), number, key=_KEY)
            ballots = teachers.fit_ballots(
                known.labeled[taught],
                known.classes[taught],
                shards,
                known.rows[queries],
            )
            if known.own:
                teacher_of = np.full(len(known.labeled), -1)
                teacher_of[taught] = shards.assignment
                has_learned = teacher_of[queries] == np.arange(number)[:, None]
                ballots[has_learned] = ABSTAIN
            counts = tally(ballots, known.n_classes, shards.unit).counts
            drawn = noise.discrete_gaussian(sigma * number / self.n_teachers, counts.shape)
            labels = np.full(n_rows, ABSTAIN)
            labels[queries] = (counts + drawn).argmax(axis=1)
            return taught_by(self.student, labels, known)

        return predict

    def prepare(self, public: Public, people: PeopleInMemory, /) -> TalliedVotes:
        """Train the teachers and return their votes on all rows that may be asked; private."""
        n_classes = len(public.classes)
        shards = people.shards
        queries = self.rows_to_ask(public)
        rows = people.through(public.teacher_map, public.teacher_rows.shape[-1]).rows
        seed, n_jobs, progress, checkpoints = public.training
        teachers = ensemble_of(
            self.teacher,
            n_classes=n_classes,
            seed=seed,
            n_jobs=n_jobs,
            progress=progress,
        )
        ballots = teachers.fit_ballots(
            rows,
            people.labels,
            shards,
            public.teacher_rows[queries],
            checkpoints,
        )
        votes = tally(ballots, n_classes, shards.unit)
        return TalliedVotes.on(votes, public.rows[queries], ballots)
