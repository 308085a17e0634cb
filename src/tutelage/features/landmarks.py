"""Rows as bounded vectors: how alike a row is to public landmarks, in the directions that a noisy sum can carry.

A person's ballot over these features has a length of at most one, whatever the person's data. All that is chosen here
is chosen from public rows, and from how much noise the sum will have.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from tutelage._internal.records import settable
from tutelage._internal.threads import one_thread
from tutelage._internal.typing import Array, FloatArray, Matrix
from tutelage._internal.validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.base import PublicFeatureMap, PublicRows, chain, require_public
from tutelage.features.learned import PublicProjection
from tutelage.features.rowwise import (
    EXACT_FLOAT64,
    distance_levels,
    finite_rows,
    in_chunks,
    on_grid,
    reach_of,
    squared_distances,
)

# Bandwidths, in distances of the kernel; `transform` counts on one being twice the other.
_SCALES = (1.0, 2.0)
_LINEAR = 0.5  # weight of the inner product beside them
_LEAST_EIGENVALUE = 1e-7  # of the largest: smaller ones are rounding
# Public rows that the spread along one direction is estimated from, at least.
_ROWS_PER_FEATURE = 10
# With less noise than the first, Gaussians of half the width pay; but not where landmarks are further away than that.
_FINE, _NARROW = 1e-3, 0.5
_SAMPLE = 1000  # public rows between which the median distance is taken
# Reach and distance stay between these, so that no width of a Gaussian is zero or infinite when squared.
_SIZES = (1e-60, 1e60)
# Assumed signal of the features, which noise is weighed against: this share of the variance of a class, in
# proportion to this power of the public spread. Both are rough: docs/ballots.md has what other values come to.
_EXPLAINED, _POWER = 0.3, 0.8


@final
@settable
class PublicKernel(PublicFeatureMap):
    """How alike a row is to each of some public rows, the landmarks; made by `learn`.

    The kernel is half a mean of two Gaussians and half the inner product: near rows count by nearness and far ones by
    direction. A value further out than the public rows is moved to their edge.
    """

    center: FloatArray  # public mean
    reach: float  # the largest distance of a public value from its column's mean
    # Landmarks minus center, in whole steps of the grid on which distances are exact.
    points: FloatArray
    # Width of the narrower Gaussian, in the units of the rows; the other is twice as wide.
    distance: float

    def __post_init__(self) -> None:
        self._check()

    @classmethod
    def learn(
        cls,
        public: PublicRows,
        n_landmarks: int = 1000,
        *,
        seed: int = 0,
    ) -> Self:
        """Return the kernel over landmarks drawn at random from the public rows; all rows where they are fewer."""
        values = require_public(public, "PublicKernel").values
        rows = finite_rows(values, values.shape[-1], "PublicKernel").astype(np.float64)
        integer_at_least(n_landmarks, 1, "n_landmarks", "PublicKernel")
        rng = np.random.default_rng(seed)
        landmarks = np.sort(rng.permutation(len(rows))[:n_landmarks])
        center = rows.mean(axis=0)
        reach = reach_of(rows, center)
        sample = rows[rng.permutation(len(rows))[:_SAMPLE]] - center
        squares = np.maximum(squared_distances(sample, sample[::-1]), 0)
        distance = float(np.sqrt(np.median(squares)))
        if distance == 0:
            raise InvalidDataError("The public rows of PublicKernel must differ from each other.")
        points = _on_grid(rows[landmarks], center, reach)
        return cls(center, reach, points, distance)

    @property
    def _n_features_out(self) -> int:
        return len(self.points)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the likeness of each row to each landmark, shape (rows, landmarks)."""
        self._check()  # again, for `set_params` and files do not construct a map
        linear, gaussian, widths = self.weights
        factors = -2 * self.points.T
        lengths = (self.points**2).sum(axis=1)

        def likeness(rows: Matrix) -> FloatArray:
            # rows: (rows, columns); products, wide, total: (rows, landmarks)
            rows = _on_grid(rows, self.center, self.reach)
            # Products and squared distances are whole numbers, so neither depends on the order of a sum.
            products = rows @ factors
            wide = products + lengths
            wide += (rows**2).sum(axis=1, keepdims=True)
            wide /= -2 * widths[-1] ** 2
            np.exp(wide, out=wide)  # in place: new memory would take as long as the rest
            total = wide * wide
            np.square(total, out=total)  # the Gaussian of half the width is the fourth power
            total += wide
            total *= gaussian
            products *= -linear / 2
            total += products
            return total

        rows = finite_rows(X, len(self.center), "PublicKernel")
        return in_chunks(likeness, rows)

    @property
    def step(self) -> float:
        """Width of a step of the grid."""
        return _step(self.center, self.reach)

    @property
    def weights(self) -> tuple[float, float, tuple[float, ...]]:
        """The weight of the inner product, that of each Gaussian, and their widths, in steps of the grid."""
        lengths = (self.points**2).sum(axis=1)
        size = max(float(np.median(lengths)), 1.0)
        widths = tuple(scale * self.distance / self.step for scale in _SCALES)
        return _LINEAR / size, (1 - _LINEAR) / len(_SCALES), widths

    def _check(self) -> None:
        """Refuse parameters with which a row's features would not be finite, or not of that row alone."""
        for name in ("reach", "distance"):
            number_between(getattr(self, name), *_SIZES, name, "PublicKernel")
        center = np.shape(self.center)
        points = np.shape(self.points)
        if len(points) != 2 or points[1:] != center or 0 in points:
            raise InvalidParameterError(
                "PublicKernel.points",
                "have one row per landmark, and one column per entry of $center",
                f"shapes {points} and {center}",
            )
        levels = distance_levels(len(self.center), EXACT_FLOAT64)
        is_within = np.abs(self.points) <= levels
        is_whole = np.rint(self.points) == self.points
        if not np.all(is_within & is_whole):
            raise InvalidParameterError(
                "PublicKernel.points",
                f"be whole numbers from -{levels} to {levels}, so that distances are exact",
            )
        if not np.isfinite(self.center).all():
            raise InvalidParameterError("PublicKernel.center", "be finite numbers")


@final
@settable
class UnitBall(PublicFeatureMap):
    """Rows scaled to a length of at most one, with one more number that is the same for every row."""

    radius: float  # length beyond which a row is shortened
    # The number added, in radii, from which the shares of the classes are estimated.
    constant: float = 0.3

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the scaled rows, shape (rows, features + 1)."""
        positive(self.radius, "radius", "UnitBall")
        # rows: (rows, features); lengths, constants: (rows, 1)
        rows = np.asarray(X, np.float64)
        lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True)) / self.radius
        scaled = rows / (self.radius * np.maximum(lengths, 1))
        constants = np.full((len(rows), 1), self.constant)
        extended = np.hstack([scaled, constants])
        return extended / np.sqrt(1 + self.constant**2)

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> Array | None:
        """Return the names of the columns and ``constant``, or None where the columns have no names."""
        if input_features is None:
            return None
        return np.array([*input_features, "constant"], object)


def ballot_features(
    public: PublicRows,
    *,
    noise: float,
    n_landmarks: int = 1000,
    quantile: float = 0.4,
    seed: int = 0,
) -> Pipeline:
    """Return the public map from rows to vectors of length at most one that suit a sum with so much noise.

    A noisy sum has the same noise in every direction. Directions get shares of the ballot's length by reverse
    water-filling, with the spread of the public rows as the prior. With much noise only a few directions remain.

    Parameters
    ----------
    public : PublicRows
        Rows of numbers, a few hundred or more.
    noise : float
        Standard deviation of the noise on one number of the mean ballot, for ballots of length one, divided by the
        standard deviation of what a class contributes to it.
    n_landmarks : int
        Landmarks of `PublicKernel`; at most a half of the public rows is taken.
    quantile : float
        Share of the public rows that keep their length; longer ones are shortened.
    seed : int
        Of the draw of the landmarks.
    """
    positive(noise, "noise", "ballot_features")
    number_between(quantile, 0, 1, "quantile", "ballot_features")
    values = require_public(public, "ballot_features").values
    n_landmarks = min(n_landmarks, max(len(values) // 2, 1))
    kernel = PublicKernel.learn(public, n_landmarks, seed=seed)
    if noise < _FINE and _nearest_landmark(kernel, values) < _NARROW:
        kernel = replace(kernel, distance=_NARROW * kernel.distance)
    with one_thread("blas"):  # or the last bits would depend on the machine's load
        likeness = kernel.transform(values)
        center = likeness.mean(axis=0)
        landmarks = kernel.points * kernel.step + kernel.center
        among_landmarks = kernel.transform(landmarks)
        directions = _ballot_directions(likeness - center, among_landmarks, noise)
    projection = PublicProjection(center, directions, reach_of(likeness, center))
    lengths = np.linalg.norm(projection.transform(likeness), axis=1)
    radius = float(np.quantile(lengths, quantile)) or 1.0
    return chain(kernel, projection, UnitBall(radius))


def _nearest_landmark(kernel: PublicKernel, rows: Matrix) -> float:
    """Return how far the nearest other landmark is from a usual one of some rows, in widths of the kernel."""
    sample = np.random.default_rng(0).permutation(len(rows))[:_SAMPLE]
    points = _on_grid(rows[sample], kernel.center, kernel.reach)
    distances = squared_distances(points, kernel.points)
    nearest = np.where(distances > 0, distances, np.inf).min(axis=1)
    steps = float(np.sqrt(np.median(nearest)))
    return steps * kernel.step / kernel.distance


def _ballot_directions(
    likeness: FloatArray,
    among_landmarks: FloatArray,
    noise: float,
) -> FloatArray:
    """Return the directions of the kernel's feature space, stretched by their shares of the ballot's length."""
    # likeness: (rows, landmarks); among_landmarks: (landmarks, landmarks); result: (landmarks, features)
    values, axes = np.linalg.eigh(among_landmarks)  # Nyström: features are K(x, Z)·K(Z, Z)^−½
    is_kept = values > _LEAST_EIGENVALUE * values.max()
    whitening = axes[:, is_kept] / np.sqrt(values[is_kept])
    white = likeness @ whitening
    spread, rotation = np.linalg.eigh(white.T @ white / len(white))
    n_directions = max(1, len(likeness) // _ROWS_PER_FEATURE)
    largest = slice(None, -n_directions - 1, -1)
    spread = spread[largest]
    rotation = rotation[:, largest]
    shares = _water_filling(np.maximum(spread, 0), noise**2)
    has_share = shares > 0
    stretch = np.sqrt(shares[has_share] / spread[has_share])
    return whitening @ rotation[:, has_share] * stretch


def _water_filling(spread: FloatArray, variance: float) -> FloatArray:
    """Return the share of the squared length of a ballot that each direction gets; they sum to one.

    The estimated value along direction j has the prior variance τ_j², in proportion to a power of the spread; noise
    of variance v/h_j is added to it, where h_j is the share. Σ_j 1/(1/τ_j² + h_j/v) is least where
    h_j = v·(1/θ − 1/τ_j²)₊ for the θ at which the shares sum to one: reverse water-filling (Cover and Thomas, section
    10.3.3).
    """
    # spread, prior, shares: (directions,)
    prior = spread**_POWER
    prior *= _EXPLAINED / prior.sum()
    varies = prior > 0
    precision = np.sort(1 / prior[varies])
    # With the n lowest precisions covered, v·(n/θ − their sum) = 1.
    n_covered = np.arange(1, len(precision) + 1)
    levels = (1 / variance + np.cumsum(precision)) / n_covered
    level = levels[levels > precision][-1]
    shares = np.zeros(len(spread))
    shares[varies] = np.maximum(level - 1 / prior[varies], 0) * variance
    return shares / shares.sum()


def _step(center: FloatArray, reach: float) -> float:
    return reach / distance_levels(len(center), EXACT_FLOAT64)


def _on_grid(
    rows: Matrix,
    center: FloatArray,
    reach: float,
) -> FloatArray:
    limit = distance_levels(len(center), EXACT_FLOAT64)
    return on_grid(rows, center, _step(center, reach), limit)
