"""The only module that draws privacy noise: integers, from exact samplers, from the operating system's entropy.

`SystemNoise` is the product. `SimulationNoise` draws the same distributions from a seed, so that experiments can be
repeated; noise that can be replayed gives no protection, and every result of it is marked ``simulated``.
"""

import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal
from fractions import Fraction
from math import floor
from typing import TypeVar, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.forks import BriefLock
from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import IntArray, Mask, Untyped
from tutelage._internal.validation import integer_at_least, local_epsilon, noise_scale
from tutelage.exceptions import InvalidParameterError

# OpenDP, whose prelude would also load a library of data frames.
_domains = Untyped("opendp.domains")
_features = Untyped("opendp.mod")
_measurements = Untyped("opendp.measurements")
_measures = Untyped("opendp.measures")
_metrics = Untyped("opendp.metrics")
# OpenDP's settings, its import, the generator of its OpenSSL and numpy's generators all lock something that a child
# would find locked for ever if it were forked in the middle of a draw.
_DRAWING = BriefLock()
_CHANCE_BITS = 60
_WORD_BITS = 64
_MOST_CLASSES = 2**32  # far fewer than leave a chance of 2⁻⁶⁰ steps above 1/classes
_DIGITS = Context(prec=60)  # of e^ε, where the chance to keep a class needs 20
# Draws, about a second; a progress bar moves after each such part of a longer batch.
_AT_ONCE = 2**15
_WIDE = 1e4  # simulated noise that is wider is drawn in steps of σ over this, evenly within a step
_TAIL = 12.0  # the simulated discrete Gaussian is cut at 12σ, where its mass is below 1e-31

_Part = TypeVar("_Part")


@final
class SystemNoise:
    """Exact discrete noise by OpenDP's samplers, fed by the operating system's entropy; it takes no seed.

    The samplers work in rational arithmetic on the exact binary value of the parameter (Canonne, Kamath and Steinke
    2020, Algorithms 1-3), so no floating-point pattern can reveal the count underneath. Gumbel and exponential noise is
    compared without ever being rounded: digits are drawn until the winner is certain.

    Parameters
    ----------
    progress : bool
        Show a progress bar on draws of more than about a second.
    """

    simulated = False

    def __init__(self, *, progress: bool = False) -> None:
        self._progress = progress

    def discrete_laplace(self, scale: float, shape: tuple[int, ...]) -> IntArray:
        """Draw independent integers with P(k) ∝ exp(−|k|/scale), in an array of `shape`."""
        noise_scale(scale, "scale", "SystemNoise")
        with _allow_samplers():
            add_noise = _measurements.make_laplace(
                _integers(), _metrics.l1_distance(T="i64"), scale=scale
            )
            return self._draw(add_noise, shape)

    def discrete_gaussian(self, sigma: float, shape: tuple[int, ...]) -> IntArray:
        """Draw independent integers with P(k) ∝ exp(−k²/2σ²), in an array of `shape`."""
        noise_scale(sigma, "sigma", "SystemNoise")
        with _allow_samplers():
            add_noise = _measurements.make_gaussian(
                _integers(), _metrics.l2_distance(T="f64"), scale=sigma
            )
            return self._draw(add_noise, shape)

    def happens(self, chance: int) -> bool:
        """Draw whether something of probability chance·2⁻⁶⁰ happens: exact, for 60 uniform bits are compared."""
        return secrets.randbits(_CHANCE_BITS) < chance

    def gumbel_argmax(self, counts: IntArray, scale: float) -> IntArray:
        """Draw one class per row of `counts`, j with probability ∝ exp(n_j/scale): the largest after Gumbel noise."""
        # counts: (queries, classes); returned: (queries,)
        noise_scale(scale, "scale", "SystemNoise")
        with _allow_samplers():
            return self._draw_winners(_measures.zero_concentrated_divergence(), counts, scale)

    def exponential_argmax(self, counts: IntArray, scale: float) -> IntArray:
        """Draw the class with the largest sum of count and exponential noise of mean `scale`, per row of `counts`."""
        # counts: (queries, classes); returned: (queries,)
        noise_scale(scale, "scale", "SystemNoise")
        with _allow_samplers():
            return self._draw_winners(_measures.max_divergence(), counts, scale)

    def randomized_response(self, classes: IntArray, n_classes: int, epsilon: float) -> IntArray:
        """Keep each class with probability `keep_chance`·2⁻⁶⁰, or else draw one of the others, all equally likely.

        Exact: 60 uniform bits are compared, and words that would favor some of the others are drawn again.
        """
        # classes, returned: (…); kept: (classes.size,)
        chance = keep_chance(epsilon, n_classes)
        uniform = _words(classes.size) >> np.uint64(_WORD_BITS - _CHANCE_BITS)
        kept = uniform < np.uint64(chance)
        steps = _uniform_below(n_classes - 1, int(np.count_nonzero(~kept))) + 1
        return _respond(classes, n_classes, kept, steps)

    def _draw(
        self,
        add_noise: Callable[[list[int]], list[int]],
        shape: tuple[int, ...],
    ) -> IntArray:
        """Draw one batch by adding noise to a vector of zeros."""
        zeros = [0] * int(np.prod(shape, dtype=np.int64))
        parts = [zeros[start : start + _AT_ONCE] for start in range(0, len(zeros), _AT_ONCE)]
        drawn = list[int]()
        for part in self._with_progress(parts):
            drawn.extend(add_noise(part))
        return np.asarray(drawn, dtype=np.int64).reshape(shape)

    def _draw_winners(
        self,
        divergence: object,
        counts: IntArray,
        scale: float,
    ) -> IntArray:
        """Draw a noisy winner per row: Gumbel noise if the divergence is that of zCDP, exponential if it is pure."""
        # counts: (queries, classes); returned: (queries,)
        select: Callable[[list[int]], int] = _measurements.make_noisy_max(
            _integers(),
            _metrics.linf_distance(T="i64"),
            divergence,
            scale=scale,
        )
        parts = np.split(counts, range(_AT_ONCE, len(counts), _AT_ONCE))
        drawn = list[int]()
        for part in self._with_progress(parts):
            drawn.extend(select(row) for row in part.tolist())
        return np.asarray(drawn, dtype=np.int64)

    def _with_progress(self, parts: list[_Part]) -> Iterator[_Part]:
        """Yield the parts of a batch, under a progress bar if there is one to show."""
        is_long = len(parts) > 1
        return progress_bar(parts, "noise", len(parts), shown=self._progress and is_long)


@final
class SimulationNoise:
    """Seeded noise with the same distributions, for experiments only; taints everything made from it.

    Parameters
    ----------
    seed : int
        The same seed gives the same noise, and therefore no protection.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    @property
    def simulated(self) -> bool:
        """Always true: the draws can be replayed."""
        return True

    def discrete_laplace(self, scale: float, shape: tuple[int, ...]) -> IntArray:
        """Draw independent integers with P(k) ∝ exp(−|k|/scale), in an array of `shape`."""
        noise_scale(scale, "scale", "SimulationNoise")
        # The difference of two geometric variables is two-sided geometric, that is, discrete Laplace.
        stop = -np.expm1(-1.0 / scale)
        with _DRAWING:
            return self._generator.geometric(stop, shape) - self._generator.geometric(stop, shape)

    def discrete_gaussian(self, sigma: float, shape: tuple[int, ...]) -> IntArray:
        """Draw independent integers with P(k) ∝ exp(−k²/2σ²), in an array of `shape`."""
        # support, weights: (values,)
        noise_scale(sigma, "sigma", "SimulationNoise")
        step = max(1, int(sigma / _WIDE))
        reach = int(np.ceil(_TAIL * sigma / step))
        support = np.arange(-reach, reach + 1) * step
        weights = np.exp(-((support / sigma) ** 2) / 2)
        chances = weights / weights.sum()
        with _DRAWING:
            drawn = self._generator.choice(support, size=shape, p=chances)
            if step == 1:
                return drawn
            within_step = self._generator.integers(-(step // 2), step - step // 2, shape)
            return drawn + within_step

    def happens(self, chance: int) -> bool:
        """Draw whether something of probability chance·2⁻⁶⁰ happens."""
        with _DRAWING:
            return int(self._generator.integers(2**_CHANCE_BITS)) < chance

    def gumbel_argmax(self, counts: IntArray, scale: float) -> IntArray:
        """Draw one class per row of `counts`, j with probability ∝ exp(n_j/scale): the largest after Gumbel noise."""
        # counts, weights, up_to: (queries, classes); drawn: (queries, 1); returned: (queries,)
        noise_scale(scale, "scale", "SimulationNoise")
        most = counts.max(axis=1, keepdims=True)
        weights = np.exp((counts - most) / scale)
        up_to = np.cumsum(weights, axis=1)
        with _DRAWING:
            uniform = self._generator.random((len(counts), 1))
        drawn = uniform * up_to[:, -1:]
        return np.argmax(drawn < up_to, axis=1)

    def exponential_argmax(self, counts: IntArray, scale: float) -> IntArray:
        """Draw the class with the largest sum of count and exponential noise of mean `scale`, per row of `counts`."""
        # counts, order, uniform, chance, wins: (queries, classes); first: (queries, 1); returned: (queries,)
        noise_scale(scale, "scale", "SimulationNoise")
        classes = np.indices(counts.shape)[1]
        # McKenna and Sheldon 2020, arXiv:2010.12603, Algorithm 1: in random order, the first to win a flip of its own.
        with _DRAWING:
            order = self._generator.permuted(classes, axis=1)
            uniform = self._generator.random(counts.shape)
        most = counts.max(axis=1, keepdims=True)
        chance = np.exp((counts - most) / scale)
        wins = uniform < np.take_along_axis(chance, order, axis=1)
        first = np.argmax(wins, axis=1, keepdims=True)
        return np.take_along_axis(order, first, axis=1)[:, 0]

    def randomized_response(self, classes: IntArray, n_classes: int, epsilon: float) -> IntArray:
        """Keep each class with probability `keep_chance`·2⁻⁶⁰, or else draw one of the others, all equally likely."""
        # classes, returned: (…); kept: (classes.size,)
        chance = keep_chance(epsilon, n_classes)
        with _DRAWING:
            kept = self._generator.integers(2**_CHANCE_BITS, size=classes.size) < chance
            steps = self._generator.integers(1, n_classes, size=int(np.count_nonzero(~kept)))
        return _respond(classes, n_classes, kept, steps)


NoiseSource = SystemNoise | SimulationNoise
"""Draws integer noise; each call is one batch."""


def keep_chance(epsilon: float, n_classes: int) -> int:
    """Return the probability of randomized response to keep a class, e^ε/(e^ε + classes − 1), in units of 2⁻⁶⁰.

    Rounded downward, so that the loss that is drawn, log(chance·(classes − 1)/(2⁶⁰ − chance)), never exceeds ε; it
    stays above 1/classes, so that the loss of the other direction does not either.
    """
    epsilon = local_epsilon(epsilon, "SystemNoise")
    integer_at_least(n_classes, 2, "n_classes", "SystemNoise")
    if n_classes > _MOST_CLASSES:
        raise InvalidParameterError(
            "SystemNoise.n_classes", f"be at most {_MOST_CLASSES}", f"{n_classes}"
        )
    # The 60 digits are those nearest to e^ε.
    nearest = Decimal(epsilon).exp(_DIGITS)
    odds = Fraction(_DIGITS.next_minus(nearest))
    chance = odds / (odds + n_classes - 1)
    return floor(chance * 2**_CHANCE_BITS)


def known_noise(noise: object, owner: str) -> NoiseSource:
    """Return `noise`, or the system's where it is None; any other source would have to be believed and is refused."""
    if noise is None:
        return SystemNoise()
    if not isinstance(noise, SystemNoise | SimulationNoise):
        raise InvalidParameterError(
            f"{owner}.noise",
            "be a noise source of tutelage, such as SystemNoise()",
            f"a {type(noise).__name__}",
        )
    if isinstance(noise, SimulationNoise) and not noise.simulated:
        raise InvalidParameterError(f"{owner}.noise", "have `simulated` set to True")
    return noise


def _respond(
    classes: IntArray,
    n_classes: int,
    kept: Mask,
    steps: IntArray,
) -> IntArray:
    """Return the classes; those not kept move by `steps` around the circle of classes."""
    # classes, returned: (…); kept, moved: (classes.size,); steps: (moved classes,)
    moved = np.zeros(classes.size, dtype=np.int64)
    moved[~kept] = steps
    return (classes.astype(np.int64) + moved.reshape(classes.shape)) % n_classes


def _words(count: int) -> npt.NDArray[np.uint64]:
    """Draw uniform 64-bit words from the operating system."""
    return np.frombuffer(secrets.token_bytes(count * _WORD_BITS // 8), dtype=np.uint64)


def _uniform_below(limit: int, count: int) -> IntArray:
    """Draw integers that are exactly uniform below `limit`: a word beyond the last whole multiple is drawn again."""
    # words, returned: (count,)
    words = _words(count).copy()
    last = np.uint64((2**_WORD_BITS // limit) * limit - 1)
    beyond = np.flatnonzero(words > last)
    while beyond.size:
        words[beyond] = _words(beyond.size)
        beyond = np.flatnonzero(words > last)
    return (words % np.uint64(limit)).astype(np.int64)


def _integers() -> object:
    return _domains.vector_domain(_domains.atom_domain(T="i64"))


@contextmanager
def _allow_samplers() -> Generator[None]:
    """Allow OpenDP's vetted-by-contributors constructors, which stay off for the rest of the process."""
    with _DRAWING:
        if "contrib" in _features.GLOBAL_FEATURES:  # the user's own choice stays as it is
            yield
            return
        _features.enable_features("contrib")
        try:
            yield
        finally:
            _features.disable_features("contrib")
