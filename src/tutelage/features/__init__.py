"""Public feature maps: what turns private values into numbers is fixed, or learned from public rows only."""

from tutelage.features.base import (
    FeatureMap,
    PublicFeatureMap,
    PublicRows,
    check_row_by_row,
    features_of_private,
    require_public_map,
)
from tutelage.features.cells import UNKNOWN
from tutelage.features.columns import PublicColumns
from tutelage.features.fitted import PublicEncoder, PublicTransformer
from tutelage.features.images import EdgesAndLevels, image_features
from tutelage.features.landmarks import PublicKernel, UnitBall, ballot_features
from tutelage.features.learned import PublicPCA, PublicProjection, PublicScaling, PublicSteps
from tutelage.features.named import FEATURE_MAPS
from tutelage.features.texts import text_features

__all__ = [
    "FEATURE_MAPS",
    "UNKNOWN",
    "EdgesAndLevels",
    "FeatureMap",
    "PublicColumns",
    "PublicEncoder",
    "PublicFeatureMap",
    "PublicKernel",
    "PublicPCA",
    "PublicProjection",
    "PublicRows",
    "PublicScaling",
    "PublicSteps",
    "PublicTransformer",
    "UnitBall",
    "ballot_features",
    "check_row_by_row",
    "features_of_private",
    "image_features",
    "require_public_map",
    "text_features",
]
