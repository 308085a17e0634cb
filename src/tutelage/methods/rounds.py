"""Rounds of select, ask, retrain: the next queries may depend on the labels so far, but on no vote."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np
from sklearn.base import is_classifier

from tutelage._internal.records import by_keywords
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, IntArray
from tutelage._internal.validation import integer_at_least
from tutelage.digests import row_bytes
from tutelage.events import Composed
from tutelage.exceptions import InvalidDataError, InvalidParameterError, quote
from tutelage.mechanisms import Mechanism, Release
from tutelage.methods.requests import Answer, Asking, Request, first_places
from tutelage.students import fit_student
from tutelage.students.selection import PublicKnowledge, QuerySelector

_PARTS = 2**20


class AskedRounds(NamedTuple):
    """Result of all rounds; public, like everything in it.

    Parameters
    ----------
    queries : integer array of shape (queries,)
        Row numbers that were asked, in the order in which they were.
    release : Release
        Their labels, in that order; the event of all rounds; what they cost together.
    rounds : tuple of int
        How many rows each round asked.
    """

    queries: IntArray
    release: Release
    rounds: tuple[int, ...]

    def labels(self, n_rows: int) -> IntArray:
        """Return the released class index of each of `n_rows` public rows, −1 where it was not asked or answered."""
        labels = np.full(n_rows, ABSTAIN, np.int64)
        labels[self.queries] = self.release.labels
        return labels


@final
@by_keywords
class Rounds:
    """How queries are chosen and labeled round by round; public.

    The first round fits into the budget or is refused; a later one asks only what is left, its most wanted rows. Equal
    rows are one query.
    """

    mechanism: Mechanism
    rows: Array  # public rows to choose from
    seen: Array  # what rules and student see of them
    n_classes: int
    sizes: Sequence[int]  # how many rows each round asks
    first: QuerySelector
    then: QuerySelector  # of later rounds, as soon as it is ready
    student: Any  # retrained before every round that uses its predictions
    seed: int

    def steps(
        self,
        asking: Callable[[IntArray, FloatArray | None, bool], Request],
        known: PublicKnowledge | None = None,
    ) -> Asking[AskedRounds]:
        """Ask round after round, and return all labels but those that are `known` before.

        `asking` makes a question of the numbers of the rows, their predictions, and whether the first of them are
        enough. The answer is for as many rows as the budget allowed; None for none.
        """
        keys = row_bytes(self.rows)
        places = first_places(keys)
        first_equal = np.array([places[key] for key in keys])  # row number of the first equal row
        known = known or PublicKnowledge.before(self.seen)
        answers = list[tuple[IntArray, Release]]()
        for number, size in enumerate(self.sizes):
            selector = self.then if number else self.first
            size = min(size, len(known.open))
            if size == 0:
                break
            takes_predictions = self.mechanism.takes_predictions
            expected = None
            if takes_predictions or selector.needs_student:
                _, training_seed = _seeds(self.seed, number)
                known = _with_predictions(
                    known,
                    self.student,
                    self.n_classes,
                    training_seed,
                )
            if not selector.ready(known):
                selector = self.first
            rows = round_rows(selector, known, size, self.seed, number)
            if takes_predictions and known.probabilities is not None:
                expected = known.probabilities[rows]
            answer: Answer | None = yield asking(rows, expected, number > 0)
            if answer is not None:
                rows = rows[: len(answer.values)]
                answers.append(
                    (
                        rows,
                        Release(answer.labels, answer.event, answer.cost),
                    )
                )
                known = known.after(*_with_equal_rows(first_equal, rows, answer.labels))
        return _all_rounds(answers)

    def check(self) -> None:
        """Refuse settings that would fail in a later round, before the first round is spent."""
        if len(self.sizes) == 0:
            raise InvalidParameterError(
                "ask_in_rounds.n_queries", "have one number of rows per round", "none"
            )
        for size in self.sizes:
            integer_at_least(size, 1, "n_queries", "ask_in_rounds")
        if len(self.seen) != len(self.rows) or sum(self.sizes) > len(self.rows):
            raise InvalidDataError(
                f"`n_queries` of ask_in_rounds must add up to at most the public rows, and `features` hold one row for "
                f"each. Got {sum(self.sizes)} queries, {len(self.rows)} public rows and features of {len(self.seen)}."
            )
        self.first.check(self.seen, self.n_classes)
        if len(self.sizes) > 1:
            self.then.check(self.seen, self.n_classes)
            if self.then.needs_student or self.mechanism.takes_predictions:
                self._check_student()
        confidence = getattr(self.mechanism, "confidence", 1.0)
        if confidence * self.n_classes <= 1:
            raise InvalidParameterError(
                f"{type(self.mechanism).__name__}.confidence",
                f"be above 1/{self.n_classes}, because a random guess is that confident",
                f"{confidence}",
            )
        if self.first.needs_answers:
            raise InvalidParameterError(
                "ask_in_rounds.first",
                "be a rule that needs no labels, because the first round has none",
                f"{self.first}",
            )

    def _check_student(self) -> None:
        student = self.student
        if student is not None and is_classifier(student) and hasattr(student, "predict_proba"):
            return
        raise InvalidParameterError(
            "ask_in_rounds.student",
            "be a scikit-learn classifier with `predict_proba`, because later rounds use its predictions",
            quote(student),
        )


def round_rows(
    rule: QuerySelector,
    known: PublicKnowledge,
    size: int,
    seed: int,
    number: int = 0,
) -> IntArray:
    """Return the rows that round `number`, from 0, of `ask_in_rounds` with this seed asks if the budget allows them."""
    selection_seed, _ = _seeds(seed, number)
    return rule.select(known, size, selection_seed)


def _seeds(seed: int, number: int) -> tuple[int, int]:
    """Return the seeds of selection and training in one round."""
    selection, training = np.random.SeedSequence([seed, number]).generate_state(2)
    return int(selection), int(training)


def _with_predictions(
    known: PublicKnowledge, student: Any, n_classes: int, seed: int
) -> PublicKnowledge:
    """Return what is known with the predictions of a student of it; without one, all classes are equally likely."""
    # probabilities: (rows, classes)
    shape = (len(known.X), n_classes)
    probabilities = np.full(shape, 1 / n_classes)
    if student is not None and known.n_released_classes > 1:
        classes = np.arange(n_classes)
        fitted = fit_student(student, known.X.copy(), known.labels, classes, seed=seed)
        probabilities = np.zeros(shape)
        probabilities[:, fitted.classes_] = fitted.predict_proba(known.X.copy())
    return replace(known, probabilities=_on_grid(probabilities))


def _on_grid(probabilities: FloatArray) -> FloatArray:
    """Return probabilities in whole parts of 2⁻²⁰, so that answers are recalled whatever the last bits are."""
    parts = np.floor(probabilities * _PARTS) / _PARTS
    likeliest = probabilities.argmax(axis=1)
    parts[np.arange(len(parts)), likeliest] += 1 - parts.sum(axis=1)
    return parts


def _all_rounds(answers: list[tuple[IntArray, Release]]) -> AskedRounds:
    """Return the rows and releases of rounds, in their order, as one result."""
    rows = [queries for queries, _ in answers]
    releases = [release for _, release in answers]
    event = releases[0].event
    if len(releases) > 1:
        event = Composed(tuple(release.event for release in releases))
    labels = np.concatenate([release.labels for release in releases])
    cost = sum(release.cost for release in releases)
    sizes = tuple(len(queries) for queries in rows)
    return AskedRounds(np.concatenate(rows), Release(labels, event, cost), sizes)


def _with_equal_rows(
    first_equal: IntArray, rows: IntArray, labels: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the queries and all equal rows, with their labels: equal rows spend nothing."""
    label_of = dict(zip(first_equal[rows].tolist(), labels.tolist(), strict=True))
    equal_rows = np.flatnonzero(np.isin(first_equal, list(label_of)))
    equal_labels = [label_of[first] for first in first_equal[equal_rows].tolist()]
    return equal_rows, np.array(equal_labels, np.int64)
