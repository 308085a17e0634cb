"""One row for many: the public rows are clustered, and those that stand for the largest clusters are asked.

Such rows are typical, so teachers agree on them and noise seldom turns their labels around; and together they cover the
public rows, so a student that learns from unlabelled rows too knows the rest by their neighbours.
"""

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances
from threadpoolctl import threadpool_limits

from tutelage._typing import FloatArray, IntArray
from tutelage._validation import integer_at_least
from tutelage.exceptions import InvalidDataError
from tutelage.students.selection.base import PublicKnowledge, QuerySelector

_SEEDS = 2**32


@dataclass(frozen=True, slots=True)
class _ClusterRepresentatives(QuerySelector):
    """Base of rules that ask one row of each of the largest clusters without an asked row.

    There are as many clusters as rows asked before and now together, so enough of them hold none that was asked before.
    """

    def _choose(self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator) -> IntArray:
        X = flat_rows(known.X, type(self).__name__)
        clusters = _clusters(X, n_queries + int(known.asked.sum()), int(generator.integers(_SEEDS)))
        uncovered = [rows for rows in clusters if not known.asked[rows].any()]
        uncovered.sort(key=len, reverse=True)  # stable: clusters of one size stay in the order of their first rows
        chosen = np.array([rows[self._representative(X[rows])] for rows in uncovered[:n_queries]], dtype=np.int64)
        # Rows that are equal can leave fewer clusters than queries.
        others = generator.permutation(np.setdiff1d(known.open, chosen))
        return np.concatenate([chosen, others[: n_queries - len(chosen)]])

    @abstractmethod
    def _representative(self, X: FloatArray) -> int:
        """Return which of the rows of one cluster, shape (rows, features), stands for it."""


@final
@dataclass(frozen=True, slots=True)
class Medoids(_ClusterRepresentatives):
    """Ask the rows nearest the centres of k-means clusters, largest cluster first.

    Rows near one that was asked before are not asked: what it covers is known. Where equal rows leave fewer clusters
    than queries, the others are drawn at random.
    """

    def _representative(self, X: FloatArray) -> int:
        return int(np.square(X - X.mean(axis=0)).sum(axis=1).argmin())


@final
@dataclass(frozen=True, slots=True)
class TypiClust(_ClusterRepresentatives):
    """Ask the most typical row of each k-means cluster, largest cluster first [1]_.

    Like `Medoids`, but a cluster is represented by the row with the nearest neighbours: where rows are dense, also in a
    cluster that is no ball.

    Parameters
    ----------
    n_neighbours : int
        Typicality is the inverse of the mean distance to so many nearest rows of the same cluster, or to half of its
        rows where it has fewer than twice as many.

    References
    ----------
    .. [1] Hacohen, Dekel and Weinshall, "Active learning on a budget: opposite strategies suit high and low budgets",
       ICML 2022, arXiv:2202.02794, section 3.
    """

    n_neighbours: int = 20

    def __post_init__(self) -> None:
        integer_at_least(self.n_neighbours, 1, "n_neighbours", "TypiClust")

    def _representative(self, X: FloatArray) -> int:
        n_neighbours = max(1, min(self.n_neighbours, len(X) // 2))
        nearest = np.sort(pairwise_distances(X), axis=1)[:, 1 : n_neighbours + 1]  # the first is the row itself
        return int(nearest.sum(axis=1).argmin())


def flat_rows(X: np.ndarray, owner: str) -> FloatArray:
    """Return the rows as finite numbers of shape (rows, features)."""
    try:
        rows = np.array(X, dtype=np.float64).reshape(len(X), -1)
    except (TypeError, ValueError):
        rows = np.full((1, 1), np.nan)
    if not np.all(np.isfinite(rows)):
        raise InvalidDataError(f"{owner} needs public rows of finite numbers. Give it their features.")
    return rows


def _clusters(X: FloatArray, n_clusters: int, seed: int) -> list[IntArray]:
    """Return the row numbers of each cluster that k-means finds, without empty ones, in the order of first rows."""
    with threadpool_limits(1), warnings.catch_warnings():  # one thread: the same clusters on every machine
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        membership = KMeans(n_clusters, n_init=1, random_state=seed).fit_predict(X)  # type: ignore[arg-type]
    _, first, cluster = np.unique(membership, return_index=True, return_inverse=True)
    groups = np.split(np.argsort(cluster, kind="stable"), np.cumsum(np.bincount(cluster))[:-1])
    return [groups[index] for index in np.argsort(first)]
