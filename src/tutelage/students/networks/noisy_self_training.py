"""Self-training in rounds: a network labels what it is surest of, by a loss that wrong labels pull little."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN
from tutelage._internal.validation import integer_at_least
from tutelage.students.networks.augmentation import ImageAugmentation, ImageStudent, LabeledRows
from tutelage.students.networks.base import (
    AveragedNetwork,
    optimizer_of,
    robust_loss,
    robustness_at,
    scores_of,
    step_size,
)


@final
@dataclass(eq=False, repr=False, kw_only=True)
class NoisySelfTrainingStudent(ImageStudent):
    """A network that learns released labels and then, round by round, its own on ever more rows, surest first.

    Each round learns by a loss robust to wrong labels [1]_, half of a batch changed weakly and half strongly, as in
    noisy student training [2]_. Then released labels that the network all but excludes are dropped, for the small
    losses are those of right labels [3]_, and the rows it is surest of, as many in proportion of each class, get its
    class. One forward pass over all rows per round instead of one per step: cheaper than `ConsistencyStudent`.

    Parameters
    ----------
    image_shape, factory, augmentation, averaging, learning_rate, weight_decay, bfloat16, device, random_state, progress
        As for `ConsistencyStudent`.
    first_student : scikit-learn classifier, optional
        A clone of it is fitted first, on the same rows and labels; the first round learns its classes of all rows.
    rounds : int
        Number of rounds. The first learns from labels alone; after round i of n, i/n of the rows are believed.
    steps : int
        Optimizer steps per round.
    batch_size : int
        Rows per step, drawn with replacement.
    robustness : float
        As for `ConsistencyStudent`; reached after a quarter of the first round.

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

    rounds: int = 4
    steps: int = 300
    batch_size: int = 64
    robustness: float = 0.5

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
        self, start: nn.Module, X: torch.Tensor, believed: LabeledRows, changes: ImageAugmentation, *, young: bool
    ) -> nn.Module:
        """Return the averaged network after one round on what is believed, begun where `start` stands."""
        module = start.train()
        averaged = AveragedNetwork(module, self.averaging)
        optimizer = optimizer_of(module, self.learning_rate, self.weight_decay)
        for step in range(self.steps):
            optimizer.param_groups[0]["lr"] = self.learning_rate * step_size(step, self.steps)
            optimizer.zero_grad(set_to_none=True)
            drawn = believed.drawn(self.batch_size)
            images, half = X[drawn.rows], self.batch_size // 2
            scores = self._scores(module, torch.cat([changes.weak(images[:half]), changes.strong(images[half:])]))
            q = robustness_at(step, self.steps, self.robustness) if young else self.robustness
            robust_loss(scores, drawn.labels, q).mean().backward()
            optimizer.step()
            averaged.update(module)
        return averaged.module

    def _check_settings(self) -> None:
        super()._check_settings()
        for name in ("rounds", "steps"):
            integer_at_least(getattr(self, name), 1, name, type(self).__name__)


def surest(probabilities: torch.Tensor, labels: torch.Tensor, share: float) -> LabeledRows:
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
    return LabeledRows(rows, targets[rows])
