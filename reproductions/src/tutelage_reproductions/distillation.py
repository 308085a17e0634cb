"""Distillation: a student that learns from probabilities instead of labels (PATE 2017, Appendix B.1).

This is a baseline without privacy: tutelage releases no probabilities. One teacher changes the sum of the probability
vectors by up to 2 in L1 distance, as it does vote counts, but a release would show every entry instead of only the
index of the largest one. The authors found the gain too small to justify this.
"""

from collections.abc import Callable
from typing import Self, final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits
from torch import nn
from torch.nn import functional

from tutelage._internal.typing import FloatArray, IntArray
from tutelage._internal.validation import integer_at_least, positive
from tutelage.exceptions import InvalidDataError
from tutelage.networks import drawing_from
from tutelage.students.base import checked_rows
from tutelage.students.networks.base import (
    arrays_of,
    network_from,
    restore,
    scores_of,
)
from tutelage_reproductions.students.adam import adam_of


@final
class DistilledStudent(ClassifierMixin, BaseEstimator):
    """A network that learns to give the probabilities of its teachers; not private.

    The loss of a row is T² times the cross entropy of its target and the network's softmax at temperature T [1]_. With
    targets of one class each, at temperature 1, it is the usual supervised training.

    Parameters
    ----------
    factory : callable
        From the number of classes to an untrained `torch.nn.Module`, from rows to scores.
    temperature : float
        T, at which the targets were made.
    steps : int
        Number of optimizer steps.
    batch_size : int
        Rows per step, drawn with replacement.
    learning_rate : float
        First step size of Adam; it falls to zero in a line.
    random_state : int, optional
        Seed of weights and batches; None for a fresh one.

    Attributes
    ----------
    weights_ : dict of str to ndarray
        Parameters and buffers of the trained network, by name.
    classes_ : integer array of shape (classes,)
        Class indices, as the targets' columns.

    References
    ----------
    .. [1] Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", arXiv:1503.02531, section 2.
    """

    def __init__(
        self,
        factory: Callable[[int], nn.Module],
        *,
        temperature: float = 1.0,
        steps: int = 1000,
        batch_size: int = 32,
        learning_rate: float = 2e-3,
        random_state: int | None = None,
    ) -> None:
        self.factory = factory
        self.temperature = temperature
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, targets: npt.ArrayLike) -> Self:
        """Learn from rows and their target probabilities.

        Parameters
        ----------
        X : array of shape (rows, features)
            Public rows.
        targets : array of shape (rows, classes)
            Probabilities at the student's temperature; each row sums to 1.

        Raises
        ------
        InvalidParameterError
            If a parameter is out of range.
        InvalidDataError
            If the rows are not a table of finite numbers, or `targets` is not one vector of probabilities per row.
        """
        self._check_settings()
        rows = checked_rows(self, X, reset=True)
        wanted = _probabilities(targets, len(rows))
        self.classes_: IntArray = np.arange(wanted.shape[1], dtype=np.int64)
        seed = int(np.random.SeedSequence(self.random_state).generate_state(1)[0])
        # Batches this small only wait for further threads.
        with drawing_from(seed), threadpool_limits(1):
            module = self._trained(torch.tensor(rows), torch.tensor(wanted, dtype=torch.float32))
        self.weights_ = arrays_of(module)
        return self

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class at temperature 1, shape (rows, classes)."""
        check_is_fitted(self)
        rows = checked_rows(self, X, reset=False)
        with drawing_from(0):  # weights that are replaced at once, but drawing them must not show
            module = network_from(self.factory, len(self.classes_), "DistilledStudent")
        restore(module, self.weights_)
        return scores_of(module, torch.tensor(rows)).softmax(dim=1).numpy()

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.integer]:
        """Return the likeliest class index of each row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _check_settings(self) -> None:
        for name in ("temperature", "learning_rate"):
            positive(getattr(self, name), name, "DistilledStudent")
        for name in ("steps", "batch_size"):
            integer_at_least(getattr(self, name), 1, name, "DistilledStudent")
        if self.random_state is not None:
            integer_at_least(self.random_state, 0, "random_state", "DistilledStudent")

    def _trained(self, X: torch.Tensor, targets: torch.Tensor) -> nn.Module:
        module = network_from(self.factory, targets.shape[1], "DistilledStudent").train()
        optimizer = adam_of(module, self.learning_rate)
        for step in range(self.steps):
            optimizer.param_groups[0]["lr"] = self.learning_rate * (1 - step / self.steps)
            rows = torch.randint(len(X), (self.batch_size,))
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(module(X[rows]) / self.temperature, targets[rows])
            (self.temperature**2 * loss).backward()
            optimizer.step()
        return module


def _probabilities(targets: npt.ArrayLike, n_rows: int) -> FloatArray:
    wanted: FloatArray = np.asarray(targets, dtype=np.float64)
    fits = (
        wanted.ndim == 2
        and wanted.shape[0] == n_rows
        and wanted.shape[-1] > 1
        and bool(np.all(wanted >= 0))
    )
    if not fits or not np.allclose(wanted.sum(axis=1), 1, atol=1e-6):
        raise InvalidDataError(
            "`targets` of DistilledStudent must hold one vector of probabilities per row, each summing to 1, of two "
            f"classes at least. Got shape {wanted.shape} for {n_rows} rows."
        )
    return wanted
