"""Contract suites for those who write their own parts, and faulty mechanisms that the suites must reject."""

from tutelage.testing.contract import MechanismContract
from tutelage.testing.faulty import faulty_mechanisms, right_controls
from tutelage.testing.laws import label_law

__all__ = ["MechanismContract", "faulty_mechanisms", "label_law", "right_controls"]
