"""Waiting for other processes and threads, and killing them. The only limit on the wait is the test's own."""

import errno
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import tutelage
from tutelage._internal import outputs

# A checkout may have libraries in a folder of the same name.
PACKAGE = str(Path(tutelage.__file__).parent)


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


def ended(child: int) -> int:
    """Return the exit code of a child, once it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_once(*works: Callable[[], object]) -> list[int]:
    """Return the exit codes of children that do `works`, each of which begins when all children are there."""
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()

    def take_part(work: Callable[[], object]) -> None:
        os.close(go_write)
        os.write(ready_write, b"x")
        os.read(go_read, 1)  # until the parent closes the other end
        work()

    children = [forked(partial(take_part, work)) for work in works]
    for _ in children:
        os.read(ready_read, 1)
    for end in (go_write, go_read, ready_read, ready_write):
        os.close(end)
    return [ended(child) for child in children]


def die_at_line(line: int) -> None:
    """Kill this process before its line-th line of the package from now on, in functions that are called from here."""
    left = line

    def count(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return count

    sys.settrace(count)


_EVENTS = {
    "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod", "os.truncate", "fcntl.flock",
    "sqlite3.connect",
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def die_at_event(event: int, folder: Path, *, full: bool = False) -> None:
    """Kill this process, for good, before its event-th event of a file in a folder: made, opened for writing, synced,
    renamed, exchanged, locked, removed, or a statement of SQLite that is no query.

    If `full`, let the disk be full from then on instead: nothing can be made, opened for writing or synced.
    """
    left = event

    def tick(*, grows: bool = False) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not full:
            os.kill(os.getpid(), signal.SIGKILL)
        if left <= 0 and full and grows:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def heard(name: str, given: tuple) -> None:
        if name == "open":
            path, _, flags = given
            if (
                isinstance(path, str | os.PathLike)
                and flags & _WRITING
                and Path(path).absolute().is_relative_to(folder)
            ):
                tick(grows=True)
        elif name in _EVENTS:
            tick(grows=name in ("os.mkdir", "os.link"))

    class Counted(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> Any:
            if not sql.lstrip().startswith(("SELECT", "PRAGMA")):
                tick()
            return super().execute(sql, *given)

        def executemany(self, sql: str, *given: Any) -> Any:
            tick()
            return super().executemany(sql, *given)

    def counting(done: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            tick(grows=done is sync)
            return done(*given)

        return count

    connect, sync = sqlite3.connect, os.fsync
    sqlite3.connect = lambda *given, **options: connect(*given, factory=Counted, **options)
    os.fsync = counting(os.fsync)
    outputs._rename = counting(outputs._rename)
    sys.addaudithook(heard)


def surroundings() -> dict[str, str]:
    """Return the environment of a process that imports modules of tests, and the conftest that these import."""
    here = Path(__file__).parent
    of_hospitals = here.parent / "consortium" / "tests"
    paths = [here, of_hospitals, here.parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}


def called_by_itself(module: str, call: str, *arguments: object) -> str:
    """Return what a call of a test module prints, in a process of its own: forks of one that ran many tests are slow.

    `call` finds the arguments, as text, in `given`.
    """
    script = f"import sys; from {module} import *; given = sys.argv[1:]; {call}"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(
        command, env=surroundings(), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


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
