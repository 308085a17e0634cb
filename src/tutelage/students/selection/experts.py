"""Ask what a collection of binary experts is undecided about (Papernot et al. 2017, Appendix B.2)."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from tutelage._internal.fitting import fit_clone
from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least, probability
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.selection.rules import PublicKnowledge, QuerySelector, flat_rows

_SEEDS = 2**32


@final
@dataclass(frozen=True, slots=True)
class BinaryExperts(QuerySelector):
    """Ask the rows between classes: no expert claims them, and several do not reject them.

    One expert per class learns from the released labels to tell its class from all others. The candidate of a row is
    the class whose expert scores highest. A row is undecided if that score is low while several other experts score
    high. Undecided rows are asked first, then the others; each in the order of the candidate's score, the lowest first.

    Parameters
    ----------
    score_below : float
        The candidate's score of an undecided row lies below.
    others_above : float
        What other experts' scores must pass to count.
    at_least : int
        How many other experts' scores must pass it.
    estimator : scikit-learn classifier, optional
        Cloned for each expert; gives probabilities. Default: logistic regression on standardised features, strongly
        regularised, for experts that fit few labels closely are sure of every row.
    """

    needs_answers: ClassVar[bool] = True

    score_below: float = 0.9
    others_above: float = 0.1
    at_least: int = 4
    estimator: Any = None

    def __post_init__(self) -> None:
        probability(self.score_below, "score_below", "BinaryExperts")
        probability(self.others_above, "others_above", "BinaryExperts")
        integer_at_least(self.at_least, 1, "at_least", "BinaryExperts")

    def ready(self, known: PublicKnowledge) -> bool:
        """Return whether there are answers of enough classes for so many experts to disagree."""
        return known.n_released_classes > self.at_least

    def check(self, X: npt.NDArray[Any], n_classes: int) -> None:  # noqa: ARG002
        """Refuse more disagreeing experts than there are classes besides one, and estimators without probabilities."""
        if self.at_least >= n_classes:
            raise InvalidParameterError(
                f"`at_least` of BinaryExperts must be below the number of classes, {n_classes}. Got {self.at_least}."
            )
        if self.estimator is not None and not (
            is_classifier(self.estimator) and hasattr(self.estimator, "predict_proba")
        ):
            raise InvalidParameterError(
                "`estimator` of BinaryExperts must be a scikit-learn classifier with `predict_proba`. Got a "
                f"{type(self.estimator).__name__}."
            )

    def undecided(self, known: PublicKnowledge, seed: int) -> npt.NDArray[np.bool_]:
        """Return which rows, asked or not, the experts are undecided about; shape (rows,).

        Parameters
        ----------
        known, seed
            As in `QuerySelector.select`.

        Raises
        ------
        InvalidDataError
            If there are too few classes among the released labels, or the rows are no finite numbers.
        """
        return self._among(self._scores(known, seed))

    def _choose(self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator) -> IntArray:
        scores = self._scores(known, int(generator.integers(_SEEDS)))[known.open]
        order = np.lexsort((scores.max(axis=1), ~self._among(scores)))
        return known.open[order[:n_queries]]

    def _among(self, scores: FloatArray) -> npt.NDArray[np.bool_]:
        ascending = np.sort(scores, axis=1)
        others = np.sum(ascending[:, :-1] > self.others_above, axis=1)
        return (ascending[:, -1] < self.score_below) & (others >= self.at_least)

    def _scores(self, known: PublicKnowledge, seed: int) -> FloatArray:
        """Return each expert's probability of its own class, shape (rows, classes with a released label)."""
        labels = known.labels[known.answered]
        classes = np.unique(labels)
        if len(classes) <= self.at_least:
            raise InvalidDataError(
                f"BinaryExperts(at_least={self.at_least}) needs released labels of more than {self.at_least} classes, "
                f"one expert each. Got {len(classes)}. Ask a first batch by another rule, such as Medoids, or lower "
                "`at_least`."
            )
        X = flat_rows(known.X, "BinaryExperts")
        estimator = _default_expert() if self.estimator is None else self.estimator
        with threadpool_limits(1):  # so few rows only make threads wait for each other
            experts = [fit_clone(estimator, X[known.answered], labels == own, seed) for own in classes]
            return np.column_stack([expert.predict_proba(X)[:, 1] for expert in experts])


def _default_expert() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(C=1e-3, max_iter=1000))
