"""Ensembles of neural networks: one interface, trained one by one on processors or together on an accelerator."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from joblib import parallel_config
from torch import nn

from tutelage._typing import ABSTAIN, Ballots, IntArray, Matrix
from tutelage._validation import integer_at_least
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.neighboring import PrivacyUnit
from tutelage.partition import Shards
from tutelage.progress import progress_bar
from tutelage.teachers.base import check_private_rows
from tutelage.teachers.checkpoints import BallotFile, Checkpoints
from tutelage.teachers.networks import alone, together
from tutelage.teachers.networks.alone import Weights
from tutelage.teachers.networks.recipe import Engine, Training
from tutelage.teachers.networks.store import WeightsFile
from tutelage.teachers.seeds import teacher_seed
from tutelage.teachers.workers import Job, finished, guarded

_TOGETHER = 250  # networks in one stack; more would not make small kernels larger, only take more memory


@final
@dataclass(frozen=True)
class Network:
    """Settings of teachers that are neural networks; pass them as the teacher of a `PATEClassifier`.

    Parameters
    ----------
    factory : callable
        From the number of classes to an untrained `torch.nn.Module` that takes a float tensor of rows, shape
        (rows, ...), to scores, shape (rows, classes): `TwoConvolutions` for small images, or your own.
    epochs : int
        Passes over the shard.
    batch_size : int
        Rows per step, at least 2.
    learning_rate : float
        Of Adam at the first step; it falls linearly to zero.
    weight_decay : float
        Decoupled weight decay, as in AdamW.
    device : str, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``. Default: ``"cuda"`` if there is one.
    engine : {"auto", "alone", "together"}
        Whether networks are trained one by one or stacked. Default: stacked on an accelerator, where one small network
        is too little work, and one by one on processors, where stacking is slower.

    Notes
    -----
    Networks trained together draw their dropout from another stream than those trained alone, and accelerators round
    differently, so votes agree closely and not exactly; each teacher is a function of its own shard either way. Batch
    normalisation mixes the rows of a batch and is refused by ``"together"``.
    """

    factory: Callable[[int], nn.Module]
    epochs: int = 40
    batch_size: int = 48
    learning_rate: float = 4e-3
    weight_decay: float = 0.01
    device: str | None = None
    engine: Engine = "auto"

    def __post_init__(self) -> None:
        _ = self.training
        if self.engine not in ("auto", "alone", "together"):
            raise InvalidParameterError(
                f"`engine` of Network must be 'auto', 'alone' or 'together'. Got {self.engine!r}."
            )
        if self.device is not None:
            _device(self.device)

    @property
    def training(self) -> Training:
        """The settings that each teacher is trained by."""
        return Training(self.factory, self.epochs, self.batch_size, self.learning_rate, self.weight_decay)

    def ensemble(
        self, *, n_classes: int, seed: int, n_jobs: int | None = None, progress: bool = False
    ) -> "NetworkTeachers":
        """Return untrained teachers; see `NetworkTeachers`."""
        return NetworkTeachers(self, n_classes=n_classes, seed=seed, n_jobs=n_jobs, progress=progress)


@final
class NetworkTeachers:
    """One neural network per shard.

    An empty shard abstains. Rows are taken as they are: scale them by a public feature map or in the module.

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
        self, network: Network, *, n_classes: int, seed: int, n_jobs: int | None = None, progress: bool = False
    ) -> None:
        self._training = network.training
        self._n_classes = integer_at_least(n_classes, 2, "n_classes", "NetworkTeachers")
        self._seed = integer_at_least(seed, 0, "seed", "NetworkTeachers")
        self._n_jobs = n_jobs
        self._progress = progress
        self._device = _device(network.device)
        self._stacked = network.engine == "together" or (network.engine == "auto" and self._device.type != "cpu")
        module = self._training.network(n_classes, seed)
        if self._stacked:
            together.refuse_unstackable(module)
        self._weights: list[Weights | None] = []
        self._unit: PrivacyUnit | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes voted on."""
        return self._n_classes

    @property
    def unit(self) -> PrivacyUnit:
        """Whose change moves at most one teacher's ballots: the unit of the shards that they were trained on."""
        if self._unit is None:
            raise InvalidDataError("These teachers have not been trained. Call `fit` first.")
        return self._unit

    def fit(self, X: Matrix, y: IntArray, shards: Shards, checkpoints: Path | None = None) -> Self:
        """Train one network per shard and keep them in memory, to vote on rows that come later.

        Parameters
        ----------
        X : array of shape (rows, ...)
            Private rows, as the module takes them.
        y : integer array of shape (rows,)
            Class index of each private row.
        shards : Shards
            Which row goes to which teacher.
        checkpoints : path, optional
            Private folder in which the weights of each finished teacher are kept as safetensors, so that a killed run
            resumes, and a later one only loads. They are as private as the rows.

        Raises
        ------
        TeacherTrainingError
            If the training fails on a shard.
        """
        rows, labels = self._checked(X, y, shards)
        store = Checkpoints(checkpoints, WeightsFile(), self._identity())
        todo = store.resume(
            store.identities(rows, labels, shards, self._seeds(shards)),
            lambda numbers: self._run(_train, rows, labels, shards, numbers),
        )
        trained = dict(self._shown(todo, shards))
        self._weights = [trained.get(number) for number in range(shards.n_shards)]
        self._unit = shards.unit
        return self

    def ballots(self, X_public: Matrix) -> Ballots:
        """Return each trained network's class index, or −1, on each row: shape (teachers, rows); private.

        Parameters
        ----------
        X_public : array of shape (queries, ...)
            Public rows to vote on.

        Raises
        ------
        InvalidDataError
            If `fit` was not called, or the rows are no finite numbers.
        TeacherTrainingError
            If the module fails on the rows.
        """
        _ = self.unit
        queries = _numbers(X_public, "X_public")
        present = [number for number, weights in enumerate(self._weights) if weights is not None]
        ballots = np.full((len(self._weights), len(queries)), ABSTAIN, dtype=np.int16)
        job = Job(
            _vote,
            own=lambda number: (self._weights[number],),
            shared=(self._training, self._n_classes, self._device, queries),
        )
        for number, ballot in self._one_by_one(job, present):
            ballots[number] = ballot
        return ballots

    def fit_ballots(
        self, X: Matrix, y: IntArray, shards: Shards, X_public: Matrix, checkpoints: Path | None = None
    ) -> Ballots:
        """Train, vote and forget, so that memory does not grow with the ensemble.

        Parameters
        ----------
        X, y, shards
            As in `fit`.
        X_public : array of shape (queries, ...)
            Public rows to vote on.
        checkpoints : path, optional
            Private folder in which each finished teacher's ballots are kept as plain arrays, so that a killed run
            resumes. The caller deletes them with `discard_checkpoints`.

        Returns
        -------
        Ballots
            Class index, or −1, per teacher and row: shape (teachers, queries); private.

        Raises
        ------
        TeacherTrainingError
            If the training fails on a shard.
        """
        rows, labels = self._checked(X, y, shards)
        queries = _numbers(X_public, "X_public")
        store = Checkpoints(checkpoints, BallotFile(), (self._identity(), queries))
        ballots = np.full((shards.n_shards, len(queries)), ABSTAIN, dtype=np.int16)
        todo = store.resume(
            store.identities(rows, labels, shards, self._seeds(shards)),
            lambda numbers: self._run(_train_and_vote, rows, labels, shards, numbers, queries),
        )
        for number, ballot in self._shown(todo, shards):
            ballots[number] = ballot
        return ballots

    def _run(
        self,
        work: Callable[..., Any],
        X: Matrix,
        y: IntArray,
        shards: Shards,
        numbers: Sequence[int],
        *queries: Matrix,
    ) -> Iterator[tuple[int, Any]]:
        """Yield what each teacher comes to: weights, or ballots on the queries. Empty shards are left out."""
        rows, seeds = shards.rows, self._seeds(shards)

        def own(number: int) -> tuple[Matrix, IntArray, int]:
            return X[rows[number]], y[rows[number]], seeds[number]

        full = [number for number in numbers if len(rows[number])]
        if self._stacked:
            return self._in_stacks([own(number) for number in range(shards.n_shards)], full, *queries)
        return self._one_by_one(Job(work, own, (self._training, self._n_classes, self._device, *queries)), full)

    def _one_by_one(self, job: Job, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        # An accelerator is one device: processes that share it would only wait for each other.
        with nullcontext() if self._device.type == "cpu" else parallel_config(backend="sequential"):
            yield from finished(job, numbers, self._n_jobs)

    def _in_stacks(
        self, teachers: Sequence[tuple[Matrix, IntArray, int]], numbers: Sequence[int], *queries: Matrix
    ) -> Iterator[tuple[int, Any]]:
        """Train whole stacks, whoever is missing: a stack's shape must not tell whose shard is empty."""
        wanted = set(numbers)
        for first in range(0, len(teachers), _TOGETHER):
            stack = range(first, min(first + _TOGETHER, len(teachers)))
            if wanted.isdisjoint(stack):
                continue
            shards = [_shard(*teachers[number], self._device) for number in stack]
            settings = self._training, self._n_classes, teacher_seed(self._seed, first)
            products = guarded(f"{first} to {stack[-1]}", _train_stack, shards, settings, self._device, *queries)
            yield from ((n, product) for n, product in zip(stack, products, strict=True) if n in wanted)

    def _shown(self, results: Iterable[tuple[int, Any]], shards: Shards) -> Iterator[tuple[int, Any]]:
        return progress_bar(results, "Training networks", shards.n_shards, shown=self._progress)

    def _checked(self, X: Matrix, y: IntArray, shards: Shards) -> tuple[Matrix, IntArray]:
        check_private_rows(X, y, shards, self._n_classes)
        return _numbers(X, "X"), np.asarray(y, dtype=np.int64)

    def _seeds(self, shards: Shards) -> list[int]:
        return [teacher_seed(self._seed, number) for number in range(shards.n_shards)]

    def _identity(self) -> tuple[object, ...]:
        """Return what all teachers share; a factory is known by the module that it makes, and by its first weights."""
        module = self._training.network(self._n_classes, self._seed)
        state = {name: value.numpy() for name, value in module.state_dict().items()}
        return torch.__version__, self._training, self._n_classes, self._stacked, repr(module), state


def _train(X: Matrix, y: IntArray, seed: int, training: Training, n_classes: int, device: torch.device) -> Weights:
    shard = _shard(X, y, seed, device)
    return alone.train(training, shard.X, shard.y, n_classes, seed)


def _vote(weights: Weights, training: Training, n_classes: int, device: torch.device, queries: Matrix) -> Ballots:
    return alone.vote(training, weights, torch.from_numpy(queries).to(device), n_classes)


def _train_and_vote(
    X: Matrix, y: IntArray, seed: int, training: Training, n_classes: int, device: torch.device, queries: Matrix
) -> Ballots:
    return _vote(_train(X, y, seed, training, n_classes, device), training, n_classes, device, queries)


def _train_stack(
    shards: Sequence[together.Shard], settings: tuple[Training, int, int], device: torch.device, *queries: Matrix
) -> Iterable[Any]:
    training, n_classes, seed = settings
    weights = together.train(training, shards, n_classes, seed)
    if not queries:
        return weights
    return together.vote(training, weights, torch.from_numpy(queries[0]).to(device), n_classes)


def _shard(X: Matrix, y: IntArray, seed: int, device: torch.device) -> together.Shard:
    if len(y) == 0:  # stands in a stack for a teacher that abstains
        X, y = np.zeros((1, *X.shape[1:]), dtype=X.dtype), np.zeros(1, dtype=np.int64)
    return together.Shard(torch.from_numpy(X).to(device), torch.from_numpy(y).to(device), seed)


def _numbers(rows: Matrix, name: str) -> Matrix:
    """Return rows as bytes or 32-bit floats, the smaller of what networks take."""
    matrix = np.asarray(rows)
    if matrix.dtype == np.uint8:
        return np.ascontiguousarray(matrix)
    try:
        matrix = np.ascontiguousarray(matrix, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidDataError(f"`{name}` must hold numbers. Encode text by categories that are public.") from None
    if matrix.ndim < 2 or not np.isfinite(matrix).all():
        raise InvalidDataError(
            f"`{name}` must be finite numbers of shape (rows, ...). Got shape {matrix.shape}; fill what is missing "
            "with a public value such as zero."
        )
    return matrix


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise InvalidParameterError(
            f"`device` of Network must be one that torch can use here, such as 'cpu'. Got {name!r}."
        ) from None
    return device
