"""joblib's parallel calls whose worker processes end with the process that started them."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from joblib import Parallel
from joblib._parallel_backends import LokyBackend, MultiprocessingBackend
from joblib.externals.loky import reusable_executor
from joblib.parallel import get_active_backend

from tutelage._forks import repair_in_child

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
