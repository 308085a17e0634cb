"""OpenMined's tutorial "Maintaining Privacy in Medical Data": the numbers it prints, and the correct ones.

It has 100 teachers, Laplace noise of scale 5 on every count, 9,000 queries, and a student scored on 1,000 images. Its
data are SVHN, if all of it is found or downloaded, otherwise MNIST. docs/pitfalls.md lists its errors.
"""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import stats

from tutelage._internal.extras import install
from tutelage._internal.typing import ABSTAIN, Ballots, FloatArray, IntArray, Mask, Matrix
from tutelage.accounting import Accountant, data_independent
from tutelage.accounting.pate_bounds import log_q_laplace
from tutelage.ballots import VoteHistogram, tally
from tutelage.compat import perform_analysis
from tutelage.events import Repeated
from tutelage.exceptions import InvalidDataError
from tutelage.features import PublicRows
from tutelage.labeling import LabelingSession
from tutelage.ledger import Ledger
from tutelage.mechanisms import GNMax, LNMax, Mechanism
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage.students.selection import Medoids, PublicKnowledge, QuerySelector, RandomRows
from tutelage.teachers import PrivateStatistics
from tutelage_reproductions.datasets import ImageSplit, load_mnist, load_svhn
from tutelage_reproductions.datasets.images import SVHN
from tutelage_reproductions.datasets.releases import first_complete, search_places
from tutelage_reproductions.glyphs import glyph_features
from tutelage_reproductions.pysyft import analysis_of_pysyft
from tutelage_reproductions.record import Interval, Record, Row, mean_share, percent_right, share

if TYPE_CHECKING:
    from torch import nn

_KEY = b"the partition of this experiment"
_TEACHERS, _BATCH, _LEARNING_RATE = 100, 50, 0.003
_GAMMA, _DELTA = 0.2, 1e-5  # noise of scale 1/γ = 5
_DRAWS = 10
_NEAR = np.array([[40, 60]])  # votes on which Lemma 4 is compared with truncated noise
_BUDGET = 2.0
_MECHANISM, _ASKED = GNMax(25.0), 100  # a quarter of the teachers, decided before any vote was cast
_HELD_OUT = slice(9_000, 10_000)  # of the test images


class _Size(NamedTuple):
    """How much is done."""

    epochs: int
    pool: int  # public images, all of which are asked about
    steps: int  # of the student of color images


_FULL, _QUICK = _Size(10, 9_000, 2500), _Size(5, 2_000, 100)


class _Noisy(NamedTuple):
    """Labels of the tutorial's line, which rounds noisy counts toward zero, and of the same noise not rounded."""

    truncated: IntArray
    exact: IntArray
    tied: Mask  # whether several classes share the largest truncated count

    @property
    def moved(self) -> Mask:
        """Whether rounding changed the label."""
        return self.truncated != self.exact


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return what the tutorial's flow comes to; `quick` asks about fewer images and trains for less long."""
    if find_spec("torch") is None:
        raise InvalidDataError(f"The teachers of the tutorial are networks: {install('torch')}.")
    data, size = _data(download=download), _QUICK if quick else _FULL
    started = time.perf_counter()
    ballots = _ballots(data, size, progress=progress)
    votes, seconds = (
        tally(ballots, len(data.classes), _shards(data).unit),
        time.perf_counter() - started,
    )
    noisy = [_noisy(votes, seed) for seed in range(_DRAWS)]
    return Record(
        name="tutorial",
        source="OpenMined, Maintaining Privacy in Medical Data with Differential Privacy",
        rows=(
            *_label_rows(data.y_test[: size.pool], ballots, votes, noisy, seconds),
            *_truncation_rows(noisy),
            *_printed_rows(data, ballots, noisy[0].truncated, quick=quick),
            *_cost_rows(votes),
            *_student_rows(data, noisy[0].truncated, size),
            *_budget_rows(data, votes, size),
        ),
        quick=quick,
        notes=_notes(data, size),
    )


def _notes(data: ImageSplit, size: _Size) -> tuple[str, ...]:
    return (
        (
            f"The data are {data.name}; the tutorial uses SVHN. Teachers share {len(data.y_train):,} training "
            f"images. The student learns from the first {size.pool:,} test images and is scored on images "
            f"{_HELD_OUT.start:,} to {_HELD_OUT.stop - 1:,}."
        ),
        (
            f"The network is the tutorial's: batches of {_BATCH}, {size.epochs} epochs of Adam with a learning "
            f"rate that falls from {_LEARNING_RATE:g} to 0."
        ),
        (
            f"Intervals are over teachers for a mean teacher, over images for "
            f"shares, and over {_DRAWS} draws for noise."
        ),
    )


def _data(*, download: bool) -> ImageSplit:
    """Return SVHN if all of it is found or may be fetched, and MNIST if not."""
    files = [SVHN[part].name for part in ("train", "test")]
    if download or first_complete(files, search_places(None, "svhn")):
        return load_svhn(download=download)
    return load_mnist()


def _shards(data: ImageSplit) -> Shards:
    return Shards.of_rows(len(data.X_train), _TEACHERS, key=_KEY)


def _ballots(data: ImageSplit, size: _Size, *, progress: bool) -> Ballots:
    from tutelage.teachers import Network, NetworkTeachers

    network = Network(
        TutorialNetwork(data.image_shape),
        epochs=size.epochs,
        batch_size=_BATCH,
        learning_rate=_LEARNING_RATE,
        weight_decay=0.0,
    )
    teachers = NetworkTeachers(
        network, n_classes=len(data.classes), seed=0, n_jobs=-1, progress=progress
    )
    return teachers.fit_ballots(data.X_train, data.y_train, _shards(data), data.X_test[: size.pool])


def _noisy(votes: VoteHistogram, seed: int) -> _Noisy:
    """Add the tutorial's floating-point noise; it imitates another program and releases nothing."""
    uniform = np.random.default_rng(seed).random(votes.counts.shape)
    exact = votes.counts + stats.laplace.ppf(uniform, scale=1 / _GAMMA)
    # As an assignment to an entry of an integer array did.
    truncated = np.trunc(exact).astype(np.int64)
    tied = (truncated == truncated.max(axis=1, keepdims=True)).sum(axis=1) > 1
    return _Noisy(truncated.argmax(axis=1), exact.argmax(axis=1), tied)


def _label_rows(
    truth: IntArray, ballots: Ballots, votes: VoteHistogram, noisy: list[_Noisy], seconds: float
) -> Iterator[Row]:
    right, interval = mean_share(
        100 * PrivateStatistics(ballots, truth, votes.n_classes).reveal().accuracies
    )
    yield Row(name="mean teacher, %", ours=right, interval=interval, seconds=seconds)
    right, interval = share(votes.counts.argmax(axis=1) == truth)
    yield Row(name="plurality, %", ours=right, interval=interval)
    for name, labels in (
        ("truncated as in the tutorial", [draw.truncated for draw in noisy]),
        ("not truncated", [draw.exact for draw in noisy]),
    ):
        right, interval = mean_share([percent_right(drawn, truth) for drawn in labels])
        yield Row(name=f"correct noisy labels, noise {name}, %", ours=right, interval=interval)


def _truncation_rows(noisy: list[_Noisy]) -> Iterator[Row]:
    tied, interval = mean_share([100 * np.mean(draw.tied) for draw in noisy])
    yield Row(
        name="truncated noise: queries with a tie at the top, %", ours=tied, interval=interval
    )
    moved, interval = mean_share([100 * np.mean(draw.moved) for draw in noisy])
    yield Row(name="truncated noise: changed labels, %", ours=moved, interval=interval)
    near = f"{_NEAR[0, 0]} votes to {_NEAR[0, 1]}: chance of the label with fewer votes"
    claimed = float(np.exp(log_q_laplace(VoteHistogram(_NEAR, int(_NEAR.sum())), 1 / _GAMMA)[0]))
    yield Row(name=f"{near}, by Lemma 4, %", ours=100 * claimed)
    yield Row(name=f"{near}, truncated, %", ours=100 * first_wins_truncated(*_NEAR[0].tolist()))


def first_wins_truncated(first: int, second: int) -> float:
    """Return the chance that the first of two classes has the larger truncated noisy count, or an equal one."""
    reach = first + second + round(40 / _GAMMA)  # beyond it lies less than e^−40
    values = np.arange(-reach, reach + 1)
    of_first, of_second = (_truncated_law(count, values) for count in (first, second))
    return float(np.sum(of_first * np.cumsum(of_second)))


def _truncated_law(count: int, values: IntArray) -> FloatArray:
    """Return the chance that a count and its noise, rounded toward zero, are each of `values`."""
    above, below = values + (values >= 0), values - (values <= 0)
    scale = 1 / _GAMMA
    return stats.laplace.cdf(above, count, scale) - stats.laplace.cdf(below, count, scale)


def _printed_rows(
    data: ImageSplit, ballots: Ballots, labels: IntArray, *, quick: bool
) -> Iterator[Row]:
    """Yield what the tutorial's last call prints, and the same call with the rows that were answered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of too few moments
        printed, _ = analysis_of_pysyft(ballots, labels, _GAMMA, _DELTA)
        meant = perform_analysis(
            ballots, np.arange(len(labels)), _GAMMA, _DELTA, n_classes=len(data.classes)
        )
    other_votes = (
        f"The value depends only on the votes for ten images: the first of {data.name} here, those of "
        "other teachers in the tutorial."
    )
    yield Row(
        name="ε printed by the tutorial, labels used as indices",
        ours=printed,
        published=None if quick else 59.47392676433782,
        why=None if quick else other_votes,
    )
    yield Row(
        name=f"vote-dependent ε of {len(labels):,} queries, the tutorial's moments",
        ours=meant.data_dependent,
        better="lower",
    )
    yield Row(
        name=f"worst-case ε of {len(labels):,} queries, the tutorial's moments",
        ours=meant.data_independent,
        published=None if quick else 1451.5129254649705,
        better="lower",
    )


def _cost_rows(votes: VoteHistogram) -> Iterator[Row]:
    """Yield the cost of the same labels by the best analyses here, with noise as in the analysis."""
    event = Repeated(
        LNMax(1 / _GAMMA).event_of_one(votes.n_classes, votes.unit, simulated=False),
        votes.n_queries,
    )
    accountant, started = Accountant(), time.perf_counter()
    accountant.add(event, votes)
    exact = accountant.exact(_DELTA).reveal()
    seconds = time.perf_counter() - started
    yield Row(
        name=f"vote-dependent ε of {votes.n_queries:,} queries, exact",
        ours=exact,
        seconds=seconds,
        better="lower",
    )
    anything = data_independent.epsilon(event, _DELTA).epsilon
    yield Row(name=f"worst-case ε of {votes.n_queries:,} queries", ours=anything, better="lower")


def _student_rows(data: ImageSplit, labels: IntArray, size: _Size) -> Iterator[Row]:
    """Yield how right the tutorial's student is: its network, taught by every noisy label."""
    from tutelage_reproductions.distillation import DistilledStudent

    student = DistilledStudent(
        TutorialNetwork(data.image_shape),
        steps=size.epochs * len(labels) // _BATCH,
        batch_size=_BATCH,
        learning_rate=_LEARNING_RATE,
        random_state=0,
    )
    started = time.perf_counter()
    student.fit(data.X_test[: size.pool], np.eye(len(data.classes))[labels])
    right, interval = _score(student, data.X_test[_HELD_OUT], data)
    seconds = time.perf_counter() - started
    name = f"the tutorial's student, {len(labels):,} labels: accuracy, %"
    yield Row(name=name, ours=right, interval=interval, seconds=seconds)


def _budget_rows(data: ImageSplit, votes: VoteHistogram, size: _Size) -> Iterator[Row]:
    """Yield what a budget that is fixed first affords, and how right the student within it is."""
    mechanisms: tuple[Mechanism, ...] = (LNMax(1 / _GAMMA), _MECHANISM)
    for mechanism in mechanisms:
        one = mechanism.event_of_one(votes.n_classes, votes.unit, simulated=True)
        ledger = Ledger.in_memory(epsilon=_BUDGET, delta=_DELTA, unit=votes.unit, suited_to=one)
        yield Row(
            name=f"queries within ε = {_BUDGET:g}, {mechanism}", ours=ledger.account.fitting(one)
        )
    started, X_public = time.perf_counter(), data.X_test[: size.pool]
    right_way = _right_way(data, size)
    ledger = Ledger.in_memory(epsilon=_BUDGET, delta=_DELTA, unit=votes.unit)
    session = LabelingSession(votes, _MECHANISM, ledger, X_voted=X_public, noise=SimulationNoise(0))
    asked = right_way.rule.select(PublicKnowledge.before(right_way.seen), _ASKED, 0)
    release = session.ask(X_public[asked])
    about = f"{_ASKED} queries by {_MECHANISM}"
    cost = data_independent.epsilon(release.event, _DELTA).epsilon
    yield Row(name=f"{about}: worst-case ε", ours=cost, better="lower")
    right, interval = share(release.labels == data.y_test[asked])
    yield Row(name=f"{about}: correct labels, %", ours=right, interval=interval)
    labels = np.full(size.pool, ABSTAIN)
    labels[asked] = release.labels
    fitted = fit_student(
        right_way.student, right_way.seen, labels, np.arange(votes.n_classes), seed=0
    )
    right, interval = _score(fitted, right_way.held_out, data)
    seconds = time.perf_counter() - started
    name = f"{about}, student of these and {size.pool:,} images: accuracy, %"
    yield Row(name=name, ours=right, interval=interval, seconds=seconds)


class _RightWay(NamedTuple):
    """Public and held-out images as the student sees them, how queries are chosen, and the student."""

    seen: Matrix
    held_out: Matrix
    rule: QuerySelector
    student: Any


def _right_way(data: ImageSplit, size: _Size) -> _RightWay:
    pool, held_out = data.X_test[: size.pool], data.X_test[_HELD_OUT]
    if len(data.image_shape) == 2:
        # Without diffusion.
        features = glyph_features(PublicRows(pool, "the student's images"))[:-1]
        return _RightWay(
            features.transform(pool),
            features.transform(held_out),
            Medoids(),
            LabelPropagationStudent(),
        )
    from tutelage.students import ConsistencyStudent

    student = ConsistencyStudent(
        data.image_shape, steps=size.steps, batch_size=32, unlabeled_ratio=4, bfloat16=True
    )
    return _RightWay(pool, held_out, RandomRows(), student)


def _score(student: Any, X: Matrix, data: ImageSplit) -> tuple[float, Interval]:
    return share(student.predict(X) == data.y_test[_HELD_OUT])


@dataclass(frozen=True)
class TutorialNetwork:
    """Factory of the tutorial's classifier: two convolutions, 50 hidden units, dropout of channels and of these.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (height, width, channels) of the flattened rows.
    """

    image_shape: tuple[int, ...]

    def __call__(self, n_classes: int) -> "nn.Module":
        """Return an untrained network with one output per class."""
        from torch import nn

        from tutelage.networks import ImageInput

        height, width, colors = (*self.image_shape, 1)[:3]
        inner = (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
        return nn.Sequential(
            ImageInput(self.image_shape),
            *(nn.Conv2d(colors, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(10, 20, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(20 * inner, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, n_classes)),
        )
