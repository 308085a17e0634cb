"""Teachers at work: many at a time wherever joblib is told to, on one thread each and in silence.

A teacher that fails on its rows abstains, as a teacher without rows does: the rows of one person cannot stop a fit by
an error. A process that dies stops the fit. Which teacher was at fault is not known then, and if its neighbors were
lost with it, one row could move the votes of more than one teacher.
"""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar, final

import numpy as np
import sklearn
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import reusable_executor
from joblib.parallel import get_active_backend
from threadpoolctl import OpenBLASController, ThreadpoolController

from tutelage._internal.forks import repair_in_child
from tutelage._internal.streams import own_streams, stream_may_come
from tutelage._internal.threads import QUIET, WholeProcess
from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import TeacherLostWarning, TeacherTrainingError

# Errors of loky, Dask and Ray if a process or its machine died; known by name, because Dask and Ray are extras.
_DEATHS = {
    "TerminatedWorkerError", "KilledWorker", "CancelledError", "CommClosedError", "NoWorkerError",
    "RayActorError", "WorkerCrashedError", "NodeDiedError", "ObjectLostError", "OutOfMemoryError",
}  # fmt: skip
_BEAT = 0.5  # seconds
Result = TypeVar("Result")


@final
class Job(NamedTuple):
    """Work for each teacher."""

    work: Callable[..., object]
    own: Callable[[int], tuple[object, ...]]
    shared: tuple[object, ...]
    seed: int
    teachers: int = 0  # how many there are; where all fail, the rows of none are the reason


Results = Iterator[tuple[int, Any]]
"""Numbers of teachers, and what came of each."""


class MachineFaultError(TeacherTrainingError):
    """Training ran out of memory or time, or was cut off. That ends a fit: what others use may be the reason."""


class _Backend(Protocol):
    submit: Callable[..., Future[object]]


def train_each(job: Job, numbers: Sequence[int], n_jobs: int | None) -> Results:
    """Yield each teacher's number and result as they finish, in any order; lost teachers are left out."""
    return without_lost(_over_joblib(job, numbers, n_jobs), job.teachers)


def without_lost(results: Results, teachers: int) -> Results:
    """Yield the results but for those that are errors, and warn of these; if all that had rows are, raise one."""
    n_results = 0
    first_error = None
    some_voted = False
    for number, result in results:
        n_results += 1
        if isinstance(result, TeacherTrainingError):
            first_error = first_error or result
            continue
        if not _is_of_no_rows(result):
            some_voted = True
        yield number, result
    if first_error is None:
        return
    if n_results == teachers and not some_voted:
        raise first_error
    warnings.warn(
        "At least one teacher abstains because it failed on its own rows. Train with an estimator that accepts every "
        "shard.",
        TeacherLostWarning,
        stacklevel=2,
    )


def _is_of_no_rows(result: object) -> bool:
    """Return whether a teacher without rows has this result: nothing, no weights, or abstentions alone."""
    if isinstance(result, np.ndarray):
        return bool((result == ABSTAIN).all())
    return result is None or result == {}


def _over_joblib(job: Job, numbers: Sequence[int], n_jobs: int | None) -> Results:
    backend: Any = get_active_backend()[0]
    if hasattr(backend, "client"):
        _let_joblib_see_deaths(backend)
    task: Any = delayed(_in_worker)
    calls = (
        task(os.getpid(), number, job.seed, job.work, *job.own(number), *job.shared)
        for number in numbers
    )
    try:
        yield from _parallel(n_jobs)(calls)
        return
    except TeacherTrainingError:
        raise
    except Exception as error:
        kind = type(error)
    # Out here nothing is being handled, so an error that may quote a row is not carried along as the context.
    if not _DEATHS.isdisjoint(base.__name__ for base in kind.__mro__):
        raise MachineFaultError(
            "A process that trains teachers died, for example for lack of memory; the same call continues from its "
            "checkpoints, if there are any."
        )
    raise TeacherTrainingError(
        f"A teacher or its rows could not be sent between processes: {kind.__name__}. The message may quote private "
        "rows and is withheld; store a teacher trained on made-up rows to read it."
    )


def _parallel(n_jobs: int | None) -> Any:
    # max_nbytes: private rows travel through pipes; joblib would leave larger shards in shared memory after a kill.
    try:
        return Parallel(n_jobs=n_jobs, return_as="generator_unordered", max_nbytes=None)
    except ValueError:  # a back end that has no result before all are there, such as Ray
        return Parallel(n_jobs=n_jobs, max_nbytes=None)


def _let_joblib_see_deaths(backend: _Backend) -> None:
    """Tell joblib of work that Dask gave up, because every worker that tried it died: joblib 1.6 would wait forever."""
    if "submit" in vars(backend):
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
    _end_with(parent, os.getpid())
    return number, result_or_error(number, seed, work, *arguments)


def result_or_error(
    shard: int | str, seed: int, work: Callable[..., Result], *arguments: object
) -> Result | TeacherTrainingError:
    """Return what `isolated_result` does, or its error if the teacher failed on its own rows."""
    try:
        return isolated_result(shard, seed, work, *arguments)
    except MachineFaultError:
        raise
    except TeacherTrainingError as error:
        return error.with_traceback(None)


def isolated_result(
    shard: int | str, seed: int, work: Callable[..., Result], *arguments: object
) -> Result:
    """Run `work` for the teacher of `shard` by itself: on one thread, on random streams of its own, and in silence."""
    # A warning of the estimator, like an error, may quote rows or class counts of one shard, so neither passes.
    with QUIET, ONE_BLAS_THREAD, _one_openmp_thread(), parallel_config(backend="sequential"):
        while True:
            once_more = deepcopy(arguments) if stream_may_come() else None
            with own_streams(shard, seed), np.errstate(), sklearn.config_context():
                result = result_without_quotes(f"The teacher of shard {shard}", work, *arguments)
            if once_more is None or stream_may_come():
                return result
            # The work loaded a library and drew from the random stream of that before it was set: repeat the work.
            arguments = once_more


def result_without_quotes(owner: str, work: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of `work`; an error of the `owner` is replaced by one that names its type alone."""
    try:
        return work(*arguments)
    except BaseException as error:
        # Compiled extensions panic with exceptions of their own, and quote as others do.
        kind = type(error)
        fault = MachineFaultError if _is_of_machine(error) else TeacherTrainingError
    del arguments
    # Out here nothing is being handled, so the error that may quote a row is not carried along as the context.
    if issubclass(kind, KeyboardInterrupt):
        raise KeyboardInterrupt
    raise fault(
        f"{owner} raised {kind.__name__}. Its message may quote private rows and is withheld; try the same on made-up "
        "rows of the same shape to read it."
    )


def _is_of_machine(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, may come from what others use: files, connections, time, memory."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError | MemoryError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def _one_blas_thread() -> Generator[None, None, None]:
    _release_limits()
    limiter = _libraries("blas", len(sys.modules)).limit(limits=1)
    _release_limits()
    try:
        yield
    finally:
        _release_limits()
        limiter.restore_original_limits()
        _release_limits()


def _release_limits() -> None:
    """Let any thread undo limits: from threadpoolctl 3.8 on, only the thread that set one may."""
    release: Callable[..., object] | None = getattr(
        OpenBLASController, "clear_controlling_thread", None
    )
    if release is not None:
        release(force=True)


ONE_BLAS_THREAD = WholeProcess(_one_blas_thread)


@contextmanager
def _one_openmp_thread() -> Generator[None, None, None]:
    with ONE_BLAS_THREAD.lock:  # to look for libraries holds a lock of the loader
        libraries = _libraries("openmp", len(sys.modules))
    with libraries.limit(limits=1):  # a setting of each thread
        yield


@lru_cache(maxsize=2)
def _libraries(kind: str, _imports: int) -> ThreadpoolController:
    """Return the thread pools of this process of one kind; looking for them takes milliseconds, imports bring more.

    Undoing a limit sets the threads of every library again: those of OpenBLAS only under the lock of a `WholeProcess`,
    or a fork may come in the middle and the child wait for ever.
    """
    return ThreadpoolController().select(user_api=kind)


@cache
def _end_with(parent: int, _pid: int) -> None:
    """Let a worker end with the process that started it, which it would outlive by minutes, and leave Ctrl-C to that.

    Linux could send a signal instead, but does so already when the thread ends that started the worker.
    """
    if os.getppid() == parent:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_BEAT)
    os.kill(os.getpid(), signal.SIGKILL)


_parents: list[object] = []  # kept, for letting go of workers would end them


def _leave_workers_to_parent() -> None:
    """Let a forked child start workers of its own: those that it sees belong to its parent, and so does their lock."""
    shared: Any = reusable_executor
    _parents.append(shared._executor)
    shared._executor = None
    shared._executor_lock = threading.RLock()


repair_in_child(_leave_workers_to_parent)
