"""Rivals from other libraries, if installed: Opacus, and diffprivlib, which needs scikit-learn 1.6."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import IntArray, Matrix
from tutelage_reproductions.rivals_data import RivalData
from tutelage_reproductions.rivals_methods import Clipped, Method

_HELD_OUT = 0.2  # of the private rows, to choose settings
_CLIP = 0.95  # quantile of the public lengths
_AXES = (20, 1000)  # public principal axes at most
_EPOCHS, _BATCH = 10, 1024
_TREES = 25


class _Setting(NamedTuple):
    axes: int
    strength: float  # rate, or one over the penalty


class _Task(NamedTuple):
    """Rows clipped to length 1, with a constant for the bias, and what they may cost."""

    private: Matrix
    classes: IntArray
    public: Matrix
    n_classes: int
    epsilon: float
    delta: float


# With a strength and a seed, to predictions.
_Fit = Callable[[_Task, float, int], Callable[[Matrix], IntArray]]


class _Rival(NamedTuple):
    library: str
    name: str
    fit: _Fit
    settings: Sequence[_Setting]


def installed(data: RivalData, epsilon: float, delta: float) -> list[Method]:
    """Return the rivals whose library can be imported, with the settings that do best on held-out private rows.

    Parameters
    ----------
    data : RivalData
        Whose private rows choose.
    epsilon, delta : float
        Of the release.
    """
    order = np.random.default_rng(0).permutation(len(data.private))
    held_out, used = np.split(order, [round(len(order) * _HELD_OUT)])
    part = replace(
        data,
        private=data.private[used],
        y_private=data.y_private[used],
        scored=data.private[held_out],
        y_scored=data.y_private[held_out],
    )
    methods = list[Method]()
    for rival in _RIVALS:
        if find_spec(rival.library):
            runs = [partial(_right, rival.fit, setting, delta) for setting in rival.settings]
            best = max(runs, key=lambda run: run(part, epsilon, 0)) if len(runs) > 1 else runs[0]
            methods.append(Method(rival.name, best))
    return methods


def missing() -> list[str]:
    """Return a sentence for each library that is not installed."""
    return [
        f"{name} was not installed, so its rows were left out."
        for name in ("Opacus", "diffprivlib")
        if not find_spec(name.lower())
    ]


def _right(
    fit: _Fit, setting: _Setting, delta: float, data: RivalData, epsilon: float, seed: int
) -> float:
    rows = Clipped.of(data.public, min(setting.axes, data.public.shape[1]), _CLIP, 0.3)
    private, public, scored = (
        rows.transform(X) / rows.longest for X in (data.private, data.public, data.scored)
    )
    task = _Task(private, data.y_private, public, data.n_classes, epsilon, delta)
    return data.right(fit(task, setting.strength, seed)(scored))


def _opacus(task: _Task, rate: float, seed: int) -> Callable[[Matrix], IntArray]:
    """Fit a logistic regression on random batches."""
    import torch

    torch.manual_seed(seed)
    model = torch.nn.Linear(task.private.shape[1], task.n_classes, bias=False)
    rows, classes = (
        torch.as_tensor(task.private, dtype=torch.float32),
        torch.as_tensor(task.classes),
    )
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(rows, classes), batch_size=_BATCH
    )
    model, optimizer, loader = (
        import_module("opacus")
        .PrivacyEngine()
        .make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), rate),
            data_loader=loader,
            target_epsilon=task.epsilon,
            target_delta=task.delta,
            epochs=_EPOCHS,
            max_grad_norm=1.0,
        )
    )
    for _ in range(_EPOCHS):
        for some, told in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(some), told).backward()
            optimizer.step()
    weights = next(model.parameters()).detach().numpy()
    return lambda X: (X @ weights.T).argmax(axis=1)


def _logistic(task: _Task, strength: float, seed: int) -> Callable[[Matrix], IntArray]:
    model = import_module("diffprivlib.models").LogisticRegression(
        epsilon=task.epsilon, data_norm=1.0001, C=strength, random_state=seed
    )
    return model.fit(task.private, task.classes).predict


def _forest(task: _Task, _: float, seed: int) -> Callable[[Matrix], IntArray]:
    low, high = task.public.min(axis=0), task.public.max(axis=0) + 1e-6
    classes = np.arange(task.n_classes)
    model = import_module("diffprivlib.models").RandomForestClassifier(
        _TREES, epsilon=task.epsilon, bounds=(low, high), classes=classes, random_state=seed
    )
    fitted = model.fit(np.clip(task.private, low, high), task.classes)
    return lambda X: fitted.predict(np.clip(X, low, high))


_RIVALS = (
    _Rival(
        "opacus",
        "Opacus, DP-SGD, neighbors by adding or removing",
        _opacus,
        [_Setting(axes, rate) for axes, rate in product(_AXES, (2.0, 8.0))],
    ),
    _Rival(
        "diffprivlib",
        "diffprivlib, logistic regression, δ = 0",
        _logistic,
        [_Setting(axes, strength) for axes, strength in product(_AXES, (0.01, 0.1, 1.0))],
    ),
    _Rival("diffprivlib", "diffprivlib, random forest, δ = 0", _forest, [_Setting(20, 1.0)]),
)
