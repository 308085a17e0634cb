"""Rivals in other libraries, where they are installed: Opacus, and diffprivlib, which needs an older scikit-learn."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from tutelage._internal.typing import IntArray, Matrix
from tutelage_reproductions.rivals_data import RivalData
from tutelage_reproductions.rivals_methods import Clipped, Method

_CLIP = 0.95  # quantile of the public lengths
_EPOCHS, _BATCH, _RATE = 10, 1024, 8.0
_TREES = 25


def installed(delta: float) -> list[Method]:
    """Return the rivals whose library can be imported.

    Parameters
    ----------
    delta : float
        For those that need one.
    """
    rivals = [
        ("opacus", "Opacus, DP-SGD, neighbors by adding or removing", _opacus),
        ("diffprivlib", "diffprivlib, logistic regression, δ = 0", _logistic),
        ("diffprivlib", "diffprivlib, random forest, δ = 0", _forest),
    ]
    return [Method(name, partial(_right, predict, delta)) for library, name, predict in rivals if find_spec(library)]


def missing() -> list[str]:
    """Return a sentence for each library that is not installed."""
    return [
        f"{name} was not installed, so its rows were left out."
        for name in ("Opacus", "diffprivlib")
        if not find_spec(name.lower())
    ]


class _Task(NamedTuple):
    """Rows clipped to length 1, with a constant for the bias."""

    private: Matrix
    classes: IntArray
    public: Matrix
    scored: Matrix
    n_classes: int


_Predict = Callable[[_Task, float, float, int], IntArray]  # task, ε, δ and seed to classes of the scored rows


def _right(predict: _Predict, delta: float, data: RivalData, epsilon: float, seed: int) -> float:
    rows = Clipped.of(data.public, data.public.shape[1], _CLIP, 0.3)
    private, public, scored = (rows.transform(X) / rows.longest for X in (data.private, data.public, data.scored))
    return data.right(predict(_Task(private, data.y_private, public, scored, data.n_classes), epsilon, delta, seed))


def _opacus(task: _Task, epsilon: float, delta: float, seed: int) -> IntArray:
    """Return what a logistic regression predicts that Opacus trained on random batches."""
    import torch

    torch.manual_seed(seed)
    model = torch.nn.Linear(task.private.shape[1], task.n_classes, bias=False)
    rows, classes = torch.as_tensor(task.private, dtype=torch.float32), torch.as_tensor(task.classes)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, classes), batch_size=_BATCH)
    model, optimizer, loader = (
        import_module("opacus")
        .PrivacyEngine()
        .make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), _RATE),
            data_loader=loader,
            target_epsilon=epsilon,
            target_delta=delta,
            epochs=_EPOCHS,
            max_grad_norm=1.0,
        )
    )
    for _ in range(_EPOCHS):
        for some, told in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(some), told).backward()
            optimizer.step()
    with torch.no_grad():
        return model(torch.as_tensor(task.scored, dtype=torch.float32)).argmax(dim=1).numpy()


def _logistic(task: _Task, epsilon: float, delta: float, seed: int) -> IntArray:  # noqa: ARG001  pure
    models = import_module("diffprivlib.models")
    model = models.LogisticRegression(epsilon=epsilon, data_norm=1.0, C=100.0, random_state=seed)
    return model.fit(task.private, task.classes).predict(task.scored)


def _forest(task: _Task, epsilon: float, delta: float, seed: int) -> IntArray:  # noqa: ARG001  pure
    bounds = (task.public.min(axis=0), task.public.max(axis=0) + 1e-6)
    model = import_module("diffprivlib.models").RandomForestClassifier(
        _TREES, epsilon=epsilon, bounds=bounds, classes=np.arange(task.n_classes), random_state=seed
    )
    return model.fit(np.clip(task.private, *bounds), task.classes).predict(np.clip(task.scored, *bounds))
