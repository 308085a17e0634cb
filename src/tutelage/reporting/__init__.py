"""The privacy card and what is made of it: from public epsilons, events and released data only."""

from tutelage.reporting.card import PrivacyCard
from tutelage.reporting.evidence import Batch, ClassAccuracy, FrontierPoint
from tutelage.reporting.reading import read_card
from tutelage.reporting.record import STATEMENTS

__all__ = ["STATEMENTS", "Batch", "ClassAccuracy", "FrontierPoint", "PrivacyCard", "read_card"]
