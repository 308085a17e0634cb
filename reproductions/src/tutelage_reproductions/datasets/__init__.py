"""Data sets of the papers' experiments besides Adult, each with its public description and its split."""

from tutelage_reproductions.datasets.diabetes import (
    DiabetesSplit,
    HospitalStays,
    load_diabetes,
    split_by_patient,
)
from tutelage_reproductions.datasets.images import (
    ImageSplit,
    load_digits,
    load_fashion_mnist,
    load_mnist,
    load_svhn,
    load_svhn_sample,
)

__all__ = [
    "DiabetesSplit",
    "HospitalStays",
    "ImageSplit",
    "load_diabetes",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_svhn",
    "load_svhn_sample",
    "split_by_patient",
]
