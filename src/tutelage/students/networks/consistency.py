"""Consistency training: what a network says of an image it must also say of the image changed."""

from collections.abc import Callable
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tutelage._internal.fitting import require_classifier
from tutelage._internal.progress import progress_bar
from tutelage._internal.records import settable
from tutelage._internal.typing import ABSTAIN
from tutelage._internal.validation import (
    integer_at_least,
    number_between,
    positive,
    probability,
    require_instance,
)
from tutelage.exceptions import InvalidParameterError
from tutelage.students.base import fit_student
from tutelage.students.images import ImageNetwork, ImageStudent
from tutelage.students.networks.augmentation import ImageAugmentation
from tutelage.students.networks.base import (
    AveragedNetwork,
    NetworkStudent,
    network_from,
    restore,
    robust_loss,
    robustness_at,
    step_size,
)
from tutelage.students.networks.residual import arrays_of_residual, residual_network

_SHARE_MEMORY = 0.99  # of the running share of each class among what the network says
_PRIOR_ROWS = 10  # per class: few released labels say little about how frequent the classes are


@final
@settable
class ConsistencyStudent(ImageStudent, NetworkStudent):
    """A network that learns released labels by a loss robust to wrong ones, and agrees with itself on changed images.

    The prediction of a running average of the network for a weakly changed image, if it is sure enough, is the label
    of the same image changed strongly: FixMatch [1]_, with the pseudo-labels of a mean teacher [2]_ and the alignment
    of class shares of ReMixMatch [3]_.

    Parameters
    ----------
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of flattened rows. Default: as the images have it, also those of a
        `PATEClassifier`; flattened ones are taken for square and gray.
    factory : callable, optional
        From the number of classes to an untrained `torch.nn.Module`, from flattened images to scores. Default: a small
        residual network.
    augmentation : ImageAugmentation, optional
        How images are changed. Default: what leaves digits as they are, with changes of light where there is color.
    first_student : scikit-learn classifier, optional
        A clone of it is fitted first, on the same rows and labels; its classes are then learned as if they were
        released labels, of all rows. One that propagates labels on public features starts far ahead of any network.
    steps : int
        Number of optimizer steps.
    batch_size : int
        Labeled rows per step, drawn with replacement.
    unlabeled_ratio : int
        Further rows per step, labeled or not, for each labeled one.
    unlabeled_weight : float
        Weight of their loss, 0 for a network that learns from labels alone; at least 0 and below 100.
    confidence : float
        Probability from which on a pseudo-label is learned, between 0 and 1.
    robustness : float
        q of the generalized cross entropy of labels: 0 believes all of them, toward 1 those that the network
        contradicts count less; reached after a quarter of the steps. At least 0 and below 1.
    averaging : float
        Weight of the past in the running average of the network, which is what predicts; at least 0 and below 1.
    learning_rate : float
        Largest step of AdamW; it grows at first and falls to zero as a cosine.
    weight_decay : float
        Of AdamW, at least 0 and below 1.
    bfloat16 : bool
        Train in mixed precision: faster where the processor has instructions for it.
    device : str, optional
        ``"cpu"``, ``"cuda"``. Default: ``"cuda"`` if there is one.
    random_state : int, optional
        Seed of weights, batches and changes; None for a fresh one.
    progress : bool
        Show a progress bar.

    Attributes
    ----------
    image_shape_ : tuple of int
        (height, width) or (height, width, channels) of the images.
    weights_ : dict of str to ndarray
        The averaged network.

    Notes
    -----
    With 100 labels of MNIST, some 2,000 steps are worth their time; with a `first_student`, whose
    labels are many and mostly right, 800 steps of `batch_size` 96 and `unlabeled_ratio` 1.

    References
    ----------
    .. [1] Sohn et al., FixMatch, arXiv:2001.07685, Algorithm 1.
    .. [2] Tarvainen and Valpola, Mean teachers are better role models, arXiv:1703.01780.
    .. [3] Berthelot et al., ReMixMatch, arXiv:1911.09785, section 3.1.
    """

    _: KW_ONLY
    factory: Callable[[int], nn.Module] | None = None
    augmentation: ImageAugmentation | None = None
    first_student: Any = None
    steps: int = 1500
    batch_size: int = 32
    unlabeled_ratio: int = 4
    unlabeled_weight: float = 1.0
    confidence: float = 0.95
    robustness: float = 0.7
    averaging: float = 0.99
    learning_rate: float = 5e-3
    weight_decay: float = 0.02
    bfloat16: bool = False

    def network(self) -> ImageNetwork:
        """Return the trained network as arrays, for other formats.

        Raises
        ------
        InvalidParameterError
            If it is of a `factory`.
        """
        if self.factory is not None:
            raise InvalidParameterError(
                "export_onnx.student",
                "have the network that ConsistencyStudent makes by itself",
                "one of a `factory`",
                "Publish student.skops, or use the exporter of torch.",
            )
        module = residual_network(self._shape, len(self.classes_))
        restore(module, self.weights_)
        return arrays_of_residual(module, self._shape, self.classes_)

    def _module(self, n_classes: int) -> nn.Module:
        factory = self.factory
        if factory is None:
            factory = partial(residual_network, self._shape)
        return network_from(factory, n_classes, type(self).__name__)

    def _train(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        # X: (rows, numbers of an image); all_images, images, others: (rows, height, width, channels)
        all_images = X.reshape(-1, *(*self._shape, 1)[:3])
        changes = self.augmentation or ImageAugmentation.for_images(self._shape)
        labeled = self._first_labels(X, labels, n_classes)
        module = self._module(n_classes).to(X.device).train()
        averaged = AveragedNetwork(module, self.averaging)
        shares = _ClassShares(labeled.labels, n_classes)
        learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer: Any = torch.optim.AdamW(
            learned,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            fused=True,
        )
        steps = range(self.steps)
        for step in progress_bar(steps, "consistency training", self.steps, shown=self.progress):
            optimizer.param_groups[0]["lr"] = self.learning_rate * step_size(step, self.steps)
            optimizer.zero_grad(set_to_none=True)
            known = labeled.draw(self.batch_size)
            q = robustness_at(step, self.steps, self.robustness)
            images = changes.weak(all_images[known.rows])
            if self.unlabeled_weight == 0:
                loss = robust_loss(self._scores(module, images), known.labels, q).mean()
            else:
                n_others = self.batch_size * self.unlabeled_ratio
                others = all_images[torch.randint(len(X), (n_others,), device=X.device)]
                pseudo = self._pseudo_labels(averaged.module, shares, changes.weak(others))
                scores = self._scores(module, torch.cat([images, changes.strong(others)]))
                loss = robust_loss(scores[: len(images)], known.labels, q).mean()
                loss = loss + self.unlabeled_weight * _disagreement(scores[len(images) :], pseudo)
            loss.backward()
            optimizer.step()
            averaged.update(module)
        return averaged.module

    def _scores(self, module: nn.Module, images: torch.Tensor) -> torch.Tensor:
        """Return scores, shape (images, classes), in the precision that was asked for."""
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.bfloat16):
            scores = module(images.flatten(1))
        return scores.float()

    def _first_labels(
        self, X: torch.Tensor, labels: torch.Tensor, n_classes: int
    ) -> "_LabeledRows":
        """Return the released labels, or those of all rows that the first student makes of them."""
        if self.first_student is None:
            rows = torch.nonzero(labels != ABSTAIN)[:, 0]
            return _LabeledRows(rows, labels[rows])
        seed = int(torch.randint(2**31, ()))
        plain = X.cpu().numpy()
        classes = np.arange(n_classes)
        first = fit_student(self.first_student, plain, labels.cpu().numpy(), classes, seed=seed)
        started = torch.as_tensor(first.predict(plain), device=X.device)
        return _LabeledRows(torch.arange(len(X), device=X.device), started)

    def _pseudo_labels(
        self, averaged: nn.Module, shares: "_ClassShares", images: torch.Tensor
    ) -> torch.Tensor:
        """Return the class of each image, −1 where the averaged network is not sure enough of it."""
        with torch.no_grad():
            chances = self._scores(averaged, images).softmax(dim=1)
            sureness, pseudo = shares.align(chances).max(dim=1)
        return torch.where(sureness >= self.confidence, pseudo, ABSTAIN)

    def _check_settings(self) -> None:
        owner = type(self).__name__
        super()._check_settings()
        given: object = self.augmentation
        if given is not None:
            require_instance(
                f"{owner}.augmentation", "be an ImageAugmentation", given, ImageAugmentation
            )
        if self.first_student is not None:
            require_classifier(self.first_student, "first_student", owner)
        integer_at_least(self.batch_size, 2, "batch_size", owner)
        for name in ("steps", "unlabeled_ratio"):
            integer_at_least(getattr(self, name), 1, name, owner)
        for name in ("robustness", "averaging", "weight_decay"):
            number_between(getattr(self, name), 0, 1, name, owner)
        positive(self.learning_rate, "learning_rate", owner)
        number_between(self.unlabeled_weight, 0, 100, "unlabeled_weight", owner)
        probability(self.confidence, "confidence", owner)


class _LabeledRows(NamedTuple):
    """Numbers of the rows that have a class to learn, and their class indices; shapes (labeled,)."""

    rows: torch.Tensor
    labels: torch.Tensor

    def draw(self, how_many: int) -> "_LabeledRows":
        """Return `how_many` of them, each drawn independently."""
        chosen = torch.randint(len(self.rows), (how_many,), device=self.rows.device)
        return _LabeledRows(self.rows[chosen], self.labels[chosen])


def _disagreement(scores: torch.Tensor, pseudo: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy with the pseudo-labels, those of −1 left out, over all rows."""
    total = functional.cross_entropy(scores, pseudo, ignore_index=ABSTAIN, reduction="sum")
    return total / len(scores)


class _ClassShares:
    """Shares of each class among released labels, and among what the network says, which follow the first."""

    def __init__(self, labels: torch.Tensor, n_classes: int) -> None:
        counts = torch.bincount(labels, minlength=n_classes) + _PRIOR_ROWS
        self._wanted = counts / counts.sum()
        self._said = torch.full_like(self._wanted, 1 / n_classes)

    def align(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Return probabilities, shape (rows, classes), moved toward the wanted shares; rows sum to 1."""
        self._said = _SHARE_MEMORY * self._said + (1 - _SHARE_MEMORY) * probabilities.mean(dim=0)
        moved = probabilities * (self._wanted / self._said)
        return moved / moved.sum(dim=1, keepdim=True)
