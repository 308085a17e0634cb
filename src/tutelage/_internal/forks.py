"""Locks that survive a fork, and the random streams of this process: first weights, bootstrap samples. Never noise.

A child gets a copy of every lock, but not the thread that would release it.
"""

# Handlers before a fork run in the reverse order of their registration. These two modules hold locks over a fork that
# work under a `BriefLock` may need, to import a module that logs for example. Theirs must be taken after ours.
import concurrent.futures.thread  # noqa: F401
import logging  # noqa: F401
import os
import random  # what estimators may draw from, behind our back
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
from numpy import random as numpy_random

_BRIEF: "WeakValueDictionary[int, BriefLock]" = WeakValueDictionary()
_NUMBERS = count()
_FORKING = threading.local()
_FEWER_BITS = 2**32
_find_spec = cache(find_spec)


class _Lock:
    """A lock that its holder may take again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class BriefLock(_Lock):
    """For short work, for which a fork waits. No thread may wait for one while it holds another."""

    def __init__(self) -> None:
        super().__init__()
        _BRIEF[next(_NUMBERS)] = self


class LongLock(_Lock):
    """For work that a fork cannot wait for: in a child, the lock of a thread that did not come along is free."""

    def __init__(self) -> None:
        super().__init__()
        repair_in_child(self._free)

    def _free(self) -> None:
        if self._lock.acquire(blocking=False):  # unlocked, or locked by the forking thread
            self._lock.release()
        else:
            self._lock = threading.RLock()


def repair_in_child(repair: Callable[[], object]) -> None:
    """Call `repair` in every child that is forked from now on, before anything else runs there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=repair)


def _hold() -> None:
    _FORKING.held = []  # kept, because another thread may make or drop a lock meanwhile
    for reference in _BRIEF.valuerefs():
        lock = reference()
        if lock is not None:
            lock.__enter__()
            _FORKING.held.append(lock)


def _let_go() -> None:
    while _FORKING.held:
        _FORKING.held.pop().__exit__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_let_go)

streams_in_use = LongLock()


def _unlock_numpy() -> None:
    """Unlock numpy's global stream in a child: a thread that did not come along may have been drawing from it."""
    numpy: Any = numpy_random  # whose stubs lack both functions
    locked = numpy.get_bit_generator()
    free = type(locked)()
    free.state = locked.state
    numpy.set_bit_generator(free)


repair_in_child(_unlock_numpy)


@contextmanager
def own_streams(shard: int | str, seed: int) -> Iterator[None]:
    """Let all streams of the process start from `seed` and the shard, one thread at a time; restore them afterwards."""
    start = int(np.random.SeedSequence([seed, *str(shard).encode()]).generate_state(1)[0])
    with streams_in_use, ExitStack() as undo:
        undo.callback(random.setstate, random.getstate())
        undo.callback(numpy_random.set_state, numpy_random.get_state())  # noqa: NPY002  whatever estimators draw from
        random.seed(start)
        numpy_random.seed(start % _FEWER_BITS)  # noqa: NPY002
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            accelerators = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            undo.enter_context(torch.random.fork_rng(devices=accelerators))
            torch.manual_seed(start)
        yield


def stream_may_come() -> bool:
    """Return whether work may still load torch, which has a stream of its own that `own_streams` did not see."""
    return "torch" not in sys.modules and _find_spec("torch") is not None
