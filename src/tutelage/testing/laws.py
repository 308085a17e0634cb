"""The distribution of one released label, by adding up probabilities outcome by outcome, and bounds by frequencies.

Nothing here is shared with `tutelage.accounting`, so that the two can be held against each other.
"""

from collections.abc import Iterator
from itertools import permutations
from math import ceil, factorial

import numpy as np
from scipy import stats

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    CappedArgmaxGaussian,
    Check,
    Composed,
    ConfidenceCheck,
    Event,
    ExponentialArgmax,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
    Repeated,
)
from tutelage.exceptions import UnsupportedEventError
from tutelage.mechanisms import CappedGNMax, Mechanism

_REACH = 14  # σ; the mass beyond is below 1e-42
_LAPLACE_REACH = 60  # scales; below 1e-25


def label_law(
    event: Event,
    counts: IntArray,
    offsets: IntArray | None = None,
) -> FloatArray:
    """Return the probability of each class, and last of an abstention, when one query goes through `event`.

    Parameters
    ----------
    event : Event
        One answer; or a check and then an answer, where the check passes.
    counts : integer array of shape (classes,)
        Votes, made up for a test.
    offsets : integer array of shape (classes,), optional
        For `InteractiveCheck`: the votes that the student expects.

    Raises
    ------
    UnsupportedEventError
        If the event is of another kind.
    """
    counts = np.asarray(counts)
    match event:
        case Repeated(event=answer, count=1):
            return label_law(answer, counts, offsets)
        case Composed(events=(ConfidenceCheck() | InteractiveCheck() as check, answer)):
            passes = _chance_to_pass(check, counts, offsets)
            law = label_law(answer, counts)[:-1]
            return np.append(passes * law, 1 - passes)
        case NoisyArgmaxLaplace(scale=scale):
            masses = discrete_laplace_masses(scale, ceil(_LAPLACE_REACH * scale))
            law = _argmax_law(counts, masses)
        case NoisyArgmaxGaussian(sigma=sigma) | CappedArgmaxGaussian(sigma=sigma):
            masses = discrete_gaussian_masses(sigma, ceil(_REACH * sigma))
            law = _argmax_law(counts, masses)
        case ExponentialArgmax(scale=scale):
            weights = np.exp((counts - counts.max()) / scale)
            law = weights / weights.sum()
        case PermuteAndFlipArgmax(scale=scale):
            law = _permute_and_flip_law(counts, scale)
        case _:
            raise UnsupportedEventError(
                f"The label law of {type(event).__name__} is not known here; define `law` yourself."
            )
    return np.append(law, 0)


def made_up_votes(
    mechanism: Mechanism, counts: tuple[int, ...], rows: int, teachers: int
) -> VoteHistogram:
    """Return rows of the same made-up votes; where a teacher's votes are capped, of other teachers each."""
    cap = None
    if isinstance(mechanism, CappedGNMax):
        cap = mechanism.cap
        teachers = max(teachers, 1) * rows
    return VoteHistogram(np.tile(counts, (rows, 1)), teachers, cap=cap)


def frequencies_of(labels: IntArray, n_classes: int) -> IntArray:
    """Return how often each class is among the labels, and last how often an abstention."""
    abstentions_first = np.bincount(labels - ABSTAIN, minlength=n_classes + 1)
    return np.roll(abstentions_first, -1)


def p_value_of(times: int, trials: int, chance: float) -> float:
    """Return the p-value of an event that happened so many times, by the exact binomial test."""
    return float(stats.binomtest(times, trials, min(1.0, float(chance))).pvalue)


def rows_apart(n_rows: int) -> Iterator[tuple[IntArray, int]]:
    """Yield first rows of pairs of rows, near and far, and how far apart they are; no row is in two pairs of a part."""
    for lag in (1, 2, 3, 5, 8, n_rows // 4, n_rows // 3, n_rows // 2):
        phases = np.arange(n_rows - lag) // lag % 2
        for phase in np.unique(phases):
            yield np.flatnonzero(phases == phase), lag


def at_least(
    successes: IntArray,
    trials: int,
    level: float,
) -> FloatArray:
    """Return the Clopper–Pearson lower bound on a probability, wrong with a probability of at most `level`."""
    counts = np.asarray(successes)
    bound = stats.beta.ppf(level, np.maximum(counts, 1), trials - counts + 1)
    return np.where(counts > 0, bound, 0.0)


def at_most(
    successes: IntArray,
    trials: int,
    level: float,
) -> FloatArray:
    """Return the Clopper–Pearson upper bound on a probability, wrong with a probability of at most `level`."""
    counts = np.asarray(successes)
    bound = stats.beta.ppf(1 - level, counts + 1, np.maximum(trials - counts, 1))
    return np.where(counts < trials, bound, 1.0)


def discrete_laplace_masses(scale: float, reach: int) -> FloatArray:
    """Return P(k) for k = −reach..reach."""
    noise = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(noise) / scale)
    return weights * np.tanh(1 / (2 * scale))


def discrete_gaussian_masses(sigma: float, reach: int) -> FloatArray:
    """Return P(k) for k = −reach..reach."""
    noise = np.arange(-reach, reach + 1)
    weights = np.exp(-(noise**2) / (2 * sigma**2))
    return weights / weights.sum()


def _argmax_law(counts: IntArray, masses: FloatArray) -> FloatArray:
    """Return P(argmax_j (n_j + Z_j) = j) with ties to the lowest index, from the masses of Z on −reach..reach."""
    # counts: (classes,); masses: (2 reach + 1,); mass, up_to, below: (classes, values of a noisy count)
    above_least: list[int] = (counts - counts.min()).tolist()
    mass = np.zeros((len(counts), max(above_least) + len(masses)))
    for label, first in enumerate(above_least):
        mass[label, first : first + len(masses)] = masses
    up_to = np.cumsum(mass, axis=1)
    below = up_to - mass

    law = np.zeros(len(counts))
    for label, own in enumerate(mass):
        lower = np.prod(below[:label], axis=0)
        higher = np.prod(up_to[label + 1 :], axis=0)
        law[label] = np.sum(own * lower * higher)
    return law


def _permute_and_flip_law(counts: IntArray, scale: float) -> FloatArray:
    """Return the law over all orders in which the classes may flip coins (McKenna and Sheldon 2020, Algorithm 1)."""
    chance = np.exp((counts - counts.max()) / scale)
    law = np.zeros(len(counts))
    for order in permutations(range(len(counts))):
        all_tails = 1.0  # chance that no class before this one won
        for label in order:
            law[label] += all_tails * chance[label]
            all_tails *= 1 - chance[label]
    return law / factorial(len(counts))


def _chance_to_pass(
    check: Check,
    counts: IntArray,
    offsets: IntArray | None,
) -> float:
    reach = ceil(_REACH * check.sigma)
    if offsets is not None:
        counts = counts - offsets
    passes = counts.max() + np.arange(-reach, reach + 1) >= check.threshold
    return float(discrete_gaussian_masses(check.sigma, reach)[passes].sum())
