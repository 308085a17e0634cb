"""How far a private cost can move: what a release could have cost were up to j of the ballots behind it others.

`reach` returns U_0 ≤ U_1 ≤ …, summed over queries. Two properties make it the ground of a published ε, both proved in
docs/proofs/release.md: U_0 is at least the exact cost, and U_j of one data set is at most U_{j+1} of its neighbour,
because a neighbour changes at most one ballot of every query.
"""

import numpy as np

from tutelage._typing import FloatArray, IntArray
from tutelage.accounting import data_independent, three_outcomes
from tutelage.accounting.exact import ExactCosts
from tutelage.accounting.release import two_classes
from tutelage.accounting.release.envelopes import argmax_reach, check_reach, envelope_of
from tutelage.events import ConfidenceCheck, Event, InteractiveCheck, NoisyArgmaxGaussian, NoisyArgmaxLaplace
from tutelage.exceptions import UnsupportedEventError
from tutelage.votes import VoteHistogram

# Rounding moves a sum by far less than this, relative, or per query. Raising U_j by it once more per ballot keeps U_j
# of one data set below U_{j+1} of its neighbour as computed, not only as proved.
_STRETCH, _ABSOLUTE = 1e-9, 1e-12


def reach(
    event: Event, votes: VoteHistogram, order: float, steps: int, offsets: FloatArray | None = None
) -> FloatArray:
    """Return U_0 … U_steps: bounds on the summed Rényi cost of all queries within so many changed teachers.

    Parameters
    ----------
    event : Event
        What was done for each query: one noisy argmax or one check.
    votes : VoteHistogram
        Private votes, one row per query.
    order : float
        Rényi order λ > 1.
    steps : int
        Most changed teachers looked at.
    offsets : array of shape (queries, classes), optional
        For `InteractiveCheck` only: the public offsets o_j, in votes.

    Returns
    -------
    array of shape (steps + 1,)
        Nats, private.

    Raises
    ------
    UnsupportedEventError
        If no such bound is known for the event.
    InvalidDataError
        If event and votes do not fit each other.
    """
    ExactCosts(event, votes, offsets)  # the same rules for what fits what
    if not votes.n_queries:
        return np.zeros(steps + 1)
    costs, repeats = _per_query(event, votes, order, steps, offsets)
    limit = float(data_independent.rdp_of_three_outcomes(event, np.array([order])).values[0])
    total = repeats @ np.fmin(costs, limit)
    level = np.arange(1, steps + 2)
    return np.maximum.accumulate(total * (1 + _STRETCH * level) + votes.n_queries * _ABSOLUTE * level)


def _per_query(
    event: Event, votes: VoteHistogram, order: float, steps: int, offsets: FloatArray | None
) -> tuple[FloatArray, IntArray]:
    """Return bounds for the distinct queries, shape (distinct, steps + 1), and how often each occurs."""
    if isinstance(event, ConfidenceCheck | InteractiveCheck):
        noise = three_outcomes.gaussian_noise(event.sigma, order)
        if noise is not None:
            needed, repeats = np.unique(_needed(event, votes, offsets), return_counts=True)
            return check_reach(noise, order, needed, steps), repeats
    elif votes.n_classes == two_classes.CLASSES and votes.n_teachers <= two_classes.MOST_TEACHERS:
        rows, repeats = np.unique(votes.counts, axis=0, return_counts=True)
        return two_classes.argmax_reach(event, votes.n_teachers, votes.unit, rows, order, steps), repeats
    elif isinstance(event, NoisyArgmaxLaplace | NoisyArgmaxGaussian):
        noise = _argmax_noise(event, order)
        if noise is not None:
            rows, repeats = np.unique(-np.sort(-votes.counts, axis=1), axis=0, return_counts=True)
            envelope = envelope_of(noise, three_outcomes.positions_of(noise), order)
            return argmax_reach(envelope, rows, steps), repeats
    raise UnsupportedEventError(
        f"No publishable bound on the exact cost of {type(event).__name__} is known for {votes.n_classes} classes, "
        f"{votes.n_teachers} teachers and order {order:g}. Publish the data-independent epsilon."
    )


def _argmax_noise(event: NoisyArgmaxLaplace | NoisyArgmaxGaussian, order: float) -> three_outcomes.Noise | None:
    if isinstance(event, NoisyArgmaxLaplace):
        return three_outcomes.laplace_noise(event.scale, order)
    return three_outcomes.gaussian_noise(event.sigma, order)


def _needed(event: ConfidenceCheck | InteractiveCheck, votes: VoteHistogram, offsets: FloatArray | None) -> IntArray:
    """Return the noise, in votes, from which on each check passes."""
    shift = 0.0 if offsets is None else offsets
    return (np.ceil(event.threshold + shift) - votes.counts).min(axis=1).astype(np.int64)
