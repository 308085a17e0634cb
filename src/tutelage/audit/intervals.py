"""What two samples of an outcome say about (ε, δ): exact binomial bounds, and the ε that they refute."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from tutelage._typing import FloatArray, IntArray


def at_least(successes: IntArray, trials: int, level: float) -> FloatArray:
    """Return the Clopper–Pearson lower bound on a probability, wrong with a probability of at most `level`."""
    happened = np.asarray(successes)
    bound = stats.beta.ppf(level, np.maximum(happened, 1), trials - happened + 1)
    return np.where(happened > 0, bound, 0.0)


def at_most(successes: IntArray, trials: int, level: float) -> FloatArray:
    """Return the Clopper–Pearson upper bound on a probability, wrong with a probability of at most `level`."""
    happened = np.asarray(successes)
    bound = stats.beta.ppf(1 - level, happened + 1, np.maximum(trials - happened, 1))
    return np.where(happened < trials, bound, 1.0)


def refuted_epsilon(more: IntArray, less: IntArray, trials: int, delta: float, level: float) -> FloatArray:
    """Return the largest ε ≥ 0 that an event refutes: P(S) ≤ e^ε P′(S) + δ fails for every smaller one."""
    above = at_least(more, trials, level / 2) - delta
    below = at_most(less, trials, level / 2)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.maximum(above, 0)) - np.log(below), 0.0)


class ChosenEvent(NamedTuple):
    """The places of its outcomes, and the ε that it refutes on the frequencies it was chosen by."""

    outcomes: IntArray
    bound: float


def best_event(
    scores: FloatArray, more: IntArray, less: IntArray, trials: int, delta: float, level: float
) -> ChosenEvent:
    """Return those outcomes with the largest scores that refute the largest ε on these frequencies."""
    ranked = np.argsort(-scores, kind="stable")
    bounds = refuted_epsilon(np.cumsum(more[ranked]), np.cumsum(less[ranked]), trials, delta, level)
    best = int(np.argmax(bounds))
    return ChosenEvent(ranked[: best + 1], float(bounds[best]))


def log_ratio(here: npt.NDArray[Any], there: npt.NDArray[Any], *, at_least: float) -> FloatArray:
    """Return the log likelihood ratio of each outcome."""
    return np.log(here + at_least) - np.log(there + at_least)
