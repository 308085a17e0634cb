"""What students of images share: their settings, their labels and how one step goes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tutelage._fitting import require_classifier
from tutelage._typing import ABSTAIN
from tutelage._validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.networks.residual import ResidualNetwork
from tutelage.students.fitting import fit_student
from tutelage.students.networks.augmentation import ImageAugmentation
from tutelage.students.networks.base import NetworkStudent
from tutelage.students.networks.learning import network_from


class LabelledRows(NamedTuple):
    """Numbers of the rows that have a class to learn, and their class indices; shapes (labelled,)."""

    rows: torch.Tensor
    labels: torch.Tensor

    def drawn(self, how_many: int) -> "LabelledRows":
        """Return so many of them, each drawn on its own."""
        chosen = torch.randint(len(self.rows), (how_many,), device=self.rows.device)
        return LabelledRows(self.rows[chosen], self.labels[chosen])


class ImageStudent(NetworkStudent):
    """Base of networks that learn from images and their changed versions.

    Subclasses have the constructor parameters named here, besides those of `NetworkStudent`.
    """

    image_shape: tuple[int, ...]
    factory: Callable[[int], nn.Module] | None
    augmentation: ImageAugmentation | None
    first_student: Any
    batch_size: int
    robustness: float
    averaging: float
    learning_rate: float
    weight_decay: float
    bfloat16: bool

    def _module(self, n_classes: int) -> nn.Module:
        factory = ResidualNetwork.for_images(self.image_shape) if self.factory is None else self.factory
        return network_from(factory, n_classes, type(self).__name__)

    def _scores(self, module: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        """Return scores, shape (rows, classes), in the precision that was asked for."""
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=self.bfloat16):
            scores = module(rows)
        return scores.float()

    def _changes(self) -> ImageAugmentation:
        """Return how images are changed, once rows were found to be such images."""
        owner, shape = type(self).__name__, self.image_shape
        changes = ImageAugmentation.for_images(shape) if self.augmentation is None else self.augmentation
        if not isinstance(changes, ImageAugmentation):
            raise InvalidParameterError(
                f"`augmentation` of {owner} must be an ImageAugmentation. Got a {type(changes).__name__}."
            )
        if changes.image_shape != shape:
            raise InvalidParameterError(
                f"`image_shape` of {owner} must be that of its augmentation, {changes.image_shape!r}. Got {shape!r}."
            )
        values = int(np.prod(shape))
        if values != self.n_features_in_:
            raise InvalidDataError(
                f"`X` of {owner} must have {values} columns, for images of shape {shape!r}. Got {self.n_features_in_}."
            )
        return changes

    def _first_labels(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> LabelledRows:
        """Return the released labels, or those of all rows that the first student makes of them."""
        if self.first_student is None:
            rows = torch.nonzero(labels != ABSTAIN)[:, 0]
            return LabelledRows(rows, labels[rows])
        seed = int(torch.randint(2**31, ()))
        plain = X.cpu().numpy()
        first = fit_student(self.first_student, plain, labels.cpu().numpy(), np.arange(n_classes), seed=seed)
        started = torch.as_tensor(first.predict(plain), device=X.device)
        return LabelledRows(torch.arange(len(X), device=X.device), started)

    def _check_settings(self) -> None:
        owner = type(self).__name__
        self._changes()
        if self.first_student is not None:
            require_classifier(self.first_student, "first_student", owner)
        integer_at_least(self.batch_size, 2, "batch_size", owner)
        for name in ("robustness", "averaging", "weight_decay"):
            number_between(getattr(self, name), 0, 1, name, owner)
        positive(self.learning_rate, "learning_rate", owner)
