"""Consistency training: what a network says of an image it must also say of the image changed."""

from dataclasses import dataclass
from typing import final

import torch
from torch import nn
from torch.nn import functional

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN
from tutelage._internal.validation import integer_at_least, number_between, probability
from tutelage_reproductions.students.augmentation import ImageStudent
from tutelage_reproductions.students.networks import (
    AveragedNetwork,
    optimizer_of,
    robust_loss,
    robustness_at,
    step_size,
)

_SHARE_MEMORY = 0.99  # of the running share of each class among what the network says
_PRIOR_ROWS = 10  # per class: few released labels say little about how frequent the classes are


@final
@dataclass(eq=False, repr=False, kw_only=True)
class ConsistencyStudent(ImageStudent):
    """A network that learns released labels by a loss robust to wrong ones, and agrees with itself on changed images.

    The prediction of a running average of the network for a weakly changed image, if it is sure enough, is the label
    of the same image changed strongly: FixMatch [1]_, with the pseudo-labels of a mean teacher [2]_ and the alignment
    of class shares of ReMixMatch [3]_.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (height, width, channels) of the flattened rows.
    factory : callable, optional
        From the number of classes to an untrained `torch.nn.Module`, from rows to scores. Default: `ResidualNetwork`
        for images of this shape.
    augmentation : ImageAugmentation, optional
        How images are changed. Default: what leaves digits as they are, for images of this shape.
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

    steps: int = 1500
    batch_size: int = 32
    unlabeled_ratio: int = 4
    unlabeled_weight: float = 1.0
    confidence: float = 0.95
    robustness: float = 0.7

    def _trained(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        changes = self._changes()
        labeled = self._first_labels(X, labels, n_classes)
        module = self._module(n_classes).to(X.device).train()
        averaged = AveragedNetwork(module, self.averaging)
        shares = _Shares(labeled.labels, n_classes)
        optimizer = optimizer_of(module, self.learning_rate, self.weight_decay)
        for step in progress_bar(
            range(self.steps), "consistency training", self.steps, shown=self.progress
        ):
            optimizer.param_groups[0]["lr"] = self.learning_rate * step_size(step, self.steps)
            optimizer.zero_grad(set_to_none=True)
            known, q = (
                labeled.drawn(self.batch_size),
                robustness_at(step, self.steps, self.robustness),
            )
            images = changes.weak(X[known.rows])
            if self.unlabeled_weight == 0:
                loss = robust_loss(self._scores(module, images), known.labels, q).mean()
            else:
                rows = X[
                    torch.randint(
                        len(X), (self.batch_size * self.unlabeled_ratio,), device=X.device
                    )
                ]
                pseudo = self._pseudo_labels(averaged.module, shares, changes.weak(rows))
                scores = self._scores(module, torch.cat([images, changes.strong(rows)]))
                loss = robust_loss(scores[: len(images)], known.labels, q).mean()
                loss = loss + self.unlabeled_weight * _disagreement(scores[len(images) :], pseudo)
            loss.backward()
            optimizer.step()
            averaged.update(module)
        return averaged.module

    def _pseudo_labels(
        self, averaged: nn.Module, shares: "_Shares", images: torch.Tensor
    ) -> torch.Tensor:
        """Return the class of each image, −1 where the averaged network is not sure enough of it."""
        with torch.no_grad():
            sureness, pseudo = shares.aligned(self._scores(averaged, images).softmax(dim=1)).max(
                dim=1
            )
        return torch.where(sureness >= self.confidence, pseudo, ABSTAIN)

    def _check_settings(self) -> None:
        owner = type(self).__name__
        super()._check_settings()
        integer_at_least(self.steps, 1, "steps", owner)
        integer_at_least(self.unlabeled_ratio, 1, "unlabeled_ratio", owner)
        number_between(self.unlabeled_weight, 0, 100, "unlabeled_weight", owner)
        probability(self.confidence, "confidence", owner)


def _disagreement(scores: torch.Tensor, pseudo: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy with the pseudo-labels, those of −1 left out, over all rows."""
    return functional.cross_entropy(scores, pseudo, ignore_index=ABSTAIN, reduction="sum") / len(
        scores
    )


class _Shares:
    """Shares of each class among released labels, and among what the network says, which follow the first."""

    def __init__(self, labels: torch.Tensor, n_classes: int) -> None:
        counts = torch.bincount(labels, minlength=n_classes) + _PRIOR_ROWS
        self._wanted = counts / counts.sum()
        self._said = torch.full_like(self._wanted, 1 / n_classes)

    def aligned(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Return probabilities, shape (rows, classes), moved toward the wanted shares; rows sum to 1."""
        self._said = _SHARE_MEMORY * self._said + (1 - _SHARE_MEMORY) * probabilities.mean(dim=0)
        moved = probabilities * (self._wanted / self._said)
        return moved / moved.sum(dim=1, keepdim=True)
