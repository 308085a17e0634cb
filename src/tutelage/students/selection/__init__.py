"""Which public rows to ask: by what is public alone, so that the choice costs no privacy."""

from tutelage.students.selection.base import PublicKnowledge, QuerySelector
from tutelage.students.selection.experts import BinaryExperts
from tutelage.students.selection.rules import (
    FirstRows,
    GivenRows,
    LeastConfident,
    Medoids,
    RandomRows,
    TypiClust,
    class_balanced,
)
from tutelage.students.selection.siamese import SiameseSimilarity

__all__ = [
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
]
