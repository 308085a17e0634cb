"""The network of a semi-supervised GAN that makes rows from noise."""

import torch
from torch import nn

_NOISE_SIZE = 100
_FIRST_DEVIATION = 0.05


class Generator(nn.Module):
    """Two softplus layers with batch normalisation, from uniform noise to rows within the range of each column.

    As the MNIST generator of Salimans et al., arXiv:1606.03498, with another range than that of grey levels.
    """

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, hidden: int, low: torch.Tensor, high: torch.Tensor) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size in (_NOISE_SIZE, hidden):
            layers += [nn.Linear(size, hidden, bias=False), nn.BatchNorm1d(hidden), nn.Softplus()]
        layers += [nn.Linear(hidden, len(low)), nn.Sigmoid()]
        for layer in layers:
            if isinstance(layer, nn.Linear):
                layer.weight.data = _FIRST_DEVIATION * torch.randn_like(layer.weight)
        self.layers = nn.Sequential(*layers)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, n_rows: int) -> torch.Tensor:
        """Return so many new rows, at least two, shape (n_rows, features)."""
        noise = torch.rand(n_rows, _NOISE_SIZE, device=self.low.device)
        return torch.lerp(self.low, self.high, self.layers(noise))
