"""What may be filed: built from public epsilons, events and released data only."""

from tutelage.report.card import PrivacyCard
from tutelage.report.evidence import Batch, ClassAccuracy, FrontierPoint
from tutelage.report.reading import read_card
from tutelage.report.statements import STATEMENTS

__all__ = ["STATEMENTS", "Batch", "ClassAccuracy", "FrontierPoint", "PrivacyCard", "read_card"]
