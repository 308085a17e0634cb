"""Self-training in rounds: a network labels what it is surest of, by a loss that wrong labels pull little."""

import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import nn

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN
from tutelage._internal.validation import integer_at_least
from tutelage.students.networks.augmentation import ImageAugmentation, ImageStudent, LabelledRows
from tutelage.students.networks.base import (
    AveragedNetwork,
    optimiser_of,
    robust_loss,
    robustness_at,
    scores_of,
    step_size,
)


@final
class NoisySelfTrainingStudent(ImageStudent):
    """A network that learns released labels and then, round by round, its own on ever more rows, surest first.

    Each round learns by a loss robust to wrong labels [1]_, half of a batch changed weakly and half strongly, as in
    noisy student training [2]_. Then released labels that the network all but excludes are dropped, for the small
    losses are those of right labels [3]_, and the rows it is surest of, as many in proportion of each class, get its
    class. One forward pass over all rows per round instead of one per step: cheaper than `ConsistencyStudent`.

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
        A clone of it is fitted first, on the same rows and labels; the first round learns its classes of all rows.
    rounds : int
        Number of rounds. The first learns from labels alone; after round i of n, i/n of the rows are believed.
    steps : int
        Optimiser steps per round.
    batch_size : int
        Rows per step, drawn with replacement.
    robustness : float
        q of the generalised cross entropy: 0 believes all labels, towards 1 those that the network contradicts count
        less; reached after a quarter of the first round. At least 0 and below 1.
    averaging : float
        Weight of the past in the running average of the network, which is what predicts; at least 0 and below 1.
    learning_rate : float
        Largest step of AdamW in each round; it grows at first and falls to zero as a cosine.
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
        The averaged network of the last round.

    References
    ----------
    .. [1] Zhang and Sabuncu, Generalized cross entropy loss, arXiv:1805.07836.
    .. [2] Xie et al., Self-training with noisy student improves ImageNet classification, arXiv:1911.04252.
    .. [3] Han et al., Co-teaching, arXiv:1804.06872, section 3.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...] = (28, 28),
        *,
        factory: Callable[[int], nn.Module] | None = None,
        augmentation: ImageAugmentation | None = None,
        first_student: Any = None,
        rounds: int = 4,
        steps: int = 300,
        batch_size: int = 64,
        robustness: float = 0.5,
        averaging: float = 0.99,
        learning_rate: float = 5e-3,
        weight_decay: float = 0.02,
        bfloat16: bool = False,
        device: str | None = None,
        random_state: int | None = None,
        progress: bool = False,
    ) -> None:
        self.image_shape = image_shape
        self.factory = factory
        self.augmentation = augmentation
        self.first_student = first_student
        self.rounds = rounds
        self.steps = steps
        self.batch_size = batch_size
        self.robustness = robustness
        self.averaging = averaging
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.bfloat16 = bfloat16
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def _trained(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        changes = self._changes()
        believed = self._first_labels(X, labels, n_classes)
        network = self._module(n_classes).to(X.device)
        rounds = progress_bar(range(1, self.rounds + 1), "self-training", self.rounds, shown=self.progress)
        for done in rounds:
            network = self._round(network, X, believed, changes, young=done == 1)
            if done < self.rounds:
                believed = surest(scores_of(network, X).softmax(dim=1), labels, done / self.rounds)
        return network

    def _round(
        self, start: nn.Module, X: torch.Tensor, believed: LabelledRows, changes: ImageAugmentation, *, young: bool
    ) -> nn.Module:
        """Return the averaged network after one round on what is believed, begun where `start` stands."""
        module = start.train()
        averaged = AveragedNetwork(module, self.averaging)
        optimiser = optimiser_of(module, self.learning_rate, self.weight_decay)
        for step in range(self.steps):
            optimiser.param_groups[0]["lr"] = self.learning_rate * step_size(step, self.steps)
            optimiser.zero_grad(set_to_none=True)
            drawn = believed.drawn(self.batch_size)
            images, half = X[drawn.rows], self.batch_size // 2
            scores = self._scores(module, torch.cat([changes.weak(images[:half]), changes.strong(images[half:])]))
            q = robustness_at(step, self.steps, self.robustness) if young else self.robustness
            robust_loss(scores, drawn.labels, q).mean().backward()
            optimiser.step()
            averaged.update(module)
        return averaged.module

    def _check_settings(self) -> None:
        super()._check_settings()
        for name in ("rounds", "steps"):
            integer_at_least(getattr(self, name), 1, name, type(self).__name__)


def surest(probabilities: torch.Tensor, labels: torch.Tensor, share: float) -> LabelledRows:
    """Return released labels that are not all but excluded, and the network's class of the rows it is surest of."""
    sureness, said = probabilities.max(dim=1)
    n_classes = probabilities.shape[1]
    of_label = probabilities.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    targets = torch.where((labels != ABSTAIN) & (of_label * n_classes >= 1), labels, ABSTAIN)
    for index in range(n_classes):
        members = torch.nonzero(said == index)[:, 0]
        best = members[sureness[members].argsort(descending=True, stable=True)[: math.ceil(len(members) * share)]]
        targets[best] = torch.where(targets[best] == ABSTAIN, index, targets[best])
    rows = torch.nonzero(targets != ABSTAIN)[:, 0]
    return LabelledRows(rows, targets[rows])
