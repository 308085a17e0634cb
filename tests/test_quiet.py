"""No warning of work on private rows, whoever else is at work."""

import threading
import warnings

from tutelage._internal.quiet import QUIET


def test_no_warning_escapes_while_any_thread_is_inside_and_the_filters_come_back(recwarn):
    before, first_out, second_in = list(warnings.filters), threading.Event(), threading.Event()

    def other() -> None:
        with QUIET:
            second_in.set()
            first_out.wait()
            warnings.warn("a private row", UserWarning, stacklevel=1)

    worker = threading.Thread(target=other)
    with QUIET:
        worker.start()
        second_in.wait()
    first_out.set()
    worker.join()
    assert not recwarn
    assert warnings.filters == before
