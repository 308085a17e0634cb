"""kill -9 all along `ask`: no answer is ever without its debit, and asking again says the same."""

import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from processes import called_by_itself, die_at_line, surroundings
from test_cli import tutelage
from tutelage import ConfidentGNMax, LabelingSession, Ledger, SystemNoise, VoteHistogram
from tutelage.accounting.filter import RenyiFilter
from tutelage.events import NoisyArgmaxGaussian, Repeated
from tutelage.exceptions import BudgetExceededError
from tutelage.privacy import ONE_TEACHER

MECHANISM = ConfidentGNMax(threshold=150.0, sigma_threshold=60.0, sigma_vote=40.0)
COUNTS = np.array([[110, 100, 40], [90, 80, 80], [200, 30, 20], [84, 83, 83]])
EPSILON, DELTA = 40.0, 1e-5


def session(path: Path, queries: int, timeout: float = 60.0) -> LabelingSession:
    votes = VoteHistogram(np.resize(COUNTS, (queries, 3)), 250)
    return LabelingSession(votes, MECHANISM, Ledger.open(path, timeout=timeout))


def rows(batch: int, queries: int) -> np.ndarray:
    return np.arange(queries * 2.0).reshape(queries, 2) + 1000 * batch


def charged(path: Path) -> tuple[int, int, int]:
    """Return queries reserved, queries answered, and grains spent, from the entries alone, verified."""
    ledger = Ledger.open(path)
    state = ledger.verify()
    entries = ledger.export()
    reserved = sum(entry["queries"] for entry in entries if entry["kind"] == "reserved")
    assert state.answers == sum(entry["answers"] for entry in entries if entry["kind"] == "answered")
    return reserved, state.answers, entries[-1]["spent"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Ledger.create(tmp_path / "a.ledger", epsilon=EPSILON, delta=DELTA, unit=ONE_TEACHER)
    load()
    return tmp_path / "a.ledger"


def load() -> None:
    """Do before the forks what is done once per process: load the noise library, compute the costs."""
    SystemNoise().discrete_gaussian(1.0, (1,))
    RenyiFilter.suited_to(EPSILON, DELTA).cost(MECHANISM.event_of_one(3, ONE_TEACHER, simulated=False))


def killed_at_line(path: Path, line: int) -> tuple[bool, bytes]:
    """Ask in a process that is killed before its line-th line of ours; return whether it was, and its answers."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        asking = session(path, 4)
        die_at_line(line)
        labels = asking.ask(rows(0, 4)).labels
        sys.settrace(None)
        os.write(write, bytes((labels + 1).tolist()))
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        answers = pipe.read()
    return answers == b"", answers


def kill_every(step: int, path: Path) -> None:
    """Ask in one process after the other, each killed so many lines later than the last, until one survives.

    The first is killed at any of the first lines: runs of the tests together try every line.
    """
    fresh = path.read_bytes()
    line, died, states = secrets.randbelow(step) + 1 - step, True, Counter()
    while died:
        line += step
        attempt = path.with_name(f"{line}.ledger")
        attempt.write_bytes(fresh)
        died, answers = killed_at_line(attempt, line)
        reserved, answered, spent = charged(attempt)
        states[reserved, answered] += 1
        assert answered <= reserved  # whatever came out, or can come out, is paid
        assert (spent > 0) == (reserved > 0)
        replayed = bytes((session(attempt, 4).ask(rows(0, 4)).labels + 1).tolist())
        assert charged(attempt)[:2] == (4, 4)  # a step that was paid for is not paid for again
        if answered:
            assert charged(attempt)[2] == spent
        if not died:
            assert replayed == answers
        attempt.unlink()  # beside which the next copy could not be used
    assert states.total() > 400 / step
    assert set(states) == {(0, 0), (4, 0), (4, 4)}  # kills fell before the debit, after it, and after the answer
    assert min(states.values()) > 10 / step
    sys.stdout.write(f"{states.total()} kills: {dict(states)}")


@pytest.mark.parametrize(
    "step", [67, pytest.param(23, marks=pytest.mark.rest), pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_process_killed_at_any_line_of_ask_leaves_no_answer_without_a_debit(step, path):
    call = "load(); kill_every(int(given[0]), Path(given[1]))"
    assert " kills: " in called_by_itself("test_ledger_crashes", call, step, path)


@pytest.mark.rest
def test_processes_killed_at_random_moments_replay_what_they_said(path, tmp_path):
    random, said = np.random.default_rng(0), tmp_path / "said"
    kills, began = 60, time.perf_counter()
    session(path, 4).ask(rows(100 * kills, 4))
    while_a_few_are_answered = max(0.05, 3 * (time.perf_counter() - began))
    for attempt in range(kills):
        started, start = os.pipe()
        child = os.fork()
        if child == 0:
            with said.open("ab", buffering=0) as out:
                asking = session(path, 4)
                os.write(start, b"x")
                for batch in range(attempt * 100, attempt * 100 + 100):
                    labels = asking.ask(rows(batch, 4)).labels
                    out.write(np.array([batch, *labels], dtype=np.int64).tobytes())
                os._exit(0)
        os.read(started, 1)
        time.sleep(random.uniform(0, while_a_few_are_answered))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(started)
        os.close(start)
    reserved, answered, spent = charged(path)
    released = np.frombuffer(said.read_bytes(), dtype=np.int64).reshape(-1, 5)
    assert len(released) > 10
    assert 4 * len(released) <= answered <= reserved <= answered + 4 * kills
    replay = session(path, 4)
    for batch, *labels in released.tolist():
        assert replay.ask(rows(batch, 4)).labels.tolist() == labels
    assert charged(path)[2] == spent


@pytest.mark.rest
def test_a_write_that_a_crash_cut_short_in_the_file_is_undone(path):
    ledger = Ledger.open(path)
    ledger.reserve(NoisyArgmaxGaussian(40.0, 3, ONE_TEACHER), 1)
    before = ledger.verify()
    child = os.fork()
    if child == 0:
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute("PRAGMA cache_size = 1")  # so that pages are in the file before the commit
        raw.execute("BEGIN IMMEDIATE")
        for _ in range(2000):
            raw.execute("INSERT INTO answers VALUES (?, '[1]', 1)", (os.urandom(32),))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.with_name("a.ledger-journal").exists()
    assert tutelage("ledger", "verify", path, "--head", before.head).returncode == 0
    assert Ledger.open(path).verify() == before
    assert not path.with_name("a.ledger-journal").exists()


FAULTS = {"EIO": "error=EIO", "ENOSPC": "error=ENOSPC", "KILL": "signal=KILL"}
CALLS = ("pwrite64", "fsync", "fdatasync", "unlink", "ftruncate", "fallocate")
ASK = """
import sys
from pathlib import Path
from test_ledger_crashes import rows, session
from tutelage.exceptions import LedgerError
try:
    print(*session(Path(sys.argv[1]), 4).ask(rows(0, 4)).labels)
except LedgerError as error:
    print(type(error).__name__)
"""


def traced(path: Path, call: str, inject: str | None, log: Path) -> subprocess.CompletedProcess[str]:
    """Ask in a process of its own whose system calls on the ledger, its journal and its folder are watched."""
    watched = [option for name in (path, f"{path}-journal", path.parent) for option in ("-P", str(name))]
    # Room for the answers is a nameless file, which no path names; nothing else in this process allocates.
    watched = [] if call == "fallocate" else watched
    fault = [] if inject is None else ["-e", f"inject={call}:{inject}"]
    command = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={call}", *fault, *watched]
    command += [sys.executable, "-c", ASK, str(path)]
    return subprocess.run(command, env=surroundings(), capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("strace") is None, reason="faults in system calls are injected by strace")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_any_system_call_of_ask_leaves_no_answer_without_a_debit(fault, path):
    fresh, counts, outcomes = path.read_bytes(), Counter[str](), Counter[str]()
    for call in CALLS:
        clean, log = path.with_name(f"{call}.ledger"), path.with_name("log")
        clean.write_bytes(fresh)
        assert traced(clean, call, None, log).returncode == 0
        counts[call] = sum(f"{call}(" in line for line in log.read_text().splitlines())
        for place in range(1, counts[call] + 1):
            attempt = path.with_name(f"{call}-{place}.ledger")
            attempt.write_bytes(fresh)
            asked = traced(attempt, call, f"{FAULTS[fault]}:when={place}", log)
            assert (asked.returncode == -signal.SIGKILL) == (fault == "KILL")
            printed, (reserved, answered, spent) = asked.stdout.split(), charged(attempt)
            assert answered in (0, 4)
            assert answered <= reserved
            assert (spent > 0) == (reserved > 0)
            if len(printed) == 4:  # labels came out, so they are stored and come out again, at no cost
                assert answered == 4
            replayed = [str(label) for label in session(attempt, 4).ask(rows(0, 4)).labels]
            if answered:
                assert charged(attempt) == (reserved, answered, spent)
                assert printed in (replayed, [], ["LedgerStorageError"], ["LedgerTamperedError"])
            outcomes["answered" if answered else "paid, no answer" if reserved else "nothing spent"] += 1
    assert counts["pwrite64"] > 10
    assert counts["fdatasync"] + counts["fsync"] > 5
    assert counts["unlink"] == 3  # two journals, and the file of the turn
    assert counts["fallocate"] == 1
    assert {"nothing spent", "paid, no answer"} <= set(outcomes)
    sys.stdout.write(f"{fault} in each of {outcomes.total()} calls {dict(counts)}: {dict(outcomes)}\n")


def ask_until_killed_or_refused(path: Path, number: int, said: Path) -> None:
    """Ask small batches of rows that other processes ask too, and write down every label that came out."""
    random = np.random.default_rng([number, time.time_ns()])
    asking = session(path, 3, timeout=3000.0)  # 64 processes wait for one another, in no order
    with said.open("ab", buffering=0) as out:
        while True:
            batch = int(random.integers(4000))
            try:
                labels = asking.ask(rows(batch, 3)).labels
            except BudgetExceededError:
                os._exit(0)
            out.write(np.array([batch, *labels], dtype=np.int64).tobytes())


def raced_and_killed(folder: Path) -> None:
    """Keep 64 processes asking, kill 300 at random moments, let the others use up the budget, account for all of it."""
    random, path = np.random.default_rng(1), folder / "raced.ledger"
    one = MECHANISM.event_of_one(3, ONE_TEACHER, simulated=False)
    limit = RenyiFilter.holding(Repeated(one, 2000), DELTA)
    Ledger.create(path, epsilon=limit.epsilon, delta=DELTA, unit=ONE_TEACHER, order=limit.order)
    load()
    children: dict[int, int] = {}
    kills = started = 0

    def start() -> None:
        nonlocal started
        started += 1
        child = os.fork()
        if child == 0:
            ask_until_killed_or_refused(path, started, folder / f"said-{started}")
        children[child] = started

    for _ in range(64):
        start()
    while kills < 300 and children:
        victim = int(random.choice(list(children)))
        os.kill(victim, signal.SIGKILL)
        child, status = os.waitpid(victim, 0)
        del children[child]
        killed = os.WIFSIGNALED(status)
        kills += killed
        if killed:
            start()
    assert all(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child in children)
    ledger = Ledger.open(path)
    state = ledger.verify()
    assert ledger.export()[-1]["spent"] <= limit.capacity
    assert ledger.fitting(one) < 3  # used to the last batch
    said: dict[int, set[tuple[int, ...]]] = {}
    for file in folder.glob("said-*"):
        content = file.read_bytes()
        whole = np.frombuffer(content[: len(content) // 32 * 32], dtype=np.int64).reshape(-1, 4)
        for batch, *labels in whole.tolist():
            said.setdefault(batch, set()).add(tuple(labels))
    assert all(len(answers) == 1 for answers in said.values())  # one answer per query, whoever asked
    replay, spent = session(path, 3), state.spent
    for batch, (labels,) in said.items():
        assert tuple(replay.ask(rows(batch, 3)).labels) == labels
    assert Ledger.open(path).verify().spent == spent
    assert kills >= 200
    sys.stdout.write(
        f"{started} processes, 64 at a time, {kills} killed: {len(said)} batches came out, {state.answers} answers are "
        f"stored, {state.unsettled} batches are paid for without an answer"
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_64_racing_processes_of_which_hundreds_are_killed_pass_no_budget(tmp_path):
    sys.stdout.write(called_by_itself("test_ledger_crashes", "raced_and_killed(Path(given[0]))", tmp_path))
