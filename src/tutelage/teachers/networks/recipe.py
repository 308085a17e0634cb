"""Network teachers and their training: public settings, the order of rows and the size of steps."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from tutelage._internal.validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidParameterError
from tutelage.networks import device_named, drawing_from

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
VOTES_AT_ONCE = 256


Weights = dict[str, torch.Tensor]  # parameters and buffers of one network, by name; tied ones once


@dataclass(frozen=True)
class NetworkSettings:
    """The fields of `Network`, as training takes them."""

    factory: Callable[[int], nn.Module]
    epochs: int = 30
    batch_size: int = 32
    learning_rate: float = 4e-3
    weight_decay: float = 0.01
    device: str | None = None
    engine: Literal["auto", "sequential", "vectorized"] = "auto"

    def __post_init__(self) -> None:
        if not callable(self.factory) or isinstance(self.factory, nn.Module):
            raise InvalidParameterError(
                "`factory` of Network must be callable, from the number of classes to a new torch module. "
                f"Got a {type(self.factory).__name__}."
            )
        integer_at_least(self.epochs, 1, "epochs", "Network")
        integer_at_least(self.batch_size, 2, "batch_size", "Network")
        positive(self.learning_rate, "learning_rate", "Network")
        number_between(self.weight_decay, 0, 1, "weight_decay", "Network")
        if self.engine not in ("auto", "sequential", "vectorized"):
            raise InvalidParameterError(
                f"`engine` of Network must be 'auto', 'alone' or 'together'. Got {self.engine!r}."
            )
        self.torch_device()

    def module(self, n_classes: int, seed: int) -> nn.Module:
        """Return an untrained module of one teacher, whose first weights depend on `seed` alone."""
        with drawing_from(seed):
            module = self.factory(n_classes)
        if not isinstance(module, nn.Module):
            raise InvalidParameterError(
                "`factory` of Network must make a torch module from the number of classes. It made a "
                f"{type(module).__name__}."
            )
        # A factory may return layers that it keeps: trained in place, they would carry one shard into the next.
        return copy.deepcopy(module)

    def torch_device(self) -> torch.device:
        """Return the device to train on."""
        return device_named(self.device, "Network")


def batches(network: NetworkSettings, n_rows: int, seed: int) -> list[torch.Tensor]:
    """Return the row numbers of each step: every epoch in a new order that depends on `seed` and `n_rows` alone.

    A batch has at least two rows, for layers that normalize over them: a single row that would be left over sits out
    this epoch, and the only row of a shard is taken twice.
    """
    if n_rows == 1:
        return [torch.zeros(2, dtype=torch.int64)] * network.epochs
    generator, cuts = torch.Generator().manual_seed(seed), _cuts(n_rows, network.batch_size)
    orders = (torch.randperm(n_rows, generator=generator) for _ in range(network.epochs))
    return [batch for order in orders for batch in order[: sum(cuts)].split(cuts)]


def learning_rate(network: NetworkSettings, step: int, steps: torch.Tensor) -> torch.Tensor:
    """Return the learning rate at `step`, counted from 0, of networks that take `steps` steps."""
    return network.learning_rate * (1 - step / steps)


def _cuts(n_rows: int, batch_size: int) -> list[int]:
    full, rest = divmod(n_rows, batch_size)
    return [batch_size] * full + ([rest] if rest > 1 else [])
