"""Teachers trained in parallel, on the back end of joblib that the caller chose, each on one thread and in silence.

A teacher that fails on its rows abstains, as a teacher without rows does, so one person's rows cannot stop a fit. A
process that dies stops the fit. The teacher at fault is unknown then, and if other teachers were lost with it, one row
could change several votes.
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar, cast, final

import numpy as np
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import reusable_executor
from joblib.parallel import get_active_backend
from threadpoolctl import OpenBLASController

from tutelage._internal.fitting import scikit_learn
from tutelage._internal.forks import repair_in_child
from tutelage._internal.streams import own_streams, stream_may_come
from tutelage._internal.threads import QUIET, WholeProcess, thread_pools
from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import TeacherLostWarning, TeacherTrainingError

# Errors of loky, Dask and Ray after a process or its machine died; by name, because Dask and Ray are extras.
_DEATHS = {
    "TerminatedWorkerError", "KilledWorker", "CancelledError", "CommClosedError", "NoWorkerError",
    "RayActorError", "WorkerCrashedError", "NodeDiedError", "ObjectLostError", "OutOfMemoryError",
}  # fmt: skip
_SECONDS_BETWEEN_CHECKS = 0.5  # of whether the parent process still runs
Result = TypeVar("Result")


@final
class Job(NamedTuple):
    """Work for each teacher: `work(*own(number), *shared)`."""

    work: Callable[..., object]
    own: Callable[[int], tuple[object, ...]]  # arguments for one teacher, by its number
    shared: tuple[object, ...]  # further arguments, the same for all teachers
    seed: int


Results = Iterator[tuple[int, Any]]
"""Pairs of a teacher's number and its result, which is a `TeacherTrainingError` if the teacher was lost."""


class MachineFaultError(TeacherTrainingError):
    """Training ran out of memory or time, or was interrupted, perhaps because of a resource that teachers share.

    Such a fault may hit several teachers at once. It ends the fit, as otherwise one row could change several votes.
    """


class _Backend(Protocol):
    submit: Callable[..., Future[object]]


def without_lost(results: Results) -> Results:
    """Yield the results of all teachers that were not lost, and warn of lost ones; if no teacher voted, raise an error.

    If every teacher that had rows was lost, no single person's rows are the reason, so raising is safe.
    """
    first_error = None
    some_voted = False
    for number, result in results:
        if isinstance(result, TeacherTrainingError):
            first_error = first_error or result
            continue
        if not _is_abstention(result):
            some_voted = True
        yield number, result
    if first_error is None:
        return
    if not some_voted:
        raise first_error
    warnings.warn(
        "At least one teacher abstains because it failed on its own rows. Train with an estimator that accepts every "
        "shard.",
        TeacherLostWarning,
        stacklevel=2,
    )


def _is_abstention(result: object) -> bool:
    """Return whether a teacher without rows has this result: None, no weights, or only abstentions."""
    if isinstance(result, np.ndarray):
        return bool((result == ABSTAIN).all())
    return result is None or result == {}


def train_each(job: Job, numbers: Sequence[int], n_jobs: int | None) -> Results:
    """Yield the number and the result of each of these teachers as they finish, in any order."""
    backend = cast("Any", get_active_backend()[0])
    is_dask = hasattr(backend, "client")
    if is_dask:
        _let_joblib_see_deaths(backend)
    task = cast("Callable[..., object]", delayed(_in_worker))
    calls = (
        task(os.getpid(), number, job.seed, job.work, *job.own(number), *job.shared)
        for number in numbers
    )
    try:
        yield from _parallel(n_jobs)(calls)
        return
    except TeacherTrainingError:  # a MachineFaultError, too
        raise
    except Exception as error:
        error_type = type(error)
    # Raised outside the `except` block: otherwise `__context__` keeps the original error, whose message may quote rows.
    if not _DEATHS.isdisjoint(base.__name__ for base in error_type.__mro__):
        raise MachineFaultError(
            "A process that trains teachers died, for example for lack of memory; the same call continues from its "
            "checkpoints, if there are any."
        )
    raise TeacherTrainingError(
        f"A teacher or its rows could not be sent between processes: {error_type.__name__}. The message may quote "
        "private rows and is withheld; store a teacher trained on made-up rows to read it."
    )


def _parallel(n_jobs: int | None) -> Any:
    # max_nbytes: private rows travel through pipes; joblib would leave larger shards in shared memory after a kill.
    try:
        return Parallel(n_jobs=n_jobs, return_as="generator_unordered", max_nbytes=None)
    except ValueError:  # a back end that returns all results at once, such as Ray
        return Parallel(n_jobs=n_jobs, max_nbytes=None)


def _let_joblib_see_deaths(backend: _Backend) -> None:
    """Tell joblib of work that Dask gave up because every worker that tried it died: joblib 1.6 would wait forever."""
    is_patched = "submit" in vars(backend)
    if is_patched:
        return
    submit = backend.submit

    def submit_and_watch(work: object, callback: Callable[[object], None]) -> Future[object]:
        def tell(done: Future[object]) -> None:
            if done.exception() is not None:
                callback(done.exception())

        future = submit(work, callback)
        future.add_done_callback(tell)
        return future

    backend.submit = submit_and_watch


def _in_worker(
    parent: int, number: int, seed: int, work: Callable[..., object], *arguments: object
) -> tuple[int, object]:
    _exit_with_parent(parent, os.getpid())
    return number, result_or_error(number, seed, work, *arguments)


@contextmanager
def _one_blas_thread() -> Generator[None, None, None]:
    # Before each change: the limits may be another thread's. After it: another thread may be the one to undo this one.
    _release_limits()
    limiter = thread_pools().select(user_api="blas").limit(limits=1)
    _release_limits()
    try:
        yield
    finally:
        _release_limits()
        limiter.restore_original_limits()
        _release_limits()


def _release_limits() -> None:
    """Let any thread change limits: from threadpoolctl 3.8 on, only the thread that set one may."""
    release: Callable[..., object] | None = getattr(
        OpenBLASController, "clear_controlling_thread", None
    )
    if release is not None:
        release(force=True)


ONE_BLAS_THREAD = WholeProcess(_one_blas_thread)


@contextmanager
def _one_openmp_thread() -> Generator[None, None, None]:
    with ONE_BLAS_THREAD.lock:  # to look for libraries takes a lock of the loader
        # Undoing a limit sets the threads of every library again: those of OpenBLAS only under the lock of a
        # `WholeProcess`, or a fork may come in the middle and the child wait for ever.
        libraries = thread_pools().select(user_api="openmp")
    with libraries.limit(limits=1):  # a setting of each thread
        yield


def result_or_error(
    shard: int | str, seed: int, work: Callable[..., Result], *arguments: object
) -> Result | TeacherTrainingError:
    """Return the result of `isolated_result`, or its error if the teacher failed on its own rows."""
    try:
        return isolated_result(shard, seed, work, *arguments)
    except MachineFaultError:  # a TeacherTrainingError, too
        raise
    except TeacherTrainingError as error:
        return error.with_traceback(None)


def isolated_result(
    shard: int | str, seed: int, work: Callable[..., Result], *arguments: object
) -> Result:
    """Run `work` for the teacher of `shard`, on one thread, with random streams of its own, and in silence."""
    # A warning of the estimator, like an error, may quote rows or class counts of one shard, so neither passes.
    with QUIET, ONE_BLAS_THREAD, _one_openmp_thread(), parallel_config(backend="sequential"):
        while True:
            # Only a library that is loaded already can be seeded.
            may_load_stream = stream_may_come()
            unused = deepcopy(arguments) if may_load_stream else ()
            with own_streams(shard, seed), np.errstate(), scikit_learn.config_context():
                result = result_without_quotes(f"The teacher of shard {shard}", work, *arguments)
            if not may_load_stream or stream_may_come():
                return result
            # `work` loaded the library, and perhaps drew from its stream before it was seeded: run again, seeded.
            arguments = unused


def result_without_quotes(caller: str, work: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of `work`; replace its error by one that names the `caller` and the type of error only."""
    try:
        return work(*arguments)
    # Compiled extensions panic with errors that are no Exception.
    except BaseException as error:
        error_type = type(error)
        fault = MachineFaultError if _is_of_machine(error) else TeacherTrainingError
    # Raised outside the `except` block: otherwise `__context__` keeps the original error, whose message may quote rows.
    if issubclass(error_type, KeyboardInterrupt):
        raise KeyboardInterrupt
    raise fault(
        f"{caller} raised {error_type.__name__}. Its message may quote private rows and is withheld; try the same on "
        "made-up rows of the same shape to read it."
    )


def _is_of_machine(error: BaseException | None) -> bool:
    """Return whether an error, or a cause of it, may come from a shared resource: files, connections, time, memory."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError | MemoryError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


@cache
def _exit_with_parent(parent: int, _pid: int) -> None:
    """Let a worker exit when its parent process does, and ignore SIGINT: Ctrl-C is for the parent to handle.

    Without this, it would outlive the parent by minutes. PR_SET_PDEATHSIG of Linux fires too early: when the thread
    ends that started the worker. The cache lets each process do this once; the pid is part of its key, because a fork
    copies the cache.
    """
    if os.getppid() == parent:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _exit_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_CHECKS)
    os.kill(os.getpid(), signal.SIGKILL)


# References to the executors of parents: garbage collection in a child would shut down the workers of its parent.
_parents: list[object] = []


def _leave_workers_to_parent() -> None:
    """Let a forked child start its own workers: those that it inherits, with their lock, belong to its parent."""
    shared: Any = reusable_executor
    _parents.append(shared._executor)
    shared._executor = None
    shared._executor_lock = threading.RLock()


repair_in_child(_leave_workers_to_parent)
