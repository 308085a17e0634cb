"""Many networks at once, their weights stacked: the fast way on an accelerator, where one small network is no work.

A teacher's arithmetic must not depend on another's rows: all shapes below come from public numbers (teachers, batch
size, features), a short batch is filled up and masked, and a teacher that has seen all its batches stands still while
the others go on. Storage is as long as the longest shard, but nothing is computed along that axis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from tutelage._typing import ABSTAIN, Ballots
from tutelage.exceptions import InvalidParameterError
from tutelage.teachers.networks.alone import Weights
from tutelage.teachers.networks.recipe import ADAM_BETAS, ADAM_EPSILON, Training, drawing_from

_VOTES_AT_ONCE = 256


class Shard(NamedTuple):
    """The rows, labels and seed of one teacher; private."""

    X: torch.Tensor
    y: torch.Tensor
    seed: int


class _Step(NamedTuple):
    """One batch of each teacher: (teachers, batch size) row numbers and which of them count, (teachers,) the rest."""

    rows: torch.Tensor
    counts: torch.Tensor
    learns: torch.Tensor
    learning_rate: torch.Tensor
    number: torch.Tensor


def refuse_unstackable(network: nn.Module) -> None:
    """Refuse modules whose training looks across the rows of a batch, for a batch here is filled up.

    Raises
    ------
    InvalidParameterError
        If the network has batch normalisation.
    """
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and not isinstance(
            module, nn.modules.instancenorm._InstanceNorm
        ):
            raise InvalidParameterError(
                f"`factory` of Network makes a {type(module).__name__}, whose statistics mix the rows of a batch; "
                "networks are not trained together with it. Use GroupNorm, or engine='alone'."
            )


def train(training: Training, shards: Sequence[Shard], n_classes: int, seed: int) -> list[Weights]:
    """Return the weights of one network per shard, all on the device of the rows.

    Parameters
    ----------
    training : Training
        Settings that all teachers share.
    shards : sequence of Shard
        At least one row each.
    n_classes : int
        Number of classes.
    seed : int
        Of what the modules draw themselves, such as dropout.
    """
    device = shards[0].X.device
    networks = [training.network(n_classes, shard.seed).to(device) for shard in shards]
    parameters, buffers = stack_module_state(networks)
    gradients = _gradients(networks[0].train(), buffers)
    X = nn.utils.rnn.pad_sequence([shard.X for shard in shards], batch_first=True)
    y = nn.utils.rnn.pad_sequence([shard.y for shard in shards], batch_first=True)
    teachers = torch.arange(len(shards), device=device)[:, None]
    weights = {name: value.detach() for name, value in parameters.items()}
    optimiser = _StackedAdamW(weights, training.weight_decay)
    with drawing_from(seed, device):
        for step in _steps(training, shards, device):
            rows = X[teachers, step.rows].float()
            slopes = gradients(weights, rows, y[teachers, step.rows], step.counts)
            weights = optimiser.step(weights, slopes, step)
    state = {**weights, **buffers}
    return [{name: value[number].clone() for name, value in state.items()} for number in range(len(shards))]


def vote(training: Training, weights: Sequence[Weights], X_public: torch.Tensor, n_classes: int) -> Ballots:
    """Return the class of each network's largest score for each row, shape (teachers, rows)."""
    network = training.network(n_classes, 0).to(X_public.device).eval()
    stacked = {name: torch.stack([one[name] for one in weights]) for name in weights[0]}
    scores = vmap(lambda state, rows: functional_call(network, state, (rows,)), in_dims=(0, None))
    ballots = torch.full((len(weights), len(X_public)), ABSTAIN, dtype=torch.int16)
    with torch.inference_mode():
        for start in range(0, len(X_public), _VOTES_AT_ONCE):
            rows = X_public[start : start + _VOTES_AT_ONCE].float()
            ballots[:, start : start + len(rows)] = scores(stacked, rows).argmax(dim=2).short()
    return ballots.numpy()


def _gradients(network: nn.Module, buffers: Weights) -> Callable[..., Weights]:
    def loss(
        weights: Weights, state: Weights, rows: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        scores: Any = functional_call(network, {**weights, **state}, (rows,))
        losses = functional.cross_entropy(scores, labels, reduction="none")
        return (losses * counts).sum() / counts.sum().clamp(min=1)

    over_teachers = vmap(grad(loss), randomness="different")
    return lambda weights, rows, labels, counts: over_teachers(weights, buffers, rows, labels, counts)


def _steps(training: Training, shards: Sequence[Shard], device: torch.device) -> Any:
    """Yield each step of the teacher that has the most of them."""
    batches = [training.batches(len(shard.y), shard.seed) for shard in shards]
    lengths = torch.tensor([len(batch) for batch in batches])
    for number in range(int(lengths.max())):
        rows = torch.zeros(len(shards), training.batch_size, dtype=torch.int64)
        counts = torch.zeros(len(shards), training.batch_size)
        for teacher, batch in enumerate(batches):
            if number < len(batch):
                rows[teacher, : len(batch[number])] = batch[number]
                counts[teacher, : len(batch[number])] = 1
        rate = torch.as_tensor(training.learning_rate_at(number, lengths))
        step = _Step(rows, counts, number < lengths, rate, torch.full_like(rate, number + 1))
        yield _Step(*(part.to(device) for part in step))


class _StackedAdamW:
    """AdamW (Loshchilov and Hutter 2019) on stacked weights: elementwise, so it is one optimiser per teacher."""

    def __init__(self, weights: Weights, decay: float) -> None:
        self._means = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._squares = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._decay = decay

    def step(self, weights: Weights, gradients: Weights, step: _Step) -> Weights:
        """Return the weights after one step; those of teachers that have finished stay."""
        return {name: self._moved(name, value, gradients[name], step) for name, value in weights.items()}

    def _moved(self, name: str, weights: torch.Tensor, gradient: torch.Tensor, step: _Step) -> torch.Tensor:
        rate, learns, number = (
            part.view(-1, *[1] * (weights.dim() - 1)) for part in (step.learning_rate, step.learns, step.number)
        )
        first, second = ADAM_BETAS
        mean = self._means[name].lerp_(gradient, 1 - first)
        square = self._squares[name].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = (square / (1 - second**number)).sqrt_().add_(ADAM_EPSILON)
        moved = weights * (1 - rate * self._decay) - rate * (mean / (1 - first**number)) / scale
        return torch.where(learns, moved, weights)
