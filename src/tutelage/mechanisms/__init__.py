"""Vote histogram to released label, plus the event that says what was done."""

from tutelage.mechanisms.base import Mechanism, Release
from tutelage.mechanisms.noisy_argmax import GNMax, LNMax

__all__ = ["GNMax", "LNMax", "Mechanism", "Release"]
