"""Which public rows to ask: by what is public alone, so that the choice costs no privacy."""

from tutelage.students.selection.balance import class_balanced
from tutelage.students.selection.base import PublicKnowledge, QuerySelector
from tutelage.students.selection.experts import BinaryExperts
from tutelage.students.selection.orders import FirstRows, GivenRows, RandomRows
from tutelage.students.selection.representatives import Medoids, TypiClust
from tutelage.students.selection.siamese import SiameseSimilarity
from tutelage.students.selection.uncertainty import LeastConfident

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
