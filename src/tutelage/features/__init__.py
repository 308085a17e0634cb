"""Public feature maps: what turns private values into numbers is fixed, or learned from public rows only."""

from tutelage.features.base import (
    FeatureMap,
    PublicFeatureMap,
    PublicRows,
    check_row_by_row,
    features_of_private,
    require_public_map,
)
from tutelage.features.columns import UNKNOWN, PublicColumns
from tutelage.features.fixed import OneHotColumns, ScaledColumns
from tutelage.features.glyphs import DeskewedImages, GlyphGradients, glyph_features
from tutelage.features.learned import (
    NeighbourWhitening,
    PublicClusters,
    PublicCovariance,
    PublicDiffusion,
    PublicPCA,
    PublicProjection,
    PublicSteps,
    neighbour_covariance,
)

__all__ = [
    "UNKNOWN",
    "DeskewedImages",
    "FeatureMap",
    "GlyphGradients",
    "NeighbourWhitening",
    "OneHotColumns",
    "PublicClusters",
    "PublicColumns",
    "PublicCovariance",
    "PublicDiffusion",
    "PublicFeatureMap",
    "PublicPCA",
    "PublicProjection",
    "PublicRows",
    "PublicSteps",
    "ScaledColumns",
    "check_row_by_row",
    "features_of_private",
    "glyph_features",
    "neighbour_covariance",
    "require_public_map",
]
