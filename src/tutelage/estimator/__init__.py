"""PATE as scikit-learn estimators: private rows and public rows or a schema in, a publishable student out."""

from tutelage.estimator.classifier import PATEClassifier
from tutelage.estimator.regressor import PATERegressor

__all__ = ["PATEClassifier", "PATERegressor"]
