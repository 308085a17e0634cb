"""Parts that several reproductions share: splits of MNIST, published votes, and votes of networks."""

import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from tutelage._internal.files import read_arrays
from tutelage._internal.typing import Ballots, FloatArray, IntArray, Matrix
from tutelage.ballots import VoteHistogram, tally
from tutelage.partition import Shards
from tutelage.privacy import PrivacyUnit
from tutelage_reproductions import datasets
from tutelage_reproductions.datasets import ImageSplit, load_svhn, releases
from tutelage_reproductions.datasets.images import SVHN_TEST_LABELS

HELD_OUT = 1_000
# Of `ConsistencyStudent` on SVHN, wherever one is trained here.
SVHN_STUDENT: dict[str, Any] = {
    "confidence": 0.9,
    "robustness": 0.5,
    "batch_size": 32,
    "unlabeled_ratio": 4,
    "averaging": 0.995,
    "learning_rate": 2e-3,
    "bfloat16": True,
}
_VOTES = "pate2018_votes.npz"
_IMAGES = 10_000
_ORDER = 20170224  # seed of the shuffle
KEY = b"partition of the reproduction of MNIST"
# Passes over a shard, by the number of teachers: those of few rows need more to come to as many steps.
EPOCHS = {10: 10, 25: 10, 50: 15, 100: 20, 250: 30}
_SVHN_LABELS = "svhn_labels.npz"


class Trainable(Protocol):
    """An untrained classifier of scikit-learn's interface, or of the like."""

    def fit(self, X: Matrix, y: IntArray, /) -> Any:
        """Return the fitted model."""
        ...


class Classifier(Protocol):
    """A fitted classifier of scikit-learn's interface, or of the like."""

    def predict(self, X: Matrix, /) -> IntArray:
        """Return the likeliest class of each row."""
        ...

    def predict_proba(self, X: Matrix, /) -> FloatArray:
        """Return the probability of each class, shape (rows, classes)."""
        ...


def fit_classifier(model: Trainable, X: Matrix, y: IntArray) -> Classifier:
    """Return a model that was fitted on these rows and classes."""
    return model.fit(X, y)


class Split(NamedTuple):
    """Row numbers of the test images."""

    name: str
    pool: IntArray  # public, without labels
    held_out: IntArray


def paper_split(n_images: int = _IMAGES, held_out: int = HELD_OUT) -> Split:
    """Return the split of the paper: the last images are held out."""
    rows = np.arange(n_images)
    return Split("test[9000:]", rows[:-held_out], rows[-held_out:])


def shuffled_folds(
    count: int = 5, n_images: int = _IMAGES, held_out: int = HELD_OUT
) -> list[Split]:
    """Return splits whose held-out images are drawn at random and disjoint: one thousand resolve ±0.4 points only."""
    order = np.random.default_rng(_ORDER).permutation(n_images)
    parts = [np.sort(order[fold * held_out : (fold + 1) * held_out]) for fold in range(count)]
    return [
        Split(f"fold {fold}", np.setdiff1d(order, part), part) for fold, part in enumerate(parts)
    ]


def published_votes() -> Path:
    """Return the file of the votes that the authors of PATE published, counts of 250 teachers on MNIST and SVHN.

    Raises
    ------
    InvalidDataError
        If it is in none of the folders that are searched.
    """
    return releases.find(_VOTES)


@final
@dataclass(frozen=True, slots=True)
class Networks:
    """How many networks, and how they are trained."""

    n_teachers: int  # shards of the training images
    epochs: int  # passes over a shard
    # How many of them are trained. Default: all.
    trained: int | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class TeacherBallots:
    """Votes of the networks on the test images."""

    ballots: Ballots = field(repr=False)  # class index per teacher and image
    unit: PrivacyUnit  # whose rows lie in one shard
    seconds: float  # time on the clock to train and vote

    def votes(self, n_classes: int) -> VoteHistogram:
        """Return the ballots counted."""
        return tally(self.ballots, n_classes, self.unit)


@cache
def load_mnist(*, download: bool) -> ImageSplit:
    """Return MNIST, in one process always the same object, by which `ballots_of` knows it again.

    Parameters
    ----------
    download : bool
        Fetch the files if they are not found.
    """
    return datasets.load_mnist(download=download)


@cache
def ballots_of(images: ImageSplit, networks: Networks, *, progress: bool) -> TeacherBallots:
    """Return the ballots of networks of two convolutions on the test images, trained at the first call in a process."""
    from tutelage.networks import TwoConvolutions
    from tutelage.teachers import Network, NetworkTeachers

    shards = Shards.of_rows(len(images.X_train), networks.n_teachers, key=KEY)
    rows, labels = images.X_train, images.y_train
    if networks.trained is not None:
        mine = shards.assignment < networks.trained
        shards = Shards(shards.assignment[mine], networks.trained, shards.unit)
        rows, labels = rows[mine], labels[mine]
    factory = (
        TwoConvolutions.for_svhn()
        if len(images.image_shape) == 3
        else TwoConvolutions(images.image_shape)
    )
    network = Network(factory, epochs=networks.epochs)
    teachers = NetworkTeachers(
        network, n_classes=len(images.classes), seed=0, n_jobs=-1, progress=progress
    )
    started = time.perf_counter()
    ballots = teachers.fit_ballots(rows, labels, shards, images.X_test)
    return TeacherBallots(ballots, shards.unit, time.perf_counter() - started)


def published_mnist_votes() -> VoteHistogram:
    """Return the votes of 250 networks on the first 9,000 test images of MNIST that PATE's authors published."""
    return VoteHistogram.load(published_votes(), array="mnist_250_teachers")


def published_svhn_votes() -> VoteHistogram:
    """Return the votes of 250 networks on all test images of SVHN that PATE's authors published."""
    return VoteHistogram.load(published_votes(), array="svhn_250_teachers")


def svhn_test_labels(*, download: bool) -> IntArray:
    """Return the labels of SVHN's test images, from a file of labels alone or from SVHN itself.

    Raises
    ------
    InvalidDataError
        If SVHN is not found or cannot be downloaded, or the labels are not its own.
    """
    for path in releases.first_complete([_SVHN_LABELS], releases.search_places(None)):
        labels = read_arrays(path)["y_test"]
        releases.check(labels, SVHN_TEST_LABELS, f"y_test in {path}", "SVHN")
        return labels.astype(np.int64)
    return load_svhn(download=download).y_test
