"""UCI Adult, which is bundled, with its public description and its split."""

from collections.abc import Mapping
from typing import Any

from tutelage._internal.typing import Named
from tutelage.datasets.adult import AdultSplit, load_adult

# Names for configurations. Each returns an object with the fields of `AdultSplit`.
DATASETS: Mapping[str, Named[Any]] = {
    "adult": Named(load_adult, "UCI Adult, split as in PATE 2017")
}

__all__ = ["AdultSplit", "load_adult"]
