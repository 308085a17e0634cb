"""Where every person is a teacher: whether one moves the sum of all ballots too far, and whether its noise is right.

What is found depends on the private rows: it is for their owner. It spends no budget, for nothing is released.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.base import clone

from tutelage._internal.typing import IntArray, Matrix
from tutelage.audit.checklist import Checked, PrivateRows, sample_of
from tutelage.audit.sensitivity import REMOVED, LearnsNothing, changes_of_one
from tutelage.estimator import PATEClassifier
from tutelage.mechanisms import CappedGNMax, NoisySum
from tutelage.noise import NoiseSource, SimulationNoise, SystemNoise
from tutelage.partition import Shards, as_column
from tutelage.students import NoisySumClassifier

_CHECK = "one person, one ballot"
_BINS, _QUERIES = 20, 300
_LEAST_P = 1e-6
_SIGMA = 1000.0  # of the noise that is drawn: any scale will do, the sampler is the same


def check_noise_of_sum(*, draws: int = 40_000, noise: NoiseSource | None = None) -> Checked:
    """Draw the noise of a sum and compare it with the law that the accounting takes it to have."""
    drawn = (noise or SystemNoise()).discrete_gaussian(_SIGMA, (draws,))
    edges = np.rint(stats.norm.ppf(np.arange(1, _BINS) / _BINS) * _SIGMA) + 0.5
    expected = np.diff(stats.norm.cdf(edges / _SIGMA), prepend=0, append=1) * draws
    found = np.histogram(drawn, [-np.inf, *edges, np.inf])[0]
    shape = float(stats.chisquare(found, expected).pvalue)
    size = float((drawn / _SIGMA).astype(np.float64) @ (drawn / _SIGMA))
    spread = 2 * min(stats.chi2.cdf(size, draws), stats.chi2.sf(size, draws))
    p_value = min(shape, spread)
    verdict = "pass" if p_value > _LEAST_P else "fail"
    said = "is distributed as" if verdict == "pass" else "is not what"
    reason = f"Over {draws:,} draws, the noise of a sum {said} the accounting takes it to be (p = {p_value:.2g})."
    return Checked("noise as configured", verdict, reason)


def check_ballots(
    model: PATEClassifier, private: PrivateRows, X_public: npt.ArrayLike, *, entities: int = 4
) -> Checked:
    """Change and remove single people, cast all ballots again, and measure how far the sum moved.

    Parameters
    ----------
    model : PATEClassifier
        What is audited; its teacher is `VectorBallots`.
    private : PrivateRows
        Private rows.
    X_public : array of shape (rows, features)
        Public rows.
    entities : int
        How many people are tried.
    """
    trial: Any = clone(model)
    trial.set_params(mechanism=NoisySum(1.0), epsilon=None, ledger=None, student=None, noise=SimulationNoise(0))
    trial.fit(private.X, private.y, X_public=X_public, entity_ids=private.entity_ids)
    bound = sqrt(trial.ballots_[0].norm_squared)

    def totals(X: Matrix, y: Any, ids: Any) -> IntArray:
        return _totals(trial, X_public, X, y, ids)

    def length(moved: IntArray) -> float:
        return float(np.linalg.norm(moved.astype(np.float64))) / bound

    if not np.array_equal(totals(private.X, private.y, private.entity_ids), trial.ballots_[0].totals):
        return _not_repeatable()
    return _checked_moves(totals, length, "lengths of the longest ballot", private, entities)


def tried_on_few(model: PATEClassifier, private: PrivateRows, X_public: npt.ArrayLike) -> PATEClassifier:
    """Return a copy of the model that was fitted to a few rows, with simulated noise and a student of no use.

    Its `mechanism_` is that of the model, whose noise depends on no row.

    Parameters
    ----------
    model : PATEClassifier
        What is audited; its teacher is `NearestQueries`.
    private : PrivateRows
        Private rows.
    X_public : array of shape (rows, features)
        Public rows.
    """
    few, public = _few(private), np.asarray(X_public)[:_QUERIES]
    asked = min(model.n_queries or len(public), len(public))
    trial: Any = clone(model)
    trial.set_params(ledger=None, n_queries=asked, rounds=min(model.rounds, asked), student=LearnsNothing())
    trial.set_params(noise=SimulationNoise(0), checkpoints=None)
    return trial.fit(few.X, few.y, X_public=public, entity_ids=few.entity_ids)


def check_votes(model: PATEClassifier, private: PrivateRows, X_public: npt.ArrayLike, *, entities: int = 4) -> Checked:
    """Change and remove single people of a sample, let all vote again, and measure how far the vote counts moved.

    Parameters
    ----------
    model : PATEClassifier
        What is audited; its teacher is `NearestQueries`.
    private : PrivateRows
        Private rows.
    X_public : array of shape (rows, features)
        Public rows.
    entities : int
        How many people are tried.
    """
    once: Any = clone(model)  # in one round, because later ones go by labels
    once.set_params(mechanism=CappedGNMax(1.0, model.teacher.cap), epsilon=None, rounds=1, selection=None)

    def totals(X: Matrix, y: Any, ids: Any) -> IntArray:
        trial: Any = tried_on_few(once, PrivateRows(X, y, ids), X_public)
        return trial.ballots_[0].counts

    def length(moved: IntArray) -> float:
        return float(np.abs(moved).sum()) / model.teacher.cap

    few = _few(private)
    return _checked_moves(totals, length, "times the cap on a person's votes", few, entities)


def _checked_moves(
    totals: Callable[[Matrix, Any, Any], IntArray],
    length: Callable[[IntArray], float],
    unit: str,
    private: PrivateRows,
    entities: int,
) -> Checked:
    """Return whether no person moves the totals by more than twice the bound, and by more than it if removed."""
    before = totals(private.X, private.y, private.entity_ids)
    if not np.array_equal(before, totals(private.X, private.y, private.entity_ids)):
        return _not_repeatable()
    furthest = {True: 0.0, False: 0.0}
    for change, rows, labels, ids in changes_of_one(private.X, private.y, private.entity_ids, entities):
        removed = change == REMOVED
        furthest[removed] = max(furthest[removed], length(totals(rows, labels, ids) - before))
    passed = furthest[True] <= 1 and furthest[False] <= 2
    reason = (
        f"One person moved the sum by up to {furthest[False]:.3f} {unit} when changed, of 2 allowed, and by up to "
        f"{furthest[True]:.3f} when removed, of 1 allowed."
    )
    if not passed:
        reason += " Features of one row depend on others, or a person casts several ballots: do not release with it."
    return Checked(_CHECK, "pass" if passed else "fail", reason, private=True)


def _not_repeatable() -> Checked:
    return Checked(_CHECK, "fail", "The same rows gave another sum the second time.", private=True)


def _few(private: PrivateRows) -> PrivateRows:
    rows = sample_of(np.arange(len(private.X)) if private.entity_ids is None else as_column(private.entity_ids))
    ids = None if private.entity_ids is None else as_column(private.entity_ids)[rows]
    return PrivateRows(private.X[rows], private.y[rows], ids)


def _totals(model: Any, X_public: npt.ArrayLike, X: Matrix, y: Any, ids: Any) -> IntArray:
    """Return the first sum of ballots over rows as `fit` would cast them, with features that are known."""
    seen, vectors = (_vectors(model, rows) for rows in (X_public, X))
    nothing_told = NoisySumClassifier().fit_moments(seen, [], n_rows=len(X), classes=model.classes_)
    residuals = nothing_told.residuals(vectors, np.searchsorted(model.classes_, y))
    shards = Shards.of_single_people(len(X), ids)
    return model.teacher.cast(vectors, residuals, shards, nothing_told.radius(seen)).totals


def _vectors(model: Any, X: npt.ArrayLike) -> Matrix:
    mapped = np.array(X) if model.features is None else model.features.transform(np.array(X))
    return model.student_[:-1].transform(mapped)
