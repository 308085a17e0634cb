"""A report about the votes, for the data set owner only: how sure the teachers are, and the effect of noise.

Everything in it is computed from private votes without noise, and no ε counts it. So the file can be read by its owner
only, and every page and figure is marked as private.
"""

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tutelage._internal.files import open_private
from tutelage._internal.html import facts
from tutelage._internal.outputs import claimed, form
from tutelage._internal.typing import FloatArray, IntArray
from tutelage.exceptions import InvalidDataError
from tutelage.noise import SimulationNoise
from tutelage.reporting.drawings import WIDTH, Drawing, Scale, axes, box, dot, drawing, path, segment, stamp, write
from tutelage.reporting.html import document, figure
from tutelage.teachers import PrivateStatistics
from tutelage.votes import VoteHistogram

MARK = "PRIVATE: do not publish"
REPORT = form("a private report", lambda path: f"<title>{MARK}</title>".encode() in path.read_bytes())
_GAMMAS: FloatArray = np.geomspace(0.005, 1.0, 15)
_DRAWN_ROWS = 20_000  # the standard error of a share of these rows is below 0.4 %
_MOST_REPEATS = 200
_BINS = 20
_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 60, WIDTH - 20, 34, 250, 302


def write_private_report(
    file: str | os.PathLike[str],
    votes: VoteHistogram,
    *,
    labels: npt.ArrayLike | None = None,
    ballots: npt.ArrayLike | None = None,
) -> None:
    """Write Figures 2 and 3 of PATE 2017 for these votes, and the accuracy of the teachers, as private HTML.

    Parameters
    ----------
    file : path-like
        The file to write, mode 0600. One that is there already is replaced only if it is such a report.
    votes : VoteHistogram
        The private votes.
    labels : integer array of shape (queries,), optional
        The true class index of each query. Without labels, noisy aggregation is compared with the plurality.
    ballots : integer array of shape (teachers, queries), optional
        The vote of each teacher, −1 for an abstention. Needs `labels`.

    Raises
    ------
    InvalidDataError
        If there is no query, or votes, labels and ballots do not fit together.
    """
    page = private_page(votes, labels, ballots)
    with claimed(file, REPORT) as output, output.written() as part, open_private(part) as out:
        out.write(page)


def private_page(votes: VoteHistogram, labels: npt.ArrayLike | None, ballots: npt.ArrayLike | None) -> bytes:
    """Return what `write_private_report` writes; private."""
    right = _checked(votes, labels)
    drawings = [noise_figure(votes, right), gaps_figure(votes)]
    numbers = {"Queries": votes.n_queries, "Teachers": votes.n_teachers, "Classes": votes.n_classes}
    rows = [(name, f"{number:,}") for name, number in numbers.items()]
    if right is not None:
        plurality = float(np.mean(votes.counts.argmax(axis=1) == right))
        rows.append(("Plurality without noise", f"{plurality:.2%} right"))
    if ballots is not None:
        if right is None:
            raise InvalidDataError("`ballots` are compared with `labels`. Pass both.")
        drawings.append(teachers_figure(PrivateStatistics(ballots, right, votes.n_classes)))
    return _page(rows, drawings).encode()


def noise_figure(votes: VoteHistogram, labels: IntArray | None) -> Drawing:
    """Return Figure 2 of PATE 2017: how often the noisy plurality is right, by γ = 1/scale of Laplace noise; private.

    `votes` and `labels` are those of `write_private_report`.
    """
    truth = votes.counts.argmax(axis=1) if labels is None else labels
    repeats = min(_MOST_REPEATS, -(-_DRAWN_ROWS // votes.n_queries))
    noise = SimulationNoise(0)
    shares = [_noisy_share(votes, truth, float(gamma), repeats, noise) for gamma in _GAMMAS]
    x, y = Scale(float(_GAMMAS[0]), float(_GAMMAS[-1]), _LEFT, _RIGHT, logarithmic=True), Scale(0, 1.05, _BOTTOM, _TOP)
    right = "share like the plurality" if labels is None else "share right"
    points = [(x(gamma), y(share)) for gamma, share in zip(_GAMMAS.tolist(), shares, strict=True)]
    plurality = float(np.mean(votes.counts.argmax(axis=1) == truth))
    marks = [
        *axes(x, y, "γ per query, 1/votes (to the right: less noise)", right, shares=True),
        segment(_LEFT, y(plurality), _RIGHT, y(plurality), "dashes"),
        write(_LEFT + 6, y(plurality) - 6, f"no noise: {plurality:.1%}", "axis"),
        path(points, "curve-accent"),
        *(dot(*point, "dot-accent") for point in points),
        stamp(MARK, _HEIGHT),
    ]
    at = int(np.argmin(np.abs(np.log(_GAMMAS / 0.05))))
    caption = f"At γ = {_GAMMAS[at]:.2g}, {shares[at]:.1%}; Laplace noise, {repeats:,} simulated draws per query."
    return drawing("Accuracy of the noisy aggregation (Figure 2 of PATE 2017)", caption, _HEIGHT, marks)


def gaps_figure(votes: VoteHistogram) -> Drawing:
    """Return Figure 3 of PATE 2017: the lead of the first class over the second, for all queries; private."""
    ordered = np.sort(votes.counts, axis=1)
    gaps = (ordered[:, -1] - ordered[:, -2]) / votes.n_teachers
    caption = f"Half of the queries have a gap of at least {float(np.median(gaps)):.2f} of all teachers."
    title = "Gap between the first and the second class (Figure 3 of PATE 2017)"
    return _histogram(title, caption, gaps, "lead of the first class, as a share of all teachers", "queries")


def teachers_figure(statistics: PrivateStatistics) -> Drawing:
    """Return the distribution of the accuracy of the teachers; private."""
    accuracies = statistics.reveal().accuracies
    voted = accuracies[~np.isnan(accuracies)]
    if not len(voted):
        raise InvalidDataError("`ballots` must hold at least one vote; every teacher abstained.")
    caption = f"From {voted.min():.1%} to {voted.max():.1%}, {voted.mean():.1%} on average."
    return _histogram("Accuracy of each teacher", caption, voted, "share of rows labeled correctly", "teachers")


def _checked(votes: VoteHistogram, labels: npt.ArrayLike | None) -> IntArray | None:
    if votes.n_queries == 0:
        raise InvalidDataError("The votes must be about at least one query. Got none.")
    if labels is None:
        return None
    right = np.asarray(labels)
    if right.shape != (votes.n_queries,) or not np.issubdtype(right.dtype, np.integer):
        raise InvalidDataError(
            f"`labels` must be class indices of shape ({votes.n_queries},), one per query. Got {right.dtype} "
            f"of shape {right.shape}."
        )
    if right.min() < 0 or right.max() >= votes.n_classes:
        raise InvalidDataError(f"`labels` must be class indices from 0 to {votes.n_classes - 1}.")
    return right.astype(np.int64)


def _noisy_share(votes: VoteHistogram, truth: IntArray, gamma: float, repeats: int, noise: SimulationNoise) -> float:
    right = 0
    for _ in range(repeats):
        noisy = votes.counts + noise.discrete_laplace(1 / gamma, votes.counts.shape)
        right += int(np.sum(noisy.argmax(axis=1) == truth))
    return right / (repeats * votes.n_queries)


def _histogram(title: str, caption: str, values: FloatArray, x_label: str, counted: str) -> Drawing:
    heights, edges = np.histogram(values, bins=_BINS, range=(0.0, 1.0))
    x, y = Scale(0, 1, _LEFT, _RIGHT), Scale(0, float(heights.max()) * 1.1, _BOTTOM, _TOP)
    marks = axes(x, y, x_label, counted)
    for height, low, high in zip(heights.tolist(), edges, edges[1:], strict=False):
        marks.append(box(x(low) + 1, y(height), x(high) - x(low) - 2, _BOTTOM - y(height), "fill-accent"))
    return drawing(title, caption, _HEIGHT, [*marks, stamp(MARK, _HEIGHT)])


def _page(rows: Sequence[tuple[str, str]], drawings: Sequence[Drawing]) -> str:
    alarm = f'<p class="alarm" role="alert">{MARK}. This file shows votes of private data without protection.</p>'
    body = (
        f'<div class=stamp aria-hidden="true"><span>{MARK}</span></div><header>{alarm}<h1>{MARK}</h1>'
        "<p>For the data set owner only. Choose noise, thresholds and the number of queries on public data. If you "
        "choose them by this report, you spend privacy that no ε counts.</p></header>"
        f"<main><section class=part><h2>{MARK}: votes of the teachers</h2><section>{facts(tuple(rows))}"
        f"{''.join(figure(item) for item in drawings)}</section></section></main><footer>{alarm}</footer>"
    )
    return document(MARK, body, "private")
