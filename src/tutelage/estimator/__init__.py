"""PATE as one scikit-learn estimator: private rows and public rows in, a publishable student out."""

from tutelage.estimator.classifier import PATEClassifier

__all__ = ["PATEClassifier"]
