"""How likely noise is to turn a vote against its plurality, and how much likelier a changed ballot can make that.

For the discrete noise that is drawn, ties included; on the gaps between counts, so that the order of the classes plays
no part beyond breaking ties. Proof: docs/proofs/smooth_sensitivity.md, section 1.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple, final

import numpy as np

from tutelage._typing import FloatArray, IntArray
from tutelage.accounting import bounds_2017
from tutelage.events import ConfidenceCheck, Event, InteractiveCheck, NoisyArgmaxGaussian, NoisyArgmaxLaplace
from tutelage.exceptions import UnsupportedEventError
from tutelage.votes import VoteHistogram

LEAST = -60.0  # log of the smallest probability told from 0; costs there are below 1e-20 of those of a close vote
_WIDEST = 1e4  # the largest scale of noise whose law is tabulated, in votes
_LAPLACE_REACH = 72.0  # in scales
_GAUSSIAN_REACH, _SUMMED_TO = 11.5, 14.0  # in standard deviations; what is left beyond the sum is below 1e-13 of a tail


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """Probability that the noise against the plurality reaches d votes.

    Parameters
    ----------
    reach : int
        Largest d that is told apart.
    log : array of shape (2·reach + 1,)
        log P(noise ≥ d) for d = −reach … reach.
    moves : int
        How far one changed ballot moves d: 2 for the gap between two counts, 1 for the largest count.
    """

    reach: int
    log: FloatArray
    moves: int

    def at_least(self, needed: IntArray) -> FloatArray:
        """Return an upper bound on log P(noise ≥ needed)."""
        return self.log[np.clip(needed, -self.reach, self.reach) + self.reach]

    def after_one_ballot(self, log_q: FloatArray, terms: int) -> FloatArray:
        """Return the most that log q can be once a ballot changed, given that q is a sum of `terms` such tails.

        Parameters
        ----------
        log_q : array
            Natural log of the sum of tails before.
        terms : int
            How many tails are summed: the classes other than the plurality, or 1 for a check.
        """
        tail = np.exp(self.log[::-1])
        moved = np.concatenate([tail[self.moves :], np.ones(self.moves)])
        with np.errstate(divide="ignore"):
            return np.minimum(np.log(terms * np.interp(np.exp(log_q) / terms, tail, moved)), 0.0)


class Needed(NamedTuple):
    """What noise has to reach for a vote to be lost, private, and how it is distributed."""

    votes: IntArray  # (queries, terms): q is the sum of the tails at these
    tail: Tail


def needed_noise(event: Event, votes: VoteHistogram, offsets: FloatArray | None = None) -> Needed:
    """Return what the noise of each query must reach for another outcome than the likeliest.

    Parameters
    ----------
    event : Event
        One noisy argmax or check.
    votes : VoteHistogram
        Private votes.
    offsets : array of shape (queries, classes), optional
        For `InteractiveCheck`: the public offsets o_j, in votes.

    Raises
    ------
    UnsupportedEventError
        If the papers have no bound for the event, or its noise is too wide to be tabulated.
    """
    tail = tail_of(event)
    if isinstance(event, ConfidenceCheck | InteractiveCheck):
        shift = 0.0 if offsets is None else offsets
        passes = (np.ceil(event.threshold + shift) - votes.counts).min(axis=1).astype(np.int64)
        return Needed(np.maximum(passes, 1 - passes)[:, None], tail)  # the rarer of "passes" and "fails"
    behind, wins_ties = bounds_2017.gaps(votes)
    return Needed(behind.astype(np.int64) + ~wins_ties, tail)


@lru_cache(maxsize=16)
def tail_of(event: Event) -> Tail:
    """Return the law of the noise that stands between the likeliest outcome and another.

    Raises
    ------
    UnsupportedEventError
        If the papers have no bound for the event, or its noise is too wide to be tabulated.
    """
    match event:
        case NoisyArgmaxLaplace(scale=scale) if scale <= _WIDEST:
            return _laplace_difference(scale)
        case NoisyArgmaxGaussian(sigma=sigma) if sigma <= _WIDEST:
            half = np.arange(-ceil(12 * sigma) - 1, ceil(12 * sigma) + 2)
            parity = [float(np.exp(-(((half + shift) / sigma) ** 2)).sum()) for shift in (0.0, 0.5)]
            return _gaussian(sigma * 2**0.5, 2, parity)
        case ConfidenceCheck(sigma=sigma) | InteractiveCheck(sigma=sigma) if sigma <= _WIDEST:
            return _gaussian(sigma, 1, [1.0, 1.0])
        case _:
            raise unsupported(event)


def unsupported(event: Event) -> UnsupportedEventError:
    """Return the error for an event that the papers have no bound for."""
    return UnsupportedEventError(
        f"No smooth sensitivity of this {type(event).__name__} is known: the papers have no bound for it, or its noise "
        f"is wider than {_WIDEST:g} votes. Publish the data-independent epsilon."
    )


def _laplace_difference(scale: float) -> Tail:
    """Return the tail of the difference of two discrete Laplace variables: docs/proofs/bounds_2017.md."""
    reach = ceil(_LAPLACE_REACH * scale) + 1
    log = bounds_2017.log_tail_of_difference(np.arange(0.0, reach + 1), scale)
    return _of_upper_half(reach, log[:1], log[1:], 2)


def _gaussian(sigma: float, moves: int, parity: list[float]) -> Tail:
    """Return the tail of integer noise with P(d) ∝ exp(−d²/2σ²)·parity[d mod 2]."""
    reach, summed = ceil(_GAUSSIAN_REACH * sigma) + 1, ceil(_SUMMED_TO * sigma) + 2
    d = np.arange(-summed, summed + 1)
    density = np.exp(-((d / sigma) ** 2) / 2) * np.where(d % 2 == 0, *parity)
    at_least = np.cumsum((density / density.sum())[::-1])[::-1][summed : summed + reach + 1]
    with np.errstate(divide="ignore"):
        return _of_upper_half(reach, np.log(at_least[:1]), np.log(at_least[1:]), moves)


def _of_upper_half(reach: int, at_zero: FloatArray, upper: FloatArray, moves: int) -> Tail:
    """Return the tail of an even law from its values at d = 0 and d = 1 … reach."""
    lower = np.log1p(-np.exp(upper[1:]))[::-1]  # P(noise ≥ −d) = 1 − P(noise ≥ d + 1)
    log = np.concatenate([[0.0], lower, at_zero, upper])
    log.setflags(write=False)
    return Tail(reach, log, moves)
