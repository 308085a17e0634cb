"""Whether one person moves a sum of ballots no further than its bound, and whether its noise is what its event says.

What is found depends on the private rows: it is for their owner. It spends no budget, for nothing is released.
"""

from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.base import clone

from tutelage._internal.typing import IntArray, Matrix
from tutelage.audit.checklist import Checked, PrivateRows
from tutelage.audit.sensitivity import REMOVED, changes_of_one
from tutelage.estimator import PATEClassifier
from tutelage.mechanisms import NoisySum
from tutelage.noise import NoiseSource, SimulationNoise, SystemNoise
from tutelage.partition import Shards
from tutelage.students import NoisySumClassifier

_CHECK = "one person, one ballot"
_BINS = 20
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
    before = _totals(trial, X_public, private.X, private.y, private.entity_ids)
    if not np.array_equal(before, trial.ballots_[0].totals):
        return Checked(_CHECK, "fail", "The same rows gave another sum the second time.", private=True)
    furthest = {True: 0.0, False: 0.0}
    changes = changes_of_one(private.X, private.y, private.entity_ids, entities)
    for change, rows, labels, ids in changes:
        moved = np.linalg.norm((_totals(trial, X_public, rows, labels, ids) - before).astype(np.float64)) / bound
        furthest[change == REMOVED] = max(furthest[change == REMOVED], float(moved))
    passed = furthest[True] <= 1 and furthest[False] <= 2
    reason = (
        f"One person moved the sum by up to {furthest[False]:.3f} lengths of the longest ballot when changed, of 2 "
        f"allowed, and by up to {furthest[True]:.3f} when removed, of 1 allowed."
    )
    if not passed:
        reason += " Features of one row depend on others, or a person casts several ballots: do not release with it."
    return Checked(_CHECK, "pass" if passed else "fail", reason, private=True)


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
