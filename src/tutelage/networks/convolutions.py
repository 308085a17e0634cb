"""The small convolutional networks of PATE 2017, as factories."""

from dataclasses import dataclass
from typing import final

import torch
from torch import nn
from torch.nn import functional

from tutelage._validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidParameterError


class ImageInput(nn.Module):
    """Turn flat rows into images: channels first, for convolutions, and on the scale that networks learn at.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (height, width, channels) of the flattened rows.
    scale : float
        Multiplies every value; 1/255 for bytes.
    """

    def __init__(self, image_shape: tuple[int, ...], scale: float = 1 / 255) -> None:
        super().__init__()
        self.image_shape = image_shape if len(image_shape) == 3 else (*image_shape, 1)
        self.scale = scale

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return images of shape (rows, channels, height, width)."""
        # A view of rows that hold the channels last, which is also the layout in which convolutions run fastest here.
        return (rows * self.scale).reshape(-1, *self.image_shape).permute(0, 3, 1, 2)


class RandomShift(nn.Module):
    """Move each training image by up to so many pixels in either direction, filling with zeros.

    Parameters
    ----------
    pixels : int
        The largest shift.
    """

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.pixels = pixels

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return shifted images of the same shape; outside training, the images themselves."""
        if not self.training or self.pixels == 0:
            return images
        n_images, _, height, width = images.shape
        padded = functional.pad(images, [self.pixels] * 4)
        steps = torch.randint(0, 2 * self.pixels + 1, (2, n_images, 1), device=images.device)
        lines = steps[0] + torch.arange(height, device=images.device)
        columns = steps[1] + torch.arange(width, device=images.device)
        moved = padded.permute(0, 2, 3, 1)[
            torch.arange(n_images, device=images.device)[:, None, None], lines[:, :, None], columns[:, None, :]
        ]
        return moved.permute(0, 3, 1, 2)


@final
@dataclass(frozen=True)
class TwoConvolutions:
    """Factory of the networks of PATE 2017, §4: two convolutions with max-pooling, then fully connected ReLU layers.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (height, width, channels) of the flattened rows.
    channels : tuple of two int
        Channels of the two convolutions.
    kernel : int
        Their side length; images get smaller by it, for nothing is filled in at the borders.
    hidden : tuple of int
        Units of the fully connected layers. The paper adds two such layers for SVHN.
    dropout : float
        Share of the units that are left out in training before each fully connected layer.
    shift : int
        In training each image moves by up to so many pixels.
    scale : float
        Multiplies every value; 1/255 for bytes.

    Raises
    ------
    InvalidParameterError
        If the image is too small for two convolutions and two poolings.
    """

    image_shape: tuple[int, ...] = (28, 28)
    channels: tuple[int, int] = (16, 32)
    kernel: int = 5
    hidden: tuple[int, ...] = (64,)
    dropout: float = 0.0
    shift: int = 2
    scale: float = 1 / 255

    def __post_init__(self) -> None:
        integer_at_least(self.kernel, 1, "kernel", "TwoConvolutions")
        integer_at_least(self.shift, 0, "shift", "TwoConvolutions")
        number_between(self.dropout, 0, 1, "dropout", "TwoConvolutions")
        positive(self.scale, "scale", "TwoConvolutions")
        for name, sizes, count in (
            ("image_shape", self.image_shape, (2, 3)),
            ("channels", self.channels, (2,)),
            ("hidden", self.hidden, None),
        ):
            if not isinstance(sizes, tuple) or (count is not None and len(sizes) not in count):
                raise InvalidParameterError(f"`{name}` of TwoConvolutions must be a tuple of sizes. Got {sizes!r}.")
            for size in sizes:
                integer_at_least(size, 1, name, "TwoConvolutions")
        if min(self._sides()) < 1:
            raise InvalidParameterError(
                "`image_shape` of TwoConvolutions must be (height, width) or (height, width, channels), each side at "
                f"least {3 * self.kernel + 1} for a kernel of {self.kernel}. Got {self.image_shape!r}."
            )

    @classmethod
    def for_svhn(cls) -> "TwoConvolutions":
        """Return the variant for SVHN: colour images of 32 by 32, and two more hidden layers."""
        return cls((32, 32, 3), channels=(32, 64), hidden=(128, 128, 128), shift=2)

    def __call__(self, n_classes: int) -> nn.Module:
        """Return an untrained network with one output per class."""
        colours = (*self.image_shape, 1)[2]
        first, second = self.channels
        layers: list[nn.Module] = [ImageInput(self.image_shape, self.scale), RandomShift(self.shift)]
        for wide, narrow in ((colours, first), (first, second)):
            layers += [nn.Conv2d(wide, narrow, self.kernel), nn.MaxPool2d(2), nn.ReLU()]
        layers.append(nn.Flatten())
        height, width = self._sides()
        units = second * height * width
        for size in self.hidden:
            layers += [nn.Dropout(self.dropout), nn.Linear(units, size), nn.ReLU()]
            units = size
        return nn.Sequential(*layers, nn.Dropout(self.dropout), nn.Linear(units, n_classes))

    def _sides(self) -> tuple[int, int]:
        """Return height and width after two convolutions and two poolings."""
        height, width = self.image_shape[:2]
        for _ in self.channels:
            height, width = (height - self.kernel + 1) // 2, (width - self.kernel + 1) // 2
        return height, width
