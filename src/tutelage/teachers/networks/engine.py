"""Training of network teachers: one by one, which takes any module, or many at once with their weights stacked.

One by one is the fastest way on processors. Measured in benchmarks/teachers.py: tensors and not a DataLoader, channels
last, one fused optimizer step, one thread. Stacks are for accelerators, where one small network is too little work.

A teacher's arithmetic must not depend on another's rows. So all shapes in a stack come from public numbers (teachers,
batch size, features), a short batch is filled up and masked, and a teacher that has seen all its batches stands still
while the others go on. Rows of all shards lie one after the other in memory, but nothing is computed along that axis.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, final

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from tutelage._internal.records import by_identity, frozen
from tutelage._internal.typing import Ballots
from tutelage.exceptions import InvalidParameterError
from tutelage.networks import drawing_from

_optim: Any = torch.optim  # the door to classes with types for a part
_ADAM_BETAS = (0.9, 0.999)
_ADAM_EPSILON = 1e-8
_VOTES_AT_ONCE = 256

Weights = dict[str, torch.Tensor]  # parameters and buffers of one network, by name; tied ones once


@final
@by_identity
class Shard:
    """The rows, labels and seed of one teacher; private."""

    X: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    seed: int


@final
@frozen
class Engine:
    """How the networks of an ensemble are made, trained and asked."""

    factory: Callable[[int], object]
    n_classes: int
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    device: torch.device

    def module(self, seed: int) -> nn.Module:
        """Return an untrained module of one teacher, whose first weights depend on `seed` alone."""
        with drawing_from(seed):
            module = self.factory(self.n_classes)
        if not isinstance(module, nn.Module):
            raise InvalidParameterError(
                "Network.factory", "return a torch module", f"a {type(module).__name__}"
            )
        # A factory may return layers that it keeps: trained in place, they would carry one shard into the next.
        return copy.deepcopy(module).to(self.device)

    def batches(self, n_rows: int, seed: int) -> list[torch.Tensor]:
        """Return the row numbers of each step: every epoch in a new order that depends on `seed` and `n_rows` alone.

        A batch has at least two rows, for layers that normalize over them: a single row that would be left over sits
        out this epoch, and the only row of a shard is taken twice.
        """
        if n_rows == 1:
            return [torch.zeros(2, dtype=torch.int64)] * self.epochs
        n_full, n_left = divmod(n_rows, self.batch_size)
        sizes = [self.batch_size] * n_full
        if n_left > 1:
            sizes.append(n_left)
        generator = torch.Generator().manual_seed(seed)
        batches: list[torch.Tensor] = []
        for _ in range(self.epochs):
            order = torch.randperm(n_rows, generator=generator)
            batches += torch.split(order[: sum(sizes)], sizes)
        return batches

    def _learning_rate(self, step: int, n_steps: torch.Tensor) -> torch.Tensor:
        """Return the learning rate at `step`, counted from 0, of networks that take `n_steps` steps each."""
        return self.learning_rate * (1 - step / n_steps)

    def train(self, shard: Shard) -> Weights:
        """Return the weights of one network trained on the rows of a shard; none if it has no rows."""
        if not len(shard.y):
            return {}
        with drawing_from(shard.seed, self.device):
            module = _channels_last(self.module(shard.seed)).train()
            optimizer = _optim.AdamW(
                [parameter for parameter in module.parameters() if parameter.requires_grad],
                betas=_ADAM_BETAS,
                eps=_ADAM_EPSILON,
                weight_decay=self.weight_decay,
                fused=True,
            )
            batches = self.batches(len(shard.y), shard.seed)
            n_steps = torch.tensor(len(batches))

            for step, batch in enumerate(batches):
                places = batch.to(self.device)
                optimizer.param_groups[0]["lr"] = self._learning_rate(step, n_steps)
                optimizer.zero_grad(set_to_none=True)
                scores = module(shard.X[places].float())
                functional.cross_entropy(scores, shard.y[places]).backward()
                optimizer.step()
        return weights_of(module)

    def train_stack(self, shards: Sequence[Shard], seed: int) -> list[Weights]:
        """Return the weights of one network per shard, which are trained together; none for a shard without rows."""
        padded = [_with_a_row(shard) for shard in shards]
        modules = [self.module(shard.seed) for shard in shards]
        stacked, fixed = stack_module_state(modules)
        weights: Weights = {}
        for name, parameter in modules[0].named_parameters():
            values = stacked[name].detach()
            if parameter.requires_grad:
                weights[name] = values
            else:
                fixed[name] = values
        gradients_of = _gradients(modules[0].train())
        optimizer = _StackedAdamW(weights, self.weight_decay)

        X = torch.cat([shard.X for shard in padded])
        y = torch.cat([shard.y for shard in padded])
        sizes = torch.tensor([len(shard.y) for shard in padded])
        first_rows = (sizes.cumsum(0) - sizes).to(self.device)
        batches = [self.batches(len(shard.y), shard.seed) for shard in padded]
        n_steps = torch.tensor([len(batches_of_teacher) for batches_of_teacher in batches])
        with drawing_from(seed, self.device):
            for step in range(int(n_steps.max())):
                rows, counts = self._batch(batches, step)
                places = first_rows[:, None] + rows
                gradients = gradients_of(weights, fixed, X[places].float(), y[places], counts)
                rates = self._learning_rate(step, n_steps).to(self.device)
                learns = (step < n_steps).to(self.device)
                weights = optimizer.step(
                    weights,
                    gradients,
                    rates,
                    learns,
                )

        weights_by_teacher: list[Weights] = [{} for _ in shards]
        for name, values in (weights | fixed).items():
            for number, shard in enumerate(shards):
                if len(shard.y):
                    weights_by_teacher[number][name] = values[number].clone()
        return weights_by_teacher

    def _batch(
        self, batches: Sequence[Sequence[torch.Tensor]], step: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return row numbers and which of them count, as 1.0 or 0.0, both of shape (teachers, batch size)."""
        shape = len(batches), self.batch_size
        rows = torch.zeros(shape, dtype=torch.int64)
        counts = torch.zeros(shape)
        for teacher, batches_of_teacher in enumerate(batches):
            if step < len(batches_of_teacher):
                batch = batches_of_teacher[step]
                rows[teacher, : len(batch)] = batch
                counts[teacher, : len(batch)] = 1
        return rows.to(self.device), counts.to(self.device)

    def vote(self, weights: Weights, X_public: torch.Tensor) -> Ballots:
        """Return the class of a network's largest score for each row, shape (rows,)."""
        module = _channels_last(self.module(0)).eval()
        state: Weights = {}
        for name, value in weights.items():
            state[name] = value.to(self.device)
            if value.dim() == 4:
                state[name] = state[name].to(memory_format=torch.channels_last)
        ballots: list[torch.Tensor] = []
        with torch.inference_mode():
            for rows in torch.split(X_public, _VOTES_AT_ONCE):
                # A copy: a module that changes its input in place must not change the queries of other teachers.
                queries = rows.to(torch.float32, copy=True)
                scores: Any = functional_call(module, state, (queries,))
                ballots.append(scores.argmax(dim=1))
        return torch.cat(ballots).short().cpu().numpy()


def _with_a_row(shard: Shard) -> Shard:
    """Return the shard, or one made-up row for an empty one: the shape of a stack must not reveal which is empty."""
    if len(shard.y):
        return shard
    row = shard.X.new_zeros((1, *shard.X.shape[1:]))
    return Shard(row, shard.y.new_zeros(1), shard.seed)


def weights_of(module: nn.Module) -> Weights:
    """Return a copy of the weights of a module."""
    values = [*module.named_parameters(), *module.named_buffers()]
    return {name: value.detach().clone() for name, value in values}


def _channels_last(module: nn.Module) -> nn.Module:
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  missing in torch's stubs


def _gradients(module: nn.Module) -> Callable[..., Weights]:
    """Return the function from stacked weights, fixed state, rows, labels and counts to the gradient of each loss."""

    # rows: (batch size, ...); labels, counts: (batch size,): those of one teacher
    def loss(
        weights: Weights,
        fixed: Weights,
        rows: torch.Tensor,
        labels: torch.Tensor,
        counts: torch.Tensor,
    ) -> torch.Tensor:
        scores: Any = functional_call(module, {**weights, **fixed}, (rows,))
        losses = functional.cross_entropy(scores, labels, reduction="none")
        return (losses * counts).sum() / counts.sum().clamp(min=1)

    return vmap(grad(loss), randomness="different")


class _StackedAdamW:
    """AdamW (Loshchilov and Hutter 2019) on stacked weights: elementwise, so it is one optimizer per teacher."""

    def __init__(self, weights: Weights, decay: float) -> None:
        self._means = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._squares = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._decay = decay
        self._n_steps = 0

    # weights, gradients: (teachers, ...) by name; rates, learns: (teachers,)
    def step(
        self, weights: Weights, gradients: Weights, rates: torch.Tensor, learns: torch.Tensor
    ) -> Weights:
        """Return the weights after one step; those of teachers that have finished stay."""
        self._n_steps += 1
        number = torch.full_like(rates, self._n_steps)
        first, second = _ADAM_BETAS  # decay of means and of squares
        changed: Weights = {}
        for name, value in weights.items():
            shape = -1, *[1] * (value.dim() - 1)
            gradient = gradients[name]
            mean = self._means[name]
            mean.lerp_(gradient, 1 - first)
            square = self._squares[name]
            square.mul_(second)
            square.addcmul_(gradient, gradient, value=1 - second)

            steps = number.view(shape)
            unbiased_mean = mean / (1 - first**steps)
            unbiased_square = square / (1 - second**steps)
            scale = unbiased_square.sqrt_().add_(_ADAM_EPSILON)
            rate = rates.view(shape)
            decayed = value * (1 - rate * self._decay)
            moved = decayed - rate * unbiased_mean / scale
            may_move = learns.view(shape)
            changed[name] = torch.where(may_move, moved, value)
        return changed
