"""Choices that look at nothing: the rows as they come, at random, and as somebody else chose."""

from dataclasses import dataclass
from typing import final

import numpy as np

from tutelage._typing import IntArray
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
