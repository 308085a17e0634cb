"""Accuracy against ε on UCI Adult, by number of labels and scale of the noise (PATE 2017, Appendix C).

The paper varies both and prints one point: 500 labels at scale 20. This is the whole grid, with the paper's forests.
Adult is public, so its votes may be shown.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from tutelage._internal.progress import progress_bar
from tutelage.accounting import Accountant
from tutelage.ballots import VoteHistogram
from tutelage.datasets import AdultSplit, load_adult
from tutelage.datasets.adult import EVALUATION_ROWS
from tutelage.mechanisms import LNMax
from tutelage.noise import SimulationNoise
from tutelage.privacy import round_up
from tutelage_reproductions.adult import (
    DELTA,
    FORESTS,
    ONE_PARTITION,
    forest_votes,
    publishable,
    score,
)
from tutelage_reproductions.figures import Figure, Panels, Series
from tutelage_reproductions.record import Interval, Record, Row, mean, mean_share
from tutelage_reproductions.students.self_training import SelfTrainingStudent

_LABELS, _QUICK_LABELS = (50, 100, 250, 500, 1_000, 2_000), (100, 500, 2_000)
_SCALES, _QUICK_SCALES = (5.0, 10.0, 20.0, 40.0, 80.0), (10.0, 20.0, 40.0)
_RUNS, _QUICK_RUNS = 5, 2
_PAPERS = (500, 20.0)
_PAPERS_ACCURACY, _PAPERS_EPSILON = 83.0, 2.66
_SHOWN = (76.0, 85.0)
_TICKS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_BLACK, _LIGHT = 6, 7

_Choice = tuple[int, float]  # labels, scale


class _Found(NamedTuple):
    """Result of one run of one choice; accuracies in percent, vote-dependent ε."""

    forest: float
    self_trained: float
    bound: float
    exact: float


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  the data are bundled
    """Return accuracy and ε of every choice; `quick` has fewer choices and runs."""
    adult = load_adult()
    choices = list(product(_QUICK_LABELS, _QUICK_SCALES) if quick else product(_LABELS, _SCALES))
    runs = range(_QUICK_RUNS if quick else _RUNS)
    started = time.perf_counter()
    found: dict[_Choice, list[_Found]] = {choice: [] for choice in choices}
    for run in progress_bar(runs, "Runs", len(runs), shown=progress):
        votes = forest_votes(
            adult, adult.X_public[: max(labels for labels, _ in choices)], run, progress=progress
        )
        for labels, scale in choices:
            found[labels, scale].append(_run(adult, votes.first(labels), scale, run))
    seconds = time.perf_counter() - started
    return Record(
        name="adult-sweep",
        source="PATE 2017 (arXiv:1610.05755v4), Appendix C",
        rows=tuple(row for choice in choices for row in _rows(choice, found[choice], seconds)),
        quick=quick,
        notes=(
            (
                f"Each value is a mean over {len(runs)} runs. Each run has its own partition, {FORESTS} forests, "
                "noise and students; all settings of a run share its forests. The interval is over runs. Queries "
                f"are the first test rows; accuracy is on the last {EVALUATION_ROWS:,}. δ = {DELTA:g}. The time is "
                "that of the whole grid."
            ),
            (
                "The ε in a name is the worst-case ε. The paper's 2.66 is vote-dependent and uses the bound of 2017."
            ),
        ),
        figure=figure(
            {
                labels: _curve(labels, found)
                for labels in dict.fromkeys(labels for labels, _ in choices)
            }
        ),
    )


def _run(adult: AdultSplit, votes: VoteHistogram, scale: float, run: int) -> _Found:
    release = LNMax(scale).release(votes, SimulationNoise(run))
    forest, self_trained = (
        score(
            student, adult.X_public, np.arange(votes.n_queries), release.labels, adult.y_public, run
        )
        for student in (RandomForestClassifier(), SelfTrainingStudent())
    )
    accountant = Accountant()
    accountant.add(release.event, votes)
    return _Found(
        forest,
        self_trained,
        accountant.bound_2017(DELTA).reveal(),
        accountant.exact(DELTA).reveal(),
    )


def _rows(choice: _Choice, found: list[_Found], seconds: float) -> Iterator[Row]:
    labels, scale = choice
    is_papers = choice == _PAPERS
    name = f"{labels:,} labels, scale {scale:g}, ε = {round_up(_cost(choice))}"
    forest, interval = mean_share([one.forest for one in found])
    yield Row(
        name=f"{name}: forest, %", ours=forest, published=_PAPERS_ACCURACY if is_papers else None, interval=interval,
        seconds=seconds, better="higher",
    )  # fmt: skip
    self_trained, interval = mean_share([one.self_trained for one in found])
    yield Row(
        name=f"{name}: self-training, %", ours=self_trained, interval=interval, better="higher"
    )
    exact, interval = mean([one.exact for one in found])
    yield Row(name=f"{name}: exact vote-dependent ε", ours=exact, interval=interval, better="lower")
    if is_papers:
        bound, interval = mean([one.bound for one in found])
        yield Row(
            name=f"{name}: vote-dependent ε, bound of 2017", ours=bound, published=_PAPERS_EPSILON, interval=interval,
            better="lower", why=ONE_PARTITION,
        )  # fmt: skip


def _cost(choice: _Choice) -> float:
    labels, scale = choice
    return publishable(LNMax(scale), labels)


def figure(curves: Mapping[int, Series]) -> Panels:
    """Return a panel for each number of labels: accuracy of the forest against the worst-case ε, and the other curves.

    Parameters
    ----------
    curves : mapping of int to Series
        By number of labels.
    """
    papers = Series(
        name="PATE 2017, vote-dependent ε",
        x=(_PAPERS_EPSILON,),
        y=(_PAPERS_ACCURACY,),
        labels=("",),
        color=_BLACK,
    )
    return Panels(
        title=f"Adult: a forest trained on noisy labels of {FORESTS} forests",
        figures=tuple(
            Figure(
                title=f"{labels:,} labels",
                x_label=f"worst-case ε at δ = {DELTA:g}",
                y_label=f"accuracy on {EVALUATION_ROWS:,} rows, %",
                series=(
                    *(
                        replace(other, name="", interval=None, color=_LIGHT, markers=False)
                        for number, other in curves.items()
                        if number != labels
                    ),
                    replace(curve, name="", color=0),
                    *((papers,) if labels == _PAPERS[0] else ()),
                ),
                logarithmic=True,
                ticks=_TICKS,
                y_range=_SHOWN,
            )
            for labels, curve in curves.items()
        ),
        columns=3,
        height=6.0,
    )


def _curve(labels: int, found: dict[_Choice, list[_Found]]) -> Series:
    mine = sorted(
        ((_cost(choice), runs) for choice, runs in found.items() if choice[0] == labels),
        key=lambda at: at[0],
    )
    centers = [mean_share([one.forest for one in runs]) for _, runs in mine]
    return Series(
        name=f"{labels:,} labels",
        x=tuple(cost for cost, _ in mine),
        y=tuple(center for center, _ in centers),
        interval=_band([interval for _, interval in centers]),
    )


def _band(intervals: list[Interval | None]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    known = [interval for interval in intervals if interval is not None]
    return (tuple(low for low, _ in known), tuple(high for _, high in known)) if known else None
