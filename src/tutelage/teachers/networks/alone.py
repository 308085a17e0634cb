"""One network after the other: the fastest way on processors, and the one that takes any module.

Measured in benchmarks/teachers.py: tensors and not a DataLoader, channels last, one fused optimiser step, one thread.
"""

import torch
from torch import nn
from torch.nn import functional

from tutelage._typing import Ballots
from tutelage.teachers.networks.recipe import ADAM_BETAS, ADAM_EPSILON, Training, drawing_from

_VOTES_AT_ONCE = 256

Weights = dict[str, torch.Tensor]


def train(training: Training, X: torch.Tensor, y: torch.Tensor, n_classes: int, seed: int) -> Weights:
    """Return the weights and buffers of a network trained on these rows, on their device.

    Parameters
    ----------
    training : Training
        Settings that all teachers share.
    X : tensor of shape (rows, ...)
        One shard's rows; at least one.
    y : tensor of shape (rows,)
        Their class indices.
    n_classes : int
        Number of classes.
    seed : int
        Of the first weights, the batches and whatever the module draws itself.
    """
    with drawing_from(seed, X.device):
        network = _channels_last(training.network(n_classes, seed).to(X.device)).train()
        parameters = list(network.parameters())
        optimiser = torch.optim.AdamW(
            parameters, betas=ADAM_BETAS, eps=ADAM_EPSILON, weight_decay=training.weight_decay, fused=True
        )
        steps = training.steps(len(y))
        for step, batch in enumerate(training.batches(len(y), seed)):
            rows = batch.to(X.device)
            optimiser.param_groups[0]["lr"] = training.learning_rate_at(step, steps)
            optimiser.zero_grad(set_to_none=True)
            functional.cross_entropy(network(X[rows].float()), y[rows]).backward()
            optimiser.step()
        return {name: value.detach() for name, value in network.state_dict().items()}


def vote(training: Training, weights: Weights, X_public: torch.Tensor, n_classes: int) -> Ballots:
    """Return the class of the largest score for each row, shape (rows,)."""
    network = training.network(n_classes, 0)
    network.load_state_dict(weights)
    network = _channels_last(network.to(X_public.device)).eval()
    with torch.inference_mode():
        ballots = [network(rows.float()).argmax(dim=1) for rows in X_public.split(_VOTES_AT_ONCE)]
    return torch.cat(ballots).short().cpu().numpy()


def _channels_last(network: nn.Module) -> nn.Module:
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  missing in torch's stubs
