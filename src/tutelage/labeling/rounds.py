"""Rounds of select, ask, retrain: the next queries may depend on the labels so far, but on no vote."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage._internal.validation import integer_at_least
from tutelage.events import Composed
from tutelage.exceptions import BudgetExceededError, InvalidDataError, InvalidParameterError
from tutelage.labeling.session import LabelingSession
from tutelage.mechanisms import Mechanism, Release
from tutelage.students import fit_student
from tutelage.students.selection import PublicKnowledge, QuerySelector

_PARTS = 2**20


@final
@dataclass(frozen=True, slots=True, eq=False)
class AskedRounds:
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
        labels = np.full(n_rows, ABSTAIN, dtype=np.int64)
        labels[self.queries] = self.release.labels
        return labels


def ask_in_rounds(
    session: LabelingSession,
    X_public: npt.ArrayLike,
    n_queries: Sequence[int],
    *,
    first: QuerySelector,
    then: QuerySelector | None = None,
    student: Any = None,
    features: npt.ArrayLike | None = None,
    seed: int = 0,
) -> AskedRounds:
    """Return the labels of public rows, chosen round by round from public rows and the labels released before.

    The budget of every query is spent when it is asked. The first round fits into the budget or is refused; a later one
    asks only what is left, its most wanted rows. After an interruption the same call goes on where it was: what was
    answered is remembered, so it is chosen again and costs nothing; if the budget had cut it short, it may go on a
    little, for what checks gave back. Equal rows are one query.

    Parameters
    ----------
    session : LabelingSession
        Whom to ask, how, and within which budget. Votes that were tallied beforehand need its `X_voted`.
    X_public : array of shape (rows, ...)
        Public rows to choose from.
    n_queries : sequence of int
        How many rows to ask in each round.
    first : QuerySelector
        How the first round is chosen.
    then : QuerySelector, optional
        How later rounds are chosen, as soon as it is `ready`, and before that like the first. Default: like the first.
    student : scikit-learn classifier, optional
        Retrained before every round that uses its probabilities, by rule or for `InteractiveGNMax`, on the labels
        released so far; while these are of one class, all classes count as equally likely.
    features : array of shape (rows, features), optional
        Public features that selectors and student see instead of the rows.
    seed : int
        Of selection and training, never of noise.

    Raises
    ------
    InvalidParameterError
        If a round has no size, or needs a missing student. Nothing was spent.
    InvalidDataError
        If more rows are to be asked than there are. Nothing was spent.
    BudgetExceededError
        If the first round does not fit. Nothing was spent.
    """
    X = np.asarray(X_public)
    seen = np.array(X if features is None else features)  # a copy, so that callers cannot change it in place
    selectors = [first] + [then or first] * (len(n_queries) - 1)
    _check(session, X, seen, n_queries, selectors, student)
    _, same = np.unique(session.row_keys(X), return_inverse=True)
    known, answers = PublicKnowledge.before(seen), list[tuple[IntArray, Release]]()
    for number, (selector, size) in enumerate(zip(selectors, n_queries, strict=True)):
        _, student_seed = _seeds(seed, number)
        size = min(size, len(known.open))
        if size == 0:
            break
        if session.mechanism.takes_predictions or selector.needs_student:
            known = _with_predictions(known, student, session.n_classes, student_seed)
        rows = round_rows(selector if selector.ready(known) else first, known, size, seed, number)
        predictions = known.probabilities if session.mechanism.takes_predictions else None
        answer = _ask_what_fits(session, X, rows, predictions, all_or_none=number == 0)
        if answer is not None:
            answers.append(answer)
            known = known.after(*_with_twins(same, *answer))
    return _joined(answers)


def round_rows(rule: QuerySelector, known: PublicKnowledge, size: int, seed: int, number: int = 0) -> IntArray:
    """Return the rows that round `number`, from 0, of `ask_in_rounds` with this seed asks if the budget allows them."""
    return rule.select(known, size, _seeds(seed, number)[0])


def first_predictions(mechanism: Mechanism, n_rows: int, n_classes: int) -> FloatArray | None:
    """Return what a mechanism that takes predictions is told before there is a student: all classes equally likely."""
    return _on_grid(np.full((n_rows, n_classes), 1 / n_classes)) if mechanism.takes_predictions else None


def _seeds(seed: int, number: int) -> tuple[int, int]:
    """Return the seeds of selection and training in one round."""
    selection, training = np.random.SeedSequence([seed, number]).generate_state(2)
    return int(selection), int(training)


def even_rounds(n_queries: int, rounds: int) -> tuple[int, ...]:
    """Return sizes of rounds that differ by one at most, the larger ones first."""
    each, more = divmod(n_queries, rounds)
    return (each + 1,) * more + (each,) * (rounds - more)


def _with_predictions(known: PublicKnowledge, student: Any, n_classes: int, seed: int) -> PublicKnowledge:
    """Return what is known with the predictions of a student of it; without one, all classes are equally likely."""
    probabilities: FloatArray = np.full((len(known.X), n_classes), 1 / n_classes)
    if student is not None and known.n_released_classes > 1:
        fitted = fit_student(student, known.X.copy(), known.labels, np.arange(n_classes), seed=seed)
        probabilities = np.zeros_like(probabilities)
        probabilities[:, fitted.classes_] = fitted.predict_proba(known.X.copy())
    return replace(known, probabilities=_on_grid(probabilities))


def _on_grid(probabilities: FloatArray) -> FloatArray:
    """Return probabilities in whole parts of 2⁻²⁰, so that answers are recalled whatever the last bits are."""
    parts = np.floor(probabilities * _PARTS) / _PARTS
    parts[np.arange(len(parts)), probabilities.argmax(axis=1)] += 1 - parts.sum(axis=1)
    return parts


def _joined(answers: list[tuple[IntArray, Release]]) -> AskedRounds:
    releases = [release for _, release in answers]
    together = Release(
        np.concatenate([release.labels for release in releases]),
        Composed(tuple(release.event for release in releases)) if len(releases) > 1 else releases[0].event,
        sum(release.cost for release in releases),
    )
    queries, sizes = np.concatenate([rows for rows, _ in answers]), tuple(len(rows) for rows, _ in answers)
    return AskedRounds(queries, together, sizes)


def _ask_what_fits(
    session: LabelingSession, X: npt.NDArray[Any], rows: IntArray, predictions: FloatArray | None, *, all_or_none: bool
) -> tuple[IntArray, Release] | None:
    """Return the queries, the first ones of `rows`, and their labels; None where no query fits."""
    while True:
        if not all_or_none:
            rows = rows[: session.affordable(X[rows], _of(predictions, rows))]
        if len(rows) == 0:
            return None
        try:
            return rows, session.ask(X[rows], _of(predictions, rows))
        except BudgetExceededError:  # or somebody else spent in between
            if all_or_none:
                raise


def _with_twins(same: IntArray, rows: IntArray, release: Release) -> tuple[IntArray, IntArray]:
    """Return the queries and all equal rows, with their labels: equal rows spend nothing."""
    label_of = dict(zip(same[rows].tolist(), release.labels.tolist(), strict=True))
    twins = np.flatnonzero(np.isin(same, list(label_of)))
    return twins, np.array([label_of[kind] for kind in same[twins].tolist()], dtype=np.int64)


def _of(predictions: FloatArray | None, rows: IntArray) -> FloatArray | None:
    return None if predictions is None else predictions[rows]


def _check(
    session: LabelingSession,
    X: npt.NDArray[Any],
    seen: npt.NDArray[Any],
    n_queries: Sequence[int],
    selectors: list[QuerySelector],
    student: Any,
) -> None:
    """Refuse settings that would fail in a later round, before the first round is spent."""
    if len(n_queries) == 0:
        raise InvalidParameterError("`n_queries` of ask_in_rounds must hold one number of rows per round. Got none.")
    for size in n_queries:
        integer_at_least(size, 1, "n_queries", "ask_in_rounds")
    if len(seen) != len(X) or sum(n_queries) > len(X):
        raise InvalidDataError(
            f"`n_queries` of ask_in_rounds must add up to at most the public rows, and `features` hold one row for "
            f"each. Got {sum(n_queries)} queries, {len(X)} public rows and features of {len(seen)}."
        )
    for selector in selectors:
        selector.check(seen, session.n_classes)
    later = any(selector.needs_student or session.mechanism.takes_predictions for selector in selectors[1:])
    if later and student is not None and not (is_classifier(student) and hasattr(student, "predict_proba")):
        raise InvalidParameterError(
            "`student` of ask_in_rounds must be a scikit-learn classifier with `predict_proba`. Got a "
            f"{type(student).__name__}."
        )
    confidence = getattr(session.mechanism, "confidence", 1.0)
    if confidence * session.n_classes <= 1:
        raise InvalidParameterError(
            f"`confidence` of {type(session.mechanism).__name__} must be above 1/{session.n_classes}, or guesses are "
            f"confirmed. Got {confidence}."
        )
    if not session.takes_any_rows:
        raise InvalidParameterError("The session of ask_in_rounds must know which rows its votes are about: `X_voted`.")
    if len(n_queries) > 1:
        session.check_voted(X)
    if selectors[0].needs_answers:
        raise InvalidParameterError(
            "`first` of ask_in_rounds must be a rule that needs no labels, because none are released yet. Got "
            f"{selectors[0]}."
        )
    if later and student is None:
        raise InvalidParameterError(
            "`student` of ask_in_rounds must be given, because later rounds use its predictions."
        )
