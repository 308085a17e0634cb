"""Contract suites for those who write their own parts."""

from tutelage.testing.contract import MechanismContract
from tutelage.testing.laws import label_law

__all__ = ["MechanismContract", "label_law"]
