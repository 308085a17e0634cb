"""Public feature maps: what turns private values into numbers is fixed, or learned from public rows only.

Names are loaded on first use: a command that only reads a card or a ledger needs no scikit-learn.
"""

from typing import TYPE_CHECKING

from tutelage._internal import on_first_use

if TYPE_CHECKING:
    from tutelage.features.base import PublicFeatureMap as PublicFeatureMap
    from tutelage.features.base import PublicRows as PublicRows
    from tutelage.features.columns import LearnedMap as LearnedMap
    from tutelage.features.columns import PublicColumns as PublicColumns
    from tutelage.features.fitted import PublicEncoder as PublicEncoder
    from tutelage.features.fitted import PublicTransformer as PublicTransformer
    from tutelage.features.images import EdgesAndLevels as EdgesAndLevels
    from tutelage.features.images import image_features as image_features
    from tutelage.features.landmarks import PublicKernel as PublicKernel
    from tutelage.features.landmarks import UnitBall as UnitBall
    from tutelage.features.landmarks import ballot_features as ballot_features
    from tutelage.features.learned import PublicPCA as PublicPCA
    from tutelage.features.learned import PublicProjection as PublicProjection
    from tutelage.features.learned import PublicScaling as PublicScaling
    from tutelage.features.learned import PublicSteps as PublicSteps
    from tutelage.features.schema import Schema as Schema
    from tutelage.features.texts import text_features as text_features

_HOME = {
    "EdgesAndLevels": "images",
    "LearnedMap": "columns",
    "PublicColumns": "columns",
    "PublicEncoder": "fitted",
    "PublicFeatureMap": "base",
    "PublicKernel": "landmarks",
    "PublicPCA": "learned",
    "PublicProjection": "learned",
    "PublicRows": "base",
    "PublicScaling": "learned",
    "PublicSteps": "learned",
    "PublicTransformer": "fitted",
    "Schema": "schema",
    "UnitBall": "landmarks",
    "ballot_features": "landmarks",
    "image_features": "images",
    "text_features": "texts",
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = on_first_use(__name__, _HOME)
