"""Which public rows to ask: by what is public alone, so that the choice costs no privacy."""

from collections.abc import Mapping

from tutelage._internal.names import Named
from tutelage.exceptions import InvalidParameterError
from tutelage.students.selection.rules import (
    BinaryExperts,
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
SELECTORS: Mapping[str, Named[QuerySelector]] = {
    "first": Named(FirstRows, "rows in order"),
    "random": Named(RandomRows, "rows drawn at random"),
    "medoids": Named(Medoids, "the row nearest the center of each k-means cluster, large clusters first"),
    "typiclust": Named(TypiClust, "the row of each cluster that lies densest"),
    "least-confident": Named(LeastConfident, "what the student of earlier answers is least sure of"),
    "binary-experts": Named(BinaryExperts, "what one-against-all experts are undecided about"),
    "siamese": Named(SiameseSimilarity, "what a siamese network matches with no labeled row"),
}


def selector_named(name: str) -> QuerySelector:
    """Return the rule of this name, with its default settings.

    Raises
    ------
    InvalidParameterError
        If the name is unknown; the message lists the known names.
    """
    if name not in SELECTORS:
        raise InvalidParameterError(
            f"There is no rule {name!r} to choose queries by. There are: {', '.join(SELECTORS)}. To choose by label, "
            "see `class_balanced`: the labels must be released first."
        )
    return SELECTORS[name]()
