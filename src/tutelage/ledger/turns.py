"""One release at a time through a ledger: a release that waits for its turn finds the answers of the one before.

The turn is a lock on a file beside the ledger, which the system lets go of however its process ends. A second one is
the place at the head of the queue: who waits for the turn holds it, and the others wait for it, in the order in which
they came. So whoever ends a turn and asks at once again cannot be quicker than those who wait. A forked child closes
its copies of the locks at once. The files go with the turn of the last in the queue; those that a killed process left
are taken by the next. The ledger's own file is not locked: closing it would drop the locks that SQLite holds on it in
this process.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tutelage._internal.forks import repair_in_child

SUFFIX = ".turn"  # follows the name of the ledger's file
_QUEUE = ".queue.turn"
_LOGGER = logging.getLogger(__name__)


_HELD = dict[Path, int]()  # the thread of this process that holds each turn
_OPEN = set[int]()  # descriptors of all locks that are held or waited for


def _let_go_in_child() -> None:
    for descriptor in _OPEN:
        os.close(descriptor)
    _OPEN.clear()
    _HELD.clear()


repair_in_child(_let_go_in_child)


def is_held(ledger: Path | None) -> bool:
    """Return whether this thread holds the turn of a ledger."""
    return ledger is not None and _HELD.get(ledger) == threading.get_ident()


@contextmanager
def turn(ledger: Path, is_needless: Callable[[], bool]) -> Generator[None]:
    """Wait until no other release goes on through a ledger, and hold off others until the block ends.

    If it would have to wait, and the turn is needless, it goes on without. No other release is held off where no file
    can be made beside the ledger, or its disk has no locks: see `is_held`.
    """
    descriptor = None
    if not is_held(ledger):
        descriptor = _next_turn(ledger, is_needless)
    if descriptor is None:
        yield
        return
    _HELD[ledger] = threading.get_ident()
    try:
        yield
    finally:
        # A child that was forked in between has let go of it.
        if _HELD.pop(ledger, None) is not None:
            with suppress(OSError):
                _remove_files(ledger)
            _close(descriptor)


def _next_turn(ledger: Path, is_needless: Callable[[], bool]) -> int | None:
    """Return the descriptor of the locked turn, once it has come; None where none can be had or is needed."""
    first = _lock(Path(f"{ledger}{_QUEUE}"), is_needless)
    if first is None:
        return None
    try:
        return _lock(Path(f"{ledger}{SUFFIX}"), is_needless)
    finally:
        _close(first)


def _remove_files(ledger: Path) -> None:
    """Remove both files, which are locked, so that they are still these; while others wait, they are theirs."""
    queue = Path(f"{ledger}{_QUEUE}")
    first = _open(queue)
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Path(f"{ledger}{SUFFIX}").unlink()
        queue.unlink()
    finally:
        _close(first)


def _lock(file: Path, is_needless: Callable[[], bool]) -> int | None:
    """Return the descriptor of the locked file, once it is the one that has the name; None where none can be had."""
    with suppress(OSError):  # no file can be made there, or its disk has no locks
        while True:
            with ExitStack() as unless_locked:
                descriptor = _open(file)
                unless_locked.callback(_close, descriptor)
                if not _is_free(descriptor) and is_needless():
                    return None
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):  # it went with the turn of another release
                    if os.path.samestat(os.fstat(descriptor), file.lstat()):
                        unless_locked.pop_all()
                        return descriptor
    return None


def _open(file: Path) -> int:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _OPEN.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    _OPEN.discard(descriptor)
    os.close(descriptor)


def _is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _LOGGER.info("Waiting for another release through this ledger to end.")
        return False
    return True
