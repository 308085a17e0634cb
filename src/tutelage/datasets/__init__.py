"""Data sets of the papers' experiments, each with its public description and its split."""

from tutelage.datasets.adult import AdultSplit, load_adult
from tutelage.datasets.images import (
    ImageSplit,
    load_digits,
    load_fashion_mnist,
    load_mnist,
    load_svhn,
    load_svhn_sample,
)

__all__ = [
    "AdultSplit",
    "ImageSplit",
    "load_adult",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_svhn",
    "load_svhn_sample",
]
