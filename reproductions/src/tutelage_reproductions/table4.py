"""Privacy and accuracy of students (PATE 2017, Figure 4): MNIST at 100 to 1,000 queries, SVHN at 500 and 1,000.

Votes are those that the authors published for 250 teachers on test images 0 to 8,999 of MNIST and on SVHN's. Noise is
Laplace with scale 20, γ = 0.05. These votes are public, so their ε may be shown.
"""

import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN, IntArray, Matrix
from tutelage.accounting import Accountant, pate_bounds
from tutelage.accounting.rdp import RenyiCurve, classic
from tutelage.ballots import VoteHistogram
from tutelage.exceptions import InvalidDataError
from tutelage.features import PublicRows
from tutelage.mechanisms import LNMax
from tutelage.noise import SimulationNoise
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage_reproductions.datasets import ImageSplit, load_mnist, load_svhn, load_svhn_sample
from tutelage_reproductions.glyphs import glyph_features
from tutelage_reproductions.protocol import HELD_OUT, SVHN_STUDENT, paper_split, published_votes
from tutelage_reproductions.record import Record, Row, mean, mean_share, percent_right, share

_MECHANISM = LNMax(20.0)
_DRAWS, _QUICK_DRAWS = 10, 2
_PUBLIC_SVHN = 10_000  # test images that the paper's student learns from; the rest score it
_STEPS, _QUICK_STEPS = 1_500, 40
_CHOICES = 200
_OTHER_VOTES = (
    "The votes are those that the authors published with the paper of 2018. The paper of 2017 does "
    "not say which queries and which teachers it used."
)


class _Setting(NamedTuple):
    """One row of the paper's table: what it printed, where it did."""

    queries: int
    epsilon: float | None = None
    accuracy: float | None = None
    why: str | None = None  # ε is not what was published


_MNIST = (_Setting(100, 2.04, 98.00), _Setting(500), _Setting(1_000, 8.03, 98.10, _OTHER_VOTES))
_MNIST_DELTA = 1e-5
_SVHN = (_Setting(500, 5.04, 82.72, _OTHER_VOTES), _Setting(1_000, 8.19, 90.66, _OTHER_VOTES))
_SVHN_DELTA = 1e-6


class _Release(NamedTuple):
    """Queries, the votes of the teachers on them, and the noisy labels."""

    asked: IntArray
    votes: VoteHistogram
    labels: IntArray


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return the table, row by row; `quick` repeats MNIST less often and trains SVHN's students for a few steps."""
    path = published_votes()
    mnist, svhn = load_mnist(download=download), _svhn(download=download)
    draws, steps = (_QUICK_DRAWS, _QUICK_STEPS) if quick else (_DRAWS, _STEPS)
    rows = list(
        _mnist_rows(
            mnist, VoteHistogram.load(path, array="mnist_250_teachers"), draws, progress=progress
        )
    )
    votes, pool = VoteHistogram.load(path, array="svhn_250_teachers"), _pool_of(svhn)
    networks = find_spec("torch") is not None
    for setting in _SVHN:
        rows += _svhn_rows(
            svhn, votes, setting, steps if networks else None, quick=quick, progress=progress
        )
    return Record(
        name="table4",
        source="PATE 2017 (arXiv:1610.05755v4), Figure 4; the workshop abstract (2016), Figure 2",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                f"Queries are random public images, seeds 0 to {draws - 1} on MNIST and 0 on SVHN, labeled by "
                f"LNMax with scale 20. δ = {_MNIST_DELTA:g} on MNIST, {_SVHN_DELTA:g} on SVHN. 'First images' uses "
                "the first images in the order of the test set instead."
            ),
            "The paper's method is Theorems 2 and 3 and Lemma 4 with moments 1 to 8.",
            (
                "MNIST: 9,000 test images are public, and test[9000:] scores. Students are label propagation over "
                f"glyph features of the public images. Intervals are over {draws} draws of queries and noise. The "
                "choice of the 1,000 scored images changes a student's accuracy by another ±0.6 points."
            ),
            _about_svhn(svhn, pool, steps if networks else None),
            (
                "Without privacy, the paper's network reaches 99.18 % on MNIST and 92.8 % on SVHN. The paper's "
                "students are semi-supervised generative adversarial networks."
            ),
            (
                "The workshop abstract mentions a class-balanced subset of the labels. Balancing by noisy labels "
                "reads all 9,000 labels, so all of them must be counted: see the rows of 9,000 queries. "
                "`class_balanced` refuses while a row has no label. The queries here are not balanced. The noisy "
                "labels that the authors released with their code were not used."
            ),
        ),
    )


def _svhn(*, download: bool) -> ImageSplit:
    """Return SVHN, or the first images of it where that is all there is; the notes of the record say which."""
    try:
        return load_svhn(download=download)
    except InvalidDataError:
        return load_svhn_sample()


def _pool_of(svhn: ImageSplit) -> int:
    """Return how many of the test images are public: as in the paper, or all but 1,000 of a sample."""
    images = len(svhn.y_test)
    return _PUBLIC_SVHN if images > _PUBLIC_SVHN else images - HELD_OUT


def _about_svhn(svhn: ImageSplit, pool: int, steps: int | None) -> str:
    held_out = len(svhn.y_test) - pool
    if steps is None:
        return "SVHN's students are networks and are left out because torch is not installed."
    about = (
        f"SVHN: each student is a residual network, trained by consistency training for {steps:,} steps. "
        f"It sees the first {pool:,} test images and is scored on the next {held_out:,}; intervals are "
        "over these. Its settings are those of svhn-student; it was not recorded on which images they "
        "were chosen."
    )
    if len(svhn.y_test) > _PUBLIC_SVHN:
        return f"{about} This is the paper's split."
    return (
        f"{about} The paper's student sees 10,000 images and is scored on the other 16,032, which are not "
        f"available: {svhn.name}."
    )


def _ask(votes: VoteHistogram, pool: int, queries: int, seed: int) -> _Release:
    """Ask about random rows of the pool."""
    asked = np.random.default_rng(seed).permutation(pool)[:queries]
    queried = votes.select(asked)
    return _Release(asked, queried, _MECHANISM.release(queried, SimulationNoise(seed)).labels)


def _accountant(votes: VoteHistogram) -> Accountant:
    accountant = Accountant()
    accountant.add(_MECHANISM.event(votes, simulated=False), votes)
    return accountant


def _dearest(votes: VoteHistogram, queries: int, delta: float) -> float:
    """Return the largest ε by the paper's method among random choices of so many of the public rows."""
    moments = pate_bounds.MOMENTS_2017
    log_q = pate_bounds.log_q_laplace(votes, _MECHANISM.scale)
    costs = pate_bounds.log_moments(log_q, _MECHANISM.scale, moments) / moments
    choices = (
        np.random.default_rng(seed).permutation(len(costs))[:queries] for seed in range(_CHOICES)
    )
    return max(
        RenyiCurve(moments + 1, costs[chosen].sum(axis=0)).to_epsilon(delta, classic).epsilon
        for chosen in choices
    )


def _cost_rows(
    name: str,
    setting: _Setting,
    votes: VoteHistogram,
    pool: int,
    releases: list[_Release],
    delta: float,
) -> Iterator[Row]:
    """Yield ε by the paper's method, exact ε and worst-case ε."""
    first = _accountant(votes.first(setting.queries)).bound_2017(delta).reveal()
    yield Row(
        name=f"{name}: ε by the paper's method, first images",
        ours=first,
        published=setting.epsilon,
        better="lower",
        why=setting.why,
    )
    dearest = _dearest(votes.first(pool), setting.queries, delta)
    yield Row(
        name=f"{name}: ε by the paper's method, largest of {_CHOICES} random choices",
        ours=dearest,
        better="lower",
    )
    accountants = [_accountant(release.votes) for release in releases]
    found, interval = mean([accountant.bound_2017(delta).reveal() for accountant in accountants])
    yield Row(
        name=f"{name}: ε by the paper's method (private)",
        ours=found,
        interval=interval,
        better="lower",
    )
    found, interval = mean([accountant.exact(delta).reveal() for accountant in accountants])
    yield Row(name=f"{name}: exact ε (private)", ours=found, interval=interval, better="lower")
    any_votes = accountants[0].data_independent(delta).epsilon
    yield Row(name=f"{name}: worst-case ε (publishable)", ours=any_votes, better="lower")


def _mnist_rows(
    mnist: ImageSplit, votes: VoteHistogram, draws: int, *, progress: bool
) -> Iterator[Row]:
    split = paper_split(len(mnist.y_test))
    truth, held_truth = mnist.y_test[split.pool], mnist.y_test[split.held_out]
    started = time.perf_counter()
    # No diffusion.
    features = glyph_features(PublicRows(mnist.X_test[split.pool], "public MNIST test images"))[:-1]
    seen = features.transform(mnist.X_test[split.pool])
    held = features.transform(mnist.X_test[split.held_out])
    learned = time.perf_counter() - started
    for setting in _MNIST:
        name = f"MNIST, {setting.queries:,} queries"
        releases = [_ask(votes, len(truth), setting.queries, seed) for seed in range(draws)]
        yield from _cost_rows(name, setting, votes, len(truth), releases, _MNIST_DELTA)
        right, interval = mean_share(
            [percent_right(release.labels, truth[release.asked]) for release in releases]
        )
        yield Row(name=f"{name}: correct labels, %", ours=right, interval=interval, better="higher")
        started = time.perf_counter()
        shown = progress_bar(releases, name, draws, shown=progress)
        scores = [_propagated(seen, held, one, held_truth, seed) for seed, one in enumerate(shown)]
        right, interval = mean_share(scores)
        yield Row(
            name=f"{name}: student, %",
            ours=right,
            published=setting.accuracy,
            interval=interval,
            seconds=learned + (time.perf_counter() - started) / draws,
            better="higher",
        )
    yield from _rows_of_all(votes.first(min(len(truth), votes.n_queries)), truth)


def _propagated(seen: Matrix, held: Matrix, release: _Release, truth: IntArray, seed: int) -> float:
    """Return the share of held-out images, in %, that label propagation gets right."""
    fitted = fit_student(
        LabelPropagationStudent(), seen, _spread(release, len(seen)), np.arange(10), seed=seed
    )
    return percent_right(fitted.predict(held), truth)


def _spread(release: _Release, rows: int) -> IntArray:
    labels = np.full(rows, ABSTAIN, dtype=np.int64)
    labels[release.asked] = release.labels
    return labels


def _rows_of_all(votes: VoteHistogram, truth: IntArray) -> Iterator[Row]:
    """Yield what it costs to label the whole pool, as whoever balances by noisy labels has to."""
    name = f"MNIST, all {votes.n_queries:,} queries, to balance by label"
    accountant = _accountant(votes)
    yield Row(
        name=f"{name}: exact ε (private)",
        ours=accountant.exact(_MNIST_DELTA).reveal(),
        better="lower",
    )
    any_votes = accountant.data_independent(_MNIST_DELTA).epsilon
    yield Row(name=f"{name}: worst-case ε (publishable)", ours=any_votes, better="lower")
    labels = _MECHANISM.release(votes, SimulationNoise(0)).labels
    right, interval = share(labels == truth[: len(labels)])
    yield Row(
        name=f"{name}: correct labels, %",
        ours=right,
        published=93.18,
        interval=interval,
        better="higher",
    )


def _svhn_rows(
    svhn: ImageSplit,
    votes: VoteHistogram,
    setting: _Setting,
    steps: int | None,
    *,
    quick: bool,
    progress: bool,
) -> Iterator[Row]:
    pool = _pool_of(svhn)
    name, release = f"SVHN, {setting.queries:,} queries", _ask(votes, pool, setting.queries, seed=0)
    yield from _cost_rows(name, setting, votes, pool, [release], _SVHN_DELTA)
    right, interval = share(release.labels == svhn.y_test[release.asked])
    yield Row(name=f"{name}: correct labels, %", ours=right, interval=interval, better="higher")
    if steps is None:
        return
    from tutelage.students import ConsistencyStudent

    student = ConsistencyStudent(
        svhn.image_shape, steps=steps, random_state=0, progress=progress, **SVHN_STUDENT
    )
    started = time.perf_counter()
    student.fit(svhn.X_test[:pool], _spread(release, pool))
    seconds = time.perf_counter() - started
    right, interval = share(student.predict(svhn.X_test[pool:]) == svhn.y_test[pool:])
    yield Row(
        name=f"{name}: student, %",
        ours=right,
        published=setting.accuracy,
        interval=interval,
        seconds=seconds,
        better="higher",
        why=_about_the_network(steps, quick=quick),
    )


def _about_the_network(steps: int, *, quick: bool) -> str:
    if quick:
        return f"A network has hardly begun to learn after {steps:,} steps."
    return (
        f"Training for {steps:,} steps fits in minutes on a processor. With a confidence check, the same "
        "votes give more labels, and more correct ones, within an exact ε of 2: see svhn-student."
    )
