"""A subset with as many rows of each class, by labels that were all paid for."""

import numpy as np

from tutelage._typing import IntArray
from tutelage._validation import integer_at_least
from tutelage.exceptions import InvalidDataError
from tutelage.students.selection.base import PublicKnowledge


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
