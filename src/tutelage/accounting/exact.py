"""The exact data-dependent cost of each release: its Rényi divergence from every neighboring histogram, computed.

c_λ(n) = max over neighbors n′ of max(D_λ(M(n)‖M(n′)), D_λ(M(n′)‖M(n))). A released label has m values and one moved
ballot makes at most (m + 1)² neighbors, so nothing needs to be bounded. Values are rounded upward, and never exceed
the data-independent cost, which stands in where noise is too little for double precision or too wide for memory. They
depend on the votes: private.

D_λ(P‖Q) = log(1 + Σ_j Q_j φ_λ(log P_j/Q_j))/(λ−1) with φ_λ(t) = e^{λt} − 1 − λ(e^t − 1) ≥ 0: no term is negative, so
nothing cancels, and φ grows away from 0, so a log ratio moved away from 0 by its error bound gives an upper bound.
Proofs and error budget: docs/proofs/exact.md.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import log
from typing import NamedTuple, final, get_args

import numpy as np
import scipy

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import FloatArray, IntArray, Mask, NeverPickled
from tutelage._internal.validation import MOST_VOTES
from tutelage.accounting import outcome_probabilities
from tutelage.accounting.data_independent import rdp
from tutelage.accounting.outcome_probabilities import MoveLaws, NoiseLaw, log_sum_exp
from tutelage.ballots import VoteHistogram
from tutelage.events import (
    Check,
    ConfidenceCheck,
    Event,
    ExponentialArgmax,
    InteractiveCheck,
    NoisyArgmaxGaussian,
    NoisyArgmaxLaplace,
    PermuteAndFlipArgmax,
)
from tutelage.exceptions import InvalidDataError, UnsupportedEventError

_LARGEST_EXPONENT = 500.0  # above it sums are taken in the log domain
# A smaller mass is taken for e^−700, which adds at most e^−200 below that exponent.
_LEAST_LOG_MASS = -700.0
_UPWARD = 1 + 1e-11  # covers the rounding of masses, powers and sums
_EPS = 2.0**-52
_EXPONENT_ROUNDING = 16 * _EPS  # relative, of log masses and of order × ratio
_NUMBERS_AT_ONCE = 2**18  # in one array: 2 MiB, so that work stays near the processor
_DOUBT = 1e-9  # a smaller error may hide a sign …
_WIDER = 1.001  # … so it is made wider by this factor: then φ covers both signs at orders up to 10⁶


def _worst_divergences(laws: MoveLaws, orders: FloatArray) -> FloatArray:
    """Return, per query, source and order, the largest divergence over targets and both directions, in nats.

    Never below the truth; infinite where double precision cannot follow; 0 where no move exists.
    """
    # orders: (orders,); returned: (queries, sources, orders)
    sources = laws.possible.shape[1]
    step = max(1, _NUMBERS_AT_ONCE * sources // max(1, laws.log_ratio.size))
    parts = [laws.from_sources(slice(start, start + step)) for start in range(0, sources, step)]
    any_in_doubt = any(_in_doubt(part).any() for part in parts)
    worst = [_worst_of(part, orders, any_in_doubt=any_in_doubt) for part in parts]
    return np.hstack(worst)


def _worst_of(laws: MoveLaws, orders: FloatArray, *, any_in_doubt: bool) -> FloatArray:
    """Return the largest divergence of the moves from these sources."""
    # log_mass, away: (queries, sources, targets, outcomes); reachable, there, back: (queries, sources, targets);
    # returned: (queries, sources, orders)
    log_mass, away, reachable = _away_from_zero(laws, any_in_doubt=any_in_doubt)
    forward = _Terms.of(log_mass, away)
    backward = _Terms.of(log_mass + away, -away)
    worst = np.empty((*laws.possible.shape[:2], len(orders)))
    aside: tuple[FloatArray, ...] = ()
    if laws.remainder is not None:
        aside = laws.remainder.log_mass, *laws.remainder.log_ratios()
    for column, order in enumerate(orders.tolist()):
        there = forward.log_moment(order)
        back = backward.log_moment(order)
        if aside:
            from_here, to_here = _remainders(*aside, order)
            there = _add_in_logs(there, from_here)
            back = _add_in_logs(back, to_here)
        larger = np.where(reachable, np.maximum(there, back) / (order - 1), np.inf)
        worst[:, :, column] = np.where(laws.possible, larger, 0).max(axis=2)
    return worst


def _in_doubt(laws: MoveLaws) -> Mask:
    """Return which log ratios may lie on the other side of 0."""
    # furthest, returned: (queries, sources, targets, outcomes)
    furthest = laws.log_ratio + np.copysign(laws.slack, laws.log_ratio)
    reachable = np.isfinite(furthest).all(axis=-1, keepdims=True)
    hides_sign = (laws.slack > np.abs(laws.log_ratio)) & (laws.slack > _DOUBT)
    return hides_sign & reachable


def _away_from_zero(laws: MoveLaws, *, any_in_doubt: bool) -> tuple[FloatArray, FloatArray, Mask]:
    """Return log masses, log ratios moved away from 0 by their error bounds, and which moves could be followed."""
    # log_mass, away: (queries, sources, targets, outcomes), twice as many outcomes where signs are in doubt;
    # reachable: (queries, sources, targets)
    slack = np.copysign(_WIDER * laws.slack, laws.log_ratio)
    away = laws.log_ratio + slack
    log_mass = laws.log_mass
    reachable = np.asarray(np.isfinite(away).all(axis=-1))
    away[~reachable] = 0
    if any_in_doubt:  # the ratio may lie on the other side of 0: count that end too
        in_doubt = _in_doubt(laws)
        other_end = np.subtract(laws.log_ratio, slack, out=np.zeros_like(slack), where=in_doubt)
        away = np.concatenate([away, other_end], axis=-1)
        log_mass = np.broadcast_to(log_mass, slack.shape)
        log_mass_of_other_end = np.where(in_doubt, log_mass, -np.inf)
        log_mass = np.concatenate([log_mass, log_mass_of_other_end], axis=-1)
    return log_mass, away, reachable


class _Terms(NamedTuple):
    """Terms that the moments of one direction share over all orders; the last axis holds outcomes."""

    log_mass: FloatArray
    log_ratio: FloatArray
    mass: FloatArray
    linear: FloatArray  # e^t − 1
    rounding: FloatArray  # per order: the rounding of the two terms that φ is the difference of
    largest: float

    @classmethod
    def of(cls, log_mass: FloatArray, log_ratio: FloatArray) -> "_Terms":
        # log_mass, log_ratio: (queries, sources, targets, outcomes)
        linear = np.expm1(np.minimum(log_ratio, _LARGEST_EXPONENT))
        return cls(
            log_mass=log_mass,
            log_ratio=log_ratio,
            mass=np.exp(np.maximum(log_mass, _LEAST_LOG_MASS)),
            linear=linear,
            rounding=4 * _EPS * np.abs(linear),
            largest=float(np.max(log_ratio, initial=0)),
        )

    def log_moment(self, order: float) -> FloatArray:
        """Return log(1 + Σ_j mass_j φ(log_ratio_j)), an upper bound on log E[ratio^order]."""
        # exponents, terms, huge: (queries, sources, targets, outcomes); returned: (queries, sources, targets)
        exponents = order * self.log_ratio
        linear = self.linear
        rounding = self.rounding
        huge = None
        if order * self.largest > _LARGEST_EXPONENT:
            huge = exponents > _LARGEST_EXPONENT
            exponents[huge] = 0
            linear = np.where(huge, 0, linear)
            rounding = np.where(huge, 0, rounding)

        terms = np.expm1(exponents, out=exponents)
        terms -= order * linear
        np.maximum(terms, 0, out=terms)
        terms += order * rounding
        terms *= self.mass
        total = np.log1p(terms.sum(axis=-1) * _UPWARD)
        if huge is None:
            return total

        # φ(t) ≤ e^{λt} for t ≥ 0
        upward = 1 + _EXPONENT_ROUNDING
        in_logs = np.where(
            huge,
            self.log_mass / upward + order * upward * self.log_ratio,
            -np.inf,
        )
        return _add_in_logs(total, log_sum_exp(in_logs, axis=-1))


def _add_in_logs(log_sum: FloatArray, log_term: FloatArray) -> FloatArray:
    """Return log(e^sum + e^term), rounded upward; exact digits are kept where the term is far below."""
    # log_sum: (queries, sources, targets); log_term: the same, or (queries, 1, 1)
    log_share = log_term - log_sum
    share = np.exp(np.minimum(log_share, 0))
    total = np.where(
        log_share < 0,
        log_sum + np.log1p(share),
        np.logaddexp(log_sum, log_term),
    )
    rounding = np.where(log_share > -40, 1e-11 * (1 + np.abs(total)), 0)
    return total + rounding * share


def _remainders(
    mass: FloatArray,
    more: FloatArray,
    less: FloatArray,
    order: float,
) -> Iterator[FloatArray]:
    """Yield upper bounds on log Σ_j P_j φ(log P'_j/P_j) and log Σ_j P'_j φ(log P_j/P'_j) over outcomes put aside."""
    # mass, more, less: (queries, values); each yielded: (queries, 1, 1)
    # Σ_v mass(v) (more(v)^λ + λ − 1), and Σ_v mass(v) (less(v)^{1−λ} + (λ − 1) more(v)).
    here = np.logaddexp(order * more, np.log(order - 1))
    there = np.logaddexp((1 - order) * less, np.log(order - 1) + more)
    for log_moment in (here, there):
        yield log_sum_exp(mass + log_moment, axis=1)[:, None, None]


_NUMBERS_KEPT = 3 * 2**24  # laws kept between calls: 384 MiB; beyond it they are computed again
_ALL_KEPT = 16  # up to so many classes, each is an outcome of its own
_FAR_MASS = 1e-10  # classes are put aside where their chance to win is below this, or below
_FAR_SHARE = 1e-5  # this share of the runner-up's
_MOST_NUMBERS = 2**24  # in one array for one histogram; a wider one is not followed
# Below these, one vote outweighs the noise e^30 times, and digits are lost.
_LEAST_SCALE = 1 / 30
_LEAST_SIGMA = 1 / 8
_Tabulated = NoisyArgmaxLaplace | NoisyArgmaxGaussian
_Known = _Tabulated | ExponentialArgmax | PermuteAndFlipArgmax | Check
_SAMPLED_CHUNKS = 8  # one in so many is enough to say which order will be best
_LONG_WORK = 2**28  # numbers to evaluate, about a second, from which on a progress bar is worth it


@final
class ExactCosts(NeverPickled):
    """Exact Rényi costs, private, of answering every query of a vote histogram once by one argmax or check."""

    def __init__(
        self,
        event: Event,
        votes: VoteHistogram,
        offsets: FloatArray | None = None,
        *,
        progress: bool = False,
    ) -> None:
        # votes, offsets, needed: (queries, classes); entering: (queries,); rows: (distinct, 1 + 2·classes)
        if offsets is not None:
            offsets = np.asarray(offsets, dtype=np.float64)
        self._event = event = _require_fit(event, votes, offsets)
        self._progress = progress
        counts = votes.counts
        entering = counts.sum(axis=1) < votes.n_teachers
        needed = np.zeros(counts.shape, dtype=np.int64)
        # Votes that each class needs for the check to pass without noise.
        if isinstance(event, Check):
            shift = 0 if offsets is None else offsets
            needed += np.ceil(event.threshold + shift).astype(np.int64)
        # Class order plays no part: more rows are equal.
        if isinstance(event, ExponentialArgmax | PermuteAndFlipArgmax):
            counts = np.sort(counts, axis=1)

        queries = np.column_stack([entering, counts, needed])
        rows, self._inverse = np.unique(queries, axis=0, return_inverse=True)
        self._multiplicity = np.bincount(self._inverse, minlength=len(rows))
        self._entering = rows[:, 0].astype(bool)
        self._known, self._needed = np.split(rows[:, 1:], 2, axis=1)
        self._chunks = _chunks(event, self._known, self._needed)
        self._laws: dict[int, MoveLaws] = {}
        self._room = _NUMBERS_KEPT

    def total(self, orders: FloatArray) -> FloatArray:
        """Return the summed cost of all queries at each order, shape (orders,), in nats."""
        return self._multiplicity @ self._costs(orders)

    def estimate(self, orders: FloatArray) -> FloatArray:
        """Return about the total, from every eighth chunk of alike histograms: to find an order, never a cost."""
        if len(self._chunks) < 2 * _SAMPLED_CHUNKS:
            return self.total(orders)

        every_eighth = slice(_SAMPLED_CHUNKS // 2, None, _SAMPLED_CHUNKS)
        rows = np.concatenate([rows for rows, _ in self._chunks[every_eighth]])
        times = self._multiplicity[rows]
        sampled = times @ self._costs(orders, every_eighth)[rows]
        return sampled * (self._multiplicity.sum() / times.sum())

    def per_query(self, orders: FloatArray) -> FloatArray:
        """Return the cost of each query at each order, shape (queries, orders), in nats."""
        return self._costs(orders)[self._inverse]

    def _costs(self, orders: FloatArray, some: slice = slice(None)) -> FloatArray:
        """Return the costs of the distinct histograms, or of those in some chunks, shape (distinct, orders)."""
        limit = rdp(self._event, orders).values
        costs = np.full((len(self._known), len(orders)), np.inf)
        numbers = range(len(self._chunks))[some]
        work = sum(len(rows) * kept**3 for rows, kept in self._chunks[some]) * len(orders)

        def evaluate(number: int) -> None:
            rows, _ = self._chunks[number]
            costs[rows] = _worst_divergences(self._law(number), orders).max(axis=1)

        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            done = pool.map(evaluate, numbers)
            is_long = work > _LONG_WORK
            for _ in progress_bar(
                done, "exact cost", len(numbers), shown=self._progress and is_long
            ):
                pass
        finally:
            pool.shutdown(cancel_futures=True)  # on Ctrl-C, do not finish the rest first
        return np.minimum(costs, limit)

    def _law(self, number: int) -> MoveLaws:
        """Return the laws of one chunk, kept for the next call while there is room."""
        if number in self._laws:
            return self._laws[number]
        rows, kept = self._chunks[number]
        laws = _law_of(
            self._event,
            self._known[rows],
            self._entering[rows],
            self._needed[rows],
            kept,
        )
        size = laws.log_ratio.size + laws.slack.size
        if laws.remainder is not None:
            size += laws.remainder.log_mass.size
        if size <= self._room:
            self._room -= size
            self._laws[number] = laws
        return laws


def _require_fit(event: Event, votes: VoteHistogram, offsets: FloatArray | None) -> _Known:
    """Return the event, if its cost is known and it is about these votes."""
    # A subclass may release something else.
    if not isinstance(event, _Known) or type(event) not in get_args(_Known):
        raise UnsupportedEventError(f"No exact cost is known for the event {type(event).__name__}.")
    if event.classes != votes.n_classes:
        raise InvalidDataError(
            f"The event is about {event.classes} classes, the votes have {votes.n_classes}."
        )
    if event.unit != votes.unit:
        raise InvalidDataError("The event and the votes have different units of privacy.")
    if isinstance(event, InteractiveCheck) != (offsets is not None):
        raise InvalidDataError(
            "`offsets` belong to an InteractiveCheck, and it needs them. Pass them with it only."
        )
    if offsets is None:
        return event
    if offsets.shape != votes.counts.shape or not np.all(np.abs(offsets) <= MOST_VOTES):
        raise InvalidDataError(
            f"`offsets` must be finite votes in the shape of the votes, {votes.counts.shape}. Got {offsets.shape}."
        )
    return event


def _chunks(event: _Known, known: IntArray, needed: IntArray) -> list[tuple[IntArray, int]]:
    """Return rows worked on together, and the number of classes kept apart; rows not to be followed are in none."""
    # known, needed: (distinct, classes); kept, spread, width: (distinct,)
    reach = 0.0
    if isinstance(event, NoisyArgmaxGaussian | Check):
        too_little = event.sigma < _LEAST_SIGMA
        reach = 26 * event.sigma  # a discrete Gaussian is tabulated to 13 σ
    else:
        too_little = event.scale < _LEAST_SCALE
    if too_little:
        return []

    kept = np.full(len(known), known.shape[1])
    spread = np.ptp(known, axis=1)
    if isinstance(event, _Tabulated):
        law = _noise_of(event)
        kept = _number_kept(event, known, kept)
        width = (law.below + law.above + spread) + reach
    else:
        width = 2.0 * np.abs(known - needed).max(axis=1) + reach

    chunks = list[tuple[IntArray, int]]()
    for number in np.unique(kept).tolist():
        can_be_followed = width * (number + 1) <= _MOST_NUMBERS
        rows = np.flatnonzero((kept == number) & can_be_followed)
        rows = rows[np.argsort(spread[rows], kind="stable")]
        values = 1
        if isinstance(event, _Tabulated) and rows.size:
            values = int(np.median(width[rows]))
        step = max(1, _NUMBERS_AT_ONCE // (number * max(values, (number + 1) ** 2)))
        for start in range(0, len(rows), step):
            chunks.append((rows[start : start + step], number))
    return chunks


def _number_kept(event: _Tabulated, known: IntArray, kept: IntArray) -> IntArray:
    """Return how many classes to keep apart: enough that the others hardly ever win; only tightness rests on it."""
    # known, behind: (distinct, classes); kept, second, others: (distinct,)
    classes = known.shape[1]
    if classes <= _ALL_KEPT:
        return kept

    behind = known.max(axis=1, keepdims=True) - known
    behind.sort(axis=1)
    second = _log_chance(event, behind[:, 1])
    for number in (64, 32, 16, 8, 4, 2):
        if number >= classes:
            continue
        others = _log_chance(event, behind[:, number]) + log(classes - number)
        is_far = (others < log(_FAR_MASS)) | (others < second + log(_FAR_SHARE))
        kept[is_far] = number
    return kept


def _log_chance(event: _Tabulated, gap: IntArray) -> FloatArray:
    """Return an approximate log probability that a class with this many votes less is reported."""
    # gap, returned: (distinct,)
    if isinstance(event, NoisyArgmaxLaplace):
        return np.log1p(gap / (2 * event.scale)) - gap / event.scale - log(2)
    return scipy.special.log_ndtr(-gap / (2**0.5 * event.sigma))


def _noise_of(event: _Tabulated) -> NoiseLaw:
    if isinstance(event, NoisyArgmaxLaplace):
        return outcome_probabilities.discrete_laplace(event.scale)
    return outcome_probabilities.discrete_gaussian(event.sigma)


def _law_of(
    event: _Known,
    counts: IntArray,
    entering: Mask,
    needed: IntArray,
    kept: int,
) -> MoveLaws:
    """Return the laws of a chunk of distinct histograms."""
    # counts, needed: (chunk, classes); entering: (chunk,)
    match event:
        case ExponentialArgmax(scale=scale):
            return outcome_probabilities.exponential_mechanism(counts, entering, scale)
        case PermuteAndFlipArgmax(scale=scale):
            return outcome_probabilities.permute_and_flip(counts, entering, scale)
        case ConfidenceCheck(sigma=sigma) | InteractiveCheck(sigma=sigma):
            return outcome_probabilities.check(counts, entering, needed, sigma)
        case _:
            return outcome_probabilities.noisy_argmax(counts, entering, _noise_of(event), kept)
