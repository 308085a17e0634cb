"""Accuracy of teacher ensembles on MNIST (PATE 2017, §4.1): 250 networks, and thousands of class means.

The 60,000 training images are private. The first 9,000 test images are public, without labels, and the features are
learned from them alone; votes are counted on all 10,000. MNIST is public, so its votes may be shown.
"""

import time
from collections.abc import Iterator
from importlib.util import find_spec

from tutelage.features import PublicRows
from tutelage.mechanisms import LNMax
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.teachers import ClassMeans, HeadTeachers, PrivateStatistics
from tutelage_reproductions.datasets import ImageSplit
from tutelage_reproductions.glyphs import glyph_features
from tutelage_reproductions.protocol import (
    EPOCHS,
    KEY,
    Networks,
    TeacherBallots,
    ballots_of,
    load_mnist,
)
from tutelage_reproductions.record import Record, Row, mean_share, percent_right, share

_SCALE = 20.0  # γ = 0.05
_PUBLIC = 9_000
# Teachers, goals in % and in seconds.
_CLASS_MEANS = ((250, None, None), (1000, 96.0, 2.0), (4000, None, 10.0))
_NETWORKS, _EPOCHS = 250, EPOCHS[250]
_QUICK_NETWORKS = 10
_NOISE_DRAWS = 10
_BETTER_TEACHERS = (
    "These networks are smaller than the paper's, but see every image shifted by up to two pixels and "
    "train with Adam and a decaying learning rate."
)


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return the accuracies of the ensembles; `quick` trains ten of the 250 networks."""
    mnist = load_mnist(download=download)
    rows = [*_class_means(mnist)]
    notes = [
        (
            "Every teacher votes on all 10,000 test images. Noise is Laplace with scale 20, γ = 0.05; mean "
            f"over {_NOISE_DRAWS} draws."
        ),
        (
            "Intervals are over test images for a plurality, over teachers for a "
            "mean teacher, and over draws for noise."
        ),
        f"The features of class means are learned from the first {_PUBLIC:,} test images, without labels.",
    ]
    if find_spec("torch") is None:
        notes.append(
            "Networks are left out because torch is not installed (pip install 'tutelage[torch]')."
        )
    else:
        rows += _networks(mnist, quick=quick, progress=progress)
    return Record(
        name="mnist-teachers",
        source="PATE 2017 (arXiv:1610.05755v4), §4.1",
        rows=tuple(rows),
        quick=quick,
        notes=tuple(notes),
    )


def _class_means(mnist: ImageSplit) -> Iterator[Row]:
    started = time.perf_counter()
    public = PublicRows(mnist.X_test[:_PUBLIC], f"the first {_PUBLIC} MNIST test images")
    features = glyph_features(public)
    X, X_test = features.transform(mnist.X_train), features.transform(mnist.X_test)
    seconds = time.perf_counter() - started
    yield Row(name="features of 70,000 images, s", ours=seconds, at_most=20.0, seconds=seconds)
    for n_teachers, accuracy, limit in _CLASS_MEANS:
        shards = Shards.of_rows(len(X), n_teachers, key=KEY)
        started = time.perf_counter()
        ballots = HeadTeachers(ClassMeans(), n_classes=10).fit_ballots(
            X, mnist.y_train, shards, X_test
        )
        found = TeacherBallots(ballots, shards.unit, time.perf_counter() - started)
        name = f"{n_teachers:,} class means"
        yield Row(
            name=f"{name}: fit and vote, s",
            ours=found.seconds,
            at_most=limit,
            seconds=found.seconds,
        )
        yield from _accuracies(name, found, mnist, plurality_goal=accuracy)


def _networks(mnist: ImageSplit, *, quick: bool, progress: bool) -> Iterator[Row]:
    name = f"{_QUICK_NETWORKS} of {_NETWORKS} networks" if quick else f"{_NETWORKS} networks"
    found = ballots_of(
        mnist, Networks(_NETWORKS, _EPOCHS, _QUICK_NETWORKS if quick else None), progress=progress
    )
    yield Row(name=f"{name}: train and vote, s", ours=found.seconds, seconds=found.seconds)
    if quick:
        yield _average(name, found, mnist, published=83.86)
    else:
        yield from _accuracies(name, found, mnist, average=83.86, plurality_goal=94.4, noisy=93.18)


def _accuracies(
    name: str,
    found: TeacherBallots,
    mnist: ImageSplit,
    *,
    average: float | None = None,
    plurality_goal: float | None = None,
    noisy: float | None = None,
) -> Iterator[Row]:
    votes = found.votes(len(mnist.classes))
    yield _average(name, found, mnist, published=average)
    right, interval = share(votes.counts.argmax(axis=1) == mnist.y_test)
    yield Row(
        name=f"{name}: plurality, %",
        ours=right,
        at_least=plurality_goal,
        interval=interval,
        seconds=found.seconds,
        better="higher",
    )
    draws = [
        LNMax(_SCALE).release(votes, SimulationNoise(seed)).labels for seed in range(_NOISE_DRAWS)
    ]
    right, interval = mean_share([percent_right(labels, mnist.y_test) for labels in draws])
    yield Row(
        name=f"{name}: noisy plurality, %",
        ours=right,
        published=noisy,
        interval=interval,
        seconds=found.seconds,
        better="higher",
        why=None if noisy is None else _BETTER_TEACHERS,
    )


def _average(
    name: str, found: TeacherBallots, mnist: ImageSplit, *, published: float | None
) -> Row:
    accuracies = (
        PrivateStatistics(found.ballots, mnist.y_test, len(mnist.classes)).reveal().accuracies
    )
    right, interval = mean_share(100 * accuracies)
    return Row(
        name=f"{name}: mean teacher, %",
        ours=right,
        published=published,
        interval=interval,
        seconds=found.seconds,
        better="higher",
        why=None if published is None else _BETTER_TEACHERS,
    )
