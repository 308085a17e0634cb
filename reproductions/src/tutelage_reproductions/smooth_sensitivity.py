"""The data-dependent costs of PATE 2017 and 2018 with their smooth sensitivity, for the discrete noise that is drawn.

Both papers bound the cost of a query by a probability q that its likeliest outcome is not reported: Theorem 3 of 2017
for Laplace noise, Theorem 6 of 2018 for Gaussian noise and checks. The effect of one changed ballot on q bounds
its effect on the cost, at the votes at hand and at all others. q is computed on the gaps between counts, ties included,
so the order of the classes matters only for breaking ties. Proof: reproductions/docs/proofs/smooth_sensitivity.md,
sections 1 and 2.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple, final

import numpy as np

from tutelage._internal.typing import FloatArray, IntArray, NeverPickled
from tutelage.accounting import Accountant, data_independent, pate_bounds
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    Check,
    ConfidenceCheck,
    Event,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
)
from tutelage.exceptions import UnsupportedEventError
from tutelage.publishing.cost_envelope import noise_to_pass
from tutelage_reproductions.two_sided_bound import log_tail_of_difference

# Log of the smallest probability told from 0; costs there are below 1e-20 of those of a close vote.
LEAST = -60.0
_WIDEST = 1e4  # the largest scale of noise whose law is tabulated, in votes
_LAPLACE_REACH = 72.0  # in scales
# In standard deviations; what is left beyond the sum is below 1e-13 of a tail.
_GAUSSIAN_REACH, _SUMMED_TO = 11.5, 14.0
_STEP = 5e-4  # between the values of log q that are told apart
_GRID: FloatArray = np.linspace(LEAST, 0.0, round(-LEAST / _STEP) + 1)
_SLACK = 1e-9  # in log q and, relative, per changed ballot: far above the rounding of a few sums
_ROUNDING = 1e-12  # nats per query: above the rounding of either theorem, so that costs err upward


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """Probability that the noise against the plurality reaches d votes."""

    reach: int  # the largest d that is told apart
    log: FloatArray  # log P(noise ≥ d) for d = −reach … reach
    # How far one ballot moves d: 2 for the gap between two counts, 1 for the largest count.
    moves: int

    def at_least(self, needed: IntArray) -> FloatArray:
        """Return an upper bound on log P(noise ≥ needed)."""
        return self.log[np.clip(needed, -self.reach, self.reach) + self.reach]

    def after_one_ballot(self, log_q: FloatArray, terms: int) -> FloatArray:
        """Return the most that log q can be once a ballot changed, given that q is a sum of `terms` such tails."""
        tail = np.exp(self.log[::-1])
        moved = np.concatenate([tail[self.moves :], np.ones(self.moves)])
        with np.errstate(divide="ignore"):
            return np.minimum(np.log(terms * np.interp(np.exp(log_q) / terms, tail, moved)), 0.0)


class Needed(NamedTuple):
    """Values that noise must reach for a vote to be lost, private, and the distribution of the noise."""

    votes: IntArray  # (queries, terms): q is the sum of the tails at these
    tail: Tail


def needed_noise(event: Event, votes: VoteHistogram, offsets: FloatArray | None = None) -> Needed:
    """Return what the noise of each query must reach for another outcome than the likeliest."""
    tail = tail_of(event)
    if isinstance(event, Check):
        passes = noise_to_pass(event, votes, offsets)
        # The rarer of "passes" and "fails".
        return Needed(np.maximum(passes, 1 - passes)[:, None], tail)
    behind, wins_ties = pate_bounds.gaps(votes)
    return Needed(behind.astype(np.int64) + ~wins_ties, tail)


@lru_cache(maxsize=16)
def tail_of(event: Event) -> Tail:
    """Return the law of the noise that stands between the likeliest outcome and another."""
    match event:
        case NoisyArgmaxLaplace(scale=scale) if scale <= _WIDEST:
            # The tail of the difference of two discrete Laplace variables: docs/proofs/pate2017.md.
            reach = ceil(_LAPLACE_REACH * scale) + 1
            log = log_tail_of_difference(np.arange(0.0, reach + 1), scale)
            return _of_upper_half(reach, log[:1], log[1:], 2)
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


@final
@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """The cost of one query by its log q, as a step function on a public grid, and how far one ballot moves it."""

    cost: FloatArray  # holds for every q up to the value of the grid; rising
    # Most by which the costs of neighbors differ, if either's q is up to that value; rising.
    growth: FloatArray


@lru_cache(maxsize=64)
def cost_table(event: Event, order: float) -> CostTable:
    """Return the tables of one event at one Rényi order; they depend on public parameters only."""
    tail = tail_of(event)
    # q is the sum of the tails of all other classes, or of the one other outcome of a check.
    terms = event.classes - 1 if isinstance(event, NoisyArgmaxLaplace | NoisyArgmaxGaussian) else 1
    most = float(data_independent.rdp_of_three_outcomes(event, np.array([order])).values[0])
    # A theorem that holds for every q̃ ≥ q gives the smallest of its values from q upward: made monotone from the right.
    cost = np.minimum(_by_theorem(event, np.minimum(_GRID + _SLACK, 0.0), order) + _ROUNDING, most)
    cost = np.minimum.accumulate(cost[::-1])[::-1]
    after = cell(tail.after_one_ballot(_GRID + _SLACK, terms) + _SLACK)
    growth = np.maximum.accumulate(cost[after] - cost)
    return CostTable(cost, growth)


def cell(log_q: FloatArray) -> IntArray:
    """Return the least value of the grid that is not below log q, by its place."""
    return np.clip(np.ceil((log_q - LEAST) / _STEP), 0, len(_GRID) - 1).astype(np.int64)


@final
class SmoothCosts(NeverPickled):
    """The private cost of everything released at one Rényi order, and what it could be within j changed teachers."""

    __slots__ = ("_cost", "_sensitivities")

    def __init__(self, released: Accountant, order: float) -> None:
        parts = [_costs_of(*part, order) for part in released.parts_with_votes()]
        steps = max(len(growth) for _, growth in parts)
        self._cost = sum(cost for cost, _ in parts)
        padded = [np.pad(growth, (0, steps - len(growth)), mode="edge") for _, growth in parts]
        self._sensitivities = np.sum(padded, axis=0)

    def cost(self) -> float:
        """Return a bound on the divergence from the votes at hand to any neighbor, in nats; private."""
        return self._cost

    def local_sensitivities(self) -> FloatArray:
        """Return bounds A_0, A_1, … on how far one ballot moves the cost of votes within j changed teachers; private.

        A_j of one data set is at most A_{j+1} of its neighbors; from the last on all are equal.
        """
        return self._sensitivities

    def smooth_sensitivity(self, beta: float) -> float:
        """Return max_j e^{−βj} A_j, in nats, private: no less than A_0, and a neighbor's is within a factor e^β."""
        discount = np.exp(-beta * (1 - _SLACK) * np.arange(len(self._sensitivities)))
        return float(np.max(discount * self._sensitivities))

    def __repr__(self) -> str:
        return "SmoothCosts(<depends on the private votes>)"


def most_sensitive(released: Accountant, order: float) -> float:
    """Return the largest sensitivity that any votes on the releases could have, in nats; public."""
    parts = released.event_at_limits().flatten()
    return sum(part.times * float(cost_table(part.event, order).growth[-1]) for part in parts) * (
        1 + _SLACK
    )


def _costs_of(
    event: Event, votes: VoteHistogram, offsets: FloatArray | None, order: float
) -> tuple[float, FloatArray]:
    """Return the cost of all queries and A_0, A_1, …, until every query is at its most sensitive."""
    table, (needed, tail) = cost_table(event, order), needed_noise(event, votes, offsets)
    needed, repeats = np.unique(np.sort(needed, axis=1), axis=0, return_counts=True)
    cost = float(repeats @ table.cost[cell(_log_sum(tail.at_least(needed)))])
    most, growths = float(votes.n_queries * table.growth[-1]), list[float]()
    for changed in range(votes.n_teachers + 1):
        log_q = _log_sum(tail.at_least(needed - tail.moves * changed)) + _SLACK * (changed + 1)
        growth = float(repeats @ table.growth[cell(log_q)])
        growths.append(min(growth * (1 + _SLACK * (changed + 1)), most))
        if growths[-1] == most:
            break
    return cost, np.array([*growths, most])


def _log_sum(log_tails: FloatArray) -> FloatArray:
    return np.minimum(np.logaddexp.reduce(log_tails, axis=1), 0.0)


def _by_theorem(event: Event, log_q: FloatArray, order: float) -> FloatArray:
    """Return the bound of the paper for each log q, in nats."""
    match event:
        case NoisyArgmaxLaplace(scale=scale):
            return pate_bounds.log_moments(log_q, scale, np.array([order - 1]))[:, 0] / (order - 1)
        case NoisyArgmaxGaussian(sigma=sigma):
            return pate_bounds.answer_costs(log_q, sigma, np.array([order]))[:, 0]
        case ConfidenceCheck(sigma=sigma) | InteractiveCheck(sigma=sigma):
            # One count moves by one where two do in an argmax: docs/proofs/pate2018.md.
            return pate_bounds.answer_costs(log_q, sigma * 2**0.5, np.array([order]))[:, 0]
        case _:
            raise unsupported(event)
