"""What baselines share: networks trained on all rows by one owner, several at once on processors."""

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from joblib import delayed

from tutelage._parallel import parallel
from tutelage._typing import IntArray, Matrix
from tutelage.partition import Shards

if TYPE_CHECKING:
    from tutelage.teachers import Network

_KEY = b"all rows in one shard, without privacy"


class Trial(NamedTuple):
    """Rows to learn from, and rows that score."""

    X: Matrix
    y: IntArray
    X_test: Matrix
    y_test: IntArray


def one_shard(n_rows: int) -> Shards:
    """Return a partition for a single teacher of all rows."""
    return Shards.of_rows(n_rows, 1, key=_KEY)


def answers_right(network: "Network", trial: Trial, seeds: Sequence[int]) -> tuple[npt.NDArray[np.bool_], float]:
    """Return which test rows a network of each seed has right, shape (seeds, rows), and the seconds that all took.

    Parameters
    ----------
    network : Network
        Factory and training.
    trial : Trial
        The rows.
    seeds : sequence of int
        Of first weights and batches, one for each network.
    """
    started = time.perf_counter()
    on_processors = network.torch_device().type == "cpu"  # an accelerator trains one after the other
    n_jobs = min(len(seeds), os.cpu_count() or 1) if on_processors else 1
    right = parallel(n_jobs)(delayed(_right)(network, trial, seed) for seed in seeds)
    return np.array(right), time.perf_counter() - started


def _right(network: "Network", trial: Trial, seed: int) -> npt.NDArray[np.bool_]:
    from tutelage.teachers import NetworkTeachers

    teacher = NetworkTeachers(network, n_classes=int(trial.y.max()) + 1, seed=seed)
    (answers,) = teacher.fit_ballots(trial.X, trial.y, one_shard(len(trial.y)), trial.X_test)
    return answers == trial.y_test
