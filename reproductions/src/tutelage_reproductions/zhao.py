"""Labels by local mechanisms, for entities without a trusted curator (Zhao): accuracy by mechanism, decoder and ε.

The paper prints equations and no numbers; the first rows are its equations evaluated.
"""

import time
import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import IntArray
from tutelage.accounting.composition import pure_dp_composition
from tutelage.accounting.data_independent import basic_epsilon, epsilon
from tutelage.ballots import tally
from tutelage.events import RandomizedResponse, Repeated
from tutelage.exceptions import AsPrintedWarning
from tutelage.mechanisms import GNMax, LNMax
from tutelage.noise import SimulationNoise
from tutelage.privacy import ONE_ENTITY
from tutelage_consortium.local import (
    ClassResponse,
    Decoder,
    KRandomizedResponse,
    LocalGaussian,
    TruncatedGeometric,
    TruncatedGeometricAsPrinted,
    count_reports,
    decode,
    invert_channel,
    local_gaussian_for,
    maximize_likelihood,
)
from tutelage_reproductions.figures import Figure, Panels, Series
from tutelage_reproductions.record import Record, Row, share

_ENTITIES, _CLASSES, _AGREEMENT = 250, 10, 0.8
_EPSILONS = (0.5, 1.0, 2.0, 4.0)
_DELTA = 1e-5
_QUERIES, _QUICK_QUERIES, _AT_ONCE = 40_000, 2_000, 1_000
_RESPONSES, _SMALL = 100, 0.1
_DOTTED = 3
_DRAWN_AS = {  # how each curve looks: color and dashes
    "Mechanisms": {
        "k-RR, plurality": (0, 0),
        "local Gaussian, sum": (2, 0),
        "truncated geometric, likelihood": (1, 0),
        "central: GNMax": (6, _DOTTED),
    },
    "Decoders of the truncated geometric mechanism": {
        "truncated geometric, likelihood": (1, 0),
        "truncated geometric, inverse": (5, 1),
        "truncated geometric, plurality": (4, 2),
        "as printed, plurality": (3, 1),
    },
}


_Cell = tuple[str, float]  # mechanism with decoder, and ε


class _Batch(NamedTuple):
    truth: IntArray
    ballots: IntArray


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:  # noqa: ARG001  there are no data
    """Return the share of right labels of every mechanism and decoder; `quick` asks 2,000 queries."""
    queries = _QUICK_QUERIES if quick else _QUERIES
    right, seconds = _measure(queries, progress=progress)
    rows = list(equations())
    for (name, value), found in right.items():
        ours, interval = share(found)
        took = seconds[name, value]
        rows.append(
            Row(
                name=f"{name}, ε = {value:g}: accuracy, %",
                ours=ours,
                interval=interval,
                seconds=took,
            )
        )
    return Record(
        name="zhao",
        source="Zhao, Distributed Deep Learning under Differential Privacy with the Teacher-Student Paradigm",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                f"{_ENTITIES} entities vote on {_CLASSES} classes. A vote is correct with probability "
                f"{_AGREEMENT:g}; otherwise each wrong class is equally likely. There are {queries:,} queries; "
                "intervals are over queries."
            ),
            (
                "ε is that of one label for all data of an entity. Gaussian mechanisms have δ = 1e-05. GNMax uses "
                "the σ of the local Gaussian once on all votes together, whereas locally every entity adds this "
                "noise."
            ),
            (
                "Plurality of the truncated geometric mechanism is the paper's equation (4). `decode` refuses it "
                "where it elects a wrong class. The published values for equation (2) are this equation "
                "evaluated."
            ),
        ),
        figure=figure({cell: 100 * float(np.mean(found)) for cell, found in right.items()}),
    )


def equations() -> Iterator[Row]:
    """Yield what the paper's equations come to, beside what is true."""
    printed, corrected = _as_printed(1.0), TruncatedGeometric(1.0)
    law = printed.channel(_CLASSES)
    yield Row(
        name="equation (2), ε = 1: chance that class 1 is reported as 0",
        ours=law[0, -1],
        published=0.475,
    )
    loss = float(np.log(law.max(axis=0) / law.min(axis=0)).max())
    yield Row(name="equation (2), ε = 1: largest privacy loss", ours=loss, published=1.0)
    law = corrected.channel(_CLASSES)
    loss = float(np.log(law.max(axis=0) / law.min(axis=0)).max())
    yield Row(name="corrected, ε = 1: largest privacy loss", ours=loss, at_most=1.0 + 1e-9)
    kept = corrected.channel(2)[0, 0]
    yield Row(
        name="corrected, 2 classes, ε = 1: chance to keep the class",
        ours=kept,
        published=np.e / (1 + np.e),
    )
    responses = Repeated(RandomizedResponse(_SMALL, _CLASSES, ONE_ENTITY), _RESPONSES)
    name = f"{_RESPONSES} responses at ε = {_SMALL:g}"
    basic = basic_epsilon(responses).epsilon
    yield Row(name=f"{name}: T·ε", ours=basic, published=_RESPONSES * _SMALL, better="lower")
    optimal = pure_dp_composition(_SMALL, _RESPONSES, _DELTA)
    yield Row(name=f"{name}: any pure mechanism, δ = {_DELTA:g}", ours=optimal, better="lower")
    exact = epsilon(responses, _DELTA).epsilon
    yield Row(
        name=f"{name}: k-RR over {_CLASSES} classes, δ = {_DELTA:g}",
        ours=exact,
        at_most=optimal,
        better="lower",
    )


def _measure(queries: int, *, progress: bool) -> tuple[dict[_Cell, IntArray], dict[_Cell, float]]:
    """Return which labels are right and how long it took, by mechanism with decoder, and ε."""
    found: dict[_Cell, list[IntArray]] = {}
    seconds: dict[_Cell, float] = {}
    gaussians = {value: local_gaussian_for(value, _DELTA, 1) for value in _EPSILONS}
    starts = range(0, queries, _AT_ONCE)
    for start in progress_bar(starts, "queries", len(starts), shown=progress):
        batch = _votes(min(_AT_ONCE, queries - start), start)
        noise = SimulationNoise(start + 1)
        for value in _EPSILONS:
            started = time.perf_counter()
            for name, labels in _labels(batch, value, gaussians[value], noise):
                found.setdefault((name, value), []).append(labels == batch.truth)
                now = time.perf_counter()
                seconds[name, value] = seconds.get((name, value), 0.0) + now - started
                started = now
    return {key: np.concatenate(parts) for key, parts in found.items()}, seconds


def _votes(queries: int, seed: int) -> _Batch:
    generator = np.random.default_rng(seed)
    truth = generator.integers(_CLASSES, size=queries)
    others = (truth + generator.integers(1, _CLASSES, size=(_ENTITIES, queries))) % _CLASSES
    agree = generator.random((_ENTITIES, queries)) < _AGREEMENT
    return _Batch(truth, np.where(agree, truth, others))


def _labels(
    batch: _Batch, value: float, gaussian: LocalGaussian, noise: SimulationNoise
) -> Iterator[tuple[str, IntArray]]:
    """Yield the labels of every mechanism and decoder at this ε per label."""
    kinds: dict[str, ClassResponse] = {
        "k-RR": KRandomizedResponse(value),
        "truncated geometric": TruncatedGeometric(value),
        "as printed": _as_printed(value),
    }
    for name, mechanism in kinds.items():
        channel = mechanism.channel(_CLASSES)
        counts = count_reports(mechanism.perturb(batch.ballots, _CLASSES, noise), channel.shape[1])
        yield f"{name}, {Decoder.PLURALITY}", counts[:, :_CLASSES].argmax(axis=1)
        yield f"{name}, {Decoder.INVERSE}", invert_channel(counts, channel).argmax(axis=1)
        yield f"{name}, {Decoder.LIKELIHOOD}", maximize_likelihood(counts, channel).argmax(axis=1)
    reports = gaussian.perturb(batch.ballots, _CLASSES, noise)
    yield "local Gaussian, sum", decode(reports, gaussian, _CLASSES)
    votes = tally(batch.ballots.astype(np.int16), _CLASSES, ONE_ENTITY)
    yield "central: LNMax", LNMax(2 / value).release(votes, noise).labels
    yield "central: GNMax", GNMax(gaussian.sigma).release(votes, noise).labels


def _as_printed(value: float) -> TruncatedGeometricAsPrinted:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AsPrintedWarning)  # what is wrong with it is what is shown
        return TruncatedGeometricAsPrinted(value)


def figure(accuracies: Mapping[_Cell, float]) -> Panels:
    """Return a panel for the mechanisms, each with its best decoder, and one for the decoders of the paper's.

    Parameters
    ----------
    accuracies : mapping of (str, float) to float
        In percent, by mechanism with decoder, and ε.
    """
    return Panels(
        title=f"Correct labels of {_ENTITIES} entities, each right with probability {_AGREEMENT:g}",
        figures=tuple(
            Figure(
                title=title,
                x_label="ε of one label, for all data of an entity",
                y_label="correct labels, %",
                series=tuple(
                    Series(
                        name=name,
                        x=_EPSILONS,
                        y=tuple(accuracies[name, value] for value in _EPSILONS),
                        color=color,
                        dashes=dashes,
                        markers=dashes != _DOTTED,
                    )
                    for name, (color, dashes) in drawn.items()
                ),
                logarithmic=True,
                y_range=(0, 103),
                ticks=_EPSILONS,
            )
            for title, drawn in _DRAWN_AS.items()
        ),
        columns=2,
    )
