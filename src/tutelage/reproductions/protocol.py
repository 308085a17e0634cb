"""What several reproductions share: the splits of PATE 2017 on MNIST, and the votes that its authors published."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tutelage._typing import IntArray
from tutelage.datasets.sources import VARIABLE, search_folders
from tutelage.exceptions import InvalidDataError

HELD_OUT = 1_000
# Of `ConsistencyStudent` on SVHN, wherever one is trained here.
SVHN_STUDENT: dict[str, Any] = {
    "confidence": 0.9,
    "robustness": 0.5,
    "batch_size": 32,
    "unlabelled_ratio": 4,
    "averaging": 0.995,
    "learning_rate": 2e-3,
    "bfloat16": True,
}
_VOTES = "pate2018_votes.npz"
_IMAGES = 10_000
_ORDER = 20170224  # seed of the shuffle


class Split(NamedTuple):
    """Row numbers of the test images."""

    name: str
    pool: IntArray  # public, without labels
    held_out: IntArray


def paper_split(n_images: int = _IMAGES, held_out: int = HELD_OUT) -> Split:
    """Return the split of the paper: the last images are held out."""
    rows = np.arange(n_images)
    return Split("test[9000:]", rows[:-held_out], rows[-held_out:])


def shuffled_folds(count: int = 5, n_images: int = _IMAGES, held_out: int = HELD_OUT) -> list[Split]:
    """Return splits whose held-out images are drawn at random and disjoint: one thousand resolve ±0.4 points only."""
    order = np.random.default_rng(_ORDER).permutation(n_images)
    parts = [np.sort(order[fold * held_out : (fold + 1) * held_out]) for fold in range(count)]
    return [Split(f"fold {fold}", np.setdiff1d(order, part), part) for fold, part in enumerate(parts)]


def published_votes() -> Path:
    """Return the file of the votes that the authors of PATE published, counts of 250 teachers on MNIST and SVHN.

    Raises
    ------
    InvalidDataError
        If it is in none of the folders that are searched.
    """
    folders = search_folders(None)
    for folder in folders:
        if (folder / _VOTES).is_file():
            return folder / _VOTES
    searched = ", ".join(str(folder) for folder in folders)
    raise InvalidDataError(
        f"{_VOTES}, the votes that the authors of PATE published, is in none of {searched}. Put it into one, or name "
        f"its folder in {VARIABLE}."
    )
