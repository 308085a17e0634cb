"""Accuracy and agreement of the teachers (Figures 2 and 3 of PATE 2017), for the data set owner only.

Accuracies and gaps are functions of the private votes without any noise. Publishing one, tuning a threshold by it or
stopping at it leaks what no ε here accounts for; so they come in a type that prints nothing until it is revealed.
"""

from typing import final

import numpy as np
from numpy.typing import ArrayLike

from tutelage._internal.records import frozen
from tutelage._internal.typing import ABSTAIN, Ballots, FloatArray, IntArray, Mask, NeverPickled
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError


@final
@frozen
class RevealedStatistics:
    """Statistics of the teachers on labeled rows; private."""

    accuracies: FloatArray
    plurality: float
    gaps: FloatArray


@final
class PrivateStatistics(NeverPickled):
    """Statistics of the teachers, shut until `reveal` is called.

    Parameters
    ----------
    ballots : integer array of shape (teachers, rows)
        Class index per teacher and row, or −1.
    labels : integer array of shape (rows,)
        The right class index of each row.
    n_classes : int
        Number of classes.
    """

    __slots__ = ("_ballots", "_labels", "_n_classes")

    def __init__(self, ballots: ArrayLike, labels: ArrayLike, n_classes: int) -> None:
        self._n_classes = integer_at_least(n_classes, 2, "n_classes", "PrivateStatistics")
        self._ballots: Ballots = np.asarray(ballots)
        self._labels: IntArray = np.asarray(labels)
        if (
            self._ballots.ndim != 2
            or len(self._ballots) == 0
            or self._labels.shape != self._ballots.shape[1:]
        ):
            raise InvalidDataError(
                "Ballots must be of shape (teachers, rows), of at least one teacher, and labels of shape (rows,). Got "
                f"{self._ballots.shape} and {self._labels.shape}."
            )
        kinds = {self._ballots.dtype.kind, self._labels.dtype.kind}
        if not kinds <= {"i", "u"}:
            raise InvalidDataError(
                f"Ballots and labels must be class indices, which are integers. Got {self._ballots.dtype} and "
                f"{self._labels.dtype}."
            )

    def reveal(self) -> RevealedStatistics:
        """Return the statistics as plain values. Never publish them or choose parameters by them."""
        # ballots, voted, right: (teachers, rows); labels: (rows,); counts, ordered: (classes, rows)
        ballots = self._ballots
        labels = self._labels
        counts = np.stack([(ballots == label).sum(axis=0) for label in range(self._n_classes)])
        ordered = np.sort(counts, axis=0)
        is_plurality: Mask = counts.argmax(axis=0) == labels
        voted = ballots != ABSTAIN
        right = (ballots == labels) & voted
        with np.errstate(invalid="ignore"):
            accuracies = right.sum(axis=1) / voted.sum(axis=1)
        return RevealedStatistics(
            accuracies=accuracies,
            plurality=float(np.mean(is_plurality)),
            gaps=(ordered[-1] - ordered[-2]) / len(ballots),
        )

    def __repr__(self) -> str:
        return f"PrivateStatistics(<hidden: private votes>, teachers={len(self._ballots)}, rows={len(self._labels)})"

    def __format__(self, spec: str) -> str:
        return repr(self)
