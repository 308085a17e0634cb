"""Accuracy of students from 100 noisy labels on MNIST, with the published votes (PATE 2017, §4.2).

Votes are counts of 250 teachers on test[0:9000]; noise is Laplace with scale 20. These votes are public, so their exact
ε is shown.
"""

import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import IntArray, Matrix
from tutelage.accounting import Accountant, data_independent
from tutelage.ballots import VoteHistogram
from tutelage.events import Repeated
from tutelage.features import PublicRows
from tutelage.features.base import FeatureMap
from tutelage.mechanisms import LNMax
from tutelage.noise import SimulationNoise
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage.students.selection import Medoids, PublicKnowledge, QuerySelector, RandomRows
from tutelage_reproductions.datasets import ImageSplit, load_mnist
from tutelage_reproductions.glyphs import GlyphGradients, glyph_features
from tutelage_reproductions.protocol import Split, paper_split, published_votes, shuffled_folds
from tutelage_reproductions.record import Record, Row, mean, mean_share, percent_right

_MECHANISM, _QUERIES, _DELTA = LNMax(20.0), 100, 1e-5  # γ = 0.05
_SEEDS, _NETWORK_SEEDS = 5, 3
_RULES: dict[str, QuerySelector] = {"random": RandomRows(), "medoids": Medoids()}
_PUBLISHED_ACCURACY, _PUBLISHED_EPSILON = 98.00, 2.04
_EXACT = "The exact ε of noisy votes is below the bound that the paper computes."
_ON_PIXELS = (
    "About nine of 100 random labels are wrong. Unlabeled images help a network on pixels to correct "
    "them less than stroke directions do."
)


class _Pool(NamedTuple):
    """One split: public rows with their features, which of them were voted on, and rows to score on."""

    images: Matrix
    map: FeatureMap
    features: Matrix
    votes: VoteHistogram  # of the first rows
    held_images: Matrix
    held_features: Matrix
    held_labels: IntArray
    seconds: float  # to learn and compute the features


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return the accuracy of the students; `quick` leaves out the networks and all folds but one."""
    mnist, votes = (
        load_mnist(download=download),
        VoteHistogram.load(published_votes(), array="mnist_250_teachers"),
    )
    pool = _pool(mnist, votes, paper_split())
    rows = [*_costs(pool), *_by_propagation(pool, mnist, votes, folds=1 if quick else 5)]
    notes = [
        (
            f"LNMax with scale 20 and {_QUERIES} queries; {_SEEDS} draws of queries and noise "
            f"({_NETWORK_SEEDS} for networks). Queries are random, or k-means medoids of public features. "
            "Intervals are over draws, or over folds."
        ),
        (
            "Each fold holds out 1,000 of the 9,000 images with votes; test[9000:] joins the public images "
            "without labels."
        ),
    ]
    if quick or find_spec("torch") is None:
        notes.append("Networks are left out in the quick form, or because torch is not installed.")
    else:
        rows += _by_networks(pool, progress=progress)
    return Record(
        name="mnist-students",
        source="PATE 2017 (arXiv:1610.05755v4), Figure 4",
        rows=tuple(rows),
        quick=quick,
        notes=tuple(notes),
    )


def _pool(mnist: ImageSplit, votes: VoteHistogram, split: Split) -> _Pool:
    """Return a split with those rows first that were voted on."""
    started = time.perf_counter()
    voted = split.pool[split.pool < votes.n_queries]
    images = mnist.X_test[np.concatenate([voted, split.pool[split.pool >= votes.n_queries]])]
    # Without diffusion.
    features = glyph_features(PublicRows(images, "public MNIST test images"))[:-1]
    held = mnist.X_test[split.held_out]
    seen, held_seen = features.transform(images), features.transform(held)
    seconds = time.perf_counter() - started
    return _Pool(
        images,
        features,
        seen,
        votes.select(voted),
        held,
        held_seen,
        mnist.y_test[split.held_out],
        seconds,
    )


def _asked(pool: _Pool, rule: QuerySelector, seed: int) -> IntArray:
    return rule.select(
        PublicKnowledge.before(pool.features[: pool.votes.n_queries]), _QUERIES, seed
    )


def _released(pool: _Pool, rule: QuerySelector, seed: int) -> IntArray:
    """Return the noisy label of each public row, −1 where it was not asked."""
    asked = _asked(pool, rule, seed)
    released = np.full(len(pool.images), -1)
    released[asked] = _MECHANISM.release(pool.votes.select(asked), SimulationNoise(seed)).labels
    return released


def _costs(pool: _Pool) -> Iterator[Row]:
    for name, rule in _RULES.items():
        exact = list[float]()
        for seed in range(_SEEDS):
            votes = pool.votes.select(_asked(pool, rule, seed))
            accountant = Accountant()
            accountant.add(_MECHANISM.event(votes, simulated=False), votes)
            exact.append(accountant.exact(_DELTA).reveal())
        found, interval = mean(exact)
        yield Row(
            name=f"{name} queries: exact ε",
            ours=found,
            published=_PUBLISHED_EPSILON,
            interval=interval,
            better="lower",
            why=_EXACT,
        )
    anything = Repeated(_MECHANISM.event_of_one(10, pool.votes.unit, simulated=False), _QUERIES)
    yield Row(
        name="worst-case ε", ours=data_independent.epsilon(anything, _DELTA).epsilon, better="lower"
    )


def _by_propagation(
    pool: _Pool, mnist: ImageSplit, votes: VoteHistogram, *, folds: int
) -> Iterator[Row]:
    pools = [_pool(mnist, votes, split) for split in _voted_folds(votes.n_queries, folds)]
    for name, rule in _RULES.items():
        started = time.perf_counter()
        first = _accuracy(pool, LabelPropagationStudent(), rule, seed=0)
        seconds = pool.seconds + time.perf_counter() - started
        draws = [
            first,
            *(
                _accuracy(pool, LabelPropagationStudent(), rule, seed=seed)
                for seed in range(1, _SEEDS)
            ),
        ]
        right, interval = mean_share(draws)
        about = f"{name} queries, label propagation"
        yield Row(
            name=f"{about}: features and student, s", ours=seconds, at_most=30.0, seconds=seconds
        )
        yield Row(
            name=f"{about}: test[9000:], %",
            ours=right,
            published=_PUBLISHED_ACCURACY,
            at_least=99.0,
            interval=interval,
            better="higher",
        )
        by_fold = [
            float(
                np.mean(
                    [
                        _accuracy(fold, LabelPropagationStudent(), rule, seed=seed)
                        for seed in range(_SEEDS)
                    ]
                )
            )
            for fold in pools
        ]
        right, interval = mean_share(by_fold)
        yield Row(
            name=f"{about}: mean over folds, %",
            ours=right,
            at_least=98.6,
            interval=interval,
            better="higher",
        )
        right, interval = mean_share(
            [_accuracy(pool, SVC(), rule, seed=seed) for seed in range(_SEEDS)]
        )
        yield Row(
            name=f"{name} queries, SVC on the labels alone: test[9000:], %",
            ours=right,
            interval=interval,
            better="higher",
        )


def _voted_folds(voted: int, count: int) -> list[Split]:
    """Return folds that hold out images that were voted on."""
    every = np.arange(10_000)
    return [
        Split(split.name, np.setdiff1d(every, split.held_out), split.held_out)
        for split in shuffled_folds(count, n_images=voted)
    ]


def _accuracy(pool: _Pool, student: Any, rule: QuerySelector, *, seed: int) -> float:
    """Return the share of held-out images, in %, that a student over features gets right."""
    fitted = fit_student(
        student, pool.features, _released(pool, rule, seed), np.arange(10), seed=seed
    )
    return percent_right(fitted.predict(pool.held_features), pool.held_labels)


class _Learner(NamedTuple):
    """A network, what it sees, and the same network without unlabeled rows."""

    name: str
    student: Any
    alone: Any | None
    pool: Matrix
    held_out: Matrix
    rules: tuple[str, ...]
    goal: float | None = None
    published: float | None = None
    why: str | None = None  # it may be off what was asked


def _by_networks(pool: _Pool, *, progress: bool) -> Iterator[Row]:
    """Yield networks, each beside the same network taught by the labels alone; scored on test[9000:]."""
    learners = _learners(pool)
    work = [(learner, name, _RULES[name]) for learner in learners for name in learner.rules]
    for learner, name, rule in progress_bar(work, "Networks", len(work), shown=progress):
        started = time.perf_counter()
        draws = [
            _network_accuracy(learner.student, learner, pool, rule, seed)
            for seed in range(_NETWORK_SEEDS)
        ]
        seconds = (time.perf_counter() - started) / _NETWORK_SEEDS
        right, interval = mean_share(draws)
        yield Row(
            name=f"{name} queries, {learner.name}: test[9000:], %",
            ours=right,
            published=learner.published,
            at_least=learner.goal,
            interval=interval,
            seconds=seconds,
            better="higher",
            why=learner.why,
        )
        if learner.alone is None:
            continue
        right, interval = mean_share(
            [
                _network_accuracy(learner.alone, learner, pool, rule, seed)
                for seed in range(_NETWORK_SEEDS)
            ]
        )
        yield Row(
            name=f"{name} queries, {learner.name}, labels alone: test[9000:], %",
            ours=right,
            interval=interval,
            better="higher",
        )


def _learners(pool: _Pool) -> list[_Learner]:
    from tutelage.students import ConsistencyStudent
    from tutelage_reproductions.students.adversarial import AdversarialStudent

    strokes = GlyphGradients(white=255.0)
    directions, held_directions = (
        strokes.transform(pool.images),
        strokes.transform(pool.held_images),
    )
    first = make_pipeline(pool.map, LabelPropagationStudent())
    pixels = ConsistencyStudent(bfloat16=True)
    by_labels = ConsistencyStudent(bfloat16=True, unlabeled_weight=0.0, steps=500)
    return [
        _Learner(
            "PATE-G on stroke directions",
            AdversarialStudent(),
            AdversarialStudent(unlabeled_weight=0.0, steps=1000),
            directions,
            held_directions,
            ("random", "medoids"),
            goal=98.0,
            published=_PUBLISHED_ACCURACY,
        ),
        _Learner(
            "consistency on pixels",
            pixels,
            by_labels,
            pool.images,
            pool.held_images,
            ("random",),
            goal=98.5,
            why=_ON_PIXELS,
        ),
        _Learner(
            "consistency on pixels, started by label propagation",
            ConsistencyStudent(
                bfloat16=True, first_student=first, steps=800, batch_size=96, unlabeled_ratio=1
            ),
            None,
            pool.images,
            pool.held_images,
            ("random",),
            goal=98.5,
            why=_ON_PIXELS,
        ),
    ]


def _network_accuracy(
    student: Any, learner: _Learner, pool: _Pool, rule: QuerySelector, seed: int
) -> float:
    """Return the share of held-out images, in %, that a network of one draw gets right."""
    fitted = fit_student(
        student, learner.pool, _released(pool, rule, seed), np.arange(10), seed=seed
    )
    return percent_right(fitted.predict(learner.held_out), pool.held_labels)
