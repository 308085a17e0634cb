"""Changes of images that leave their class as it is."""

import math
from dataclasses import KW_ONLY
from typing import Self, final

import torch
from torch.nn import functional

from tutelage._internal.records import frozen
from tutelage._internal.validation import integer_at_least, number_between

_ELASTIC_GRID = 4  # nodes a side, between which displacements are interpolated
_LARGE = 16  # sides from which on images are shifted by two pixels


@final
@frozen
class ImageAugmentation:
    """Random changes of whole batches of images that keep digits and letters what they are; nothing is mirrored.

    The weak change is a shift. The strong one turns, scales, shears, bends and shifts, then changes contrast and
    brightness, makes some negative and covers a square. Borders are continued outward, and no value leaves the range of
    the batch.

    Parameters
    ----------
    shift : int
        Largest shift in either direction, in pixels.
    rotation : float
        Largest turn in either direction, in degrees; below 180.
    scaling : float
        Largest relative change of size, each side on its own, at least 0 and below 1.
    shear : float
        Largest shear, as the tangent of its angle; at least 0 and below 1.
    elastic : float
        Standard deviation of the displacement at 4 by 4 nodes, as a share of half the side; at least 0 and below 1.
    contrast : float
        Largest relative change of each channel's contrast, at least 0 and below 1.
    brightness : float
        Largest change of each channel's brightness, as a share of the batch's range; at least 0 and below 1.
    negative : float
        Share of the images that become their negative, at least 0 and below 1.
    cover : float
        Largest side of the square that is covered by the image's mean, as a share of the image's; at least 0 and below
        1. DeVries and Taylor 2017 call it cutout.
    """

    _: KW_ONLY
    shift: int = 2
    rotation: float = 15.0
    scaling: float = 0.15
    shear: float = 0.15
    elastic: float = 0.06
    contrast: float = 0.0
    brightness: float = 0.0
    negative: float = 0.0
    cover: float = 0.3

    def __post_init__(self) -> None:
        integer_at_least(self.shift, 0, "shift", "ImageAugmentation")
        number_between(self.rotation, 0, 180, "rotation", "ImageAugmentation")
        for name in ("scaling", "shear", "elastic", "contrast", "brightness", "negative", "cover"):
            number_between(getattr(self, name), 0, 1, name, "ImageAugmentation")

    @classmethod
    def for_images(cls, image_shape: tuple[int, ...]) -> Self:
        """Return the settings for digits of this shape, (height, width) or (height, width, channels).

        Where there is color, light changes too, and nothing is bent.
        """
        shift = 2 if min(image_shape[:2]) >= _LARGE else 1
        if (*image_shape, 1)[2] > 1:
            return cls(shift=shift, elastic=0.0, contrast=0.4, brightness=0.2, negative=0.3)
        return cls(shift=shift)

    def weak(self, images: torch.Tensor) -> torch.Tensor:
        """Return images, shape (images, height, width, channels), each shifted by its own whole number of pixels."""
        n_images, height, width, _ = images.shape
        device = images.device
        each = torch.arange(n_images, device=device)
        down, across = torch.randint(
            -self.shift, self.shift + 1, (2, n_images, 1), device=device
        ).unbind()
        lines = down + torch.arange(height, device=device)
        lines = lines.clamp(0, height - 1)
        columns = across + torch.arange(width, device=device)
        columns = columns.clamp(0, width - 1)
        return images[each[:, None, None], lines[:, :, None], columns[:, None, :]]

    def strong(self, images: torch.Tensor) -> torch.Tensor:
        """Return images, shape (images, height, width, channels), bent, recolored and partly covered."""
        images = images.permute(0, 3, 1, 2)
        low, high = images.aminmax()
        places = self._places(images)
        images = functional.grid_sample(
            images,
            places,
            padding_mode="border",
            align_corners=False,
        )
        if self.contrast or self.brightness:
            images = self._change_light(images, float(high - low))
        if self.negative:
            inverted = torch.rand(len(images), 1, 1, 1, device=images.device) < self.negative
            images = torch.where(inverted, low + high - images, images)
        images = self._cover_square(images).clamp(low, high)
        return images.permute(0, 2, 3, 1)

    def _places(self, images: torch.Tensor) -> torch.Tensor:
        """Return where each pixel comes from, from −1 to 1 across the image; shape (images, height, width, 2)."""
        n_images, channels, height, width = images.shape
        turn, across, down, sheared, right, lower = _between(6, n_images, images.device).unbind()
        angle = turn * math.radians(self.rotation)
        cos = angle.cos()
        sin = angle.sin()
        wide = 1 + across * self.scaling
        tall = 1 + down * self.scaling
        # A shift of so many pixels is twice that over the side, on a scale from −1 to 1.
        entries = [
            cos * wide,
            sheared * self.shear - sin * tall,
            right * 2 * self.shift / width,
            sin * wide,
            cos * tall,
            lower * 2 * self.shift / height,
        ]
        maps = torch.stack(entries, dim=1).reshape(n_images, 2, 3)
        size = [n_images, channels, height, width]
        places = functional.affine_grid(maps, size, align_corners=False)
        if not self.elastic:
            return places
        grid = (n_images, 2, _ELASTIC_GRID, _ELASTIC_GRID)
        nodes = torch.randn(grid, device=images.device) * self.elastic
        bent = functional.interpolate(
            nodes,
            (height, width),
            mode="bilinear",
            align_corners=True,
        )
        return places + bent.permute(0, 2, 3, 1)

    def _change_light(self, images: torch.Tensor, span: float) -> torch.Tensor:
        shape = images.shape[:2]
        draws = _between(2, shape.numel(), images.device)
        factor, offset = draws.reshape(2, *shape, 1, 1).unbind()
        mean = images.mean(dim=(2, 3), keepdim=True)
        contrasted = (images - mean) * (1 + self.contrast * factor) + mean
        return contrasted + self.brightness * span * offset

    def _cover_square(self, images: torch.Tensor) -> torch.Tensor:
        n_images, _, height, width = images.shape
        device = images.device
        side, line, column = torch.rand(3, n_images, 1, device=device).unbind()
        reach = side * self.cover / 2
        lines = (torch.arange(height, device=device) + 0.5) / height
        columns = (torch.arange(width, device=device) + 0.5) / width
        in_lines = (lines - line).abs() < reach
        in_columns = (columns - column).abs() < reach
        covered = in_lines[:, None, :, None] & in_columns[:, None, None, :]
        mean = images.mean(dim=(2, 3), keepdim=True)
        return torch.where(covered, mean, images)


def _between(kinds: int, n_images: int, device: torch.device) -> torch.Tensor:
    """Return numbers drawn evenly between −1 and 1, shape (kinds, n_images)."""
    return 2 * torch.rand(kinds, n_images, device=device) - 1
