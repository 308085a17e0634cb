import os
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
import warnings
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
from tutelage.exceptions import TeacherTrainingError
from tutelage.partition import Shards
from tutelage.teachers import EstimatorTeachers
from tutelage.teachers.parallel import ONE_BLAS_THREAD, isolated_result

KEY = b"a key of 32 bytes for the tests."
TEACHERS = 12
CLUSTERS = [pytest.param(name, marks=pytest.mark.rest) for name in ("dask", "ray")]
BACK_ENDS = ["sequential", "threading", "loky", *CLUSTERS]
LETHAL = 99.0


class OfFolder(DecisionTreeClassifier):
    def __init__(self, folder=None, random_state=None):
        super().__init__(random_state=random_state)
        self.folder = folder


class Fatal(OfFolder):
    """A classifier that notes each training in a folder, and kills its process for marked rows while a file says so.

    If there is a file `patient`, it first waits until another teacher is in the folder `checkpoints`.
    """

    def fit(self, X, y, sample_weight=None, check_input=True):
        folder = Path(str(self.folder))
        (folder / "trained" / uuid.uuid4().hex).touch()
        if (folder / "lethal").exists() and (X == LETHAL).any():
            if (folder / "patient").exists():
                until(lambda: any((folder / "checkpoints").glob("*.npz")))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


class Patient(OfFolder):
    """A classifier of which the first few are trained, three at least, and all others once there is a file `go`."""

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


@pytest.mark.rest
@pytest.mark.parametrize("back_end", ["loky", *CLUSTERS])
def test_a_teacher_that_kills_its_process_ends_the_fit_and_the_same_call_resumes(
    back_end, on, rows, tmp_path, capfd
):
    X, _, shards = rows
    X[shards.rows[8][0], 0] = LETHAL
    expected = ballots(rows, DecisionTreeClassifier())
    lethal, trained, checkpoints = (
        tmp_path / name for name in ("lethal", "trained", "checkpoints")
    )
    lethal.touch()
    trained.mkdir()
    if back_end != "ray":  # which has no result before all are there
        (tmp_path / "patient").touch()
    with on(back_end):
        with pytest.raises(TeacherTrainingError, match="A process that trains") as caught:
            ballots(rows, Fatal(str(tmp_path)), checkpoints=checkpoints)
        finished = len(list(checkpoints.glob("*.npz")))
        assert finished < TEACHERS
        assert (finished > 0) == (back_end != "ray")
        # Neither a row nor a number of a teacher comes out.
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert not any(character.isdigit() for character in str(caught.value))
        assert str(int(LETHAL)) not in capfd.readouterr().err.replace(str(tmp_path), "")

        lethal.unlink()
        for training in trained.iterdir():
            training.unlink()
        resumed = ballots(rows, Fatal(str(tmp_path)), checkpoints=checkpoints)
    assert np.array_equal(resumed, expected)
    assert len(list(trained.iterdir())) == TEACHERS - finished


@pytest.mark.rest
def test_each_fit_over_dask_ends_if_a_worker_dies(on, dask_client, rows, tmp_path):
    X, _, shards = rows
    X[shards.rows[8][0], 0] = LETHAL
    (tmp_path / "lethal").touch()
    (tmp_path / "trained").mkdir()
    with on("dask"):
        for _ in range(2):
            dask_client.wait_for_workers(2)  # over one worker, joblib trains in this process
            with pytest.raises(TeacherTrainingError, match="A process that trains"):
                ballots(rows, Fatal(str(tmp_path)))


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
        os._exit(0 if isolated_result(0, 0, int, "7") == 7 else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert status == 0
