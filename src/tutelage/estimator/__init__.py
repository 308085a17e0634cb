"""PATE as scikit-learn estimators: private rows and public rows or a schema in, a publishable student out.

Names are loaded on first use, because scikit-learn takes a second to load.
"""

from typing import TYPE_CHECKING

from tutelage._internal import on_first_use

if TYPE_CHECKING:
    from tutelage.estimator.classifier import PATEClassifier as PATEClassifier
    from tutelage.estimator.regressor import PATERegressor as PATERegressor

_HOME = {
    "PATEClassifier": "classifier",
    "PATERegressor": "regressor",
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = on_first_use(__name__, _HOME)
