"""The predictions of `tutelage plan`, made from labeled public rows, beside runs on the private rows.

The one fitted number of a prediction is how much the real number of people adds to a trial. For every data set, it is
fitted on the other data sets.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from joblib import Parallel, cpu_count, delayed
from sklearn.linear_model import LogisticRegression

from tutelage._internal.typing import FloatArray, IntArray, Mask, Matrix
from tutelage.estimator import PATEClassifier
from tutelage.exceptions import InvalidDataError
from tutelage.methods import CappedVotes, Method, NoisyMoments, TeacherVotes
from tutelage.methods.votes import fewer_votes
from tutelage.noise import SimulationNoise
from tutelage.partition import unit_of_single_people
from tutelage.planning import plan
from tutelage.planning.methods import Target
from tutelage.planning.references import REFERENCES, guess_accuracy
from tutelage.planning.trials import STILL_TO_COME, PublicLabels, Trial, run_trials
from tutelage.teachers import ClassMeans, Ridge
from tutelage_reproductions.figures import Figure, Series
from tutelage_reproductions.record import Record, Row
from tutelage_reproductions.rivals_data import ALL_SOURCES, BUNDLED, RivalData, Source, unchanged

_DELTA = 1e-5
_EPSILONS = (0.1, 0.5, 1.0, 3.0)
_SPLITS, _SPLITS_OF_SMALL = 3, 12
_OF_GRID, _OF_GRID_SMALL = 2, 3  # splits
_WITHIN, _BEHIND = 3.0, 1.5  # points
_TOLD_LESS = 1.0  # ε of plans that are told a stand-in or nothing
_PEOPLE, _PUBLIC, _SCORED = 8_000, 1_500, 3_000  # at most, where settings are compared
_NO_RELEASE = "no release"
_ROW = unit_of_single_people("row", named=False)
_LOWEST, _LIGHT = 20.0, 7  # of the axes of the figure, in %; a color of the palette
_QUICK_SOURCES, _QUICK_EPSILONS, _QUICK_SETTINGS = ("Breast cancer", "Wine"), (1.0,), 8
# Another data set of the same kind, to plan from.
_STAND_INS = {
    "Adult": "Diabetes", "Diabetes": "Adult", "Diabetes, unbalanced": "Adult", "AG News": "SMS spam",
    "SMS spam": "AG News", "Fashion-MNIST": "MNIST", "MNIST": "Fashion-MNIST", "SVHN": "Fashion-MNIST",
    "Digits": "MNIST", "Breast cancer": "Wine", "Wine": "Iris", "Iris": "Wine",
}  # fmt: skip


class _Cell(NamedTuple):
    """One data set and ε: accuracy of trials and of runs, as means over splits."""

    name: str
    epsilon: float
    labels: int
    trial: float
    gain: float  # of the last doubling of the rows in the trial
    measured: float
    spread: float  # standard deviation of the measured accuracy over splits
    splits: int

    def expected(self, still_to_come: float) -> float:
        """Return the predicted accuracy."""
        return Trial((self.trial,), (self.trial - self.gain,), still_to_come).expected


class _Chosen(NamedTuple):
    """One data set and ε: accuracy of the recommended settings and of the best of the grid, as means over splits."""

    name: str
    epsilon: float
    expected: float
    measured: float
    best: float
    best_setting: str
    method: str
    proved: float


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return predicted and measured accuracy; `quick` uses two small data sets and few settings."""
    sources = [source for source in ALL_SOURCES if not quick or source.name in _QUICK_SOURCES]
    epsilons = _QUICK_EPSILONS if quick else _EPSILONS
    jobs = Parallel(n_jobs=1 if quick else cpu_count(), verbose=5 if progress else 0)
    predicted = _flat(
        jobs(delayed(_predicted)(source, epsilons, download, quick=quick) for source in sources)
    )
    settings = _grid()[:: len(_grid()) // _QUICK_SETTINGS] if quick else _grid()
    cells = [(source, epsilon) for source in sources for epsilon in epsilons]
    chosen = _flat(jobs(delayed(_chosen)(*cell, settings, download, quick=quick) for cell in cells))
    told = _flat(jobs(delayed(_told_less)(source, _TOLD_LESS, download) for source in sources))
    factors = {
        name: _fitted([cell for cell in predicted if cell.name != name])
        for name in {c.name for c in predicted}
    }
    rows = (
        *(_row_of_prediction(cell, factors[cell.name]) for cell in predicted),
        *(row for cell in chosen for row in _rows_of_choice(cell)),
        *told,
        *_summary(predicted, factors, chosen),
    )
    return Record(
        name="plan-check",
        source="predictions of tutelage plan, in place of published numbers",
        rows=rows,
        quick=quick,
        notes=_notes(factors, len(settings), chosen),
        figure=drawn(rows),
    )


def drawn(rows: Sequence[Row]) -> Figure:
    """Return measured against predicted accuracy, with the diagonal and the goal around it."""
    ends = (_LOWEST, 100.0)
    goal = ((_LOWEST - _WITHIN, 100 - _WITHIN), (_LOWEST + _WITHIN, 100 + _WITHIN))
    series = [
        Series(
            name=f"within {_WITHIN:g} points",
            x=ends,
            y=ends,
            interval=goal,
            color=_LIGHT,
            markers=False,
        )
    ]
    for color, epsilon in enumerate(_EPSILONS):
        found = [row for row in rows if f", ε = {epsilon:g}: vector ballots, predicted" in row.name]
        x, y = tuple(row.published or 0.0 for row in found), tuple(row.ours for row in found)
        series.append(
            Series(name=f"ε = {epsilon:g}", x=x, y=y, color=color, labels=("",) * len(found))
        )
    title, x_label, y_label = (
        "Plans for vector ballots",
        "predicted accuracy, %",
        "measured accuracy, %",
    )
    return Figure(title=title, x_label=x_label, y_label=y_label, series=tuple(series))


def _flat(parts: Any) -> list[Any]:
    return [one for part in parts for one in part]


def _notes(factors: dict[str, float], settings: int, chosen: Sequence[_Chosen]) -> tuple[str, ...]:
    others = [one for one in chosen if one.method != NoisyMoments.title]
    named = "; ".join(f"{one.method} on {one.name} at ε = {one.epsilon:g}" for one in others)
    return (
        "Predicted accuracy comes from trials on the labeled public rows of a split, for vector ballots at their "
        "defaults. Measured accuracy comes from runs on all private rows of the same split, on rows that no run has "
        f"seen. Both are means over {_SPLITS} splits ({_SPLITS_OF_SMALL} for the data sets of scikit-learn). The goal "
        f"is a difference of at most {_WITHIN:g} points.",
        "The share of the last doubling's gain that is added to a trial was fitted on the other data sets: it is "
        f"{min(factors.values()):.2f} to {max(factors.values()):.2f}. The planner uses {STILL_TO_COME:g}.",
        f"Recommended settings were compared on at most {_PEOPLE:,} private and {_PUBLIC:,} public rows with the best "
        f"of {settings} settings. The best is the largest of {settings} means over {_OF_GRID} splits "
        f"({_OF_GRID_SMALL} for small data sets), which is too high by chance. The goal is to be at most {_BEHIND:g} "
        "points behind.",
        "The settings are vector ballots (quantile of lengths, rounds, landmarks), few votes per person (votes each, "
        "student), and votes of trained teachers (class means or ridge, number of teachers, number of queries).",
        f"The recommended method was {NoisyMoments.title}"
        + (f", except {named}." if named else "."),
        f"δ = {_DELTA:g}, one replaced row. Every ε is proved from the noise alone.",
    )


def _loaded(source: Source, fold: int, download: bool) -> RivalData | None:
    try:
        return source.load(fold, download)
    except InvalidDataError:
        return None  # the record leaves out data sets whose files are missing


def _predicted(
    source: Source, epsilons: Sequence[float], download: bool, *, quick: bool
) -> list[_Cell]:
    splits = _SPLITS_OF_SMALL if source.name in BUNDLED else _SPLITS
    shares: dict[float, list[tuple[float, float, float]]] = {epsilon: [] for epsilon in epsilons}
    labels = 0
    if _loaded(source, 0, download) is None:
        return []
    for fold, data in enumerate(source.splits(2 if quick else splits, download)):
        known, labels = _labeled(data.public, data), len(data.y_public)
        for epsilon in epsilons:
            target = _target(data, epsilon)
            trial = run_trials(target.with_least_noise(NoisyMoments()), known, target.people)
            share = float(np.mean(trial.shares))
            shares[epsilon].append(
                (share, share - float(np.mean(trial.halves)), _run(data, None, epsilon, fold))
            )
    return [
        _mean_cell(source.name, epsilon, labels, np.array(found))
        for epsilon, found in shares.items()
    ]


def _mean_cell(name: str, epsilon: float, labels: int, found: FloatArray) -> _Cell:
    trial, gain, measured = found.mean(axis=0).tolist()
    return _Cell(name, epsilon, labels, trial, gain, measured, float(found[:, 2].std()), len(found))


def _labeled(rows: Matrix, data: RivalData) -> PublicLabels:
    X = np.asarray(rows, dtype=np.float64)
    return PublicLabels(X, X, data.y_public, data.n_classes, own=False)  # no labels to start from


def _target(data: RivalData, epsilon: float) -> Target:
    return Target(
        epsilon=epsilon, delta=_DELTA, unit=_ROW, people=len(data.private), public_rows=len(data.public),
        classes=data.n_classes,
    )  # fmt: skip


def _run(data: RivalData, method: Method | None, epsilon: float, seed: int) -> float:
    """Return the accuracy of a student on the scored rows; without a method, of vector ballots."""
    model = PATEClassifier(
        epsilon=epsilon,
        classes=range(data.n_classes),
        delta=_DELTA,
        method=method,
        features=data.as_they_are,
        noise=SimulationNoise(seed),
        random_state=seed,
    )
    with warnings.catch_warnings():
        # Students of noisy or missing classes are scored as they are.
        warnings.simplefilter("ignore")
        model.fit(data.private, data.y_private, X_public=data.public)
    return _share_right(model.predict(data.scored), data)


def _share_right(labels: npt.ArrayLike, data: RivalData) -> float:
    right: Mask = np.asarray(labels) == data.y_scored
    return float(np.mean(right))


def _grid() -> list[tuple[str, Method]]:
    """Return the methods of the grid, by name."""
    found: list[tuple[str, Method]] = [
        (f"vector ballots, quantile {quantile:g}, rounds {rounds}, landmarks {landmarks}",
         NoisyMoments(landmarks, quantile, rounds))
        for quantile in (0.1, 0.25, 0.4, 0.6, 0.8) for rounds in (1, 2) for landmarks in (100, 300, 1000)
    ]  # fmt: skip
    found += [
        (f"few votes, {cap} each, {_named(student)}", CappedVotes(votes=cap, student=student))
        for cap in (5, 20, 60)
        for student in ("label-propagation", LogisticRegression(max_iter=300))
    ]
    for teacher in (ClassMeans(), Ridge()):
        student = (
            "label-propagation"
            if isinstance(teacher, ClassMeans)
            else LogisticRegression(max_iter=300)
        )
        for number, queries in (
            (30, 50),
            (100, 50),
            (100, 200),
            (400, 50),
            (400, 200),
            (1000, 50),
            (1000, 200),
        ):
            method = TeacherVotes(teacher, number, queries, selection="medoids", student=student)
            found.append(
                (f"votes, {number} of {type(teacher).__name__}, {queries} queries", method)
            )
    return found


def _named(student: Any) -> str:
    return student if isinstance(student, str) else "logistic regression"


def _chosen(
    source: Source,
    epsilon: float,
    settings: Sequence[tuple[str, Method]],
    download: bool,
    *,
    quick: bool,
) -> list[_Chosen]:
    splits = _OF_GRID_SMALL if source.name in BUNDLED else _OF_GRID
    expected = list[float]()
    measured = list[float]()
    proved = list[float]()
    methods = list[str]()
    of_settings: dict[str, list[float]] = {name: [] for name, _ in settings}
    for fold in range(1 if quick else splits):
        data = _loaded(source, fold, download)
        if data is None:
            return []
        data = _cut(data, fold)
        found = plan(
            epsilon, people=len(data.private), X_public=data.public, y_public=data.y_public, classes=data.n_classes,
            delta=_DELTA, features=data.as_they_are,
        )  # fmt: skip
        best = found.recommended
        methods.append(_NO_RELEASE if best is None else best.method.title)
        proved.append(0.0 if best is None else best.epsilon.epsilon)
        # There is a share of the largest class, for there are public labels.
        expected.append(cast("float", found.majority) if best is None else best.expected)
        often = int(np.bincount(data.y_public).argmax())
        measured.append(
            _share_right(often, data)
            if best is None
            else _run(data, found.parameters()["method"], epsilon, fold)
        )
        # With no more queries than public rows, nor teachers than pairs of private ones.
        for name, method in settings:
            fitting = fewer_votes(method, len(data.private) // 2, len(data.public))
            of_settings[name].append(_run(data, fitting, epsilon, fold))
    best_setting = max(of_settings, key=lambda name: float(np.mean(of_settings[name])))
    return [
        _Chosen(
            source.name, epsilon, float(np.mean(expected)), float(np.mean(measured)),
            float(np.mean(of_settings[best_setting])), best_setting, max(methods, key=methods.count), max(proved),
        )
    ]  # fmt: skip


def _cut(data: RivalData, seed: int) -> RivalData:
    """Return fewer rows of each part."""
    rng = np.random.default_rng(seed)

    def some(rows: Matrix, labels: IntArray, most: int) -> tuple[Matrix, IntArray]:
        kept = rng.permutation(len(rows))[:most]
        return np.asarray(rows[kept], dtype=np.float64), labels[kept]

    private, y_private = some(data.private, data.y_private, _PEOPLE)
    public, y_public = some(data.public, data.y_public, _PUBLIC)
    scored, y_scored = some(data.scored, data.y_scored, _SCORED)
    return RivalData(
        name=data.name, private=private, y_private=y_private, public=public, y_public=y_public, scored=scored,
        y_scored=y_scored,
    )  # fmt: skip


def _told_less(source: Source, epsilon: float, download: bool) -> list[Row]:
    """Return predictions, with intervals, of plans that know a stand-in or sizes alone."""
    data = _loaded(source, 0, download)
    other = next(one for one in ALL_SOURCES if one.name == _STAND_INS[source.name])
    stand_in = _loaded(other, 0, download)
    if data is None or stand_in is None:
        return []
    target, head = _target(data, epsilon), f"{source.name} at ε = {epsilon:g}"
    cut = _cut(stand_in, 0)
    found = plan(
        epsilon, people=target.people, stand_in=(cut.public, cut.y_public),
        public_rows=min(target.public_rows, _PUBLIC), delta=_DELTA, features=unchanged(cut.public),
    )  # fmt: skip
    best = found.best
    others = [one for one in REFERENCES if one.name != source.name]
    nothing = guess_accuracy(target, None, others)
    return [
        _told(
            f"{head}, {other.name} as a stand-in: predicted, %",
            best.expected,
            (best.low, best.high),
        ),
        _told(f"{head}, no labels: predicted, %", nothing.expected, (nothing.low, nothing.high)),
    ]


def _told(name: str, expected: float, interval: tuple[float, float]) -> Row:
    return Row(name=name, ours=100 * expected, interval=(100 * interval[0], 100 * interval[1]))


def _fitted(cells: Sequence[_Cell]) -> float:
    """Return the factor of the last doubling's gain that predicts best, by least squares."""
    gains = np.array([max(cell.gain, 0.0) for cell in cells])
    missing = np.array([cell.measured - cell.trial for cell in cells])
    return float(gains @ missing / (gains @ gains)) if np.any(gains) else STILL_TO_COME


def _row_of_prediction(cell: _Cell, factor: float) -> Row:
    expected, measured = 100 * cell.expected(factor), 100 * cell.measured
    reach = 196 * cell.spread / np.sqrt(cell.splits)
    off = abs(expected - measured) > _WITHIN
    return Row(
        name=f"{cell.name}, ε = {cell.epsilon:g}: vector ballots, predicted and measured, %",
        ours=measured,
        published=expected,
        at_least=expected - _WITHIN,
        at_most=expected + _WITHIN,
        interval=(measured - reach, measured + reach),
        why=_why_off(cell, expected - measured) if off else None,
    )


def _why_off(cell: _Cell, off: float) -> str:
    few = f"{cell.labels:,} labeled public rows"
    if cell.labels < _PUBLIC:
        return f"A trial has only {few}, and the standard deviation of runs is {100 * cell.spread:.1f} points."
    return (
        f"Trials on {few} are {'pessimistic' if off < 0 else 'optimistic'} for these private rows."
    )


def _why_behind(cell: _Chosen) -> str:
    if cell.method == _NO_RELEASE:
        return f"In most splits, the plan advised against a release. Best: {cell.best_setting}."
    kind = cell.best_setting.split(",")[0]
    return {
        "vector ballots": "A plan does not vary quantile, rounds and landmarks.",
        "few votes": "In trials on public rows, few votes per person were not better by a point.",
        "votes": "A plan tries one setting of trained teachers, with label propagation as the student.",
    }[kind] + f" Best: {cell.best_setting}."


def _rows_of_choice(cell: _Chosen) -> Iterator[Row]:
    head = f"{cell.name}, ε = {cell.epsilon:g}: recommended settings"
    measured, best = 100 * cell.measured, 100 * cell.best
    yield Row(
        name=f"{head} and best of the grid, %",
        ours=measured,
        published=best,
        at_least=best - _BEHIND,
        better=None,
        why=None if measured >= best - _BEHIND else _why_behind(cell),
    )
    yield Row(
        name=f"{head}, predicted and measured, %", ours=measured, published=100 * cell.expected
    )
    yield Row(name=f"{head}: proved ε", ours=cell.proved, at_most=cell.epsilon, better="lower")


def _summary(
    predicted: Sequence[_Cell], factors: dict[str, float], chosen: Sequence[_Chosen]
) -> Iterator[Row]:
    off = [100 * abs(cell.expected(factors[cell.name]) - cell.measured) for cell in predicted]
    behind = [100 * (cell.best - cell.measured) for cell in chosen]
    yield Row(
        name=f"predictions within {_WITHIN:g} points, %",
        ours=100 * float(np.mean(np.array(off) <= _WITHIN)),
    )
    yield Row(name="largest error of a prediction, points", ours=max(off))
    yield Row(
        name=f"recommendations within {_BEHIND:g} points of the best of the grid, %",
        ours=100 * float(np.mean(np.array(behind) <= _BEHIND)),
    )
    yield Row(name="furthest behind the best of the grid, points", ours=max(behind))
