"""Rules that ask what experts, or a siamese network, cannot settle (PATE 2017, Appendix B.2), and TypiClust."""

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, cast, final

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from tutelage._internal.fitting import fit_clone
from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least, probability
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.selection import SEEDS, Medoids, PublicKnowledge, QuerySelector, flat_rows


@final
@dataclass(frozen=True, slots=True)
class SiameseSimilarity(QuerySelector):
    """Ask the rows that a siamese network is least sure to match with any labeled row; needs the torch extra.

    The authors of PATE found matches not confident enough to save queries.

    Parameters
    ----------
    same : {"class", "image"}
        What the network learns to recognize: two rows of one class, from the released labels, or one row in two
        versions (moved, or with jitter), from all public rows.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of the flattened rows, for a convolutional network. By default rows
        are features without an order.
    embedding : int
        Number of outputs of the network for a row, which are compared.
    steps : int
        Training steps.
    batch_size : int
        Pairs per step, half of them same.
    """

    needs_answers: ClassVar[bool] = True

    same: Literal["class", "image"] = "class"
    image_shape: tuple[int, ...] | None = None
    embedding: int = 32
    steps: int = 1000
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.same not in ("class", "image"):
            raise InvalidParameterError(
                "SiameseSimilarity.same", "be 'class' or 'image'", f"{self.same!r}"
            )
        for name in ("embedding", "steps"):
            integer_at_least(getattr(self, name), 1, name, "SiameseSimilarity")
        integer_at_least(self.batch_size, 2, "batch_size", "SiameseSimilarity")

    def check(self, X: npt.NDArray[Any], n_classes: int) -> None:  # noqa: ARG002
        """Refuse images of another shape, and work without the torch extra (ModuleNotFoundError)."""
        import_module("tutelage.networks")  # says how to get torch where it is missing

        n_features = X.reshape(len(X), -1).shape[1]
        if self.image_shape is not None and math.prod(self.image_shape) != n_features:
            raise InvalidParameterError(
                "SiameseSimilarity.image_shape",
                f"multiply to the {n_features} features of a row",
                f"{self.image_shape!r}",
            )

    def best_matches(self, known: PublicKnowledge, seed: int) -> tuple[FloatArray, IntArray]:
        """Return the probability of each row's best match among the labeled rows, and its label; both (rows,).

        Parameters
        ----------
        known, seed
            As in `QuerySelector.select`.

        Raises
        ------
        InvalidDataError
            If there are too few released labels, or the rows are no finite numbers.
        """
        from tutelage_reproductions.students.siamese import train_siamese

        X = flat_rows(known.X, "SiameseSimilarity")
        labels = known.labels[known.answered]
        if len(np.unique(labels)) < (2 if self.same == "class" else 1):
            raise InvalidDataError(
                f"SiameseSimilarity(same={self.same!r}) compares with labeled rows, of two classes at least if it is "
                "to learn from them. Ask a first batch by another rule, such as Medoids."
            )
        rows, groups = (
            (X[known.answered], labels) if self.same == "class" else (X, np.arange(len(X)))
        )
        network = train_siamese(
            rows,
            groups,
            image_shape=self.image_shape,
            embedding=self.embedding,
            steps=self.steps,
            batch_size=self.batch_size,
            seed=seed,
        )
        best, which = network.best_matches(X, X[known.answered])
        return best, labels[which]

    def _choose(
        self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator
    ) -> IntArray:
        best, _ = self.best_matches(known, int(generator.integers(SEEDS)))
        return known.open[np.argsort(best[known.open], kind="stable")[:n_queries]]


@final
@dataclass(frozen=True, slots=True)
class BinaryExperts(QuerySelector):
    """Ask the rows between classes: no expert claims them, and several do not reject them.

    One expert per class learns from the released labels to tell its class from all others. The candidate of a row is
    the class whose expert scores highest. A row is undecided if that score is low while several other experts score
    high. Undecided rows come first, then the others; each in the order of the candidate's score, the lowest first.

    Parameters
    ----------
    score_below : float
        The candidate's score of an undecided row lies below.
    others_above : float
        What other experts' scores must pass to count.
    at_least : int
        How many other experts' scores must pass it.
    estimator : scikit-learn classifier, optional
        Cloned for each expert; gives probabilities. Default: logistic regression on standardized features, strongly
        regularized, for experts that fit few labels closely are sure of every row.
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
                "BinaryExperts.at_least",
                f"be below the number of classes, {n_classes}",
                f"{self.at_least}",
            )
        if self.estimator is not None and not (
            is_classifier(self.estimator) and hasattr(self.estimator, "predict_proba")
        ):
            raise InvalidParameterError(
                "BinaryExperts.estimator",
                "be a scikit-learn classifier with `predict_proba`",
                f"a {type(self.estimator).__name__}",
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

    def _choose(
        self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator
    ) -> IntArray:
        scores = self._scores(known, int(generator.integers(SEEDS)))[known.open]
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
        estimator = self.estimator
        if estimator is None:
            estimator = make_pipeline(StandardScaler(), LogisticRegression(C=1e-3, max_iter=1000))
        with threadpool_limits(1):  # so few rows only make threads wait for each other
            experts = [
                fit_clone(estimator, X[known.answered], labels == own, seed) for own in classes
            ]
            return np.column_stack([expert.predict_proba(X)[:, 1] for expert in experts])


@final
@dataclass(frozen=True, slots=True)
class TypiClust(Medoids):
    """Ask the most typical row of each k-means cluster, largest cluster first [1]_.

    Like `Medoids`, but a cluster is represented by the row with the nearest neighbors: where rows are dense, also in a
    cluster that is no ball.

    Parameters
    ----------
    n_neighbors : int
        Typicality is the inverse of the mean distance to so many nearest rows of the same cluster, or to half of its
        rows where it has fewer than twice as many.

    References
    ----------
    .. [1] Hacohen, Dekel and Weinshall, "Active learning on a budget: opposite strategies suit high and low budgets",
       ICML 2022, arXiv:2202.02794, section 3.
    """

    n_neighbors: int = 20

    def __post_init__(self) -> None:
        integer_at_least(self.n_neighbors, 1, "n_neighbors", "TypiClust")

    def _representative(self, X: FloatArray) -> int:
        n_neighbors = max(1, min(self.n_neighbors, len(X) // 2))
        # The first is the row itself.
        distances = cast("FloatArray", pairwise_distances(X))
        nearest = np.sort(distances, axis=1)[:, 1 : n_neighbors + 1]
        return int(nearest.sum(axis=1).argmin())
