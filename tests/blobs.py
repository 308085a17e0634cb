"""Made-up rows of some classes, for tests of classifiers."""

import numpy as np


def blobs(n, seed, shift=1.2):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 4)) + shift * np.eye(4)[y], y


PRIVATE, LABELS = blobs(3000, 0)
PUBLIC, _ = blobs(400, 1)
TEST, TRUE = blobs(2000, 2)


def groups(sizes, seed=0):
    """Return groups of rows about the corners of a simplex, far apart, and the group of each row."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    return 8 * np.eye(len(sizes))[group] + np.random.default_rng(seed).random(
        (len(group), len(sizes))
    ), group
