"""The privacy card and what is made of it: from public epsilons, events and released data only."""

from tutelage.reporting.card import PrivacyCard
from tutelage.reporting.evidence import Batch, ClassAccuracy
from tutelage.reporting.reading import read_card

__all__ = ["Batch", "ClassAccuracy", "PrivacyCard", "read_card"]
