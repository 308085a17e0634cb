"""Methods that a user could run instead of PATE: noisy sums and noisy gradients over public features.

All three release linear scores with Gaussian noise; μ is that of Gaussian differential privacy: releases whose noise
has the standard deviation sensitivity/μ. Neighbors differ in one replaced row, so the number of rows is public. Noise
is simulated and sums are floating-point numbers: these are measurements, not releases.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple, Protocol, cast, final

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.noise import SimulationNoise
from tutelage_reproductions.rivals_data import RivalData

_HELD_OUT = 0.2  # of the private rows, to choose settings
_TUNED_ON = 8_000  # rows at most
_DRAWS = 2  # of the noise, for each setting
_GRID = 2**10  # steps of noise per standard deviation
_CONSTANT = 0.3  # of the radius
_ABSENT = -6.0  # score of a class without public rows
_TINY = float(np.finfo(np.float32).tiny)


class Problem(NamedTuple):
    """Data that a rival may see: private rows with their classes, and public rows; on axes of `turned`."""

    private: Matrix
    classes: IntArray
    public: Matrix
    n_classes: int
    start: Matrix | None = None  # of public labels, by `linear_of`, for rivals that start there

    @classmethod
    def of(cls, data: RivalData) -> "Problem":
        """Return what a rival may see of a data set."""
        return cls(data.private, data.y_private, data.public, data.n_classes)


def turned(data: RivalData) -> RivalData:
    """Return a data set with its features centered by the public mean and turned to public principal axes."""
    center = data.public.mean(axis=0)
    centered = (data.public - center).astype(np.float64)
    _, vectors = np.linalg.eigh(centered.T @ centered)
    axes = vectors[:, ::-1].astype(data.public.dtype)
    private, public, scored = (
        (X - center) @ axes for X in (data.private, data.public, data.scored)
    )
    return replace(data, private=private, public=public, scored=scored)


@final
@dataclass(frozen=True, slots=True)
class Clipped:
    """Rows on their first axes, clipped at a radius and extended by a constant.

    Parameters
    ----------
    axes : int
        How many axes.
    radius : float
        Largest length of a row on these axes.
    constant : float
        The last feature of every row.
    """

    axes: int
    radius: float
    constant: float

    @classmethod
    def of(cls, public: Matrix, axes: int, quantile: float, constant: float) -> "Clipped":
        """Return the clipping at a quantile of the public lengths.

        Parameters
        ----------
        public : array of shape (public rows, features)
            What lengths are taken from.
        axes : int
            How many axes.
        quantile : float
            Share of the public rows that is not clipped.
        constant : float
            The last feature, in radii.
        """
        radius = float(np.quantile(np.linalg.norm(public[:, :axes], axis=1), quantile))
        return cls(axes, radius, constant * radius)

    def transform(self, X: Matrix) -> Matrix:
        """Return prepared rows, shape (rows, axes + 1)."""
        rows = X[:, : self.axes]
        rows = rows * np.minimum(
            1, self.radius / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
        )
        return np.concatenate([rows, np.full((len(X), 1), self.constant, rows.dtype)], axis=1)

    @property
    def longest(self) -> float:
        """Largest length of a prepared row."""
        return math.hypot(self.radius, self.constant)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Linear scores of prepared rows.

    Parameters
    ----------
    rows : Clipped
        How rows are prepared.
    weights : array of shape (axes + 1, classes)
        Of the scores.
    """

    rows: Clipped
    weights: Matrix

    def scores(self, X: Matrix) -> Matrix:
        """Return the scores, shape (rows, classes)."""
        return self.rows.transform(X) @ self.weights

    def predict(self, X: Matrix) -> IntArray:
        """Return the class of the largest score of each row."""
        return np.argmax(self.scores(X), axis=1)


class Method(NamedTuple):
    """A method and what it is right on: a split, ε and a seed to a share in %."""

    name: str
    run: Callable[[RivalData, float, int], float]


class Ridge(NamedTuple):
    """Least squares by the public second moments and a noisy private sum of rows times centered indicators."""

    axes: int
    quantile: float
    penalty: float  # of the largest eigenvalue of the public second moments
    bias: float  # what the score of the constant is multiplied by: small where one class is rare

    def fit(self, problem: Problem, mu: float, seed: int) -> Linear:
        """Return the scores that are released with privacy μ in all; without noise at an infinite μ."""
        rows = Clipped.of(problem.public, self.axes, self.quantile, _CONSTANT)
        sums = centered_sums(rows.transform(problem.private), problem.classes, problem.n_classes)
        sums += gaussian(sums.shape, centered_sensitivity(rows, problem.n_classes) / mu, seed)
        public = rows.transform(problem.public).astype(np.float64)
        moments: FloatArray = public.T @ public / len(public)
        size: float = self.penalty * np.linalg.eigvalsh(moments)[-1]
        penalized: FloatArray = moments + size * np.eye(len(moments))
        weights = np.linalg.solve(penalized, sums / len(problem.private))
        weights[-1] *= self.bias
        return Linear(rows, weights)


class Means(NamedTuple):
    """Nearest class mean, of noisy private sums; classes are counted with noise, or taken as equally large."""

    axes: int
    quantile: float
    counted: bool

    def fit(self, problem: Problem, mu: float, seed: int) -> Linear:
        """Return the scores that are released with privacy μ in all; without noise at an infinite μ."""
        rows = Clipped.of(
            problem.public, self.axes, self.quantile, _CONSTANT if self.counted else 0.0
        )
        sums = class_sums(rows.transform(problem.private), problem.classes, problem.n_classes)
        sums += gaussian(sums.shape, class_sensitivity(rows) / mu, seed)
        equal = len(problem.private) / problem.n_classes
        sizes = np.maximum(sums[-1] / rows.constant, 0.1 * equal) if self.counted else equal
        means = sums[:-1] / sizes
        return Linear(
            replace(rows, constant=1.0), np.vstack([means, -0.5 * (means**2).sum(axis=0)])
        )


class AdaSSP(NamedTuple):
    """Least squares by noisy private second moments and a noisy private sum (Wang 2018, arXiv:1803.02596)."""

    axes: int
    quantile: float
    bias: float  # as for `Ridge`

    def fit(self, problem: Problem, mu: float, seed: int) -> Linear:
        """Return the scores that are released with privacy μ in all: a third of μ² for each of three releases."""
        rows = Clipped.of(problem.public, self.axes, self.quantile, _CONSTANT)
        X, part = rows.transform(problem.private).astype(np.float64), mu / math.sqrt(3)
        sums = centered_sums(X, problem.classes, problem.n_classes)
        sums += gaussian(sums.shape, centered_sensitivity(rows, problem.n_classes) / part, seed)
        # A replaced row moves XᵀX by √2 squared lengths, as inner products of squares are not negative, and its
        # smallest eigenvalue by one.
        moments, size, deviation = X.T @ X, X.shape[1], rows.longest**2 / part
        noise = np.triu(gaussian(moments.shape, deviation, seed + 1_000_000))
        moments += math.sqrt(2) * np.diag(np.diag(noise)) + np.triu(noise, 1) + np.triu(noise, 1).T
        lowest = np.linalg.eigvalsh(X.T @ X)[0] + gaussian((1,), deviation, seed + 2_000_000)[0]
        lowest = max(lowest - deviation * float(norm.ppf(0.95)), 0)
        penalty = max(0, deviation * math.sqrt(size * math.log(2 * size**2 / 0.05)) - lowest)
        values, vectors = np.linalg.eigh(moments)
        # As without noise no value is negative.
        spread = np.maximum(values + penalty, max(penalty, 1e-6 * len(X)) / 2)
        weights = vectors @ ((vectors.T @ sums) / spread[:, np.newaxis])
        weights[-1] *= self.bias
        return Linear(rows, weights)


class Descent(NamedTuple):
    """Gradient descent of a logistic regression: all rows in each step, each row's gradient clipped."""

    axes: int
    steps: int
    clip: float  # of the length of a row's gradient; half of the public rows are longer than 1
    rate: float
    constant: float
    warm: bool = False  # whether it starts at the scores that `linear_of` finds, on all axes

    def fit(self, problem: Problem, mu: float, seed: int) -> Linear:
        """Return the scores that are released with privacy μ in all: the mean over the later half of the steps."""
        rows = replace(Clipped.of(problem.public, self.axes, 0.5, self.constant), radius=math.inf)
        scale = self.constant / rows.constant  # half of the public rows are longer than 1 then
        X, n = rows.transform(problem.private) * scale, len(problem.private)
        told = np.eye(problem.n_classes, dtype=X.dtype)[problem.classes]
        weights = np.zeros((X.shape[1], problem.n_classes), X.dtype)
        if self.warm and problem.start is not None:
            weights += (
                problem.start
                / np.append(np.full(X.shape[1] - 1, scale), self.constant)[:, np.newaxis]
            )
        mean, lengths = np.zeros_like(weights), np.linalg.norm(X, axis=1)
        deviation = 2 * self.clip * math.sqrt(self.steps) / mu
        noise = gaussian((self.steps, *weights.shape), deviation, seed).astype(X.dtype)
        for step in range(self.steps):
            slope = clipped_gradient(weights, X, told, lengths, self.clip) + noise[step]
            weights = weights - self.rate / n * slope
            if step >= self.steps // 2:
                mean += weights
        return Linear(rows, scale * mean)


class Search(Protocol):
    """The best of the settings of a classifier that were compared."""

    best_score_: float
    best_estimator_: Any


def search(model: Any, settings: Mapping[str, Sequence[float]], X: Matrix, y: IntArray) -> Search:
    """Return the best of some settings of a classifier, by threefold cross-validation."""
    return cast("Search", GridSearchCV(model, settings, cv=3).fit(X, y))


def linear_of(rows: Matrix, labels: IntArray, n_classes: int) -> FloatArray:
    """Return weights of a cross-validated logistic regression, and last its biases, shape (features + 1, classes)."""
    settings = {"C": (0.01, 0.1, 1.0, 10.0, 100.0)}
    model = search(LogisticRegression(max_iter=300), settings, rows, labels).best_estimator_
    # Of two classes only the second has scores.
    learned: FloatArray = np.hstack([model.coef_, model.intercept_[:, np.newaxis]]).T
    if learned.shape[1] == 1:
        learned = np.hstack([-learned, learned]) / 2
    weights = np.zeros((len(learned), n_classes))
    weights[-1] = _ABSENT
    weights[:, model.classes_] = learned
    return weights


Setting = Ridge | Means | Descent | AdaSSP


class Rival(NamedTuple):
    """A rival and the settings among which one is chosen."""

    name: str
    settings: Sequence[Setting]


_AXES, _QUANTILES = (10, 30, 100, 1000), (0.3, 0.6, 0.95)
_STEPS, _CLIPS, _RATES = (10, 40, 160), (0.3, 1.0), (8.0, 32.0, 128.0)
RIVALS = (
    Rival(
        "DP ridge",
        [
            Ridge(*each)
            for each in product(_AXES, _QUANTILES, (0.003, 0.03, 0.3, 3.0), (0.1, 0.3, 1.0))
        ],
    ),
    Rival("DP class means", [Means(*each) for each in product(_AXES, _QUANTILES, (True, False))]),
    Rival(
        "DP gradient descent",
        [Descent(*each) for each in product((20, 100, 1000), _STEPS, _CLIPS, _RATES, (0.1, 0.3))],
    ),
)

OF_PUBLIC_LABELS = (
    *(rival for rival in RIVALS if rival.name != "DP class means"),
    Rival("AdaSSP", [AdaSSP(*each) for each in product(_AXES, _QUANTILES, (0.3, 1.0))]),
    Rival(
        "DP gradient descent from public labels",
        [
            Descent(*each, warm=True)
            for each in product((1000,), (10, 40), (0.3, 1.0), (0.5, 2.0, 8.0, 32.0), (0.3,))
        ],
    ),
)
"""Rivals where public rows have labels."""


def class_sums(rows: Matrix, classes: IntArray, n_classes: int) -> FloatArray:
    """Return the sum of the rows of each class, shape (features, classes)."""
    return rows.T.astype(np.float64) @ np.eye(n_classes)[classes]


def class_sensitivity(rows: Clipped) -> float:
    """Return how far one replaced row moves `class_sums`: within a class, or from one class to another."""
    return max(2 * rows.radius, math.sqrt(2) * rows.longest)


def centered_sums(rows: Matrix, classes: IntArray, n_classes: int) -> FloatArray:
    """Return the sum of rows times their centered indicators, shape (features, classes)."""
    return rows.T.astype(np.float64) @ (np.eye(n_classes) - 1 / n_classes)[classes]


def centered_sensitivity(rows: Clipped, n_classes: int) -> float:
    """Return how far one replaced row moves `centered_sums`; for two classes, as a sum of rows with signs ±½.

    Within a class the indicator has the length √(1 − 1/k) and the constant cancels. From one class to another the
    squared distance is (|x|² + |x'|²)(1 − 1/k) + 2x·x'/k, at most twice the squared length of the longest row.
    """
    return max(2 * rows.radius * math.sqrt(1 - 1 / n_classes), math.sqrt(2) * rows.longest)


def clipped_gradient(
    weights: Matrix, rows: Matrix, told: Matrix, lengths: Matrix, clip: float
) -> Matrix:
    """Return the sum of the rows' gradients of the logistic loss, each clipped; one replaced row moves it by 2·clip.

    Parameters
    ----------
    weights : array of shape (features, classes)
        Where the gradient is taken.
    rows, told, lengths : arrays of shape (rows, features), (rows, classes) and (rows,)
        Rows, indicators of their classes, and their lengths.
    clip : float
        Largest length of a row's gradient.
    """
    residual = softmax(rows @ weights, axis=1) - told
    sizes = np.linalg.norm(residual, axis=1) * lengths
    residual *= np.minimum(1, clip / np.maximum(sizes, _TINY))[:, np.newaxis]
    return rows.T @ residual


def gaussian(shape: tuple[int, ...], deviation: float, seed: int) -> Matrix:
    """Return Gaussian noise, in steps of a thousandth of the deviation."""
    return SimulationNoise(seed).discrete_gaussian(_GRID, shape) * (deviation / _GRID)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the exact δ of the Gaussian mechanism at ε (Balle and Wang 2018, arXiv:1805.06530v2, Theorem 8)."""
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    )


@cache
def mu_of(epsilon: float, delta: float) -> float:
    """Return the μ at which the Gaussian mechanism is exactly (ε, δ)-private."""
    return float(brentq(lambda mu: gaussian_delta(epsilon, mu) - delta, 1e-6, 1e3))  # type: ignore[arg-type]


def chosen(settings: Sequence[Setting], problem: Problem, mu: float) -> Setting:
    """Return the setting that does best on held-out private rows: this use of them is counted nowhere.

    With fewer rows than there are the noise is as much less, so that there is as much noise per row.

    Parameters
    ----------
    settings : sequence of Setting
        To choose among.
    problem : Problem
        All private rows.
    mu : float
        Of the release of all private rows.
    """
    order = np.random.default_rng(0).permutation(len(problem.private))
    kept = round(len(order) * _HELD_OUT)
    held_out, used = order[:kept], order[kept:][:_TUNED_ON]
    part = problem._replace(private=problem.private[used], classes=problem.classes[used])
    more = mu * len(order) / len(used)

    def right(setting: Setting) -> float:
        fits = [setting.fit(part, more, seed) for seed in range(_DRAWS)]
        return float(
            np.mean(
                [
                    fit.predict(problem.private[held_out]) == problem.classes[held_out]
                    for fit in fits
                ]
            )
        )

    features = problem.public.shape[1]
    different = {setting._replace(axes=min(setting.axes, features)): None for setting in settings}
    return max(different, key=right)
