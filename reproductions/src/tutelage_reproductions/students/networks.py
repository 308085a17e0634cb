"""Base class of students that are neural networks: plain arrays of weights, a loss, step sizes, an average."""

import copy
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.exceptions import InvalidParameterError
from tutelage.networks import ImageInput, device_named, drawing_from
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
        for mine, theirs in zip(
            self.module.state_dict().values(), module.state_dict().values(), strict=True
        ):
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


def _learned_by(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training may change."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def adam_of(
    module: nn.Module, learning_rate: float, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.Optimizer:
    """Return Adam over what `module` learns, one fused step for all."""
    return torch.optim.Adam(_learned_by(module), lr=learning_rate, betas=betas, fused=True)


def optimizer_of(
    module: nn.Module, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Return AdamW over what `module` learns, one fused step for all."""
    return torch.optim.AdamW(
        _learned_by(module), lr=learning_rate, weight_decay=weight_decay, fused=True
    )


_ROWS_AT_ONCE = 256


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkStudent(SemiSupervisedClassifier):
    """Base of students that are neural networks; the random streams of the caller go on as before.

    Subclasses define `_module` and `_trained`, which is called only where there are two classes at least. The same
    `random_state` gives the same student on the same machine with as many threads.

    Attributes
    ----------
    weights_ : dict of str to ndarray
        Parameters and buffers of the trained network, by name; none where there is only one class.
    """

    device: str | None = None
    random_state: int | None = None
    progress: bool = False

    @abstractmethod
    def _module(self, n_classes: int) -> nn.Module:
        """Return an untrained network from rows, shape (rows, features), to scores, shape (rows, classes)."""

    @abstractmethod
    def _trained(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        """Return what `_module` made, trained on rows and their class indices, −1 for unlabeled; draws from torch."""

    def _learn(self, X: Matrix, labels: IntArray) -> None:
        device = device_named(self.device, type(self).__name__)
        self.weights_: dict[str, npt.NDArray[np.generic]] = {}
        if len(self.classes_) == 1:
            return
        seed = int(np.random.SeedSequence(self.random_state).generate_state(1)[0])
        with drawing_from(seed, device):
            rows = torch.tensor(X, dtype=torch.float32, device=device)
            module = self._trained(rows, torch.tensor(labels, device=device), len(self.classes_))
        self.weights_ = arrays_of(module)

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class, shape (rows, classes) in the order of `classes_`."""
        rows = self._known_rows(X)
        if len(self.classes_) == 1:
            return np.ones((len(rows), 1))
        device = device_named(self.device, type(self).__name__)
        with drawing_from(0):  # weights that are replaced at once, but drawing them must not show
            module = self._module(len(self.classes_)).to(device)
        restore(module, self.weights_)
        return (
            scores_of(module, torch.tensor(rows, dtype=torch.float32, device=device))
            .softmax(dim=1)
            .cpu()
            .numpy()
        )


def arrays_of(module: nn.Module) -> dict[str, npt.NDArray[np.generic]]:
    """Return copies of a network's parameters and buffers, by name."""
    return {
        name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()
    }


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


_LEAST_VARIANCE = 1e-5  # of a constant image, which becomes zeros


class StandardizedImages(nn.Module):
    """Give every image mean 0 and variance 1 over its values, so that its brightness and contrast do not matter."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape, (rows, channels, height, width)."""
        variance, mean = torch.var_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)
        return (images - mean) * (variance + _LEAST_VARIANCE).rsqrt()


class _Residual(nn.Module):
    """One normalized convolution beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.normalised = nn.BatchNorm2d(channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.normalised(self.convolution(images)))


@final
@dataclass(frozen=True)
class ResidualNetwork:
    """Factory of a small residual network for images: cheap on processors, for the resolution is halved early.

    The first stage is one convolution, every further one a convolution and a residual one (He et al. 2016), all
    normalized over the batch, which mixes rows. Every image is standardized first, so rows may be bytes or fractions.
    """

    # (height, width) or (height, width, channels) of the flattened rows.
    image_shape: tuple[int, ...] = (28, 28)
    # Of each stage; the resolution is halved between stages.
    channels: tuple[int, ...] = (16, 32, 64)
    # Side length of the first stage's convolution, an odd number; all others have 3.
    kernel: int = 5
    dropout: float = 0.0  # share of the averaged features that are left out in training

    def __post_init__(self) -> None:
        shape, least = self.image_shape, 2 ** (len(self.channels) - 1)
        is_tuple = isinstance(shape, tuple)  # pyright: ignore[reportUnnecessaryIsInstance]  a caller's own
        if not is_tuple or len(shape) not in (2, 3) or min(shape[:2]) < least:
            raise InvalidParameterError(
                "ResidualNetwork.image_shape",
                (
                    f"be (height, width) or (height, width, channels), each side at least {least} "
                    f"for {len(self.channels)}"
                    " stages"
                ),
                f"{shape!r}",
            )

    @classmethod
    def for_images(cls, image_shape: tuple[int, ...]) -> "ResidualNetwork":
        """Return the variant for images of this shape: wider where there is color, with fewer stages if small."""
        one_stage = cls(image_shape, channels=(16,))
        width = 32 if len(image_shape) == 3 else 16
        stages = 3 if min(image_shape[:2]) >= 16 else 2
        return replace(one_stage, channels=tuple(width * 2**stage for stage in range(stages)))

    def __call__(self, n_classes: int) -> nn.Module:
        """Return an untrained network with one output per class."""
        colors = (*self.image_shape, 1)[2]
        layers: list[nn.Module] = [ImageInput(self.image_shape, 1.0), StandardizedImages()]
        for stage, (wide, narrow) in enumerate(
            zip((colors, *self.channels), self.channels, strict=False)
        ):
            kernel = 3 if stage else self.kernel
            layers += [nn.MaxPool2d(2)] if stage else []
            layers += [
                nn.Conv2d(wide, narrow, kernel, padding=kernel // 2, bias=False),
                nn.BatchNorm2d(narrow),
                nn.ReLU(),
            ]
            layers += [_Residual(narrow)] if stage else []
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(self.dropout)]
        return nn.Sequential(*layers, nn.Linear(self.channels[-1], n_classes))
