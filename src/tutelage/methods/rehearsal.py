"""Rehearsals: the generator of a method, driven in memory over public rows, whose noise protects no one."""

import warnings
from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, final

import numpy as np

from tutelage._internal.records import by_identity
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidParameterError, OneClassWarning
from tutelage.features.scored import Start
from tutelage.methods.requests import (
    Answer,
    Asking,
    Prepared,
    Public,
    Request,
    Result,
    Wishes,
    run_steps,
)
from tutelage.noise import NoiseSource
from tutelage.privacy import PrivacyUnit
from tutelage.students import fit_student, student_named
from tutelage.targets import ClassWeights, Goal

Rehearsal = Callable[[IntArray, NoiseSource, FloatArray | None], IntArray]
"""Maps the places of labeled rows that cast ballots, noise, and scores by public labels, which are used if the method
takes labels, to the predicted class of every labeled row."""

_MOST_LABELED = 5_000  # rows whose labels are dealt


@final
@by_identity
class PublicLabels:
    """Public rows as the teachers see them, and the classes of some; all of it public."""

    rows: Matrix = field(repr=False)  # all public rows, shape (public rows, features)
    labeled: Matrix = field(repr=False)  # rows with labels: public rows, or those of a stand-in
    classes: IntArray = field(repr=False)  # their class indices
    n_classes: int
    own: bool  # whether the labeled rows are the public rows, in their order
    # Own rows as they came, if teachers see them otherwise.
    came: Matrix | None = field(default=None, repr=False)
    goal: Goal = field(default_factory=Goal)  # which students are judged by
    # Scores by models of more public labels, which chose the kind of model.
    like: Start | None = field(default=None, repr=False)
    _starts: dict[int, Start | None] = field(
        default_factory=dict,
        init=False,
        repr=False,
    )

    @property
    def weights(self) -> ClassWeights | None:
        """How much classes count in predictions, by the goal."""
        return self.goal.weights(None, np.arange(self.n_classes))

    def public(
        self,
        unit: PrivacyUnit,
        n_people: int,
        *,
        scored: bool = False,
    ) -> Public:
        """Return the public rows of a rehearsal, whose last columns may be scores."""
        return Public(
            rows=self.rows,
            teacher_rows=self.rows,
            student_rows=self.rows,
            classes=np.arange(self.n_classes),
            question="",
            unit=unit,
            simulated=True,
            n_teachers=n_people,
            seed=0,
            labels=self.classes if scored else None,
            weights=self.weights,
        )

    def sample(self, n_rows: int) -> "PublicLabels":
        """Return at most so many of the public rows, whose scores are by models of the labels of all."""
        if len(self.rows) <= n_rows:
            return self
        kept = self._some(n_rows)
        some = self._at(kept)
        start = self.start(0)
        if start is not None and len(self.classes) <= _MOST_LABELED:  # all of them are dealt
            some._starts[0] = start.at(kept)
        return some

    def fewer(self, share: float) -> "PublicLabels":
        """Return a random share of the public rows, and of the labels if they belong to the public rows."""
        return self._at(self._some(max(2, round(share * len(self.rows)))))

    def _some(self, n_rows: int) -> IntArray:
        return np.sort(np.random.default_rng(0).permutation(len(self.rows))[:n_rows])

    def _at(self, kept: IntArray) -> "PublicLabels":
        rows = self.rows[kept]
        if not self.own:
            return replace(self, rows=rows)
        came = self.came
        if came is not None:
            came = came[kept]
        return replace(
            self,
            rows=rows,
            labeled=self.labeled[kept],
            classes=self.classes[kept],
            came=came,
            like=self.start(0),
        )

    def order(self, number: int) -> IntArray:
        """Return the labels that are dealt, in the order of a deal."""
        order = np.random.default_rng(number).permutation(len(self.classes))
        return order[:_MOST_LABELED]

    def start(self, number: int) -> Start | None:
        """Return scores by models of public labels, which each deal learns once; None without enough labels."""
        if self.own and number not in self._starts:
            like = self.like if number == 0 else self.start(0)
            self._starts[number] = Start.learn(
                self.rows if self.came is None else self.came,
                self.rows,
                self.classes,
                self.n_classes,
                self.order(number),
                like,
            )
        return self._starts.get(number)


def rehearse(
    steps: Asking[Result],
    prepared: Prepared,
    noise: NoiseSource,
) -> Result:
    """Return what a method makes of ballots that are cast by public rows; nothing is spent."""
    if not noise.simulated:
        raise InvalidParameterError(
            "the rehearsal.noise", "be simulated, because no ledger is charged"
        )

    def answer_to(request: Request) -> Answer:
        ballots: Any = request.ballot.cast(
            prepared,
            request,
            np.arange(len(request.rows)),
        )
        if isinstance(ballots, Wishes):
            ballots = ballots.histogram(ballots.cap)
        release = request.mechanism.release(ballots, noise, request.predictions)
        return Answer(np.array(release.answers, np.int64), release.event, 0.0)

    return run_steps(steps, answer_to, lambda learned: learned.make())


def taught_by(
    student: Any,
    labels: IntArray,
    known: PublicLabels,
) -> IntArray:
    """Return what a student of released labels, one for each public row or −1, predicts for the labeled rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OneClassWarning)  # such a student is scored as it is
        if isinstance(student, str):
            student = student_named(student)
        classes = np.arange(known.n_classes)
        fitted = fit_student(student, known.rows, labels, classes, seed=0)
    return np.asarray(fitted.predict(known.labeled), np.int64)
