"""Teachers at work: many at a time wherever joblib is told to, one thread each, even where some kill their process.

A teacher that fails on its rows abstains, as one without rows does. So the rows of one person cannot stop a fit.

A worker that dies takes with it whatever it was doing, and often what its neighbors were doing. All of them are
trained again: a teacher is a function of its own shard and seed, so its ballots are the same. Only a teacher that kills
its worker while no other teacher is in flight is given up. Whether a teacher is lost must depend on its own shard
alone: were those lost that merely shared a worker or a batch with it, one row could move more than one teacher's votes.
"""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple, final

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

# Errors that joblib, Dask and Ray raise where a process or its machine died; known by name, as two of them are extras.
_DEATHS = {
    "TerminatedWorkerError", "KilledWorker", "CancelledError", "CommClosedError", "WorkerCrashedError", "NodeDiedError",
    "ObjectLostError", "OutOfMemoryError",
}  # fmt: skip
TRIES_ALONE = 3
_BEAT, _UNTIL_A_WORKER = 0.5, 600  # seconds
_ABSTAINS = (
    "At least one teacher abstains because it failed on its own rows, or its training killed its process each time. "
    "Train with more memory, or with an estimator that survives every shard."
)


@final
class Job(NamedTuple):
    """Work for each teacher."""

    work: Callable[..., Any]
    own: Callable[[int], tuple[Any, ...]]
    shared: tuple[Any, ...]
    seed: int
    teachers: int = 0  # how many there are; where all fail, the rows of none are the reason


Results = Iterator[tuple[int, Any]]
"""Numbers of teachers, and what came of each."""
_Crew = Callable[[Job, Sequence[int], set[int]], Results]


class MachineFaultError(TeacherTrainingError):
    """A teacher that ran out of memory or time, or was cut off: what others use may be the reason."""


class _WorkerDiedError(Exception):
    """A process died with work in it, which its argument tells."""


def _is_of_machine(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, may come from what others use: files, connections, time, memory."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError | MemoryError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def train_each(job: Job, numbers: Sequence[int], n_jobs: int | None) -> Results:
    """Yield each teacher's number and result as they finish, in any order; lost teachers are left out."""
    return without_lost(_train_each(job, numbers, n_jobs), job.teachers)


def without_lost(results: Results, teachers: int) -> Results:
    """Yield the results but for those that are errors, and warn of these; if all that had rows are, raise one."""
    seen = 0
    error = None
    some_are_not = False
    for number, result in results:
        seen += 1
        if isinstance(result, TeacherTrainingError):
            error = error or result
        else:
            # Nothing, no weights, or abstentions alone are the result of a teacher without rows.
            empty = (
                (result == ABSTAIN).all()
                if isinstance(result, np.ndarray)
                else result is None or result == {}
            )
            some_are_not |= not empty
            yield number, result
    if error is not None and seen == teachers and not some_are_not:
        raise error
    if error is not None:
        warnings.warn(_ABSTAINS, TeacherLostWarning, stacklevel=2)


def _train_each(job: Job, numbers: Sequence[int], n_jobs: int | None) -> Results:
    crew = partial(_at_work, _crew(n_jobs))
    waiting = dict.fromkeys(numbers)
    while waiting:
        before = len(waiting)
        started = set[int]()
        death = None
        try:
            for number, result in crew(job, list(waiting), started):
                del waiting[number]
                yield number, result
        except _WorkerDiedError as error:
            (death,) = error.args
        # Which of those in flight was at fault is not known: each is tried alone, and the others go on.
        suspects = [number for number in tuple(started) if number in waiting]
        if death and not suspects and len(waiting) == before:
            raise death  # no worker can run at all
        for number in suspects:
            results = _tried_alone(crew, job, number)
            del waiting[number]
            yield from results or [
                (number, TeacherTrainingError("A teacher kills its process each time."))
            ]


def _tried_alone(crew: _Crew, job: Job, number: int) -> list[tuple[int, Any]]:
    """Return the result of one teacher that runs alone; nothing if it always kills its worker.

    Under joblib the last tries are in a new process, for the one before died; a cluster may choose another old one.
    """
    for _ in range(TRIES_ALONE):
        try:
            return list(crew(job, [number], set()))
        except _WorkerDiedError:
            continue
    try:
        list(crew(Job(tuple, own=lambda _: (), shared=(), seed=0), [number], set()))
    except _WorkerDiedError as death:
        raise death.args[0] from None  # workers die of nothing: that is no teacher's fault
    return []


def _at_work(crew: _Crew, job: Job, numbers: Sequence[int], started: set[int]) -> Results:
    """Yield the results of a crew; raise `_WorkerDiedError` if a process died, rather than its work having failed."""
    try:
        yield from crew(job, numbers, started)
        return
    except TeacherTrainingError:
        raise
    except Exception as error:
        failure = error
    if not _DEATHS.isdisjoint(kind.__name__ for kind in type(failure).__mro__):
        raise _WorkerDiedError(failure)
    raise TeacherTrainingError(
        f"A teacher or its rows could not be sent between processes: {type(failure).__name__}. The message may quote "
        "private rows and is withheld; store a teacher trained on made-up rows to read it."
    )


def _crew(n_jobs: int | None) -> _Crew:
    backend: Any = get_active_backend()[0]
    if hasattr(backend, "client"):
        return partial(_over_cluster, _dask(backend))
    if type(backend).__module__.startswith("ray."):
        return partial(_over_cluster, _ray(backend))
    return partial(
        _over_joblib, n_jobs, "generator_unordered" if backend.supports_return_generator else "list"
    )


def _over_joblib(
    n_jobs: int | None,
    return_as: str,
    job: Job,
    numbers: Sequence[int],
    started: set[int],
) -> Results:
    def call(number: int) -> Any:
        started.add(number)
        return delayed(_in_worker)(
            os.getpid(),
            number,
            job.seed,
            job.work,
            job.own(number),
            job.shared,
        )

    # max_nbytes: private rows travel through pipes; joblib would leave larger shards in shared memory after a kill.
    run: Any = Parallel(n_jobs=n_jobs, return_as=return_as, max_nbytes=None)
    yield from run(map(call, numbers))


class _Cluster(NamedTuple):
    """How a cluster takes work.

    Joblib chooses it, but does not drive it: joblib 1.6 waits for ever once a worker of Dask died, and of Ray it has no
    result before all are there, so that a death loses every teacher.
    """

    room: int  # for work, most of it waiting
    share: Callable[[Any], Any]
    submit: Callable[..., Future[Any]]


def _dask(backend: Any) -> _Cluster:
    client = backend.client

    # By workers, of which all may have died and be about to come back.
    def shared(value: Any) -> Any:
        return client.scatter([value], broadcast=True, hash=False, timeout=_UNTIL_A_WORKER)[0]

    submit = partial(client.get_executor().submit, pure=False, **backend.submit_kwargs)
    return _Cluster(2 * backend.effective_n_jobs(-1), shared, submit)


def _ray(backend: Any) -> _Cluster:
    ray: Any = import_module("ray")
    if not ray.is_initialized():
        ray.init()
    options = {**(backend.ray_remote_args or {}), "max_retries": 0}
    return _Cluster(
        2 * max(1, int(ray.cluster_resources().get("CPU", 1))),
        ray.put,
        lambda work, *task: ray.remote(work).options(**options).remote(*task).future(),
    )


def _over_cluster(
    cluster: _Cluster, job: Job, numbers: Sequence[int], started: set[int]
) -> Results:
    shared = cluster.share(job.shared)
    upcoming = iter(numbers)
    death = None
    in_flight = set[Future[Any]]()
    while True:
        for number in islice(upcoming, cluster.room - len(in_flight)):
            started.add(number)
            with QUIET:  # Dask would say how large a shard is
                task = number, job.seed, job.work, job.own(number), shared
                in_flight.add(cluster.submit(_never_raising, *task))
        if not in_flight:
            break
        done, in_flight = wait(in_flight, return_when=FIRST_COMPLETED)
        for one in done:
            try:
                number, result = one.result()
            except Exception as error:
                death = error
                upcoming = iter(())  # those in flight go on, for a suspect must be alone
                continue
            if isinstance(result, MachineFaultError):
                raise result
            yield number, result
    if death is not None:
        raise death


def _in_worker(parent: int, *arguments: Any) -> tuple[int, Any]:
    _end_with(parent, os.getpid())
    return _numbered(*arguments)


def _never_raising(number: int, *arguments: Any) -> tuple[int, Any]:
    """Return what `_numbered` does, or its error: clusters write to a log which rows a work failed on."""
    try:
        return _numbered(number, *arguments)
    except MachineFaultError as error:
        return number, error.with_traceback(None)


def _numbered(
    number: int,
    seed: int,
    work: Callable[..., Any],
    own: tuple[Any, ...],
    shared: tuple[Any, ...],
) -> tuple[int, Any]:
    return number, attempted(number, seed, work, *own, *shared)


def attempted(
    shard: int | str, seed: int, work: Callable[..., Any], *arguments: Any
) -> Any | TeacherTrainingError:
    """Return what `guarded` does, or its error if the teacher failed on its own rows."""
    try:
        return guarded(shard, seed, work, *arguments)
    except MachineFaultError:
        raise
    except TeacherTrainingError as error:
        return error.with_traceback(None)


def guarded(shard: int | str, seed: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work` for the teacher of `shard` by itself: on one thread, on random streams of its own, and in silence."""
    # A warning of the estimator, like an error, may quote rows or class counts of one shard, so neither passes.
    with QUIET, ONE_BLAS_THREAD, _one_openmp_thread(), parallel_config(backend="sequential"):
        while True:
            once_more = deepcopy(arguments) if stream_may_come() else None
            with own_streams(shard, seed), np.errstate(), sklearn.config_context():
                result = withheld(f"The teacher of shard {shard}", work, *arguments)
            if once_more is None or stream_may_come():
                return result
            # The work loaded a library and drew from its stream before that was its own.
            arguments = once_more


def withheld(who: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `work` comes to; of its errors only the type comes out."""
    interrupted = False
    kind = ""
    fault = TeacherTrainingError
    try:
        return work(*arguments)
    except KeyboardInterrupt:
        interrupted = True
    except BaseException as error:
        # Compiled extensions panic with exceptions of their own, and quote as others do.
        kind = type(error).__name__
        fault = MachineFaultError if _is_of_machine(error) else TeacherTrainingError
    del arguments
    # Out here nothing is being handled, so the error that may quote a row is not carried along as the context.
    if interrupted:
        raise KeyboardInterrupt
    raise fault(
        f"{who} raised {kind}. Its message may quote private rows and is withheld; try the same on made-up rows of the "
        "same shape to read it."
    )


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    # From threadpoolctl 3.8 on, only the thread that set a limit may undo it, unless it is released.
    release: Callable[..., object] = getattr(
        OpenBLASController, "clear_controlling_thread", lambda **_: None
    )
    release(force=True)
    limiter = _libraries("blas", len(sys.modules)).limit(limits=1)
    release(force=True)
    try:
        yield
    finally:
        release(force=True)
        limiter.restore_original_limits()
        release(force=True)


ONE_BLAS_THREAD = WholeProcess(_one_blas_thread)


@contextmanager
def _one_openmp_thread() -> Iterator[None]:
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
    shared._executor, shared._executor_lock = None, threading.RLock()


repair_in_child(_leave_workers_to_parent)
