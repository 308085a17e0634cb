"""Work on all processors, and settings of the whole process while any thread is at work on private rows."""

import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache, partial
from typing import Literal, TypeVar

from joblib import cpu_count
from threadpoolctl import ThreadpoolController

from tutelage._internal.forks import BriefLock, repair_in_child

Item = TypeVar("Item")
Result = TypeVar("Result")
_thread = threading.local()


def one_thread(
    libraries: Literal["blas", "openmp"] | None = None,
) -> AbstractContextManager[object]:
    """Return a context in which linear algebra, or OpenMP, or by default both, use one thread of this process."""
    return thread_pools().limit(limits=1, user_api=libraries)


def thread_pools() -> ThreadpoolController:
    """Return the libraries of this process that have threads."""
    # Modules alone bring libraries: as long as none was imported, the libraries found before are all there are.
    return _controller(len(sys.modules))


@lru_cache(1)
def _controller(_modules: int) -> ThreadpoolController:
    """Look for the libraries that have threads: this takes milliseconds, more than most work that they do here."""
    return ThreadpoolController()


def on_all_cores(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `function` of every item, in order, from one thread per processor; within such a thread, from it alone."""
    if getattr(_thread, "is_worker", False):
        yield from map(function, items)
        return
    n_threads = cpu_count()
    waiting = deque[Future[Result]]()
    # Pools within pools would have more threads than processors.
    mark = partial(setattr, _thread, "is_worker", True)
    with one_thread("blas"), ThreadPoolExecutor(n_threads, initializer=mark) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > n_threads:  # each thread is at work, and one item waits
                yield waiting.popleft().result()
        for done in waiting:
            yield done.result()


class WholeProcess:
    """Settings that the first thread in makes and the last one out undoes: others may still be at work in between."""

    def __init__(self, settings: Callable[[], AbstractContextManager[object]]) -> None:
        self.lock = BriefLock()
        self._settings = settings
        self._inside = 0
        self._here = threading.local()
        self._undo = ExitStack()
        repair_in_child(self._forget_other_threads)

    def __enter__(self) -> None:
        with self.lock:
            if not self._inside:
                self._undo.enter_context(self._settings())
            self._add(1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self._add(-1)
            if not self._inside:
                self._undo.close()

    def _add(self, count: int) -> None:
        self._inside += count
        self._here.inside = getattr(self._here, "inside", 0) + count

    def _forget_other_threads(self) -> None:
        """Undo in a child what was for threads that did not come along."""
        self._inside = getattr(self._here, "inside", 0)
        if not self._inside:
            self._undo.close()


# A warning may quote a private row.
QUIET = WholeProcess(lambda: warnings.catch_warnings(action="ignore"))
