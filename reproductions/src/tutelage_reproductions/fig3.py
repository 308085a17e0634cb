"""Gap between the first and the second class, against the number of teachers (PATE 2017, Figure 3).

The gap of a query is the difference of the two largest vote counts, divided by the number of teachers, without noise.
Votes on MNIST and SVHN are public. The gaps of private votes are private.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from tutelage.ballots import VoteHistogram
from tutelage.exceptions import InvalidDataError
from tutelage_reproductions.figures import Figure, Series
from tutelage_reproductions.protocol import (
    EPOCHS,
    Networks,
    ballots_of,
    load_mnist,
    published_mnist_votes,
    published_svhn_votes,
)
from tutelage_reproductions.record import Interval, Record, Row, mean_share

_TEACHERS = (10, 25, 50, 100, 250)
_QUICK = (Networks(10, 1), Networks(50, 3))
_PUBLISHED = 60.0  # "the gap remains larger than 60 % of the teachers"


class _Gap(NamedTuple):
    """Mean gap of one ensemble, in % of the teachers."""

    curve: str
    n_teachers: int
    mean: float
    interval: Interval
    seconds: float | None = None


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return the mean gap of each ensemble; `quick` trains two small ensembles for few epochs."""
    notes = [
        (
            "Each value is a mean over test images, and so is its interval. There is one partition and one "
            "set of networks for each number of teachers. They train for "
            f"{', '.join(f'{each.epochs} epochs ({each.n_teachers} teachers)' for each in _ensembles(quick=quick))}."
        ),
        "The only number in the paper is that the gap stays above 60 %.",
        "Fewer than 250 teachers of SVHN are left out because SVHN's training images are needed for them.",
    ]
    gaps = [*_trained(notes, quick=quick, download=download, progress=progress), *_published(notes)]
    if not gaps:
        raise InvalidDataError(f"There are no votes to measure. {notes[-1]}")
    rows = [
        Row(
            name=f"{gap.n_teachers} {gap.curve}: gap, % of the teachers",
            ours=gap.mean,
            at_least=None if quick else _PUBLISHED,
            interval=gap.interval,
            seconds=gap.seconds,
            better="higher",
        )
        for gap in gaps
    ]
    return Record(
        name="fig3",
        source="PATE 2017 (arXiv:1610.05755v4), Figure 3",
        rows=tuple(rows),
        quick=quick,
        notes=tuple(notes),
        figure=_figure(gaps),
    )


def _ensembles(*, quick: bool) -> tuple[Networks, ...]:
    return _QUICK if quick else tuple(Networks(n, EPOCHS[n]) for n in _TEACHERS)


def _trained(notes: list[str], *, quick: bool, download: bool, progress: bool) -> Iterator[_Gap]:
    if find_spec("torch") is None:
        notes.append(
            "Networks were left out: torch is not installed (pip install 'tutelage[torch]')."
        )
        return
    mnist = load_mnist(download=download)
    for networks in _ensembles(quick=quick):
        found = ballots_of(mnist, networks, progress=progress)
        yield _gap("networks on MNIST", found.votes(len(mnist.classes)), found.seconds)


def _published(notes: list[str]) -> Iterator[_Gap]:
    try:
        yield _gap("published teachers on MNIST", published_mnist_votes())
        yield _gap("published teachers on SVHN", published_svhn_votes())
    except InvalidDataError as missing:
        notes.append(f"Published votes were left out: {missing}")


def _gap(curve: str, votes: VoteHistogram, seconds: float | None = None) -> _Gap:
    ordered = np.sort(votes.counts, axis=1)
    center, interval = mean_share(100 * (ordered[:, -1] - ordered[:, -2]) / votes.n_teachers)
    return _Gap(curve, votes.n_teachers, center, interval or (center, center), seconds)


def _figure(gaps: list[_Gap]) -> Figure:
    series = list[Series]()
    for place, curve in enumerate(dict.fromkeys(gap.curve for gap in gaps)):
        mine = [gap for gap in gaps if gap.curve == curve]
        series.append(
            Series(
                name=curve,
                x=tuple(float(gap.n_teachers) for gap in mine),
                y=tuple(gap.mean for gap in mine),
                interval=(
                    tuple(gap.interval[0] for gap in mine),
                    tuple(gap.interval[1] for gap in mine),
                ),
                color=place,
            )
        )
    ends = (float(min(gap.n_teachers for gap in gaps)), float(max(gap.n_teachers for gap in gaps)))
    series.append(
        Series(
            name="the paper: above 60 % throughout", x=ends, y=(_PUBLISHED,) * 2, color=6, dashes=1
        )
    )
    return Figure(
        title="Lead of the first class over the second",
        x_label="number of teachers",
        y_label="mean gap, % of the teachers",
        series=tuple(series),
        logarithmic=True,
        y_range=(0.0, 100.0),
        ticks=tuple(float(n) for n in _TEACHERS),
    )
