"""Work on all processors, and work on private rows without warnings."""

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

from joblib import cpu_count
from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Result = TypeVar("Result")
_thread = threading.local()


def on_all_cores(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `function` of every item, in order, from one thread per processor; within such a thread, from it alone."""
    if getattr(_thread, "is_worker", False):
        yield from map(function, items)
        return
    n_threads, waiting = cpu_count(), deque[Future[Any]]()
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(n_threads, initializer=_enter) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > n_threads:  # each thread is at work, and one item waits
                yield waiting.popleft().result()
        for done in waiting:
            yield done.result()


def _enter() -> None:
    _thread.is_worker = True  # a pool within a pool would have more threads than there are processors


class _Quiet:
    """No warnings in this process from the first thread in to the last one out: a warning may quote a private row."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = 0
        self._undo = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._undo.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._undo.close()


QUIET = _Quiet()
