import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

# Threads that wait for others sleep: where processes outnumber cores, spinning only keeps them from getting done.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import hypothesis
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from tutelage.accounting.together import _FitsWithoutLedger
from tutelage.ballots import VoteHistogram
from tutelage.cli import main
from tutelage.noise import SimulationNoise, SystemNoise

pytest_plugins = ("core_seconds",)
REPOSITORY = Path(__file__).parent
GOLDEN = REPOSITORY / "tests" / "golden"

_FRESH: dict[tuple[str, str], Any] = {}  # states of the streams of modules once those are imported
_ROOM = 4 * 2**30  # bytes, several times what all tests together leave

hypothesis.settings.register_profile(
    "default", derandomize=True, database=None, deadline=None, max_examples=50
)
hypothesis.settings.register_profile("thorough", database=None, deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="Run files, and tests in files, in an order of a seed.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw an order of the files and of the tests in each: no test may need another before it."""
    if config.option.shuffle is not None:
        random = np.random.default_rng(config.option.shuffle)
        of_file = {path: random.random() for path in sorted({item.path for item in items})}
        of_item = {item: random.random() for item in items}
        items.sort(key=lambda item: (of_file[item.path], of_item[item]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let what a test draws from a stream of its module not depend on the tests before it."""
    module = getattr(item, "module", None)
    if module is None:  # a test of a page
        return
    for name, stream in vars(module).items():
        if isinstance(stream, np.random.Generator):
            bits = stream.bit_generator
            bits.state = _FRESH.setdefault((module.__name__, name), bits.state)


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory where there is room: a test of a killed process needs no disk to be synced."""
    memory = Path("/dev/shm")  # noqa: S108  pytest makes a folder there that is this user's alone
    if memory.is_dir() and shutil.disk_usage(memory).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


FITS_AGAIN = pytest.mark.filterwarnings("ignore::tutelage.exceptions.RepeatedFitWarning")
"""For tests that fit the same made-up rows several times, and are about something else."""


@pytest.fixture(autouse=True)
def _no_earlier_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test begin as a process does: what others fitted without a ledger is not counted."""
    monkeypatch.setattr("tutelage.release.WITHOUT_LEDGER", _FitsWithoutLedger())


@pytest.fixture
def public_rows_may_be_private(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let made-up rows be both, where a test is about something else."""
    monkeypatch.setattr("tutelage.preflight._rows_to_compare", lambda _: ())


@pytest.fixture
def data_folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data too large for the repository, where the developer has them; loaders look there too."""
    folder = Path(os.environ.get("TUTELAGE_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("set TUTELAGE_DATA to the folder with the development data")
    monkeypatch.setenv("TUTELAGE_DATA", str(folder))
    return folder


@pytest.fixture
def mnist_votes(data_folder: Path) -> VoteHistogram:
    """The votes of 250 teachers on MNIST that the authors of PATE published."""
    path = data_folder / "pate2018_votes.npz"
    if not path.is_file():
        pytest.skip("pate2018_votes.npz is not in TUTELAGE_DATA")
    return VoteHistogram.load(path, array="mnist_250_teachers")


@pytest.fixture(scope="module")
def dask_client():
    """Two workers, each a process of its own; a nanny starts one again when it dies."""
    dask, distributed = map(pytest.importorskip, ("dask", "distributed"))
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            2, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def binary_rows() -> tuple[np.ndarray, np.ndarray]:
    """400 rows of four features whose first decides between two classes."""
    X = np.random.default_rng(0).uniform(size=(400, 4))
    return X, (X[:, 0] > 0.5).astype(np.int64)


@pytest.fixture(autouse=True)
def _small_models(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let default students have few trees, and models of public labels few penalties: neither sees a private row."""
    if request.node.get_closest_marker("whole_models"):
        return
    monkeypatch.setattr(
        "tutelage.students.forest.RandomForestClassifier", partial(RandomForestClassifier, 8)
    )
    monkeypatch.setattr("tutelage.features.scored._PENALTIES", (1e-2,))
    monkeypatch.setattr("tutelage.features.scored._PENALTIES_OF_SIZES", (1.0, 1e2))


@pytest.fixture
def repeatable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise and shards that are the same in each run, for tests of what is learned under them."""
    if request.node.get_closest_marker("fresh_noise"):
        return
    source, seeded = SimulationNoise(0), np.random.SeedSequence
    for name in (
        name for name in vars(SimulationNoise) if not name.startswith("_") and name != "simulated"
    ):
        draw = getattr(source, name)
        monkeypatch.setattr(SystemNoise, name, lambda _, *arguments, draw=draw: draw(*arguments))
    monkeypatch.setattr(
        np.random,
        "SeedSequence",
        lambda entropy=None, **more: seeded(0 if entropy is None else entropy, **more),
    )


@pytest.fixture
def short_trials(monkeypatch):
    """Plan from halves in place of fifths, where only the form of a plan matters."""
    monkeypatch.setattr("tutelage.planning.trials.N_FOLDS", 2)


@pytest.fixture
def called(monkeypatch, capsys):
    """The command line called in this process, where what is tested is not the process."""

    def call(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        if cwd is not None:
            monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["tutelage", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(
            list(map(str, arguments)), code, printed.out, printed.err
        )

    return call


@pytest.fixture
def in_this_process(request, called, monkeypatch):
    """Let `tutelage` of a test module call the command line without a process, unless it asks for options of one."""
    in_a_process = request.module.tutelage

    def call(
        *arguments: object, cwd: Path | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        return (
            in_a_process(*arguments, cwd=cwd, **options) if options else called(*arguments, cwd=cwd)
        )

    for module in (request.module, sys.modules["test_cli"]):  # whose helpers call it too
        monkeypatch.setattr(module, "tutelage", call)
