"""Neural networks that teachers and students may be made of; needs the torch extra."""

from tutelage._internal.extras import install

try:
    import torch
except ModuleNotFoundError as error:  # pragma: no cover  an environment without torch
    raise ModuleNotFoundError(
        f"Neural networks need torch: {install('torch')}.", name="torch"
    ) from error

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from torch import nn
from torch.nn import functional

from tutelage._internal.streams import streams_in_use
from tutelage._internal.validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidParameterError

__all__ = ["ImageInput", "TwoConvolutions"]
_random: Any = torch.random  # whose `fork_rng` has no types


def device_named(name: str | None, owner: str) -> torch.device:
    """Return the device of this name, such as ``"cuda:1"``; without one an accelerator, if torch can use one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError):
        raise InvalidParameterError(
            f"{owner}.device", "be a device that torch can use here, such as 'cpu'", f"{name!r}"
        ) from None
    return device


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None) -> Generator[None, None, None]:
    """Let whatever a module draws (weights, dropout, shifts) come from `seed`, and leave the caller's generators alone.

    It draws on the processor, and on `device` if one is given. One thread of a process at a time: torch has one
    generator for all of them.
    """
    is_accelerator = device is not None and device.type == "cuda"
    accelerators = [device] if is_accelerator else []
    with streams_in_use, _random.fork_rng(devices=accelerators):
        torch.manual_seed(seed)
        yield


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
        if len(image_shape) == 2:
            image_shape = (*image_shape, 1)
        self.image_shape = image_shape
        self.scale = scale

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return images of shape (rows, channels, height, width)."""
        # A view of rows that hold the channels last, which is also the layout in which convolutions run fastest here.
        return (rows * self.scale).reshape(-1, *self.image_shape).permute(0, 3, 1, 2)


class _RandomShift(nn.Module):
    """Move each training image by up to so many pixels in either direction, filling with zeros."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.pixels = pixels

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return shifted images of the same shape; outside training, the images themselves."""
        if not self.training or self.pixels == 0:
            return images
        # images: (images, colors, height, width); padded: (images, height, width, colors), of the larger images
        n_images, _, height, width = images.shape
        numbers = partial(torch.arange, device=images.device)
        padded = functional.pad(images, [self.pixels] * 4).permute(0, 2, 3, 1)
        n_shifts = 2 * self.pixels + 1
        down, across = torch.randint(0, n_shifts, (2, n_images, 1, 1), device=images.device)
        image = numbers(n_images)[:, None, None]
        line = down + numbers(height)[:, None]
        column = across + numbers(width)
        return padded[image, line, column].permute(0, 3, 1, 2)


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
        Their side length; images get smaller, because borders are not padded.
    hidden : tuple of int
        Units of the fully connected layers. The paper adds two such layers for SVHN.
    dropout : float
        Share of the units that are left out in training before each fully connected layer.
    shift : int
        In training, largest shift of each image, in pixels.
    scale : float
        Multiplies every value; 1/255 for bytes.
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
        lengths = {"image_shape": (2, 3), "channels": (2,)}
        for name in ("image_shape", "channels", "hidden"):
            sizes: tuple[int, ...] | None = getattr(self, name)
            if not isinstance(sizes, tuple) or len(sizes) not in lengths.get(name, (len(sizes),)):
                raise InvalidParameterError(
                    f"TwoConvolutions.{name}", "be a tuple of sizes", f"{sizes!r}"
                )
            for size in sizes:
                integer_at_least(size, 1, name, "TwoConvolutions")
        if min(self._sides()) < 1:
            raise InvalidParameterError(
                "TwoConvolutions.image_shape",
                "be (height, width) or (height, width, channels), each side at least "
                f"{3 * self.kernel + 1} for a kernel of {self.kernel}",
                f"{self.image_shape!r}",
            )

    @classmethod
    def for_svhn(cls) -> "TwoConvolutions":
        """Return the variant for SVHN: color images of 32 by 32, and two more hidden layers."""
        return cls((32, 32, 3), channels=(32, 64), hidden=(128, 128, 128), shift=2)

    def __call__(self, n_classes: int) -> nn.Module:
        """Return an untrained network with one output per class."""
        colors = (*self.image_shape, 1)[2]
        first, second = self.channels
        layers: list[nn.Module] = [
            ImageInput(self.image_shape, self.scale),
            _RandomShift(self.shift),
        ]
        for inputs, outputs in ((colors, first), (first, second)):
            layers += [nn.Conv2d(inputs, outputs, self.kernel), nn.MaxPool2d(2), nn.ReLU()]
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
            height = (height - self.kernel + 1) // 2
            width = (width - self.kernel + 1) // 2
        return height, width
