"""Waiting for other processes and threads. The only limit on the wait is the test's own."""

import os
import select
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def until(condition: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Return when `condition` holds; fail if `process` ends before."""
    while not condition():
        assert process is None or process.poll() is None, "the process ended too early"
        time.sleep(0.01)


def forked(work: Callable[[], object]) -> int:
    """Return the number of a child that does `work` and ends: with 0, or with 1 where it raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:  # or the error would go on in a copy of pytest
            os._exit(code)
    return child


def wait_for_end(pid: int) -> None:
    """Return when no process of this number is alive."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([descriptor], [], [])
    os.close(descriptor)


def descendants(pid: int) -> list[int]:
    """Return all processes that a process started, and those that these started."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread or a process may end meanwhile
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def command_of(pid: int) -> str:
    """Return the command line of a process; nothing if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
