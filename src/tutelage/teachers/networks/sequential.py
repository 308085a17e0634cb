"""One network after the other: the fastest way on processors, and the one that takes any module.

Measured in benchmarks/teachers.py: tensors and not a DataLoader, channels last, one fused optimizer step, one thread.
"""

from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from tutelage._internal.typing import Ballots
from tutelage.networks import drawing_from
from tutelage.teachers.networks.recipe import (
    ADAM_BETAS,
    ADAM_EPSILON,
    VOTES_AT_ONCE,
    NetworkSettings,
    Weights,
    batches,
    learning_rate,
)


def train(network: NetworkSettings, X: torch.Tensor, y: torch.Tensor, n_classes: int, seed: int) -> Weights:
    """Return the weights of a network trained on these rows, on their device."""
    with drawing_from(seed, X.device):
        module = _channels_last(network.module(n_classes, seed).to(X.device)).train()
        learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            learning, betas=ADAM_BETAS, eps=ADAM_EPSILON, weight_decay=network.weight_decay, fused=True
        )
        steps = batches(network, len(y), seed)
        for step, batch in enumerate(steps):
            rows = batch.to(X.device)
            optimizer.param_groups[0]["lr"] = learning_rate(network, step, torch.tensor(len(steps)))
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(module(X[rows].float()), y[rows]).backward()
            optimizer.step()
    return {name: value.detach().clone() for name, value in [*module.named_parameters(), *module.named_buffers()]}


def vote(network: NetworkSettings, weights: Weights, X_public: torch.Tensor, n_classes: int) -> Ballots:
    """Return the class of the largest score for each row, shape (rows,)."""
    module = _channels_last(network.module(n_classes, 0).to(X_public.device)).eval()
    state = {name: _laid_out(value.to(X_public.device)) for name, value in weights.items()}
    ballots = []
    with torch.inference_mode():
        for rows in X_public.split(VOTES_AT_ONCE):
            # A copy: a module that changes its input in place must not change what other teachers are asked.
            scores: Any = functional_call(module, state, (rows.to(torch.float32, copy=True),))
            ballots.append(scores.argmax(dim=1))
    return torch.cat(ballots).short().cpu().numpy()


def _laid_out(weights: torch.Tensor) -> torch.Tensor:
    return weights.to(memory_format=torch.channels_last) if weights.dim() == 4 else weights


def _channels_last(module: nn.Module) -> nn.Module:
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  missing in torch's stubs
