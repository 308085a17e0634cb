"""Base class of students that are neural networks: plain arrays of weights, a loss, step sizes, an average."""

import copy
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from tutelage._internal.records import settable
from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidParameterError
from tutelage.networks import device_named, drawing_from
from tutelage.students.base import SemiSupervisedClassifier

_WARM_UP = 0.05  # share of the steps over which step sizes grow
_TRUSTING = 0.25  # share of the steps over which labels are trusted less and less
_YOUNG = 10  # steps after which an average counts about as many as it would without a start


def robust_loss(scores: torch.Tensor, labels: torch.Tensor, robustness: float) -> torch.Tensor:
    """Return (1 − p_y^q)/q of each row: cross entropy for q = 0, half the absolute error for q = 1.

    A label that the network contradicts pulls less, the larger q is. Zhang and Sabuncu, arXiv:1805.07836, equation 6.
    """
    log_probability = -functional.cross_entropy(scores, labels, reduction="none")
    if robustness == 0:
        return -log_probability
    return -torch.expm1(robustness * log_probability) / robustness


def robustness_at(step: int, steps: int, robustness: float) -> float:
    """Return q at a step: it grows from 0 for a quarter of them, and stays.

    A network that knows nothing yet contradicts every label; at a large q it would never learn some classes.
    """
    return robustness * min(1.0, step / (_TRUSTING * steps))


def step_size(step: int, steps: int) -> float:
    """Return the size of a step relative to the largest: growing for a twentieth of the steps, then a cosine."""
    warm = max(1, round(_WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class AveragedNetwork:
    """A copy of a network whose weights are a running average of it: the better one to ask (Polyak 1990)."""

    def __init__(self, module: nn.Module, memory: float) -> None:
        self.module = copy.deepcopy(module).eval()
        self._memory = memory
        self._steps = 0

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Take one more state of the network into the average."""
        self._steps += 1
        memory = min(self._memory, self._steps / (self._steps + _YOUNG))
        own = self.module.state_dict()
        for name, theirs in module.state_dict().items():
            mine = own[name]
            if mine.is_floating_point():
                mine.lerp_(theirs, 1 - memory)
            else:
                mine.copy_(theirs)


def network_from(factory: Callable[[int], object], n_classes: int, owner: str) -> nn.Module:
    """Return an untrained network of one's own, in the layout in which convolutions are fastest."""
    is_function = callable(factory) and not isinstance(factory, nn.Module)
    made = factory(n_classes) if is_function else None
    if not isinstance(made, nn.Module):
        raise InvalidParameterError(
            f"{owner}.factory",
            "be a function that takes the number of classes and returns a new torch module",
            f"a {type(factory).__name__}",
        )
    # A factory may return layers that it keeps: trained in place, they would carry one fit into the next.
    return copy.deepcopy(made).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  missing in torch's stubs


_ROWS_AT_ONCE = 256


@settable
class NetworkStudent(SemiSupervisedClassifier):
    """Base of students that are neural networks; the random streams of the caller go on as before.

    Subclasses define `_module` and `_train`, which is called only where there are two classes at least. The same
    `random_state` gives the same student on the same machine with as many threads.

    Attributes
    ----------
    weights_ : dict of str to ndarray
        Parameters and buffers of the trained network, by name; none where there is only one class.
    """

    _: KW_ONLY
    device: str | None = None
    random_state: int | None = None
    progress: bool = False

    @abstractmethod
    def _module(self, n_classes: int) -> nn.Module:
        """Return an untrained network from rows, shape (rows, features), to scores, shape (rows, classes)."""

    @abstractmethod
    def _train(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        """Return what `_module` made, trained on rows and their class indices, −1 for unlabeled; draws from torch."""

    def _learn(self, X: Matrix, labels: IntArray) -> None:
        device = device_named(self.device, type(self).__name__)
        self.weights_: dict[str, npt.NDArray[np.generic]] = {}
        if len(self.classes_) == 1:
            return
        seed = int(np.random.SeedSequence(self.random_state).generate_state(1)[0])
        with drawing_from(seed, device):
            rows = torch.tensor(X, dtype=torch.float32, device=device)
            module = self._train(rows, torch.tensor(labels, device=device), len(self.classes_))
        self.weights_ = arrays_of(module)

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class, shape (rows, classes) in the order of `classes_`."""
        rows = self._known_rows(X)
        n_classes = len(self.classes_)
        if n_classes == 1:
            return np.ones((len(rows), 1))
        device = device_named(self.device, type(self).__name__)
        with drawing_from(0):  # weights that are replaced at once, but drawing them must not show
            module = self._module(n_classes)
        module = module.to(device)
        restore(module, self.weights_)
        tensor = torch.tensor(rows, dtype=torch.float32, device=device)
        scores = scores_of(module, tensor)
        return scores.softmax(dim=1).cpu().numpy()


def arrays_of(module: nn.Module) -> dict[str, npt.NDArray[np.generic]]:
    """Return copies of a network's parameters and buffers, by name."""
    arrays = dict[str, npt.NDArray[np.generic]]()
    for name, value in module.state_dict().items():
        arrays[name] = value.detach().cpu().numpy().copy()
    return arrays


def restore(module: nn.Module, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
    """Give a network the parameters and buffers that `arrays_of` returned."""
    module.load_state_dict({name: torch.tensor(value) for name, value in arrays.items()})


def in_batches(answer: Callable[[torch.Tensor], torch.Tensor], X: torch.Tensor) -> torch.Tensor:
    """Return what `answer` gives for each of the rows, called with some of them at a time."""
    return torch.cat([answer(rows) for rows in torch.split(X, _ROWS_AT_ONCE)])


def scores_of(module: nn.Module, X: torch.Tensor) -> torch.Tensor:
    """Return the scores of rows, as doubles, without training on them; `module` is left in evaluation mode."""
    module.eval()
    with torch.inference_mode():
        return in_batches(module, X).double()
