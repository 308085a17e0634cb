"""Work on all processors: the same results in the same order, and few items at once."""

import sys
import threading
import warnings
from types import ModuleType

import numpy as np
import pytest
from joblib import cpu_count
from threadpoolctl import ThreadpoolController, threadpool_info

from tutelage._internal import threads
from tutelage._internal.threads import QUIET, on_all_cores, one_thread
from tutelage.features.rowwise import in_chunks


def test_results_come_in_the_order_of_the_items_from_several_threads():
    started = threading.Barrier(min(2, cpu_count()), timeout=60)
    names = list(
        on_all_cores(
            lambda item: (item, started.wait(), threading.current_thread().name), range(10)
        )
    )
    assert [item for item, _, _ in names] == list(range(10))
    assert len({name for _, _, name in names}) == min(2, cpu_count())


def test_few_items_are_taken_before_their_results_are():
    taken, done = [], 0

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    for item in on_all_cores(lambda item: item, items()):
        assert len(taken) - done <= cpu_count() + 1
        done += 1
        assert item == done - 1
    assert done == 100


def test_work_within_work_stays_in_its_thread():
    def inner(_):
        own = threading.current_thread().name
        return all(
            name == own
            for name in on_all_cores(lambda _: threading.current_thread().name, range(5))
        )

    assert list(on_all_cores(inner, range(5))) == [True] * 5
    rows = np.arange(5000.0).reshape(-1, 1)
    for found in on_all_cores(lambda _: in_chunks(lambda some: 2 * some, rows), range(2)):
        assert np.array_equal(found, 2 * rows)


def test_an_error_comes_out_and_ends_the_work():
    def fail(item):
        if item == 3:
            raise KeyError(item)
        return item

    with pytest.raises(KeyError):
        list(on_all_cores(fail, iter(range(10**9))))


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


def test_libraries_with_threads_are_looked_for_again_only_after_an_import(monkeypatch):
    looked = []
    monkeypatch.setattr(
        threads, "ThreadpoolController", lambda: looked.append(1) or ThreadpoolController()
    )
    threads._controller.cache_clear()
    for _ in range(3):
        with one_thread("blas"):
            used = [
                library["num_threads"]
                for library in threadpool_info()
                if library["user_api"] == "blas"
            ]
            assert used == [1] * len(used) != []
    assert len(looked) == 1
    monkeypatch.setitem(sys.modules, "imported_since", ModuleType("imported_since"))
    with one_thread():
        assert {library["num_threads"] for library in threadpool_info()} == {1}
    assert len(looked) == 2
