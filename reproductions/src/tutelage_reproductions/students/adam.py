"""The optimizer of the students that are only compared with here."""

import torch
from torch import nn


def adam_of(
    module: nn.Module, learning_rate: float, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.Optimizer:
    """Return Adam over what `module` learns, one fused step for all."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return torch.optim.Adam(learned, lr=learning_rate, betas=betas, fused=True)
