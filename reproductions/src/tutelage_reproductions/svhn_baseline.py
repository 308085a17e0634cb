"""SVHN without privacy: the network with two more hidden layers, trained on all images (PATE 2017, §4).

The paper trains on 604,388 images. This uses the largest part of SVHN that is found, and the record names it. With the
sample alone it is a different experiment.
"""

from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from tutelage._internal.extras import install
from tutelage.exceptions import InvalidDataError
from tutelage_reproductions.datasets import ImageSplit, load_svhn, load_svhn_sample
from tutelage_reproductions.mnist_baseline import Trial, answers_right
from tutelage_reproductions.record import Record, Row, mean_share

_PUBLISHED = 92.8
_PUBLIC = 9_000  # of the sample's test images, that join the training images where there are so few
_BATCH = 32
_EPOCHS_WITH_EXTRA, _EPOCHS = 2, 10
_SAMPLE_EPOCHS, _SAMPLE_SEEDS = 12, 2
_QUICK_EPOCHS, _QUICK_ROWS = 3, 10_000


class _Part(NamedTuple):
    """Available part of SVHN, and how it is used."""

    images: ImageSplit
    scored: str
    epochs: int
    seeds: int
    differs: str  # from the paper's experiment


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  no work of many steps
    """Return the accuracy on test images; `quick` trains one network for three epochs on 10,000 images."""
    if find_spec("torch") is None:
        raise InvalidDataError(
            f"svhn-baseline is a network, which needs torch: {install('torch')}."
        )
    from tutelage.networks import TwoConvolutions
    from tutelage.teachers import Network

    part = _at_hand(download=download)
    images, epochs, seeds = (
        part.images,
        _QUICK_EPOCHS if quick else part.epochs,
        1 if quick else part.seeds,
    )
    rows = slice(_QUICK_ROWS if quick else None)
    trial = Trial(images.X_train[rows], images.y_train[rows], images.X_test, images.y_test)
    network = Network(
        TwoConvolutions.for_svhn(), epochs=epochs, batch_size=_BATCH, learning_rate=2e-3
    )
    found, seconds = answers_right(network, trial, range(seeds))
    right, interval = mean_share(100 * found.mean(axis=0))
    by_seed = 100 * found.mean(axis=1)
    row = Row(
        name=f"two convolutions, {len(trial.y):,} training images, {part.scored}: accuracy, %",
        ours=right,
        published=_PUBLISHED,
        interval=interval,
        seconds=seconds,
        better="higher",
        why=f"The quick form trains for {epochs} epochs on {len(trial.y):,} images."
        if quick
        else part.differs,
    )
    return Record(
        name="svhn-baseline",
        source="PATE 2017 (arXiv:1610.05755v4), §4 and Figure 4",
        rows=(row,),
        quick=quick,
        notes=(
            f"Data: {images.name}. The paper trains on 604,388 images, SVHN's training and extra images, and scores "
            f"all 26,032 test images. {part.differs}",
            f"The networks train for {epochs} epochs in batches of {_BATCH} on images that are shifted by up to two "
            f"pixels. The value is a mean over seeds 0 to {seeds - 1}, with accuracies from {by_seed.min():.1f} to "
            f"{by_seed.max():.1f} %. The interval is over test images. Training with SVHN's extra images needs about "
            "20 GB of memory.",
        ),
    )


def _at_hand(*, download: bool) -> _Part:
    """Return the largest part of SVHN that is found, or can be fetched."""
    for extra in (True, False):
        with suppress(InvalidDataError):
            svhn = load_svhn(extra=extra, download=download)
            few = f"The network is smaller than the paper's and sees each image {_EPOCHS_WITH_EXTRA} times."
            differs = (
                few if extra else "SVHN's 531,131 extra images, which are easier, were not found."
            )
            return _Part(
                svhn, "all test images", _EPOCHS_WITH_EXTRA if extra else _EPOCHS, 1, differs
            )
    return _sample()


def _sample() -> _Part:
    sample = load_svhn_sample()
    held = sample.X_test[_PUBLIC:]
    images = replace(
        sample,
        X_train=np.concatenate([sample.X_train, sample.X_test[:_PUBLIC]]),
        y_train=np.concatenate([sample.y_train, sample.y_test[:_PUBLIC]]),
        X_test=held,
        y_test=sample.y_test[_PUBLIC:],
    )
    differs = (
        f"SVHN's own files were not found. So the network trains on {len(images.y_train):,} images, {_PUBLIC:,} of "
        f"them test images, and is scored on {len(held):,} other test images."
    )
    return _Part(
        images, f"test[{_PUBLIC}:{_PUBLIC + len(held)}]", _SAMPLE_EPOCHS, _SAMPLE_SEEDS, differs
    )
