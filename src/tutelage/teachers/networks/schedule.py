"""What each network sees in which order, and how large its steps are: the same alone and together."""

import torch

from tutelage.teachers.networks.recipe import Network

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


def batches(network: Network, n_rows: int, seed: int) -> list[torch.Tensor]:
    """Return the row numbers of each step: every epoch in a new order that depends on `seed` and `n_rows` alone.

    A batch has at least two rows, for layers that normalise over them: a single row that would be left over sits out
    this epoch, and the only row of a shard is taken twice.
    """
    if n_rows == 1:
        return [torch.zeros(2, dtype=torch.int64)] * network.epochs
    generator, cuts = torch.Generator().manual_seed(seed), _cuts(n_rows, network.batch_size)
    orders = (torch.randperm(n_rows, generator=generator) for _ in range(network.epochs))
    return [batch for order in orders for batch in order[: sum(cuts)].split(cuts)]


def learning_rate(network: Network, step: int, steps: torch.Tensor) -> torch.Tensor:
    """Return the learning rate at `step`, counted from 0, of networks that take so many steps."""
    return network.learning_rate * (1 - step / steps)


def _cuts(n_rows: int, batch_size: int) -> list[int]:
    full, rest = divmod(n_rows, batch_size)
    return [batch_size] * full + ([rest] if rest > 1 else [])
