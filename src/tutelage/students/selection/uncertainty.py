"""Ask what the student is least sure of (Papernot et al. 2017, Appendix B.2)."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from tutelage._typing import IntArray
from tutelage.exceptions import InvalidDataError
from tutelage.students.selection.base import PublicKnowledge, QuerySelector


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
