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
import scipy
from numpy.lib.stride_tricks import sliding_window_view

from tutelage._internal.typing import FloatArray, IntArray, Mask

# Relative error of a ratio of two sums of positive terms; many times what was ever seen.
ROUNDING = 4e-12
# Relative error of a logarithm, which is the absolute one of what it is the logarithm of.
_LOG_ROUNDING = 2.0**-49
_TAIL_NATS = 30.0  # what lies beyond the grid has a share below e^−29 of any outcome
_MOST_CLASSES_NATS = 7.0  # for up to e^7 classes

_Pair = tuple[FloatArray, FloatArray]


# Noise on the integers. A class with one vote less reads the same table one entry further on. Error bounds:
# docs/proofs/exact.md, section 4.


class _NoiseGrid(NamedTuple):
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

    build: Callable[[int, int], _NoiseGrid]
    midway: float
    below: float
    above: float


def discrete_laplace(scale: float) -> NoiseLaw:
    """Return P(k) ∝ exp(−|k|/scale) on the integers."""
    return NoiseLaw(
        build=partial(_discrete_laplace_grid, scale),
        midway=0.0,
        below=scale * _TAIL_NATS / 2 + 2,
        above=scale * (_TAIL_NATS + _MOST_CLASSES_NATS) + 2,
    )


def discrete_gaussian(sigma: float) -> NoiseLaw:
    """Return P(k) ∝ exp(−k²/2σ²) on the integers."""
    return NoiseLaw(
        build=partial(_discrete_gaussian_grid, sigma),
        midway=0.5,
        below=sigma * sqrt(_TAIL_NATS) + 2,
        above=sigma * sqrt(2 * (_TAIL_NATS + _MOST_CLASSES_NATS)) + 2,
    )


def _discrete_laplace_grid(
    scale: float,
    lowest: int,
    highest: int,
) -> _NoiseGrid:
    # x and every table: (highest − lowest + 1,)
    x = np.arange(lowest, highest + 1, dtype=np.float64)
    is_negative = x < 0
    a = exp(-1 / scale)
    rest: float = -np.expm1(-1 / scale)  # 1 − a
    share: FloatArray = np.exp(-np.maximum(x, 0) / scale)  # a^x where x ≥ 0
    up_to = 1 + a - a * share  # (1 + a) F(x) where x ≥ 0
    log_negative = np.minimum(x, 0) / scale - log1p(a)  # F(x) = a^−x/(1+a) for x < 0
    return _NoiseGrid(
        lo=lowest,
        log_density=np.log(rest / (1 + a)) - np.abs(x) / scale,
        log_below=np.where(
            is_negative,
            log_negative,
            np.log1p(-a * share / (1 + a)),
        ),
        log_above=np.where(
            is_negative,
            np.log1p(-np.exp(log_negative)),
            -(x + 1) / scale - log1p(a),
        ),
        gain=np.where(
            is_negative,
            np.expm1(1 / scale),
            rest * a * share / up_to,
        ),
        loss=-np.where(
            x <= 0,
            rest,
            rest * share / up_to,
        ),
        fewer=np.expm1(np.where(is_negative, 1, -1) / scale),
        more=np.expm1(np.where(x > 0, 1, -1) / scale),
    )


def _discrete_gaussian_grid(
    sigma: float,
    lowest: int,
    highest: int,
) -> _NoiseGrid:
    # x and the tables: (2·reach + 1,), of which `used` is kept
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

        loss_right = -np.exp(log_density[reach:] - log_below[reach:])
        loss = np.hstack([-hazard, loss_right])
        gain_left = hazard * (1 + fewer[:reach])
        gain_right = np.exp(log_density[reach + 1 :] - right)
        gain = np.hstack([gain_left, gain_right, 0.0])
    used = slice(lowest + reach, highest + reach + 1)
    return _NoiseGrid(
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
    # more: (values,), f(x−1)/f(x) − 1; returned: (values,)
    hazards = list[float]()
    inverse = 1.0
    for ratio in (more + 1).tolist():
        inverse = 1.0 + inverse * ratio
        hazards.append(1.0 / inverse)
    return np.array(hazards)


class _Remainder(NamedTuple):
    """Outcomes put aside: log mass at each value of the noisy maximum, and how far any move can change it."""

    log_mass: FloatArray  # (queries, values), an upper bound
    # Two parts each of the largest log ratio, ≥ 0, and of the smallest, ≤ 0: the second is one table for all queries.
    more: _Pair
    less: _Pair
    start: IntArray  # where each query begins in it

    def log_ratios(self) -> _Pair:
        """Return the largest and the smallest log ratio, shape (queries, values)."""
        return self._add_parts(*self.more), self._add_parts(*self.less)

    def _add_parts(self, by_query: FloatArray, table: FloatArray) -> FloatArray:
        windows = sliding_window_view(table, self.log_mass.shape[1])
        return by_query + windows[self.start]


class MoveLaws(NamedTuple):
    """Laws of a chunk of histograms and of all their neighbors.

    `log_mass` broadcasts against `log_ratio` of shape (queries, sources, targets, outcomes); `slack` bounds the error
    of `log_ratio`; `possible` of shape (queries, sources, targets) masks the moves that exist; `sources` of shape
    (queries, sources) holds the class that a moved ballot leaves, −1 for the last one.
    """

    log_mass: FloatArray
    log_ratio: FloatArray
    slack: FloatArray
    possible: Mask
    sources: IntArray
    remainder: _Remainder | None = None

    def from_sources(self, some: slice) -> "MoveLaws":
        """Return the laws of the moves from some of the sources."""
        log_mass = self.log_mass
        if log_mass.shape[1] > 1:
            log_mass = log_mass[:, some]
        return MoveLaws(
            log_mass,
            self.log_ratio[:, some],
            self.slack[:, some],
            self.possible[:, some],
            self.sources[:, some],
            self.remainder,
        )


def noisy_argmax(
    counts: IntArray,
    may_enter: Mask,
    law: NoiseLaw,
    kept: int,
) -> MoveLaws:
    """Return the laws of argmax_j (n_j + Z_j), ties to the lowest index.

    A ballot may enter where a teacher abstained. All but the `kept` classes with the most votes are bounded together.
    """
    # counts: (queries, classes); may_enter: (queries,); near: (queries, kept); far: (queries, classes − kept)
    rows = np.arange(len(counts))[:, None]
    order = np.argsort(-counts, axis=1, kind="stable")
    near = np.sort(order[:, :kept], axis=1)  # in class order, which decides ties
    far = order[:, kept:]
    gaps = _behind_most(counts)
    field = _Field.spanning(law, gaps[rows, near], gaps[rows, far])
    log_wins, weights = field.winners()
    change, error = field.changes(weights)

    log_mass = _per_move(log_wins)
    # Both become infinite where double precision loses the ratio.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log1p(np.maximum(change, -1))
        slack = (ROUNDING - _LOG_ROUNDING * log_mass) * error
        slack /= 1 + change
    is_known = np.isfinite(ratio) & (slack < 0.5)  # beyond it the sign of the change is in doubt
    ratio[~is_known] = np.inf
    slack[~is_known] = np.inf
    if far.size:
        slack = field.cover_far_moves(weights, ratio, slack)
    else:
        _follow_one_by_one(law, counts, log_wins, ratio, slack)

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
    may_enter: Mask,
    scale: float,
) -> MoveLaws:
    """Return the laws of P(j) ∝ exp(n_j/scale), in closed form: source wins, target wins, another class wins."""
    # counts: (queries, classes); log_p: (queries, classes + 1), the last being abstention;
    # log_mass, ratio, slack: (queries, sources, targets, 3); source, target, others: (queries, sources, targets)
    classes = counts.shape[1]
    log_p = scipy.special.log_softmax(-_behind_most(counts) / scale, axis=1)
    log_p = np.insert(log_p, classes, -np.inf, axis=1)
    log_others = _log_mass_of_the_others(log_p)
    # Masses stay logarithms: order × ratio can lift an outcome whose probability is below the smallest double.
    outcomes = np.broadcast_arrays(log_p[:, :, None], log_p[:, None], log_others)
    log_mass = np.stack(outcomes, axis=-1)
    source, target, others = np.moveaxis(np.exp(log_mass), -1, 0)

    with np.errstate(divide="ignore"):
        # A small change of the norm keeps its digits as a change, a large one as a sum of positive terms.
        change = source * np.expm1(-1 / scale) + target * np.expm1(1 / scale)
        whole: FloatArray = np.log(
            others + source * np.exp(-1 / scale) + target * np.exp(1 / scale),
        )
        log_norm = np.where(
            change < -0.5,
            whole,
            np.log1p(np.maximum(change, -0.75)),
        )
    fewer_votes = np.append(np.full(classes, -1 / scale), 0.0)[:, None]
    more_votes = -fewer_votes.T
    by_outcome = [fewer_votes - log_norm, more_votes - log_norm, -log_norm]
    ratio = np.stack(by_outcome, axis=-1)
    slack = 4e-15 * (1 / scale + np.abs(ratio))
    return _of_all_classes(counts, may_enter, log_mass, ratio, slack)


def permute_and_flip(
    counts: IntArray,
    may_enter: Mask,
    scale: float,
) -> MoveLaws:
    """Return the laws of argmax_j (n_j + E_j), E_j exponential with mean `scale`, by exact Gauss quadrature."""
    # counts: (queries, classes); here: (queries, 1, 1, classes); there: (queries, sources, targets, classes)
    classes = counts.shape[1]
    here = _per_move(_log_permute_and_flip(counts, scale))
    there = np.empty((len(counts), classes + 1, classes + 1, classes))
    for source in range(classes + 1):  # one at a time, for memory
        neighbors = _neighbors_from(counts[:, None], source)
        log_law = _log_permute_and_flip(neighbors.reshape(-1, classes), scale)
        there[:, source] = log_law.reshape(neighbors.shape)
    ratio = there - here
    slack = ROUNDING * (1 + np.abs(ratio)) / 100 - _LOG_ROUNDING * (here + there)
    return _of_all_classes(counts, may_enter, here, ratio, slack)


def check(
    counts: IntArray,
    may_enter: Mask,
    needed: IntArray,
    sigma: float,
) -> MoveLaws:
    """Return the laws of whether max_j (n_j − needed_j) + Z ≥ 0, Z discrete Gaussian: pass, fail."""
    # counts, needed, margins: (queries, classes); margin: (queries,); without, entered: (queries, classes + 1);
    # step: (queries, sources, targets); log_mass: (queries, 1, 1, 2); ratio, slack: (queries, sources, targets, 2)
    margins = counts - needed
    margin = margins.max(axis=1)
    classes = counts.shape[1]
    left_behind = np.maximum(_largest_of_the_others(margins), margins - 1)
    without = np.insert(left_behind, classes, margin, axis=1)
    entered = np.insert(margins + 1, classes, np.iinfo(np.int64).min, axis=1)
    moved_margin = np.maximum(without[:, :, None], entered[:, None])
    step = moved_margin - margin[:, None, None]

    reach = int(np.abs(margin).max()) + 2
    grid = discrete_gaussian(sigma).build(-reach, reach)
    fails = reach - 1 - margin  # Z ≤ −margin − 1
    passes = reach + margin  # Z ≤ margin, by symmetry
    log_law = np.stack([grid.log_below[passes], grid.log_below[fails]], axis=-1)
    log_mass = _per_move(log_law)

    # Small changes keep their digits as ratios, large ones as logarithms.
    steps = np.diff(grid.log_below)
    is_large = steps > log(2)
    rises = np.log1p(grid.gain)
    rises[:-1][is_large] = steps[is_large]
    falls = np.log1p(np.maximum(grid.loss, -0.75))
    falls[1:][is_large] = -steps[is_large]
    falls[0] = -np.inf

    def log_ratio(at: IntArray, is_up: Mask, is_down: Mask) -> FloatArray:
        return np.select([is_up, is_down], [rises[at, None, None], falls[at, None, None]])

    ratio_of_pass = log_ratio(passes, step > 0, step < 0)
    ratio_of_fail = log_ratio(fails, step < 0, step > 0)
    ratio = np.stack([ratio_of_pass, ratio_of_fail], axis=-1)
    size = np.abs(ratio)
    lost_digits = np.where(size > 0.6, -log_mass, 0)
    slack = ROUNDING * (size + lost_digits)
    return _of_all_classes(counts, may_enter, log_mass, ratio, slack)


class _Field(NamedTuple):
    """The noise of each class along the values that the noisy maximum can take, one row per histogram."""

    grid: _NoiseGrid
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
            grid=law.build(low - 1, high + widest + 1),
            gaps=gaps,
            far_gaps=far_gaps,
            start=low,
            length=high - low,
        )

    def along(
        self,
        table: FloatArray,
        gaps: IntArray,
        *,
        below: bool = False,
    ) -> FloatArray:
        """Return `table` at x = value − count, or just below it where ties are lost; shape (*gaps.shape, values)."""
        windows = sliding_window_view(table, self.length)
        return windows[self.start - self.grid.lo - below + gaps]

    def winners(self) -> _Pair:
        """Return log P(class wins) and the law of the noisy maximum given that it does, for each kept class."""
        # beaten, beaten_strictly, log_joint, weights: (queries, kept, values); log P: (queries, kept)
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
        log_wins = peak + np.log(total)
        return log_wins[..., 0], weights

    def changes(self, weights: FloatArray) -> _Pair:
        """Return P'/P − 1 for every (source, target, outcome), and the sum of absolute terms behind it.

        Given that j wins, a vote less for a and one more for b multiply the weight of each value by (1 + gain of a) and
        (1 + loss of b), so the change is a bilinear form; no difference of large numbers is taken.
        """
        # weights: (queries, kept, values); weighted: (queries, sources, values);
        # terms, size: (queries, sources, targets), the last of which are abstention, that is, none;
        # returned: (queries, sources, targets, kept)
        queries, kept, values = weights.shape
        change = np.zeros((queries, kept + 1, kept + 1, kept))
        error = np.zeros_like(change)
        weighted = np.empty((queries, kept + 1, values))
        for j, (one_less, one_more) in enumerate(self._moves_seen_by_each()):
            # An overflow becomes an infinite cost.
            with np.errstate(invalid="ignore", over="ignore"):
                np.multiply(one_less, weights[:, j, None, :], out=weighted[:, :kept])
                weighted[:, kept] = weights[:, j]
                # The last row and column are a source or a target alone.
                terms = weighted @ one_more.swapaxes(1, 2)
                change[..., j] = terms
                change[:, :kept, :kept, j] += terms[:, :kept, kept:] + terms[:, kept:, :kept]

                # Only row j of `weighted` and column j of `one_more` mix signs; a loss is at most everything.
                size = np.abs(terms)
                np.abs(weighted[:, j], out=weighted[:, j])
                size[:, j, :] = weighted[:, j].sum(axis=1)[:, None]
                size_of_target = weighted @ np.abs(one_more[:, j])[..., None]
                size[:, :, j] = size_of_target[..., 0]
                error[..., j] = size
                error[:, :kept, :kept, j] += size[:, :kept, kept:] + size[:, kept:, :kept]
        change[:, kept, kept] = 0
        error[:, kept, kept] = 0
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
        # weights: (queries, kept, values); gain, loss, reached: (queries, values); left: (queries, sources, values);
        # entered: (queries, targets, values); base, widened: (queries, sources, targets); ratio, slack: (…, kept)
        kept = weights.shape[1]
        nearest = self.far_gaps[:, 0]
        gain = self.along(self.grid.gain, nearest, below=True)
        loss = self.along(self.grid.loss, nearest, below=True)
        above = self.along(self.grid.log_above, nearest, below=True)
        # P(one of them reaches the value).
        reached = np.minimum(1, self.far_gaps.shape[1] * np.exp(above))
        for j, (one_less, one_more) in enumerate(self._moves_seen_by_each()):
            weight = weights[:, j, None, :]
            left = np.hstack([one_less, np.zeros_like(weight)]) + 1
            entered = one_more + 1
            entered[:, kept] = 1
            expect = partial(_expectation, left, weight, entered)
            base = np.exp(ratio[..., j])
            with np.errstate(divide="ignore", invalid="ignore"):
                held_here = (weights[:, j] * reached).sum(axis=1)[:, None, None]
                held_there = expect(reached) / base
                widened = -np.log1p(-np.minimum(held_here, 1))
                widened = widened - np.log1p(-np.minimum(held_there, 1))
                left_far = np.log1p(expect(gain) / base)
                entered_far = -np.log1p(expect(loss) / base)
            widened[:, kept] += left_far[:, kept]
            widened[:, :, kept] += entered_far[:, :, kept]
            slack[..., j] += np.where(np.isfinite(widened), widened, np.inf)
        return np.where(slack < 0.5, slack, np.inf)

    def remainder(self) -> _Remainder | None:
        """Return the outcomes put aside, bounded together with the value at which one of them wins revealed."""
        # log_mass: (queries, values); gain, loss: (1, values); used: (values of all queries,); start: (queries,)
        grid = self.grid
        number = self.far_gaps.shape[1]
        if not number:
            return None

        # The largest density from here on: one for x ≤ 0.
        falling = np.maximum.accumulate(grid.log_density[::-1])[::-1]
        log_mass = np.log(number) + self.along(falling, self.far_gaps[:, 0])
        log_mass = log_mass + self.along(grid.log_below, self.gaps).sum(axis=1)

        level = np.zeros(1, dtype=np.int64)
        last = self.far_gaps[:, -1]
        values = np.arange(int(last.min()), int(last.max()) + self.length)
        used = values + self.start - grid.lo
        gain = self.along(grid.gain, level, below=True)
        loss = self.along(grid.loss, level, below=True)
        largest_gain = np.log1p(np.maximum(grid.more[used], 0))
        with np.errstate(divide="ignore"):
            log_loss = np.log1p(np.maximum(loss, -1))
            largest_loss = np.log1p(np.minimum(grid.fewer[used], 0))
        return _Remainder(
            log_mass=log_mass,
            more=(np.log1p(gain), largest_gain),
            less=(log_loss, largest_loss),
            start=last - last.min(),
        )


def _follow_one_by_one(
    law: NoiseLaw,
    counts: IntArray,
    log_here: FloatArray,
    ratio: FloatArray,
    slack: FloatArray,
) -> None:
    """Fill in, in place, the log ratios that were lost near −∞, from the laws of the moved histograms themselves."""
    # counts, log_here: (queries, classes); ratio, slack: (queries, sources, targets, classes);
    # here: (classes,); there: (targets, classes)
    rows = np.flatnonzero(~np.isfinite(slack).all(axis=(1, 2, 3)))
    for row in rows:  # few: only histograms far clearer than the noise
        here = log_here[row]
        for source in range(slack.shape[1]):
            gaps = _behind_most(_neighbors_from(counts[row], source))
            there, _ = _Field.spanning(law, gaps, gaps[:, :0]).winners()
            lost = ~np.isfinite(slack[row, source])
            ratio[row, source][lost] = (there - here)[lost]
            slack[row, source][lost] = (ROUNDING * (1 - there - here))[lost]


def _neighbors_from(counts: IntArray, source: int) -> IntArray:
    """Return the histograms in which a ballot leaves the class `source`, or abstention, for each other one."""
    # counts: (…, classes); returned: (…, targets, classes), where counts has an axis of length 1 for the targets
    classes = counts.shape[-1]
    step = np.eye(classes + 1, classes, dtype=np.int64)  # the last row is abstention
    return counts - step[source] + step


def _behind_most(counts: IntArray) -> IntArray:
    """Return how many votes each class is behind the one with the most."""
    # counts, returned: (queries, classes)
    return counts.max(axis=1, keepdims=True) - counts


def _per_move(by_outcome: FloatArray) -> FloatArray:
    """Return numbers of shape (queries, outcomes) for all sources and targets."""
    return by_outcome[:, None, None]


def _expectation(
    left: FloatArray,
    weight: FloatArray,
    entered: FloatArray,
    factor: FloatArray,
) -> FloatArray:
    """Return E[factor · left · entered] over the value at which one class wins, for all moves."""
    # left: (queries, sources, values); entered: (queries, targets, values); weight: (queries, 1, values);
    # factor: (queries, values); returned: (queries, sources, targets)
    weighted = weight * factor[:, None, :]
    return (left * weighted) @ entered.swapaxes(1, 2)


def _of_all_classes(
    counts: IntArray,
    may_enter: Mask,
    log_mass: FloatArray,
    ratio: FloatArray,
    slack: FloatArray,
) -> MoveLaws:
    """Return the laws of moves between all classes and abstention."""
    classes = np.indices(counts.shape)[1]
    return MoveLaws(
        log_mass,
        ratio,
        slack,
        _possible(counts, may_enter),
        _sources(classes),
    )


def _sources(classes: IntArray) -> IntArray:
    """Return the classes that a ballot can leave, and −1 for abstention."""
    # classes: (queries, classes); returned: (queries, classes + 1)
    return np.insert(classes, classes.shape[1], -1, axis=1)


def _largest_of_the_others(values: IntArray) -> IntArray:
    """Return max_{i ≠ j} values_i for every j."""
    # values, returned: (queries, classes)
    ascending = np.partition(-values, 1, axis=1)
    first = -ascending[:, :1]
    second = -ascending[:, 1:2]
    return np.where(_is_top(values), second, first)


def _is_top(values: IntArray | FloatArray) -> Mask:
    """Return which class is the first one with the largest value, of each row."""
    # values, returned: (queries, classes)
    top = values.argmax(axis=1)[:, None]
    return np.arange(len(values.T)) == top


def _possible(counts: IntArray, may_enter: Mask) -> Mask:
    """Return which moves exist: from a class with votes, or from abstention; to any other class or abstention."""
    # counts: (queries, classes); may_enter: (queries,); returned: (queries, classes + 1, classes + 1)
    has_ballot = np.hstack([counts > 0, may_enter[:, None]])
    is_move = ~np.eye(counts.shape[1] + 1, dtype=bool)
    return has_ballot[:, :, None] & is_move


def _log_mass_of_the_others(log_p: FloatArray) -> FloatArray:
    """Return an upper bound on log(1 − p_a − p_b) for all pairs that keeps its digits however little mass is left."""
    # log_p, behind_top: (queries, sources); second: (queries, 1); returned: (queries, sources, targets)
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
    # counts, returned: (queries, classes); u: (nodes,); log_stay, log_joint: (queries, classes, nodes)
    points, weights = scipy.special.roots_legendre(counts.shape[1] // 2 + 1)
    u = (points + 1) / 2
    log_share = -_behind_most(counts) / scale
    log_stay = np.log1p(-np.exp(log_share)[:, :, None] * u)
    log_others_stay = log_stay.sum(axis=1, keepdims=True) - log_stay
    log_joint = log_others_stay + np.log(weights / 2)
    return log_share + log_sum_exp(log_joint, axis=2)


def log_sum_exp(log_terms: FloatArray, axis: int | None = None) -> FloatArray:
    """Return the logarithm of a sum, from those of its terms."""
    return cast("FloatArray", scipy.special.logsumexp(log_terms, axis=axis))
