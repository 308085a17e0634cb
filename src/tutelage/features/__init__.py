"""Public feature maps: what turns private values into numbers is fixed, or learned from public rows only."""

from tutelage.features.base import FeatureMap, PublicFeatureMap, PublicRows, require_public_map
from tutelage.features.columns import UNKNOWN, PublicColumns
from tutelage.features.fixed import OneHotColumns, ScaledColumns
from tutelage.features.glyphs import DeskewedImages, GlyphGradients
from tutelage.features.learned import (
    NeighbourWhitening,
    PublicClusters,
    PublicDiffusion,
    PublicPCA,
    neighbour_covariance,
)
from tutelage.features.recipes import glyph_features

__all__ = [
    "UNKNOWN",
    "DeskewedImages",
    "FeatureMap",
    "GlyphGradients",
    "NeighbourWhitening",
    "OneHotColumns",
    "PublicClusters",
    "PublicColumns",
    "PublicDiffusion",
    "PublicFeatureMap",
    "PublicPCA",
    "PublicRows",
    "ScaledColumns",
    "glyph_features",
    "neighbour_covariance",
    "require_public_map",
]
