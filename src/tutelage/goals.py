"""Goals: what a student is judged by, and what that says of how much each class counts in its predictions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

import numpy as np
import numpy.typing as npt
from sklearn.metrics import average_precision_score

from tutelage._internal.typing import ABSTAIN, FloatArray, IntArray
from tutelage.exceptions import InvalidParameterError, Problem, shown

_RECALL = re.compile(r"recall at (\d{1,2}(?:\.\d{1,6})?) %")
_LEAST_SHARE = 1e-6  # of a class


@final
@dataclass(frozen=True, slots=True, eq=False)
class ClassWeights:
    """How much each class counts in predictions; public."""

    given: FloatArray | None = None  # for each class; without it, classes count as if they were equally frequent

    def of(self, shares: FloatArray) -> FloatArray:
        """Return the weight of each class, by the shares of the classes in what was released."""
        return 1 / (len(shares) * np.maximum(shares, _LEAST_SHARE)) if self.given is None else self.given

    def of_labels(self, labels: IntArray, classes: npt.NDArray[Any]) -> dict[Any, float]:
        """Return the weight of each class value, by released labels: class indices, or −1."""
        counts = np.maximum(np.bincount(labels[labels != ABSTAIN], minlength=len(classes)), 1)
        return dict(zip(classes.tolist(), self.of(counts / counts.sum()).tolist(), strict=True))


@final
@dataclass(frozen=True, slots=True)
class Goal:
    """A measure by which a student is judged, a number from 0 to 1; public.

    Balanced accuracy is the mean over classes of the share of their rows that is right. Recall at k % is the share of
    the positive rows that is among the k % of rows with the largest chance of being positive.
    """

    name: str = "accuracy"
    positive: int = 1  # index of the positive class, where rows are ranked

    def __post_init__(self) -> None:
        known = ("accuracy", "balanced_accuracy", "average_precision")
        if not isinstance(self.name, str) or (self.name not in known and self._share == 0):
            raise InvalidParameterError(Problem("goal", f"be {', '.join(known)} or recall at k %", shown(self.name)))

    @property
    def _share(self) -> float:
        """Share of the rows among which positive ones are searched; 0 for other goals."""
        return float(found[1]) / 100 if (found := _RECALL.fullmatch(self.name)) else 0.0

    @property
    def title(self) -> str:
        """Its name as it is printed."""
        return self.name.replace("_", " ")

    @property
    def ranks(self) -> bool:
        """Whether only the order of the rows counts, by the chance of the positive class."""
        return self._share > 0 or self.name == "average_precision"

    def reached(self, truth: IntArray, scores: FloatArray, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return how much of the goal chances of classes reach, shape (rows, classes): the largest is predicted.

        A ranking of rows of which none is positive reaches nothing.
        """
        weights = np.ones(len(truth)) if sample_weight is None else np.asarray(sample_weight)
        if not self.ranks:
            right = weights * (scores.argmax(axis=1) == truth)
            if self.name == "accuracy":
                return float(right.sum() / weights.sum())
            of_class = np.bincount(truth, weights)
            there = of_class > 0
            return float(np.mean(np.bincount(truth, right)[there] / of_class[there]))
        positive, score = truth == self.positive, scores[:, self.positive]
        if not (weights * positive).any():
            return 0.0
        if not self._share:
            return float(average_precision_score(positive, score, sample_weight=weights))
        # Of rows with equal scores, as large a share is positive as of all of them.
        _, group = np.unique(-score, return_inverse=True)
        rows, found = (np.cumsum(np.bincount(group, one)) for one in (weights, weights * positive))
        return float(np.interp(self._share * rows[-1], [0, *rows], [0, *found]) / found[-1])

    def without_model(self, truth: IntArray) -> float:
        """Return what one answer for all rows reaches: for accuracy, the most frequent class."""
        counts = np.bincount(truth, minlength=self.positive + 1)
        if self.name == "balanced_accuracy":
            return 1 / int(np.count_nonzero(counts))
        return self._share or float((counts[self.positive] if self.ranks else counts.max()) / len(truth))

    def weights(self, class_weight: Mapping[Any, float] | None, classes: npt.NDArray[Any]) -> ClassWeights | None:
        """Return how much classes count, by the weights of some of them or else by the goal; None if alike."""
        if class_weight is None:
            return ClassWeights() if self.name == "balanced_accuracy" else None
        known = classes.tolist()
        good = isinstance(class_weight, Mapping) and all(value in known for value in class_weight)
        if not good or not all(isinstance(one, Real) and 0 < one < np.inf for one in class_weight.values()):
            raise InvalidParameterError(
                Problem(
                    "PATEClassifier.class_weight",
                    "map class values to positive numbers, as in {'yes': 10}",
                    shown(class_weight),
                    "Each key must be one of the classes.",
                )
            )
        return ClassWeights(np.array([float(class_weight.get(value, 1)) for value in known]))
