"""Ask what resembles no labeled row, by siamese networks (Papernot et al. 2017, Appendix B.2)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.selection.rules import SEEDS, PublicKnowledge, QuerySelector, flat_rows


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
            raise InvalidParameterError(f"`same` of SiameseSimilarity must be 'class' or 'image'. Got {self.same!r}.")
        for name in ("embedding", "steps"):
            integer_at_least(getattr(self, name), 1, name, "SiameseSimilarity")
        integer_at_least(self.batch_size, 2, "batch_size", "SiameseSimilarity")

    def check(self, X: npt.NDArray[Any], n_classes: int) -> None:  # noqa: ARG002
        """Refuse images of another shape, and work without the torch extra (ModuleNotFoundError)."""
        import tutelage.networks  # noqa: F401

        n_features = X.reshape(len(X), -1).shape[1]
        if self.image_shape is not None and math.prod(self.image_shape) != n_features:
            raise InvalidParameterError(
                f"`image_shape` of SiameseSimilarity must multiply to the {n_features} features of a row. Got "
                f"{self.image_shape!r}."
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
        from tutelage.students.networks.siamese import train_siamese

        X = flat_rows(known.X, "SiameseSimilarity")
        labels = known.labels[known.answered]
        if len(np.unique(labels)) < (2 if self.same == "class" else 1):
            raise InvalidDataError(
                f"SiameseSimilarity(same={self.same!r}) compares with labeled rows, of two classes at least if it is "
                "to learn from them. Ask a first batch by another rule, such as Medoids."
            )
        rows, groups = (X[known.answered], labels) if self.same == "class" else (X, np.arange(len(X)))
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

    def _choose(self, known: PublicKnowledge, n_queries: int, generator: np.random.Generator) -> IntArray:
        best, _ = self.best_matches(known, int(generator.integers(SEEDS)))
        return known.open[np.argsort(best[known.open], kind="stable")[:n_queries]]
