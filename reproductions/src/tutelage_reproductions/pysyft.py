"""`perform_analysis` of PySyft 0.2 with its faults, whose epsilon may be far too small: never rely on it."""

import numpy as np

from tutelage._internal.typing import Ballots, FloatArray, IntArray
from tutelage.accounting import pate_bounds
from tutelage.accounting.rdp import RenyiCurve, classic
from tutelage.ballots import tally


def analysis_of_pysyft(
    ballots: Ballots, indices: IntArray, gamma: float, delta: float, moments: int = 8
) -> tuple[float, float]:
    """Return the vote-dependent and the worst-case ε that PySyft printed; labels as `indices` are not refused."""
    tried = np.arange(1.0, moments + 1)
    # Classes without a vote are not counted.
    votes = tally(ballots, len(np.unique(ballots))).select(indices)
    log_q = pate_bounds.log_q_laplace(votes, 1 / gamma)
    each = np.minimum(_log_moments(log_q, gamma, tried), 2 * gamma * tried)
    independent = len(indices) * 2 * gamma**2 * (tried + 1)
    dependent, worst = (
        RenyiCurve(tried + 1, np.maximum(cost, 0)).to_epsilon(delta, classic).epsilon
        for cost in (np.minimum(each.sum(axis=0) / tried, independent), independent)
    )
    return dependent, worst


def _log_moments(log_q: FloatArray, gamma: float, moments: FloatArray) -> FloatArray:
    """Return the log moments with Theorem 3 applied up to q < 1/2, where it does not hold."""
    q = np.exp(log_q)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        kept = (1 - q) * ((1 - q) / (1 - np.exp(2 * gamma) * q)) ** moments
        dependent = np.log(kept + q * np.exp(2 * gamma * moments))
    dependent = np.where((q < 0.5) & np.isfinite(dependent), dependent, np.inf)
    return np.minimum(dependent, 2 * gamma**2 * moments * (moments + 1))
