"""PATE and the methods that a user could run instead, on the same features, rows, δ and neighbors.

Each method gets features that were learned from the public rows, private rows with their classes, and public rows
without classes. All methods are scored on rows that none of them has seen.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN, IntArray, Matrix
from tutelage.ballots import tally
from tutelage.estimator import PATEClassifier
from tutelage.exceptions import InvalidDataError
from tutelage.methods import CappedVotes, TeacherVotes
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.planning.methods import Target
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage.students.forest import ForestStudent
from tutelage.students.selection import Medoids, PublicKnowledge, QuerySelector, RandomRows
from tutelage.teachers import ClassMeans, HeadTeachers, Ridge
from tutelage.teachers.closed_form import Head
from tutelage_reproductions.protocol import Classifier, fit_classifier
from tutelage_reproductions.record import Record, Row, mean_share
from tutelage_reproductions.rivals_data import SOURCES, RivalData, Source
from tutelage_reproductions.rivals_libraries import installed, missing
from tutelage_reproductions.rivals_methods import (
    RIVALS,
    Method,
    Problem,
    Setting,
    chosen,
    mu_of,
    search,
    turned,
)

_DELTA = 1e-5
_EPSILONS = (0.1, 0.5, 1.0, 3.0)
_SMALL_EPSILONS = (0.0025, 0.005, 0.01, 0.02)  # on MNIST
_SEEDS = 5
_QUICK_SOURCES, _QUICK_SEEDS, _QUICK_EPSILONS, _QUICK_SETTINGS = (
    ("Adult", "SMS spam"),
    2,
    (1.0,),
    11,
)
_SEARCHED, _LARGEST_SVC = 4_000, 15_000  # rows
_MEANS = "DP class means"
_BALLOTS = "vector ballots"
_TABLES = ("Adult", "Diabetes")
_CAP = 20  # votes of a person
# From which ε on; and teachers, penalty, weight of a row above 50K, queries, and the student's 1/penalty.
_ADULT = (
    (3.0, (340, 0.1, 2, 2000, 0.1)),
    (1.0, (540, 1.0, 2, 4000, 0.1)),
    (0.5, (800, 2.0, 3, 2000, 0.06)),
    (0.0, (1100, 4.0, 3, 2000, 0.05)),
)


class _OldRecipe(NamedTuple):
    """Votes on queries, as the pages on teachers and students describe them."""

    head: Head
    n_teachers: int
    n_queries: int
    selector: QuerySelector
    student: Any


def vector_ballots(data: RivalData, epsilon: float, seed: int) -> float:
    """Return the share, in %, that a student of one noisy sum of ballots is right on, all settings at their defaults.

    Parameters
    ----------
    data : RivalData
        The split; only its scored rows may be compared with classes.
    epsilon : float
        Of all that is released, at δ = 1e-5, for one replaced row.
    seed : int
        Of everything that is drawn.
    """
    return data.right(_fitted(data, epsilon, seed).predict(data.scored))


def capped_votes(data: RivalData, epsilon: float, seed: int) -> float:
    """Return the share, in %, that a student is right on, by labels that people voted on near their own rows.

    Parameters
    ----------
    data, epsilon, seed
        As for `vector_ballots`.
    """
    student = ForestStudent() if data.name in _TABLES else "label-propagation"
    model = _fitted(data, epsilon, seed, CappedVotes(votes=_CAP, student=student))
    return data.right(model.predict(data.scored))


def _fitted(
    data: RivalData, epsilon: float, seed: int, method: CappedVotes | None = None
) -> Classifier:
    """Return a model by a method; without one, by vector ballots."""
    model = PATEClassifier(
        epsilon=epsilon,
        classes=range(data.n_classes),
        delta=_DELTA,
        method=method,
        features=data.as_they_are,
        noise=SimulationNoise(seed),
        random_state=seed,
    )
    return cast("Classifier", model.fit(data.private, data.y_private, X_public=data.public))


def old_recipe(data: RivalData, epsilon: float, seed: int) -> float:
    """Return the share, in %, that a student of noisy votes is right on.

    Parameters
    ----------
    data, epsilon, seed
        As for `vector_ballots`.
    """
    recipe, (pool, scored) = _documented(data.name, epsilon), data.for_students
    shards = Shards.of_rows(
        len(data.private), recipe.n_teachers, key=f"partition of rivals {seed}".encode()
    )
    asked = recipe.selector.select(PublicKnowledge.before(pool), recipe.n_queries, seed)
    teachers = HeadTeachers(recipe.head, n_classes=data.n_classes)
    ballots = teachers.fit_ballots(data.private, data.y_private, shards, data.public[asked])
    target = Target(
        epsilon=epsilon, delta=_DELTA, unit=shards.unit, people=len(data.private), public_rows=len(pool),
        classes=data.n_classes,
    )  # fmt: skip
    planned = target.method_asked(TeacherVotes(recipe.head, n_queries=recipe.n_queries))
    votes = tally(ballots, data.n_classes, shards.unit)
    released = np.full(len(pool), ABSTAIN)
    released[asked] = planned.mechanism.release(votes, SimulationNoise(seed)).labels
    student = fit_student(recipe.student, pool, released, np.arange(data.n_classes), seed=seed)
    return data.right(student.predict(scored))


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return the accuracy of every method; `quick` is one ε and two seeds on two data sets, with fewer settings."""
    rows = list[Row]()
    left_out = list[str]()
    sources = [source for source in SOURCES if not quick or source.name in _QUICK_SOURCES]
    for source in progress_bar(sources, "Rivals", len(sources), shown=progress):
        try:
            splits = splits_of(source, 1 if quick else source.folds, download)
        except InvalidDataError:
            left_out.append(f"{source.name} was left out, because its files were not found.")
            continue
        rows += rows_of(splits, quick=quick)
    return Record(
        name="rivals",
        source="PATE and the methods that a user could run instead",
        rows=tuple(rows),
        quick=quick,
        notes=(*_notes(_QUICK_SEEDS if quick else _SEEDS), *left_out, *missing()),
    )


def _notes(seeds: int) -> tuple[str, ...]:
    return (
        (
            f"Accuracy is on rows that no method has seen, at δ = {_DELTA:g} for one replaced row. Every ε is "
            f"worst-case. Each value is a mean over {seeds} seeds for noise, partition and student, each with "
            "its own split. On texts and Diabetes all rows are split again for each seed; elsewhere the "
            "private rows stay the same."
        ),
        (
            "All methods use the same features, learned from the public rows: thresholds and categories of "
            "tables, axes of words and letters of texts, gradients of images."
        ),
        (
            "The settings of the rivals (public principal axes, clipping, penalty, steps, rate) were chosen "
            "on a fifth of the private rows, and no ε counts this choice. This favors the rivals. Opacus "
            "counts neighbors by adding or removing a row, which is a weaker guarantee; diffprivlib has δ = "
            "0, which is a stronger one."
        ),
        (
            "Vector ballots: `PATEClassifier(epsilon=ε)` with no other setting but rows as features. Its "
            "constants were chosen on held-out private rows of these data sets, not on the rows that are "
            "scored here."
        ),
        (
            f"Capped votes of people: `CappedVotes(votes={_CAP})`. The student is a forest on tables and label "
            "propagation elsewhere."
        ),
        (
            "Votes, as documented: closed-form teachers over these features, GNMax with noise calibrated to "
            "ε, and the student that the guides recommend. Their settings were not chosen on these rows."
        ),
        (
            "Without privacy: the better one of a logistic regression and a support vector machine (on at "
            f"most {_LARGEST_SVC:,} rows), chosen by cross-validation."
        ),
    )


def splits_of(source: Source, folds: int, download: bool) -> list[RivalData]:
    """Return the first splits of a data set, with the axes that the rivals use."""
    return [turned(data) for data in source.splits(folds, download)]


def rows_of(
    splits: Sequence[RivalData], *, quick: bool = False, ours: bool = False
) -> Iterator[Row]:
    """Yield the numbers of one data set: bounds, and every method at every ε.

    Parameters
    ----------
    splits : sequence of RivalData
        Of the data set.
    quick : bool
        Whether one ε, two seeds and fewer settings are enough.
    ours : bool
        Whether to leave out the bounds and the methods of others.
    """
    name, seeds = splits[0].name, _QUICK_SEEDS if quick else _SEEDS
    for bound, shares in () if ours else _bounds(splits, quick=quick):
        yield _row(f"{name}, {bound}", shares)
    for epsilon in _QUICK_EPSILONS if quick else _EPSILONS:
        tuned = [_methods(split, epsilon, quick=quick, ours=ours) for split in _tuned_on(splits)]
        for methods in zip(*tuned, strict=True):
            shares = [
                methods[seed % len(methods)].run(splits[seed % len(splits)], epsilon, seed)
                for seed in range(seeds)
            ]
            yield _row(f"{name}, ε = {epsilon:g}: {methods[0].name}", shares)
    if name == "MNIST" and not (quick or ours):
        yield from _small(splits)


def _tuned_on(splits: Sequence[RivalData]) -> Sequence[RivalData]:
    """Return the splits on whose private rows settings are chosen: one, where all have the same private rows."""
    differ = any(not np.array_equal(split.y_private, splits[0].y_private) for split in splits)
    return splits if differ else splits[:1]


def _row(name: str, shares: Sequence[float]) -> Row:
    right, interval = mean_share(shares)
    return Row(name=f"{name}, %", ours=right, interval=interval, better="higher")


def _methods(data: RivalData, epsilon: float, *, quick: bool, ours: bool) -> Iterator[Method]:
    """Yield all methods; the settings of the rivals are chosen on this split."""
    yield Method(_BALLOTS, vector_ballots)
    yield Method("capped votes of people", capped_votes)
    yield Method("votes, as documented", old_recipe)
    if ours:
        return
    mu, problem = mu_of(epsilon, _DELTA), Problem.of(data)
    for rival in RIVALS:
        setting = chosen(rival.settings[:: _QUICK_SETTINGS if quick else 1], problem, mu)
        yield Method(rival.name, partial(_right, setting))
    yield from () if quick else installed(data, epsilon, _DELTA)


def _right(setting: Setting, data: RivalData, epsilon: float, seed: int) -> float:
    return data.right(
        setting.fit(Problem.of(data), mu_of(epsilon, _DELTA), seed).predict(data.scored)
    )


def _small(splits: Sequence[RivalData]) -> Iterator[Row]:
    """Yield what noisy class means are right on at a small ε, and a student of the public rows that they label."""
    (settings,) = (rival.settings for rival in RIVALS if rival.name == _MEANS)
    for epsilon in _SMALL_EPSILONS:
        mu = mu_of(epsilon, _DELTA)
        setting = chosen(settings, Problem.of(splits[0]), mu)
        fits = [setting.fit(Problem.of(data), mu, seed) for seed, data in enumerate(splits)]
        name = f"{splits[0].name}, ε = {epsilon:g}: {_MEANS}"
        yield _row(
            name,
            [data.right(fit.predict(data.scored)) for data, fit in zip(splits, fits, strict=True)],
        )
        spread = [
            _propagated(data, _surest(fit.scores(data.public)))
            for data, fit in zip(splits, fits, strict=True)
        ]
        yield _row(f"{name} and label propagation", spread)
        models = [_fitted(data, epsilon, seed) for seed, data in enumerate(splits)]
        name = f"{splits[0].name}, ε = {epsilon:g}: {_BALLOTS}"
        yield _row(
            name,
            [
                data.right(model.predict(data.scored))
                for data, model in zip(splits, models, strict=True)
            ],
        )
        spread = [
            _propagated(data, _surest(model.predict_proba(data.public)))
            for data, model in zip(splits, models, strict=True)
        ]
        yield _row(f"{name} and label propagation", spread)


def _surest(scores: Matrix) -> IntArray:
    """Return the class of the half of each class's rows whose score leads most, and −1 for the others."""
    classes, ordered = scores.argmax(axis=1), np.sort(scores, axis=1)
    lead = ordered[:, -1] - ordered[:, -2]
    medians = [
        np.median(lead[classes == label]) if np.any(classes == label) else 0
        for label in range(scores.shape[1])
    ]
    return np.where(lead >= np.asarray(medians)[classes], classes, ABSTAIN)


def _propagated(data: RivalData, labels: IntArray) -> float:
    pool, scored = data.for_students
    student = fit_student(
        LabelPropagationStudent(), pool, labels, np.arange(data.n_classes), seed=0
    )
    return data.right(student.predict(scored))


def _documented(name: str, epsilon: float) -> _OldRecipe:
    """Return the recipe for a data set, by what the pages say of Adult, of images, and of all else."""
    if name == "Adult":
        n_teachers, alpha, weight, n_queries, C = next(
            settings for least, settings in _ADULT if epsilon >= least
        )
        head = Ridge(alpha, class_weights=(1, weight))
        return _OldRecipe(
            head, n_teachers, n_queries, RandomRows(), LogisticRegression(C=C, max_iter=1000)
        )
    n_teachers, n_queries = (2_000, 200) if "MNIST" in name else (250, 200)
    return _OldRecipe(ClassMeans(), n_teachers, n_queries, Medoids(), LabelPropagationStudent())


def _bounds(splits: Sequence[RivalData], *, quick: bool) -> Iterator[tuple[str, list[float]]]:
    yield "majority class", [_majority(data) for data in splits]
    yield (
        "without privacy: private rows",
        [_best(data, data.private, data.y_private, quick=quick) for data in splits],
    )
    yield (
        "true classes of the public rows",
        [_best(data, data.public, data.y_public, quick=quick) for data in splits],
    )


def _majority(data: RivalData) -> float:
    return data.right(np.full(len(data.scored), np.bincount(data.y_private).argmax()))


def _best(data: RivalData, X: Matrix, y: IntArray, *, quick: bool) -> float:
    """Return what the better of two models is right on, which a cross-validation of some of the rows chooses."""
    rows = np.random.default_rng(0).permutation(len(X))
    some = rows[:_SEARCHED]
    logistic = LogisticRegression(max_iter=1000)
    best = search(logistic, {"C": (0.1, 1.0, 10.0, 100.0)}, X[some], y[some])
    if not quick:
        machine = search(SVC(), {"C": (1.0, 10.0)}, X[some], y[some])
        if machine.best_score_ > best.best_score_:
            best = machine
            rows = rows[:_LARGEST_SVC]
    fitted = fit_classifier(best.best_estimator_, X[rows], y[rows])
    return data.right(fitted.predict(data.scored))
