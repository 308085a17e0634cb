"""Ensembles of neural networks: one interface, trained one by one on processors or together on an accelerator."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np
import torch
from joblib import parallel_config
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from tutelage._internal.gate import MODEL, require_input
from tutelage._internal.outputs import open_private
from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import ABSTAIN, Array, Ballots, IntArray, Matrix
from tutelage.exceptions import InvalidDataError, InvalidParameterError, literal
from tutelage.partition import Shards
from tutelage.teachers.base import Ensemble, Own, public_rows, stacked, teacher_seed
from tutelage.teachers.checkpoints import BallotFile, FileForm, resumed, source_of
from tutelage.teachers.networks import sequential, vectorized
from tutelage.teachers.networks.sequential import Network, Weights
from tutelage.teachers.networks.vectorized import Shard
from tutelage.teachers.parallel import Job, Results, isolated_result, train_each

# Networks in one stack; more would not make small kernels larger, only take more memory.
_STACK = 250


@final
class WeightsFile:
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
            with safe_open(require_input(path, MODEL), framework="pt") as file:
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return weights, (file.metadata() or {})["identity"]
        except (OSError, SafetensorError):
            raise InvalidDataError(f"{path} is not a readable safetensors file.") from None


class _Kept(NamedTuple):
    """The kept part of networks, on disk too: their votes on `queries`, or their weights where there are no queries."""

    network: Network
    n_classes: int
    queries: Matrix | None = None

    @property
    def file(self) -> FileForm:
        """Return how it is filed."""
        return (
            WeightsFile() if self.queries is None else BallotFile(len(self.queries), self.n_classes)
        )

    def of(self, weights: Weights | list[Weights]) -> Any:
        """Return what is kept of one network, or of each in a stack; of one without weights, abstentions."""
        network, n_classes, queries = self
        if queries is None:
            return weights
        if not weights:
            return np.full(len(queries), ABSTAIN, np.int16)
        asked = torch.from_numpy(queries).to(network.torch_device()), n_classes
        if isinstance(weights, list):
            return vectorized.vote(network, weights, *asked)
        return sequential.vote(network, weights, *asked)


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
        if not isinstance(network, Network):
            raise InvalidParameterError(
                "NetworkTeachers.network", "be a Network(factory)", f"a {type(network).__name__}"
            )
        super().__init__(n_classes, seed, n_jobs, progress=progress)
        self._network = network

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
        rows, labels = self._checked(X, y, shards)
        rows = _numbers(rows, "X")
        keep = _Kept(self._network, self._n_classes)
        self._kept = self._products(keep, rows, labels, shards, checkpoints), rows.shape[1:]
        self._unit = shards.unit
        return self

    def ballots(self, X_public: ArrayLike) -> Ballots:
        """Return each trained network's class index, or −1, on each row: shape (teachers, rows); private."""
        weights, queries = self._trained(X_public)
        keep = _Kept(self._network, self._n_classes, _numbers(queries, "X_public"))
        job = Job(_asked, own=lambda number: (weights[number],), shared=(keep,), seed=self._seed)
        return stacked(self._one_by_one(job, range(len(weights))), len(weights), len(queries))

    def fit_ballots(
        self,
        X: ArrayLike,
        y: ArrayLike,
        shards: Shards,
        X_public: ArrayLike,
        checkpoints: str | Path | None = None,
    ) -> Ballots:
        """Train, vote and forget; see `TrainableTeachers.fit_ballots`, and `fit` for the errors."""
        rows, labels = self._checked(X, y, shards)
        rows = _numbers(rows, "X")
        queries = _numbers(public_rows(X_public, rows.shape[1:]), "X_public")
        keep = _Kept(self._network, self._n_classes, queries)
        ballots = np.stack(self._products(keep, rows, labels, shards, checkpoints))
        self._unit = shards.unit
        return ballots

    def _products(
        self,
        keep: _Kept,
        X: Matrix,
        y: IntArray,
        shards: Shards,
        checkpoints: str | Path | None,
    ) -> list[Any]:
        """Return what is kept of each teacher, from checkpoints or from training."""
        together = self._stacks(X.shape[1:])
        n_shards = shards.n_shards
        own = self._own(X, y, shards)

        def run(numbers: Sequence[int]) -> Results:
            if together:
                return self._in_stacks(own, n_shards, numbers, keep)
            return self._one_by_one(Job(_trained, own, (keep,), self._seed, n_shards), numbers)

        known = () if checkpoints is None else (self._identity(together), keep.queries)
        made = resumed(checkpoints, keep.file, known, own, n_shards, run)
        found = dict(progress_bar(made, "Training networks", n_shards, shown=self._progress))
        return [found.get(number, keep.of({})) for number in range(n_shards)]

    def _one_by_one(self, job: Job, numbers: Sequence[int]) -> Results:
        # An accelerator is one device: processes that share it would only wait for each other.
        on_processor = self._network.torch_device().type == "cpu"
        with nullcontext() if on_processor else parallel_config(backend="sequential"):
            yield from train_each(job, numbers, self._n_jobs)

    def _in_stacks(self, own: Own, n_shards: int, numbers: Sequence[int], keep: _Kept) -> Results:
        """Train whole stacks, even if shards are empty: the shape of a stack must not reveal which shard is empty."""
        wanted = set(numbers)
        device = self._network.torch_device()
        for first in range(0, n_shards, _STACK):
            stack = range(first, min(first + _STACK, n_shards))
            if wanted.isdisjoint(stack):
                continue
            teachers = [own(number) for number in stack]
            shards = [_shard(*teacher, device) for teacher in teachers]
            seed = teacher_seed(self._seed, first)
            name = f"{first} to {stack[-1]}"
            products = isolated_result(name, seed, _trained_together, shards, seed, keep)
            for number, (_, y, _), product in zip(stack, teachers, products, strict=True):
                if number in wanted:
                    yield number, product if len(y) else keep.of({})

    def _stacks(self, row_shape: tuple[int, ...]) -> bool:
        """Return whether networks are trained together, after a trial on made-up rows, whose errors may be shown."""
        network = self._network
        _try_module(network, self._n_classes, row_shape)
        if network.engine == "sequential" or (
            network.engine == "auto" and network.torch_device().type == "cpu"
        ):
            return False
        try:
            _try_stack(network, self._n_classes, row_shape)
        except InvalidParameterError:
            if network.engine == "vectorized":
                raise
            return False
        return True

    def _identity(self, together: bool) -> tuple[object, ...]:
        """Return what all teachers share; a factory is known by its code, its module and the first weights of that."""
        network = self._network
        module = network.module(self._n_classes, self._seed)
        state = {name: value.cpu().numpy() for name, value in sequential.weights_of(module).items()}
        code = source_of(network.factory, *module.modules())
        device = network.torch_device().type
        return torch.__version__, network, device, self._n_classes, together, code, state


def _try_module(network: Network, n_classes: int, row_shape: tuple[int, ...]) -> None:
    device = network.torch_device()
    module = network.module(n_classes, 0).to(device).eval()
    try:
        with torch.inference_mode():
            scores = module(torch.zeros((2, *row_shape), device=device))
    except Exception as error:  # of made-up rows: it may be read
        raise InvalidParameterError(
            "Network.factory",
            f"make a module that takes rows of shape {row_shape}",
            fix=f"It raised {type(error).__name__}: {literal(error)}",
        ) from None
    got = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if got != (2, n_classes):
        raise InvalidParameterError(
            "Network.factory",
            f"make a module that turns 2 rows into scores of shape (2, {n_classes})",
            f"{got}",
        )


def _try_stack(network: Network, n_classes: int, row_shape: tuple[int, ...]) -> None:
    vectorized.refuse_unstackable(network.module(n_classes, 0))
    device = network.torch_device()
    empty = np.zeros((0, *row_shape), np.float32), np.zeros(0, np.int64)
    shards = [_shard(*empty, seed, device) for seed in (0, 1)]
    try:
        vectorized.train(replace(network, epochs=1), shards, n_classes, 0)
    except Exception as error:  # of made-up rows: it may be read
        raise InvalidParameterError(
            "Network.factory",
            "make modules that torch can train together",
            fix=f"Use engine='sequential'. It raised {type(error).__name__}: {literal(error)}",
        ) from None


def _trained(X: Matrix, y: IntArray, seed: int, keep: _Kept) -> Any:
    if not len(y):
        return keep.of({})
    shard = _shard(X, y, seed, keep.network.torch_device())
    return keep.of(sequential.train(keep.network, shard.X, shard.y, keep.n_classes, seed))


def _trained_together(shards: Sequence[Shard], seed: int, keep: _Kept) -> Any:
    return keep.of(vectorized.train(keep.network, shards, keep.n_classes, seed))


def _asked(weights: Weights, keep: _Kept) -> Ballots:
    return keep.of(weights)


def _shard(X: Matrix, y: IntArray, seed: int, device: torch.device) -> Shard:
    if len(y) == 0:  # stands in a stack for a teacher that abstains
        X = np.zeros((1, *X.shape[1:]), X.dtype)
        y = np.zeros(1, np.int64)
    return Shard(torch.from_numpy(X).to(device), torch.from_numpy(y).to(device), seed)


def _numbers(rows: Array, name: str) -> Matrix:
    """Return rows as bytes or 32-bit floats, the smaller of what networks take."""
    if rows.ndim < 2:
        raise InvalidDataError(f"`{name}` must have shape (rows, ...). Got {rows.shape}.")
    if rows.dtype == np.uint8:
        return np.ascontiguousarray(rows)
    matrix = None
    with suppress(TypeError, ValueError), np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(rows, dtype=np.float32)
    if matrix is None:
        raise InvalidDataError(
            f"`{name}` must hold numbers. Encode text by categories that are public."
        )
    if rows.dtype.kind == "c" or not np.isfinite(matrix).all():
        raise InvalidDataError(
            f"`{name}` must hold finite numbers in single precision. Fill what is missing with a public value, such as "
            "zero."
        )
    return matrix
