"""Rules for choosing queries that train nothing of their own: in order, at random, typical, doubtful, balanced.

Rows that stand for a cluster are typical, so teachers agree on them and noise seldom turns their labels around; and
together they cover the public rows, so a student that learns from unlabeled rows knows the rest by their neighbors.
The rule that asks what the student is least sure of is that of Papernot et al. 2017, Appendix B.2.
"""

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances
from threadpoolctl import threadpool_limits

from tutelage._typing import FloatArray, IntArray
from tutelage._validation import integer_at_least
from tutelage.exceptions import InvalidDataError
from tutelage.students.selection.base import PublicKnowledge, QuerySelector


@final
@dataclass(frozen=True, slots=True)
class FirstRows(QuerySelector):
    """Ask the rows in the order in which they are given."""

    def _choose(self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator) -> IntArray:  # noqa: ARG002
        return known.open[:n_queries]


@final
@dataclass(frozen=True, slots=True)
class RandomRows(QuerySelector):
    """Ask rows drawn at random, each as likely as any other: the baseline of every other rule."""

    def _choose(self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator) -> IntArray:
        return generator.permutation(known.open)[:n_queries]


@final
@dataclass(frozen=True, slots=True)
class GivenRows(QuerySelector):
    """Ask rows that were chosen before, in that order; whoever chose them looked at public things only.

    Parameters
    ----------
    rows : tuple of int
        Row numbers.
    """

    rows: tuple[int, ...]

    def _choose(self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator) -> IntArray:  # noqa: ARG002
        left_open = set(known.open.tolist())
        left = np.array([row for row in dict.fromkeys(self.rows) if row in left_open], dtype=np.int64)
        if len(left) < n_queries:
            raise InvalidDataError(
                f"`rows` of GivenRows must hold at least {n_queries} distinct numbers of rows that were not asked yet. "
                f"Got {len(left)}."
            )
        return left[:n_queries]


@final
@dataclass(frozen=True, slots=True)
class LeastConfident(QuerySelector):
    """Ask the rows with the smallest probability of their likeliest class first, by the student of earlier labels.

    Teachers disagree on such rows more often than on others, so released labels are more often wrong.
    """

    needs_answers: ClassVar[bool] = True
    needs_student: ClassVar[bool] = True

    def _choose(self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator) -> IntArray:  # noqa: ARG002
        if known.probabilities is None:
            raise InvalidDataError(
                "LeastConfident needs the probabilities that a student predicts. Ask a first batch by another rule, "
                "such as Medoids, and train a student on its answers."
            )
        confidence = known.probabilities[known.open].max(axis=1)
        if not np.all(np.isfinite(confidence)):
            raise InvalidDataError("`probabilities` for LeastConfident must be finite.")
        return known.open[np.argsort(confidence, kind="stable")[:n_queries]]


def class_balanced(known: PublicKnowledge, per_class: int, *, seed: int) -> IntArray:
    """Return row numbers of a subset with `per_class` rows of every released class, in ascending order.

    To choose by label is to look at labels, also at those of rows that are then left out. So it is refused while there
    is a row that was not asked: pass only rows that were.

    Parameters
    ----------
    known : PublicKnowledge
        Public rows and their released labels. Rows that were asked and not answered are left out.
    per_class : int
        Rows of each class.
    seed : int
        Of the choice among the rows of a class.

    Raises
    ------
    InvalidDataError
        If a row was not asked, or a class has fewer answers.

    Notes
    -----
    PATE 2017 trained on a class-balanced random subset of the labels. With noisy labels of a pool of 9,000 that takes
    9,000 queries, not 100.
    """
    integer_at_least(per_class, 1, "per_class", "class_balanced")
    if len(known.open) > 0:
        raise InvalidDataError(
            f"class_balanced looks at the label of every row, and {len(known.open)} rows of `known` were not asked, so "
            "not paid for. Ask them too, or leave them out."
        )
    classes, counts = np.unique(known.labels[known.answered], return_counts=True)
    fewest = int(counts.min()) if len(counts) > 0 else 0
    if fewest < per_class:
        raise InvalidDataError(
            f"`per_class` of class_balanced must be at most the {fewest} answers of the rarest released class. Got "
            f"{per_class}."
        )
    shuffled = np.random.default_rng(seed).permutation(len(known.X))
    return np.sort(np.concatenate([shuffled[known.labels[shuffled] == value][:per_class] for value in classes]))


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
