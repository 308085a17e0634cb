"""What students that are networks share in training: a loss for partly wrong labels, step sizes, a running average."""

import copy
import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from tutelage.exceptions import InvalidParameterError

_WARM_UP = 0.05  # share of the steps over which step sizes grow
_TRUSTING = 0.25  # share of the steps over which labels are trusted less and less
_YOUNG = 10  # steps after which an average counts about as many as it would without a start


def robust_loss(scores: torch.Tensor, labels: torch.Tensor, robustness: float) -> torch.Tensor:
    """Return (1 − p_y^q)/q of each row: cross entropy for q = 0, half the absolute error for q = 1.

    A label that the network contradicts pulls less, the larger q is.

    References
    ----------
    Zhang and Sabuncu, Generalized cross entropy loss for training deep neural networks with noisy labels, 2018, eq. 6.
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
        for mine, theirs in zip(self.module.state_dict().values(), module.state_dict().values(), strict=True):
            if mine.is_floating_point():
                mine.lerp_(theirs, 1 - memory)
            else:
                mine.copy_(theirs)


def network_from(factory: Callable[[int], nn.Module], n_classes: int, owner: str) -> nn.Module:
    """Return an untrained network of one's own, in the layout in which convolutions are fastest."""
    made = factory(n_classes) if callable(factory) and not isinstance(factory, nn.Module) else factory
    if not isinstance(made, nn.Module) or made is factory:
        raise InvalidParameterError(
            f"`factory` of {owner} must be callable, from the number of classes to a new torch module. "
            f"Got a {type(factory).__name__}."
        )
    # A factory may return layers that it keeps: trained in place, they would carry one fit into the next.
    return copy.deepcopy(made).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  missing in torch's stubs


def learned_by(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training may change."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def optimiser_of(module: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """Return AdamW over what `module` learns, one fused step for all."""
    return torch.optim.AdamW(learned_by(module), lr=learning_rate, weight_decay=weight_decay, fused=True)
