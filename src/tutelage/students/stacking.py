"""A last noisy sum that says how much to believe of several scores: gradient and Gram matrix of private rows.

Where public rows differ from private ones, what they say of weights is wrong. So the weights of a few scores are found
on the private rows themselves, by one Newton step from the model of public labels: a multinomial logistic regression
of the scores and of a bias for each class. The step is as long as the noise lets it be believed.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from math import ceil, sqrt
from typing import Any, Self, final

import numpy as np
from sklearn.linear_model import LogisticRegression

from tutelage._internal.records import by_identity
from tutelage._internal.typing import FloatArray, IntArray
from tutelage.features.rowwise import projector
from tutelage.features.scored import chances_of
from tutelage.students.noisy_sums import NoisySumClassifier

N_STACKED = 3  # of the public labels, of the ballots beyond them, and of the ballots with them
_BEYOND = 1  # of the three scores, the ballots beyond public labels
# Deviations of the noise: an entry of the Gram matrix that is larger is not noise alone.
_SHOWN = 2.0
# Chances and scores are rounded to these steps: sums of their products stay below 2⁵³, and so exact.
_STEPS = 2**12
_BALLOT_STEPS = 2**16  # to which the numbers of a ballot are rounded
_QUANTILE = 0.9  # of the lengths of scores: longer ones are shortened
_LEAST_DEVIATION = 0.05  # of a score: smaller ones are not stretched
_LEAST_PART = 0.02  # of the largest deviation, likewise
# The Gram matrix is that of softer chances, with scores times this: where the model of public labels is too sure, the
# step would be too long. Chosen, as the penalty below, on splits that are not those of docs/ballots.md.
_SOFTER = 0.7
_PASSES = 3  # over the weights of scores and of classes, each given the other
_DOUBT = 4.0  # by how much a step must make the sums likelier than none, as twice a logarithm
# How large the weights are expected to be, as variances.
_SPREADS = np.append(0.0, np.exp(np.arange(-12, 14, 0.5)))

TwoArrays = tuple[FloatArray, FloatArray]


@final
@by_identity
class Stacking:
    """The ballot that says how scores are to be weighted, and the student that follows from their noisy sum; public.

    Rows are vectors of length at most one, and after them a score for each class by the model of public labels.
    """

    student: NoisySumClassifier  # of the rounds before
    deviations: FloatArray  # of the scores
    radius: float

    @classmethod
    def of(cls, student: NoisySumClassifier, seen: FloatArray) -> Self:
        """Return the ballot whose scales follow from the public rows `seen`, shape (public rows, features)."""
        # scores: (public rows, scores, classes); variances, deviations: (scores,)
        ballot = cls(student, np.ones(N_STACKED), 1.0)
        scores = ballot._scores(seen)
        variances = (scores**2).sum(axis=2).mean(axis=0) / (len(student.classes_) - 1)
        deviations = np.maximum(np.sqrt(variances), _LEAST_DEVIATION)
        ballot = replace(ballot, deviations=deviations)
        return replace(ballot, radius=radius_of(ballot._design(scores)))

    @property
    def n_weights(self) -> int:
        """How many weights there are: one for each score and each class."""
        return N_STACKED + len(self.student.classes_)

    def scores_without(self, seen: FloatArray, labels: IntArray, people: IntArray) -> FloatArray:
        """Return the scores that a person's rows would have without the person's ballots, nearly; exact by person.

        With their own ballots in them, people would agree too well with the scores, and the sum would believe these too
        much. The scores of classes, shape (rows, classes), are beside each other: by the public labels, by the ballots
        beyond them, and by the ballots with them.
        """
        m = len(self.student.classes_)
        start = seen[:, -m:]
        scores = self._scores(seen)
        own_effect: Any = self.student.own_effect_
        own = own_effect.on_scores(seen[:, :-m], labels, people, chances_of(start) - 1 / m)
        scores[:, _BEYOND:] -= np.swapaxes(own, 0, 1)
        return scores.reshape(len(seen), -1)

    def ballots(self, scores: FloatArray, labels: IntArray) -> IntArray:
        """Return the numbers of each row by its scores, shape (rows, numbers), of a length of at most about 2¹⁶.

        With v_c the scores of class c, of length at most ½, and p the chances by public labels, the gradient is
        v_y − Σ p_c v_c, and the Gram matrix Σ p_c v_c v_cᵀ − (Σ p_c v_c)(Σ p_c v_c)ᵀ. The length of the former is at
        most 1 and that of the latter at most ¼, the largest variance within a ball of radius ½. All products are of
        whole numbers, so that a row's are the same to the last bit whatever is beside it.
        """
        by_score = scores.reshape(len(scores), N_STACKED, -1)
        start = by_score[:, 0]
        return joint_ballots(
            self._design(by_score),
            self.radius,
            chances_of(start),
            chances_of(_SOFTER * start),
            labels,
        )

    def classifier(
        self,
        total: IntArray,
        sigma: float,
        n_people: int,
    ) -> LogisticRegression:
        """Return the student, over vectors and scores.

        Parameters
        ----------
        total : integer array of shape (numbers,)
            The noisy sum of the mean ballots of all people.
        sigma : float
            Standard deviation of its noise.
        n_people : int
            How many people there are.
        """
        weights, _ = weights_of(
            total,
            sigma,
            n_people,
            (N_STACKED, self.n_weights - N_STACKED),
        )
        if not weights[:N_STACKED].any():
            weights[_BEYOND] = self._all_or_nothing(total, sigma, n_people, weights)
        weights /= self.radius
        return self._classifier(weights[:N_STACKED] / self.deviations, weights[N_STACKED:])

    def _all_or_nothing(
        self,
        total: IntArray,
        sigma: float,
        n_people: int,
        weights: FloatArray,
    ) -> float:
        """Return the weight of the ballots beyond public labels as they are, if the sum is likelier so, and else 0.

        The ballots limit what they say by their own noise. Where the noise leaves a doubt about each weight, none or
        all of it is a question of one bit. It is asked if the sum shows that the ballots move the scores at all.
        """
        gradient, gram, noise = normal_equations(
            total,
            sigma,
            n_people,
            self.n_weights,
        )
        gram /= 4
        whole = self.deviations[_BEYOND] * self.radius
        of_scores: FloatArray = gram[:N_STACKED, :N_STACKED]
        left: FloatArray = (gradient - gram @ weights)[:N_STACKED]
        moved: FloatArray = whole * of_scores[:, _BEYOND]
        covariance = max(noise, 1e-6) ** 2 * np.eye(N_STACKED) + of_scores / n_people
        gain = np.matmul(moved, np.linalg.solve(covariance, left - moved / 2))
        is_shown = gram[_BEYOND, _BEYOND] > _SHOWN * noise / 4
        if is_shown and gain > 0:
            return whole
        return 0.0

    def _classifier(self, weights: FloatArray, biases: FloatArray) -> LogisticRegression:
        # coef: (classes, vectors and scores); biases, offsets: (classes,)
        m = len(self.student.classes_)
        of_start, of_beyond, of_whole = weights
        beyond, whole = map(_less_mean, self._coefs)
        of_vectors = of_beyond * beyond + of_whole * whole
        of_scores = (1 + of_start) * np.eye(m)
        coef = np.vstack([of_vectors, of_scores]).T
        offsets = biases - biases.mean()
        if m == 2:  # as scikit-learn has it: one row, of the second class against the first
            coef = coef[1:] - coef[:1]
            offsets = offsets[1:] - offsets[:1]
        student: Any = LogisticRegression()
        student.classes_ = self.student.classes_
        student.n_features_in_ = coef.shape[1]
        student.coef_ = coef
        student.intercept_ = offsets
        student.n_iter_ = np.ones(1, dtype=np.int32)
        return student

    @property
    def _coefs(self) -> TwoArrays:
        return self.student.coef_, self.student.whole_coef_

    def _scores(self, seen: FloatArray) -> FloatArray:
        """Return the scores of each class, less their mean, shape (rows, scores, classes); exact by row."""
        m = len(self.student.classes_)
        vectors = seen[:, :-m]
        start = seen[:, -m:]
        scores = [start]
        for coef in self._coefs:
            project = projector(np.zeros(len(coef)), coef, 1.0)
            scores.append(project(vectors))
        return _less_mean(np.stack(scores, axis=1))

    def _design(self, scores: FloatArray) -> FloatArray:
        """Return what the weights explain: scores in deviations and one number for each class, for each class."""
        return with_biases(np.swapaxes(scores / self.deviations[:, None], 1, 2))


def _less_mean(values: FloatArray) -> FloatArray:
    """Return values of classes, the last axis, less their mean."""
    return values - values.mean(axis=-1, keepdims=True)


def with_biases(design: FloatArray) -> FloatArray:
    """Return what the weights explain, shape (rows, classes, weights), with one more weight for each class."""
    n_rows, m, _ = design.shape
    biases = np.broadcast_to(np.eye(m) - 1 / m, (n_rows, m, m))
    return np.concatenate([design, biases], axis=2)


def _lengths(design: FloatArray) -> FloatArray:
    """Return the length of what the weights explain of the class of which they explain most, of each row."""
    return np.sqrt((design * design).sum(axis=2)).max(axis=1)


def radius_of(design: FloatArray) -> float:
    """Return the length beyond which rows are shortened, by public rows."""
    return float(np.quantile(2 * _lengths(design), _QUANTILE))


def deviations_of(squares: FloatArray) -> FloatArray:
    """Return about how large what each weight explains is, by squares of shape (public rows, weights).

    The noise on a weight is then in proportion to what it has to do.
    """
    deviations = np.sqrt(squares.mean(axis=0))
    return np.maximum(deviations, _LEAST_PART * deviations.max())


def _in_steps(design: FloatArray, radius: float) -> FloatArray:
    """Return what the weights explain at a length of at most ½, in whole steps, shape (classes, weights, rows)."""
    lengths = np.maximum(2 * _lengths(design), radius)[:, None, None]
    steps = np.rint(design / lengths * (_STEPS - sqrt(design.shape[2])))
    # With the rows last, all that follows works on long runs of numbers.
    return np.ascontiguousarray(np.moveaxis(steps, 0, 2))


def joint_ballots(
    design: FloatArray,
    radius: float,
    chances: FloatArray,
    softer: FloatArray,
    labels: IntArray,
) -> IntArray:
    """Return gradient and Gram matrix of each row, at the one and the other chances; see `Stacking.ballots`.

    `design`, shape (rows, classes, weights), is what the weights explain of each class. It is cut at a length of ½.
    """
    # steps, weighted: (classes, weights, rows); mean: (weights, rows); of_class: (rows, weights)
    steps = _in_steps(design, radius)
    mean = _weighted_steps(steps, chances).sum(axis=0)
    of_class = steps[labels, :, np.arange(len(labels))]
    gradient = _STEPS * of_class.T - mean
    weighted = _weighted_steps(steps, softer)
    mean = weighted.sum(axis=0) * (2 / _STEPS**2)
    weighted *= 4 / _STEPS**3

    def gram_from(place: int) -> FloatArray:
        second = np.einsum("cr,cwr->wr", weighted[:, place], steps[:, place:])
        second -= mean[place] * mean[place:]
        return second

    return _in_ballot_steps(gradient / _STEPS**2, gram_from)


def joint_steps(design: FloatArray, wrong: FloatArray) -> IntArray:
    """Return gradient and Gram matrix of each row of a least squares fit, of a length of at most about 2¹⁶.

    `design`, shape (rows, weights), is what the weights explain, at a length of at most 1, and `wrong`, shape (rows,),
    what is left to explain, at most 1. The gradient and the Gram matrix each have a length of at most 1 then.
    """
    steps = np.rint(design * (_STEPS - sqrt(design.shape[1])))
    rows_last = np.ascontiguousarray(steps.T) / _STEPS
    return _in_ballot_steps(rows_last * wrong, lambda place: rows_last[place] * rows_last[place:])


def _in_ballot_steps(gradient: FloatArray, gram_from: Callable[[int], FloatArray]) -> IntArray:
    """Return gradient and upper triangle of the Gram matrix of each row, each of a length of at most 1, as a ballot.

    `gram_from` returns one row of the matrix, from the diagonal on.
    """
    # gradient, gram_from(place): (weights, rows), the latter from this weight on; numbers: (numbers, rows)
    n_weights = len(gradient)
    numbers = np.vstack([gradient, *map(gram_from, range(n_weights))])
    rows, columns = np.triu_indices(n_weights)
    # Beside the diagonal, entries count twice.
    divisors = np.where(rows == columns, sqrt(2), 1)
    divisors = np.append(np.full(n_weights, sqrt(2)), divisors)
    numbers *= (_BALLOT_STEPS / divisors)[:, None]
    return np.rint(numbers, out=numbers).astype(np.int64).T


def normal_equations(
    total: IntArray,
    sigma: float,
    n_people: int,
    size: int,
) -> tuple[FloatArray, FloatArray, float]:
    """Return gradient and Gram matrix of `size` weights as means over people, by a noisy sum, and their noise."""
    scale = sqrt(2) / (_BALLOT_STEPS * n_people)
    means = total.astype(np.float64) * scale
    rows, columns = np.triu_indices(size)
    upper_triangle = means[size:] / np.where(rows == columns, 1, sqrt(2))
    gram = np.zeros((size, size))
    gram[columns, rows] = upper_triangle
    gram[rows, columns] = upper_triangle
    return means[:size], gram, scale * sigma


def weights_of(
    total: IntArray,
    sigma: float,
    n_people: int,
    sizes: Sequence[int],
) -> TwoArrays:
    """Return the weights, times the radius, by the noisy sum of ballots; of groups of these sizes, one by one.

    The second array is how far the noise moves them, as `step_of` estimates it.
    """
    size = sum(sizes)
    gradient, gram, noise = normal_equations(total, sigma, n_people, size)
    gram /= 4
    weights = np.zeros(size)
    doubts = np.zeros(size)
    ends = np.cumsum([0, *sizes])
    for _ in range(_PASSES):
        for start, end in pairwise(ends.tolist()):
            part = slice(start, end)
            others = np.r_[:start, end:size]
            left = gradient[part] - gram[part, others] @ weights[others]
            weights[part], doubts[part] = step_of(
                left,
                gram[part, part],
                noise,
                noise / 4,
                1 / n_people,
            )
    return weights, doubts


def numbers_of(n_weights: int) -> int:
    """Return how many numbers a ballot about so many weights has: the gradient, and half of the Gram matrix."""
    return n_weights + n_weights * (n_weights + 1) // 2


def joint_norm(n_weights: int) -> int:
    """Return the largest norm of a ballot, in whole steps: of length one, and rounded by row and by person."""
    return ceil(_BALLOT_STEPS + sqrt(numbers_of(n_weights))) + 1


def exact_chances(student: Any, seen: FloatArray) -> FloatArray:
    """Return the `predict_proba` of a linear student to about six digits, whatever rows are beside a row.

    `seen` are vectors of length at most one, and after them scores if it is a logistic regression.
    """
    # coef: (features and scores, outputs); totals: (rows, outputs)
    if isinstance(student, NoisySumClassifier):
        return student.chances(student.expected(seen))
    m = len(student.classes_)
    coef: FloatArray = student.coef_.T
    project = projector(np.zeros(len(coef) - m), coef[:-m], 1.0)
    totals = project(seen[:, :-m]) + student.intercept_
    for scores, weights in zip(seen[:, -m:].T, coef[-m:], strict=True):
        totals = totals + scores[:, None] * weights
    if m == 2:  # scikit-learn has one output, of the second class against the first
        totals = np.hstack([np.zeros_like(totals), totals])
    return chances_of(totals)


def with_class_weights(classifier: Any, weights: FloatArray) -> Any:
    """Return a linear student whose chances are multiplied by weights: logarithms in a logistic regression."""
    student = copy(classifier)
    if isinstance(student, NoisySumClassifier):
        student.weights_ = weights
        return student
    shift = _less_mean(np.log(weights))
    if len(student.intercept_) == 1:
        shift = shift[1:] - shift[:1]
    student.intercept_ = student.intercept_ + shift
    return student


def _in_whole_steps(chances: FloatArray) -> FloatArray:
    """Return chances in whole steps that add up to one."""
    steps = np.floor(chances * _STEPS)
    steps[np.arange(len(steps)), steps.argmax(axis=1)] += _STEPS - steps.sum(axis=1)
    return steps


def _weighted_steps(steps: FloatArray, chances: FloatArray) -> FloatArray:
    """Return steps, shape (classes, weights, rows), times those of the chances, shape (rows, classes)."""
    return _in_whole_steps(chances).T[:, None] * steps


def step_of(
    gradient: FloatArray,
    gram: FloatArray,
    noise: float,
    noise_of_gram: float,
    variance: float,
) -> TwoArrays:
    """Return the expected weights, whose variance is the likeliest one: none if there is no better one.

    `variance` is that of the mean over people of what they get wrong. The second array is about how far the weights
    are from those without noise, as a deviation, over variances as likely as what was seen makes them.
    """
    # gradient, values, seen: (weights,); gram: (weights, weights); exact, total, expected: (spreads, weights)
    values, axes = np.linalg.eigh(gram)
    # The noise alone gives a matrix of this size eigenvalues up to about half of that (Wigner).
    values = np.maximum(values, max(noise_of_gram * sqrt(2 * len(gradient)), 1e-12))
    seen = axes.T @ gradient
    spreads = _SPREADS[:, None]
    exact = spreads * values**2 + values * variance  # a mean over people varies by itself, too
    total = exact + noise**2
    surprise = (np.log(total) + seen**2 / total).sum(axis=1)
    surprise[1:] += _DOUBT
    best = int(surprise.argmin())
    expected = spreads * values * seen / total

    likely = np.exp((surprise[best] - surprise) / 2)
    # For each spread, the variance of the weights given noisy sums, less the one given exact sums.
    within = (spreads * values) ** 2 * (1 / exact - 1 / total) @ (axes**2).T
    between = ((expected - expected[best]) @ axes.T) ** 2
    doubts = np.sqrt(likely @ (within + between) / likely.sum())
    return axes @ expected[best], doubts
