"""Public feature maps: what turns private values into numbers is fixed, or learned from public rows only."""

from tutelage.features.base import PublicFeatureMap, PublicRows
from tutelage.features.columns import LearnedMap, PublicColumns
from tutelage.features.fitted import PublicEncoder, PublicTransformer
from tutelage.features.images import EdgesAndLevels, image_features
from tutelage.features.landmarks import PublicKernel, UnitBall, ballot_features
from tutelage.features.learned import PublicPCA, PublicProjection, PublicScaling, PublicSteps
from tutelage.features.schema import Schema
from tutelage.features.texts import text_features

__all__ = [
    "EdgesAndLevels",
    "LearnedMap",
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
    "Schema",
    "UnitBall",
    "ballot_features",
    "image_features",
    "text_features",
]
