"""Data sets of the papers' experiments, each with its public description and its split."""

from tutelage.datasets.adult import AdultSplit, load_adult

__all__ = ["AdultSplit", "load_adult"]
