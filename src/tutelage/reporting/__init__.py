"""The privacy card and what is made of it: from public epsilons, events and released data only."""

from tutelage.reporting.card import PrivacyCard, read_card
from tutelage.reporting.record import Batch, ClassAccuracy

__all__ = ["Batch", "ClassAccuracy", "PrivacyCard", "read_card"]
