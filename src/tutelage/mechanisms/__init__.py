"""Vote histogram to released label, plus the event that says what was done."""

from tutelage.mechanisms.base import Mechanism, Release
from tutelage.mechanisms.confident import ConfidentGNMax, InteractiveGNMax
from tutelage.mechanisms.local import (
    ClassResponse,
    Decoder,
    KRandomizedResponse,
    LocalGaussian,
    LocalMechanism,
    TruncatedGeometric,
    TruncatedGeometricAsPrinted,
    decode,
)
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
    "ClassResponse",
    "ConfidentGNMax",
    "Decoder",
    "ExponentialMax",
    "GNMax",
    "InteractiveGNMax",
    "KRandomizedResponse",
    "LNMax",
    "LocalGaussian",
    "LocalMechanism",
    "Mechanism",
    "NoisySum",
    "PermuteAndFlip",
    "Release",
    "TruncatedGeometric",
    "TruncatedGeometricAsPrinted",
    "decode",
]
