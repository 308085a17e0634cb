"""Ensembles of neural networks: one interface, trained one by one on processors or together on an accelerator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, final

import numpy as np
import torch
from joblib import parallel_config
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from tutelage._internal.gate import MODEL, require_input
from tutelage._internal.outputs import open_private
from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN, Array, Ballots, IntArray, Matrix
from tutelage._internal.validation import (
    integer_at_least,
    number_between,
    positive,
    require_instance,
)
from tutelage.exceptions import InvalidDataError, InvalidParameterError, literal
from tutelage.networks import device_named
from tutelage.partition import Shards
from tutelage.teachers.base import (
    Ensemble,
    Own,
    as_numbers,
    ballots_of_teachers,
    public_rows,
    teacher_seed,
)
from tutelage.teachers.checkpoints import BallotFile, FileForm, resume, source_of
from tutelage.teachers.networks.engine import (
    Engine,
    Shard,
    Weights,
    weights_of,
)
from tutelage.teachers.parallel import Job, Results, isolated_result, train_each, without_lost

# Networks in one stack; more would not make small kernels larger, only take more memory.
_STACK = 250


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
        return NetworkTeachers(
            self,
            n_classes=n_classes,
            seed=seed,
            n_jobs=n_jobs,
            progress=progress,
        )

    def torch_device(self) -> torch.device:
        """Return the device to train on."""
        return device_named(self.device, "Network")


@final
class _WeightsFile:
    """The weights of one network, as private as the shard that it learned from; no weights for an empty shard."""

    suffix: ClassVar[str] = ".safetensors"

    def write(self, path: Path, product: Weights, identity: str) -> None:
        """Write the weights of one teacher; only the owner of the file may read it."""
        plain = {name: value.detach().cpu().contiguous() for name, value in product.items()}
        with open_private(path) as file:
            file.write(save(plain, metadata={"identity": identity}))

    def read(self, path: Path) -> tuple[Weights, str]:
        """Return the weights of one teacher, and the identity of the teacher."""
        try:
            opened: Any = safe_open(require_input(path, MODEL), framework="pt")
            with opened as file:
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                metadata: dict[str, str] = file.metadata() or {}
                return weights, metadata["identity"]
        except (OSError, SafetensorError):
            raise InvalidDataError(f"{path} is not a readable safetensors file.") from None


@final
class NetworkTeachers(Ensemble):
    """One neural network per shard.

    Privacy: a network is a function of its own shard, its number and public settings, to the last bit,
    whether it is trained alone or stacked with others. An empty shard abstains. Rows are taken as they are: scale them
    by a public feature map or in the module.

    Parameters
    ----------
    network : Network
        Which network, and how it is trained.
    n_classes : int
        Number of classes; labels are the integers below it.
    seed : int
        Seed of first weights, batches and dropout. It has no part in privacy.
    n_jobs : int, optional
        Networks trained at once on processors, as in joblib; each takes one thread.
    progress : bool
        Show a progress bar on work that takes long.
    """

    def __init__(
        self,
        network: Network,
        *,
        n_classes: int,
        seed: int,
        n_jobs: int | None = None,
        progress: bool = False,
    ) -> None:
        require_instance("NetworkTeachers.network", "be a Network(factory)", network, Network)
        super().__init__(n_classes, seed, n_jobs, progress=progress)
        self._network = network
        self._engine = Engine(
            network.factory,
            self._n_classes,
            network.epochs,
            network.batch_size,
            network.learning_rate,
            network.weight_decay,
            network.torch_device(),
        )

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        shards: Shards,
        checkpoints: str | Path | None = None,
    ) -> Self:
        """Train one network per shard and keep them in memory; see `TrainableTeachers.fit`.

        In `checkpoints`, a private folder, the weights of each finished teacher are kept as safetensors, so that a
        killed run resumes, and a later one only loads. A module that does not take such rows to one score per class, or
        cannot be trained by the engine, is refused.
        """
        rows, labels = self._rows_and_labels(X, y, shards)
        rows = _numbers(rows, "X")
        self._kept = self._products(rows, labels, shards, None, checkpoints), rows.shape[1:]
        self._unit = shards.unit
        return self

    def ballots(self, X_public: ArrayLike) -> Ballots:
        """Return each trained network's class index, or −1, on each row: shape (teachers, rows); private."""
        weights, queries = self._teachers_and_queries(X_public)

        def own(number: int) -> tuple[Weights]:
            return (weights[number],)

        job = Job(_product, own, (self._engine, _numbers(queries, "X_public")), self._seed)
        known = without_lost(self._one_by_one(job, range(len(weights))))
        return ballots_of_teachers(known, len(weights), len(queries))

    def fit_ballots(
        self,
        X: ArrayLike,
        y: ArrayLike,
        shards: Shards,
        X_public: ArrayLike,
        checkpoints: str | Path | None = None,
    ) -> Ballots:
        """Train, vote and forget; see `TrainableTeachers.fit_ballots`, and `fit` for the errors."""
        rows, labels = self._rows_and_labels(X, y, shards)
        rows = _numbers(rows, "X")
        queries = _numbers(public_rows(X_public, rows.shape[1:]), "X_public")
        ballots = np.stack(self._products(rows, labels, shards, queries, checkpoints))
        self._unit = shards.unit
        return ballots

    def _products(
        self,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        queries: Matrix | None,
        checkpoints: str | Path | None,
    ) -> list[Any]:
        """Return what is kept of each teacher, from checkpoints or from training: see `_product`."""
        together = self._stacks(X.shape[1:])
        n_shards = shards.n_shards
        own = self._own(X, y, shards)

        def train(numbers: Sequence[int]) -> Results:
            if together:
                return self._in_stacks(own, n_shards, numbers, queries)
            job = Job(_trained_product, own, (self._engine, queries), self._seed)
            return self._one_by_one(job, numbers)

        form: FileForm = _WeightsFile()
        if queries is not None:
            form = BallotFile(len(queries), self._n_classes)

        def settings() -> object:
            return self._identity(together), queries

        made = without_lost(resume(checkpoints, form, settings, own, n_shards, train))
        products = dict(progress_bar(made, "Training networks", n_shards, shown=self._progress))
        of_lost_teacher = _product({}, self._engine, queries)
        return [products.get(number, of_lost_teacher) for number in range(n_shards)]

    def _one_by_one(self, job: Job, numbers: Sequence[int]) -> Results:
        if self._engine.device.type == "cpu":
            yield from train_each(job, numbers, self._n_jobs)
            return
        # An accelerator is one device: processes that share it would only wait for each other.
        with parallel_config(backend="sequential"):
            yield from train_each(job, numbers, self._n_jobs)

    def _in_stacks(
        self, own: Own, n_shards: int, numbers: Sequence[int], queries: Matrix | None
    ) -> Results:
        """Train whole stacks, even if shards are empty: the shape of a stack must not reveal which shard is empty."""
        wanted = set(numbers)
        for first in range(0, n_shards, _STACK):
            stack = range(first, min(first + _STACK, n_shards))
            if wanted.isdisjoint(stack):
                continue
            shards = [_shard(*own(number), self._engine.device) for number in stack]
            name = f"{first} to {stack[-1]}"
            seed = teacher_seed(self._seed, first)
            products = isolated_result(
                name,
                seed,
                _stack_products,
                shards,
                seed,
                self._engine,
                queries,
            )
            for number, product in zip(stack, products, strict=True):
                if number in wanted:
                    yield number, product

    def _stacks(self, row_shape: tuple[int, ...]) -> bool:
        """Return whether networks are trained together, after a trial on made-up rows, whose errors may be shown."""
        wish = self._network.engine
        _try_module(self._engine, row_shape)
        if wish == "sequential" or (wish == "auto" and self._engine.device.type == "cpu"):
            return False
        try:
            _try_stack(self._engine, row_shape)
        except InvalidParameterError:
            if wish == "vectorized":
                raise
            return False
        return True

    def _identity(self, together: bool) -> tuple[object, ...]:
        """Return what all teachers share; a factory is known by its code, its module and the first weights of that."""
        network = self._network
        module = self._engine.module(self._seed)
        state = {name: value.cpu().numpy() for name, value in weights_of(module).items()}
        code = source_of(network.factory, *module.modules())
        device = self._engine.device.type
        return torch.__version__, network, device, self._n_classes, together, code, state


def _try_module(engine: Engine, row_shape: tuple[int, ...]) -> None:
    module = engine.module(0).eval()
    try:
        with torch.inference_mode():
            scores = module(torch.zeros((2, *row_shape), device=engine.device))
    except Exception as error:  # of made-up rows: it may be read
        raise InvalidParameterError(
            "Network.factory",
            f"make a module that takes rows of shape {row_shape}",
            fix=f"It raised {type(error).__name__}: {literal(error)}",
        ) from None
    got = type(scores).__name__
    if isinstance(scores, torch.Tensor):
        got = str(tuple(scores.shape))
    if got != str((2, engine.n_classes)):
        raise InvalidParameterError(
            "Network.factory",
            f"make a module that turns 2 rows into scores of shape (2, {engine.n_classes})",
            got,
        )


def _try_stack(engine: Engine, row_shape: tuple[int, ...]) -> None:
    _refuse_unstackable(engine.module(0))
    no_rows = np.zeros((0, *row_shape), np.float32)
    no_labels = np.zeros(0, np.int64)
    shards = [_shard(no_rows, no_labels, seed, engine.device) for seed in (0, 1)]
    try:
        replace(engine, epochs=1).train_stack(shards, 0)
    except Exception as error:  # of made-up rows: it may be read
        raise InvalidParameterError(
            "Network.factory",
            "make modules that torch can train together",
            fix=f"Use engine='sequential'. It raised {type(error).__name__}: {literal(error)}",
        ) from None


def _trained_product(
    X: Matrix, y: IntArray, seed: int, engine: Engine, queries: Matrix | None
) -> Weights | Ballots:
    return _product(engine.train(_shard(X, y, seed, engine.device)), engine, queries)


def _stack_products(
    shards: Sequence[Shard], seed: int, engine: Engine, queries: Matrix | None
) -> list[Weights | Ballots]:
    return [_product(weights, engine, queries) for weights in engine.train_stack(shards, seed)]


def _product(weights: Weights, engine: Engine, queries: Matrix | None) -> Weights | Ballots:
    """Return what is kept of a network: its votes on `queries`, or its weights if there are no queries.

    A teacher without weights abstains.
    """
    if queries is None:
        return weights
    if not weights:
        return np.full(len(queries), ABSTAIN, np.int16)
    return engine.vote(weights, torch.from_numpy(queries).to(engine.device))


def _shard(rows: Matrix, labels: IntArray, seed: int, device: torch.device) -> Shard:
    return Shard(torch.from_numpy(rows).to(device), torch.from_numpy(labels).to(device), seed)


def _numbers(rows: Array, name: str) -> Matrix:
    """Return rows as bytes or 32-bit floats, the smaller of what networks take."""
    if rows.ndim < 2:
        raise InvalidDataError(f"`{name}` must have shape (rows, ...). Got {rows.shape}.")
    if rows.dtype == np.uint8:
        return np.ascontiguousarray(rows)
    matrix = np.ascontiguousarray(as_numbers(rows, name, np.float32, copy=False))
    if rows.dtype.kind == "c" or not np.isfinite(matrix).all():
        raise InvalidDataError(
            f"`{name}` must hold finite numbers in single precision. Fill what is missing with a public value, such as "
            "zero."
        )
    return matrix


def _refuse_unstackable(module: nn.Module) -> None:
    """Refuse modules whose training looks across the rows of a batch, for a batch in a stack is filled up."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm):
            raise InvalidParameterError(
                "Network.factory",
                "make modules that compute each row of a batch by itself, because teachers are trained together",
                f"a {type(part).__name__}",
                "Use GroupNorm, or engine='sequential'.",
            )
