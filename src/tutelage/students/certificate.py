"""How many people can lie, whatever they cast, before a prediction of a student of one noisy sum changes.

Proof: docs/proofs/certificate.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import FloatArray, IntArray, Matrix

# Weights are expected in proportion to one of these powers of the public spread.
_POWERS = (-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)
_LEVELS = np.exp(np.arange(-25, 25, 0.5))  # how large the weights are expected to be
# Comparisons are widened by this share, far more than floats round.
_SLACK = 1e-9
# Multipliers that are tried in Theorem 2, above the least that is allowed, in units of the largest difference.
_MULTIPLIERS = np.exp(np.arange(-30, 30, 0.25))[:, None]
_AT_ONCE = 2**22  # numbers


def priors_of(spread: FloatArray) -> Iterator[FloatArray]:
    """Yield the variances of weights that are compared, of the shape of `spread`; of equally likely ones the first."""
    for power in _POWERS:
        shape = spread**power
        for level in _LEVELS:
            yield level * shape


class Certificate(NamedTuple):
    """How a student of one noisy sum follows from it, and how far one person can move it; public.

    `seen` is what the sum shows of each class along each direction of the public features. The student multiplies it,
    along each direction, by a number that follows from the prior, and the prior is the likeliest of a public list.
    """

    axes: FloatArray  # (features, directions)
    spread: FloatArray  # (directions,) of the public features
    around: FloatArray  # (directions,), the variance of `seen`
    seen: FloatArray  # (directions, classes)
    moved: float  # the longest distance by which one person moves `seen`

    def liars(
        self,
        vectors: Matrix,
        predicted: IntArray,
        weights: FloatArray,
        least_chance: float,
    ) -> IntArray:
        """Return how many liars each prediction survives, shape (rows,).

        Parameters
        ----------
        vectors : array of shape (rows, features)
            Features of the rows.
        predicted : integer array of shape (rows,)
            Class index of each row.
        weights : array of shape (classes,)
            How much each class counts.
        least_chance : float
            The least chance of a class, before it is multiplied by its weight.
        """
        # priors, factors: (priors, directions); distances: (priors,)
        priors = np.stack([*priors_of(self.spread)])
        distances = self.distances_to(priors)
        factors = self.spread * priors / (self.spread**2 * priors + self.around)
        at_once = max(1, _AT_ONCE // (len(priors) * len(weights)))
        limits = np.zeros(len(vectors))
        for start in range(0, len(vectors), at_once):
            some = slice(start, start + at_once)
            rows = np.asarray(vectors[some], np.float64)
            some_rows = _PredictedRows(
                rows @ self.axes,
                np.linalg.norm(rows, axis=1),
                predicted[some],
                weights,
                least_chance,
            )
            is_chosen = distances == 0
            limit = some_rows.limits(factors[is_chosen], self.seen).min(axis=1)
            # Other priors matter only if the sum can be moved to them before the prediction changes.
            is_near = (distances > 0) & (distances < limit.max(initial=0))
            if is_near.any():
                others = some_rows.limits(factors[is_near], self.seen)
                by_others = np.maximum(others, distances[is_near]).min(axis=1)
                limit = np.minimum(limit, by_others)
            limits[some] = limit
        limits = np.clip(limits, 0, np.linalg.norm(self.seen))
        # The largest whole k with k · moved < limit.
        people = np.ceil(limits / (self.moved * (1 + _SLACK))) - 1
        return np.maximum(people, 0).astype(np.int64)

    def distances_to(self, priors: FloatArray) -> FloatArray:
        """Return how far `seen` is to be moved, at least, until each prior may be the likeliest.

        Priors are of shape (priors, directions).
        """
        # squares: (directions,); variances, logarithms, differences: (priors, directions)
        n_classes = self.seen.shape[1]
        squares = (self.seen**2).sum(axis=1)
        variances = self.spread**2 * priors + self.around
        logarithms = n_classes * np.log(variances)
        surprises = (logarithms + squares / variances).sum(axis=1)
        sizes = (np.abs(logarithms) + squares / variances).sum(axis=1)
        chosen = int(surprises.argmin())
        gaps = (logarithms - logarithms[chosen]).sum(axis=1)
        gaps -= _SLACK * (sizes + sizes[chosen])

        differences = 1 / variances - 1 / variances[chosen]
        distances = np.zeros(len(priors))
        for number, difference in enumerate(differences):
            least = max(0.0, -difference.min())
            multipliers = least + np.abs(difference).max() * _MULTIPLIERS
            if not multipliers.all():
                continue
            # Theorem 2: each of these is a lower bound of the squared distance.
            parts = squares * difference * multipliers / (difference + multipliers)
            bounds = (gaps[number] + parts.sum(axis=1)) / multipliers[:, 0]
            distances[number] = np.sqrt(max(0.0, bounds.max()))
        return distances


class _PredictedRows(NamedTuple):
    """Some rows and their predictions; public."""

    along: FloatArray  # (rows, directions)
    lengths: FloatArray  # (rows,) of the features
    predicted: IntArray  # (rows,)
    weights: FloatArray  # (classes,)
    least_chance: float

    def limits(self, factors: FloatArray, seen: FloatArray) -> FloatArray:
        """Return how far `seen` may be moved before each prediction changes under each prior, shape (rows, priors).

        It is at most 0 if the prior predicts another class.
        """
        # shrunk: (priors, directions, classes); weighted, leads, reach: (rows, priors, classes)
        # own: (rows, priors); own_weight: (rows,); squares: (rows, classes)
        n_classes = len(self.weights)
        most_weight = self.weights.max()
        rows = np.arange(len(self.predicted))
        shrunk = factors[:, :, None] * seen
        scores = np.tensordot(self.along, shrunk, (1, 1))
        weighted = self.weights * (scores + 1 / n_classes)
        own = weighted[rows, :, self.predicted]
        own_weight = self.weights[self.predicted]
        leads = own[:, :, None] - weighted
        apart = own_weight[:, None] - self.weights
        squares = own_weight[:, None] ** 2 + self.weights**2 - apart**2 / n_classes
        # In place of itself, the class competes with the least chance that any class can have.
        leads[rows, :, self.predicted] = own - self.least_chance * most_weight
        squares[rows, self.predicted] = own_weight**2 * (1 - 1 / n_classes)

        # Rounding changes the scores by less than this.
        sizes = np.sqrt((shrunk**2).sum(axis=(1, 2)))
        sizes = self.lengths[:, None] * sizes + 1 / n_classes
        leads = leads - _SLACK * 2 * most_weight * sizes[:, :, None]
        moved = np.sqrt(self.along**2 @ (factors**2).T)
        reach = np.sqrt(squares)[:, None, :] * moved[:, :, None]
        reach *= 1 + _SLACK
        unmoved = np.where(
            leads > 0,
            np.inf,
            0.0,
        )
        limits = np.divide(
            leads,
            reach,
            out=unmoved,
            where=reach > 0,
        )
        return limits.min(axis=2)
