"""What a choice of queries may look at: public rows, released labels and a student made of them. Nothing else."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from tutelage._typing import ABSTAIN, FloatArray, IntArray
from tutelage._validation import integer_at_least
from tutelage.exceptions import InvalidDataError


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicKnowledge:
    """All that is public before the next queries are chosen, so that the choice gives nothing away.

    Parameters
    ----------
    X : array of shape (rows, ...)
        Public rows: the pool.
    labels : integer array of shape (rows,)
        Released class index of each row that was asked and answered, else −1. All were paid for when they were asked.
    asked : mask of shape (rows,)
        Which rows were asked before; they are not chosen again.
    probabilities : array of shape (rows, classes), optional
        What a student of the released labels predicts; None before there is one.

    Raises
    ------
    InvalidDataError
        If the shapes do not fit each other, or a label is of a row that was not asked.
    """

    X: npt.NDArray[Any] = field(repr=False)
    labels: IntArray = field(repr=False)
    asked: npt.NDArray[np.bool_] = field(repr=False)
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
                "`labels` of PublicKnowledge must be -1 wherever `asked` is false: nobody paid for it."
            )
        for name in ("X", "labels", "asked", "probabilities"):  # a rule that wrote into them would change what is asked
            object.__setattr__(self, name, _read_only(getattr(self, name)))

    @classmethod
    def before(cls, X: npt.NDArray[Any]) -> "PublicKnowledge":
        """Return what is known before anything was asked: the rows."""
        return cls(X=X, labels=np.full(len(X), ABSTAIN, dtype=np.int64), asked=np.zeros(len(X), dtype=np.bool_))

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Mask of shape (rows,): which rows have a released label."""
        return self.labels != ABSTAIN

    @property
    def n_released_classes(self) -> int:
        """How many different classes the released labels are of."""
        return len(np.unique(self.labels[self.answered]))

    def after(self, rows: IntArray, labels: IntArray) -> "PublicKnowledge":
        """Return what is known once these rows were asked and answered so; of a student, nothing.

        Parameters
        ----------
        rows : integer array of shape (queries,)
            Row numbers.
        labels : integer array of shape (queries,)
            Their released class indices, −1 where there was no answer.
        """
        all_labels, asked = self.labels.copy(), self.asked.copy()
        all_labels[rows], asked[rows] = labels, True
        return PublicKnowledge(X=self.X, labels=all_labels, asked=asked)

    @property
    def open(self) -> IntArray:
        """Row numbers that were not asked yet."""
        return np.flatnonzero(~self.asked)


def _read_only(values: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
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
    needs_answers: ClassVar[bool] = False  # whether it goes by earlier answers, so cannot choose the first rows
    needs_student: ClassVar[bool] = False  # whether it goes by a student's probabilities

    def ready(self, known: PublicKnowledge) -> bool:
        """Return whether enough is known to choose by this rule: for one that needs answers, two classes of them."""
        return not self.needs_answers or known.n_released_classes >= 2

    def check(self, X: npt.NDArray[Any], n_classes: int) -> None:  # noqa: B027  most rules have nothing to refuse
        """Refuse, before anything is spent, rows or a number of classes that the rule could not work with.

        Parameters
        ----------
        X : array of shape (rows, ...)
            Public rows.
        n_classes : int
            Number of classes that answers can be of.

        Raises
        ------
        InvalidParameterError
            If a setting of the rule does not suit them.
        """

    @final
    def select(self, known: PublicKnowledge, n_queries: int, seed: int) -> IntArray:
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
                f"{type(self).__name__} must return {n_queries} distinct numbers of rows that were not asked yet. Mend "
                "its `_choose`."
            )
        return chosen

    @abstractmethod
    def _choose(self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator) -> IntArray:
        """Return distinct row numbers among `known.open`, shape (n_queries,)."""
