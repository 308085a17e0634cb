"""Faults all along `ask`: no answer is ever without its debit, and asking again says the same."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ledgers import fitting, new_ledger
from processes import called_by_itself, die_at_event, ended, forked, surroundings
from tutelage import ConfidentGNMax, LabelingSession, Ledger, SystemNoise, VoteHistogram
from tutelage.accounting.filter import RenyiFilter
from tutelage.events import Repeated
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
    assert state.answers == sum(
        entry["answers"] for entry in entries if entry["kind"] == "answered"
    )
    return reserved, state.answers, entries[-1]["spent"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    new_ledger(tmp_path / "a.ledger", EPSILON)
    load()
    return tmp_path / "a.ledger"


def load() -> None:
    """Do before the forks what is done once per process: load the noise library, compute the costs."""
    SystemNoise().discrete_gaussian(1.0, (1,))
    RenyiFilter.suited_to(EPSILON, DELTA).cost(
        MECHANISM.event_of_one(3, ONE_TEACHER, simulated=False)
    )


def killed_at_event(path: Path, event: int) -> bytes:
    """Ask in a process that is killed before its event-th event of a file; return its answers."""
    read, write = os.pipe()

    def ask() -> None:
        die_at_event(event, path.parent)  # before the ledger is opened, whose connection is kept
        asking = session(path, 4)
        os.write(write, bytes((asking.ask(rows(0, 4)).labels + 1).tolist()))

    child = forked(ask)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read()


def kill_every(path: Path) -> None:
    """Ask in one process after the other, each killed an event later than the last, until one survives."""
    new_ledger(path, EPSILON)
    load()
    fresh, event, answers, states = path.read_bytes(), 0, b"", Counter()
    while not answers:
        event += 1
        path.write_bytes(fresh)
        answers = killed_at_event(path, event)
        reserved, answered, spent = charged(path)
        states[reserved, answered] += 1
        assert answered <= reserved  # whatever came out, or can come out, is paid
        assert (spent > 0) == (reserved > 0)
        replayed = bytes((session(path, 4).ask(rows(0, 4)).labels + 1).tolist())
        assert charged(path)[:2] == (4, 4)  # a step that was paid for is not paid for again
        assert not answered or charged(path)[2] == spent
        assert answers in (b"", replayed)
        for beside in path.parent.glob("a.ledger?*"):
            beside.unlink()  # of a child that was killed
    # Kills fell before the debit, after it, and after the answer.
    assert set(states) == {(0, 0), (4, 0), (4, 4)}
    assert min(states.values()) > 1
    sys.stdout.write(f"{states.total()} kills: {dict(states)}\n")


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


def traced(path: Path, call: str, fault: str, log: Path) -> subprocess.CompletedProcess[str]:
    """Ask in a process of its own, with a fault in a system call on the ledger, its journal or its folder."""
    watched = [
        option for name in (path, f"{path}-journal", path.parent) for option in ("-P", str(name))
    ]
    # Room for the answers is a nameless file, which no path names; nothing else in this process allocates.
    watched = [] if call == "fallocate" else watched
    command = [
        "strace",
        "-f",
        "-qq",
        "-o",
        str(log),
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:{fault}",
        *watched,
    ]
    command += [sys.executable, "-c", ASK, str(path)]
    return subprocess.run(command, env=surroundings(), capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(
    shutil.which("strace") is None, reason="faults in system calls are injected by strace"
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_any_system_call_of_ask_leaves_no_answer_without_a_debit(fault, path):
    fresh, counts, outcomes, log = (
        path.read_bytes(),
        Counter[str](),
        Counter[str](),
        path.with_name("log"),
    )
    for call in CALLS:
        for place in range(1, 99):
            for beside in path.parent.glob("a.ledger?*"):
                beside.unlink()  # of a child that was killed
            path.write_bytes(fresh)
            asked = traced(path, call, f"{FAULTS[fault]}:when={place}", log)
            if len(re.findall(rf"\b{call}\(", log.read_text())) < place:
                break
            counts[call] += 1
            assert (asked.returncode == -signal.SIGKILL) == (fault == "KILL")
            printed, (reserved, answered, spent) = asked.stdout.split(), charged(path)
            assert answered in (0, 4)
            assert answered <= reserved
            assert (spent > 0) == (reserved > 0)
            # Labels came out, so they are stored and come out again, at no cost.
            if len(printed) == 4:
                assert answered == 4
            replayed = [str(label) for label in session(path, 4).ask(rows(0, 4)).labels]
            if answered:
                assert charged(path) == (reserved, answered, spent)
                assert printed in (replayed, [], ["LedgerStorageError"], ["LedgerTamperedError"])
            outcomes[
                "answered" if answered else "paid, no answer" if reserved else "nothing spent"
            ] += 1
    assert counts["pwrite64"] > 10
    assert counts["fdatasync"] + counts["fsync"] > 5
    assert counts["unlink"] == 2  # of two journals
    assert counts["fallocate"] == 1
    assert {"nothing spent", "paid, no answer"} <= set(outcomes)


def ask_until_refused(path: Path) -> None:
    """Ask small batches of rows that other processes ask too, and write down every label that came out."""
    random = np.random.default_rng(os.getpid())
    asking = session(path, 3, timeout=3000.0)  # the processes wait for one another, in no order
    with path.with_name("said").open("ab", buffering=0) as out, suppress(BudgetExceededError):
        while True:
            batch = int(random.integers(4000))
            out.write(np.array([batch, *asking.ask(rows(batch, 3)).labels]).tobytes())


def raced_and_killed(path: Path, processes: int, kills: int, room: int) -> None:
    """Keep processes asking, kill some at random moments, let the others use up the budget, account for all of it."""
    one = MECHANISM.event_of_one(3, ONE_TEACHER, simulated=False)
    limit = RenyiFilter.holding(Repeated(one, room), DELTA)
    new_ledger(path, limit.epsilon, order=limit.order)
    load()
    children, killed = [forked(partial(ask_until_refused, path)) for _ in range(processes)], 0
    while killed < kills and children:
        victim = children.pop(secrets.randbelow(len(children)))
        os.kill(victim, signal.SIGKILL)
        code = ended(victim)
        assert code in (0, -signal.SIGKILL)
        if code:  # it was not at its end already
            killed += 1
            children.append(forked(partial(ask_until_refused, path)))
    assert killed > 0.6 * kills
    assert not any(map(ended, children))
    ledger, said = Ledger.open(path), dict[int, list[int]]()
    state = ledger.verify()
    assert ledger.export()[-1]["spent"] <= limit.capacity
    assert fitting(ledger, one) < 3  # used to the last batch
    for batch, *labels in np.fromfile(path.with_name("said"), int).reshape(-1, 4).tolist():
        assert said.setdefault(batch, labels) == labels  # one answer per query, whoever asked
    assert said
    replay = session(path, 3)
    for batch, labels in said.items():
        assert replay.ask(rows(batch, 3)).labels.tolist() == labels
    assert ledger.verify() == state


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_64_racing_processes_of_which_hundreds_are_killed_pass_no_budget(tmp_path):
    called_by_itself(
        "test_ledger_crashes",
        "raced_and_killed(Path(given[0]), 64, 300, 2000)",
        tmp_path / "a.ledger",
    )
