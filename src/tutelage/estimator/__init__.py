"""PATE as one scikit-learn estimator: private rows and public rows in, a publishable student out."""

from tutelage.estimator.classifier import FEW_VOTES_LEFT, PATEClassifier

__all__ = ["FEW_VOTES_LEFT", "PATEClassifier"]
