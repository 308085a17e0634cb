"""PATE-G's student: a semi-supervised GAN, whose discriminator is the classifier."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from itertools import pairwise
from typing import final

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from tutelage._internal.progress import progress_bar
from tutelage._internal.records import settable
from tutelage._internal.typing import ABSTAIN
from tutelage._internal.validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidParameterError
from tutelage.students.networks.base import (
    AveragedNetwork,
    NetworkStudent,
    scores_of,
    step_size,
)
from tutelage_reproductions.students.adam import adam_of

_NOISE_SIZE = 100
_FIRST_DEVIATION = 0.05


class Generator(nn.Module):
    """Two softplus layers with batch normalization, from uniform noise to rows within the range of each column.

    As the MNIST generator of Salimans et al., arXiv:1606.03498, with another range than that of gray levels.
    """

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, hidden: int, low: torch.Tensor, high: torch.Tensor) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size in (_NOISE_SIZE, hidden):
            layers += [nn.Linear(size, hidden, bias=False), nn.BatchNorm1d(hidden), nn.Softplus()]
        layers += [nn.Linear(hidden, len(low)), nn.Sigmoid()]
        for layer in layers:
            if isinstance(layer, nn.Linear):
                layer.weight.data = _FIRST_DEVIATION * torch.randn_like(layer.weight)
        self.layers = nn.Sequential(*layers)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, n_rows: int) -> torch.Tensor:
        """Return `n_rows` new rows, at least two, shape (n_rows, features)."""
        noise = torch.rand(n_rows, _NOISE_SIZE, device=self.low.device)
        return torch.lerp(self.low, self.high, self.layers(noise))


_LEAST_DEVIATION = 1e-3  # of a unit that no row moves


class Discriminator(nn.Module):
    """Fully connected ReLU layers with normalized weights, and in training Gaussian noise before each of them.

    Only the last layer learns the lengths of its weights; those of the others stay as `start_from` sets them (Salimans
    and Kingma, arXiv:1602.07868). The MNIST network of Salimans et al., arXiv:1606.03498, has 1000, 500, 250, 250 and
    250 hidden units and noise of 0.3 and 0.5.
    """

    unit: torch.Tensor

    def __init__(
        self,
        n_features: int,
        hidden: tuple[int, ...],
        n_classes: int,
        input_noise: float,
        hidden_noise: float,
    ) -> None:
        super().__init__()
        sizes = [n_features, *hidden, n_classes]
        layers = [weight_norm(nn.Linear(inputs, units)) for inputs, units in pairwise(sizes)]
        for layer in layers[:-1]:
            lengths_of(layer).requires_grad_(False)
        self.layers = nn.ModuleList(layers)
        self.noises = [input_noise, *[hidden_noise] * len(hidden)]
        self.register_buffer("unit", torch.ones(()))

    @torch.no_grad()
    def start_from(self, rows: torch.Tensor) -> None:
        """Measure rows by their deviation, and give every unit mean 0 and deviation 1 on them (1602.07868, sec. 3)."""
        deviation = rows.double().var(dim=0, correction=0).mean().sqrt().to(rows.dtype)
        self.unit.copy_(torch.where(deviation > 0, deviation, 1.0))
        units = rows / self.unit
        for depth, layer in enumerate(self.layers):
            noisy = self._noisy(units, depth)
            spread, mean = torch.std_mean(layer(noisy), dim=0, correction=0)
            spread = spread.clamp(min=_LEAST_DEVIATION)
            lengths_of(layer).div_(spread[:, None])
            bias = layer.get_parameter("bias")
            bias.copy_((bias - mean) / spread)
            units = layer(noisy).relu()

    def features(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the units of the last hidden layer, shape (rows, units)."""
        units = rows / self.unit
        for depth, layer in enumerate(self.layers[:-1]):
            units = layer(self._noisy(units, depth)).relu()
        return units

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Return the score of each class from what `features` returned, shape (rows, classes)."""
        return self.layers[-1](self._noisy(features, len(self.layers) - 1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the score of each class, shape (rows, classes)."""
        return self.scores(self.features(rows))

    def _noisy(self, units: torch.Tensor, depth: int) -> torch.Tensor:
        return units + self.noises[depth] * torch.randn_like(units) if self.training else units


def lengths_of(layer: nn.Module) -> torch.Tensor:
    """Return the lengths of the weights of a layer that `weight_norm` made, shape (units, 1)."""
    return layer.get_parameter("parametrizations.weight.original0")


_ADAM_BETAS = (0.5, 0.999)  # as the authors of improved GANs
_FIRST_ROWS = 500  # on which the first weights are scaled
_BETWEEN_LOOKS = 500  # steps


@final
@settable
class AdversarialStudent(NetworkStudent):
    """A classifier that must also tell public rows from rows that a second network generates: PATE-G [1]_.

    Of k classes and a further one for generated rows, whose score is fixed at 0, released labels teach the k; all
    public rows teach that they are one of the k. The generator learns to give its rows the mean features of public
    ones [2]_. Boundaries between classes thus move to where there are no public rows [3]_, and classes are kept from
    overlapping on public rows by the entropy of what is said of them.

    Rows may be any public features on one scale. Handwriting is learned far better from directions of strokes
    than from pixels, which want many times the steps.

    Parameters
    ----------
    hidden : tuple of int
        Units of the discriminator's hidden layers; the last one's are the features that the generator matches.
    generator_units : int
        Units of each of the generator's two hidden layers.
    steps : int
        Number of optimizer steps.
    batch_size : int
        Public rows per step, and as many generated ones; at least 2.
    labeled_batch_size : int
        Labeled rows per step, drawn with replacement.
    unlabeled_weight : float
        Weight of what is learned from public and generated rows, 0 for a network that learns from labels alone; at
        least 0 and below 100.
    entropy_weight : float
        Weight of the entropy of the classes of public rows, 0 for none as in [2]_; at least 0 and below 100.
    label_noise : float
        Assumed share of released labels that are replaced by random classes: 0 trusts every label; the larger
        it is, the less counts one that the network contradicts [4]_. At least 0 and below 1.
    input_noise : float
        Standard deviation of the noise that training adds to rows, relative to that of a typical column; at least 0
        and below 10.
    hidden_noise : float
        Standard deviation of the noise that training adds to hidden units, whose own is about 1; at least 0 and below
        10.
    averaging : float
        Weight of the past in the running average of the discriminator, which is what predicts; at least 0 and below 1.
    learning_rate : float
        Largest step of Adam; it grows at first and falls to zero as a cosine.
    settled : float
        Stop early where, of the public rows, at most this share changed class in the last 500 steps; at least 0 and
        below 1. Public rows tell when a student stops changing, not when it stops getting better, so the default is
        to take all steps.
    device : str, optional
        ``"cpu"``, ``"cuda"``. Default: ``"cuda"`` if there is one.
    random_state : int, optional
        Seed of weights, batches and noise; None for a fresh one.
    progress : bool
        Show a progress bar.

    Attributes
    ----------
    weights_ : dict of str to ndarray
        The averaged discriminator.

    References
    ----------
    .. [1] Papernot et al., Semi-supervised knowledge transfer for deep learning from private training data,
       arXiv:1610.05755, section 2.2 and appendix B.
    .. [2] Salimans et al., Improved techniques for training GANs, arXiv:1606.03498, sections 3.1 and 5.
    .. [3] Dai et al., Good semi-supervised learning that requires a bad GAN, arXiv:1705.09783, which adds the entropy
       in section 4.3.
    .. [4] Patrini et al., Making deep neural networks robust to label noise, arXiv:1609.03683, the forward correction.
    """

    _: KW_ONLY
    hidden: tuple[int, ...] = (250, 250)
    generator_units: int = 250
    steps: int = 6000
    batch_size: int = 100
    labeled_batch_size: int = 50
    unlabeled_weight: float = 1.0
    entropy_weight: float = 0.3
    label_noise: float = 0.1
    input_noise: float = 1.0
    hidden_noise: float = 0.5
    averaging: float = 0.998
    learning_rate: float = 3e-3
    settled: float = 0.0

    def _module(self, n_classes: int) -> Discriminator:
        return Discriminator(
            self.n_features_in_, self.hidden, n_classes, self.input_noise, self.hidden_noise
        )

    def _train(self, X: torch.Tensor, labels: torch.Tensor, n_classes: int) -> nn.Module:
        discriminator = self._module(n_classes).to(X.device).train()
        discriminator.start_from(X[torch.randint(len(X), (_FIRST_ROWS,), device=X.device)])
        low, high = X.aminmax(dim=0)
        generator = Generator(self.generator_units, low, high).to(X.device).train()
        networks = [discriminator, generator] if self.unlabeled_weight else [discriminator]
        optimizers = [adam_of(network, self.learning_rate, _ADAM_BETAS) for network in networks]
        averaged = AveragedNetwork(discriminator, self.averaging)
        labeled = torch.nonzero(labels != ABSTAIN)[:, 0]
        classes = torch.full_like(labels, ABSTAIN)  # of the public rows, at the last look
        for step in progress_bar(
            range(self.steps), "adversarial training", self.steps, shown=self.progress
        ):
            known = labeled[
                torch.randint(len(labeled), (self.labeled_batch_size,), device=X.device)
            ]
            losses = self._losses(discriminator, generator, X, known, labels[known])
            descend(optimizers, losses, self.learning_rate * step_size(step, self.steps))
            averaged.update(discriminator)
            if self.settled > 0 and (step + 1) % _BETWEEN_LOOKS == 0:
                before, classes = classes, scores_of(averaged.module, X).argmax(dim=1)
                if torch.mean((classes != before).double()) <= self.settled:
                    break
        return averaged.module

    def _losses(
        self,
        discriminator: Discriminator,
        generator: Generator,
        X: torch.Tensor,
        known: torch.Tensor,
        labels: torch.Tensor,
    ) -> list[torch.Tensor]:
        """Return what the discriminator, and then the generator, are to make small, from one and the same batch."""
        if self.unlabeled_weight == 0:
            return [corrected_loss(discriminator(X[known]), labels, self.label_noise).mean()]
        real = torch.randint(len(X), (self.batch_size,), device=X.device)
        rows = torch.cat([X[known], X[real], generator(self.batch_size)])
        features = discriminator.features(rows)
        parts = [len(known), self.batch_size, self.batch_size]
        on_labeled, on_real, on_generated = torch.split(discriminator.scores(features), parts)
        unlabeled = 0.5 * (real_loss(on_real).mean() + generated_loss(on_generated).mean())
        unlabeled = unlabeled + self.entropy_weight * entropy(on_real).mean()
        labeled = corrected_loss(on_labeled, labels, self.label_noise).mean()
        _, of_real, of_generated = torch.split(features, parts)
        return [
            labeled + self.unlabeled_weight * unlabeled,
            matching_loss(of_real.detach(), of_generated),
        ]

    def _check_settings(self) -> None:
        owner = type(self).__name__
        is_tuple = isinstance(self.hidden, tuple)  # pyright: ignore[reportUnnecessaryIsInstance]  a caller's own
        if not is_tuple or not self.hidden:
            raise InvalidParameterError(
                f"{owner}.hidden", "be a tuple of at least one layer's size", f"{self.hidden!r}"
            )
        for size in self.hidden:
            integer_at_least(size, 1, "hidden", owner)
        for name in ("generator_units", "steps", "labeled_batch_size"):
            integer_at_least(getattr(self, name), 1, name, owner)
        integer_at_least(self.batch_size, 2, "batch_size", owner)
        for name in ("unlabeled_weight", "entropy_weight"):
            number_between(getattr(self, name), 0, 100, name, owner)
        for name in ("input_noise", "hidden_noise"):
            number_between(getattr(self, name), 0, 10, name, owner)
        for name in ("label_noise", "averaging", "settled"):
            number_between(getattr(self, name), 0, 1, name, owner)
        positive(self.learning_rate, "learning_rate", owner)


def descend(
    optimizers: Sequence[torch.optim.Optimizer], losses: list[torch.Tensor], learning_rate: float
) -> None:
    """Let each optimizer take a step down its own loss, and no other's; all gradients come before the first step."""
    groups = [optimizer.param_groups[0] for optimizer in optimizers]
    gradients = list[tuple[torch.Tensor, ...]]()
    for loss, group in zip(losses, groups, strict=True):
        parameters: list[torch.Tensor] = group["params"]
        retains = loss is not losses[-1]
        gradients.append(torch.autograd.grad(loss, parameters, retain_graph=retains))
    for optimizer, group, of_parameters in zip(optimizers, groups, gradients, strict=True):
        group["lr"] = learning_rate
        for parameter, gradient in zip(group["params"], of_parameters, strict=True):
            parameter.grad = gradient
        optimizer.step()


def corrected_loss(scores: torch.Tensor, labels: torch.Tensor, noise: float) -> torch.Tensor:
    """Return −log((1 − noise) p_y + noise/k) of each row: the likelihood of a label that noise may have replaced."""
    if noise == 0:
        return functional.cross_entropy(scores, labels, reduction="none")
    own = scores.softmax(dim=1).gather(1, labels[:, None])[:, 0]
    return -torch.log((1 - noise) * own + noise / scores.shape[1])


def real_loss(scores: torch.Tensor) -> torch.Tensor:
    """Return −log P(one of the k classes) of each row, where the further class of generated rows has score 0.

    With l the log of the sum of exponentials of the k scores, that is softplus(−l) (arXiv:1606.03498, section 5).
    """
    return functional.softplus(-scores.logsumexp(dim=1))


def generated_loss(scores: torch.Tensor) -> torch.Tensor:
    """Return −log P(none of the k classes) of each row: softplus(l), see `real_loss`."""
    return functional.softplus(scores.logsumexp(dim=1))


def entropy(scores: torch.Tensor) -> torch.Tensor:
    """Return the entropy of the softmax of each row, in nats."""
    return functional.cross_entropy(scores, scores.softmax(dim=1), reduction="none")


def matching_loss(real: torch.Tensor, generated: torch.Tensor) -> torch.Tensor:
    """Return the mean squared difference of the mean features: feature matching (arXiv:1606.03498, section 3.1)."""
    return functional.mse_loss(generated.mean(dim=0), real.mean(dim=0))
