"""One release at a time through a ledger: a release that waits for its turn finds the answers of the one before.

The turn is a lock on a file beside the ledger, which the system lets go of however a process ends. The file goes with
the turn; one that a killed process left is taken by the next. The ledger's own file is not locked: closing it would
drop the locks that SQLite holds on it in this process.
"""

import fcntl
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX = ".turn"  # follows the name of the ledger's file
_LOGGER = logging.getLogger(__name__)


@contextmanager
def turn(ledger: Path) -> Generator[bool]:
    """Wait until no other release goes on through a ledger, and hold off others until the block ends.

    It yields whether others are held off: not where no file can be made beside the ledger, or its disk has no locks.
    """
    file = Path(f"{ledger}{SUFFIX}")
    descriptor = _locked(file)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):
                file.unlink()  # while it is locked, so that it is still this one
            os.close(descriptor)


def _locked(file: Path) -> int | None:
    """Return the descriptor of the locked file, once it is the one that has the name; None where none can be had."""
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            _wait_for(descriptor)
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


def _wait_for(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _LOGGER.info("Waiting for another release through this ledger to end.")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
