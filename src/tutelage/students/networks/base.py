"""What every student is that is a neural network: weights kept as plain arrays, and a module made anew from them."""

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tutelage._typing import FloatArray, IntArray, Matrix
from tutelage.networks import device_named, drawing_from
from tutelage.students.base import SemiSupervisedClassifier

_ROWS_AT_ONCE = 256


class NetworkStudent(SemiSupervisedClassifier):
    """Base of students that are neural networks; the random streams of the caller go on as before.

    Subclasses have constructor parameters ``device``, ``random_state`` and ``progress``, and define `_module` and
    `_trained`, which is called only where there are two classes at least. The same `random_state` gives the same
    student on the same machine with as many threads.

    Attributes
    ----------
    weights_ : dict of str to ndarray
        Parameters and buffers of the trained network, by name; none where there is only one class.
    """

    device: str | None
    random_state: int | None
    progress: bool

    n_features_in_: int
    weights_: dict[str, npt.NDArray[np.generic]]

    @abstractmethod
    def _module(self, n_classes: int) -> nn.Module:
        """Return an untrained network from rows, shape (rows, features), to scores, shape (rows, classes)."""

    @abstractmethod
    def _trained(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        """Return what `_module` made, trained on rows and their class indices, −1 for unlabelled; draws from torch."""

    def _learn(self, X: Matrix, labels: IntArray) -> None:
        device = device_named(self.device, type(self).__name__)
        if len(self.classes_) == 1:
            self.weights_ = {}
            return
        seed = int(np.random.SeedSequence(self.random_state).generate_state(1)[0])
        with drawing_from(seed, device):
            rows = torch.tensor(X, dtype=torch.float32, device=device)
            module = self._trained(rows, torch.tensor(labels, device=device), len(self.classes_))
        self.weights_ = arrays_of(module)

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class, shape (rows, classes) in the order of `classes_`.

        Parameters
        ----------
        X : array of shape (rows, features)
            Rows to classify.
        """
        rows = self._known_rows(X)
        if len(self.classes_) == 1:
            return np.ones((len(rows), 1))
        device = device_named(self.device, type(self).__name__)
        with drawing_from(0):  # weights that are replaced at once, but drawing them must not show
            module = self._module(len(self.classes_)).to(device)
        restore(module, self.weights_)
        return scores_of(module, torch.tensor(rows, dtype=torch.float32, device=device)).softmax(dim=1).cpu().numpy()


def arrays_of(module: nn.Module) -> dict[str, npt.NDArray[np.generic]]:
    """Return copies of a network's parameters and buffers, by name."""
    return {name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()}


def restore(module: nn.Module, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
    """Give a network the parameters and buffers that `arrays_of` returned."""
    module.load_state_dict({name: torch.tensor(value) for name, value in arrays.items()})


def in_batches(answer: Callable[[torch.Tensor], torch.Tensor], X: torch.Tensor) -> torch.Tensor:
    """Return what `answer` gives for each of the rows, called with some of them at a time."""
    return torch.cat([answer(rows) for rows in X.split(_ROWS_AT_ONCE)])


def scores_of(module: nn.Module, X: torch.Tensor) -> torch.Tensor:
    """Return the scores of rows, as doubles, without training on them; `module` is left in evaluation mode."""
    module.eval()
    with torch.inference_mode():
        return in_batches(module, X).double()
