"""Weights of trained networks on disk as safetensors, which hold numbers and nothing that runs."""

from pathlib import Path
from typing import final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from tutelage._files import open_private
from tutelage.exceptions import InvalidDataError
from tutelage.teachers.networks.recipe import Weights


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
