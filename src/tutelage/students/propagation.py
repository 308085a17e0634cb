"""Labels spread over the graph of a row's nearest others; each is tested by all others before it is believed."""

from collections.abc import Callable
from dataclasses import KW_ONLY

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array
from scipy.special import softmax
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC

from tutelage._internal.fitting import fit_clone
from tutelage._internal.records import settable
from tutelage._internal.typing import ABSTAIN, Array, FloatArray, IntArray, Matrix
from tutelage._internal.validation import integer_at_least, number_between
from tutelage.exceptions import InvalidParameterError
from tutelage.students.base import SemiSupervisedClassifier

_COLUMNS = 128  # that are solved for at once
_TOLERANCE = 1e-2  # of a solution's residual, in the norm of what it solves for
_MOST_STEPS = 1000


def neighbor_graph(X: Matrix, n_neighbors: int) -> csr_array:
    """Return the symmetric weights between rows and their nearest others, shape (rows, rows).

    A row gives a neighbor the weight exp(−d²/s²), where d is its distance and s that of the furthest neighbor: from
    1/e to 1, whatever the scale of the data is there (Zelnik-Manor and Perona, "Self-tuning spectral clustering",
    NeurIPS 2004, section 2). An edge has the mean of the weights that its ends give it.
    """
    n_rows = len(X)
    k = min(n_neighbors, n_rows - 1)
    if k == 0:
        return csr_array((n_rows, n_rows))
    distances, neighbors = _nearest(X, k)
    furthest = distances[:, -1:]
    # Where the furthest is at no distance, all neighbors coincide with the row.
    scale = np.where(furthest > 0, furthest, 1)
    weights = np.exp(-((distances / scale) ** 2))
    ends = np.arange(0, n_rows * k + 1, k)
    directed = csr_array((weights.ravel(), neighbors.ravel(), ends), shape=(n_rows, n_rows))
    return csr_array((directed + directed.T) / 2)


def _nearest(X: Matrix, k: int) -> tuple[Array, Array]:
    """Return the distances and the row numbers of the nearest other rows, both of shape (rows, k)."""
    return NearestNeighbors(n_neighbors=k).fit(X).kneighbors()


class Propagation:
    """The Gaussian field (D − αW)⁻¹ of a graph with weights W and their sums D: what a source is worth at each row.

    With α = 1 these are the harmonic functions of Zhu, Ghahramani and Lafferty (ICML 2003, equation 5), with the matrix
    normalized the rule of Zhou et al., "Learning with local and global consistency" (NeurIPS 2003, section 2). The mean
    over the graph, which tells no classes apart, is taken from each source as in Calder et al., "Poisson learning"
    (ICML 2020, section 2); without it α may come close to 1.
    """

    def __init__(self, graph: csr_array, alpha: float) -> None:
        sums = np.asarray(graph.sum(axis=1))[:, None]
        self._degrees = np.where(sums > 0, sums, 1)
        self._scale = 1 / np.sqrt(self._degrees)
        root = diags_array(self._scale[:, 0])
        self._step = csr_array(alpha * (root @ graph @ root), dtype=np.float32)

    def spread(self, rows: IntArray, sources: FloatArray) -> FloatArray:
        """Return the field of sources at some rows, shape (all rows, columns)."""
        parts = np.split(sources, range(_COLUMNS, sources.shape[1], _COLUMNS), axis=1)
        return np.hstack([self._solve(rows, part) for part in parts])

    def _solve(self, rows: IntArray, sources: FloatArray) -> FloatArray:
        """Solve (1 − αD^−½WD^−½) D^½f = D^−½(sources − their mean) by conjugate gradients, each column for itself."""
        # sources: (rows, columns); all others: (all rows, columns), but sizes and lengths: (columns,)
        centered = -self._degrees * (sources.sum(axis=0) / self._degrees.sum())
        centered[rows] += sources
        residual = (self._scale * centered).astype(np.float32)
        solution = np.zeros_like(residual)
        direction = residual.copy()
        size = (residual**2).sum(axis=0)
        enough = _TOLERANCE**2 * size
        for _ in range(_MOST_STEPS):
            if np.all(size <= enough):
                break
            image = direction - np.asarray(self._step @ direction)
            curvature = (direction * image).sum(axis=0)
            length = size / _positive(curvature)
            solution += length * direction
            residual -= length * image
            smaller = (residual**2).sum(axis=0)
            direction = residual + smaller / _positive(size) * direction
            size = smaller
        return self._scale * solution


def _softmax(values: FloatArray, axis: int | None = None) -> FloatArray:
    return np.asarray(softmax(values, axis=axis))


def _positive(values: Matrix) -> Matrix:
    return np.maximum(values, np.finfo(np.float32).tiny)


_EACH_LEFT_OUT = 300  # up to so many labels, each is left out by itself; of more, a fifth at a time
_FOLDS = 5
_ROUNDS = 10
_SETTLED = 3e-3  # mean change of beliefs, in probability, below which rounds end
_NEUTRAL = 0.3  # labels of no class in particular that each class has besides its own
# In units of the typical lead of a class.
_SHARPNESS = np.geomspace(0.5, 200, 14)
_NOISE = np.array(
    [0.005, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6]
)
_LEAST_INFORMATIVE = 0.9  # of the rate at which labels are drawn blindly
# The prior of α is (1 − α)^−1.5: nearby, wrong labels of look-alikes bear each other out.
_FAR_REACHING = 1.5
_TEMPERATURES = np.geomspace(0.01, 10, 25)
_CALIBRATED_ON = 2000  # rows
_NEXT_TO_NOTHING = 0.01
_TINY = 1e-12


@settable
class LabelPropagationStudent(SemiSupervisedClassifier):
    """Spreads few and partly wrong labels over the graph of all public rows, then learns the answers as a classifier.

    Every labeled row is a source on the graph [1]_ [2]_, of the classes that it may truly have. How likely each is, is
    told by its label and by the field of all other labels, at an unknown rate of wrong labels; beliefs and rate are
    found in turns. So a label that its surroundings contradict loses its weight, or comes to speak for their class.
    Classes weigh the same, however many labels they have: rows that were chosen to be asked are no fair sample.

    Parameters
    ----------
    n_neighbors : int
        Neighbors of each row in the graph.
    alpha : float or tuple of float
        How much of what is at a row comes from its neighbors, below 1; the closer to 1, the further labels reach. Of
        several, each has a say by how well labels are told from one another.
    random_state : int, optional
        Sets which labels are left out together where there are many.

    Attributes
    ----------
    label_distributions_ : ndarray of shape (rows, n_classes)
        Probability of each class for each row that was learned from; uniform where no label reaches.
    propagated_ : ndarray of shape (rows,)
        The likeliest class value of each.
    confidences_ : ndarray of shape (rows,)
        Its probability.
    trusts_ : ndarray of shape (rows,)
        Probability that the label is right, for labeled rows; NaN for others.
    label_noise_ : float
        Estimated share of wrong labels.
    estimator_ : classifier
        An ``SVC`` that learned the propagated labels, weighted by confidence; it knows class indices.
    temperature_ : float
        What its scores are divided by before they become probabilities.

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
            graph = neighbor_graph(X, self.n_neighbors)
            beliefs = list[tuple[FloatArray, FloatArray, float, float]]()
            for alpha in alphas:
                beliefs.append(
                    _beliefs(
                        Propagation(graph, alpha),
                        labeled,
                        one_hot,
                        seed,
                    )
                )
            of_rows, of_labels, noise, evidence = zip(*beliefs, strict=True)
            reach = -_FAR_REACHING * np.log1p(-alphas)
            weights = _softmax(np.array(evidence) + reach)
            self.label_distributions_ = np.tensordot(weights, of_rows, 1)
            trusts = np.tensordot(weights, of_labels, 1) * one_hot
            self.trusts_[labeled] = trusts.sum(axis=1)
            self.label_noise_ = float(weights @ noise)
        self._fit_final(X, seed)

    def _check_settings(self) -> None:
        owner = type(self).__name__
        integer_at_least(self.n_neighbors, 1, "n_neighbors", owner)
        alphas = np.atleast_1d(self.alpha).tolist()
        for alpha in alphas:
            number_between(alpha, 0, 1, "alpha", owner)
        if not alphas:
            raise InvalidParameterError(
                f"{owner}.alpha",
                "contain at least one number, each at least 0 and below 1",
                "none",
            )

    def _fit_final(self, X: Matrix, seed: int) -> None:
        likeliest = self.label_distributions_.argmax(axis=1)
        self.propagated_ = self.classes_[likeliest]
        self.confidences_ = self.label_distributions_.max(axis=1)
        chance = 1 / (len(self.classes_) + 1e-9)
        # The weight is zero where no label reaches.
        weights = np.maximum((self.confidences_ - chance) / (1 - chance), _TINY)
        is_sure = weights >= _NEXT_TO_NOTHING * weights.max()
        self.estimator_ = fit_clone(
            SVC(),
            X[is_sure],
            likeliest[is_sure],
            seed,
            weights[is_sure] / weights.max(),
        )

        sample = np.random.default_rng(seed).permutation(len(X))[:_CALIBRATED_ON]
        scores = self._scores(X[sample])
        beliefs = self.label_distributions_[sample]
        losses = list[float]()
        for temperature in _TEMPERATURES:
            chances = _softmax(scores / temperature, axis=1)
            losses.append(-np.sum(beliefs * np.log(chances + _TINY)))
        self.temperature_ = float(_TEMPERATURES[np.argmin(losses)])

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class, shape (rows, classes) in the order of `classes_`."""
        scores = self._scores(self._known_rows(X))
        return _softmax(scores / self.temperature_, axis=1)

    def _scores(self, rows: Matrix) -> FloatArray:
        """Return the score of each class; of a class that no row was believed to have, −∞."""
        known = self.estimator_.classes_
        scores = np.full((len(rows), len(self.classes_)), -np.inf)
        if len(known) == 1:
            scores[:, known] = 0.0
            return scores
        found: FloatArray = self.estimator_.decision_function(rows)
        if found.ndim == 1:  # of two classes
            found = np.stack([-found, found], axis=1)
        scores[:, known] = found
        return scores


def _beliefs(
    field: Propagation,
    labeled: IntArray,
    one_hot: FloatArray,
    seed: int,
) -> tuple[FloatArray, FloatArray, float, float]:
    """Return class beliefs of all rows and of labeled ones, the rate of wrong labels, and the evidence for the field.

    Labels are weighed against the fields of all others until that settles.
    """
    # one_hot, beliefs, before: (labels, classes); grid, weights: (sharpness, rates); spread, rows: (rows, classes)
    fields_of_others = _without_own_label(field, labeled, seed)
    before = one_hot
    sharpness, grid, beliefs = _weigh(one_hot, fields_of_others(one_hot))
    for _ in range(_ROUNDS):
        if np.abs(beliefs - before).sum(axis=1).mean() < _SETTLED:
            break
        before = beliefs
        sharpness, grid, beliefs = _weigh(one_hot, fields_of_others(beliefs))
    evidence = float(np.logaddexp.reduce(grid, axis=None) - np.log(grid.size))
    weights = _softmax(grid)

    spread = _per_label(field.spread(labeled, beliefs), beliefs.sum(axis=0))
    rows = np.zeros_like(spread)
    for sharp, weight in zip(sharpness, weights.sum(axis=1), strict=True):
        rows += weight * _softmax(sharp * spread, axis=1)
    noise = float(weights.sum(axis=0) @ _rates(one_hot.shape[1]))
    return rows, beliefs, noise, evidence


def _weigh(one_hot: FloatArray, fields: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weigh labels against the field of all others, with the sharpness of fields and the rate of wrong labels unknown.

    A row's label is another class than its own at that rate, any other being as likely. Each sharpness and rate has a
    say in the beliefs by its likelihood.
    """
    # one_hot, fields, beliefs: (labels, classes); of each sharpness, chances: (labels, classes), and
    # likelihoods: (rates, labels)
    n_classes = one_hot.shape[1]
    lead = float((fields.max(axis=1) - fields.mean(axis=1)).mean())
    sharpness = _SHARPNESS / max(lead, _TINY)
    rates = _rates(n_classes)[:, None]
    right = 1 - rates
    wrong = rates / (n_classes - 1)
    all_chances = list[FloatArray]()
    all_likelihoods = list[FloatArray]()
    for sharp in sharpness:
        chances = _softmax(sharp * fields, axis=1)
        of_label = (chances * one_hot).sum(axis=1)
        all_chances.append(chances)
        all_likelihoods.append(right * of_label + wrong * (1 - of_label))
    grid = np.array([np.log(likelihoods).sum(axis=1) for likelihoods in all_likelihoods])
    weights = _softmax(grid)

    beliefs = np.zeros_like(one_hot)
    for chances, weight, likelihoods in zip(
        all_chances,
        weights,
        all_likelihoods,
        strict=True,
    ):
        ratio = weight[:, None] / likelihoods
        if_right = (right * ratio).sum(axis=0)
        if_wrong = (wrong * ratio).sum(axis=0)
        beliefs += chances * np.where(one_hot > 0, if_right[:, None], if_wrong[:, None])
    return sharpness, grid, beliefs


def _rates(n_classes: int) -> FloatArray:
    """Return rates of wrong labels at which a label still speaks for its class."""
    most = _LEAST_INFORMATIVE * (n_classes - 1) / n_classes
    return _NOISE[most > _NOISE]


def _without_own_label(
    field: Propagation,
    labeled: IntArray,
    seed: int,
) -> Callable[[FloatArray], FloatArray]:
    """Return the function from all labels' sources to the field of the others at each, both (labels, classes)."""
    n_labels = len(labeled)
    if n_labels <= _EACH_LEFT_OUT:
        worth = field.spread(labeled, np.eye(n_labels))[labeled]
        np.fill_diagonal(worth, 0)
        return lambda sources: _per_label(worth @ sources, sources.sum(axis=0) - sources)
    fold = np.random.default_rng(seed).permutation(n_labels) % _FOLDS

    def without_fold(sources: FloatArray) -> FloatArray:
        fields = np.zeros_like(sources)
        masses = np.zeros_like(sources)
        for number in range(_FOLDS):
            inside = fold == number
            of_fold = field.spread(labeled[inside], sources[inside])[labeled]
            fields[~inside] += of_fold[~inside]
            masses[~inside] += sources[inside].sum(axis=0)
        return _per_label(fields, masses)

    return without_fold


def _per_label(fields: FloatArray, masses: FloatArray) -> FloatArray:
    """Return the fields of classes per label of theirs, shape (rows, classes).

    A class without labels has the mean field of all, and one with few is drawn to it.
    """
    mass = masses.sum(axis=-1, keepdims=True)
    mean = fields.sum(axis=1, keepdims=True) / np.maximum(mass, _TINY)
    return (fields + _NEUTRAL * mean) / (masses + _NEUTRAL)
