"""The law of the released label at a histogram, and at every histogram that differs from it by one moved ballot.

A law is kept as the log probability of each outcome and the log ratio to its neighbor's probability, together with a
bound on the error of that ratio, so that costs can be rounded upward. Proofs: docs/proofs/exact.md.

Moves are indexed by source and target class; the last source and the last target stand for abstention (and, where
classes far behind were put aside, for those classes too).
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil, exp, log, log1p, sqrt
from typing import NamedTuple, cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from tutelage._internal.typing import FloatArray, IntArray

# Relative error of a ratio of two sums of positive terms; many times what was ever seen.
ROUNDING = 4e-12
# Relative error of a logarithm, which is the absolute one of what it is the logarithm of.
_LOG_ROUNDING = 2.0**-49
_TAIL_NATS = 30.0  # what lies beyond the grid has a share below e^−29 of any outcome
_MOST_CLASSES_NATS = 7.0  # for up to e^7 classes

_Pair = tuple[FloatArray, FloatArray]


# Noise on the integers. A class with one vote less reads the same table one entry further on. Error bounds:
# docs/proofs/exact.md, section 4.


class NoiseGrid(NamedTuple):
    """A noise density and its cumulative distribution at the integers from `lo` on.

    `gain` and `loss` are the relative changes of the cumulative distribution F where a rival class has one vote less,
    F(x+1)/F(x) − 1 ≥ 0, or one more, F(x−1)/F(x) − 1 ≤ 0; `fewer` and `more` are those of the density f of the winning
    class itself, f(x+1)/f(x) − 1 and f(x−1)/f(x) − 1. They come from ratios, so small changes keep their digits.
    """

    lo: int
    log_density: FloatArray
    log_below: FloatArray  # log F(x)
    log_above: FloatArray  # log P(Z > x)
    gain: FloatArray
    loss: FloatArray
    fewer: FloatArray
    more: FloatArray


class NoiseLaw(NamedTuple):
    """A noise distribution: how to tabulate it, and how far the noisy maximum has to be followed.

    `build` takes the lowest and highest difference x, in votes. The noisy maximum is followed up to `above` votes
    beyond the most votes, and down to `below` votes under a point that lies the share `midway` of the way from the
    fewest votes to the most.
    """

    build: Callable[[int, int], NoiseGrid]
    midway: float
    below: float
    above: float


def discrete_laplace(scale: float) -> NoiseLaw:
    """Return P(k) ∝ exp(−|k|/scale) on the integers."""
    above = scale * (_TAIL_NATS + _MOST_CLASSES_NATS) + 2
    return NoiseLaw(
        partial(_discrete_laplace_grid, scale),
        0.0,
        scale * _TAIL_NATS / 2 + 2,
        above,
    )


def discrete_gaussian(sigma: float) -> NoiseLaw:
    """Return P(k) ∝ exp(−k²/2σ²) on the integers."""
    above = sigma * sqrt(2 * (_TAIL_NATS + _MOST_CLASSES_NATS)) + 2
    return NoiseLaw(
        partial(_discrete_gaussian_grid, sigma),
        0.5,
        sigma * sqrt(_TAIL_NATS) + 2,
        above,
    )


def _discrete_laplace_grid(
    scale: float,
    lowest: int,
    highest: int,
) -> NoiseGrid:
    x = np.arange(lowest, highest + 1, dtype=np.float64)
    a = exp(-1 / scale)
    rest: float = -np.expm1(-1 / scale)  # 1 − a
    share: FloatArray = np.exp(-np.maximum(x, 0) / scale)  # a^x where x ≥ 0
    kept = 1 + a - a * share  # (1 + a) F(x) where x ≥ 0
    below_zero = np.minimum(x, 0) / scale - log1p(a)  # F(x) = a^−x/(1+a) for x < 0
    is_below = x < 0
    return NoiseGrid(
        lo=lowest,
        log_density=np.log(rest / (1 + a)) - np.abs(x) / scale,
        log_below=np.where(is_below, below_zero, np.log1p(-a * share / (1 + a))),
        log_above=np.where(
            is_below,
            np.log1p(-np.exp(below_zero)),
            -(x + 1) / scale - log1p(a),
        ),
        gain=np.where(is_below, np.expm1(1 / scale), rest * a * share / kept),
        loss=-np.where(x <= 0, rest, rest * share / kept),
        fewer=np.expm1(np.where(is_below, 1, -1) / scale),
        more=np.expm1(np.where(x > 0, 1, -1) / scale),
    )


def _discrete_gaussian_grid(
    sigma: float,
    lowest: int,
    highest: int,
) -> NoiseGrid:
    # The mass beyond is below e^−84 of what is used.
    reach = max(-lowest, highest + 1) + ceil(13 * sigma) + 2
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    twice_variance = 2 * sigma**2
    log_density = -(x**2) / twice_variance
    log_density -= log_sum_exp(log_density)
    with np.errstate(over="ignore", divide="ignore"):
        fewer = np.expm1(-(2 * x + 1) / twice_variance)
        more = np.expm1((2 * x - 1) / twice_variance)
        hazard = _reverse_hazard(more[:reach])  # f(x)/F(x) for x < 0
        left = log_density[:reach] - np.log(hazard)  # log F(x) for x < 0
        right = np.log1p(-np.exp(left))[::-1]  # log F(x) = log(1 − F(−x−1)) for x ≥ 0
        log_below = np.hstack([left, right, 0.0])
        loss = np.hstack([-hazard, -np.exp(log_density[reach:] - log_below[reach:])])
        below_zero = hazard * (1 + fewer[:reach])
        gain = np.hstack([below_zero, np.exp(log_density[reach + 1 :] - right), 0.0])
    used = slice(lowest + reach, highest + reach + 1)
    return NoiseGrid(
        lo=lowest,
        log_density=log_density[used],
        log_below=log_below[used],
        log_above=log_below[::-1][used.start + 1 : used.stop + 1],  # P(Z > x) = F(−x−1)
        gain=gain[used],
        loss=loss[used],
        fewer=fewer[used],
        more=more[used],
    )


def _reverse_hazard(more: FloatArray) -> FloatArray:
    """Return f(x)/F(x) from the left, by 1/h(x) = 1 + (f(x−1)/f(x))/h(x−1): positive terms, so nothing cancels."""
    hazards: list[float] = []
    inverse = 1.0
    for ratio in (more + 1).tolist():
        inverse = 1.0 + inverse * ratio
        hazards.append(1.0 / inverse)
    return np.array(hazards)


class Remainder(NamedTuple):
    """Outcomes put aside: log mass at each value of the noisy maximum, and how far any move can change it."""

    log_mass: FloatArray  # (queries, values), an upper bound
    # Two parts each of the largest log ratio, ≥ 0, and of the smallest, ≤ 0: the second is one table for all queries.
    more: _Pair
    less: _Pair
    start: IntArray  # where each query begins in it

    def log_ratios(self) -> _Pair:
        """Return the largest and the smallest log ratio, shape (queries, values)."""
        return self._whole(*self.more), self._whole(*self.less)

    def _whole(self, one: FloatArray, table: FloatArray) -> FloatArray:
        return one + sliding_window_view(table, self.log_mass.shape[1])[self.start]


class MoveLaws(NamedTuple):
    """Laws of a chunk of histograms and of all their neighbors.

    `log_mass` broadcasts against `log_ratio` of shape (queries, sources, targets, outcomes); `slack` bounds the error
    of `log_ratio`; `possible` of shape (queries, sources, targets) masks the moves that exist; `sources` of shape
    (queries, sources) holds the class that a moved ballot leaves, −1 for the last one.
    """

    log_mass: FloatArray
    log_ratio: FloatArray
    slack: FloatArray
    possible: np.ndarray
    sources: IntArray
    remainder: Remainder | None = None

    def from_sources(self, some: slice) -> "MoveLaws":
        """Return the laws of the moves from some of the sources."""
        return MoveLaws(
            self.log_mass[:, some] if self.log_mass.shape[1] > 1 else self.log_mass,
            self.log_ratio[:, some],
            self.slack[:, some],
            self.possible[:, some],
            self.sources[:, some],
            self.remainder,
        )


def noisy_argmax(
    counts: IntArray,
    may_enter: np.ndarray,
    law: NoiseLaw,
    kept: int,
) -> MoveLaws:
    """Return the laws of argmax_j (n_j + Z_j), ties to the lowest index.

    A ballot may enter where a teacher abstained. All but the `kept` classes with the most votes are bounded together.
    """
    rows = np.arange(len(counts))[:, None]
    order = np.argsort(-counts, axis=1, kind="stable")
    near = np.sort(order[:, :kept], axis=1)  # in class order, which decides ties
    far = order[:, kept:]
    gaps = _behind_most(counts)
    field = _Field.spanning(law, gaps[rows, near], gaps[rows, far])
    mass, weights = field.winners()
    change, error = field.changes(weights)
    log_mass = _per_move(mass)
    ratio, slack = _log_ratio(change, error, ROUNDING - _LOG_ROUNDING * log_mass)
    if far.size:
        slack = field.cover_far_moves(weights, ratio, slack)
    else:
        _follow_one_by_one(law, counts, mass, ratio, slack)
    possible = _possible(counts[rows, near], may_enter)
    far_has_ballots = np.any(counts[rows, far] > 0, axis=1)
    possible[:, kept] |= far_has_ballots[:, None]
    possible[:, kept, kept] = far_has_ballots | (may_enter & (far.size > 0))
    return MoveLaws(
        log_mass,
        ratio,
        slack,
        possible,
        _sources(near),
        field.remainder(),
    )


def exponential_mechanism(
    counts: IntArray,
    may_enter: np.ndarray,
    scale: float,
) -> MoveLaws:
    """Return the laws of P(j) ∝ exp(n_j/scale), in closed form: source wins, target wins, another class wins."""
    classes = counts.shape[1]
    log_p = special.log_softmax(-_behind_most(counts) / scale, axis=1)
    log_p = np.insert(log_p, classes, -np.inf, axis=1)
    log_others = _log_mass_of_the_others(log_p)
    # Masses stay logarithms: order × ratio can lift an outcome whose probability is below the smallest double.
    outcomes = np.broadcast_arrays(log_p[:, :, None], log_p[:, None], log_others)
    mass = np.stack(outcomes, axis=-1)
    source, target, others = np.moveaxis(np.exp(mass), -1, 0)
    fewer_votes = np.append(np.full(classes, -1 / scale), 0.0)[:, None]
    more_votes = -fewer_votes.T
    with np.errstate(divide="ignore"):
        # A small change of the norm keeps its digits as a change, a large one as a sum of positive terms.
        change = source * np.expm1(-1 / scale) + target * np.expm1(1 / scale)
        whole: FloatArray = np.log(
            others + source * np.exp(-1 / scale) + target * np.exp(1 / scale)
        )
        log_norm = np.where(change < -0.5, whole, np.log1p(np.maximum(change, -0.75)))
    ratio = np.stack([fewer_votes - log_norm, more_votes - log_norm, -log_norm], axis=-1)
    slack = 4e-15 * (1 / scale + np.abs(ratio))
    return _of_all_classes(counts, may_enter, mass, ratio, slack)


def permute_and_flip(
    counts: IntArray,
    may_enter: np.ndarray,
    scale: float,
) -> MoveLaws:
    """Return the laws of argmax_j (n_j + E_j), E_j exponential with mean `scale`, by exact Gauss quadrature."""
    classes = counts.shape[1]
    here = _per_move(_log_permute_and_flip(counts, scale))
    there = np.empty((len(counts), classes + 1, classes + 1, classes))
    for source in range(classes + 1):  # one at a time, for memory
        moved = _moved(counts[:, None], source)
        there[:, source] = _log_permute_and_flip(moved.reshape(-1, classes), scale).reshape(
            moved.shape
        )
    ratio = there - here
    slack = ROUNDING * (1 + np.abs(ratio)) / 100 - _LOG_ROUNDING * (here + there)
    return _of_all_classes(counts, may_enter, here, ratio, slack)


def check(
    counts: IntArray,
    may_enter: np.ndarray,
    needed: IntArray,
    sigma: float,
) -> MoveLaws:
    """Return the laws of whether max_j (n_j − needed_j) + Z ≥ 0, Z discrete Gaussian: pass, fail."""
    margins = counts - needed
    margin = margins.max(axis=1)
    classes = counts.shape[1]
    without = np.insert(
        np.maximum(_largest_of_the_others(margins), margins - 1),
        classes,
        margin,
        axis=1,
    )
    entered = np.insert(margins + 1, classes, np.iinfo(np.int64).min, axis=1)
    step = np.maximum(without[:, :, None], entered[:, None]) - margin[:, None, None]
    reach = int(np.abs(margin).max()) + 2
    grid = discrete_gaussian(sigma).build(-reach, reach)
    fails = reach - 1 - margin  # Z ≤ −margin − 1
    passes = reach + margin  # Z ≤ margin, by symmetry
    mass = _per_move(np.stack([grid.log_below[passes], grid.log_below[fails]], axis=-1))
    # Small changes keep their digits as ratios, large ones as logarithms.
    steps = np.diff(grid.log_below)
    is_large = steps > log(2)
    rises = np.log1p(grid.gain)
    rises[:-1][is_large] = steps[is_large]
    falls = np.log1p(np.maximum(grid.loss, -0.75))
    falls[1:][is_large] = -steps[is_large]
    falls[0] = -np.inf

    def log_ratio(
        at: IntArray,
        up: np.ndarray,
        down: np.ndarray,
    ) -> FloatArray:
        return np.select([up, down], [rises[at, None, None], falls[at, None, None]])

    ratio = np.stack(
        [log_ratio(passes, step > 0, step < 0), log_ratio(fails, step < 0, step > 0)],
        axis=-1,
    )
    size = np.abs(ratio)
    slack = ROUNDING * (size + np.where(size > 0.6, -mass, 0))
    return _of_all_classes(counts, may_enter, mass, ratio, slack)


class _Field(NamedTuple):
    """The noise of each class along the values that the noisy maximum can take, one row per histogram."""

    grid: NoiseGrid
    gaps: IntArray  # (queries, kept): votes behind the plurality
    far_gaps: IntArray  # (queries, classes put aside), ascending
    start: int  # first value of the noisy maximum, relative to the most votes
    length: int

    @classmethod
    def spanning(
        cls,
        law: NoiseLaw,
        gaps: IntArray,
        far_gaps: IntArray,
    ) -> "_Field":
        """Return the field on a grid wide enough for every outcome of these histograms."""
        widest = max(int(gaps.max()), int(far_gaps.max(initial=0)))
        low = int(np.floor(-(1 - law.midway) * widest - law.below))
        high = int(np.ceil(law.above))
        return cls(
            law.build(low - 1, high + widest + 1),
            gaps,
            far_gaps,
            low,
            high - low,
        )

    def along(
        self,
        table: FloatArray,
        gaps: IntArray,
        *,
        below: bool = False,
    ) -> FloatArray:
        """Return `table` at x = value − count, or just below it where ties are lost; shape (*gaps.shape, values)."""
        return sliding_window_view(table, self.length)[self.start - self.grid.lo - below + gaps]

    def winners(self) -> _Pair:
        """Return log P(class wins) and the law of the noisy maximum given that it does, for each kept class."""
        beaten = self.along(self.grid.log_below, self.gaps)
        beaten_strictly = self.along(self.grid.log_below, self.gaps, below=True)
        log_joint = self.along(self.grid.log_density, self.gaps)
        # Class j wins at v if lower classes stay below v and higher classes do not pass it.
        kept = self.gaps.shape[1]
        for j in range(kept - 1):
            log_joint[:, j + 1] += beaten_strictly[:, j]
            beaten_strictly[:, j + 1] += beaten_strictly[:, j]
        for j in range(kept - 1, 0, -1):
            log_joint[:, j - 1] += beaten[:, j]
            beaten[:, j - 1] += beaten[:, j]
        peak = log_joint.max(axis=2, keepdims=True)
        weights = np.exp(log_joint - peak)
        total = weights.sum(axis=2, keepdims=True)
        weights /= total
        return (peak + np.log(total))[..., 0], weights

    def changes(self, weights: FloatArray) -> _Pair:
        """Return P'/P − 1 for every (source, target, outcome), and the sum of absolute terms behind it.

        Given that j wins, a vote less for a and one more for b multiply the weight of each value by (1 + gain of a) and
        (1 + loss of b), so the change is a bilinear form; no difference of large numbers is taken.
        """
        queries, kept, values = weights.shape
        change = np.zeros((queries, kept + 1, kept + 1, kept))
        error = np.zeros_like(change)
        given = np.empty((queries, kept + 1, values))
        for j, (one_less, one_more) in enumerate(self._moves_seen_by_each()):
            # An overflow becomes an infinite cost.
            with np.errstate(invalid="ignore", over="ignore"):
                np.multiply(one_less, weights[:, j, None, :], out=given[:, :kept])
                given[:, kept] = weights[:, j]
                # The last row and column are a source or a target alone.
                terms = given @ one_more.swapaxes(1, 2)
                alone = terms[:, :kept, kept:], terms[:, kept:, :kept]
                change[..., j] = terms
                change[:, :kept, :kept, j] += alone[0] + alone[1]
                # Only row j of `given` and column j of `one_more` mix signs; a loss is at most everything.
                size = np.abs(terms)
                np.abs(given[:, j], out=given[:, j])
                size[:, j, :] = given[:, j].sum(axis=1)[:, None]
                size[:, :, j] = (given @ np.abs(one_more[:, j])[..., None])[..., 0]
                error[..., j] = size
                error[:, :kept, :kept, j] += size[:, :kept, kept:] + size[:, kept:, :kept]
        change[:, kept, kept] = error[:, kept, kept] = 0
        return change, error

    def _moves_seen_by_each(self) -> Iterator[_Pair]:
        """Yield, for each class j, the change of its weights where a class has one vote less, and where one more.

        Shapes (queries, kept, values) and (queries, kept + 1, values), the last being one, for no target. Lower classes
        than j must stay below it, higher ones not pass it. The arrays are changed in place from one j to the next.
        """
        grid = self.grid
        one_less = self.along(grid.gain, self.gaps)
        no_target = np.ones((len(one_less), 1, self.length))
        one_more = np.hstack([self.along(grid.loss, self.gaps), no_target])
        for j in range(self.gaps.shape[1]):
            own = self.gaps[:, j]
            one_less[:, j] = self.along(grid.fewer, own)
            one_more[:, j] = self.along(grid.more, own)
            yield one_less, one_more
            one_less[:, j] = self.along(grid.gain, own, below=True)
            one_more[:, j] = self.along(grid.loss, own, below=True)

    def cover_far_moves(
        self,
        weights: FloatArray,
        ratio: FloatArray,
        slack: FloatArray,
    ) -> FloatArray:
        """Return `slack` widened for what the classes put aside do: share ties, hold the maximum back, move ballots.

        A ballot that leaves one of them changes less than if it left the nearest of them and more than if it left
        nothing; the same for a ballot that it gains. So the last source and target, abstention, cover them once
        `slack` spans the distance between the two.
        """
        kept = weights.shape[1]
        nearest = self.far_gaps[:, 0]
        gain = self.along(self.grid.gain, nearest, below=True)
        loss = self.along(self.grid.loss, nearest, below=True)
        above = self.along(self.grid.log_above, nearest, below=True)
        # P(one of them reaches the value).
        reached = np.minimum(1, self.far_gaps.shape[1] * np.exp(above))
        for j, (one_less, one_more) in enumerate(self._moves_seen_by_each()):
            weight = weights[:, j, None, :]
            given = np.hstack([one_less, np.zeros_like(weight)]) + 1
            taken = one_more + 1
            taken[:, kept] = 1
            expect = partial(_expected, given, weight, taken)
            base = np.exp(ratio[..., j])
            with np.errstate(divide="ignore", invalid="ignore"):
                held_here = (weights[:, j] * reached).sum(axis=1)[:, None, None]
                held_there = expect(reached) / base
                extra = -np.log1p(-np.minimum(held_here, 1)) - np.log1p(-np.minimum(held_there, 1))
                given_far = np.log1p(expect(gain) / base)
                taken_far = -np.log1p(expect(loss) / base)
            extra[:, kept] += given_far[:, kept]
            extra[:, :, kept] += taken_far[:, :, kept]
            slack[..., j] += np.where(np.isfinite(extra), extra, np.inf)
        return np.where(slack < 0.5, slack, np.inf)

    def remainder(self) -> Remainder | None:
        """Return the outcomes put aside, bounded together with the value at which one of them wins revealed."""
        number = self.far_gaps.shape[1]
        if not number:
            return None
        # The largest density from here on: one for x ≤ 0.
        falling = np.maximum.accumulate(self.grid.log_density[::-1])[::-1]
        log_mass = np.log(number) + self.along(falling, self.far_gaps[:, 0])
        log_mass = log_mass + self.along(self.grid.log_below, self.gaps).sum(axis=1)
        level = np.zeros(1, dtype=np.int64)
        last = self.far_gaps[:, -1]
        used = np.arange(int(last.min()), int(last.max()) + self.length) + self.start - self.grid.lo
        gain = self.along(self.grid.gain, level, below=True)
        loss = self.along(self.grid.loss, level, below=True)
        more = np.log1p(gain), np.log1p(np.maximum(self.grid.more[used], 0))
        with np.errstate(divide="ignore"):
            less = np.log1p(np.maximum(loss, -1)), np.log1p(np.minimum(self.grid.fewer[used], 0))
        return Remainder(log_mass, more, less, last - last.min())


def _follow_one_by_one(
    law: NoiseLaw,
    counts: IntArray,
    log_here: FloatArray,
    ratio: FloatArray,
    slack: FloatArray,
) -> None:
    """Fill in, in place, the log ratios that were lost near −∞, from the laws of the moved histograms themselves."""
    rows = np.flatnonzero(~np.isfinite(slack).all(axis=(1, 2, 3)))
    for row in rows:  # few: only histograms far clearer than the noise
        here = log_here[row]
        for source in range(slack.shape[1]):
            gaps = _behind_most(_moved(counts[row], source))
            there, _ = _Field.spanning(law, gaps, gaps[:, :0]).winners()
            lost = ~np.isfinite(slack[row, source])
            ratio[row, source][lost] = (there - here)[lost]
            slack[row, source][lost] = (ROUNDING * (1 - there - here))[lost]


def _moved(counts: IntArray, source: int) -> IntArray:
    """Return the histograms in which a ballot leaves the class `source`, or abstention, for each other one."""
    classes = counts.shape[-1]
    step = np.eye(classes + 1, classes, dtype=np.int64)  # the last row is abstention
    return counts - step[source] + step


def _behind_most(counts: IntArray) -> IntArray:
    """Return how many votes each class is behind the one with the most."""
    return counts.max(axis=1, keepdims=True) - counts


def _per_move(by_outcome: FloatArray) -> FloatArray:
    """Return numbers of shape (queries, outcomes) for all sources and targets."""
    return by_outcome[:, None, None]


def _expected(
    given: FloatArray,
    weight: FloatArray,
    taken: FloatArray,
    factor: FloatArray,
) -> FloatArray:
    """Return E[factor · given · taken] over the value at which one class wins, for all moves."""
    return (given * (weight * factor[:, None, :])) @ taken.swapaxes(1, 2)


def _log_ratio(
    change: FloatArray,
    error: FloatArray,
    rounding: FloatArray,
) -> _Pair:
    """Return log(1 + change) and a bound on its error; both infinite where double precision loses it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log1p(np.maximum(change, -1))
        slack = rounding * error
        slack /= 1 + change
    lost = ~(np.isfinite(ratio) & (slack < 0.5))  # beyond it the sign of the change is in doubt
    ratio[lost] = slack[lost] = np.inf
    return ratio, slack


def _of_all_classes(
    counts: IntArray,
    may_enter: np.ndarray,
    log_mass: FloatArray,
    ratio: FloatArray,
    slack: FloatArray,
) -> MoveLaws:
    """Return the laws of moves between all classes and abstention."""
    sources = _sources(np.indices(counts.shape)[1])
    return MoveLaws(log_mass, ratio, slack, _possible(counts, may_enter), sources)


def _sources(classes: IntArray) -> IntArray:
    return np.insert(classes, classes.shape[1], -1, axis=1)


def _largest_of_the_others(values: IntArray) -> IntArray:
    """Return max_{i ≠ j} values_i for every j."""
    top_two = -np.partition(-values, 1, axis=1)[:, :2]
    return np.where(_is_top(values), top_two[:, 1:], top_two[:, :1])


def _is_top(values: IntArray | FloatArray) -> np.ndarray:
    """Return which class is the first one with the largest value, of each row."""
    return np.arange(len(values.T)) == values.argmax(axis=1)[:, None]


def _possible(counts: IntArray, may_enter: np.ndarray) -> np.ndarray:
    """Return which moves exist: from a class with votes, or from abstention; to any other class or abstention."""
    has_ballot = np.hstack([counts > 0, may_enter[:, None]])
    return has_ballot[:, :, None] & ~np.eye(counts.shape[1] + 1, dtype=bool)


def _log_mass_of_the_others(log_p: FloatArray) -> FloatArray:
    """Return an upper bound on log(1 − p_a − p_b) for all pairs that keeps its digits however little mass is left."""
    is_top = _is_top(log_p)
    behind_top = np.where(is_top, -np.inf, log_p)
    second = behind_top.max(axis=1, keepdims=True)
    p = np.exp(log_p)
    behind = np.exp(behind_top - second)
    rest = behind.sum(axis=1)[:, None, None]
    beside_top = rest - (behind[:, :, None] + behind[:, None, :]) + 1e-14 * rest
    elsewhere = 1 - p[:, :, None] - p[:, None, :] + 1e-14
    involves_top = is_top[:, :, None] | is_top[:, None, :]
    # Each is discarded where the other one counts.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            involves_top,
            second[:, :, None] + np.log(beside_top),
            np.log(elsewhere),
        )


def _log_permute_and_flip(counts: IntArray, scale: float) -> FloatArray:
    """Return the log law at each histogram.

    With u = e^{−(v − max n)/b}, class j wins with probability c_j ∫₀¹ Π_{i≠j} (1 − c_i u) du, c_i = e^{−gap_i/b}: a
    polynomial of degree classes − 1, which so many Gauss nodes integrate exactly, in positive terms.
    """
    points, weights = special.roots_legendre(counts.shape[1] // 2 + 1)
    u = (points + 1) / 2
    log_share = -_behind_most(counts) / scale
    log_stay = np.log1p(-np.exp(log_share)[:, :, None] * u)
    log_joint = log_stay.sum(axis=1, keepdims=True) - log_stay + np.log(weights / 2)
    return log_share + log_sum_exp(log_joint, axis=2)


def log_sum_exp(log_terms: FloatArray, axis: int | None = None) -> FloatArray:
    """Return the logarithm of a sum, from those of its terms."""
    return cast("FloatArray", special.logsumexp(log_terms, axis=axis))
