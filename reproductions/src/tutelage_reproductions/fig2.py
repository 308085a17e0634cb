"""Accuracy of noisy labels against γ, the inverse of the Laplace scale, for 10 to 250 teachers (PATE 2017, Figure 2).

MNIST uses networks trained here and the votes that the authors published. SVHN uses the published votes and, if the
SVHN data set is found, networks trained here. All votes are public, so their accuracy may be shown.
"""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import IntArray
from tutelage.ballots import VoteHistogram
from tutelage.exceptions import InvalidDataError
from tutelage.mechanisms import LNMax
from tutelage.noise import SimulationNoise
from tutelage_reproductions.datasets import load_svhn
from tutelage_reproductions.figures import Figure, Panels, Series
from tutelage_reproductions.protocol import (
    EPOCHS,
    Networks,
    ballots_of,
    load_mnist,
    published_mnist_votes,
    published_svhn_votes,
    svhn_test_labels,
)
from tutelage_reproductions.record import Interval, Record, Row, mean_share

_GAMMAS = (0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
_TOLD = (0.01, 0.05, 0.2, 1.0)  # that have a row; the figure has all
# Up to here the noise is large for any of the ensembles, and more teachers are better.
_NOISY = 0.05
_TEACHERS = (10, 100, 250)
_QUICK = (Networks(10, 1), Networks(50, 3))
_SVHN_EPOCHS = 15
_DRAWS = 10
_SLACK = 0.3  # points by which a mean over draws may fall by chance
_COLORS = {n: place for place, n in enumerate((10, 100, 250))}
_PUBLISHED_COLORS = {"MNIST": 4, "SVHN": 3}
_PUBLISHED_GAMMA, _PUBLISHED = 0.05, {"MNIST": 93.18, "SVHN": 87.79}
_MEAN_TEACHER = {"MNIST": 83.86, "SVHN": 83.18}
_OTHER_TEACHERS = (
    "The paper's mean is not that of these votes, although with noise they "
    "are as accurate as the paper says."
)


class _Curve(NamedTuple):
    """One ensemble on one data set."""

    images: str
    teachers: str
    votes: VoteHistogram
    labels: IntArray
    seconds: float | None = None
    published: bool = False  # whether these are the authors' votes

    @property
    def name(self) -> str:
        return f"{self.images}, {self.votes.n_teachers} {self.teachers}"


class _Points(NamedTuple):
    """Accuracies in %, and their intervals, at each γ."""

    right: list[float]
    intervals: list[Interval]


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return the accuracy of each ensemble at each γ; `quick` trains two small ensembles for few epochs."""
    notes = [
        f"LNMax with scale 1/γ; mean over {_DRAWS} draws of the noise. Intervals are over test images.",
        (
            "The networks on MNIST are those of mnist-teachers and vote on all 10,000 test images. They train "
            "for "
            f"{', '.join(f'{each.epochs} epochs ({each.n_teachers} teachers)' for each in _ensembles(quick=quick))}."
        ),
        (
            "The mean teacher of the published votes on SVHN is the one in the paper of 2017; on MNIST it is not."
        ),
    ]
    curves = [*_mnist(notes, quick=quick, download=download, progress=progress)]
    curves += _svhn(notes, quick=quick, download=download, progress=progress)
    if not curves:
        raise InvalidDataError(f"There are no votes to add noise to. {notes[-1]}")
    points = [_accuracies(curve) for curve in curves]
    rows = [row for curve, found in zip(curves, points, strict=True) for row in _rows(curve, found)]
    return Record(
        name="fig2",
        source="PATE 2017 (arXiv:1610.05755v4), Figure 2 and §4.1",
        rows=(*rows, *_more_teachers(curves, points)),
        quick=quick,
        notes=tuple(notes),
        figure=figure(*_by_origin(curves, points)),
    )


def _ensembles(*, quick: bool) -> tuple[Networks, ...]:
    return _QUICK if quick else tuple(Networks(n, EPOCHS[n]) for n in _TEACHERS)


def _mnist(notes: list[str], *, quick: bool, download: bool, progress: bool) -> Iterator[_Curve]:
    mnist = load_mnist(download=download)
    ensembles = _ensembles(quick=quick)
    if find_spec("torch") is None:
        notes.append(
            "Networks were left out: torch is not installed (pip install 'tutelage[torch]')."
        )
        ensembles = ()
    for networks in ensembles:
        found = ballots_of(mnist, networks, progress=progress)
        yield _Curve(
            "MNIST", "networks", found.votes(len(mnist.classes)), mnist.y_test, found.seconds
        )
    try:
        votes = published_mnist_votes()
    except InvalidDataError as missing:
        notes.append(f"Published votes were left out: {missing}")
    else:
        yield _Curve(
            "MNIST", "published teachers", votes, mnist.y_test[: votes.n_queries], published=True
        )


def _svhn(notes: list[str], *, quick: bool, download: bool, progress: bool) -> Iterator[_Curve]:
    try:
        votes, labels = published_svhn_votes(), svhn_test_labels(download=download)
    except InvalidDataError as missing:
        notes.append(f"Published votes on SVHN were left out: {missing}")
    else:
        yield _Curve("SVHN", "published teachers", votes, labels, published=True)
    if quick or find_spec("torch") is None:
        return
    try:
        svhn = load_svhn(download=download)
    except InvalidDataError:
        notes.append(
            "10 and 100 teachers of SVHN are left out because SVHN's training images were not found."
        )
        return
    notes.append(
        f"Networks on SVHN learn from its 73,257 training images for {_SVHN_EPOCHS} epochs. The paper also "
        "uses the extra images."
    )
    for n_teachers in _TEACHERS[:2]:
        found = ballots_of(svhn, Networks(n_teachers, _SVHN_EPOCHS), progress=progress)
        yield _Curve("SVHN", "networks", found.votes(len(svhn.classes)), svhn.y_test, found.seconds)


def _accuracies(curve: _Curve) -> _Points:
    found = _Points([], [])
    for gamma in _GAMMAS:
        draws = [
            LNMax(1 / gamma).release(curve.votes, SimulationNoise(seed)).labels
            for seed in range(_DRAWS)
        ]
        right, interval = mean_share(
            100 * np.mean([labels == curve.labels for labels in draws], axis=0)
        )
        found.right.append(right)
        found.intervals.append(interval or (right, right))
    return found


def _rows(curve: _Curve, points: _Points) -> Iterator[Row]:
    for gamma in _TOLD:
        place = _GAMMAS.index(gamma)
        beside = gamma == _PUBLISHED_GAMMA and (curve.votes.n_teachers == max(_TEACHERS))
        yield Row(
            name=f"{curve.name}, γ = {gamma:g}: accuracy, %",
            ours=points.right[place],
            published=_PUBLISHED[curve.images] if beside else None,
            interval=points.intervals[place],
            seconds=curve.seconds,
            better="higher",
            why=_why(curve) if beside else None,
        )
    if curve.published:
        yield _mean_teacher(curve)
    falls = -np.diff(points.right)
    yield Row(
        name=f"{curve.name}: largest fall where γ rises, points",
        ours=max(0.0, falls.max()),
        at_most=_SLACK,
    )


def _mean_teacher(curve: _Curve) -> Row:
    """Return the share of all votes that are right, which is the accuracy of the mean teacher."""
    right = curve.votes.counts[np.arange(len(curve.labels)), curve.labels] / curve.votes.n_teachers
    ours, interval = mean_share(100 * right)
    return Row(
        name=f"{curve.name}: mean teacher, %",
        ours=ours,
        published=_MEAN_TEACHER[curve.images],
        interval=interval,
        better="higher",
        why=_OTHER_TEACHERS if curve.images == "MNIST" else None,
    )


def _why(curve: _Curve) -> str:
    if curve.published:
        return "The noise is drawn again; the interval contains the published number."
    return "Networks with two convolutions whose training images are shifted are better teachers than the paper's."


def _more_teachers(curves: list[_Curve], points: list[_Points]) -> Iterator[Row]:
    """Yield by how much the accuracy falls at most, from one ensemble to the next larger one of the same data."""
    for images in _PUBLISHED:
        mine = sorted(
            (curve.votes.n_teachers, found.right)
            for curve, found in zip(curves, points, strict=True)
            if curve.images == images and (images == "SVHN" or not curve.published)
        )
        if len(mine) < 2:
            continue
        falls = -np.diff([right for _, right in mine], axis=0)
        noisy = falls[:, [gamma <= _NOISY for gamma in _GAMMAS]].max()
        what = "largest fall where teachers are added, points"
        yield Row(
            name=f"{images}, γ up to {_NOISY:g}: {what}", ours=max(0.0, noisy), at_most=_SLACK
        )
        yield Row(
            name=f"{images}, γ = 1: {what}",
            ours=max(0.0, falls[:, -1].max()),
            why=(
                "With almost no noise, few teachers with many images each are best. This is the paper's second "
                "reason to limit the number of teachers."
            ),
        )


def _by_origin(curves: list[_Curve], points: list[_Points]) -> tuple[list[Series], list[Series]]:
    """Return the curves of networks that were trained here, and those of the paper's teachers."""
    drawn = [
        (curve.published, _series(curve, found))
        for curve, found in zip(curves, points, strict=True)
    ]
    return [series for published, series in drawn if not published], [
        series for published, series in drawn if published
    ]


def _series(curve: _Curve, found: _Points) -> Series:
    return Series(
        name=curve.name,
        x=_GAMMAS,
        y=tuple(found.right),
        interval=(
            tuple(low for low, _ in found.intervals),
            tuple(high for _, high in found.intervals),
        ),
        color=_PUBLISHED_COLORS[curve.images]
        if curve.published
        else _COLORS.get(curve.votes.n_teachers, 5),
    )


def figure(trained: Sequence[Series], published: Sequence[Series]) -> Panels:
    """Return a panel for the networks that were trained here, and one for the teachers of the paper.

    Parameters
    ----------
    trained, published : sequence of Series
        Accuracy against γ, a curve per ensemble.
    """
    printed = [
        Series(
            name=f"paper, {images}: {right:g} %", x=(_PUBLISHED_GAMMA,), y=(right,), labels=("",),
            color=color,
        )
        for (images, right), color in zip(_PUBLISHED.items(), (6, 5), strict=True)
    ]  # fmt: skip
    panels = (
        ("Networks trained here", (*trained, printed[0])),
        ("Votes that the authors published", (*published, *printed)),
    )
    return Panels(
        title="More teachers tolerate more noise",
        figures=tuple(
            Figure(
                title=title,
                x_label="γ: Laplace noise has scale 1/γ",
                y_label="accuracy of noisy labels, %",
                series=series,
                logarithmic=True,
                y_range=(0.0, 101.0),
                ticks=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
            )
            for title, series in panels
        ),
        columns=2,
    )
