"""Each entity perturbs its own vote before sending it, so that no other member need be trusted."""

from tutelage.mechanisms.local.decoding import (
    Decoder,
    count_reports,
    decode,
    invert_channel,
    maximize_likelihood,
    plurality_threshold,
)
from tutelage.mechanisms.local.randomizers import (
    ClassResponse,
    KRandomizedResponse,
    LocalGaussian,
    LocalMechanism,
    TruncatedGeometric,
    TruncatedGeometricAsPrinted,
)

__all__ = [
    "ClassResponse",
    "Decoder",
    "KRandomizedResponse",
    "LocalGaussian",
    "LocalMechanism",
    "TruncatedGeometric",
    "TruncatedGeometricAsPrinted",
    "count_reports",
    "decode",
    "invert_channel",
    "maximize_likelihood",
    "plurality_threshold",
]
