"""Public feature maps: what turns private values into numbers is fixed, or learned from public rows only."""

from tutelage.features.base import FeatureMap, PublicFeatureMap, PublicRows
from tutelage.features.columns import UNKNOWN, PublicColumns

__all__ = ["UNKNOWN", "FeatureMap", "PublicColumns", "PublicFeatureMap", "PublicRows"]
