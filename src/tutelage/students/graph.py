"""The graph of public rows in which each is joined to its nearest others, and what spreads over it."""

import numpy as np
from scipy.sparse import csr_array, diags_array
from sklearn.neighbors import NearestNeighbors

from tutelage._typing import FloatArray, IntArray, Matrix

_COLUMNS = 128  # that are solved for at once
_TOLERANCE = 1e-2  # of a solution's residual, in the norm of what it solves for
_MOST_STEPS = 1000


def neighbour_graph(X: Matrix, n_neighbours: int) -> csr_array:
    """Return the symmetric weights between rows and their nearest others, shape (rows, rows).

    A row gives a neighbour the weight exp(−d²/s²), where d is its distance and s that of the furthest neighbour: from
    1/e to 1, whatever the scale of the data is there [1]_. An edge has the mean of the weights that its ends give it.

    References
    ----------
    .. [1] Zelnik-Manor and Perona, "Self-tuning spectral clustering", NeurIPS 2004, section 2: local scales.
    """
    n_rows = len(X)
    k = min(n_neighbours, n_rows - 1)
    if k == 0:
        return csr_array((n_rows, n_rows))
    distances, neighbours = NearestNeighbors(n_neighbors=k).fit(X).kneighbors()
    scale = np.where(distances[:, -1:] > 0, distances[:, -1:], 1)  # or else all of them coincide with the row
    weights = np.exp(-((distances / scale) ** 2))
    ends = np.arange(0, n_rows * k + 1, k)
    directed = csr_array((weights.ravel(), neighbours.ravel(), ends), shape=(n_rows, n_rows))
    return csr_array((directed + directed.T) / 2)


class Propagation:
    """The Gaussian field (D − αW)⁻¹ of a graph with weights W and their sums D: what a source is worth at each row.

    With α = 1 these are the harmonic functions of [1]_, with the matrix normalised the rule of [2]_. The mean over the
    graph, which tells no classes apart, is taken from each source as in [3]_; without it α may come close to 1.

    References
    ----------
    .. [1] Zhu, Ghahramani and Lafferty, "Semi-supervised learning using Gaussian fields and harmonic functions", ICML
       2003, equation 5.
    .. [2] Zhou, Bousquet, Lal, Weston and Schölkopf, "Learning with local and global consistency", NeurIPS 2003
       (2004), section 2.
    .. [3] Calder, Cook, Thorpe and Slepčev, "Poisson learning: graph based semi-supervised learning at very low label
       rates", ICML 2020, section 2.
    """

    def __init__(self, graph: csr_array, alpha: float) -> None:
        sums = np.asarray(graph.sum(axis=1)).ravel()
        self._degrees = np.where(sums > 0, sums, 1)
        self._scale = 1 / np.sqrt(self._degrees)[:, np.newaxis]
        root = diags_array(self._scale[:, 0])
        self._step = csr_array(alpha * (root @ graph @ root)).astype(np.float32)

    def spread(self, rows: IntArray, sources: FloatArray) -> FloatArray:
        """Return the field of sources at some rows, shape (all rows, columns)."""
        fields = [self._solved(rows, sources[:, i : i + _COLUMNS]) for i in range(0, sources.shape[1], _COLUMNS)]
        return np.concatenate(fields, axis=1)

    def _solved(self, rows: IntArray, sources: FloatArray) -> FloatArray:
        """Solve (1 − αD^−½WD^−½) D^½f = D^−½(sources − their mean) by conjugate gradients, each column for itself."""
        centred = -self._degrees[:, np.newaxis] * (sources.sum(axis=0) / self._degrees.sum())
        centred[rows] += sources
        residual = (self._scale * centred).astype(np.float32)
        solution, direction = np.zeros_like(residual), residual.copy()
        size = (residual**2).sum(axis=0)
        enough = _TOLERANCE**2 * size
        for _ in range(_MOST_STEPS):
            if np.all(size <= enough):
                break
            image = direction - self._step @ direction
            length = size / _positive((direction * image).sum(axis=0))
            solution += length * direction
            residual -= length * image
            smaller = (residual**2).sum(axis=0)
            direction = residual + smaller / _positive(size) * direction
            size = smaller
        return self._scale * solution


def _positive(values: Matrix) -> Matrix:
    return np.maximum(values, np.finfo(np.float32).tiny)
