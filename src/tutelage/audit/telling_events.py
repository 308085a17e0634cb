"""Sets of outcomes that tell two neighbours apart: prefixes in the order of the likelihood ratio (Neyman–Pearson)."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tutelage._typing import FloatArray, IntArray
from tutelage.audit.intervals import refuted_epsilon


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
