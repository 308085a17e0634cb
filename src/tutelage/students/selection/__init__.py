"""Which public rows to ask: by what is public alone, so that the choice costs no privacy."""

from collections.abc import Callable

from tutelage.exceptions import InvalidParameterError
from tutelage.students.selection.experts import BinaryExperts
from tutelage.students.selection.rules import (
    FirstRows,
    GivenRows,
    LeastConfident,
    Medoids,
    PublicKnowledge,
    QuerySelector,
    RandomRows,
    TypiClust,
    class_balanced,
)
from tutelage.students.selection.siamese import SiameseSimilarity

__all__ = [
    "SELECTORS",
    "BinaryExperts",
    "FirstRows",
    "GivenRows",
    "LeastConfident",
    "Medoids",
    "PublicKnowledge",
    "QuerySelector",
    "RandomRows",
    "SiameseSimilarity",
    "TypiClust",
    "class_balanced",
    "selector_named",
]
SELECTORS: dict[str, Callable[[], QuerySelector]] = {
    "first": FirstRows,
    "random": RandomRows,
    "medoids": Medoids,
    "typiclust": TypiClust,
    "least-confident": LeastConfident,
    "binary-experts": BinaryExperts,
    "siamese": SiameseSimilarity,
}


def selector_named(name: str) -> QuerySelector:
    """Return the rule of this name, with its default settings.

    Raises
    ------
    InvalidParameterError
        If there is none; the message lists those that there are.
    """
    if name not in SELECTORS:
        raise InvalidParameterError(
            f"There is no rule {name!r} to choose queries by. There are: {', '.join(SELECTORS)}. To choose by label, "
            "see `class_balanced`: the labels must be paid for first."
        )
    return SELECTORS[name]()
