"""A linear classifier in closed form, from noisy sums of what private rows of each class look like."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple, Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from tutelage._internal.records import settable
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.features.rowwise import projector
from tutelage.features.scored import LEAST_CHANCE
from tutelage.students.certificate import Certificate, priors_of

_LEAST_SPREAD = 1e-9  # of the largest
# Share of a class's variance that the features explain and earlier rounds have not, in the first and in later rounds.
_UNEXPLAINED = 0.5
_UNEXPLAINED_LATER = 0.05
# Of the lengths of what a student gets wrong, those that are kept: so large a share, and of each class on average so
# large a one. Where a class is rare, it is wrong about little else, and would be shortened to the length of the others.
_QUANTILE = 0.85
_QUANTILE_OF_CLASS = 0.7
# Longest correction by a later round, in lengths of what was learned before, beyond what noise explains. Where public
# rows are like the private ones it is about as short; where they are not, a longer one makes matters worse. Chosen on
# other splits than those of docs/ballots.md.
_FARTHEST = 0.45
_STEPS = 2**30  # of the length beyond which products of a row are shortened


class Moments(NamedTuple):
    """A noisy mean over private rows of the residual of each row times its features; public.

    Parameters
    ----------
    values : array of shape (classes, features)
        The mean.
    noise : float
        Standard deviation of the noise on each of its numbers.
    radius : float
        Length beyond which the product of one row was shortened.
    moved : float
        Longest distance by which one person can move the mean. Default: not known.
    part : float
        Part of a ballot by which the ballot of a person moves the mean: less than one in an average with other means.
    """

    values: FloatArray
    noise: float
    radius: float
    moved: float = np.inf
    part: float = 1.0

    @classmethod
    def of_sum(
        cls,
        total: IntArray,
        sigma: float,
        scale: float,
        radius: float,
        moved: float = np.inf,
        part: float = 1.0,
    ) -> Self:
        """Return the mean that a noisy sum of ballots stands for.

        Parameters
        ----------
        total : integer array of shape (classes, features)
            The noisy sum.
        sigma : float
            Standard deviation of its noise.
        scale : float
            What the sum is divided by: the scale of one ballot times the number of people.
        radius : float
            Length beyond which the product of one row was shortened.
        moved : float
            Longest distance by which one person can move the sum. Default: not known.
        part : float
            As above.
        """
        return cls(total / scale, sigma / scale, radius, moved / scale, part)


class Spectrum(NamedTuple):
    """How far the features of public rows spread in which directions."""

    spread: FloatArray  # a column
    axes: FloatArray

    @classmethod
    def of(cls, X_public: Matrix) -> Self:
        """Return the spectrum of features of public rows."""
        values, axes = np.linalg.eigh(X_public.T @ X_public / len(X_public))
        kept = values > _LEAST_SPREAD * values.max()
        return cls(values[kept][:, None], axes[:, kept])


class OwnEffect(NamedTuple):
    """How far the ballots of one person move the scores of the person's rows, with the prior as it is; public.

    Along each direction of the public features, the weights are a multiple of each mean. So a row's scores move by the
    products of this row and of each of the person's rows along the directions, times these multiples and what was wrong
    about the latter. There are scores by the weights and, where there is a start, by those of the whole.
    """

    axes: FloatArray  # (features, directions)
    gains: tuple[FloatArray, ...]  # of the mean of each round, (weights, directions)
    radii: tuple[float, ...]  # of each round
    starts: tuple[FloatArray, ...]  # weights of the classifier that was wrong, (features, classes)
    n_people: int

    def on_scores(
        self, X: Matrix, y: IntArray, people: IntArray, start: FloatArray | None = None
    ) -> FloatArray:
        """Return how far the scores of rows moved by the ballots of their people, shape (weights, rows, classes).

        A person's rows follow each other, and no other row changes a bit of what is returned for them. `start` is as
        for `NoisySumClassifier.residuals`.
        """
        # along: (rows, directions); lengths: (rows, 1); wrong: (rows, classes)
        rows = np.asarray(X, dtype=np.float64)
        along = _projection(rows, self.axes)
        length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        m = self.starts[0].shape[1]
        moved = np.zeros((len(self.gains[0]), len(rows), m))
        for gains, radius, before in zip(self.gains, self.radii, self.starts, strict=True):
            wrong = np.eye(m)[y] - 1 / m
            if start is not None:
                wrong = wrong - start
            if before.any():
                wrong = wrong - _projection(rows, before)
            lengths = length * np.sqrt((wrong * wrong).sum(axis=1, keepdims=True))
            wrong = wrong * np.minimum(1, radius / np.maximum(lengths, 1e-12))
            wrong = wrong - wrong.mean(axis=1, keepdims=True)
            moved += _moves(along, wrong, gains, radius, people)
        return moved / self.n_people


def _moves(
    along: Matrix, wrong: Matrix, gains: FloatArray, radius: float, people: IntArray
) -> FloatArray:
    """Return how far the mean ballot of a person moves the scores of its rows, shape (weights, rows, classes).

    `along` are the rows along the directions, and `wrong` what was wrong about them, shortened.
    """
    # several: (rows,); first: (people with several rows,); ballots, sums: (rows of several, directions)
    by_itself = np.stack([(along * along * gain).sum(axis=1) for gain in gains])
    moved = by_itself[:, :, None] * wrong
    _, person, n_rows = np.unique(people, return_inverse=True, return_counts=True)
    several = np.flatnonzero(n_rows[person] > 1)
    if not len(several):
        return moved
    rows = along[several]
    n_rows = n_rows[person[several], None]
    first = np.flatnonzero(np.diff(people[several], prepend=-1))
    for place in range(wrong.shape[1]):
        # Sums are of whole numbers, so that they are the same in any order.
        ballots = np.rint(rows * wrong[several, place, None] * (_STEPS / radius))
        sums = np.repeat(np.add.reduceat(ballots, first), n_rows[first, 0], axis=0)
        products = rows * sums * (radius / _STEPS / n_rows)
        for of_weights, gain in zip(moved, gains, strict=True):
            of_weights[several, place] = (products * gain).sum(axis=1)
    return moved


def _projection(rows: Matrix, directions: FloatArray) -> Matrix:
    return projector(np.zeros(len(directions)), directions, 1.0)(rows)


@final
@settable
class NoisySumClassifier(ClassifierMixin, BaseEstimator):
    """Least squares whose moments come from two sides: features among themselves from public rows, with labels noisy.

    How much the weights are to be trusted is read off the noisy moments themselves: their variance along each direction
    of the public features is that of the known noise plus that of the signal, whose size and shape are fitted by
    maximum likelihood (empirical Bayes). Nothing is tuned on private rows, and all of it is post-processing of the sum.

    Attributes
    ----------
    classes_ : array of shape (classes,)
        Class values.
    coef_ : array of shape (features, classes)
        Weights; a row belongs to the class of the largest sum.
    whole_coef_ : array of shape (features, classes)
        The weights of a classifier without a start, where one was given: by the same moments, and by what the start
        says of the public rows.
    weights_ : float or array of shape (classes,)
        What the chances of classes are multiplied by before they are made to sum to one: 1, if classes count alike.
    own_effect_ : OwnEffect or None
        How far the ballots of a person move the person's own scores. Published students have none.
    certificate_ : Certificate or None
        What `certified` follows from, if the classifier was fitted to the noisy sum of one round without a start.
    """

    def fit(self, X: Matrix, y: npt.NDArray[np.generic]) -> Self:
        """Fit to rows with labels, whose moments have no noise.

        Parameters
        ----------
        X : array of shape (rows, features)
            Rows.
        y : array of shape (rows,)
            Class value of each row.
        """
        rows = np.asarray(X, dtype=np.float64)
        classes, labels = np.unique(y, return_inverse=True)
        residuals = np.eye(len(classes))[labels] - 1 / len(classes)
        values = residuals.T @ rows / len(rows)
        self.fit_moments(
            rows,
            [Moments(values, 0.0, np.inf)],
            n_rows=len(rows),
            classes=classes,
        )
        self.own_effect_ = None  # these rows cast no ballots
        return self

    def fit_moments(
        self,
        X_public: Matrix,
        rounds: Sequence[Moments],
        *,
        n_rows: int,
        classes: npt.NDArray[np.generic],
        start: FloatArray | None = None,
        spectrum: Spectrum | None = None,
        starts: Sequence[FloatArray] = (),
    ) -> Self:
        """Fit the classifier; costs no privacy.

        Parameters
        ----------
        X_public : array of shape (public rows, features)
            Features of public rows.
        rounds : sequence of Moments
            First of what classes are beyond being equally likely, then of what the classifier of the rounds before, and
            so this very fit to them, gets wrong.
        n_rows : int
            How many private rows, or people, the means are over.
        classes : array of shape (classes,)
            Class values.
        start : array of shape (public rows, classes), optional
            What is expected of the public rows before anything is learned. Default: that classes are equally likely.
        spectrum : Spectrum, optional
            `Spectrum.of(X_public)`, if it is known.
        starts : sequence of arrays of shape (features, classes), optional
            For each round, weights of the classifier that was wrong. Default: those that follow from the rounds before.
        """
        self.classes_ = np.asarray(classes)
        self.n_features_in_ = X_public.shape[1]
        self.weights_: float | FloatArray = 1.0
        self.certificate_: Certificate | None = None
        self.own_effect_: OwnEffect | None = None
        m = len(self.classes_)
        if any(moments.values.shape != (m, self.n_features_in_) for moments in rounds):
            raise InvalidDataError(
                f"`values` of Moments must be of shape (classes, features), ({m}, {self.n_features_in_}) here."
            )
        self.coef_ = np.zeros((self.n_features_in_, m))
        if not rounds:
            return self
        # weights, weighted, seen: (directions, classes); spread, precision, around, prior: (directions, 1)
        spread, axes = spectrum or Spectrum.of(X_public)
        weighted = np.zeros((len(spread), m))
        precision = np.zeros((len(spread), 1))
        shares = list[FloatArray]()  # of a mean in what is weighted
        wrong_before = list[FloatArray]()
        gains: tuple[FloatArray, ...] = ()
        for number, moments in enumerate(rounds):
            share = self._share_within(X_public, moments.radius, start)
            before = starts[number] if starts else self.coef_
            wrong_before.append(before)
            explained_before = spread * (axes.T @ before)
            residuals = moments.values - moments.values.mean(axis=0)
            seen = axes.T @ residuals.T / share + explained_before
            unexplained = _UNEXPLAINED_LATER if number else _UNEXPLAINED
            by_chance = 1 / n_rows + unexplained / len(X_public)
            around = _variance_around(moments.noise / share, spread, m, by_chance)
            if len(rounds) == 1 and start is None and np.isfinite(moments.moved):
                self.certificate_ = Certificate(
                    axes,
                    spread[:, 0],
                    around[:, 0],
                    seen,
                    moments.moved / share,
                )
            weighted_before = weighted
            precision_before = precision
            weighted = weighted + seen / around
            precision = precision + 1 / around
            shares.append(moments.part / around / share)

            prior = _likeliest_prior(weighted / precision, spread, 1 / precision)
            weights = _mean(prior, spread, weighted, precision)
            part = 1.0
            if number:
                known = _mean(prior, spread, weighted_before, precision_before)
                part = _part_of_step(known, weights, spread, prior, (precision_before, precision))
                weights = known + part * (weights - known)
            self.coef_ = axes @ weights
            gains = _gains(shares, prior, spread, (precision_before, precision), part)
        if start is not None:
            seen = weighted / precision + axes.T @ (X_public.T @ start / len(X_public))
            prior = _likeliest_prior(seen, spread, 1 / precision)
            self.whole_coef_ = axes @ _mean(prior, spread, seen * precision, precision)
            of_whole = [_mean(prior, spread, share, precision) for share in shares]
            gains = tuple(map(np.hstack, zip(gains, of_whole, strict=True)))
        radii = tuple(moments.radius for moments in rounds)
        of_weights = tuple(gain.T for gain in gains)
        self.own_effect_ = OwnEffect(axes, of_weights, radii, tuple(wrong_before), n_rows)
        return self

    def residuals(
        self,
        X: Matrix,
        y: npt.NDArray[np.integer],
        start: FloatArray | None = None,
    ) -> FloatArray:
        """Return the residual of each row: 1 for its class, 0 for others, minus what is expected of it.

        Parameters
        ----------
        X : array of shape (rows, features)
            Rows.
        y : integer array of shape (rows,)
            Class index of each row.
        start : array of shape (rows, classes), optional
            What is expected of each row at the start, less the chance of a class at random.
        """
        m = len(self.classes_)
        expected = np.zeros((len(y), m)) if start is None else start
        if self.coef_.any():  # after the first round
            expected = expected + self.expected(X)
        return np.eye(m)[y] - (expected + 1 / m)

    def expected(self, X: Matrix) -> FloatArray:
        """Return the `decision_function` to about six digits, to the last bit whatever rows are beside a row.

        Parameters
        ----------
        X : array of shape (rows, features)
            Rows.
        """
        project = projector(np.zeros(len(self.coef_)), self.coef_, 1.0)
        return project(np.asarray(X, dtype=np.float64))

    def radius(self, X_public: Matrix, start: FloatArray | None = None) -> float:
        """Return the length beyond which products of residuals and features are to be shortened, by public rows."""
        lengths, y = self._lengths(X_public, start)
        by_class = [lengths[y == label] for label in np.unique(y)]
        of_classes = [np.quantile(own, _QUANTILE_OF_CLASS) for own in by_class]
        radius = max(np.quantile(lengths, _QUANTILE), np.mean(of_classes))
        return float(radius) or 1.0

    def _lengths(self, X_public: Matrix, start: FloatArray | None) -> tuple[FloatArray, IntArray]:
        """Return the lengths of the products of public rows, and their classes, drawn as the classifier expects."""
        # expected, up_to: (rows, classes); drawn: (rows, 1); y: (rows,)
        expected = self.decision_function(X_public)
        if start is not None:
            expected = expected + start
        up_to = np.cumsum(self.chances(expected), axis=1)
        drawn = np.random.default_rng(0).random((len(X_public), 1))
        y = np.minimum((drawn > up_to).sum(axis=1), len(self.classes_) - 1)
        residuals = self.residuals(X_public, y, start)
        return np.linalg.norm(residuals, axis=1) * np.linalg.norm(X_public, axis=1), y

    def _share_within(
        self,
        X_public: Matrix,
        radius: float,
        start: FloatArray | None,
    ) -> float:
        """Return the share of the products that shortening leaves, by public rows."""
        lengths, _ = self._lengths(X_public, start)
        total = lengths.sum()
        if not total:
            return 1.0
        return float(np.minimum(lengths, radius).sum() / total)

    def decision_function(self, X: Matrix) -> FloatArray:
        """Return how much more likely each class is than a class at random, shape (rows, classes)."""
        return np.asarray(X, dtype=np.float64) @ self.coef_

    def predict_proba(self, X: Matrix) -> FloatArray:
        """Return the probability of each class, shape (rows, classes)."""
        return self.chances(self.decision_function(X))

    def chances(self, expected: FloatArray) -> FloatArray:
        """Return the probability of each class by the `decision_function`, shape (rows, classes)."""
        chances = np.maximum(expected + 1 / len(self.classes_), LEAST_CHANCE) * self.weights_
        return chances / chances.sum(axis=1, keepdims=True)

    def predict(self, X: Matrix) -> npt.NDArray[np.generic]:
        """Return the likeliest class value of each row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def certified(self, vectors: Matrix, part: float = 1.0) -> IntArray:
        """Return how many liars the prediction of each row survives, shape (rows,); public.

        Had that many of the people who took part cast any other ballots, the prediction would be the same, whatever
        the noise: see docs/proofs/certificate.md.

        Parameters
        ----------
        vectors : array of shape (rows, features)
            Features of the rows.
        part : float
            How far one person moves a mean, as a part of how far one of those who took part does.

        Raises
        ------
        InvalidParameterError
            If the classifier does not follow from the noisy sum of one round alone.
        """
        certificate: Certificate | None = getattr(self, "certificate_", None)
        if certificate is None:
            raise InvalidParameterError(
                "NoisySumClassifier.certified",
                "be of a classifier that follows from the noisy sum of one round alone, without public labels and with "
                "fixed class weights",
                fix="Fit with `NoisyMoments(rounds=1)`.",
            )
        rows = np.asarray(vectors, np.float64)
        predicted = self.predict_proba(rows).argmax(axis=1)
        weights = np.broadcast_to(self.weights_, len(self.classes_))
        certificate = certificate._replace(moved=part * certificate.moved)
        return certificate.liars(rows, predicted, weights, LEAST_CHANCE)


def _variance_around(
    noise: float,
    spread: FloatArray,
    m: int,
    by_chance: float,
) -> FloatArray:
    """Return the variance of a mean along each direction, of m classes.

    Beside its noise, a mean over n rows varies by itself: along a direction by spread/n times the variance of a class.
    So do the products of the features, over the public rows, by what is unexplained of a class. `by_chance` has both.
    """
    return noise**2 * (1 - 1 / m) + spread * (m - 1) / m**2 * by_chance


def _mean(
    prior: FloatArray,
    spread: FloatArray,
    weighted: FloatArray,
    precision: FloatArray,
) -> FloatArray:
    """Return the expected weights along each direction, given the moments."""
    return spread * prior * weighted / (spread**2 * prior * precision + 1)


def _gains(
    shares: Sequence[FloatArray],
    prior: FloatArray,
    spread: FloatArray,
    precisions: Sequence[FloatArray],
    part: float,
) -> tuple[FloatArray, ...]:
    """Return how far the weights follow the mean of each round if a part of the last step is taken.

    Shares, prior, spread and what is returned are of shape (directions, 1).
    """
    before, precision = precisions
    gains = list[FloatArray]()
    for share in shares:
        # The last mean was not known before.
        known = np.zeros_like(share) if share is shares[-1] else _mean(prior, spread, share, before)
        gain = known + part * (_mean(prior, spread, share, precision) - known)
        gains.append(gain)
    return tuple(gains)


def _part_of_step(
    known: FloatArray,
    weights: FloatArray,
    spread: FloatArray,
    prior: FloatArray,
    precisions: Sequence[FloatArray],
) -> float:
    """Return the part of the step to weights with another round that is to be believed.

    A later round says what is wrong about private rows, and the public rows say which weights repair it. Where they
    differ from the private rows, such a step overshoots, and the less noise there is the further. So its length, the
    root mean square over the public rows, is held to a share of that of the weights, besides what noise makes it.
    """
    # known, weights, step: (directions, classes); spread, prior: (directions, 1)
    variances = [prior / (spread**2 * prior * precision + 1) for precision in precisions]
    by_noise = float((spread * (variances[0] - variances[1])).sum()) * known.shape[1]
    step = weights - known
    length = sqrt(float((spread * known**2).sum()))
    moved = sqrt(float((spread * step**2).sum()))
    most = sqrt((_FARTHEST * length) ** 2 + by_noise)
    return min(1.0, most / moved) if moved else 1.0


def _likeliest_prior(
    seen: FloatArray,
    spread: FloatArray,
    around: FloatArray,
) -> FloatArray:
    """Return the prior variance of the weights along each direction under which the moments are likeliest."""
    # seen: (directions, classes); spread, around, prior: (directions, 1)
    best = np.inf
    prior = spread
    for trial in priors_of(spread):
        variance = trial * spread**2 + around
        surprise = float((np.log(variance) + seen**2 / variance).sum())
        if surprise < best:
            best = surprise
            prior = trial
    return prior
