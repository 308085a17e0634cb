"""What is kept of trained networks: their weights, as safetensors that hold nothing that runs, or only their votes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar, final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from tutelage._internal.files import open_private
from tutelage._internal.typing import ABSTAIN, Ballots, Matrix
from tutelage.exceptions import InvalidDataError
from tutelage.teachers.networks import sequential, vectorized
from tutelage.teachers.networks.recipe import Network, Weights


@final
class WeightsFile:
    """The weights of one network, as private as the shard that it learned from; no weights for an empty shard."""

    suffix = ".safetensors"

    def write(self, path: Path, product: Weights, identity: str) -> None:
        """Write the weights of one teacher; only the owner of the file may read it."""
        plain = {name: value.detach().cpu().contiguous() for name, value in product.items()}
        with open_private(path) as file:
            file.write(save(plain, metadata={"identity": identity}))

    def read(self, path: Path) -> tuple[Weights, str]:
        """Return the weights of one teacher, and the identity of the teacher."""
        try:
            with safe_open(path, framework="pt") as file:
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return weights, (file.metadata() or {})["identity"]
        except (OSError, SafetensorError):
            raise InvalidDataError(f"{path} is not a readable safetensors file.") from None


Product = TypeVar("Product", covariant=True)


class Keep(Protocol, Generic[Product]):
    """From trained networks to what is kept of them."""

    def of_none(self) -> Product:
        """Return what is kept of a teacher without rows."""
        ...

    def of_one(self, weights: Weights) -> Product:
        """Return what is kept of one network."""
        ...

    def of_stack(self, weights: Sequence[Weights]) -> Iterable[Product]:
        """Return what is kept of each of many networks, taken together."""
        ...


@final
class KeepWeights:
    """Keep the weights."""

    def of_none(self) -> Weights:
        """Return no weights."""
        return {}

    def of_one(self, weights: Weights) -> Weights:
        """Return the weights."""
        return weights

    def of_stack(self, weights: Sequence[Weights]) -> Iterable[Weights]:
        """Return the weights."""
        return weights


@final
@dataclass(frozen=True, slots=True, eq=False)
class KeepVotes:
    """Keep the votes on public rows."""

    network: Network
    n_classes: int
    queries: Matrix = field(repr=False)

    def of_none(self) -> Ballots:
        """Return abstentions."""
        return np.full(len(self.queries), ABSTAIN, dtype=np.int16)

    def of_one(self, weights: Weights) -> Ballots:
        """Return a network's votes; abstentions if there are no weights."""
        return sequential.vote(self.network, weights, self._rows(), self.n_classes) if weights else self.of_none()

    def of_stack(self, weights: Sequence[Weights]) -> Iterable[Ballots]:
        """Return the votes of each network."""
        return vectorized.vote(self.network, weights, self._rows(), self.n_classes)

    def _rows(self) -> torch.Tensor:
        return torch.from_numpy(self.queries).to(self.network.torch_device())
