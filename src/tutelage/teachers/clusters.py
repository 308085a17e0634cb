"""Dask and Ray, asked directly for one task at a time, where they are joblib's back end.

joblib's own ways to them wait for ever for a task whose worker died. Neither is imported unless it is in use already.
"""

import uuid
import warnings
from collections.abc import Callable, Collection
from importlib import import_module
from queue import SimpleQueue
from typing import Any, Protocol, final

# What joblib, Dask and Ray raise where a process or its machine died; known by name, as two of them are extras.
_DEATHS = {
    "TerminatedWorkerError",
    "KilledWorker",
    "CancelledError",
    "CommClosedError",
    "WorkerCrashedError",
    "NodeDiedError",
    "ObjectLostError",
    "OutOfMemoryError",
}


class Cluster(Protocol):
    """Workers that take one task at a time."""

    room: int

    def share(self, value: Any) -> Any:
        """Return what stands for `value` among the arguments of many tasks."""
        ...

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Start a task."""
        ...

    def first_done(self, tasks: Collection[Any]) -> Any:
        """Wait for one of `tasks` and return it."""
        ...

    def result(self, task: Any) -> Any:
        """Return what a task came to, or raise what it raised."""
        ...

    def cancel(self, tasks: Collection[Any]) -> None:
        """Let go of tasks."""
        ...


def cluster_behind(backend: Any) -> Cluster | None:
    """Return the cluster that a back end of joblib stands for, if it is one."""
    if hasattr(backend, "client"):
        return _Dask(backend)
    return _Ray(backend) if type(backend).__module__.startswith("ray.") else None


def is_death(error: Exception) -> bool:
    """Return whether a process died, rather than its work having failed."""
    return not _DEATHS.isdisjoint(kind.__name__ for kind in type(error).__mro__)


@final
class _Dask:
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
