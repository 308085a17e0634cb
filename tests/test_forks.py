"""A child forked while other threads are at work finds no lock that nobody will release."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest

from tutelage._internal.forks import BriefLock, LongLock

LIMIT = 120  # seconds after which a child that waits for ever is killed: the test's own limit

# Each does again and again what children do once.
WORK = {
    "noise": """
        from tutelage.noise import SystemNoise
        def work(): SystemNoise().discrete_gaussian(20.0, (300,))
        work()
    """,
    # The first draw imports OpenDP, so children are forked in the middle of an import.
    "first noise": """
        from tutelage.noise import SystemNoise
        def work(): SystemNoise().discrete_gaussian(20.0, (300,))
    """,
    "winners": """
        import numpy as np
        from tutelage.noise import SystemNoise
        def work(): SystemNoise().gumbel_argmax(np.zeros((100, 10), int), 3.0)
        work()
    """,
    "simulated noise": """
        from tutelage.noise import SimulationNoise
        noise = SimulationNoise(seed=0)
        def work(): noise.discrete_gaussian(20.0, (30_000,))
        work()
    """,
    "random streams": """
        import numpy as np
        from tutelage.teachers.parallel import guarded
        def work(): guarded(0, 0, lambda: np.random.standard_normal(300_000))
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
        from tutelage.federation.mpc.runtime import load_mpyc
        def work():
            for name in [name for name in sys.modules if name.startswith("mpyc")]:
                sys.modules.pop(name, None)
            load_mpyc()
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


def ended_well(kind, children, threads):
    """Return how many of so many children ended well."""
    work = textwrap.dedent(WORK[kind])
    script = SCRIPT.format(work=work, threads=threads, children=children, limit=LIMIT)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


# Without these locks a child waits for ever with a probability of 0.2 to 1. So many children leave that unseen with
# probability 0.8⁴⁰ = 1e-4 at most; with the locks no child can wait.
@pytest.mark.parametrize(
    ("kind", "children", "threads"),
    [
        ("noise", 40, 3),
        ("first noise", 8, 2),
        pytest.param("winners", 30, 3, marks=pytest.mark.rest),
        pytest.param("simulated noise", 10, 3, marks=pytest.mark.rest),
        pytest.param("random streams", 10, 3, marks=pytest.mark.rest),
        pytest.param("features", 10, 2, marks=pytest.mark.rest),
        ("computing parties", 4, 1),
        pytest.param("workers", 1, 0, marks=pytest.mark.rest),
    ],
)
def test_no_child_waits_for_a_thread_of_its_parent(kind, children, threads):
    if kind == "computing parties":
        pytest.importorskip("mpyc")
    assert ended_well(kind, children, threads) == children


def child_of_a_thread(lock, seen):
    """Return how a child ended that was forked while another thread held `lock`, and found `seen` whole."""
    inside, forking = threading.Event(), threading.Event()

    def hold():
        with lock:
            seen.append("half")
            inside.set()
            forking.wait()
            seen.append("whole")

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    forking.set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        with lock, lock:
            os._exit(0 if seen == ["half", "whole"] else 1)
    thread.join()
    return os.waitpid(child, 0)[1]


def test_a_fork_waits_for_brief_work():
    assert child_of_a_thread(BriefLock(), []) == 0


def test_long_work_of_another_thread_is_not_waited_for():
    lock, inside, over = LongLock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            inside.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        with lock:
            os._exit(0)
    over.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_who_forks_inside_long_work_stays_inside():
    lock = LongLock()
    with lock:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            lock.__exit__()  # raises where the child does not hold it
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
