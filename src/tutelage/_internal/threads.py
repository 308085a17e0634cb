"""Work on all processors: the results come in the order of the items, and only a few items are in memory at once."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from joblib import cpu_count
from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Result = TypeVar("Result")
_thread = threading.local()


def on_all_cores(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `function` of every item, from one thread per processor; within such a thread, from that thread alone."""
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
