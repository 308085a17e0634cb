"""How network teachers learn: public settings, and what they see in which order."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import nn

from tutelage._validation import integer_at_least, positive
from tutelage.exceptions import InvalidParameterError


@final
@dataclass(frozen=True)
class Training:
    """Settings of the training of every teacher, all public.

    Parameters
    ----------
    factory : callable
        From the number of classes to an untrained module that takes a float tensor of rows, shape (rows, ...), to
        scores of shape (rows, classes).
    epochs : int
        Passes over the shard.
    batch_size : int
        Rows per step.
    learning_rate : float
        Of Adam at the first step; it falls linearly to zero.
    weight_decay : float
        Decoupled weight decay, as in AdamW.
    """

    factory: Callable[[int], nn.Module]
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float

    def __post_init__(self) -> None:
        if not callable(self.factory) or isinstance(self.factory, nn.Module):
            raise InvalidParameterError(
                "`factory` of Network must be callable, from the number of classes to a new torch module. "
                f"Got a {type(self.factory).__name__}."
            )
        integer_at_least(self.epochs, 1, "epochs", "Network")
        integer_at_least(self.batch_size, 2, "batch_size", "Network")
        positive(self.learning_rate, "learning_rate", "Network")
        if not 0 <= self.weight_decay < 1:
            raise InvalidParameterError(
                f"`weight_decay` of Network must be at least 0 and below 1. Got {self.weight_decay!r}."
            )

    def network(self, n_classes: int, seed: int) -> nn.Module:
        """Return an untrained module whose first weights depend on `seed` alone."""
        with drawing_from(seed):
            module = self.factory(n_classes)
        if not isinstance(module, nn.Module):
            raise InvalidParameterError(
                "`factory` of Network must make a torch module from the number of classes. "
                f"It made a {type(module).__name__}."
            )
        return module

    def steps(self, n_rows: int) -> int:
        """Return how many steps a shard of so many rows takes."""
        return self.epochs * len(self._cuts(n_rows))

    def batches(self, n_rows: int, seed: int) -> list[torch.Tensor]:
        """Return the row numbers of each step: every epoch in a new order that depends on `seed` and `n_rows` alone.

        A batch has at least two rows, for layers that normalise over them: a single row that would be left over sits
        out this epoch, and the only row of a shard is taken twice.
        """
        if n_rows == 1:
            return [torch.zeros(2, dtype=torch.int64)] * self.epochs
        generator, cuts = torch.Generator().manual_seed(seed), self._cuts(n_rows)
        orders = (torch.randperm(n_rows, generator=generator) for _ in range(self.epochs))
        return [batch for order in orders for batch in order[: sum(cuts)].split(cuts)]

    def learning_rate_at(self, step: torch.Tensor | int, steps: torch.Tensor | int) -> torch.Tensor | float:
        """Return the learning rate at each step of so many, counted from 0."""
        return self.learning_rate * (1 - step / steps)

    def _cuts(self, n_rows: int) -> list[int]:
        full, rest = divmod(n_rows, self.batch_size)
        return [self.batch_size] * full + ([rest] if rest > 1 or full == 0 else [])


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let whatever a module draws (weights, dropout, shifts) come from `seed`, and leave the caller's generators alone.

    Parameters
    ----------
    seed : int
        The seed.
    device : torch.device, optional
        Where the module draws, besides the processor.
    """
    accelerators = [device] if device is not None and device.type == "cuda" else []
    with _generator_in_use, torch.random.fork_rng(devices=accelerators):
        torch.manual_seed(seed)
        yield


_generator_in_use = threading.RLock()  # torch has one generator for a process, and so for all threads of a back end
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
Engine = Literal["auto", "alone", "together"]
