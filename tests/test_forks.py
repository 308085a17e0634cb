"""A child forked while other threads are at work finds no lock that nobody will release."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest

from processes import forked
from tutelage._internal.forks import BriefLock, LongLock

LIMIT = 120  # seconds after which a child that waits for ever is killed: the test's own limit

# Each does again and again what children do once.
NOISE = """
        from tutelage.noise import SystemNoise
        def work(): SystemNoise().discrete_gaussian(20.0, (300,))
"""
WORK = {
    "first noise": NOISE,  # it imports OpenDP, so children are forked in the middle of an import
    "noise": f"{NOISE}        work()",
    "simulated noise": """
        from tutelage.noise import SimulationNoise
        noise = SimulationNoise(seed=0)
        def work(): noise.discrete_gaussian(20.0, (30_000,))
        work()
    """,
    "random streams": """
        import numpy as np
        from tutelage.teachers.parallel import isolated_result
        def work(): isolated_result(0, 0, lambda: np.random.standard_normal(300_000))
        work()
    """,
    "features": """
        import numpy as np
        from tutelage.features import PublicPCA, PublicRows
        X = np.random.default_rng(0).normal(size=(2000, 20))
        features = PublicPCA.learn(PublicRows(X, "made up"), 5)
        def work(): features.transform(X)
        work()
    """,
    # MPyC is imported again each time.
    "computing parties": """
        from tutelage_consortium.mpc.runtime import _load_mpyc
        def work():
            for name in [name for name in sys.modules if name.startswith("mpyc")]:
                sys.modules.pop(name, None)
            _load_mpyc()
    """,
    # Threads train in the same worker processes; a child must start its own.
    "workers": """
        from tutelage.teachers.parallel import Job, train_each
        def work(): assert len(list(train_each(Job(len, lambda _: ((),), (), 0), range(6), 2))) == 6
        work()
    """,
}
SCRIPT = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")  # Python 3.12 on: forking beside threads

{work}

over = threading.Event()
def keep_working():
    while not over.is_set():
        work()

threads = [threading.Thread(target=keep_working) for _ in range({threads})]
for thread in threads:
    thread.start()
children = []
for _ in range({children}):
    time.sleep(0.02)  # at some place in the work of the threads, which nothing depends on
    child = os.fork()
    if child == 0:
        signal.alarm({limit})
        work()
        os._exit(0)
    children.append(child)
over.set()
for thread in threads:
    thread.join()
ended = [os.waitpid(child, 0)[1] for child in children]
print(ended.count(0))
"""


# Without these locks a child waits for ever with a probability of 0.2 to 1. So many children leave that unseen with
# probability 0.8²⁰ = 0.01 at most; with the locks no child can wait.
@pytest.mark.parametrize(("kind", "children", "threads"), [
    ("noise", 20, 3),
    pytest.param("first noise", 8, 2, marks=pytest.mark.rest),
    pytest.param("simulated noise", 10, 3, marks=pytest.mark.rest),
    pytest.param("random streams", 10, 3, marks=pytest.mark.rest),
    pytest.param("features", 10, 2, marks=pytest.mark.rest),
    ("computing parties", 4, 1),
    pytest.param("workers", 1, 0, marks=pytest.mark.rest),
])  # fmt: skip
def test_no_child_waits_for_a_thread_of_its_parent(kind, children, threads):
    if kind == "computing parties":
        pytest.importorskip("mpyc")
    script = SCRIPT.format(
        work=textwrap.dedent(WORK[kind]), threads=threads, children=children, limit=LIMIT
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == children


def child_doing(work) -> int:
    """Return the number of a child that does `work` in time, beside the threads of this process."""

    def in_time():
        signal.alarm(LIMIT)
        work()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return forked(in_time)


@pytest.mark.parametrize("lock", [BriefLock(), LongLock()], ids=["brief", "long"])
def test_a_fork_waits_for_brief_work_of_another_thread_and_not_for_long(lock):
    inside, over, seen = threading.Event(), threading.Event(), []

    def hold():
        with lock:
            seen.append("half")
            inside.set()
            over.wait()
            seen.append("whole")

    def work():
        with lock, lock:
            assert seen == (["half", "whole"] if isinstance(lock, BriefLock) else ["half"])

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    if isinstance(lock, BriefLock):
        over.set()
    child = child_doing(work)
    over.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_who_forks_inside_long_work_stays_inside():
    lock = LongLock()
    with lock:
        child = child_doing(lock.__exit__)  # raises where the child does not hold it
    assert os.waitpid(child, 0)[1] == 0
