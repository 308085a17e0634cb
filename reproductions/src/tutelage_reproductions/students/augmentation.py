"""Shared parts of image students: settings, labels, one step, and changes of an image that leave its class as it is."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tutelage._internal.fitting import require_classifier
from tutelage._internal.typing import ABSTAIN
from tutelage._internal.validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.students.base import fit_student
from tutelage_reproductions.students.networks import NetworkStudent, ResidualNetwork, network_from

_ELASTIC_GRID = 4  # nodes a side between which displacements are interpolated


@final
@dataclass(frozen=True)
class ImageAugmentation:
    """Random changes of whole batches of images that keep digits and letters what they are; nothing is mirrored.

    The weak change is a shift. The strong one turns, scales, shears, bends and shifts, then changes contrast and
    brightness, makes some negative and covers a square. Borders are continued outward, and no value leaves the range of
    the batch.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (height, width, channels) of the flattened rows.
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

    image_shape: tuple[int, ...]
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
        shape = self.image_shape
        is_tuple = isinstance(shape, tuple)  # pyright: ignore[reportUnnecessaryIsInstance]  a caller's own
        if not is_tuple or len(shape) not in (2, 3):
            raise InvalidParameterError(
                "ImageAugmentation.image_shape",
                "be (height, width) or (height, width, channels)",
                f"{shape!r}",
            )
        for size in shape:
            integer_at_least(size, 1, "image_shape", "ImageAugmentation")
        integer_at_least(self.shift, 0, "shift", "ImageAugmentation")
        number_between(self.rotation, 0, 180, "rotation", "ImageAugmentation")
        for name in ("scaling", "shear", "elastic", "contrast", "brightness", "negative", "cover"):
            number_between(getattr(self, name), 0, 1, name, "ImageAugmentation")

    @classmethod
    def for_images(cls, image_shape: tuple[int, ...]) -> "ImageAugmentation":
        """Return the settings for digits of this shape, (height, width) or (height, width, channels).

        Where there is color, light changes too, and nothing is bent.
        """
        gray = cls(image_shape)
        shift = 2 if min(image_shape[:2]) >= 16 else 1
        if len(image_shape) == 3:
            return replace(
                gray, shift=shift, elastic=0.0, contrast=0.4, brightness=0.2, negative=0.3
            )
        return replace(gray, shift=shift)

    def weak(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows shifted, each by its own whole number of pixels; shape (rows, features)."""
        images = self._images(rows)
        n_images, _, height, width = images.shape
        steps = torch.randint(-self.shift, self.shift + 1, (2, n_images, 1), device=rows.device)
        lines = (steps[0] + torch.arange(height, device=rows.device)).clamp(0, height - 1)
        columns = (steps[1] + torch.arange(width, device=rows.device)).clamp(0, width - 1)
        each = torch.arange(n_images, device=rows.device)[:, None, None]
        return images.permute(0, 2, 3, 1)[each, lines[:, :, None], columns[:, None, :]].flatten(1)

    def strong(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows bent, recolored and partly covered; shape (rows, features)."""
        images = self._images(rows)
        low, high = images.aminmax()
        images = functional.grid_sample(
            images, self._places(images), padding_mode="border", align_corners=False
        )
        if self.contrast or self.brightness:
            images = self._recolored(images, float(high - low))
        if self.negative:
            inverted = torch.rand(len(images), 1, 1, 1, device=rows.device) < self.negative
            images = torch.where(inverted, low + high - images, images)
        images = self._covered(images).clamp(low, high)
        return images.permute(0, 2, 3, 1).flatten(1)

    def _images(self, rows: torch.Tensor) -> torch.Tensor:
        height, width, channels = (*self.image_shape, 1)[:3]
        return rows.reshape(-1, height, width, channels).permute(0, 3, 1, 2)

    def _places(self, images: torch.Tensor) -> torch.Tensor:
        """Return where each pixel comes from, from −1 to 1 across the image; shape (images, height, width, 2)."""
        n_images, channels, height, width = images.shape
        turn, across, down, sheared, right, lower = _between(6, n_images, images.device).unbind()
        angle = turn * math.radians(self.rotation)
        wide, tall, sheared = (
            1 + across * self.scaling,
            1 + down * self.scaling,
            sheared * self.shear,
        )
        # A shift of so many pixels is twice that over the side, on a scale from −1 to 1.
        right, lower = right * 2 * self.shift / width, lower * 2 * self.shift / height
        cos, sin = angle.cos(), angle.sin()
        maps = torch.stack(
            [cos * wide, sheared - sin * tall, right, sin * wide, cos * tall, lower], dim=1
        ).reshape(n_images, 2, 3)
        places = functional.affine_grid(
            maps, [n_images, channels, height, width], align_corners=False
        )
        if self.elastic:
            nodes = (
                torch.randn(n_images, 2, _ELASTIC_GRID, _ELASTIC_GRID, device=images.device)
                * self.elastic
            )
            bent = functional.interpolate(
                nodes, (height, width), mode="bilinear", align_corners=True
            )
            places = places + bent.permute(0, 2, 3, 1)
        return places

    def _recolored(self, images: torch.Tensor, span: float) -> torch.Tensor:
        shape = images.shape[:2]
        factor, offset = _between(2, shape.numel(), images.device).reshape(2, *shape, 1, 1).unbind()
        mean = images.mean(dim=(2, 3), keepdim=True)
        return (
            (images - mean) * (1 + self.contrast * factor) + mean + self.brightness * span * offset
        )

    def _covered(self, images: torch.Tensor) -> torch.Tensor:
        n_images, _, height, width = images.shape
        side, line, column = torch.rand(3, n_images, 1, device=images.device).unbind()
        reach = side * self.cover / 2
        lines = (torch.arange(height, device=images.device) + 0.5) / height
        columns = (torch.arange(width, device=images.device) + 0.5) / width
        covered = ((lines - line).abs() < reach)[:, :, None] & ((columns - column).abs() < reach)[
            :, None, :
        ]
        return torch.where(covered[:, None], images.mean(dim=(2, 3), keepdim=True), images)


def _between(kinds: int, n_images: int, device: torch.device) -> torch.Tensor:
    """Return numbers drawn evenly between −1 and 1, shape (kinds, n_images)."""
    return 2 * torch.rand(kinds, n_images, device=device) - 1


class LabeledRows(NamedTuple):
    """Numbers of the rows that have a class to learn, and their class indices; shapes (labeled,)."""

    rows: torch.Tensor
    labels: torch.Tensor

    def drawn(self, how_many: int) -> "LabeledRows":
        """Return `how_many` of them, each drawn independently."""
        chosen = torch.randint(len(self.rows), (how_many,), device=self.rows.device)
        return LabeledRows(self.rows[chosen], self.labels[chosen])


@dataclass(eq=False, repr=False, kw_only=True)
class ImageStudent(NetworkStudent):
    """Base of networks that learn from images and their changed versions."""

    image_shape: tuple[int, ...] = field(default=(28, 28), kw_only=False)
    factory: Callable[[int], nn.Module] | None = None
    augmentation: ImageAugmentation | None = None
    first_student: Any = None
    batch_size: int
    robustness: float
    averaging: float = 0.99
    learning_rate: float = 5e-3
    weight_decay: float = 0.02
    bfloat16: bool = False

    def _module(self, n_classes: int) -> nn.Module:
        factory = (
            ResidualNetwork.for_images(self.image_shape) if self.factory is None else self.factory
        )
        return network_from(factory, n_classes, type(self).__name__)

    def _scores(self, module: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        """Return scores, shape (rows, classes), in the precision that was asked for."""
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=self.bfloat16):
            scores = module(rows)
        return scores.float()

    def _changes(self) -> ImageAugmentation:
        """Return how images are changed, once rows were found to be such images."""
        owner, shape = type(self).__name__, self.image_shape
        changes = self.augmentation
        if changes is None:
            changes = ImageAugmentation.for_images(shape)
        elif not isinstance(changes, ImageAugmentation):  # pyright: ignore[reportUnnecessaryIsInstance]  a caller's own
            raise InvalidParameterError(
                f"{owner}.augmentation", "be an ImageAugmentation", f"a {type(changes).__name__}"
            )
        if changes.image_shape != shape:
            raise InvalidParameterError(
                f"{owner}.image_shape",
                f"be that of its augmentation, {changes.image_shape!r}",
                f"{shape!r}",
            )
        values = int(np.prod(shape))
        if values != self.n_features_in_:
            raise InvalidDataError(
                f"`X` of {owner} must have {values} columns, for images of shape {shape!r}. Got {self.n_features_in_}."
            )
        return changes

    def _first_labels(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> LabeledRows:
        """Return the released labels, or those of all rows that the first student makes of them."""
        if self.first_student is None:
            rows = torch.nonzero(labels != ABSTAIN)[:, 0]
            return LabeledRows(rows, labels[rows])
        seed = int(torch.randint(2**31, ()))
        plain = X.cpu().numpy()
        first = fit_student(
            self.first_student, plain, labels.cpu().numpy(), np.arange(n_classes), seed=seed
        )
        started = torch.as_tensor(first.predict(plain), device=X.device)
        return LabeledRows(torch.arange(len(X), device=X.device), started)

    def _check_settings(self) -> None:
        owner = type(self).__name__
        self._changes()
        if self.first_student is not None:
            require_classifier(self.first_student, "first_student", owner)
        integer_at_least(self.batch_size, 2, "batch_size", owner)
        for name in ("robustness", "averaging", "weight_decay"):
            number_between(getattr(self, name), 0, 1, name, owner)
        positive(self.learning_rate, "learning_rate", owner)
