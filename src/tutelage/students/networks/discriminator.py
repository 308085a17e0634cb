"""The network of a semi-supervised GAN that tells classes apart, and real rows from generated ones."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

_LEAST_DEVIATION = 1e-3  # of a unit that no row moves


class Discriminator(nn.Module):
    """Fully connected ReLU layers with normalised weights, and in training Gaussian noise before each of them.

    Only the last layer learns the lengths of its weights; those of the others stay as `start_from` sets them.

    References
    ----------
    Salimans and Kingma, Weight normalization, arXiv:1602.07868; Salimans et al., Improved techniques for training GANs,
    arXiv:1606.03498, whose MNIST network has 1000, 500, 250, 250 and 250 hidden units and noise of 0.3 and 0.5.
    """

    unit: torch.Tensor

    def __init__(
        self, n_features: int, hidden: tuple[int, ...], n_classes: int, input_noise: float, hidden_noise: float
    ) -> None:
        super().__init__()
        sizes = [n_features, *hidden, n_classes]
        layers = [weight_norm(nn.Linear(inputs, units)) for inputs, units in pairwise(sizes)]
        for layer in layers[:-1]:
            lengths_of(layer).requires_grad_(False)
        self.layers = nn.ModuleList(layers)
        self.noises = [input_noise, *[hidden_noise] * len(hidden)]
        self.register_buffer("unit", torch.ones(()))

    @torch.no_grad()
    def start_from(self, rows: torch.Tensor) -> None:
        """Measure rows by their deviation, and give every unit mean 0 and deviation 1 on them (1602.07868, sec. 3)."""
        deviation = rows.double().var(dim=0, correction=0).mean().sqrt().to(rows.dtype)
        self.unit.copy_(torch.where(deviation > 0, deviation, 1.0))
        units = rows / self.unit
        for depth, layer in enumerate(self.layers):
            noisy = self._noisy(units, depth)
            spread, mean = torch.std_mean(layer(noisy), dim=0, correction=0)
            spread = spread.clamp(min=_LEAST_DEVIATION)
            lengths_of(layer).div_(spread[:, None])
            bias = layer.get_parameter("bias")
            bias.copy_((bias - mean) / spread)
            units = layer(noisy).relu()

    def features(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the units of the last hidden layer, shape (rows, units)."""
        units = rows / self.unit
        for depth, layer in enumerate(self.layers[:-1]):
            units = layer(self._noisy(units, depth)).relu()
        return units

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Return the score of each class from what `features` returned, shape (rows, classes)."""
        return self.layers[-1](self._noisy(features, len(self.layers) - 1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the score of each class, shape (rows, classes)."""
        return self.scores(self.features(rows))

    def _noisy(self, units: torch.Tensor, depth: int) -> torch.Tensor:
        return units + self.noises[depth] * torch.randn_like(units) if self.training else units


def lengths_of(layer: nn.Module) -> torch.Tensor:
    """Return the lengths of the weights of a layer that `weight_norm` made, shape (units, 1)."""
    return layer.get_parameter("parametrizations.weight.original0")
