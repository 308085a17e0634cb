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
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import lru_cache, partial
from importlib import import_module
from itertools import islice
from multiprocessing import current_process
from queue import SimpleQueue
from typing import Any, NamedTuple, final

import numpy as np
import sklearn
from joblib import Parallel, delayed, parallel_config
from joblib._parallel_backends import LokyBackend, MultiprocessingBackend
from joblib.externals.loky import reusable_executor
from joblib.parallel import get_active_backend
from threadpoolctl import OpenBLASController, ThreadpoolController

from tutelage._internal.forks import BriefLock, repair_in_child
from tutelage._internal.streams import own_streams, stream_may_come
from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import TeacherLostWarning, TeacherTrainingError

# Errors that joblib, Dask and Ray raise where a process or its machine died; known by name, as two of them are extras.
_DEATHS = {
    "TerminatedWorkerError", "KilledWorker", "CancelledError", "CommClosedError", "WorkerCrashedError", "NodeDiedError",
    "ObjectLostError", "OutOfMemoryError",
}  # fmt: skip
TRIES_ALONE = 3
_ABSTAINS = (
    "At least one teacher abstains because it failed on its own rows, or its training killed its process each time. "
    "Train with more memory, or with an estimator that survives every shard."
)


def _is_death(error: Exception) -> bool:
    """Return whether a process died, rather than its work having failed."""
    return not _DEATHS.isdisjoint(kind.__name__ for kind in type(error).__mro__)


@final
class _Dask:
    """Workers that take one task at a time, as `_Ray` is too."""

    def __init__(self, backend: Any) -> None:
        self._client, self._options = backend.client, backend.submit_kwargs
        self._done: SimpleQueue[Any] = SimpleQueue()
        self.room = 2 * backend.effective_n_jobs(-1)

    def share(self, value: Any) -> Any:
        return self._client.scatter([value], broadcast=True, hash=False)[0]

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Dask would say how large a shard is
            task = self._client.submit(work, *arguments, key=f"teacher-{uuid.uuid4().hex}", pure=False, **self._options)
        task.add_done_callback(self._done.put)
        return task

    def first_done(self, tasks: Collection[Any]) -> Any:
        while (task := self._done.get()) not in tasks:
            pass  # one that was let go
        return task

    def result(self, task: Any) -> Any:
        return task.result()

    def cancel(self, tasks: Collection[Any]) -> None:
        self._client.cancel(list(tasks))


@final
class _Ray:
    def __init__(self, backend: Any) -> None:
        self._ray: Any = import_module("ray")
        self._options = {**(backend.ray_remote_args or {}), "max_retries": 0}
        if not self._ray.is_initialized():
            self._ray.init()
        self.room = 2 * max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def share(self, value: Any) -> Any:
        return self._ray.put(value)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return self._ray.remote(work).options(**self._options).remote(*arguments)

    def first_done(self, tasks: Collection[Any]) -> Any:
        return self._ray.wait(list(tasks), num_returns=1)[0][0]

    def result(self, task: Any) -> Any:
        try:
            return self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def cancel(self, tasks: Collection[Any]) -> None:
        for task in tasks:
            self._ray.cancel(task)


@final
class Job(NamedTuple):
    """Work for each teacher."""

    work: Callable[..., Any]
    own: Callable[[int], tuple[Any, ...]]
    shared: tuple[Any, ...]
    seed: int
    teachers: int = 0  # how many there are; where all fail, the rows of none are the reason


@final
class Lost(NamedTuple):
    """The result of a teacher that failed on its rows, and so abstains."""

    complaint: str  # without the teacher's own message


def without_lost(results: Iterable[tuple[int, Any]], teachers: int) -> Iterator[tuple[int, Any]]:
    """Yield the results but for those that are `Lost`, and warn of these; if all that had rows are, raise an error."""
    seen, complaint, some_are_not = 0, "", False
    for number, result in results:
        seen += 1
        if isinstance(result, Lost):
            complaint = complaint or result.complaint
        else:
            # Nothing, no weights, or abstentions alone are the result of a teacher without rows.
            empty = (result == ABSTAIN).all() if isinstance(result, np.ndarray) else result is None or result == {}
            some_are_not |= not empty
            yield number, result
    if complaint and seen == teachers and not some_are_not:
        raise TeacherTrainingError(complaint)
    if complaint:
        warnings.warn(_ABSTAINS, TeacherLostWarning, stacklevel=2)


class MachineFaultError(TeacherTrainingError):
    """A teacher that ran out of memory or time, or was cut off: what others use may be the reason."""


def is_of_machine(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, may come from what others use: files, connections, time, memory."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError | MemoryError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class _WorkerDiedError(Exception):
    """A process died with work in it, which its argument tells."""


Crew = Callable[[Job, Sequence[int], set[int]], Iterator[tuple[int, Any]]]


def train_each(job: Job, numbers: Sequence[int], n_jobs: int | None) -> Iterator[tuple[int, Any]]:
    """Yield each teacher's number and result as they finish, in any order; lost teachers are left out."""
    return without_lost(_train_each(job, numbers, n_jobs), job.teachers)


def _train_each(job: Job, numbers: Sequence[int], n_jobs: int | None) -> Iterator[tuple[int, Any]]:
    crew = _crew(n_jobs)
    waiting = dict.fromkeys(numbers)
    while waiting:
        before, started, death = len(waiting), set[int](), None
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
            yield from results or [(number, Lost("A teacher kills its process each time."))]


def attempted(shard: int | str, seed: int, work: Callable[..., Any], *arguments: Any) -> Any | Lost:
    """Return what `guarded` does, or that the teacher is lost."""
    try:
        return guarded(shard, seed, work, *arguments)
    except MachineFaultError:
        raise
    except TeacherTrainingError as error:
        return Lost(str(error))


def guarded(shard: int | str, seed: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work` for the teacher of `shard` by itself: on one thread, on random streams of its own, and in silence."""
    # A warning of the estimator, like an error, may quote rows or class counts of one shard, so neither passes.
    with _whole_process, _one_openmp_thread(), parallel_config(backend="sequential"):
        while True:
            once_more = deepcopy(arguments) if stream_may_come() else None
            with own_streams(shard, seed), np.errstate(), sklearn.config_context():
                result = withheld(f"The teacher of shard {shard}", work, *arguments)
            if once_more is None or stream_may_come():
                return result
            arguments = once_more  # the work loaded a library and drew from its stream before that was its own


def withheld(who: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `work` comes to; of its errors only the type comes out."""
    interrupted, kind, fault = False, "", TeacherTrainingError
    try:
        return work(*arguments)
    except KeyboardInterrupt:
        interrupted = True
    except BaseException as error:  # compiled extensions panic with exceptions of their own, and quote as others do
        kind = type(error).__name__
        fault = MachineFaultError if is_of_machine(error) else TeacherTrainingError
    del arguments
    # Out here nothing is being handled, so the error that may quote a row is not carried along as the context.
    if interrupted:
        raise KeyboardInterrupt
    raise fault(
        f"{who} raised {kind}. Its message may quote private rows and is withheld; try the same on made-up rows of the "
        "same shape to read it."
    )


def _tried_alone(crew: Crew, job: Job, number: int) -> list[tuple[int, Any]]:
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


def _crew(n_jobs: int | None) -> Crew:
    backend: Any = get_active_backend()[0]
    if hasattr(backend, "client"):
        return partial(_over_cluster, _Dask(backend))
    if type(backend).__module__.startswith("ray."):
        return partial(_over_cluster, _Ray(backend))
    return partial(_over_joblib, n_jobs, "generator_unordered" if backend.supports_return_generator else "list")


def _over_joblib(
    n_jobs: int | None, return_as: str, job: Job, numbers: Sequence[int], started: set[int]
) -> Iterator[tuple[int, Any]]:
    def calls() -> Iterator[Any]:
        for number in numbers:
            started.add(number)
            yield delayed(_in_worker)(number, job.seed, job.work, job.own(number), job.shared)

    # max_nbytes: private rows travel through pipes; joblib would leave larger shards in shared memory after a kill.
    run = parallel(n_jobs, return_as=return_as, max_nbytes=None)
    failure: Exception | None = None
    try:
        yield from run(calls())
    except TeacherTrainingError:
        raise
    except Exception as error:
        if _is_death(error):
            raise _WorkerDiedError(error) from None
        failure = error
    if failure is not None:
        raise _unsendable(failure)


def _over_cluster(
    cluster: _Dask | _Ray, job: Job, numbers: Sequence[int], started: set[int]
) -> Iterator[tuple[int, Any]]:
    shared = cluster.share(job.shared)
    upcoming, in_flight, death = iter(numbers), set[Any](), None
    try:
        while True:
            for number in islice(upcoming, cluster.room - len(in_flight)):
                started.add(number)
                in_flight.add(cluster.submit(_numbered, number, job.seed, job.work, job.own(number), shared))
            if not in_flight:
                break
            task = cluster.first_done(in_flight)
            in_flight.remove(task)
            try:
                result = cluster.result(task)
            except TeacherTrainingError:
                raise
            except Exception as error:
                death, upcoming = error, iter(())
            else:
                yield result
    finally:
        cluster.cancel(in_flight)
    if death is not None:
        raise _WorkerDiedError(death) if _is_death(death) else _unsendable(death)


def _unsendable(error: Exception) -> TeacherTrainingError:
    return TeacherTrainingError(
        f"A teacher or its rows could not be sent between processes: {type(error).__name__}. The message may quote "
        "private rows and is withheld; store a teacher trained on made-up rows to read it."
    )


def _in_worker(*arguments: Any) -> tuple[int, Any]:
    # A terminal sends Ctrl-C to workers too. Theirs would print what they were doing; the parent ends them anyway.
    if type(current_process()).__name__ == "LokyProcess" and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _numbered(*arguments)


def _numbered(
    number: int, seed: int, work: Callable[..., Any], own: tuple[Any, ...], shared: tuple[Any, ...]
) -> tuple[int, Any]:
    return number, attempted(number, seed, work, *own, *shared)


class _WholeProcess:
    """No warnings, and one thread of linear algebra, while any thread of this process is at work on a teacher.

    Both are settings of a process. The first thread in makes them and the last one out undoes them; would each thread
    undo its own, it would undo them for teachers that are still at work.
    """

    def __init__(self) -> None:
        self.lock = BriefLock()
        self._inside = 0
        self._here = threading.local()
        self._undo = ExitStack()
        repair_in_child(self._forget_other_threads)

    def __enter__(self) -> None:
        with self.lock:
            if not self._inside:
                self._undo.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                with _setting_blas():
                    limiter = _libraries("blas").limit(limits=1)
                self._undo.callback(limiter.restore_original_limits)
            self._add(1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self._add(-1)
            if not self._inside:
                with _setting_blas():
                    self._undo.close()

    def _add(self, count: int) -> None:
        self._inside += count
        self._here.inside = getattr(self._here, "inside", 0) + count

    def _forget_other_threads(self) -> None:
        """Undo in a child what was for threads that did not come along."""
        self._inside = getattr(self._here, "inside", 0)
        if not self._inside:
            with _setting_blas():
                self._undo.close()


@contextmanager
def _setting_blas() -> Iterator[None]:
    """Let this thread set and undo limits: from threadpoolctl 3.8 on, only the thread that set one may undo it."""
    release: Callable[..., object] = getattr(OpenBLASController, "clear_controlling_thread", lambda **_: None)
    release(force=True)
    yield
    release(force=True)


_whole_process = _WholeProcess()


@contextmanager
def _one_openmp_thread() -> Iterator[None]:
    with _whole_process.lock:  # to look for libraries holds a lock of the loader
        libraries = _libraries("openmp")
    with libraries.limit(limits=1):  # a setting of each thread
        yield


def _libraries(kind: str) -> ThreadpoolController:
    """Return the thread pools of this process of one kind; looking for them takes milliseconds.

    Undoing a limit sets the threads of every library again: those of OpenBLAS only under the lock of `_WholeProcess`,
    or a fork may come in the middle and the child wait for ever.
    """
    return _libraries_after(len(sys.modules), kind)  # imports bring libraries


@lru_cache(maxsize=2)
def _libraries_after(_imports: int, kind: str) -> ThreadpoolController:
    return ThreadpoolController().select(user_api=kind)


_BEAT = 0.5  # seconds
_parents: list[object] = []  # kept, for letting go of workers would end them


def parallel(n_jobs: int | None, **options: Any) -> Any:
    """Return `joblib.Parallel(n_jobs, **options)`, whose processes would otherwise outlive this one by minutes."""
    backend: Any = get_active_backend()[0]
    if isinstance(backend, LokyBackend | MultiprocessingBackend):
        theirs = backend.backend_kwargs
        arguments = os.getpid(), theirs.get("initializer"), theirs.get("initargs", ())
        options |= {"initializer": _start_worker, "initargs": arguments}
    return Parallel(n_jobs=n_jobs, **options)


def _start_worker(parent: int, initializer: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
    # Linux could send a signal instead, but does so already when the thread ends that started the worker.
    threading.Thread(target=_end_after, args=(parent,), daemon=True).start()
    if initializer is not None:
        initializer(*arguments)


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_BEAT)
    os.kill(os.getpid(), signal.SIGKILL)


def _leave_workers_to_parent() -> None:
    """Let a forked child start workers of its own: those that it sees belong to its parent, and so does their lock."""
    shared: Any = reusable_executor
    _parents.append(shared._executor)
    shared._executor, shared._executor_lock = None, threading.RLock()


repair_in_child(_leave_workers_to_parent)
