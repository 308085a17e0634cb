"""Canaries for a PATE pipeline: entities with odd labels whose own rows stand among the public rows that are asked."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from tutelage._typing import FloatArray, Matrix
from tutelage.audit.one_run import Score
from tutelage.classifier import PATEClassifier
from tutelage.exceptions import InvalidDataError, InvalidParameterError, RepeatedFitWarning
from tutelage.partition import as_column


def pate_canaries(
    model: PATEClassifier,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    X_canaries: npt.ArrayLike,
    y_canaries: npt.ArrayLike,
    entity_ids: npt.ArrayLike | None = None,
) -> Score:
    """Return the score of `audit_in_one_run` for a whole run of `model`: teachers, votes, noise and student.

    Every canary is a private entity and, without its label, a public row that is asked. Its score is 1 if the label
    that comes out is its own, plus the student's probability of that label: a pipeline that listens to single people
    gives it away.

    Parameters
    ----------
    model : PATEClassifier
        What is audited; a copy of it is fitted, without its ledger and checkpoints. It must declare `classes`, and a
        `random_state`.
    X, y : arrays of shape (rows, features) and (rows,)
        Private rows and their class values.
    X_canaries, y_canaries : arrays of shape (canaries, features) and (canaries,)
        Made-up rows with labels that nobody else would give them.
    entity_ids : array of shape (rows,), optional
        Whose row it is. Default: everybody has one row.

    Raises
    ------
    InvalidParameterError
        If the model declares no classes, so that canaries would change them, or no `random_state`, so that two runs
        would have other shards.
    InvalidDataError
        If the columns have different lengths.

    Notes
    -----
    A run with canaries is a release from the private data that no ledger pays for: it is for their owner, and what it
    shows must not be published.
    """
    if model.classes is None or model.random_state is None:
        raise InvalidParameterError("`model` of pate_canaries must have `classes` and a `random_state`. Set both.")
    rows, labels = np.asarray(X), np.asarray(y)
    people, answers = np.asarray(X_canaries), np.asarray(y_canaries)
    ids = as_column(np.arange(len(rows)) if entity_ids is None else entity_ids)
    if not len(rows) == len(labels) == len(ids) or len(people) != len(answers) or len(people) == 0:
        raise InvalidDataError("Rows, labels and ids must have one entry each, and so must canaries and their labels.")
    names = [f"canary {number}" for number in range(len(people))]
    if set(names) & {str(name) for name in ids.tolist()}:
        raise InvalidDataError("`entity_ids` must not be spelled like 'canary 0'. Name the entities otherwise.")

    def score(included: npt.NDArray[np.bool_]) -> FloatArray:
        run: Any = clone(model)
        run.set_params(
            ledger=None,
            epsilon=None,
            checkpoints=None,
            data_changed=False,
            unit=None,
            n_queries=None,
            selection=None,
            rounds=1,
        )
        everybody = [str(name) for name in ids.tolist()] + [names[place] for place in np.flatnonzero(included)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RepeatedFitWarning)  # an audit repeats fits, and publishes none of them
            run.fit(
                np.concatenate([rows, people[included]]),
                np.concatenate([labels, answers[included]]),
                X_public=people,
                entity_ids=everybody,
            )
        return _scores(run, people, answers)

    return score


def _scores(run: PATEClassifier, people: Matrix, answers: npt.NDArray[Any]) -> FloatArray:
    own = np.searchsorted(run.classes_, answers)
    said = run.release_.labels == own
    if not hasattr(run, "predict_proba"):
        return said + (run.predict(people) == answers).astype(np.float64)
    return said + run.predict_proba(people)[np.arange(len(people)), own]
