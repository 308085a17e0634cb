"""The protocol of PATE 2017 on MNIST: 9,000 test images are public, 1,000 are kept for scoring the student."""

from typing import NamedTuple

import numpy as np

from tutelage._typing import IntArray

HELD_OUT = 1_000
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
