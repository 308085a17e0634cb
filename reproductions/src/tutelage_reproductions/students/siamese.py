"""Siamese networks: one network makes numbers of two rows, and their differences say whether the rows are the same."""

from typing import final

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn
from torch.nn import functional

from tutelage._internal.typing import FloatArray, IntArray, Matrix
from tutelage.networks import TwoConvolutions, drawing_from
from tutelage.students.networks.base import in_batches
from tutelage_reproductions.students.adam import adam_of

_HIDDEN = 128
_JITTER = 0.2  # of the spread of a feature
_LEARNING_RATE = 1e-3
# First log odds that rows with equal encodings are the same; training moves it by little.
_BIAS = 3.0


@final
class SiameseNetwork(nn.Module):
    """Two networks with shared weights, compared by a weighted L1 distance and a sigmoid.

    Weights are positive: the further apart two encodings are, the less the rows match, also rows unlike any learned.
    Koch, "Siamese neural networks for one-shot image recognition", 2015, section 3.1.
    """

    def __init__(self, encoder: nn.Module, embedding: int) -> None:
        super().__init__()
        self.encoder = encoder
        # Before softplus, which makes them positive.
        self.weights = nn.Parameter(torch.zeros(embedding))
        self.bias = nn.Parameter(torch.tensor(_BIAS))

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the log odds, shape (pairs,), that the rows of each pair are the same."""
        return self.bias - (self.encoded(one) - self.encoded(other)).abs().sum(dim=1)

    def encoded(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the encodings of rows, weighted, shape (rows, embedding): their L1 distances are what counts."""
        return self.encoder(rows) * functional.softplus(self.weights)

    def best_matches(self, X: Matrix, references: Matrix) -> tuple[FloatArray, IntArray]:
        """Return for each row the best probability of being the same as a reference, and its number."""
        self.eval()
        with torch.inference_mode(), threadpool_limits(1):
            places, compared = self._places(X), self._places(references)
            nearest = in_batches(
                lambda rows: torch.cdist(rows, compared, p=1).argmin(dim=1), places
            )
            odds = self.bias - (places - compared[nearest]).abs().sum(dim=1)
        return odds.sigmoid().double().numpy(), nearest.numpy()

    def _places(self, X: Matrix) -> torch.Tensor:
        return in_batches(self.encoded, _tensor(X))


def train_siamese(
    X: Matrix,
    groups: IntArray,
    *,
    image_shape: tuple[int, ...] | None,
    embedding: int,
    steps: int,
    batch_size: int,
    seed: int,
) -> SiameseNetwork:
    """Return a network that tells pairs of rows of one group from pairs of two groups.

    The two rows of a pair are drawn independently, so a pair of one group may be one row twice; in training each goes
    through the network in a version of its own: an image moved by up to two pixels, or features with jitter.
    """
    rows, generator = _tensor(X), np.random.default_rng(seed)
    # Networks this small only wait for further threads.
    with drawing_from(seed), threadpool_limits(1):
        network = SiameseNetwork(_encoder(X, image_shape, embedding), embedding).train()
        optimizer = adam_of(network, _LEARNING_RATE)
        for _ in range(steps):
            one, other, same = _pairs(groups, batch_size, generator)
            optimizer.zero_grad(set_to_none=True)
            odds = network(rows[one], rows[other])
            functional.binary_cross_entropy_with_logits(
                odds, torch.as_tensor(same, dtype=torch.float32)
            ).backward()
            optimizer.step()
    return network


def _pairs(
    groups: IntArray, batch_size: int, generator: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the row numbers of both rows of each pair, and 1 where they are of one group, else 0."""
    _, indices = np.unique(groups, return_inverse=True)
    members, sizes = np.argsort(indices, kind="stable"), np.bincount(indices)
    starts = np.cumsum(sizes) - sizes
    same = (np.arange(batch_size) % 2).astype(np.int64)
    first = generator.integers(len(sizes), size=batch_size)
    second = (first + (1 - same) * generator.integers(1, len(sizes), size=batch_size)) % len(sizes)
    one, other = (
        members[starts[group] + generator.integers(sizes[group])] for group in (first, second)
    )
    return one, other, same


def _encoder(X: Matrix, image_shape: tuple[int, ...] | None, embedding: int) -> nn.Module:
    if image_shape is not None:
        return TwoConvolutions(image_shape, scale=1 / max(float(np.abs(X).max()), 1e-9))(embedding)
    spread = X.std(axis=0)
    return nn.Sequential(
        _Jittered(X.mean(axis=0), np.where(spread > 0, spread, 1)),
        nn.Linear(X.shape[1], _HIDDEN),
        nn.ReLU(),
        nn.Linear(_HIDDEN, embedding),
    )


@final
class _Jittered(nn.Module):
    """Standardize each feature by a mean and a spread; in training, move it by a fraction of that spread."""

    def __init__(self, mean: FloatArray, spread: FloatArray) -> None:
        super().__init__()
        self.mean, self.spread = _tensor(mean), _tensor(spread)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        standard = (rows - self.mean) / self.spread
        return standard + _JITTER * torch.randn_like(standard) if self.training else standard


def _tensor(X: Matrix) -> torch.Tensor:
    return torch.tensor(X, dtype=torch.float32)  # a copy: torch warns of arrays that are read-only
