"""Which public rows to ask, by what is public alone: in order, at random, typical, doubtful, balanced.

Rows that stand for a cluster are typical, so teachers agree on them and noise seldom turns their labels around; and
together they cover the public rows, so a student that learns from unlabeled rows knows the rest by their neighbors.
The rule that asks what the student is least sure of is that of Papernot et al. 2017, Appendix B.2.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, cast, final

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from tutelage._internal.records import by_keywords, frozen
from tutelage._internal.threads import one_thread
from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray, Mask, Matrix, Named
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError

__all__ = [
    "SELECTORS",
    "FirstRows",
    "GivenRows",
    "LeastConfident",
    "Medoids",
    "PublicKnowledge",
    "QuerySelector",
    "RandomRows",
    "class_balanced",
    "selector_named",
]
SEEDS = 2**32


@final
@by_keywords
class PublicKnowledge:
    """All that is public before the next queries are chosen, so that the choice gives nothing away.

    Parameters
    ----------
    X : array of shape (rows, ...)
        Public rows: the pool.
    labels : integer array of shape (rows,)
        Released class index of each query with a label, else −1. The budget of all of them is spent.
    asked : mask of shape (rows,)
        True for earlier queries; they are not chosen again.
    probabilities : array of shape (rows, classes), optional
        What a student of the released labels predicts; None before there is one.

    Raises
    ------
    InvalidDataError
        If the shapes do not fit each other, or a label is of a row that was not asked.
    """

    X: Matrix = field(repr=False)
    labels: IntArray = field(repr=False)
    asked: Mask = field(repr=False)
    probabilities: FloatArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        rows = len(self.X)
        fits = self.labels.shape == self.asked.shape == (rows,) and self.asked.dtype == bool
        if self.probabilities is not None:
            fits = fits and self.probabilities.ndim == 2 and len(self.probabilities) == rows
        if not fits:
            raise InvalidDataError(
                "PublicKnowledge must hold one label, one mark (a bool) and one row of probabilities per public row, "
                f"of {rows} rows."
            )
        if np.any(self.answered & ~self.asked):
            raise InvalidDataError(
                "`labels` of PublicKnowledge must be -1 wherever `asked` is false: such a label was never released."
            )
        # A rule that wrote into them would change what is asked.
        for name in ("X", "labels", "asked", "probabilities"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))

    @classmethod
    def before(cls, X: Matrix) -> "PublicKnowledge":
        """Return what is known before anything was asked: the rows."""
        return cls(
            X=X,
            labels=np.full(len(X), ABSTAIN, dtype=np.int64),
            asked=np.zeros(len(X), dtype=bool),
        )

    @property
    def answered(self) -> Mask:
        """Mask of shape (rows,): which rows have a released label."""
        return self.labels != ABSTAIN

    @property
    def n_released_classes(self) -> int:
        """How many different classes the released labels are of."""
        return len(np.unique(self.labels[self.answered]))

    def after(self, rows: IntArray, labels: IntArray) -> "PublicKnowledge":
        """Return the knowledge after these queries got these released class indices; it contains no student.

        Rows and labels have the shape (queries,); a label is −1 where there was no answer.
        """
        all_labels = self.labels.copy()
        asked = self.asked.copy()
        all_labels[rows] = labels
        asked[rows] = True
        return PublicKnowledge(X=self.X, labels=all_labels, asked=asked)

    @property
    def open(self) -> IntArray:
        """Row numbers that were not asked yet."""
        return np.flatnonzero(~self.asked)


def _read_only(values: Matrix | None) -> Matrix | None:
    if values is None:
        return None
    view = values.view()
    view.flags.writeable = False
    return view


class QuerySelector(ABC):
    """A rule by which public rows are chosen to be asked; its fields are public parameters.

    It sees `PublicKnowledge` and nothing that holds a vote: a choice by public things costs no privacy. To write one,
    subclass it as a frozen dataclass and define `_choose`.
    """

    __slots__ = ()
    # Whether it goes by earlier answers, so cannot choose the first rows.
    needs_answers: ClassVar[bool] = False
    needs_student: ClassVar[bool] = False  # whether it goes by a student's probabilities

    def ready(self, known: PublicKnowledge) -> bool:
        """Return whether enough is known to choose by this rule: for one that needs answers, two classes of them."""
        return not self.needs_answers or known.n_released_classes >= 2

    def check(self, X: Matrix, n_classes: int) -> None:  # noqa: B027  most rules have nothing to refuse
        """Refuse, before anything is spent, public rows or a number of classes that the rule could not work with.

        Raises
        ------
        InvalidParameterError
            If a setting of the rule does not suit them.
        """

    @final
    def select(
        self,
        known: PublicKnowledge,
        n_queries: int,
        seed: int,
    ) -> IntArray:
        """Return the row numbers to ask next, the most wanted first; shape (n_queries,).

        Parameters
        ----------
        known : PublicKnowledge
            What is public so far.
        n_queries : int
            How many rows to choose.
        seed : int
            Of whatever the rule draws at random.

        Raises
        ------
        InvalidDataError
            If fewer rows are left than are to be chosen, the rule needs a student or released labels and there are none
            yet, or a rule of your own chose something else than that many open rows.
        """
        integer_at_least(n_queries, 1, "n_queries", type(self).__name__)
        integer_at_least(seed, 0, "seed", type(self).__name__)
        if n_queries > len(known.open):
            raise InvalidDataError(
                f"{type(self).__name__} must choose among rows that were not asked yet. Got {n_queries} queries for "
                f"{len(known.open)} such rows."
            )
        chosen = np.asarray(self._choose(known, n_queries, np.random.default_rng(seed)))
        fits = chosen.shape == (n_queries,) and chosen.dtype.kind in "iu"
        if not fits or len(np.intersect1d(chosen, known.open)) != n_queries:
            raise InvalidDataError(
                f"{type(self).__name__} must return {n_queries} distinct numbers of rows that were not asked yet. Fix "
                "its `_choose`."
            )
        return chosen

    @abstractmethod
    def _choose(
        self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator
    ) -> IntArray:
        """Return distinct row numbers among `known.open`, shape (n_queries,)."""


@final
@frozen
class FirstRows(QuerySelector):
    """Ask the rows in the order in which they are given."""

    def _choose(
        self,
        known: PublicKnowledge,
        n_queries: int,
        generator: np.random.Generator,  # noqa: ARG002
    ) -> IntArray:
        return known.open[:n_queries]


@final
@frozen
class RandomRows(QuerySelector):
    """Ask rows drawn at random, each as likely as any other: the baseline of every other rule."""

    def _choose(
        self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator
    ) -> IntArray:
        return generator.permutation(known.open)[:n_queries]


@final
@frozen
class GivenRows(QuerySelector):
    """Ask rows that were chosen before, in that order. They must have been chosen from public data only.

    Parameters
    ----------
    rows : tuple of int
        Row numbers.
    """

    rows: tuple[int, ...]

    def _choose(
        self,
        known: PublicKnowledge,
        n_queries: int,
        generator: np.random.Generator,  # noqa: ARG002
    ) -> IntArray:
        open_rows = set(known.open.tolist())
        left = [row for row in dict.fromkeys(self.rows) if row in open_rows]
        if len(left) < n_queries:
            raise InvalidDataError(
                f"`rows` of GivenRows must hold at least {n_queries} distinct numbers of rows that were not asked yet. "
                f"Got {len(left)}."
            )
        return np.array(left[:n_queries], dtype=np.int64)


@final
@frozen
class LeastConfident(QuerySelector):
    """Ask the rows with the smallest probability of their likeliest class first, by the student of earlier labels.

    Teachers disagree on such rows more often than on others, so released labels are more often wrong.
    """

    needs_answers: ClassVar[bool] = True
    needs_student: ClassVar[bool] = True

    def _choose(
        self,
        known: PublicKnowledge,
        n_queries: int,
        generator: np.random.Generator,  # noqa: ARG002
    ) -> IntArray:
        if known.probabilities is None:
            raise InvalidDataError(
                "LeastConfident needs the probabilities that a student predicts. Ask a first batch by another rule, "
                "such as Medoids, and train a student on its answers."
            )
        confidence = known.probabilities[known.open].max(axis=1)
        if not np.all(np.isfinite(confidence)):
            raise InvalidDataError("`probabilities` for LeastConfident must be finite.")
        return known.open[np.argsort(confidence, kind="stable")[:n_queries]]


def class_balanced(
    known: PublicKnowledge,
    per_class: int,
    *,
    seed: int,
) -> IntArray:
    """Return row numbers of a subset with `per_class` rows of every released class, in ascending order.

    To choose by label is to look at labels, also at those of rows that are then left out. So it is refused while there
    is a row that was not asked: pass only rows that were.

    Parameters
    ----------
    known : PublicKnowledge
        Public rows and their released labels. Queries without a label are left out.
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
            f"class_balanced needs the label of every row, and {len(known.open)} rows of `known` were not asked. Ask "
            "them too, or leave them out."
        )
    classes, counts = np.unique(known.labels[known.answered], return_counts=True)
    fewest = min(counts.tolist(), default=0)
    if fewest < per_class:
        raise InvalidDataError(
            f"`per_class` of class_balanced must be at most the {fewest} answers of the rarest released class. Got "
            f"{per_class}."
        )
    shuffled = np.random.default_rng(seed).permutation(len(known.X))
    labels = known.labels[shuffled]
    chosen = [shuffled[labels == label][:per_class] for label in classes]
    return np.sort(np.concatenate(chosen))


@frozen
class Medoids(QuerySelector):
    """Ask the rows nearest the centers of k-means clusters, largest cluster first.

    There are as many clusters as rows asked before and now together, so enough of them hold none that was asked before.
    Rows near one that was asked before are not asked: what it covers is known. Where equal rows leave fewer clusters
    than queries, the others are drawn at random.
    """

    def _choose(
        self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator
    ) -> IntArray:
        X = flat_rows(known.X, type(self).__name__)
        n_clusters = n_queries + int(known.asked.sum())
        clusters = _clusters(X, n_clusters, int(generator.integers(SEEDS)))
        uncovered = [rows for rows in clusters if not known.asked[rows].any()]
        # Stable: clusters of one size stay in the order of their first rows.
        uncovered.sort(key=len, reverse=True)
        medoids = [rows[self._representative(X[rows])] for rows in uncovered[:n_queries]]
        chosen = np.array(medoids, dtype=np.int64)
        # Rows that are equal can leave fewer clusters than queries.
        others = generator.permutation(np.setdiff1d(known.open, chosen))
        return np.concatenate([chosen, others[: n_queries - len(chosen)]])

    def _representative(self, X: FloatArray) -> int:
        """Return which of the rows of one cluster, shape (rows, features), represents it."""
        return int(np.square(X - X.mean(axis=0)).sum(axis=1).argmin())


def flat_rows(X: Matrix, owner: str) -> FloatArray:
    """Return the rows as finite numbers of shape (rows, features)."""
    try:
        rows = np.array(X, dtype=np.float64).reshape(len(X), -1)
    except (TypeError, ValueError):
        rows = np.full((1, 1), np.nan)
    if not np.all(np.isfinite(rows)):
        raise InvalidDataError(
            f"{owner} needs public rows of finite numbers. Give it their features."
        )
    return rows


def _clusters(
    X: FloatArray,
    n_clusters: int,
    seed: int,
) -> list[IntArray]:
    """Return the row numbers of each cluster that k-means finds, without empty ones, in the order of first rows."""
    with one_thread(), warnings.catch_warnings():  # one thread: the same clusters on every machine
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        clustering = KMeans(n_clusters, n_init=1, random_state=seed)  # type: ignore[arg-type]
        membership = cast("IntArray", clustering.fit_predict(X))
    _, first, cluster = np.unique(membership, return_index=True, return_inverse=True)
    ends = np.cumsum(np.bincount(cluster))[:-1]
    groups = np.split(np.argsort(cluster, kind="stable"), ends)
    return [groups[index] for index in np.argsort(first)]


SELECTORS: Mapping[str, Named[QuerySelector]] = {
    "first": Named(FirstRows, "rows in order"),
    "random": Named(RandomRows, "rows drawn at random"),
    "medoids": Named(
        Medoids, "the row nearest the center of each k-means cluster, large clusters first"
    ),
    "least-confident": Named(
        LeastConfident, "what the student of earlier answers is least sure of"
    ),
}


def selector_named(name: str, owner: str = "") -> QuerySelector:
    """Return the rule of this name, with its default settings; `owner` is what has it as `selection`, for errors.

    Raises
    ------
    InvalidParameterError
        If the name is unknown; the message lists the known names.
    """
    if name not in SELECTORS:
        raise InvalidParameterError(
            f"{owner}.selection",
            f"be one of {', '.join(SELECTORS)}",
            f"{name!r}",
            "To choose by label, see `class_balanced`: the labels must be released first.",
        )
    return SELECTORS[name]()
