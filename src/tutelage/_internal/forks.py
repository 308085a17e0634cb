"""Locks that survive a fork: a child gets a copy of every lock, but not the thread that would release it."""

# Handlers before a fork run in the reverse order of their registration. These two modules hold locks over a fork that
# work under a `BriefLock` may need, to import a module that logs for example. Theirs must be taken after ours.
import concurrent.futures.thread
import logging
import os
import threading
from collections.abc import Callable
from itertools import count
from typing import Self
from weakref import WeakValueDictionary

_BRIEF: "WeakValueDictionary[int, BriefLock]" = WeakValueDictionary()
_NUMBERS = count()
_LOADED_BEFORE = concurrent.futures.thread, logging


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


class _Forking(threading.local):
    """The locks that a thread holds over a fork."""

    def __init__(self) -> None:
        super().__init__()
        self.held = list[_Lock]()


_FORKING = _Forking()


def repair_in_child(repair: Callable[[], object]) -> None:
    """Call `repair` in every child that is forked from now on, before anything else runs there."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=repair)


def _hold() -> None:
    _FORKING.held = list[_Lock]()  # kept, because another thread may make or drop a lock meanwhile
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
