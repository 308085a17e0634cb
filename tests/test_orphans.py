"""Workers end with the process that started them, however that ends."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from processes import descendants, until, wait_for_end

SCRIPT = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    from threading import Event
    import numpy as np
    from joblib import parallel_config
    from sklearn.tree import DecisionTreeClassifier
    from tutelage.partition import Shards
    from tutelage.teachers import EstimatorTeachers

    class Quick(DecisionTreeClassifier):
        def fit(self, X, y):
            Path(str(os.getpid())).touch()
            return super().fit(X, y)

    class Endless(Quick):
        def fit(self, X, y):
            super().fit(X, y)
            Event().wait()

    if __name__ == "__main__":
        X, shards = np.eye(40), Shards.of_rows(40, 20, key=bytes(16))
        with parallel_config(backend=sys.argv[1]):
            teachers = EstimatorTeachers(globals()[sys.argv[2]](), n_classes=2, seed=0, n_jobs=2)
            teachers.fit_ballots(X, np.arange(40) % 2, shards, X)
        Path("done").touch()
        Event().wait()
""")


@pytest.mark.rest
@pytest.mark.parametrize(("back_end", "estimator", "number"), [
    ("loky", "Endless", signal.SIGKILL),
    ("loky", "Quick", signal.SIGTERM),
    ("multiprocessing", "Endless", signal.SIGKILL),
])  # fmt: skip
def test_no_worker_outlives_the_process_that_trains(back_end, estimator, number, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, "train.py", back_end, estimator], cwd=tmp_path)
    if estimator == "Endless":
        until(
            lambda: len([path for path in tmp_path.iterdir() if path.name.isdigit()]) == 2, process
        )
    else:  # the workers have nothing to do any more
        until((tmp_path / "done").exists, process)
    workers = descendants(process.pid)
    assert len(workers) >= 2
    os.kill(process.pid, number)
    process.wait()
    for worker in workers:
        wait_for_end(worker)


@pytest.mark.rest
def test_a_worker_that_starts_after_its_parent_ended_ends_too(tmp_path):
    """A process whose parent is another one than the one it was started by is an orphan already."""
    script = (
        "import os; from tutelage.teachers.parallel import _exit_after; _exit_after(os.getpid())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
