"""Each entity perturbs its own vote before it leaves the house: nobody else need be trusted."""

from tutelage.mechanisms.local.base import ClassResponse, LocalMechanism
from tutelage.mechanisms.local.decoding import (
    Decoder,
    count_reports,
    decode,
    invert_channel,
    maximise_likelihood,
    plurality_threshold,
)
from tutelage.mechanisms.local.gaussian import LocalGaussian
from tutelage.mechanisms.local.randomized_response import KRandomizedResponse
from tutelage.mechanisms.local.truncated_geometric import TruncatedGeometric, TruncatedGeometricAsPrinted

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
    "maximise_likelihood",
    "plurality_threshold",
]
