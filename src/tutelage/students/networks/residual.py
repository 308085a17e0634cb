"""A small residual network for images: cheap on processors, because the resolution is halved early."""

import numpy as np
import torch
from torch import nn

from tutelage._internal.typing import Array
from tutelage._internal.validation import as_image_shape
from tutelage.networks import ImageInput
from tutelage.students.images import LEAST_VARIANCE, Convolution, ImageNetwork

_WIDTH_OF_GRAY = 16  # channels of the first stage
_WIDTH_OF_COLOR = 32
_LARGE = 16  # sides from which on there are three stages
_FIRST_KERNEL = 5


class StandardizedImages(nn.Module):
    """Give every image mean 0 and variance 1 over its values, so that its brightness and contrast do not matter."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape, (rows, channels, height, width)."""
        variance, mean = torch.var_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)
        return (images - mean) * (variance + LEAST_VARIANCE).rsqrt()


class _Residual(nn.Module):
    """One normalized convolution beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.normalized = nn.BatchNorm2d(channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.normalized(self.convolution(images)))


def residual_network(image_shape: tuple[int, ...], n_classes: int) -> nn.Sequential:
    """Return an untrained network from rows to scores: wider where there is color, with fewer stages for small images.

    The first stage is one convolution, every further one a convolution and a residual one (He et al. 2016), all
    normalized over the batch. Every image is standardized first, so rows may be bytes or fractions.
    """
    sides = as_image_shape(image_shape, 2, "image_shape", "ConsistencyStudent")[:2]
    colors = (*image_shape, 1)[2]
    layers: list[nn.Module] = [ImageInput(image_shape, 1.0), StandardizedImages()]
    wide = colors
    narrow = _WIDTH_OF_COLOR if colors > 1 else _WIDTH_OF_GRAY
    for stage in range(3 if min(sides) >= _LARGE else 2):
        kernel = 3 if stage else _FIRST_KERNEL
        layers += [nn.MaxPool2d(2)] if stage else []
        layers += [
            nn.Conv2d(wide, narrow, kernel, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(),
        ]
        layers += [_Residual(narrow)] if stage else []
        wide, narrow = narrow, 2 * narrow
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, n_classes))


def arrays_of_residual(
    module: nn.Sequential, image_shape: tuple[int, ...], classes: Array
) -> ImageNetwork:
    """Return a trained `residual_network` as arrays, each normalization as a part of its convolution."""
    layers = [*module]
    convolutions = list[Convolution]()
    for before, layer, after in zip(layers, layers[1:], layers[2:], strict=False):
        if isinstance(layer, nn.Conv2d) and isinstance(after, nn.BatchNorm2d):
            halves = isinstance(before, nn.MaxPool2d)
            convolutions.append(_with_normalization(layer, after, halves=halves))
        elif isinstance(layer, _Residual):
            convolutions.append(
                _with_normalization(layer.convolution, layer.normalized, beside=True)
            )
    head = layers[-1]
    weights = head.get_parameter("weight").detach().cpu().numpy()
    bias = head.get_parameter("bias").detach().cpu().numpy()
    return ImageNetwork(image_shape, classes, convolutions, weights, bias)


@torch.no_grad()
def _with_normalization(
    layer: nn.Conv2d, normalized: nn.BatchNorm2d, *, halves: bool = False, beside: bool = False
) -> Convolution:
    """Return a convolution and its normalization as one."""
    mean = normalized.get_buffer("running_mean")
    deviation = (normalized.get_buffer("running_var") + normalized.eps).sqrt()
    factor = normalized.weight / deviation
    weights = layer.weight * factor[:, None, None, None]
    bias = normalized.bias - mean * factor
    return Convolution(
        np.ascontiguousarray(weights.cpu().numpy()), bias.cpu().numpy(), halves, beside
    )
