import os
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
import warnings
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from joblib import effective_n_jobs, parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info

from processes import until
from tutelage._internal.streams import own_streams
from tutelage._internal.typing import ABSTAIN
from tutelage.exceptions import TeacherLostWarning, TeacherTrainingError
from tutelage.partition import Shards
from tutelage.teachers import EstimatorTeachers
from tutelage.teachers import parallel as teacher_workers
from tutelage.teachers.parallel import ONE_BLAS_THREAD, guarded

KEY = b"a key of 32 bytes for the tests."
TEACHERS = 12
CLUSTERS = [pytest.param(name, marks=pytest.mark.rest) for name in ("dask", "ray")]
BACK_ENDS = ["sequential", "threading", "loky", *CLUSTERS]
LETHAL = 99.0


class Fatal(DecisionTreeClassifier):
    """A classifier that kills its process where a row says so; where there is a marker file, only until that exists."""

    def __init__(self, marker=None, random_state=None):
        super().__init__(random_state=random_state)
        self.marker = marker

    def fit(self, X, y, sample_weight=None, check_input=True):
        lethal = (X == LETHAL).any(axis=0)
        first_time = self.marker is not None and not Path(self.marker).exists()
        if lethal[0] or (lethal[1] and first_time):
            Path(self.marker or os.devnull).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


class Patient(DecisionTreeClassifier):
    """A classifier of which the first few are trained, three at least, and all others once there is a file `go`."""

    def __init__(self, folder=None, random_state=None):
        super().__init__(random_state=random_state)
        self.folder = folder

    def fit(self, X, y, sample_weight=None, check_input=True):
        folder = Path(str(self.folder))
        before = len(list(folder.iterdir()))
        (folder / uuid.uuid4().hex).touch()
        if before >= 3:
            until((folder / "go").exists)
        return super().fit(X, y)


class Crowded(ClassifierMixin, BaseEstimator):
    """A classifier that predicts 1 if it was let work in parallel or on several threads, and 0 if not."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        np.linalg.eigvalsh(np.ones((200, 200)))  # so that teachers overlap
        pools = {pool["user_api"]: pool["num_threads"] for pool in threadpool_info()}
        self.crowded_ = effective_n_jobs(2) > 1 or max(pools.values()) > 1
        return self

    def predict(self, X):
        return np.full(len(X), int(self.crowded_))


class Exhausted(DecisionTreeClassifier):
    """A classifier that quotes its rows, and finds no memory for shards that have a marked row."""

    def fit(self, X, y, sample_weight=None, check_input=True):
        warnings.warn(f"the row of Mrs Miller is {X[0]}", stacklevel=1)
        if (X == LETHAL).any():
            raise MemoryError(f"the row of Mrs Miller is {X[0]}")
        return super().fit(X, y)


@pytest.fixture(scope="module")
def ray_cluster():
    ray, joining = pytest.importorskip("ray"), pytest.importorskip("ray.util.joblib")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        variables = {"PYTHONPATH": str(Path(__file__).parent)}
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": variables},
        )
    joining.register_ray()
    yield
    ray.shutdown()


@pytest.fixture
def on(request):
    """Return a context in which teachers are trained by the named back end."""

    @contextmanager
    def chosen(name):
        if name == "dask":
            request.getfixturevalue("dask_client").wait_for_workers(2)
        elif name == "ray":
            request.getfixturevalue("ray_cluster")
        with parallel_config(backend=name, n_jobs=2):
            yield

    return chosen


@pytest.fixture
def rows(binary_rows):
    X, y = binary_rows
    return X.copy(), y, Shards.of_rows(len(y), TEACHERS, key=KEY)


def ballots(rows, estimator, **options):
    X, y, shards = rows
    queries = np.random.default_rng(4).uniform(size=(30, 4))
    return EstimatorTeachers(estimator, n_classes=2, seed=0).fit_ballots(
        X, y, shards, queries, **options
    )


@pytest.mark.rest
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_votes_are_the_same_with_every_back_end_and_a_teacher_works_on_one_thread(
    back_end, on, rows
):
    forest = RandomForestClassifier(3, n_jobs=2)
    expected = ballots(rows, forest)
    with on(back_end):
        before = threadpool_info()
        assert np.array_equal(ballots(rows, forest), expected)
        assert not ballots(rows, Crowded()).any()
        assert threadpool_info() == before


def test_the_last_thread_out_undoes_what_the_first_one_in_did():
    before, second_is_in, first_is_out = threadpool_info(), threading.Event(), threading.Event()

    def second():
        with ONE_BLAS_THREAD:
            second_is_in.set()
            first_is_out.wait()

    thread = threading.Thread(target=second)
    with ONE_BLAS_THREAD:
        thread.start()
        second_is_in.wait()
        assert (
            max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
            == 1
        )
    first_is_out.set()
    thread.join()
    assert threadpool_info() == before


@pytest.mark.parametrize("back_end", ["loky", *CLUSTERS])
def test_no_teacher_abstains_for_lack_of_memory_and_no_message_comes_out(back_end, on, rows, capfd):
    X, _, shards = rows
    X[shards.rows[3][0], 0] = LETHAL
    with (
        on(back_end),
        pytest.raises(TeacherTrainingError, match="of shard 3 raised MemoryError") as caught,
    ):
        ballots(rows, Exhausted())
    assert "Miller" not in str(caught.value) + capfd.readouterr().err


def dying(rows, marker):
    """Put a row into one shard that always kills its teacher, and into another one that does so once."""
    X, _, shards = rows
    always, once = shards.rows[3][0], shards.rows[8][0]
    X[always, 0], X[once, 1] = LETHAL, LETHAL
    expected = ballots(rows, DecisionTreeClassifier())
    expected[3] = ABSTAIN
    return Fatal(str(marker)), expected


@pytest.mark.rest
@pytest.mark.parametrize("back_end", ["loky", *CLUSTERS])
def test_a_teacher_that_always_kills_its_process_abstains_and_no_other_does(
    back_end, on, rows, tmp_path, monkeypatch
):
    monkeypatch.setattr(teacher_workers, "TRIES_ALONE", 2)
    fatal, expected = dying(rows, tmp_path / "marker")
    with (
        on(back_end),
        pytest.warns(TeacherLostWarning, match="At least one teacher abstains") as caught,
    ):
        found = ballots(rows, fatal, checkpoints=tmp_path / "checkpoints")
    assert (tmp_path / "marker").exists()
    assert np.array_equal(found, expected)
    assert not any(character.isdigit() for character in str(caught[0].message))
    kept = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert kept == {f"teacher-{number:06d}.npz" for number in range(TEACHERS) if number != 3}


def test_a_verdict_is_reached_with_no_other_teacher_in_flight(monkeypatch):
    """Stand in for a back end on which everything in flight, four at a time, is lost as soon as teacher 5 starts."""
    calls = []

    def crew(job, numbers, started):
        calls.append(numbers)
        for first in range(0, len(numbers), 4):
            in_flight = numbers[first : first + 4]
            started.update(in_flight)
            if 5 in in_flight and job.shared:
                raise CancelledError
            for number in in_flight:
                started.discard(number)
                yield number, job.work(*job.own(number), *job.shared)

    job = teacher_workers.Job(
        lambda number, sign: sign * number, own=lambda number: (number,), shared=(-1,), seed=0
    )
    monkeypatch.setattr(teacher_workers, "_crew", lambda n_jobs: crew)
    with pytest.warns(TeacherLostWarning):
        found = dict(teacher_workers.train_each(job, range(TEACHERS), 2))
    assert found == {number: -number for number in range(TEACHERS) if number != 5}
    alone = [numbers[0] for numbers in calls if len(numbers) == 1]
    # And once to see that workers work.
    assert sorted(alone) == [4, *[5] * (teacher_workers.TRIES_ALONE + 1), 6, 7]


@pytest.mark.parametrize("where", ["before a teacher starts", "whatever a teacher does"])
def test_where_nobody_can_work_at_all_the_reason_comes_out(where, monkeypatch):
    def crew(job, numbers, started):
        if where == "whatever a teacher does":
            started.update(numbers)
        raise CancelledError("no worker is left")
        yield

    job = teacher_workers.Job(print, own=lambda number: (), shared=(), seed=0)
    monkeypatch.setattr(teacher_workers, "_crew", lambda n_jobs: crew)
    with pytest.raises(CancelledError, match="no worker is left"):
        list(teacher_workers.train_each(job, range(3), 2))


@pytest.mark.rest
def test_an_interrupt_gets_through_and_leaves_no_worker_behind(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
            import os, signal, sys
            from pathlib import Path
            import numpy as np
            from processes import command_of, descendants
            from test_teacher_workers import Patient, Shards, EstimatorTeachers

            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind it

            X = np.random.default_rng(0).uniform(size=(300, 2))
            shards = Shards.of_rows(300, 100, key=bytes(16))
            teachers = EstimatorTeachers(Patient(sys.argv[2]), n_classes=2, seed=0, n_jobs=2)
            try:
                teachers.fit_ballots(X, (X[:, 0] > 0.5).astype(int), shards, X, Path(sys.argv[1]))
            except KeyboardInterrupt:
                sys.exit(any("LokyProcess" in command_of(pid) for pid in descendants(os.getpid())))
        """)
    )
    folder, marks = tmp_path / "checkpoints", tmp_path / "marks"
    marks.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder), str(marks)], env=environment
    )
    until(lambda: len(list(folder.glob("*.npz"))) >= 3, process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert 3 <= len(list(folder.glob("*.npz"))) < 20


def test_a_child_forked_while_another_thread_trains_is_not_locked_out():
    inside, done = threading.Event(), threading.Event()

    def train():
        with own_streams(0, 0), ONE_BLAS_THREAD:
            inside.set()
            done.wait(30)

    thread = threading.Thread(target=train)
    thread.start()
    inside.wait(30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 on: forking beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for a lock for ever is killed
        os._exit(0 if guarded(0, 0, int, "7") == 7 else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert status == 0
