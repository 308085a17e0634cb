"""Vote histogram to released label, plus the event that says what was done."""

from tutelage.mechanisms.base import Mechanism, Release
from tutelage.mechanisms.confident import ConfidentGNMax, InteractiveGNMax
from tutelage.mechanisms.noisy_argmax import (
    CappedGNMax,
    ExponentialMax,
    GNMax,
    LNMax,
    PermuteAndFlip,
)
from tutelage.mechanisms.noisy_sum import NoisySum

__all__ = [
    "CappedGNMax",
    "ConfidentGNMax",
    "ExponentialMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "Mechanism",
    "NoisySum",
    "PermuteAndFlip",
    "Release",
]
