"""Data sets of the papers' experiments, each with its public description and its split."""

from collections.abc import Mapping
from typing import Any

from tutelage._internal.names import Named
from tutelage.datasets.adult import AdultSplit, load_adult
from tutelage.datasets.diabetes import DiabetesSplit, HospitalStays, load_diabetes, split_by_patient
from tutelage.datasets.folders import ImageFiles, read_images
from tutelage.datasets.images import (
    ImageSplit,
    load_digits,
    load_fashion_mnist,
    load_mnist,
    load_svhn,
    load_svhn_sample,
)

# Names for configurations. Each returns an object with the fields of `AdultSplit`.
DATASETS: Mapping[str, Named[Any]] = {"adult": Named(load_adult, "UCI Adult, split as in PATE 2017")}

__all__ = [
    "DATASETS",
    "AdultSplit",
    "DiabetesSplit",
    "HospitalStays",
    "ImageFiles",
    "ImageSplit",
    "load_adult",
    "load_diabetes",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_svhn",
    "load_svhn_sample",
    "read_images",
    "split_by_patient",
]
