"""A small residual network with batch normalisation, as a factory: for students, who need no limit on a row's reach."""

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import nn

from tutelage._validation import integer_at_least, number_between
from tutelage.exceptions import InvalidParameterError
from tutelage.networks.convolutions import ImageInput

_LEAST_VARIANCE = 1e-5  # of a constant image, which becomes zeros


class StandardisedImages(nn.Module):
    """Give every image mean 0 and variance 1 over its values, so that its brightness and contrast do not matter."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape, (rows, channels, height, width)."""
        variance, mean = torch.var_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)
        return (images - mean) * (variance + _LEAST_VARIANCE).rsqrt()


class _Residual(nn.Module):
    """One normalised convolution beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.normalised = nn.BatchNorm2d(channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.normalised(self.convolution(images)))


@final
@dataclass(frozen=True)
class ResidualNetwork:
    """Factory of a small residual network for images: cheap on processors, for the resolution is halved early.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (height, width, channels) of the flattened rows.
    channels : tuple of int
        Channels of each stage; the resolution is halved between stages. The first stage is one convolution, every
        further one a convolution and a residual one (He et al. 2016), all normalised over the batch.
    kernel : int
        Side length of the first stage's convolution, an odd number; all others have 3.
    dropout : float
        Share of the averaged features that are left out in training.

    Raises
    ------
    InvalidParameterError
        If the image is too small to be halved so often, or a setting is out of range.

    Notes
    -----
    Every image is standardised first, so rows may be bytes or fractions. Batch normalisation mixes rows: a teacher of
    this network is trained alone.
    """

    image_shape: tuple[int, ...] = (28, 28)
    channels: tuple[int, ...] = (16, 32, 64)
    kernel: int = 5
    dropout: float = 0.0

    def __post_init__(self) -> None:
        integer_at_least(self.kernel, 1, "kernel", "ResidualNetwork")
        number_between(self.dropout, 0, 1, "dropout", "ResidualNetwork")
        for name, sizes in (("image_shape", self.image_shape), ("channels", self.channels)):
            if not isinstance(sizes, tuple) or not sizes:
                raise InvalidParameterError(f"`{name}` of ResidualNetwork must be a tuple of sizes. Got {sizes!r}.")
            for size in sizes:
                integer_at_least(size, 1, name, "ResidualNetwork")
        least = 2 ** (len(self.channels) - 1)
        if len(self.image_shape) not in (2, 3) or min(self.image_shape[:2]) < least:
            raise InvalidParameterError(
                "`image_shape` of ResidualNetwork must be (height, width) or (height, width, channels), each side at "
                f"least {least} for {len(self.channels)} stages. Got {self.image_shape!r}."
            )
        if self.kernel % 2 == 0:
            raise InvalidParameterError(f"`kernel` of ResidualNetwork must be odd. Got {self.kernel!r}.")

    @classmethod
    def for_images(cls, image_shape: tuple[int, ...]) -> "ResidualNetwork":
        """Return the variant for images of this shape: wider where there is colour, fewer stages where they are small.

        Parameters
        ----------
        image_shape : tuple of int
            (height, width) or (height, width, channels).
        """
        one_stage = cls(image_shape, channels=(16,))
        width = 32 if len(image_shape) == 3 else 16
        stages = 3 if min(image_shape[:2]) >= 16 else 2
        return replace(one_stage, channels=tuple(width * 2**stage for stage in range(stages)))

    def __call__(self, n_classes: int) -> nn.Module:
        """Return an untrained network with one output per class."""
        colours = (*self.image_shape, 1)[2]
        layers: list[nn.Module] = [ImageInput(self.image_shape, 1.0), StandardisedImages()]
        for stage, (wide, narrow) in enumerate(zip((colours, *self.channels), self.channels, strict=False)):
            kernel = 3 if stage else self.kernel
            layers += [nn.MaxPool2d(2)] if stage else []
            layers += [
                nn.Conv2d(wide, narrow, kernel, padding=kernel // 2, bias=False),
                nn.BatchNorm2d(narrow),
                nn.ReLU(),
            ]
            layers += [_Residual(narrow)] if stage else []
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(self.dropout)]
        return nn.Sequential(*layers, nn.Linear(self.channels[-1], n_classes))
