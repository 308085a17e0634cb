"""Label propagation: labels spread over a graph of nearest rows, and each is tested by the others before it counts.

The labels are released ones, which are noised already. All of this is post-processing, so it costs no privacy.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array
from scipy.special import softmax
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC

from tutelage._internal.fitting import fit_clone
from tutelage._internal.records import settable
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Matrix
from tutelage._internal.validation import integer_at_least, number_between
from tutelage.exceptions import InvalidParameterError
from tutelage.students.base import SemiSupervisedClassifier

# Conjugate gradients: the columns that are solved for at once, the norm of the residual at which they stop, relative to
# that of the right side, and the limit of their steps.
_SOLVE_BATCH = 128
_TOLERANCE = 1e-2
_MAX_STEPS = 1000

# Up to this number of labels, each is held out alone; of more, one fold at a time.
_MAX_SINGLE_HELD_OUT = 300
_FOLDS = 5

# Rounds end when the probabilities of classes change by less than this, summed over classes and averaged over labels.
_MIN_CHANGE = 3e-3
_MAX_ROUNDS = 10

# Labels of no particular class that each class has besides its own.
_PSEUDO_COUNT = 0.3

# Factors of a field before its softmax, in units of the typical lead of a class.
_SHARPNESS = np.geomspace(0.5, 200, 14)

# Possible shares of wrong labels, as far as they are below this part of the share among labels drawn blindly.
_ERROR_RATES = np.array(
    [0.005, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6]
)
_MAX_PART_OF_BLIND = 0.9

# The prior of α is (1 − α)^−1.5. It prefers α near 1: at short range, similar rows with the same wrong label confirm
# each other.
_PRIOR_EXPONENT = 1.5

# The final classifier: rows of less than this part of the largest weight are left out, and one of these temperatures
# is chosen on a sample of the rows.
_MIN_RELATIVE_WEIGHT = 0.01
_TEMPERATURES = np.geomspace(0.01, 10, 25)
_N_CALIBRATION_ROWS = 2000

_TINY = 1e-12


def _neighbor_graph(X: Matrix, n_neighbors: int) -> csr_array:
    """Return the symmetric weights between rows and their nearest others, shape (rows, rows).

    A row gives a neighbor the weight exp(−d²/s²), where d is its distance and s that of the furthest neighbor: from
    1/e to 1, whatever the scale of the data is there (Zelnik-Manor and Perona, "Self-tuning spectral clustering",
    NeurIPS 2004, section 2). An edge has the mean of the weights that its two rows give each other.
    """
    n_rows = len(X)
    k = min(n_neighbors, n_rows - 1)
    if k == 0:
        return csr_array((n_rows, n_rows))
    # (rows, k) each
    distances, neighbors = cast("Any", NearestNeighbors(n_neighbors=k).fit(X)).kneighbors()
    furthest = distances[:, -1:]
    # Where the furthest is at no distance, all neighbors coincide with the row.
    scale = np.where(furthest > 0, furthest, 1)
    weights = np.exp(-((distances / scale) ** 2))
    indptr = np.arange(0, n_rows * k + 1, k)
    cells = weights.ravel(), neighbors.ravel(), indptr
    directed = cast("Any", csr_array(cells, shape=(n_rows, n_rows)))
    return csr_array((directed + directed.T) / 2)


class _Propagation:
    """The Gaussian field (D − αW)⁻¹ of a graph with weights W and diagonal degrees D: the reach of sources to each row.

    In the limit α → 1 it gives the harmonic functions of Zhu, Ghahramani and Lafferty (ICML 2003, equation 5). With a
    normalized matrix it is the rule of Zhou et al., "Learning with local and global consistency" (NeurIPS 2003,
    section 2). `spread` subtracts the mean over the graph, which does not distinguish classes, from each source, as
    Calder et al. do in "Poisson learning" (ICML 2020, section 2); so α may come close to 1.
    """

    def __init__(self, graph: Any, alpha: float) -> None:
        degrees = np.asarray(graph.sum(axis=1))[:, None]
        self._degrees = np.where(degrees > 0, degrees, 1)
        self._scale = 1 / np.sqrt(self._degrees)
        root = diags_array(self._scale[:, 0])
        # αD^−½WD^−½
        self._normalized = csr_array(alpha * (root @ graph @ root), dtype=np.float32)

    def spread(self, rows: IntArray, sources: FloatArray) -> FloatArray:
        """Place sources at `rows`, and return the field at all rows, shape (all rows, columns)."""
        parts = np.split(sources, range(_SOLVE_BATCH, sources.shape[1], _SOLVE_BATCH), axis=1)
        return np.hstack([self._solve(rows, part) for part in parts])

    def _solve(self, rows: IntArray, sources: FloatArray) -> FloatArray:
        """Solve (I − αD^−½WD^−½) D^½f = D^−½(sources − their mean) by conjugate gradients, each column for itself."""
        # sources: (rows, columns)
        # centered, residual, solution, direction, image: (all rows, columns)
        # squared_norm, enough, curvature, step_size, smaller: (columns,)
        centered = -self._degrees * (sources.sum(axis=0) / self._degrees.sum())
        centered[rows] += sources
        residual = (self._scale * centered).astype(np.float32)
        solution = np.zeros_like(residual)
        direction = residual.copy()
        squared_norm = (residual**2).sum(axis=0)
        enough = _TOLERANCE**2 * squared_norm

        for _ in range(_MAX_STEPS):
            if np.all(squared_norm <= enough):
                break
            image = direction - np.asarray(self._normalized @ direction)
            curvature = (direction * image).sum(axis=0)
            step_size = squared_norm / _positive(curvature)
            solution += step_size * direction
            residual -= step_size * image
            smaller = (residual**2).sum(axis=0)
            direction = residual + smaller / _positive(squared_norm) * direction
            squared_norm = smaller

        return self._scale * solution


def _softmax(values: FloatArray, axis: int | None = None) -> FloatArray:
    return np.asarray(softmax(values, axis=axis))


def _positive(values: Matrix) -> Matrix:
    return np.maximum(values, np.finfo(np.float32).tiny)


@settable
class LabelPropagationStudent(SemiSupervisedClassifier):
    """Spreads few and partly wrong labels over the graph of all public rows, then fits a classifier to the result.

    Every labeled row is a source on the graph [1]_ [2]_, of the classes that it may truly have. Their probabilities
    follow from its label, from the field of all other labels, and from an unknown error rate of labels; probabilities
    and error rate are estimated in turns. So a label that its surroundings contradict loses its weight, or counts for
    their class instead. Classes weigh the same, however many labels they have: queries are not a random sample of the
    rows.

    Parameters
    ----------
    n_neighbors : int
        Neighbors of each row in the graph.
    alpha : float or tuple of float
        Share of a row's value that comes from its neighbors, below 1; the closer to 1, the further labels reach.
        Several values are averaged, each weighted by how well it predicts the labels from one another.
    random_state : int, optional
        Sets which labels are held out together if there are many.

    Attributes
    ----------
    label_distributions_ : ndarray of shape (rows, n_classes)
        Probability of each class for each row of the fit; uniform where no label reaches.
    propagated_ : ndarray of shape (rows,)
        The most probable class value of each row.
    confidences_ : ndarray of shape (rows,)
        The probability of that class.
    trusts_ : ndarray of shape (rows,)
        Probability that the label is right, for labeled rows; NaN for others.
    label_noise_ : float
        Estimated share of wrong labels.
    estimator_ : classifier
        An ``SVC`` fitted to the propagated labels, weighted by confidence; its classes are class indices.
    temperature_ : float
        Divisor of its scores before their softmax.

    References
    ----------
    .. [1] Zhu, Ghahramani and Lafferty, "Semi-supervised learning using Gaussian fields and harmonic functions", ICML
       2003; section 4 is about the masses of classes.
    .. [2] Zhou, Bousquet, Lal, Weston and Schölkopf, "Learning with local and global consistency", NeurIPS 2003 (2004).
    """

    _: KW_ONLY
    n_neighbors: int = 10
    alpha: float | tuple[float, ...] = (0.9, 0.99, 0.999, 0.9999)
    random_state: int | None = None

    def _learn(self, X: Matrix, labels: IntArray) -> None:
        alphas = np.atleast_1d(self.alpha).astype(np.float64)
        seed = int(np.random.SeedSequence(self.random_state).generate_state(1)[0])
        labeled = np.flatnonzero(labels != ABSTAIN)
        one_hot = np.eye(len(self.classes_))[labels[labeled]]
        self.trusts_ = np.full(len(X), np.nan)
        if len(self.classes_) == 1:
            self.label_distributions_ = np.ones((len(X), 1))
            self.trusts_[labeled] = 1.0
            self.label_noise_ = 0.0
        else:
            graph = _neighbor_graph(X, self.n_neighbors)
            posteriors = list[_Posterior]()
            for alpha in alphas:
                propagation = _Propagation(graph, alpha)
                posteriors.append(_posterior(propagation, labeled, one_hot, seed))
            of_rows, of_labels, error_rates, evidence = zip(*posteriors, strict=True)
            log_prior = -_PRIOR_EXPONENT * np.log1p(-alphas)
            weights = _softmax(np.array(evidence) + log_prior)
            self.label_distributions_ = np.tensordot(weights, of_rows, 1)
            trusts = np.tensordot(weights, of_labels, 1) * one_hot
            self.trusts_[labeled] = trusts.sum(axis=1)
            self.label_noise_ = float(weights @ error_rates)
        self._fit_final(X, seed)

    def _check_settings(self) -> None:
        class_name = type(self).__name__
        integer_at_least(self.n_neighbors, 1, "n_neighbors", class_name)
        alphas = np.atleast_1d(self.alpha).tolist()
        for alpha in alphas:
            number_between(alpha, 0, 1, "alpha", class_name)
        if not alphas:
            raise InvalidParameterError(
                f"{class_name}.alpha",
                "contain at least one number, each at least 0 and below 1",
                "none",
            )

    def _fit_final(self, X: Matrix, seed: int) -> None:
        likeliest = self.label_distributions_.argmax(axis=1)
        self.propagated_ = self.classes_[likeliest]
        self.confidences_ = self.label_distributions_.max(axis=1)
        # Just below the confidence of a row that no label reaches, so 1 − uniform is positive with one class, too.
        uniform = 1 / (len(self.classes_) + 1e-9)
        # From 0 where no label reaches to 1. The largest weight divides, so none is exactly 0.
        weights = np.maximum((self.confidences_ - uniform) / (1 - uniform), _TINY)
        is_sure = weights >= _MIN_RELATIVE_WEIGHT * weights.max()
        # If all these rows are of one class, which an SVC refuses, `fit_clone` returns a constant classifier.
        self.estimator_ = fit_clone(
            SVC(),
            X[is_sure],
            likeliest[is_sure],
            seed,
            weights[is_sure] / weights.max(),
        )

        sample = np.random.default_rng(seed).permutation(len(X))[:_N_CALIBRATION_ROWS]
        scores = self._scores(X[sample])
        targets = self.label_distributions_[sample]
        losses = list[float]()
        for temperature in _TEMPERATURES:
            probabilities = _softmax(scores / temperature, axis=1)
            losses.append(-np.sum(targets * np.log(probabilities + _TINY)))
        self.temperature_ = float(_TEMPERATURES[np.argmin(losses)])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class, shape (rows, classes) in the order of `classes_`."""
        scores = self._scores(self._known_rows(X))
        return _softmax(scores / self.temperature_, axis=1)

    def _scores(self, rows: Matrix) -> FloatArray:
        """Return the score of each class; −∞ for a class that is the most probable one of no row."""
        known = self.estimator_.classes_
        scores = np.full((len(rows), len(self.classes_)), -np.inf)
        if len(known) == 1:
            scores[:, known] = 0.0
            return scores
        decision: FloatArray = self.estimator_.decision_function(rows)
        if decision.ndim == 1:  # of two classes
            decision = np.stack([-decision, decision], axis=1)
        scores[:, known] = decision
        return scores


class _Posterior(NamedTuple):
    """Estimates at one α, and the evidence for it."""

    of_rows: FloatArray  # probabilities of classes, (rows, classes)
    of_labels: FloatArray  # the same of labeled rows, (labels, classes)
    error_rate: float  # expected share of wrong labels
    log_evidence: float


def _posterior(
    propagation: _Propagation,
    labeled: IntArray,
    one_hot: FloatArray,
    seed: int,
) -> _Posterior:
    """Return the class probabilities and the error rate at one α, with the evidence for that α.

    Labeled rows start as sources of their labels. In each round, `_weigh` compares labels with the fields of all other
    sources; its probabilities are the sources of the next round.
    """
    # one_hot, of_labels, before: (labels, classes); log_likelihood, weights: (sharpness, error rates)
    # field, of_rows: (rows, classes)
    held_out_fields = _held_out_fields(
        propagation,
        labeled,
        seed,
    )
    before = one_hot
    sharpness, log_likelihood, of_labels = _weigh(one_hot, held_out_fields(one_hot))
    for _ in range(_MAX_ROUNDS):
        if np.abs(of_labels - before).sum(axis=1).mean() < _MIN_CHANGE:
            break
        before = of_labels
        sharpness, log_likelihood, of_labels = _weigh(one_hot, held_out_fields(of_labels))
    # The mean likelihood over a uniform grid.
    log_evidence = float(
        np.logaddexp.reduce(log_likelihood, axis=None) - np.log(log_likelihood.size)
    )
    weights = _softmax(log_likelihood)

    field = _per_label(propagation.spread(labeled, of_labels), of_labels.sum(axis=0))
    of_rows = np.zeros_like(field)
    for factor, weight in zip(sharpness, weights.sum(axis=1), strict=True):
        of_rows += weight * _softmax(factor * field, axis=1)
    error_rate = float(weights.sum(axis=0) @ _error_rates(one_hot.shape[1]))
    return _Posterior(
        of_rows,
        of_labels,
        error_rate,
        log_evidence,
    )


def _weigh(one_hot: FloatArray, fields: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sharpness grid, the log-likelihood of each sharpness and error rate, and P(c | label) of each label.

    Bayes' rule, with uniform priors on a grid of sharpness s and error rate r. Before its label is seen, a row is of
    class c with p_s(c), the softmax of s times the held-out field. A wrong label is any other class, equally likely:

    P(label | c, r) = 1 − r if c is the label, and r / (n_classes − 1) otherwise.

    P(label | s, r) = Σ_c p_s(c) · P(label | c, r), and P(s, r | all labels) is in proportion to their product.

    P(c | label) = Σ_{s,r} P(s, r | all labels) · p_s(c) · P(label | c, r) / P(label | s, r).
    """
    # one_hot, fields, beliefs, each of priors: (labels, classes); each of likelihoods: (error rates, labels)
    # log_likelihood, posterior: (sharpness, error rates)
    n_classes = one_hot.shape[1]
    lead = float((fields.max(axis=1) - fields.mean(axis=1)).mean())
    sharpness = _SHARPNESS / max(lead, _TINY)
    error_rates = _error_rates(n_classes)[:, None]
    if_right = 1 - error_rates
    if_wrong = error_rates / (n_classes - 1)
    priors = list[FloatArray]()
    likelihoods = list[FloatArray]()
    for factor in sharpness:
        prior = _softmax(factor * fields, axis=1)
        of_label = (prior * one_hot).sum(axis=1)
        priors.append(prior)
        likelihoods.append(if_right * of_label + if_wrong * (1 - of_label))
    log_likelihood = np.array([np.log(likelihood).sum(axis=1) for likelihood in likelihoods])
    posterior = _softmax(log_likelihood)

    beliefs = np.zeros_like(one_hot)
    for prior, weights, likelihood in zip(priors, posterior, likelihoods, strict=True):
        # P(s, r | all labels) / P(label | s, r)
        ratio = weights[:, None] / likelihood
        of_own_class = (if_right * ratio).sum(axis=0)
        of_others = (if_wrong * ratio).sum(axis=0)
        ratios = cast(
            "FloatArray", np.where(one_hot > 0, of_own_class[:, None], of_others[:, None])
        )
        beliefs += prior * ratios
    return sharpness, log_likelihood, beliefs


def _error_rates(n_classes: int) -> FloatArray:
    """Return the error rates at which a label is still evidence for its class."""
    most = _MAX_PART_OF_BLIND * (n_classes - 1) / n_classes
    return _ERROR_RATES[most > _ERROR_RATES]


def _held_out_fields(
    propagation: _Propagation,
    labeled: IntArray,
    seed: int,
) -> Callable[[FloatArray], FloatArray]:
    """Return a function of the sources of all labels, shape (labels, classes).

    It returns, for each label, the field that all labels except it (of many: except its fold) produce at its row.
    """
    n_labels = len(labeled)
    if n_labels <= _MAX_SINGLE_HELD_OUT:
        influence = propagation.spread(labeled, np.eye(n_labels))[labeled]
        np.fill_diagonal(influence, 0)
        return lambda sources: _per_label(influence @ sources, sources.sum(axis=0) - sources)
    fold = np.random.default_rng(seed).permutation(n_labels) % _FOLDS

    def without_fold(sources: FloatArray) -> FloatArray:
        fields = np.zeros_like(sources)
        masses = np.zeros_like(sources)
        for number in range(_FOLDS):
            inside = fold == number
            of_fold = propagation.spread(labeled[inside], sources[inside])[labeled]
            fields[~inside] += of_fold[~inside]
            masses[~inside] += sources[inside].sum(axis=0)
        return _per_label(fields, masses)

    return without_fold


def _per_label(fields: FloatArray, masses: FloatArray) -> FloatArray:
    """Return the field of each class divided by its number of labels, shape (rows, classes).

    A class without labels gets the mean field of all classes, and a class with few labels is drawn toward it.
    """
    mass = masses.sum(axis=-1, keepdims=True)
    mean = fields.sum(axis=1, keepdims=True) / np.maximum(mass, _TINY)
    return (fields + _PSEUDO_COUNT * mean) / (masses + _PSEUDO_COUNT)
