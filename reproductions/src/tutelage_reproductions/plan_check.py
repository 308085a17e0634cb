"""Whether `tutelage plan` is right: predicted from public votes, then measured with 60,000 private images of MNIST.

What is predicted comes from class means of a few public images each, whose true labels are known, voting on other
public images; and again from another data set, 1,797 small digits. The private images are used for the measurement
alone.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import IntArray, Matrix
from tutelage.accounting import Accountant, data_independent
from tutelage.datasets import ImageSplit, load_digits, load_mnist
from tutelage.events import Repeated
from tutelage.features import PublicRows, glyph_features
from tutelage.noise import SimulationNoise
from tutelage.partition import Shards
from tutelage.planning import Option, Plan, TeacherModel, plan, votes_of_public_teachers
from tutelage.students import LabelPropagationStudent, fit_student
from tutelage.students.selection import Medoids, PublicKnowledge
from tutelage.teachers import ClassMeans, HeadTeachers
from tutelage.votes import VoteHistogram, tally
from tutelage_reproductions.protocol import paper_split
from tutelage_reproductions.record import Record, Row, mean_share

_KEY = b"partition of the reproduction of MNIST"
_DELTA = 1e-5
_WISHES = ((0.3, 100), (0.076, 200), (0.021, 200))  # ε, labels
_LABELLED, _SIZES = 3000, (15, 60)  # public images with labels, and how many each public teacher gets
_DIGITS_SIZES = (15, 30)
_GOAL = 0.5  # label propagation on MNIST stands every other label wrong
_DRAWS, _STUDENTS = 50, 5
_WITHIN = 0.2
_EASIER = "It depends on the votes, and the plan foretells those on queries that are less easy than medoids."


class _Seen(NamedTuple):
    """MNIST as teachers see it, and as the choice of queries and the student do; the pool is public."""

    private: Matrix
    asked: Matrix
    pool: Matrix
    held_out: Matrix
    pool_labels: IntArray
    held_out_labels: IntArray


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return what the plan predicted, as published, beside what was measured; `quick` has one wish and no digits."""
    mnist = load_mnist(download=download)
    seen = _see(mnist)
    models = {"public MNIST": _from_public_images(seen, len(mnist.classes))}
    if not quick:
        models["digits"] = _from_digits()
    cases = [(name, *wish) for name in models for wish in (_WISHES[:1] if quick else _WISHES)]
    rows: list[Row] = []
    for name, epsilon, queries in progress_bar(cases, "Plans", len(cases), shown=progress):
        found = plan(
            epsilon,
            _DELTA,
            rows=len(mnist.X_train),
            classes=len(mnist.classes),
            model=models[name],
            queries=queries,
            public_rows=len(seen.pool),
            label_accuracy=_GOAL,
        )
        rows += _rows(name, found, seen, mnist)
    return Record(
        name="plan-check",
        source="predictions of tutelage plan, in the place of published numbers",
        rows=tuple(rows),
        quick=quick,
        notes=(
            f"Predicted from {_LABELLED:,} public test images with labels, two thirds of them to teach class means of "
            f"{' or '.join(map(str, _SIZES))} images and one third to be voted on; or from scikit-learn's digits. "
            f"Shares are asked to come within {_WITHIN:.0%} of the prediction. Queries of the real run are medoids of "
            "9,000 images, which are easier than the images that were voted on for the prediction.",
            f"Labels are means over {_DRAWS} draws of the noise, with the interval of that mean; students over "
            f"{_STUDENTS}, right on test[9000:].",
            f"The ε of the plan and of the release hold for any votes, at δ = {_DELTA:g}. The exact ε depends on the "
            "votes; MNIST's are no secret.",
        ),
    )


def _see(mnist: ImageSplit) -> _Seen:
    split = paper_split()
    features = glyph_features(PublicRows(mnist.X_test[split.pool], "public MNIST test images"))
    without_diffusion, diffusion = features[:-1], features[-1]
    pool = without_diffusion.transform(mnist.X_test[split.pool])
    return _Seen(
        private=features.transform(mnist.X_train),
        asked=diffusion.transform(pool),
        pool=pool,
        held_out=without_diffusion.transform(mnist.X_test[split.held_out]),
        pool_labels=mnist.y_test[split.pool],
        held_out_labels=mnist.y_test[split.held_out],
    )


def _from_public_images(seen: _Seen, classes: int) -> TeacherModel:
    labelled = slice(0, _LABELLED)
    proxies = votes_of_public_teachers(
        ClassMeans(), seen.asked[labelled], seen.pool_labels[labelled], _SIZES, n_classes=classes
    )
    return TeacherModel.from_votes(proxies)


def _from_digits() -> TeacherModel:
    digits = load_digits()
    features = glyph_features(PublicRows(digits.X_test, "the last 360 digits"), (8, 8), cell=2, n_components=32)
    X = np.concatenate([features.transform(digits.X_train), features.transform(digits.X_test)])
    y = np.concatenate([digits.y_train, digits.y_test])
    return TeacherModel.from_votes(votes_of_public_teachers(ClassMeans(), X, y, _DIGITS_SIZES, n_classes=10))


def _rows(name: str, found: Plan, seen: _Seen, mnist: ImageSplit) -> Iterator[Row]:
    best = found.recommended
    queries, votes = _ask(best, seen, mnist)
    truth = seen.pool_labels[queries]
    head = f"{name}, ε = {found.target_epsilon:g}: {best.teachers:,} teachers, {best.in_short()}, {best.queries} asked"
    right = votes.counts[np.arange(len(queries)), truth]
    yield _near(f"{head}: one teacher right, %", 100 * right.sum() / votes.counts.sum(), 100 * best.teacher_accuracy)
    plurality = 100 * float(np.mean(votes.counts.argmax(axis=1) == truth))
    yield _near(f"{head}: plurality right, %", plurality, 100 * best.right_without_noise)
    drawn = [best.mechanism.release(votes, SimulationNoise(seed)) for seed in range(_DRAWS)]
    shares, interval = mean_share([100 * np.mean(r.labels[r.answered] == truth[r.answered]) for r in drawn])
    yield _near(f"{head}: labels right, %", shares, 100 * best.right, interval)
    one = best.mechanism.event_of_one(votes.n_classes, votes.unit, simulated=False)
    epsilon = data_independent.epsilon(Repeated(one, len(queries)), _DELTA).epsilon
    yield Row(
        name=f"{head}: ε", ours=epsilon, published=found.epsilon.epsilon, at_most=found.target_epsilon, better="lower"
    )
    accountant = Accountant()
    accountant.add_release(one, votes, drawn[0].voted)
    exact = accountant.exact(_DELTA).reveal()
    yield Row(name=f"{head}: exact ε", ours=exact, published=found.private_epsilon, better="lower", why=_EASIER)
    scores = [_score(seen, queries, release.labels, seed) for seed, release in enumerate(drawn[:_STUDENTS])]
    right_students, interval = mean_share(scores)
    yield Row(name=f"{head}: student, %", ours=right_students, interval=interval, better="higher")


def _ask(best: Option, seen: _Seen, mnist: ImageSplit) -> tuple[IntArray, VoteHistogram]:
    queries = Medoids().select(PublicKnowledge.before(seen.pool), best.queries, seed=0)
    shards = Shards.of_rows(len(seen.private), best.teachers, key=_KEY)
    teachers = HeadTeachers(ClassMeans(), n_classes=len(mnist.classes))
    ballots = teachers.fit_ballots(seen.private, mnist.y_train, shards, seen.asked[queries])
    return queries, tally(ballots, len(mnist.classes), shards.unit)


def _score(seen: _Seen, queries: IntArray, labels: IntArray, seed: int) -> float:
    released = np.full(len(seen.pool), -1)
    released[queries] = labels
    student = fit_student(LabelPropagationStudent(), seen.pool, released, np.arange(10), seed=seed)
    return 100 * float(np.mean(student.predict(seen.held_out) == seen.held_out_labels))


def _near(name: str, ours: float, predicted: float, interval: tuple[float, float] | None = None) -> Row:
    return Row(
        name=name, ours=float(ours), published=predicted, at_least=(1 - _WITHIN) * predicted,
        at_most=(1 + _WITHIN) * predicted, interval=interval,
    )  # fmt: skip
