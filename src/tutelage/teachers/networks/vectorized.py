"""Many networks at once, their weights stacked: the fast way on an accelerator, where one small network is no work.

A teacher's arithmetic must not depend on another's rows: all shapes below come from public numbers (teachers, batch
size, features), a short batch is filled up and masked, and a teacher that has seen all its batches stands still while
the others go on. Rows of all shards lie one after the other in memory, but nothing is computed along that axis.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, NamedTuple, final

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from tutelage._internal.records import by_identity
from tutelage._internal.typing import ABSTAIN, Ballots
from tutelage.exceptions import InvalidParameterError
from tutelage.networks import drawing_from
from tutelage.teachers.networks.sequential import (
    ADAM_BETAS,
    ADAM_EPSILON,
    VOTES_AT_ONCE,
    Network,
    Weights,
    batches,
    learning_rate,
)


@final
@by_identity
class Shard:
    """The rows, labels and seed of one teacher; private."""

    X: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    seed: int


class _Step(NamedTuple):
    """One batch of each teacher: (teachers, batch size) row numbers and which of them count, (teachers,) the rest."""

    rows: torch.Tensor
    counts: torch.Tensor
    learns: torch.Tensor
    learning_rate: torch.Tensor
    number: torch.Tensor


def refuse_unstackable(module: nn.Module) -> None:
    """Refuse modules whose training looks across the rows of a batch, for a batch here is filled up."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm):
            raise InvalidParameterError(
                "Network.factory",
                "make modules that compute each row of a batch by itself, because teachers are trained together",
                f"a {type(part).__name__}",
                "Use GroupNorm, or engine='sequential'.",
            )


def train(network: Network, shards: Sequence[Shard], n_classes: int, seed: int) -> list[Weights]:
    """Return the weights of one network per shard, all on the device of the rows."""
    device = shards[0].X.device
    modules = [network.module(n_classes, shard.seed).to(device) for shard in shards]
    parameters, fixed = stack_module_state(modules)
    weights: Weights = {}
    for name, value in modules[0].named_parameters():
        kind = weights if value.requires_grad else fixed
        kind[name] = parameters[name].detach()
    gradients = _gradients(modules[0].train(), fixed)
    X = torch.cat([shard.X for shard in shards])
    y = torch.cat([shard.y for shard in shards])
    sizes = torch.tensor([0, *(len(shard.y) for shard in shards[:-1])], device=device)
    starts = sizes.cumsum(0)[:, None]
    optimizer = _StackedAdamW(weights, network.weight_decay)
    with drawing_from(seed, device):
        for step in _steps(network, shards, device):
            places = starts + step.rows
            found = gradients(weights, X[places].float(), y[places], step.counts)
            weights = optimizer.step(weights, found, step)
    state = weights | fixed
    return [
        {name: value[number].clone() for name, value in state.items()}
        for number in range(len(shards))
    ]


def vote(
    network: Network, weights: Sequence[Weights], X_public: torch.Tensor, n_classes: int
) -> Ballots:
    """Return the class of each network's largest score for each row, shape (teachers, rows)."""
    module = network.module(n_classes, 0).to(X_public.device).eval()
    stacked = {
        name: torch.stack([one[name].to(X_public.device) for one in weights]) for name in weights[0]
    }
    scores = vmap(
        lambda state, rows: functional_call(module, state, (rows,)),
        in_dims=(0, None),
        randomness="different",
    )
    ballots = torch.full((len(weights), len(X_public)), ABSTAIN, dtype=torch.int16)
    with torch.inference_mode():
        for start in range(0, len(X_public), VOTES_AT_ONCE):
            rows = X_public[start : start + VOTES_AT_ONCE].to(torch.float32, copy=True)
            ballots[:, start : start + len(rows)] = scores(stacked, rows).argmax(dim=2).short()
    return ballots.numpy()


def _gradients(module: nn.Module, fixed: Weights) -> Callable[..., Weights]:
    def loss(
        weights: Weights,
        state: Weights,
        rows: torch.Tensor,
        labels: torch.Tensor,
        counts: torch.Tensor,
    ) -> torch.Tensor:
        scores: Any = functional_call(module, {**weights, **state}, (rows,))
        losses = functional.cross_entropy(scores, labels, reduction="none")
        return (losses * counts).sum() / counts.sum().clamp(min=1)

    over_teachers = vmap(grad(loss), randomness="different")
    return lambda weights, rows, labels, counts: over_teachers(weights, fixed, rows, labels, counts)


def _steps(network: Network, shards: Sequence[Shard], device: torch.device) -> Iterator[_Step]:
    """Yield each step of the teacher that has the most of them."""
    orders = [batches(network, len(shard.y), shard.seed) for shard in shards]
    lengths = torch.tensor([len(order) for order in orders])
    for number in range(int(lengths.max())):
        rows = torch.zeros(len(shards), network.batch_size, dtype=torch.int64)
        counts = torch.zeros(len(shards), network.batch_size)
        for teacher, order in enumerate(orders):
            if number < len(order):
                batch = order[number]
                rows[teacher, : len(batch)] = batch
                counts[teacher, : len(batch)] = 1
        rate = learning_rate(network, number, lengths)
        step = rows, counts, number < lengths, rate, torch.full_like(rate, number + 1)
        yield _Step(*(part.to(device) for part in step))


class _StackedAdamW:
    """AdamW (Loshchilov and Hutter 2019) on stacked weights: elementwise, so it is one optimizer per teacher."""

    def __init__(self, weights: Weights, decay: float) -> None:
        self._moments = {
            name: (torch.zeros_like(value), torch.zeros_like(value))
            for name, value in weights.items()
        }
        self._decay = decay

    def step(self, weights: Weights, gradients: Weights, step: _Step) -> Weights:
        """Return the weights after one step; those of teachers that have finished stay."""
        return {
            name: self._moved(name, value, gradients[name], step) for name, value in weights.items()
        }

    def _moved(
        self,
        name: str,
        weights: torch.Tensor,
        gradient: torch.Tensor,
        step: _Step,
    ) -> torch.Tensor:
        shape = -1, *[1] * (weights.dim() - 1)
        rate, learns, number = (
            part.view(shape) for part in (step.learning_rate, step.learns, step.number)
        )
        first, second = ADAM_BETAS
        mean, square = self._moments[name]
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = (square / (1 - second**number)).sqrt_().add_(ADAM_EPSILON)
        moved = weights * (1 - rate * self._decay) - rate * (mean / (1 - first**number)) / scale
        return torch.where(learns, moved, weights)
