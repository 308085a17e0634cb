"""Network teachers: their public settings, and training one after the other, which takes any module.

That is the fastest way on processors. Measured in benchmarks/teachers.py: tensors and not a DataLoader, channels last,
one fused optimizer step, one thread.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from tutelage._internal.typing import Ballots
from tutelage._internal.validation import integer_at_least, number_between, positive
from tutelage.exceptions import InvalidParameterError
from tutelage.networks import device_named, drawing_from

if TYPE_CHECKING:
    from tutelage.teachers.networks.ensemble import NetworkTeachers

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
VOTES_AT_ONCE = 256


Weights = dict[str, torch.Tensor]  # parameters and buffers of one network, by name; tied ones once


@final
@dataclass(frozen=True)
class Network:
    """Settings of teachers that are neural networks; pass them as the teacher of `TeacherVotes`.

    Parameters
    ----------
    factory : callable
        From the number of classes to an untrained `torch.nn.Module` that takes a float tensor of rows, shape
        (rows, ...), to scores, shape (rows, classes): `TwoConvolutions` for small images, or your own. Every teacher
        gets a copy of what it returns, so layers that public data trained may be part of it.
    epochs : int
        Passes over the shard.
    batch_size : int
        Rows per step, at least 2.
    learning_rate : float
        Of Adam at the first step; it falls linearly to zero.
    weight_decay : float
        Decoupled weight decay, as in AdamW; at least 0 and below 1.
    device : str, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``. Default: ``"cuda"`` if there is one.
    engine : {"auto", "sequential", "vectorized"}
        Whether networks are trained one by one or stacked. Default: stacked on an accelerator, where one small network
        is too little work, if the module allows it; one by one on processors, where stacking is slower.

    Notes
    -----
    Networks trained together draw their dropout from another stream than those trained alone, and accelerators round
    differently, so votes agree closely and not exactly; each teacher is a function of its own shard either way. Batch
    normalization mixes the rows of a batch and is refused by ``"vectorized"``.
    """

    factory: Callable[[int], nn.Module]
    epochs: int = 30
    batch_size: int = 32
    learning_rate: float = 4e-3
    weight_decay: float = 0.01
    device: str | None = None
    engine: Literal["auto", "sequential", "vectorized"] = "auto"

    def __post_init__(self) -> None:
        if not callable(self.factory) or isinstance(self.factory, nn.Module):
            raise InvalidParameterError(
                "Network.factory",
                "be a function that takes the number of classes and returns a new torch module",
                f"a {type(self.factory).__name__}",
            )
        integer_at_least(self.epochs, 1, "epochs", "Network")
        integer_at_least(self.batch_size, 2, "batch_size", "Network")
        positive(self.learning_rate, "learning_rate", "Network")
        number_between(self.weight_decay, 0, 1, "weight_decay", "Network")
        if self.engine not in ("auto", "sequential", "vectorized"):
            raise InvalidParameterError(
                "Network.engine", "be 'auto', 'sequential' or 'vectorized'", f"{self.engine!r}"
            )
        self.torch_device()

    def ensemble(
        self,
        *,
        n_classes: int,
        seed: int,
        n_jobs: int | None = None,
        progress: bool = False,
    ) -> "NetworkTeachers":
        """Return untrained teachers; see `NetworkTeachers`."""
        from tutelage.teachers.networks.ensemble import NetworkTeachers

        return NetworkTeachers(
            self,
            n_classes=n_classes,
            seed=seed,
            n_jobs=n_jobs,
            progress=progress,
        )

    def module(self, n_classes: int, seed: int) -> nn.Module:
        """Return an untrained module of one teacher, whose first weights depend on `seed` alone."""
        with drawing_from(seed):
            module = self.factory(n_classes)
        if not isinstance(module, nn.Module):
            raise InvalidParameterError(
                "Network.factory", "return a torch module", f"a {type(module).__name__}"
            )
        # A factory may return layers that it keeps: trained in place, they would carry one shard into the next.
        return copy.deepcopy(module)

    def torch_device(self) -> torch.device:
        """Return the device to train on."""
        return device_named(self.device, "Network")


def batches(network: Network, n_rows: int, seed: int) -> list[torch.Tensor]:
    """Return the row numbers of each step: every epoch in a new order that depends on `seed` and `n_rows` alone.

    A batch has at least two rows, for layers that normalize over them: a single row that would be left over sits out
    this epoch, and the only row of a shard is taken twice.
    """
    if n_rows == 1:
        return [torch.zeros(2, dtype=torch.int64)] * network.epochs
    full, rest = divmod(n_rows, network.batch_size)
    cuts = [network.batch_size] * full + ([rest] if rest > 1 else [])
    generator = torch.Generator().manual_seed(seed)
    orders = (torch.randperm(n_rows, generator=generator) for _ in range(network.epochs))
    return [batch for order in orders for batch in order[: sum(cuts)].split(cuts)]


def learning_rate(network: Network, step: int, steps: torch.Tensor) -> torch.Tensor:
    """Return the learning rate at `step`, counted from 0, of networks that take `steps` steps."""
    return network.learning_rate * (1 - step / steps)


def train(network: Network, X: torch.Tensor, y: torch.Tensor, n_classes: int, seed: int) -> Weights:
    """Return the weights of a network trained on these rows, on their device."""
    with drawing_from(seed, X.device):
        module = _channels_last(network.module(n_classes, seed).to(X.device)).train()
        learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            learning,
            betas=ADAM_BETAS,
            eps=ADAM_EPSILON,
            weight_decay=network.weight_decay,
            fused=True,
        )
        steps = batches(network, len(y), seed)
        for step, batch in enumerate(steps):
            rows = batch.to(X.device)
            optimizer.param_groups[0]["lr"] = learning_rate(network, step, torch.tensor(len(steps)))
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(module(X[rows].float()), y[rows]).backward()
            optimizer.step()
    return weights_of(module)


def weights_of(module: nn.Module) -> Weights:
    """Return a copy of the weights of a module."""
    return {
        name: value.detach().clone()
        for name, value in [*module.named_parameters(), *module.named_buffers()]
    }


def vote(network: Network, weights: Weights, X_public: torch.Tensor, n_classes: int) -> Ballots:
    """Return the class of the largest score for each row, shape (rows,)."""
    module = _channels_last(network.module(n_classes, 0).to(X_public.device)).eval()
    state: Weights = {}
    for name, value in weights.items():
        state[name] = value.to(X_public.device)
        if value.dim() == 4:
            state[name] = state[name].to(memory_format=torch.channels_last)
    ballots = []
    with torch.inference_mode():
        for rows in X_public.split(VOTES_AT_ONCE):
            # A copy: a module that changes its input in place must not change what other teachers are asked.
            scores: Any = functional_call(module, state, (rows.to(torch.float32, copy=True),))
            ballots.append(scores.argmax(dim=1))
    return torch.cat(ballots).short().cpu().numpy()


def _channels_last(module: nn.Module) -> nn.Module:
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  missing in torch's stubs
