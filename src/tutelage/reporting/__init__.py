"""The privacy card and what is made of it: from public epsilons, events and released data only."""

from tutelage.reporting.card import PrivacyCard, read_card
from tutelage.reporting.record import ClassAccuracy

__all__ = ["ClassAccuracy", "PrivacyCard", "read_card"]
