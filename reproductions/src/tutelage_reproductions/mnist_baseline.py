"""MNIST without privacy: a network and three simple models on all 60,000 images (PATE 2017, §4).

The network is the one that the paper compares students with. The other models are the teachers of this project, trained
on all images by a single owner.
"""

import os
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from joblib import Parallel, delayed
from sklearn.neighbors import KNeighborsClassifier

from tutelage._internal.typing import IntArray, Mask, Matrix
from tutelage.features import PublicRows
from tutelage.partition import Shards
from tutelage.teachers import ClassMeans, Ridge, ensemble_of
from tutelage_reproductions.datasets import ImageSplit, load_mnist
from tutelage_reproductions.glyphs import glyph_features
from tutelage_reproductions.record import Record, Row, mean_share, share

if TYPE_CHECKING:
    from tutelage.teachers import Network

_KEY = b"all rows in one shard, without privacy"
_PUBLISHED = 99.18
_PUBLIC = 9_000
_EPOCHS, _QUICK_EPOCHS = 8, 1
_BATCH = 64
_SEEDS, _QUICK_SEEDS = 4, 1
_MODELS = {
    "class means": ClassMeans(),
    "ridge": Ridge(),
    "3 nearest neighbors": KNeighborsClassifier(3),
}
_QUICK_MODELS = ("class means",)


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  no work of many steps
    """Return accuracies on all test images; `quick` trains one network for an epoch, and class means."""
    mnist = load_mnist(download=download)
    seeds, epochs = (_QUICK_SEEDS, _QUICK_EPOCHS) if quick else (_SEEDS, _EPOCHS)
    notes = [
        (
            "Models learn from all 60,000 training images and are scored on the 10,000 test images. The "
            "paper's network has 64 and 128 channels and takes 3,000 steps of 128 images. Ours has 16 and 32 "
            "channels and a hidden layer of 64."
        ),
        (
            f"The networks train for {epochs} epochs in batches of {_BATCH} on images that are shifted by up "
            f"to two pixels. The value is a mean over seeds 0 to {seeds - 1}; the time is that of all seeds "
            "together."
        ),
        (
            f"Class means, ridge and nearest neighbors use glyph features, learned from test[:{_PUBLIC}] "
            "without labels. Their time excludes the features. Intervals are over test images."
        ),
    ]
    rows = [*_simple(mnist, _QUICK_MODELS if quick else tuple(_MODELS))]
    if find_spec("torch") is None:
        notes.append(
            "Networks are left out because torch is not installed (pip install 'tutelage[torch]')."
        )
    else:
        rows.insert(0, _by_network(mnist, seeds, epochs, quick=quick))
    return Record(
        name="mnist-baseline",
        source="PATE 2017 (arXiv:1610.05755v4), §4 and Figure 4",
        rows=tuple(rows),
        quick=quick,
        notes=tuple(notes),
    )


def _by_network(mnist: ImageSplit, seeds: int, epochs: int, *, quick: bool) -> Row:
    from tutelage.networks import TwoConvolutions
    from tutelage.teachers import Network

    network = Network(TwoConvolutions(mnist.image_shape), epochs=epochs, batch_size=_BATCH)
    trial = Trial(mnist.X_train, mnist.y_train, mnist.X_test, mnist.y_test)
    found, seconds = answers_right(network, trial, range(seeds))
    right, interval = mean_share(100 * found.mean(axis=0))
    return Row(
        name="two convolutions: accuracy, %",
        ours=right,
        published=_PUBLISHED,
        interval=interval,
        seconds=seconds,
        better="higher",
        why=f"The quick form trains for {epochs} epoch."
        if quick
        else "Shifted training images outweigh the smaller number of channels.",
    )


def _simple(mnist: ImageSplit, names: tuple[str, ...]) -> Iterator[Row]:
    features = glyph_features(
        PublicRows(mnist.X_test[:_PUBLIC], f"the first {_PUBLIC} MNIST test images")
    )
    X, X_test = features.transform(mnist.X_train), features.transform(mnist.X_test)
    for name in names:
        started = time.perf_counter()
        teachers = ensemble_of(_MODELS[name], n_classes=len(mnist.classes), seed=0)
        (answers,) = teachers.fit_ballots(X, mnist.y_train, one_shard(len(X)), X_test)
        right, interval = share(answers == mnist.y_test)
        seconds = time.perf_counter() - started
        yield Row(
            name=f"{name}: accuracy, %",
            ours=right,
            interval=interval,
            seconds=seconds,
            better="higher",
        )


class Trial(NamedTuple):
    """Rows to learn from, and rows that score."""

    X: Matrix
    y: IntArray
    X_test: Matrix
    y_test: IntArray


def one_shard(n_rows: int) -> Shards:
    """Return a partition for a single teacher of all rows."""
    return Shards.of_rows(n_rows, 1, key=_KEY)


def answers_right(network: "Network", trial: Trial, seeds: Sequence[int]) -> tuple[Mask, float]:
    """Return which test rows a network of each seed has right, shape (seeds, rows), and the seconds that all took."""
    started = time.perf_counter()
    # An accelerator trains one after the other.
    on_processors = network.torch_device().type == "cpu"
    n_jobs = min(len(seeds), os.cpu_count() or 1) if on_processors else 1
    right = cast(
        "list[Mask]", Parallel(n_jobs)(delayed(_right)(network, trial, seed) for seed in seeds)
    )
    return np.array(right), time.perf_counter() - started


def _right(network: "Network", trial: Trial, seed: int) -> Mask:
    from tutelage.teachers import NetworkTeachers

    teacher = NetworkTeachers(network, n_classes=int(trial.y.max()) + 1, seed=seed)
    (answers,) = teacher.fit_ballots(trial.X, trial.y, one_shard(len(trial.y)), trial.X_test)
    return answers == trial.y_test
