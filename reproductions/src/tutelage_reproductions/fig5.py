"""Distillation on MNIST (PATE 2017, Appendix B.1, Figure 5): gain of probabilities over labels.

No noise is added. Probabilities reveal much more about the teachers than labels; PATE releases labels.
"""

import time
import warnings
from importlib.util import find_spec

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from tutelage._internal.extras import install
from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidDataError
from tutelage.partition import Shards
from tutelage_reproductions.datasets import ImageSplit, load_mnist
from tutelage_reproductions.record import Record, Row, mean, mean_share, percent_right, share

_KEY = b"partition of the reproduction of distillation"
_TEACHERS = 50
_EPOCHS = 20
_PUBLIC = 4_000  # of 10,000 test images: 38 %, as in the paper
_SAMPLES = (250, 500, 1000, 2000, 4000)
_QUICK_SAMPLES = (500, 2000)
_SEEDS, _QUICK_SEEDS = 5, 3
_STEPS, _QUICK_STEPS = 400, 300
_TEMPERATURES = (1.0, 5.0)
_WHITE = 255.0
_CLASSES = 10


def reproduce(*, quick: bool, download: bool, progress: bool) -> Record:
    """Return the accuracies of students by number of samples; `quick` takes fewer samples, seeds and steps."""
    if find_spec("torch") is None:
        raise InvalidDataError(
            f"The students of fig5 are networks, which need torch: {install('torch')}."
        )
    mnist = load_mnist(download=download)
    started = time.perf_counter()
    probabilities = teach(mnist, progress=progress)
    right, interval = share(plurality(probabilities) == mnist.y_test)
    seconds = time.perf_counter() - started
    name = f"plurality of {_TEACHERS} teachers: %"
    rows = [Row(name=name, ours=right, interval=interval, seconds=seconds, better="higher")]
    rows += _curves(mnist, probabilities, quick=quick, progress=progress)
    seeds, steps = (_QUICK_SEEDS, _QUICK_STEPS) if quick else (_SEEDS, _STEPS)
    return Record(
        name="fig5",
        source="PATE 2017 (arXiv:1610.05755v4), Appendix B.1, Figure 5",
        rows=tuple(rows),
        quick=quick,
        notes=(
            (
                "The paper's figure is on SVHN and has no numbers. We use MNIST because the samples of SVHN are "
                f"too small for so many teachers. {_TEACHERS} networks with one hidden layer learn on disjoint "
                f"shards of the training images. {_PUBLIC:,} test images are public; the other "
                f"{len(mnist.X_test) - _PUBLIC:,} score the students, which are networks of two convolutions "
                f"trained for {steps} steps. All settings were chosen on training images."
            ),
            (
                f"A gain is the difference in points to plurality labels. Each value is a mean over {seeds} seeds "
                "for split and student, which plurality and distillation share; the interval is over seeds."
            ),
            (
                "No noise is added. One teacher changes the sum of probability vectors by up to 2 in L1 distance, "
                "as it does vote counts. However, a released sum shows all entries, whereas a label shows only "
                "which entry is largest."
            ),
        ),
    )


def teach(mnist: ImageSplit, *, progress: bool) -> FloatArray:
    """Return each teacher's class probabilities of each test image, shape (teachers, images, classes)."""
    shards = Shards.of_rows(len(mnist.X_train), _TEACHERS, key=_KEY)
    X, X_test = _scaled(mnist.X_train), _scaled(mnist.X_test)
    found = np.zeros((_TEACHERS, len(X_test), _CLASSES))
    for teacher in progress_bar(range(_TEACHERS), "teachers", _TEACHERS, shown=progress):
        mine = shards.assignment == teacher
        model = MLPClassifier(
            (32,),
            learning_rate_init=3e-3,
            max_iter=_EPOCHS,
            n_iter_no_change=_EPOCHS,
            tol=0.0,
            random_state=teacher,
        )
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it stops after so many epochs
            model.fit(X[mine], mnist.y_train[mine])
        found[teacher][:, model.classes_] = model.predict_proba(X_test)
    return found


def plurality(probabilities: FloatArray) -> IntArray:
    """Return the class that most teachers find likeliest, shape (images,)."""
    votes = np.eye(probabilities.shape[2], dtype=np.int64)[probabilities.argmax(axis=2)]
    return votes.sum(axis=0).argmax(axis=1)


def summed(probabilities: FloatArray, temperature: float) -> FloatArray:
    """Return the normalized sum of the teachers' probabilities at a temperature, shape (images, classes).

    Probabilities become p^(1/T), normalized, which is the softmax of scores divided by T.
    """
    softer = probabilities ** (1 / temperature)
    softer /= softer.sum(axis=2, keepdims=True)
    return softer.mean(axis=0)


def _curves(
    mnist: ImageSplit, probabilities: FloatArray, *, quick: bool, progress: bool
) -> list[Row]:
    seeds, samples = (_QUICK_SEEDS, _QUICK_SAMPLES) if quick else (_SEEDS, _SAMPLES)
    steps = _QUICK_STEPS if quick else _STEPS
    targets = {"plurality": (1.0, np.eye(_CLASSES)[plurality(probabilities)])} | {
        f"T = {temperature:g}": (temperature, summed(probabilities, temperature))
        for temperature in _TEMPERATURES
    }
    work = [(n, name, seed) for n in samples for name in targets for seed in range(seeds)]
    started = time.perf_counter()
    found: dict[tuple[int, str, int], float] = {}
    for n, name, seed in progress_bar(work, "students", len(work), shown=progress):
        found[n, name, seed] = _accuracy(mnist, *targets[name], n, steps, seed)
    seconds = time.perf_counter() - started
    rows = list[Row]()
    for n in samples:
        baseline = np.array([found[n, "plurality", seed] for seed in range(seeds)])
        center, interval = mean_share(baseline)
        rows.append(
            Row(
                name=f"{n:,} samples, plurality: %",
                ours=center,
                interval=interval,
                seconds=seconds,
                better="higher",
            )
        )
        for name in [name for name in targets if name != "plurality"]:
            gain, interval = mean([found[n, name, seed] for seed in range(seeds)] - baseline)
            rows.append(
                Row(
                    name=f"{n:,} samples, {name}: gain",
                    ours=gain,
                    interval=interval,
                    seconds=seconds,
                    better="higher",
                )
            )
    return rows


def _accuracy(
    mnist: ImageSplit, temperature: float, targets: FloatArray, n: int, steps: int, seed: int
) -> float:
    from tutelage.networks import TwoConvolutions
    from tutelage_reproductions.distillation import DistilledStudent

    rows = np.random.default_rng(seed).permutation(len(mnist.X_test))
    public, held = rows[:n], rows[_PUBLIC:]
    X = _scaled(mnist.X_test)
    student = DistilledStudent(
        TwoConvolutions(shift=0, scale=1.0), temperature=temperature, steps=steps, random_state=seed
    ).fit(X[public], targets[public])
    return percent_right(student.predict(X[held]), mnist.y_test[held])


def _scaled(X: Matrix) -> Matrix:
    return X / np.float32(_WHITE)
