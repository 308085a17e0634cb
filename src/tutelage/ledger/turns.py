"""One release at a time through a ledger: a release that waits for its turn finds the answers of the one before.

The turn is a lock on a file beside the ledger, which the system lets go of however its process ends. A forked child
closes its copy of the lock at once. The file goes with the turn; one that a killed process left is taken by the next.
The ledger's own file is not locked: closing it would drop the locks that SQLite holds on it in this process.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tutelage._internal.forks import repair_in_child

SUFFIX = ".turn"  # follows the name of the ledger's file
_LOGGER = logging.getLogger(__name__)


_HELD = dict[Path, tuple[int, int]]()  # the thread of this process that holds each turn, and the lock's descriptor


def _let_go_in_child() -> None:
    for _, descriptor in _HELD.values():
        os.close(descriptor)
    _HELD.clear()


repair_in_child(_let_go_in_child)


def is_held(ledger: Path | None) -> bool:
    """Return whether this thread holds the turn of a ledger."""
    return ledger is not None and _HELD.get(ledger, (0, 0))[0] == threading.get_ident()


@contextmanager
def turn(ledger: Path, is_needless: Callable[[], bool]) -> Generator[None]:
    """Wait until no other release goes on through a ledger, and hold off others until the block ends.

    If it would have to wait, and the turn is needless, it goes on without. No other release is held off where no file
    can be made beside the ledger, or its disk has no locks: see `is_held`.
    """
    file = Path(f"{ledger}{SUFFIX}")
    descriptor = None if is_held(ledger) else _locked(file, is_needless)
    if descriptor is None:
        yield
        return
    _HELD[ledger] = threading.get_ident(), descriptor
    try:
        yield
    finally:
        if _HELD.pop(ledger, None) is not None:  # a child that was forked in between has let go of it
            with suppress(OSError):
                file.unlink()  # while it is locked, so that it is still this one
            os.close(descriptor)


def _locked(file: Path, is_needless: Callable[[], bool]) -> int | None:
    """Return the descriptor of the locked file, once it is the one that has the name; None where none can be had."""
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            if not _is_free(descriptor) and is_needless():
                os.close(descriptor)
                return None
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), file.lstat()):
                return descriptor
        except FileNotFoundError:  # it went with the turn of another release
            pass
        except OSError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _LOGGER.info("Waiting for another release through this ledger to end.")
        return False
    return True
