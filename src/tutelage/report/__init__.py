"""What may be filed: built from public epsilons, events and released data only."""

from tutelage.report.card import PrivacyCard

__all__ = ["PrivacyCard"]
