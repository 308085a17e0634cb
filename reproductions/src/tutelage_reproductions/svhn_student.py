"""A student of Confident-GNMax on SVHN (PATE 2018, Table 1): consistency training within an exact ε of 2.

Votes are those that the authors published for 250 teachers on SVHN's test images. The first 9,000 images are public
rows; the next 1,000 score the student. These votes are public, so their ε may be shown.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import ABSTAIN, IntArray
from tutelage.accounting import Accountant
from tutelage.ballots import VoteHistogram
from tutelage.mechanisms import ConfidentGNMax
from tutelage.noise import SimulationNoise
from tutelage_reproductions.datasets import ImageSplit, load_svhn_sample
from tutelage_reproductions.protocol import SVHN_STUDENT, published_votes
from tutelage_reproductions.record import Record, Row, share

_POOL, _HELD_OUT = 9_000, 1_000
_DELTA = 1e-6
# As the paper has it for SVHN.
_MECHANISM = ConfidentGNMax(threshold=300, sigma_threshold=200, sigma_vote=40)
_ASKED = 4_500  # as many as exact costs of the votes on images 10,000 to 18,999 put within ε = 2
_SEED = 0
_STEPS, _QUICK_STEPS = 2500, 150


class _Released(NamedTuple):
    """Labels of the public rows and what they cost; the exact ε is private in general."""

    labels: IntArray
    exact: float
    data_independent: float


@dataclass(frozen=True, slots=True)
class _Trained:
    """One student, and what its share of right answers is beside."""

    name: str
    unlabeled_weight: float
    published: float | None = None
    at_least: float | None = None
    why: str | None = None


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  nothing to fetch from
    """Return costs, labels and the students' accuracy; `quick` trains for a few steps only."""
    svhn, votes = (
        load_svhn_sample(),
        VoteHistogram.load(published_votes(), array="svhn_250_teachers"),
    )
    steps = _QUICK_STEPS if quick else _STEPS
    started = time.perf_counter()
    released = _answers(votes)
    rows = [*_release_rows(released, svhn.y_test[:_POOL], time.perf_counter() - started)]
    students = (
        _Trained("supervised only", 0.0),
        _Trained(
            "consistency training",
            1.0,
            published=91.6,
            at_least=None if quick else 90.0,
            why=f"A network has hardly begun to learn after {steps:,} steps." if quick else None,
        ),
    )
    rows += [
        _student_row(student, svhn, released.labels, steps, progress=progress)
        for student in students
    ]
    return Record(
        name="svhn-student",
        source="PATE 2018 (arXiv:1802.08908v1), Table 1",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                f"{_MECHANISM} receives {_ASKED:,} queries: random images among the first {_POOL:,} test images "
                f"(seed {_SEED}), δ = {_DELTA:g}. The number of queries was chosen on votes about other images."
            ),
            (
                f"Students see {_POOL:,} images; the paper's student, a semi-supervised GAN, saw most of the "
                f"26,032. Students are scored on test images {_POOL:,} to {_POOL + _HELD_OUT - 1:,}, and intervals "
                f"are over these images. Both are the same residual network, trained for {steps:,} steps of the "
                "same size."
            ),
            "A label is correct if it is SVHN's own.",
        ),
    )


def _answers(votes: VoteHistogram) -> _Released:
    """Ask the teachers about random public rows, once each."""
    asked = np.random.default_rng(_SEED).permutation(min(_POOL, votes.n_queries))[:_ASKED]
    queried = votes.select(asked)
    release = _MECHANISM.release(queried, SimulationNoise(_SEED))
    accountant = Accountant()
    one = _MECHANISM.event_of_one(queried.n_classes, queried.unit, simulated=True)
    accountant.add_release(one, queried, release.voted)
    labels = np.full(_POOL, ABSTAIN, dtype=np.int64)
    labels[asked] = release.labels
    return _Released(
        labels, accountant.exact(_DELTA).reveal(), accountant.data_independent(_DELTA).epsilon
    )


def _release_rows(released: _Released, truth: IntArray, seconds: float) -> Iterator[Row]:
    answered = released.labels != ABSTAIN
    right, interval = share(released.labels[answered] == truth[answered])
    yield Row(
        name="exact ε (private)",
        ours=released.exact,
        published=4.96,
        at_most=2.0,
        seconds=seconds,
        better="lower",
    )
    yield Row(name="worst-case ε", ours=released.data_independent, better="lower")
    yield Row(
        name="queries labeled",
        ours=float(answered.sum()),
        published=3098,
        why=f"Ours are {_ASKED:,} queries, the paper's 8,500; half the labels are enough for this student.",
    )
    yield Row(name="correct labels, %", ours=right, interval=interval, better="higher")


def _student_row(
    student: _Trained, svhn: ImageSplit, labels: IntArray, steps: int, *, progress: bool
) -> Row:
    from tutelage.students import ConsistencyStudent

    network = ConsistencyStudent(
        svhn.image_shape,
        steps=steps,
        unlabeled_weight=student.unlabeled_weight,
        random_state=_SEED,
        progress=progress,
        **SVHN_STUDENT,
    )
    started = time.perf_counter()
    network.fit(svhn.X_test[:_POOL], labels)
    seconds = time.perf_counter() - started
    X, y = svhn.X_test[_POOL : _POOL + _HELD_OUT], svhn.y_test[_POOL : _POOL + _HELD_OUT]
    right, interval = share(network.predict(X) == y)
    name = f"student, {student.name}: held-out, %"
    return Row(
        name=name,
        ours=right,
        published=student.published,
        at_least=student.at_least,
        interval=interval,
        seconds=seconds,
        better="higher",
        why=student.why,
    )
