"""No warnings while private rows are worked on: a warning may quote them."""

import threading
import warnings
from contextlib import ExitStack


class _Quiet:
    """No warnings in this process while any thread is inside.

    Filters of warnings belong to the process. The first thread in sets them and the last one out restores them; if each
    thread restored its own, it would restore them for threads that are still inside.
    """

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
